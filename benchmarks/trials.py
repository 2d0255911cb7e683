"""`python -m benchmarks.trials`: eight runs at once beside eight runs in turn.

The runs of a private selection, equal in shape, each with hyperplanes, margin, learning rates and noise of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.network import circumstances, run_command
from benchmarks.problem import FULL, QUICK, Problem, Sizes, make_problem
from benchmarks.step import PAUSE_S, describe_machine, quartiles
from noisycgd.data import FixedBatches
from noisycgd.features import make_gates
from noisycgd.losses import MarginSoftmax
from noisycgd.planning import plan_noisy_cgd
from noisycgd.training.many import Shape, Way, fastest_way, train_cyclic_many
from noisycgd.training.noise import system_randomness
from noisycgd.types import NoiseMultiplier, Order

N_RUNS = 8


@dataclasses.dataclass(frozen=True)
class Case:
    """One size of problem, and how long a run is."""

    sizes: Sizes
    epochs: int


CASES = {
    "tiny": Case(Sizes(n=1_000, d=16, P=8, q=2, b=100), 1_000),
    "table": Case(Sizes(n=5_000, d=30, P=32, q=2, b=250), 50),
    "digits": Case(Sizes(n=1_470, d=64, P=64, q=10, b=147), 50),
    "mnist": Case(FULL, 5),
}
QUICK_CASES = {"quick": Case(QUICK, 2)}


class Runs:
    """Eight runs on one problem, ready to be trained in any way.

    Runs share their rows, which is sound since their plans count the worst position of the order given; memory is all
    that this saves.
    """

    def __init__(self, problem: Problem, epochs: int) -> None:
        sizes = problem.sizes
        self.epochs = epochs
        self.shape = Shape(sizes.k, sizes.b, sizes.d, sizes.n_gates, sizes.q, epochs, MarginSoftmax)
        self._gates = [make_gates("antithetic", sizes.d, sizes.P, seed) for seed in range(N_RUNS)]
        self._losses = [MarginSoftmax(float(t)) for t in range(N_RUNS)]
        rows = problem.rows.reshape(sizes.n, sizes.d)
        scales = np.ones((sizes.k, sizes.b), np.float32)
        self._batches = [
            FixedBatches(problem.rows, g.patterns(rows).reshape(sizes.k, sizes.b, -1), problem.labels, scales)
            for g in self._gates
        ]
        self._plans = [
            plan_noisy_cgd(
                certificate=loss.certificate(sizes.q),
                feature_norm=gates.feature_norm(1.0),
                n_records=sizes.n,
                target=NoiseMultiplier(5.0, 1 / (2 * sizes.n)),
                epochs=epochs,
                batch_size=sizes.b,
                schedule=("linear", "constant")[t % 2],
                order=Order.GIVEN,
            )
            for t, (gates, loss) in enumerate(zip(self._gates, self._losses, strict=True))
        ]

    def train(self, way: Way) -> list[Any]:
        """All weights."""
        levels = [gates.levels for gates in self._gates]
        sources = [system_randomness() for _ in self._plans]
        q = self.shape.q
        return train_cyclic_many(self._batches, levels, self._losses, self._plans, q, sources, way=way)


def race_ways(runs: Runs, rounds: int, pause_s: float = PAUSE_S) -> dict[Way, list[float]]:
    """Seconds per epoch of one run, in each way and round; each round starts with another way."""
    ways = list(Way)
    for way in ways:
        runs.train(way)
    times: dict[Way, list[float]] = {way: [] for way in ways}
    for r in range(rounds):
        for way in ways[r % len(ways) :] + ways[: r % len(ways)]:
            time.sleep(pause_s)
            start = time.perf_counter()
            runs.train(way)
            times[way].append((time.perf_counter() - start) / (N_RUNS * runs.epochs))
    return times


def measure(cases: dict[str, Case], rounds: int) -> dict[str, Any]:
    """Every number of the benchmark as one JSON-ready dictionary; README.md says what each key means."""
    machine = describe_machine()
    results = {}
    for name, case in cases.items():
        runs = Runs(make_problem(case.sizes), case.epochs)
        times = {way: np.array(turns) for way, turns in race_ways(runs, rounds).items()}
        speedups = {way: quartiles(times[Way.TURNS] / turns) for way, turns in times.items()}
        chosen = fastest_way(runs.shape, N_RUNS)
        results[name] = {
            "sizes": dataclasses.asdict(case.sizes),
            "epochs": case.epochs,
            "step_multiplications": runs.shape.step_multiplications,
            "chosen": chosen.value,
            "speedup": speedups[chosen]["median"],
            "speedups": {way.value: speedup for way, speedup in speedups.items()},
            "epoch_ms": {way.value: quartiles(1e3 * turns) for way, turns in times.items()},
            "epochs_per_s": 1 / float(np.median(times[chosen])),
        }
    return {"benchmark": "trials", "runs": N_RUNS, "rounds": rounds, "cases": results} | circumstances(machine, [])


def table(result: dict[str, Any]) -> str:
    """The result for people: one line per problem and way."""
    lines = [f"{'problem':<10}{'way':<10}{'ms per epoch of a run':>22}{'times in turn':>16}{'quartiles':>18}"]
    for name, case in result["cases"].items():
        for way, speedup in case["speedups"].items():
            spread = f"{speedup['q1']:.3g} - {speedup['q3']:.3g}"
            lines.append(
                f"{name:<10}{way + ' *' * (way == case['chosen']):<10}{case['epoch_ms'][way]['median']:>22.4g}"
                f"{speedup['median']:>16.3g}{spread:>18}"
            )
    lines += ["", f"* the way that train_cyclic_many chooses for {result['runs']} runs."]
    return "\n".join(lines + [f"note: {note}" for note in result["notes"]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write to a file if asked to."""

    def extend(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", choices=CASES, help="one problem instead of all")

    def measured(options: argparse.Namespace) -> dict[str, Any]:
        cases = {options.only: CASES[options.only]} if options.only else CASES
        return measure(QUICK_CASES if options.quick else cases, options.rounds)

    return run_command("trials", __doc__, measured, table, arguments, extend)


if __name__ == "__main__":
    sys.exit(main())
