"""Mechanisms and settings side by side: what a figure or a table of epsilons shows, computed once for both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noisycgd._validation import check_choice, check_integer, check_real, delta_in_print, rounded_down
from noisycgd.accounting import GaussianProfile, PrivacyProfile, composition_mu, poisson_profile, shuffling_epsilon
from noisycgd.planning import Account, account_noisy_cgd
from noisycgd.schedules import SCHEDULES
from noisycgd.types import EpsilonDelta, NoiseMultiplier, Order

MECHANISMS = ("noisycgd", "noisycgd-given", "noisycgd-linear", "noisycgd-cosine", "dpsgd", "composition")

# A transform per point: DP-SGD's curve is drawn through this many.
POISSON_POINTS = 24


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a comparison: points (x, y), and whose privacy it is."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    threat_model: str
    adjacency: str = "replace-one"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Curves over one axis.

    Attributes
    ----------
    title, x_label, y_label : str
        With units.
    curves : tuple of Curve
    log_y : bool
        Whether the y axis is logarithmic.
    conditions : tuple of str
        What the final-model curves take as true of the runs.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log_y: bool = False
    conditions: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, float | str]]:
        """One row per point: curve, x, y, threat model, adjacency."""
        return [
            {"curve": c.name, "x": x, "y": y, "threat_model": c.threat_model, "adjacency": c.adjacency}
            for c in self.curves
            for x, y in zip(c.x, c.y, strict=True)
        ]


def epsilon_against_epochs(
    *,
    n_records: int,
    batch_size: int,
    noise_multiplier: float,
    delta: float,
    epochs: int,
    mechanisms: Sequence[str] = ("noisycgd", "noisycgd-given", "dpsgd"),
    eta_l2: Sequence[float] = (0.0,),
) -> Comparison:
    """Epsilon of training for 1, 2, ..., `epochs` epochs, for several mechanisms and strengths of l2.

    Parameters
    ----------
    mechanisms : sequence of str
        Of `MECHANISMS`: NoisyCGD permuted once, in the order given (the paper's bound), or with a decaying learning
        rate; DP-SGD with Poisson batches; all steps published. A decaying schedule is another one for each number of
        epochs.
    eta_l2 : sequence of float
        Products of learning rate and l2, a NoisyCGD curve for each (paper, first figure).

    The other parameters are those of `noisycgd.planning.account_noisy_cgd`.

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement.
    """
    E = check_integer("epochs", epochs)
    for name in mechanisms:
        check_choice("mechanism", name, MECHANISMS)
    for product in eta_l2:
        check_real(
            "eta_l2", product, low=0, high=1, way_out="Lower it: beyond 1 a step overshoots the zero that l2 pulls to."
        )
    grid = [int(e) for e in np.unique(np.linspace(1, E, min(E, 400)).round())]
    sparse = [int(e) for e in np.unique(np.geomspace(1, E, min(E, POISSON_POINTS)).round())]

    def hidden(schedule: str, order: Order, product: float, e: int) -> Account:
        return account_noisy_cgd(
            n_records=n_records,
            batch_size=batch_size,
            epochs=e,
            target=NoiseMultiplier(noise_multiplier, delta),
            l2=product,
            schedule=schedule,
            order=order,
        )

    curves = []
    # The same of every account.
    conditions: tuple[str, ...] = ()
    for name in mechanisms:
        if name == "dpsgd":
            ys = [
                poisson_profile(n_records, batch_size, noise_multiplier, epochs=e, delta=delta).epsilon(delta)
                for e in sparse
            ]
            curves.append(Curve("DP-SGD, Poisson batches", tuple(sparse), tuple(ys), "all-iterates"))
        elif name == "composition":
            ys = [GaussianProfile(composition_mu(e, noise_multiplier)).epsilon(delta) for e in grid]
            curves.append(Curve("fixed batches, every step published", tuple(grid), tuple(ys), "all-iterates"))
        else:
            order = Order.GIVEN if name.endswith("given") else Order.PERMUTED
            schedule = name.partition("-")[2] if name.endswith(("linear", "cosine")) else "constant"
            points = grid if schedule == "constant" else sparse
            for product in eta_l2:
                found = [hidden(schedule, order, product, e) for e in points]
                label = f"NoisyCGD, {order}, {schedule}, eta l2 = {product:g}"
                curves.append(Curve(label, tuple(points), tuple(a.epsilon for a in found), "final-model"))
                conditions = found[0].conditions
    run = f"n = {n_records}, batches of {batch_size}, noise multiplier {rounded_down(noise_multiplier)}"
    title = f"{run}, delta = {delta_in_print(delta)}"
    return Comparison(title, "epochs", "epsilon (nats, replace-one)", tuple(curves), conditions=conditions)


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One learning-rate schedule: epsilon at a noise multiplier, and the noise multiplier for an epsilon.

    `conditions` are what both take as true of the run.
    """

    schedule: str
    epsilon: float
    mu_worst: float
    noise_multiplier: float
    conditions: tuple[str, ...]


def compare_schedules(
    *,
    n_records: int,
    batch_size: int,
    epochs: int,
    epsilon: float,
    delta: float,
    learning_rate: float = 1.0,
    l2: float = 0.0,
    schedules: Sequence[str] = SCHEDULES,
) -> tuple[ScheduleRow, ...]:
    """What each schedule costs: epsilon with the noise that the constant one needs, and the noise it needs itself.

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement.
    """

    def account(schedule: str, target: EpsilonDelta | NoiseMultiplier) -> Account:
        return account_noisy_cgd(
            n_records=n_records,
            batch_size=batch_size,
            epochs=epochs,
            target=target,
            learning_rate=learning_rate,
            l2=l2,
            schedule=schedule,
        )

    wanted = EpsilonDelta(epsilon, delta)
    needed = {s: account(s, wanted).noise_multiplier for s in {"constant", *schedules}}
    shared = NoiseMultiplier(needed["constant"], delta)
    return tuple(
        ScheduleRow(s, found.epsilon, float(found.position_mus.max()), needed[s], found.conditions)
        for s, found in ((s, account(s, shared)) for s in schedules)
    )


def shuffling_profiles(*, batches: Sequence[int], noise_multiplier: float, points: int = 25) -> Comparison:
    """Delta against epsilon of one shuffled epoch, beside the plain Gaussian (paper, appendix).

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement.
    """
    deltas = np.geomspace(1e-10, 1e-2, points).tolist()
    nm = check_real("noise_multiplier", noise_multiplier, low=0, open_low=True)
    plain = tuple(GaussianProfile(2 / nm).epsilon(delta) for delta in deltas)
    curves = [Curve("Gaussian, no amplification", plain, tuple(deltas), "all-iterates")]
    for k in batches:
        found = [(shuffling_epsilon(k, nm, delta).shuffling_epsilon, delta) for delta in deltas]
        kept = [(epsilon, delta) for epsilon, delta in found if epsilon < math.inf]
        if kept:
            xs, ys = zip(*kept, strict=True)
            curves.append(Curve(f"shuffled, {k} batches", xs, ys, "all-iterates"))
    title = f"one epoch of shuffled disjoint batches, noise multiplier {rounded_down(nm)}"
    return Comparison(title, "epsilon (nats, replace-one)", "delta (probability)", tuple(curves), log_y=True)


def tradeoff_curve(profile: PrivacyProfile, name: str, threat_model: str) -> Comparison:
    """Least false-negative rate against false-positive rate, with the line of a test that knows nothing."""
    fpr = np.concatenate([[0.0], np.geomspace(1e-6, 1e-2, 60), np.linspace(0.011, 1.0, 120)])
    fnr = np.asarray(profile.tradeoff(fpr))
    nothing = Curve("a test that knows nothing", (0.0, 1.0), (1.0, 0.0), threat_model)
    curve = Curve(name, tuple(fpr.tolist()), tuple(fnr.tolist()), threat_model)
    title = "what a membership test can reach"
    return Comparison(title, "false-positive rate", "least false-negative rate", (curve, nothing))
