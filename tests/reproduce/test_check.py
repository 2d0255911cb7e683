import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from reproduce.check import committed, find_cell, prediction_interval, repeat
from reproduce.experiments import load_experiment
from reproduce.runs import Store


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
    low, high = prediction_interval([0.90, 0.91, 0.92])
    # Student's t with two degrees of freedom at 0.995 is 9.92484; the deviation is 0.01.
    half = 9.92484 * 0.01 * math.sqrt(4 / 3)
    assert (low, high) == (pytest.approx(0.91 - half, rel=1e-5), pytest.approx(0.91 + half, rel=1e-5))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_runs(n):
    with pytest.raises(ValueError, match=f"must be at least 3; got {n}"):
        prediction_interval([0.9] * n)


def test_one_cell_must_be_meant(every_kind):
    experiment = replace(every_kind["along"], vary={"sampled on digits": {"n_hyperplanes": [2, 4], "l2": [0.5]}})
    assert find_cell(experiment, "defaults", "digits", 5.0).method.name == "defaults"
    with pytest.raises(ValueError, match="a cell of tiny; got"):
        find_cell(experiment, "defaults", "mnist", 5.0)
    with pytest.raises(ValueError, match=r"got 2\. Give one of: --where n_hyperplanes=2 --where l2=0\.5; "):
        find_cell(experiment, "sampled", "digits", 5.0)
    with pytest.raises(ValueError, match="must leave one cell; got 0"):
        find_cell(experiment, "sampled", "digits", 5.0, ["n_hyperplanes=3"])
    cell = find_cell(experiment, "sampled", "digits", 5.0, ["l2=0.5", "n_hyperplanes=4"])
    assert cell.changes == {"n_hyperplanes": 4, "l2": 0.5}


def test_the_readmes_example_has_runs_enough():
    text = (Path(__file__).resolve().parents[2] / "reproduce" / "README.md").read_text()
    words = next(line for line in text.splitlines() if " check " in line).split()
    options = dict(zip(words[5::2], words[6::2], strict=True))
    experiment = load_experiment(words[4])
    cell = find_cell(experiment, options["--method"], options["--dataset"], float(options["--noise-multiplier"]))
    prediction_interval(committed(experiment, cell, Store()))


def test_a_repeated_run_is_of_a_further_seed_and_is_not_kept(experiment, store, fill, result, monkeypatch):
    fill(experiment, store)
    made = []
    monkeypatch.setattr("reproduce.training.make", lambda run, verbose: made.append(run) or result(run, 0.123))
    before = len(list(store))
    cell = next(experiment.cells())
    assert repeat(cell, store)["accuracy"] == 0.123
    assert [(run.seed, run.parameters["learning_rate"]) for run in made] == [(2, 0.1)]
    assert len(list(store)) == before
    assert committed(experiment, cell, store) == [store.result(cell.run(seed, 0.1))["accuracy"] for seed in (0, 1)]


def test_an_unfinished_search_cannot_be_repeated(experiment, store):
    with pytest.raises(ValueError, match="learning rate must have been searched"):
        repeat(next(experiment.cells()), store)
