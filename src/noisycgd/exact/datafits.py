"""What the exact programs ask of a loss: its value, its conjugate, and itself in cvxpy; summed over the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from noisycgd._validation import DataError, check_choice, message, refuse


class Datafit(Protocol):
    """A convex loss L of the outputs f, given the targets y."""

    def check(self, targets: NDArray[np.float64]) -> None:
        """Raise ParameterError for targets that the loss is not made for."""

    def scale(self, targets: NDArray[np.float64]) -> float:
        """A number b > 0 such that L(b f; b y) = b^2 L(f; y), chosen so that y / b has ordinary size; else 1."""

    def value(self, outputs: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
        """L(f)."""

    def nearest_dual(self, dual: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """The point nearest to `dual` where the conjugate is finite; with it, every multiple of it in [0, 1] is."""

    def conjugate(self, dual: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
        """L*(dual) = sup_f dual . f - L(f), at a point where it is finite."""

    def expression(self, cvxpy: Any, outputs: Any, targets: NDArray[np.float64]) -> Any:
        """L of a cvxpy expression."""


@dataclass(frozen=True)
class Squared:
    """L(f) = 1/2 ||f - y||^2."""

    def check(self, targets: NDArray[np.float64]) -> None:
        """Accept any targets."""

    def scale(self, targets: NDArray[np.float64]) -> float:
        """||y||, or 1 for zero targets."""
        return float(np.linalg.norm(targets)) or 1.0

    def value(self, outputs: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
        """1/2 ||f - y||^2."""
        return float(((outputs - targets) ** 2).sum() / 2)

    def nearest_dual(self, dual: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """`dual` itself."""
        return dual

    def conjugate(self, dual: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
        """1/2 ||dual||^2 + dual . y."""
        return float(dual @ dual / 2 + dual @ targets)

    def expression(self, cvxpy: Any, outputs: Any, targets: NDArray[np.float64]) -> Any:
        """1/2 ||f - y||^2."""
        return cvxpy.sum_squares(outputs - targets) / 2


@dataclass(frozen=True)
class Logistic:
    """L(f) = sum_j log(1 + exp(-y_j f_j)) for y_j = -1 or 1."""

    def check(self, targets: NDArray[np.float64]) -> None:
        """Refuse targets other than -1 and 1."""
        others = np.setdiff1d(targets, (-1.0, 1.0))
        if others.size:
            refuse("y", "-1 or 1 everywhere for the logistic loss", others[0], "Recode two classes as -1 and 1.")

    def scale(self, targets: NDArray[np.float64]) -> float:
        """1: the loss has no scale."""
        return 1.0

    def value(self, outputs: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
        """Sum of log(1 + exp(-y f))."""
        return float(np.logaddexp(0.0, -targets * outputs).sum())

    def nearest_dual(self, dual: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """Clip p = -y dual to [0, 1]."""
        return -targets * np.clip(-targets * dual, 0.0, 1.0)

    def conjugate(self, dual: NDArray[np.float64], targets: NDArray[np.float64]) -> float:
        """Sum of p log p + (1 - p) log(1 - p), p = -y dual in [0, 1]."""
        p = -targets * dual
        return float((xlogy(p, p) + xlogy(1 - p, 1 - p)).sum())

    def expression(self, cvxpy: Any, outputs: Any, targets: NDArray[np.float64]) -> Any:
        """Sum of log(1 + exp(-y f))."""
        return cvxpy.sum(cvxpy.logistic(-cvxpy.multiply(targets, outputs)))


_DATAFITS: dict[str, Datafit] = {"squared": Squared(), "logistic": Logistic()}


def datafit(loss: str) -> Datafit:
    """Return the datafit of that name, or raise ParameterError."""
    return _DATAFITS[check_choice("loss", loss, _DATAFITS, "The exact programs have one output.")]


def check_targets(y: ArrayLike, n: int, fit: Datafit) -> NDArray[np.float64]:
    """Return y as float64 of shape (n,), or raise DataError or ParameterError."""
    try:
        targets = np.array(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(message("y", "a vector of numbers", type(y).__name__)) from error
    if targets.shape != (n,):
        raise DataError(message("y", f"of shape ({n},), one number for each row of X", targets.shape))
    if not np.isfinite(targets).all():
        raise DataError(message("y", "finite", "NaN or infinity"))
    fit.check(targets)
    return targets
