"""Who watches the iterates of a run: nobody, but in experiments on public data (`noisycgd.research`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple


class Watch(NamedTuple):
    """How often somebody looks, and what is then called."""

    every: int
    """Epochs between two looks; the last epoch is always seen."""
    see: Callable[[int, Any], None]
    """Takes the number of finished epochs and the iterate."""


_watch: ContextVar[Watch | None] = ContextVar("noisycgd_watch", default=None)


def is_watched() -> bool:
    """Whether iterates leave the runs of this context; no model that was trained in it is private."""
    return _watch.get() is not None


@contextlib.contextmanager
def watching(watch: Watch | None) -> Iterator[None]:
    """Let the runs of this context be watched, or none of them."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


@contextlib.contextmanager
def shown_as(convert: Callable[[Any], Any]) -> Iterator[None]:
    """Convert what is shown in this context before it is seen."""
    watch = _watch.get()
    if watch is None:
        yield
        return
    with watching(Watch(watch.every, lambda epoch, iterate: watch.see(epoch, convert(iterate)))):
        yield


def show(epoch: int, epochs: int, iterate: Callable[[], Any]) -> None:
    """Show an iterate, as it would be released after so many epochs of all, if it is watched and due."""
    watch = _watch.get()
    if watch is not None and (epoch % watch.every == 0 or epoch == epochs):
        watch.see(epoch, iterate())
