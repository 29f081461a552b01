"""The papers' tables and figures, measured again: one module each, `python -m experiments.NAME --write`.

`--write` puts a table into docs/results.md and figures into docs/figures.
"""
