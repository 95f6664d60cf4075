"""Clients of the services behind, one for each token that callers send."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from fastapi import Request

from skipstone_client.aio import AsyncLatentKVClient, AsyncOrchestratorClient
from skipstone_shared.credentials import BEARER, Credentials, checked_token
from skipstone_shared.errors import InvalidArgument

_MAX_CLIENTS = 64
"""A channel each; the one unused longest is closed for a new one."""


class _Closes(Protocol):
    async def close(self) -> None: ...


ClientT = TypeVar("ClientT", bound=_Closes)


class ClientPerCaller(Generic[ClientT]):
    """Passes every caller's own token on, so that the service behind decides what it may do.

    A caller without one is who the gateway is (``client_token_file``). For one event loop.
    """

    def __init__(self, credentials: Credentials, open_client: Callable[[Credentials], ClientT]):
        """Creates it without connecting.

        Args:
            credentials: The gateway's own.
            open_client: Makes a client, which connects with its first call.
        """
        self._credentials = credentials
        self._open = open_client
        self._own = open_client(credentials)
        self._by_token: OrderedDict[str, ClientT] = OrderedDict()

    async def client(self, request: Request) -> ClientT:
        """The client with the token of a request.

        Raises:
            InvalidArgument: The request has an Authorization header that is no bearer token.
        """
        header = request.headers.get("authorization")
        if not header:
            return self._own
        if not header.startswith(BEARER):
            raise InvalidArgument("not a bearer token", field="authorization")
        token = checked_token(header.removeprefix(BEARER).strip(), "authorization")
        if token in self._by_token:
            self._by_token.move_to_end(token)
            return self._by_token[token]
        while len(self._by_token) >= _MAX_CLIENTS:
            _, unused = self._by_token.popitem(last=False)
            await unused.close()
        theirs = dataclasses.replace(self._credentials, token=token, token_file=None)
        return self._by_token.setdefault(token, self._open(theirs))

    async def close(self) -> None:
        """Closes all."""
        for client in (self._own, *self._by_token.values()):
            await client.close()


Orchestrators = ClientPerCaller[AsyncOrchestratorClient]
Stores = ClientPerCaller[AsyncLatentKVClient]
