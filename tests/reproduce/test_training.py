import json
from dataclasses import replace

import numpy as np
import pytest

from reproduce import training
from reproduce.runs import Run
from reproduce.training import load, make, n_records

RUN = Run(
    "digits",
    "LinearClassifier",
    {"batch_size": 200, "epochs": 3, "noise_multiplier": 5.0, "delta": 1e-5},
    seed=0,
)


@pytest.fixture(scope="module")
def made():
    """The result of RUN, watched after each epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EVERY", 1)
        return make(RUN)


def test_digits_are_split_the_same_way_each_time():
    first = load("digits")
    load.cache_clear()
    for one, other in zip(first, load("digits"), strict=True):
        np.testing.assert_array_equal(one, other)
    X, y, X_test, y_test = first
    assert (len(X), len(X_test), len(y), len(y_test)) == (n_records("digits"), 360, 1437, 360)
    assert (X.min(), X.max(), X.dtype) == (0, 1, np.float32)


def test_a_result_is_json_and_its_parts_agree(made):
    assert json.loads(json.dumps(made)) == {**made, "curve": [list(point) for point in made["curve"]]}
    assert [epoch for epoch, _ in made["curve"]] == [1, 2, 3]
    assert made["curve"][-1][1] == round(made["accuracy"], 4)
    *_, y_test = load("digits")
    shares = np.bincount(y_test) / len(y_test)
    assert float(shares @ made["per_class"]) == pytest.approx(made["accuracy"])
    assert (made["noise_multiplier"], made["delta"], made["status"]) == (5.0, 1e-5, "proved")


def test_epsilon_is_that_of_the_run_if_it_is_not_watched(made):
    from noisycgd import LinearClassifier

    X, y, *_ = load("digits")
    model = LinearClassifier(epsilon=None, **RUN.parameters, classes=list(range(10)), random_state=0).fit(X, y)
    assert made["epsilon"] == model.guarantee_.epsilon
    assert made["status"] == model.guarantee_.status


def test_one_pass_has_no_curve_and_its_own_status():
    parameters = {"epsilon": 4.0, "delta": 1e-5, "n_components": 8, "features": "relu"}
    run = Run("digits", "SSPClassifier", parameters, seed=0)
    assert (make(run)["curve"], make(run)["status"]) == ([], "proved")
    assert make(run)["epsilon"] == pytest.approx(4.0)
    clipped = make(replace(run, parameters={**parameters, "clip": "data"}))
    assert clipped["status"] == "void"
    assert json.loads(json.dumps(clipped)) == clipped


def test_standard_rows_have_each_channels_mean_and_deviation(monkeypatch):
    from noisycgd.data import datasets

    def two_pixels_per_channel(name, data_dir=None, download=True):
        rows, labels = np.array([[0, 255, 51, 102, 153, 204]], np.uint8), np.array([1])
        return datasets.Dataset(name, rows, labels, rows, labels, (), "a test", True)

    monkeypatch.setattr(datasets, "load_dataset", two_pixels_per_channel)
    load.cache_clear()
    X, _, X_test, _ = load("cifar10", "standard")
    load.cache_clear()
    mean, deviation = (np.repeat(numbers, 2) for numbers in training.CUSTOMARY["cifar10"])
    np.testing.assert_allclose(X[0], (np.array([0, 1, 0.2, 0.4, 0.6, 0.8]) - mean) / deviation, rtol=1e-6)
    np.testing.assert_array_equal(X, X_test)


def test_standard_rows_need_a_customary_mean():
    with pytest.raises(ValueError, match='rows must be "unit" for data without a customary mean'):
        load("digits", "standard")
