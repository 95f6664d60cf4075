"""A client for every replica behind a target, asked all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

from skipstone_client._addresses import host_and_port
from skipstone_client.top.addresses import Addresses, Resolve, by_name
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import SkipstoneError

MOST_AT_ONCE = 32
"""Replicas that are asked at the same time; more are asked after them."""


class _Closes(Protocol):
    def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=_Closes)
T = TypeVar("T")


class Replicas(Generic[ClientT]):
    """Asks every replica by its own address."""

    def __init__(
        self,
        target: str,
        open_client: Callable[[str, Credentials], ClientT],
        credentials: Credentials | None,
        resolve: Resolve = by_name,
    ) -> None:
        """Begins to look the name up; connects to nothing yet.

        Args:
            target: gRPC target.
            open_client: Makes the client of one address.
            credentials: Who asks; None: anybody, in plain text.
            resolve: How the target is looked up.
        """
        self.target = target
        self._open = open_client
        self._credentials = _of_name(credentials or Credentials(), target)
        self._addresses = Addresses(target, resolve)
        self._clients: dict[str, ClientT] = {}
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="top")

    def ask(self, call: Callable[[ClientT], T]) -> Mapping[str, T | SkipstoneError]:
        """The answer of every replica that the name stands for now, or why there is none.

        Takes as long as the slowest of MOST_AT_ONCE.
        """
        listed = self._addresses.now()
        for address in self._clients.keys() - set(listed):
            self._clients.pop(address).close()

        def answer(address: str) -> T | SkipstoneError:
            try:
                return call(self._client(address))
            except SkipstoneError as error:
                return error

        for address in listed:
            self._client(address)
        return dict(zip(listed, self._pool.map(answer, listed), strict=True))

    def close(self) -> None:
        """Closes all connections."""
        self._addresses.close()
        self._pool.shutdown()
        for client in self._clients.values():
            client.close()

    def _client(self, address: str) -> ClientT:
        if address not in self._clients:
            self._clients[address] = self._open(address, self._credentials)
        return self._clients[address]


def _of_name(credentials: Credentials, target: str) -> Credentials:
    """Credentials that ask each address for the certificate of the name."""
    if credentials.tls_server_name:
        return credentials
    return dataclasses.replace(credentials, tls_server_name=host_and_port(target)[0])
