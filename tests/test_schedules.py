import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisycgd._validation import ParameterError
from noisycgd.schedules import FINAL_SHARE, SCHEDULES, schedule_factors


@settings(deadline=None, max_examples=60)
@given(name=st.sampled_from(SCHEDULES), epochs=st.integers(1, 20), k=st.integers(1, 20))
def test_named_schedules_fall_from_one_to_the_final_share_and_stay_admissible(name, epochs, k):
    factors = schedule_factors(name, k * epochs, epochs)
    assert factors.shape == (k * epochs,)
    assert factors.max() == 1
    assert (np.diff(factors[factors.argmax() :]) <= 0).all()
    assert factors.min() > 0
    if name == "warmup-stable-decay":
        return
    assert factors[0] == 1
    if name == "constant":
        assert (factors == 1).all()
    elif k * epochs > 1:
        assert factors[-1] == pytest.approx(FINAL_SHARE, rel=1e-12)


def test_linear_is_the_formula_of_the_theory():
    T = 7
    expected = [1 - 0.98 * t / (T - 1) for t in range(T)]
    np.testing.assert_allclose(schedule_factors("linear", T, 1), expected, rtol=1e-14)


def test_cosine_is_half_a_cosine():
    T = 9
    expected = [0.02 + 0.98 * (1 + math.cos(math.pi * t / (T - 1))) / 2 for t in range(T)]
    np.testing.assert_allclose(schedule_factors("cosine", T, 1), expected, rtol=1e-13)


def test_warmup_stable_decay_rises_stays_and_falls():
    factors = schedule_factors("warmup-stable-decay", 101, 1)
    np.testing.assert_allclose(factors[[0, 5, 80, 90, 100]], [0.02, 1, 1, 0.51, 0.02], rtol=1e-12)
    assert (factors[5:81] == 1).all()
    assert (np.diff(factors[:6]) > 0).all()
    np.testing.assert_array_equal(schedule_factors("warmup-stable-decay", 1, 1), [1])


def test_an_array_per_step_is_taken_as_it_is():
    np.testing.assert_array_equal(schedule_factors([1, 0.5, 0.25, 1e-3], 4, 2), [1, 0.5, 0.25, 1e-3])


def test_an_array_per_epoch_is_repeated_over_its_steps():
    np.testing.assert_array_equal(schedule_factors([1.0, 0.5], 6, 2), [1, 1, 1, 0.5, 0.5, 0.5])


def test_one_batch_per_epoch_makes_steps_and_epochs_the_same():
    np.testing.assert_array_equal(schedule_factors([1.0, 0.5], 2, 2), [1, 0.5])


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (
            "step",
            "schedule must be one of 'linear', 'constant', 'cosine', 'warmup-stable-decay'; got 'step'. An array",
        ),
        (
            [1.0, 0.5, 0.25],
            r"schedule must be of shape \(6,\), one factor per step, or \(2,\), one per epoch; got \(3,\)",
        ),
        ([[1.0] * 6], r"got \(1, 6\)"),
        (None, r"got \(\)"),
        ([], r"got \(0,\)"),
        ([1.0, 0.0], r"schedule must be made of factors above 0 and at most 1; got 'a range of \[0.0, 1.0\]'"),
        ([1.0, -0.5], "above 0"),
        ([1.0, 1.0 + 1e-12], "at most 1"),
        ([1.0, np.nan], "above 0"),
        ([np.inf, 1.0], "at most 1"),
        (["fast", "slow"], "schedule must be a name or an array of numbers"),
        ([[1.0], [1.0, 2.0]], "schedule must be a name or an array of numbers"),
    ],
)
def test_refusals(schedule, words):
    with pytest.raises(ParameterError, match=words):
        schedule_factors(schedule, 6, 2)
