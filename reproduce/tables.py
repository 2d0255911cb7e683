"""Markdown and CSV of accuracies: what a run found beside what the paper prints."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from noisycgd.data.datasets import DATASETS
from reproduce.experiments import Experiment
from reproduce.methods import DELTA, LABELS
from reproduce.summary import (
    Summary,
    by_panel,
    deviation,
    in_words,
    printed,
    privacy,
    rate,
    spread,
    standard_error,
    varied,
)

LARGE_DIFFERENCE = 1.0
_STATUSES = {
    "unproven": "Unproven: a condition of the theorem fails, so that the number is for comparison only.",
    "conditional": "Conditional: holds if a condition is true that was not checked.",
    "void": "Not private: a bound was taken from the data, as in the paper.",
}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns also line up in a terminal; the first is aligned left, the others right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return "| " + " | ".join([cells[0].ljust(widths[0]), *padded[1:]]) + " |"

    rule = "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of equal keys as CSV; None and NaN become empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "" if v is None or (isinstance(v, float) and math.isnan(v)) else v for k, v in row.items()})
    return text.getvalue()


def epsilons_explained(found: Sequence[Summary]) -> str:
    """What the words beside the epsilons of a table mean."""
    labels = ", ".join(f"{label:g} for noise multiplier {noise:g}" for noise, label in LABELS.items())
    return (
        f"epsilon of the run: replace-one adjacency, delta = {in_print(DELTA)}, exact, rounded up. The paper's is a "
        f"label: {labels}, whatever the data set. {statuses_explained(found)}"
    ).strip()


def statuses_explained(found: Sequence[Summary]) -> str:
    """A sentence for each status that is not `proved`."""
    seen = {summary.status for summary in found}
    return " ".join(text for status, text in _STATUSES.items() if status in seen)


def dataset_title(name: str) -> str:
    """As people write it, with its size."""
    from reproduce.training import n_records

    return f"{DATASETS[name].title} ({n_records(name)} training records)"


def panel_title(noise: float) -> str:
    """A noise level in words."""
    if noise not in LABELS:
        return f"noise multiplier {noise:g}"
    return f"the paper's epsilon {LABELS[noise]:g} (its noise multiplier {noise:g})"


def panels(found: Sequence[Summary]) -> Iterator[tuple[str, list[Summary]]]:
    """Cells by data set and noise level, each group under a Markdown heading."""
    for (dataset, noise), group in by_panel(found):
        yield f"## {dataset_title(dataset)}, {panel_title(noise)}", group


def accuracy_tables(found: Sequence[Summary]) -> str:
    """One table per data set and noise level, with the paper's numbers."""
    compared = any(summary.printed for summary in found)
    parts = [
        "Accuracy: mean test accuracy over seeds in per cent, ± one standard deviation (of two seeds it says little)."
        + " The paper does not say what its ± is." * compared
        + f" Difference: ours minus the paper's, bold if it exceeds {LARGE_DIFFERENCE:.1f} as printed." * compared,
        epsilons_explained(found),
    ]
    for heading, group in panels(found):
        parts += [heading, _panel(group, compared)]
    if any(summary.values("accuracy_original").size for summary in found):
        parts.append(
            "CIFAR-10: accuracy is of all 10 000 test images; the first 1000, the original ones, count separately too. "
            "The standard error of 1000 images alone is 1.6."
        )
    return "\n\n".join(parts)


def _panel(found: Sequence[Summary], compared: bool) -> str:
    original = any(summary.values("accuracy_original").size for summary in found)
    header = ["method", "epsilon of the run", "accuracy"]
    header += ["first 1000"] * original + ["paper", "difference"] * compared + ["seeds", "learning rate"]
    rows = []
    for one in found:
        accuracy = spread(one.values()) if one.n else "not run"
        row = [one.title, privacy(one), accuracy]
        if original:
            first = one.values("accuracy_original")
            row.append(spread(first) if first.size else "–")
        if compared:
            row += [printed(one.printed), difference(one.difference)]
        rows.append([*row, one.seeds, rate(one)])
    return markdown(header, rows)


def difference(points: float | None) -> str:
    """Ours minus the paper's, bold if large."""
    if points is None:
        return "–"
    return f"**{points:+.1f}**" if abs(points) > LARGE_DIFFERENCE else f"{points:+.1f}"


def in_print(value: float) -> str:
    """1e-5 rather than 1e-05."""
    return f"{value:g}".replace("e-0", "e-")


def accuracy_rows(experiment: Experiment, found: Sequence[Summary]) -> list[dict[str, Any]]:
    """Long format: one row per cell, with all that is known of it."""
    return [_accuracy_row(experiment, one) for one in found]


def _accuracy_row(experiment: Experiment, one: Summary) -> dict[str, Any]:
    values, first, cell = one.values(), one.values("accuracy_original"), one.cell
    return {
        **identity(experiment, one),
        "n_seeds": one.n,
        "n_seeds_wanted": one.wanted,
        "accuracy": number(values.mean() if one.n else None),
        "accuracy_sd": number(deviation(values)),
        "accuracy_se": number(standard_error(values)),
        "accuracy_first_1000": number(first.mean() if first.size else None),
        "accuracy_first_1000_sd": number(deviation(first)),
        "paper_accuracy": one.printed.value if one.printed else None,
        "paper_spread": one.printed.spread if one.printed else None,
        "difference": one.difference,
        "learning_rate": one.learning_rate,
        "learning_rate_at_edge": one.at_edge,
        "epochs": cell.epochs if cell.method.iterative else None,
    }


def identity(experiment: Experiment, one: Summary) -> dict[str, Any]:
    """Columns that every CSV begins with: which cell, and its privacy."""
    return {
        "experiment": experiment.name,
        "dataset": one.cell.dataset,
        "method": one.cell.method.name,
        "title": one.title,
        "varied": "; ".join(in_words(*pair) for pair in varied(experiment, one.cell).items()),
        "noise_multiplier_of_label": one.cell.noise_multiplier,
        "epsilon_label": one.label,
        "noise_multiplier": one.noise_multiplier,
        "epsilon": one.epsilon,
        "delta": DELTA,
        "status": one.status or "not run",
    }


def number(value: float | None) -> float | None:
    """Per cent with digits enough to compute on."""
    return None if value is None else round(float(value), 4)
