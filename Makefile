# The doors of the project; `make help` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Python keeps what it compiled, whatever a container's environment says: tests, the demo and benchmarks
# start it hundreds of times.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
PYTHON := $(VENV)/bin/python
# Made last: a run that was interrupted is done again, one that was not is never repeated.
READY := $(VENV)/.ready
CHECKED := $(wildcard src tests bench) tools/site_pages.py
ROW ?=
# Seeds for make conformance and make simulate: how many, and the first
SEEDS ?= 500
FROM ?= 0
# Examples of each kind of store for make contract
EXAMPLES ?= 500
# Arguments for pytest: make test PYTEST='tests/unit -x'
PYTEST ?=
# How many tests run side by side: one more than a small machine has cores, for tests wait a lot
WORKERS ?= 3

.PHONY: help demo test check docs bench conformance contract simulate record lock clean java compiler database browser \
	promtool

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: java $(READY) ## Run an example on a real Kafka and Spark, and show its results
	@$(VENV)/bin/penstock demo

test: compiler database browser promtool $(READY) ## Run all tests
	@$(VENV)/bin/penstock prepare --kafka-streams
	@$(PYTHON) -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST)

check: $(READY) docs ## Check style, types, the order of imports and the docs
	@$(VENV)/bin/ruff check $(CHECKED)
	@$(VENV)/bin/ruff format --check $(CHECKED)
	@$(VENV)/bin/mypy
	@$(PYTHON) -m pytest -q tests/unit/test_import_order.py

docs: $(READY) ## Build the site of the docs into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

bench: compiler $(READY) ## Measure against Kafka Streams and Quix Streams: make bench [ROW=count]
	@$(VENV)/bin/penstock prepare --kafka-streams
	@PYTHONPATH=. $(PYTHON) -m bench $(ROW)

conformance: compiler $(READY) ## Compare with Kafka Streams, seed by seed: make conformance [SEEDS=n] [FROM=k]
	@$(VENV)/bin/penstock prepare --kafka-streams
	@PYTHONPATH=. $(PYTHON) -m tests.conformance $(SEEDS) $(FROM)

contract: database $(READY) ## Try every kind of store against its model: make contract [EXAMPLES=n]
	@PYTHONPATH=. $(PYTHON) -m tests.contract $(EXAMPLES)

simulate: $(READY) ## Run the coordination in simulated worlds that go wrong: make simulate [SEEDS=n] [FROM=k]
	@PYTHONPATH=. $(PYTHON) -m tests.simulation $(SEEDS) $(FROM)

record: compiler $(READY) ## Record Kafka Streams' answers anew, for the tests that run without Java
	@$(VENV)/bin/penstock prepare --kafka-streams
	@PYTHONPATH=. $(PYTHON) -m tests.conformance.record
	@PYTHONPATH=. $(PYTHON) -m tests.conformance.record_streams
	@PYTHONPATH=. $(PYTHON) -m tests.conformance.record_assignments

lock: $(READY) ## Choose newer packages, within the ranges of pyproject.toml
	@$(VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --extra dev \
		pyproject.toml --output-file requirements.lock
	@sed -i 's# (/[^)]*pyproject.toml)# (pyproject.toml)#' requirements.lock

clean: ## Remove what the commands above made here (not the cache of jars)
	@rm -rf $(VENV) .venv-bench build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

java:
	@tools/ensure-java

compiler:
	@tools/ensure-java --compiler

database:
	@tools/ensure-postgres

browser:
	@tools/ensure-program chromium chromium

promtool:
	@tools/ensure-promtool

$(READY): requirements.lock pyproject.toml tools/make-venv tools/uv.lock tools/build.lock
	@tools/make-venv $(VENV)
	@touch $@
