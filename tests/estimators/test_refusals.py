"""Bad data and bad parameters: refused in words, and the estimator is left unfitted."""

import inspect
import re
import warnings

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score

from noisycgd import ConvexReLUClassifier, ConvexReLURegressor, LinearClassifier
from noisycgd._validation import DataError, NoisyCGDError, ParameterError, ParameterTypeError, UnprovenGuaranteeError
from noisycgd.estimators import _gated

N, D = 48, 5
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, D))
Y = np.arange(N) % 2
ESTIMATORS = {
    "relu": (ConvexReLUClassifier, {"n_hyperplanes": 4, "epochs": 2}),
    "linear": (LinearClassifier, {"epochs": 2}),
    "regressor": (ConvexReLURegressor, {"n_hyperplanes": 4, "epochs": 2}),
}
ONE = pytest.mark.parametrize("kind", ["relu", "regressor"])
EVERY = pytest.mark.parametrize("kind", list(ESTIMATORS))


def make(kind="relu", **changes):
    cls, parameters = ESTIMATORS[kind]
    return cls(**{**parameters, **changes})


SECRET_TARGETS = {
    "texts": np.array([f"alice{i}" for i in range(N)]),
    "objects": np.array(["alice", 271.828] * (N // 2), dtype=object),
    "missing": np.where(Y == 0, np.nan, 271.828),
    "too few": np.full(N - 1, 271.828),
    "a dictionary": {0: "alice"},
    "a number": np.float64(271.828),
    "two columns": np.full((N, 2), 271.828),
}


def complaint(call, *arguments):
    """What the package says against a call; empty if it is content."""
    try:
        call(*arguments)
    except NoisyCGDError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("target", SECRET_TARGETS)
@pytest.mark.parametrize("kind", ["linear", "regressor"])
def test_score_quotes_no_target(kind, target):
    text = complaint(make(kind).fit(X, Y).score, X, SECRET_TARGETS[target])
    assert not re.search("alice|271", text)
    # Labels that the model does not know are only wrong.
    assert text or kind == "linear"


def test_score_says_what_is_wrong_with_a_target():
    model = make("linear").fit(X, Y)
    for target, part in [
        (np.full(N, "a"), "y must be made of labels like those in classes_; got '<U1 values'"),
        (X[:, 0], "can't handle a mix of continuous and binary targets"),
        (X[:, :2], "y should be a 1d array, got an array of shape"),
    ]:
        assert part in complaint(model.score, X, target)


def test_score_is_that_of_scikit_learn_and_reads_what_fit_reads():
    for kind, metric in (("linear", accuracy_score), ("regressor", r2_score)):
        model, weights = make(kind).fit(X, Y), RNG.uniform(size=N)
        assert model.score(X, pl.Series(Y)) == model.score(X, Y) == metric(Y, model.predict(X))
        assert model.score(X, Y, weights) == metric(Y, model.predict(X), sample_weight=weights)
        with pytest.raises(NotFittedError):
            make(kind).score(X, Y)


def fitted_attributes(estimator):
    return {name for name in vars(estimator) if name.endswith("_")}


def assert_unfitted(estimator):
    assert fitted_attributes(estimator) == set()
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def assert_refused(estimator, error, expected, data=X, target=Y):
    """`fit` raises, and leaves neither a fresh nor a fitted estimator fitted."""
    with pytest.raises(error, match=expected):
        estimator.fit(data, target)
    assert_unfitted(estimator)
    bad = estimator.get_params()
    estimator.set_params(**{name: p.default for name, p in inspect.signature(type(estimator)).parameters.items()})
    estimator.set_params(epochs=1).fit(X, Y).set_params(**bad)
    with pytest.raises(error, match=expected):
        estimator.fit(data, target)
    assert_unfitted(estimator)


class TestBadData:
    @EVERY
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (np.zeros((0, D)), r"Found array with 0 sample\(s\)"),
            (np.zeros((N, 0)), r"0 feature\(s\)"),
            (np.zeros(N), "Expected 2D array, got 1D array instead"),
            (np.zeros((N, D, 2)), "dim 3"),
            (np.where(np.arange(D) == 1, np.nan, X), "Input X contains NaN"),
            (np.where(np.arange(D) == 1, -np.inf, X), "Input X contains infinity"),
            (X[:-1], "inconsistent numbers of samples"),
            (X.astype(complex), "Complex data not supported"),
            ([["a"] * D] * N, "not compatible with arrays of bytes/strings"),
        ],
        ids=["no rows", "no columns", "1-D", "3-D", "NaN", "inf", "lengths", "complex", "text"],
    )
    def test_arrays(self, kind, data, expected):
        assert_refused(make(kind), ValueError, expected, data, Y[: max(1, len(data))] if len(data) == 0 else Y)

    @EVERY
    def test_sparse_matrices(self, kind):
        assert_refused(make(kind), TypeError, "Sparse data was passed.*toarray", sparse.csr_array(X))

    @EVERY
    def test_no_target(self, kind):
        assert_refused(make(kind), ValueError, "requires y to be passed", X, None)

    @ONE
    def test_tables_with_gaps(self, kind):
        table = pl.DataFrame({"a": [None, *X[1:, 0]], "b": X[:, 1]})
        expected = r"^Numeric columns must be without missing or non-finite values; got .1 in 'a'.\. Remove"
        assert_refused(make(kind), DataError, expected, table)


BAD_PARAMETERS = [
    ({"epsilon": 0}, ParameterError, r"^epsilon must be a number above 0; got 0"),
    ({"epsilon": -1.0}, ParameterError, r"^epsilon must be a number above 0; got -1"),
    ({"epsilon": float("nan")}, ParameterError, r"^epsilon must be a number above 0; got nan"),
    ({"epsilon": "1"}, ParameterTypeError, r"^epsilon must be a number above 0; got '1'"),
    ({"epsilon": None}, ParameterTypeError, r"^epsilon must be a number above 0; got None"),
    ({"epsilon": True}, ParameterTypeError, r"^epsilon must be a number above 0; got True"),
    ({"delta": 0.0}, ParameterError, r"^delta must be a number above 0 and below 1; got 0"),
    ({"delta": 1.0}, ParameterError, r"^delta must be a number above 0 and below 1; got 1"),
    ({"delta": -0.1}, ParameterError, r"^delta must be a number above 0 and below 1; got -0.1"),
    ({"mu": 0.0}, ParameterError, r"^mu must be a number above 0; got 0"),
    (
        {"mu": 1.0, "noise_multiplier": 1.0},
        ParameterError,
        r"^noise_multiplier must be None when mu is given; got 1",
    ),
    (
        {"epsilon": 0.1, "mu": 1.0},
        ParameterError,
        r"^epsilon must be left at its default when mu or noise_multiplier is given; got 0\.1\. Give one of",
    ),
    (
        {"epsilon": float("nan"), "noise_multiplier": 1.0},
        ParameterError,
        r"^epsilon must be a number that is finite; got nan",
    ),
    ({"epsilon": 1e308}, ParameterError, r"^epsilon must be a number at most 1e\+300; got 1e\+308"),
    ({"mu": 1e-320}, ParameterError, r"^mu must be large enough for a finite noise multiplier"),
    ({"noise_multiplier": -2.0}, ParameterError, r"^noise_multiplier must be a number above 0; got -2"),
    ({"epochs": 0}, ParameterError, r"^epochs must be an integer at least 1; got 0"),
    ({"epochs": 1.5}, ParameterTypeError, r"^epochs must be an integer at least 1; got 1.5"),
    (
        {"batch_size": N + 1},
        ParameterError,
        rf"^batch_size must be at most the number of records \({N}\); got 49\. Low",
    ),
    (
        {"batch_size": "all"},
        ParameterTypeError,
        r"^batch_size must be an integer at least 1; got 'all'\. batch_size=\"a",
    ),
    (
        {"learning_rate": 1e6},
        UnprovenGuaranteeError,
        r"^learning_rate must be at most [\d.]+ \(= 2/beta.*got 1000000",
    ),
    (
        {"learning_rate": "fast"},
        ParameterTypeError,
        r"^learning_rate must be .*; got 'fast'\. learning_rate=\"auto\"",
    ),
    ({"schedule": "step"}, ParameterError, r"^schedule must be one of 'linear', .*; got 'step'\. An array"),
    (
        {"schedule": [1.0, 0.5, 0.2]},
        ParameterError,
        r"^schedule must be of shape \(4,\), .* or \(2,\), .*; got \(3,\)",
    ),
    ({"schedule": [1.0, 0.0]}, ParameterError, r"^schedule must be made of factors above 0 and at most 1"),
    ({"l2": -1.0}, ParameterError, r"^l2 must be a number at least 0 .*; got -1.0\. .*l2=0"),
    ({"l2": 1e40}, ParameterError, r"^l2 must be a number at least 0 and at most 1e\+20; got 1e\+40"),
    ({"row_norm": 0.0}, ParameterError, r"^row_norm must be a number at least .*; got 0"),
    ({"row_bounding": "scale"}, ParameterError, r"^row_bounding must be one of 'normalize', 'clip'; got 'scale'"),
    ({"center_rows": "no"}, ParameterTypeError, r"^center_rows must be True or False; got 'no'"),
    ({"allow_unproven": "no"}, ParameterTypeError, r"^allow_unproven must be True or False; got 'no'"),
    ({"verbose": 2}, ParameterTypeError, r"^verbose must be True or False; got 2"),
    ({"bias": float("inf")}, ParameterError, r"^bias must be .*finite; got inf"),
    (
        {"column_bounds": np.zeros((3, 2))},
        ParameterError,
        r"^column_bounds must be .*\(5, 2\); got \(3, 2\)\. Give one",
    ),
    ({"column_bounds": (1.0, 0.0)}, ParameterError, r"^column_bounds must be finite with low < high"),
    ({"batch_order": "sorted"}, ParameterError, r"^batch_order must be one of 'permuted', 'given'; got 'sorted'"),
    ({"clipping_norm": 0.0}, ParameterError, r"^clipping_norm must be a number above 0; got 0"),
    ({"clipping_norm": "all"}, ParameterError, r"^clipping_norm must be one of 'auto'; got 'all'\. A number"),
]


class TestBadParameters:
    @ONE
    @pytest.mark.parametrize(("changes", "error", "expected"), BAD_PARAMETERS, ids=lambda v: str(v)[:40])
    def test_are_refused_before_training(self, kind, changes, error, expected, monkeypatch):
        model = make(kind, **changes)
        monkeypatch.setattr(_gated, "train_cyclic", train := Recorder(_gated.train_cyclic))
        assert_refused(model, error, expected)
        assert train.calls == 1  # the fit with good parameters in between

    @pytest.mark.parametrize(
        ("seed", "error"),
        [
            (-1, ParameterError),
            (2**32, ParameterError),
            ("one", ParameterTypeError),
            (0.5, ParameterTypeError),
            (np.random.default_rng(0), ParameterTypeError),
        ],
    )
    def test_other_seeds_are_refused(self, seed, error):
        assert_refused(
            make(random_state=seed), error, r"^random_state must be an integer at least 0 and at most 4294967295"
        )

    @ONE
    def test_odd_hyperplanes(self, kind):
        expected = r"^n_hyperplanes must be even for antithetic pairs; got 5\. Use an even number, or gates=\"iid\""
        assert_refused(make(kind, n_hyperplanes=5), ParameterError, expected)
        make(kind, n_hyperplanes=5, gates="iid").fit(X, Y)

    @ONE
    def test_unknown_gates(self, kind):
        assert_refused(
            make(kind, gates="relu"), ParameterError, r"^gates must be one of 'antithetic', 'iid'.*got 'relu'"
        )

    def test_delta_above_one_in_n_warns(self):
        model = make(delta=0.05)
        with pytest.warns(UserWarning, match=r"^delta must be at most 1/n = 0.0208 .*; got 0.05\. Lower it\.$"):
            model.fit(X, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make(delta=1 / N).fit(X, Y)


class Recorder:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


class TestRangeOfFloats:
    """Whether a model diverges must not depend on a single record."""

    ROWS = np.zeros((40, 8))
    NEIGHBOUR = np.vstack([ROWS[:-1], np.ones(8)])

    @pytest.mark.parametrize(
        "changes",
        [
            {"method": "dpsgd", "learning_rate": 1e26, "row_norm": 1e6},
            {"method": "dpsgd", "learning_rate": 1e20, "row_norm": 1e9},
            {"method": "dpsgd", "learning_rate": 1e308},
            {"noise_multiplier": 1e38},
            {"noise_multiplier": 1e308},
            {"mu": 1e-300},
        ],
        ids=str,
    )
    def test_what_could_leave_it_is_refused_before_a_record_is_read(self, changes):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in (self.ROWS, self.NEIGHBOUR):
                estimator = make("linear", batch_size=10, classes=range(2), **changes)
                with pytest.raises(
                    ParameterError, match=r"^(learning_rate|noise standard deviation in the model) must"
                ):
                    estimator.fit(rows, np.arange(40) % 2)

    def test_what_is_not_refused_trains_on_both_neighbours(self):
        changes = {"method": "dpsgd", "learning_rate": 1e5, "row_norm": 1e6, "batch_size": 10, "classes": range(2)}
        for rows in (self.ROWS, self.NEIGHBOUR):
            assert make("linear", **changes).fit(rows, np.arange(40) % 2).guarantee_.epsilon <= 1


@pytest.mark.parametrize("size", [np.array([N, N]), 2.5, N - 1], ids=str)
def test_full_batches_have_no_other_size(size):
    with pytest.raises((ParameterError, ParameterTypeError), match=r"^batch_size must be"):
        make(method="noisy-gd", batch_size=size).fit(X, Y)
