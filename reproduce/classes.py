"""Accuracy of each class: who pays for privacy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from noisycgd.data.datasets import DATASETS
from reproduce.curves import panel_title
from reproduce.experiments import Experiment
from reproduce.summary import Summary, privacy
from reproduce.tables import dataset_title, epsilons_explained, identity, markdown, number


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
    for (dataset, noise), group in itertools.groupby(found, key=lambda s: (s.cell.dataset, s.cell.noise_multiplier)):
        names = DATASETS[dataset].class_names
        header = ["method", "epsilon of the run", "seeds", *names, "all", "gap"]
        rows = [_row(one, len(names)) for one in group]
        parts += [f"## {dataset_title(dataset)}, {panel_title(noise)}", markdown(header, rows)]
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
