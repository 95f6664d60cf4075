#!/bin/sh
# Makes the base image of the Dockerfile where no image registry can be reached, from Debian's
# packages: the same packages as debian:bookworm-slim. Needs root, debootstrap and buildah.
#
#   deploy/images/base_image.sh localhost/debian:bookworm-slim
#   buildah bud --build-arg BASE_IMAGE=localhost/debian:bookworm-slim ...
set -eu

name=${1:?name of the image}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

debootstrap --variant=minbase bookworm "$root" >&2
# As the slim variant of the official image: no manuals, no translations, no package lists.
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* \
    "$root"/usr/share/info/* "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/archives/*.deb \
    "$root"/var/log/*

container=$(buildah from scratch)
buildah add --quiet "$container" "$root" / >&2
buildah config --cmd /bin/bash "$container"
buildah commit --quiet --rm "$container" "$name"
