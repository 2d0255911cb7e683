"""Private regression on gated-linear features."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from noisycgd._validation import check_choice
from noisycgd.estimators._documentation import documented
from noisycgd.estimators._gated import GatedLinearEstimator
from noisycgd.estimators._targets import PrivateRegressor
from noisycgd.losses import ClippedSquared, Loss


@documented
@dataclass(eq=False, repr=False)
class ConvexReLURegressor(PrivateRegressor, GatedLinearEstimator):
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
    $gated
    $shared

    Attributes
    ----------
    $attributes
    $common
    target_range_ : tuple of float
        Bounds of the target.
    """

    _: KW_ONLY
    n_hyperplanes: int = 64
    gates: str = "antithetic"

    def _gates(self) -> tuple[str, int]:
        return check_choice("gates", self.gates, ("antithetic", "iid", "linear")), self.n_hyperplanes

    def _loss_name(self) -> str:
        return ClippedSquared.name

    def _make_loss(self, clip: float, logit_noise: float | None) -> Loss:
        return ClippedSquared(clip)
