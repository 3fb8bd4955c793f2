# `make demo` and `make test` are the README's two commands; what they need is installed into .venv, once.
# PYTHON says which Python makes the environment: make test PYTHON=python3.12
PYTHON ?= python3
# ONNX Runtime reports sessions to its makers unless told not to; tests import it without our package, too.
export ORT_DISABLE_TELEMETRY = 1
VENV ?= .venv
BIN = $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo docs test test-all soak conformance lint venv wheel clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    convert real trained models and print what came of it"
	@echo "make docs    build the documentation as a site into build/site"
	@echo "make test    lint, types, layers and the fast tests"
	@echo "make test-all   all tests; PART=2/4 runs the second of four parts of what make test leaves out"
	@echo "make lint    the same without the tests"
	@echo "make soak    runs that are killed, doubled or out of disk, and 290 000 damaged files, for some hours"
	@echo "make conformance  run all of ONNX's own tests and write docs/reference/coverage-*.md anew"
	@echo "make venv    only install, with everything the tests need, into $(VENV)"
	@echo "make wheel   build the sdist, the wheel and its bill of materials (CycloneDX) into dist/"
	@echo "make clean   remove $(VENV), dist/ and the caches of the tools"

demo: $(VENV)/installed
	$(BIN)/python examples/demo.py

# The theme's warning is of a later major version, which we do not use.
docs: $(VENV)/installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# As many files at a time as there are cores. What fails is run again by itself: a test of time or memory may have
# suffered from its neighbour, one of behaviour fails twice.
PYTEST = $(BIN)/python -m pytest
FAILED = --last-failed --last-failed-no-failures none

test: lint
	$(PYTEST) --fast -n auto --dist loadfile || $(PYTEST) --fast $(FAILED)

test-all: lint
	$(PYTEST) $(if $(PART),--part $(PART)) -n auto --dist loadfile || $(PYTEST) $(if $(PART),--part $(PART)) $(FAILED)

soak: $(VENV)/installed-test
	$(BIN)/python -m pytest -m "" tests/soak tests/hostile

conformance: $(VENV)/installed-test
	$(BIN)/python -m tests.conformance.coverage

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

venv: $(VENV)/installed-test

wheel: $(VENV)/installed-test $(VENV)/release/installed
	rm -rf dist
	$(BIN)/python -m build
	$(VENV)/release/bin/twine check --strict dist/*.whl dist/*.tar.gz
	$(VENV)/release/bin/cyclonedx-py requirements ci/requirements.txt --pyproject pyproject.toml \
		--mc-type library --output-reproducible --output-file dist/onnxport.cdx.json

clean:
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a second run installs again only when what it would install has changed.
$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit("onnxport needs Python 3.11 or newer; name one: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created pyproject.toml constraints.txt
	@echo "installing onnxport into $(VENV), a few minutes the first time"
	$(INSTALL) --editable .
	@touch $@

$(VENV)/installed-test: $(VENV)/created pyproject.toml constraints.txt
	@echo "installing onnxport and what its tests need into $(VENV), a few minutes the first time"
	$(INSTALL) --editable '.[test,dev]'
	@touch $(VENV)/installed $@

# What writes the bill of materials, apart from the environment of the tests.
$(VENV)/release/installed: $(VENV)/created
	$(BIN)/python -m venv $(VENV)/release
	$(VENV)/release/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0 pip-audit==2.10.1 twine==6.2.0
	@touch $@
