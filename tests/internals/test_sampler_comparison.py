"""Internals of `tallbayes.sampler_comparison`; what users see of it is tested in test_imports.py."""

import tallbayes as tb


def test_functions_are_not_hidden_by_modules():
    import tallbayes.sampler_comparison  # noqa: F401

    assert all(callable(getattr(tb, name)) for name in ("compare", "fit", "sample", "read", "load"))
