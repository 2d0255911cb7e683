import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from reproduce import __main__ as module
from reproduce.runs import Store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(result, monkeypatch):
    """Runs that were made, by a `make` that trains nothing."""
    runs = []

    def make(run, verbose=False):
        runs.append(run)
        return result(run, 0.9)

    monkeypatch.setattr("reproduce.training.make", make)
    return runs


@pytest.fixture
def command(experiment, tmp_path, monkeypatch, capsys):
    """The command line with one experiment and a folder of its own; returns exit code, stdout and stderr."""
    monkeypatch.setattr(module, "names", lambda: ["tiny"])
    load = module.load_experiment
    monkeypatch.setattr(module, "load_experiment", lambda name: experiment if name == "tiny" else load(name))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["reproduce", *arguments, "--results", str(tmp_path / "results")])
        with pytest.raises(SystemExit) as exit_:
            module.main()
        return exit_.value.code, *capsys.readouterr()

    return call


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "results" / "digits.jsonl").read_text().splitlines()]


def test_run_makes_what_is_missing_and_nothing_twice(command, made, tmp_path):
    code, out, err = command("run", "tiny")
    assert (code, out) == (0, "")
    # Searched at 0.1 and both neighbours; two seeds of two methods, one of which the search made already.
    assert len(made) == 3 + 1 + 2 == len({run.key for run in made}) == len(lines(tmp_path))
    assert err.endswith("tiny: nothing left to run\n")
    assert "tiny: digits ConvexReLUClassifier method=dpsgd" in err
    command("run", "all")
    assert len(made) == 6
    command("run", "tiny", "--seeds", "3")
    assert [run.seed for run in made[6:]] == [2, 2]


def test_run_of_one_data_set(command, made):
    assert command("run", "tiny", "--dataset", "digits")[0] == 0
    assert {run.dataset for run in made} == {"digits"}


def test_run_of_all_takes_what_is_left_of_the_named_data_set(command, made, experiment, monkeypatch):
    other = replace(experiment, name="other", datasets=("mnist",), methods=("defaults",))
    monkeypatch.setattr(module, "names", lambda: ["tiny", "other"])
    load = module.load_experiment
    monkeypatch.setattr(module, "load_experiment", lambda name: other if name == "other" else load(name))
    assert command("run", "all", "--dataset", "mnist", "--seeds=1")[0] == 0
    assert [run.dataset for run in made] == ["mnist"]
    assert command("run", "all")[2].endswith("all: nothing left to run\n")


def test_run_starts_nothing_after_its_time(command, made):
    code, _, err = command("run", "tiny", "--minutes", "0")
    assert (code, made) == (0, [])
    assert "time is up, 3 runs known to be left, about" in err


def test_an_interrupted_run_is_made_again_and_the_others_are_not(command, made, tmp_path, monkeypatch):
    from reproduce import training

    plain = training.make

    def interrupted(run, verbose=False):
        if len(made) == 2:
            raise KeyboardInterrupt
        return plain(run, verbose)

    monkeypatch.setattr(training, "make", interrupted)
    code, *_ = command("run", "tiny")
    assert code == 130
    assert len(lines(tmp_path)) == 2
    monkeypatch.setattr(training, "make", plain)
    assert command("run", "tiny")[0] == 0
    assert len(made) == len(lines(tmp_path)) == 6
    assert set(Counter(run.key for run in made).values()) == {1}


def test_status_and_show_follow_the_runs(command, made, tmp_path):
    code, out, _ = command("status")
    assert code == 0
    assert " ".join(out.split()) == "tiny 0 of 4 runs 3 runs known to be left, about 0 min for one process"
    assert "not run" in command("show", "tiny")[1]
    command("run", "tiny")
    assert " ".join(command("status")[1].split()) == "tiny 4 of 4 runs complete"
    before = len(made)
    code, out, err = command("show", "tiny", "--out", str(tmp_path / "out"))
    assert (code, out) == (0, "")
    assert err.count("wrote ") == 2
    assert "not run" not in (tmp_path / "out" / "tiny.md").read_text()
    assert len(made) == before


def test_status_of_what_needs_no_run(command, monkeypatch):
    monkeypatch.setattr(module, "names", lambda: ["figure-shuffling"])
    assert " ".join(command("status")[1].split()) == "figure-shuffling needs no run"


def test_time_is_estimated_from_runs_alike(experiment, store, result):
    run = experiment.todo(store)[0]
    assert module._left([run], store) == "1 runs known to be left, about 0 min for one process"
    store.add(run, result(run, seconds=120.0))
    # 120 s for three epochs of the same method: a run of six takes 4 min.
    longer = replace(run, parameters={**run.parameters, "epochs": 6})
    assert module._left([longer], store) == "1 runs known to be left, about 4 min for one process"
    # Of another size nothing is known but the guess: five minutes for 400 epochs.
    larger = replace(longer, parameters={**longer.parameters, "n_hyperplanes": 64, "epochs": 400})
    assert "about 5 min" in module._left([larger], store)


def test_check_tells_whether_a_cell_comes_again(command, made, result, monkeypatch):
    cell = ("--method", "defaults", "--dataset", "digits", "--noise-multiplier", "5")
    code, _, err = command("check", "tiny", *cell)
    assert code == 2
    assert "at least 3; got 0" in err
    # Seeds 0, 1 and 2 find 90, 90.1 and 90.2 %.
    monkeypatch.setattr("reproduce.training.make", lambda run, verbose=False: result(run, 0.9 + 0.001 * run.seed))
    command("run", "tiny", "--seeds", "3")
    code, out, _ = command("check", "tiny", *cell)
    assert (code, "0.9030 is inside the 99 % prediction interval" in out) == (0, True)
    monkeypatch.setattr("reproduce.training.make", lambda run, verbose=False: result(run, 0.7))
    code, out, _ = command("check", "tiny", *cell)
    assert (code, "0.7000 is OUTSIDE" in out) == (1, True)
    # A crash is no verdict.
    monkeypatch.setattr("reproduce.training.make", Mock(side_effect=RuntimeError("out of memory")))
    assert command("check", "tiny", *cell)[::2] == (2, "error: out of memory\n")
    assert command("check", "tiny", *cell, "--device", "abacus")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "table9"), "NAME must be one of figure-batch-size, "),
        (("show", "table9"), "got table9."),
        (("run", "tiny", "--device", "abacus"), "must be cpu, gpu or auto; got abacus."),
        (("run", "tiny", "--dataset", "mnst"), "--dataset: must be digits; got mnst."),
        (("run", "figure-shuffling", "--dataset", "mnist"), "left out, since nothing is run"),
        (("run", "tiny", "--seeds", "0"), "--seeds"),
        (("run", "tiny", "--colour", "red"), "--colour"),
        (
            ("check", "tiny", "--method", "magic", "--dataset", "digits", "--noise-multiplier", "5"),
            "must be a cell of tiny",
        ),
    ],
)
def test_errors_are_one_line(command, made, arguments, message):
    code, out, err = command(*arguments)
    assert (code, out, made) == (2, "", [])
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_device_that_is_not_there(command, made, monkeypatch):
    import jax

    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for error in (RuntimeError("Unable to initialize backend 'cuda'\nmore"), AssertionError()):
        monkeypatch.setattr(jax, "devices", Mock(side_effect=error))
        code, _, err = command("run", "tiny", "--device", "gpu")
        assert (code, made, err.count("\n")) == (2, [], 1)
        assert "--device: must be one that JAX finds here; got gpu (" in err


@pytest.mark.parametrize(("codes", "code"), [([0, 0], 0), ([0, 2], 2), ([-9, 0], 9), ([0, -9], 9)])
def test_a_worker_that_failed_or_was_killed_is_told(codes, code, monkeypatch):
    left = iter(codes)
    monkeypatch.setattr(subprocess, "Popen", lambda arguments: Mock(pid=0, wait=lambda: next(left)))
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    assert module._spread(2, ["tiny"]) == code


def test_workers_get_the_same_command_without_workers(command, monkeypatch, tmp_path):
    started = []

    class Process:
        pid = 0

        def __init__(self, arguments):
            started.append(arguments)

        def wait(self):
            return 0

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    assert command("run", "tiny", "--workers=2", "--seeds=4")[0] == 0
    given = [sys.executable, "-m", "reproduce", "run", "tiny", "--seeds=4", "--device=auto"]
    assert started == [[*given, f"--results={tmp_path / 'results'}"]] * 2


DRIVER = """
import signal, sys, time
from reproduce import __main__ as module, training
from reproduce.experiments import Experiment

folder, quick = sys.argv[1], int(sys.argv[2])
signal.signal(signal.SIGINT, signal.default_int_handler)
module.load_experiment = lambda name: Experiment(
    "tiny", "T", "S", "table", methods=("ours-ssp",), datasets=("digits",), seeds={"digits": 10}
)
calls = 0

def make(run, verbose=False):
    global calls
    calls += 1
    print(run.key, flush=True)
    time.sleep(0.02 if calls <= quick else 600)
    return {"accuracy": 0.5, "epsilon": 1.0, "seconds": 1.0, "text": "x" * 100_000}

training.make = make
sys.argv[1:] = ["run", "tiny", "--results", folder]
module.main()
"""


def driven(folder, quick):
    """`run tiny` in a process of its own, of 20 runs; those after the first `quick` would last ten minutes."""
    command = [sys.executable, "-c", DRIVER, str(folder), str(quick)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_two_processes_share_the_runs(tmp_path):
    with driven(tmp_path / "results", 20) as one, driven(tmp_path / "results", 20) as other:
        keys = [*one.stdout, *other.stdout]
    assert one.returncode == other.returncode == 0
    assert len(keys) == len(set(keys)) == len(lines(tmp_path)) == 20


def test_ctrl_c_leaves_whole_lines_and_the_rest_goes_on(tmp_path):
    with driven(tmp_path / "results", 2) as process:
        keys = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == 130
    assert [line["key"] for line in lines(tmp_path)] == [key.strip() for key in keys[:2]]
    assert (tmp_path / "results" / "digits.jsonl").read_text().endswith("\n")
    with driven(tmp_path / "results", 20) as process:
        rest = list(process.stdout)
    assert process.returncode == 0
    # The interrupted run comes first, what was done not at all.
    assert rest[0] == keys[2]
    assert len(rest) == 18
    assert not set(rest) & set(keys[:2])
    assert len(list(Store(tmp_path / "results"))) == 20
