import pytest

from reproduce.classes import class_rows, class_tables, per_class
from reproduce.summary import summaries


def test_means_of_classes(experiment, store, fill):
    one = summaries(experiment, fill(experiment, store))[0]
    first, second = (result["per_class"] for result in one.results)
    assert per_class(one) == pytest.approx([50 * (a + b) for a, b in zip(first, second, strict=True)])


def test_table_and_rows(experiment, store, fill):
    found = summaries(experiment, fill(experiment, store))
    text, rows = class_tables(found), class_rows(experiment, found)
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    values = per_class(found[1])
    assert cells[0] == "ours"
    assert cells[3:13] == [f"{value:.1f}" for value in values]
    assert cells[13:] == [f"{found[1].mean:.1f}", f"{max(values) - min(values):.1f}"]
    assert [row["class"] for row in rows] == [*"0123456789"] * 2
    assert rows[-1]["accuracy"] == pytest.approx(values[-1], abs=1e-4)


def test_nothing_was_run(experiment, store):
    found = summaries(experiment, store)
    assert class_tables(found).count("not run") == 2
    assert class_rows(experiment, found) == []
