import csv
from dataclasses import replace

import pytest

from noisycgd.comparison import Comparison, Curve
from reproduce.accounts import COMPARISONS
from reproduce.experiments import KINDS, load_experiment
from reproduce.show import PAGES, shown

PICTURED = ("curves", "ablation", "along", "per-class")
EVERY = ("table", "selection", *PICTURED)


def test_every_kind_has_a_page():
    assert set(PAGES) == set(KINDS)


@pytest.mark.parametrize("kind", EVERY)
def test_nothing_was_run(kind, every_kind, store, capsys, tmp_path):
    shown(every_kind[kind], store, None)
    text = capsys.readouterr().out
    assert text.startswith("# A tiny table\n\nIn the paper (arXiv 2407.04884): Table 0.\n")
    assert ("No runs yet, hence no picture." in text) == (kind in PICTURED)
    assert "not run" in text or "not complete" in text
    shown(every_kind[kind], store, tmp_path / "out")
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".md", ".csv"}


@pytest.mark.parametrize("kind", EVERY)
def test_files_are_written_and_named(kind, every_kind, store, fill, capsys, tmp_path):
    experiment, out = every_kind[kind], tmp_path / "a" / "b"
    shown(experiment, fill(experiment, store), out)
    printed = capsys.readouterr()
    suffixes = {"md", "csv"} | ({"png", "svg"} if kind in PICTURED else set())
    # Nothing else is left there, such as files of a temporary name.
    assert {path.name for path in out.iterdir()} == {f"tiny.{suffix}" for suffix in suffixes}
    assert printed.out == ""
    assert sorted(printed.err.splitlines()) == sorted(f"wrote {path}" for path in out.iterdir())
    text = (out / "tiny.md").read_text()
    assert ("![A tiny table](tiny.png)" in text) == (kind in PICTURED)
    with (out / "tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert {row["experiment"] for row in rows} == {"tiny"}


def test_the_note_stands_below_the_picture(every_kind, store, fill, tmp_path):
    experiment = every_kind["curves"]
    shown(experiment, fill(experiment, store), tmp_path)
    text = (tmp_path / "tiny.md").read_text()
    assert text.index("tiny.png") < text.index("Points are hypothetical.") < text.index("Mean test accuracy")


@pytest.mark.parametrize("kind", EVERY)
def test_a_part_is_shown(kind, every_kind, store, fill, capsys):
    experiment = every_kind[kind]
    fill(replace(experiment, methods=("sampled",), noise_multipliers=(15.0,)), store, seeds=1)
    shown(experiment, store, None)
    text = capsys.readouterr().out
    assert "1 of 2" in text or "of 12 runs" in text
    assert "No runs yet" not in text


def test_showing_trains_and_writes_nothing(every_kind, store, fill, monkeypatch, capsys):
    experiment = fill(every_kind["table"], store) and every_kind["table"]
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    monkeypatch.setattr("reproduce.training.make", None)
    monkeypatch.setattr("reproduce.training.load", None)
    shown(experiment, store, None)
    assert {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()} == before


def test_written_files_take_the_place_of_older_ones(experiment, store, fill, tmp_path):
    shown(experiment, store, tmp_path)
    shown(experiment, fill(experiment, store), tmp_path)
    assert "not run" not in (tmp_path / "tiny.md").read_text()


def test_accounting_needs_no_runs(store, tmp_path, monkeypatch):
    comparison = Comparison("title", "x", "y", (Curve("one", (1.0, 2.0), (0.5, 0.25), "final-model"),))
    monkeypatch.setitem(COMPARISONS, "shuffling", lambda **settings: comparison)
    shown(load_experiment("figure-shuffling"), store, tmp_path)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        f"figure-shuffling.{suffix}" for suffix in ("md", "csv", "png", "svg")
    }
