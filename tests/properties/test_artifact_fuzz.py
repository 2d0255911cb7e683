"""Damaged models: whatever happens to the files, reading gives back what was saved or raises ModelFileError."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noisycgd._validation import ModelFileError
from noisycgd.artifact import _checksum, read_model, write_model

FILES = ("model.json", "model.safetensors")
TENSORS = {
    "weights": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "mask": np.array([True, False, True]),
    "permutation": np.array([2, 0, 1]),
}
DOCUMENT = {"guarantee": {"epsilon": 1.33, "delta": 1e-5, "status": "proved", "mus": [0.1, 0.2]}, "classes": ["a", "é"]}
FUZZ = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
edits = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A valid model, its folder, and the bytes with which each example starts."""
    folder = write_model(tmp_path_factory.mktemp("fuzz") / "model", TENSORS, DOCUMENT)
    return folder, {name: (folder / name).read_bytes() for name in FILES}, read_model(folder)


def read_with(model, **changed):
    """What reading gives after the named files were replaced: None if it was refused."""
    folder, originals, _ = model
    for name in FILES:
        (folder / name).write_bytes(changed.get(name.split(".")[1], originals[name]))
    try:
        return read_model(folder)
    except ModelFileError as error:
        refusal = str(error)
    assert len(refusal.splitlines()) == 1
    return None


def equal(found, expected) -> bool:
    tensors, document = found
    return (
        tensors.keys() == expected[0].keys()
        and all(tensors[k].dtype == v.dtype and np.array_equal(tensors[k], v) for k, v in expected[0].items())
        and document == expected[1]
    )


def flipped(raw: bytes, positions: list[tuple[int, int]]) -> bytes:
    data = bytearray(raw)
    for position, mask in positions:
        data[position % len(data)] ^= mask
    return bytes(data)


def sealed(document: dict) -> bytes:
    """The document as someone would write it who also mends its checksum."""
    body = {key: value for key, value in document.items() if key != "checksum"}
    try:
        body["checksum"] = _checksum(body)
    except ValueError:
        body["checksum"] = "NaN has none"
    return json.dumps(body).encode()


@st.composite
def mutated_documents(draw, original: bytes):
    """The document with one value, at any depth, replaced, removed or moved to another key."""
    document = json.loads(original)
    parent = document
    while True:
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        key = draw(st.sampled_from(keys))
        if not isinstance(parent[key], dict | list) or not parent[key] or draw(st.booleans()):
            break
        parent = parent[key]
    action = draw(st.sampled_from(["replace", "remove", "rename"]))
    if action == "replace":
        parent[key] = draw(json_values)
    else:
        value = parent.pop(key)
        if action == "rename" and isinstance(parent, dict):
            parent[draw(st.text(max_size=8))] = value
    return document


def test_the_checks_below_can_fail(model):
    _, originals, expected = model
    document = json.loads(originals["model.json"])
    assert equal(read_with(model), expected)
    document["guarantee"]["epsilon"] = 0.1
    assert not equal(read_with(model, json=sealed(document)), expected)


@FUZZ
@given(name=st.sampled_from(FILES), positions=edits)
def test_flipped_bytes(model, name, positions):
    _, originals, expected = model
    found = read_with(model, **{name.split(".")[1]: flipped(originals[name], positions)})
    assert found is None or equal(found, expected)


@FUZZ
@given(name=st.sampled_from(FILES), start=st.integers(0, 5000), length=st.integers(0, 5000), junk=st.binary(max_size=8))
def test_lost_and_inserted_bytes(model, name, start, length, junk):
    _, originals, expected = model
    raw = originals[name]
    start %= len(raw) + 1
    found = read_with(model, **{name.split(".")[1]: raw[:start] + junk + raw[start + length :]})
    assert found is None or equal(found, expected)


@FUZZ
@given(data=st.data())
def test_mutated_documents(model, data):
    _, originals, expected = model
    document = data.draw(mutated_documents(originals["model.json"]))
    found = read_with(model, json=json.dumps(document).encode())
    assert found is None or equal(found, expected)


@FUZZ
@given(data=st.data())
def test_mutated_documents_with_a_mended_checksum_never_change_the_tensors(model, data):
    _, originals, expected = model
    found = read_with(model, json=sealed(data.draw(mutated_documents(originals["model.json"]))))
    assert found is None or equal((found[0], expected[1]), expected)


@FUZZ
@given(positions=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 255)), min_size=1, max_size=3))
def test_flipped_tensors_with_a_mended_checksum_keep_to_their_declaration(model, positions):
    _, originals, expected = model
    raw = flipped(originals["model.safetensors"], positions)
    document = json.loads(originals["model.json"])
    document["files"]["model.safetensors"] = hashlib.sha256(raw).hexdigest()
    found = read_with(model, json=sealed(document), safetensors=raw)
    if found is not None:
        assert {k: (v.dtype, v.shape) for k, v in found[0].items()} == {
            k: (v.dtype, v.shape) for k, v in expected[0].items()
        }
        assert all(np.isfinite(v).all() for v in found[0].values())
        assert set(found[0]["mask"].view(np.uint8)) <= {0, 1}
