"""Between the host's requests and the cache's; nothing here raises into the host."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from skipstone_client.adapters.telefuser.cache_config import CacheConfig
from skipstone_client.adapters.telefuser.queries import CacheQuery, LatentOutputs, LookupTicket
from skipstone_client.adapters.telefuser.run_key import RunKeys
from skipstone_client.engine_runs import EngineRun
from skipstone_client.reuse_session import ReuseSession
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.orchestration import CacheOptions, ReuseKind

_log = logging.getLogger(__name__)


class TeleFuserAdapter:
    """Translates. All requests of the host share it."""

    def __init__(
        self, config: CacheConfig, keys: RunKeys | None = None, session: ReuseSession | None = None
    ) -> None:
        """Creates the adapter; without keys and a session every request is a miss.

        Args:
            config: The configuration in force.
            keys: Describes runs.
            session: Where latents are.
        """
        self._keys = keys
        self._session = session
        self._key_steps = config.key_steps
        if keys is not None:
            inside = tuple(step for step in config.key_steps if step < keys.num_inference_steps)
            # The host hands over no latents at all when it is told to save none.
            self._key_steps = inside or (max(1, keys.num_inference_steps // 2),)
        self._options = CacheOptions(
            mode=config.cache_mode,
            # The host begins at a step below the last or at none: a finished latent is no use.
            allow_exact=False,
            reuse_kind=ReuseKind.TRAJECTORY,
            max_skip_steps=config.max_skip_step,
            top_k=config.rerank_top_k,
        )

    def build_query(self, request: Any) -> CacheQuery:
        """The query of a request, of which only prompt, seed, id and task are known."""
        return CacheQuery(
            prompt=str(getattr(request, "prompt", "") or ""),
            seed=_whole_number(getattr(request, "seed", None)),
            task_id=str(getattr(request, "task_id", "") or ""),
            task=str(getattr(request, "task", "") or ""),
        )

    def apply_resume(self, result: Any, engine_ctx: Any) -> dict[str, Any]:
        """Looks for a donor and reads it, now that the host tells what the run depends on.

        Args:
            result: What ``lookup`` gave.
            engine_ctx: The host's fields of the request.

        Returns:
            What the pipeline takes: ``hit``, ``skip_step``, ``cached_latent`` (a tensor on the
            CPU, or None) and ``saved_steps``, whose latents it is to hand over. These are never
            empty on a miss.
        """
        query = result.query if isinstance(result, LookupTicket) else None
        if self._session is None or self._keys is None or query is None:
            return self._miss()
        try:
            run = self._keys.run(_fields(engine_ctx), query.seed)
            return self._resume(self._session, query, run)
        except InvalidArgument as error:
            _log.warning("task %s runs without the cache: %s", query.task_id, error)
        except Exception:  # noqa: BLE001 - whatever it is, the host must be able to go on
            _log.exception("task %s runs without the cache", query.task_id)
        return self._miss()

    def on_response(self, request: Any, latent_payload: Any) -> LatentOutputs:
        """The latents that the host hands over, without those that nobody can use."""
        del request
        if not isinstance(latent_payload, Mapping):
            return LatentOutputs()
        states = latent_payload.get("latent_states_dict")
        latents = {}
        for step, tensor in (states if isinstance(states, Mapping) else {}).items():
            number = _whole_number(step)
            if number is not None and hasattr(tensor, "shape"):
                latents[number] = tensor
        frames = latent_payload.get("embedding_video_frames")
        return LatentOutputs(
            latents,
            _whole_number(latent_payload.get("final_step")),
            tuple(frames) if isinstance(frames, list | tuple) else (),
        )

    def _resume(self, session: ReuseSession, query: CacheQuery, run: EngineRun) -> dict[str, Any]:
        steps = run.num_inference_steps
        wanted = tuple(step for step in self._key_steps if step < steps)
        options = dataclasses.replace(self._options, key_steps=wanted)
        request = session.request(query.prompt, run, options)
        donor = request.donor()
        query.reuse = request
        if donor is None:
            return self._miss()
        from skipstone_client.torch_arrays import cpu_tensor

        return {
            "hit": True,
            "skip_step": donor.start_step,
            "cached_latent": cpu_tensor(donor.latents),
            "saved_steps": [step for step in request.key_steps if step < steps],
        }

    def _miss(self) -> dict[str, Any]:
        return {
            "hit": False,
            "skip_step": 0,
            "cached_latent": None,
            "saved_steps": list(self._key_steps),
        }


def _fields(engine_ctx: Any) -> Mapping[str, Any]:
    if isinstance(engine_ctx, Mapping):
        return engine_ctx
    raise InvalidArgument(f"engine_ctx is a {type(engine_ctx).__name__}", field="engine_ctx")


def _whole_number(value: Any) -> int | None:
    """A whole number, whatever it is written as; None where it is none."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None
