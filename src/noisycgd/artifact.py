"""Saved models: one folder with `model.safetensors` (arrays), `model.json` (what they mean) and optional extra files.

Nothing in a model is ever executed: arrays are raw numbers and the document is plain JSON. The checksums in it find
accidents and truncation; they are no signature, since whoever can write the folder can write them too.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from noisycgd._folders import replace_folder
from noisycgd._validation import ModelFileError, NoisyCGDError, ParameterTypeError, message, refuse

FORMAT = "noisycgd-model"
FORMAT_VERSION = 2
TENSORS_FILE = "model.safetensors"
DOCUMENT_FILE = "model.json"

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

# Names in a safetensors header -> NumPy; any other dtype is refused on both sides.
_DTYPES = {
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "BOOL": "bool",
}
_ALLOWED = ", ".join(_DTYPES.values())
_RESERVED = {"format", "format_version", "versions", "tensors", "files", "checksum"}
_DOCUMENT_LIMIT = 64 * 2**20
_DEPTH_LIMIT = 32
# The interpreter refuses to read much longer ones.
_BIT_LIMIT = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_RESTORE = "Restore the folder from a copy, or train and save the model again."


def write_model(
    path: str | os.PathLike[str],
    tensors: Mapping[str, NDArray[Any]],
    document: Mapping[str, JSON],
    extras: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Save a model as the folder `path`, wholly or not at all.

    The folder is written beside its destination, flushed to disk and renamed. A failure or an interrupt leaves
    `path` as it was; a crash of the machine between two renames can leave the old model as ``.<name>.<random>.old``.

    Parameters
    ----------
    path : path-like
        Destination; missing parents are created. An existing folder is replaced if it is empty or a noisycgd model
        without foreign files. A link to a folder stands for the folder.
    tensors : mapping of str to ndarray
        Arrays of any shape; float32, float64, int8, int32, int64, uint8 or bool; all values finite.
    document : mapping of str to JSON values
        What the arrays mean. Tuples are stored as lists and NumPy scalars as numbers. The keys ``format``,
        ``format_version``, ``versions``, ``tensors``, ``files`` and ``checksum`` belong to the format.
    extras : mapping of str to bytes, optional
        Further files for people, by plain file name, of at most 64 MiB. `read_model` does not return them.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ParameterError, ParameterTypeError
        If a tensor, the document or an extra breaks the rules above. Nothing was touched.
    ModelFileError
        If `path` holds something else, or the file system refuses. What was at `path` is still there.
    """
    folder = _checked_path(path)
    arrays = {_check_name("tensor name", name): _check_array(name, value) for name, value in tensors.items()}
    content = _plain("document", document)
    if reserved := sorted(content.keys() & _RESERVED):
        refuse("document", "without the keys that the format sets", ", ".join(reserved), "Use other keys.")
    files = {TENSORS_FILE: save(arrays)}
    for name, data in extras.items():
        if _check_name("extra file name", name).lower() in (TENSORS_FILE, DOCUMENT_FILE):
            refuse("extra file name", "none of the model's own", name)
        if not isinstance(data, bytes):
            raise ParameterTypeError(message(f"extra file {name}", "bytes", type(data).__name__))
        if len(data) > _DOCUMENT_LIMIT:
            refuse(f"extra file {name}", f"of at most {_DOCUMENT_LIMIT} bytes", len(data))
        files[name] = data
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "versions": _versions(),
        **content,
        "tensors": _described(arrays),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    content["checksum"] = _checksum(content)
    files[DOCUMENT_FILE] = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False).encode()
    if len(files[DOCUMENT_FILE]) > _DOCUMENT_LIMIT:
        refuse("document", f"at most {_DOCUMENT_LIMIT} bytes of JSON", len(files[DOCUMENT_FILE]), "Use tensors.")

    try:
        # A link must keep pointing at the folder, so the folder is what gets replaced.
        target = folder.resolve()
        check_replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(target, files)
    except OSError as error:
        _fail(folder, "a folder that can be written", error.strerror or error, "Choose another path.", error)
    return folder


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Load the folder `path` without executing anything in it.

    Checked: the files are regular files (links are not followed) and complete, the document is strict JSON of this
    format and version with its checksum, and the arrays are exactly the declared ones: names, dtypes, shapes, finite
    values, checksum. Extra files may be lost, but not changed. The checksums find accidents and truncation; they are no
    signature.

    Parameters
    ----------
    path : path-like
        A folder written by `write_model`.

    Returns
    -------
    tensors : dict of str to ndarray
        Fresh, writable arrays in the machine's byte order.
    document : dict
        The document given to `write_model` and the keys of the format, less ``checksum``.

    Raises
    ------
    ModelFileError
        If any check fails; the message names the file, what is required and the way out.
    """
    folder = _checked_path(path)
    document = _read_document(folder)
    file = folder / DOCUMENT_FILE
    found = document.get("format_version")
    if found != FORMAT_VERSION:
        newer = isinstance(found, int) and found > FORMAT_VERSION
        _fail(file, f"of format version {FORMAT_VERSION}", found, "Upgrade noisycgd." if newer else _RESTORE)
    if document.pop("checksum", None) != _checksum(document):
        _fail(file, "as it was saved", "content that differs from its checksum")

    files = document.get("files")
    files = files if isinstance(files, dict) else {}
    for name in files.keys() - {TENSORS_FILE}:
        if not _NAME.fullmatch(name):
            _fail(file, "a list of files by their plain names", name)
        if os.path.lexists(folder / name):
            _read_unchanged(folder / name, files[name], _DOCUMENT_LIMIT)
    file = folder / TENSORS_FILE
    raw = _read_unchanged(file, files.get(TENSORS_FILE))
    arrays = _decode(file, raw)
    described, declared = _described(arrays), document.get("tensors")
    declared = declared if isinstance(declared, dict) else {}
    for name in sorted(declared.keys() | described.keys()):
        if declared.get(name) != described.get(name):
            _fail(file, f"holding tensor {name!r} as {declared.get(name)}", described.get(name))
    return {name: arrays[name] for name in declared}, document


def _plain(name: str, value: object, depth: int = 0) -> Any:
    """Copy of `value` in the types that JSON gives back; raises in the one grammar on anything else."""
    if depth > _DEPTH_LIMIT:
        refuse(name, f"nested at most {_DEPTH_LIMIT} deep", "deeper nesting")
    if value is None:
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        # Lone surrogates are legal in JSON escapes but crash whoever prints or stores them.
        if any("\ud800" <= character <= "\udfff" for character in value):
            refuse(name, "text that UTF-8 can encode", ascii(value))
        return str(value)
    if isinstance(value, int | np.integer):
        if int(value).bit_length() > _BIT_LIMIT:
            refuse(name, f"an integer of at most {_BIT_LIMIT} bits", f"{int(value).bit_length()} bits")
        return int(value)
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            refuse(name, "a finite number", value)
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ParameterTypeError(message(f"key of {name}", "text", key))
        return {_plain(f"key of {name}", k): _plain(f"{name}.{k}", v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{name}[{i}]", item, depth + 1) for i, item in enumerate(value)]
    requirement = "None, a boolean, a number, text, a list or a mapping"
    raise ParameterTypeError(message(name, requirement, type(value).__name__, "Arrays are tensors."))


def _checked_path(path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError(message("path", "a folder's name or Path", path))
    return Path(path)


def _check_name(kind: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        refuse(kind, "1 to 200 letters, digits, '_', '.' or '-', starting with a letter or digit", name)
    return name


def _check_array(name: str, value: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.name not in _DTYPES.values():
        raise ParameterTypeError(message(f"tensor {name}", f"of dtype {_ALLOWED}", array.dtype.name, "Convert it."))
    if not np.isfinite(array).all():
        refuse(f"tensor {name}", "finite", "NaN or infinity", "Check the data and the learning rate.")
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _described(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()}


def _versions() -> dict[str, str]:
    versions = {"noisycgd": version("noisycgd"), "numpy": np.__version__, "python": platform.python_version()}
    if "jax" in sys.modules:
        versions["jax"] = version("jax")
    return versions


def _checksum(document: Mapping[str, Any]) -> str:
    """SHA-256 of the document's values, whatever the layout of the file: indenting it by hand does no harm."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, allow_nan=False).encode()).hexdigest()


def check_replaceable(target: Path) -> None:
    """Raise ModelFileError unless a model can be written to `target`, which is new, empty, or itself a model."""
    requirement = "new, an empty folder or a noisycgd model"
    way_out = "Choose another path, or move what is there."
    if Path.cwd().is_relative_to(target):
        _fail(target, requirement, "the folder this process works in", "Choose a folder inside it.")
    above = next(folder for folder in target.parents if os.path.lexists(folder))
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        _fail(target, "in a folder that can be written", above, "Choose another path.")
    if not os.path.lexists(target) or (target.is_dir() and not os.listdir(target)):
        return
    try:
        known = _read_document(target).get("files")
    except ModelFileError as error:
        _fail(target, requirement, "something else", way_out, error)
    foreign = set(os.listdir(target)) - {DOCUMENT_FILE} - set(known if isinstance(known, dict) else ())
    if foreign:
        _fail(target, requirement, f"a model with the foreign files {', '.join(sorted(foreign))}", way_out)


def _read_document(folder: Path) -> dict[str, Any]:
    """Return the strict JSON object in `folder` that bears the mark of this format, of whatever version."""
    file = folder / DOCUMENT_FILE
    if not folder.is_dir():
        _fail(folder, "a folder written by save()", "no folder", "Check the path.")
    raw = _read_file(file, _DOCUMENT_LIMIT)
    try:
        document = _plain("content", json.loads(raw.decode("utf-8"), object_pairs_hook=_unique))
    except (NoisyCGDError, ValueError, RecursionError) as error:
        _fail(file, "JSON with finite numbers and unique keys", str(error), cause=error)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        _fail(file, f"a document of format {FORMAT!r}", "another document", "Check the path.")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return dict(pairs)


def _read_file(file: Path, limit: float = math.inf) -> bytes:
    # Without O_NONBLOCK a named pipe in the folder would block for ever.
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(file, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as stream:
            facts = os.fstat(stream.fileno())
            if file.is_symlink() or not stat.S_ISREG(facts.st_mode) or facts.st_size > limit:
                _fail(file, "a regular file" + f" of at most {limit} bytes" * (limit < math.inf), "something else")
            return stream.read()
    except OSError as error:
        _fail(file, "a readable regular file and no link", error.strerror or error, cause=error)


def _read_unchanged(file: Path, checksum: object, limit: float = math.inf) -> bytes:
    raw = _read_file(file, limit)
    if hashlib.sha256(raw).hexdigest() != checksum:
        _fail(file, "as it was saved", f"{len(raw)} bytes that differ from their checksum")
    return raw


def _decode(file: Path, raw: bytes) -> dict[str, NDArray[Any]]:
    try:
        entries = deserialize(raw)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        _fail(file, "a complete safetensors file", str(error), cause=error)
    arrays = {}
    for name, entry in entries:
        if entry["dtype"] not in _DTYPES:
            _fail(file, f"of the dtypes {_ALLOWED}", f"{entry['dtype']} in {name!r}")
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        if dtype.kind == "b" and max(entry["data"], default=0) > 1:
            _fail(file, f"holding only 0 and 1 in boolean {name!r}", "another byte")
        little = np.frombuffer(entry["data"], dtype=dtype.newbyteorder("<"))
        arrays[name] = little.reshape(entry["shape"]).astype(dtype)
        if not np.isfinite(arrays[name]).all():
            _fail(file, f"finite in {name!r}", "NaN or infinity")
    return arrays


def _fail(
    file: Path, requirement: str, found: object, way_out: str = _RESTORE, cause: BaseException | None = None
) -> NoReturn:
    raise ModelFileError(message(str(file), requirement, found, way_out)) from cause
