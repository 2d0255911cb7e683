import math
from dataclasses import replace

import numpy as np
import pytest

from reproduce.privacy import epsilon_at
from reproduce.resampling import Bank, banks, best_of_poisson, selection_rows, selection_tables
from reproduce.runs import Store
from reproduce.summary import summaries


def resampled(values, weights, mean, untrained, n, rng):
    """The obvious twin: draw the number of trials, the trials, and take the best."""
    best = np.full(n, untrained)
    for i, trials in enumerate(rng.poisson(mean, n)):
        if trials:
            best[i] = rng.choice(values, size=trials, p=np.asarray(weights) / np.sum(weights)).max()
    return best


VALUES, WEIGHTS = [90.0, 92.0, 88.0, 92.0, 5.0, 93.0], [0.3, 0.1, 0.2, 0.1, 0.25, 0.05]


@pytest.mark.parametrize("mean", [0.5, 3.0, 20.0])
def test_the_law_of_the_best_is_that_of_10_000_resamples(mean):
    best = resampled(VALUES, WEIGHTS, mean, 10.0, 10_000, np.random.default_rng(1))
    expected, deviation = best_of_poisson(VALUES, WEIGHTS, mean, 10.0)
    # 5 standard errors: a false alarm has probability 6e-7 for the mean.
    error = deviation / 100
    assert abs(best.mean() - expected) < 5 * error
    assert best.std() == pytest.approx(deviation, rel=0.1)
    # The test can fail: half as many trials are another law.
    assert abs(best.mean() - best_of_poisson(VALUES, WEIGHTS, mean / 2, 10.0)[0]) > 5 * error


def test_hardly_any_trial_leaves_the_model_untrained():
    assert best_of_poisson(VALUES, WEIGHTS, 1e-12, 10.0) == (pytest.approx(10.0), pytest.approx(0.0, abs=1e-3))


def test_many_trials_find_the_best():
    assert best_of_poisson(VALUES, WEIGHTS, 1e6, 10.0) == (pytest.approx(93.0), pytest.approx(0.0, abs=1e-3))


def test_order_and_scale_of_the_weights_do_not_matter():
    order = [3, 1, 5, 0, 2, 4]
    other = best_of_poisson([VALUES[i] for i in order], [7 * WEIGHTS[i] for i in order], 3.0, 10.0)
    assert other == pytest.approx(best_of_poisson(VALUES, WEIGHTS, 3.0, 10.0))


@pytest.fixture
def bank(every_kind, store, fill):
    experiment = every_kind["selection"]
    return experiment, summaries(experiment, fill(experiment, store))


def test_a_full_bank(bank):
    experiment, found = bank
    text = selection_tables(experiment, found)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines() if row.startswith("|")]
    assert [row[:4] for row in rows[2:]] == [
        ["DP-SGD", "1.33", "2.88", "3.7807"],
        ["NoisyCGD", "1.33", "2.88", "3.7807"],
        ["DP-SGD", "4.76", "8.91", "12.7669"],
        ["NoisyCGD", "4.76", "8.91", "12.7669"],
    ]
    assert [row[9] for row in rows[2:]] == ["12 runs", "6 runs", "12 runs", "6 runs"]
    assert "Resampled: no selection was run." in text
    assert "learning rate 0.1" in rows[2][10]
    mean, deviation = banks(experiment, found)[0].best
    assert rows[2][6] == f"{mean:.2f} ± {deviation:.2f}"
    # The best of about twenty is better than one.
    assert mean > np.mean([one.mean for one in found[:6]])
    assert rows[2][8] == f"**{mean - 80:+.1f}**"


def test_epsilon_of_the_selection_is_above_that_of_a_trial(bank):
    experiment, found = bank
    for one, row in zip(banks(experiment, found), selection_rows(experiment, found), strict=True):
        trial = epsilon_at(one.first.run, one.first.noise_multiplier, 3)
        assert row["selection_epsilon_400_epochs"] > row["selection_epsilon"] > trial
        assert row["epochs"] == 3
        assert (row["mean_trials"], row["delta"]) == (20.0, 1e-5)
        assert math.isfinite(row["accuracy_sd"])


def test_the_worst_candidate_speaks_for_all(bank):
    experiment, found = bank
    cyclic = [one for one in found if one.cell.method.name == "cyclic"][:3]

    def with_l2(one, factor, epsilon):
        parameters = {**one.run.parameters, "l2": factor * 1e-3 / one.run.parameters["learning_rate"]}
        results = [r | {"epsilon": epsilon} for r in one.results]
        return replace(one, run=replace(one.run, parameters=parameters), results=results)

    same = Bank(experiment, [with_l2(one, 1.0, 1.3) for one in cyclic])
    # Less l2 costs more, wherever that candidate stands.
    for place in range(3):
        worse = [with_l2(one, 0.5 if i == place else 1.0, 1.4 if i == place else 1.3) for i, one in enumerate(cyclic)]
        assert Bank(experiment, worse).epsilon_in_full > same.epsilon_in_full + 1e-3


def test_candidates_weigh_alike_whatever_their_numbers_of_runs(bank):
    experiment, found = bank
    few = [replace(one, results=one.results[:1], wanted=1) for one in found]
    # A candidate whose one run counts twice is still one candidate.
    more = [replace(few[0], results=few[0].results * 2), *few[1:]]
    assert banks(experiment, more)[0].best == pytest.approx(banks(experiment, few)[0].best)


def test_a_part_of_a_bank_shows_no_accuracy(bank):
    experiment, found = bank
    found[2] = replace(found[2], results=found[2].results[:1])
    bank = banks(experiment, found)[0]
    assert (bank.best, bank.epsilon, bank.difference, bank.complete) == (None, None, None, False)
    row = next(line for line in selection_tables(experiment, found).splitlines() if line.startswith("| DP-SGD"))
    assert "not complete" in row
    assert "11 of 12 runs" in row
    assert selection_rows(experiment, found)[0]["accuracy"] is None


def test_no_runs_at_all(every_kind, tmp_path):
    experiment = every_kind["selection"]
    text = selection_tables(experiment, summaries(experiment, Store(tmp_path)))
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 4
    assert all("not complete" in row and "0 of " in row for row in rows)


def test_a_single_candidate_is_one_release_as_it_is(every_kind, store, fill):
    experiment = replace(every_kind["selection"], methods=("sums", "sampled"))
    found = summaries(experiment, fill(experiment, store))
    bank = banks(experiment, found)[0]
    assert bank.best == (pytest.approx(found[0].mean), pytest.approx(found[0].values().std(ddof=1)))
    rows = [line for line in selection_tables(experiment, found).splitlines() if line.startswith("| SSP")]
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells[1:6] == ["–", "2.88", "–", "not private", "–"]
    assert cells[9:] == ["2 runs", "–"]
    row = selection_rows(experiment, found)[0]
    assert (row["selection_epsilon"], row["selection_epsilon_label"], row["best_candidate"]) == (None, None, None)
    assert row["epsilon_label"] == 2.88
    # With a public bound its own epsilon stands there, not a selection's.
    public = replace(bank, candidates=[replace(found[0], results=[r | {"status": "proved"} for r in found[0].results])])
    assert public.epsilon == public.first.epsilon == 1.26
