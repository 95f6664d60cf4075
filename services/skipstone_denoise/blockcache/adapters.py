"""Where a transformer has its blocks and how they pass the streams on: all that caching needs."""

from __future__ import annotations

import dataclasses

from skipstone_denoise.blockcache.patterns import ForwardPattern


@dataclasses.dataclass(frozen=True, slots=True)
class BlockChain:
    """Blocks that run one after another, with one state for all of them.

    Attributes:
        lists: Attribute paths of the block lists, in the order in which the transformer runs them.
            Several lists are one chain only where the transformer passes what leaves one straight
            into the next, with the same arguments (Flux.1).
        pattern: What the blocks take and return.
        own_arguments: Whether the transformer's loop gives each block arguments of its own
            (Chroma). The loop then runs to its end, with blocks that return at once.
        unbatched: Names of block arguments without a batch dimension, such as rotary embeddings.
        repeated: Names of block arguments that may hold several batches, one after another
            (Qwen-Image-Edit: embeddings of the timestep and of timestep 0).
        text_ends: Whether the transformer drops the text stream after the chain. Without back
            blocks nothing of it is then kept.
    """

    lists: tuple[str, ...]
    pattern: ForwardPattern
    own_arguments: bool = False
    unbatched: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    text_ends: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TransformerAdapter:
    """How one class of transformers is cached.

    Attributes:
        transformer_class: Name of the class.
        family: Name of the models that have it, for people.
        chains: Its chains, in the order in which they run.
        branches: Names of the calls of one step, in order, where the pipeline does not name them
            by `cache_context`. One name if all guidance is one batch.
        refused_inputs: Arguments of the transformer that its loop uses block by block, so that a
            call that has them cannot be cached (a ControlNet's residuals).
    """

    transformer_class: str
    family: str
    chains: tuple[BlockChain, ...]
    branches: tuple[str, ...] = ("cond", "uncond")
    refused_inputs: tuple[str, ...] = ()
