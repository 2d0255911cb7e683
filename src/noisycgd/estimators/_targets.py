"""What a classifier knows of its labels and a regressor of its target's range, whatever model stands behind them."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from noisycgd._validation import DataError, ModelFileError, check_real, message, refuse
from noisycgd.data.sources import to_vector
from noisycgd.estimators._base import Encoded, PrivateEstimator
from noisycgd.estimators._reading import discreet, one_column

_LABELS = "finite numbers, booleans or texts"
_LABEL_DTYPES = frozenset(
    ["bool", "str", "object", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)


@dataclass(eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier: labels in, logits out."""

    _: KW_ONLY
    classes: ArrayLike | None = None

    def _one_logit(self) -> bool:
        """Whether two classes share one logit."""
        return False

    def _encode_target(self, y: Any) -> Encoded:
        y = one_column(y, warn=True)
        _check_labels(y)
        present = np.unique(y)
        assumed: tuple[str, ...] = ()
        if self.classes is None:
            # It warns if labels are many, which depends on the records; where classes are stated it must not.
            _check_discrete(y)
            classes = present
            assumed = ("the set of class labels: read off the training labels; state it with classes=...",)
        else:
            classes = _stated_classes(self.classes)
            if not _listed(present, classes):
                # Neither such a label nor how many there are has a place in an error, which may end up in a log.
                raise DataError(
                    "y must hold only labels listed in classes; got others. "
                    "Add them to classes, or remove those records."
                )
        if len(classes) < 2:
            raise DataError(
                "y must hold at least 2 classes; got 1 class. State all classes with classes=... or in a schema."
            )
        if not _writable(classes):
            raise DataError("y must hold labels that can be saved; got text that is not UTF-8. Replace those labels.")
        if self._one_logit() and len(classes) > 2:
            refuse("loss", "another one for more than 2 classes", "logistic", 'Use loss="margin_softmax".')
        q = 1 if self._one_logit() else len(classes)
        indices = np.searchsorted(classes, y).astype(np.float32 if q == 1 else np.int32)
        return Encoded(indices, q, {"classes_": classes}, assumed)

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
        check_is_fitted(self, "guarantee_")
        z = self._logits(X)
        if z.shape[1] == 1:
            return z[:, 0]
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    def predict(self, X: Any) -> NDArray[Any]:
        """(n, d) -> (n,) labels of the largest logit."""
        z = self.decision_function(X)
        chosen: NDArray[Any] = self.classes_[(z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)]
        return chosen

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of `predict` on (n, d) rows with (n,) labels: computed from these and covered by no guarantee."""
        predicted = self.predict(X)
        with discreet():
            labels = one_column(to_vector(y))
            _check_labels(labels)
            if (labels.dtype.kind in "UO") != (self.classes_.dtype.kind in "UO"):
                raise DataError(message("y", "made of labels like those in classes_", f"{labels.dtype} values"))
            return float(accuracy_score(labels, predicted, sample_weight=sample_weight))

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


@dataclass(eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor: a target with public bounds, scaled to [-1, 1] for the model."""

    _: KW_ONLY
    target_range: tuple[float, float] | None = None

    def _encode_target(self, y: Any) -> Encoded:
        y = one_column(y, warn=True)
        try:
            if y.dtype.kind in "mMc":
                raise TypeError
            values = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
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
        try:
            low, high = _checked_range(stated)
        except ValueError:
            if self.target_range is not None:
                raise
            # An extreme value of a private record has no place in an error.
            way_out = "State public bounds with target_range=..."
            raise DataError(f"y must have a range that float64 can hold. {way_out}") from None
        scaled = (np.clip(values, low, high) - low) / (high - low) * 2 - 1
        return Encoded(scaled.astype(np.float32), 1, {"target_range_": (low, high)}, inferred=inferred)

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

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """R^2 of `predict` on (n, d) rows with (n,) targets: computed from these and covered by no guarantee."""
        predicted = self.predict(X)
        with discreet():
            return float(r2_score(one_column(to_vector(y)), predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        # Noise that hides one record among thirty hides the signal of thirty records as well.
        tags.regressor_tags.poor_score = True
        return tags


def _check_labels(labels: NDArray[Any]) -> None:
    if not _are_labels(labels):
        way_out = "Unknown label type: convert the labels first."
        raise DataError(message("y", f"made of {_LABELS}", f"{labels.dtype} values", way_out))


def _are_labels(labels: NDArray[Any]) -> bool:
    if labels.ndim != 1:
        return False
    if labels.dtype == object:
        return all(isinstance(label, str) for label in labels)
    if labels.dtype.kind == "U":
        return True
    return labels.dtype.name in _LABEL_DTYPES and bool(np.isfinite(labels).all())


def _check_discrete(labels: NDArray[Any]) -> None:
    try:
        check_classification_targets(labels)
    except ValueError as error:
        way_out = "For a continuous target use a regressor: ConvexReLURegressor, --model convex-relu-regressor."
        raise DataError(f"y must hold class labels. {str(error).partition('. ')[0]}. {way_out}") from None


def _listed(present: NDArray[Any], classes: NDArray[Any]) -> bool:
    """Whether all labels are among the classes, by value."""
    # NumPy would compare "1" with 1 as texts, in an order that is not that of the numbers.
    texts = classes.dtype.kind in "UO"
    if texts != (present.dtype.kind in "UO"):
        return False
    if not texts:
        # Large integers and floats have a common type that rounds: two labels could become one class.
        common = np.result_type(present, classes)
        with np.errstate(invalid="ignore"):
            if (present.astype(common).astype(present.dtype) != present).any():
                return False
    return bool(np.isin(present, classes).all())


def _writable(classes: NDArray[Any]) -> bool:
    try:
        "".join(map(str, classes)).encode()
    except UnicodeEncodeError:
        return False
    return True


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
