"""A few draws of every sampler, of exact minibatch on every family, and of every kind of model, as they were when last written.

Moving code must not move draws. golden.json has, of short runs, the last draws of theta (coefficients, scales and standard deviations of
groups) and of levels, the names and the evaluations. Every case runs a second time on one core, which must give the same bits.

A case that is in the file may be renewed only where a change of its draws is the point, and then:

* in a commit of its own, of the change of the sampler and of golden.json;
* with a test of invariance of that sampler that passes: from exact draws, by enumeration, or against an independent method;
* with a mean number of evaluations per iteration within 1 % of the old one;
* and the changelog says so.

    python tests/test_golden.py --write [case ...]                          # cases that are not in the file
    python tests/test_golden.py --write --renew case ... [--reason "..."]   # cases that are

The mean comes from a run of eight chains of its own, long enough for a standard error of a quarter of a per cent where that takes
seconds, and is kept with the draws. `--renew` prints the old and the new one with their errors, and refuses beyond 1 % unless a reason is
stated, which is kept too. Where the noise is larger, as of chains that are tuned apart, measure both with --draws, the old one at the
commit before: while the draws are the same, `--renew` replaces the mean alone.
"""

import argparse
import json
import sys
import tempfile
import types
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tallbayes as tb
from tallbayes.samplers import SAMPLERS

FILE = Path(__file__).parent / "golden.json"
RUN = {"draws": 20, "warmup": 60, "chains": 2, "seed": 11, "progress": False}


def _arrays(seed=4):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(300), rng.standard_normal((300, 2))])
    return rng, X, X @ [0.3, 0.5, -0.4]


def _model(family):
    rng, X, eta = _arrays()
    if family == "arma":
        noise, y = rng.standard_normal(300), np.zeros(300)
        for t in range(1, 300):
            y[t] = 0.5 * y[t - 1] + noise[t]
        return tb.models.arma(y, 1, 0)
    if family == "normal":
        return tb.models.normal(rng.standard_normal(300))
    uniform, noise = rng.random(300), rng.standard_normal(300)
    y = {
        "logistic": uniform < 1 / (1 + np.exp(-eta)),
        "probit": noise < eta,
        "poisson": rng.poisson(np.exp(eta)),
        "negbin": rng.poisson(np.exp(eta) * rng.gamma(3.0, 1 / 3.0, 300)),
        "gamma": rng.gamma(2.0, np.exp(eta) / 2.0),
        "gaussian": eta + noise,
        "student_t": eta + rng.standard_t(4.0, 300),
        "softmax": (uniform * 3).astype(int),
        "class_gaussian": (uniform < 0.5),
    }[family].astype(float)
    options = {
        "negbin": {"size": 3.0},
        "gamma": {"shape": 2.0},
        "student_t": {"nu": 4.0, "scale": 1.0},
        "softmax": {"classes": 3},
        "class_gaussian": {"sigma": 1.0},
    }.get(family, {})
    return getattr(tb.models, family)(tb.Dataset.from_arrays(X, y), **options)


def _table():
    """300 rows in six groups, which cross five others, with a response of every kind."""
    rng = np.random.default_rng(8)
    x, z, g, h = rng.standard_normal(300), rng.standard_normal(300), rng.integers(0, 6, 300), rng.integers(0, 5, 300)
    line = 0.3 + 0.5 * x - 0.4 * z
    eta = line + np.linspace(-1.0, 1.0, 6)[g] + np.linspace(0.5, -0.5, 5)[h]
    noise, uniform = rng.standard_normal(300), rng.random(300)
    won, count = uniform < 1 / (1 + np.exp(-eta)), rng.poisson(np.exp(line))
    return pa.table(
        {
            "x": x,
            "z": z,
            "g": pa.array([f"g{k}" for k in g]),
            "h": pa.array([f"h{k}" for k in h]),
            "won": won.astype(float),
            "amount": eta + noise,
            "uneven": line + np.exp(0.4 * z) * noise,
            "count": np.where(uniform < 0.3, 0, count).astype(float),
            "grade": np.digitize(line + noise, [-0.5, 0.5]).astype(float),
        }
    )


def _responses():
    """300 rows with times, some of them censored, shares, successes in trials and counts with many zeros."""
    rng = np.random.default_rng(9)
    x, z = rng.standard_normal((2, 300))
    mean, share, trials = np.exp(0.3 + 0.5 * x - 0.4 * z), 1 / (1 + np.exp(0.4 * z - 0.5 * x)), rng.integers(1, 9, 300)
    counts = rng.poisson(mean * rng.gamma(3.0, 1 / 3.0, 300))
    return pa.table(
        {
            "x": x,
            "z": z,
            "time": mean * rng.weibull(1.5, 300),
            "seen": rng.random(300) < 0.8,
            "part": rng.beta(4.0 * share, 4.0 * (1.0 - share)),
            "trials": trials.astype(float),
            "successes": rng.binomial(trials, share).astype(float),
            "count": np.where(rng.random(300) < 0.3, 0, counts).astype(float),
        }
    )


def built_in(family, sampler):
    """A run of a family on arrays."""
    return lambda **run: tb.sample(_model(family), sampler, **run)


def formula(text, family, sampler, table=_table, **options):
    """A run of a model in one line."""
    return lambda **run: tb.fit(text, table(), family, sampler=sampler, **options, **run)


def expression(**run):
    rng, X, eta = _arrays()
    y = (rng.random(300) < 1 - np.exp(-np.exp(eta))).astype(float)
    model = tb.models.family("y*log(1 - exp(-exp(eta))) - (1 - y)*exp(eta)", tb.Dataset.from_arrays(X, y))
    return tb.sample(model, "exact-minibatch", **run)


def jax_model(**run):
    import jax

    def log_lik(theta, row):
        eta = row["x"] @ theta
        return row["y"] * eta - jax.nn.softplus(eta)

    model = tb.models.from_jax(log_lik, _model("logistic").data, tb.priors.normal(2.0), dim=3)
    return tb.sample(model, "hmc-ecs", **run)


def numpyro_model(**run):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def program(x, y):
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(3), 2.0).to_event(1))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)

    return tb.sample(tb.models.from_numpyro(program, _model("gaussian").data), "nuts", **run)


def partitions(**run):
    table = _table()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            pq.write_table(table.slice(100 * number, 100), Path(folder) / f"part{number}.parquet")
        return tb.fit("won ~ x + z", folder, "logistic", sampler="exact-minibatch", memory="partitions", **run)


def two_modes(**run):
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(-3.0, 1.0, 10), rng.normal(3.0, 1.0, 10)])
    model = tb.models.student_t(tb.Dataset.from_arrays(np.ones((20, 1)), y), nu=2.0, scale=0.5)
    return tb.sample(model, "mode-jumping", **run)


def update(**run):
    rng, X, eta = _arrays()
    y = (rng.random(300) < 1 / (1 + np.exp(-eta))).astype(float)
    old, new = (tb.Dataset.from_arrays(X[part], y[part]) for part in (slice(200), slice(200, 300)))
    return tb.sample(tb.models.logistic(old), "exact-minibatch", **run).update(new, **run)


CASES = {
    **{
        f"logistic/{name}": built_in("logistic", name)
        for name in SAMPLERS
        if not (SAMPLERS[name]().needs_groups or SAMPLERS[name]().needs_unknown_scales)
    },
    **{
        f"{family}/exact-minibatch": built_in(family, "exact-minibatch")
        for family in ("probit", "poisson", "negbin", "gamma", "gaussian", "student_t", "softmax", "normal")
    },
    "arma/informed": built_in("arma", "informed"),
    "class_gaussian/mh": built_in("class_gaussian", "mh"),
    "logistic/auto": built_in("logistic", "auto"),
}
OLDER = tuple(CASES)  # their records have no names: they are as they were written
CASES |= {
    "(1 | g)/minibatch-gibbs": formula("won ~ x + (1 | g)", "logistic", "minibatch-gibbs"),
    "(1 | g)/nuts": formula("won ~ x + (1 | g)", "logistic", "nuts"),
    "(1 + x | g)/minibatch-gibbs": formula("won ~ x + (1 + x | g)", "logistic", "minibatch-gibbs"),
    "crossed/minibatch-gibbs": formula("won ~ x + (1 | g) + (1 | h)", "logistic", "minibatch-gibbs"),
    "nested/minibatch-gibbs": formula("won ~ x + (1 | g/h)", "logistic", "minibatch-gibbs"),
    "linear mixed/minibatch-gibbs": formula("amount ~ x + (1 | g)", "gaussian", "minibatch-gibbs"),
    "linear mixed, vectors/minibatch-gibbs": formula("amount ~ x + (1 + x | g)", "gaussian", "minibatch-gibbs"),
    "linear mixed, crossed/minibatch-gibbs": formula("amount ~ x + (1 | g) + (1 | h)", "gaussian", "minibatch-gibbs"),
    "horseshoe/surrogate-transition": formula("won ~ x + z", "logistic", "surrogate-transition", prior=tb.priors.horseshoe()),
    "ridge/surrogate-transition": formula("won ~ x + z", "logistic", "surrogate-transition", prior=tb.priors.ridge()),
    "smooth/surrogate-transition": formula("won ~ x + s(z, k=5)", "logistic", "surrogate-transition"),
    "sigma ~/exact-minibatch": formula("uneven ~ x", "gaussian", "exact-minibatch", sigma="~ z"),
    "zero-inflated/exact-minibatch": formula("count ~ x", "zero_inflated_poisson", "exact-minibatch", zi="~ z"),
    "ordinal/exact-minibatch": formula("grade ~ x + z", "ordinal", "exact-minibatch"),
    "expression/exact-minibatch": expression,
    "jax/hmc-ecs": jax_model,
    "numpyro/nuts": numpyro_model,
    "partitions/exact-minibatch": partitions,
    "update/exact-minibatch": update,
    "two modes/mode-jumping": two_modes,
}

SLOW = {
    f"{family}{kind}/{sampler}": formula(text, family, sampler, _responses, **options)
    for family, kind, text, sampler, options in (
        ("beta", "", "part ~ x + z", "nuts", {}),
        ("binomial", "", "p(successes, trials) ~ x + z", "exact-minibatch", {}),
        ("inverse_gaussian", "", "time ~ x + z", "exact-minibatch", {}),
        ("lognormal", "", "censored(time, seen) ~ x + z", "exact-minibatch", {}),
        ("loglogistic", "", "censored(time, seen) ~ x + z", "exact-minibatch", {}),
        ("weibull", "", "censored(time, seen) ~ x + z", "exact-minibatch", {}),
        ("gamma", ", shape unknown", "time ~ x + z", "exact-minibatch", {}),
        ("negbin", ", size unknown", "count ~ x + z", "exact-minibatch", {}),
        ("student_t", ", nu and scale unknown", "time ~ x + z", "nuts", {}),
        ("student_t", ", sigma ~", "time ~ x", "exact-minibatch", {"nu": 4.0, "sigma": "~ z"}),
        ("hurdle_poisson", "", "count ~ x", "exact-minibatch", {"zi": "~ z"}),
        ("hurdle_negbin", "", "count ~ x", "exact-minibatch", {"zi": "~ z"}),
        ("zero_inflated_negbin", "", "count ~ x", "exact-minibatch", {"zi": "~ z"}),
    )
}
CASES |= SLOW


def fitted(case, **run):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tb.TallbayesWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # of JAX
        return CASES[case](**{**RUN, **run})


def draws(case, **run):
    """The last of twenty draws of two chains after a warm-up, and what they cost."""
    fit = fitted(case, **run)
    found = {"theta": fit.theta[:, -1].tolist(), "evals": float(fit.evals.sum())}
    if case in OLDER:
        return found
    levels = {term: own.values[:, -1].tolist() for term, own in fit.levels.items()}
    return {"names": list(fit.names), **found, **({"levels": levels} if levels else {})}


TOLERANCE = {"linear mixed/minibatch-gibbs": 1e-5}  # second differences of a density, noise of 1e-7, shape its proposals


def compare(golden, now, rtol=1e-9):
    """Fail unless draws are those of a record of the file."""
    np.testing.assert_allclose(now["theta"], golden["theta"], rtol=rtol, atol=1e-12)
    assert now["evals"] == golden["evals"]
    assert now.get("names") == golden.get("names") and now.get("levels", {}).keys() == golden.get("levels", {}).keys()
    for term, values in golden.get("levels", {}).items():
        np.testing.assert_allclose(now["levels"][term], values, rtol=rtol, atol=1e-12)


def equal(golden, now):
    try:
        compare(golden, now)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES])
def test_draws_are_those_of_before(case):
    now = draws(case)
    compare(json.loads(FILE.read_text())[case], now, TOLERANCE.get(case, 1e-9))
    assert draws(case, cores=1) == now


# What --write does.

LENGTHS, LONG_ENOUGH = (
    (1_000, 10_000, 100_000),
    20,
)  # draws of a chain; evaluations of an iteration above which the longest is not tried
PRECISION, MOST = 0.0025, 0.01


def mean_evals(case, length=None):
    """Mean evaluations of an iteration, and its standard error: of batches within chains, or of chains if they differ by more."""
    for tried in LENGTHS if length is None else (length,):
        evals = fitted(case, draws=tried, warmup=1_000, chains=8).evals
        means = evals.reshape(8, 20, -1).mean(2)
        mean = float(means.mean())
        error = float(max(m.std(ddof=1) / np.sqrt(m.size) for m in (means.ravel(), means.mean(1))))
        if error <= PRECISION * mean or (tried == LENGTHS[1] and mean > LONG_ENOUGH):
            break
    return [mean, error]


def write(chosen, renew=False, reason=None, length=None):
    """Add cases to the file, or renew them; the reason if that is refused, and the first case that is ends it."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for case in chosen:
        if case not in CASES:
            return f"there is no case {case!r}."
        if (case in kept) != renew:
            return (
                f"{case} is in the file; renew it with --renew."
                if case in kept
                else f"{case} is not in the file; leave out --renew."
            )
    for case in chosen:
        now, old = draws(case), kept.get(case, {})
        same = renew and equal(old, now)
        mean, error = now["mean_evals"] = mean_evals(case, length)
        print(f"{case}: {mean:.6g} evaluations per iteration (standard error {error:.2g})", end="")
        if renew:
            before, noise = old["mean_evals"]
            ratio = mean / before if before else 1.0 if mean == 0.0 else np.inf
            print(f"; before {before:.6g} ({noise:.2g}), ratio {ratio:.4f}", end="")
            if abs(ratio - 1.0) > MOST and not same:
                if reason is None:
                    return f"\n{case} costs another number of evaluations, by more than {MOST:.0%}; if that is the point, give --reason."
                now["reason"] = reason
        print("; the draws are the same" * same, flush=True)
        kept[case] = {**old, "mean_evals": now["mean_evals"]} if same else now
        FILE.write_text(json.dumps(kept, indent=1) + "\n", newline="\n")
    if renew:
        print(
            "Commit this with the change of the sampler and nothing else, run its test of invariance, and say so in the changelog."
        )
    return None


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A file with one case, whose cost and draw can be changed."""
    made = types.SimpleNamespace(rate=1000.0, draw=0.5, file=tmp_path / "golden.json")

    def run(draws, chains, **options):
        evals = np.random.default_rng(0).poisson(made.rate if draws > RUN["draws"] else 1000.0, (chains, draws)).astype(float)
        return types.SimpleNamespace(theta=np.full((chains, draws, 1), made.draw), evals=evals, names=("a",), levels={})

    module = sys.modules[__name__]
    monkeypatch.setattr(module, "FILE", made.file)
    monkeypatch.setattr(module, "CASES", {"toy": run, "other": run})
    assert write(["toy"]) is None
    made.before = made.file.read_text()
    return made


def test_a_case_is_not_overwritten_by_accident(toy):
    toy.draw = 0.7
    assert "renew it with --renew" in write(["other", "toy"]) and toy.file.read_text() == toy.before
    assert "leave out --renew" in write(["other"], renew=True) and "no case 'toys'" in write(["toys"])
    assert write(["other"]) is None
    both = json.loads(toy.file.read_text())
    assert both["toy"] == json.loads(toy.before)["toy"] and both["other"]["theta"] == [[0.7], [0.7]]


def test_a_renewed_case_costs_as_much_as_before_or_says_why(toy, capsys):
    toy.draw, toy.rate = 0.7, 1005.0
    assert write(["toy"], renew=True) is None
    renewed = json.loads(toy.file.read_text())["toy"]
    assert renewed["theta"] == [[0.7], [0.7]] and "ratio 1.00" in capsys.readouterr().out and "reason" not in renewed
    before = toy.file.read_text()
    toy.draw = 0.9
    for toy.rate in (980.0, 1030.0):
        assert "give --reason" in write(["toy"], renew=True) and toy.file.read_text() == before
    assert write(["toy"], renew=True, reason="a better bound") is None
    renewed = json.loads(toy.file.read_text())["toy"]
    assert renewed["reason"] == "a better bound" and renewed["mean_evals"][0] == pytest.approx(1030.0, rel=0.005)
    toy.rate = 1000.0  # the same draws: the mean alone is measured again
    assert write(["toy"], renew=True, length=40) is None
    assert json.loads(toy.file.read_text())["toy"]["mean_evals"][0] == pytest.approx(1000.0, rel=0.02)


def test_every_case_is_in_the_file_and_every_sampler_in_a_case():
    assert json.loads(FILE.read_text()).keys() == CASES.keys()
    assert SAMPLERS.keys() <= {case.rpartition("/")[2] for case in CASES}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", required=True, help="write cases into golden.json")
    parser.add_argument("--renew", action="store_true", help="cases that are in it")
    parser.add_argument("--reason", help="why a renewed case costs another number of evaluations")
    parser.add_argument("--draws", type=int, help="draws of each of the eight chains of the mean, a multiple of 20")
    parser.add_argument("cases", nargs="*", help="names; by default all that are not in the file")
    given = parser.parse_args()
    if given.renew and not given.cases:
        parser.error("name the cases to be renewed")
    present = json.loads(FILE.read_text()) if FILE.exists() else {}
    sys.exit(write(given.cases or [case for case in CASES if case not in present], given.renew, given.reason, given.draws))
