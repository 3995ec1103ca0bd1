# make demo   train, tag and score on the shipped example
# make test   build everything and run the whole suite
# Both set up what they need: a virtual environment in .venv, filled from the package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
SOURCES := pyproject.toml setup.py $(wildcard crftool/kernels/*.pyx crftool/kernels/*.pxd crftool/kernels/*.h)

.PHONY: demo test build wheel bench clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# An editable install, so that a change of Python code needs no new build.
$(READY): $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

build: $(READY)

demo: build
	$(MAKE) -C examples/ingredients CRFTOOL=$(CURDIR)/$(BIN)/crftool PYTHON=$(CURDIR)/$(BIN)/python

test: build
	$(BIN)/python -m pytest

wheel: build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build

# The figures of the README; the peers come from the package index. CRFTOOL_DATA names the corpora.
bench: build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '.[bench]'
	$(BIN)/python benchmarks/gradient.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/tagging.py
	$(BIN)/python benchmarks/blocks.py

clean:
	rm -rf $(VENV) build dist *.egg-info crftool/kernels/*.c crftool/kernels/*.so
	$(MAKE) -C examples/ingredients clean
	$(MAKE) -C examples/nettalk clean
