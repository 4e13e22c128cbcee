# Each target makes .venv when it is missing and brings it up to date when pyproject.toml changed.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin/python

.PHONY: quickstart test test-fast lint format types errors clean

quickstart: $(VENV)/installed  ## train a small Vision-Mamba2 on handwritten digits, on whatever device is here
	$(RUN) train.py experiment=quickstart

test: $(VENV)/installed-dev  ## the whole test suite
	$(RUN) -m pytest

test-fast: $(VENV)/installed-dev  ## what takes a second or less each
	$(RUN) -m pytest -m "not slow"

lint: $(VENV)/installed-dev  ## style, formatting and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

format: $(VENV)/installed-dev  ## rewrite the sources in the project's format
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

errors: $(VENV)/installed  ## error of each operator, output and gradient, against the float64 recurrence
	for op in ssd_scan ssd_cross_scan selective_scan; do for dtype in float32 bfloat16; do \
	  $(RUN) -m ops_ascend.errors --op $$op --dtype $$dtype || exit 1; done; done

clean:  ## caches and the environment, never a run folder
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/installed
