"""What holds for every test, before anything else is imported."""

from __future__ import annotations

import os

# Models of tests are so small that threads cost more than they bring, above all where other
# processes want the cores: a generation of the tiny model takes 0.03 s of CPU with one and 0.4 s
# with two. What tests start inherits it.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
