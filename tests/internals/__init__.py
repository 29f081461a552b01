"""Tests of internals: a file for each private module, which goes or is rewritten with it."""
