# Frontdesk. Needs Python 3.11 or newer, git and make; everything else is installed into .venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup setup-run setup-bench run test check tidy guarantees reference sim sim-nightly properties mutants fuzz bench clean-run clean

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Two workers suit a small machine; `make test WORKERS=8` on a larger one. ARGS goes to pytest as it is.
WORKERS ?= 2
ARGS ?=
SEEDS ?= 2184
EXAMPLES ?= 500
NIGHTLY ?= 100000
FUZZ ?= 25
DATA ?= .frontdesk

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with the program, the tests' and the checks' needs
	@scripts/setup.sh test

setup-run:
	@scripts/setup.sh run

run: setup-run ## start Frontdesk, the chat stand-in and an example
	@exec $(BIN)/frontdesk up --data $(DATA)

test: setup ## run all tests; build/evidence.md says what the run is evidence of
	@$(PYTEST) -n $(WORKERS) --dist worksteal --evidence build/evidence.md $(ARGS)

check: setup ## lint, format, types, import contracts, tidiness
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(PYTEST) -q -p no:cacheprovider tests/tidy

guarantees: setup ## write docs/reference/guarantees.md from the tests' marks
	@$(BIN)/python -m tests.support.spec_report

reference: setup ## write the generated pages of docs/reference from the code
	@$(BIN)/python -m tests.support.reference_pages

sim: setup ## run the seeded simulation (SEEDS=2184)
	@SEEDS=$(SEEDS) $(PYTEST) -n $(WORKERS) --dist worksteal tests/sim $(ARGS)

sim-nightly: setup ## simulate 100000 seeds; started again it goes on (NIGHTLY=100000)
	@$(BIN)/python -m tests.sim.nightly --seeds $(NIGHTLY) --workers $(WORKERS)

properties: setup ## run the property tests with fresh examples (EXAMPLES=500)
	@EXAMPLES=$(EXAMPLES) $(PYTEST) -o timeout=0 tests/property $(ARGS)

mutants: setup ## take out one guard after the other and see that a test notices
	@$(BIN)/python -m tests.mutants $(ARGS)

fuzz: setup ## fuzz longer than the tests do (FUZZ=25 times as many examples)
	@FUZZ=$(FUZZ) $(PYTEST) tests/fuzz --timeout 86400 $(ARGS)

setup-bench: setup ## what the benchmarks compare with
	@$(BIN)/python -m pip --disable-pip-version-check --quiet install -r requirements/bench.txt

bench: setup-bench ## run the benchmarks (ARGS=ingest for one of them)
	@$(BIN)/python -m bench $(ARGS)

clean-run: ## forget the data of `make run`
	rm -rf .frontdesk

clean: ## remove what was built
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
