"""Privacy profiles held as privacy loss distributions, and the composition of any two profiles."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from noisycgd._validation import ParameterTypeError, message, refuse
from noisycgd.accounting.adjacency import check_adjacency, check_same_adjacency
from noisycgd.accounting.gaussian import Array, check_delta, flattened, shaped
from noisycgd.accounting.privacy_loss import TAIL, LossGrid, discretise, log_normal_masses
from noisycgd.accounting.profile import GaussianProfile, MixtureProfile, added
from noisycgd.types import Adjacency

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from noisycgd.accounting.conversion import ConvertedProfile

_ROUNDING = 2.0**-28
"""Relative allowance for floating point; transforms of a million steps were measured to err by less than 2^-30."""
_POINTS = 1000
"""Grid losses per standard deviation of a profile in closed form."""
_MOST_POINTS = 2**18
_LARGEST_MU = 1e6


@dataclass(frozen=True, eq=False)
class PLDProfile:
    """Privacy profile of a mechanism whose dominating pairs are known numerically, between two bounds.

    Attributes
    ----------
    upper : tuple of LossGrid
        Privacy loss distributions rounded up. One if both directions of a change have the same; else removal first,
        then addition, and every answer is the worse of the two.
    lower : tuple of LossGrid or None
        The same distributions rounded down; None where only an upper bound is known.
    adjacency : Adjacency
        Which data sets count as neighbours.

    Notes
    -----
    `delta`, `epsilon` and `tradeoff` are bounds that hold; `delta_lower` and `epsilon_lower` bound from below what the
    *dominating pair* gives under the composition made. So the gap between them bounds the whole error of this class,
    from discretising on `interval` and from truncating tails; it shrinks with the square of the interval. Where the
    pair is attained, as for DP-SGD, less than `epsilon_lower` cannot be true.

    Floating point is allowed for by a relative 2^-28 of delta, outwards. That is far above what is measured against
    closed forms, down to a delta of 1e-14, but not proved.
    """

    upper: tuple[LossGrid, ...]
    lower: tuple[LossGrid, ...] | None
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    @property
    def interval(self) -> float:
        """Distance of neighbouring losses on the grid."""
        return self.upper[0].interval

    def delta(self, epsilon: ArrayLike) -> Any:
        """Smallest proved delta at each epsilon, rounded up.

        Parameters
        ----------
        epsilon : float or array_like
            Finite numbers >= 0.

        Returns
        -------
        float or ndarray
            In [0, 1], of the shape of `epsilon`; a float for a scalar.

        Raises
        ------
        ParameterError
            If an epsilon is negative or not finite.
        """
        shape, flat = flattened("epsilon", epsilon, 0.0, math.inf)
        return shaped(_worst(self.upper, flat, 1.0 + _ROUNDING), shape)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with `self.delta(epsilon) <= delta`, rounded up; inf if there is none.

        Raises
        ------
        ParameterError
            If `delta` is not strictly between 0 and 1.
        """
        delta = check_delta(delta)
        result = max(grid.epsilon(delta / (1.0 + _ROUNDING)) for grid in self.upper)
        nudge = 2.0**-50
        while result < math.inf and self.delta(result) > delta:
            result, nudge = result * (1.0 + nudge), 2.0 * nudge
        return result

    def delta_lower(self, epsilon: ArrayLike) -> Any:
        """Lower bound on the dominating pair's delta at each epsilon, of the shape of `epsilon`; None if unknown."""
        shape, flat = flattened("epsilon", epsilon, 0.0, math.inf)
        return None if self.lower is None else shaped(_worst(self.lower, flat, 1.0 - _ROUNDING), shape)

    def epsilon_lower(self, delta: float) -> float | None:
        """Lower bound on the epsilon of the dominating pair at a delta in (0, 1); None if unknown."""
        target = check_delta(delta) / (1.0 - _ROUNDING)
        return None if self.lower is None else max(grid.epsilon(target) for grid in self.lower)

    def tradeoff(self, fpr: ArrayLike) -> Any:
        """Least false-negative rate of any membership test, rounded down.

        Parameters
        ----------
        fpr : float or array_like
            False-positive rates in [0, 1].

        Returns
        -------
        float or ndarray
            Of the shape of `fpr`; a float for a scalar.

        Raises
        ------
        ParameterError
            If a rate lies outside [0, 1] or is not finite.
        """
        shape, flat = flattened("fpr", fpr, 0.0, 1.0)
        found = np.min([np.interp(flat, *grid.curve) for grid in self.upper], axis=0)
        return shaped(np.clip(found - _ROUNDING, 0.0, 1.0 - flat), shape)

    def compose(self, other: Composable) -> Composable:
        """Profile of releasing both mechanisms' outputs, each with randomness of its own; see `compose`."""
        return compose(self, other)

    def to_replace_one(self) -> ConvertedProfile:
        """Bound for replacing a record, from one for adding or removing it; see `ConvertedProfile`."""
        from noisycgd.accounting.conversion import ConvertedProfile

        return ConvertedProfile(self)

    def to_dp_accounting(self) -> PrivacyLossDistribution:
        """The upper bound as a pessimistic dp-accounting `PrivacyLossDistribution`."""
        from dp_accounting.pld.pld_pmf import DensePLDPmf
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        pmfs = (DensePLDPmf(g.interval, g.first, g.masses, g.infinity, True) for g in self.upper)
        return PrivacyLossDistribution(*pmfs)

    @classmethod
    def from_dp_accounting(cls, pld: PrivacyLossDistribution, adjacency: Adjacency) -> PLDProfile:
        """Profile of a pessimistic dp-accounting `PrivacyLossDistribution`; it has no lower bound.

        Raises
        ------
        ParameterTypeError
            If `pld` is none.
        ParameterError
            If it was rounded down.
        """
        from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

        if not isinstance(pld, PrivacyLossDistribution):
            raise ParameterTypeError(message("pld", "a dp-accounting PrivacyLossDistribution", pld))
        # dp-accounting offers no public access to the masses.
        pmfs = [pld._pmf_remove] if pld._symmetric else [pld._pmf_remove, pld._pmf_add]
        grids = []
        for pmf in (p.to_dense_pmf() for p in pmfs):
            if not pmf._pessimistic_estimate:
                refuse("pld", "a pessimistic estimate", "an optimistic one", "Build it with pessimistic_estimate=True.")
            masses = np.maximum(np.asarray(pmf._probs, dtype=np.float64), 0.0)
            grids.append(LossGrid(pmf._discretization, pmf._lower_loss, masses, float(pmf._infinity_mass), True))
        return cls(tuple(grids), None, check_adjacency(adjacency))


Composable = GaussianProfile | MixtureProfile | PLDProfile


def _worst(grids: tuple[LossGrid, ...], epsilon: Array, factor: float) -> Array:
    """Largest delta over the directions."""
    return np.asarray(np.minimum(np.max([grid.delta(epsilon) for grid in grids], axis=0) * factor, 1.0))


def to_pld(profile: Composable) -> PLDProfile:
    """The same profile as a privacy loss distribution; a mixture's is the weighted sum of its components'.

    Raises
    ------
    ParameterTypeError
        If `profile` is none of the three.
    ParameterError
        If its largest mu exceeds 1e6.
    """
    _check_composable(profile)
    if isinstance(profile, PLDProfile):
        return profile
    mus, weights = profile.components
    if mus[-1] > _LARGEST_MU:
        refuse("mu", f"at most {_LARGEST_MU:g} for a numerical composition", mus[-1], "It protects nothing: add noise.")
    centres = 0.5 * mus**2
    low, high = float(np.min(centres - TAIL * mus)), float(np.max(centres + TAIL * mus))
    deviation = math.sqrt(float(weights @ (mus**2 + (centres - weights @ centres) ** 2)))
    interval = max(deviation / _POINTS, (high - low) / _MOST_POINTS, 1e-9)

    def log_masses(losses: Array) -> tuple[Array, Array]:
        log_p, log_q = np.full((2, losses.size - 1), -np.inf)
        for mu, log_weight in zip(np.maximum(mus, 1e-300).tolist(), np.log(weights).tolist(), strict=True):
            with np.errstate(over="ignore"):
                points = losses / mu
            log_p = np.logaddexp(log_p, log_weight + log_normal_masses(points - 0.5 * mu))
            log_q = np.logaddexp(log_q, log_weight + log_normal_masses(points + 0.5 * mu))
        return log_p, log_q

    upper, lower = discretise(log_masses, low, high, interval)
    return PLDProfile((upper,), (lower,), profile.adjacency)


def compose(first: Composable, second: Composable) -> Composable:
    """Profile of releasing the outputs of two mechanisms; the second may be chosen after seeing the first's.

    With a Gaussian on one side the result has a closed form: mu adds in squares, within each component of a mixture.
    Everything else goes through privacy loss distributions.

    Parameters
    ----------
    first, second : GaussianProfile, MixtureProfile or PLDProfile
        Of the same adjacency, and with randomness of their own. Two mixtures whose public index is *one* permutation
        are not: use `compose_shared_permutation`.

    Returns
    -------
    GaussianProfile, MixtureProfile or PLDProfile

    Raises
    ------
    ParameterError, ParameterTypeError
        If the adjacencies differ, or a profile is of another kind.
    """
    for profile in (first, second):
        _check_composable(profile)
    check_same_adjacency(first.adjacency, second.adjacency)
    if isinstance(second, GaussianProfile):
        first, second = second, first
    if isinstance(first, GaussianProfile) and not isinstance(second, PLDProfile):
        return second.with_added_mu(first.mu)
    if isinstance(first, GaussianProfile) and first.mu == 0.0:
        return second
    one, two = to_pld(first), to_pld(second)
    upper = _compose_grids(one.upper, two.upper)
    known = one.lower is not None and two.lower is not None
    lower = _compose_grids(one.lower, two.lower) if known else None  # type: ignore[arg-type]
    return PLDProfile(upper, lower, first.adjacency)


def compose_shared_permutation(first: MixtureProfile, second: MixtureProfile) -> MixtureProfile:
    """Profile of two releases whose batches come from one permutation: mu_j^2 adds position by position.

    Parameters
    ----------
    first, second : MixtureProfile
        With component j standing for the same position in both, as `hidden_state_profile` builds them.

    Returns
    -------
    MixtureProfile
        Component j has sqrt(first.mus[j]^2 + second.mus[j]^2), rounded up.

    Raises
    ------
    ParameterError
        If adjacencies, numbers of positions or weights differ: then the positions cannot be matched.

    Notes
    -----
    THEORY section 1, "position matters".
    """
    check_same_adjacency(first.adjacency, second.adjacency)
    if len(first.mus) != len(second.mus) or not np.allclose(first.weights, second.weights, rtol=1e-9, atol=0.0):
        wanted = f"the first profile's: {len(first.mus)} positions of the same weights"
        way_out = "Positions cannot be matched: compose with GaussianProfile(second.mu), the worst position."
        refuse("second", wanted, f"{len(second.mus)} positions", way_out)
    return replace(first, mus=tuple(added(a, b) for a, b in zip(first.mus, second.mus, strict=True)))


def _check_composable(profile: object) -> None:
    if not isinstance(profile, GaussianProfile | MixtureProfile | PLDProfile):
        requirement, way_out = (
            "a GaussianProfile, MixtureProfile or PLDProfile",
            "Other bounds have no dominating pair.",
        )
        raise ParameterTypeError(message("profile", requirement, profile, way_out))


def _compose_grids(one: tuple[LossGrid, ...], two: tuple[LossGrid, ...]) -> tuple[LossGrid, ...]:
    # The coarser interval resolves the wider distribution, and that dominates the sum.
    interval = max(one[0].interval, two[0].interval)
    directions = max(len(one), len(two))
    pairs = zip(one * (directions // len(one)), two * (directions // len(two)), strict=True)
    return tuple(a.regrid(interval).compose(b.regrid(interval)) for a, b in pairs)
