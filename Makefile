# The few commands of a checkout. `make` lists them; each builds .venv first when pyproject.toml or constraints.txt changed.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made
PYTEST_ARGS ?= -n auto

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-quick test-fleet soak lint docs bench e2e e2e-setup wheel clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## build .venv with everything, in the exact versions of constraints.txt

# Debian keeps ensurepip in python3-venv; without it the environment is made bare and the system's pip installs into it.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --clear --without-pip $(VENV)
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	  $$pip install --quiet --disable-pip-version-check --no-input --constraint constraints.txt --editable '.[all,dev]'
	@touch $@

demo: setup ## see it work: captured training runs, costs and rates, in about half a minute
	@$(BIN)/yolometer demo

test: test-quick test-fleet ## run all tests but the end-to-end training

test-quick: setup ## run the tests that need a few minutes
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-fleet: setup ## run the tests that start real services and kill them, one at a time
	$(BIN)/python -m pytest -m fleet

soak: setup ## the same faults for longer (hours)
	YOLOMETER_SOAK=1 $(BIN)/python -m pytest -m fleet --timeout 7200 tests/faults

lint: setup ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: setup ## write the generated pages again (events, queries, commands)
	$(BIN)/python docs/_generate.py

bench: setup ## print the benchmarks, as ratios against peers and limits
	@for bench in bench/[!_]*.py; do \
	  [ -e "$$bench" ] || { echo "There is no benchmark yet."; break; }; \
	  echo "== $$bench"; $(BIN)/python "$$bench" || exit 1; \
	done

e2e-setup: ## install a real trainer into .e2e (Debian; about 1.3 GB)
	@tests/e2e/setup.sh

e2e: setup e2e-setup ## train a real model beside the real command and compare
	$(BIN)/python -m pytest -m e2e -s --timeout 1800 tests/e2e

wheel: setup ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean: ## remove what the commands above made
	rm -rf $(VENV) .e2e dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
