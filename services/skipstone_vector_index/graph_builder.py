"""The one background thread of an index: builds and saves graphs, one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from skipstone_shared.structured_logging import get_logger


class GraphBuilder:
    """Runs builds in the order in which they were asked for.

    Attributes:
        stopping: Set once the builder closes; a running build looks at it and gives up.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="graph-builder")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Runs what is asked for inside the block only after it."""
        go = threading.Event()
        self._thread.submit(go.wait)
        try:
            yield
        finally:
            go.set()

    def schedule(self, build: Callable[[], None]) -> None:
        """Runs a build soon. A failure is logged: the old vectors go on answering."""

        def run() -> None:
            try:
                build()
            except Exception as error:  # noqa: BLE001 - the thread must live on
                get_logger().error("building or saving a graph failed", exc_info=error)

        self._thread.submit(run)

    def wait(self) -> None:
        """Returns when every build asked for before the call has ended."""
        self._thread.submit(lambda: None).result()

    def close(self) -> None:
        """Gives up what is running and waiting."""
        self.stopping.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
