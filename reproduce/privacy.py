"""Privacy of a run that had stopped after some of its epochs, and of the best of several runs."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noisycgd.accounting import GaussianProfile, MixtureProfile, SelectionProfile, gaussian_mu, poisson_profile
from noisycgd.planning import account_noisy_cgd, auto_batch_size
from noisycgd.schedules import schedule_factors
from noisycgd.types import NoiseMultiplier, Order, PrivacyProfile
from reproduce.runs import Run
from reproduce.training import n_records


class _Steps(NamedTuple):
    """All that the privacy of the first epochs depends on; `schedule` is None for Poisson batches."""

    n: int
    batch_size: int
    noise_multiplier: float
    epoch: int
    epochs: int
    delta: float
    schedule: str | None = None
    eta_l2: float = 0.0
    order: str = "permuted"


def epsilon_at(run: Run, noise_multiplier: float, epoch: int, peak_rate: float | None = None) -> float:
    """Epsilon of the first `epoch` epochs of a run, with its own schedule: only that many steps were made.

    `peak_rate`, its largest learning rate, matters where a run left that to the software and has an l2.
    """
    return _epsilon(_steps(run, noise_multiplier, epoch, run.parameters["delta"], peak_rate))


def profile_at(run: Run, noise_multiplier: float, epoch: int, delta: float) -> PrivacyProfile:
    """Privacy profile of the same, tight at `delta`."""
    return _profile(_steps(run, noise_multiplier, epoch, delta, None))


def _steps(run: Run, noise_multiplier: float, epoch: int, delta: float, peak_rate: float | None) -> _Steps:
    given, n = run.parameters, n_records(run.dataset)
    b = given.get("batch_size", "auto")
    steps = _Steps(n, auto_batch_size(n) if b == "auto" else b, noise_multiplier, epoch, run.epochs, delta)
    if run.estimator == "ReLUNetworkClassifier" or given.get("method") == "dpsgd":
        return steps
    if run.estimator not in ("ConvexReLUClassifier", "LinearClassifier") or given.get("method") == "noisy-gd":
        raise ValueError(f"estimator must train by NoisyCGD or DP-SGD for an epsilon by epoch; got {run.estimator}.")
    l2, rate, schedule = given.get("l2", 0.0), given.get("learning_rate", "auto"), given.get("schedule", "auto")
    rate = peak_rate if rate == "auto" else rate
    if l2 and rate is None:
        raise ValueError("learning_rate must be known where l2 is used; got auto. Set it in methods.toml.")
    return steps._replace(
        schedule="linear" if schedule == "auto" else schedule,
        eta_l2=l2 * rate if l2 else 0.0,
        order=given.get("batch_order", "permuted"),
    )


@functools.cache
def _epsilon(steps: _Steps) -> float:
    return float(_profile(steps).epsilon(steps.delta))


def _profile(steps: _Steps) -> PrivacyProfile:
    n, b, nm = steps.n, steps.batch_size, steps.noise_multiplier
    if steps.schedule is None:
        return poisson_profile(n, b, nm, epochs=steps.epoch, delta=steps.delta)
    schedule: str | NDArray[np.float64] = "constant"
    if steps.schedule != "constant":
        if steps.epoch > steps.epochs:
            raise ValueError(
                f"epoch must be at most {steps.epochs} for a {steps.schedule} schedule; got {steps.epoch}. "
                "A longer run is another one."
            )
        k = -(-n // b)
        schedule = schedule_factors(steps.schedule, k * steps.epochs, steps.epochs)[: k * steps.epoch]
    # With a learning rate of 1, l2 is eta l2; besides, only ratios of rates matter.
    return account_noisy_cgd(
        n_records=n,
        batch_size=b,
        epochs=steps.epoch,
        target=NoiseMultiplier(nm, steps.delta),
        l2=steps.eta_l2,
        schedule=schedule,
        order=Order(steps.order),
    ).profile


def selection_epsilon(base: PrivacyProfile, mean_trials: float, delta: float) -> float:
    """Epsilon of the best of a Poisson number of trials."""
    if isinstance(base, MixtureProfile):
        # Trials share one permutation: only the worst position's bound holds for all of them at once.
        base = GaussianProfile(base.mu)
    return SelectionProfile(base, mean_trials).epsilon(delta)


@functools.cache
def selection_epsilon_of_label(label: float, mean_trials: float, delta: float) -> float:
    """The same for a Gaussian base of that epsilon."""
    return selection_epsilon(GaussianProfile(gaussian_mu(label, delta)), mean_trials, delta)
