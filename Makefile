# `make` alone lists the targets. Everything is installed into .venv, from requirements.lock.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
FUZZ_SECONDS ?= 60
# Tests wait more than they compute, so run one more than there are cores.
JOBS ?= $(shell echo $$(( $$(nproc 2>/dev/null || echo 2) + 1 )))
PYTEST := PATH="$(CURDIR)/$(VENV)/programs/usr/bin:$$PATH" $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: help setup programs run test test-all lint format typecheck bench bench-peers evaluate fuzz audit differential soak chaos chaos-cluster soak-database load lock clean docs client

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv and install the locked dependencies (idempotent)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python must be 3.11 or newer, got $$($(PYTHON) --version). Set PYTHON=/path/to/python3.11."; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "Could not create a virtual environment; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@echo "compiling kernels, once" && $(BIN)/python -m edn.warm && $(BIN)/python -m partitioning.online
	@touch $(STAMP)

run: setup ## start a network with sample traffic and print its address (Ctrl-C stops it)
	$(BIN)/edn up --demo $(ARGS)

# The packages of the TypeScript client, from its lock file; without npm its tests are skipped, except in CI.
TYPESCRIPT := clients/typescript
NODE_STAMP := $(TYPESCRIPT)/node_modules/.package-lock.json
$(NODE_STAMP): $(TYPESCRIPT)/package-lock.json | programs
	@if command -v npm >/dev/null; then cd $(TYPESCRIPT) && npm ci --silent --no-audit --no-fund && touch node_modules/.package-lock.json; \
	  else [ -z "$$CI" ]; fi

client: setup $(NODE_STAMP) ## generate the TypeScript client from the OpenAPI document and build it
	$(BIN)/python -m dispatcher.print_openapi > $(TYPESCRIPT)/openapi.json
	cd $(TYPESCRIPT) && npm run --silent build

test: setup programs $(NODE_STAMP) lint typecheck ## run lint, type check and all tests but the long ones (under 12 minutes on two cores)
	$(PYTEST) -m "not slow" $(ARGS)

test-all: setup programs $(NODE_STAMP) lint typecheck ## run all tests, including the long ones
	$(PYTEST) $(ARGS)

# Tests use these programs; tests/programs.sh installs them from Debian's packages if it may.
programs: ## install the programs that tests run (Java, Chromium, gSOAP …), as root on Debian
	@VENV=$(VENV) bash tests/programs.sh

lint: setup ## check style and formatting with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup ## fix style and formatting with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: setup ## check types with mypy --strict
	$(BIN)/mypy

docs: setup ## generate the command reference and build the site into site/
	$(BIN)/python -m edn.cli.reference > docs/cli.md
	$(BIN)/mkdocs build --quiet --strict

bench: setup ## compare the matching and routing kernels with other libraries
	$(BIN)/edn bench kernels $(ARGS)

# The Python packages of the peers are an extra, bench-peers, and in requirements.lock.
bench-peers: setup ## install PostgreSQL and Redis, the peers of `edn bench delivery`, as root on Debian
	@bash edn/tools/bench/delivery/peers/install.sh

evaluate: setup ## run the published experiments at small sizes; report in evaluation-results/ (about ten minutes)
	$(BIN)/edn evaluate --quick $(ARGS)

fuzz: setup ## fuzz the parsers of JSON, filters, CloudEvents, SOAP, XPath, the binary protocol and Retry-After (FUZZ_SECONDS of CPU each)
	for target in json filter cloudevents dialects soap xpath wire server retry; do $(BIN)/python -m tests.fuzz $$target --seconds $(FUZZ_SECONDS) $(ARGS) || exit 1; done

differential: setup ## compare a network with an independent matcher over HTTP: hostile values, five new seeds
	$(BIN)/python -m tests.differential --seeds 5 $(ARGS)

soak: setup ## run a network under load and churn for 30 minutes: memory, descriptors, threads and files must not grow
	$(BIN)/python -m tests.soak $(ARGS)

audit: setup ## write a bill of materials (CycloneDX) and check licences and known vulnerabilities; report in audit-results/
	$(BIN)/python -m tests.audit $(ARGS)

chaos: setup ## kill, stop and disconnect real processes under load and check the result (15 minutes)
	$(BIN)/python -m tests.chaos $(ARGS)

chaos-cluster: setup programs ## kill, pause and partition a network on PostgreSQL with Patroni, and check the result (35 minutes; ARGS=--quick: 5)
	$(BIN)/python -m tests.chaos.cluster $(ARGS)

soak-database: setup ## thirty minutes on PostgreSQL: the tables must not grow; ARGS="--minutes 5"
	$(BIN)/edn bench bloat --minutes 30 $(ARGS)

load: setup ## run a Locust load test on its own network (three minutes); report in load-results/
	$(BIN)/python -m load $(ARGS)

lock: setup ## resolve the dependencies again into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate pyproject.toml -o requirements.lock

clean: ## remove .venv, caches and the sample network's data
	rm -rf $(VENV) .edn .mypy_cache .ruff_cache .pytest_cache .hypothesis
