import math
from dataclasses import replace

import numpy as np
import pytest

from reproduce.experiments import Printed
from reproduce.summary import (
    deviation,
    printed,
    privacy,
    rate,
    spread,
    standard_error,
    summaries,
    summarised,
    upward,
)


@pytest.fixture
def one(experiment, store, result):
    """A cell with the accuracies 90, 91 and 93 %."""
    cell = list(experiment.cells())[1]
    for seed, accuracy in enumerate((0.90, 0.91, 0.93)):
        store.add(cell.run(seed), result(cell.run(seed), accuracy))
    return summarised(experiment, cell, store)


def test_numbers_of_a_cell(one):
    assert one.mean == pytest.approx(274 / 3)
    assert deviation(one.values()) == pytest.approx(math.sqrt((16 / 9 + 1 / 9 + 25 / 9) / 2))
    assert standard_error(one.values()) == pytest.approx(deviation(one.values()) / math.sqrt(3))
    assert (one.n, one.wanted, one.seeds, one.label, one.epsilon, one.status) == (3, 2, "3", 4.76, 1.27, "proved")
    assert spread(one.values()) == "91.33 ± 1.53"
    # Of three runs the largest epsilon counts.
    assert privacy(one) == "1.2700 proved"
    assert (rate(one), one.title) == ("auto", "ours")
    known = replace(one, results=[r | {"peak_rate": 3.8764, "epsilon": 2e8} for r in one.results])
    assert rate(known) == "auto, 3.88"
    # What promises nothing has nothing to prove.
    assert privacy(known) == "> 1000"


def test_one_run_has_no_deviation(one):
    single = replace(one, results=one.results[:1])
    assert math.isnan(deviation(single.values()))
    assert (spread(single.values()), single.seeds) == ("90.00", "1 of 2")


def test_a_cell_without_runs(experiment, store):
    for one in summaries(experiment, store):
        assert (one.n, one.epsilon, one.status, one.difference, one.seeds) == (0, None, "", None, "0 of 2")
        assert privacy(one) == "–"
    # While a rate is searched, none is known.
    assert [rate(one) for one in summaries(experiment, store)] == ["–", "auto"]


@pytest.mark.parametrize(("paper", "difference"), [(91.0, 0.3), (91.36, 0.0), (92.5, -1.2)])
def test_difference_has_the_papers_digit(one, paper, difference):
    found = replace(one, printed=Printed(paper)).difference
    assert found == difference
    assert math.copysign(1, found) == 1 or found < 0  # never -0.0


def test_void_runs_have_no_epsilon(one):
    void = replace(one, results=[{**r, "status": "void"} for r in one.results])
    assert void.epsilon is None
    assert privacy(void) == "not private"


def test_epsilon_is_rounded_up():
    assert (upward(1.31721), upward(1.3172), upward(0.5, 2)) == ("1.3173", "1.3172", "0.50")
    assert upward(2e8) == "> 1000"


def test_what_the_paper_prints_keeps_its_digits():
    found = [printed(p) for p in (None, Printed(94.0), Printed(59.9, 1.0), Printed(92.5, 0.002), Printed(93.0, 0.05))]
    assert found == ["–", "94.0", "59.9 ± 1.0", "92.5 ± 0.002", "93.0 ± 0.05"]


def test_titles_say_what_varies(experiment, store):
    vary = {"all": {"batch_size": [100, 200]}, "sampled": {"learning_rate": [0.00316227766]}}
    found = summaries(replace(experiment, vary=vary), store)
    assert [one.title for one in found] == [
        "DP-SGD, batches of 100, learning rate 0.00316",
        "DP-SGD, batches of 200, learning rate 0.00316",
        "ours, batches of 100",
        "ours, batches of 200",
    ]


def test_a_search_that_ends_at_the_end_of_its_grid_says_so(experiment, store, result):
    while todo := experiment.todo(store):
        for run in todo:
            store.add(run, result(run, 0.5 + 0.1 * run.parameters.get("learning_rate", 0.0)))
    searched, ours = summaries(experiment, store)
    assert (searched.learning_rate, rate(searched), searched.at_edge) == (1.0, "1 (edge)", True)
    assert (ours.learning_rate, ours.at_edge) == ("auto", False)


def test_a_search_that_ends_inside_does_not(experiment, store, fill):
    searched = summaries(experiment, fill(experiment, store))[0]
    assert (rate(searched), searched.at_edge) == ("0.1", False)
    assert np.all(searched.values() > 89)
