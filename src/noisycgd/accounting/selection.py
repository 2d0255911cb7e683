"""Private selection: the best of a random number of private trials (paper, appendix on tuning; THEORY section 4).

Run a private base mechanism K times, K random and independent of the data, and release only the output with the best
score. Two bounds hold for the release, and the smaller one is reported. With E = E[K], base profile delta, base Renyi
divergence D(a), and shifts s and s(a) that depend on the law of K (`trials`),

    profile:  delta_A(epsilon) <= E delta(epsilon - s)
    Renyi:    delta_A(epsilon) <= E exp((a - 1)(D(a) + s(a) - epsilon)) (1 - 1/a)^(a - 1) / a   for every order a > 1,

and delta_A never exceeds 1 - E[(1 - delta(0))^K], the total variation of releasing all trials. The first two follow
from the release's density E Q(y) w(y), 0 <= w <= 1: s bounds the logarithm of w on one data set over w on a neighbour,
and s(a) what the a-th moment keeps of it. A release with K = 0 has the same probability on all data: it adds
nothing to delta at epsilon >= 0, and no term to the Renyi bound in the form above.

The score belongs to the base mechanism's output: it is private only if the scoring data are public, or if the score is
noised and accounted for in the base profile. Every candidate must meet the same base profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from noisycgd._validation import refuse
from noisycgd.accounting.gaussian import (
    Array,
    check_delta,
    check_epsilon,
    flattened,
    gaussian_mu,
    shaped,
    tradeoff_of_points,
)
from noisycgd.accounting.profile import GaussianProfile, MixtureProfile
from noisycgd.accounting.trials import Trials, as_trials
from noisycgd.types import Adjacency, PrivacyProfile

_UP = 1.0 + 2.0**-40
"""Outward rounding, far above the rounding of the formulas below."""


@dataclass(frozen=True, slots=True)
class SelectionBound:
    """(epsilon, delta) of a selection, and where it comes from.

    Attributes
    ----------
    epsilon, delta : float
        The selection is (epsilon, delta)-DP; epsilon is the smaller of the next two.
    method : {"profile", "renyi"}
        Which bound is the smaller.
    profile_epsilon : float
        By the profile bound.
    renyi_epsilon : float or None
        By the Renyi bound; None where the base's Renyi divergence is not known.
    mean_trials : float
        E[K].
    """

    epsilon: float
    delta: float
    method: Literal["profile", "renyi"]
    profile_epsilon: float
    renyi_epsilon: float | None
    mean_trials: float


@dataclass(frozen=True)
class SelectionProfile:
    """Privacy profile of the best of K trials of a base mechanism.

    Parameters
    ----------
    base : PrivacyProfile
        Of one trial *with its score*; it must bound both directions between neighbours, as every profile here does.
        The Renyi bound is known for `GaussianProfile` and `MixtureProfile`; any other base gets the profile bound.
    trials : PoissonTrials, NegativeBinomialTrials or float
        Law of K; a number is the mean of a Poisson law. With Poisson trials K = 0 has probability e^-mean, and the
        release is then a fixed, *untrained* model.

    Raises
    ------
    ParameterError, ParameterTypeError
        If the mean is out of range or `trials` of the wrong type.

    Notes
    -----
    THEORY section 4. Trials that share one random permutation are not independent draws of a `MixtureProfile`: use the
    worst position's `GaussianProfile` there (THEORY section 1).

    Examples
    --------
    >>> round(SelectionProfile(GaussianProfile(0.347301558), 20).epsilon(1e-5), 3)
    3.781
    """

    base: PrivacyProfile
    trials: Trials | float

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", as_trials(self.trials))

    @cached_property
    def _law(self) -> Trials:
        return as_trials(self.trials)

    @property
    def adjacency(self) -> Adjacency:
        """That of the base."""
        return Adjacency(getattr(self.base, "adjacency", Adjacency.REPLACE_ONE))

    @cached_property
    def _cap(self) -> float:
        return self._law.delta_cap(float(self.base.delta(0.0))) * _UP

    @cached_property
    def _shift(self) -> float:
        return self._law.shift(self.base)

    @cached_property
    def _renyi(self) -> _RenyiBound | None:
        base = self.base
        return _RenyiBound(base, self._law, self._shift) if isinstance(base, GaussianProfile | MixtureProfile) else None

    def delta(self, epsilon: ArrayLike) -> Any:
        """Delta at each epsilon >= 0, rounded up; of the shape of `epsilon`, a float for a scalar.

        Raises ParameterError if an epsilon is negative or not finite.
        """
        shape, flat = flattened("epsilon", epsilon, 0.0, math.inf)
        return shaped(np.array([self._delta(e) for e in flat.tolist()], dtype=np.float64), shape)

    def _delta(self, epsilon: float) -> float:
        by_profile = self._law.mean * _delta_anywhere(self.base, epsilon - self._shift) * _UP
        by_renyi = self._renyi.delta(epsilon) if self._renyi else 1.0
        return min(by_profile, by_renyi, self._cap, 1.0)

    def epsilon(self, delta: float) -> float:
        """Smallest proved epsilon at a delta in (0, 1), rounded up: `self.delta(result) <= delta`.

        Inf if no finite epsilon is proved. Raises ParameterError if `delta` is not strictly between 0 and 1.
        """
        return self.bound(delta).epsilon

    def bound(self, delta: float) -> SelectionBound:
        """`epsilon(delta)`, with the values of both bounds."""
        delta = check_delta(delta)
        by_profile = self._profile_epsilon(delta)
        by_renyi = self._renyi.epsilon(delta) if self._renyi else None
        wins = by_renyi is not None and by_renyi < by_profile
        result, nudge = by_renyi if by_renyi is not None and wins else by_profile, 2.0**-44
        while result < math.inf and self.delta(result) > delta:
            result, nudge = result + nudge * (1.0 + result), 2.0 * nudge
        return SelectionBound(
            epsilon=result,
            delta=delta,
            method="renyi" if wins else "profile",
            profile_epsilon=by_profile if wins else result,
            renyi_epsilon=result if wins else by_renyi,
            mean_trials=self._law.mean,
        )

    def _profile_epsilon(self, delta: float) -> float:
        target = delta / (self._law.mean * _UP * _UP)
        if delta >= self._cap:
            return 0.0
        if target == 0.0:
            return math.inf
        if self.base.delta(0.0) > target:
            return (self._shift + self.base.epsilon(target)) * _UP
        # The base may spend more than its delta(0), so that epsilon lies below the shift.
        if _delta_anywhere(self.base, -self._shift) <= target:
            return 0.0
        low, high = 0.0, self._shift
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (middle, high) if _delta_anywhere(self.base, -middle) <= target else (low, middle)
        return self._shift - low

    def tradeoff(self, fpr: ArrayLike) -> Any:
        """Least false-negative rate of any membership test, rounded down; of the shape of `fpr`, a float for a scalar.

        Every (epsilon, delta) of the profile gives two lines below the trade-off function; this is the largest of many.
        Raises ParameterError if a rate lies outside [0, 1].
        """
        shape, flat = flattened("fpr", fpr, 0.0, 1.0)
        return shaped(tradeoff_of_points(*self._points, flat), shape)

    @cached_property
    def _points(self) -> tuple[Array, Array]:
        # Beyond epsilon = 700 no rate in double precision is informative.
        last = min(self.epsilon(1e-12), 700.0)
        epsilons = last * np.linspace(0.0, 1.0, 129) ** 2
        return epsilons, np.asarray(self.delta(epsilons))


def selection_bound(base: PrivacyProfile, trials: Trials | float, delta: float) -> SelectionBound:
    """Epsilon of releasing the best of K trials; arguments and errors as in `SelectionProfile`.

    With Poisson trials (a number is their mean) the released model is *untrained* with probability e^-mean.
    """
    return SelectionProfile(base, trials).bound(delta)


def calibrate_selection_base(mean_trials: Trials | float, epsilon: float, delta: float) -> float:
    """Largest mu of a mu-GDP trial whose selection is (epsilon, delta)-DP, rounded down.

    Parameters
    ----------
    mean_trials : float, PoissonTrials or NegativeBinomialTrials
        Mean of a Poisson number of trials (K = 0 releases an *untrained* model), or a law.
    epsilon : float
        At least 0.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        mu > 0, within a relative 1e-10 of the largest. `SelectionProfile(GaussianProfile(mu), mean_trials)` satisfies,
        as computed, both `delta(epsilon) <= delta` and `epsilon(delta) <= epsilon`.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type, or if trials are so rare that any base meets the target.
    """
    trials, epsilon, delta = as_trials(mean_trials), check_epsilon(epsilon), check_delta(delta)
    if trials.delta_cap(1.0) * _UP <= delta:
        refuse("delta", "below the probability that any trial runs", delta, "Any base would meet this target.")

    def profile(mu: float) -> SelectionProfile:
        return SelectionProfile(GaussianProfile(mu), trials)

    low = gaussian_mu(epsilon, delta)
    while profile(low).delta(epsilon) > delta:
        low *= 0.5
    high = 2.0 * low
    while profile(high).delta(epsilon) <= delta:
        low, high = high, 2.0 * high
    while high > low * (1.0 + 2.0**-38):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if profile(middle).delta(epsilon) <= delta else (low, middle)
    nudge = 2.0**-44
    while profile(low).delta(epsilon) > delta or profile(low).epsilon(delta) > epsilon:
        low, nudge = low * (1.0 - nudge), 2.0 * nudge
    return low


class _RenyiBound:
    """The Renyi bound, at the best order a = 1 + t; any order is valid, so that an imperfect search is only loose."""

    def __init__(self, base: GaussianProfile | MixtureProfile, law: Trials, shift: float) -> None:
        self._base, self._law, self._shift = base, law, shift
        mu = min(max(base.mu, 1e-6), 1e6)
        self._grid = np.geomspace(1e-4 / (mu + mu * mu), 1e4 * (1.0 / mu + 1.0 / mu**2), 400)
        self._grid_values = self._log_moment(self._grid)

    def _log_moment(self, t: Array) -> Array:
        """M = D(a) + s(a) + log E / t + log(1 - 1/a); then delta_A(epsilon) <= exp(t (M - epsilon)) / a.

        D(a) is a mu^2 / 2 for a Gaussian; a mixture whose index is public has the mixture of the moments.
        """
        mus, weights = self._base.components
        column = t[:, None]
        with np.errstate(over="ignore"):
            exponents = np.minimum(0.5 * column * (1.0 + column) * mus * mus, 1e300)
            divergence = logsumexp(exponents, b=weights, axis=1) / t
        shifted = divergence * _UP + self._law.renyi_shift(self._base, self._shift, t)
        return np.asarray(shifted + math.log(self._law.mean) / t - np.log1p(1.0 / t))

    def _minimum(self, objective: Callable[[Array, Array], Array]) -> float:
        values = objective(self._grid, self._grid_values)
        best = int(np.argmin(values))
        ends = np.log(self._grid[[max(best - 1, 0), min(best + 1, self._grid.size - 1)]])

        def at(log_t: float) -> float:
            t = np.exp(np.array([log_t]))
            return min(float(objective(t, self._log_moment(t))[0]), 1e300)

        refined = minimize_scalar(at, bounds=tuple(ends), method="bounded", options={"xatol": 1e-7})
        return min(float(values[best]), float(refined.fun))

    def delta(self, epsilon: float) -> float:
        def log_delta(t: Array, moment: Array) -> Array:
            rounding = 2.0**-48 * t * (np.abs(moment) + epsilon)
            return np.asarray(t * (moment - epsilon) - np.log1p(t) + rounding)

        return math.exp(min(0.0, self._minimum(log_delta))) * _UP

    def epsilon(self, delta: float) -> float:
        def epsilon(t: Array, moment: Array) -> Array:
            conversion = -(math.log(delta) + np.log1p(t)) / t
            return np.asarray(moment + conversion + 2.0**-40 * (np.abs(moment) + np.abs(conversion)))

        return max(0.0, self._minimum(epsilon))


def _delta_anywhere(profile: PrivacyProfile, epsilon: float) -> float:
    """Evaluate a profile at any epsilon: for a symmetric pair delta(-e) = 1 - e^-e (1 - delta(e))."""
    if epsilon >= 0.0:
        return float(profile.delta(epsilon))
    return -math.expm1(epsilon) + math.exp(epsilon) * float(profile.delta(-epsilon))
