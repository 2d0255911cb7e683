"""The privacy profile of one Gaussian shift, and the root finder that ends on the private side.

With u = epsilon / mu - mu / 2 and the Mills ratio M(t) = Phi(-t) / phi(t), a mu-GDP mechanism has (THEORY section 1)

    delta(epsilon) = Phi(-u) - e^epsilon Phi(-u - mu) = phi(u) (M(u) - M(u + mu)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf, erfcx, erfinv, ndtr, ndtri_exp

from noisycgd._validation import ParameterTypeError, check_real, message, refuse

Array = NDArray[np.float64]

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_NODES, _NODE_WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _NODE_WEIGHTS
_SERIES_FROM = 16.0
"""Where 1 - t M(t) has lost eight bits and fourteen terms of its asymptotic series are exact to double precision."""
_SERIES = np.array([(-1.0) ** n * math.prod(range(1, 2 * n + 2, 2)) for n in range(13, -1, -1)])
_LINE_ROUNDING = 2.0**-48
"""Relative, and of a difference of rates absolute."""
_U_LIMIT = 1e150
"""Beyond it u^2 overflows; log delta is then 0 or -inf to double precision."""


def log_delta(mu: ArrayLike, epsilon: ArrayLike) -> Array:
    """Logarithm of the delta of a mu-GDP mechanism, elementwise.

    Parameters
    ----------
    mu : array_like
        GDP parameters in [0, inf].
    epsilon : array_like
        Finite epsilons >= 0; broadcast against `mu`.

    Returns
    -------
    ndarray
        log delta, rounded up: never below the exact value, and above it by at most
        2^-39 + 2^-51 (1 + max(u, 0)) (|u| + mu), which bounds the rounding of u. It is -inf at mu = 0, 0 at mu = inf.

    Notes
    -----
    THEORY section 1. Arguments are not checked: this is the inner loop of every profile.
    """
    return log_delta_terms(np.asarray(mu, dtype=np.float64), np.asarray(epsilon, dtype=np.float64))[0]


def log_delta_terms(mu: Array, epsilon: Array) -> tuple[Array, Array]:
    """(log delta, u) of `log_delta`; from u follow both derivatives of delta.

    d delta / d epsilon = -phi(u) M(u + mu) and d delta / d mu = phi(u).
    """
    mu, epsilon = np.broadcast_arrays(mu, epsilon)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        u = np.where(mu > 0, epsilon / mu - 0.5 * mu, np.inf)
    moderate = np.abs(u) < _U_LIMIT
    if moderate.all():
        return _moderate_log_delta(mu, u), u
    result = np.where(u > 0, -np.inf, 0.0)
    result[moderate] = _moderate_log_delta(mu[moderate], u[moderate])
    return result, u


def log_phi(u: Array) -> Array:
    """Log density of the standard normal distribution."""
    with np.errstate(over="ignore"):
        return np.asarray(-0.5 * u * u - _LOG_SQRT_2PI)


def mills(t: ArrayLike) -> Array:
    """Mills ratio M(t) = Phi(-t) / phi(t), without cancellation."""
    return np.asarray(math.sqrt(0.5 * math.pi) * erfcx(np.asarray(t, dtype=np.float64) / math.sqrt(2.0)))


def _moderate_log_delta(mu: Array, u: Array) -> Array:
    # Close Mills ratios cancel; the integral of -M' between them does not. On [u, 2u] and on intervals of length 1
    # (there u >= -1/2) sixteen nodes integrate it to double precision.
    close = (mu <= 1.0) | (u >= mu)
    if close.all():
        exact = log_phi(u) + _log_mills_difference(mu, u)
    else:
        exact = np.empty_like(u)
        exact[close] = log_phi(u[close]) + _log_mills_difference(mu[close], u[close])
        right = ~close & (u >= 0)
        exact[right] = log_phi(u[right]) + np.log(mills(u[right]) - mills(u[right] + mu[right]))
        left = ~close & (u < 0)
        exact[left] = np.log1p(-ndtr(u[left]) - np.exp(log_phi(u[left])) * mills(u[left] + mu[left]))
    rounding = 2.0**-40 + 2.0**-52 * (1.0 + np.maximum(u, 0.0)) * (np.abs(u) + mu)
    return np.asarray(np.minimum(exact + rounding, 0.0))


def _log_mills_difference(mu: Array, u: Array) -> Array:
    """log(M(u) - M(u + mu)), the integral of J(t) = -M'(t) = 1 - t M(t)."""
    t = u[..., None] + mu[..., None] * _NODES
    integrand = 1.0 - t * mills(t)
    late = t > _SERIES_FROM
    if late.any():
        inverse_square = 1.0 / np.square(t[late])
        integrand[late] = inverse_square * np.polyval(_SERIES, inverse_square)
    # Not the log of the product, which may underflow.
    return np.asarray(np.log(mu) + np.log(integrand @ _NODE_WEIGHTS))


def band(log_target: float) -> float:
    """Width, in log delta, within which `private_root` accepts a point; above the rounding of a logarithm."""
    return 2.0**-47 * (1.0 - log_target)


def private_root(
    evaluate: Callable[[float], tuple[float, float]], private: float, violating: float, log_target: float
) -> float:
    """Point at which a decreasing log delta meets its target, always on the private side.

    Parameters
    ----------
    evaluate : callable
        x > 0 -> (log delta, its derivative).
    private, violating : float
        Bracket with violating < private: log delta is at most `log_target` at the first, above it at the second.
    log_target : float
        Logarithm of the delta to meet.

    Returns
    -------
    float
        x with log_target - 2 band <= log delta(x) <= log_target where floating point has such an x, else the smallest
        x found with log delta(x) <= log_target.

    Notes
    -----
    Newton's method on the probit of delta, which is nearly linear in epsilon and in the noise multiplier; it falls back
    to geometric bisection whenever a step leaves the bracket.
    """
    width = band(log_target)
    aim = -float(ndtri_exp(log_target - width))
    x, nudge = private, 2.0**-50
    for _ in range(500):
        log_value, slope = evaluate(x)
        if log_target - 2.0 * width <= log_value <= log_target:
            return x
        met = log_value <= log_target
        private, violating = (x, violating) if met else (private, x)
        probit = -float(ndtri_exp(log_value))
        probit_slope = -slope * float(mills(probit))
        following = x + (aim - probit) / probit_slope if 0.0 < probit_slope < math.inf else math.nan
        if private - violating <= 2.0**-51 * private:
            return private
        if abs(following - x) <= 2.0**-51 * x:
            # Newton has come to rest outside the band: cross to the other side, or recover from a poor slope.
            following, nudge = x * (1.0 - nudge if met else 1.0 + nudge), 2.0 * nudge
        if not violating < following < private:
            following = math.sqrt(violating) * math.sqrt(private) if violating > 0 else private / 16.0
        x = following
    return private


def smallest_noise(sensitivities: Array, weights: Array, epsilon: float, log_target: float) -> float:
    """Smallest sigma > 0 with log sum_j w_j delta_{a_j / sigma}(epsilon) <= log_target, rounded up.

    `sensitivities` (J,) are the positive a_j, `weights` (J,) are positive and sum to more than the target.
    """
    log_weights = np.log(weights)

    def evaluate(sigma: float) -> tuple[float, float]:
        mus = sensitivities / sigma
        log_terms, u = log_delta_terms(mus, np.asarray(epsilon))
        total = log_sum(log_weights + log_terms)
        return total, -float(np.sum(np.exp(log_weights + log_phi(u) - total) * mus)) / sigma

    # delta <= Phi(-u) and delta(epsilon) <= delta(0) each give a mu that meets the target.
    u = -float(ndtri_exp(log_target))
    root = math.sqrt(u * u + 2.0 * epsilon)
    from_tail = 2.0 * epsilon / (u + root) if u > 0 else root - u
    from_zero = math.sqrt(8.0) * float(erfinv(math.exp(log_target)))
    start = float(sensitivities.max()) / max(from_tail, from_zero) * (1.0 + 2.0**-30)
    return private_root(evaluate, start, 0.0, log_target)


def log_sum(log_terms: Array) -> float:
    """Log of a sum of exponentials; -inf for an empty or vanishing sum."""
    top = float(log_terms.max(initial=-math.inf))
    return top if top == -math.inf else top + math.log(float(np.sum(np.exp(log_terms - top))))


def gaussian_delta_at_zero(mu: ArrayLike) -> Array:
    """Total variation distance of a mu-GDP mechanism, delta(0) = erf(mu / sqrt 8)."""
    return np.asarray(erf(np.asarray(mu, dtype=np.float64) / math.sqrt(8.0)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (epsilon, delta)-DP, rounded down.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        mu > 0 with `exp(log_delta(mu, epsilon)) <= delta`.

    Raises
    ------
    ParameterError
        If an argument is out of range.

    Notes
    -----
    THEORY section 1.
    """
    epsilon, log_target = check_epsilon(epsilon), math.log(check_delta(delta))
    one = np.ones(1)
    mu, nudge = 1.0 / smallest_noise(one, one, epsilon, log_target), 2.0**-50
    # Near a delta of 1 the rounding of `log_delta` asks for a large step.
    while float(log_delta(mu, epsilon)) > log_target:
        mu, nudge = mu * (1.0 - nudge), min(2.0 * nudge, 0.5)
    return mu


def check_epsilon(epsilon: object, *, open_low: bool = False) -> float:
    """Return a target `epsilon` as a float at least (above, if open) 0 that leaves float64 room to calibrate."""
    found = check_real("epsilon", epsilon, low=0.0, open_low=open_low)
    if found > 1e300:
        refuse("epsilon", "a number at most 1e+300", found)
    return found


def check_delta(delta: object) -> float:
    """Return `delta` as a float strictly between 0 and 1, else raise `ParameterError`."""
    return check_real(
        "delta", delta, low=0.0, high=1.0, open_low=True, open_high=True, way_out="Choose one well below 1/n."
    )


def check_vector(name: str, values: ArrayLike, *, low: float = 0.0, open_low: bool = False) -> Array:
    """Return `values` as a non-empty finite float64 vector with entries at least (above, if open) `low`."""
    requirement = f"a non-empty vector of finite numbers {'above' if open_low else 'at least'} {low:g}"
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        refuse(name, requirement, values)
    if vector.ndim != 1 or vector.size == 0:
        refuse(name, requirement, f"shape {vector.shape}")
    wrong = ~np.isfinite(vector) | (vector <= low if open_low else vector < low)
    if wrong.any():
        refuse(name, requirement, f"{vector[wrong][0]} at index {int(np.argmax(wrong))}")
    return vector


def flattened(name: str, values: ArrayLike, low: float, high: float) -> tuple[tuple[int, ...], Array]:
    """Shape and flat float64 copy of `values`, all finite and in [low, high]."""
    requirement = f"numbers at least {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterTypeError(message(name, requirement, values)) from None
    wrong = ~np.isfinite(array) | (array < low) | (array > high)
    if wrong.any():
        refuse(name, requirement, array[wrong][0])
    return array.shape, array.ravel()


def shaped(values: Array, shape: tuple[int, ...]) -> Any:
    """Inverse of `flattened`; a float for a scalar."""
    return values.reshape(shape) if shape else float(values[0])


def tradeoff_of_points(epsilons: Array, deltas: Array, fpr: Array) -> Array:
    """Trade-off function below which no mechanism with delta_j at epsilon_j <= 700 lies, rounded down.

    Parameters
    ----------
    epsilons, deltas : ndarray of shape (J,)
        In both directions between neighbours.
    fpr : ndarray of shape (I,)
        False-positive rates in [0, 1].

    Returns
    -------
    ndarray of shape (I,)
        The largest of the points' lines 1 - delta - e^epsilon fpr and e^-epsilon (1 - delta - fpr), and of 0.
    """
    best = np.zeros_like(fpr)
    # One by one: there may be many rates.
    for ratio, left in zip(np.exp(epsilons).tolist(), (1.0 - deltas - _LINE_ROUNDING).tolist(), strict=True):
        below = left - ratio * (1.0 + _LINE_ROUNDING) * fpr
        above = (left - fpr) / ratio * (1.0 - _LINE_ROUNDING)
        best = np.maximum(best, np.maximum(below, above))
    return np.asarray(np.minimum(best, 1.0 - fpr))
