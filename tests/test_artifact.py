"""The model container: round trips, refusals, and what is left on the disk when something fails."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from noisycgd._validation import ModelFileError, ParameterError, ParameterTypeError
from noisycgd.artifact import _checksum, read_model, write_model


class Colour(StrEnum):
    RED = "red"


TENSORS = {
    "weights": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "permutation": np.arange(7, dtype=np.int64)[::-1],
    "mask": np.array([True, False]),
    "scalar": np.array(0.1),
    "empty": np.zeros((0, 5)),
    "small": np.array([-128, 127], dtype=np.int8),
    "bytes": np.array([0, 255], dtype=np.uint8),
    "wide": np.array([[2**31 - 1]], dtype=np.int32),
}
DOCUMENT = {"estimator": "ConvexReLU", "guarantee": {"epsilon": 0.1 + 0.2, "reasons": []}, "seed": 2**127, "none": None}


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model", TENSORS, DOCUMENT, {"guarantee.txt": b"text"})


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def rewrite(model: Path, change) -> None:
    """Change the document as someone would who also mends its checksum."""
    file = model / "model.json"
    document = json.loads(file.read_text())
    del document["checksum"]
    change(document)
    document["checksum"] = _checksum(document)
    file.write_text(json.dumps(document))


def swap_tensors(model: Path, raw: bytes, declared: dict | None = None) -> None:
    (model / "model.safetensors").write_bytes(raw)

    def change(document):
        document["files"]["model.safetensors"] = hashlib.sha256(raw).hexdigest()
        document["tensors"] = document["tensors"] if declared is None else declared

    rewrite(model, change)


class TestRoundTrip:
    def test_tensors_come_back_bit_for_bit_writable_and_in_order(self, model):
        tensors, _ = read_model(model)
        assert list(tensors) == list(TENSORS)
        for name, expected in TENSORS.items():
            found = tensors[name]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert found.tobytes() == expected.tobytes()
            assert found.flags.writeable

    def test_document_comes_back_with_the_keys_of_the_format(self, model):
        _, document = read_model(model)
        assert {key: document[key] for key in DOCUMENT} == DOCUMENT
        assert (document["format"], document["format_version"]) == ("noisycgd-model", 2)
        assert {"noisycgd", "numpy", "python"} <= document["versions"].keys()
        assert document["tensors"]["weights"] == {"dtype": "float32", "shape": [3, 4]}
        raw = (model / "model.safetensors").read_bytes()
        assert document["files"]["model.safetensors"] == hashlib.sha256(raw).hexdigest()

    def test_layout_in_memory_does_not_matter(self, tmp_path):
        fortran = np.asfortranarray(TENSORS["weights"])
        strided = np.arange(10.0)[::2]
        foreign = np.arange(3, dtype=">i8")
        tensors, _ = read_model(write_model(tmp_path / "m", {"f": fortran, "s": strided, "b": foreign}, {}))
        assert np.array_equal(tensors["f"], fortran)
        assert np.array_equal(tensors["s"], strided)
        assert np.array_equal(tensors["b"], foreign)

    def test_numpy_scalars_tuples_and_enums_become_plain(self, tmp_path):
        given = {"a": np.int64(3), "b": np.float32(0.5), "c": np.True_, "d": (1, (2,)), "e": Colour.RED}
        _, document = read_model(write_model(tmp_path / "m", {}, given))
        assert {k: document[k] for k in given} == {"a": 3, "b": 0.5, "c": True, "d": [1, [2]], "e": "red"}
        assert type(document["e"]) is str

    def test_layout_of_the_json_does_not_matter(self, model):
        before = read_model(model)[1]
        file = model / "model.json"
        file.write_text(json.dumps(json.loads(file.read_text()), indent=7, sort_keys=True))
        assert read_model(model)[1] == before

    def test_extras_are_stored_and_may_be_lost(self, model):
        assert (model / "guarantee.txt").read_bytes() == b"text"
        (model / "guarantee.txt").unlink()
        read_model(model)

    def test_extras_may_not_change(self, model):
        (model / "guarantee.txt").write_bytes(b"a smaller epsilon")
        with pytest.raises(ModelFileError, match=r"guarantee\.txt must be as it was saved; got '17 bytes"):
            read_model(model)

    @pytest.mark.parametrize("name", ["../model/guarantee.txt", "/etc/hostname", ""])
    def test_a_forged_list_of_files_leads_nowhere_else(self, model, name):
        file = model / "model.json"
        content = json.loads(file.read_text())
        del content["checksum"]
        content["files"][name] = "0"
        content["checksum"] = _checksum(content)
        file.write_text(json.dumps(content))
        with pytest.raises(ModelFileError, match="must be a list of files by their plain names"):
            read_model(model)

    def test_jax_is_named_only_if_loaded(self, tmp_path):
        code = (
            "import sys\nfrom noisycgd.artifact import write_model, read_model\n"
            "v = read_model(write_model(sys.argv[1], {}, {}))[1]['versions']\n"
            "assert 'jax' not in sys.modules and 'jax' not in v\n"
            "import jax\n"
            "v = read_model(write_model(sys.argv[1], {}, {}))[1]['versions']\n"
            "assert v['jax'] == jax.__version__\n"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "m")], check=True)


class TestRefusedInput:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_non_finite_tensor(self, tmp_path, bad):
        with pytest.raises(ParameterError, match="tensor w must be finite; got 'NaN or infinity'"):
            write_model(tmp_path / "m", {"w": np.array([0.0, bad])}, {})
        assert not os.listdir(tmp_path)

    @pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), np.zeros(1, np.float16), np.zeros(1, complex)])
    def test_other_dtype(self, tmp_path, bad):
        with pytest.raises(ParameterTypeError, match="tensor w must be of dtype float32"):
            write_model(tmp_path / "m", {"w": bad}, {})

    @pytest.mark.parametrize("name", ["", "__metadata__", "a/b", "a b", "ä", "x" * 201])
    def test_tensor_name(self, tmp_path, name):
        with pytest.raises(ParameterError, match="tensor name must be 1 to 200 letters"):
            write_model(tmp_path / "m", {name: np.zeros(1)}, {})

    @pytest.mark.parametrize("name", ["", ".", "..", "../a", "/a", ".hidden", "model.json", "MODEL.safetensors"])
    def test_extra_name(self, tmp_path, name):
        with pytest.raises(ParameterError, match="extra file name must be"):
            write_model(tmp_path / "m", {}, {}, {name: b""})
        assert not os.listdir(tmp_path)

    def test_extra_content(self, tmp_path):
        with pytest.raises(ParameterTypeError, match=r"extra file a\.txt must be bytes; got 'str'"):
            write_model(tmp_path / "m", {}, {}, {"a.txt": "text"})

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), np.float32("-inf")])
    def test_non_finite_number_is_named_by_its_place(self, tmp_path, bad):
        with pytest.raises(
            ParameterError, match=r"document\.guarantee\.mus\[1\] must be a finite number; got -?(nan|inf)"
        ):
            write_model(tmp_path / "m", {}, {"guarantee": {"mus": [0.0, bad]}})

    @pytest.mark.parametrize("bad", [object(), {1}, b"bytes", np.zeros(2), 1j])
    def test_other_values(self, tmp_path, bad):
        with pytest.raises(ParameterTypeError, match=r"document\.a must be None, a boolean, a number"):
            write_model(tmp_path / "m", {}, {"a": bad})

    @pytest.mark.parametrize(
        ("bad", "requirement"),
        [(10**400, "an integer of at most 1024 bits"), ("\ud800", "text that UTF-8 can encode")],
    )
    def test_values_that_json_readers_choke_on(self, tmp_path, bad, requirement):
        with pytest.raises(ParameterError, match=requirement):
            write_model(tmp_path / "m", {}, {"a": bad})

    def test_keys_that_are_no_text(self, tmp_path):
        with pytest.raises(ParameterTypeError, match=r"key of document\.a must be text; got 1"):
            write_model(tmp_path / "m", {}, {"a": {1: 2}})

    def test_cycles_and_deep_nesting(self, tmp_path):
        cycle: list = []
        cycle.append(cycle)
        with pytest.raises(ParameterError, match="nested at most 32 deep"):
            write_model(tmp_path / "m", {}, {"a": cycle})

    @pytest.mark.parametrize("key", ["format", "format_version", "versions", "tensors", "files", "checksum"])
    def test_reserved_keys(self, tmp_path, key):
        with pytest.raises(
            ParameterError, match=f"document must be without the keys that the format sets; got '{key}'"
        ):
            write_model(tmp_path / "m", {}, {key: 1})

    def test_a_document_that_could_not_be_read_back(self, tmp_path, monkeypatch):
        monkeypatch.setattr("noisycgd.artifact._DOCUMENT_LIMIT", 1000)
        with pytest.raises(ParameterError, match="document must be at most 1000 bytes of JSON"):
            write_model(tmp_path / "m", {}, {"a": "x" * 1000})
        assert not os.listdir(tmp_path)


class TestDestination:
    def test_parents_are_made_and_permissions_are_the_usual_ones(self, tmp_path):
        (tmp_path / "usual").mkdir()
        path = write_model(tmp_path / "a" / "b", {}, {})
        assert path == tmp_path / "a" / "b"
        assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode
        assert os.listdir(tmp_path / "a") == ["b"]

    def test_an_empty_folder_and_a_model_are_replaced_wholly(self, model, tmp_path):
        (tmp_path / "empty").mkdir()
        write_model(tmp_path / "empty", {}, {"a": 1})
        write_model(model, {}, {"a": 1})
        assert files_of(tmp_path / "empty") == files_of(model)
        assert sorted(os.listdir(model)) == ["model.json", "model.safetensors"]

    def test_a_model_of_a_newer_version_is_still_a_model(self, model):
        rewrite(model, lambda document: document.update(format_version=9))
        write_model(model, {}, {})

    @pytest.mark.parametrize("content", [None, "{}", '{"format": "other"}', "not json", "[]"])
    def test_anything_else_is_left_alone(self, tmp_path, content):
        folder = tmp_path / "thesis"
        folder.mkdir()
        (folder / ("notes.txt" if content is None else "model.json")).write_text(content or "years of work")
        before = files_of(tmp_path)
        with pytest.raises(
            ModelFileError, match=r"must be new, an empty folder or a noisycgd model; .* Choose another"
        ):
            write_model(folder, TENSORS, DOCUMENT)
        assert files_of(tmp_path) == before

    def test_a_file_is_left_alone(self, tmp_path):
        (tmp_path / "m").write_text("a file")
        with pytest.raises(ModelFileError, match="must be new, an empty folder or a noisycgd model"):
            write_model(tmp_path / "m", {}, {})
        assert files_of(tmp_path) == {"m": b"a file"}

    def test_a_model_with_foreign_files_is_left_alone(self, model):
        (model / "notes.txt").write_text("years of work")
        before = files_of(model)
        with pytest.raises(ModelFileError, match=r"got 'a model with the foreign files notes\.txt'"):
            write_model(model, {}, {})
        assert files_of(model) == before

    def test_the_working_folder_is_not_pulled_from_under_the_process(self, model, monkeypatch):
        monkeypatch.chdir(model)
        with pytest.raises(ModelFileError, match="the folder this process works in"):
            write_model(".", {}, {})
        read_model(".")

    def test_a_link_keeps_pointing_at_the_folder(self, model, tmp_path):
        (tmp_path / "latest").symlink_to(model)
        write_model(tmp_path / "latest", {}, {"a": 1})
        assert (tmp_path / "latest").is_symlink()
        assert read_model(model)[1]["a"] == 1

    def test_refusal_of_the_file_system(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(
            ModelFileError, match=r"must be in a folder that can be written; got .*/file\. Choose another path"
        ):
            write_model(tmp_path / "file" / "m", {}, {})


class Interrupted:
    """Wraps a function so that its `at`-th call fails, before or after it has done its work."""

    def __init__(self, function, at, error, after):
        self.function, self.at, self.error, self.after, self.calls = function, at, error, after, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls == self.at and not self.after:
            raise self.error
        result = self.function(*args, **kwargs)
        if self.calls == self.at:
            raise self.error
        return result


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["^C", "full"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("function", "at"), [("fsync", 1), ("fsync", 2), ("fsync", 3), ("fsync", 4), ("rename", 1), ("rename", 2)]
)
class TestFailure:
    """`fsync` 1 to 3 are the two files and the staging folder, `rename` 1 moves the old model, 2 the new one."""

    def fail(self, monkeypatch, function, at, error, after, path):
        wrapped = Interrupted(getattr(os, function), at, error, after)
        with monkeypatch.context() as patch:
            patch.setattr(f"noisycgd.artifact.os.{function}", wrapped)
            with pytest.raises(ModelFileError if isinstance(error, OSError) else KeyboardInterrupt):
                write_model(path, {}, {"a": "new"})
        assert wrapped.calls >= at

    def test_either_the_old_model_or_the_new_one_is_there_and_nothing_else(
        self, model, tmp_path, monkeypatch, function, at, error, after
    ):
        old = files_of(model)
        self.fail(monkeypatch, function, at, error, after, model)
        assert os.listdir(tmp_path) == ["model"]
        renamed = (function == "rename" and at == 2 and after) or (function == "fsync" and at == 4)
        assert (read_model(model)[1].get("a") == "new") == renamed
        assert (files_of(model) == old) != renamed

    def test_a_new_path_stays_free(self, tmp_path, monkeypatch, function, at, error, after):
        if function == "rename" and at == 2:
            at = 1
        self.fail(monkeypatch, function, at, error, after, tmp_path / "m")
        renamed = (function == "rename" and after) or (function == "fsync" and at == 4)
        assert os.listdir(tmp_path) == (["m"] if renamed else [])


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("function", "at"), [("unlink", 1), ("unlink", 2), ("rmdir", 1)])
def test_an_interrupt_while_the_old_model_is_removed_leaves_none_of_it(
    model, tmp_path, monkeypatch, function, at, after
):
    with monkeypatch.context() as patch:
        patch.setattr(os, function, Interrupted(getattr(os, function), at, KeyboardInterrupt(), after))
        with pytest.raises(KeyboardInterrupt):
            write_model(model, {}, {"a": "new"})
    assert os.listdir(tmp_path) == ["model"]
    assert read_model(model)[1]["a"] == "new"


class TestRefusedModels:
    def check(self, model, pattern):
        with pytest.raises(ModelFileError, match=pattern) as caught:
            read_model(model)
        assert "\n" not in str(caught.value)
        assert str(model) in str(caught.value)

    def test_missing_folder(self, tmp_path):
        self.check(tmp_path / "none", "must be a folder written by save")

    @pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
    def test_missing_file(self, model, name):
        (model / name).unlink()
        self.check(model, rf"{name} must be a readable regular file.*No such file.*train and save the model again")

    @pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
    def test_links_are_not_followed(self, model, tmp_path, name):
        (model / name).rename(tmp_path / "elsewhere")
        (model / name).symlink_to(tmp_path / "elsewhere")
        self.check(model, "regular file and no link")

    @pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
    def test_a_named_pipe_does_not_block(self, model, name):
        (model / name).unlink()
        os.mkfifo(model / name)
        self.check(model, "must be a regular file")

    @pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
    def test_a_folder_is_no_file(self, model, name):
        (model / name).unlink()
        (model / name).mkdir()
        self.check(model, "regular file")

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "{",
            '{"format": "noisycgd-model", "a": NaN}',
            '{"format": "noisycgd-model", "a": -Infinity}',
            '{"format": "noisycgd-model", "a": 1e999}',
            '{"format": "noisycgd-model", "a": 1, "a": 1}',
            '{"format": "noisycgd-model", "b": {"a": 1, "a": 2}}',
            '{"format": "noisycgd-model", "a": "\\ud800"}',
            '{"format": "noisycgd-model", "a": ' + "9" * 5000 + "}",
            '{"format": "noisycgd-model", "a": ' + "[" * 100_000 + "]" * 100_000 + "}",
            '{"format": "noisycgd-model", "a": ' + "[" * 40 + "]" * 40 + "}",
            '\ufeff{"format": "noisycgd-model"}',
        ],
    )
    def test_json_that_is_not_strict(self, model, text):
        (model / "model.json").write_text(text, encoding="utf-8")
        self.check(model, "must be JSON with finite numbers and unique keys; got")

    def test_other_encodings(self, model):
        text = (model / "model.json").read_text()
        (model / "model.json").write_bytes(text.encode("utf-16"))
        self.check(model, "must be JSON with finite numbers")

    def test_huge_document(self, model):
        with open(model / "model.json", "ab") as stream:
            stream.truncate(2**40)
        self.check(model, "must be a regular file of at most 67108864 bytes")

    @pytest.mark.parametrize("text", ["[]", "{}", "3", '{"format": "pickle"}'])
    def test_other_documents(self, model, text):
        (model / "model.json").write_text(text)
        self.check(model, "must be a document of format 'noisycgd-model'")

    @pytest.mark.parametrize("path", [3, None, b"model"])
    def test_a_path_that_is_none(self, path):
        for call in (read_model, lambda path: write_model(path, {}, {})):
            with pytest.raises(ParameterTypeError, match=r"^path must be a folder's name or Path; got"):
                call(path)

    def test_newer_version(self, model):
        rewrite(model, lambda document: document.update(format_version=3))
        self.check(model, r"must be of format version 2; got 3\. Upgrade noisycgd")

    @pytest.mark.parametrize("version", [0, 1, "2", None, [2]])
    def test_other_version(self, model, version):
        rewrite(model, lambda document: document.update(format_version=version))
        self.check(model, "must be of format version 2; got .* Restore the folder")

    def test_an_edited_epsilon(self, model):
        file = model / "model.json"
        file.write_text(file.read_text().replace("0.30000000000000004", "0.20000000000000004"))
        self.check(model, "must be as it was saved; got 'content that differs from its checksum'")

    def test_truncated_tensors(self, model):
        file = model / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        self.check(model, "model.safetensors must be as it was saved; got .* bytes that differ from their checksum")

    @pytest.mark.parametrize("files", [None, [], {}, {"model.safetensors": 3}])
    def test_missing_checksum_of_the_tensors(self, model, files):
        rewrite(model, lambda document: document.update(files=files))
        self.check(model, "differ from their checksum")

    def test_tensors_that_are_no_safetensors(self, model):
        swap_tensors(model, b"\x80\x04N.")
        self.check(model, "must be a complete safetensors file")

    def test_non_finite_tensor(self, model):
        swap_tensors(model, save({"w": np.array([1.0, np.nan])}), {"w": {"dtype": "float64", "shape": [2]}})
        self.check(model, "must be finite in 'w'")

    def test_dtype_outside_the_list(self, model):
        swap_tensors(model, save({"w": np.zeros(2, np.float16)}), {"w": {"dtype": "float16", "shape": [2]}})
        self.check(model, "must be of the dtypes float32")

    def test_boolean_that_is_neither(self, model):
        raw = save({"w": np.array([True])})
        swap_tensors(model, raw[:-1] + b"\x02", {"w": {"dtype": "bool", "shape": [1]}})
        self.check(model, "must be holding only 0 and 1 in boolean 'w'")

    @pytest.mark.parametrize(
        "declared",
        [
            None,
            {},
            {"w": {"dtype": "float64", "shape": [1, 2]}},
            {"w": {"dtype": "int64", "shape": [2]}},
            {"w": {"dtype": "float64", "shape": [2], "offset": 0}},
            {"w": [2]},
            {"v": {"dtype": "float64", "shape": [2]}},
            {"w": {"dtype": "float64", "shape": [2]}, "v": {"dtype": "float64", "shape": [2]}},
        ],
    )
    def test_tensors_other_than_declared(self, model, declared):
        swap_tensors(model, save({"w": np.zeros(2)}), {"w": {"dtype": "float64", "shape": [2]}})
        read_model(model)
        rewrite(model, lambda document: document.update(tensors=declared))
        self.check(model, "must be holding tensor '[vw]' as")
