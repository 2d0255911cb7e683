"""Private classifiers on gated-linear features."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from noisycgd._validation import DataError, ModelFileError, check_choice, check_real, message, refuse
from noisycgd.estimators._base import Encoded, NoisyCGDEstimator
from noisycgd.estimators._documentation import documented
from noisycgd.losses import EnvelopeSoftmax, Logistic, Loss, MarginSoftmax, NormClippedSoftmax

CLASSIFICATION_LOSSES = ("margin_softmax", "envelope_softmax", "norm_clipped_softmax", "logistic")

# `margin="auto"` is this multiple of the standard deviation of the noise in one released logit: records should be
# right by more than the noise can turn (THEORY section 2). docs/margin.md tells how the multiple was confirmed.
AUTO_MARGIN = 3.0


_LABELS = "finite numbers, booleans or texts"
_LABEL_DTYPES = frozenset(
    ["bool", "str", "object", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)


@dataclass(eq=False, repr=False)
class _PrivateClassifier(ClassifierMixin, NoisyCGDEstimator):  # type: ignore[misc]  # scikit-learn has no types
    _: KW_ONLY
    loss: str = "margin_softmax"
    margin: float | str = "auto"
    classes: ArrayLike | None = None

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

    def _encode_target(self, y: Any) -> Encoded:
        y = column_or_1d(y, warn=True)
        if not _are_labels(y):
            way_out = "Unknown label type: convert the labels first."
            raise DataError(message("y", f"made of {_LABELS}", f"{y.dtype} values", way_out))
        check_classification_targets(y)
        present = np.unique(y)
        assumed: tuple[str, ...] = ()
        if self.classes is None:
            classes = present
            assumed = ("the set of class labels: read off the training labels; state it with classes=...",)
        else:
            classes = _stated_classes(self.classes)
            # NumPy would compare "1" with 1 as texts, in an order that is not that of the numbers.
            alike = (classes.dtype.kind in "UO") == (present.dtype.kind in "UO")
            unknown = np.setdiff1d(present, classes) if alike else present
            if unknown.size:
                # A label of a private record has no place in an error, which may end up in a log.
                raise DataError(
                    f"y must hold only labels listed in classes; got {unknown.size} other labels. "
                    "Add them to classes, or remove those records."
                )
        if len(classes) < 2:
            raise DataError(
                f"y must hold at least 2 classes; got 1 class, {classes.tolist()}. "
                "State all classes with classes=... if others may occur."
            )
        if self._loss_name() == "logistic" and len(classes) > 2:
            refuse("loss", "another one for more than 2 classes", "logistic", 'Use loss="margin_softmax".')
        q = 1 if self._loss_name() == "logistic" else len(classes)
        indices = np.searchsorted(classes, y).astype(np.float32 if q == 1 else np.int32)
        return indices, q, {"classes_": classes}, assumed, ()

    def _outputs(self) -> dict[str, Any]:
        dtype = self.classes_.dtype
        return {"classes": self.classes_.tolist(), "dtype": "str" if dtype.kind == "U" else dtype.name}

    def _restore_outputs(self, outputs: dict[str, Any]) -> tuple[int, ...]:
        labels, dtype = outputs["classes"], outputs["dtype"]
        if dtype not in _LABEL_DTYPES:
            raise ModelFileError(f"class labels must be {_LABELS}; got dtype {dtype!r}")
        classes = np.asarray(labels, dtype=dtype)
        if not _are_labels(classes) or classes.tolist() != labels or np.unique(classes).tolist() != labels:
            raise ModelFileError(f"class labels must be distinct, in order and of dtype {dtype}; got {labels!r:.80}")
        if len(labels) < 2:
            raise ModelFileError(f"class labels must be at least two; got {labels}")
        self.classes_ = classes
        return (2, 1) if len(labels) == 2 else (len(labels),)

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """(n, d) -> (n, q) logits; for two classes (n,), positive for the second one."""
        check_is_fitted(self, "weights_")
        z = self._logits(X)
        if z.shape[1] == 1:
            return z[:, 0]
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    def predict(self, X: Any) -> NDArray[Any]:
        """(n, d) -> (n,) labels of the largest logit."""
        z = self.decision_function(X)
        chosen: NDArray[Any] = self.classes_[(z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)]
        return chosen

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, d) -> (n, q) softmax of the plain logits.

        A model trained with a margin is over-confident by design, so these numbers are scores that sum to one and
        not calibrated probabilities.
        """
        z = self.decision_function(X).astype(np.float64)
        if z.ndim == 1:
            second = expit(z)
            return np.column_stack([1 - second, second])
        probabilities: NDArray[np.float64] = softmax(z, axis=1)
        return probabilities

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        # Noise that hides one record among thirty hides the signal of thirty records as well.
        tags.classifier_tags.poor_score = True
        return tags


@documented
@dataclass(eq=False, repr=False)
class ConvexReLUClassifier(_PrivateClassifier):
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
    $shared

    Attributes
    ----------
    $attributes
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
class LinearClassifier(_PrivateClassifier):
    """Linear classifier (multinomial logistic or margin softmax), trained privately by NoisyCGD.

    Parameters
    ----------
    $classifier
    $shared

    Attributes
    ----------
    $attributes
    classes_ : ndarray of shape (q,)
        Class labels.
    """

    def _gates(self) -> tuple[str, int]:
        return "linear", 0


def _are_labels(labels: NDArray[Any]) -> bool:
    if labels.ndim != 1:
        return False
    if labels.dtype == object:
        return all(isinstance(label, str) for label in labels)
    if labels.dtype.kind == "U":
        return True
    return labels.dtype.name in _LABEL_DTYPES and bool(np.isfinite(labels).all())


def _stated_classes(classes: ArrayLike) -> NDArray[Any]:
    way_out = "List every label that may occur, as in classes=[0, 1]."
    try:
        stated = np.asarray(classes)
    except ValueError:
        refuse("classes", f"one list of {_LABELS}", classes, way_out)
    if not _are_labels(stated):
        refuse("classes", f"one list of {_LABELS}", classes, way_out)
    unique = np.unique(stated)
    if len(unique) < max(2, len(stated)):
        refuse("classes", "a list of at least 2 distinct labels", stated.tolist(), way_out)
    return unique
