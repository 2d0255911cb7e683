"""Privacy of the last iterate of noisy cyclic mini-batch gradient descent, by position of a record's batch.

Everything is normalised by C / b: at a step t that uses the record the shift is 2 eta_t and the noise eta_t nm, so
mu_j = 2 m_j / nm with a multiplier m_j that depends on the schedule alone. Positions j = 1..k are the places of a batch
within an epoch; the last one is the worst of a constant schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from noisycgd._validation import check_choice, check_integer, check_real, refuse
from noisycgd.accounting.gaussian import Array, check_vector
from noisycgd.accounting.profile import GaussianProfile, MixtureProfile
from noisycgd.types import CYCLIC_ORDERS, Order

_INFLATION = 1e-12
"""Relative excess of every multiplier, above the rounding of its formula, so that rounding only ever adds."""


def constant_multipliers(batches_per_epoch: int, epochs: int, eta_l2: float) -> Array:
    """Multiplier of each position for a constant learning rate and contraction |1 - eta l2|.

    Parameters
    ----------
    batches_per_epoch, epochs : int
        k and E, at least 1.
    eta_l2 : float
        Learning rate times l2 coefficient, in [0, 2). The contraction |1 - eta l2| holds for learning rates up to
        2 / (beta + l2) only; use `multipliers` beyond.

    Returns
    -------
    ndarray of shape (k,)
        m_j >= 0 with mu_j = 2 m_j / noise_multiplier, rounded up by a relative 1e-12. The last is the largest.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type.

    Notes
    -----
    THEORY section 1, "any position"; its last entry is the paper's theorem. A position's uses but the last always merge
    into one block of the minorant; the last use joins them or stands alone.
    """
    k = check_integer("batches_per_epoch", batches_per_epoch)
    E = check_integer("epochs", epochs)
    eta_l2 = check_real("eta_l2", eta_l2, low=0.0, high=2.0, open_high=True)
    a = np.arange(k - 1.0, -1.0, -1.0)
    if eta_l2 == 1.0:
        # A contraction of 0 forgets everything before the last step.
        return np.where(a == 0, 1.0 + _INFLATION, 0.0)
    # c = e^-x. The floor selects the limit x -> 0 in every ratio below, exactly to double precision.
    x = max(-(math.log1p(-eta_l2) if eta_l2 < 1 else math.log(eta_l2 - 1.0)), 1e-100)
    last_gap = -np.expm1(-2.0 * x * (a + 1.0))
    square = np.exp(-2.0 * x * a) * -math.expm1(-2.0 * x) / last_gap
    if E > 1:
        gap = -math.expm1(-k * x)
        ratio = -math.expm1(-2.0 * x) / gap
        earlier = math.exp(-x * (2.0 * k - 2.0)) * ratio * (math.tanh(0.5 * x * k * (E - 1.0)) / gap)
        spread = -math.expm1(-x * k * float(E))
        merged = (
            np.exp(-2.0 * x * a) * ratio * (spread / gap) * (spread / -np.expm1(-2.0 * x * (a + k * (E - 1.0) + 1.0)))
        )
        joins = x * (2.0 * a + 2.0 - k) + np.log(last_gap) >= math.log(gap) + math.log1p(math.exp(-x * k * (E - 1.0)))
        square = np.where(joins, merged, earlier + square)
    return np.asarray(np.sqrt(square) * (1.0 + _INFLATION))


def multipliers(
    learning_rates: ArrayLike,
    contractions: ArrayLike,
    batches_per_epoch: int,
    noise_multipliers: ArrayLike | None = None,
    map_error: float = 0.0,
    diameter: float | None = None,
) -> Array:
    """Multiplier of each position for any schedule: the exact solution of program (S).

    Parameters
    ----------
    learning_rates : array_like of shape (T,)
        eta_t >= 0. T need not be a multiple of k.
    contractions : array_like of shape (T,)
        Lipschitz constants c_t >= 0 of the steps; they may exceed 1.
    batches_per_epoch : int
        k; step t (from 0) uses batch t mod k.
    noise_multipliers : array_like of shape (T,), optional
        Positive factors of the common noise multiplier, step by step; default all ones.
    map_error : float, default 0.0
        e_t / s_t >= 0: bound on the error of each computed step, as a share of the shift 2 C eta_t / b of a used
        record. It adds 2 e_t to the shift of *every* step (THEORY section 5), and all positions then cost O(k T).
    diameter : float, optional
        D b / C > 0, where every step ends with a projection on a convex domain of diameter D. The result is the least
        over start steps before which nothing is counted (THEORY section 1), tried at the beginnings of epochs.

    Returns
    -------
    ndarray of shape (k,)
        m_j >= 0 with mu_j = 2 m_j / noise_multiplier, rounded up by a relative 1e-12 + T 2^-52; exactly 0 for a
        position that is never used.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range, of the wrong type, or of another length than `learning_rates`.

    Notes
    -----
    THEORY section 1, program (S) and its solution. O(T) time; all in logarithms, so that no length underflows.
    """
    rates = check_vector("learning_rates", learning_rates)
    T, k = rates.size, check_integer("batches_per_epoch", batches_per_epoch)
    factors = check_vector("contractions", contractions)
    relative = (
        np.ones(T) if noise_multipliers is None else check_vector("noise_multipliers", noise_multipliers, open_low=True)
    )
    for name, vector in (("contractions", factors), ("noise_multipliers", relative)):
        if vector.size != T:
            refuse(name, f"one per learning rate ({T})", vector.size)

    with np.errstate(divide="ignore"):
        log_factors = np.log(factors)
        log_d = np.log(rates)
    # log g_t = log of the product of the later contractions.
    log_d[:-1] += np.cumsum(log_factors[:0:-1])[::-1]
    log_q = 2.0 * (log_d + np.log(relative))

    if check_real("map_error", map_error, low=0.0) > 0.0:
        if diameter is not None:
            refuse("diameter", "None where map_error is given", diameter, "Leave one of the two out.")
        squares = _squares_with_errors(log_d, log_q, math.log(2.0 * map_error), k)
    else:
        log_start = None
        if diameter is not None:
            # The other shifts leave out their factor 2, so this one is halved.
            half = 0.5 * check_real("diameter", diameter, low=0.0, open_low=True)
            log_start = math.log(half) + np.append(np.cumsum(log_factors[::-1])[::-1], 0.0)
        squares = _squares(log_d, log_q, k, log_start)
    return np.asarray(np.sqrt(squares) * (1.0 + _INFLATION + T * 2.0**-52))


def _squares(log_d: Array, log_q: Array, k: int, log_start: Array | None) -> list[float]:
    """Energy of each position; a record's noise between two uses is summed first, so all positions cost O(T).

    `log_start` (T + 1,), of a bounded domain, is the log of the distance at the start of each step, as the end sees it.
    """
    T = log_d.size
    E = -(-T // k)
    d, q = (np.pad(v, (0, E * k - T), constant_values=-np.inf).reshape(E, k) for v in (log_d, log_q))
    # From one use until just before the next: the rest of this epoch and the start of the next one. Sums of the parts,
    # never differences of running sums, which would cancel.
    pooled = np.logaddexp.accumulate(q[:, ::-1], axis=1)[:, ::-1]
    pooled[:-1, 1:] = np.logaddexp(pooled[:-1, 1:], np.logaddexp.accumulate(q[1:], axis=1)[:, :-1])
    squares = [energy(d[:, j].tolist(), pooled[:, j].tolist()) for j in range(k)]
    if log_start is None:
        return squares
    for e in _start_epochs(E):
        heads = np.logaddexp.accumulate(q[e])
        first = float(log_start[e * k])
        for j in range(min(k, T)):
            rest_d, rest_q = d[e:, j].tolist(), pooled[e:, j].tolist()
            if j == 0:
                rest_d[0] = _log_add(rest_d[0], first)
            else:
                rest_d, rest_q = [first, *rest_d], [float(heads[j - 1]), *rest_q]
            squares[j] = min(squares[j], energy(rest_d, rest_q))
    return squares


def _start_epochs(epochs: int) -> list[int]:
    """Epochs to start counting from: all of the last sixteen, then ever farther apart."""
    back, found = 1, []
    while back <= epochs - 1:
        found.append(epochs - back)
        back = max(back + 1, int(back * 1.06))
    return [*found, 0]


def _squares_with_errors(log_d: Array, log_q: Array, log_share: float, k: int) -> list[float]:
    """Energy of each position when every step shifts; nothing can be summed first, so a position costs O(T)."""
    position = np.arange(log_d.size) % k
    shifts = [np.logaddexp(np.where(position == j, log_d, -np.inf), log_share + log_d) for j in range(k)]
    noise = log_q.tolist()
    # A record that is never used changes nothing, errors included.
    return [energy(d.tolist(), noise) if j < log_d.size else 0.0 for j, d in enumerate(shifts)]


def energy(log_d: Sequence[float], log_q: Sequence[float]) -> float:
    """Energy of the greatest convex minorant of the points (sum Q, sum D): the least sum of D^2 / Q over its blocks.

    Parameters
    ----------
    log_d, log_q : sequences of float
        Logarithms of the shifts D and the noise variances Q in order of time; -inf stands for 0, and D > 0 needs Q > 0.

    Returns
    -------
    float
        Minimum of (S); 0 without shifts.

    Notes
    -----
    THEORY section 1: pool adjacent violators, O(len). Plain floats, because blocks merge one at a time.
    """
    blocks: list[tuple[float, float]] = []
    for d, q in zip(log_d, log_q, strict=True):
        if q == -math.inf:
            continue
        while blocks and blocks[-1][0] - blocks[-1][1] >= d - q:
            previous_d, previous_q = blocks.pop()
            d, q = _log_add(previous_d, d), _log_add(previous_q, q)
        blocks.append((d, q))
    return math.fsum(math.exp(2.0 * d - q) for d, q in blocks)


def _log_add(a: float, b: float) -> float:
    high, low = (a, b) if a >= b else (b, a)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def batch_weights(n_records: int, batch_size: int) -> Array:
    """Probability that a uniformly random permutation puts a given record in each batch.

    Parameters
    ----------
    n_records, batch_size : int
        n and b, at least 1; the last of the k = ceil(n / b) batches may be short.

    Returns
    -------
    ndarray of shape (k,)
        |B_j| / n.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is below 1 or no integer.
    """
    n, b = check_integer("n_records", n_records), check_integer("batch_size", batch_size)
    sizes = np.full(-(-n // b), float(min(n, b)))
    sizes[-1] = n - b * (sizes.size - 1)
    return np.asarray(sizes / n)


def hidden_state_profile(
    multipliers: ArrayLike, noise_multiplier: float, order: Order, weights: ArrayLike | None = None
) -> GaussianProfile | MixtureProfile:
    """Privacy profile of the last iterate.

    Parameters
    ----------
    multipliers : array_like of shape (k,)
        m_j of each position, from `constant_multipliers` or `multipliers`.
    noise_multiplier : float
        nm > 0; the raw noise standard deviation of a step is nm C / b.
    order : Order
        `PERMUTED` averages over positions, `GIVEN` takes the worst.
    weights : array_like of shape (k,), optional
        Probability of each position (`batch_weights`); default equal. The given order does not use them.

    Returns
    -------
    MixtureProfile or GaussianProfile

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type.

    Notes
    -----
    THEORY section 1. The average is proved for one uniformly random permutation, independent of the data.
    """
    noise = check_real("noise_multiplier", noise_multiplier, low=0.0, open_low=True)
    mus = 2.0 * check_vector("multipliers", multipliers) / noise
    if check_choice("order", order, [o.value for o in CYCLIC_ORDERS]) == Order.GIVEN:
        return GaussianProfile(float(mus.max()))
    if weights is None:
        weights = np.full(mus.size, 1.0 / mus.size)
    return MixtureProfile(tuple(mus.tolist()), tuple(check_vector("weights", weights).tolist()))


def composition_mu(epochs: int, noise_multiplier: float) -> float:
    """GDP parameter of releasing every iterate: 2 sqrt(E) / nm, rounded up.

    It needs no convexity, smoothness or contraction. At nm = 2 it is the multiplier that `calibrate_noise` takes.

    Raises
    ------
    ParameterError, ParameterTypeError
        If `epochs` is below 1 or `noise_multiplier` is not positive.

    Notes
    -----
    THEORY section 2, "the always valid fallback".
    """
    E = check_integer("epochs", epochs)
    noise = check_real("noise_multiplier", noise_multiplier, low=0.0, open_low=True)
    return 2.0 * (math.sqrt(E) * (1.0 + 2.0**-50)) / noise
