"""Accuracy of each class: who pays for privacy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noisycgd.data.datasets import DATASETS
from reproduce.experiments import Experiment
from reproduce.summary import Summary, privacy
from reproduce.tables import epsilons_explained, identity, markdown, number, panels


def per_class(one: Summary) -> list[float]:
    """Mean accuracy of each class over the finished runs, in per cent; empty without runs."""
    lists = [result["per_class"] for result in one.results]
    return [100 * sum(values) / len(values) for values in zip(*lists, strict=True)] if lists else []


def class_tables(found: Sequence[Summary]) -> str:
    """One table per data set and noise level: methods against classes."""
    parts = [
        "Mean test accuracy of each class over seeds, in per cent; gap: best class minus worst class, of the means.",
        epsilons_explained(found),
    ]
    for heading, group in panels(found):
        names = DATASETS[group[0].cell.dataset].class_names
        header = ["method", "epsilon of the run", "seeds", *names, "all", "gap"]
        rows = [_row(one, len(names)) for one in group]
        parts += [heading, markdown(header, rows)]
    return "\n\n".join(parts)


def _row(one: Summary, n_classes: int) -> list[str]:
    values = per_class(one)
    if not values:
        return [one.title, "–", one.seeds, *["–"] * n_classes, "not run", "–"]
    shown = [f"{value:.1f}" for value in (*values, one.mean, max(values) - min(values))]
    return [one.title, privacy(one), one.seeds, *shown]


def class_rows(experiment: Experiment, found: Sequence[Summary]) -> list[dict[str, Any]]:
    """Long format: one row per cell and class."""
    return [
        {
            **identity(experiment, one),
            "n_seeds": one.n,
            "n_seeds_wanted": one.wanted,
            "class": DATASETS[one.cell.dataset].class_names[c],
            "accuracy": number(value),
        }
        for one in found
        for c, value in enumerate(per_class(one))
    ]
