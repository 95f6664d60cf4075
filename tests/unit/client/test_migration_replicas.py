"""Several processes serve one backend while its entries move: each of them is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest
import structlog
from typer.testing import CliRunner

from skipstone_client.cli_commands import build_app
from skipstone_client.migration_replicas import MigrationReplicas
from skipstone_client.migration_run import Move, MoveOptions, Mover
from skipstone_client.vector_index import VectorIndexClient
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.index_entries import IndexEntry, VectorEntry
from skipstone_shared.migration import MigrationStep
from skipstone_shared.migration_server import with_migration
from skipstone_vector_index.flat_index import FlatIndex
from skipstone_vector_index.index_mover import IndexMover
from skipstone_vector_index.mirrored_index import MirroredIndex
from skipstone_vector_index.server import mount

KEY = "a1" * 16
ENTRY = VectorEntry(IndexEntry("entry"), np.array([1, 2], np.float32))


@pytest.fixture(autouse=True)
def _silent_server() -> Iterator[None]:
    """The servers run in this process and would log into what the command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


class Replicas:
    """Two processes over one source and one target; the second loses its target when told."""

    def __init__(self, stack: ExitStack) -> None:
        source, target = FlatIndex(), FlatIndex()
        self.second = MirroredIndex(source, target)
        self.targets = [
            stack.enter_context(in_process_server(with_migration(mount(index), IndexMover(index))))
            for index in (MirroredIndex(source, target), self.second)
        ]
        self.without = stack.enter_context(in_process_server(mount(source)))
        self.client = stack.enter_context(VectorIndexClient(self.targets[1]))

    def lose_target(self) -> None:
        lost = FlatIndex()
        lost.close()
        self.second.target = lost

    def move(
        self, on_step: Callable[[Move, MigrationStep], None] = lambda move, step: None
    ) -> Move:
        with MigrationReplicas("ipv4:" + ",".join(self.targets), timeout_s=30.0) as replicas:
            mover = Mover(
                replicas.migrate_entries,
                replicas.get_missed_writes,
                MoveOptions(),
                on_step=on_step,
            )
            return mover.run()


@pytest.fixture
def replicas() -> Iterator[Replicas]:
    with ExitStack() as stack:
        yield Replicas(stack)


def test_a_pass_that_any_of_them_answers_is_in_step(replicas: Replicas) -> None:
    replicas.client.upsert_entries("", KEY, [ENTRY])
    move = replicas.move()
    assert (move.in_step, move.passes, move.restarted) == (True, 1, False)


def test_a_write_that_one_of_them_missed_holds_the_pass_back(replicas: Replicas) -> None:
    replicas.lose_target()

    def write(move: Move, step: MigrationStep) -> None:
        if not move.passes:
            replicas.client.upsert_entries("", KEY, [ENTRY])

    move = replicas.move(write)
    assert (move.in_step, move.passes, move.copied) == (True, 3, 1)


def test_one_that_was_not_told_to_move_is_named(replicas: Replicas) -> None:
    """It writes to the source alone, and would never say so."""
    target = f"ipv4:{replicas.targets[0]},{replicas.without}"
    result = CliRunner().invoke(build_app(), ["index", "migrate", "--vector-index-target", target])
    assert result.exit_code == 1
    assert f"vector_index at {replicas.without} was not told to move" in result.stderr
    assert "or it is of an older version than this command: upgrade it" in result.stderr
