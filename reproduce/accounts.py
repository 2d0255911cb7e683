"""The two figures that need no runs: epsilon against epochs, and one shuffled epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from noisycgd.comparison import Comparison, epsilon_against_epochs, shuffling_profiles
from reproduce.figures import plain
from reproduce.methods import BATCH_SIZE, DELTA, EPOCHS
from reproduce.summary import upward
from reproduce.tables import in_print, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_N_RECORDS = 60_000
_COLUMNS = 9


def epochs_comparison() -> Comparison:
    """NoisyCGD for several eta l2, as in the paper's first figure, and DP-SGD."""
    return epsilon_against_epochs(
        n_records=_N_RECORDS,
        batch_size=BATCH_SIZE,
        noise_multiplier=15.0,
        delta=DELTA,
        epochs=EPOCHS,
        mechanisms=("noisycgd-given", "dpsgd"),
        eta_l2=(0.0, 2e-5, 5e-5, 1e-4, 2e-4),
    )


def shuffling_comparison(points: int = 25) -> Comparison:
    """One epoch of 60 and of 1000 shuffled batches, and the Gaussian."""
    return shuffling_profiles(batches=(60, 1000), noise_multiplier=5.0, points=points)


COMPARISONS: dict[str, Callable[[], Comparison]] = {
    "figure-epsilon-epochs": epochs_comparison,
    "figure-shuffling": shuffling_comparison,
}


def comparison_table(comparison: Comparison) -> str:
    """Epsilon of each curve at some points that all of them have: of epochs, or of delta."""
    at_delta = comparison.log_y
    tables = [dict(zip(*((c.y, c.x) if at_delta else (c.x, c.y)), strict=True)) for c in comparison.curves]
    common = sorted(set.intersection(*(set(table) for table in tables)))
    columns = [common[round(i * (len(common) - 1) / (_COLUMNS - 1))] for i in range(_COLUMNS)]
    header = [f"delta = {in_print(float(f'{x:.3g}'))}" if at_delta else f"epoch {x:g}" for x in columns]
    rows = [
        [curve.name, curve.threat_model, *(upward(table[x]) for x in columns)]
        for curve, table in zip(comparison.curves, tables, strict=True)
    ]
    return f"Epsilon, rounded up: {comparison.title}.\n\n{markdown(['curve', 'threat model', *header], rows)}"


def comparison_picture(comparison: Comparison) -> Figure:
    """The package's own picture of a comparison."""
    from noisycgd.report.curves import comparison_figure

    with plain():
        figure = comparison_figure(comparison)
        if comparison.log_y:
            figure.axes[0].yaxis.set_major_formatter(lambda y, _: in_print(y))
    return figure
