import math

import numpy as np
import pytest

from reproduce.check import committed, prediction_interval, repeat


def test_the_interval_holds_99_of_100_further_runs():
    rng = np.random.default_rng(3)
    samples = rng.standard_normal((4000, 6))
    intervals = [prediction_interval(sample[:5].tolist()) for sample in samples]
    inside = sum(float(sample[5]) in interval for sample, interval in zip(samples, intervals, strict=True))
    # Binomial(4000, 0.99): 5 deviations are 31; a false alarm has probability below 1e-5.
    assert abs(inside - 3960) < 32
    # The test can fail: at the level 0.95 about 3800 would be inside.
    narrow = [prediction_interval(sample[:5].tolist(), 0.95) for sample in samples]
    assert abs(sum(float(s[5]) in i for s, i in zip(samples, narrow, strict=True)) - 3960) > 32


def test_the_interval_by_hand():
    low, high = prediction_interval([0.90, 0.92])
    # Student's t with one degree of freedom at 0.995 is 63.657; the deviation is 0.01 sqrt 2.
    half = 63.6567 * 0.01 * math.sqrt(2) * math.sqrt(1.5)
    assert (low, high) == (pytest.approx(0.91 - half, rel=1e-4), pytest.approx(0.91 + half, rel=1e-4))


def test_one_run_is_too_few():
    with pytest.raises(ValueError, match="must be at least 2; got 1"):
        prediction_interval([0.9])


def test_a_repeated_run_is_the_first_seeds_and_is_not_kept(experiment, store, fill, result, monkeypatch):
    fill(experiment, store)
    made = []
    monkeypatch.setattr("reproduce.training.make", lambda run, verbose: made.append(run) or result(run, 0.123))
    before = len(list(store))
    cell = next(experiment.cells())
    assert repeat(cell, store)["accuracy"] == 0.123
    assert [(run.seed, run.parameters["learning_rate"]) for run in made] == [(0, 0.1)]
    assert len(list(store)) == before
    assert len(committed(experiment, cell, store)) == 2


def test_an_unfinished_search_cannot_be_repeated(experiment, store):
    with pytest.raises(ValueError, match="learning rate must have been searched"):
        repeat(next(experiment.cells()), store)
