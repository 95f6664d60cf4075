"""Readers share, a writer is alone, and a waiting writer is not starved."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from skipstone_vector_index.read_write_lock import ReadWriteLock

TIMEOUT_S = 20.0


def test_readers_share_the_lock() -> None:
    lock, together = ReadWriteLock(), threading.Barrier(3)

    def read() -> None:
        with lock.reading():
            together.wait(TIMEOUT_S)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(read) for _ in range(3)]:
            future.result(TIMEOUT_S)


def test_a_writer_is_alone() -> None:
    lock, inside, worst = ReadWriteLock(), [0, 0], [0, 0]

    def run(kind: int) -> None:
        for _ in range(200):
            with lock.writing() if kind else lock.reading():
                inside[kind] += 1
                if kind or inside[1]:
                    worst[0] = max(worst[0], inside[0])
                    worst[1] = max(worst[1], inside[1])
                inside[kind] -= 1

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(run, kind) for kind in (0, 1, 0, 1)]:
            future.result(TIMEOUT_S)
    assert worst == [0, 1]


def test_a_waiting_writer_goes_before_new_readers() -> None:
    lock, order = ReadWriteLock(), []
    waiting, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.reading():
            waiting.set()
            assert release.wait(TIMEOUT_S)

    def write() -> None:
        with lock.writing():
            order.append("write")

    def read() -> None:
        with lock.reading():
            order.append("read")

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(hold)]
        assert waiting.wait(TIMEOUT_S)
        futures.append(pool.submit(write))
        while not lock.has_waiting_writer:
            threading.Event().wait(0.001)
        futures.append(pool.submit(read))
        release.set()
        for future in futures:
            future.result(TIMEOUT_S)
    assert order == ["write", "read"]


def test_readers_that_wait_for_a_writer_go_before_the_next_one() -> None:
    """A writer that comes back at once, as an upsert of many pieces does, must not starve them."""
    lock, order = ReadWriteLock(), []
    writing, release = threading.Event(), threading.Event()

    def write_twice() -> None:
        with lock.writing():
            writing.set()
            assert release.wait(TIMEOUT_S)
        with lock.writing():
            order.append("write")

    def read() -> None:
        with lock.reading():
            order.append("read")

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(write_twice)]
        assert writing.wait(TIMEOUT_S)
        futures.append(pool.submit(read))
        while not lock.has_waiting_reader:
            threading.Event().wait(0.001)
        release.set()
        for future in futures:
            future.result(TIMEOUT_S)
    assert order == ["read", "write"]
