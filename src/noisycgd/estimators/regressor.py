"""Private regression on gated-linear features."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags, column_or_1d

from noisycgd._validation import DataError, check_choice, check_real, message, refuse
from noisycgd.estimators._base import Encoded, NoisyCGDEstimator
from noisycgd.estimators._documentation import documented
from noisycgd.losses import ClippedSquared, Loss


@documented
@dataclass(eq=False, repr=False)
class ConvexReLURegressor(RegressorMixin, NoisyCGDEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Convex approximation of a two-layer ReLU network for regression, trained privately by NoisyCGD.

    The target is clipped to its public range and scaled to [-1, 1]; the loss is the squared one with its residual
    clipped (Huber's), and predictions are clipped to the range.

    Parameters
    ----------
    target_range : (float, float) or None, default None
        Public bounds of the target. None takes them from the training targets, which reveals two of them: the
        guarantee then lists them as assumed public.
    n_hyperplanes : int, default 64
        P, number of hyperplanes; even for antithetic pairs.
    gates : {"antithetic", "iid", "linear"}, default "antithetic"
        Pairs (u, -u), independent hyperplanes, or none.
    $shared

    Attributes
    ----------
    $attributes
    target_range_ : tuple of float
        Bounds of the target.
    """

    _: KW_ONLY
    target_range: tuple[float, float] | None = None
    n_hyperplanes: int = 64
    gates: str = "antithetic"

    def _gates(self) -> tuple[str, int]:
        return check_choice("gates", self.gates, ("antithetic", "iid", "linear")), self.n_hyperplanes

    def _loss_name(self) -> str:
        return ClippedSquared.name

    def _make_loss(self, clip: float, logit_noise: float | None) -> Loss:
        return ClippedSquared(clip)

    def _encode_target(self, y: Any) -> Encoded:
        y = column_or_1d(y, warn=True)
        try:
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(message("y", "made of numbers", f"{y.dtype} values", "Convert it first.")) from None
        if not np.isfinite(values).all():
            raise DataError("y must be finite; got NaN or infinity. Remove those records.")
        inferred: tuple[str, ...] = ()
        stated: Any = self.target_range
        if stated is None:
            low, high = float(values.min()), float(values.max())
            inferred = ("the range of the target: read off the training targets; state it with target_range=...",)
            # Relative to the value, which would else absorb a difference of 1.
            margin = max(1.0, abs(low)) if low == high else 0.0
            stated = (low - margin, high + margin)
        low, high = _checked_range(stated)
        scaled = (np.clip(values, low, high) - low) / (high - low) * 2 - 1
        return scaled.astype(np.float32), 1, {"target_range_": (low, high)}, (), inferred

    def _outputs(self) -> dict[str, Any]:
        return {"target_range": list(self.target_range_)}

    def _restore_outputs(self, outputs: dict[str, Any]) -> tuple[int, ...]:
        self.target_range_ = _checked_range(outputs["target_range"])
        return (1,)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """(n, d) -> (n,) predictions within the target's range."""
        z = self._logits(X)[:, 0].astype(np.float64)
        low, high = self.target_range_
        scaled: NDArray[np.float64] = low + (np.clip(z, -1, 1) + 1) / 2 * (high - low)
        return scaled

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        # Noise that hides one record among thirty hides the signal of thirty records as well.
        tags.regressor_tags.poor_score = True
        return tags


def _checked_range(stated: Any) -> tuple[float, float]:
    way_out = "State public bounds of the target, as in target_range=(0, 100)."
    try:
        low, high = stated
    except (TypeError, ValueError):
        refuse("target_range", "a pair (low, high)", stated, way_out)
    low, high = (check_real("target_range", bound, way_out=way_out) for bound in (low, high))
    if not low < high or math.isinf(high - low):
        refuse("target_range", "a pair low < high, not too far apart for float64", (low, high), way_out)
    return low, high
