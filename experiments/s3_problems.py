"""The problems of Maclaurin and Adams (2014) on data that can be had: models with prior scales chosen by held-out score."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow.parquet as pq
from scipy.linalg import qr
from scipy.optimize import minimize
from scipy.special import logsumexp

import tallbayes as tb
from benchmarks.problems import data_folder, synthetic_rows

CIFAR_FEATURES = 256  # of the paper
NU = 4.0  # of the paper's robust regression


def _with_bias(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(x.shape[0]), x])


def _standardised(x: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and sd 1, without those that others nearly determine."""
    x = x[:, x.std(0) > 1e-9]
    x = (x - x.mean(0)) / x.std(0)
    _, r, order = qr(x, mode="economic", pivoting=True)
    size = np.abs(np.diag(r))
    return x[:, np.sort(order[size > 0.03 * size[0]])]


def mnist(quick: bool = False) -> tuple[tb.models.Model, str]:
    """Digits 7 and 9: 50 principal components and a bias, normal prior; the scale by the log score of the test digits."""
    table = pq.read_table(data_folder() / "mnist_7v9.parquet")
    pixels = np.stack(table["pixels"].to_numpy(zero_copy_only=False)).astype(float).reshape(table.num_rows, -1) / 255.0
    test = table["is_test"].to_numpy(zero_copy_only=False).astype(bool)
    y = (table["label"].to_numpy() == 9).astype(float)
    centre = pixels[~test].mean(0)
    _, _, axes = np.linalg.svd(pixels[~test] - centre, full_matrices=False)
    x = _with_bias((pixels - centre) @ axes[:50].T)
    train = tb.Dataset.from_arrays(x[~test], y[~test])

    def score(scale: float) -> float:
        theta = tb.find_mode(tb.models.logistic(train, tb.priors.normal(scale)), progress=False).reference
        eta = x[test] @ theta
        return float(np.mean(y[test] * eta - np.logaddexp(0.0, eta)))

    scale = max((0.1, 0.3, 1.0, 3.0), key=score)
    return tb.models.logistic(train, tb.priors.normal(scale)), f"normal({scale:g})"


def cifar(quick: bool = False) -> tuple[tb.models.Model, str]:
    """Airplane, automobile, bird: principal components and a bias, softmax; the scale by the log score of the test pictures."""
    table = pq.read_table(data_folder() / "cifar10_3class_pca256.parquet")
    x = np.column_stack([table[c].to_numpy() for c in table.column_names[2 : 2 + (32 if quick else CIFAR_FEATURES)]]).astype(
        float
    )
    x = _with_bias(x / x[:, 0].std())
    test = table["is_test"].to_numpy(zero_copy_only=False).astype(bool)
    y = np.unique(table["label"].to_numpy(), return_inverse=True)[1]
    hot = np.eye(3)[y]

    def fitted(scale: float) -> np.ndarray:
        xs, hs = x[~test], hot[~test]

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            theta = flat.reshape(3, -1)
            eta = xs @ theta.T
            level = logsumexp(eta, axis=1)
            gradient = (np.exp(eta - level[:, None]) - hs).T @ xs + theta / scale**2
            return float((level - (eta * hs).sum(1)).sum() + 0.5 * (flat @ flat) / scale**2), gradient.reshape(-1)

        return minimize(loss, np.zeros(3 * x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 100}).x.reshape(3, -1)

    def score(scale: float) -> float:
        eta = x[test] @ fitted(scale).T
        return float(np.mean((eta * hot[test]).sum(1) - logsumexp(eta, axis=1)))

    scale = max((0.1, 0.3, 1.0, 3.0), key=score)
    return tb.models.softmax(tb.Dataset.from_arrays(x, y), tb.priors.normal(scale), classes=3), f"normal({scale:g})"


def _robust(x: np.ndarray, y: np.ndarray) -> tuple[tb.models.Model, str]:
    """Scales of errors and of the Laplace prior by the log score of a random fifth of the rows; then all rows."""
    rng = np.random.default_rng(0)
    x, y = _with_bias(_standardised(x)), (y - y.mean()) / y.std()
    chosen = rng.permutation(y.size)[:20_000]
    held, fitted = chosen[:4000], chosen[4000:]
    data = tb.Dataset.from_arrays(x[fitted], y[fitted])

    def score(scales: tuple[float, float]) -> float:
        error, prior = scales
        model = tb.models.student_t(data, tb.priors.laplace(prior), nu=NU, scale=error)
        try:
            theta = tb.find_mode(model, progress=False).reference
        except tb.errors.ModelError:  # errors this narrow leave a likelihood of many modes
            return -np.inf
        r = (y[held] - x[held] @ theta) / error
        return float(np.mean(-0.5 * (NU + 1.0) * np.log1p(r * r / NU) - np.log(error)))

    guess = float(np.median(np.abs(y[fitted] - x[fitted] @ np.linalg.lstsq(x[fitted], y[fitted], rcond=None)[0])))
    error, prior = max(((e * guess, p) for e in (1.0, 1.5) for p in (0.01, 0.1, 1.0)), key=score)
    model = tb.models.student_t(tb.Dataset.from_arrays(x, y), tb.priors.laplace(prior), nu=NU, scale=error)
    return model, f"laplace({prior:g}), errors {error:.2g}"


def cep(quick: bool = False) -> tuple[tb.models.Model, str]:
    """Power conversion efficiency of 29,978 molecules of the Clean Energy Project from their descriptors."""
    table = pq.read_table(data_folder() / "cep_pce.parquet")
    names = [c for c in table.column_names if c not in ("PCE", "smiles")]
    x = np.column_stack([table[c].to_numpy() for c in names]).astype(float)
    return _robust(x, table["PCE"].to_numpy().astype(float))


def qm9(quick: bool = False) -> tuple[tb.models.Model, str]:
    """HOMO-LUMO gap of 130,831 molecules from atom counts and Coulomb eigenvalues."""
    table = pq.read_table(data_folder() / "qm9.parquet")
    names = [c for c in table.column_names if c in ("nH", "nC", "nN", "nO", "nF") or c.startswith("cm_eig")]
    x = np.column_stack([table[c].to_numpy() for c in names]).astype(float)
    return _robust(
        x[: 20_000 if quick else None], table["HOMO_LUMO_gap_au"].to_numpy().astype(float)[: 20_000 if quick else None]
    )


def flights(quick: bool = False) -> tuple[tb.models.Model, str]:
    """Delay in minutes of 1.8 of three million flights, as many rows as the paper has: time of day, season, distance, weekday."""
    table = pq.read_table(data_folder() / "flights3m_2001.parquet")
    chosen = np.sort(np.random.default_rng(0).permutation(table.num_rows)[: 20_000 if quick else 1_800_000])
    column = {c: table[c].to_numpy()[chosen].astype(float) for c in ("minute_of_day", "month", "dow", "distance", "delay")}
    hour, month = column["minute_of_day"] * (2 * np.pi / 1440), column["month"] * (2 * np.pi / 12)
    parts = [np.log(np.maximum(column["distance"], 1.0))]
    parts += [f(k * hour) for k in (1, 2, 3) for f in (np.sin, np.cos)] + [f(month) for f in (np.sin, np.cos)]
    parts += [(column["dow"] == k).astype(float) for k in range(1, 7)]
    return _robust(np.column_stack(parts), column["delay"])


def million(quick: bool = False) -> tuple[tb.models.Model, str]:
    """A million synthetic logistic rows, 20 correlated columns."""
    x, y = synthetic_rows(20_000 if quick else 1_000_000, 20)
    return tb.models.logistic(tb.Dataset.from_arrays(x, y), tb.priors.normal(3.0)), "normal(3)"


PROBLEMS: dict[str, Callable[..., tuple[tb.models.Model, str]]] = {
    "MNIST 7 v 9": mnist,
    "CIFAR-10, 3 classes": cifar,
    "CEP molecules": cep,
    "QM9 molecules": qm9,
    "flights": flights,
    "synthetic logistic": million,
}
