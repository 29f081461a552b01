"""Saved fits: netCDF files of arrays and JSON text, sealed by a digest that is checked first. Nothing in them is ever executed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tallbayes import digest
from tallbayes.errors import StoreError
from tallbayes.machine import sync_file
from tallbayes.option_types import checked
from tallbayes.results.data_tree import from_tree
from tallbayes.results.fit import Fit


def save(fit: Fit, path: str | Path) -> Path:
    """Write aside, seal, sync and rename."""
    path = Path(path)
    if path.suffix != ".nc":
        path = path.with_name(path.name + ".nc")
    aside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fit.idata.to_netcdf(aside, engine="h5netcdf")
        digest.seal_file(aside)
        sync_file(aside)
        os.replace(aside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise StoreError(f"cannot save the fit as {path}: {error}.") from error
    return path


@checked
def load(path: str | Path) -> Fit:
    """Read a fit written by `Fit.save`; a file that is not byte for byte as it was written is refused.

    >>> import numpy as np, tallbayes as tb, tempfile, pathlib
    >>> data = tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0))
    >>> fit = tb.sample(tb.models.gaussian(data, sigma=1.0), "hmc", draws=20, warmup=20, chains=2, seed=1, progress=False)
    >>> path = fit.save(pathlib.Path(tempfile.mkdtemp()) / "fit.nc")
    >>> bool((tb.load(path).theta == fit.theta).all())
    True
    """
    import xarray

    path = Path(path)
    if not path.is_file():
        raise StoreError(f"{path} does not exist or is a folder.")
    try:
        digest.check_file(path)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read as a saved fit: it is truncated, damaged or not one ({error}). A fit that was saved "
            "without a digest, by an early version or by other software, can still be opened with xarray."
        ) from error
    try:
        with xarray.open_datatree(path, engine="h5netcdf", phony_dims="access") as tree:
            if "posterior" not in tree.children or "format" not in tree.attrs:
                raise StoreError(f"{path} is not a fit saved by tallbayes.")
            return from_tree(tree)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path} cannot be read as a saved fit: it is truncated, damaged or not one ({error}).") from error
