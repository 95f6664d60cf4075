"""Who a client is to its service: the credentials of its channel and the metadata of its calls."""

from __future__ import annotations

import copy
import logging
from typing import Any

import grpc

from skipstone_client._channel import Service, channel_options, is_local
from skipstone_shared.credentials import AUTHORIZATION_KEY, BEARER, Credentials, read_token
from skipstone_shared.grpc_tls import channel_credentials
from skipstone_shared.reloaded import Reloaded
from skipstone_shared.tls_files import read_tls

_log = logging.getLogger(__name__)


class ChannelAccess:
    """What the channels of one client need to be let in. Threads may share it."""

    def __init__(self, target: str, service: Service, credentials: Credentials | None) -> None:
        """Reads the files.

        Args:
            target: gRPC target of the service.
            service: What is behind it.
            credentials: Who the client is; None: anybody, in plain text.

        Raises:
            InvalidArgument: A file cannot be used.
        """
        credentials = credentials or Credentials()
        self._target = target
        self._service = service
        self._server_name = credentials.tls_server_name
        self._tls = _reloaded_credentials(credentials)
        self._token = _reloaded_token(credentials)
        if self._token is not None and self._tls is None and not is_local(target):
            _log.warning("the token for %s is sent in plain text; use TLS", target)

    def with_token(self, token: str) -> ChannelAccess:
        """The same way in for another caller."""
        twin = copy.copy(self)
        twin._token = Reloaded("token", (), lambda: token)
        return twin

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Credentials for a channel, the same object until the files change; None: plain text."""
        return None if self._tls is None else self._tls.get()

    def options(self) -> list[tuple[str, Any]]:
        """Options of a channel."""
        options = channel_options(self._target, self._service)
        if self._server_name:
            options.append(("grpc.ssl_target_name_override", self._server_name))
        return options

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries beside the request id."""
        if self._token is None:
            return ()
        return ((AUTHORIZATION_KEY, BEARER + self._token.get()),)


def _reloaded_credentials(credentials: Credentials) -> Reloaded[grpc.ChannelCredentials] | None:
    files = credentials.tls_files()
    if files is None:
        return None
    name = f"certificates of {files.prefix}ca_file"
    return Reloaded(name, files.paths, lambda: channel_credentials(read_tls(files)))


def _reloaded_token(credentials: Credentials) -> Reloaded[str] | None:
    token, path = credentials.token, credentials.token_file
    if token is not None:
        return Reloaded("token", (), lambda: token)
    if path is None:
        return None
    name = f"{credentials.prefix}token_file"
    return Reloaded(name, (path,), lambda: read_token(path, name))
