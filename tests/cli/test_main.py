from __future__ import annotations

import subprocess
import sys

import pytest

import noisycgd
from noisycgd.cli import models


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


def test_warnings_are_one_calm_line(noisycgd) -> None:
    done = noisycgd("fit", "digits", "--delta", 0.01, "--epochs", 1, "--hyperplanes", 2, "--out", "model", "--json")
    assert done.code == 0
    assert done.err.startswith("warning: delta must be at most 1/n")
    assert len(done.err.strip().splitlines()) == 1
