"""SeaweedFS, an S3 server, as a process on free loopback ports with its data in a folder.

For benchmarks, and for tests, which kill it, hang it and start it again.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

BUCKET = "latents"
REGION = "us-east-1"
SECRET_KEY = "secret-of-nobody"
_ACCESS_KEY = "owner"
_START_S = 90.0
"""Seconds; after a kill it takes about 20 until it serves again."""


class SeaweedFSProcess:
    """One server with one bucket, which comes back on the same ports with the same data."""

    def __init__(self, program: str, folder: Path, rights: Mapping[str, Sequence[str]]) -> None:
        """Starts it; returns once it stores an object.

        Args:
            program: Path of ``weed``.
            folder: For its data, log and settings; created.
            rights: More access keys, all with ``SECRET_KEY``, and what each of them may do.
        """
        self._program = program
        self.folder = folder
        (folder / "data").mkdir(parents=True)
        rights = {_ACCESS_KEY: ("Admin", "Read", "List", "Tagging", "Write"), **rights}
        identities = [
            {
                "name": key,
                "credentials": [{"accessKey": key, "secretKey": SECRET_KEY}],
                "actions": list(actions),
            }
            for key, actions in rights.items()
        ]
        (folder / "s3.json").write_text(json.dumps({"identities": identities}))
        self.credentials_file = folder / "credentials"
        self.credentials_file.write_text(
            f"[default]\naws_access_key_id = {_ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
        )
        # It derives its gRPC ports from the others, so those must be free as well.
        self._ports = _free_ports(4)
        self.endpoint = f"http://127.0.0.1:{self._ports[3]}"
        self.start()

    def start(self) -> None:
        """Starts it; returns once it stores an object."""
        master, volume, filer, s3 = self._ports
        # Ends the server with its parent, however that ends.
        command = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command += [self._program, "server", f"-dir={self.folder}/data"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}"]
        command += [f"-volume.port={volume}", "-filer", f"-filer.port={filer}"]
        command += ["-s3", f"-s3.port={s3}", f"-s3.config={self.folder}/s3.json"]
        command += ["-master.volumeSizeLimitMB=64", "-volume.max=40", "-s3.iam=false"]
        # Two servers on one machine would want the same ports; its makers get statistics.
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
        # What it writes besides goes into its folder too.
        environ = {**os.environ, "TMPDIR": str(self.folder)}
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, env=environ
            )
        end = time.monotonic() + _START_S
        while not self._stores():
            text = (self.folder / "log").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None, f"SeaweedFS did not start: {text}"
            assert time.monotonic() < end, f"SeaweedFS does not serve: {text}"
            time.sleep(0.05)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a latent_kv that uses it."""
        return {
            "store": "s3",
            "s3_bucket": BUCKET,
            "s3_endpoint": self.endpoint,
            "s3_region": REGION,
            "s3_path_style": True,
            "s3_credentials_file": str(self.credentials_file),
        }

    @cached_property
    def client(self) -> Any:
        """A client of the library, for what is done behind the back of a store."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=_ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def hang(self) -> None:
        """Stops it without ending it; ``go_on`` continues."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continues after ``hang``."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def remove(self) -> None:
        """Ends it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        # Sockets that it makes wherever it is told to write.
        for port, kind in itertools.product(self._ports, ("filer", "s3", "s3-grpc")):
            Path(f"/tmp/seaweedfs-{kind}-{port}.sock").unlink(missing_ok=True)

    def _stores(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/", timeout=2).close()
        except urllib.error.HTTPError:
            pass  # It answers: nobody may list buckets without a signature.
        except OSError:
            return False
        client = self.client
        # Where it is there from before, or the next call fails too.
        with suppress(BotoCoreError, ClientError):
            client.create_bucket(Bucket=BUCKET)
        try:
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
            return bool(client.get_object(Bucket=BUCKET, Key="ready")["Body"].read() == b"ready")
        except (BotoCoreError, ClientError):
            return False


def seaweedfs_program() -> str | None:
    """The program, which comes with a pip package; None without it."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def running_seaweedfs(directory: Path) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Runs one server; yields the flags of a latent_kv that uses it, and its process id."""
    server = SeaweedFSProcess(str(seaweedfs_program()), directory, {})
    try:
        yield as_flags(server.settings), [server.process.pid]
    finally:
        server.remove()


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Settings as flags of a service."""
    flags = []
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        flags += [flag] if value is True else [flag, str(value)]
    return flags


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now, nor on those 10,000 above them."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as probe, socket.socket() as above:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1]) % 20_000 + 20_000
            try:
                above.bind(("127.0.0.1", port + 10_000))
                with socket.socket() as below:
                    below.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in found:
                found.append(port)
    return found
