"""Amplification by shuffling, for comparison (Feldman, McMillan & Talwar 2021, Theorem 3.8; THEORY section 4).

One epoch of noisy gradient steps over n disjoint batches in random order, *all iterates visible*: one slot per batch,
and a batch's noisy gradient is a local randomiser with Gaussian parameter mu0 = 2 / nm under replace-one. With

    C ~ Bin(n - 1, e^-e0),  A ~ Bin(C, 1/2),  D ~ Bern(e^e0 / (e^e0 + 1)),

the epoch's delta at epsilon is at most H_{e^epsilon}((A + D, C - A + 1 - D) || (A + 1 - D, C - A + D)) plus the slack
(e^epsilon + 1)(1 + e^-e0 / 2) n delta0(e0), for every e0. Without any amplification the epoch is mu0-GDP.

Only the clone probability e^-e0 of 2021 is offered. The larger 2 / (e^e0 + 1) of the sequel (Feldman, McMillan & Talwar
2023) holds, by that paper's own erratum (arXiv 2208.04591), for a special class of randomisers only, and the Gaussian
is not known to be one: its numbers would be unproven.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize_scalar

from noisycgd._validation import check_integer, check_real
from noisycgd.accounting.gaussian import Array, check_delta
from noisycgd.accounting.profile import GaussianProfile

_UP, _DOWN = 1.0 + 2.0**-30, 1.0 - 2.0**-30
"""Outward rounding, above the error of SciPy's binomial probabilities."""
_TRUNCATED = 1e-9
"""Share of delta that may go to values of C that are left out."""
_LARGEST_LOCAL = 700.0
"""Local epsilon beyond which e^e0 overflows; clones are then so rare that nothing is amplified."""


@dataclass(frozen=True, slots=True)
class ShufflingBound:
    """(epsilon, delta) of one shuffled epoch, and where it comes from.

    Attributes
    ----------
    epsilon, delta : float
        The epoch is (epsilon, delta)-DP under replace-one; epsilon is the smaller of the next two.
    method : {"shuffling", "gaussian"}
        Which is the smaller.
    shuffling_epsilon : float
        With amplification; inf where the theorem gives nothing.
    gaussian_epsilon : float
        Without: a record is used once, so that the epoch is 2/nm-GDP.
    local_epsilon : float
        e0 of the amplification bound; nan where that is inf.
    batches : int
        n.
    noise_multiplier : float
        nm.
    """

    epsilon: float
    delta: float
    method: Literal["shuffling", "gaussian"]
    shuffling_epsilon: float
    gaussian_epsilon: float
    local_epsilon: float
    batches: int
    noise_multiplier: float


def shuffling_epsilon(batches: int, noise_multiplier: float, delta: float) -> ShufflingBound:
    """Epsilon of one epoch over shuffled disjoint batches, all iterates visible, under replace-one.

    Parameters
    ----------
    batches : int
        Number n of batches in the epoch, at least 1.
    noise_multiplier : float
        nm > 0; the raw noise standard deviation of a step is nm C / b.
    delta : float
        In (0, 1).

    Returns
    -------
    ShufflingBound
        With amplification, minimised over e0, and without; both rounded up.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type.

    Notes
    -----
    Several epochs are not covered: the bound is that of a single pass.

    Examples
    --------
    >>> bound = shuffling_epsilon(1000, 5.0, 1e-5)
    >>> bound.method, round(bound.shuffling_epsilon, 2), round(bound.gaussian_epsilon, 2)
    ('shuffling', 0.61, 1.55)
    """
    n = check_integer("batches", batches)
    nm = check_real("noise_multiplier", noise_multiplier, low=0.0, open_low=True)
    delta = check_delta(delta)
    local = GaussianProfile(2.0 / nm)
    plain = local.epsilon(delta)

    def amplified(log_depth: float) -> tuple[float, float]:
        # At epsilon = 0 the slack takes about e^-depth of delta. The best depth is of order 1; far deeper ones give
        # epsilon close to e0, which may be all there is.
        local_delta = delta * math.exp(-math.exp(log_depth)) / (2.0 * n)
        e0 = local.epsilon(local_delta) if local_delta > 0.0 else math.inf
        return _amplified_epsilon(n, e0, local, delta), e0

    depths = np.log(np.geomspace(0.01, 100.0, 25))
    coarse = [amplified(d) for d in depths]
    best = min(range(len(coarse)), key=lambda i: coarse[i][0])
    value, e0 = coarse[best]
    if value < math.inf:
        ends = (depths[max(best - 1, 0)], depths[min(best + 1, depths.size - 1)])
        refined = minimize_scalar(
            lambda d: min(amplified(d)[0], 1e300), bounds=ends, method="bounded", options={"xatol": 1e-4}
        )
        value, e0 = min((value, e0), amplified(float(refined.x)))
    wins = value < plain
    return ShufflingBound(
        epsilon=value if wins else plain,
        delta=delta,
        method="shuffling" if wins else "gaussian",
        shuffling_epsilon=value,
        gaussian_epsilon=plain,
        local_epsilon=e0 if value < math.inf else math.nan,
        batches=n,
        noise_multiplier=nm,
    )


def _amplified_epsilon(n: int, e0: float, local: GaussianProfile, delta: float) -> float:
    """Smallest epsilon in [0, e0] at which the bound meets delta, rounded up; inf if there is none.

    As a function of e^epsilon the bound is convex (a hockey-stick divergence plus a line), though not monotone: it
    meets delta on an interval. A point that misses delta lies left of it if the slope there is negative, else right.
    Newton's method on the logarithm is kept inside that bracket.
    """
    if e0 > _LARGEST_LOCAL:
        return math.inf
    slack = (1.0 + 0.5 * math.exp(-e0)) * n * float(local.delta(e0))
    counts, weights, missing = _clone_counts(n, e0, delta)
    log_aim = math.log(delta) - 1e-10
    low, high, epsilon, met = 0.0, e0, 0.0, False
    for _ in range(200):
        c = math.exp(epsilon)
        value, slope = _divergence(counts, weights, e0, c)
        value, slope = value + missing + (c + 1.0) * slack, slope + slack
        if value <= delta:
            high, met = epsilon, True
            if epsilon == 0.0 or math.log(value) >= log_aim - 1e-10:
                break
        elif slope < 0.0:
            low = epsilon
        else:
            high = epsilon
        if high - low <= 1e-12 * high:
            break
        epsilon += (math.log(value) - log_aim) * value / (-slope * c) if slope < 0.0 else math.nan
        if not low < epsilon < high:
            epsilon = 0.5 * (low + high)
    return high if met else math.inf


def _clone_counts(n: int, e0: float, delta: float) -> tuple[Array, Array, float]:
    """Values of C (K,), their probabilities (K,), and a bound on the probability of the values left out."""
    from scipy.stats import binom

    law = binom(n - 1, math.exp(-e0))
    tail = 0.5 * _TRUNCATED * delta
    first = _first(lambda k: law.cdf(k) > tail, n - 1)
    last = _first(lambda k: law.sf(k) <= tail, n - 1)
    counts = np.arange(first, last + 1, dtype=np.float64)
    missing = float(law.cdf(first - 1) + law.sf(last)) * _UP
    return counts, np.asarray(law.pmf(counts)) * _UP, missing


def _first(holds: Callable[[int], bool], largest: int) -> int:
    """Smallest integer in [0, largest] from which `holds` is true; SciPy's own inverses fail for tiny tails."""
    low, high = -1, largest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _divergence(counts: Array, weights: Array, e0: float, c: float) -> tuple[float, float]:
    """Hockey-stick divergence at c = e^epsilon in [1, e^e0), rounded up, and a subgradient in c.

    Given C, let b and S be the probability and survival functions of Bin(C, 1/2) and x = A + D the first coordinate.
    P(x) and Q(x) are b(x - 1) and b(x), weighted p : 1 - p and 1 - p : p with p = e^e0 / (e^e0 + 1). P > c Q from

        k = floor((C + 1) (c e^e0 - 1) / ((e^e0 - 1)(1 + c))) + 1   on, where

        sum (P - c Q) = (1 - c e^-e0) / (1 + e^-e0) b(k - 1) - (c - 1) S(k)   with S(k) = Pr[Bin >= k],
        sum Q = S(k) + b(k - 1) e^-e0 / (1 + e^-e0).
    """
    from scipy.stats import binom  # slow to import, and nothing else of this room needs it

    clone = math.exp(-e0)
    k = np.floor((counts + 1.0) * (c - clone) / (-math.expm1(-e0) * (1.0 + c))) + 1.0
    edge = binom.pmf(k - 1.0, counts, 0.5)
    beyond = binom.sf(k - 1.0, counts, 0.5)
    # Rounding may move k by one, to where P - c Q vanishes to rounding as well.
    terms = (1.0 - c * clone) / (1.0 + clone) * edge * _UP - (c - 1.0) * beyond * _DOWN
    slope = -float(weights @ (beyond + edge * clone / (1.0 + clone)))
    return float(weights @ np.maximum(terms, 0.0)), slope
