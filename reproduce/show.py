"""`python -m reproduce show NAME`: a table or figure from the runs that are there; trains nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisycgd.cli.files import write_bytes
from reproduce.accounts import comparison, comparison_picture, comparison_table
from reproduce.classes import class_rows, class_tables
from reproduce.curves import curve_rows, curve_tables
from reproduce.experiments import Experiment
from reproduce.figures import classes_figure, curves_figure, image, parameter_figure
from reproduce.resampling import selection_rows, selection_tables
from reproduce.runs import Store
from reproduce.summary import summaries
from reproduce.tables import accuracy_rows, accuracy_tables, csv_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class View:
    """What is shown of an experiment.

    Attributes
    ----------
    text : str
        Markdown below the heading.
    rows : list of dict
        Of the CSV.
    figure : Figure or None
    pictured : bool
        Whether there is a picture once there are runs.
    """

    text: str
    rows: list[dict[str, Any]]
    figure: Figure | None = None
    pictured: bool = True


def _table(experiment: Experiment, store: Store) -> View:
    found = summaries(experiment, store)
    return View(accuracy_tables(found), accuracy_rows(experiment, found), pictured=False)


def _curves(experiment: Experiment, store: Store) -> View:
    found = summaries(experiment, store)
    return View(curve_tables(found), curve_rows(experiment, found), curves_figure(found, experiment.note))


def _ablation(experiment: Experiment, store: Store) -> View:
    found = summaries(experiment, store)
    if experiment.against == "epochs":
        figure = curves_figure(found, experiment.note, against="epochs")
        return View(accuracy_tables(found), curve_rows(experiment, found), figure)
    figure = parameter_figure(found, experiment.against, experiment.note)
    return View(accuracy_tables(found), accuracy_rows(experiment, found), figure)


def _selection(experiment: Experiment, store: Store) -> View:
    found = summaries(experiment, store)
    return View(selection_tables(experiment, found), selection_rows(experiment, found), pictured=False)


def _classes(experiment: Experiment, store: Store) -> View:
    found = summaries(experiment, store)
    return View(class_tables(found), class_rows(experiment, found), classes_figure(found, experiment.note))


def _accounting(experiment: Experiment, store: Store) -> View:
    found = comparison(experiment.comparison)
    return View(comparison_table(found), found.rows(), comparison_picture(found))


PAGES: dict[str, Callable[[Experiment, Store], View]] = {
    "table": _table,
    "curves": _curves,
    "ablation": _ablation,
    "selection": _selection,
    "per-class": _classes,
    "accounting": _accounting,
}


def section(experiment: Experiment, page: View, picture: str | None, level: int = 1) -> str:
    """Heading of that level, source, picture (its address), note, tables and findings, as Markdown."""
    missing = "No runs yet, hence no picture." if page.pictured and page.figure is None else ""
    parts = [
        f"{'#' * level} {experiment.title}",
        f"In the paper (arXiv 2407.04884): {experiment.source}.",
        missing if page.figure is None or picture is None else f"![{experiment.title}]({picture})",
        experiment.note,
        re.sub(r"^#", "#" * level, page.text, flags=re.MULTILINE),
        experiment.findings,
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def shown(experiment: Experiment, store: Store, out: Path | None) -> None:
    """Print the Markdown; with `out` write NAME.md and NAME.csv there, and NAME.png and NAME.svg of a picture."""
    name, page = experiment.name, PAGES[experiment.kind](experiment, store)
    text = section(experiment, page, None if out is None else f"{name}.png")
    if out is None:
        print(text)
        return
    files = {f"{name}.{kind}": image(page.figure, kind) for kind in ("png", "svg") if page.figure is not None}
    files |= {f"{name}.csv": csv_text(page.rows).encode(), f"{name}.md": text.encode()}
    for file, content in files.items():
        write_bytes(out / file, content)
        print(f"wrote {out / file}", file=sys.stderr)
