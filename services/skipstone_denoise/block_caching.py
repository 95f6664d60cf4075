"""What block caching can do with a loaded model, and what it does in runs of a plan."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any

import torch

from skipstone_denoise.blockcache.adapters import TransformerAdapter
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.config import (
    BlockCachePlan,
    ModelFacts,
    asks_for_caching,
    resolve_block_cache,
)
from skipstone_denoise.blockcache.families import (
    adapter_for,
    adapter_from_declaration,
    block_lists,
    unwrapped,
)
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_denoise.pipeline_probe import denoisers
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import BlockCacheConfig
from skipstone_shared.latents import GuidanceMode

_FIRST, _SECOND = "transformer", "transformer_2"
_FIELD = "params.block_cache"

# Of the algorithm: rises when the same settings reuse other steps or forecast other values, so that
# latents made before are not taken for latents made now.
_VERSION = 1

# What diffusers' pipelines call a batch of both branches.
_BRANCHES: Mapping[GuidanceMode, tuple[str, ...]] = {
    GuidanceMode.NONE: ("cond",),
    GuidanceMode.BATCHED: ("cond_uncond",),
}


@dataclasses.dataclass(frozen=True, slots=True)
class RunBlockCachePlan:
    """Block caching in runs of one plan; runs share it.

    Attributes:
        resolved: Settings of every transformer that is cached.
        adapters: Where their blocks are.
    """

    resolved: BlockCachePlan
    adapters: Mapping[str, TransformerAdapter]

    @property
    def canonical(self) -> str:
        """Canonical JSON of all that decides what is reused: presets and defaults filled in."""
        return json.dumps(
            {"version": _VERSION}
            | {
                name: {
                    "settings": dataclasses.asdict(settings),
                    "chains": [
                        {"lists": chain.lists, "pattern": chain.pattern}
                        for chain in self.adapters[name].chains
                    ],
                    "first_step": self.resolved.first_steps[name],
                }
                for name, settings in self.resolved.settings.items()
            },
            sort_keys=True,
            separators=(",", ":"),
            default=_enum_value,
        )

    def new_state(self) -> BlockCacheState:
        """State for one run."""
        return BlockCacheState(
            self.resolved.settings,
            first_steps=self.resolved.first_steps,
            report_residual_diffs=self.resolved.report_residual_diffs,
        )


class BlockCaching:
    """Knows where the blocks of a loaded pipeline are. Threads may share it."""

    def __init__(self, pipeline: Any, declarations: Mapping[str, Mapping[str, Any]]) -> None:
        """Looks for the blocks.

        Args:
            pipeline: The loaded pipeline; it is not changed.
            declarations: The setting `block_adapters`.

        Raises:
            InvalidArgument: a declaration makes no sense, or names what the transformer lacks.
        """
        self._pipeline = pipeline
        declared = [adapter_from_declaration(*item) for item in declarations.items()]
        self._adapters: dict[str, TransformerAdapter] = {}
        self._blocks: dict[str, tuple[int, ...]] = {}
        self._refusal: InvalidArgument | None = None
        modules = {name: unwrapped(module) for name, module in denoisers(pipeline).items()}
        try:
            for name in (_FIRST, _SECOND):
                if name in modules:
                    self._adapters[name] = adapter_for(modules[name], declared)
                    self._blocks[name] = _block_counts(modules[name], self._adapters[name])
        except InvalidArgument as error:
            if any(base.__name__ in declarations for base in type(modules[name]).__mro__):
                raise
            self._refusal = error
        if not self._adapters and self._refusal is None:
            self._refusal = InvalidArgument(
                f"{type(pipeline).__name__} has no transformer, whose blocks could be cached",
                field=_FIELD,
                allowed="unset or preset none",
            )
        self.uses_declaration = any(adapter in declared for adapter in self._adapters.values())

    @property
    def supported(self) -> bool:
        """Whether blocks of this model can be cached."""
        return self._refusal is None

    def plan(
        self, config: BlockCacheConfig | None, scheduler: Any, guidance_mode: GuidanceMode
    ) -> RunBlockCachePlan | None:
        """What block caching does in a run; None when it is off.

        Args:
            config: What is asked for.
            scheduler: The run's scheduler, its timesteps set.
            guidance_mode: How the run evaluates guidance.

        Raises:
            InvalidArgument: the settings are impossible for this model, or it has no known blocks.
        """
        if not asks_for_caching(config):
            return None
        if self._refusal is not None:
            raise self._refusal
        resolved = resolve_block_cache(config, self._facts(scheduler))
        if resolved is None:
            return None
        branches = _BRANCHES.get(guidance_mode)
        return RunBlockCachePlan(
            resolved,
            {name: _with_branches(self._adapters[name], branches) for name in resolved.settings},
        )

    def cached_pipeline(self) -> Any:
        """A copy of the pipeline with caching transformers that reuse nothing, for a trial."""
        mine = copy.copy(self._pipeline)
        state = BlockCacheState(DBCacheSettings(residual_diff_threshold=0.0))
        for name, adapter in self._adapters.items():
            mine.__dict__[name] = with_block_cache(getattr(mine, name), adapter, state, name)
        return mine

    def _facts(self, scheduler: Any) -> ModelFacts:
        blocks = self._blocks
        timesteps = [float(timestep) for timestep in scheduler.timesteps]
        ratio = self._pipeline.config.get("boundary_ratio")
        if len(blocks) == 1 or ratio is None:
            # Without a boundary the second transformer has no steps.
            return ModelFacts({_FIRST: blocks[_FIRST]}, len(timesteps))
        # As the pipelines themselves decide.
        boundary = ratio * scheduler.config.num_train_timesteps
        second_from = sum(timestep >= boundary for timestep in timesteps)
        return ModelFacts(blocks, len(timesteps), second_from)


def _block_counts(transformer: torch.nn.Module, adapter: TransformerAdapter) -> tuple[int, ...]:
    """Number of blocks of each chain."""
    return tuple(sum(map(len, block_lists(transformer, chain))) for chain in adapter.chains)


def _with_branches(
    adapter: TransformerAdapter, branches: tuple[str, ...] | None
) -> TransformerAdapter:
    """The adapter with the names of the calls that a run really makes."""
    return adapter if branches is None else dataclasses.replace(adapter, branches=branches)


def _enum_value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} has no canonical form")
