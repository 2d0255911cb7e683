import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import r2_score

from noisycgd import ConvexReLURegressor
from noisycgd._validation import DataError, ParameterError, ParameterTypeError
from noisycgd.types import Status

N, D = 48, 5
RNG = np.random.default_rng(17)
X = RNG.standard_normal((N, D))
Y = X[:, 0] * 30 + 100


def make(**changes):
    return ConvexReLURegressor(**{"n_hyperplanes": 4, "epochs": 2, **changes})


def assert_refused(model, error, expected, target=Y):
    with pytest.raises(error, match=expected):
        model.fit(X, target)
    assert not [name for name in vars(model) if name.endswith("_")]


class TestRange:
    def test_stated(self):
        model = make(target_range=(50, 150)).fit(X, Y)
        assert model.target_range_ == (50.0, 150.0)
        assert model.guarantee_.assumed_public == ()

    def test_inferred_is_assumed_public(self):
        model = make().fit(X, Y)
        assert model.target_range_ == (Y.min(), Y.max())
        assert model.guarantee_.assumed_public == (
            "the range of the target: read off the training targets; state it with target_range=...",
        )

    def test_does_not_change_the_guarantee(self):
        one, two = (make(target_range=r).fit(X, Y).guarantee_ for r in ((0, 1), (-1e9, 1e9)))
        assert one == two
        assert one.status is Status.PROVED

    def test_predictions_stay_within(self):
        # Little budget: raw predictions are far outside.
        p = make(target_range=(90.0, 110.0), epsilon=0.01).fit(X, Y).predict(X)
        assert p.min() >= 90
        assert p.max() <= 110
        assert {90.0, 110.0} & set(p)

    @pytest.mark.parametrize("value", [0.0, 5.0, -1e17, 1e300])
    def test_one_value_only(self, value):
        model = make().fit(X, np.full(N, value))
        low, high = model.target_range_
        assert low < value < high
        assert np.isfinite(model.predict(X)).all()

    @pytest.mark.parametrize(
        ("stated", "error", "expected"),
        [
            ((1, 0), ParameterError, r"^target_range must be a pair low < high, .*; got \(1.0, 0.0\)\. State public"),
            ((1, 1), ParameterError, r"^target_range must be a pair low < high, .*; got \(1.0, 1.0\)\. State public"),
            ((0, np.inf), ParameterError, r"^target_range must be .*finite; got inf\. State public"),
            ((np.nan, 1), ParameterError, r"^target_range must be .*finite; got nan\. State public"),
            ((-1.7e308, 1.7e308), ParameterError, r"^target_range must be a pair low < high, not too far apart"),
            ((0, 1, 2), ParameterError, r"^target_range must be a pair \(low, high\); got \(0, 1, 2\)\. State"),
            (5, ParameterError, r"^target_range must be a pair \(low, high\); got 5\. State"),
            ("01", ParameterTypeError, r"^target_range must be .*; got '0'\. State"),
            ((None, 1), ParameterTypeError, r"^target_range must be .*; got None\. State"),
        ],
        ids=str,
    )
    def test_that_is_none(self, stated, error, expected):
        assert_refused(make(target_range=stated), error, expected)


class TestTargets:
    @pytest.mark.parametrize("container", [list, pd.Series, pl.Series, pa.array], ids=lambda c: c.__name__)
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
    def test_containers(self, container, dtype):
        y = container(Y.astype(dtype))
        model = make().fit(X, y)
        assert model.predict(X).dtype == np.float64
        assert model.score(X, y) == pytest.approx(r2_score(Y.astype(dtype), model.predict(X)))

    @pytest.mark.parametrize(
        ("y", "expected"),
        [
            (np.where(np.arange(N) == 3, np.nan, Y), "Input y contains NaN"),
            (np.where(np.arange(N) == 3, np.inf, Y), "Input y contains infinity"),
            (np.array(["a"] * N), r"^y must be made of numbers; got '<U1 values'\. Convert it first\."),
            (np.array([None, *Y[1:]], dtype=object), "Input y contains NaN|y must be made of numbers|must be finite"),
            (Y + 1j, "Complex data not supported"),
            (np.array([10**400, *Y[1:]], dtype=object), "^y must be made of numbers; got .object values"),
            (Y.astype("datetime64[s]"), r"^y must be made of numbers; got .datetime64\[s\] values"),
            (Y.astype("timedelta64[s]"), r"^y must be made of numbers; got .timedelta64\[s\] values"),
            (np.stack([Y, Y], axis=1), "y should be a 1d array"),
            (Y[:-1], "inconsistent numbers of samples"),
        ],
        ids=["NaN", "inf", "text", "missing", "complex", "huge", "dates", "durations", "two columns", "length"],
    )
    def test_that_are_none(self, y, expected):
        assert_refused(make(), ValueError, expected, y)

    def test_values_too_far_apart(self):
        target = np.zeros(N)
        target[:2] = -1.7e308, 1.7e308
        assert_refused(make(), DataError, "^y must have a range that float64 can hold", target)


# Few independent hyperplanes leave some rows without an open gate.
@pytest.mark.parametrize(("gates", "least"), [("antithetic", 0.9), ("linear", 0.9), ("iid", 0.3)])
def test_learns_a_linear_function_of_the_direction_given_a_vast_budget(gates, least):
    y = 20 * X[:, 0] / np.linalg.norm(X, axis=1) + 100
    model = make(gates=gates, epsilon=1e7, epochs=200, random_state=0, target_range=(80, 120)).fit(X, y)
    assert model.score(X, y) > least
    assert model.score(X, 200 - y) < 0


def test_little_budget_learns_nothing():
    y = 20 * X[:, 0] / np.linalg.norm(X, axis=1) + 100
    assert max(make(epsilon=0.01, epochs=20).fit(X, y).score(X, y) for _ in range(3)) < 0.9
