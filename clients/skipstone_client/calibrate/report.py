"""What a calibration says, for eyes: tables in Markdown and a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skipstone_client.calibrate.pairs import Pair
from skipstone_shared.calibration import CalibratedTier, Calibration, Interval, PlainRun
from skipstone_shared.orchestration import ReuseKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ByRelation = Mapping[tuple[str, ReuseKind, bool, float], tuple[Interval, Interval | None]]

_COLOURS = {
    (ReuseKind.RENOISE, False): "#2f6db8",
    (ReuseKind.RENOISE, True): "#2f9a6d",
    (ReuseKind.TRAJECTORY, False): "#8a4fb0",
    (ReuseKind.TRAJECTORY, True): "#c0902f",
}
_RIVAL_COLOUR = "#b8632f"
_LONGEST_PROMPT = 100


SEED_DIVERSITY = 0.95
"""The orchestrator's default of min_seed_diversity."""


def markdown(
    calibration: Calibration,
    by_relation: ByRelation,
    unrelated: Sequence[tuple[float, Pair]] = (),
) -> str:
    """All tables of a calibration.

    Args:
        calibration: What was fitted.
        by_relation: Losses by relation and way of reuse.
        unrelated: Score and prompts of the pairs put together by chance that score highest.
    """
    return "\n".join(
        [
            *_facts(calibration),
            *_unrelated(unrelated),
            "",
            *_tier_table(calibration),
            "",
            *_plain_table(calibration),
            "",
            *_relation_table(by_relation),
            "",
        ]
    )


def bounds(value: Interval | None, digits: int = 2) -> str:
    """A number with its bounds, and with how many it rests on."""
    if value is None:
        return "-"
    low, high = f"{value.low:.{digits}f}", f"{value.high:.{digits}f}"
    return f"{value.value:.{digits}f} ({low} to {high}, n {value.n})"


def seed_word(same_seed: bool) -> str:
    """Whose seed the donor has."""
    return "same" if same_seed else "other"


def _facts(calibration: Calibration) -> Iterator[str]:
    measured, ids = calibration.measured, calibration.services
    yield f"# Calibration of {measured.model_name}"
    yield ""
    yield f"Measured {measured.at} by {measured.by}: `{measured.command}`"
    yield ""
    yield f"- embedder `{ids.embedder_id}`, reranker `{ids.reranker_id or 'none'}`, model hash"
    yield f"  `{ids.model_hash}`; {measured.pairs} pairs of {measured.source}"
    yield (
        f"- resumed runs of {measured.num_inference_steps} steps, guidance "
        f"{measured.guidance_scale:g}; drift: {measured.drift}"
    )
    yield f"- wrong: {measured.wrong or 'not judged'}"
    for name, scores in (
        ("unrelated prompts", calibration.random_scores),
        ("prompts with one thing changed", calibration.edited_scores),
    ):
        if scores is not None:
            yield (
                f"- scores of {name}: median {scores.p50:.3f}, p90 {scores.p90:.3f}, "
                f"p99 {scores.p99:.3f}, highest {scores.highest:.3f} (n {scores.n})"
            )


def _unrelated(pairs: Sequence[tuple[float, Pair]]) -> Iterator[str]:
    if pairs:
        yield (
            "- of those unrelated prompts these score highest; where they ask for the same, chance "
            "is taken for higher than it is, and tiers begin too high:"
        )
    for score, pair in pairs:
        yield f"  - {score:.3f}: `{_cut(pair.donor)}` / `{_cut(pair.prompt)}`"


def _cut(prompt: str) -> str:
    text = " ".join(prompt.replace("`", "'").split())
    return text if len(text) <= _LONGEST_PROMPT else text[:_LONGEST_PROMPT] + "..."


def served_to(tier: CalibratedTier, plain_runs: Sequence[PlainRun]) -> str:
    """Whom the orchestrator serves by a tier at its default settings.

    Args:
        tier: The tier.
        plain_runs: The rivals, by ascending steps; at another number of steps than was measured
            others may be met.
    """
    if not tier.open:
        return "nobody"
    rival = next((run for run in plain_runs if run.steps >= tier.executed_steps), None)
    if plain_runs and _loses(tier, rival, plain_runs[-1]):
        return f"nobody: {rival.steps if rival else 'as many'} plain steps do better"
    if tier.same_seed:
        return "requests with the donor's seed"
    if tier.diversity is None or tier.diversity.low < SEED_DIVERSITY:
        return "prompts not answered with another seed yet"
    return "every prompt"


def _loses(tier: CalibratedTier, rival: PlainRun | None, last: PlainRun) -> bool:
    """As the orchestrator's `beat_fewer_steps`; beyond the last plain run nothing is nearer."""
    if tier.drift is None:
        return False
    wrong = (rival or last).wrong
    if tier.wrong is not None and wrong is not None and tier.wrong.low > wrong.high:
        return True
    return tier.same_seed and (rival is None or rival.drift.value <= tier.drift.value)


def _tier_table(calibration: Calibration) -> Iterator[str]:
    yield (
        "| kind | donor's seed | noise level | steps run | score above | drift | wrong | diversity "
        "| open | served to |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for tier in calibration.tiers:
        told = "yes" if tier.open else f"no: {tier.closed_because}"
        yield (
            f"| {tier.kind.value} | {seed_word(tier.same_seed)} | {tier.level:.3f} | "
            f"{tier.executed_steps} | {tier.above:.3f} | {bounds(tier.drift)} | "
            f"{bounds(tier.wrong)} | {bounds(tier.diversity)} | {told} | "
            f"{served_to(tier, calibration.plain_runs)} |"
        )


def _plain_table(calibration: Calibration) -> Iterator[str]:
    yield "| plain steps | drift | wrong |"
    yield "|---|---|---|"
    for run in calibration.plain_runs:
        yield f"| {run.steps} | {bounds(run.drift)} | {bounds(run.wrong)} |"


def _relation_table(by_relation: ByRelation) -> Iterator[str]:
    yield "| changed | kind | donor's seed | noise level | drift | wrong |"
    yield "|---|---|---|---|---|---|"
    for place in sorted(by_relation, key=lambda p: (p[0], p[1].value, p[2], -p[3])):
        relation, kind, same_seed, level = place
        drift, wrong = by_relation[place]
        yield (
            f"| {relation or 'unknown'} | {kind.value} | {seed_word(same_seed)} | {level:.3f} | "
            f"{bounds(drift)} | {bounds(wrong)} |"
        )


def draw(calibration: Calibration, path: Path) -> None:
    """Writes the plot as PNG: drift and wrong pictures by executed steps, beside plain runs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), dpi=120)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _draw(left, calibration, lambda item: item.drift, "drift (1: another seed's picture)")
    _draw(right, calibration, lambda item: item.wrong, "share of wrong pictures")
    left.legend(frameon=False, fontsize=8)
    steps = calibration.measured.num_inference_steps
    figure.suptitle(
        f"{calibration.measured.model_name}: resumed runs of {steps} steps, by steps executed"
    )
    figure.tight_layout()
    figure.savefig(path, format="png")


def _draw(
    axes: Axes,
    calibration: Calibration,
    value: Callable[[CalibratedTier | PlainRun], Interval | None],
    label: str,
) -> None:
    for (kind, same_seed), colour in _COLOURS.items():
        tiers = [t for t in calibration.tiers if (t.kind, t.same_seed) == (kind, same_seed)]
        name = f"{kind.value}, {seed_word(same_seed)} seed"
        _line(axes, [(float(t.executed_steps), value(t)) for t in tiers], colour, name)
    plain = [(float(run.steps), value(run)) for run in calibration.plain_runs]
    _line(axes, plain, _RIVAL_COLOUR, "plain run", dashed=True)
    axes.set_xlabel("steps executed")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)


def _line(
    axes: Axes,
    points: Sequence[tuple[float, Interval | None]],
    colour: str,
    name: str,
    *,
    dashed: bool = False,
) -> None:
    known = [(x, value) for x, value in sorted(points, key=lambda p: p[0]) if value is not None]
    if not known:
        return
    xs = [x for x, _ in known]
    below = [value.value - value.low for _, value in known]
    over = [value.high - value.value for _, value in known]
    axes.errorbar(
        xs,
        [value.value for _, value in known],
        yerr=[below, over],
        color=colour,
        linestyle="--" if dashed else "-",
        marker="o",
        markersize=3,
        capsize=2,
        label=name,
    )
