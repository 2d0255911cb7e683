from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import noisycgd
from noisycgd.cli import models
from noisycgd.cli.main import main


def test_help_lists_every_command_and_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from noisycgd.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'jax', 'sklearn', 'numpy', 'scipy', 'pyarrow', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for command in ("fit", "predict", "evaluate", "account", "calibrate", "info", "schema", "tune"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [["fit"], ["account", "noisycgd"], ["calibrate", "noisycgd"], ["schema", "draft"], ["predict"], ["info"], ["tune"]],
)
def test_each_command_has_help(noisycgd, arguments) -> None:
    assert noisycgd(*arguments, "--help").code == 0


def test_version(noisycgd) -> None:
    assert noisycgd("--version").out.strip() == f"noisycgd {noisycgd_version()}"


def noisycgd_version() -> str:
    return noisycgd.__version__


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nonsense"], "nonsense"),
        (["fit"], "DATA"),
        (["fit", "digits", "--epochs", "many"], "--epochs"),
        (["fit", "digits", "--nonsense"], "--nonsense"),
        (["account", "noisycgd", "--records", "10"], "--batch-size"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(noisycgd, arguments, part) -> None:
    assert part in noisycgd(*arguments).error


def test_interrupt_writes_nothing_and_exits_130(noisycgd, monkeypatch, tmp_path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "_fit", interrupted)
    done = noisycgd("fit", "digits")
    assert done.code == 130
    assert "nothing was written" in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_after_the_model_was_written_says_so(noisycgd, monkeypatch, tmp_path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "report", interrupted)
    done = noisycgd("fit", "digits", "--epochs", 1, "--hyperplanes", 2, "--delta", 1e-4, "--out", "m")
    assert done.code == 130
    assert done.err.strip() == "interrupted; m had been written"
    assert (tmp_path / "m" / "model.json").is_file()


@pytest.mark.parametrize("arguments", [[], ["account"], ["schema"]])
def test_a_command_that_needs_another_answers_with_its_help(noisycgd, arguments) -> None:
    done = noisycgd(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: ")
    assert "\n  " in done.err


def test_too_little_memory_is_one_line_and_other_errors_are_not_hidden(noisycgd, monkeypatch) -> None:
    def failing(error: Exception) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise error

        return fail

    for error in (MemoryError("Unable to allocate 7 TiB"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory")):
        monkeypatch.setattr(models, "_fit", failing(error))
        assert "memory must suffice" in noisycgd("fit", "digits").error
    monkeypatch.setattr(models, "_fit", failing(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main(["fit", "digits"])


def test_warnings_are_one_calm_line(noisycgd) -> None:
    done = noisycgd("fit", "digits", "--delta", 0.01, "--epochs", 1, "--hyperplanes", 2, "--out", "model", "--json")
    assert done.code == 0
    assert done.err.startswith("warning: delta must be at most 1/n")
    assert len(done.err.strip().splitlines()) == 1
