"""Privacy profiles: one Gaussian, or a weighted mixture of Gaussians whose index is public."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, ndtri_exp

from noisycgd._validation import check_integer, check_real, refuse
from noisycgd.accounting.adjacency import check_adjacency, check_convertible
from noisycgd.accounting.gaussian import (
    Array,
    check_delta,
    check_vector,
    flattened,
    gaussian_delta_at_zero,
    log_delta,
    log_delta_terms,
    log_phi,
    log_sum,
    mills,
    private_root,
    shaped,
)
from noisycgd.types import Adjacency

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from noisycgd.accounting.pld import PLDProfile

_CHUNK = 1024
"""Arguments evaluated at once, so that memory stays proportional to the number of components."""


class _Profile(abc.ABC):
    """Profile of a mixture with public index; a single Gaussian is the mixture of one."""

    adjacency: Adjacency

    @property
    @abc.abstractmethod
    def components(self) -> tuple[Array, Array]:
        """Distinct mus (J,), ascending, and their positive weights (J,), which sum to 1."""

    def delta(self, epsilon: ArrayLike) -> Any:
        """Smallest proved delta at each epsilon, rounded up.

        Parameters
        ----------
        epsilon : float or array_like
            Finite numbers >= 0.

        Returns
        -------
        float or ndarray
            In [0, 1], of the shape of `epsilon`; a float for a scalar. Values below the smallest positive double are 0.

        Raises
        ------
        ParameterError
            If an epsilon is negative or not finite.
        """
        shape, flat = flattened("epsilon", epsilon, 0.0, math.inf)
        mus, weights = self.components
        values = np.empty_like(flat)
        for start in range(0, flat.size, _CHUNK):
            piece = slice(start, start + _CHUNK)
            values[piece] = np.exp(log_delta(mus, flat[piece, None])) @ weights
        # Nearly equal to delta, never above 1: the weights sum to 1 only up to rounding.
        return shaped(np.minimum(values, 1.0), shape)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with `self.delta(epsilon) <= delta`, rounded up.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            Always satisfies `self.delta(result) <= delta`; exactly 0.0 where `self.delta(0) <= delta`, and inf where
            epsilon exceeds floating point.

        Raises
        ------
        ParameterError
            If `delta` is not strictly between 0 and 1.
        """
        delta = check_delta(delta)
        mus, weights = self.components
        if gaussian_delta_at_zero(mus) @ weights <= delta * (1.0 + 2.0**-20) and self.delta(0.0) <= delta:
            return 0.0
        informative = mus > 0
        mus, log_weights = mus[informative], np.log(weights[informative])
        log_target = math.log(delta)

        def evaluate(epsilon: float) -> tuple[float, float]:
            log_terms, u = log_delta_terms(mus, np.asarray(epsilon))
            total = log_sum(log_weights + log_terms)
            return total, -float(np.sum(np.exp(log_weights + log_phi(u) - total) * mills(u + mus)))

        # delta <= Phi(-u) for the largest mu, hence for the mixture.
        worst = float(mus[-1])
        start = worst * (0.5 * worst - float(ndtri_exp(log_target))) * (1.0 + 2.0**-30)
        if start == math.inf:
            return math.inf
        result, nudge = private_root(evaluate, start, 0.0, log_target), 2.0**-50
        while self.delta(result) > delta:
            result, nudge = result * (1.0 + nudge), 2.0 * nudge
        return result

    def tradeoff(self, fpr: ArrayLike) -> Any:
        """Least false-negative rate of any membership test, rounded down.

        Parameters
        ----------
        fpr : float or array_like
            False-positive rates in [0, 1].

        Returns
        -------
        float or ndarray
            Of the shape of `fpr`; a float for a scalar. Exactly 1 at 0, 0 at 1, and 1 - fpr at mu = 0.

        Raises
        ------
        ParameterError
            If a rate lies outside [0, 1] or is not finite.

        Notes
        -----
        Neyman-Pearson: the tests that reject above one threshold tau on the log-likelihood ratio, common to all
        components, are optimal. Component j has false-positive rate Phi(-tau/mu_j - mu_j/2) and false-negative rate
        Phi(tau/mu_j - mu_j/2).
        """
        shape, flat = flattened("fpr", fpr, 0.0, 1.0)
        if self.components[0][-1] == 0.0:
            return shaped(1.0 - flat, shape)
        values = np.where(flat == 0.0, 1.0, 0.0)
        inner = np.flatnonzero((flat > 0.0) & (flat < 1.0))
        for start in range(0, inner.size, _CHUNK):
            piece = inner[start : start + _CHUNK]
            values[piece] = self._tradeoff_inside(flat[piece])
        return shaped(values, shape)

    def group(self, size: int) -> GaussianProfile:
        """Profile for `size` changed records instead of one: `size` times the largest mu (group privacy of GDP).

        A mixture takes its worst component: the records of a group may lie in different positions, and delta is not
        convex in mu, so scaling every component would not be a bound.

        Raises
        ------
        ParameterError, ParameterTypeError
            If `size` is below 1 or no integer.
        """
        return GaussianProfile(float(self.components[0][-1]) * check_integer("size", size), adjacency=self.adjacency)

    def to_replace_one(self) -> GaussianProfile:
        """Replace-one profile of an add-remove one: twice the largest mu, since replacing is removing and adding.

        Raises
        ------
        ParameterError
            If the profile is a replace-one profile already.
        """
        check_convertible(self.adjacency)
        return GaussianProfile(float(self.components[0][-1]) * 2, adjacency=Adjacency.REPLACE_ONE)

    def to_dp_accounting(self) -> PrivacyLossDistribution:
        """A pessimistic dp-accounting `PrivacyLossDistribution`; raises ParameterError beyond mu = 1e6."""
        from noisycgd.accounting.pld import to_pld

        return to_pld(self).to_dp_accounting()  # type: ignore[arg-type]

    @abc.abstractmethod
    def with_added_mu(self, mu: float) -> Self:
        """Profile after an independent mu-GDP release: mu adds in squares in every component, rounded up."""

    def _tradeoff_inside(self, fpr: Array) -> Array:
        mus, weights = self.components
        # A component without information has an atom at ratio 1; a tiny mu spreads it over tau without changing it.
        mus = np.maximum(mus, 1e-300)

        def rates(tau: Array) -> tuple[Array, Array]:
            with np.errstate(over="ignore"):
                ratio = tau[:, None] / mus
            return ndtr(-ratio - 0.5 * mus) @ weights, ndtr(ratio - 0.5 * mus) @ weights

        # Each component alone would meet the rate at its own threshold; the common one lies between them.
        own = mus * (-ndtri(fpr)[:, None] - 0.5 * mus)
        low, high = own.min(axis=1), own.max(axis=1)
        for _ in range(200):
            middle = 0.5 * (low + high)
            if np.all((middle <= low) | (middle >= high) | (high - low < 1e-15 * np.abs(middle))):
                break
            above = rates(middle)[0] >= fpr
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        reached, missed = rates(low)
        # The curve is convex with slope -e^tau, so its tangent at `low` is a lower bound; this also resolves the atom.
        bound = missed + np.exp(np.minimum(low, 0.0)) * np.maximum(reached - fpr, 0.0)
        return np.asarray(np.clip(bound * (1.0 - 2.0**-36), 0.0, 1.0 - fpr))


@dataclass(frozen=True)
class GaussianProfile(_Profile):
    """Profile of a mu-GDP mechanism.

    Parameters
    ----------
    mu : float
        GDP parameter, finite and >= 0.
    adjacency : Adjacency, keyword
        Which data sets count as neighbours; replace-one by default.

    Raises
    ------
    ParameterError
        If `mu` is negative or not finite, or `adjacency` is unknown.

    Notes
    -----
    THEORY section 1.

    Examples
    --------
    >>> round(GaussianProfile(1.0).epsilon(1e-5), 6)
    4.377178
    """

    mu: float
    adjacency: Adjacency = field(default=Adjacency.REPLACE_ONE, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_real("mu", self.mu, low=0.0))
        object.__setattr__(self, "adjacency", check_adjacency(self.adjacency))

    @cached_property
    def components(self) -> tuple[Array, Array]:
        """The one mu, with weight 1."""
        return np.array([self.mu]), np.ones(1)

    def compose(self, other: GaussianProfile | MixtureProfile | PLDProfile) -> Any:
        """Profile of releasing both outputs, the second chosen after the first if you like; see `accounting.compose`.

        With a Gaussian: sqrt(mu1^2 + mu2^2). With a mixture: that in each of its components.
        """
        from noisycgd.accounting.pld import compose

        return compose(self, other)

    def with_added_mu(self, mu: float) -> Self:
        """Profile after an independent mu-GDP release: sqrt(self.mu^2 + mu^2), rounded up."""
        return replace(self, mu=added(self.mu, mu))


@dataclass(frozen=True)
class MixtureProfile(_Profile):
    """Profile of a mechanism that is mu_j-GDP with probability w_j, where j is public and independent of the data.

    Its delta is at most sum_j w_j delta_{mu_j}(epsilon), the average of the hockey-stick divergences.

    Parameters
    ----------
    mus : sequence of float, length J
        GDP parameters, finite and >= 0.
    weights : sequence of float, length J
        Probabilities >= 0 that sum to 1 within 1e-9; they are normalised.
    adjacency : Adjacency, keyword
        Which data sets count as neighbours; replace-one by default.

    Raises
    ------
    ParameterError
        If a requirement above is broken.

    Notes
    -----
    THEORY section 1, "permuting once".
    """

    mus: tuple[float, ...]
    weights: tuple[float, ...]
    adjacency: Adjacency = field(default=Adjacency.REPLACE_ONE, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", check_adjacency(self.adjacency))
        mus, weights = check_vector("mus", self.mus), check_vector("weights", self.weights)
        if mus.shape != weights.shape:
            refuse("weights", f"as many as the {mus.size} mus", weights.size)
        total = math.fsum(weights)
        if abs(total - 1.0) > 1e-9:
            refuse("weights", "probabilities that sum to 1", total, "Divide them by their sum.")
        object.__setattr__(self, "mus", tuple(mus.tolist()))
        object.__setattr__(self, "weights", tuple((weights / total).tolist()))

    @property
    def mu(self) -> float:
        """Largest mu that has positive weight."""
        return float(self.components[0][-1])

    @cached_property
    def components(self) -> tuple[Array, Array]:
        """Distinct mus (J,), ascending, and their positive weights (J,), which sum to 1."""
        weights = np.array(self.weights)
        used = weights > 0
        mus, index = np.unique(np.array(self.mus)[used], return_inverse=True)
        return mus, np.bincount(index, weights=weights[used]).astype(np.float64)

    def compose(self, other: GaussianProfile | MixtureProfile | PLDProfile) -> Any:
        """Profile of releasing both outputs; see `accounting.compose`.

        Two mixtures are composed with *independent* indices. Two releases that share one permutation are not covered:
        a record in a bad position of one is in a bad position of the other. Use `compose_shared_permutation`, or
        compose with `GaussianProfile(other.mu)`, the worst position, which holds in any case.
        """
        from noisycgd.accounting.pld import compose

        return compose(self, other)

    def with_added_mu(self, mu: float) -> Self:
        """Profile after an independent mu-GDP release: sqrt(mu_j^2 + mu^2) in every component, rounded up."""
        return replace(self, mus=tuple(added(m, mu) for m in self.mus))


def added(first: float, second: float) -> float:
    """Length of the vector (first, second), rounded up; exact if either is 0."""
    return math.nextafter(math.hypot(first, second), math.inf) if first > 0 < second else first + second
