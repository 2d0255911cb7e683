"""What it costs that draws of a computer end somewhere, where a Gaussian does not (THEORY section 5)."""

from __future__ import annotations

import math

from scipy.special import ndtr

# Coordinates that a shift moves by more than this count one by one, all others together.
_SMALL = 0.1


def delta_of_reach(shift: float, reach: float, n_draws: float) -> float:
    """Bound on the probability of draws that have no partner under the other data set.

    Two runs release the same if the noise of one is that of the other, shifted. Where noise ends at `reach`, some
    draws have no such partner; their probability adds to delta at every epsilon, since everywhere else both densities
    are a Gaussian's but for one factor.

    Parameters
    ----------
    shift : float
        Norm >= 0 of the shift over all draws, in standard deviations: mu for a mu-GDP mechanism.
    reach : float
        Where the size of a single draw ends, in standard deviations.
    n_draws : float
        N, the number of draws that the shift may be spread over.

    Returns
    -------
    float
        At most 1; 1 where the bound says nothing.

    Notes
    -----
    A coordinate shifted by v loses h(v) = Phi(v - reach) - Phi(-reach). With a = 0.1, coordinates of v <= a lose
    h(v) <= v phi(reach - a), together at most sqrt(N) shift phi(reach - a). Of the others there are at most
    (shift / a)^2, and h(v) / v^2 is largest at an end of [a, shift] while shift <= reach - 1, so that together they
    lose at most (shift / a)^2 h(a) or h(shift).
    """
    if shift > reach - 1:
        return 1.0
    density = math.exp(-((reach - _SMALL) ** 2) / 2) / math.sqrt(2 * math.pi)
    spread = math.sqrt(n_draws) * shift * density
    if shift > _SMALL:
        spread += max(shift**2 / _SMALL * density, float(ndtr(shift - reach)))
    return min(1.0, spread * (1.0 + 2.0**-40))
