"""SeaweedFS of a benchmark: an S3 on loopback with its data in a folder."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from server_process import ServerProcess, wait_until

_BUCKET = "latents"
_KEY = "bench"
_IDENTITY = {
    "name": _KEY,
    "credentials": [{"accessKey": _KEY, "secretKey": _KEY}],
    "actions": ["Admin", "Read", "List", "Write"],
}


def seaweedfs_program() -> str | None:
    """The program, which comes with a pip package; None without it."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def running_seaweedfs(directory: Path) -> Iterator[tuple[Sequence[str], Sequence[int]]]:
    """Runs one server; yields the flags of a latent_kv that uses it, and its process id."""
    data, config, credentials = (directory / n for n in ("objects", "s3.json", "credentials"))
    data.mkdir()
    config.write_text(json.dumps({"identities": [_IDENTITY]}))
    credentials.write_text(
        f"[default]\naws_access_key_id = {_KEY}\naws_secret_access_key = {_KEY}\n"
    )
    master, volume, filer, s3 = _free_ports(4)
    command = [str(seaweedfs_program()), "server", f"-dir={data}"]
    command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}"]
    command += [f"-volume.port={volume}", "-volume.max=40", "-master.volumeSizeLimitMB=256"]
    command += ["-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}", f"-s3.config={config}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    process = ServerProcess(command, directory / "seaweedfs.log")
    try:
        endpoint = f"http://127.0.0.1:{s3}"
        wait_until(lambda: _has_bucket(endpoint), "SeaweedFS stores objects")
        flags = ["--store", "s3", "--s3-endpoint", endpoint, "--s3-bucket", _BUCKET]
        flags += ["--s3-path-style", "--s3-credentials-file", str(credentials)]
        yield [*flags, "--s3-region", "us-east-1"], [process.pid]
    finally:
        process.end(kill=True)


def _has_bucket(endpoint: str) -> bool:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=_KEY,
        aws_secret_access_key=_KEY,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )
    try:
        client.create_bucket(Bucket=_BUCKET)
        client.put_object(Bucket=_BUCKET, Key="ready", Body=b"ready")
    except (BotoCoreError, ClientError):
        return False
    return True


def _free_ports(count: int) -> list[int]:
    """Ports below 50,000: it listens 10,000 above each of them too."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) % 20_000 + 20_000 for probe in probes]
    finally:
        for probe in probes:
            probe.close()
