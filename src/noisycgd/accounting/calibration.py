"""From a privacy target to the smallest noise that meets it."""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from noisycgd._validation import ParameterTypeError, check_real, message, refuse
from noisycgd.accounting.gaussian import band, check_delta, check_epsilon, check_vector, smallest_noise
from noisycgd.accounting.hidden_state import hidden_state_profile
from noisycgd.types import EpsilonDelta, GaussianMu, NoiseMultiplier, Order, Target


def calibrate_noise(multipliers: ArrayLike, target: Target, order: Order, weights: ArrayLike | None = None) -> float:
    """Smallest noise multiplier whose hidden-state profile meets a target, rounded up.

    Parameters
    ----------
    multipliers : array_like of shape (k,)
        m_j of each position, from `constant_multipliers` or `multipliers`.
    target : EpsilonDelta, GaussianMu or NoiseMultiplier
        An epsilon target uses the profile of `order`; a mu target binds the worst position in any order; a noise
        multiplier is returned as it is.
    order : Order
        `PERMUTED` averages over positions, `GIVEN` takes the worst.
    weights : array_like of shape (k,), optional
        Probability of each position (`batch_weights`); default equal.

    Returns
    -------
    float
        nm > 0, within a relative 1e-10 of the smallest (1e-12 at a delta of 1e-5) unless delta is flat there, as near
        the total weight of some positions. The profile at nm satisfies, as computed, both `delta(epsilon) <= delta`
        and `epsilon(delta) <= epsilon`, respectively `mu <= target.mu`.

    Raises
    ------
    ParameterError, ParameterTypeError
        If an argument is out of range or of the wrong type, or if any noise at all meets the target.

    Notes
    -----
    THEORY section 5: calibration returns a value that satisfies the target, never one that misses it by 1e-12.
    """
    if not isinstance(target, EpsilonDelta | GaussianMu | NoiseMultiplier):
        raise ParameterTypeError(message("target", "an EpsilonDelta, GaussianMu or NoiseMultiplier", target))
    m, delta = check_vector("multipliers", multipliers), check_delta(target.delta)
    if isinstance(target, NoiseMultiplier):
        return check_real("noise_multiplier", target.value, low=0.0, open_low=True)
    worst = float(m.max())
    if worst == 0.0:
        refuse("multipliers", "positive at one position", worst, "No step uses the record: nothing to protect.")
    if isinstance(target, GaussianMu):
        mu = check_real("mu", target.mu, low=0.0, open_low=True)
        noise = 2.0 * worst / mu
        while 2.0 * worst / noise > mu:
            noise = math.nextafter(noise, math.inf)
        if noise == math.inf:
            refuse("mu", "large enough for a finite noise multiplier", mu, "Raise it.")
        return noise

    epsilon = check_epsilon(target.epsilon)
    # At noise multiplier 1 a component's mu is its sensitivity.
    sensitivities, probabilities = hidden_state_profile(m, 1.0, order, weights).components
    exposed = sensitivities > 0
    if math.fsum(probabilities[exposed]) <= delta:
        refuse("delta", "below the probability that the record is used", delta, "Any noise would meet this target.")
    # `epsilon` rounds up by at most two bands; the other two keep that within the target.
    log_target = math.log(delta)
    log_target -= 4.0 * band(log_target)
    noise, nudge = smallest_noise(sensitivities[exposed], probabilities[exposed], epsilon, log_target), 2.0**-50
    while True:
        profile = hidden_state_profile(m, noise, order, weights)
        if profile.delta(epsilon) <= delta and profile.epsilon(delta) <= epsilon:
            return noise
        noise, nudge = noise * (1.0 + nudge), 2.0 * nudge
