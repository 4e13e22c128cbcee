# Each target makes .venv when it is missing, and brings it and the compiled CPU kernels up to date when
# pyproject.toml or their sources changed.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python
CXX_SOURCES = $(shell find ops_ascend/csrc -name '*.h' -o -name '*.cpp' -o -name '*.asc')

CPU_SOURCES = ops_ascend/CMakeLists.txt $(wildcard ops_ascend/csrc/cpu/*)

.PHONY: quickstart test test-fast sanitize ops lint format errors clean

quickstart: $(VENV)/installed  ## train a small Vision-Mamba2 on handwritten digits, on whatever device is here
	$(RUN) train.py experiment=quickstart

test: $(VENV)/installed-dev  ## the whole test suite
	$(RUN) -m pytest

test-fast: $(VENV)/installed-dev  ## what takes a second or less each
	$(RUN) -m pytest -m "not slow"

sanitize: $(VENV)/installed-dev  ## the CPU kernels under the address and undefined-behaviour sanitizers
	$(RUN) -m tests.sanitize

ops: $(VENV)/installed-dev  ## build the native libraries that this machine allows, and say why not the rest
	$(RUN) -m ops_ascend.build

lint: $(VENV)/installed-dev  ## style, formatting and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/clang-format --dry-run --Werror $(CXX_SOURCES)
	$(RUN) -m mypy

format: $(VENV)/installed-dev  ## rewrite the sources in the project's format
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .
	$(VENV)/bin/clang-format -i $(CXX_SOURCES)

errors: $(VENV)/installed  ## error of each operator, output and gradient, against the float64 recurrence
	for op in ssd_scan ssd_cross_scan selective_scan; do for dtype in float32 bfloat16; do \
	  $(RUN) -m ops_ascend.errors --op $$op --dtype $$dtype || exit 1; done; done

clean:  ## caches, built libraries and the environment, never a run folder
	rm -rf $(VENV) build ops_ascend/lib *.egg-info .pytest_cache .ruff_cache .mypy_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml $(CPU_SOURCES) | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-dev: pyproject.toml $(CPU_SOURCES) | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/installed
