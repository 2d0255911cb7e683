"""Files that commands write: whole or not at all."""

from __future__ import annotations

import os
import secrets
from datetime import datetime
from pathlib import Path

from noisycgd._validation import NoisyCGDError, message


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8 under a temporary name in the same folder, then rename."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` under a temporary name in the same folder, then rename; NoisyCGDError if that cannot be.

    Devices and pipes are written to as they are.
    """
    try:
        _write_bytes(path, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise NoisyCGDError(message(str(path), "a file that can be written", reason, "Choose another path.")) from None


def _write_bytes(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    watch(path)
    if path.exists() and not path.is_file():
        # A renamed file would take the place of a device or a pipe.
        with open(path, "wb") as stream:
            stream.write(content)
        return
    # A link stands for what it points to.
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        # Opened anew, so that the user's umask says who may read it.
        with open(temporary, "xb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def date_as(path: Path, time: float) -> None:
    """Give a folder and its files one time of change, in seconds since 1970."""
    for entry in (*path.iterdir(), path):
        os.utime(entry, (time, time))


_before: dict[Path, tuple[int, int] | None] = {}


def watch(path: Path) -> None:
    """Remember what is at a path, before something is written there."""
    _before.setdefault(path, _facts(path))


def written() -> list[Path]:
    """Paths at which there is something new since `watch`."""
    return [path for path, facts in _before.items() if _facts(path) not in (None, facts)]


def forget() -> None:
    """Watch nothing."""
    _before.clear()


def _facts(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def fresh_model_folder(source: str) -> Path:
    """A folder name under `models/` that does not exist yet: the data's name and the time."""
    stem = Path(source).name.split(".")[0] or "model"
    base = Path("models") / f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    candidate, count = base, 1
    while candidate.exists():
        count += 1
        candidate = base.with_name(f"{base.name}-{count}")
    return candidate
