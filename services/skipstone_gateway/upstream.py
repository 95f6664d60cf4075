"""Clients of the services behind, for whoever calls."""

from __future__ import annotations

from typing import TypeVar

from fastapi import Request

from skipstone_client.aio import AsyncLatentKVClient, AsyncOrchestratorClient
from skipstone_shared.credentials import BEARER, checked_token
from skipstone_shared.errors import InvalidArgument, Unimplemented

ClientT = TypeVar("ClientT", AsyncOrchestratorClient, AsyncLatentKVClient)


class Upstream:
    """Passes every caller's own token on, so that the services behind decide what it may do.

    A caller without one is who the gateway is (``client_token_file``). All share the connections:
    what is made for a caller costs nothing to keep or to drop, whoever it claims to be.
    """

    def __init__(
        self, orchestrator: AsyncOrchestratorClient, store: AsyncLatentKVClient | None
    ) -> None:
        """Creates it.

        Args:
            orchestrator: Client with the gateway's own credentials; not owned.
            store: The same of latent_kv; None where nobody pins.
        """
        self._orchestrator = orchestrator
        self._store = store

    @property
    def has_store(self) -> bool:
        """Whether latent_kv can be asked."""
        return self._store is not None

    def orchestrator(self, request: Request) -> AsyncOrchestratorClient:
        """The orchestrator for the caller of a request.

        Raises:
            InvalidArgument: The request has an Authorization header that is no bearer token.
        """
        return _for_caller(self._orchestrator, request)

    def store(self, request: Request) -> AsyncLatentKVClient:
        """latent_kv for the caller of a request; see `orchestrator`.

        Raises:
            Unimplemented: There is none.
        """
        if self._store is None:
            raise Unimplemented("this gateway has no latent_kv_target, by which it would pin")
        return _for_caller(self._store, request)


def _for_caller(client: ClientT, request: Request) -> ClientT:
    token = caller_token(request)
    return client.with_token(token) if token else client


def caller_token(request: Request) -> str:
    """The bearer token of a request; empty for none.

    Raises:
        InvalidArgument: The request has an Authorization header that is no bearer token.
    """
    header = request.headers.get("authorization")
    if not header:
        return ""
    if not header.startswith(BEARER):
        raise InvalidArgument("not a bearer token", field="authorization")
    return checked_token(header.removeprefix(BEARER).strip(), "authorization")
