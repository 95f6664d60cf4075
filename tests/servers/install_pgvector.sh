#!/bin/sh
# Installs PostgreSQL and pgvector for the tests, on Debian or Ubuntu, as root. Where the release has
# a package of pgvector it is used; else the source package of a newer Debian is built.
set -eu
apt-get update -q
apt-get install -q -y --no-install-recommends postgresql postgresql-server-dev-all build-essential
major=$(pg_config --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
if apt-get install -q -y --no-install-recommends "postgresql-$major-pgvector"; then
    exit 0
fi
apt-get install -q -y --no-install-recommends dpkg-dev
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/*$' | head -n 1)
mkdir "$work/lists"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$work/source.list"
newer() {
    apt-get -q -o Dir::Etc::sourcelist="$work/source.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" "$@"
}
newer update
cd "$work"
newer source --download-only pgvector
tar xf pgvector_*.orig.tar.gz
cd pgvector-*/
# Not for this processor only, and without the bitcode that needs the compiler PostgreSQL was built with.
make -s OPTFLAGS="" with_llvm=no
make -s OPTFLAGS="" with_llvm=no install
