# Each target makes the environment it needs: only Python 3.11 to 3.13 and make are required.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test slow bench docs lint clean

demo: $(VENV)/.demo
	$(BIN)/tallbayes demo --folder demo

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

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

clean:
	rm -rf $(VENV) site demo

$(VENV)/.created:
	$(PYTHON) -c "import sys; assert (3, 11) <= sys.version_info < (3, 14), 'Python 3.11 to 3.13 is needed: make PYTHON=python3.12 ...'"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

$(VENV)/.demo: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@
