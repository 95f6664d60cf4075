"""The writer thread: what waits together is committed together; errors stay with their cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from skipstone_latent_kv.group_commit import GroupCommitter, Operation, Outcome
from skipstone_shared.errors import DeadlineExceeded, EntryNotFound, Unavailable
from skipstone_shared.request_context import request_scope


class Journal:
    """Runs batches on a list that is rolled back like a transaction; can be held up."""

    def __init__(self) -> None:
        self.committed: list[str] = []
        self.batches: list[int] = []
        self.may_run = threading.Event()
        self.may_run.set()
        self.running = threading.Event()

    def execute(self, operations: Sequence[Operation]) -> list[Outcome]:
        self.running.set()
        assert self.may_run.wait(20)
        pending = list(self.committed)
        outcomes: list[Outcome] = []
        for operation in operations:
            try:
                outcomes.append((operation(pending), None))
            except EntryNotFound as error:
                outcomes.append((None, error))
        self.committed = pending
        self.batches.append(len(operations))
        return outcomes


def add(name: str) -> Operation:
    def operation(pending: list[str]) -> int:
        pending.append(name)
        return len(pending)

    return operation


def broken(_: object) -> None:
    raise ZeroDivisionError


def missing(_: object) -> None:
    raise EntryNotFound("no entry")


def run_together(
    journal: Journal, committer: GroupCommitter, *operations: Operation
) -> list[object]:
    """Makes the operations wait behind a first one, so that they form the next batch."""
    journal.may_run.clear()
    with ThreadPoolExecutor(len(operations) + 1) as pool:
        first = pool.submit(committer.run, add("first"))
        assert journal.running.wait(20)
        waiting = [pool.submit(committer.run, operation) for operation in operations]
        while committer.waiting < len(operations):
            time.sleep(0)
        journal.may_run.set()
        first.result()
        return [future.exception() or future.result() for future in waiting]


def test_operations_that_wait_at_the_same_moment_share_a_commit() -> None:
    journal = Journal()
    committer = GroupCommitter(journal.execute, max_batch=64)
    results = run_together(journal, committer, *(add(str(i)) for i in range(5)))
    committer.close()
    assert journal.batches == [1, 5]
    assert sorted(results) == [2, 3, 4, 5, 6]  # type: ignore[type-var]


def test_a_batch_is_no_larger_than_allowed() -> None:
    journal = Journal()
    committer = GroupCommitter(journal.execute, max_batch=2)
    run_together(journal, committer, *(add(str(i)) for i in range(5)))
    committer.close()
    assert journal.batches == [1, 2, 2, 1]


def test_a_broken_operation_fails_alone_and_the_others_are_committed() -> None:
    journal = Journal()
    committer = GroupCommitter(journal.execute, max_batch=64)
    results = run_together(journal, committer, add("a"), broken, missing, add("b"))
    committer.close()
    assert isinstance(results[1], ZeroDivisionError)
    assert isinstance(results[2], EntryNotFound)
    assert sorted(journal.committed) == ["a", "b", "first"]


def test_closing_finishes_what_waits_and_refuses_what_comes() -> None:
    journal = Journal()
    committer = GroupCommitter(journal.execute, max_batch=64)
    committer.run(add("a"))
    committer.close()
    committer.close()
    assert journal.committed == ["a"]
    with pytest.raises(Unavailable):
        committer.run(add("b"))


def test_nobody_waits_past_the_deadline_and_what_had_not_begun_never_does() -> None:
    journal = Journal()
    committer = GroupCommitter(journal.execute, max_batch=64)
    journal.may_run.clear()
    with request_scope(timeout_s=0.5), pytest.raises(DeadlineExceeded, match="the next call shows"):
        committer.run(add("begun"))
    with request_scope(timeout_s=0.0), pytest.raises(DeadlineExceeded, match="nothing was changed"):
        committer.run(add("late"))
    journal.may_run.set()
    committer.run(add("next"))
    committer.close()
    assert journal.committed == ["begun", "next"]
