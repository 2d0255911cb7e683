"""The two figures that need no runs: epsilon against epochs, and one shuffled epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from noisycgd.comparison import Comparison, epsilon_against_epochs, shuffling_profiles
from reproduce.figures import plain
from reproduce.summary import upward
from reproduce.tables import in_print, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 9

COMPARISONS: dict[str, Callable[..., Comparison]] = {"epochs": epsilon_against_epochs, "shuffling": shuffling_profiles}


def comparison(settings: Mapping[str, Any]) -> Comparison:
    """The comparison that `of` names, with all other settings as its arguments.

    Raises
    ------
    ValueError
        If there is none of that name, or it takes no such settings.
    """
    given = dict(settings)
    name = given.pop("of", None)
    if name not in COMPARISONS:
        raise ValueError(f"comparison must be of {' or '.join(COMPARISONS)}; got {name}. Correct the config.")
    try:
        return COMPARISONS[name](**given)
    except TypeError as error:
        raise ValueError(f"comparison must have the settings of {name}; {error}. Correct the config.") from None


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
