"""Model folders that were changed, with valid checksums: refused, or consistent all the same."""

import copy
import json
import zlib

import numpy as np
import pandas as pd
import pytest

from noisycgd import ConvexReLUClassifier, ConvexReLURegressor, LinearClassifier, load_model
from noisycgd._validation import ModelFileError
from noisycgd.artifact import read_model, write_model

N, D = 48, 5
RNG = np.random.default_rng(19)
X = RNG.standard_normal((N, D))
TWO, THREE = np.arange(N) % 2, np.arange(N) % 3
# Those that the format sets.
KEYS = {"format", "format_version", "versions", "tensors", "files"}


def make(kind="relu", **changes):
    cls = {"relu": ConvexReLUClassifier, "linear": LinearClassifier, "regressor": ConvexReLURegressor}[kind]
    small = {"epochs": 2} if kind == "linear" else {"epochs": 2, "n_hyperplanes": 4}
    return cls(**{**small, **changes})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Contents of one model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    contents = {}
    for kind, target in (("relu", THREE), ("linear", np.array(["a", "b"])[TWO]), ("regressor", TWO * 1.0)):
        model = make(kind).fit(pd.DataFrame(X, columns=list("abcde")), target)
        tensors, document = read_model(model.save(folder / kind))
        contents[kind] = tensors, {k: v for k, v in document.items() if k not in KEYS}
    return contents


def forged(saved, kind, tmp_path, change):
    tensors, document = copy.deepcopy(saved[kind])
    change(tensors, document)
    return write_model(tmp_path / "forged", tensors, document, {})


def put(*path_and_value):
    *path, key, value = path_and_value

    def change(_, document):
        for name in path:
            document = document[name]
        document[key] = value

    change.__name__ = ".".join(str(p)[:30] for p in path_and_value)
    return change


def tensor(name, function):
    def change(tensors, _):
        tensors[name] = function(tensors[name])

    change.__name__ = f"tensor-{name}"
    return change


def drop(part, name):
    def change(*parts):
        del parts[part][name]

    change.__name__ = f"without-{name}"
    return change


INCONSISTENT = [
    put("estimator", "LinearClassifier"),
    put("estimator", "ConvexReLURegressor"),
    put("estimator", "BaseEstimator"),
    put("estimator", ["ConvexReLUClassifier"]),
    put("parameters", "unknown", 1),
    put("parameters", None),
    put("n_features_in", 4),
    put("n_features_in", 0),
    put("n_features_in", -5),
    put("n_features_in", 10**12),
    put("n_features_in", "5"),
    put("n_features_in", 5.0),
    put("n_features_in", True),
    put("feature_names_in", ["a", "b"]),
    put("feature_names_in", "abcde"),
    put("feature_names_in", [1, 2, 3, 4, 5]),
    put("gates", "kind", "iid"),
    put("gates", "kind", "linear"),
    put("gates", "kind", "none"),
    put("gates", "kind", ["iid"]),
    put("gates", "n_hyperplanes", 6),
    put("gates", "n_hyperplanes", 5),
    put("gates", "n_hyperplanes", -4),
    put("gates", "n_hyperplanes", 0),
    put("gates", "n_hyperplanes", 4.0),
    put("gates", "n_hyperplanes", 10**300),
    put("gates", None),
    put("bounds", "bias", 1.0),
    put("bounds", "row_norm", -1.0),
    put("bounds", "row_norm", "1"),
    put("bounds", "method", "scale"),
    put("bounds", "column_bounds", [[1.0, 0.0]]),
    put("bounds", "column_bounds", [[0.0], [1.0, 2.0]]),
    put("bounds", "column_bounds", "wide"),
    put("bounds", "center", "no"),
    put("bounds", "surplus", 1),
    put("bounds", None),
    put("outputs", "classes", [0, 1]),
    put("outputs", "classes", [0, 1, 2, 3]),
    put("outputs", "classes", [0, 1, 1]),
    put("outputs", "classes", [0, 2, 1]),
    put("outputs", "classes", [0.5, 1, 2]),
    put("outputs", "classes", ["a", "b", "c"]),
    put("outputs", "classes", [[0], [1], [2]]),
    put("outputs", "classes", [0, 1, 10**40]),
    put("outputs", "classes", [0, 1, None]),
    put("outputs", "classes", {"0": 0}),
    put("outputs", "classes", "012"),
    put("outputs", "dtype", None),
    put("outputs", "dtype", "<U999999999"),
    put("outputs", "dtype", "bool"),
    put("outputs", "dtype", "str"),
    put("outputs", "dtype", "object"),
    put("outputs", "dtype", "complex128"),
    put("outputs", "dtype", "i8,i8"),
    put("outputs", "dtype", ["i8"]),
    put("outputs", {}),
    put("guarantee", "epsilon", 0.5),
    put("guarantee", "status", "unproven"),
    put("guarantee", "status", "perfect"),
    put("guarantee", "order", "given"),
    put("guarantee", "n_records", 47),
    put("guarantee", "n_records", "48"),
    put("guarantee", "position_mus", []),
    put("guarantee", "epsilon", None),
    put("guarantee", {}),
    put("guarantee", None),
    drop(1, "guarantee"),
    drop(1, "table"),
    drop(1, "feature_names_in"),
    drop(0, "weights"),
    drop(0, "hyperplanes"),
    drop(0, "permutation"),
    tensor("weights", lambda w: w.T),
    tensor("weights", lambda w: w[:, :-1]),
    tensor("weights", lambda w: w[:-1]),
    tensor("weights", lambda w: w.ravel()),
    tensor("weights", lambda w: w[0, 0]),
    tensor("weights", lambda w: w.astype(np.float64)),
    tensor("weights", lambda w: w[:0]),
    tensor("hyperplanes", lambda h: h[:, :1]),
    tensor("hyperplanes", lambda h: h.T),
    tensor("hyperplanes", lambda h: h.astype(np.float64)),
    tensor("permutation", lambda p: p[:-1]),
    tensor("permutation", lambda p: p * 0),
    tensor("permutation", lambda p: p - 1),
    tensor("permutation", lambda p: p.astype(np.int32)),
    tensor("permutation", lambda p: p.astype(float)),
]


class TestForgery:
    @pytest.mark.parametrize("change", INCONSISTENT, ids=lambda c: c.__name__)
    def test_what_does_not_fit_together_is_refused(self, saved, change, tmp_path):
        path = forged(saved, "relu", tmp_path, change)
        with pytest.raises(ModelFileError, match=r"forged: .*\S$") as info:
            load_model(path)
        assert len(str(info.value)) < 600

    def test_what_is_left_as_it_is_loads(self, saved, tmp_path):
        for kind in saved:
            assert load_model(forged(saved, kind, tmp_path, lambda *_: None)).n_features_in_ == D

    @pytest.mark.parametrize(
        "change",
        [
            put("outputs", "target_range", [1, 0]),
            put("outputs", "target_range", [0, "1"]),
            put("outputs", "target_range", [0]),
            put("outputs", "target_range", None),
            put("outputs", "target_range", [-1.7e308, 1.7e308]),
            put("outputs", {"classes": [0, 1], "dtype": "int64"}),
            put("estimator", "ConvexReLUClassifier"),
        ],
        ids=lambda c: c.__name__,
    )
    def test_a_regressor_s_range(self, saved, change, tmp_path):
        with pytest.raises(ModelFileError):
            load_model(forged(saved, "regressor", tmp_path, change))

    def test_parts_of_two_models_do_not_mix(self, saved, tmp_path):
        for one in saved:
            for two in saved:
                if one == two:
                    continue
                for part in ("outputs", "gates", "parameters", "estimator"):

                    def swap(_, document, part=part, two=two):
                        document[part] = copy.deepcopy(saved[two][1][part])

                    try:
                        loaded = load_model(forged(saved, one, tmp_path, swap))
                    except ModelFileError:
                        continue
                    assert_consistent(loaded)

    def test_any_value_anywhere_is_refused_or_consistent(self, saved, tmp_path):
        """Every leaf of every document, replaced by each of a few strange values."""
        strange = [None, True, 0, -1, 1e308, "", "x", [], [[]], {}, {"a": None}, 2**70]
        for kind in saved:
            for path in leaves(saved[kind][1]):
                for value in (strange[zlib.crc32(repr((path, i)).encode()) % len(strange)] for i in range(2)):
                    try:
                        loaded = load_model(forged(saved, kind, tmp_path, put(*path, value)))
                    except ModelFileError:
                        continue
                    assert_consistent(loaded)


def leaves(value, path=()):
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path


def assert_consistent(model):
    frame = pd.DataFrame(X, columns=list("abcde")) if hasattr(model, "feature_names_in_") else X
    prediction = model.predict(frame)
    assert prediction.shape == (N,)
    if hasattr(model, "classes_"):
        assert set(prediction.tolist()) <= set(model.classes_.tolist())
        assert model.predict_proba(frame).shape == (N, len(model.classes_))
    assert str(model.guarantee_)
    json.dumps(model.guarantee_.to_dict())
