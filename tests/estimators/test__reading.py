"""Bad data are refused in words that quote nothing of them: an error may end up in a log."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from noisycgd._validation import DataError, NoisyCGDError, ParameterTypeError
from noisycgd.estimators._reading import read_records, read_rows

SECRET = 271.828
X = np.full((4, 2), SECRET)
Y = np.arange(4)
FRAME = pd.DataFrame({"a": [1.0, SECRET, 2.0, 3.0], "b": [1, 2, 3, 4]})


def test_what_is_read_is_what_was_given():
    reader = BaseEstimator()
    rows, targets = read_records(reader, FRAME, pd.Series(list("abcd")))
    np.testing.assert_array_equal(rows, FRAME.to_numpy())
    assert targets.tolist() == list("abcd")
    assert reader.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(read_rows(reader, FRAME[:2]), FRAME.to_numpy()[:2])
    # Objects that are numbers are numbers.
    assert read_records(BaseEstimator(), X.astype(object), Y)[0].dtype == np.float64


BAD = {
    "text among objects": (np.where(np.eye(4, 2), "271.828 alice", X.astype(object)), Y),
    "1-D": (X[:, 0], Y),
    "structured": (np.array([(SECRET, 1.0)] * 4, dtype=[("a", float), ("b", float)]), Y),
    "one dictionary": (X, {"alice": SECRET}),
    "complex": (X + 1j, Y),
    "complex target": (X, Y + SECRET * 1j),
    "a huge integer": ([[271828 * 10**400, 1]] * 4, Y),
    "a dictionary": (np.where(np.eye(4, 2), {"alice": SECRET}, X.astype(object)), Y),
    "ragged": ([[SECRET], [1, 2], [3, 4], [5, 6]], Y),
    "infinite": (np.where(np.eye(4, 2), np.inf, X), Y),
    "missing target": (X, np.array([SECRET, np.nan, 1, 2])),
    "lengths": (X, Y[:3]),
    "dates": (np.full((4, 2), "2718-02-08", "datetime64[D]"), Y),
    "masked": (np.ma.masked_greater(X, 1), Y),
    "masked target": (X, np.ma.masked_greater(Y, 2)),
    "pandas text": (FRAME.assign(b=["alice", "b", "c", "d"]), Y),
    "pandas categories": (FRAME.assign(b=pd.Categorical(["alice", "b", "c", "d"])), Y),
    "pandas strings": (FRAME.assign(b=pd.array(["alice", "b", "c", "d"], dtype="string")), Y),
    "pandas dates": (FRAME.assign(b=pd.to_datetime(["2718-02-08"] * 4).astype("datetime64[s]")), Y),
    "pandas durations": (FRAME.assign(b=pd.to_timedelta([271828] * 4)), Y),
    "pandas complex": (FRAME.assign(b=X[:, 0] + 1j), Y),
    "pandas missing text": (FRAME, pd.Series(["alice", pd.NA, "b", "c"], dtype="string")),
    "repeated columns": (pd.concat([FRAME, FRAME], axis=1), Y),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", BAD)
def test_refusals_are_the_packages_own_and_quote_nothing(name):
    with pytest.raises(NoisyCGDError) as caught:
        read_records(BaseEstimator(), *BAD[name])
    text = str(caught.value)
    assert text
    for secret in ("271", "2718", "alice", "e+"):
        assert secret not in text
    # Where it was raised has no more to tell.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (BAD["pandas categories"][0], "^Column 'b' must be numeric; got 'category values'"),
        (BAD["pandas dates"][0], "^Column 'b' must be numeric; got 'datetime64.* values'"),
        (BAD["repeated columns"][0], "^X must be a table whose columns have different names; got .* more than once"),
    ],
)
def test_columns_are_named_since_they_are_public(frame, expected):
    with pytest.raises(DataError, match=expected):
        read_records(BaseEstimator(), frame, Y)


def test_columns_named_by_texts_and_numbers():
    with pytest.raises(ParameterTypeError, match=r"^Feature names are only supported if all input features have str"):
        read_records(BaseEstimator(), pd.DataFrame(X).rename(columns={0: "a"}), Y)


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float32"])
def test_pandas_own_numbers_are_numbers(dtype):
    frame = pd.DataFrame({"a": pd.array([0, 1, 1, 0], dtype=dtype)})
    assert read_records(BaseEstimator(), frame, Y)[0].ravel().tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_warning_tells_of_a_single_record(dtype):
    # Sums of these leave the range of floats, which NumPy would warn of.
    large = np.finfo(dtype).max
    rows = np.zeros((4, 4), dtype)
    rows[0] = [large, large, -large, -large]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_records(BaseEstimator(), rows, rows[:, 0])
