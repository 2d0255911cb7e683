from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from noisycgd.cli.main import main


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that a user sees."""
        assert self.code == 2
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0]


@pytest.fixture
def noisycgd(capsys, monkeypatch, tmp_path) -> Callable[..., Result]:
    """Run the command in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOISYCGD_DATA", raising=False)

    def run(*arguments: object) -> Result:
        with pytest.raises(SystemExit) as exit_info:
            main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(exit_info.value.code, captured.out, captured.err)

    return run
