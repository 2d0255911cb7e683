"""What every private estimator shares: check, bound, train, state the guarantee, save and load."""

from __future__ import annotations

import abc
import copy
import numbers
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from noisycgd._validation import (
    ModelFileError,
    NoisyCGDError,
    ParameterTypeError,
    check_integer,
    check_real,
    message,
    refuse,
)
from noisycgd.data import RowBounds
from noisycgd.estimators._company import warn_of_company
from noisycgd.estimators._reading import read_records, read_rows
from noisycgd.guarantee import Guarantee
from noisycgd.statements import as_watched, state_guarantee
from noisycgd.training import Randomness, system_randomness
from noisycgd.training.watching import is_watched, shown_as
from noisycgd.types import EpsilonDelta, GaussianMu, NoiseMultiplier, Target

RESTORE = "Restore the folder from a copy, or train and save the model again."


_EPSILON = 1.0
Seed: TypeAlias = int | np.random.RandomState | None


class Encoded(NamedTuple):
    """Targets as a loss wants them, and what the user did not state about them."""

    targets: NDArray[Any]
    n_outputs: int
    attributes: dict[str, Any]
    assumed_public: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()


class Shape(NamedTuple):
    """What is public about the records of a fit, and the public map that bounds a row."""

    n_records: int
    n_columns: int
    n_outputs: int
    bounds: RowBounds
    seed: Seed
    """Seeds what is public: hyperplanes, random features, start weights."""


class Records(NamedTuple):
    """What a fit may read: raw rows, encoded targets, and their shape."""

    rows: NDArray[Any]
    targets: NDArray[Any]
    shape: Shape


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator, abc.ABC):  # type: ignore[misc]  # scikit-learn has no types
    """Parameters and life cycle shared by all estimators; a dataclass so that each parameter is written once."""

    epsilon: float | None = _EPSILON
    delta: float = 1e-5
    _: KW_ONLY
    mu: float | None = None
    noise_multiplier: float | None = None
    row_norm: float = 1.0
    row_bounding: str = "normalize"
    center_rows: bool = False
    bias: float = 0.0
    column_bounds: ArrayLike | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False

    @abc.abstractmethod
    def _encode_target(self, y: Any) -> Encoded:
        """Targets for the loss, q, fitted attributes, what is assumed public, and which numbers were inferred."""

    @abc.abstractmethod
    def _plan_for(self, shape: Shape) -> Any:
        """The plan of a fit on records of that shape: all that is checked before a record is read."""

    @abc.abstractmethod
    def _train(self, records: Records, randomness: Randomness | None) -> dict[str, Any]:
        """Fitted attributes, among them `plan_`; without randomness the public start point, untrained."""

    @abc.abstractmethod
    def _mechanisms(self) -> tuple[str, ...]:
        """Mechanisms that its guarantee may be about, from its parameters."""

    @abc.abstractmethod
    def _logits_of(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """(n, d) raw rows -> (n, q) outputs."""

    @abc.abstractmethod
    def _outputs(self) -> dict[str, Any]:
        """The fitted attributes of the target as JSON."""

    @abc.abstractmethod
    def _restore_outputs(self, outputs: dict[str, Any]) -> tuple[int, ...]:
        """Set them again and return the possible values of q."""

    @abc.abstractmethod
    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Tensors and JSON of the fitted model itself, for a model folder."""

    @abc.abstractmethod
    def _restore_state(
        self, tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any], counts: tuple[int, ...]
    ) -> None:
        """Set them again, with `n_features_in_`, `bounds_` and `guarantee_` in place; raise on any contradiction."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train privately and release the model.

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
        ValueError, TypeError
            If the data cannot be used; the estimator is then left unfitted.
        """
        warn_of_company()
        return self._fit(X, y, system_randomness())

    def _fit(self, X: Any, y: Any, randomness: Randomness | None) -> Self:
        self._unfit()
        try:
            for name, value in self._trained(X, y, randomness).items():
                setattr(self, name, value)
        except BaseException:
            self._unfit()
            raise
        return self

    def _flags(self) -> tuple[str, ...]:
        return ("center_rows", "verbose")

    def _shape(self, n_records: int, n_columns: int, n_outputs: int) -> Shape:
        """Check the parameters that say how a row becomes bounded, and what seeds the public draws."""
        for name in self._flags():
            check_flag(name, getattr(self, name))
        seed = self.random_state
        if seed is not None and not isinstance(seed, np.random.RandomState):
            seed = check_integer("random_state", seed, low=0, high=2**32 - 1, way_out="None draws new hyperplanes.")
        bounds = RowBounds.create(
            self.row_norm, self.row_bounding, self.center_rows, self.bias, self.column_bounds, n_columns
        )
        return Shape(n_records, n_columns, n_outputs, bounds, seed)

    def _trained(self, X: Any, y: Any, randomness: Randomness | None) -> dict[str, Any]:
        encoded, records = self._records(X, y)

        def released(fitted: dict[str, Any]) -> dict[str, Any]:
            return self._released(encoded, records.shape, fitted, randomness)

        def fitted_copy(fitted: dict[str, Any]) -> PrivateEstimator:
            model = copy.copy(self)
            for name, value in released(fitted).items():
                setattr(model, name, value)
            return model

        with shown_as(fitted_copy):
            return released(self._train(records, randomness))

    def _records(self, X: Any, y: Any) -> tuple[Encoded, Records]:
        rows, y = read_records(self, X, y)
        kept = {name: _as_it_was(value) for name, value in self.get_params(deep=False).items()}
        encoded = self._encode_target(y)
        encoded = encoded._replace(attributes={**encoded.attributes, "fitted_parameters_": kept})
        shape = self._shape(len(rows), rows.shape[1], encoded.n_outputs)
        return encoded, Records(rows, encoded.targets, shape)

    def _released(
        self, encoded: Encoded, shape: Shape, fitted: dict[str, Any], randomness: Randomness | None
    ) -> dict[str, Any]:
        """All fitted attributes, from those of the model itself."""
        secret = randomness is None or randomness.secret
        guarantee = self._statement(fitted["plan_"], shape.bounds, secret, encoded)
        return {
            **encoded.attributes,
            "bounds_": shape.bounds,
            **fitted,
            "guarantee_": as_watched(guarantee) if is_watched() else guarantee,
        }

    def _statement(self, plan: Any, bounds: RowBounds, secret: bool, encoded: Encoded) -> Guarantee:
        return state_guarantee(
            plan, bounds, secret=secret, assumed_public=encoded.assumed_public, inferred=encoded.inferred
        )

    def _target(self) -> Target:
        other = self.mu is not None or self.noise_multiplier is not None
        if other and self.epsilon is not None and check_real("epsilon", self.epsilon) != _EPSILON:
            way_out = "Give one of epsilon, mu and noise_multiplier."
            refuse("epsilon", "left at its default when mu or noise_multiplier is given", self.epsilon, way_out)
        if self.mu is not None and self.noise_multiplier is not None:
            refuse("noise_multiplier", "None when mu is given", self.noise_multiplier, "Give one of the two.")
        if self.mu is not None:
            return GaussianMu(self.mu, self.delta)
        if self.noise_multiplier is not None:
            return NoiseMultiplier(self.noise_multiplier, self.delta)
        return EpsilonDelta(self.epsilon, self.delta)  # type: ignore[arg-type]  # checked by the plan

    def _unfit(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)

    def _logits(self, X: Any) -> NDArray[np.float32]:
        check_is_fitted(self, "guarantee_")
        return self._logits_of(read_rows(self, X))

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


def checked_tensor(
    tensors: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], dtype: type[np.generic]
) -> NDArray[Any]:
    """A tensor of a model folder, if it is there and is what it must be."""
    if name not in tensors:
        raise ModelFileError(f"tensor {name!r} must be present. {RESTORE}")
    found = tensors[name]
    if found.shape != shape or found.dtype != dtype:
        raise ModelFileError(
            f"tensor {name!r} must be {np.dtype(dtype).name} of shape {shape}; "
            f"got {found.dtype} of {found.shape}. {RESTORE}"
        )
    return found


def check_finite(*arrays: NDArray[Any]) -> None:
    """Refuse a model that diverged."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise NoisyCGDError("training diverged: the parameters are not finite. Lower learning_rate.")


def _as_it_was(value: Any) -> Any:
    """A parameter that no later change of the user's object reaches, its fractions floats, which a file can hold."""
    if type(value) in (list, tuple):
        return type(value)(map(_as_it_was, value))
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral | float | np.generic):
        return float(value)
    return copy.deepcopy(value) if hasattr(value, "__array__") else value


def check_flag(name: str, value: object) -> None:
    """Refuse what is no boolean: a text such as "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterTypeError(message(name, "True or False", value))
