"""`noisycgd tune`: private hyperparameter tuning on the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisycgd.cli.models import (
    checked,
    list_assumed,
    make_estimator,
    prepared,
    report,
    save,
    score_of,
    warn_if_untrained,
)
from noisycgd.cli.options import (
    ALIASES,
    AsJson,
    Data,
    DataOptions,
    Delta,
    ModelOptions,
    Out,
    grouped,
    option_of,
    refuse_option,
)

if TYPE_CHECKING:
    from noisycgd.cli.inputs import Records

_FORM = "name=value,value,..., as in learning_rate_fraction=0.3,1"


@grouped
def tune(
    data: Data,
    records: DataOptions,
    options: ModelOptions,
    grid: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Values to try of one parameter, such as learning_rate_fraction=0.3,1 (of the largest admissible "
            "rate); once for each parameter.",
        ),
    ],
    epsilon: Annotated[float, typer.Option(help="Target epsilon of the whole search.")] = 1.0,
    delta: Delta = 1e-5,
    mean_trials: Annotated[float, typer.Option(help="Mean number of trials; the number is random and secret.")] = 20,
    law: Annotated[str, typer.Option(help="poisson, which may run no trial at all, or geometric.")] = "poisson",
    holdout: Annotated[
        float | None, typer.Option(help="Share of the records that only score, by noised accuracy; default 0.1.")
    ] = None,
    public: Annotated[Path | None, typer.Option(help="Table of public records that score the trials.")] = None,
    score_on_test: Annotated[
        bool, typer.Option("--score-on-test", help="Score on the test part of a named data set, which is public.")
    ] = False,
    workers: Annotated[int | None, typer.Option(help="Trials side by side.")] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Train a secret random number of candidates on DATA and save the best, with one guarantee for all of it."""
    if workers == 0:
        refuse_option("--workers", "an integer other than 0", workers)
    candidates = _candidates(grid)
    given = options.given()
    for name in candidates.keys() & given.keys():
        refuse_option(option_of(name), "left out where --grid names it", given[name])
    # How long a search takes would tell how many trials ran: the model is dated as of its start.
    started = time.time()
    folder, train, held_out = prepared(data, records, out)
    scoring = _scoring_data(data, public, score_on_test, train, held_out, records)
    if scoring is not None and holdout is not None:
        refuse_option("--holdout", "left out where public records score the trials", holdout)

    from noisycgd._validation import rounded_up
    from noisycgd.cli.files import date_as
    from noisycgd.tuning import PrivateSelection

    search = PrivateSelection(
        make_estimator(options.model, train, given, candidates.keys()),
        candidates,
        mean_trials=mean_trials,
        law=law,
        epsilon=epsilon,
        delta=delta,
        n_jobs=workers,
        verbose=True,
        **({} if holdout is None else {"holdout": holdout}),
    )
    public_part = () if scoring is None else (scoring.X, scoring.targets)
    checked(search.fit, train.X, train.targets, *public_part)
    model = search.best_estimator_
    list_assumed(model, train)
    score = None if held_out is None else score_of(model, held_out)
    path = save(model, train, folder)
    date_as(path, started)
    selection = model.guarantee_.selection
    released = {
        "released": selection.released,
        "candidate": search.best_params_ if as_json else _shown(search.best_params_),
        "mean_trials": selection.mean_trials,
        "epsilon_of_one_trial": selection.base_epsilon if as_json else rounded_up(selection.base_epsilon),
        "epsilon_in_total": model.guarantee_.epsilon if as_json else rounded_up(model.guarantee_.epsilon),
        "scored_on": "the test records, which are public" if score_on_test else selection.scored_on,
    }
    report(model, train, held_out, score, path, as_json, seconds=None, more=released)
    warn_if_untrained(model)


def _candidates(grid: list[str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for entry in grid:
        name, separator, values = entry.partition("=")
        name = name.strip().replace("-", "_")
        name = ALIASES.get(name, name)
        if not separator or not name or not all(value.strip() for value in values.split(",")):
            refuse_option("--grid", _FORM, entry)
        if name in found:
            refuse_option("--grid", "given once for each parameter", entry)
        found[name] = [_value(value.strip()) for value in values.split(",")]
    return found


def _value(text: str) -> Any:
    """A number, true or false, or a word."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text


def _scoring_data(
    data: str,
    public: Path | None,
    score_on_test: bool,
    train: Records,
    held_out: Records | None,
    records: DataOptions,
) -> Records | None:
    from noisycgd.cli.inputs import check_beside, check_other_file, check_others, later_data

    if score_on_test:
        if public is not None:
            refuse_option("--score-on-test", "left out when --public is given", True)
        if held_out is None or not held_out.public:
            refuse_option("--score-on-test", "left out unless DATA is a named data set with a test part", True)
        return held_out
    if public is None:
        return None
    check_beside(public, train.reading)
    for source in (data, *([] if records.test is None else [str(records.test)])):
        check_other_file("--public", public, source)
    scoring = later_data(str(public), train.reading, data_dir=records.data_dir, needs_target=True)
    check_others("--public", scoring, train)
    if held_out is not None:
        check_others("--public", scoring, held_out, "the records to test on, whose score would be optimistic")
    return scoring


def _shown(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items())
