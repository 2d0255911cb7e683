import copy
import dataclasses
import inspect
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import noisycgd
from noisycgd import ConvexReLUClassifier, ConvexReLURegressor, LinearClassifier, load_model
from noisycgd._validation import ModelFileError
from noisycgd.artifact import read_model
from noisycgd.estimators import save_model
from noisycgd.estimators.persistence import ESTIMATORS
from noisycgd.report import plots
from noisycgd.training import predictable_randomness
from noisycgd.types import Status

N, D = 48, 5
RNG = np.random.default_rng(19)
X = RNG.standard_normal((N, D))
TWO, THREE = np.arange(N) % 2, np.arange(N) % 3


def make(kind="relu", **changes):
    cls = {"relu": ConvexReLUClassifier, "linear": LinearClassifier, "regressor": ConvexReLURegressor}[kind]
    small = {"epochs": 2} if kind == "linear" else {"epochs": 2, "n_hyperplanes": 4}
    return cls(**{**small, **changes})


@pytest.fixture(autouse=True)
def picture(monkeypatch, request):
    """Drawing takes longer than all else; only tests that name this fixture get the real picture."""
    if "picture" not in inspect.signature(request.function).parameters:
        monkeypatch.setattr(plots, "guarantee_png", lambda guarantee: b"not drawn")


def assert_same(one, two, data=X):
    assert type(one) is type(two)
    assert str(one.guarantee_) == str(two.guarantee_)
    assert one.guarantee_ == two.guarantee_
    for method in ("predict", "decision_function", "predict_proba"):
        if hasattr(one, method):
            first, second = getattr(one, method)(data), getattr(two, method)(data)
            assert first.dtype.kind == second.dtype.kind
            np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one.weights_, two.weights_)
    if one.permutation_ is None:
        assert two.permutation_ is None
    else:
        np.testing.assert_array_equal(one.permutation_, two.permutation_)


class TestRoundTrip:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"batch_order": "given"},
            {"row_bounding": "clip", "row_norm": 3.0, "bias": 0.5, "center_rows": True},
            {"column_bounds": np.array([[-3.0, 3.0]] * D), "schedule": np.array([1.0, 0.5])},
            {"column_bounds": (-3, 3), "l2": 0.1, "learning_rate": 0.05, "random_state": np.random.RandomState(0)},
            {"random_state": np.int64(3), "epsilon": np.float64(2.0), "verbose": np.True_},
        ],
        ids=lambda changes: "-".join(changes) or "defaults",
    )
    @pytest.mark.parametrize("kind", ["relu", "linear", "regressor"])
    def test_every_estimator(self, kind, changes, tmp_path):
        model = make(kind, **changes).fit(X, THREE)
        path = model.save(tmp_path / "model")
        loaded = type(model).load(path)
        assert_same(model, loaded)
        assert_same(model, load_model(path))
        assert loaded.n_features_in_ == D
        for name, value in model.get_params().items():
            expected = None if isinstance(value, np.random.RandomState) else value
            np.testing.assert_array_equal(loaded.get_params()[name], expected)
        again = loaded.save(tmp_path / "again")
        assert_same(model, load_model(again))

    @pytest.mark.parametrize("gates", ["iid", "linear", "antithetic"])
    def test_every_kind_of_gates(self, gates, tmp_path):
        model = make("regressor", gates=gates).fit(X, THREE)
        assert_same(model, load_model(model.save(tmp_path / "model")))

    @pytest.mark.parametrize(
        "labels",
        [
            np.array([3, -7]),
            np.array([0, 255], np.uint8),
            np.array([2**62, 2**62 + 1]),
            np.array([0, 2**64 - 1], np.uint64),
            np.array([False, True]),
            np.array([-1.0, 1.0]),
            np.array([0, 1], np.float32),
            np.array([1, 2], ">i4"),
            np.array(["ja", "nein"]),
            np.array(["zebra", "ape"], object),
            np.array(["été", '冬"\n']),
            np.array(["", "x" * 500]),
        ],
        ids=lambda v: f"{v.dtype.name}{len(str(v[1]))}",
    )
    @pytest.mark.parametrize("loss", ["margin_softmax", "logistic"])
    def test_every_kind_of_label(self, labels, loss, tmp_path):
        model = make("linear", loss=loss).fit(X, labels[TWO])
        loaded = load_model(model.save(tmp_path / "model"))
        assert_same(model, loaded)
        assert loaded.classes_.tolist() == model.classes_.tolist()
        assert (
            loaded.classes_.dtype == model.classes_.dtype or labels.dtype.kind == "U" or labels.dtype.byteorder == ">"
        )

    def test_column_names(self, tmp_path):
        frame = pd.DataFrame(X, columns=list("abcde"))
        model = make().fit(frame, TWO)
        loaded = load_model(model.save(tmp_path / "model"))
        assert loaded.feature_names_in_.tolist() == list("abcde")
        assert_same(model, loaded, frame)
        with pytest.raises(ValueError, match="Feature names must be in the same order"):
            loaded.predict(frame[list("edcba")])

    def test_the_table_that_rows_came_from(self, tmp_path):
        table = {"schema": None, "columns": ["a", "b"], "nested": {"deep": [1, 2.5, True]}}
        path = save_model(make().fit(X, TWO), tmp_path / "model", table)
        loaded = load_model(path)
        assert loaded.table_ == table
        assert load_model(loaded.save(tmp_path / "again")).table_ == table
        assert not hasattr(load_model(make().fit(X, TWO).save(tmp_path / "other")), "table_")
        assert not hasattr(loaded.fit(X, TWO), "table_")

    @pytest.mark.parametrize("kind", ["unproven", "void"])
    def test_a_model_without_a_proof_stays_without(self, kind, tmp_path):
        model = make(loss="norm_clipped_softmax", allow_unproven=True)
        if kind == "void":
            with predictable_randomness(0):
                model.fit(X, THREE)
        else:
            model.fit(X, THREE)
        loaded = load_model(model.save(tmp_path / "model"))
        assert loaded.guarantee_.status is Status(kind)
        assert kind.upper() in (tmp_path / "model" / "guarantee.txt").read_text().splitlines()[0]

    def test_parameters_that_were_changed_since_the_fit_change_no_prediction(self, tmp_path):
        model = make(loss="logistic").fit(X, TWO)
        expected = model.decision_function(X)
        model.set_params(loss="margin_softmax", n_hyperplanes=8, gates="iid", bias=1.0, row_norm=9.0, center_rows=True)
        loaded = load_model(model.save(tmp_path / "model"))
        np.testing.assert_array_equal(loaded.decision_function(X), expected)
        np.testing.assert_array_equal(model.decision_function(X), expected)

    def test_a_loaded_model_can_be_fitted_again(self, tmp_path):
        loaded = load_model(make(column_bounds=[[-3, 3]] * D, classes=[0, 1]).fit(X, TWO).save(tmp_path / "model"))
        assert loaded.fit(X, TWO).guarantee_.status is Status.PROVED

    def test_copies_and_pickles_predict_the_same(self):
        model = make().fit(X, TWO)
        assert_same(model, copy.deepcopy(model))
        assert_same(model, pickle.loads(pickle.dumps(model)))


class TestFolder:
    def test_holds_arrays_json_and_the_statement(self, picture, tmp_path):
        model = make().fit(X, TWO)
        path = model.save(str(tmp_path / "model"))
        assert isinstance(path, Path)
        names = {p.name for p in path.iterdir()}
        assert names == {"model.safetensors", "model.json", "guarantee.txt", "guarantee.png"}
        assert (path / "guarantee.txt").read_text() == f"{model.guarantee_}\n"
        assert (path / "guarantee.png").read_bytes().startswith(b"\x89PNG")
        tensors, _ = read_model(path)
        assert set(tensors) == {"weights", "hyperplanes", "permutation"}

    def test_holds_no_record(self, tmp_path):
        data = np.full((N, D), 1234.5678) + np.arange(N * D).reshape(N, D)
        model = make().fit(data, TWO)
        tensors, _ = read_model(model.save(tmp_path / "model"))
        bounded = model.bounds_(data)
        # One number may coincide by chance (1e-3), three may not (1e-10); a record has five.
        for name in ("weights", "hyperplanes"):
            for secret in (data, bounded):
                assert np.isin(tensors[name], secret).sum() < 3
        assert sorted(tensors["permutation"]) == list(range(N))

    def test_an_interrupted_save_leaves_the_old_model(self, tmp_path, monkeypatch):
        old, new = make().fit(X, TWO), make().fit(X, TWO)
        path = old.save(tmp_path / "model")
        for failure in ("os.rename", "os.fsync"):
            with monkeypatch.context() as patched:

                def interrupted(*_):
                    raise KeyboardInterrupt

                patched.setattr(failure, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    new.save(path)
            assert_same(old, load_model(path))
            assert [p.name for p in tmp_path.iterdir()] == ["model"]
        assert_same(new, load_model(new.save(path)))

    def test_a_statement_that_contradicts_itself_leaves_the_old_model(self, tmp_path):
        old, new = make().fit(X, TWO), make().fit(X, TWO)
        path = old.save(tmp_path / "model")
        new.guarantee_ = dataclasses.replace(new.guarantee_, epsilon=0.01)
        with pytest.raises(ModelFileError, match=r"^guarantee must be one of epsilon"):
            new.save(path)
        assert_same(old, load_model(path))

    def test_a_statement_that_cannot_be_drawn_leaves_the_old_model(self, tmp_path, monkeypatch):
        old = make().fit(X, TWO)
        path = old.save(tmp_path / "model")

        def failing(_):
            raise RuntimeError

        monkeypatch.setattr(plots, "guarantee_png", failing)
        with pytest.raises(RuntimeError):
            make().fit(X, TWO).save(path)
        assert_same(old, load_model(path))


class TestClasses:
    def test_another_estimator_is_refused(self, tmp_path):
        path = make("linear").fit(X, TWO).save(tmp_path / "model")
        for cls in (ConvexReLUClassifier, ConvexReLURegressor):
            with pytest.raises(
                ModelFileError, match=rf"estimator must be {cls.__name__}; got 'LinearClassifier'\. Load it with"
            ):
                cls.load(path)
        assert isinstance(load_model(path), LinearClassifier)

    def test_every_public_estimator_can_be_saved(self):
        # A selection saves the estimator that it found.
        others = {"Guarantee", "PrivateSelection"}
        assert set(ESTIMATORS) | others == {n for n in noisycgd.__all__ if inspect.isclass(getattr(noisycgd, n))}

    def test_a_subclass_of_the_users_is_refused_when_it_is_read(self, tmp_path):
        class Mine(LinearClassifier):
            pass

        path = Mine(epochs=2).fit(X, TWO).save(tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"estimator must be one of .*; got 'Mine'"):
            load_model(path)
