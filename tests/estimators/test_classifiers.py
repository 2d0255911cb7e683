import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import softmax
from sklearn.metrics import accuracy_score

from noisycgd import ConvexReLUClassifier, LinearClassifier
from noisycgd._validation import DataError, ParameterError, ParameterTypeError, UnprovenGuaranteeError
from noisycgd.estimators.classifiers import AUTO_MARGIN, CLASSIFICATION_LOSSES
from noisycgd.training import predictable_randomness
from noisycgd.types import Status

N, D = 48, 5
RNG = np.random.default_rng(13)
X = RNG.standard_normal((N, D))
TWO, THREE = np.arange(N) % 2, np.arange(N) % 3
BOTH = pytest.mark.parametrize("cls", [ConvexReLUClassifier, LinearClassifier])


def make(cls=LinearClassifier, **changes):
    small = {"n_hyperplanes": 4} if cls is ConvexReLUClassifier else {}
    return cls(**{"epochs": 2, **small, **changes})


def assert_refused(model, error, expected, target=THREE):
    with pytest.raises(error, match=expected):
        model.fit(X, target)
    assert not [name for name in vars(model) if name.endswith("_")]


class TestOutputs:
    @BOTH
    @pytest.mark.parametrize("loss", ["margin_softmax", "envelope_softmax"])
    def test_more_than_two_classes(self, cls, loss):
        model = make(cls, loss=loss).fit(X, THREE)
        z, p = model.decision_function(X), model.predict_proba(X)
        assert z.shape == p.shape == (N, 3)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(p, softmax(z.astype(float), axis=1), rtol=1e-12)
        np.testing.assert_array_equal(model.predict(X), model.classes_[z.argmax(axis=1)])

    @BOTH
    @pytest.mark.parametrize(("loss", "logits"), [("margin_softmax", 2), ("envelope_softmax", 2), ("logistic", 1)])
    def test_two_classes(self, cls, loss, logits):
        model = make(cls, loss=loss).fit(X, TWO)
        assert model.weights_.shape == (D, model.features_.n_gates * logits)
        z, p = model.decision_function(X), model.predict_proba(X)
        assert z.shape == (N,)
        assert p.shape == (N, 2)
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-z.astype(float))), rtol=1e-12)
        np.testing.assert_array_equal(model.predict(X), (z > 0).astype(int))

    @BOTH
    @pytest.mark.parametrize("loss", CLASSIFICATION_LOSSES)
    def test_each_loss_learns_two_clusters_given_a_vast_budget(self, cls, loss):
        # Clusters 13 standard deviations apart; the wrong labels are the control.
        data = 0.5 * X + 3 * (2 * TWO[:, None] - 1)
        model = make(cls, loss=loss, epsilon=1e6, epochs=20).fit(data, TWO)
        assert model.score(data, TWO) == 1
        assert model.score(data, 1 - TWO) == 0

    def test_score_is_accuracy(self):
        model = make().fit(X, THREE)
        assert model.score(X, THREE) == accuracy_score(THREE, model.predict(X))

    def test_a_class_that_never_occurs_is_still_known(self):
        model = make(classes=range(4)).fit(X, THREE)
        assert model.predict_proba(X).shape == (N, 4)
        assert model.classes_.tolist() == [0, 1, 2, 3]


LABELS = {
    "int": np.array([3, -7]),
    "uint8": np.array([0, 255], np.uint8),
    "large": np.array([2**62, 2**62 + 1]),
    "bool": np.array([False, True]),
    "float": np.array([-1.0, 1.0]),
    "str": np.array(["ja", "nein"]),
    "object": np.array(["zebra", "ape"], dtype=object),
    "unicode": np.array(["été", "冬"]),
}


class TestLabels:
    @pytest.mark.parametrize("kind", LABELS)
    @pytest.mark.parametrize("container", [np.asarray, list, pd.Series, pl.Series, pa.array], ids=lambda c: c.__name__)
    @pytest.mark.parametrize("given", [False, True])
    def test_come_back_as_they_are(self, kind, container, given):
        labels = LABELS[kind]
        y = container(labels[TWO])
        model = make(classes=container(labels) if given and container is not pa.array else None).fit(X, y)
        assert model.classes_.tolist() == sorted(labels.tolist())
        assert model.classes_.dtype.kind in {labels.dtype.kind, *("UO" if labels.dtype.kind in "UO" else "")}
        assert set(model.predict(X).tolist()) <= set(labels.tolist())
        assert 0 <= model.score(X, y) <= 1

    def test_large_integers_keep_their_digits(self):
        model = make().fit(X, LABELS["large"][TWO])
        assert model.classes_.tolist() == [2**62, 2**62 + 1]

    @pytest.mark.parametrize("given", [False, True])
    @pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
    @pytest.mark.parametrize(
        "container",
        [lambda y: y, pd.Series.to_frame, pd.Index, lambda y: y.array],
        ids=["series", "frame", "index", "array"],
    )
    @pytest.mark.filterwarnings("ignore:A column-vector y was passed")
    def test_large_nullable_integers_keep_their_digits(self, given, dtype, container):
        labels = [2**53, 2**53 + 1]
        numbers = np.array(labels)[TWO]
        y = container(pd.Series(numbers, dtype=dtype, name="y"))
        model = make(classes=labels if given else None).fit(X, y)
        assert model.classes_.tolist() == labels
        assert model.score(X, y) == model.score(X, numbers)

    def test_sparse_ones_are_labels(self):
        y = pd.Series(pd.arrays.SparseArray(TWO.astype(int)))
        assert 0 <= make().fit(X, y).score(X, y) <= 1

    def test_a_score_refuses_what_a_fit_would(self):
        model = make().fit(X, np.where(TWO, "a", "b"))
        labels = np.array(["a", None] * 24, dtype=object)
        with pytest.raises(DataError, match=r"^y must be made of finite numbers, booleans or texts; got .object"):
            model.score(X, labels)

    def test_a_column_is_flattened_with_a_warning(self):
        with pytest.warns(UserWarning, match="A column-vector y was passed"):
            make().fit(X, TWO[:, None])

    def test_the_order_in_which_classes_are_stated_does_not_matter(self):
        with predictable_randomness(1):
            one, two = (make(classes=classes).fit(X, TWO) for classes in ([1, 0], [0, 1]))
        np.testing.assert_array_equal(one.weights_, two.weights_)

    @pytest.mark.parametrize(("stated", "found"), [(int, str), (str, int)])
    def test_text_is_no_number(self, stated, found):
        # As many as it takes for NumPy to compare both as texts, by which "10" comes before "2".
        labels = np.arange(30)
        expected = r"^y must hold only labels listed in classes; got others\. Add them to classes, or remove"
        model = make(classes=labels.astype(stated))
        data, y = np.tile(X, (2, 1)), np.resize(labels, 2 * N)
        with pytest.raises(DataError, match=expected):
            model.fit(data, y.astype(found))
        assert model.fit(data, y.astype(stated)).classes_.dtype.kind == np.dtype(stated).kind

    def test_that_are_not_listed(self):
        expected = r"^y must hold only labels listed in classes; got others\. Add them to classes, or remove those"
        assert_refused(make(classes=[0, 1]), DataError, expected)

    @pytest.mark.parametrize("n", [20, 21])
    def test_no_warning_tells_how_many_classes_occur(self, n, recwarn):
        # scikit-learn would warn where more than half of the records have a label of their own.
        make(classes=range(40)).fit(X[:40], np.arange(40) % n)
        assert not recwarn.list
        with pytest.warns(UserWarning, match="number of unique classes"):
            make().fit(X[:40], np.arange(40) % 21)

    def test_numbers_that_a_common_type_would_round_together_stay_apart(self):
        labels = np.where(TWO, 2**53, 2**53 + 1)
        assert_refused(make(classes=[2.0**53, 5.0]), DataError, "^y must hold only labels listed in classes", labels)
        half = make(classes=[0.5, 1.0]).fit(X, np.where(TWO, 0.5, 1.0))
        assert half.classes_.tolist() == [0.5, 1.0]
        assert make(classes=[0, 1]).fit(X, TWO.astype(np.uint64)).classes_.tolist() == [0, 1]

    def test_text_that_could_not_be_saved_is_refused_before_training(self):
        labels = np.where(TWO, "a", "b\ud800")
        assert_refused(make(classes=["a", "b\ud800"]), DataError, "^y must hold labels that can be saved", labels)
        assert_refused(make(), DataError, "^y must hold labels that can be saved", labels)

    @pytest.mark.parametrize(
        ("y", "expected"),
        [
            (
                np.zeros(N),
                r"^y must hold at least 2 classes; got 1 class\. State all classes with classes=\.\.\.",
            ),
            (
                np.array([1, "a"] * 24, dtype=object),
                r"^y must be made of finite numbers, booleans or texts; got .object values",
            ),
            (
                np.array(["a", None] * 24, dtype=object),
                r"^y must be made of finite numbers, booleans or texts; got .object values",
            ),
            (
                X[:, 0],
                r"^y must hold class labels\. Unknown label type: continuous\. For a continuous target .*Regressor",
            ),
            (
                np.array(["2020-01-01", "2021-01-01"], "M8[D]")[TWO],
                r"^y must be made of .* got .datetime64\[D\] values",
            ),
            (np.where(TWO, np.nan, 1.0), "Input y contains NaN"),
            (TWO + 1j, "Complex data not supported"),
            (np.stack([TWO, TWO], axis=1), "y should be a 1d array, got an array of shape"),
        ],
        ids=["one class", "mixed", "missing", "continuous", "dates", "NaN", "complex", "two columns"],
    )
    def test_that_are_none(self, y, expected):
        assert_refused(make(), DataError, expected, y)

    @pytest.mark.parametrize(
        "classes",
        [[], [0], [0, 0, 1], "ab", 2, [[0, 1]], [[0], [1, 2]], {0, 1}, [0, np.nan], [0, None], [1j, 2], ["a", None]],
        ids=str,
    )
    def test_classes_that_are_no_list_of_labels(self, classes):
        expected = r"^classes must be (one list of|a list of at least 2 distinct) .*; got .*\. List every label"
        assert_refused(make(classes=classes), ParameterError, expected)


class TestLosses:
    @BOTH
    @pytest.mark.parametrize("loss", CLASSIFICATION_LOSSES)
    def test_two_classes_are_proved_with_each(self, cls, loss):
        assert make(cls, loss=loss).fit(X, TWO).guarantee_.status is Status.PROVED

    @BOTH
    def test_norm_clipping_of_three_is_refused(self, cls):
        expected = r"^loss must be convex after clipping.*; got 'norm_clipped_softmax'\. Use loss=\"margin_softmax\""
        assert_refused(make(cls, loss="norm_clipped_softmax"), UnprovenGuaranteeError, expected)

    @BOTH
    def test_norm_clipping_of_three_is_labelled_on_request(self, cls, tmp_path):
        model = make(cls, loss="norm_clipped_softmax", allow_unproven=True).fit(X, THREE)
        assert model.guarantee_.status is Status.UNPROVEN
        assert "UNPROVEN" in str(model.guarantee_).splitlines()[0]
        assert model.guarantee_.to_dict()["status"] == "unproven"
        folder = model.save(tmp_path / "model")
        assert "UNPROVEN" in (folder / "guarantee.txt").read_text().splitlines()[0]
        assert cls.load(folder).guarantee_ == model.guarantee_

    @BOTH
    def test_classes_that_are_stated_count_and_not_those_that_occur(self, cls):
        with pytest.raises(UnprovenGuaranteeError):
            make(cls, loss="norm_clipped_softmax", classes=[0, 1, 2]).fit(X, TWO)

    def test_logistic_is_for_two(self):
        expected = r"^loss must be another one for more than 2 classes; got 'logistic'\. Use loss=\"margin_softmax\""
        assert_refused(make(loss="logistic"), ParameterError, expected)

    def test_an_unknown_one(self):
        assert_refused(make(loss="hinge"), ParameterError, r"^loss must be one of 'margin_softmax', .*; got 'hinge'")

    @pytest.mark.parametrize("loss", ["envelope_softmax", "norm_clipped_softmax", "logistic"])
    def test_the_clipping_norm_is_the_bound_on_a_gradient(self, loss):
        model = make(loss=loss, clipping_norm=0.3, row_norm=2.0).fit(X, TWO)
        assert model.guarantee_.gradient_bound == pytest.approx(0.3, rel=1e-12)

    def test_margin_softmax_needs_none(self):
        g = make(row_norm=2.0).fit(X, TWO).guarantee_
        assert g.gradient_bound == pytest.approx(2 * np.sqrt(2), rel=2e-6)


class TestMargin:
    @pytest.mark.parametrize(
        ("margin", "error", "expected"),
        [
            (
                -1.0,
                ParameterError,
                r"^margin must be a number at least 0; got -1\.0\. margin=0 is the ordinary softmax",
            ),
            (float("nan"), ParameterError, r"^margin must be a number at least 0; got nan"),
            ("wide", ParameterError, r"^margin must be one of 'auto'; got 'wide'\. A number of at least 0"),
            (None, ParameterTypeError, r"^margin must be a number at least 0; got None"),
        ],
    )
    def test_out_of_range(self, margin, error, expected):
        assert_refused(make(margin=margin), error, expected)

    def test_auto_is_three_standard_deviations_of_a_released_logit(self):
        assert AUTO_MARGIN == 3.0
        with predictable_randomness(1):
            auto = make(epsilon=50.0, epochs=10).fit(X, THREE)
            same = make(epsilon=50.0, epochs=10, margin=3 * auto.plan_.logit_noise).fit(X, THREE)
            other = make(epsilon=50.0, epochs=10, margin=0.0).fit(X, THREE)
        np.testing.assert_array_equal(auto.weights_, same.weights_)
        assert (auto.weights_ != other.weights_).any()

    def test_does_not_change_the_guarantee(self):
        stated = [make(margin=m).fit(X, THREE).guarantee_ for m in ("auto", 0, 50.0)]
        assert stated[0] == stated[1] == stated[2]


class TestHyperplanes:
    def test_are_the_features_of_the_relu_model_alone(self):
        assert make(ConvexReLUClassifier).fit(X, TWO).features_.hyperplanes.shape == (D, 2)
        assert make(ConvexReLUClassifier, gates="iid", n_hyperplanes=3).fit(X, TWO).features_.hyperplanes.shape == (
            D,
            3,
        )
        assert make().fit(X, TWO).features_.hyperplanes.shape == (D, 0)

    def test_let_the_model_learn_what_a_linear_one_cannot(self):
        # |x1| > |x2|: no linear model without a bias is better than chance on points symmetric about the origin.
        angles = np.linspace(0, 2 * np.pi, 256, endpoint=False) + 0.01
        data = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        y = (np.abs(data[:, 0]) > np.abs(data[:, 1])).astype(int)
        vast = {"epsilon": 1e7, "epochs": 40, "batch_size": 64}
        relu = ConvexReLUClassifier(n_hyperplanes=64, random_state=0, **vast).fit(data, y)
        linear = LinearClassifier(**vast).fit(data, y)
        assert relu.score(data, y) > 0.9
        assert linear.score(data, y) < 0.6
