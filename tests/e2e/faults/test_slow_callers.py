"""Callers that take or send nothing: memory stays bounded, and everybody else is served on."""

from __future__ import annotations

import dataclasses
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from tests.contract.latent_store_cases import Write, latents, list_ids, save
from tests.e2e.processes import running_service, wait_until

from skipstone.latent_kv.v1 import latent_kv_pb2 as pb
from skipstone.latent_kv.v1.latent_kv_pb2_grpc import LatentKVStub
from skipstone_client import LatentKVClient
from skipstone_shared.errors import SkipstoneError
from skipstone_shared.latent_messages import ref_to_message
from skipstone_shared.latents import LatentRef

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MIB = 1 << 20
STREAMS = 200
WRITERS = 50
CONNECTIONS = 4
"""gRPC lets one carry a hundred streams."""

SIZE = 8 * MIB
"""More than these connections take ahead, so that a stream whose caller stops stands still."""

BOUND = 100 * MIB
AT_A_TIME = BOUND // (SIZE + 2 * MIB)
"""Streams that have room; the others wait for it."""

MOST_GROWTH = 2 * BOUND + 64 * MIB
"""What streams hold, and as much of freed buffers that the C library keeps; beside that threads and
connections, whatever the bound is."""

TAKEN_AHEAD = 2 * MIB
"""Of a write that waits for room, by gRPC, beside the bound."""

PATIENT_S = 120.0
FLAGS = (
    f"--stream-bytes={BOUND}",
    f"--max-snapshot-bytes={64 * MIB}",
    f"--stream-wait-s={PATIENT_S}",
)
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 16),
]


class MemoryWatch:
    """The most memory that a process has taken while it was watched."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self._over = threading.Event()
        self.before = self.most = _own_bytes(process)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Ends the watch; returns by how many bytes the process grew."""
        self._over.set()
        self._thread.join()
        return self.most - self.before

    def _watch(self) -> None:
        # A process that is gone grows no more; the test tells why it is gone.
        with suppress(psutil.NoSuchProcess):
            while not self._over.wait(0.01):
                self.most = max(self.most, _own_bytes(self._process))


def _own_bytes(process: psutil.Process) -> int:
    """Without pages of the mapped data file, which the system takes back when it needs them."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


@dataclasses.dataclass(frozen=True)
class Service:
    target: str
    stack: ExitStack
    memory: MemoryWatch
    metrics_port: int

    def running_streams(self) -> int:
        """Streams that hold room or wait for it."""
        return self._sample("skipstone_latent_kv_streams")

    def ended_streams(self) -> int:
        """Streams that were ended since their caller stood still."""
        return self._sample("skipstone_latent_kv_stalled_streams_total")

    def _sample(self, name: str) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            text = answer.read().decode()
        samples = dict(
            line.split() for line in text.splitlines() if line.startswith("skipstone_la")
        )
        return int(float(samples[name]))

    def stub(self) -> LatentKVStub:
        """Over a connection of its own, which takes little ahead of its reader."""
        channel = self.stack.enter_context(grpc.insecure_channel(self.target, OPTIONS))
        return LatentKVStub(channel)

    def client(self) -> LatentKVClient:
        return self.stack.enter_context(LatentKVClient(self.target, timeout_s=PATIENT_S))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port: int = free.getsockname()[1]
        flags = ("--data-dir", str(tmp_path), "--metrics-port", str(port), *FLAGS)
        before = set(psutil.Process().children())
        target = stack.enter_context(running_service("latent_kv", *flags))
        (process,) = set(psutil.Process().children()) - before
        yield Service(target, stack, MemoryWatch(process), port)


def stalled_reads(service: Service, ref: LatentRef) -> list[Any]:
    """Reads of callers who take nothing."""
    request = pb.ReadLatentRequest(ref=ref_to_message(ref))
    stubs = [service.stub() for _ in range(CONNECTIONS)]
    return [
        stubs[number % CONNECTIONS].ReadLatent(request, timeout=2 * PATIENT_S)
        for number in range(STREAMS)
    ]


@contextmanager
def stalled_writes(service: Service) -> Iterator[None]:
    """Writes of callers who stop in the middle, while the block runs."""
    gone = threading.Event()
    sent = threading.Semaphore(0)
    whole = Write.of("stalled", latents(size_bytes=SIZE))

    def half() -> Iterator[bytes]:
        yield whole.all_bytes[: SIZE // 2]
        sent.release()
        gone.wait(2 * PATIENT_S)

    def write(client: LatentKVClient, number: int) -> None:
        about = dataclasses.replace(whole.metadata, entry_id=f"stalled-{number}")
        with suppress(SkipstoneError):
            whole.but(metadata=about, data=half()).to(client)

    clients = [service.client() for _ in range(CONNECTIONS)]
    writers = [
        threading.Thread(target=write, args=[clients[number % CONNECTIONS], number])
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    for _ in range(AT_A_TIME):
        sent.acquire()
    yield
    gone.set()
    for writer in writers:
        writer.join(PATIENT_S)


def check_others_are_served(client: LatentKVClient, ref: LatentRef) -> None:
    """A reader and a writer who keep up, beside everybody who does not."""
    assert client.get_entry("", "donor").entry_id == "donor"
    assert client.touch_latent("", ref).ref == client.read_latent("", ref).ref
    save(client, "beside", latents(1, SIZE))


def test_two_hundred_stalled_reads_keep_nobody_waiting(service: Service) -> None:
    client = service.client()
    ref = save(client, "donor", latents(size_bytes=SIZE))
    calls = stalled_reads(service, ref)
    wait_until(lambda: service.running_streams() > STREAMS // 2, "they are there", PATIENT_S)
    before = service.ended_streams()
    check_others_are_served(client, ref)
    # In line with all of them it would have been their turn first, ten at a time.
    assert service.ended_streams() - before < STREAMS // 2
    wait_until(lambda: service.ended_streams() > 0, "stalled streams are ended", PATIENT_S)
    for call in calls:
        call.cancel()
    check_others_are_served(client, ref)
    grown = service.memory.stop()
    assert grown < MOST_GROWTH, f"{grown / MIB:.0f} MiB"


def test_writes_that_stop_in_the_middle_keep_nobody_waiting_and_leave_nothing(
    service: Service,
) -> None:
    client = service.client()
    ref = save(client, "donor", latents(size_bytes=SIZE))
    with stalled_writes(service):
        check_others_are_served(client, ref)
    assert list_ids(client) == ["beside", "donor"]
    assert client.get_stats().uncommitted_count == 0
    grown = service.memory.stop()
    assert grown < MOST_GROWTH + WRITERS * TAKEN_AHEAD, f"{grown / MIB:.0f} MiB"


def test_two_hundred_readers_who_keep_up_are_all_served_within_the_bound(service: Service) -> None:
    """More than the bound holds at a time: they wait for each other and lose nothing."""
    client = service.client()
    ref = save(client, "donor", latents(size_bytes=SIZE))
    clients = [service.client() for _ in range(CONNECTIONS)]
    refused: list[Exception] = []

    def read(number: int) -> None:
        try:
            snapshot = clients[number % CONNECTIONS].read_latent("", ref)
            assert snapshot.ref == ref
        except Exception as error:  # noqa: BLE001 - told by the test
            refused.append(error)

    readers = [threading.Thread(target=read, args=[number]) for number in range(STREAMS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(PATIENT_S)
    assert not refused, refused[0]
    grown = service.memory.stop()
    assert grown < MOST_GROWTH, f"{grown / MIB:.0f} MiB"
