"""Files that commands write: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8 under a temporary name in the same folder, then rename."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` under a temporary name in the same folder, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def fresh_model_folder(source: str) -> Path:
    """A folder name under `models/` that does not exist yet: the data's name and the time."""
    stem = Path(source).name.split(".")[0] or "model"
    base = Path("models") / f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    candidate, count = base, 1
    while candidate.exists():
        count += 1
        candidate = base.with_name(f"{base.name}-{count}")
    return candidate
