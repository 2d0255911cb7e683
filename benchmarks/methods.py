"""`python -m benchmarks.methods`: every method on MNIST through the command line, at two noise multipliers.

Each finished run is one line of JSON, and a run that stands in the file is not repeated. `--show` prints the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from noisycgd._validation import rounded_up

RESULTS = Path(__file__).parent / "results" / "methods.jsonl"
NOISE_MULTIPLIERS = (15.0, 5.0)
EPOCHS = 50

# Name in the table -> what `noisycgd fit` needs beside the data, the noise and what all share.
METHODS = {
    "NoisyCGD, convex ReLU, P = 64": "--model convex-relu --hyperplanes 64",
    "DP-SGD, convex ReLU, P = 64": "--model convex-relu --hyperplanes 64 --method dpsgd",
    "DP-SGD, ReLU network, W = 500": "--model relu-network --width 500 --method dpsgd",
    "NoisyCGD, linear": "--model linear",
    "DP-SGD, linear": "--model linear --method dpsgd",
    "NoisyCGD, 4096 Fourier features": "--model linear --features fourier --components 4096",
    "DP-SGD, 4096 Fourier features": "--model linear --features fourier --components 4096 --method dpsgd",
    "noisy GD, averaged, convex ReLU, P = 64": "--model convex-relu --hyperplanes 64 --method noisy-gd",
    "SSP, 4096 Fourier features": "--model ssp --features fourier --components 4096",
    "SSP, 4096 ReLU patterns": "--model ssp --features relu-patterns --components 4096",
    "SSP, convex-ReLU features, P = 18": "--model ssp --features convex-relu --components 18",
    "SSP, 64 Fourier features": "--model ssp --features fourier --components 64",
    "SSP, 64 ReLU patterns": "--model ssp --features relu-patterns --components 64",
    "SSP, 64 ReLU units": "--model ssp --features relu --components 64",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, or show what is there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods", description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", default="mnist", help="a data set that `noisycgd fit` knows (default: mnist)")
    parser.add_argument("--data-dir", help="folder with its files")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of results, one JSON line per run")
    parser.add_argument("--show", action="store_true", help="print the table and train nothing")
    options = parser.parse_args(arguments)
    done = read(options.out)
    if not options.show:
        for name in METHODS:
            for noise in NOISE_MULTIPLIERS:
                if not any((run["method"], run["noise_multiplier"]) == (name, noise) for run in done):
                    run = measure(name, noise, options.data, options.data_dir)
                    done.append(run)
                    append(options.out, run)
                    print(f"{name}, noise multiplier {noise:g}: {run['test_accuracy']:.4f}", file=sys.stderr)
    print(table(done))
    return 0


def measure(name: str, noise: float, data: str, data_dir: str | None) -> dict[str, Any]:
    """One fit through the command line, in a process of its own."""
    options = METHODS[name].split()
    shared = ["--noise-multiplier", str(noise), "--delta", "1e-5", "--center-rows", "--random-state", "0", "--json"]
    if "ssp" not in options:
        shared += ["--epochs", str(EPOCHS)]
        shared += [] if "noisy-gd" in options else ["--batch-size", "1000"]
    if data_dir is not None:
        shared += ["--data-dir", data_dir]
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "noisycgd", "fit", data, *options, *shared, "--out", f"{folder}/model"]
        answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    guarantee = answer["guarantee"]
    return {
        "method": name,
        "data": data,
        "noise_multiplier": noise,
        "options": METHODS[name],
        "test_accuracy": answer["test_accuracy"],
        "seconds": round(answer["seconds"], 1),
        **{key: guarantee[key] for key in ("epsilon", "delta", "status", "threat_model")},
    }


def read(path: Path) -> list[dict[str, Any]]:
    """Finished runs, none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append(path: Path, run: dict[str, Any]) -> None:
    """Add one line; a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(run) + "\n")


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Markdown: one row per method, accuracy and epsilon at each noise multiplier."""
    lines = [
        "| method | the adversary sees | "
        + " | ".join(f"accuracy at nm = {noise:g} | epsilon" for noise in NOISE_MULTIPLIERS)
        + " |",
        "|---|---|" + "---|---|" * len(NOISE_MULTIPLIERS),
    ]
    for name in METHODS:
        found = {run["noise_multiplier"]: run for run in runs if run["method"] == name}
        if found:
            cells = [_cell(found.get(noise)) for noise in NOISE_MULTIPLIERS]
            lines.append(f"| {name} | {next(iter(found.values()))['threat_model']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(run: dict[str, Any] | None) -> str:
    return " | " if run is None else f"{100 * run['test_accuracy']:.1f} % | {rounded_up(run['epsilon'], 4)}"


if __name__ == "__main__":
    sys.exit(main())
