"""Compares Skipstone's block caching with recorded traces: `make check-traces FILE=traces.json`.

Takes a file in the form of `block_cache_traces.json` and prints one JSON line per run: `run`, its
name; `verdict`, "ok", "differs" or "unsupported"; `first_difference`, null if ok, else where the
run first left the recorded one, or the reason why it can't be made. Masks, models without a cache
(`uncached`) and differences between neighbouring steps (`profiles`) are runs too. Steps are those
of the transformer, counted from where the reference started last.

A float32 model may decide otherwise where a recorded or measured difference is within 1e-4 of the
threshold. Such a run is "ok" if all before agrees, and its line says so under `note`: what follows
is another trajectory, so nothing after that decision is compared.

Exit status: 0 if no run differs, else 1; 2 if the file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from tests.golden.model_runs import ModelRuns
from tests.golden.toy_runs import check_toy_run
from tests.golden.trace_comparison import Finding, compare_exactly
from tests.golden.trace_plan import POLICIES, Unsupported

from skipstone_denoise.blockcache.step_mask import compat_mask
from skipstone_shared.errors import InvalidArgument

Check = Callable[[], Finding]

DEFAULT_FILE = Path(__file__).with_name("block_cache_traces.json")
GOLDEN_FILES = (DEFAULT_FILE, DEFAULT_FILE.with_name("more_models_traces.json"))


def checks_of(traces: Mapping[str, Any]) -> Iterator[tuple[str, Check]]:
    """The runs of a trace file, by name, in the order of the file. Nothing runs yet."""
    toy = traces.get("toy", {"runs": {}})
    for name, run in toy["runs"].items():
        yield f"toy/{name}", _bound(check_toy_run, toy["spec"], run)
    for total, masks in traces.get("masks", {}).items():
        for policy, mask in masks.items():
            yield f"masks/{total}/{policy}", _bound(_check_mask, policy, int(total), mask)
    diffusers = traces.get("diffusers", {"models": {}})
    for name, entry in diffusers["models"].items():
        n_steps = entry.get("n_steps", diffusers["spec"]["n_steps"])
        yield from _checks_of_model(name, entry, n_steps)


def _checks_of_model(
    name: str, entry: Mapping[str, Any], n_steps: int
) -> Iterator[tuple[str, Check]]:
    built: list[ModelRuns] = []

    def runs() -> ModelRuns:
        # Built at the first check, so that a model that can't be built is a verdict too.
        if not built:
            built.append(ModelRuns(entry, n_steps))
        return built[0]

    yield f"{name}/uncached", lambda: runs().check_uncached()
    for profile in entry.get("profiles", {}):
        yield f"{name}/profiles/{profile}", _bound(lambda p: runs().check_profile(p), profile)
    for run_name, run in entry["runs"].items():
        yield f"{name}/{run_name}", _bound(lambda r: runs().check_run(r), run)


def _bound(check: Callable[..., Finding], *args: Any) -> Check:
    return lambda: check(*args)


def _check_mask(policy: str, total: int, recorded: str) -> Finding:
    if policy not in POLICIES:
        raise Unsupported(f"mask policy {policy}")
    mask = "".join("1" if step else "0" for step in compat_mask(POLICIES[policy], total))
    return compare_exactly("mask", {}, recorded, mask)


def verdict_on(name: str, check: Check) -> dict[str, Any]:
    """The line of one run."""
    try:
        found = check()
    except (Unsupported, InvalidArgument) as error:
        return _line(name, "unsupported", {"reason": str(error)})
    except Exception as error:  # noqa: BLE001 - an error in one run must not stop the others
        return _line(name, "differs", {"error": f"{type(error).__name__}: {error}"})
    if found.difference is not None:
        return _line(name, "differs", found.difference)
    line = _line(name, "ok", None)
    return line if found.note is None else line | {"note": found.note}


def _line(name: str, verdict: str, first_difference: Any) -> dict[str, Any]:
    return {"run": name, "verdict": verdict, "first_difference": first_difference}


def main(arguments: list[str] | None = None) -> int:
    """Prints the lines; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT_FILE)
    file: Path = parser.parse_args(arguments).file
    try:
        traces = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        sys.stderr.write(f"check-traces: {file} cannot be read: {reason}\n")
        return 2
    # As recorded: with more threads, sums are made in another order.
    torch.set_num_threads(1)
    status = 0
    with torch.no_grad():
        for name, check in checks_of(traces):
            line = verdict_on(name, check)
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            status |= line["verdict"] == "differs"
    return status


if __name__ == "__main__":
    sys.exit(main())
