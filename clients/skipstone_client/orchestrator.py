"""Client of the orchestrator, the front of Skipstone."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone.orchestrator.v1.orchestrator_pb2_grpc import OrchestratorStub
from skipstone_client._channel import ORCHESTRATOR
from skipstone_client._orchestrator_requests import (
    ResultBuilder,
    explain_request,
    generate_request,
    list_request,
    lookup_request,
    save_request,
)
from skipstone_client._sync_client import MessageStream, SyncClient
from skipstone_shared.credentials import Credentials
from skipstone_shared.deletion import DeletedNamespace, DeletedPrompt, Leftovers
from skipstone_shared.deletion_messages import (
    delete_prompt_request,
    deleted_namespace_from_message,
    deleted_prompt_from_message,
    leftovers_from_message,
    verify_request,
)
from skipstone_shared.embeddings import EncodedImage
from skipstone_shared.explanation_messages import explanation_from_message
from skipstone_shared.generation import GenerationParams, StepProgress
from skipstone_shared.latents import LatentFingerprint
from skipstone_shared.optional_fields import new_message
from skipstone_shared.orchestration import (
    CacheOptions,
    Entry,
    EntryPage,
    Explanation,
    GenerateEvent,
    GenerateResult,
    LookupDecision,
    OrchestratorCapabilities,
    OrchestratorStats,
)
from skipstone_shared.orchestration_answer_messages import (
    decision_from_message,
    entry_from_message,
    entry_page_from_message,
    orchestrator_capabilities_from_message,
    orchestrator_stats_from_message,
)
from skipstone_shared.orchestration_messages import GenerateEventReader


class OrchestratorClient(SyncClient[OrchestratorStub]):
    """Generates pictures and clips, and tells and removes what can be reused."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 10.0,
        generate_timeout_s: float = 600.0,
        credentials: Credentials | None = None,
    ) -> None:
        """Creates the client without connecting.

        Args:
            target: gRPC target of the orchestrator.
            timeout_s: Deadline of a call that generates nothing and gives none of its own, in
                seconds.
            generate_timeout_s: Deadline of a generation that gives none of its own, in seconds.
            credentials: Certificates and token; None: none, in plain text.
        """
        super().__init__(target, ORCHESTRATOR, OrchestratorStub, timeout_s, credentials)
        self._generate_timeout_s = generate_timeout_s

    def generate_stream(
        self,
        params: GenerationParams | str,
        cache: CacheOptions | None = None,
        namespace: str = "",
        *,
        timeout_s: float | None = None,
    ) -> Generator[GenerateEvent, None, None]:
        """Generates and gives the events as they happen; ``GenerateFinished`` is the last.

        The generation starts at once. Closing the iterator, or losing it, stops it within one step.

        Args:
            params: What to generate, or just a prompt.
            cache: How to use the cache; None: as the orchestrator is configured.
            namespace: Tenant or pool; empty means ``default``.
            timeout_s: Deadline of the generation, in seconds.

        Raises:
            InvalidArgument: while iterating: a parameter is out of range; names field and range.
            ResourceExhausted: while iterating: the executor's queue is full.
            Unavailable: while iterating: the orchestrator or every executor cannot be reached.
            DataCorrupt: while iterating: the picture arrived broken.
        """
        limit = self._generate_timeout_s if timeout_s is None else timeout_s
        request = generate_request(params, cache, namespace)
        return _events(self._stream(self._stub.Generate, request, limit))

    def generate(
        self,
        params: GenerationParams | str,
        cache: CacheOptions | None = None,
        namespace: str = "",
        *,
        on_step: Callable[[StepProgress], None] | None = None,
        timeout_s: float | None = None,
    ) -> GenerateResult:
        """Generates one picture or clip and waits for it; see ``generate_stream``.

        Args:
            params: What to generate, or just a prompt.
            cache: How to use the cache.
            namespace: Tenant or pool.
            on_step: Called after every step. When it raises, the generation stops.
            timeout_s: Deadline of the generation, in seconds.
        """
        result = ResultBuilder(on_step)
        events = self.generate_stream(params, cache, namespace, timeout_s=timeout_s)
        with closing(events):
            for event in events:
                result.add(event)
        return result.finish()

    def lookup(
        self,
        prompt: str,
        fingerprint: LatentFingerprint,
        sigmas: Sequence[float],
        seed: int | None = None,
        cache: CacheOptions | None = None,
        explain: bool = False,
        namespace: str = "",
        *,
        timeout_s: float | None = None,
    ) -> LookupDecision:
        """Whether and from where an engine outside Skipstone may resume a request.

        Args:
            prompt: Prompt to find donors for.
            fingerprint: Fingerprint of the run.
            sigmas: Noise level entering each step, ``num_inference_steps + 1`` values.
            seed: Seed of the request; needed for the exact tier.
            cache: How to use the cache.
            explain: Return every candidate with its score and why it was taken or refused.
            namespace: Tenant or pool.
            timeout_s: Deadline of this call, in seconds.

        Raises:
            InvalidArgument: a bad prompt, fingerprint or option.
        """
        request = lookup_request(prompt, fingerprint, sigmas, seed, cache, explain, namespace)
        return decision_from_message(self._call(self._stub.Lookup, request, timeout_s))

    def explain(
        self,
        params: GenerationParams | str,
        cache: CacheOptions | None = None,
        namespace: str = "",
        *,
        timeout_s: float | None = None,
    ) -> Explanation:
        """What ``generate`` would get for the same arguments, and why, without generating.

        Nothing is written and no entry counts as used.

        Raises:
            InvalidArgument: a parameter or option is out of range; names field and range.
            Unavailable: the orchestrator or every executor cannot be reached.
        """
        request = explain_request(params, cache, namespace)
        return explanation_from_message(self._call(self._stub.Explain, request, timeout_s))

    def save(
        self,
        entry_id: str,
        prompt: str,
        seed: int,
        fingerprint: LatentFingerprint,
        depth: int = 0,
        namespace: str = "",
        *,
        frames: Sequence[EncodedImage] = (),
        timeout_s: float | None = None,
    ) -> Entry:
        """Makes an entry findable whose snapshots are in latent_kv. Idempotent.

        Args:
            entry_id: Entry the snapshots were written under.
            prompt: Prompt of the run.
            seed: Its seed.
            fingerprint: Its fingerprint.
            depth: Resumed runs between it and noise.
            namespace: Namespace of the snapshots.
            frames: Up to 16 small frames of what it made, of ``sampled_frames``; looked at where
                ``LookupDecision.donor_frames`` asks for them.
            timeout_s: Deadline of this call, in seconds.

        Raises:
            EntryNotFound: the entry is not in latent_kv, or its lease ended; write it again.
            Unavailable: a service behind it cannot be reached; repeat before the lease ends.
        """
        request = save_request(entry_id, prompt, seed, fingerprint, depth, namespace, frames)
        return entry_from_message(self._call(self._stub.Save, request, timeout_s).entry)

    def list_entries(
        self,
        namespace: str = "",
        page_size: int = 100,
        page_token: str = "",
        *,
        timeout_s: float | None = None,
    ) -> EntryPage:
        """Entries that can be reused, oldest first, a page at a time."""
        request = list_request(namespace, page_size, page_token)
        return entry_page_from_message(self._call(self._stub.ListEntries, request, timeout_s))

    def get_entry(
        self, entry_id: str, namespace: str = "", *, timeout_s: float | None = None
    ) -> Entry:
        """One entry.

        Raises:
            EntryNotFound: no such entry.
        """
        request = new_message(pb.GetEntryRequest, namespace=namespace, entry_id=entry_id)
        return entry_from_message(self._call(self._stub.GetEntry, request, timeout_s).entry)

    def delete_entries(
        self, entry_ids: Sequence[str], namespace: str = "", *, timeout_s: float | None = None
    ) -> list[bool]:
        """Removes entries with their latents; whether each was there.

        Raises:
            Unavailable: a store cannot be reached; repeat the call.
        """
        request = new_message(pb.DeleteEntriesRequest, namespace=namespace, entry_ids=entry_ids)
        return list(self._call(self._stub.DeleteEntries, request, timeout_s).existed)

    def delete_prompt(
        self,
        prompt: str = "",
        namespace: str = "",
        *,
        prompt_hash: str = "",
        timeout_s: float | None = None,
    ) -> DeletedPrompt:
        """Removes every entry of a prompt from both stores, given itself or by its hash.

        Raises:
            InvalidArgument: neither or both are given.
            Unavailable: a store cannot be reached; repeat the call.
        """
        request = delete_prompt_request(namespace, prompt, prompt_hash)
        return deleted_prompt_from_message(self._call(self._stub.DeletePrompt, request, timeout_s))

    def delete_namespace(
        self, namespace: str, *, timeout_s: float | None = None
    ) -> DeletedNamespace:
        """Removes everything of a namespace from both stores.

        Raises:
            Unavailable: a store cannot be reached; repeat the call.
        """
        request = new_message(pb.DeleteNamespaceRequest, namespace=namespace)
        return deleted_namespace_from_message(
            self._call(self._stub.DeleteNamespace, request, timeout_s)
        )

    def verify_deleted(
        self,
        namespace: str = "",
        *,
        entry_ids: Sequence[str] = (),
        prompt: str = "",
        prompt_hash: str = "",
        timeout_s: float | None = None,
    ) -> Leftovers:
        """What both stores still have of entries, of a prompt, or of the whole namespace.

        Raises:
            Unavailable: a store cannot be reached; nothing is proved.
        """
        request = verify_request(namespace, entry_ids, prompt, prompt_hash)
        return leftovers_from_message(self._call(self._stub.VerifyDeleted, request, timeout_s))

    def get_stats(
        self, namespace: str = "", *, timeout_s: float | None = None
    ) -> OrchestratorStats:
        """What this replica served and saved, and the state of the services behind it."""
        request = new_message(pb.GetStatsRequest, namespace=namespace)
        return orchestrator_stats_from_message(self._call(self._stub.GetStats, request, timeout_s))

    def get_capabilities(self, *, timeout_s: float | None = None) -> OrchestratorCapabilities:
        """Services behind this replica, its policy and limits."""
        response = self._call(self._stub.GetCapabilities, pb.GetCapabilitiesRequest(), timeout_s)
        return orchestrator_capabilities_from_message(response)


def _events(stream: MessageStream[pb.GenerateResponse]) -> Generator[GenerateEvent, None, None]:
    reader = GenerateEventReader()
    try:
        for message in stream:
            event = reader.read(message)
            if event is not None:
                yield event
        reader.finish()
    finally:
        stream.close()
