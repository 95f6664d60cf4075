"""Pods as containers: the images, run by podman as the manifests say.

User, capabilities, read-only root, memory limit, volumes, command and variables are those of the
manifests, with nothing replaced; a network with DNS stands for the cluster, and the name that all
containers of a workload share for its Service.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from images.source_digest import source_digest
from tests.e2e.deploy.pods import Pod
from tests.unit.deploy.rendered import CHART, Workload

REGISTRY = "localhost/skipstone"
"""Where the tests look for images: `make images IMAGE_PREFIX=localhost/skipstone`."""

_LIMIT = 4096
"""Files and processes of a container: podman's defaults are more than a nested root may set."""

_numbers = itertools.count(1)


def podman(*words: str, timeout_s: float = 120.0) -> str:
    """What a podman command prints.

    Raises:
        RuntimeError: It failed; with what it said.
    """
    done = subprocess.run(
        ["podman", *words], capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode:
        raise RuntimeError(f"podman {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def image_of(component: str) -> str:
    """Name of the image that a release of the chart runs."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    return f"{REGISTRY}/{component}:{chart['appVersion']}"


def sources() -> dict[str, str]:
    """What the images on this machine say of the code they hold, by their names."""
    found = json.loads(podman("images", "--format", "json")) or []
    return {
        name: (image.get("Labels") or {}).get("dev.skipstone.source", "unknown")
        for image in found
        for name in image.get("Names") or ()
    }


def require_images(*components: str) -> None:
    """Skips where podman or an image is missing, and fails where one is of other code."""
    if shutil.which("podman") is None:
        pytest.skip("NOT TESTED: podman is missing (apt-get install podman runc netavark)")
    known, wanted = sources(), source_digest()
    missing = [name for name in components if image_of(name) not in known]
    if missing:
        pytest.skip(f"NOT TESTED: no images of {', '.join(missing)}: {_build(missing)}")
    stale = [name for name in components if known[image_of(name)] != wanted]
    if stale:
        pytest.fail(f"the images of {', '.join(stale)} are of other code: {_build(stale)}")


def _build(components: Sequence[str]) -> str:
    names = " ".join(components)
    return (
        f'make images IMAGES="{names}" IMAGE_PREFIX={REGISTRY} '
        'IMAGE_BUILD="buildah bud --isolation chroot --layers"'
    )


class Network:
    """A network whose DNS knows containers by the names of their Services."""

    def __init__(self) -> None:
        """Creates it."""
        self.name = f"skipstone-{os.getpid()}-{next(_numbers)}"
        podman("network", "create", self.name)

    def close(self) -> None:
        """Removes it, with all containers in it."""
        podman("network", "rm", "--force", self.name)


class ContainerPod(Pod):
    """One pod of a workload, in a container."""

    def __init__(
        self, workload: Workload, folder: Path, network: Network, claims: dict[str, Path]
    ) -> None:
        """Starts nothing yet.

        Args:
            workload: What it is a pod of.
            folder: For its data.
            network: Where it is found.
            claims: Folders by the name of the claim that they stand for; its data are in `folder`.
        """
        super().__init__(workload, folder)
        self._network = network
        self._claims = claims
        self._container = ""
        self.name = f"{network.name}-{workload.name}-{next(_numbers)}"

    def start(self, hosts: Path) -> None:
        """Starts the container; `hosts` is not needed."""
        self._container = podman(*self._run_command())
        (found,) = json.loads(podman("inspect", self._container))
        self.address = found["NetworkSettings"]["Networks"][self._network.name]["IPAddress"]

    def _run_command(self) -> list[str]:
        pod, container = self.workload.pod["spec"], self.workload.container
        program, *words = self.workload.command
        user, security = pod["securityContext"], container["securityContext"]
        aliases = (f"--network-alias={name}" for name in self.workload.services)
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        return [
            *("run", "--detach", "--name", self.name, "--pull", "never"),
            *("--network", self._network.name, *aliases),
            *("--user", f"{user['runAsUser']}:{user['runAsGroup']}", "--read-only"),
            *("--read-only-tmpfs=false", "--security-opt", "no-new-privileges"),
            *(f"--cap-drop={name}" for name in security["capabilities"]["drop"]),
            *("--memory", bytes_of(container["resources"]["limits"]["memory"])),
            *("--ulimit", f"nofile={_LIMIT}", "--ulimit", f"nproc={_LIMIT}"),
            *(word for mount in container["volumeMounts"] for word in self._mounted(mount)),
            *(f"--env={variable['name']}={variable['value']}" for variable in container["env"]),
            *("--entrypoint", program, container["image"], *words),
        ]

    def _mounted(self, mount: dict[str, Any]) -> list[str]:
        path, name = mount["mountPath"], mount["name"]
        volumes = {volume["name"]: volume for volume in self.workload.pod["spec"]["volumes"]}
        volume = volumes.get(name, {})
        if "emptyDir" in volume:
            size = bytes_of(volume["emptyDir"]["sizeLimit"])
            return ["--tmpfs", f"{path}:rw,mode=1777,size={size}"]
        if name != "data":
            source = self._claims[volumes[name]["persistentVolumeClaim"]["claimName"]]
            return ["--volume", f"{source}:{path}:ro"]
        # Its own: what fsGroup does is done here.
        source = self._folder / self.workload.name
        source.mkdir(exist_ok=True)
        group = self.workload.pod["spec"]["securityContext"]["fsGroup"]
        os.chown(source, 0, group)
        source.chmod(0o2775)
        return ["--volume", f"{source}:{path}:rw"]

    @property
    def is_running(self) -> bool:
        return podman("inspect", "--format", "{{.State.Running}}", self._container) == "true"

    def told(self) -> str:
        """Its log."""
        done = subprocess.run(
            ["podman", "logs", self._container], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def stop(self) -> None:
        """Asks it to end, and gives it what the manifest gives it."""
        left = self.workload.pod["spec"]["terminationGracePeriodSeconds"] - self.pre_stop_s
        podman("kill", "--signal", "TERM", self._container)
        code = podman("wait", self._container, timeout_s=left)
        assert code == "0", self.told()
        podman("rm", self._container)
        self._container = ""

    def kill(self) -> None:
        """Ends it at once, if it runs."""
        if self._container:
            podman("rm", "--force", "--time", "0", self._container)
            self._container = ""


def bytes_of(quantity: str) -> str:
    """A Kubernetes quantity such as 6Gi, as podman writes it."""
    assert quantity.endswith(("Mi", "Gi")), quantity
    return quantity.removesuffix("i").lower()
