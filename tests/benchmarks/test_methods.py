import json

import pytest

from benchmarks import methods

SMALL = {"a linear model": "--model linear", "least squares": "--model ssp --features relu --components 8"}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(methods, "METHODS", SMALL)
    monkeypatch.setattr(methods, "EPOCHS", 1)
    monkeypatch.setattr(methods, "NOISE_MULTIPLIERS", (5.0,))


def test_runs_are_kept_shown_and_not_repeated(small, tmp_path, capsys):
    out = tmp_path / "results" / "methods.jsonl"
    assert methods.main(["--data", "digits", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    runs = [json.loads(line) for line in out.read_text().splitlines()]
    assert [run["method"] for run in runs] == list(SMALL)
    assert {run["status"] for run in runs} == {"proved"}
    for run in runs:
        assert f"{100 * run['test_accuracy']:.1f} % | {run['epsilon']:.3f}" in printed
    # A second call finds everything done: it trains nothing, and shows the same.
    out.write_text("".join(json.dumps({**run, "test_accuracy": 0.125}) + "\n" for run in runs))
    assert methods.main(["--data", "digits", "--out", str(out)]) == 0
    assert capsys.readouterr().out.count("12.5 %") == 2


def test_show_trains_nothing(small, tmp_path, capsys):
    out = tmp_path / "absent.jsonl"
    assert methods.main(["--show", "--out", str(out)]) == 0
    assert not out.exists()
    assert "| method |" in capsys.readouterr().out
