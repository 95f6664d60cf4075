"""Where S3 is, and a client of the library for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ConfigParseError,
    PartialCredentialsError,
    ProfileNotFound,
)

from skipstone_shared.errors import FailedPrecondition

_CONNECTIONS = 64
_FORM = "aws_access_key_id and aws_secret_access_key below [default]"


@dataclasses.dataclass(frozen=True)
class S3Address:
    """Where a store is; the settings ``s3_*``.

    Attributes:
        bucket: Name of the bucket.
        endpoint: URL of the server; empty for Amazon's.
        region: Region; empty for the one of the library's own settings.
        path_style: Whether the bucket is in the path of URLs rather than in the host name.
        credentials_file: File with the credentials, as Amazon's tools write it (profile
            ``default``); None for where the library always looks: environment, files, and the role
            of the machine, which it renews.
        timeout_s: Seconds to connect, and seconds that the server may be silent.
        attempts: Tries of each request, the first included.
    """

    bucket: str
    endpoint: str = ""
    region: str = ""
    path_style: bool = False
    credentials_file: Path | None = None
    timeout_s: float = 5.0
    attempts: int = 3


def connect(address: S3Address) -> Any:
    """A client of the library; nothing is asked yet.

    Raises:
        FailedPrecondition: the address cannot be one; the message names the setting.
    """
    options = {"addressing_style": "path" if address.path_style else "auto"}
    config = Config(
        s3=options,
        connect_timeout=address.timeout_s,
        read_timeout=address.timeout_s,
        retries={"mode": "standard", "total_max_attempts": address.attempts},
        max_pool_connections=_CONNECTIONS,
        # Every value has a checksum of its own in the log, which is compared.
        response_checksum_validation="when_required",
        user_agent_extra="skipstone-latent-kv",
    )
    try:
        return _session(address.credentials_file).client(
            "s3",
            endpoint_url=address.endpoint or None,
            region_name=address.region or None,
            config=config,
        )
    except (ProfileNotFound, ConfigParseError, PartialCredentialsError) as error:
        where = f"s3_credentials_file ({address.credentials_file or 'none: AWS_PROFILE'})"
        raise FailedPrecondition(
            f"{where} is of no use: {error}; it should hold {_FORM}"
        ) from error
    except (BotoCoreError, ValueError) as error:
        raise FailedPrecondition(
            f"S3 cannot be used with this s3_endpoint ({address.endpoint or 'none'}) and s3_region "
            f"({address.region or 'none'}): {error}"
        ) from error


def _session(credentials_file: Path | None) -> Any:
    if credentials_file is None:
        return boto3.session.Session()
    try:
        credentials_file.read_bytes()
    except OSError as error:  # The library would go on without it.
        raise FailedPrecondition(
            f"s3_credentials_file ({credentials_file}) cannot be read: {error.strerror}; it should "
            f"hold {_FORM}"
        ) from error
    # A profile that is asked for comes before variables of the environment.
    core = botocore.session.Session(profile="default")
    core.set_config_variable("credentials_file", str(credentials_file))
    return boto3.session.Session(botocore_session=core)
