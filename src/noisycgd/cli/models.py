"""`noisycgd fit | predict | evaluate | info`: models on the command line."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisycgd.cli.options import (
    MODELS,
    AsJson,
    Data,
    DataDir,
    DataOptions,
    Delta,
    ModelOptions,
    Out,
    grouped,
    option_of,
    refuse_option,
    refuse_within,
)
from noisycgd.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from noisycgd.cli.inputs import Reading, Records
    from noisycgd.estimators._base import PrivateEstimator

# Tensors of a model folder that hold no trained number.
_PUBLIC_TENSORS = ("hyperplanes", "permutation", "directions")

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `noisycgd fit` wrote.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    for command in (fit, predict, evaluate, info):
        app.command()(command)


@grouped
def fit(
    data: Data,
    records: DataOptions,
    options: ModelOptions,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon; 1 if nothing is given.")] = None,
    delta: Delta = 1e-5,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise multiplier, instead of epsilon.")] = None,
    out: Out = None,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Train what is not proved; it is labelled so.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a private model on DATA and save it with its guarantee."""
    if epsilon is not None and noise_multiplier is not None:
        refuse_option("--noise-multiplier", "left out when --epsilon is given", noise_multiplier)
    folder, train, held_out = prepared(data, records, out)
    own = {
        "epsilon": epsilon,
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "allow_unproven": allow_unproven or None,
        "verbose": True,
    }
    given = {**options.given(), **{name: value for name, value in own.items() if value is not None}}
    estimator = make_estimator(options.model, train, given)
    started = time.perf_counter()
    _fit(estimator, train)
    seconds = time.perf_counter() - started
    score = None if held_out is None else score_of(estimator, held_out)
    path = save(estimator, train, folder)
    report(estimator, train, held_out, score, path, as_json, seconds=seconds)


def prepared(data: str, records: DataOptions, out: Path | None) -> tuple[Path, Records, Records | None]:
    """The folder for a model, records to train on, and records to test on if there are any."""
    from noisycgd.artifact import check_replaceable
    from noisycgd.cli.files import fresh_model_folder
    from noisycgd.cli.inputs import training_data

    folder = fresh_model_folder(data) if out is None else out
    check_replaceable(folder.absolute())
    return folder, *training_data(data, **vars(records))


def predict(
    model: Model,
    data: Data,
    out: Annotated[Path | None, typer.Option(help="CSV file to write; default: standard output.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add one score column per class.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Predict each row of DATA (the test part of a named data set) as CSV."""
    import csv
    import io

    from noisycgd.cli.files import write_text
    from noisycgd.cli.inputs import later_data

    if out is not None and out.resolve() == Path(data).resolve():
        refuse_option("--out", "another file than the data", out)
    refuse_within(model, {"--out": out})
    estimator = _load(model)
    records = later_data(data, _reading(estimator), data_dir=data_dir, needs_target=False)
    _warn_of(estimator, records)
    header, columns = ["prediction"], [checked(estimator.predict, records.X).tolist()]
    if proba:
        if not hasattr(estimator, "predict_proba"):
            refuse_option("--proba", "left out for a regression model", model)
        header += [f"score_{label}" for label in estimator.classes_]
        columns += [[f"{v:.6g}" for v in column] for column in estimator.predict_proba(records.X).T]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    if out is None:
        typer.echo(text.getvalue(), nl=False)
    else:
        write_text(out, text.getvalue())


def evaluate(
    model: Model,
    data: Data,
    target: Annotated[str | None, typer.Option(help="Column with the truth; default: the training target's.")] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Score the model on DATA. The score itself is not private."""
    from noisycgd.cli.inputs import later_data

    estimator = _load(model)
    reading = _reading(estimator)
    if target is not None:
        reading = replace(reading, target=target)
    records = later_data(data, reading, data_dir=data_dir, needs_target=True)
    _warn_of(estimator, records)
    score = score_of(estimator, records)
    metric, note = metric_of(estimator), _note(records)
    if as_json:
        print_json({"metric": metric, "score": score, "records": len(records.X), "note": note})
    else:
        print_rows([(metric, f"{score:.4f} on {len(records.X)} records ({note})")])


def _warn_of(estimator: PrivateEstimator, records: Records) -> None:
    """Warn of what makes predictions worth little; these records are not those of training."""
    warn_if_untrained(estimator)
    for name, count in records.unlisted:
        text = f"{count} of {len(records.X)} rows have a value in column {name!r} that the schema does not list"
        warnings.warn(f"{text}; they count as none of its categories", UserWarning, stacklevel=2)


def warn_if_untrained(estimator: PrivateEstimator) -> None:
    """Warn of the outcome of a selection in which no trial ran."""
    selection = estimator.guarantee_.selection
    if selection is not None and selection.untrained:
        text = "the model is untrained: no trial ran, so that its predictions say nothing of the data"
        warnings.warn(text, UserWarning, stacklevel=2)


def info(model: Model, as_json: AsJson = False) -> None:
    """Show what a saved model is and what it guarantees."""
    estimator = _load(model)
    count = sum(tensor.size for name, tensor in estimator._state()[0].items() if name not in _PUBLIC_TENSORS)
    if as_json:
        print_json(
            {
                "estimator": type(estimator).__name__,
                "n_features_in": estimator.n_features_in_,
                "n_parameters": count,
                "outputs": estimator._outputs(),
                "parameters": estimator.fitted_parameters_,
                "guarantee": _public(estimator),
            }
        )
        return
    typer.echo(f"{type(estimator).__name__}: {estimator.n_features_in_} columns, {count} parameters\n")
    typer.echo(str(estimator.guarantee_))


def make_estimator(
    model: str | None, train: Records, given: dict[str, Any], varied: Collection[str] = ()
) -> PrivateEstimator:
    """The model with what the user gave; every option that it does not know is refused."""
    from noisycgd import estimators
    from noisycgd._validation import check_choice

    if model is None:
        model = "convex-relu" if train.target_range is None else "convex-relu-regressor"
    check_choice("--model", model, MODELS)
    estimator: PrivateEstimator = getattr(estimators, MODELS[model])()
    known = estimator.get_params()
    if "classes" not in known and train.classes is not None:
        refuse_option("--model", "a classifier for a target with classes", model)
    if "classes" in known and train.target_range is not None:
        refuse_option("--model", "a regression model for a target with bounds", model)
    for name in sorted(given.keys() - known.keys()):
        refuse_option(option_of(name), f"left out for --model {model}", given[name])
    _check_used(estimator.set_params(**given).get_params(), given, varied)
    facts = {"classes": train.classes} if "classes" in known else {"target_range": train.target_range}
    return estimator.set_params(**facts)  # type: ignore[no-any-return]


# Options that others leave without effect: whose value decides, and with which values the option counts.
_COUNTS_WITH: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "n_hyperplanes": ("gates", lambda gates: gates != "linear"),
    "n_components": ("features", lambda features: features != "identity"),
    "bandwidth": ("features", lambda features: features == "fourier"),
    "radius": ("method", lambda method: method == "noisy-gd"),
    "margin": ("loss", lambda loss: loss == "margin_softmax"),
    "clipping_norm": ("loss", lambda loss: loss != "margin_softmax"),
}


def _check_used(parameters: dict[str, Any], given: dict[str, Any], varied: Collection[str]) -> None:
    """Refuse an option without effect, unless what decides that is among the parameters that candidates vary."""
    for name in given.keys() & _COUNTS_WITH.keys():
        decides, counts = _COUNTS_WITH[name]
        if decides in parameters and decides not in varied and not counts(parameters[decides]):
            refuse_option(option_of(name), f"left out for {option_of(decides)} {parameters[decides]}", given[name])


def _fit(estimator: PrivateEstimator, train: Records) -> None:
    checked(estimator.fit, train.X, train.targets)
    list_assumed(estimator, train)


def list_assumed(estimator: PrivateEstimator, train: Records) -> None:
    """Add to a model's guarantee what the command line read off the records."""
    from noisycgd.guarantee import with_assumed_public

    estimator.guarantee_ = with_assumed_public(estimator.guarantee_, train.assumed_public, train.inferred)


def checked(call: Any, *arguments: Any) -> Any:
    """Call scikit-learn code; its complaints about data are the user's to mend."""
    from noisycgd.estimators._reading import discreet

    with discreet():
        return call(*arguments)


def score_of(estimator: PrivateEstimator, records: Records) -> float:
    """Accuracy, or R^2."""
    return float(checked(estimator.score, records.X, records.targets))


def metric_of(estimator: PrivateEstimator) -> str:
    """Name of its score."""
    return "accuracy" if hasattr(estimator, "classes_") else "r2"


def _note(records: Records) -> str:
    if records.public:
        return "public data"
    return "non-private: computed from these records and not covered by the guarantee"


def save(estimator: PrivateEstimator, train: Records, folder: Path) -> Path:
    """Write the model with how its records were read."""
    from noisycgd.cli.files import watch
    from noisycgd.estimators import save_model

    watch(folder)
    return save_model(estimator, folder, table=train.reading.to_dict())


def _reading(estimator: PrivateEstimator) -> Reading:
    """How the records of a loaded model were read; one that was saved from Python does not say."""
    from noisycgd.cli.inputs import Reading

    table = getattr(estimator, "table_", None)
    return Reading() if table is None else Reading.from_dict(table)


def _load(model: Path) -> Any:
    from noisycgd.estimators import load_model

    return load_model(model)


def _public(estimator: PrivateEstimator) -> dict[str, Any]:
    """The guarantee without its per-position numbers, which only plots need."""
    values = estimator.guarantee_.to_dict()
    return {name: value for name, value in values.items() if not name.startswith("position_")}


def report(
    estimator: PrivateEstimator,
    train: Records,
    held_out: Records | None,
    score: float | None,
    path: Path,
    as_json: bool,
    *,
    seconds: float | None,
    more: dict[str, Any] | None = None,
) -> None:
    """Print what was trained and what is guaranteed, and `more`; `seconds` is None where time is secret."""
    metric = metric_of(estimator)
    if as_json:
        print_json(
            {
                "test_accuracy": score if metric == "accuracy" else None,
                "test_r2": score if metric == "r2" else None,
                "test_note": None if held_out is None else _note(held_out),
                "test_records": 0 if held_out is None else len(held_out.X),
                "train_records": estimator.guarantee_.n_records,
                **({} if seconds is None else {"seconds": seconds}),
                **(more or {}),
                "model_path": str(path),
                "guarantee": _public(estimator),
            }
        )
        return
    typer.echo(f"{estimator.guarantee_}\n")
    time_taken = "" if seconds is None else f" in {seconds:.1f} s"
    rows = [("trained on", f"{estimator.guarantee_.n_records} records{time_taken}")]
    rows += [(name.replace("_", " "), str(value)) for name, value in (more or {}).items()]
    if held_out is not None and score is not None:
        rows.append((f"test {metric}", f"{score:.4f} on {len(held_out.X)} held-out records ({_note(held_out)})"))
    rows.append(("model", f"{path}/  (model.safetensors, model.json)"))
    rows.append(("picture", f"{path / 'guarantee.png'}"))
    print_rows(rows)
