"""Block-cache settings of a request -> settings of each transformer, checked against the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeGuard

from skipstone_denoise.blockcache.presets import overridden, sets_mask, with_preset
from skipstone_denoise.blockcache.setting_rules import (
    MIN_FORECAST_STEPS,
    check_blocks,
    check_values,
    fewest_computed,
    why_never_reused,
)
from skipstone_denoise.blockcache.settings import DBCacheSettings, Forecast
from skipstone_denoise.blockcache.step_mask import (
    compat_mask,
    mask_from_bins,
    own_mask,
    split_mask,
)
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import (
    BlockCacheConfig,
    BlockCachePreset,
    ScmMaskPolicy,
    ScmMaskSource,
    ScmStepsPolicy,
    TaylorSeerCacheType,
)

_PREFIX = "params.block_cache."
_DEFAULTS = BlockCacheConfig()

Mask = tuple[bool, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the settings of a run depend on.

    Attributes:
        blocks: By the name of each transformer that is cached, the number of blocks of each of its
            chains. One or two transformers, in the order in which they take the steps.
        num_inference_steps: Steps of the whole schedule, those included that a resumed run skips.
        second_from_step: Absolute step at which the second transformer takes over, 0 to
            `num_inference_steps`; of dual models only.
    """

    blocks: Mapping[str, tuple[int, ...]]
    num_inference_steps: int
    second_from_step: int | None = None

    def __post_init__(self) -> None:
        if len(self.blocks) not in (1, 2):
            raise ValueError(f"one or two transformers can be cached, not {list(self.blocks)}")
        if (len(self.blocks) == 2) != (self.second_from_step is not None):
            raise ValueError("second_from_step goes with two transformers")


@dataclasses.dataclass(frozen=True, slots=True)
class BlockCachePlan:
    """Block caching in a run.

    Attributes:
        settings: By transformer. One that is missing is not cached.
        first_steps: By transformer, the absolute step that is its own step 0.
        report_residual_diffs: Whether the report tells the measured differences.
        notes: What is allowed but has no effect, each a sentence that says what to change.
    """

    settings: Mapping[str, DBCacheSettings]
    first_steps: Mapping[str, int]
    report_residual_diffs: bool = False
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A transformer's share of a run.

    Attributes:
        name: Name of the transformer.
        blocks: Number of blocks of each of its chains.
        first_step: Absolute step that is its own step 0.
        steps: Steps that it takes.
        config: What holds for it, presets and inherited fields filled in.
        mask: Mask of its steps.
        secondary: What the request says for this transformer alone.
        forecast_is_presets: Whether a preset, not the caller, asks for the forecast.
    """

    name: str
    blocks: tuple[int, ...]
    first_step: int
    steps: int
    config: BlockCacheConfig
    mask: Mask | None
    secondary: BlockCacheConfig | None = None
    forecast_is_presets: bool = False

    def field_name(self, name: str) -> str:
        """Where the caller set a field that holds for this transformer."""
        own = self.secondary
        if own is not None and (own.preset or getattr(own, name) != getattr(_DEFAULTS, name)):
            return f"{_PREFIX}secondary.{name}"
        return _PREFIX + name


def asks_for_caching(config: BlockCacheConfig | None) -> TypeGuard[BlockCacheConfig]:
    """Whether settings turn block caching on, whatever the model; to be told more does not."""
    if config is None or config.preset is BlockCachePreset.NONE:
        return False
    return dataclasses.replace(config, report_residual_diffs=False) != _DEFAULTS


def resolve_block_cache(
    config: BlockCacheConfig | None, model: ModelFacts
) -> BlockCachePlan | None:
    """The settings of every transformer for one run.

    Unset fields take the preset's value, then the default. The second transformer of a dual model
    takes over every field that `secondary` leaves unset from the first one, as SGLang's and
    cache-dit's settings of the second transformer do; a `secondary` with a preset starts from that
    preset instead, and with preset none leaves the second transformer uncached. Preset none turns
    everything off, whatever else is set.

    A mask covers the whole schedule and is cut where the second transformer takes over. Two kinds
    are made for a transformer's own number of steps instead: those that `secondary` sets, and
    those of cache-dit (scm_mask_source compat), which are made that way wherever it is used.

    Args:
        config: What a request asks for; None asks for nothing.
        model: The model and the run.

    Returns:
        None when block caching is off.

    Raises:
        InvalidArgument: a value that is impossible for this model and number of steps; names the
            field, what is allowed and what to do.
    """
    if not asks_for_caching(config):
        return None
    parts = _parts(config, model)
    notes: list[str] = []
    settings = {part.name: _settings(part, notes) for part in parts}
    secondary = config.secondary
    return BlockCachePlan(
        settings=settings,
        first_steps={part.name: part.first_step for part in parts},
        report_residual_diffs=config.report_residual_diffs
        or (secondary is not None and secondary.report_residual_diffs),
        notes=tuple(dict.fromkeys(notes)),
    )


def _parts(config: BlockCacheConfig, model: ModelFacts) -> list[_Part]:
    names, steps = list(model.blocks), model.num_inference_steps
    if len(names) == 1 and config.secondary is not None:
        raise InvalidArgument(
            f"{_PREFIX}secondary is set, but this model has one transformer; leave it out",
            field=_PREFIX + "secondary",
            allowed="unset",
        )
    primary = with_preset(config)
    boundary = steps if model.second_from_step is None else model.second_from_step
    counts = (boundary, steps - boundary)
    masks = _masks_of_primary(primary, counts)
    parts = [
        _Part(
            name=name,
            blocks=model.blocks[name],
            first_step=first_step,
            steps=count,
            config=primary,
            mask=mask,
            forecast_is_presets=_leaves_forecast_to_preset(config),
        )
        for name, first_step, count, mask in zip(names, (0, boundary), counts, masks, strict=False)
    ]
    if config.secondary is None:
        return parts
    second = _second_part(parts[1], config.secondary)
    return [parts[0], second] if second is not None else [parts[0]]


def _second_part(inherited: _Part, secondary: BlockCacheConfig) -> _Part | None:
    """What `secondary` makes of the part of a second transformer; None: it is not cached."""
    if secondary.secondary is not None:
        raise InvalidArgument(
            f"{_PREFIX}secondary has a secondary of its own; no model has a third transformer",
            field=_PREFIX + "secondary.secondary",
            allowed="unset",
        )
    if secondary.preset is BlockCachePreset.NONE:
        return None
    if secondary.preset is not None:
        config = with_preset(secondary)
        forecast_is_presets = _leaves_forecast_to_preset(secondary)
    else:
        config = overridden(inherited.config, secondary)
        forecast_is_presets = inherited.forecast_is_presets and not _says_forecast(secondary)
    part = dataclasses.replace(
        inherited, config=config, secondary=secondary, forecast_is_presets=forecast_is_presets
    )
    if secondary.preset is not None or sets_mask(secondary):
        part = dataclasses.replace(part, mask=_mask(config, part.steps, _PREFIX + "secondary."))
    return part


def _leaves_forecast_to_preset(config: BlockCacheConfig) -> bool:
    return config.preset is not None and not _says_forecast(config)


def _says_forecast(config: BlockCacheConfig) -> bool:
    return config.enable_taylorseer is not None or config.enable_divided_difference is not None


def _masks_of_primary(
    config: BlockCacheConfig, counts: tuple[int, int]
) -> tuple[Mask | None, Mask | None]:
    """The masks that the first transformer's settings make for both."""
    if config.scm_mask_source is ScmMaskSource.COMPAT and not _has_bins(config):
        return _mask(config, counts[0]), _mask(config, counts[1])
    mask = _mask(config, sum(counts))
    return split_mask(mask, counts[0]) if mask is not None else (None, None)


def _mask(config: BlockCacheConfig, steps: int, prefix: str = _PREFIX) -> Mask | None:
    """The mask of a number of steps; bins come before a policy."""
    if _has_bins(config):
        return mask_from_bins(config.compute_bins, config.cache_bins, steps, field=prefix)
    policy = config.scm_steps_mask_policy
    if policy in (None, ScmMaskPolicy.NONE) or not steps:
        return None
    if config.scm_mask_source is ScmMaskSource.COMPAT:
        return compat_mask(policy, steps, field=prefix)
    return own_mask(policy, steps)


def _has_bins(config: BlockCacheConfig) -> bool:
    return bool(config.compute_bins or config.cache_bins)


def _settings(part: _Part, notes: list[str]) -> DBCacheSettings:
    config = part.config
    check_values(config, part.field_name)
    static = config.scm_steps_policy is ScmStepsPolicy.STATIC
    values = {
        ours: value
        for ours, theirs in _SAME.items()
        if (value := getattr(config, theirs)) is not None
    }
    settings = DBCacheSettings(
        **values,
        forecast=_forecast(config),
        forecast_hidden=config.taylorseer_cache_type is TaylorSeerCacheType.HIDDEN_STATES,
        steps_mask=part.mask,
        static_mask=static and part.mask is not None,
        share_branch_diff=config.cfg_diff_compute_separate is False,
    )
    check_blocks(settings, part.name, part.blocks, part.field_name)
    if static and part.mask is None:
        notes.append("scm_steps_policy static has no effect without a step mask; set one")
    never = why_never_reused(settings, part.steps)
    if never is not None and part.steps:
        notes.append(f"{part.name} never reuses a block: {never}")
    return _with_enough_to_forecast(settings, part, notes)


_SAME = {
    "fn_compute_blocks": "fn_compute_blocks",
    "bn_compute_blocks": "bn_compute_blocks",
    "max_warmup_steps": "max_warmup_steps",
    "warmup_interval": "warmup_interval",
    "max_cached_steps": "max_cached_steps",
    "max_continuous_cached_steps": "max_continuous_cached_steps",
    "residual_diff_threshold": "residual_diff_threshold",
    "max_accumulated_residual_diff": "max_accumulated_residual_diff_threshold",
    "taylor_order": "taylorseer_order",
}
"""Settings that are fields of the request, whose default is the settings' own."""


def _forecast(config: BlockCacheConfig) -> Forecast:
    if config.enable_divided_difference:
        return Forecast.DIVIDED_DIFFERENCE
    return Forecast.TAYLOR if config.enable_taylorseer else Forecast.REPEAT


def _repeating(settings: DBCacheSettings) -> DBCacheSettings:
    """Without a forecast, and without what only a forecast uses: equal runs have equal settings."""
    return dataclasses.replace(
        settings, forecast=Forecast.REPEAT, taylor_order=1, forecast_hidden=False
    )


def _with_enough_to_forecast(
    settings: DBCacheSettings, part: _Part, notes: list[str]
) -> DBCacheSettings:
    """Settings whose forecast has computed steps enough to go on.

    A preset is for every number of steps, so it gives up its forecast where the steps are too few.
    """
    computed = fewest_computed(settings, part.steps)
    enough = computed >= min(MIN_FORECAST_STEPS, part.steps)
    if settings.forecast is Forecast.REPEAT:
        return _repeating(settings)
    if enough:
        return settings
    if part.forecast_is_presets:
        notes.append(
            f"{part.name} may compute only {computed} of {part.steps} steps, too few for a "
            "forecast: the residual is repeated instead; raise num_inference_steps"
        )
        return _repeating(settings)
    at_fault = "max_warmup_steps"
    if settings.steps_mask is not None:
        at_fault = "compute_bins" if part.config.compute_bins else "scm_steps_mask_policy"
    raise InvalidArgument(
        f"{part.field_name(at_fault)}: a TaylorSeer forecast needs {MIN_FORECAST_STEPS} computed "
        f"steps, and {part.name} may compute only {computed} of {part.steps}; raise "
        "max_warmup_steps, take a denser step mask or set enable_taylorseer to false",
        field=part.field_name(at_fault),
        allowed=f"settings that compute at least {MIN_FORECAST_STEPS} steps, or no forecast",
    )
