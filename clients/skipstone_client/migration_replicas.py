"""All processes behind one gRPC target that move the entries of one backend to another."""

from __future__ import annotations

import dataclasses
from types import TracebackType
from typing import Self

from skipstone_client._addresses import addresses_of
from skipstone_client.migration import MigrationClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import Unimplemented
from skipstone_shared.migration import MigrationStep, MissedWrites


class NotToldToMove(Unimplemented):
    """A process that serves writes to its own backend alone, or is too old to say what it missed.

    Attributes:
        target: Where it listens.
    """

    def __init__(self, target: str) -> None:
        """Creates it.

        Args:
            target: Where it listens.
        """
        super().__init__(
            f"what listens at {target} was not told to move, or it is of an older version than "
            "this client: upgrade it"
        )
        self.target = target


class MigrationReplicas:
    """Asks any of them for a step, and each of them what its writes missed."""

    def __init__(
        self, target: str, *, timeout_s: float, credentials: Credentials | None = None
    ) -> None:
        """Creates the clients without connecting.

        Args:
            target: gRPC target; a name that has several addresses, or a list of addresses, means
                all of them.
            timeout_s: Deadline of a call, in seconds.
            credentials: Certificates and token; None: none, in plain text.
        """
        self._target = target
        self._timeout_s = timeout_s
        self._credentials = credentials or Credentials()
        self._any = self._client(target, self._credentials)
        self._each: dict[str, MigrationClient] = {}

    def migrate_entries(self, page_token: str, *, max_bytes: int, verify: bool) -> MigrationStep:
        """One step of a pass; see `MigrationClient`.

        Raises:
            NotToldToMove: The process that answers was not told to move.
        """
        try:
            return self._any.migrate_entries(page_token, max_bytes=max_bytes, verify=verify)
        except Unimplemented as error:
            raise NotToldToMove(self._target) from error

    def get_missed_writes(self) -> list[MissedWrites]:
        """Counts the writes that each process missed.

        Raises:
            NotToldToMove: One of them was not told to move.
            Unavailable: One of them does not answer.
        """
        return [_missed_writes(client) for client in self._clients()]

    def close(self) -> None:
        """Closes all clients."""
        for client in (self._any, *self._each.values()):
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _clients(self) -> list[MigrationClient]:
        """One for each process that there is now."""
        host, addresses = addresses_of(self._target)
        if len(addresses) < 2:
            return [self._any]
        for address in self._each.keys() - set(addresses):
            self._each.pop(address).close()
        # Certificates carry the name, and not the addresses behind it.
        name = self._credentials.tls_server_name or host
        of_each = dataclasses.replace(self._credentials, tls_server_name=name)
        for address in addresses:
            if address not in self._each:
                self._each[address] = self._client(address, of_each)
        return [self._each[address] for address in addresses]

    def _client(self, target: str, credentials: Credentials) -> MigrationClient:
        return MigrationClient(target, timeout_s=self._timeout_s, credentials=credentials)


def _missed_writes(client: MigrationClient) -> MissedWrites:
    try:
        return client.get_missed_writes()
    except Unimplemented as error:
        raise NotToldToMove(client.target) from error
