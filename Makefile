# Every target sets up what it needs in .venv; the second time that costs nothing.

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq

# make bench NAME=rules          one benchmark
# make soak NAME=crash           the repetitions with that in their name
# make test ARGS="-k sweep"      more words for pytest
# make test SINCE=main           what a change since then touches
# make test SEED=7               the crash points of an earlier run
# make test WORKERS=0            one test after the other
NAME   ?=
ARGS   ?=
SINCE  ?=
SEED   ?=
WORKERS ?= 4
TYPED  := $(wildcard src bench examples testbed tools tests)

# Byte code is kept, whatever the shell says: tests start Python thousands of times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-all soak check walks bench docs lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## the whole product on one machine, with a real analysis
	@$(BIN)/python -m examples.foam $(ARGS)

test: $(VENV)/.dev  ## what everyone runs, in eight minutes; ARGS= for pytest
	@tools/machine tools/apt-packages.txt
	@$(call pytest,quick)

test-all: $(VENV)/.dev  ## all the other tests, on real batch systems, brokers and networks
	@tools/machine tools/apt-packages.txt
	@[ "$$(id -u)" -ne 0 ] || $(BIN)/python -m testbed prepare
	@$(call pytest,rest)

soak: $(VENV)/.dev  ## repetition: hundreds of kills and bursts; NAME= chooses; not in CI
	@tools/machine tools/apt-packages.txt
	@[ "$$(id -u)" -ne 0 ] || $(BIN)/python -m testbed prepare
	@$(call pytest,soak) $(if $(NAME),-k $(NAME))

check: $(VENV)/.dev  ## format, lint, types, imports, bounds, walks; our sizes beside our peers'
	@tools/check $(BIN) $(TYPED)

walks: $(VENV)/.dev  ## the modules that four pieces of work enter; -v in ARGS= names functions
	@$(BIN)/python tools/walk.py $(ARGS)

bench: $(VENV)/.dev  ## one benchmark: make bench NAME=rules
	@$(BIN)/python -m bench $(NAME) $(ARGS)

docs: $(VENV)/.dev  ## the documentation, into docs/_build/html
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

lock:  ## pin every dependency again, with hashes
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

pytest = $(if $(SEED),PILOTAGE_SEED=$(SEED)) $(BIN)/python -m pytest tests -q -n $(WORKERS) --suite $(1) \
	$(if $(SINCE),--since $(SINCE)) $(ARGS)

define install
	@echo "installing requirements/$(1).txt into $(VENV) (a minute or two)" >&2
	@$(PIP) install --require-hashes -r requirements/$(1).txt
	@$(PIP) install --no-deps --no-build-isolation -e .
endef
