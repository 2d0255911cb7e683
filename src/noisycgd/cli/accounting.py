"""`noisycgd account` and `noisycgd calibrate`: the accountant without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisycgd.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from noisycgd.types import Target

account = typer.Typer(help="Epsilon of a run.", no_args_is_help=True, rich_markup_mode=None)
calibrate = typer.Typer(help="Noise for a target epsilon.", no_args_is_help=True, rich_markup_mode=None)

Records = Annotated[int, typer.Option(help="Number of records n (public).")]
BatchSize = Annotated[int, typer.Option(help="Records per batch b.")]
Epochs = Annotated[int, typer.Option(help="Passes over the data E.")]
Delta = Annotated[float, typer.Option(help="Delta at which epsilon is stated.")]
LearningRate = Annotated[
    float | None, typer.Option(help="Peak learning rate; needed where l2 or a smoothness is given.")
]
L2 = Annotated[float, typer.Option("--l2", help="Coefficient of (l2/2) ||theta||^2.")]
Schedule = Annotated[str, typer.Option(help="constant, linear or cosine.")]
Smoothness = Annotated[
    float | None,
    typer.Option(help="Smoothness beta of one record's loss, l2 included; without it the answer is conditional."),
]
OrderOption = Annotated[str, typer.Option(help="permuted (once, at random) or given (worst position).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@account.callback()
def _account() -> None:
    pass


@calibrate.callback()
def _calibrate() -> None:
    pass


@account.command("noisycgd")
def account_noisycgd(
    records: Records,
    batch_size: BatchSize,
    epochs: Epochs,
    noise_multiplier: Annotated[float, typer.Option(help="Noise multiplier: raw noise is nm C / b.")],
    delta: Delta = 1e-5,
    learning_rate: LearningRate = None,
    l2: L2 = 0.0,
    schedule: Schedule = "constant",
    smoothness: Smoothness = None,
    order: OrderOption = "permuted",
    as_json: AsJson = False,
) -> None:
    """Epsilon of noisy cyclic gradient descent when only the final model is released."""
    from noisycgd.types import NoiseMultiplier

    target = NoiseMultiplier(noise_multiplier, delta)
    _answer(records, batch_size, epochs, target, learning_rate, l2, schedule, smoothness, order, as_json)


@calibrate.command("noisycgd")
def calibrate_noisycgd(
    records: Records,
    batch_size: BatchSize,
    epochs: Epochs,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon.")] = None,
    mu: Annotated[float | None, typer.Option(help="Target mu at the worst position, instead of epsilon.")] = None,
    delta: Delta = 1e-5,
    learning_rate: LearningRate = None,
    l2: L2 = 0.0,
    schedule: Schedule = "constant",
    smoothness: Smoothness = None,
    order: OrderOption = "permuted",
    as_json: AsJson = False,
) -> None:
    """Smallest noise multiplier that meets a target when only the final model is released."""
    from noisycgd._validation import refuse
    from noisycgd.types import EpsilonDelta, GaussianMu

    if (epsilon is None) == (mu is None):
        refuse("--epsilon", "given, or else --mu, but not both", epsilon)
    target: Target = GaussianMu(mu, delta) if mu is not None else EpsilonDelta(epsilon, delta)  # type: ignore[arg-type]
    _answer(records, batch_size, epochs, target, learning_rate, l2, schedule, smoothness, order, as_json)


def _answer(
    records: int,
    batch_size: int,
    epochs: int,
    target: Target,
    learning_rate: float | None,
    l2: float,
    schedule: str,
    smoothness: float | None,
    order: str,
    as_json: bool,
) -> None:
    from noisycgd._validation import check_choice, refuse
    from noisycgd.planning import account_noisy_cgd
    from noisycgd.types import Adjacency, Order, ThreatModel

    if learning_rate is None and (l2 > 0 or smoothness is not None):
        refuse(
            "--learning-rate", "given together with --l2 or --smoothness", None, "Only eta * l2 and eta * beta count."
        )
    check_choice("--order", order, [o.value for o in Order])
    found = account_noisy_cgd(
        n_records=records,
        batch_size=batch_size,
        epochs=epochs,
        target=target,
        learning_rate=1.0 if learning_rate is None else learning_rate,
        schedule=schedule,
        l2=l2,
        smoothness=smoothness,
        order=Order(order),
    )
    values: dict[str, Any] = {
        "mechanism": "noisycgd",
        "epsilon": found.epsilon,
        "delta": found.delta,
        "noise_multiplier": found.noise_multiplier,
        "mu_worst": float(found.position_mus.max()),
        "order": order,
        "adjacency": Adjacency.REPLACE_ONE.value,
        "threat_model": ThreatModel.FINAL_MODEL.value,
        "status": found.status.value,
        "method": "shifted interpolation, exact shift program",
        "epsilon_all_iterates": found.composition.epsilon(found.delta),
        "conditions": list(found.conditions),
    }
    if as_json:
        print_json(values)
        return
    print_rows(
        [
            ("epsilon", f"{found.epsilon:.6g} at delta {found.delta:g} ({found.status.value})"),
            ("noise multiplier", f"{found.noise_multiplier:.8g}"),
            ("mu, worst position", f"{values['mu_worst']:.6g}"),
            ("adjacency", values["adjacency"]),
            ("threat model", values["threat_model"]),
            ("order", order),
            ("if every step leaked", f"epsilon {values['epsilon_all_iterates']:.6g}"),
        ]
    )
    for condition in found.conditions:
        typer.echo(f"  provided that {condition}")
