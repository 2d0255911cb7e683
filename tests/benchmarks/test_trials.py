"""The benchmark's own code at toy size; that each way trains the same is shown in tests/training/test_many.py."""

import json

import numpy as np
import pytest
from benchmarks.problem import Sizes, make_problem
from benchmarks.trials import N_RUNS, Runs, main, race_ways, table

from noisycgd.training.many import Way

TOY = Sizes(n=120, d=12, P=6, q=3, b=40)


def test_json_has_every_promised_key(tmp_path, capsys):
    out = tmp_path / "results" / "trials.json"
    assert main(["--quick", "--json", "--rounds=2", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert out.read_text() == printed
    result = json.loads(printed)
    assert (result["benchmark"], result["runs"], result["rounds"]) == ("trials", 8, 2)
    assert set(result["cases"]) == {"quick"}
    case = result["cases"]["quick"]
    assert set(case["speedups"]) == set(case["epoch_ms"]) == {"program", "threads", "turns"}
    assert case["speedup"] == case["speedups"][case["chosen"]]["median"]
    assert case["speedups"]["turns"] == {"median": 1, "q1": 1, "q3": 1}
    assert case["epochs_per_s"] == pytest.approx(1e3 / case["epoch_ms"][case["chosen"]]["median"])
    assert case["step_multiplications"] == 2 * 200 * 32 * 5 * 3
    assert case["chosen"] + " *" in table(result)
    assert {"machine", "versions", "notes"} <= set(result)


def test_runs_differ():
    weights = Runs(make_problem(TOY), 2).train(Way.TURNS)
    assert len(weights) == N_RUNS
    assert all(np.abs(a - b).max() > 0 for i, a in enumerate(weights) for b in weights[:i])


def test_each_round_gives_every_way_a_turn_and_starts_with_another(monkeypatch):
    log: list[Way] = []
    runs = Runs(make_problem(TOY), 2)
    monkeypatch.setattr(runs, "train", log.append)
    times = race_ways(runs, rounds=3, pause_s=0)
    a, b, c = Way
    assert log == [a, b, c, a, b, c, b, c, a, c, a, b]
    assert {way: len(turns) for way, turns in times.items()} == {a: 3, b: 3, c: 3}
