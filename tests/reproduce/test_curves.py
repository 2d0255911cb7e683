import math
from dataclasses import replace

import numpy as np
import pytest

from reproduce.curves import curve, curve_rows, curve_tables
from reproduce.privacy import epsilon_at
from reproduce.summary import summaries


@pytest.fixture
def found(experiment, store, fill):
    return summaries(experiment, fill(experiment, store))


def test_points_are_means_with_bars_and_epsilons(found):
    one = found[0]
    points = curve(one)
    assert [point.epoch for point in points] == [1, 2, 3]
    for i, point in enumerate(points):
        values = np.array([100 * result["curve"][i][1] for result in one.results])
        assert point.accuracy == pytest.approx(values.mean())
        assert point.bar == pytest.approx(1.96 * values.std(ddof=1) / math.sqrt(2))
        assert point.epsilon == epsilon_at(one.run, 5.0, point.epoch)
    assert points[0].epsilon < points[2].epsilon


def test_only_epochs_that_all_runs_have_are_points(found):
    first, second = found[0].results
    shorter = {**second, "curve": second["curve"][1:]}
    assert [point.epoch for point in curve(replace(found[0], results=[first, shorter]))] == [2, 3]


def test_one_run_has_no_bars(found):
    points = curve(replace(found[0], results=found[0].results[:1]))
    assert all(math.isnan(point.bar) for point in points)


def test_without_runs_there_is_no_curve(experiment, store):
    assert [curve(one) for one in summaries(experiment, store)] == [[], []]


def test_epsilons_of_runs_without_privacy_are_infinite(found):
    loud = replace(found[0], results=[{**result, "epsilon": 2e8} for result in found[0].results])
    assert {point.epsilon for point in curve(loud)} == {math.inf}
    assert "(> 1000)" in curve_tables([loud])


def test_one_pass_has_no_curve(every_kind, store, fill):
    experiment = every_kind["table"]
    assert curve(summaries(experiment, fill(experiment, store))[0]) == []


def test_tables_and_rows_agree(experiment, found):
    text, rows = curve_tables(found), curve_rows(experiment, found)
    assert [(row["method"], row["epoch"]) for row in rows] == [
        (name, epoch) for name in ("sampled", "defaults") for epoch in (1, 2, 3)
    ]
    last = curve(found[0])[-1]
    assert f"{last.accuracy:.2f} ± {last.bar:.2f} (" in text
    assert rows[2]["epsilon"] == last.epsilon
    assert rows[2]["accuracy"] == pytest.approx(last.accuracy, abs=1e-4)


def test_missing_curves_are_not_run(experiment, store, found):
    none = replace(found[1], results=[])
    last = curve_tables([found[0], none]).splitlines()[-1]
    assert "not run" in last
    assert "0 of 2" in last
