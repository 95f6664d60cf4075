# Every target sets itself up; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/.setup-stamp
AUDIT := .venv-audit
CHECKOV := .venv-checkov
SECONDS := 600
TARGET := all
PIP_INSTALL := $(PY) -m pip install --disable-pip-version-check --quiet -c constraints.txt

.PHONY: audit audit-code calibration chart checkov fuzz images help setup proto check fix test test-e2e test-faults check-traces score-pairs up demo bench bench-blockcache bench-trace bench-quality bench-gate bench-cacheplane bench-backends pictures

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv with everything, exact versions from constraints.txt

# torch first and alone: the pinned build must be there before anything may ask for another one.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "setup: installing into $(VENV) (a few minutes the first time)" >&2
	@$(PIP_INSTALL) torch
	@$(PIP_INSTALL) -e '.[all,bench,dev]'
	@touch $(STAMP)

proto: $(STAMP) ## regenerate the stubs beside their protos
	$(PY) protos/generate.py

check: $(STAMP) ## everything a change must pass besides the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy bench protos/generate.py
	$(BIN)/lint-imports
	$(PY) protos/generate.py --check
	$(BIN)/buf lint
	$(PY) -m pytest -q tests/unit/protos
	@$(MAKE) --no-print-directory audit-code

fix: $(STAMP) ## repair what `check` refuses, where a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(PY) protos/generate.py
	PYTHONPATH=deploy $(PY) -m helm.values_schema

test: $(STAMP) ## unit, contract, golden and short end-to-end tests
	$(PY) -m tests.in_two_parts -q -m "not long"

test-e2e: $(STAMP) ## all end-to-end tests, the long ones too
	$(PY) -m pytest -q -m "e2e or long"

test-faults: $(STAMP) ## kill, damage, fill and stall the stores, 200 rounds each (about half an hour)
	$(PY) -m pytest -q tests/e2e/faults tests/e2e/test_damaged_stores.py

fuzz: $(STAMP) ## fuzz all readers of bytes, SECONDS=600; TARGET=messages for one of them
	$(PY) -m tests.fuzz $(TARGET) --seconds $(SECONDS) --corpus out/fuzz/$(TARGET)

# In an environment of its own, so that what audits is no part of what is audited.
$(AUDIT)/bin/bandit:
	@$(PY) -m venv $(AUDIT)
	@$(AUDIT)/bin/pip install --disable-pip-version-check --quiet pip-audit==2.10.1 bandit==1.9.4

audit-code: $(STAMP) $(AUDIT)/bin/bandit ## risky code of our own, packages that do not fit each other
	$(BIN)/pip check
	$(AUDIT)/bin/bandit --quiet --recursive services clients shared -ll --skip B104,B608,B615

# --strict, since a mirror without advisories would let all pass.
audit: audit-code ## the same, and known holes of the pinned packages (asks PyPI)
	$(AUDIT)/bin/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip

# Rendered text and the Dockerfile by themselves: given both at once, checkov forgets the file.
checkov: $(STAMP) ## the policies of checkov over every release that the tests know, two minutes
	@test -x $(CHECKOV)/bin/checkov || { $(PY) -m venv $(CHECKOV) && $(CHECKOV)/bin/pip install --quiet checkov==3.3.30; }
	PYTHONPATH=deploy $(PY) -m tests.unit.deploy.write_releases out/checkov
	$(CHECKOV)/bin/checkov --config-file .checkov.yaml --directory out/checkov
	$(CHECKOV)/bin/checkov --config-file .checkov.yaml --file deploy/images/Dockerfile

check-traces: $(STAMP) ## compare block caching with recorded traces; FILE=traces.json for others
	@$(PY) -m tests.golden.check_traces $(if $(FILE),"$(FILE)")

score-pairs: $(STAMP) ## what is decided on pairs of prompts; FILE=pairs.csv with the columns a and b
	@test -n "$(FILE)" || { echo 'score-pairs: give FILE=pairs.csv, with the columns a and b' >&2; exit 2; }
	@PYTHONPATH=bench $(PY) bench/score_pairs.py "$(FILE)"

up: $(STAMP) ## start all services here; Ctrl-C stops them
	$(BIN)/skipstone up

demo: $(STAMP) ## start the services, send prompts, write out/demo/report.html
	PYTHONPATH=deploy:models $(PY) -m demo

bench: $(STAMP) ## run every benchmark: several hours and 20 GB of disk
	@echo 'bench: this takes several hours and 20 GB of disk; bench-trace ARGS=--quick is one in minutes' >&2
	@failed=0; for file in bench/bench_*.py; do PYTHONPATH=models:bench $(PY) "$$file" || failed=1; done; exit $$failed

bench-blockcache: $(STAMP) ## block caching beside cache-dit; ARGS="--only calls,errors,pictures"
	PYTHONPATH=models $(PY) bench/bench_blockcache.py $(ARGS)

calibration: $(STAMP) ## fit the bundled calibration anew, after a change of the gate's rules
	@PYTHONPATH=bench:models $(PY) bench/refit_calibration.py

bench-gate: $(STAMP) ## wrong hits, passes and cost of the gate; ARGS=--curve for the trade-off
	@PYTHONPATH=bench:models $(PY) bench/bench_gate.py $(ARGS)

bench-backends: $(STAMP) ## reads, writes, searches and whole requests on every backend, half an hour
	PYTHONPATH=bench $(PY) bench/backends/latent_stores.py
	PYTHONPATH=bench $(PY) bench/backends/store_sizes.py
	PYTHONPATH=bench $(PY) bench/backends/indexes.py
	PYTHONPATH=bench $(PY) bench/backends/overhead.py

bench-cacheplane: $(STAMP) ## hits, misses and saves beside limits and rivals; ARGS="--quick"
	$(PY) bench/bench_cacheplane.py $(ARGS)

bench-trace: $(STAMP) ## what reuse saves on a trace, half an hour; ARGS=--quick some minutes
	PYTHONPATH=models $(PY) bench/bench_trace.py $(ARGS)

bench-quality: $(STAMP) ## quality by steps, seed diversity; ARGS=--draw writes docs/benchmarks.md
	PYTHONPATH=models $(PY) bench/bench_quality.py $(ARGS)

pictures: $(STAMP) ## draw docs/block-caching.md anew; ARGS="--only masks,request,sweep,presets,families"
	PYTHONPATH=models $(PY) bench/draw_block_caching.py $(ARGS)

chart: $(STAMP) ## write the schema of the Helm chart anew, after a change of settings
	PYTHONPATH=deploy $(PY) -m helm.values_schema

IMAGE_BUILD ?= docker build
IMAGE_PREFIX ?= skipstone
IMAGE_TAG ?= 0.1.0
IMAGES ?= latent-kv vector-index orchestrator gateway embedding denoise
images: ## build an image per service; IMAGE_BUILD="buildah bud" IMAGES=latent-kv
	@set -e; digest=$$(python3 deploy/images/source_digest.py); for name in $(IMAGES); do \
	  $(IMAGE_BUILD) --file deploy/images/Dockerfile --build-arg SOURCE_DIGEST=$$digest --target $$name \
	    --tag $(IMAGE_PREFIX)/$$name:$(IMAGE_TAG) .; \
	done
