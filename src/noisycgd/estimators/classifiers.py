"""Private classifiers on gated-linear features."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from noisycgd._validation import check_choice, check_real
from noisycgd.estimators._base import Seed
from noisycgd.estimators._documentation import documented
from noisycgd.estimators._gated import GatedLinearEstimator, draw_row_features
from noisycgd.estimators._targets import PrivateClassifier
from noisycgd.features.random import HYPERPLANE_DRAWS, RowFeatures
from noisycgd.losses import EnvelopeSoftmax, Logistic, Loss, MarginSoftmax, NormClippedSoftmax

CLASSIFICATION_LOSSES = ("margin_softmax", "envelope_softmax", "norm_clipped_softmax", "logistic")

# `margin="auto"` is this multiple of the standard deviation of the noise in one released logit: records should be
# right by more than the noise can turn (THEORY section 2). docs/margin.md tells how the multiple was confirmed.
AUTO_MARGIN = 3.0


@dataclass(eq=False, repr=False)
class GatedLinearClassifier(PrivateClassifier, GatedLinearEstimator):
    """A classifier on gated-linear features, with a choice of losses."""

    _: KW_ONLY
    loss: str = "margin_softmax"
    margin: float | str = "auto"

    _auto_clip: ClassVar[dict[str, float]] = {"envelope_softmax": 0.5, "norm_clipped_softmax": 0.5}

    def _loss_name(self) -> str:
        return check_choice("loss", self.loss, CLASSIFICATION_LOSSES)

    def _make_loss(self, clip: float, logit_noise: float | None) -> Loss:
        name = self._loss_name()
        if name == "margin_softmax":
            return MarginSoftmax(self._margin(logit_noise or 0.0))
        if name == "envelope_softmax":
            return EnvelopeSoftmax(clip)
        return NormClippedSoftmax(clip) if name == "norm_clipped_softmax" else Logistic(clip)

    def _margin(self, logit_noise: float) -> float:
        if isinstance(self.margin, str):
            check_choice("margin", self.margin, ["auto"], "A number of at least 0 is accepted as well.")
            return AUTO_MARGIN * logit_noise
        return check_real("margin", self.margin, low=0, way_out="margin=0 is the ordinary softmax loss.")

    def _one_logit(self) -> bool:
        return self._loss_name() == "logistic"


@documented
@dataclass(eq=False, repr=False)
class ConvexReLUClassifier(GatedLinearClassifier):
    """Convex approximation of a two-layer ReLU network, trained privately by NoisyCGD.

    Logits are sums over random hyperplanes of linear functions that are active on one side each (paper, section 3.3),
    so the loss is convex in the parameters and the hidden-state guarantee applies to the released model.

    Parameters
    ----------
    n_hyperplanes : int, default 64
        P, number of hyperplanes; even for antithetic pairs.
    gates : {"antithetic", "iid"}, default "antithetic"
        Pairs (u, -u), of which exactly one is active on each row, or independent hyperplanes (the paper).
    $classifier
    $classes
    $gated
    $shared

    Attributes
    ----------
    $attributes
    $common
    classes_ : ndarray of shape (q,)
        Class labels.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from noisycgd import ConvexReLUClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = ConvexReLUClassifier(epsilon=4, delta=1e-4, center_rows=True, classes=range(10)).fit(X, y)
    >>> clf.guarantee_.status.value
    'proved'
    """

    _: KW_ONLY
    n_hyperplanes: int = 64
    gates: str = "antithetic"

    def _gates(self) -> tuple[str, int]:
        return check_choice("gates", self.gates, ("antithetic", "iid")), self.n_hyperplanes


@documented
@dataclass(eq=False, repr=False)
class LinearClassifier(GatedLinearClassifier):
    """Linear classifier (multinomial logistic or margin softmax) on rows or on public random features of them.

    Parameters
    ----------
    features : {"identity", "fourier", "relu-patterns", "relu"}, default "identity"
        The bounded rows themselves, or a random map of them that no record shapes; see `noisycgd.features.random`.
    n_components : int, default 1024
        Number of Fourier features, or of hyperplanes; even but for `iid` ones. `identity` has none.
    bandwidth : float or "auto", default "auto"
        Scale of Fourier features in units of a row; "auto" is row_norm / sqrt(2).
    gates : {"antithetic", "iid"}, default "antithetic"
        Hyperplanes of the ReLU features: pairs (u, -u), or independent ones (the paper).
    $classifier
    $classes
    $gated
    $shared

    Attributes
    ----------
    $attributes
    $common
    classes_ : ndarray of shape (q,)
        Class labels.
    """

    _: KW_ONLY
    features: str = "identity"
    n_components: int = 1024
    bandwidth: float | str = "auto"
    gates: str = "antithetic"

    def _gates(self) -> tuple[str, int]:
        return "linear", 0

    def _row_features(self, width: int, row_norm: float, seed: Seed) -> RowFeatures | None:
        kind = check_choice("features", self.features, ("identity", "fourier", "relu-patterns", "relu"))
        check_choice("gates", self.gates, HYPERPLANE_DRAWS)
        if kind == "identity":
            return None
        return draw_row_features(kind, width, self.n_components, self.bandwidth, self.gates, row_norm, seed)
