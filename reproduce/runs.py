"""One training run as data, and the file that remembers which runs are done.

A run is named by what determines it, so that two tables share the runs they have in common and none is made twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Run:
    """A fit of an estimator on a named data set.

    Attributes
    ----------
    dataset : str
        Name that `noisycgd.data.load_dataset` knows.
    estimator : str
        Class of `noisycgd`.
    parameters : mapping
        All constructor parameters that are not defaults, but for the seed; JSON values.
    seed : int
        Public seed of hyperplanes, random features and start weights. Noise is never seeded.
    rows : {"unit", "standard"}
        Pixels in [0, 1], or less their customary mean and over their customary deviation.
    """

    dataset: str
    estimator: str
    parameters: Mapping[str, Any] = field(hash=False)
    seed: int
    rows: str = "unit"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in an order of their own."""
        return {
            "dataset": self.dataset,
            "estimator": self.estimator,
            "parameters": dict(sorted(self.parameters.items())),
            "seed": self.seed,
            "rows": self.rows,
        }

    @property
    def key(self) -> str:
        """Digest of all that determines the run; numbers that are equal have one spelling."""
        text = json.dumps(_one_spelling(self.to_dict()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def epochs(self) -> int:
        """Passes over the data; 1 for methods that have no such parameter."""
        return int(self.parameters.get("epochs", 1))


def _one_spelling(value: Any) -> Any:
    """The same value with every number as a float."""
    if isinstance(value, Mapping):
        return {name: _one_spelling(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_one_spelling(entry) for entry in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _lines(content: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines, and what stands behind the last of them."""
    *whole, rest = content.split(b"\n")
    return whole, rest


def _whole(rest: bytes) -> bool:
    """Whether a line lacks nothing but its end."""
    try:
        return isinstance(json.loads(rest), dict)
    except ValueError:
        return False


def _is_at(file: IO[Any], path: Path) -> bool:
    """Whether an open file still has that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _mend(file: IO[bytes]) -> None:
    """End the last line, or drop it if a process died while it wrote."""
    file.seek(0)
    content = file.read()
    rest = _lines(content)[1]
    if rest and _whole(rest):
        file.write(b"\n")
    else:
        file.truncate(len(content) - len(rest))


class _File(NamedTuple):
    """A file as it was read."""

    facts: tuple[int, ...]  # inode, size and time of its last change
    records: list[tuple[str, dict[str, Any]]]


def _parsed(line: bytes, where: str) -> tuple[str, dict[str, Any]]:
    """Key and record of a line."""
    try:
        record: dict[str, Any] = json.loads(line.decode())
        run = Run(**record["run"])
        dict(record["result"])
        if record["key"] != run.key:
            raise ValueError(f"its run has the key {run.key}, not {record['key']}")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        found = f"{type(error).__name__}, {error}"[:120]
        raise ValueError(f"{where} must be as `run` wrote it; got {found}. Restore or remove it.") from None
    return run.key, record


class Store:
    """Finished runs in JSON lines, one file per data set; several processes may add to it at once.

    Raises
    ------
    ValueError
        If a line is none that `add` wrote; the message names file and line.
    """

    def __init__(self, folder: Path = RESULTS) -> None:
        self.folder = folder
        self._files: dict[Path, _File] = {}
        self._records: dict[str, dict[str, Any]] = {}
        self.refresh()

    @property
    def n_seeds(self) -> int:
        """One more than the largest seed of any run."""
        return max((int(record["run"]["seed"]) for record in self), default=-1) + 1

    def refresh(self) -> None:
        """Read the files that changed; a line that is still being written waits for the next time."""
        files = dict(filter(None, map(self._read, sorted(self.folder.glob("*.jsonl")))))
        if files != self._files:
            self._files, self._records = files, {}
            for file in files.values():
                for key, record in file.records:
                    self._records.setdefault(key, record)

    def _read(self, path: Path) -> tuple[Path, _File] | None:
        """The whole file, since others than a `Store` may have changed it: a checkout, an editor."""
        known = self._files.get(path)
        try:
            facts = path.stat()
            found = facts.st_ino, facts.st_size, facts.st_mtime_ns
            if known is not None and known.facts == found:
                return path, known
            lines, rest = _lines(path.read_bytes())
        except FileNotFoundError:
            # It is being replaced; the next time tells with what.
            return None if known is None else (path, known)
        whole = [*lines, rest] if _whole(rest) else lines
        return path, _File(found, [_parsed(line, f"{path}, line {i},") for i, line in enumerate(whole, start=1)])

    def result(self, run: Run) -> dict[str, Any] | None:
        """What a finished run found, None if it is not done."""
        record = self._records.get(run.key)
        return None if record is None else record["result"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._records.values())

    def add(self, run: Run, result: Mapping[str, Any]) -> None:
        """Append one line."""
        record = {"key": run.key, "run": run.to_dict(), "result": dict(result)}
        self.folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record).encode() + b"\n"
        path = self.folder / f"{run.dataset}.jsonl"
        written = False
        while not written:
            with path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # A checkout may have replaced the file since it was opened.
                if written := _is_at(file, path):
                    _mend(file)
                    file.write(line)
        self.refresh()

    @contextlib.contextmanager
    def claim(self, run: Run) -> Iterator[bool]:
        """Whether this process may make the run: nobody else is at it, and it is not done.

        The claim ends with the process, whatever ends that.
        """
        locks = self.folder / ".running"
        locks.mkdir(parents=True, exist_ok=True)
        path = locks / run.key
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A claim that ended since this one opened the file took its name away: a third may have a new one.
                same = _is_at(file, path)
            except BlockingIOError:
                same = False
            if not same:
                yield False
                return
            self.refresh()
            try:
                yield self.result(run) is None
            finally:
                path.unlink(missing_ok=True)
