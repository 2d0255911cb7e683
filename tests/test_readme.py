"""The README's code runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from noisycgd.cli.main import main

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
# A comment before a block says what it needs that a fresh clone does not have.
COMMANDS = [
    line.split("#")[0].split()[1:]
    for needs, block in re.findall(r"(<!-- needs [^>]*-->\n)?```sh\n(.*?)```", README, re.DOTALL)
    if not needs
    for line in block.splitlines()
    if line.startswith("noisycgd ")
]


def test_there_is_something_to_run() -> None:
    assert len(PYTHON) >= 2
    assert len(COMMANDS) >= 5


def test_python_blocks_run(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for block in PYTHON:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    assert "PROVED" in printed
    stated = re.findall(r"# ([0-9.]+)$", "\n".join(PYTHON), re.MULTILINE)
    assert stated
    for number in stated:
        shown = [
            f"{float(word):.{len(number.split('.')[1])}f}"
            for word in printed.split()
            if word[0].isdigit() and word.replace(".", "").isdigit()
        ]
        assert number in shown


def test_commands_run_in_their_order(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in COMMANDS:
        with pytest.raises(SystemExit) as exit_info:
            main(arguments)
        assert exit_info.value.code == 0, (arguments, capsys.readouterr().err)
