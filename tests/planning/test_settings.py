import warnings

import numpy as np
import pytest

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.planning.settings import check_noise, check_settings, is_auto, learning_rates
from noisycgd.types import EpsilonDelta

TARGET = EpsilonDelta(1.0, 1e-5)


def settings(**changes):
    values = {"target": TARGET, "n_records": 100, "batch_size": 30, "epochs": 5, "l2": 0.0} | changes
    return check_settings(**values)


def test_batches_are_counted_with_the_ragged_one():
    found = settings()
    assert (found.n_records, found.batch_size, found.batches_per_epoch, found.epochs) == (100, 30, 4, 5)


@pytest.mark.parametrize(
    ("changes", "error", "expected"),
    [
        ({"n_records": 0}, ParameterError, "^n_records must be an integer at least 1"),
        ({"epochs": 0}, ParameterError, "^epochs must be"),
        ({"epochs": 2.5}, ParameterTypeError, "^epochs must be"),
        ({"batch_size": 101}, ParameterError, r"^batch_size must be at most the number of records \(100\)"),
        ({"batch_size": "all"}, ParameterTypeError, "^batch_size must be an integer"),
        ({"l2": -1}, ParameterError, "^l2 must be"),
        (
            {"epochs": 10**30},
            ParameterError,
            "^epochs must be at most 250000000, with 4 batches each",
        ),
        ({"target": EpsilonDelta(0.0, 1e-5)}, ParameterError, "^epsilon must be"),
        (
            {"target": "strict"},
            ParameterTypeError,
            "^target must be an EpsilonDelta, a GaussianMu or a NoiseM.*'strict'",
        ),
    ],
)
def test_nonsense_is_refused_by_name(changes, error, expected):
    with pytest.raises(error, match=expected):
        settings(**changes)


def test_a_large_delta_warns():
    with pytest.warns(UserWarning, match="delta must be at most 1/n = 0.01"):
        settings(target=EpsilonDelta(1.0, 0.02))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        settings(target=EpsilonDelta(1.0, 0.01))


def test_learning_rates_follow_the_schedule_up_to_their_peak():
    rates = learning_rates(2.0, "linear", settings(), 1.0)
    assert rates.shape == (20,)
    assert rates.max() == 2.0
    automatic = learning_rates("auto", np.linspace(0.5, 0.1, 5), settings(), 1.0)
    # 0.97 of the largest, also where the factors given never reach 1.
    assert automatic.max() == pytest.approx(0.97)
    with pytest.raises(ParameterError, match=r"^learning_rate must be"):
        learning_rates(-1.0, "linear", settings(), 1.0)
    with pytest.raises(ParameterError, match=r"^learning_rate must be a number at least 1e-30 and at most 1e\+30"):
        learning_rates(1e308, "linear", settings(), 1.0)


def test_auto_is_a_word():
    assert is_auto("auto")
    assert not is_auto(np.array(["auto", "auto"]))
    assert not is_auto(None)


def test_noise_that_float32_would_flush_to_zero_is_refused():
    check_noise(1e-25, 1.0)
    with pytest.raises(ParameterError, match=r"^noise standard deviation must be at least 1e-25; got 1e-26\."):
        check_noise(1e-26, 1.0)


def test_noise_that_a_model_could_not_hold_is_refused():
    check_noise(1.0, 1e20)
    for in_model in (1.1e20, np.inf, np.nan):
        with pytest.raises(ParameterError, match=r"^noise standard deviation in the model must be at most 1e\+20; got"):
            check_noise(1.0, in_model)
