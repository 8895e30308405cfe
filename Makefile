# Every target makes .venv first if it is missing or out of date; nothing else is needed than
# Python 3.11 or newer and a package index.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)

BIN := .venv/bin
RUNTIME := .venv/.runtime
STAMP := .venv/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n 2 --timeout 600

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint coverage docs clean

help:
	@echo 'make demo       record two trainings of a small GPT, one with a bug, and show the report'
	@echo 'make test       run the whole test suite'
	@echo 'make test-fast  run the tests that are not marked slow'
	@echo 'make lint       ruff, mypy and the import contracts'
	@echo 'make coverage   run the whole test suite and report the lines it missed'
	@echo 'make docs       build the documentation into site/'
	@echo 'make clean      remove .venv and what the tools left'

setup: $(STAMP)

# torch goes first and alone, so that the constraints choose its build before anything else asks for it.
$(RUNTIME): pyproject.toml constraints.txt
	@echo 'Setting up .venv (once; torch alone is a download of some 200 MB)'
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) torch
	$(PIP_INSTALL) -e '.[torch]'
	@touch $@

$(STAMP): $(RUNTIME)
	@echo 'Adding what the tests need (once; training frameworks and linters, some minutes)'
	$(PIP_INSTALL) -e '.[dev]'
	$(PIP_INSTALL) --no-deps timm  # it asks for torchvision, which the parts that we record do not need
	@touch $@

demo: $(RUNTIME)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/gpt/demo.sh

test: $(STAMP)
	$(PYTEST)

test-fast: $(STAMP)
	$(PYTEST) -m 'not slow'

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

coverage: $(STAMP)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --timeout 600
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --show-missing --skip-covered

docs: $(STAMP)
	$(PIP_INSTALL) -e '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv build dist site htmlcov *.egg-info .coverage* .*_cache .hypothesis
