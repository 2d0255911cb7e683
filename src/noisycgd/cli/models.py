"""`noisycgd fit | predict | evaluate | info`: models on the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from noisycgd.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from noisycgd.cli.inputs import Records
    from noisycgd.estimators._base import PrivateEstimator

# Classes by the command line's names; a regression model is one whose target has bounds.
MODELS = {
    "convex-relu": "ConvexReLUClassifier",
    "linear": "LinearClassifier",
    "relu-network": "ReLUNetworkClassifier",
    "ssp": "SSPClassifier",
    "convex-relu-regressor": "ConvexReLURegressor",
    "ssp-regressor": "SSPRegressor",
}
METHODS = ("noisycgd", "dpsgd", "noisy-gd")

# Tensors of a model folder that hold no trained number.
_PUBLIC_TENSORS = ("hyperplanes", "permutation", "directions")
# Options that are not spelled like the parameter they set.
_OPTIONS = {"n_hyperplanes": "--hyperplanes", "n_components": "--components"}

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="digits, mnist, fashion-mnist, cifar10, or a CSV/Parquet/Feather/NPZ file."),
]
DataDir = Annotated[
    Path | None, typer.Option(envvar="NOISYCGD_DATA", help="Folder with the named data sets' official files.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that `noisycgd fit` wrote.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    for command in (fit, predict, evaluate, info):
        app.command()(command)


def fit(
    data: Data,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon; 1 if nothing is given.")] = None,
    delta: Annotated[float, typer.Option(help="Target delta; keep it below 1/n.")] = 1e-5,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise multiplier, instead of epsilon.")] = None,
    model: Annotated[str | None, typer.Option(help=" | ".join(MODELS))] = None,
    method: Annotated[str | None, typer.Option(help=" | ".join(METHODS) + "; default: the model's first.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    batch_size: Annotated[str | None, typer.Option(help="Records per batch, or auto.")] = None,
    hyperplanes: Annotated[int | None, typer.Option(help="Number of hyperplanes, even.")] = None,
    width: Annotated[int | None, typer.Option(help="Hidden units of a ReLU network.")] = None,
    features: Annotated[str | None, typer.Option(help="Random features of a linear model; see its class.")] = None,
    components: Annotated[int | None, typer.Option(help="Number of random features.")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="Bandwidth of Fourier features, or auto.")] = None,
    learning_rate: Annotated[str | None, typer.Option(help="Peak learning rate, or auto.")] = None,
    schedule: Annotated[str | None, typer.Option(help="linear, constant, cosine or warmup-stable-decay.")] = None,
    loss: Annotated[str | None, typer.Option(help="Loss; see noisycgd.losses.")] = None,
    margin: Annotated[str | None, typer.Option(help="Margin in logits, or auto.")] = None,
    clipping_norm: Annotated[
        str | None, typer.Option(help="Bound on a record's gradient, where one is clipped.")
    ] = None,
    ridge: Annotated[str | None, typer.Option(help="SSP: adassp or spectral.")] = None,
    clip: Annotated[str | None, typer.Option(help="SSP: public, or data, which is not private.")] = None,
    radius: Annotated[str | None, typer.Option(help="Radius of the ball of noisy-gd, or auto.")] = None,
    l2: Annotated[float | None, typer.Option("--l2", help="Coefficient of (l2/2) ||theta||^2.")] = None,
    row_norm: Annotated[float | None, typer.Option(help="Public bound on the norm of a row.")] = None,
    row_bounding: Annotated[str | None, typer.Option(help="normalize or clip.")] = None,
    center_rows: Annotated[bool, typer.Option("--center-rows", help="Subtract each row's mean; helps images.")] = False,
    bias: Annotated[float | None, typer.Option(help="Value of a constant feature; 0 adds none.")] = None,
    batch_order: Annotated[str | None, typer.Option(help="permuted or given.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Public facts of the table (TOML).")] = None,
    data_dir: DataDir = None,
    test: Annotated[Path | None, typer.Option(help="Table to test on.")] = None,
    test_fraction: Annotated[float | None, typer.Option(help="Share of the records to hold out for testing.")] = None,
    split_seed: Annotated[int, typer.Option(help="Seed of that (public) choice.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the model; default: a fresh one under models/.")] = None,
    random_state: Annotated[int | None, typer.Option(help="Seed of what is public: hyperplanes, features.")] = None,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Train what is not proved; it is labelled so.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a private model on DATA and save it with its guarantee."""
    from noisycgd.artifact import check_replaceable
    from noisycgd.cli.files import fresh_model_folder
    from noisycgd.cli.inputs import training_data

    if epsilon is not None and noise_multiplier is not None:
        _refuse("--noise-multiplier", "left out when --epsilon is given", noise_multiplier)
    folder = fresh_model_folder(data) if out is None else out
    check_replaceable(folder.absolute())
    train, held_out = training_data(
        data,
        target=target,
        schema=schema,
        data_dir=data_dir,
        test=test,
        test_fraction=test_fraction,
        split_seed=split_seed,
    )
    given = {
        "epsilon": epsilon,
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "method": method,
        "epochs": epochs,
        "batch_size": _number_or_auto("--batch-size", batch_size, int),
        "n_hyperplanes": hyperplanes,
        "width": width,
        "features": features,
        "n_components": components,
        "bandwidth": _number_or_auto("--bandwidth", bandwidth, float),
        "learning_rate": _number_or_auto("--learning-rate", learning_rate, float),
        "schedule": schedule,
        "loss": loss,
        "margin": _number_or_auto("--margin", margin, float),
        "clipping_norm": _number_or_auto("--clipping-norm", clipping_norm, float),
        "ridge": ridge,
        "clip": clip,
        "radius": _number_or_auto("--radius", radius, float),
        "l2": l2,
        "row_norm": row_norm,
        "row_bounding": row_bounding,
        "center_rows": center_rows or None,
        "bias": bias,
        "batch_order": batch_order,
        "random_state": random_state,
        "allow_unproven": allow_unproven or None,
        "verbose": True,
    }
    estimator = _estimator(model, train, {name: value for name, value in given.items() if value is not None})
    started = time.perf_counter()
    _fit(estimator, train)
    seconds = time.perf_counter() - started
    score = None if held_out is None else _score(estimator, held_out)
    path = _save(estimator, train, folder)
    _report_fit(estimator, train, held_out, score, seconds, path, as_json)


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

    estimator = _load(model)
    records = later_data(data, getattr(estimator, "table_", None), data_dir=data_dir, needs_target=False)
    header, columns = ["prediction"], [_checked(estimator.predict, records.X).tolist()]
    if proba:
        if not hasattr(estimator, "predict_proba"):
            _refuse("--proba", "left out for a regression model", model)
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
    table = getattr(estimator, "table_", None)
    if target is not None:
        table = {**(table or {"schema": None, "columns": None}), "target": target}
    records = later_data(data, table, data_dir=data_dir, needs_target=True)
    score = _score(estimator, records)
    metric, note = _metric(estimator), _note(records)
    if as_json:
        print_json({"metric": metric, "score": score, "records": len(records.X), "note": note})
    else:
        print_rows([(metric, f"{score:.4f} on {len(records.X)} records ({note})")])


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


def _estimator(model: str | None, train: Records, given: dict[str, Any]) -> PrivateEstimator:
    """The model with what the user gave; every option that it does not know is refused."""
    from noisycgd import estimators
    from noisycgd._validation import check_choice

    if model is None:
        model = "convex-relu" if train.target_range is None else "convex-relu-regressor"
    check_choice("--model", model, MODELS)
    estimator: PrivateEstimator = getattr(estimators, MODELS[model])()
    known = estimator.get_params()
    if "classes" not in known and train.classes is not None:
        _refuse("--model", "a classifier for a target with classes", model)
    if "classes" in known and train.target_range is not None:
        _refuse("--model", "a regression model for a target with bounds", model)
    for name in sorted(given.keys() - known.keys()):
        _refuse(_OPTIONS.get(name, f"--{name.replace('_', '-')}"), f"left out for --model {model}", given[name])
    facts = {"classes": train.classes} if "classes" in known else {"target_range": train.target_range}
    return estimator.set_params(**given, **facts)  # type: ignore[no-any-return]


def _fit(estimator: PrivateEstimator, train: Records) -> None:
    from noisycgd.guarantee import with_assumed_public

    _checked(estimator.fit, train.X, train.targets)
    estimator.guarantee_ = with_assumed_public(estimator.guarantee_, train.assumed_public, train.inferred)


def _checked(call: Any, *arguments: Any) -> Any:
    """Call scikit-learn code; its complaints about data are the user's to mend."""
    from noisycgd._validation import DataError, NoisyCGDError

    try:
        return call(*arguments)
    except NoisyCGDError:
        raise
    except ValueError as error:
        raise DataError(str(error).splitlines()[0]) from error


def _score(estimator: PrivateEstimator, records: Records) -> float:
    return float(_checked(estimator.score, records.X, records.targets))


def _metric(estimator: PrivateEstimator) -> str:
    return "accuracy" if hasattr(estimator, "classes_") else "r2"


def _note(records: Records) -> str:
    if records.public:
        return "public data"
    return "non-private: computed from these records and not covered by the guarantee"


def _save(estimator: PrivateEstimator, train: Records, folder: Path) -> Path:
    from noisycgd.estimators import save_model

    return save_model(estimator, folder, table=train.table)


def _load(model: Path) -> Any:
    from noisycgd.estimators import load_model

    return load_model(model)


def _public(estimator: PrivateEstimator) -> dict[str, Any]:
    """The guarantee without its per-position numbers, which only plots need."""
    values = estimator.guarantee_.to_dict()
    return {name: value for name, value in values.items() if not name.startswith("position_")}


def _report_fit(
    estimator: PrivateEstimator,
    train: Records,
    held_out: Records | None,
    score: float | None,
    seconds: float,
    path: Path,
    as_json: bool,
) -> None:
    metric = _metric(estimator)
    if as_json:
        print_json(
            {
                "test_accuracy": score if metric == "accuracy" else None,
                "test_r2": score if metric == "r2" else None,
                "test_note": None if held_out is None else _note(held_out),
                "test_records": 0 if held_out is None else len(held_out.X),
                "train_records": len(train.X),
                "seconds": seconds,
                "model_path": str(path),
                "guarantee": _public(estimator),
            }
        )
        return
    typer.echo(f"{estimator.guarantee_}\n")
    rows = [("trained on", f"{len(train.X)} records in {seconds:.1f} s")]
    if held_out is not None and score is not None:
        rows.append((f"test {metric}", f"{score:.4f} on {len(held_out.X)} held-out records ({_note(held_out)})"))
    rows.append(("model", f"{path}/  (model.safetensors, model.json)"))
    rows.append(("picture", f"{path / 'guarantee.png'}"))
    print_rows(rows)


def _number_or_auto(option: str, text: str | None, kind: type[int] | type[float]) -> int | float | str | None:
    if text is None or text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        noun = "an integer" if kind is int else "a number"
        _refuse(option, f"{noun} or auto", text)


def _refuse(name: str, requirement: str, value: object) -> NoReturn:
    from noisycgd._validation import refuse

    refuse(name, requirement, str(value))
