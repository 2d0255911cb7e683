"""Private least squares from noisy sufficient statistics: one pass over the records, no learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import check_choice
from noisycgd.data import RowBounds
from noisycgd.estimators._base import Encoded, PrivateEstimator, Records, Shape, check_finite, checked_tensor
from noisycgd.estimators._documentation import documented
from noisycgd.estimators._gated import draw_row_features
from noisycgd.estimators._targets import PrivateClassifier, PrivateRegressor
from noisycgd.features.gates import FLOAT32_SLACK
from noisycgd.features.random import HYPERPLANE_DRAWS, MappedRows, RowFeatures, read_row_features, seen_rows
from noisycgd.guarantee import SSP, Guarantee
from noisycgd.ssp import SSPPlan, Statistics, plan_ssp, solve_ssp
from noisycgd.statements import state_ssp
from noisycgd.training import Randomness

FEATURES = ("identity", "fourier", "relu-patterns", "relu", "convex-relu")


@dataclass(eq=False, repr=False)
class SSPEstimator(PrivateEstimator):
    """Ridge regression on random features, from a noisy Gram matrix and noisy moments."""

    _: KW_ONLY
    features: str = "fourier"
    n_components: int = 1024
    bandwidth: float | str = "auto"
    gates: str = "antithetic"
    ridge: str = "spectral"
    rho: float = 0.05
    clip: str = "public"

    _classification: ClassVar[bool]

    def _mechanisms(self) -> tuple[str, ...]:
        return (SSP,)

    def _plan_for(self, shape: Shape) -> SSPPlan:
        seen = self._features(shape)[1]
        return self._plan(shape, seen, _norm_bound(seen))

    def _features(self, shape: Shape) -> tuple[RowFeatures | None, RowBounds | MappedRows]:
        bounds, mapped = shape.bounds, None
        kind = check_choice("features", self.features, FEATURES)
        check_choice("gates", self.gates, HYPERPLANE_DRAWS)
        if kind != "identity":
            width, R = bounds.width(shape.n_columns), bounds.row_norm
            mapped = draw_row_features(kind, width, self.n_components, self.bandwidth, self.gates, R, shape.seed)
        return mapped, seen_rows(bounds, mapped)

    def _plan(self, shape: Shape, seen: RowBounds | MappedRows, feature_norm: float) -> SSPPlan:
        check_choice("clip", self.clip, ("public", "data"))
        return plan_ssp(
            n_records=shape.n_records,
            feature_norm=feature_norm,
            target_norm=1.0,
            target=self._target(),
            n_features=seen.width(shape.n_columns),
            n_outputs=shape.n_outputs,
            classification=self._classification,
            rho=self.rho,
            ridge=self.ridge,
        )

    def _train(self, records: Records, randomness: Randomness | None) -> dict[str, Any]:
        shape = records.shape
        mapped, seen = self._features(shape)
        # Before any record is read: a bad parameter costs no pass.
        plan = self._plan(shape, seen, _norm_bound(seen))
        if randomness is None:
            return {"weights_": np.zeros((plan.n_features, plan.n_outputs)), "row_features_": mapped, "plan_": plan}
        statistics = Statistics(plan.n_features, plan.n_outputs, self._classification)
        for part, rows in seen.chunks(records.rows):
            statistics.add(rows, records.targets[part])
        if self.clip == "data":
            plan = self._plan(shape, seen, statistics.largest_row_norm or 1.0)
        weights = solve_ssp(statistics, plan, randomness)
        check_finite(weights)
        return {"weights_": weights, "row_features_": mapped, "plan_": plan}

    def _statement(self, plan: SSPPlan, bounds: RowBounds, secret: bool, encoded: Encoded) -> Guarantee:
        return state_ssp(
            plan,
            bounds,
            secret=secret,
            clipped_to_data=self.clip == "data",
            assumed_public=encoded.assumed_public,
            inferred=encoded.inferred,
        )

    def _logits_of(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        parts = [part @ self.weights_ for _, part in seen_rows(self.bounds_, self.row_features_).chunks(rows)]
        return np.concatenate(parts).astype(np.float32)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        tensors: dict[str, NDArray[Any]] = {"weights": self.weights_}
        if self.row_features_ is None:
            return tensors, {}
        return tensors | self.row_features_.to_tensors(), {"row_features": self.row_features_.to_dict()}

    def _restore_state(
        self, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any], counts: tuple[int, ...]
    ) -> None:
        mapped = document.get("row_features")
        self.row_features_ = None if mapped is None else read_row_features(tensors, mapped)
        width = seen_rows(self.bounds_, self.row_features_).width(self.n_features_in_)
        self.weights_ = checked_tensor(tensors, "weights", (width, counts[0]), np.float64)


def _norm_bound(seen: RowBounds | MappedRows) -> float:
    """Public bound on the norm of a float32 row that the statistics see."""
    return FLOAT32_SLACK * seen.row_norm


@documented
@dataclass(eq=False, repr=False)
class SSPClassifier(PrivateClassifier, SSPEstimator):
    """One least-squares fit per class (1 for the class, 0 for the others) by sufficient-statistics perturbation.

    AdaSSP as Amin et al. (2023) use it, with replace-one sensitivities (THEORY section 4). The sums of all classes are
    one release.

    Parameters
    ----------
    $ssp
    $classes
    $shared

    Attributes
    ----------
    $ssp_attributes
    $common
    classes_ : ndarray of shape (q,)
        Class labels.
    """

    _classification: ClassVar[bool] = True


@documented
@dataclass(eq=False, repr=False)
class SSPRegressor(PrivateRegressor, SSPEstimator):
    """Least squares by sufficient-statistics perturbation (AdaSSP; THEORY section 4).

    The target is clipped to its public range and scaled to [-1, 1]; predictions are clipped to the range.

    Parameters
    ----------
    $ssp
    target_range : (float, float) or None, default None
        Public bounds of the target. None takes them from the training targets, which reveals two of them: the
        guarantee is then conditional.
    $shared

    Attributes
    ----------
    $ssp_attributes
    $common
    target_range_ : tuple of float
        Bounds of the target.
    """

    _classification: ClassVar[bool] = False
