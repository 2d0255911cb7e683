"""Plans of a private selection: what each trial must meet so that the best of them meets a target (THEORY section 4).

Every candidate must have the same base guarantee. NoisyCGD at the worst position of a record, full-batch gradient
descent and noisy sums meet exactly mu-GDP, whatever their settings. DP-SGD is no Gaussian mechanism: it is held to the
mu-GDP profile at the epsilons where the selection bound looks, and what these points prove covers both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from noisycgd._validation import check_choice, check_integer, check_real, refuse, rounded_down
from noisycgd.accounting import (
    EnvelopeProfile,
    GaussianProfile,
    MaxProfile,
    NegativeBinomialTrials,
    PoissonTrials,
    SelectionProfile,
    calibrate_poisson,
    calibrate_selection_base,
    constant_multipliers,
    poisson_profile,
)
from noisycgd.accounting.trials import Trials
from noisycgd.planning.settings import check_target
from noisycgd.types import EpsilonDelta

LAWS = ("poisson", "geometric")

_POINTS = 129
"""Points of an envelope: between them delta is overstated by less than a per cent."""


def trials_law(law: str, mean_trials: float) -> Trials:
    """Law of the number of trials: "poisson", where no trial may run, or "geometric", with at least one.

    Raises
    ------
    ParameterError, ParameterTypeError
        If the law is unknown or its mean out of range.
    """
    if check_choice("law", law, LAWS) == "poisson":
        return PoissonTrials(check_real("mean_trials", mean_trials, low=0.0, open_low=True))
    return NegativeBinomialTrials.from_mean(1.0, check_real("mean_trials", mean_trials, low=1.0))


@dataclass(frozen=True, eq=False)
class SelectionPlan:
    """A selection's budget, fixed before it sees a record.

    Attributes
    ----------
    law : str
        "poisson" or "geometric".
    mean_trials : float
        E[K].
    mu : float
        Base guarantee of one trial with its score.
    delta : float
        Where the guarantee is stated.
    sampled : bool
        Whether a candidate may be DP-SGD on Poisson batches.
    """

    law: str
    mean_trials: float
    mu: float
    delta: float
    sampled: bool

    @property
    def trials(self) -> Trials:
        """Law of the number of trials."""
        return trials_law(self.law, self.mean_trials)

    @property
    def base(self) -> GaussianProfile | EnvelopeProfile:
        """Profile of one trial: mu-GDP, or with sampled candidates its points up to the epsilon that the bound needs.

        With an envelope the Renyi bound is not available, and the total epsilon is that of the profile bound.
        """
        gaussian = GaussianProfile(self.mu)
        if not self.sampled:
            return gaussian
        last = gaussian.epsilon(min(self.delta / self.trials.mean * (1.0 - 2.0**-30), 0.5))
        if last == 0.0:
            return EnvelopeProfile(np.zeros(1), np.array([gaussian.delta(0.0)]))
        epsilons = np.linspace(0.0, last, _POINTS)
        return EnvelopeProfile(epsilons, np.minimum.accumulate(gaussian.delta(epsilons)))

    @property
    def profile(self) -> SelectionProfile:
        """Privacy of the released model."""
        return SelectionProfile(self.base, self.trials)

    @property
    def epsilon(self) -> float:
        """Total epsilon."""
        return self.profile.epsilon(self.delta)

    @property
    def base_epsilon(self) -> float:
        """Epsilon of one mu-GDP trial at `delta`."""
        return GaussianProfile(self.mu).epsilon(self.delta)

    def sampled_noise(self, n_records: int, batch_size: int, epochs: int) -> float:
        """Noise multiplier with which DP-SGD on Poisson batches, b < n, meets the base profile at each of its points.

        Raises
        ------
        ParameterError, ParameterTypeError
            If the plan has no room for sampled candidates, a number is out of range, or no noise meets the base.
        """
        if not self.sampled:
            refuse("sampled", "True for a plan with DP-SGD candidates", self.sampled, "Plan with sampled=True.")
        return _sampled_noise(self.mu, self.law, self.mean_trials, self.delta, n_records, batch_size, epochs)


@lru_cache(maxsize=64)
def _sampled_noise(mu: float, law: str, mean: float, delta: float, n: int, b: int, epochs: int) -> float:
    base = SelectionPlan(law, mean, mu, delta, True).base
    assert isinstance(base, EnvelopeProfile)
    target = EpsilonDelta(float(base.epsilons[-1]), float(base.deltas[-1]))
    noise = calibrate_poisson(n, b, target, epochs=epochs)
    # The smallest delta decides, since DP-SGD has the heavier tail; should another point not hold, add noise.
    while (poisson_profile(n, b, noise, epochs=epochs, delta=target.delta).delta(base.epsilons) > base.deltas).any():
        noise *= 1.0 + 2.0**-10
    return noise


def plan_selection(
    *, law: str = "poisson", mean_trials: float = 20, epsilon: float, delta: float, sampled: bool = False
) -> SelectionPlan:
    """From (epsilon, delta) of the selected model to the base guarantee of one trial.

    Parameters
    ----------
    law : {"poisson", "geometric"}
        Law of the number of trials.
    mean_trials : float
        Its mean: above 0, at least 1 if geometric.
    epsilon, delta : float
        Target of the released model.
    sampled : bool
        Leave room for DP-SGD candidates. Their Renyi divergence is not bounded here, so the total rests on the profile
        bound alone, which costs more.

    Returns
    -------
    SelectionPlan
        Its `epsilon`, as computed, is at most the target's.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument breaks its requirement, or trials are so rare that any base meets the target.
    """
    trials = trials_law(law, mean_trials)
    target = check_target(EpsilonDelta(epsilon, delta))
    assert isinstance(target, EpsilonDelta)
    epsilon, delta, mean = target.epsilon, target.delta, float(mean_trials)
    # The profile bound needs a smaller mu than the better of the two bounds.
    mu = calibrate_selection_base(trials, epsilon, delta)
    if not sampled:
        return SelectionPlan(law, mean, mu, delta, False)

    def fits(mu: float) -> bool:
        return SelectionPlan(law, mean, mu, delta, True).epsilon <= epsilon

    low, high = mu, mu
    while not fits(low):
        low, high = 0.5 * low, low
    while high > low * (1.0 + 2.0**-30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return SelectionPlan(law, mean, low, delta, True)


@dataclass(frozen=True)
class EqualBase:
    """NoisyCGD and DP-SGD with one noise multiplier and one base guarantee (paper, appendix on tuning).

    Attributes
    ----------
    contraction : float
        eta l2 of NoisyCGD at a constant learning rate; divide it by a learning rate for that candidate's l2.
    epsilon, delta : float
        Guarantee of both: DP-SGD's epsilon, and at most that of NoisyCGD at the worst position.
    mu : float
        GDP parameter of NoisyCGD.
    profile : MaxProfile
        The worse of both at every epsilon: base profile of a selection among candidates of both kinds.
    """

    contraction: float
    epsilon: float
    delta: float
    mu: float
    profile: MaxProfile


def equal_base_contraction(
    n_records: int, batch_size: int, epochs: int, noise_multiplier: float, delta: float = 1e-5
) -> EqualBase:
    """The least eta l2 with which NoisyCGD has at most DP-SGD's epsilon at the same b, noise and number of steps.

    This is the paper's recipe: candidates for eta then determine their l2 = contraction / eta. It needs l2; a selection
    by `plan_selection` adjusts the noise instead, and needs none.

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement, or if NoisyCGD cannot match: a single step already exceeds DP-SGD's
        epsilon, as when few records are ever sampled.
    """
    n, E = check_integer("n_records", n_records), check_integer("epochs", epochs)
    b = check_integer("batch_size", batch_size, high=n)
    sampled = poisson_profile(n, b, noise_multiplier, epochs=E, delta=delta)
    epsilon = sampled.epsilon(delta)
    k = math.ceil(n / b)

    def profile(contraction: float) -> GaussianProfile:
        return GaussianProfile(2.0 / noise_multiplier * float(constant_multipliers(k, E, contraction).max()))

    def fits(contraction: float) -> bool:
        return profile(contraction).epsilon(delta) <= epsilon

    low, high = 0.0, 1.0
    if fits(low):
        high = low
    elif not fits(high):
        refuse(
            "noise_multiplier",
            f"such that one step of NoisyCGD has at most DP-SGD's epsilon ({rounded_down(epsilon)})",
            noise_multiplier,
            "Raise the number of epochs or the batch size, or equalise the noise with equal_base_noise.",
        )
    while high > low * (1.0 + 2.0**-40) and high > 1e-300:
        middle = math.sqrt(low * high) if low else high * 2.0**-10
        low, high = (low, middle) if fits(middle) else (middle, high)
    found = profile(high)
    return EqualBase(high, epsilon, delta, found.mu, MaxProfile((found, sampled)))


def equal_base_noise(n_records: int, batch_size: int, epochs: int, mu: float, delta: float = 1e-5) -> float:
    """Noise multiplier with which DP-SGD has at most the epsilon, at `delta`, of a mu-GDP run such as NoisyCGD's.

    Parameters
    ----------
    n_records, batch_size, epochs : int
        n, expected batch size b and E of the DP-SGD run.
    mu : float
        GDP parameter of the other run, for NoisyCGD `plan.profile.mu`.
    delta : float
        Where the two epsilons are equal.

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter breaks its requirement, or no noise multiplier meets that epsilon.
    """
    epsilon = GaussianProfile(check_real("mu", mu, low=0.0, open_low=True)).epsilon(delta)
    return calibrate_poisson(n_records, batch_size, EpsilonDelta(epsilon, delta), epochs=epochs)
