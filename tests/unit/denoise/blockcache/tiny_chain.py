"""A tiny transformer of any block pattern, whose decisions a test can foresee."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.cached_transformer import with_block_cache
from skipstone_denoise.blockcache.dbcache import Reason
from skipstone_denoise.blockcache.patterns import ForwardPattern
from skipstone_denoise.blockcache.settings import DBCacheSettings
from skipstone_denoise.blockcache.state import BlockCacheState

WIDTH = 4
TEXT_IN = (ForwardPattern.HE_HE, ForwardPattern.HE_EH, ForwardPattern.HE_H)
Amount = float | Tensor
STYLES = ("positional", "keyword", "mixed")


class TinyBlock(nn.Module):
    """Mixes every position for itself, and the text with the mean of the picture.

    The first block adds `amount` times a fixed direction, so that the relative difference between
    two steps is that of their amounts.

    Attributes:
        rows_seen: Batch size of every call.
        in_place: Whether the block writes into its input.
        fails: Whether the next call raises.
    """

    def __init__(self, pattern: ForwardPattern, index: int) -> None:
        super().__init__()
        self.pattern = pattern
        self.first = index == 0
        self.image = nn.Linear(WIDTH, WIDTH, bias=False)
        self.text = nn.Linear(WIDTH, WIDTH, bias=False)
        self.rows_seen: list[int] = []
        self.in_place = False
        self.fails = False

    def mixed(self, hidden: Tensor, encoder: Tensor | None, amount: Tensor, rotary: Tensor) -> Any:
        self.rows_seen.append(len(hidden))
        if self.fails:
            self.fails = False
            raise RuntimeError("a block failed")
        added = self._direction(hidden, encoder, amount, rotary)
        if self.in_place:
            hidden += added
        else:
            hidden = hidden + added
        if not self.pattern.returns_encoder:
            return hidden
        text = torch.tanh(self.text(hidden.mean(1, keepdim=True))) * amount.mean(1, keepdim=True)
        if encoder is not None and self.in_place:
            encoder += text
        else:
            encoder = text if encoder is None else encoder + text
        if self.pattern in (ForwardPattern.HE_EH, ForwardPattern.H_EH):
            return encoder, hidden
        return hidden, encoder

    def _direction(
        self, hidden: Tensor, encoder: Tensor | None, amount: Tensor, rotary: Tensor
    ) -> Tensor:
        if self.first:
            return amount * self.image.weight[0].expand_as(hidden)
        mixed = self.image(hidden) + rotary.sum(0)
        if encoder is not None:
            mixed = mixed + self.text(encoder.mean(1, keepdim=True))
        return amount * torch.tanh(mixed)


class TextBlock(TinyBlock):
    """Takes both streams."""

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        amount: Tensor,
        rotary: tuple[Tensor, Tensor],
    ) -> Any:
        return self.mixed(hidden_states, encoder_hidden_states, amount, rotary[0] + rotary[1])


class ImageBlock(TinyBlock):
    """Takes the image stream only."""

    def forward(self, hidden_states: Tensor, amount: Tensor, rotary: tuple[Tensor, Tensor]) -> Any:
        return self.mixed(hidden_states, None, amount, rotary[0] + rotary[1])


class TinyTransformer(nn.Module):
    """A stock-like loop over its blocks.

    Attributes:
        style: How the loop hands its arguments over.
        per_block: Whether every block gets another amount.
        rotary: Two tensors of two rows, as many as a batch of two has samples.
    """

    def __init__(self, pattern: ForwardPattern, blocks: int = 5, style: str = "positional") -> None:
        super().__init__()
        self.pattern = pattern
        self.style = style
        self.per_block = False
        kind = TextBlock if pattern in TEXT_IN else ImageBlock
        self.blocks = nn.ModuleList(kind(pattern, index) for index in range(blocks))
        self.register_buffer("rotary", torch.randn(2, WIDTH))

    def forward(self, hidden: Tensor, amount: Tensor, encoder: Tensor | None = None) -> Tensor:
        for index, block in enumerate(self.blocks):
            own = amount * (1 + index) if self.per_block else amount
            output = self._call(block, hidden, encoder, own)
            hidden, encoder = self.pattern.unpack(output, encoder)
        return hidden if encoder is None else hidden + encoder.mean(1, keepdim=True)

    def _call(self, block: Any, hidden: Tensor, encoder: Tensor | None, amount: Tensor) -> Any:
        named: dict[str, Any] = {"hidden_states": hidden}
        if self.pattern in TEXT_IN:
            named["encoder_hidden_states"] = encoder
        named |= {"amount": amount, "rotary": (self.rotary, self.rotary)}
        if self.style == "keyword":
            return block(**named)
        if self.style == "positional":
            return block(*named.values())
        return block(named.pop("hidden_states"), **named)

    @property
    def calls(self) -> list[int]:
        """How often each block was called so far."""
        return [len(block.rows_seen) for block in self.blocks]


def tiny_transformer(
    pattern: ForwardPattern = ForwardPattern.H_H,
    blocks: int = 5,
    style: str = "positional",
    dtype: torch.dtype = torch.float64,
) -> TinyTransformer:
    """The same weights for the same arguments."""
    torch.manual_seed(7)
    return TinyTransformer(pattern, blocks, style).to(dtype).eval().requires_grad_(False)


def adapter_of(
    transformer: nn.Module,
    *lists: str,
    own_arguments: bool = False,
    branches: tuple[str, ...] = ("cond", "uncond"),
    pattern: ForwardPattern | None = None,
) -> TransformerAdapter:
    """Every list a chain of its own."""
    pattern = pattern or transformer.pattern
    chains = tuple(
        BlockChain((path,), pattern, own_arguments=own_arguments, unbatched=("rotary",))
        for path in lists or ("blocks",)
    )
    return TransformerAdapter(type(transformer).__name__, "Tiny", chains, branches)


def cached(
    transformer: nn.Module, settings: DBCacheSettings | BlockCacheState, **adapter: Any
) -> tuple[nn.Module, BlockCacheState]:
    """A request's own transformer, and its state."""
    state = settings if isinstance(settings, BlockCacheState) else BlockCacheState(settings)
    return with_block_cache(transformer, adapter_of(transformer, **adapter), state), state


def seeded(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal values that depend on the seed alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def amounts(*samples: float | Sequence[float]) -> Tensor:
    """The amount of every sample, maybe of every position: `(batch, 1 or length, 1)`."""
    rows = [list(sample) if isinstance(sample, Sequence) else [sample] for sample in samples]
    return torch.tensor(rows, dtype=torch.float64)[..., None]


class Request:
    """A request's loop over a transformer: noise, text, and a step that feeds the output back."""

    def __init__(
        self,
        transformer: nn.Module,
        state: BlockCacheState | None = None,
        *,
        seed: int = 1,
        batch: int = 1,
        length: int = 3,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self.transformer = transformer
        self.state = state
        self.latents = seeded(batch, length, WIDTH, seed=seed, dtype=dtype)
        takes_text = transformer.pattern in TEXT_IN
        self.text = seeded(batch, 2, WIDTH, seed=seed + 1, dtype=dtype) if takes_text else None
        self.outputs: list[Tensor] = []

    def step(self, index: int, *calls: Tensor, names: Sequence[str] = ()) -> Tensor:
        """One step with one call per guidance branch, maybe named; the latents after it."""
        if self.state is not None:
            self.state.begin_step(index)
        outputs = []
        for place, amount in enumerate(calls):
            named = self.transformer.cache_context(names[place]) if names else nullcontext()
            with named:
                outputs.append(self.transformer(self.latents, amount, self.text))
        self.outputs += outputs
        self.latents = self.latents + 0.05 * torch.stack(outputs).sum(0)
        return self.latents

    def run(self, amounts_by_step: Iterable[Amount | tuple[Amount, ...]]) -> list[Tensor]:
        """All steps, with the amounts of each one's call or calls; the output of every call."""
        for index, step in enumerate(amounts_by_step):
            calls = step if isinstance(step, tuple) else (step,)
            self.step(index, *(self._tensor(amount) for amount in calls))
        return self.outputs

    def _tensor(self, amount: Amount) -> Tensor:
        return (amounts(amount) if isinstance(amount, float) else amount).to(self.latents.dtype)


def reasons(state: BlockCacheState, branch: str = "cond", request: int = 0) -> list[Reason]:
    """Why each step of a branch was computed or reused."""
    return [record.reason for record in state.states_of("transformer", "", branch)[request].records]


def reused(state: BlockCacheState, branch: str = "cond", request: int = 0) -> list[int]:
    """Which steps of a branch were reused."""
    records = state.states_of("transformer", "", branch)[request].records
    return [record.step_index for record in records if record.reason.reuses]
