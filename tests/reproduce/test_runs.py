import fcntl
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from reproduce.runs import Run, Store

ROOT = Path(__file__).resolve().parents[2]
RUN = Run("digits", "LinearClassifier", {"epochs": 3, "l2": 0.1}, seed=0)


def started(code, *arguments):
    """A process of its own that runs `code`."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_equal_numbers_have_one_spelling_and_booleans_are_none():
    def key(**parameters):
        return Run("digits", "LinearClassifier", parameters, 0).key

    assert key(l2=1, epochs=3) == key(l2=1.0, epochs=3.0)
    assert key(center_rows=True) != key(center_rows=1)


def test_key_is_of_the_values_and_not_of_their_order():
    assert Run("digits", "LinearClassifier", {"l2": 0.1, "epochs": 3}, 0).key == RUN.key


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "mnist"},
        {"estimator": "ConvexReLUClassifier"},
        {"parameters": {"epochs": 3, "l2": 0.2}},
        {"parameters": {"epochs": 3}},
        {"seed": 1},
        {"rows": "standard"},
    ],
)
def test_whatever_determines_a_run_changes_its_key(change):
    assert replace(RUN, **change).key != RUN.key


def test_a_run_comes_back_from_its_line(store):
    store.add(RUN, {"accuracy": 0.5})
    line = json.loads((store.folder / "digits.jsonl").read_text())
    assert Run(**line["run"]) == RUN
    assert Run(**line["run"]).key == line["key"] == RUN.key


def test_a_new_store_finds_what_another_added(store):
    store.add(RUN, {"accuracy": 0.5})
    store.add(replace(RUN, dataset="mnist"), {"accuracy": 0.6})
    again = Store(store.folder)
    assert again.result(RUN) == {"accuracy": 0.5}
    assert again.result(replace(RUN, seed=1)) is None
    assert len(list(again)) == 2
    assert {path.name for path in store.folder.iterdir()} == {"digits.jsonl", "mnist.jsonl"}


def test_a_store_without_a_folder_is_empty_and_makes_none(store):
    assert list(store) == []
    assert not store.folder.exists()


def test_the_first_of_two_lines_of_a_run_counts(store):
    store.add(RUN, {"accuracy": 0.5})
    store.add(RUN, {"accuracy": 0.6})
    assert store.result(RUN) == Store(store.folder).result(RUN) == {"accuracy": 0.5}


def test_half_a_line_waits_for_its_end(store):
    store.add(RUN, {"accuracy": 0.5})
    other = replace(RUN, seed=1)
    line = json.dumps({"key": other.key, "run": other.to_dict(), "result": {"accuracy": 0.6}}) + "\n"
    with (store.folder / "digits.jsonl").open("a") as file:
        file.write(line[:40])
        file.flush()
        store.refresh()
        assert store.result(other) is None
        file.write(line[40:])
    store.refresh()
    assert store.result(other) == {"accuracy": 0.6}


@pytest.mark.parametrize("whole", [0, 1])
def test_half_a_line_of_a_dead_process_does_not_spoil_the_next(store, whole):
    for seed in range(whole):
        store.add(replace(RUN, seed=seed), {"accuracy": 0.5})
    store.folder.mkdir(exist_ok=True)
    with (store.folder / "digits.jsonl").open("a") as file:
        file.write('{"key": "0123')
    store.add(replace(RUN, seed=9), {"accuracy": 0.9})
    again = Store(store.folder)
    assert len(list(again)) == whole + 1
    assert again.result(replace(RUN, seed=9)) == {"accuracy": 0.9}


def lines(store):
    return [json.loads(line) for line in (store.folder / "digits.jsonl").read_text().splitlines()]


def test_a_last_line_without_its_end_is_a_result_and_is_kept(store):
    store.add(RUN, {"accuracy": 0.5})
    path = store.folder / "digits.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    again = Store(store.folder)
    assert again.result(RUN) == {"accuracy": 0.5}
    again.add(replace(RUN, seed=1), {"accuracy": 0.6})
    assert [line["run"]["seed"] for line in lines(store)] == [0, 1]


@pytest.mark.parametrize("kept", [slice(0), slice(1), slice(2, 3), slice(None, None, -1)])
def test_a_file_that_others_changed_is_read_again(store, kept):
    for seed in range(4):
        store.add(replace(RUN, seed=seed), {"accuracy": 0.5, "text": "x" * 10**seed})
    path = store.folder / "digits.jsonl"
    before = path.read_text().splitlines(keepends=True)[kept]
    path.write_text("".join(before))
    store.add(replace(RUN, seed=9), {"accuracy": 0.9})
    assert path.read_text().startswith("".join(before))
    assert len(lines(store)) == len(before) + 1
    # What is gone is forgotten.
    assert sorted(r["key"] for r in store) == sorted(r["key"] for r in Store(store.folder))
    assert len(list(store)) == len(before) + 1


def test_a_result_that_was_corrected_is_read_again(store):
    store.add(RUN, {"accuracy": 0.5})
    path = store.folder / "digits.jsonl"
    path.write_text(path.read_text().replace("0.5", "0.75"))
    store.refresh()
    assert store.result(RUN) == {"accuracy": 0.75}
    path.unlink()
    store.refresh()
    assert (store.result(RUN), store.n_seeds) == (None, 0)


def test_a_file_that_is_just_being_replaced_is_read_the_next_time(store, monkeypatch):
    store.add(RUN, {"accuracy": 0.5})
    other = Store(store.folder)
    store.add(replace(RUN, seed=1), {"accuracy": 0.6})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", Mock(side_effect=FileNotFoundError))
        other.refresh()
        assert [r["run"]["seed"] for r in other] == [0]
        assert list(Store(store.folder)) == []
    other.refresh()
    assert [r["run"]["seed"] for r in other] == [0, 1]


def test_a_file_that_is_replaced_at_the_last_moment_gets_the_line_all_the_same(store, monkeypatch):
    store.add(RUN, {"accuracy": 0.5})
    path, lock = store.folder / "digits.jsonl", fcntl.flock

    def late(file, operation):
        monkeypatch.undo()
        path.with_suffix(".new").write_text(path.read_text())
        path.with_suffix(".new").replace(path)
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    store.add(replace(RUN, seed=1), {"accuracy": 0.6})
    assert [line["run"]["seed"] for line in lines(store)] == [0, 1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("not JSON", "JSONDecodeError"),
        ("[]", "TypeError"),
        ("{}", "KeyError, 'run'"),
        ("\0" * 10_000, "JSONDecodeError"),
        ('{"key": "0", "run": {"colour": "red"}, "result": {}}', "colour"),
        (json.dumps({"key": RUN.key, "run": RUN.to_dict(), "result": 3}), "TypeError"),
        (json.dumps({"key": RUN.key, "run": {**RUN.to_dict(), "seed": 5}, "result": {}}), "its run has the key"),
    ],
)
def test_a_line_that_none_wrote_is_named(store, line, found):
    store.add(RUN, {"accuracy": 0.5})
    with (store.folder / "digits.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"digits\.jsonl, line 2, must be as `run` wrote it; got") as error:
        Store(store.folder)
    assert found in str(error.value)
    assert len(str(error.value)) < 400


def test_number_of_seeds(store):
    assert store.n_seeds == 0
    for seed in (0, 7, 3):
        store.add(replace(RUN, seed=seed), {})
    assert store.n_seeds == Store(store.folder).n_seeds == 8


ADD = """
import sys
from pathlib import Path
from reproduce.runs import Run, Store
folder, first = Path(sys.argv[1]), int(sys.argv[2])
store = Store(folder)
sys.stdin.read()
for seed in range(first, first + 50):
    store.add(Run("digits", "LinearClassifier", {}, seed), {"text": "x" * 20_000})
"""


def test_two_processes_append_whole_lines(store):
    with started(ADD, store.folder, 0) as one, started(ADD, store.folder, 50) as other:
        # Both have read the store when they begin.
        for process in (one, other):
            process.stdin.close()
    assert one.returncode == other.returncode == 0
    lines = [json.loads(line) for line in (store.folder / "digits.jsonl").read_text().splitlines()]
    assert sorted(line["run"]["seed"] for line in lines) == list(range(100))
    assert {len(line["result"]["text"]) for line in lines} == {20_000}


def test_one_process_at_a_time_claims_a_run(store):
    with store.claim(RUN) as mine:
        assert mine
        with Store(store.folder).claim(RUN) as theirs:
            assert not theirs
        with store.claim(replace(RUN, seed=1)) as other:
            assert other
    with store.claim(RUN) as again:
        assert again


@pytest.mark.parametrize("renewed", [False, True])
def test_a_claim_on_a_name_that_was_taken_away_is_none(store, monkeypatch, renewed):
    lock = fcntl.flock

    def late(file, operation):
        # Another claim ended after this one opened the file; a third has made a new one.
        (store.folder / ".running" / RUN.key).unlink()
        if renewed:
            (store.folder / ".running" / RUN.key).touch()
        lock(file, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        with store.claim(RUN) as mine:
            assert not mine
    with store.claim(RUN) as mine:
        assert mine


def test_a_finished_run_is_not_claimed(store):
    other = Store(store.folder)
    store.add(RUN, {"accuracy": 0.5})
    # `other` has not read the line yet: a claim reads.
    with other.claim(RUN) as mine:
        assert not mine


def test_a_claim_ends_with_an_error(store):
    with pytest.raises(RuntimeError), store.claim(RUN):
        raise RuntimeError
    with store.claim(RUN) as mine:
        assert mine


HOLD = """
import sys
from pathlib import Path
from reproduce.runs import Run, Store
with Store(Path(sys.argv[1])).claim(Run("digits", "LinearClassifier", {"epochs": 3, "l2": 0.1}, 0)) as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


def test_a_claim_ends_with_its_process(store):
    with started(HOLD, store.folder) as process:
        assert process.stdout.readline() == b"True\n"
        with store.claim(RUN) as mine:
            assert not mine
        process.kill()
    with store.claim(RUN) as mine:
        assert mine


def test_epochs_of_a_method_without_any_are_one():
    assert (RUN.epochs, replace(RUN, parameters={}).epochs) == (3, 1)
