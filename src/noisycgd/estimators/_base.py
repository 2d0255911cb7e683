"""What every estimator trained by NoisyCGD shares: check, plan, batch, train, state the guarantee."""

from __future__ import annotations

import abc
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from noisycgd._validation import (
    NoisyCGDError,
    ParameterTypeError,
    check_choice,
    check_integer,
    check_real,
    message,
    refuse,
)
from noisycgd.data import RowBounds, make_batches
from noisycgd.data.sources import to_matrix, to_vector
from noisycgd.features import GatedFeatures, make_gates
from noisycgd.guarantee import state_guarantee
from noisycgd.losses import Loss
from noisycgd.planning import plan_noisy_cgd
from noisycgd.report.progress import epoch_progress
from noisycgd.training import system_randomness, train_cyclic
from noisycgd.types import EpsilonDelta, GaussianMu, NoiseMultiplier, Order, Plan, Target

# Rows are predicted in chunks, so that the products of a large table never stand in memory at once.
PREDICT_ROWS = 4096

Encoded = tuple[NDArray[Any], int, dict[str, Any], tuple[str, ...], tuple[str, ...]]


@dataclass(eq=False, repr=False)
class NoisyCGDEstimator(BaseEstimator, abc.ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Parameters and life cycle shared by the estimators; a dataclass so that each parameter is written once."""

    epsilon: float | None = 1.0
    delta: float = 1e-5
    _: KW_ONLY
    mu: float | None = None
    noise_multiplier: float | None = None
    epochs: int = 200
    batch_size: int | str = "auto"
    learning_rate: float | str = "auto"
    schedule: str | ArrayLike = "linear"
    l2: float = 0.0
    clipping_norm: float | str = "auto"
    row_norm: float = 1.0
    row_bounding: str = "normalize"
    center_rows: bool = False
    bias: float = 0.0
    column_bounds: ArrayLike | None = None
    batch_order: str = "permuted"
    allow_unproven: bool = False
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False

    # `clipping_norm="auto"` is this share of rho; each loss that clips states its own.
    _auto_clip: ClassVar[dict[str, float]] = {}

    @abc.abstractmethod
    def _gates(self) -> tuple[str, int]:
        """Kind of gates and number of hyperplanes."""

    @abc.abstractmethod
    def _encode_target(self, y: Any) -> Encoded:
        """Targets for the loss, q, fitted attributes, what is assumed public, and which numbers were inferred."""

    @abc.abstractmethod
    def _make_loss(self, clip: float, logit_noise: float | None) -> Loss:
        """The loss; `logit_noise` is None while only its certificate is wanted."""

    @abc.abstractmethod
    def _loss_name(self) -> str:
        """Name of the loss."""

    @abc.abstractmethod
    def _outputs(self) -> dict[str, Any]:
        """The fitted attributes of the target as JSON."""

    @abc.abstractmethod
    def _restore_outputs(self, outputs: dict[str, Any]) -> tuple[int, ...]:
        """Set them again and return the possible values of q."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train privately and release the last iterate.

        Parameters
        ----------
        X : array-like of shape (n, d)
            NumPy array, pandas or polars frame, Arrow table: finite numbers.
        y : array-like of shape (n,)
            Labels or values.

        Returns
        -------
        self
            With `guarantee_`, the statement of what is promised.

        Raises
        ------
        ParameterError, UnprovenGuaranteeError
            If a parameter breaks its requirement or the guarantee's; the estimator is then left unfitted.
        ValueError
            If the data cannot be used; the estimator is then left unfitted.
        """
        self._unfit()
        try:
            for name, value in self._trained(X, y).items():
                setattr(self, name, value)
        except BaseException:
            self._unfit()
            raise
        return self

    def _trained(self, X: Any, y: Any) -> dict[str, Any]:
        for name in ("center_rows", "allow_unproven", "verbose"):
            _check_flag(name, getattr(self, name))
        seed = self.random_state
        if seed is not None and not isinstance(seed, np.random.RandomState):
            seed = check_integer("random_state", seed, low=0, high=2**32 - 1, way_out="None draws new hyperplanes.")
        rows, targets = validate_data(
            self, to_matrix(X)[0], to_vector(y), dtype="numeric", y_numeric=False, multi_output=True, ensure_2d=True
        )
        y_encoded, q, attributes, assumed_public, inferred = self._encode_target(targets)
        n, d = rows.shape
        bounds = RowBounds.create(self.row_norm, self.row_bounding, self.center_rows, self.bias, self.column_bounds, d)
        kind, P = self._gates()
        features = make_gates(kind, bounds.width(d), P, seed)
        rho = features.feature_norm(bounds.row_norm)
        clip = self._clip(rho)
        plan = self._plan(self._make_loss(clip, None), q, rho, n)
        loss = self._make_loss(clip, plan.logit_noise)
        randomness = system_randomness()
        order = randomness.permutation(n) if plan.order is Order.PERMUTED else None
        batches = make_batches(rows, y_encoded, order, plan.batch_size, bounds, features)
        with epoch_progress(plan.epochs, enabled=bool(self.verbose)) as on_epoch:
            weights = train_cyclic(batches, features.levels, loss, plan, q, randomness, on_epoch)
        if not np.isfinite(weights).all():
            raise NoisyCGDError("training diverged: the parameters are not finite. Lower learning_rate.")
        return {
            **attributes,
            "weights_": weights,
            "features_": features,
            "bounds_": bounds,
            "plan_": plan,
            "permutation_": order,
            "guarantee_": state_guarantee(
                plan, bounds, secret=randomness.secret, assumed_public=assumed_public, inferred=inferred
            ),
            "fitted_parameters_": self.get_params(deep=False),
        }

    def _plan(self, loss: Loss, n_outputs: int, rho: float, n_records: int) -> Plan:
        check_choice("batch_order", self.batch_order, [o.value for o in Order])
        return plan_noisy_cgd(
            certificate=loss.certificate(n_outputs),
            feature_norm=rho,
            n_records=n_records,
            target=self._target(),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            l2=self.l2,
            order=Order(self.batch_order),
            allow_unproven=self.allow_unproven,
        )

    def _target(self) -> Target:
        if self.mu is not None and self.noise_multiplier is not None:
            refuse("noise_multiplier", "None when mu is given", self.noise_multiplier, "Give one of the two.")
        if self.mu is not None:
            return GaussianMu(self.mu, self.delta)
        if self.noise_multiplier is not None:
            return NoiseMultiplier(self.noise_multiplier, self.delta)
        return EpsilonDelta(self.epsilon, self.delta)  # type: ignore[arg-type]  # checked by the plan

    def _clip(self, rho: float) -> float:
        """The clip c of a residual, so that rho * c is the clipping norm of a record's gradient."""
        if isinstance(self.clipping_norm, str):
            check_choice("clipping_norm", self.clipping_norm, ["auto"], "A number above 0 is accepted as well.")
            return self._auto_clip.get(self._loss_name(), 1.0)
        return check_real("clipping_norm", self.clipping_norm, low=0, open_low=True) / rho

    def _unfit(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)

    def _logits(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self, "weights_")
        rows = validate_data(self, to_matrix(X)[0], dtype="numeric", reset=False)
        features: GatedFeatures = self.features_
        parts = [features.logits(bounded, self.weights_) for _, bounded in self.bounds_.chunks(rows)]
        return np.concatenate(parts)

    def save(self, path: str | Path) -> Path:
        """Write the model to a folder: safetensors and JSON, never pickle, whole or not at all.

        Parameters
        ----------
        path : str or Path
            A new or empty folder, or one that holds a model, which is then replaced.
        """
        from noisycgd.estimators.persistence import save_model

        return save_model(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote; runs no code from the file.

        Raises
        ------
        ModelFileError
            If a file is missing, damaged, of a newer version, or holds another kind of estimator.
        """
        from noisycgd.estimators.persistence import load_model

        return load_model(path, cls)


def _check_flag(name: str, value: object) -> None:
    """Refuse what is no boolean: a text such as "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterTypeError(message(name, "True or False", value))
