from __future__ import annotations

import os

import pytest

from noisycgd.cli.files import fresh_model_folder, write_text


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


def test_fresh_folders_never_exist(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        folder = fresh_model_folder("some/path/people.csv.gz")
        assert not folder.exists()
        assert folder.name.startswith("people-")
        folder.mkdir(parents=True)
