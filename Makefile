# Needs Python 3.11 (or newer), make, bash and the package index; everything else lives in .venv.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
NATIVE := src/primal_attention/kernels/native
KERNELS := $(VENV)/.kernels
# interpreters to try, in order; `make setup PYTHON=/path/to/python` chooses another
PYTHON ?= python3.11 python3
# arguments for pytest: one process a core, one thread a process; neighbouring tests stay in one
# process, which shares their fixtures and imports, until another one has nothing left to do
PYTEST_ARGS ?= -n auto --dist worksteal
test test-slow: export OMP_NUM_THREADS = 1
# the tests start many processes: modules are compiled once, whatever the environment says
test test-slow: export PYTHONDONTWRITEBYTECODE =

.PHONY: help setup demo test test-slow soak lint format bench docs wheels clean

help: ## print the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1|\2/p' $(MAKEFILE_LIST) \
	  | while IFS='|' read -r name text; do printf '  %-10s %s\n' "$$name" "$$text"; done

setup: $(STAMP) ## create .venv with the tested versions of everything

# The constraint variables make pip pin the isolated build environment as well (old and new pip).
# The package index answers 429 to bursts of requests, so a failed installation is tried again.
$(STAMP): pyproject.toml constraints.txt
	@if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  python=; \
	  for p in $(PYTHON); do \
	    if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$p; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then echo 'setup: no Python 3.11 or newer among: $(PYTHON)' >&2; exit 1; fi; \
	  echo "setup: creating $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV); \
	fi
	@echo 'setup: installing (a few minutes the first time)'
	@export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1; \
	for wait in 15 45 0; do \
	  if $(PY) -m pip install --progress-bar off -e '.[dev]' -c constraints.txt 2>$(VENV)/pip.log \
	      | sed -unE 's/^Collecting ([^ ]+).*/  \1/p; s/^Processing .*\/([^/ ]+)\.whl.*/  \1/p; s/^Installing collected.*/setup: unpacking/p'; then \
	    touch $@ $(KERNELS); echo 'setup: done'; exit 0; \
	  fi; \
	  cat $(VENV)/pip.log >&2; \
	  if [ $$wait -gt 0 ]; then echo "setup: failed, trying again in $$wait s" >&2; sleep $$wait; fi; \
	done; \
	echo 'setup: the installation failed' >&2; exit 1

# further extras, on top of that
$(VENV)/.extra-%: $(STAMP)
	@echo 'setup: installing the extras $*'
	@export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1; \
	for wait in 15 45 0; do \
	  if $(PY) -m pip install --quiet -e '.[$*]' -c constraints.txt; then touch $@; exit 0; fi; \
	  if [ $$wait -gt 0 ]; then echo "setup: failed, trying again in $$wait s" >&2; sleep $$wait; fi; \
	done; \
	echo 'setup: the installation failed' >&2; exit 1

# the installation compiles them; afterwards they follow their sources. Without a compiler there are none.
$(KERNELS): $(STAMP) $(NATIVE)/build.py $(wildcard $(NATIVE)/source/*)
	@$(PY) -m primal_attention.kernels.native.build || echo 'setup: no CPU kernels, the package is slower without them'
	@touch $@

demo: $(KERNELS) ## run the demonstration
	@$(PY) examples/demo.py

test: $(KERNELS) ## lint, type check, and run the tests
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	@# types are checked beside the tests, and what mypy says stands below them
	@$(PY) -m mypy >$(VENV)/mypy.log 2>&1 & types=$$!; \
	tests=0; $(PY) -m pytest $(PYTEST_ARGS) || tests=$$?; \
	wrong=0; wait $$types || wrong=$$?; \
	echo 'mypy:'; cat $(VENV)/mypy.log; \
	exit $$((tests ? tests : wrong))

test-slow: $(VENV)/.extra-ray,rl $(KERNELS) ## run the slow tests only
	$(PY) -m pytest -m slow $(PYTEST_ARGS)

soak: export OMP_NUM_THREADS = 1
soak: $(VENV)/.extra-ray,rl $(KERNELS) ## damage everything for MINUTES, one line for each campaign
	@$(PY) -m benchmarks.soak --minutes $(or $(MINUTES),10)

lint: $(STAMP) ## ruff check, ruff format --check, mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(STAMP) ## sort imports, apply safe fixes, format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(KERNELS) ## time and memory of the attentions against the length
	@$(VENV)/bin/primal bench

docs: $(VENV)/.extra-docs ## build the documentation into site/, open site/index.html
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

# the targets of hatch_build.py, compiled by the package ziglang
WHEELS := pure linux-x86_64 linux-aarch64 macos-arm64 macos-x86_64 windows-x86_64
wheels: $(STAMP) ## build wheels with for the usual systems into dist/
	@for wheel in $(WHEELS); do \
	  echo "wheels: $$wheel"; \
	  PRIMAL_WHEEL=$$wheel $(PY) -m pip wheel --quiet --no-deps --wheel-dir dist . || exit 1; \
	done; ls dist

clean: ## remove .venv, caches and build products
	rm -rf src/primal_attention/kernels/native/libprimal-* $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
