"""Estimators to and from model folders; `noisycgd.artifact` owns the format, this file what an estimator puts in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from noisycgd._validation import ModelFileError, NoisyCGDError, check_integer, message
from noisycgd.artifact import read_model, write_model
from noisycgd.data import RowBounds
from noisycgd.estimators._base import RESTORE, PrivateEstimator
from noisycgd.estimators.classifiers import ConvexReLUClassifier, LinearClassifier
from noisycgd.estimators.network import ReLUNetworkClassifier
from noisycgd.estimators.regressor import ConvexReLURegressor
from noisycgd.estimators.ssp import SSPClassifier, SSPRegressor
from noisycgd.verification import read_guarantee

_CLASSES: tuple[type[PrivateEstimator], ...] = (
    ConvexReLUClassifier,
    LinearClassifier,
    ConvexReLURegressor,
    ReLUNetworkClassifier,
    SSPClassifier,
    SSPRegressor,
)
ESTIMATORS = {cls.__name__: cls for cls in _CLASSES}
M = TypeVar("M", bound=PrivateEstimator)


def save_model(model: PrivateEstimator, path: str | Path, table: Mapping[str, Any] | None = None) -> Path:
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

    Raises
    ------
    ModelFileError
        If the path cannot be used, or the model's guarantee was changed since `fit` and contradicts itself.
    """
    from noisycgd.report.plots import guarantee_png

    check_is_fitted(model, "guarantee_")
    # Nobody shall read on the disk what could not be loaded.
    try:
        guarantee = read_guarantee(model.guarantee_.to_dict())
    except ModelFileError:
        raise
    except (NoisyCGDError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(message("guarantee_", "as fit() stated it", str(error), "Fit the model again.")) from None
    names = getattr(model, "feature_names_in_", None)
    tensors, parts = model._state()
    document = {
        **parts,
        "estimator": type(model).__name__,
        "parameters": {name: _plain(value) for name, value in model.fitted_parameters_.items()},
        "n_features_in": model.n_features_in_,
        "feature_names_in": None if names is None else [str(name) for name in names],
        "bounds": model.bounds_.to_dict(),
        "outputs": model._outputs(),
        "guarantee": guarantee.to_dict(),
        "table": table if table is not None else getattr(model, "table_", None),
    }
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
        raise ModelFileError(f"{path}: model.json does not describe a model ({error!r}). {RESTORE}") from None


def _assembled(tensors: Mapping[str, NDArray[Any]], document: Mapping[str, Any], cls: type[M] | None) -> M:
    found = ESTIMATORS.get(document["estimator"])
    if found is None or (cls is not None and not issubclass(found, cls)):
        wanted = "one of " + ", ".join(ESTIMATORS) if cls is None else cls.__name__
        raise ModelFileError(
            f"estimator must be {wanted}; got {document['estimator']!r}. Load it with noisycgd.load_model."
        )
    parameters = dict(document["parameters"])
    model = cast(M, found(**parameters))
    # No larger than an array that is really there, so that a forged number cannot ask for memory.
    largest = max(max(tensor.shape, default=0) for tensor in tensors.values())
    d = check_integer("n_features_in", document["n_features_in"], low=1, high=largest)
    bounds = RowBounds.from_dict(document["bounds"], d)
    if bounds.to_dict() != document["bounds"]:
        raise ModelFileError(f"bounds must be as they were saved; got {document['bounds']!r:.200}. {RESTORE}")
    model.n_features_in_, model.bounds_ = d, bounds
    model.guarantee_ = read_guarantee(document["guarantee"])
    if model.guarantee_.mechanism not in model._mechanisms():
        found = model.guarantee_.mechanism
        raise ModelFileError(f"guarantee must be about this model's method; got {found}. {RESTORE}")
    model._restore_state(tensors, document, model._restore_outputs(document["outputs"]))
    names = document["feature_names_in"]
    if names is not None:
        if not isinstance(names, list) or len(names) != d or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"feature_names_in must hold {d} names; got {names!r:.80}. {RESTORE}")
        model.feature_names_in_ = np.asarray(names, dtype=object)
    if document["table"] is not None:
        model.table_ = document["table"]
    model.fitted_parameters_ = model.get_params(deep=False)
    return model


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
