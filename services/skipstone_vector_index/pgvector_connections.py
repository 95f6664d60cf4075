"""Connections to PostgreSQL, one per thread that needs one, and its errors as Skipstone's."""

from __future__ import annotations

import math
import select
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg import register_vector
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from skipstone_shared.errors import (
    Aborted,
    DeadlineExceeded,
    FailedPrecondition,
    ResourceExhausted,
    SkipstoneError,
    Unavailable,
)

_Result = TypeVar("_Result")

_WAKE_UP_S = 0.1
"""After which a wait for the server looks for an interrupt, as everywhere in psycopg."""

_GRACE_S = 1.0
"""Beyond its timeout, for PostgreSQL to tell that a statement took too long."""

_LEAST_CONNECT_TIMEOUT_S = 2
"""libpq takes no less."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One that ends when the server is silent for too long, which libpq does not notice."""

    answer_timeout_s: float | None = None
    """Seconds until a wait for the server is given up; None: never."""

    def wait(
        self,
        gen: PQGen[_Result],
        interval: float = _WAKE_UP_S,
        timeout: float | None = None,
    ) -> _Result:
        """Waits for the server."""
        timeout = self.answer_timeout_s if timeout is None else timeout
        end = math.inf if timeout is None else time.monotonic() + timeout
        try:
            return super().wait(gen, interval, timeout)
        except psycopg.OperationalError:
            if time.monotonic() >= end:
                self.close()  # what it would answer later is of no statement any more
            raise


class PgConnections:
    """Open connections, the one used last first; as many as threads have asked at one time.

    No pool of a library: those have a caller wait for a new connection until a timeout, where one
    that is refused should fail at once.
    """

    def __init__(self, url: str, timeout_s: float, settings: Mapping[str, str]) -> None:
        """Prepares connecting.

        Args:
            url: Where the database is, with its password; never shown.
            timeout_s: Seconds that a statement may take.
            settings: More parameters of each session.
        """
        self._url = url
        self._timeout_s = timeout_s
        self._settings = {"statement_timeout": f"{int(timeout_s * 1000)}ms", **settings}
        self._lock = threading.Lock()
        self._idle: deque[Connection] = deque()
        self._closed = False

    @contextmanager
    def get(self) -> Iterator[Connection]:
        """Lends a connection in autocommit mode; what is left of a transaction is rolled back.

        Raises:
            Unavailable: PostgreSQL is away, or these are closed.
            DeadlineExceeded: A statement took too long.
            ResourceExhausted: Its disk or memory is full.
            Aborted: The transaction lost against another.
        """
        with translated_errors():
            connection = self._take()
            try:
                yield connection
            finally:
                self._give_back(connection)

    def connect(self) -> Connection:
        """Opens a connection that the caller closes."""
        timeout_ms = int(self._timeout_s * 1000)
        try:
            connection = Connection.connect(
                self._url,
                autocommit=True,
                connect_timeout=max(_LEAST_CONNECT_TIMEOUT_S, math.ceil(self._timeout_s)),
                # A host that is gone without a word ends a call after about as long.
                tcp_user_timeout=timeout_ms,
                keepalives_idle=max(1, timeout_ms // 2000),
                keepalives_interval=1,
                keepalives_count=2,
            )
        except psycopg.ProgrammingError:
            # Its text shows parts of the URL, which has a password.
            raise FailedPrecondition(
                "url is not one of PostgreSQL",
                field="url",
                allowed="postgresql://user:password@host:5432/database",
            ) from None
        connection.answer_timeout_s = self._timeout_s + _GRACE_S
        for name, value in self._settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        return connection

    def close(self) -> None:
        """Closes what is idle now, and the others when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise Unavailable("the index is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                connection = self.connect()
                register_vector(connection)
                return connection
            if _is_alive(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            if connection.info.transaction_status != TransactionStatus.IDLE:
                connection.rollback()
            with self._lock:
                if not self._closed and not connection.closed:
                    self._idle.append(connection)
                    return
        connection.close()


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises Skipstone's errors for those of PostgreSQL that an operator or caller can mend."""
    try:
        yield
    except psycopg.Error as error:
        raise (_translated(error) or error) from error


def _translated(error: psycopg.Error) -> SkipstoneError | None:
    text = f"pgvector: {str(error).strip() or type(error).__name__}"
    if isinstance(error, errors.QueryCanceled):
        return DeadlineExceeded(text)
    if isinstance(error, errors.DiskFull | errors.OutOfMemory):
        return ResourceExhausted(text)
    if isinstance(error, errors.DeadlockDetected | errors.SerializationFailure):
        return Aborted(text)
    # A standby that has not been promoted yet refuses writes.
    if isinstance(
        error, psycopg.OperationalError | psycopg.InterfaceError | errors.ReadOnlySqlTransaction
    ):
        return Unavailable(text)
    return None


def _is_alive(connection: Connection) -> bool:
    """Whether an idle connection can be used: one with something to read was ended by the server.

    Costs no message, so that a restart of PostgreSQL goes unnoticed by callers.
    """
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
