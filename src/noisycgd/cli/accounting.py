"""`noisycgd account` and `noisycgd calibrate`: the accountant without a model, one subcommand per mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from noisycgd.cli import answers

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
Schedule = Annotated[str, typer.Option(help="constant, linear, cosine or warmup-stable-decay.")]
Smoothness = Annotated[
    float | None,
    typer.Option(help="Smoothness beta of one record's loss, l2 included; without it the answer is conditional."),
]
OrderOption = Annotated[str, typer.Option(help="permuted (once, at random) or given (worst position).")]
Noise = Annotated[float, typer.Option("--noise-multiplier", help="Noise multiplier nm: raw noise is nm C / b.")]
Epsilon = Annotated[float | None, typer.Option(help="Target epsilon.")]
Mu = Annotated[float | None, typer.Option(help="Target mu at the worst position, instead of epsilon.")]
Diameter = Annotated[float | None, typer.Option(help="Diameter of the convex domain of every step, in units of C/b.")]
AdjacencyOption = Annotated[str, typer.Option(help="replace-one or add-remove.")]
MeanTrials = Annotated[float, typer.Option(help="Mean number of trials.")]
TrialsOption = Annotated[str, typer.Option(help="Law of the number of trials: poisson, geometric or logarithmic.")]
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
    noise_multiplier: Noise,
    delta: Delta = 1e-5,
    learning_rate: LearningRate = None,
    l2: L2 = 0.0,
    schedule: Schedule = "constant",
    smoothness: Smoothness = None,
    order: OrderOption = "permuted",
    diameter: Diameter = None,
    as_json: AsJson = False,
) -> None:
    """Noisy cyclic gradient descent on fixed batches; only the final model is released."""
    from noisycgd.types import NoiseMultiplier

    target = NoiseMultiplier(noise_multiplier, delta)
    answers.hidden(
        records, batch_size, epochs, target, learning_rate, l2, schedule, smoothness, order, diameter, as_json
    )


@account.command("noisygd")
def account_noisygd(
    records: Records,
    epochs: Epochs,
    noise_multiplier: Noise,
    delta: Delta = 1e-5,
    learning_rate: LearningRate = None,
    l2: L2 = 0.0,
    schedule: Schedule = "constant",
    smoothness: Smoothness = None,
    diameter: Diameter = None,
    as_json: AsJson = False,
) -> None:
    """Noisy gradient descent on all records at once; only the final model is released."""
    from noisycgd.types import NoiseMultiplier

    target = NoiseMultiplier(noise_multiplier, delta)
    answers.hidden(
        records, records, epochs, target, learning_rate, l2, schedule, smoothness, "given", diameter, as_json
    )


@calibrate.command("noisycgd")
def calibrate_noisycgd(
    records: Records,
    batch_size: BatchSize,
    epochs: Epochs,
    epsilon: Epsilon = None,
    mu: Mu = None,
    delta: Delta = 1e-5,
    learning_rate: LearningRate = None,
    l2: L2 = 0.0,
    schedule: Schedule = "constant",
    smoothness: Smoothness = None,
    order: OrderOption = "permuted",
    diameter: Diameter = None,
    as_json: AsJson = False,
) -> None:
    """Smallest noise multiplier of NoisyCGD for a target."""
    target = _target(epsilon, mu, delta)
    answers.hidden(
        records, batch_size, epochs, target, learning_rate, l2, schedule, smoothness, order, diameter, as_json
    )


@calibrate.command("noisygd")
def calibrate_noisygd(
    records: Records,
    epochs: Epochs,
    epsilon: Epsilon = None,
    mu: Mu = None,
    delta: Delta = 1e-5,
    learning_rate: LearningRate = None,
    l2: L2 = 0.0,
    schedule: Schedule = "constant",
    smoothness: Smoothness = None,
    diameter: Diameter = None,
    as_json: AsJson = False,
) -> None:
    """Smallest noise multiplier of full-batch noisy gradient descent for a target."""
    target = _target(epsilon, mu, delta)
    answers.hidden(
        records, records, epochs, target, learning_rate, l2, schedule, smoothness, "given", diameter, as_json
    )


@account.command("dpsgd")
def account_dpsgd(
    records: Records,
    batch_size: Annotated[int, typer.Option(help="Expected records per Poisson batch.")],
    epochs: Epochs,
    noise_multiplier: Noise,
    delta: Delta = 1e-5,
    adjacency: AdjacencyOption = "replace-one",
    as_json: AsJson = False,
) -> None:
    """DP-SGD with Poisson batches; every step may be seen."""
    answers.poisson(records, batch_size, epochs, noise_multiplier, delta, adjacency, as_json)


@calibrate.command("dpsgd")
def calibrate_dpsgd(
    records: Records,
    batch_size: Annotated[int, typer.Option(help="Expected records per Poisson batch.")],
    epochs: Epochs,
    epsilon: Annotated[float, typer.Option(help="Target epsilon.")],
    delta: Delta = 1e-5,
    adjacency: AdjacencyOption = "replace-one",
    as_json: AsJson = False,
) -> None:
    """Noise multiplier of DP-SGD with Poisson batches for a target."""
    from noisycgd.accounting import calibrate_poisson
    from noisycgd.types import EpsilonDelta

    target = EpsilonDelta(epsilon, delta)
    nm = calibrate_poisson(records, batch_size, target, epochs=epochs, adjacency=answers.adjacency_named(adjacency))
    answers.poisson(records, batch_size, epochs, nm, delta, adjacency, as_json)


@account.command("selection")
def account_selection(
    mean_trials: MeanTrials,
    base_epsilon: Annotated[float, typer.Option(help="Epsilon of one trial at delta, taken for a Gaussian mechanism.")],
    delta: Delta = 1e-5,
    trials: TrialsOption = "poisson",
    as_json: AsJson = False,
) -> None:
    """Release the best of a random number of trials (private tuning)."""
    from noisycgd.accounting import gaussian_mu

    answers.selection(mean_trials, trials, gaussian_mu(base_epsilon, delta), delta, as_json)


@calibrate.command("selection")
def calibrate_selection(
    mean_trials: MeanTrials,
    epsilon: Annotated[float, typer.Option(help="Target epsilon of the whole selection.")],
    delta: Delta = 1e-5,
    trials: TrialsOption = "poisson",
    as_json: AsJson = False,
) -> None:
    """Largest Gaussian mu of one trial for a target of the whole selection."""
    from noisycgd.accounting import calibrate_selection_base

    mu = calibrate_selection_base(answers.trials_named(trials, mean_trials), epsilon, delta)
    answers.selection(mean_trials, trials, mu, delta, as_json)


@account.command("shuffling")
def account_shuffling(
    batches: Annotated[int, typer.Option(help="Number of disjoint batches of the epoch.")],
    noise_multiplier: Noise,
    delta: Delta = 1e-5,
    as_json: AsJson = False,
) -> None:
    """One epoch over shuffled batches; every step may be seen (Feldman et al. 2021)."""
    from noisycgd.accounting import shuffling_epsilon
    from noisycgd.types import Adjacency, ThreatModel

    found = shuffling_epsilon(batches, noise_multiplier, delta)
    answers.show(
        "shuffling",
        {
            "epsilon": found.epsilon,
            "epsilon_lower": None,
            "delta": delta,
            "noise_multiplier": noise_multiplier,
            "adjacency": Adjacency.REPLACE_ONE.value,
            "threat_model": ThreatModel.ALL_ITERATES.value,
            "method": found.method,
            "epsilon_shuffling": found.shuffling_epsilon,
            "epsilon_gaussian": found.gaussian_epsilon,
            "conditions": ["batches are disjoint, fixed in size and shuffled uniformly; one epoch"],
        },
        as_json,
    )


def _target(epsilon: float | None, mu: float | None, delta: float) -> Target:
    from noisycgd._validation import refuse
    from noisycgd.types import EpsilonDelta, GaussianMu

    if (epsilon is None) == (mu is None):
        refuse("--epsilon", "given, or else --mu, but not both", epsilon)
    return GaussianMu(mu, delta) if epsilon is None else EpsilonDelta(epsilon, delta)  # type: ignore[arg-type]
