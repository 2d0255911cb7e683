"""Settings that every run shares, checked once."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import ParameterTypeError, check_integer, check_real, message, refuse, rounded_down
from noisycgd.accounting.gaussian import check_epsilon
from noisycgd.schedules import schedule_factors
from noisycgd.steps import AUTO_PEAK
from noisycgd.types import EpsilonDelta, GaussianMu, NoiseMultiplier, Target

# Training runs in float32: a larger coefficient, or a smaller learning rate, would leave its range with the noise.
# Smaller noise would be flushed to zero beside gradients that are not.
LARGEST_L2, SMALLEST_RATE, SMALLEST_NOISE = 1e20, 1e-30, 1e-25
# Beyond these, parameters or logits could leave that range for some records and not for others, which would show.
LARGEST_RATE, LARGEST_MODEL_NOISE = 1e30, 1e20
LARGEST_STEPS = 10**9
"""A plan keeps a learning rate for each."""

_AUTO_BATCH = 'batch_size="auto" follows from the number of records alone.'


class Settings(NamedTuple):
    """Checked settings: n, b, k = ceil(n / b), E, lambda, and where privacy is stated."""

    target: Target
    n_records: int
    batch_size: int
    batches_per_epoch: int
    epochs: int
    l2: float


def auto_batch_size(n_records: int) -> int:
    """Batch size b = 4 sqrt(n) as a function of n alone: about sqrt(n) / 4 batches an epoch, 980 records at 60 000."""
    return max(1, min(n_records, round(math.sqrt(n_records) * 4)))


def check_target(target: Target) -> Target:
    """Return `target` with plain floats; raise ParameterError or ParameterTypeError if it makes no sense."""
    if not isinstance(target, EpsilonDelta | GaussianMu | NoiseMultiplier):
        raise ParameterTypeError(message("target", "an EpsilonDelta, a GaussianMu or a NoiseMultiplier", target))
    delta = check_real("delta", target.delta, low=0, high=1, open_low=True, open_high=True)
    if isinstance(target, EpsilonDelta):
        return EpsilonDelta(check_epsilon(target.epsilon, open_low=True), delta)
    if isinstance(target, GaussianMu):
        return GaussianMu(check_real("mu", target.mu, low=0, open_low=True), delta)
    return NoiseMultiplier(check_real("noise_multiplier", target.value, low=0, open_low=True), delta)


def check_settings(
    target: Target, n_records: int, batch_size: int | str, epochs: int, l2: float, *, stacklevel: int = 4
) -> Settings:
    """Check what every run shares; see `noisycgd.planning.plan_noisy_cgd` for the parameters.

    Warns
    -----
    UserWarning
        If delta exceeds 1 / n: such a guarantee permits publishing a record outright.
    """
    target = check_target(target)
    n = check_integer("n_records", n_records)
    E = check_integer("epochs", epochs)
    b = auto_batch_size(n) if is_auto(batch_size) else check_integer("batch_size", batch_size, way_out=_AUTO_BATCH)
    if b > n:
        refuse("batch_size", f"at most the number of records ({n})", b, f"Lower it; {_AUTO_BATCH}")
    l2 = check_l2(l2)
    k = math.ceil(n / b)
    if k * E > LARGEST_STEPS:
        refuse("epochs", f"at most {LARGEST_STEPS // k}, with {k} batches each", E, "Lower it, or raise batch_size.")
    warn_of_delta(target.delta, n, stacklevel=stacklevel + 1)
    return Settings(target, n, b, k, E, l2)


def check_l2(l2: object) -> float:
    """Return the coefficient of (l2 / 2) ||theta||^2 as a float, or raise."""
    return check_real("l2", l2, low=0, high=LARGEST_L2, way_out="The guarantee needs none: l2=0 is allowed.")


def warn_of_delta(delta: float, n_records: int, *, stacklevel: int) -> None:
    """Warn of a delta above 1 / n, at which a guarantee permits publishing a record outright."""
    if delta > 1 / n_records:
        requirement = f"at most 1/n = {rounded_down(1 / n_records, 3)} for a meaningful guarantee"
        warnings.warn(message("delta", requirement, delta, "Lower it."), UserWarning, stacklevel=stacklevel)


def learning_rates(
    learning_rate: float | str, schedule: str | ArrayLike, settings: Settings, automatic: float
) -> NDArray[np.float64]:
    """(T,) learning rates: the schedule times its peak, which "auto" sets to 0.97 times `automatic`."""
    factors = schedule_factors(schedule, settings.batches_per_epoch * settings.epochs, settings.epochs)
    if is_auto(learning_rate):
        return AUTO_PEAK * automatic / float(factors.max()) * factors
    way_out = 'learning_rate="auto" takes the largest that is safe.'
    return check_real("learning_rate", learning_rate, low=SMALLEST_RATE, high=LARGEST_RATE, way_out=way_out) * factors


def check_noise(noise_std: float, in_model: float) -> None:
    """Refuse noise that float32 cannot add, so that the model would be trained without any, or cannot hold.

    Parameters
    ----------
    noise_std : float
        Standard deviation of what is added to a gradient.
    in_model : float
        Standard deviation of what that becomes in a parameter or a logit of the released model, the larger one.
    """
    if noise_std < SMALLEST_NOISE:
        way_out = "Raise clipping_norm or row_norm; accuracy does not depend on their units."
        refuse("noise standard deviation", f"at least {SMALLEST_NOISE:g}", noise_std, way_out)
    if not in_model <= LARGEST_MODEL_NOISE:
        way_out = "Lower noise_multiplier (raise epsilon or mu), or lower learning_rate."
        refuse("noise standard deviation in the model", f"at most {LARGEST_MODEL_NOISE:g}", in_model, way_out)


def is_auto(value: object) -> bool:
    """Whether a parameter is left to the software."""
    return isinstance(value, str) and value == "auto"
