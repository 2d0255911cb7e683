"""Profiles of a mechanism that is one of several: the worst of them, or what finitely many points prove of all.

In a private selection a trial runs one of many candidates, so its profile is the worst candidate's (paper, appendix on
tuning: the joint guarantee of DP-SGD and NoisyCGD is the pointwise maximum of their profiles).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from noisycgd._validation import refuse
from noisycgd.accounting.adjacency import check_same_adjacency
from noisycgd.accounting.gaussian import Array, check_delta, check_vector, flattened, shaped, tradeoff_of_points
from noisycgd.types import Adjacency, PrivacyProfile

_UP = 1.0 + 2.0**-40
"""Outward rounding, far above that of an interpolation."""


@dataclass(frozen=True)
class MaxProfile:
    """Pointwise worst of several profiles: what holds whichever of these mechanisms ran.

    Parameters
    ----------
    profiles : sequence of PrivacyProfile
        At least one, all of one adjacency.

    Raises
    ------
    ParameterError
        If there is none, or if adjacencies differ.
    """

    profiles: tuple[PrivacyProfile, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", tuple(self.profiles))
        if not self.profiles:
            refuse("profiles", "at least one profile", self.profiles)
        for other in self.profiles[1:]:
            check_same_adjacency(self.adjacency, _adjacency(other))

    @property
    def adjacency(self) -> Adjacency:
        """That of all of them."""
        return _adjacency(self.profiles[0])

    def delta(self, epsilon: ArrayLike) -> Any:
        """Largest delta at each epsilon >= 0; of the shape of `epsilon`, a float for a scalar."""
        shape, flat = flattened("epsilon", epsilon, 0.0, math.inf)
        return shaped(np.max([profile.delta(flat) for profile in self.profiles], axis=0), shape)

    def epsilon(self, delta: float) -> float:
        """Largest epsilon at a delta in (0, 1)."""
        return max(profile.epsilon(delta) for profile in self.profiles)

    def tradeoff(self, fpr: ArrayLike) -> Any:
        """Least false-negative rate at each rate in [0, 1]; of the shape of `fpr`, a float for a scalar."""
        shape, flat = flattened("fpr", fpr, 0.0, 1.0)
        return shaped(np.min([profile.tradeoff(flat) for profile in self.profiles], axis=0), shape)


@dataclass(frozen=True, eq=False)
class EnvelopeProfile:
    """What (epsilon, delta)-DP at finitely many points proves of a mechanism.

    A hockey-stick divergence is convex in e^epsilon and falls, so between two points delta lies below the chord over
    e^epsilon, and beyond the last point below its delta. Mechanisms of any kind that meet the points share the profile.

    Parameters
    ----------
    epsilons : array_like of shape (J,)
        Ascending, the first one 0.
    deltas : array_like of shape (J,)
        In [0, 1], never rising; they hold in both directions between neighbours.
    adjacency : Adjacency
        Replace-one by default.

    Raises
    ------
    ParameterError
        If a requirement is broken.
    """

    epsilons: Array
    deltas: Array
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        epsilons, deltas = check_vector("epsilons", self.epsilons), check_vector("deltas", self.deltas)
        if epsilons[0] != 0 or (np.diff(epsilons) <= 0).any():
            refuse("epsilons", "ascending from 0", epsilons.tolist())
        if deltas.shape != epsilons.shape or deltas[0] > 1 or (np.diff(deltas) > 0).any():
            refuse("deltas", "one for each epsilon, at most 1 and never rising", deltas.tolist())
        object.__setattr__(self, "epsilons", epsilons)
        object.__setattr__(self, "deltas", deltas)

    @cached_property
    def _ratios(self) -> Array:
        return np.exp(self.epsilons)

    def delta(self, epsilon: ArrayLike) -> Any:
        """Delta at each epsilon >= 0, rounded up; the given one at a given point."""
        shape, flat = flattened("epsilon", epsilon, 0.0, math.inf)
        known = np.isin(flat, self.epsilons)
        values = np.interp(np.exp(np.minimum(flat, self.epsilons[-1])), self._ratios, self.deltas)
        exact = self.deltas[np.minimum(np.searchsorted(self.epsilons, flat), len(self.deltas) - 1)]
        beyond = flat >= self.epsilons[-1]
        return shaped(np.where(known | beyond, exact, np.minimum(values * _UP, self.deltas[0])), shape)

    def epsilon(self, delta: float) -> float:
        """Smallest proved epsilon at a delta in (0, 1), rounded up; inf below the last point's delta."""
        delta = check_delta(delta)
        below = np.flatnonzero(self.deltas <= delta)
        if not below.size:
            return math.inf
        j = int(below[0])
        if j == 0 or self.deltas[j] == delta:
            return float(self.epsilons[j])
        share = (self.deltas[j - 1] - delta) / (self.deltas[j - 1] - self.deltas[j])
        ratio = self._ratios[j - 1] + share * (self._ratios[j] - self._ratios[j - 1])
        result, nudge = float(np.clip(np.log(ratio), self.epsilons[j - 1], self.epsilons[j])), 2.0**-50
        while self.delta(result) > delta:
            result, nudge = min(result + nudge * (1.0 + result), float(self.epsilons[j])), 2.0 * nudge
        return result

    def tradeoff(self, fpr: ArrayLike) -> Any:
        """Least false-negative rate at each rate in [0, 1], rounded down: the largest of the points' two lines."""
        shape, flat = flattened("fpr", fpr, 0.0, 1.0)
        # Beyond 700 no rate in double precision is informative.
        kept = self.epsilons <= 700.0
        return shaped(tradeoff_of_points(self.epsilons[kept], self.deltas[kept], flat), shape)


def _adjacency(profile: PrivacyProfile) -> Adjacency:
    return Adjacency(getattr(profile, "adjacency", Adjacency.REPLACE_ONE))
