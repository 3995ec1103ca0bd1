# make demo   train, tag and score on the shipped example
# make test   build everything and run the whole suite
# make test-debug, make test-asan   the suite with kernels under instruments
# make test-valgrind   commands under valgrind (which must be installed)
# Both set up what they need: a virtual environment in .venv, filled from the package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
SOURCES := pyproject.toml setup.py $(wildcard crftool/kernels/*.pyx crftool/kernels/*.pxd crftool/kernels/*.h)

.PHONY: demo test test-debug test-asan test-valgrind build wheel bench clean

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

# The suite on a copy of the tree whose kernels check every index (test-debug), or are built with
# AddressSanitizer and UndefinedBehaviorSanitizer (test-asan), in this process and in those of the command line, which
# inherit what is preloaded. TESTS names what to run, all by default.
TESTS ?= tests
INSTRUMENTED := Makefile setup.py pyproject.toml README.md MANIFEST.in LICENSE crftool tests templates examples benchmarks

build/%/ready: $(READY) $(wildcard crftool/*.py crftool/*/*.py tests/*.py tests/*/*.py)
	mkdir -p build/$*
	$(BIN)/python -m pip install --quiet --disable-pip-version-check cython setuptools
	tar -c --exclude='*.so' --exclude='*.c' --exclude=__pycache__ --exclude=examples/ingredients/build $(INSTRUMENTED) | tar -x -C build/$*
	cd build/$* && $(if $(filter debug,$*),CRFTOOL_DEBUG_KERNELS=1,CRFTOOL_SANITIZE=1) $(CURDIR)/$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

test-debug: build/debug/ready
	cd build/debug && $(CURDIR)/$(BIN)/python -m pytest -W error::pytest.PytestUnraisableExceptionWarning $(TESTS)

# Python itself leaks at exit, and is not built for this: leaks are not looked for.
test-asan: build/asan/ready
	cd build/asan && ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:exitcode=99 \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	$(CURDIR)/$(BIN)/python -m pytest $(TESTS)

test-valgrind: build
	$(BIN)/python tests/instruments/memcheck.py

wheel: build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build

# The figures of the README; the peers come from the package index. CRFTOOL_DATA names the corpora.
bench: build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/gradient.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/tagging.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/selection.py --sentences 1000 --rho1 0.5 --sizes 300,1000,3000,10000,30000,100000,300000
	$(BIN)/python benchmarks/blocks.py

clean:
	rm -rf $(VENV) build dist *.egg-info crftool/kernels/*.c crftool/kernels/*.so
	$(MAKE) -C examples/ingredients clean
	$(MAKE) -C examples/nettalk clean
