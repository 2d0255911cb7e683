"""`python -m benchmarks.tuning`: default settings against privately tuned ones, at equal total epsilon.

Each finished run is one line of JSON, and a run that stands in the file is not repeated. `--show` trains nothing; both
draw the picture of docs/tuning.md with `--plot`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.methods import append, read

RESULTS = Path(__file__).parent / "results" / "tuning.jsonl"
EPSILON = 8.0
GRID = ["--grid", "learning_rate_fraction=0.0316,0.1,0.316,1", "--grid", "n_hyperplanes=32,64", "--mean-trials", "20"]
WAYS = {
    "default": ["fit"],
    "tuned, Poisson": ["tune", *GRID, "--law", "poisson"],
    "tuned, geometric": ["tune", *GRID, "--law", "geometric"],
}
# Options of every run on a data set, and how many there are: on splits of their own where the set has no test part.
DATA = {
    "digits": (["--delta", "1e-4"], 5),
    "mnist": (["--delta", "1e-5", "--epochs", "50", "--batch-size", "1000"], 1),
    "fashion-mnist": (["--delta", "1e-5", "--epochs", "50", "--batch-size", "1000"], 1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, print the table, and draw it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__.split("\n\n")[0])
    parser.add_argument("data", nargs="*", default=["digits"], help=" | ".join(DATA) + " (default: digits)")
    parser.add_argument("--data-dir", help="folder with the data sets' files")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of results, one JSON line per run")
    parser.add_argument("--plot", type=Path, help="PNG file to draw")
    parser.add_argument("--show", action="store_true", help="train nothing")
    options = parser.parse_args(arguments)
    if unknown := set(options.data) - DATA.keys():
        parser.error(f"data must be among {', '.join(DATA)}; got {', '.join(sorted(unknown))}.")
    done = read(options.out)
    for data in [] if options.show else options.data:
        for way in WAYS:
            for run in range(DATA[data][1]):
                if not any((r["data"], r["way"], r["run"]) == (data, way, run) for r in done):
                    done.append(measure(data, way, run, options.data_dir))
                    append(options.out, done[-1])
                    print(f"{data}, {way}, run {run}: {done[-1]['test_accuracy']:.4f}", file=sys.stderr)
    print(table(done))
    if options.plot is not None:
        draw(done, options.plot)
    return 0


def measure(data: str, way: str, run: int, data_dir: str | None) -> dict[str, Any]:
    """One search, or one fit, through the command line in a process of its own."""
    shared = ["--epsilon", str(EPSILON), "--center-rows", "--json", *DATA[data][0]]
    shared += ["--split-seed", str(run)] if data == "digits" else []
    shared += [] if data_dir is None else ["--data-dir", data_dir]
    command, *rest = WAYS[way]
    with TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "noisycgd", command, data, *rest, *shared, "--out", f"{folder}/model"]
        answer = json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout)
    stated = {key: answer["guarantee"][key] for key in ("epsilon", "delta", "status")}
    return {"data": data, "way": way, "run": run, "test_accuracy": answer["test_accuracy"], **stated}


def accuracies(runs: Sequence[dict[str, Any]], data: str, way: str) -> list[float]:
    """Test accuracies in per cent."""
    return [100 * r["test_accuracy"] for r in runs if (r["data"], r["way"]) == (data, way)]


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Markdown: mean accuracy, and the range of several runs."""
    lines = ["| data | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]
    for data in DATA:
        cells = []
        for way in WAYS:
            found = accuracies(runs, data, way)
            spread = f" ({min(found):.1f} – {max(found):.1f}, {len(found)} runs)" if len(found) > 1 else ""
            cells.append(f"{np.mean(found):.1f} %{spread}" if found else "–")
        if set(cells) != {"–"}:
            lines.append(f"| {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """One panel per data set: a mark per run and a bar at the mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [data for data in DATA if any(run["data"] == data for run in runs)]
    figure = Figure(figsize=(1.2 + 3.1 * len(shown), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    ranges = {data: _range(runs, data) for data in shown}
    # All panels span the same number of points: a difference looks as large in each.
    half = 0.55 * max((high - low for low, high in ranges.values()), default=1.0) + 0.2
    for axes, data in zip(np.ravel(figure.subplots(1, len(shown))), shown, strict=True):
        for x, way in enumerate(WAYS):
            found = accuracies(runs, data, way)
            if found:
                axes.hlines(np.mean(found), x - 0.28, x + 0.28, color="black", linewidth=2)
                axes.plot([x] * len(found), found, "o", color="0.45", markerfacecolor="white", markersize=6, zorder=3)
        axes.set_xticks(range(len(WAYS)), [way.replace(", ", ",\n") for way in WAYS], fontsize=9)
        axes.set_xlim(-0.6, len(WAYS) - 0.4)
        axes.set_ylim(np.mean(ranges[data]) - half, np.mean(ranges[data]) + half)
        axes.set_title(data, fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel("test accuracy, %")
    figure.suptitle(f"Equal total epsilon ({EPSILON:g}): default settings beside privately tuned ones", fontsize=11)
    part = path.with_name(path.name + ".part")
    figure.savefig(part, format="png", dpi=150, metadata={"Software": None})
    os.replace(part, path)


def _range(runs: Sequence[dict[str, Any]], data: str) -> tuple[float, float]:
    found = [accuracy for way in WAYS for accuracy in accuracies(runs, data, way)]
    return min(found), max(found)


if __name__ == "__main__":
    sys.exit(main())
