"""Every known family: caching changes nothing until it reuses, and then only the middle blocks.

Tiny transformers of the real diffusers classes, driven through a few steps as a pipeline does.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tests.unit.denoise.blockcache.families.picture_families import (
    PICTURE_FAMILIES,
    PICTURE_VARIANTS,
)
from tests.unit.denoise.blockcache.families.tiny_transformers import TinyFamily
from tests.unit.denoise.blockcache.families.video_families import (
    VIDEO_FAMILIES,
    VIDEO_VARIANTS,
)
from torch import Tensor, nn

from skipstone_denoise.blockcache.adapters import TransformerAdapter
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.families import KNOWN_ADAPTERS, adapter_for
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState
from skipstone_shared.errors import InvalidArgument

STEPS = 4
COMPUTED = (0, 3)
REUSED = (1, 2)
"""After one warm-up step, at most two in a row are reused."""

FAMILIES: dict[str, TinyFamily] = {**PICTURE_FAMILIES, **VIDEO_FAMILIES}
CASES: dict[str, TinyFamily] = {**FAMILIES, **PICTURE_VARIANTS, **VIDEO_VARIANTS}

EXACT = DBCacheSettings(bn_compute_blocks=1, max_warmup_steps=1, residual_diff_threshold=0.0)
GENEROUS = dataclasses.replace(EXACT, residual_diff_threshold=1.0, max_continuous_cached_steps=2)

Outputs = dict[tuple[int, str], Tensor]
"""Latents of every call, by step and branch."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A transformer that all tests of its family share, as requests do."""

    family: TinyFamily
    transformer: nn.Module
    adapter: TransformerAdapter
    plain: Outputs

    @property
    def chains(self) -> list[list[nn.Module]]:
        """The shared blocks of every chain, in the order in which they run."""
        return [
            [block for path in chain.lists for block in getattr(self.transformer, path)]
            for chain in self.adapter.chains
        ]


@pytest.fixture(scope="module", params=CASES.values(), ids=list(CASES))
def subject(request: pytest.FixtureRequest) -> Subject:
    family: TinyFamily = request.param
    transformer = family.transformer()
    return Subject(family, transformer, adapter_for(transformer), run(transformer, family))


def test_at_threshold_zero_a_run_is_the_plain_one_bit_for_bit(subject: Subject) -> None:
    state = BlockCacheState(EXACT)
    mine = with_block_cache(subject.transformer, subject.adapter, state)
    cached = run(mine, subject.family, state)

    assert all(torch.equal(cached[call], subject.plain[call]) for call in subject.plain)
    assert state.report().block_calls == state.report().block_calls_full


def test_text_that_nothing_reads_is_not_kept(subject: Subject) -> None:
    """Keeping it all the same must change nothing but the memory."""
    if not any(chain.text_ends for chain in subject.adapter.chains):
        return
    chains = tuple(dataclasses.replace(c, text_ends=False) for c in subject.adapter.chains)
    keeping = dataclasses.replace(subject.adapter, chains=chains)
    settings = dataclasses.replace(GENEROUS, bn_compute_blocks=0)
    outputs, held = [], []
    for adapter in (subject.adapter, keeping):
        state = BlockCacheState(settings)
        mine = with_block_cache(subject.transformer, adapter, state)
        outputs.append(run(mine, subject.family, state))
        held.append(sum(tensor.nbytes for tensor in state.tensors()))

    assert all(torch.equal(outputs[0][call], outputs[1][call]) for call in outputs[1])
    assert held[0] < held[1]


def test_at_a_reused_step_only_front_and_back_blocks_run(subject: Subject) -> None:
    state = BlockCacheState(GENEROUS)
    mine = with_block_cache(subject.transformer, subject.adapter, state)
    calls: dict[int, Counter[int]] = {}
    cached: Outputs = {}
    for step in range(STEPS):
        with counted_calls(subject.chains) as calls[step]:
            cached |= run(mine, subject.family, state, steps=range(step, step + 1))

    branches = len(subject.family.branches)
    everything = Counter({id(block): branches for chain in subject.chains for block in chain})
    ends = Counter({id(chain[end]): branches for chain in subject.chains for end in (0, -1)})
    assert {step: calls[step] for step in COMPUTED} == dict.fromkeys(COMPUTED, everything)
    assert {step: calls[step] for step in REUSED} == dict.fromkeys(REUSED, ends)
    for call, output in cached.items():
        assert output.shape == subject.plain[call].shape
        assert output.isfinite().all()
        # Middle blocks that the output ignores would make the other checks say nothing.
        assert torch.equal(output, subject.plain[call]) == (call[0] in COMPUTED)

    report = state.report()
    assert report.block_calls == sum(counter.total() for counter in calls.values())
    assert report.block_calls_full == STEPS * everything.total()
    assert {branch.branch for branch in report.branches} == set(subject.family.branches)
    assert len(report.branches) == branches * len(subject.chains)
    for branch in report.branches:
        assert (branch.computed_steps, branch.reused_steps) == (COMPUTED, REUSED)


def test_the_shared_transformer_is_left_as_it_was(subject: Subject) -> None:
    before = contents_of(subject.transformer)
    state = BlockCacheState(GENEROUS)
    mine = with_block_cache(subject.transformer, subject.adapter, state)
    run(mine, subject.family, state)

    assert contents_of(subject.transformer) == before
    after = run(subject.transformer, subject.family)
    assert all(torch.equal(after[call], subject.plain[call]) for call in subject.plain)


def test_a_request_in_a_batch_decides_as_it_would_alone(subject: Subject) -> None:
    """One request's latents stand still, so it reuses where the other one computes."""
    settings = dataclasses.replace(GENEROUS, residual_diff_threshold=1e-4)
    together, reused = run_batch(subject, settings, samples=(0, 1))
    alone = [run_batch(subject, settings, samples=(sample,))[0] for sample in (0, 1)]

    # Every chain says so.
    assert set(reused) == {("0", REUSED), ("1", ())}
    for step in range(STEPS):
        expected = torch.cat([alone[0][step], alone[1][step]])
        # Sums over another batch size differ by float noise.
        torch.testing.assert_close(together[step], expected, rtol=1e-3, atol=1e-3)


def test_inputs_that_reach_into_the_loop_are_refused(subject: Subject) -> None:
    mine = with_block_cache(subject.transformer, subject.adapter, BlockCacheState(GENEROUS))
    inputs = subject.family.inputs([(0, 0)], 0)
    for name in subject.adapter.refused_inputs:
        with pytest.raises(InvalidArgument, match=name):
            mine(**{**inputs, name: [0]})


def test_the_names_in_an_adapter_are_names_of_the_model(subject: Subject) -> None:
    """A name that nothing has would protect from nothing."""
    inputs = inspect.signature(subject.transformer.forward).parameters
    assert set(subject.adapter.refused_inputs) <= set(inputs)
    for chain, blocks in zip(subject.adapter.chains, subject.chains, strict=True):
        names = {n for block in blocks for n in inspect.signature(block.forward).parameters}
        assert {*chain.unbatched, *chain.repeated} <= names


def run_batch(
    subject: Subject, settings: DBCacheSettings, samples: tuple[int, ...]
) -> tuple[list[Tensor], list[tuple[str, tuple[int, ...]]]]:
    """One branch of several requests: sample 0 stays at its first step, sample 1 moves on.

    Returns:
        The latents `(len(samples), ...)` of every step, and per chain and request the last
        letter of its name in the report and the steps it reused.
    """
    state = BlockCacheState(settings, sample_groups=range(len(samples)))
    mine = with_block_cache(subject.transformer, subject.adapter, state)
    outputs = []
    for step in range(STEPS):
        state.begin_step(step)
        moments = [(sample, step * sample) for sample in samples]
        outputs.append(latents_of(mine(**subject.family.inputs(moments, 0))))
    reused = [(branch.branch[-1], branch.reused_steps) for branch in state.report().branches]
    return outputs, reused


def test_every_known_family_is_tested() -> None:
    assert [adapter.transformer_class for adapter in KNOWN_ADAPTERS] == list(FAMILIES)


def run(
    transformer: nn.Module,
    family: TinyFamily,
    state: BlockCacheState | None = None,
    steps: range = range(STEPS),
) -> Outputs:
    """Calls a transformer as its pipeline does; the order in a step tells the branches apart."""
    outputs = {}
    for step in steps:
        if state is not None:
            state.begin_step(step)
        for number, branch in enumerate(family.branches):
            outputs[step, branch] = latents_of(transformer(**family.inputs([(0, step)], number)))
    return outputs


def latents_of(result: Any) -> Tensor:
    """The latents of a call, stacked where the transformer gives a list of them."""
    return torch.stack(result.sample) if isinstance(result.sample, list) else result.sample


@contextmanager
def counted_calls(chains: list[list[nn.Module]]) -> Iterator[Counter[int]]:
    """Counts the calls of blocks, by their identity."""
    calls: Counter[int] = Counter()
    handles = [
        block.register_forward_hook(lambda block, *_: calls.update([id(block)]))
        for chain in chains
        for block in chain
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def contents_of(transformer: nn.Module) -> dict[str, Any]:
    """Attributes of every module by name: identities, and the members of containers."""
    return {
        f"{path}.{name}": [*value.items()] if isinstance(value, dict) else id(value)
        for path, module in transformer.named_modules()
        for name, value in vars(module).items()
    }
