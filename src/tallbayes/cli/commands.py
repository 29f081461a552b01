"""The command line: `tallbayes fit`, `shards`, `resume`, `summary`, `predict`, `report`, `compare`, `store` and `demo`."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from tallbayes.cli.arguments import (
    Constant,
    Expression,
    FamilyName,
    FamilyOption,
    Mean,
    Sigma,
    Support,
    Zeros,
    family_of,
    keep_of,
    prior_of,
)
from tallbayes.cli.output import continuation, end_run, show
from tallbayes.cli.store_commands import stores

app = typer.Typer(
    help="Bayesian posteriors over tall data, reading only the rows each iteration needs.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

app.add_typer(stores, name="store")

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save the fit as a netCDF file.")]
Plots = Annotated[Path | None, typer.Option(help="Folder for plots of coefficients, traces, marginals and cost.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary and the cost as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress bars.")]


def _version(asked: bool) -> None:
    if asked:
        from tallbayes.version import __version__

        print(f"tallbayes {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def fit(
    source: Annotated[
        str,
        typer.Argument(help="A .parquet, .csv or .arrow file, a folder or pattern of them, sqlite:path.db::table, or a store."),
    ],
    formula: Annotated[
        str, typer.Option("--formula", "-f", help="Formula, for example 'y ~ x1 + C(group)', 'y ~ .' or 'y ~ x1 + (1 | shop)'.")
    ],
    family: FamilyName = None,
    expression: Expression = None,
    constant: Constant = None,
    mean: Mean = None,
    support: Support = None,
    sampler: Annotated[str, typer.Option(help="Name of a sampler, or auto.")] = "auto",
    prior: Annotated[
        str, typer.Option(help="Prior, for example normal:10, cauchy:2.5 or flat; default: weakly_informative.")
    ] = "",
    sigma: Sigma = None,
    zi: Zeros = None,
    option: FamilyOption = None,
    draws: Annotated[int, typer.Option(help="Draws per chain.")] = 1000,
    warmup: Annotated[int, typer.Option(help="Warm-up iterations per chain.")] = 1000,
    chains: Annotated[int, typer.Option(help="Number of chains.")] = 4,
    seed: Annotated[int | None, typer.Option(help="Random seed; the same seed gives the same draws.")] = None,
    thin: Annotated[int, typer.Option(help="Keep every Nth iteration.")] = 1,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Draws of levels: all, summary, a term such as '1|shop' (can be repeated), or bytes."),
    ] = None,
    cores: Annotated[int | None, typer.Option(help="Number of threads; default: all cores.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this many seconds, reading included.")] = None,
    until_ess: Annotated[
        float | None, typer.Option(help="Continue until every parameter has this effective sample size.")
    ] = None,
    guarantee: Annotated[str | None, typer.Option(help="Weakest guarantee to accept, for example exact.")] = None,
    offset: Annotated[str | None, typer.Option(help="Column, or log(column), to add to the linear predictor.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column of row weights.")] = None,
    store: Annotated[Path | None, typer.Option(help="Folder for packed rows.")] = None,
    memory: Annotated[str, typer.Option(help="Where to keep the rows: auto, ram or disk.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Precision of the stored rows: float64 or float32.")] = "float64",
    na: Annotated[str, typer.Option(help="Rows with missing values: error or drop.")] = "error",
    checkpoint: Annotated[Path | None, typer.Option(help="Folder from which the run can be resumed.")] = None,
    out: Out = None,
    plots: Plots = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a model to a file and print the posterior."""
    from tallbayes import api

    name, options = family_of(family, sigma, zi, option, expression, constant, mean, support)
    result = api.fit(
        formula,
        source,
        name,
        prior_of(prior),
        sampler,
        family_options=options,
        draws=draws,
        warmup=warmup,
        chains=chains,
        seed=seed,
        thin=thin,
        keep=keep_of(keep),
        cores=cores,
        max_seconds=max_seconds,
        until_ess=until_ess,
        guarantee=guarantee,
        offset=offset,
        weights=weights,
        store=store,
        memory=memory,
        dtype=dtype,
        na=na,
        checkpoint=checkpoint,
        progress=not quiet,
    )
    show(result, out, plots, as_json)
    end_run(result, checkpoint)


@app.command()
def shards(
    source: Annotated[str, typer.Argument(help="A folder or pattern of files, each a random part of the rows.")],
    formula: Annotated[str, typer.Option("--formula", "-f", help="Formula, for example 'y ~ x1 + C(group)' or 'y ~ .'.")],
    family: FamilyName = None,
    expression: Expression = None,
    constant: Constant = None,
    mean: Mean = None,
    support: Support = None,
    sampler: Annotated[str, typer.Option(help="Name of the sampler used for every shard, or auto.")] = "auto",
    combine: Annotated[
        str, typer.Option(help="How to combine the shards: consensus, gaussian, importance, median, ...")
    ] = "consensus",
    prior: Annotated[
        str, typer.Option(help="Prior, for example normal:10 or laplace:1; it must be possible to split it between the shards.")
    ] = "normal:10",
    option: FamilyOption = None,
    number: Annotated[
        int | None, typer.Option("--shards", help="Merge the files into this many shards; default: one shard per file.")
    ] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler, such as tcp://host:8786.")] = None,
    draws: Annotated[int, typer.Option(help="Draws per chain in each shard.")] = 1000,
    warmup: Annotated[int, typer.Option(help="Warm-up iterations per chain.")] = 1000,
    chains: Annotated[int, typer.Option(help="Chains of each shard.")] = 2,
    seed: Annotated[int | None, typer.Option(help="Random seed; the same seed gives the same draws.")] = None,
    offset: Annotated[str | None, typer.Option(help="Column, or log(column), to add to the linear predictor.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column of row weights.")] = None,
    dtype: Annotated[str, typer.Option(help="Precision of the stored rows: float64 or float32.")] = "float64",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder from which the run can be resumed; all workers must share it.")
    ] = None,
    out: Out = None,
    plots: Plots = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Sample every file separately, on threads or a Dask cluster, and combine the draws."""
    from tallbayes.shards import sample_shards

    name, options = family_of(family, None, None, option, expression, constant, mean, support)
    result = sample_shards(
        source,
        sampler,
        number,
        combine=combine,
        formula=formula,
        family=name,
        family_options=options,
        prior=prior_of(prior),
        offset=offset,
        weights=weights,
        dtype=dtype,
        draws=draws,
        warmup=warmup,
        chains=chains,
        seed=seed,
        client=scheduler,
        checkpoint=checkpoint,
        progress=not quiet,
    )
    show(result, out, plots, as_json)
    end_run(result, None)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="The checkpoint folder of a run.")],
    draws: Annotated[int | None, typer.Option(help="Extend a finished run to this many draws per chain.")] = None,
    out: Out = None,
    plots: Plots = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Continue an interrupted run, or extend a finished one."""
    from tallbayes import api

    result = api.resume(folder, draws=draws, progress=not quiet)
    show(result, out, plots, as_json)
    end_run(result, folder)


@app.command()
def summary(
    path: Annotated[Path, typer.Argument(help="Fit saved with --out.")], plots: Plots = None, as_json: Json = False
) -> None:
    """Print the posterior of a saved fit."""
    from tallbayes.results import load

    show(load(path), None, plots, as_json)


@app.command()
def predict(
    path: Annotated[Path, typer.Argument(help="Fit saved with --out.")],
    new: Annotated[str, typer.Argument(help="Rows with the columns of the model, in any format that `tallbayes fit` reads.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the predictions to this Parquet file in chunks.")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="What to predict: mean (of the response given the row) or response (noise included).")
    ] = "mean",
    prob: Annotated[float, typer.Option(help="Probability of the interval.")] = 0.89,
    draws: Annotated[int, typer.Option(help="Posterior draws used.")] = 200,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of draws and for simulated responses.")] = 0,
    id_columns: Annotated[
        list[str] | None, typer.Option("--id", help="A column of the rows to copy to the predictions; may be repeated.")
    ] = None,
    groups: Annotated[bool, typer.Option("--groups/--no-groups", help="With group effects, or without them.")] = True,
    new_levels: Annotated[str, typer.Option(help="Levels that the fit does not know: sample, zero or error.")] = "sample",
    as_json: Json = False,
) -> None:
    """Predict the rows of a file from a saved fit."""
    from tallbayes.results import load

    made = load(path).predict(
        new, kind, prob, draws, seed, out=out, id=id_columns or None, groups=groups, new_levels=new_levels
    )
    if out is not None:
        print(json.dumps({"out": str(made), "kind": kind}) if as_json else f"saved to {made}")
    elif as_json:
        print(made.to_json(orient="records", double_precision=12))
    else:
        print(made.to_string(max_rows=20))


@app.command()
def report(
    path: Annotated[Path, typer.Argument(help="Fit saved with --out.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Path of the HTML page; default: the name of the fit with .html.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a self-contained HTML report of a saved fit."""
    from tallbayes.results import load
    from tallbayes.results.report import warnings_of

    result = load(path)
    written = result.report(path.with_suffix(".html") if out is None else out)
    found = warnings_of(result)
    if as_json:
        print(json.dumps({"out": str(written), "warnings": found}, indent=1))
    else:
        print("\n".join([f"saved to {written}", *(f"warning: {w}" for w in found)]))


@app.command()
def compare(
    source: Annotated[str, typer.Argument(help="Rows, in any format that `tallbayes fit` reads.")],
    formula: Annotated[str, typer.Option("--formula", "-f", help="Formula, for example 'y ~ x1 + x2' or 'y ~ .'.")],
    family: FamilyName = None,
    expression: Expression = None,
    constant: Constant = None,
    mean: Mean = None,
    support: Support = None,
    samplers: Annotated[str, typer.Option(help="Comma-separated names of samplers; default: all that support the model.")] = "",
    prior: Annotated[
        str, typer.Option(help="Prior, for example normal:10, cauchy:2.5 or flat; default: weakly_informative.")
    ] = "",
    sigma: Sigma = None,
    zi: Zeros = None,
    option: FamilyOption = None,
    draws: Annotated[int, typer.Option(help="Draws per chain.")] = 1000,
    warmup: Annotated[int, typer.Option(help="Warm-up iterations per chain.")] = 1000,
    chains: Annotated[int, typer.Option(help="Number of chains.")] = 4,
    reference_draws: Annotated[
        int | None, typer.Option(help="Draws per chain of the reference run; default: five times --draws.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same draws.")] = 0,
    cores: Annotated[int | None, typer.Option(help="Number of threads; default: all cores.")] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop each sampler after this many seconds.")] = None,
    offset: Annotated[str | None, typer.Option(help="Column, or log(column), to add to the linear predictor.")] = None,
    weights: Annotated[str | None, typer.Option(help="Column of row weights.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare the cost of samplers on a file, and the distance of their draws from a long exact run."""
    import tallbayes as tb

    name, options = family_of(family, sigma, zi, option, expression, constant, mean, support)
    if name is None:
        tb.models.check_assumed(options)
    else:
        tb.models.check_family(name, options)
    second: dict[str, Any] = {} if name is None else tb.models.second_formula(name, options)
    data = tb.read(source, formula, offset=offset, weights=weights, progress=not quiet, **second)
    given = prior_of(prior)
    model = tb.models.build_assumed(data, given) if name is None else tb.models.build(name, data, given, **options)
    named = [name.strip() for name in samplers.split(",") if name.strip()] or None
    done = tb.compare(
        model,
        named,
        draws,
        seed,
        warmup=warmup,
        chains=chains,
        reference_draws=reference_draws,
        cores=cores,
        max_seconds=max_seconds,
        progress=not quiet,
    )
    print(json.dumps(done.as_dict(), indent=1, allow_nan=False) if as_json else done)


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Folder for the file, the fit and the plots of the demo.")] = Path("demo"),
    rows: Annotated[int, typer.Option(help="Number of rows to simulate.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Random seed of the data and of the draws.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Simulate a file with a million rows, fit a model to it, and show the result and its cost."""
    from tallbayes.cli.demo import run

    run(folder, rows, seed, not quiet)


def _warn(message: Warning | str, category: type[Warning], *where: Any, **line: Any) -> None:
    """A warning in one line, without the place in our code that gave it."""
    print(f"tallbayes: warning: {message}", file=sys.stderr)


def main() -> None:
    """Entry point: errors in one line with the remedy, exit code 1; 130 after Ctrl-C."""
    from tallbayes.errors import StoppedError, TallbayesError

    warnings.showwarning = _warn
    try:
        app(standalone_mode=True)
    except StoppedError as error:
        print(f"tallbayes: {error}", file=sys.stderr)
        if error.folder is not None:
            print(continuation(error.folder), file=sys.stderr)
        sys.exit(130 if error.status == "interrupted" else 1)
    except (TallbayesError, OSError) as error:  # of the system: a full disk, a folder that may not be written
        print(f"tallbayes: {error}", file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as stop:  # typer turns Ctrl-C into the exit code alone
        if isinstance(stop, SystemExit) and stop.code != 130:
            raise
        print(
            "tallbayes: interrupted before the first draw; nothing was saved, except by a run with --checkpoint",
            file=sys.stderr,
        )
        sys.exit(130)
