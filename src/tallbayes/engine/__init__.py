"""Compiled row functions: the only code that touches rows."""
