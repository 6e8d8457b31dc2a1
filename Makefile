# One word per task; `make` alone lists them. Set-up happens on its own, in .venv, and only when something changed.
# ARGS is handed on:  make test ARGS="-m 'not slow' tests/protocol"   make run ARGS="--port 8080"

BIN := .venv/bin
ARGS ?=
# Processes that share the tests, file by file. 0: one after another in this process, for a debugger.
WORKERS ?= 2

# The tests start the package hundreds of times, as a process: without bytecode, each would compile it anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install run serve test lint fmt types conformance bench soak clean

help: ## List the tasks
	@awk -F ':.*## ' '/^[a-z ]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Set up everything for development
	@scripts/setup test

run: ## Serve ./data on http://127.0.0.1:4437
	@scripts/setup run
	$(BIN)/perennial serve --data ./data $(ARGS)

serve: run ## The same as run

test: install lint types ## Check style and types, run all tests, the conformance suite included
	$(BIN)/pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder $(ARGS)

lint: ## Check style
	@scripts/setup dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

fmt: ## Format, and fix what can be fixed
	@scripts/setup dev
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

types: ## Check types
	@scripts/setup types
	$(BIN)/mypy

conformance: ## Run the public conformance suite, test by test
	@scripts/setup test
	$(BIN)/pytest tests/conformance -k native --verbose --capture=no $(ARGS)

bench: ## Measure
	@scripts/setup dev
	$(BIN)/python -m benchmarks $(ARGS)

soak: ## Run the server under load and faults for a long while
	@scripts/setup dev
	$(BIN)/python -m benchmarks.soak $(ARGS)

clean: ## Remove whatever these tasks made, except ./data
	rm -rf .venv tests/conformance/node_modules build dist
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
