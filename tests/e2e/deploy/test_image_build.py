"""`make images` builds an image of the code at hand, which starts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from images.source_digest import source_digest
from tests.e2e.deploy.containers import podman, sources
from tests.unit.deploy.rendered import REPOSITORY

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

BASE = os.environ.get("SKIPSTONE_TEST_BASE_IMAGE", "localhost/debian:bookworm-slim")
"""What `base_image.sh` makes, or another one: docker.io/library/debian:bookworm-slim."""

MORE = os.environ.get("SKIPSTONE_TEST_BUILD_OPTIONS", "")
"""More of the command line of buildah: volumes with packages, where no registry is reached."""

PREFIX = "localhost/skipstone-built-by-tests"


@pytest.fixture
def image() -> Iterator[str]:
    """The image of the smallest service, built by this test."""
    for program in ("buildah", "podman"):
        if shutil.which(program) is None:
            pytest.skip(f"NOT TESTED: {program} is missing (apt-get install buildah podman runc)")
    if BASE.startswith("localhost/") and BASE not in sources():
        pytest.skip(f"NOT TESTED: no base image: deploy/images/base_image.sh {BASE}")
    build = f"buildah bud --isolation chroot --layers --build-arg BASE_IMAGE={BASE} {MORE}"
    words = [
        f"IMAGE_BUILD={build}",
        f"IMAGE_PREFIX={PREFIX}",
        "IMAGE_TAG=test",
        "IMAGES=orchestrator",
    ]
    done = subprocess.run(
        ["make", "images", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{shlex.join(words)}: {(done.stdout + done.stderr)[-4000:]}"
    name = f"{PREFIX}/orchestrator:test"
    yield name
    podman("rmi", "--force", name)


def test_make_images_builds_the_code_at_hand(image: str) -> None:
    assert sources()[image] == source_digest()
    told = podman("run", "--rm", "--pull", "never", "--network", "none", image, "--help")
    assert "--latent-kv-target" in told
