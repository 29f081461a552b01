"""Internals of `tallbayes.digest`; what users see of it is tested in test_results.py and test_damaged_files.py."""

import numpy as np
import pytest
from support import logistic_arrays

import tallbayes as tb
from tallbayes import digest

CHAINS, DRAWS, WARMUP, ROWS = 3, 200, 50, 60


@pytest.fixture(scope="module")
def model():
    X, y = logistic_arrays(ROWS)
    return tb.models.logistic(tb.Dataset.from_arrays(X, y, columns=["one", "x"]))


@pytest.fixture(scope="module")
def fit(model):
    return tb.sample(model, "mh", draws=DRAWS, warmup=WARMUP, chains=CHAINS, seed=2, thin=2, progress=False)


def foreign_text(path, fit):
    path.write_text("no fit at all")


def foreign_hdf5(path, fit):
    import h5py

    with h5py.File(path, "w") as file:
        file["theta"] = np.zeros(3)


def foreign_arviz(path, fit):
    import arviz_base

    arviz_base.from_dict({"posterior": {"theta": np.zeros((2, 5))}}).to_netcdf(path, engine="h5netcdf")


def edited(**attributes):
    def write(path, fit):
        tree = fit.idata.copy()
        tree.attrs.update(attributes)
        tree.to_netcdf(path, engine="h5netcdf")
        digest.seal_file(path)

    return write


def without_digest(path, fit):
    fit.idata.to_netcdf(path, engine="h5netcdf")


@pytest.mark.parametrize(
    "write",
    [
        foreign_text,
        foreign_hdf5,
        foreign_arviz,
        without_digest,
        edited(format="tallbayes-fit-0"),
        edited(guarantee="{"),
        edited(meta=3),
    ],
    ids=["text", "hdf5", "arviz", "no digest", "other format", "damaged guarantee", "damaged meta"],
)
def test_foreign_files_are_refused(fit, tmp_path, write):
    path = tmp_path / "fit.nc"
    write(path, fit)
    with pytest.raises(tb.StoreError, match=r"fit saved by tallbayes|cannot be read as a saved fit"):
        tb.load(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    model = tb.models.gaussian(tb.Dataset.from_arrays(np.ones((50, 1)), np.arange(50.0)), sigma=10.0)
    fit = tb.sample(model, "hmc", draws=150, warmup=50, chains=2, seed=1, progress=False, checkpoint=folder / "run")
    return model, fit.save(folder / "fit.nc"), folder / "run"


def test_every_damaged_checkpoint_is_refused(run):
    model, _, folder = run
    state, rng = folder / "chain-0.npz", np.random.default_rng(6)
    original = state.read_bytes()
    assert digest.unseal(original)
    for _ in range(100):
        damaged = bytearray(original)
        damaged[int(rng.integers(len(original)))] ^= int(rng.integers(1, 256))
        state.write_bytes(damaged)
        with pytest.raises(tb.StoreError, match="damaged"):
            tb.resume(folder, model, progress=False)
    state.write_bytes(original)
    assert tb.resume(folder, model, draws=160, progress=False).theta.shape[1] == 160
