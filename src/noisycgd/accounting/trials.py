"""Laws of the random number K of trials in private selection (THEORY section 4).

The best of K trials has density E[K] Q(y) w(y), where 0 <= w <= 1 depends on Q{better than y} alone. A law states E[K]
and how far w can move between neighbouring data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import exprel

from noisycgd._validation import ParameterTypeError, check_real, message, refuse
from noisycgd.accounting.gaussian import Array
from noisycgd.types import PrivacyProfile

_UP = 1.0 + 2.0**-40
"""Outward rounding, far above the rounding of the formulas below."""


@dataclass(frozen=True)
class PoissonTrials:
    """K ~ Poisson(mean).

    With probability e^-mean no trial runs, and the released model is a fixed, *untrained* one.

    Parameters
    ----------
    mean : float
        Finite and above 0.

    Raises
    ------
    ParameterError, ParameterTypeError
        If `mean` is out of range or no number.
    """

    mean: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", check_real("mean", self.mean, low=0.0, open_low=True))

    def delta_cap(self, total_variation: float) -> float:
        """Probability 1 - E[(1 - tv)^K] that an optimal coupling tells any trial apart: a delta at every epsilon."""
        return -math.expm1(-self.mean * total_variation)

    def shift(self, base: PrivacyProfile) -> float:
        """Bound m delta(0) on log(w / w'): w = exp(-m Q{better}), and Q{better} moves by at most delta(0)."""
        return self.mean * float(base.delta(0.0)) * _UP

    def renyi_shift(self, base: PrivacyProfile, shift: float, excess: Array) -> Array:
        """What of `shift` the a-th moment keeps, at orders a = 1 + `excess`: m delta(e) with e^e = a / (a - 1).

        (a - 1) Q'{better} - a Q{better} <= (a - 1) delta(e) then (Papernot & Steinke 2022, Theorem 6).
        """
        return np.asarray(self.mean * base.delta(np.log1p(1.0 / excess)) * _UP)


@dataclass(frozen=True)
class NegativeBinomialTrials:
    """K from the truncated negative binomial law on 1, 2, ... (Papernot & Steinke 2022, Definition 1).

    P(K = k) is proportional to (1 - stop)^k prod_{l < k} (l + shape) / (l + 1): shape 1 is the geometric law, shape 0
    the logarithmic one. At least one trial always runs.

    Parameters
    ----------
    shape : float
        eta, above -1 and at most 1e6. Smaller is more private and spreads K more widely at the same mean.
    stop : float
        gamma, at least 1e-300 and at most 1; at 1 exactly one trial runs.

    Raises
    ------
    ParameterError, ParameterTypeError
        If a parameter is out of range or no number.
    """

    shape: float
    stop: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _check_shape(self.shape))
        object.__setattr__(self, "stop", check_real("stop", self.stop, low=1e-300, high=1.0))

    @classmethod
    def from_mean(cls, shape: float, mean: float) -> NegativeBinomialTrials:
        """Law of a given shape whose E[K] is `mean` >= 1 within rounding; raises as the class does."""
        shape = _check_shape(shape)
        mean = check_real("mean", mean, low=1.0)
        low, high = -1.0, 0.0
        while _negative_binomial_mean(shape, low) < mean:
            low *= 2.0
            if math.exp(low) < 1e-300:
                refuse("mean", f"reachable with shape {shape:g}", mean, "Lower the mean, or raise the shape.")
        while low < (middle := 0.5 * (low + high)) < high:
            low, high = (middle, high) if _negative_binomial_mean(shape, middle) >= mean else (low, middle)
        return cls(shape, math.exp(low) if mean > 1.0 else 1.0)

    @property
    def mean(self) -> float:
        """E[K]."""
        return _negative_binomial_mean(self.shape, math.log(self.stop))

    def delta_cap(self, total_variation: float) -> float:
        """Probability 1 - E[(1 - tv)^K] that an optimal coupling tells any trial apart: a delta at every epsilon."""
        if self.stop == 1.0:
            return total_variation
        log_stop, gained = math.log(self.stop), math.log1p((1.0 - self.stop) * total_variation / self.stop)
        return float(gained / -log_stop * exprel(-self.shape * gained) / exprel(self.shape * log_stop))

    def shift(self, base: PrivacyProfile) -> float:
        """Bound on the logarithm of w/w', w = (stop / p)^(shape + 1), p = stop + (1 - stop) Q{better}.

        Q'{better} <= min(1, e^e Q{better} + delta(e)) for every e >= 0, so that p'/p is at most the larger of
        1 + (1 - stop) delta(e) / stop and 1 / (stop + (1 - stop)(1 - delta(e)) e^-e). The first falls with e, the
        second rises: they cross at the best e.
        """
        g = self.stop

        def sides(e: float) -> tuple[float, float]:
            d = base.delta(e)
            return math.log1p((1.0 - g) * d / g), -math.log(g + (1.0 - g) * (1.0 - d) * math.exp(-e))

        low, high = 0.0, 1.0
        while (bounds := sides(high))[0] > bounds[1] and high < 1e300:
            low, high = high, 2.0 * high
        for _ in range(60):
            middle = 0.5 * (low + high)
            falling, rising = sides(middle)
            low, high = (middle, high) if falling > rising else (low, middle)
        return (1.0 + self.shape) * max(sides(high)) * _UP

    def renyi_shift(self, base: PrivacyProfile, shift: float, excess: Array) -> Array:
        """The profile's `shift` at every order; never above the constant of Papernot & Steinke 2022, Theorem 2."""
        return np.full_like(excess, shift)


Trials = PoissonTrials | NegativeBinomialTrials


def as_trials(trials: object) -> Trials:
    """Return a law as it is and a number as the mean of a Poisson law; raise ParameterError or ParameterTypeError."""
    if isinstance(trials, PoissonTrials | NegativeBinomialTrials):
        return trials
    try:
        return PoissonTrials(check_real("mean_trials", trials, low=0.0, open_low=True))
    except ParameterTypeError:
        raise ParameterTypeError(
            message("trials", "PoissonTrials, NegativeBinomialTrials or the mean of a Poisson law", trials)
        ) from None


def _check_shape(shape: object) -> float:
    return check_real(
        "shape", shape, low=-1.0, high=1e6, open_low=True, way_out="Large shapes approach Poisson trials."
    )


def _negative_binomial_mean(shape: float, log_stop: float) -> float:
    """E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)), with its limits at eta = 0 and gamma = 1."""
    return float(exprel(log_stop) / exprel(shape * log_stop)) * math.exp(-log_stop)
