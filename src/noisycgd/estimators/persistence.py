"""Estimators to and from model folders; `noisycgd.artifact` owns the format, this file what an estimator puts in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from noisycgd._validation import ModelFileError, NoisyCGDError, check_integer
from noisycgd.artifact import read_model, write_model
from noisycgd.data import RowBounds
from noisycgd.estimators._base import NoisyCGDEstimator
from noisycgd.estimators.classifiers import ConvexReLUClassifier, LinearClassifier
from noisycgd.estimators.regressor import ConvexReLURegressor
from noisycgd.features import GATE_KINDS, GatedFeatures
from noisycgd.guarantee import read_guarantee
from noisycgd.types import Guarantee, Order

ESTIMATORS: dict[str, type[NoisyCGDEstimator]] = {
    cls.__name__: cls for cls in (ConvexReLUClassifier, LinearClassifier, ConvexReLURegressor)
}
M = TypeVar("M", bound=NoisyCGDEstimator)

_WAY_OUT = "Restore the folder from a copy, or train and save the model again."


def save_model(model: NoisyCGDEstimator, path: str | Path, table: Mapping[str, Any] | None = None) -> Path:
    """Write a fitted estimator, its guarantee and the guarantee's picture into a folder, whole or not at all.

    Parameters
    ----------
    model : estimator
        Fitted.
    path : str or Path
        A new or empty folder, or one that holds a model, which is then replaced.
    table : mapping, optional
        How a table becomes rows (the command line's columns and schema); it comes back as `table_`.

    Returns
    -------
    Path
        The folder.
    """
    from noisycgd.report.plots import guarantee_png

    check_is_fitted(model, "weights_")
    features: GatedFeatures = model.features_
    guarantee: Guarantee = model.guarantee_
    names = getattr(model, "feature_names_in_", None)
    document = {
        "estimator": type(model).__name__,
        "parameters": {name: _plain(value) for name, value in model.fitted_parameters_.items()},
        "n_features_in": model.n_features_in_,
        "feature_names_in": None if names is None else [str(name) for name in names],
        "gates": {"kind": features.kind, "n_hyperplanes": features.n_hyperplanes},
        "bounds": model.bounds_.to_dict(),
        "outputs": model._outputs(),
        "guarantee": guarantee.to_dict(),
        "table": table if table is not None else getattr(model, "table_", None),
    }
    tensors: dict[str, NDArray[Any]] = {"weights": model.weights_, "hyperplanes": features.hyperplanes}
    if model.permutation_ is not None:
        tensors["permutation"] = model.permutation_
    extras = {"guarantee.txt": f"{guarantee}\n".encode(), "guarantee.png": guarantee_png(guarantee)}
    return write_model(path, tensors, document, extras)


def load_model(path: str | Path, cls: type[M] | None = None) -> M:
    """Read a model folder and check that its parts fit together; no code from the folder runs.

    Parameters
    ----------
    path : str or Path
        A folder that `save_model` wrote.
    cls : estimator class, optional
        The kind expected.

    Raises
    ------
    ModelFileError
        If a part is missing, damaged, of a newer version, inconsistent, or of another kind than `cls`.
    """
    tensors, document = read_model(path)
    try:
        return _assembled(tensors, document, cls)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, NoisyCGDError) as error:
        raise ModelFileError(f"{path}: model.json does not describe a model ({error!r}). {_WAY_OUT}") from None


def _assembled(tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any], cls: type[M] | None) -> M:
    found = ESTIMATORS.get(document["estimator"])
    if found is None or (cls is not None and not issubclass(found, cls)):
        wanted = "one of " + ", ".join(ESTIMATORS) if cls is None else cls.__name__
        raise ModelFileError(
            f"estimator must be {wanted}; got {document['estimator']!r}. Load it with noisycgd.load_model."
        )
    parameters = dict(document["parameters"])
    model = cast(M, found(**parameters))
    weights = tensors["weights"]
    # No larger than an array that is really there, so that a forged number cannot ask for memory.
    d = check_integer("n_features_in", document["n_features_in"], low=1, high=weights.shape[0])
    bounds = RowBounds.from_dict(document["bounds"], d)
    if bounds.to_dict() != document["bounds"]:
        raise ModelFileError(f"bounds must be as they were saved; got {document['bounds']!r:.200}. {_WAY_OUT}")
    kind, P = document["gates"]["kind"], check_integer("n_hyperplanes", document["gates"]["n_hyperplanes"], low=0)
    if kind not in GATE_KINDS or (kind == "linear") != (P == 0) or (kind == "antithetic" and P % 2):
        raise ModelFileError(f"gates must be a known kind with a possible number of hyperplanes; got {kind!r}, {P}")
    width = bounds.width(d)
    H = {"linear": 0, "iid": P, "antithetic": P // 2}[kind]
    hyperplanes = _tensor(tensors, "hyperplanes", (width, H), np.float32)
    features = GatedFeatures(kind, P, hyperplanes)
    counts = model._restore_outputs(document["outputs"])
    # Not told by the parameters, which may have been changed since the fit.
    q = next((q for q in counts if weights.shape[1] == features.n_gates * q), counts[0])
    model.weights_ = _tensor(tensors, "weights", (width, features.n_gates * q), np.float32)
    guarantee = read_guarantee(document["guarantee"])
    permutation = tensors.get("permutation")
    if (permutation is None) != (guarantee.order is Order.GIVEN):
        raise ModelFileError(f"permutation must be there if and only if it is accounted for. {_WAY_OUT}")
    if permutation is not None:
        _tensor(tensors, "permutation", (guarantee.n_records,), np.int64)
        if not np.array_equal(np.sort(permutation), np.arange(guarantee.n_records)):
            raise ModelFileError(f"permutation must hold each record once. {_WAY_OUT}")
    model.n_features_in_ = d
    names = document["feature_names_in"]
    if names is not None:
        if not isinstance(names, list) or len(names) != d or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"feature_names_in must hold {d} names; got {names!r:.80}. {_WAY_OUT}")
        model.feature_names_in_ = np.asarray(names, dtype=object)
    if document["table"] is not None:
        model.table_ = document["table"]
    model.features_, model.bounds_ = features, bounds
    model.permutation_, model.guarantee_ = permutation, guarantee
    model.fitted_parameters_ = model.get_params(deep=False)
    return model


def _tensor(
    tensors: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], dtype: type[np.generic]
) -> NDArray[Any]:
    if name not in tensors:
        raise ModelFileError(f"tensor {name!r} must be present. {_WAY_OUT}")
    found = tensors[name]
    if found.shape != shape or found.dtype != dtype:
        raise ModelFileError(
            f"tensor {name!r} must be {np.dtype(dtype).name} of shape {shape}; "
            f"got {found.dtype} of {found.shape}. {_WAY_OUT}"
        )
    return found


def _plain(value: Any) -> Any:
    """A parameter as JSON: arrays become lists, generators of hyperplanes are not kept (the hyperplanes are)."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return np.asarray(value).tolist()
