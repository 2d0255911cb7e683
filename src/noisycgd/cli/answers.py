"""What `account` and `calibrate` answer, in one form for every mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisycgd._validation import rounded_down, rounded_up
from noisycgd.cli.output import print_conditions, print_json, print_rows

if TYPE_CHECKING:
    from noisycgd.accounting import NegativeBinomialTrials, PoissonTrials
    from noisycgd.types import Adjacency, Target


def hidden(
    records: int,
    batch_size: int,
    epochs: int,
    target: Target,
    learning_rate: float | None,
    l2: float,
    schedule: str,
    smoothness: float | None,
    order: str,
    diameter: float | None,
    as_json: bool,
) -> None:
    """NoisyCGD and noisy gradient descent, final model released."""
    from noisycgd._validation import check_choice, refuse
    from noisycgd.planning import account_noisy_cgd
    from noisycgd.planning.settings import warn_of_delta
    from noisycgd.types import CYCLIC_ORDERS, Adjacency, Order, ThreatModel

    if learning_rate is None and (l2 > 0 or smoothness is not None or diameter is not None):
        refuse("--learning-rate", "given together with --l2, --smoothness or --diameter", None, "It counts there.")
    check_choice("--order", order, [o.value for o in CYCLIC_ORDERS])
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
        diameter=diameter,
    )
    warn_of_delta(found.delta, records, stacklevel=2)
    show(
        "noisygd" if batch_size == records else "noisycgd",
        {
            "epsilon": found.epsilon,
            "epsilon_lower": None,
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
            "position_mus": found.position_mus.tolist(),
        },
        as_json,
    )


def poisson(
    records: int, batch_size: int, epochs: int, noise: float, delta: float, adjacency: str, as_json: bool
) -> None:
    """DP-SGD with Poisson batches."""
    from noisycgd.accounting import poisson_profile
    from noisycgd.planning.settings import warn_of_delta
    from noisycgd.types import ThreatModel

    kind = adjacency_named(adjacency)
    profile = poisson_profile(records, batch_size, noise, epochs=epochs, adjacency=kind, delta=delta)
    warn_of_delta(delta, records, stacklevel=2)
    show(
        "dpsgd",
        {
            "epsilon": profile.epsilon(delta),
            "epsilon_lower": profile.epsilon_lower(delta),
            "delta": delta,
            "noise_multiplier": noise,
            "adjacency": kind.value,
            "threat_model": ThreatModel.ALL_ITERATES.value,
            "method": "privacy loss distribution of the dominating pair",
            "conditions": ["each batch holds each record independently with probability batch_size / records"],
        },
        as_json,
    )


def selection(mean_trials: float, law: str, mu: float, delta: float, as_json: bool) -> None:
    """The best of several Gaussian trials."""
    from noisycgd.accounting import GaussianProfile, selection_bound
    from noisycgd.types import Adjacency, ThreatModel

    base = GaussianProfile(mu)
    found = selection_bound(base, trials_named(law, mean_trials), delta)
    show(
        "selection",
        {
            "epsilon": found.epsilon,
            "epsilon_lower": None,
            "delta": delta,
            "base_mu": mu,
            "base_epsilon": base.epsilon(delta),
            "mean_trials": mean_trials,
            "trials": law,
            "adjacency": Adjacency.REPLACE_ONE.value,
            "threat_model": ThreatModel.FINAL_MODEL.value,
            "method": found.method,
            "epsilon_profile": found.profile_epsilon,
            "epsilon_renyi": found.renyi_epsilon,
            "conditions": [
                f"each trial is {rounded_down(mu, 8)}-GDP, for NoisyCGD at the worst position of a record",
                "only the best trial leaves; its score is public or part of the trial's own guarantee",
                "every candidate meets the same base guarantee, with fresh randomness in every trial",
            ],
        },
        as_json,
    )


_PERMITTED = ("epsilon_lower", "base_mu", "base_epsilon")
# Shown in full only as JSON.
_LISTS = ("conditions", "position_mus")


def show(mechanism: str, values: dict[str, Any], as_json: bool) -> None:
    """One form for every mechanism: what it costs, for whom, and under which conditions."""
    if as_json:
        print_json({"mechanism": mechanism, **values})
        return
    rows = []
    for name, value in values.items():
        if value is not None and name not in _LISTS:
            # An upper bound stays one in print, and so do a lower one and what is permitted.
            rounded = rounded_down if name in _PERMITTED else rounded_up
            rows.append((name.replace("_", " "), rounded(value, 8) if isinstance(value, float) else str(value)))
    print_rows(rows)
    print_conditions(values["conditions"])


def adjacency_named(name: str) -> Adjacency:
    """The adjacency of that name; ParameterError lists the names."""
    from noisycgd._validation import check_choice
    from noisycgd.types import Adjacency

    return Adjacency(check_choice("--adjacency", name, [a.value for a in Adjacency]))


def trials_named(law: str, mean: float) -> PoissonTrials | NegativeBinomialTrials:
    """The law of that name with a mean; ParameterError lists the names."""
    from noisycgd._validation import check_choice
    from noisycgd.accounting import NegativeBinomialTrials, PoissonTrials

    check_choice("--trials", law, ["poisson", "geometric", "logarithmic"])
    if law == "poisson":
        return PoissonTrials(mean)
    return NegativeBinomialTrials.from_mean(1.0 if law == "geometric" else 0.0, mean)
