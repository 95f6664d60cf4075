"""Something whose calls do not return before a test lets them."""

from __future__ import annotations

import threading
from typing import Any

WAIT_S = 60.0


class Hanging:
    """Another object with all its methods, of which calls of some names hang until it goes on."""

    def __init__(self, inner: object, *names: str) -> None:
        self.inner = inner
        self.names = names
        self.entered = threading.Event()
        self.goes_on = threading.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in self.names or self.goes_on.is_set():
            return method

        def call(*args: Any, **options: Any) -> Any:
            self.entered.set()
            assert self.goes_on.wait(WAIT_S)
            return method(*args, **options)

        return call
