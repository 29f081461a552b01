"""The papers' tables and figures, measured again: one module each, `python -m experiments.NAME --write`.

`--write` puts a table into docs/results and figures into docs/figures.
"""
