"""`python -m reproduce run NAME | show NAME | status`."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from reproduce.experiments import Experiment, load_experiment, names
from reproduce.runs import RESULTS, Run, Store

app = typer.Typer(
    help="The paper's tables and figures: run what is missing, show what is there.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
Name = Annotated[str, typer.Argument(help="A table or figure (see `status`), or `all`.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Seeds per cell, instead of the config's.")]
Folder = Annotated[Path, typer.Option(help="Folder of the JSON lines.")]
Device = Annotated[str, typer.Option(help="cpu, gpu or auto.")]

SECONDS_UNKNOWN = 300.0
"""Guess at a run of 400 epochs while none was made."""


@app.command()
def run(
    name: Name,
    seeds: Seeds = None,
    dataset: Annotated[str | None, typer.Option(help="Only this data set.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each on cores of its own.")] = 1,
    device: Device = "auto",
    minutes: Annotated[float | None, typer.Option(help="Start no run after so many minutes.")] = None,
    results: Folder = RESULTS,
) -> None:
    """Make the runs that are missing; each finished one is kept, none is made twice."""
    wanted = [load_experiment(each) for each in _names(name)]
    known = {each for experiment in wanted for each in experiment.datasets}
    if dataset is not None and dataset not in known:
        allowed = ", ".join(sorted(known)) or "left out, since nothing is run"
        raise typer.BadParameter(f"must be {allowed}; got {dataset}.", param_hint="--dataset")
    _use(device, starts=workers == 1)
    if workers > 1:
        options = {"seeds": seeds, "dataset": dataset, "device": device, "minutes": minutes, "results": results}
        given = [f"--{option}={value}" for option, value in options.items() if value is not None]
        raise typer.Exit(_spread(workers, [name, *given]))
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    store = Store(results)
    while todo := _todo(wanted, store, seeds, dataset):
        if time.monotonic() > end:
            typer.echo(f"{name}: time is up, {_left(todo, store)}", err=True)
            return
        if not any(_make(one, name, todo, store) for one in todo):
            # Other processes are at all of these; what depends on them comes next.
            time.sleep(2)
        store.refresh()
    typer.echo(f"{name}: nothing left to run", err=True)


def _use(device: str, starts: bool = True) -> None:
    """Have JAX run on that device; `starts` says whether this process is to train there."""
    if device not in ("cpu", "gpu", "auto"):
        raise typer.BadParameter(f"must be cpu, gpu or auto; got {device}.", param_hint="--device")
    if device == "auto":
        return
    # JAX reads it when it is first imported, which has not happened yet.
    os.environ["JAX_PLATFORMS"] = {"cpu": "cpu", "gpu": "cuda"}[device]
    if starts:
        import jax

        try:
            jax.devices()
        except (RuntimeError, AssertionError) as error:
            found = str(error).partition("\n")[0] or "none"
            raise typer.BadParameter(
                f"must be one that JAX finds here; got {device} ({found}). Install JAX for it.", param_hint="--device"
            ) from None


def _todo(wanted: Sequence[Experiment], store: Store, seeds: int | None, dataset: str | None) -> list[Run]:
    """Runs of all these that can be made now, without repetition."""
    runs = {run.key: run for experiment in wanted for run in experiment.todo(store, seeds)}
    return [run for run in runs.values() if dataset in (None, run.dataset)]


def _make(one: Run, name: str, todo: list[Run], store: Store) -> bool:
    from reproduce.training import make

    with store.claim(one) as mine:
        if not mine:
            return False
        typer.echo(f"{name}: {describe(one)} ({_left(todo, store)})", err=True)
        result = make(one, verbose=sys.stderr.isatty())
        store.add(one, result)
        typer.echo(f"  accuracy {result['accuracy']:.4f} after {result['seconds']:.0f} s", err=True)
    return True


def describe(run: Run) -> str:
    """A run in a line."""
    shown = ("method", "features", "n_hyperplanes", "n_components", "width", "learning_rate", "noise_multiplier")
    parts = [f"{name}={run.parameters[name]}" for name in (*shown, "epochs") if name in run.parameters]
    return f"{run.dataset} {run.estimator} {' '.join(parts)} seed={run.seed}"


def _left(todo: list[Run], store: Store) -> str:
    """Runs known to be left, and an estimate of their time from finished ones alike."""
    known: dict[tuple[object, ...], list[float]] = {}
    for record in store:
        past = Run(**record["run"])
        known.setdefault(_kind(past), []).append(record["result"]["seconds"] / past.epochs)
    seconds = 0.0
    for run in todo:
        past_rates = known.get(_kind(run))
        seconds += run.epochs * (sum(past_rates) / len(past_rates) if past_rates else SECONDS_UNKNOWN / 400)
    return f"{len(todo)} runs known to be left, about {seconds / 60:.0f} min for one process"


def _kind(run: Run) -> tuple[object, ...]:
    """What the time of an epoch depends on."""
    sizes = ("method", "features", "n_hyperplanes", "n_components", "width")
    return run.dataset, run.estimator, *(run.parameters.get(name) for name in sizes)


def _spread(workers: int, arguments: list[str]) -> int:
    """The same command in several processes, which share the runs out among themselves.

    A process with one core of its own does more in all than one with two: not every part of a step runs on both.
    """
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    for i in range(workers):
        process = subprocess.Popen([sys.executable, "-m", "reproduce", "run", *arguments])
        os.sched_setaffinity(process.pid, set(cores[i::workers]) or set(cores))
        processes.append(process)
    try:
        # One that was killed has a negative code.
        return max(abs(process.wait()) for process in processes)
    except KeyboardInterrupt:
        for process in processes:
            process.wait()
        return 130


@app.command()
def show(
    name: Name,
    out: Annotated[Path | None, typer.Option(help="Folder for Markdown, CSV, PNG and SVG; else it prints.")] = None,
    results: Folder = RESULTS,
) -> None:
    """Table and figure from the runs that are there; trains nothing."""
    from reproduce.show import shown

    store = Store(results)
    for each in _names(name):
        shown(load_experiment(each), store, out)


@app.command()
def page(results: Folder = RESULTS) -> None:
    """Write docs/reproduction.md: every table and figure, and what is to be said about it."""
    from reproduce.page import page as write

    for path in write(Store(results)):
        typer.echo(f"wrote {path}", err=True)


@app.command()
def check(
    name: Name,
    method: Annotated[str, typer.Option(help="A method of methods.toml.")],
    dataset: Annotated[str, typer.Option(help="A data set of the experiment.")],
    noise_multiplier: Annotated[float, typer.Option(help="A noise multiplier of the experiment.")],
    where: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of what varies, such as width=200.")] = None,
    device: Device = "auto",
    results: Folder = RESULTS,
) -> None:
    """Make one cell again: is it inside the 99 % prediction interval of the runs that are there? Exit code 1 if not."""
    from reproduce.check import committed, find_cell, prediction_interval, repeat

    experiment, store = load_experiment(name), Store(results)
    cell = find_cell(experiment, method, dataset, noise_multiplier, where or [])
    values = committed(experiment, cell, store)
    interval = prediction_interval(values)
    _use(device)
    again = repeat(cell, store, verbose=sys.stderr.isatty())["accuracy"]
    verdict = "inside" if again in interval else "OUTSIDE"
    typer.echo(
        f"{again:.4f} is {verdict} the 99 % prediction interval [{interval.low:.4f}, {interval.high:.4f}] "
        f"of {len(values)} runs"
    )
    raise typer.Exit(0 if again in interval else 1)


@app.command()
def status(seeds: Seeds = None, results: Folder = RESULTS) -> None:
    """What is done of each table and figure."""
    store = Store(results)
    for name in names():
        experiment = load_experiment(name)
        done, total = experiment.count(store, seeds)
        left = _left(todo, store) if (todo := experiment.todo(store, seeds)) else "complete"
        typer.echo(f"{name:28} {done:4} of {total:4} runs   {left}" if total else f"{name:28} needs no run")


def _names(name: str) -> list[str]:
    return names() if name == "all" else [name]


def main() -> None:
    """Run the command line; an error a user can mend is one line and exit code 2."""
    try:
        code = app(standalone_mode=False) or 0
    except typer.TyperException as error:
        code = _fail(error.format_message() if hasattr(error, "format_message") else str(error))
    except (ValueError, OSError, RuntimeError) as error:
        # RuntimeError is what JAX raises, out of memory for one; the exit code 1 means something else.
        code = _fail(str(error))
    except typer.Abort:
        code = 130
    sys.exit(code)


def _fail(text: str) -> int:
    typer.echo(f"error: {text}", err=True)
    return 2


if __name__ == "__main__":
    main()
