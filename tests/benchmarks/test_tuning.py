import json

import pytest

from benchmarks import tuning


@pytest.fixture
def small(monkeypatch):
    grid = ["--grid", "hyperplanes=2,4", "--mean-trials", "1", "--law", "geometric", "--epochs", "1"]
    monkeypatch.setattr(tuning, "WAYS", {"default": ["fit", "--epochs", "1"], "tuned, geometric": ["tune", *grid]})
    monkeypatch.setattr(tuning, "DATA", {"digits": (["--delta", "1e-4"], 1)})


def test_runs_are_kept_shown_drawn_and_not_repeated(small, tmp_path, capsys):
    out, plot = tmp_path / "tuning.jsonl", tmp_path / "tuning.png"
    assert tuning.main(["--out", str(out), "--plot", str(plot)]) == 0
    runs = [json.loads(line) for line in out.read_text().splitlines()]
    assert [run["way"] for run in runs] == ["default", "tuned, geometric"]
    assert all(run["epsilon"] <= 8 and run["status"] == "proved" for run in runs)
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert f"{100 * runs[0]['test_accuracy']:.1f} %" in capsys.readouterr().out
    # A second call finds everything done and trains nothing.
    out.write_text("".join(json.dumps({**run, "test_accuracy": 0.125}) + "\n" for run in runs))
    assert tuning.main(["--out", str(out)]) == 0
    assert capsys.readouterr().out.count("12.5 %") == 2


def test_an_unknown_data_set_is_one_clear_line(small, capsys):
    with pytest.raises(SystemExit):
        tuning.main(["imagenet"])
    assert "data must be among digits; got imagenet." in capsys.readouterr().err
