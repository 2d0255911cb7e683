"""Matplotlib's settings belong to the process: pictures are drawn in its default style, whatever the user's is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_lock = threading.RLock()


@contextlib.contextmanager
def default_style() -> Iterator[None]:
    """Draw in matplotlib's default style. One thread at a time, so that each finds the user's settings to put back."""
    from matplotlib import style

    with _lock, style.context("default"):
        yield
