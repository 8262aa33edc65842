# Every target sets up what it needs in .venv; the second time that costs nothing.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq

# make bench NAME=rules          one benchmark
# make test ARGS="-k sweep"      more words for pytest
NAME   ?=
ARGS   ?=
RINGS  ?= $(wildcard tests/unit tests/contract tests/integration tests/acceptance)
TYPED  := $(wildcard src bench examples testbed tools tests)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test check bench docs lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## the whole product on one machine, with a real analysis
	@$(BIN)/python -m examples.foam $(ARGS)

test: $(VENV)/.dev  ## unit, contract, integration and acceptance tests; ARGS= for pytest
	@tools/system-packages tools/apt-packages.txt
	@$(BIN)/python -m pytest $(RINGS) $(ARGS)

check: $(VENV)/.dev  ## format, lint, types, imports; prints our sizes beside our peers'
	@tools/check $(BIN) $(TYPED)

bench: $(VENV)/.dev  ## one benchmark: make bench NAME=rules
	@$(BIN)/python -m bench $(NAME) $(ARGS)

docs: $(VENV)/.dev  ## the documentation, into docs/_build/html
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

lock:  ## pin every dependency anew, with hashes
	@tools/lock "$(PYTHON)" $(VENV)-lock

clean:  ## remove what make made
	rm -rf $(VENV) $(VENV)-lock docs/_build build dist .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache .hypothesis
	find src tests bench examples testbed tools docs -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# -------------------------------------------------------------------------------------------------
# Set-up. The stamps are files in .venv; dev holds all that demo holds.

$(VENV)/.python:
	@tools/new-venv "$(PYTHON)" $(VENV)
	@touch $@

$(VENV)/.demo: requirements/demo.txt pyproject.toml | $(VENV)/.python
	$(call install,demo)
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/.python
	$(call install,dev)
	@touch $@ $(VENV)/.demo

define install
	@echo "installing requirements/$(1).txt into $(VENV)" >&2
	@$(PIP) install --require-hashes -r requirements/$(1).txt
	@$(PIP) install --no-deps --no-build-isolation -e .
endef
