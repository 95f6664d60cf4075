"""Clients of the orchestrator, one for each token that callers send."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

from fastapi import Request

from skipstone_client.aio import AsyncOrchestratorClient
from skipstone_shared.credentials import BEARER, Credentials, checked_token
from skipstone_shared.errors import InvalidArgument

_MAX_CLIENTS = 64
"""A channel each; the one unused longest is closed for a new one."""


class Orchestrators:
    """Passes every caller's own token on, so that the orchestrator decides what it may do.

    A caller without one is who the gateway is (``client_token_file``). For one event loop.
    """

    def __init__(self, target: str, credentials: Credentials, timeout_s: float) -> None:
        """Creates it without connecting.

        Args:
            target: gRPC target of the orchestrator.
            credentials: The gateway's own.
            timeout_s: Seconds that one generation may take.
        """
        self._target = target
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._own = self._open(credentials)
        self._by_token: OrderedDict[str, AsyncOrchestratorClient] = OrderedDict()

    async def client(self, request: Request) -> AsyncOrchestratorClient:
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

    def _open(self, credentials: Credentials) -> AsyncOrchestratorClient:
        return AsyncOrchestratorClient(
            self._target, generate_timeout_s=self._timeout_s, credentials=credentials
        )
