"""Deletions and their proofs as messages of the orchestrator, both ways."""

from __future__ import annotations

from collections.abc import Sequence

from skipstone.orchestrator.v1 import orchestrator_pb2 as pb
from skipstone_shared.deletion import DeletedNamespace, DeletedPrompt, Leftovers
from skipstone_shared.optional_fields import new_message


def delete_prompt_request(namespace: str, prompt: str, prompt_hash: str) -> pb.DeletePromptRequest:
    """The request that deletes a prompt, by itself or by its hash."""
    return new_message(
        pb.DeletePromptRequest, namespace=namespace, prompt=prompt, prompt_hash=prompt_hash
    )


def deleted_prompt_to_message(deleted: DeletedPrompt) -> pb.DeletePromptResponse:
    """What was deleted of a prompt, as a message."""
    return pb.DeletePromptResponse(deleted_count=deleted.count, prompt_hash=deleted.prompt_hash)


def deleted_prompt_from_message(message: pb.DeletePromptResponse) -> DeletedPrompt:
    """What was deleted of a prompt."""
    return DeletedPrompt(message.deleted_count, message.prompt_hash)


def deleted_namespace_to_message(deleted: DeletedNamespace) -> pb.DeleteNamespaceResponse:
    """What was deleted of a namespace, as a message."""
    return pb.DeleteNamespaceResponse(
        deleted_vectors=deleted.vectors, deleted_latents=deleted.latents
    )


def deleted_namespace_from_message(message: pb.DeleteNamespaceResponse) -> DeletedNamespace:
    """What was deleted of a namespace."""
    return DeletedNamespace(message.deleted_vectors, message.deleted_latents)


def verify_request(
    namespace: str, entry_ids: Sequence[str], prompt: str, prompt_hash: str
) -> pb.VerifyDeletedRequest:
    """The request that asks for what is left."""
    return new_message(
        pb.VerifyDeletedRequest,
        namespace=namespace,
        entry_ids=entry_ids,
        prompt=prompt,
        prompt_hash=prompt_hash,
    )


def leftovers_to_message(left: Leftovers) -> pb.VerifyDeletedResponse:
    """What is left, as a message."""
    return pb.VerifyDeletedResponse(
        vector_entry_ids=left.vector_entry_ids,
        latent_entry_ids=left.latent_entry_ids,
        checked_count=left.checked_count,
        unattributed_count=left.unattributed_count,
    )


def leftovers_from_message(message: pb.VerifyDeletedResponse) -> Leftovers:
    """What is left."""
    return Leftovers(
        tuple(message.vector_entry_ids),
        tuple(message.latent_entry_ids),
        message.checked_count,
        message.unattributed_count,
    )
