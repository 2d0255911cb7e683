"""Progress of long work: steps and time, never a number that depends on private data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

# A fit that is over sooner needs no bar.
QUIET_SECONDS = 1.0
# Of all that is no number of epochs, with both times, and of the shortest bar that is worth its place.
_TEXT_WIDTH = 60


@contextlib.contextmanager
def epoch_progress(epochs: int, *, enabled: bool) -> Iterator[Callable[[int], None] | None]:
    """Yield a callback for finished epochs that drives a bar on standard error with the time left.

    The bar appears once the work has lasted a second, and disappears when it ends; without a terminal nothing shows.
    """
    if not enabled:
        yield None
        return
    import time

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    # The numbers need all of a narrow terminal.
    room = console.width - _TEXT_WIDTH - 2 * len(str(epochs))
    wide = [TextColumn("training"), BarColumn(min(room, 40))] if room > 0 else []
    elapsed = [TimeElapsedColumn(), TextColumn("elapsed ·")] if room > 0 else []
    bar = Progress(
        *wide,
        MofNCompleteColumn(),
        TextColumn("epochs ·"),
        *elapsed,
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("training", total=epochs)
    started = time.monotonic()
    shown = False

    def on_epoch(done: int) -> None:
        nonlocal shown
        if not shown and time.monotonic() - started > QUIET_SECONDS:
            bar.start()
            shown = True
        bar.update(task, completed=done)

    try:
        yield on_epoch
    finally:
        # Stopping a bar that was never shown writes an empty line to some consoles.
        if shown:
            bar.stop()
