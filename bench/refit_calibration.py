"""Fits the bundled calibration anew from its records, with the encoder and gate of this checkout.

The records, which `skipstone calibrate` wrote, hold what pictures cost; what a score means belongs
to the gate, whose id changes with every change of its rules. So after one this is run, which takes
seconds. Writes the file that the orchestrator ships, and tables and plot of docs/calibration.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from skipstone_bundled.calibration_pairs import pairs
from skipstone_client.calibrate.fit import Bars, losses_by_relation, unit_of
from skipstone_client.calibrate.pairs import Pair
from skipstone_client.calibrate.records import Records
from skipstone_client.calibrate.report import draw, markdown
from skipstone_client.calibrate.scoring import Scorer, fitted
from skipstone_client.embedding import EmbeddingClient
from skipstone_embedding.config import EmbeddingSettings
from skipstone_embedding.loading import load_encoder, load_reranker
from skipstone_embedding.server import mount
from skipstone_shared.calibration import Measurement
from skipstone_shared.grpc_server import in_process_server
from skipstone_shared.structured_logging import configure_logging

ROOT: Final = Path(__file__).parents[1]
RECORDS: Final = ROOT / "models/skipstone_bundled/calibration_records.jsonl"
CALIBRATION: Final = ROOT / "services/skipstone_orchestrator/bundled_calibration.json"
PAGE: Final = ROOT / "docs/calibration.md"
PLOT: Final = ROOT / "docs/images/calibration.png"
MIN_SCORE: Final = 0.65
"""The gate's own least score of a pair that passes, so that no tier reaches below it."""
_HEADING: Final = "## The bundled calibration\n"
_PICTURE: Final = """
![drift and wrong pictures by steps executed](images/calibration.png)
"""


def _measured(records: Records) -> Measurement:
    """How the records came about, as the file says that is replaced."""
    told = json.loads(CALIBRATION.read_text(encoding="utf-8"))["measured"]
    return Measurement.model_validate({**told, "pairs": len(records.pairs)})


def main() -> None:
    """Fits and writes."""
    configure_logging("calibration", "warning")
    records = Records(RECORDS)
    setup = records.read()
    settings = EmbeddingSettings()
    encoder = load_encoder(settings)
    with (
        in_process_server(mount(encoder, load_reranker(settings))) as target,
        EmbeddingClient(target) as client,
    ):
        sample = [Pair(*pair) for pair in pairs()]
        bars = Bars(min_score=MIN_SCORE)
        fit = fitted(Scorer(client), sample, records, setup, bars, _measured(records))
    encoder.close()
    found = fit.calibration
    CALIBRATION.write_text(found.as_json(), encoding="utf-8")
    losses = losses_by_relation(fit.scored, unit_of(records))
    tables = markdown(found, losses, fit.unrelated)
    _, _, facts = tables.partition("\n")
    before, heading, _ = PAGE.read_text(encoding="utf-8").partition(_HEADING)
    PAGE.write_text(f"{before}{heading}{_PICTURE}{facts}", encoding="utf-8")
    draw(found, PLOT)
    sys.stdout.write(f"{CALIBRATION.name}: {found.services.reranker_id}\n")


if __name__ == "__main__":
    main()
