# Each target makes the environment it needs: only Python 3.11 to 3.13 and make are required. On Windows, run it from Git's bash.
VENV ?= .venv
WORKERS ?= 2
NUMBA ?=
ifeq ($(OS),Windows_NT)
PYTHON ?= python
SCRIPTS := Scripts
else
PYTHON ?= python3
SCRIPTS := bin
endif
BIN := $(VENV)/$(SCRIPTS)

# Tests that compile little or nothing, without the few of them that do, or that read millions of rows.
QUICK := $(addprefix tests/test_,package.py layout.py formula.py data.py sources.py combine.py) \
	$(addprefix tests/internals/test_,progress.py shards_combine.py data_formula.py data_moments.py data_packed_store.py) \
	$(addprefix tests/internals/test_data_,design.py design_survey.py read.py sources.py sources_sqlite.py transform_state.py)

.PHONY: demo test quick slow bench docs look publish lint dist clean

demo: $(VENV)/.demo
	$(BIN)/tallbayes demo --folder demo

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

quick: $(VENV)/.test lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(QUICK) -k "not resumed and not command_line and not million and not updates"

slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.engine --write

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# Pages in chromium or google-chrome, which must be on PATH.
look: $(VENV)/.test $(VENV)/.docs
	$(BIN)/python -m pytest -m slow tests/test_site.py

# The site of this version beside those of others, on the branch gh-pages; nothing is pushed.
publish: $(VENV)/.docs
	PATH="$(abspath $(BIN)):$$PATH" mike deploy --update-aliases "$$($(BIN)/python -c 'from tallbayes.version import __version__ as v; print(v)')" latest
	PATH="$(abspath $(BIN)):$$PATH" mike set-default latest

# The wheel is installed and imported in an environment of its own, away from the sources.
dist: $(VENV)/.release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv dist/fresh
	dist/fresh/$(SCRIPTS)/python -m pip install --quiet dist/*.whl
	cd dist && fresh/$(SCRIPTS)/python -c "import importlib.resources, tallbayes; assert 'fresh' in tallbayes.__file__; assert importlib.resources.files('tallbayes').joinpath('py.typed').is_file(); print('tallbayes', tallbayes.__version__)"
	cd dist && fresh/$(SCRIPTS)/tallbayes --help
	rm -rf dist/fresh

clean:
	rm -rf $(VENV) site demo dist

$(VENV)/.created:
	$(PYTHON) -c "import sys; assert (3, 11) <= sys.version_info < (3, 14), 'Python 3.11 to 3.13 is needed: make PYTHON=python3.12 ...'"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]' $(if $(NUMBA),'$(NUMBA)')
	touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

$(VENV)/.release: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet 'build>=1.2' 'twine>=6'
	touch $@
