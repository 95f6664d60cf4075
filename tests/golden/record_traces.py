"""Records traces anew: `python -m tests.golden.record_traces FILE NEW_FILE`.

Takes models, settings and step counts from a trace file and writes what the installed cache-dit
does with them, in the same form; `check_traces` needs no cache-dit. To record other runs, write a
file with `config` and `calibrator` of each first. Run by hand, when the reference changes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cache_dit
import torch
from diffusers import __version__ as diffusers_version
from tests.golden.toy_runs import BRANCH_INDEX, BRANCHES
from tests.golden.toy_transformer import ToyTransformer
from tests.golden.trace_comparison import fingerprint, relative_l1
from tests.golden.trace_models import TraceModel, denoise, sigmas_of, trace_model
from tests.golden.trace_plan import POLICIES
from torch import Tensor, nn

Json = dict[str, Any]

BLOCK_LISTS = ("transformer_blocks", "single_transformer_blocks", "blocks")
CACHE_TYPES = {"taylorseer": "residual", "taylorseer_hidden": "hidden_states"}
PATTERNS = {
    "FluxTransformer2DModel": cache_dit.ForwardPattern.Pattern_1,
    "QwenImageTransformer2DModel": cache_dit.ForwardPattern.Pattern_1,
    "SD3Transformer2DModel": cache_dit.ForwardPattern.Pattern_1,
    "WanTransformer3DModel": cache_dit.ForwardPattern.Pattern_2,
    "PixArtTransformer2DModel": cache_dit.ForwardPattern.Pattern_3,
    "ToyTransformer": cache_dit.ForwardPattern.Pattern_3,
}


def blocks_of(transformer: nn.Module) -> tuple[list[str], nn.ModuleList]:
    """Names of a transformer's block lists, and all blocks in the order in which they run."""
    names = [name for name in BLOCK_LISTS if hasattr(transformer, name)]
    lists = [transformer.get_submodule(name).children() for name in names]
    return names, nn.ModuleList(itertools.chain.from_iterable(lists))


def watched(transformers: Sequence[nn.Module]) -> list[int]:
    """A list that grows by a block's index whenever one runs."""
    calls: list[int] = []

    def noting(index: int) -> Callable[..., None]:
        return lambda *_: calls.append(index)

    for transformer in transformers:
        for index, block in enumerate(blocks_of(transformer)[1]):
            block.register_forward_pre_hook(noting(index))
    return calls


def put_under_reference(
    transformers: Sequence[nn.Module], run: Json, steps: Sequence[int], separate: bool
) -> Callable[[], list[list[Json]]]:
    """Enables cache-dit on transformers of their own; gives what its contexts say in the end."""
    configs = [_config(run["config"], count, len(steps) > 1, separate) for count in steps]
    modifiers = [
        cache_dit.ParamsModifier(cache_config=config, calibrator_config=_calibrator(run))
        for config in configs
    ]
    found = [blocks_of(transformer) for transformer in transformers]
    pattern = PATTERNS[type(transformers[0]).__name__]
    if len(transformers) > 1:
        where: Json = {
            "transformer": list(transformers),
            "blocks": [blocks for _, blocks in found],
            "blocks_name": [names[0] for names, _ in found],
            "forward_pattern": [pattern] * len(found),
            "params_modifiers": modifiers,
        }
    else:
        ((names, blocks),) = found
        where = {
            "transformer": transformers[0],
            "blocks": blocks,
            "blocks_name": names[0],
            "dummy_blocks_names": names[1:],
            "forward_pattern": pattern,
        }
    adapter = cache_dit.BlockAdapter(check_forward_pattern=False, **where)
    cache_dit.enable_cache(adapter, cache_config=configs[0], calibrator_config=_calibrator(run))
    manager = adapter.pipe._context_manager
    patched: Sequence[Any] = transformers
    return lambda: [
        [_context(manager.get_context(name)) for name in transformer._context_names]
        for transformer in patched
    ]


def _config(config: Json, steps: int, dual: bool, separate: bool) -> cache_dit.DBCacheConfig:
    options = {"num_inference_steps": steps, "enable_separate_cfg": separate, **config}
    mask = options.get("steps_computation_mask")
    if mask is not None and dual:
        (policy,) = [name for name in POLICIES if _mask(name, len(mask)) == mask]
        options["steps_computation_mask"] = _mask(policy, steps)
    return cache_dit.DBCacheConfig(**options)


def _mask(policy: str, steps: int) -> list[int]:
    return list(cache_dit.steps_mask(total_steps=steps, mask_policy=policy))


def _calibrator(run: Json) -> cache_dit.TaylorSeerCalibratorConfig | None:
    if run["calibrator"] is None:
        return None
    name, order = run["calibrator"]
    return cache_dit.TaylorSeerCalibratorConfig(
        taylorseer_order=order,
        calibrator_cache_type={"taylorseer": "residual", "taylorseer_hidden": "hidden_states"}[
            name
        ],
    )


def _context(context: Any) -> Json:
    record = {
        "cached_steps": context.get_cached_steps(),
        "residual_diffs": _rounded(context.get_residual_diffs(), 8),
        "executed_steps": context.executed_steps,
        "transformer_executed_steps": context.transformer_executed_steps,
    }
    if context.cache_config.enable_separate_cfg:
        record["cfg_cached_steps"] = context.get_cfg_cached_steps()
        record["cfg_residual_diffs"] = _rounded(context.get_cfg_residual_diffs(), 8)
    return record


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}")


def record_toy(spec: Json, run: Json) -> Json:
    """Records one run of the toy."""
    branches = BRANCHES[run.get("cfg_mode")]
    toy, exact = ToyTransformer(spec, run["n_steps"]), ToyTransformer(spec, run["n_steps"])
    contexts = put_under_reference([toy], run, [run["n_steps"]], len(branches) > 1)
    calls = watched([toy])
    seen: Json = {"blocks_run": [], "out_probe": [], "rel_l1_per_call": []}
    for step in range(run["n_steps"]):
        for branch in branches:
            calls.clear()
            output = toy(step, BRANCH_INDEX[branch])
            ran = "".join("1" if index in calls else "0" for index in range(spec["n_blocks"]))
            probe = [float(output[0, 0, 0]), float(output[0, 1, 2]), float(output.abs().mean())]
            error = relative_l1(output, exact(step, BRANCH_INDEX[branch]))
            seen["blocks_run"].append(ran)
            seen["out_probe"].append(_rounded(probe, 13))
            seen["rel_l1_per_call"].append(_rounded(error, 10))
    return {**_asked(run), **seen, "contexts": contexts()[0]}


def record_model(entry: Json, n_steps: int) -> Json:
    """Records a model without a cache and then all its runs, each on a model of its own."""
    uncached, calls, _ = _final(entry, n_steps, None)
    runs = {}
    for name, run in entry["runs"].items():
        latents, run_calls, contexts = _final(entry, n_steps, run)
        runs[name] = {
            **_asked(run),
            "contexts": contexts,
            "block_calls": run_calls,
            "rel_l1_final": _rounded(relative_l1(latents, uncached), 7),
            "final": _rounded(fingerprint(latents), 7),
        }
    final = {"final": _rounded(fingerprint(uncached), 7), "block_calls": calls}
    kept = {key: value for key, value in entry.items() if key != "profiles"}
    return {**kept, "uncached": final, "runs": runs}


def _final(entry: Json, n_steps: int, run: Json | None) -> tuple[Tensor, int, list[list[Json]]]:
    model = trace_model(entry["model"], entry["model_config"])
    assert model is not None
    transformers = model.transformers
    calls = watched(list(transformers.values()))
    contexts: Callable[[], list[list[Json]]] = list
    if run is not None:
        separate = not model.batched and len(model.inputs) > 1
        steps = _steps_of(model, n_steps)
        contexts = put_under_reference(list(transformers.values()), run, steps, separate)
    latents = denoise(model, lambda name, inputs: transformers[name](**inputs)[0], n_steps)
    return latents, len(calls), contexts()


def _steps_of(model: TraceModel, n_steps: int) -> list[int]:
    order = [model.transformer_at(float(sigma)) for sigma in sigmas_of(n_steps)[:-1]]
    return [order.count(name) for name in model.transformers]


def _asked(run: Json) -> Json:
    asked = ("n_steps", "config", "calibrator", "cfg_mode")
    return {key: run[key] for key in asked if key in run}


def record(traces: Json) -> Json:
    """The same file, recorded with the installed cache-dit."""
    toy, diffusers = traces["toy"], traces["diffusers"]
    return {
        "versions": {
            "cache_dit": version("cache-dit"),
            "torch": torch.__version__,
            "diffusers": diffusers_version,
        },
        "toy": {
            "spec": toy["spec"],
            "runs": {name: record_toy(toy["spec"], run) for name, run in toy["runs"].items()},
        },
        "masks": {
            total: {policy: "".join(map(str, _mask(policy, int(total)))) for policy in POLICIES}
            for total in traces["masks"]
        },
        "diffusers": {
            "spec": diffusers["spec"],
            "models": {
                name: record_model(entry, entry.get("n_steps", diffusers["spec"]["n_steps"]))
                for name, entry in diffusers["models"].items()
            },
        },
    }


def main() -> int:
    """Records one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("new_file", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        recorded = record(json.loads(arguments.file.read_text()))
    arguments.new_file.write_text(json.dumps(recorded, separators=(",", ":")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
