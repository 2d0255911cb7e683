"""Folders that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path


def replace_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Make `target` a folder of these files, flushed to disk; whatever goes wrong, what was there is still there.

    `target` is absent or a folder. It is written beside its destination and renamed, the old folder aside before that.
    """
    tag = secrets.token_hex(8)
    staging = target.with_name(f".{target.name}.{tag}.tmp")
    aside = target.with_name(f".{target.name}.{tag}.old")

    def tidy() -> None:
        # Decided by what is on the disk and not by flags: an interrupt may fall between any two statements.
        if aside.exists() and not target.exists():
            os.rename(aside, target)
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)

    with contextlib.ExitStack() as stack:
        # Twice: an interrupt of the first leaves the rest to the second.
        stack.callback(tidy)
        stack.callback(tidy)
        staging.mkdir()
        for name, data in files.items():
            with open(staging / name, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        _sync_folder(staging)
        if os.path.lexists(target):
            os.rename(target, aside)
        os.rename(staging, target)
        _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    # Elsewhere a folder cannot be opened, and renames need no flush.
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
