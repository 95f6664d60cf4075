"""The transformers of diffusers 0.42 whose blocks can be cached as they are.

What a class needs to be here: its loop passes the streams from block to block and touches nothing
in between, except through the arguments named in `refused_inputs`. That leaves out WanVACE,
Wan-Animate and ConsisID (they add to the hidden states after certain blocks), HunyuanDiT (skip
connections between blocks), BriaFibo and HiDream (a text layer of its own for every block), Latte
(two lists that take turns) and DiT (it looks into its first block after the loop).
"""

from __future__ import annotations

from skipstone_denoise.blockcache.adapters import BlockChain, TransformerAdapter
from skipstone_denoise.blockcache.patterns import ForwardPattern

_DOUBLE, _SINGLE = "transformer_blocks", "single_transformer_blocks"
_ROTARY = ("image_rotary_emb",)
_ONE_BATCH = ("cond_uncond",)
_CONTROLNET = ("controlnet_block_samples",)
_CONTROLNETS = ("controlnet_block_samples", "controlnet_single_block_samples")

_PICTURES: tuple[TransformerAdapter, ...] = (
    TransformerAdapter(
        "FluxTransformer2DModel",
        "Flux.1",
        (BlockChain((_DOUBLE, _SINGLE), ForwardPattern.HE_EH, unbatched=_ROTARY, text_ends=True),),
        refused_inputs=_CONTROLNETS,
    ),
    TransformerAdapter(
        "Flux2Transformer2DModel",
        "Flux.2",
        (
            BlockChain((_DOUBLE,), ForwardPattern.HE_EH, unbatched=_ROTARY),
            # Both streams in one tensor, and one modulation instead of two.
            BlockChain((_SINGLE,), ForwardPattern.H_H, unbatched=_ROTARY),
        ),
        refused_inputs=("kv_cache", "kv_cache_mode"),
    ),
    TransformerAdapter(
        "QwenImageTransformer2DModel",
        "Qwen-Image",
        (
            BlockChain(
                (_DOUBLE,),
                ForwardPattern.HE_EH,
                unbatched=_ROTARY,
                repeated=("temb",),
                text_ends=True,
            ),
        ),
        refused_inputs=_CONTROLNET,
    ),
    TransformerAdapter(
        "SD3Transformer2DModel",
        "Stable Diffusion 3",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_EH),),
        _ONE_BATCH,
        refused_inputs=("block_controlnet_hidden_states", "skip_layers"),
    ),
    TransformerAdapter(
        "PixArtTransformer2DModel",
        "PixArt",
        (BlockChain((_DOUBLE,), ForwardPattern.H_H),),
        _ONE_BATCH,
    ),
    TransformerAdapter(
        "ZImageTransformer2DModel",
        "Z-Image",
        (BlockChain(("layers",), ForwardPattern.H_H),),
        _ONE_BATCH,
        refused_inputs=_CONTROLNET,
    ),
    TransformerAdapter(
        "SanaTransformer2DModel",
        "Sana",
        (BlockChain((_DOUBLE,), ForwardPattern.H_H),),
        _ONE_BATCH,
        refused_inputs=_CONTROLNET,
    ),
    TransformerAdapter(
        "ChromaTransformer2DModel",
        "Chroma",
        (
            # The loop cuts every block's modulation out of one tensor, by the block's number.
            BlockChain((_DOUBLE,), ForwardPattern.HE_EH, own_arguments=True, unbatched=_ROTARY),
            BlockChain((_SINGLE,), ForwardPattern.H_H, own_arguments=True, unbatched=_ROTARY),
        ),
        refused_inputs=_CONTROLNETS,
    ),
    TransformerAdapter(
        "Lumina2Transformer2DModel",
        "Lumina 2",
        (BlockChain(("layers",), ForwardPattern.H_H),),
    ),
    TransformerAdapter(
        "CogView4Transformer2DModel",
        "CogView4",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_HE, unbatched=_ROTARY, text_ends=True),),
    ),
    TransformerAdapter(
        "CogView3PlusTransformer2DModel",
        "CogView3-Plus",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_HE),),
        _ONE_BATCH,
    ),
    TransformerAdapter(
        "BriaTransformer2DModel",
        "Bria 3",
        (BlockChain((_DOUBLE, _SINGLE), ForwardPattern.HE_EH, unbatched=_ROTARY),),
        _ONE_BATCH,
        refused_inputs=_CONTROLNETS,
    ),
    TransformerAdapter(
        "LongCatImageTransformer2DModel",
        "LongCat-Image",
        (BlockChain((_DOUBLE, _SINGLE), ForwardPattern.HE_EH, unbatched=_ROTARY),),
    ),
    TransformerAdapter(
        "OvisImageTransformer2DModel",
        "Ovis-Image",
        (BlockChain((_DOUBLE, _SINGLE), ForwardPattern.HE_EH, unbatched=_ROTARY),),
    ),
    TransformerAdapter(
        "HunyuanImageTransformer2DModel",
        "HunyuanImage 2.1",
        (BlockChain((_DOUBLE, _SINGLE), ForwardPattern.HE_HE, unbatched=_ROTARY),),
    ),
    TransformerAdapter(
        "AuraFlowTransformer2DModel",
        "AuraFlow",
        (
            BlockChain(("joint_transformer_blocks",), ForwardPattern.HE_EH),
            BlockChain((_SINGLE,), ForwardPattern.H_H),
        ),
        _ONE_BATCH,
    ),
    TransformerAdapter(
        "PRXTransformer2DModel",
        "PRX",
        (BlockChain(("blocks",), ForwardPattern.HE_H),),
        _ONE_BATCH,
    ),
)

_VIDEOS: tuple[TransformerAdapter, ...] = (
    TransformerAdapter(
        "WanTransformer3DModel",
        "Wan 2.1 and 2.2",
        (BlockChain(("blocks",), ForwardPattern.HE_H, unbatched=("rotary_emb",)),),
    ),
    TransformerAdapter(
        "SkyReelsV2Transformer3DModel",
        "SkyReels-V2",
        (BlockChain(("blocks",), ForwardPattern.HE_H, unbatched=("rotary_emb", "attention_mask")),),
        # Its frames are at different steps at once, and no step follows on the one before.
        refused_inputs=("enable_diffusion_forcing",),
    ),
    TransformerAdapter(
        "ChronoEditTransformer3DModel",
        "ChronoEdit",
        (BlockChain(("blocks",), ForwardPattern.HE_H, unbatched=("rotary_emb",)),),
    ),
    TransformerAdapter(
        "HunyuanVideoTransformer3DModel",
        "HunyuanVideo",
        (
            BlockChain(
                (_DOUBLE, _SINGLE),
                ForwardPattern.HE_HE,
                # The lists' blocks call the same argument by different names.
                unbatched=("freqs_cis", "image_rotary_emb"),
                text_ends=True,
            ),
        ),
    ),
    TransformerAdapter(
        "HunyuanVideo15Transformer3DModel",
        "HunyuanVideo 1.5",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_HE, unbatched=("freqs_cis",)),),
    ),
    TransformerAdapter(
        "CogVideoXTransformer3DModel",
        "CogVideoX",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_HE, unbatched=_ROTARY, text_ends=True),),
        _ONE_BATCH,
    ),
    TransformerAdapter(
        "LTXVideoTransformer3DModel",
        "LTX-Video",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_H),),
        _ONE_BATCH,
    ),
    TransformerAdapter(
        "MochiTransformer3DModel",
        "Mochi 1",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_HE, unbatched=_ROTARY, text_ends=True),),
        _ONE_BATCH,
    ),
    TransformerAdapter(
        "AllegroTransformer3DModel",
        "Allegro",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_H, unbatched=_ROTARY),),
        _ONE_BATCH,
    ),
    TransformerAdapter(
        "SanaVideoTransformer3DModel",
        "Sana-Video",
        (BlockChain((_DOUBLE,), ForwardPattern.H_H, unbatched=("rotary_emb",)),),
        _ONE_BATCH,
        refused_inputs=_CONTROLNET,
    ),
    TransformerAdapter(
        "CosmosTransformer3DModel",
        "Cosmos Predict",
        (BlockChain((_DOUBLE,), ForwardPattern.HE_H, unbatched=_ROTARY),),
        refused_inputs=("block_controlnet_hidden_states",),
    ),
    TransformerAdapter(
        "Kandinsky5Transformer3DModel",
        "Kandinsky 5",
        (
            BlockChain(
                ("visual_transformer_blocks",),
                ForwardPattern.HE_H,
                unbatched=("sparse_params",),
            ),
        ),
    ),
)

KNOWN_ADAPTERS: tuple[TransformerAdapter, ...] = (*_PICTURES, *_VIDEOS)
"""An adapter for every family that is supported without a declaration."""
