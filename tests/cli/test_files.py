from __future__ import annotations

import os

import pytest

from noisycgd._validation import NoisyCGDError
from noisycgd.cli.files import forget, fresh_model_folder, watch, write_text, written


def test_write_text_replaces_whole_files(tmp_path) -> None:
    path = tmp_path / "new" / "file.csv"
    write_text(path, "one")
    write_text(path, "two")
    assert path.read_text() == "two"
    assert os.listdir(path.parent) == ["file.csv"]


def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch) -> None:
    path = tmp_path / "file.csv"
    write_text(path, "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.csv"]


def test_a_link_stays_and_its_target_is_written(tmp_path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # A reader that does not wait for the writer.
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_umask_says_who_may_read(tmp_path, mask, mode) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_what_was_written_is_known(tmp_path) -> None:
    new, old, kept = (tmp_path / name for name in ("new", "old", "kept"))
    for path in (old, kept):
        write_text(path, "before")
    forget()
    assert written() == []
    watch(kept)
    watch(tmp_path / "never")
    write_text(new, "")
    write_text(old, "before")
    assert written() == [new, old]


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NoisyCGDError, match=r"file/new must be a file that can be written; got .* Choose another path"):
        write_text(tmp_path / "file" / "new", "text")


def test_fresh_folders_never_exist(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        folder = fresh_model_folder("some/path/people.csv.gz")
        assert not folder.exists()
        assert folder.name.startswith("people-")
        folder.mkdir(parents=True)
