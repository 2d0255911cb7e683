"""What a user passes as X and y, checked by scikit-learn and refused without a word of what the records hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import validate_data

from noisycgd._validation import DataError, NoisyCGDError, ParameterTypeError, message
from noisycgd.data.sources import to_matrix, to_vector, unquoted

_WAY_OUT = "Reshape your data to a row of finite numbers for each record, and one target per row."
# Refusals of scikit-learn that tell of shapes, names and types alone.
_TELLS_NO_VALUE = re.compile(
    r"Input (X |y )?contains |Found |X has |[Tt]he feature names|Feature names are only |Sparse |A sparse |Expected a |"
    r"y should "
)


def read_records(estimator: BaseEstimator, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """(n, d) numbers and targets; sets `n_features_in_` and `feature_names_in_`.

    Raises
    ------
    DataError, ParameterTypeError
        If the data cannot be used. Neither says what a record holds: an error may end up in a log.
    """
    with discreet():
        rows, targets = validate_data(
            estimator, _unmasked("X", to_matrix(X)[0]), _unmasked("y", to_vector(y)),
            dtype="numeric", y_numeric=False, multi_output=True, ensure_2d=True,
        )  # fmt: skip
    return _numbers(rows), targets


def read_rows(estimator: BaseEstimator, X: Any) -> NDArray[Any]:
    """(n, d) numbers with the columns that the estimator was fitted on; raises as `read_records`."""
    with discreet():
        rows = validate_data(estimator, _unmasked("X", to_matrix(X)[0]), dtype="numeric", reset=False)
    return _numbers(rows)


def one_column(y: Any, *, warn: bool = False) -> NDArray[Any]:
    """(n,) of n numbers or a column of them, with scikit-learn's warning if asked for; raises as `read_records`."""
    with discreet():
        return column_or_1d(y, warn=warn)  # type: ignore[no-any-return]


@contextmanager
def discreet() -> Iterator[None]:
    """Say what is wrong with the data without quoting them, and without a warning that depends on one record."""
    try:
        # The sum by which scikit-learn looks for infinity leaves the range of floats for some finite records.
        with np.errstate(all="ignore"):
            yield
    except NoisyCGDError:
        raise
    except (ValueError, OverflowError) as error:
        raise DataError(without_values(error)) from None
    except TypeError as error:
        raise ParameterTypeError(without_values(error)) from None


def without_values(error: Exception) -> str:
    """What scikit-learn says against data, without what they hold."""
    text = str(error).strip()
    if found := re.match(r"Input (X |y )?contains NaN\.", text):
        return f"{found[0]} Drop those rows, or fill them with a number chosen without the records."
    if _TELLS_NO_VALUE.match(text):
        return text
    reason = unquoted(error).partition(": ")[0].rstrip(":. ")
    return f"X and y must be arrays or tables of numbers; got an error: {reason}. {_WAY_OUT}"


def _unmasked(name: str, values: Any) -> Any:
    if isinstance(values, np.ma.MaskedArray):
        raise DataError(message(name, "without a mask", "a masked array", "Fill it, or drop the masked rows."))
    return values


def _numbers(rows: NDArray[Any]) -> NDArray[Any]:
    if rows.dtype.kind not in "biuf":
        raise DataError(message("X", "made of numbers", f"{rows.dtype} values", "Convert it first."))
    return rows
