"""Which block-cache settings are impossible, and which can never reuse anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_shared.errors import InvalidArgument
from skipstone_shared.generation import BlockCacheConfig

FieldName = Callable[[str], str]
"""Name of a field -> where the caller set it, such as `params.block_cache.max_warmup_steps`."""

MIN_FORECAST_STEPS = 4
"""Computed steps below which a forecast has too little to go on."""

_LOWEST = {
    "fn_compute_blocks": (1, "what the first block adds tells how much a step changes"),
    "bn_compute_blocks": (0, "0 runs no blocks at the end"),
    "max_warmup_steps": (0, "0 is no warm-up"),
    "warmup_interval": (1, "1 computes every warm-up step"),
    "max_cached_steps": (-1, "-1 is no limit, 0 reuses nothing"),
    "max_continuous_cached_steps": (-1, "-1 is no limit, 0 reuses nothing"),
}


def check_values(config: BlockCacheConfig, field_name: FieldName) -> None:
    """Refuses values that make no sense for any model.

    Raises:
        InvalidArgument: a value out of range, or fields that contradict each other.
    """
    for name, (lowest, why) in _LOWEST.items():
        value = getattr(config, name)
        if value is not None and value < lowest:
            raise InvalidArgument(
                f"{field_name(name)} is {value}, but {why}",
                field=field_name(name),
                allowed=f"at least {lowest}",
            )
    threshold = config.residual_diff_threshold
    if threshold is not None and not 0 <= threshold <= 1:
        raise InvalidArgument(
            f"{field_name('residual_diff_threshold')} is {threshold}; it is the relative "
            "difference below which a step is reused, usually 0.04 to 0.4",
            field=field_name("residual_diff_threshold"),
            allowed="0 to 1",
        )
    limit = config.max_accumulated_residual_diff_threshold
    if limit is not None and not limit > 0:
        raise InvalidArgument(
            f"{field_name('max_accumulated_residual_diff_threshold')} is {limit}; leave it unset "
            "for no limit",
            field=field_name("max_accumulated_residual_diff_threshold"),
            allowed="above 0",
        )
    _check_forecast(config, field_name)


def _check_forecast(config: BlockCacheConfig, field_name: FieldName) -> None:
    if config.taylorseer_order not in (None, 1, 2):
        raise InvalidArgument(
            f"{field_name('taylorseer_order')} is {config.taylorseer_order}; higher orders "
            "follow the noise, and order 0 is enable_taylorseer false",
            field=field_name("taylorseer_order"),
            allowed="1 or 2",
        )
    if config.enable_divided_difference and config.enable_taylorseer is False:
        raise InvalidArgument(
            f"{field_name('enable_divided_difference')} asks for a forecast, and "
            "enable_taylorseer false for none; leave one of them out",
            field=field_name("enable_divided_difference"),
            allowed="false or unset beside enable_taylorseer false",
        )


def check_blocks(
    settings: DBCacheSettings, transformer: str, chains: Sequence[int], field_name: FieldName
) -> None:
    """Refuses settings that leave no block to reuse.

    Args:
        settings: Settings of a transformer.
        transformer: Its name.
        chains: Number of blocks of each of its chains.
        field_name: Where a field was set.

    Raises:
        InvalidArgument: F + B reaches the number of blocks of a chain.
    """
    front, back, blocks = settings.fn_compute_blocks, settings.bn_compute_blocks, min(chains)
    if front + back < blocks:
        return
    at_fault = "fn_compute_blocks" if front >= blocks or not back else "bn_compute_blocks"
    if blocks < 2:
        fix = "block caching needs at least 2; leave block_cache unset"
        allowed = "no block caching with this model"
    else:
        fix = f"lower them to {blocks - 1} in all"
        allowed = f"fn_compute_blocks + bn_compute_blocks at most {blocks - 1}"
    what = "blocks" if len(chains) == 1 else "blocks in its shortest list"
    raise InvalidArgument(
        f"{field_name(at_fault)}: fn_compute_blocks {front} and bn_compute_blocks {back} must "
        f"leave a block between them, and {transformer} has {blocks} {what}: {fix}",
        field=field_name(at_fault),
        allowed=allowed,
    )


def fewest_computed(settings: DBCacheSettings, steps: int) -> int:
    """Steps of a run that are computed when every measured difference is below the threshold.

    Args:
        settings: Settings of a transformer.
        steps: Steps that it takes.
    """
    mask, warmup = settings.steps_mask, settings.warmup_steps
    computed = run = 0
    for step in range(steps):
        must = step == 0 or step in warmup or (mask is not None and mask[step])
        if not must and not (settings.static_mask and mask is not None):
            reused = step - computed
            must = (
                0 <= settings.max_cached_steps <= reused
                or 0 <= settings.max_continuous_cached_steps <= run
                or settings.residual_diff_threshold <= 0
            )
        computed += must
        run = 0 if must else run + 1
    return computed


def why_never_reused(settings: DBCacheSettings, steps: int) -> str | None:
    """Why nothing can be reused in a run, with what to change; None if something can be.

    Args:
        settings: Settings of a transformer.
        steps: Steps that it takes.
    """
    if fewest_computed(settings, steps) < steps:
        return None
    if steps < 2:
        return f"it takes {steps} step{'' if steps else 's'}"
    if settings.steps_mask is not None and all(settings.steps_mask):
        return "its step mask computes every step; take a sparser one"
    if len(settings.warmup_steps) >= steps:
        return f"max_warmup_steps {settings.max_warmup_steps} covers all {steps} steps; lower it"
    if settings.residual_diff_threshold <= 0:
        return "residual_diff_threshold is 0; raise it"
    for name in ("max_cached_steps", "max_continuous_cached_steps"):
        if getattr(settings, name) == 0:
            return f"{name} is 0; raise it, or take -1 for no limit"
    return "warm-up and step mask together compute every step; lower max_warmup_steps"
