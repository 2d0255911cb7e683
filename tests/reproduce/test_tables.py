import csv
import io
import math
from dataclasses import replace

from noisycgd.data.datasets import DATASETS
from reproduce.summary import summaries
from reproduce.tables import (
    accuracy_rows,
    accuracy_tables,
    csv_text,
    difference,
    in_print,
    markdown,
    panel_title,
    panels,
)


def lines_of(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def test_markdown_lines_up():
    text = markdown(["a", "bb"], [["long", "1"], ["x", "1234"]])
    assert text.splitlines() == [
        "| a    |   bb |",
        "|------|-----:|",
        "| long |    1 |",
        "| x    | 1234 |",
    ]


def test_csv_comes_back():
    rows = [{"a": 'with "quotes", and commas', "b": None}, {"a": "é", "b": math.nan}, {"a": "", "b": 0.0}]
    assert list(csv.DictReader(io.StringIO(csv_text(rows)))) == [
        {"a": 'with "quotes", and commas', "b": ""},
        {"a": "é", "b": ""},
        {"a": "", "b": "0.0"},
    ]
    assert csv_text([]).strip() == ""


def test_large_differences_are_bold():
    shown = [difference(points) for points in (None, 0.0, -1.0, 1.1, -20.3)]
    assert shown == ["–", "+0.0", "-1.0", "**+1.1**", "**-20.3**"]


def test_delta_in_print():
    assert [in_print(value) for value in (1e-5, 1e-10, 0.01)] == ["1e-5", "1e-10", "0.01"]


def test_panels_are_named_after_their_noise():
    assert panel_title(15.0) == "the paper's epsilon 1.33 (its noise multiplier 15)"
    assert panel_title(0.001) == "noise multiplier 0.001"


def test_panels_hold_every_cell_once_in_order(every_kind, store):
    found = summaries(every_kind["table"], store)
    grouped = list(panels(found))
    assert [heading.partition(", ")[2] for heading, _ in grouped] == [panel_title(15.0), panel_title(5.0)]
    assert [one for _, group in grouped for one in group] == found


def test_a_table_without_runs(experiment, store):
    text = accuracy_tables(summaries(experiment, store))
    assert f"## {DATASETS['digits'].title} (1437 training records), {panel_title(5.0)}" in text
    rows = lines_of(text)[2:]
    assert len(rows) == 2
    assert all("not run" in row and "0 of 2" in row for row in rows)
    assert "90.0 ± 0.5" in rows[0]


def test_a_full_table(every_kind, store, fill):
    experiment = every_kind["table"]
    text = accuracy_tables(summaries(experiment, fill(experiment, store)))
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in lines_of(text)]
    header, _, *first = rows[:6]
    assert header == ["method", "epsilon of the run", "accuracy", "paper", "difference", "seeds", "learning rate"]
    expected = [
        ["SSP", "not private"],
        ["DP-SGD", "1.2600 proved"],
        ["NoisyCGD", "1.2600 unproven"],
        ["ours", "1.2600 proved"],
    ]
    assert [row[:2] for row in first] == expected
    assert rows[6] == header
    second = rows[8:]
    assert [row[:2] for row in second] == expected
    assert [row[3] for row in first + second].count("90.0 ± 0.5") == 1
    assert {row[5] for row in first + second} == {"2"}
    assert [row[6] for row in first] == ["–", "0.1", "0.1", "auto"]
    # Words that stand in the table are explained above it, and no others.
    assert "Unproven:" in text
    assert "Not private:" in text
    assert "Conditional:" not in text


def test_a_table_without_the_papers_numbers_has_no_columns_for_them(experiment, store, fill):
    text = accuracy_tables(summaries(replace(experiment, paper={}), fill(experiment, store)))
    assert "difference" not in text.lower()
    assert "paper" not in lines_of(text)[0]


def test_incomplete_cells_say_how_many(experiment, store, fill):
    text = accuracy_tables(summaries(replace(experiment, seeds={"digits": 5}), fill(experiment, store)))
    assert all("2 of 5" in row for row in lines_of(text)[2:])


def test_the_first_images_count_separately(experiment, store, fill):
    found = summaries(experiment, fill(experiment, store, accuracy_original=0.85))
    text = accuracy_tables(found)
    assert "first 1000" in lines_of(text)[0]
    assert "85.00 ± 0.00" in lines_of(text)[2]
    assert accuracy_rows(experiment, found)[0]["accuracy_first_1000"] == 85.0


def test_rows_of_the_csv(experiment, store, fill):
    found = summaries(experiment, fill(experiment, store))
    rows = accuracy_rows(experiment, found)
    assert len({tuple(row) for row in rows}) == 1
    row = rows[0]
    assert (row["experiment"], row["dataset"], row["method"]) == ("tiny", "digits", "sampled")
    assert (row["noise_multiplier"], row["epsilon_label"], row["epsilon"], row["status"]) == (5.0, 4.76, 1.26, "proved")
    assert (row["n_seeds"], row["learning_rate"], row["paper_accuracy"], row["paper_spread"]) == (2, 0.1, 90.0, 0.5)
    values = found[0].values()
    assert row["accuracy"] == round(float(values.mean()), 4)
    assert row["accuracy_se"] == round(float(values.std(ddof=1)) / math.sqrt(2), 4)
    assert row["difference"] == round(float(values.mean()) - 90.0, 1)


def test_rows_of_cells_that_were_not_run(experiment, store):
    for row in accuracy_rows(experiment, summaries(experiment, store)):
        assert (row["status"], row["accuracy"], row["epsilon"], row["n_seeds"]) == ("not run", None, None, 0)
