"""Groups of options that several commands share, each written once as a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_type_hints

import typer

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
# Parameters by the options that are not spelled like them.
ALIASES = {"hyperplanes": "n_hyperplanes", "components": "n_components"}

Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="digits, mnist, fashion-mnist, cifar10, or a CSV/Parquet/Feather/NPZ file."),
]
DataDir = Annotated[
    Path | None, typer.Option(envvar="NOISYCGD_DATA", help="Folder with the named data sets' official files.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Delta = Annotated[float, typer.Option(help="Target delta; keep it below 1/n.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the model; default: a fresh one under models/.")]


@dataclass(frozen=True)
class DataOptions:
    """Where records come from, and which of them test the model."""

    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None
    schema: Annotated[Path | None, typer.Option(help="Public facts of the table (TOML).")] = None
    data_dir: DataDir = None
    test: Annotated[Path | None, typer.Option(help="Table to test on.")] = None
    test_fraction: Annotated[float | None, typer.Option(help="Share of the records to hold out for testing.")] = None
    split_seed: Annotated[int, typer.Option(help="Seed of that (public) choice.")] = 0


@dataclass(frozen=True)
class ModelOptions:
    """The model and its parameters but those of privacy; what is not given is left to the model."""

    model: Annotated[str | None, typer.Option(help=" | ".join(MODELS))] = None
    method: Annotated[str | None, typer.Option(help=" | ".join(METHODS) + "; default: the model's first.")] = None
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None
    batch_size: Annotated[str | None, typer.Option(help="Records per batch, or auto.")] = None
    hyperplanes: Annotated[int | None, typer.Option(help="Number of hyperplanes; even if antithetic.")] = None
    width: Annotated[int | None, typer.Option(help="Hidden units of a ReLU network.")] = None
    features: Annotated[str | None, typer.Option(help="Random features of a linear model; see its class.")] = None
    components: Annotated[int | None, typer.Option(help="Number of random features.")] = None
    bandwidth: Annotated[str | None, typer.Option(help="Bandwidth of Fourier features, or auto.")] = None
    gates: Annotated[
        str | None, typer.Option(help="antithetic or iid hyperplanes; linear for a regressor without any.")
    ] = None
    learning_rate: Annotated[str | None, typer.Option(help="Peak learning rate, or auto.")] = None
    schedule: Annotated[str | None, typer.Option(help="linear, constant, cosine or warmup-stable-decay.")] = None
    loss: Annotated[str | None, typer.Option(help="Loss; see noisycgd.losses.")] = None
    margin: Annotated[str | None, typer.Option(help="Margin in logits, or auto.")] = None
    clipping_norm: Annotated[str | None, typer.Option(help="Bound on a record's gradient, where one is clipped.")] = (
        None
    )
    ridge: Annotated[str | None, typer.Option(help="SSP: adassp or spectral.")] = None
    clip: Annotated[str | None, typer.Option(help="SSP: public, or data, which is not private.")] = None
    radius: Annotated[str | None, typer.Option(help="Radius of the ball of noisy-gd, or auto.")] = None
    l2: Annotated[float | None, typer.Option("--l2", help="Coefficient of (l2/2) ||theta||^2.")] = None
    row_norm: Annotated[float | None, typer.Option(help="Public bound on the norm of a row.")] = None
    row_bounding: Annotated[str | None, typer.Option(help="normalize or clip.")] = None
    center_rows: Annotated[bool, typer.Option("--center-rows", help="Subtract each row's mean; helps images.")] = False
    bias: Annotated[float | None, typer.Option(help="Value of a constant feature; 0 adds none.")] = None
    batch_order: Annotated[str | None, typer.Option(help="permuted or given.")] = None
    random_state: Annotated[int | None, typer.Option(help="Seed of what is public: hyperplanes, features.")] = None

    def given(self) -> dict[str, Any]:
        """The estimator's parameters that were given."""
        values = {ALIASES.get(f.name, f.name): getattr(self, f.name) for f in fields(self) if f.name != "model"}
        for name, kind in _NUMBERS_OR_AUTO.items():
            values[name] = number_or_auto(option_of(name), values[name], kind)
        values["center_rows"] = self.center_rows or None
        return {name: value for name, value in values.items() if value is not None}


_NUMBERS_OR_AUTO: dict[str, type[int] | type[float]] = {
    "batch_size": int,
    "bandwidth": float,
    "learning_rate": float,
    "margin": float,
    "clipping_norm": float,
    "radius": float,
}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of its parameters that are dataclasses."""
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    groups = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}
    flat: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            flat.append(parameter.replace(annotation=hints[name]))
            continue
        own = get_type_hints(groups[name], include_extras=True)
        for f in fields(groups[name]):
            flat.append(
                inspect.Parameter(
                    f.name, parameter.kind.POSITIONAL_OR_KEYWORD, default=f.default, annotation=own[f.name]
                )
            )
    order = sorted(flat, key=lambda parameter: parameter.default is not inspect.Parameter.empty)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        made = {name: group(**{f.name: values.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        command(**values, **made)

    run.__signature__ = inspect.Signature(order, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in order} | {"return": None}
    return run


def option_of(name: str) -> str:
    """The option that sets a parameter."""
    spelled = {parameter: option for option, parameter in ALIASES.items()}.get(name, name)
    return f"--{spelled.replace('_', '-')}"


def number_or_auto(option: str, text: str | None, kind: type[int] | type[float]) -> int | float | str | None:
    """Read a number, or leave "auto" and nothing as they are."""
    if text is None or text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        noun = "an integer" if kind is int else "a number"
        refuse_option(option, f"{noun} or auto", text)


def refuse_within(model: Path, options: dict[str, Path | None]) -> None:
    """Refuse to write into the folder of a model that is read: what it holds is checked when it is loaded."""
    for option, path in options.items():
        if path is not None and path.resolve().is_relative_to(model.resolve()):
            refuse_option(option, "outside of the model's folder", path)


def refuse_option(name: str, requirement: str, value: object) -> NoReturn:
    """Raise `ParameterError` about an option."""
    from noisycgd._validation import refuse

    refuse(name, requirement, str(value))
