"""``CACHE_CONFIG`` of a pipeline file: what counts, what belongs to a service, what is wrong."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from skipstone_shared.credentials import Credentials
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import CacheMode

_HOST_MODES = (CacheMode.READ_WRITE, CacheMode.READ_ONLY, CacheMode.WRITE_ONLY)
_MAX_CANDIDATES = 100
"""Most that the orchestrator takes."""

_NOTHING = MappingProxyType(
    {
        "cache_strategy_type": "there is one strategy",
        "save_async_enabled": "saves never hold up a request",
        "save_on_full": "what a full queue cannot take is dropped and counted",
        "save_queue_warn_threshold": "every drop is counted",
        "vector_wait_poll_s": "a lookup does not wait for saves",
        "vector_wait_warn_s": "a lookup does not wait for saves",
        "vector_wait_timeout_s": "a lookup does not wait for saves",
        "vector_dim": "the index takes what the model gives",
        "video_embedding_fps": "frames are taken evenly spaced",
        "video_embedding_min_pixels": "frames are only ever scaled down",
        "video_embedding_total_pixels": "each frame has a bound of its own",
        "rerank_batch_size": "candidates go through the model by their length",
        "rerank_score_threshold": "the gate and its calibration decide",
        "staircase_skip_enabled": "the calibration decides how deep a score may go",
    }
)
"""Fields that have no setting here, and why they need none."""

_SETTINGS = MappingProxyType(
    {
        "latent_cache_dir": "data_dir of latent_kv",
        "max_cache_size_gb": "quota_bytes of latent_kv",
        "kv_store_type": "store of latent_kv",
        "fluxon_config_path": "store of latent_kv",
        "vector_store_type": "engine of vector_index",
        "faiss_index_dir": "data_dir of vector_index",
        "qdrant_url": "url of vector_index",
        "qdrant_api_key": "url of vector_index",
        "text_embedding_model_path": "model of embedding",
        "text_embedding_instruction": "default_instruction of embedding",
        "text_embedding_device_id": "device of embedding",
        "text_embedding_torch_dtype": "dtype of embedding",
        "text_embedding_attn_impl": "attention of embedding",
        "video_embedding_enabled": "donor_vectors of orchestrator",
        "video_embedding_model_path": "model of embedding",
        "video_embedding_instruction": "default_instruction of embedding",
        "video_embedding_max_frames": "donor_frames of orchestrator",
        "video_embedding_max_length": "max_tokens of embedding",
        "video_embedding_max_pixels": "max_image_pixels of embedding",
        "video_embedding_device_id": "device of embedding",
        "video_embedding_torch_dtype": "dtype of embedding",
        "video_embedding_attn_impl": "attention of embedding",
        "video_similarity_threshold": "min_similarity of orchestrator",
        "lookup_mode": "donor_vectors of orchestrator",
        "rerank_enabled": "gate of orchestrator",
        "rerank_model_path": "reranker of embedding",
        "rerank_device_id": "reranker_device of embedding",
        "rerank_torch_dtype": "reranker_dtype of embedding",
        "skip_step_tau_table": "similarity_table of orchestrator",
    }
)
"""Fields that a service's own setting takes the place of."""

_LOGGING = ("enabled", "dir", "level", "rotation", "retention")

MOVED: Mapping[str, str] = MappingProxyType(
    {
        **{name: f"it is set by {where}" for name, where in _SETTINGS.items()},
        **{name: f"nothing sets it: {why}" for name, why in _NOTHING.items()},
        "video_vector_collection": "it is set by skipstone_namespace",
        **{
            f"cache_log_{name}": "it is set by Python's logging, logger skipstone_client"
            for name in _LOGGING
        },
    }
)
"""Fields of the host's cache that are not set here, and what decides instead."""


_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "skipstone_orchestrator_target": "SKIPSTONE_TARGET",
        "skipstone_latent_kv_target": "SKIPSTONE_LATENT_KV_TARGET",
        "skipstone_namespace": "SKIPSTONE_NAMESPACE",
        "skipstone_tls_ca_file": "SKIPSTONE_TLS_CA_FILE",
        "skipstone_token_file": "SKIPSTONE_TOKEN_FILE",
    }
)
"""Variables of the command line's, so that a pipeline file needs no change."""


@dataclasses.dataclass(frozen=True, slots=True)
class CacheConfig:
    """What the adapter honours. The fields that begin with ``skipstone_`` are its own.

    Attributes:
        enable_latent_cache: Whether there is a cache.
        cache_mode: What requests may do with it.
        key_steps: Steps whose latents the host hands over, ascending, each 1 and up.
        max_skip_step: Most steps to skip; None: the reuse policy's.
        rerank_top_k: Candidates to consider, 1 to 100.
        save_queue_size: Runs that may wait to be stored.
        flush_on_shutdown: Whether the end waits for them, at most
            ``skipstone_shutdown_timeout_s``.
        skipstone_orchestrator_target: gRPC target; empty: the default port here.
        skipstone_latent_kv_target: gRPC target; empty: the default port here.
        skipstone_namespace: Tenant or pool; empty: ``default``.
        skipstone_lookup_timeout_s: Seconds a lookup may take.
        skipstone_read_timeout_s: Seconds latent_kv gets to answer, without the bytes of a latent.
        skipstone_retry_pause_s: Seconds without lookups after one that nobody answered.
        skipstone_shutdown_timeout_s: Seconds the end waits for saves.
        skipstone_tls_ca_file: PEM file of the authorities to trust; None: plain text.
        skipstone_token_file: File that holds the token; None: none.
    """

    enable_latent_cache: bool = False
    cache_mode: CacheMode = CacheMode.READ_WRITE
    key_steps: tuple[int, ...] = (5, 10, 15, 20, 25)
    max_skip_step: int | None = None
    rerank_top_k: int = 5
    save_queue_size: int = 8
    flush_on_shutdown: bool = True
    skipstone_orchestrator_target: str = ""
    skipstone_latent_kv_target: str = ""
    skipstone_namespace: str = ""
    skipstone_lookup_timeout_s: float = 1.0
    skipstone_read_timeout_s: float = 0.5
    skipstone_retry_pause_s: float = 2.0
    skipstone_shutdown_timeout_s: float = 10.0
    skipstone_tls_ca_file: str | None = None
    skipstone_token_file: str | None = None

    @property
    def credentials(self) -> Credentials | None:
        """Who the host is to the services; None: anybody, in plain text."""
        ca, token = self.skipstone_tls_ca_file, self.skipstone_token_file
        if ca is None and token is None:
            return None
        return Credentials(
            tls_ca_file=None if ca is None else Path(ca),
            token_file=None if token is None else Path(token),
            prefix="CACHE_CONFIG.skipstone_",
        )


def read_cache_config(
    given: object,
    enable_latent_cache: bool | None,
    cache_mode: str | None,
    environ: Mapping[str, str],
) -> tuple[CacheConfig, tuple[str, ...]]:
    """The configuration in force.

    Args:
        given: ``CACHE_CONFIG``: a mapping, a dataclass, or None where the file has none.
        enable_latent_cache: From the command line, over the file; None: not given.
        cache_mode: The same.
        environ: Environment, for the fields of its own that the file does not give.

    Returns:
        The configuration, and one warning for each field that something else decides on.

    Raises:
        InvalidArgument: a field is unknown or has a value that cannot be used.
    """
    fields = {name: value for name, value in _mapping(given).items() if value is not None}
    known = {field.name for field in dataclasses.fields(CacheConfig)}
    for name in fields:
        if name not in known and name not in MOVED:
            raise _unknown(name, [*known, *MOVED])
    warnings = tuple(
        f"CACHE_CONFIG.{name} is not used; {MOVED[name]}" for name in fields if name in MOVED
    )
    told = {name: environ[key] for name, key in _ENVIRONMENT.items() if environ.get(key)}
    told.update({name: value for name, value in fields.items() if name in known})
    values = {name: _CHECKS[name](name, value) for name, value in told.items()}
    if enable_latent_cache is not None:
        values["enable_latent_cache"] = bool(enable_latent_cache)
    if cache_mode is not None:
        values["cache_mode"] = _mode("cache_mode", cache_mode)
    return CacheConfig(**values), warnings


def _mapping(given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return given
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    raise InvalidArgument(
        f"CACHE_CONFIG is a {type(given).__name__}", field="CACHE_CONFIG", allowed="a dict"
    )


def _unknown(name: str, names: list[str]) -> InvalidArgument:
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return InvalidArgument(f"CACHE_CONFIG has no field {name}{hint}", field=f"CACHE_CONFIG.{name}")


def _refused(name: str, value: object, allowed: str) -> InvalidArgument:
    field = f"CACHE_CONFIG.{name}"
    return InvalidArgument(f"{field} is {value!r}", field=field, allowed=allowed)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | int):
        raise _refused(name, value, "True or False")
    return bool(value)


def _mode(name: str, value: Any) -> CacheMode:
    text = value.value if isinstance(value, Enum) else value
    for mode in _HOST_MODES:
        if text == mode.value:
            return mode
    raise _refused(name, text, ", ".join(mode.value for mode in _HOST_MODES))


def _steps(name: str, value: Any) -> tuple[int, ...]:
    allowed = "whole numbers of 1 and up, at least one"
    if not isinstance(value, list | tuple) or not value:
        raise _refused(name, value, allowed)
    return tuple(sorted({_count(name, step, allowed) for step in value}))


def _count(name: str, value: Any, allowed: str = "a whole number of 1 and up") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refused(name, value, allowed)
    return value


def _candidates(name: str, value: Any) -> int:
    if _count(name, value) > _MAX_CANDIDATES:
        raise _refused(name, value, f"1 to {_MAX_CANDIDATES}")
    return int(value)


def _skip(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refused(name, value, "a whole number of 0 and up")
    return value


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        raise _refused(name, value, "seconds, 0 and up")
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str | Path):
        raise _refused(name, value, "a text")
    return str(value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "enable_latent_cache": _flag,
        "cache_mode": _mode,
        "key_steps": _steps,
        "max_skip_step": _skip,
        "rerank_top_k": _candidates,
        "save_queue_size": _count,
        "flush_on_shutdown": _flag,
        "skipstone_orchestrator_target": _text,
        "skipstone_latent_kv_target": _text,
        "skipstone_namespace": _text,
        "skipstone_lookup_timeout_s": _seconds,
        "skipstone_read_timeout_s": _seconds,
        "skipstone_retry_pause_s": _seconds,
        "skipstone_shutdown_timeout_s": _seconds,
        "skipstone_tls_ca_file": _text,
        "skipstone_token_file": _text,
    }
)
