"""Learning-rate schedules, per step: fixed before training and therefore public."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._validation import check_choice, refuse

SCHEDULES = ("linear", "constant", "cosine", "warmup-stable-decay")

# A schedule ends at this share of its peak: the noise of the last steps is what the released model shows most,
# but a step of length zero would hide nothing (THEORY section 1, "decaying learning rates are almost free").
FINAL_SHARE = 0.02

# Shares of the run at which a warmup-stable-decay schedule reaches its peak, and leaves it.
WARMUP, STABLE = 0.05, 0.8


def schedule_factors(schedule: str | ArrayLike, steps: int, epochs: int) -> NDArray[np.float64]:
    """(T,) factors in (0, 1] by which the peak learning rate is multiplied at each step.

    Parameters
    ----------
    schedule : {"linear", "constant", "cosine", "warmup-stable-decay"} or array of shape (T,) or (E,)
        A name, or the factors themselves, per step or per epoch.
    steps, epochs : int
        T and E.

    Raises
    ------
    ParameterError
        If the name is unknown, or the array has another length or leaves (0, 1].
    """
    if isinstance(schedule, str):
        check_choice("schedule", schedule, SCHEDULES, "An array of factors in (0, 1] is accepted as well.")
        progress = np.linspace(0.0, 1.0, steps) if steps > 1 else np.zeros(1)
        fall = {
            "constant": 0 * progress,
            "linear": progress,
            "cosine": (1 - np.cos(np.pi * progress)) / 2,
            "warmup-stable-decay": np.maximum(1 - progress / WARMUP, (progress - STABLE) / (1 - STABLE)).clip(0, 1),
        }[schedule]
        shape: NDArray[np.float64] = 1.0 - (1.0 - FINAL_SHARE) * fall
        # A warm-up of a few steps may not meet its peak.
        return np.asarray(shape / shape.max())
    try:
        factors = np.asarray(schedule, dtype=np.float64)
    except (TypeError, ValueError):
        refuse("schedule", "a name or an array of numbers", schedule, f"Names are {', '.join(SCHEDULES)}.")
    if factors.shape == (epochs,) and epochs != steps:
        factors = np.repeat(factors, steps // epochs)
    if factors.shape != (steps,):
        refuse("schedule", f"of shape ({steps},), one factor per step, or ({epochs},), one per epoch", factors.shape)
    if not np.isfinite(factors).all() or factors.min() <= 0 or factors.max() > 1:
        refuse("schedule", "made of factors above 0 and at most 1", f"a range of [{factors.min()}, {factors.max()}]")
    return factors
