"""Distributions of the privacy loss on a grid: rounded up or down, composed, and read as delta or epsilon.

For outputs drawn from P the loss is log(P / Q), and delta(epsilon) = E_P[(1 - e^(epsilon - loss))_+]. A grid holds P's
mass at the losses k h; Q's follows, e^(-k h) times as much. Two roundings keep the order of privacy under composition,
both with an error that is quadratic in h:

* `spread` splits a loss between its two neighbours so that the masses of P and of Q stay what they were ("connect the
  dots", arXiv 2207.04380): the exact pair can be computed from the grid's, so the grid's delta is never too small.
* `merge` joins outputs around each grid loss so that the joint loss is that grid loss or more: the grid's pair can be
  computed from the exact one, so its delta is never too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from noisycgd.accounting.gaussian import Array, log_sum

LossMasses = Callable[[Array], tuple[Array, Array]]
"""Ascending losses (N,), maybe infinite -> logs of the masses of P and of Q (N - 1,) between each and the next."""

TAIL = 9.6
"""Standard deviations beyond which a Gaussian counts as tail: a mass of 4e-22."""
_PARTS = 4
"""Parts of a grid cell that `merge` may send to different neighbours."""
_TRUNCATION = 1e-15
"""Mass of a composed distribution that dp-accounting may cut off."""
_CUT = 1e-18
"""Mass cut off at either end of a composed grid, on the safe side."""
_NEGLIGIBLE = 1e-200
_OVERFLOW = 700.0
"""Largest exponent in double precision, about."""
_TILT = 4.5
"""Log of what the tilted distribution takes from its original centre; for a Gaussian a shift by three deviations."""


@dataclass(frozen=True, eq=False)
class LossGrid:
    """P's masses at the losses (first + k) * interval.

    Attributes
    ----------
    interval : float
        Grid interval h > 0.
    first : int
        Index of the lowest loss.
    masses : ndarray of shape (N,)
        At least 0. What they and `infinity` lack to 1 has loss -inf.
    infinity : float
        Mass of loss +inf.
    pessimistic : bool
        Whether losses were rounded up.
    """

    interval: float
    first: int
    masses: Array
    infinity: float
    pessimistic: bool

    @cached_property
    def losses(self) -> Array:
        """(N,), ascending."""
        return np.asarray((self.first + np.arange(self.masses.size)) * self.interval)

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """At each loss l_k: delta(l_k), and G_k = sum over j >= k of masses_j e^(l_k - l_j). Sums of positive terms."""
        from scipy.signal import lfilter

        h = self.interval
        G = lfilter([1.0], [1.0, -math.exp(-h)], self.masses[::-1])[::-1]
        steps = np.append(G[1:], 0.0) * -math.expm1(-h)
        return self.infinity + np.cumsum(steps[::-1])[::-1], G

    def delta(self, epsilon: Array) -> Array:
        """Hockey-stick divergence at each epsilon (any real number), elementwise and exact for the grid."""
        deltas, G = self._tails
        above = np.searchsorted(self.losses, epsilon, side="right")
        node = np.minimum(above, self.masses.size - 1)
        gap = np.minimum(epsilon - self.losses[node], 0.0)
        return np.asarray(np.where(above == self.masses.size, self.infinity, deltas[node] - G[node] * np.expm1(gap)))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with a divergence of at most `delta`; inf if there is none."""
        if self.infinity > delta:
            return math.inf
        deltas, G = self._tails
        # deltas descend, and the last equals `infinity`.
        node = int(np.searchsorted(-deltas, -delta))
        share = (delta - float(deltas[node])) / float(G[node]) if G[node] > 0 else 1.0
        return max(0.0, float(self.losses[node]) + math.log1p(-share)) if share < 1.0 else 0.0

    @cached_property
    def curve(self) -> tuple[Array, Array]:
        """Corners (fpr, fnr) of the trade-off function of P against Q, by ascending fpr from 0 to 1."""
        with np.errstate(divide="ignore", over="ignore"):
            q = np.exp(np.log(self.masses) - self.losses)
        fpr = np.minimum(np.cumsum(q[::-1]), 1.0)
        found = self.infinity + np.cumsum(self.masses[::-1])
        return np.r_[0.0, fpr, 1.0], np.clip(1.0 - np.r_[self.infinity, found, 1.0], 0.0, 1.0)

    @property
    def deviation(self) -> float:
        """Standard deviation of the finite losses."""
        return self.interval * _moments(self.masses)[1]

    def regrid(self, interval: float) -> LossGrid:
        """The same distribution on another interval, rounded the same way."""
        if interval == self.interval:
            return self
        used = self.masses > 0
        rounding = spread if self.pessimistic else merge
        grid = rounding(self.losses[used] / interval, self.masses[used], interval)
        return replace(grid, infinity=self.infinity)

    def compose(self, other: LossGrid) -> LossGrid:
        """Sum of two independent losses on the same interval."""
        from scipy.signal import fftconvolve

        def transform(masses: Sequence[Array]) -> tuple[int, Any]:
            return 0, fftconvolve(*masses)

        return _combine([(self, 1), (other, 1)], transform)

    def power(self, times: int) -> LossGrid:
        """Sum of `times` independent losses, by dp-accounting's transform."""
        from dp_accounting.pld import common

        def transform(masses: Sequence[Array]) -> tuple[int, Any]:
            # Its tail bounds divide by masses.
            masses_or_zero = np.where(masses[0] < _NEGLIGIBLE, 0.0, masses[0])
            return common.self_convolve(masses_or_zero, times, _TRUNCATION)  # type: ignore[no-any-return]

        return self if times == 1 else _combine([(self, times)], transform)


def _combine(parts: list[tuple[LossGrid, int]], transform: Callable[[Sequence[Array]], tuple[int, Any]]) -> LossGrid:
    """Sum of independent losses, with relative precision in the upper tail.

    A Fourier transform errs by a fraction of the largest mass, more than the whole tail at small delta. So the upper
    half is computed from masses tilted by e^(theta k), which moves the tail to the centre, and tilted back.
    """
    from scipy.optimize import brentq

    moments = [_moments(grid.masses) for grid, _ in parts]
    centre = sum(count * mean for (_, count), (mean, _) in zip(parts, moments, strict=True))
    deviation = math.sqrt(sum(count * std**2 for (_, count), (_, std) in zip(parts, moments, strict=True)))
    with np.errstate(divide="ignore"):
        logs = [np.log(grid.masses) for grid, _ in parts]
    indices = [np.arange(grid.masses.size) for grid, _ in parts]

    def log_moments(theta: float) -> list[float]:
        return [log_sum(log + theta * k) for log, k in zip(logs, indices, strict=True)]

    def log_moment(theta: float) -> float:
        return sum(count * value for (_, count), value in zip(parts, log_moments(theta), strict=True))

    def excess(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return log_moment(theta) - log_moment(0.0) - theta * centre - _TILT

    theta = 0.0
    if deviation > 0:
        # At `low` the tilt changes no log mass by more than 1e-3.
        low = math.log(1e-3 / sum(count * grid.masses.size for grid, count in parts))
        high = math.log(30.0 / deviation)
        theta = math.exp(brentq(excess, low, high, xtol=1e-2) if excess(high) > 0 else high)
    norms = log_moments(theta)
    start, plain = transform([grid.masses for grid, _ in parts])
    offset, tilted = transform([np.exp(log + theta * k - n) for log, k, n in zip(logs, indices, norms, strict=True)])
    untilt = log_moment(theta) - theta * (offset + np.arange(len(tilted)))
    split = min(max(math.ceil(centre), start, offset), start + len(plain), offset + len(tilted) - 1)
    with np.errstate(divide="ignore", over="ignore"):
        upper = np.exp(np.log(np.maximum(tilted, 0.0)) + untilt)[split - offset :]
    total = np.concatenate([np.maximum(plain, 0.0)[: split - start], upper])
    cut_off = _TRUNCATION * math.exp(min(float(untilt[-1]), 0.0))
    infinity = -math.expm1(sum(count * math.log1p(-min(grid.infinity, 1.0 - 2**-53)) for grid, count in parts))
    grid = parts[0][0]
    first = sum(count * g.first for g, count in parts) + start
    if not grid.pessimistic:
        return _trimmed(LossGrid(grid.interval, first, total, 0.0, False))
    total[0] += max(0.0, 1.0 - infinity - float(np.sum(total)))
    return _trimmed(LossGrid(grid.interval, first, total, min(infinity + cut_off, 1.0), True))


def _trimmed(grid: LossGrid) -> LossGrid:
    """Cut `_CUT` of the mass off either end; what is cut is rounded the grid's way."""
    low = int(np.searchsorted(np.cumsum(grid.masses), _CUT))
    high = grid.masses.size - int(np.searchsorted(np.cumsum(grid.masses[::-1]), _CUT))
    low, high = min(low, grid.masses.size - 1), max(high, low + 1, 1)
    masses = grid.masses[low:high].copy()
    below, above = float(np.sum(grid.masses[:low])), float(np.sum(grid.masses[high:]))
    if grid.pessimistic:
        masses[0] += below
        return LossGrid(grid.interval, grid.first + low, masses, min(grid.infinity + above, 1.0), True)
    masses[-1] += above
    return LossGrid(grid.interval, grid.first + low, masses, 0.0, False)


def _moments(masses: Array) -> tuple[float, float]:
    """Mean and standard deviation of the index."""
    weights = masses / np.sum(masses)
    mean = float(np.arange(masses.size) @ weights)
    return mean, math.sqrt(float(np.square(np.arange(masses.size) - mean) @ weights))


def spread(losses: Array, masses: Array, interval: float) -> LossGrid:
    """Round up: split each loss (in units of `interval`) between its neighbours, keeping the masses of P and of Q."""
    below = np.floor(losses).astype(np.int64)
    first = int(below.min())
    share = np.clip(np.expm1((below - losses) * interval) / math.expm1(-interval), 0.0, 1.0)
    size = int(below.max()) - first + 2
    total = _sums(below - first, (1.0 - share) * masses, size) + _sums(below - first + 1, share * masses, size)
    return LossGrid(interval, first, total, 0.0, True)


def merge(losses: Array, masses: Array, interval: float) -> LossGrid:
    """Round down: join outputs (losses in units of `interval`) so that none gains by it and little is lost.

    Each output goes to its two neighbours at random, by linear interpolation between knots. Knots at the grid losses
    themselves would miss them slightly where the density has a slope; moving each knot by the miss corrects that. Where
    a grid loss still is not reached, the outputs that hold it back go to the grid loss below their own instead.
    """
    below = np.floor(losses).astype(np.int64)
    first, size = int(below.min()), int(below.max()) - int(below.min()) + 2
    position = losses - first
    knots: Array = np.arange(size, dtype=np.float64)
    for _ in range(3):
        left = np.clip(np.searchsorted(knots, position, side="right") - 1, 0, size - 2)
        share = np.clip((position - knots[left]) / (knots[left + 1] - knots[left]), 0.0, 1.0)
        nodes, atoms = np.concatenate([left, left + 1]), np.tile(np.arange(position.size), 2)
        weights = np.concatenate([1.0 - share, share]) * masses[atoms]
        # P's mass minus e^loss times Q's, for the loss of the node: at least 0 in sum once the node is reached.
        excess = -weights * np.expm1(np.minimum((nodes - position[atoms]) * interval, _OVERFLOW))
        gain = _sums(nodes, np.maximum(excess, 0.0), size)
        need = _sums(nodes, np.maximum(-excess, 0.0), size)
        mass = _sums(nodes, weights, size)
        miss = (gain - need) / np.where(mass > 0, mass, 1.0) / interval
        knots = np.asarray(np.arange(size) + np.clip(knots - np.arange(size) - miss, -0.4, 0.4), dtype=np.float64)
    met = np.divide(gain, need, out=np.ones(size), where=need > gain)
    kept = np.where(excess < 0, met[nodes], 1.0)
    total = _sums(nodes, kept * weights, size) + _sums(below[atoms] - first, (1.0 - kept) * weights, size)
    return LossGrid(interval, first, total, 0.0, False)


def _sums(nodes: NDArray[np.int64], weights: Array, size: int) -> Array:
    """Total weight of each node 0 .. size - 1."""
    return np.asarray(np.bincount(nodes, weights, size), dtype=np.float64)


def discretise(log_masses: LossMasses, low: float, high: float, interval: float) -> tuple[LossGrid, LossGrid]:
    """Round a continuous pair up and down.

    Parameters
    ----------
    log_masses : callable
        Log masses of P and Q between losses.
    low, high : float
        Range to resolve; P's mass above it counts as infinite, or as `high`, below it as `low`, or as -inf.
    interval : float
        h > 0.

    Returns
    -------
    upper, lower : LossGrid
        Never below, never above the pair in delta.
    """
    # A cell more on either side: losses at the ends may differ from `low` and `high` by rounding alone.
    bottom, top = math.floor(low / interval) - 1, math.ceil(high / interval) + 1
    nodes = bottom + np.arange((top - bottom) * _PARTS + 1) / _PARTS
    log_p, log_q = log_masses(np.r_[-np.inf, nodes * interval, np.inf])
    p = np.exp(log_p)
    used = np.flatnonzero(p[1:-1])
    inner, ratio = p[1 + used], log_p[1 + used] - log_q[1 + used]
    # Rounding must not move a part's loss out of the part, nor into the next cell.
    losses = np.clip(ratio / interval, nodes[used], nodes[used + 1] - 2.0**-40)
    upper, lower = spread(losses, inner, interval), merge(losses, inner, interval)
    raised, lowered = upper.masses.copy(), lower.masses.copy()
    raised[0] += p[0]
    lowered[-1] += p[-1]
    return replace(upper, masses=raised, infinity=float(p[-1])), replace(lower, masses=lowered)


def log_normal_masses(points: Array) -> Array:
    """Log of the standard normal mass between consecutive ascending points, precise in both tails; -inf if empty."""
    # Mirror what lies to the right of 0, so that differences are taken of small numbers.
    right = points[:-1] > 0
    near = log_ndtr(np.where(right, -points[:-1], points[1:]))
    far = log_ndtr(np.where(right, -points[1:], points[:-1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(near > far, near + np.log(-np.expm1(far - near)), -np.inf))
