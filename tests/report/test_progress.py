import contextlib
import io
import re

import pytest

from noisycgd.report import progress
from noisycgd.report.progress import epoch_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def run(stream, epochs=4, error=None):
    # Not in a fixture: pytest sets standard error anew when the test itself begins.
    with contextlib.redirect_stderr(stream), epoch_progress(epochs, enabled=True) as on_epoch:
        for done in range(1, epochs + 1):
            on_epoch(done)
            if error is not None:
                raise error


def test_switched_off_there_is_no_callback():
    with epoch_progress(3, enabled=False) as on_epoch:
        assert on_epoch is None


def test_long_work_shows_epochs_and_time_and_nothing_else(terminal, monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    run(terminal)
    text = terminal.getvalue()
    assert "training" in text
    assert "4/4" in text
    assert "elapsed" in text


@pytest.mark.parametrize("width", [36, 40, 59, 60, 61, 66, 70, 80, 120])
def test_a_narrow_terminal_shows_the_numbers_whole(terminal, monkeypatch, width):
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    monkeypatch.setenv("COLUMNS", str(width))
    run(terminal, epochs=3000)
    lines = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n").splitlines()
    last = next(line for line in reversed(lines) if line.strip())
    assert "…" not in last
    assert len(last.rstrip()) <= width
    assert re.search(r"3000/3000 epochs · .*\d:\d\d:\d\d left$", last.rstrip())
    assert ("elapsed" in last) == (width > 68)


def test_short_work_shows_nothing(terminal):
    run(terminal)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("quiet", [-1.0, 1.0])
def test_without_a_terminal_nothing_shows(quiet, monkeypatch):
    monkeypatch.setattr(progress, "QUIET_SECONDS", quiet)
    stream = io.StringIO()
    run(stream)
    assert stream.getvalue() == ""


def test_a_terminal_without_cursor_gets_no_empty_line_for_short_work(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    run(terminal)
    assert terminal.getvalue() == ""


def test_standard_output_stays_clean(terminal, monkeypatch, capsys):
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    run(terminal)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interruption_passes_and_gives_the_cursor_back(terminal, monkeypatch, error):
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    with pytest.raises(error):
        run(terminal, error=error)
    # Hidden while the bar runs.
    assert terminal.getvalue().count("\x1b[?25h") == terminal.getvalue().count("\x1b[?25l") == 1
