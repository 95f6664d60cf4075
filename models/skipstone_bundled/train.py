"""Trains the bundled model from nothing and writes its folder.

    PYTHONPATH=models python -m skipstone_bundled.train --work models/.work --out OUT

Every stage leaves a file in the work folder; started again, the run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from skipstone_bundled.export import export_pipeline
from skipstone_bundled.train_autoencoder import train_autoencoder
from skipstone_bundled.train_transformer import (
    POOL_SIZE,
    TrainingPlan,
    load_pool,
    train_transformer,
)


def main() -> None:
    """Runs all stages."""
    arguments = _parse_arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    work: Path = arguments.work
    autoencoder = train_autoencoder(
        work / "autoencoder.pt", arguments.autoencoder_minutes, arguments.seed, arguments.workers
    )
    pool = load_pool(work / "pool.pt", autoencoder, arguments.pool, arguments.seed)
    plan = TrainingPlan(
        work / "transformer.pt", arguments.minutes, arguments.seed, arguments.compile
    )
    denoiser = train_transformer(plan, pool, arguments.workers)
    export_pipeline(denoiser, autoencoder, arguments.out)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains the bundled model.")
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--out", type=Path, required=True, help="folder of the finished model")
    parser.add_argument("--minutes", type=float, default=200.0, help="budget of the transformer")
    parser.add_argument("--autoencoder-minutes", type=float, default=7.0, help="its budget")
    parser.add_argument("--workers", type=int, default=2, help="processes, one per CPU core")
    parser.add_argument("--pool", type=int, default=POOL_SIZE, help="training pictures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="faster; needs a C++ compiler")
    return parser.parse_args()


if __name__ == "__main__":
    main()
