import os

import pytest

from noisycgd._folders import replace_folder

OLD, NEW = {"a": b"1", "b": b"2"}, {"a": b"3", "c": b""}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_made_and_replaced_whole(tmp_path):
    for files in (OLD, NEW):
        replace_folder(tmp_path / "folder", files)
        assert content(tmp_path / "folder") == files
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("existed", [True, False])
@pytest.mark.parametrize("function", ["fsync", "rename"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_interrupt_leaves_one_of_the_two(tmp_path, monkeypatch, existed, function, call):
    target = tmp_path / "folder"
    if existed:
        replace_folder(target, OLD)
    plain, calls = getattr(os, function), []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise KeyboardInterrupt
        return plain(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, function, interrupted)
        try:
            replace_folder(target, NEW)
            expected = NEW
        except KeyboardInterrupt:
            expected = OLD if existed else None
    found = content(target) if target.exists() else None
    assert found == expected
    assert os.listdir(tmp_path) == ([] if expected is None else ["folder"])
