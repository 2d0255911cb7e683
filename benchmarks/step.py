"""`python -m benchmarks.step`: a training step beside the machine's limit and beside its peers.

All contenders run in one process and take turns, so that a slow minute of the machine falls on all of them. Ratios are
the result; milliseconds are those of one machine on one day.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh import measure_afresh
from benchmarks.problem import FULL, QUICK, Contender, Problem, Sizes, make_problem

PACKAGES = ("noisycgd", "jax", "jaxlib", "numpy", "scikit-learn", "torch", "opacus")

# A peer with several forms counts in its fastest; the others are printed beside it.
COUNTED = {
    "opacus_ghost": ("opacus_ghost_one_layer", "opacus_ghost_many_layers"),
    "opacus_hooks": ("opacus_hooks_one_layer", "opacus_hooks_many_layers"),
    "torch_closed_form": ("torch_closed_form",),
    "opacus_ghost_prebuilt": ("opacus_ghost_prebuilt",),
    "torch_closed_form_antithetic": ("torch_closed_form_antithetic",),
}

# Load per core above which a result says that other work was running.
QUIET_LOAD = 0.25

# Idle worker threads of one library spin for a while before they sleep, on the next contender's cores.
PAUSE_S = 0.3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write to a file if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument("--out", type=Path, help="write the JSON to this file as well, whole or not at all")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that it runs, says nothing about speed")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: 7)")
    parser.add_argument("--without-peers", action="store_true", help="leave PyTorch and Opacus out")
    parser.add_argument("--keep-memory", action="store_true", help="tell the C library to keep freed memory")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1; got {options.rounds}.")
    result = measure(
        QUICK if options.quick else FULL,
        options.rounds,
        with_peers=not options.without_peers,
        keep_memory=options.keep_memory,
    )
    text = json.dumps(result, indent=2)
    if options.out is not None:
        write_whole(options.out, text + "\n")
    print(text if options.json else table(result))
    return 0


def measure(sizes: Sizes, rounds: int, *, with_peers: bool = True, keep_memory: bool = True) -> dict[str, Any]:
    """Every number of the benchmark as one JSON-ready dictionary; README.md says what each key means.

    Parameters
    ----------
    sizes : Sizes
        The problem.
    rounds : int
        Turns of each contender.
    with_peers : bool, default True
        Whether PyTorch and Opacus take part, if they are installed.
    keep_memory : bool, default True
        Whether the C library is told to keep freed memory for the next step, for all contenders.
    """
    machine = describe_machine()
    # First, while this process is small and idle.
    afresh = measure_afresh("memory", sizes) | measure_afresh("compile", sizes)
    keeps_memory = keep_memory and _keep_freed_memory()
    problem = make_problem(sizes)
    contenders, notes = make_contenders(problem, machine["cores"], with_peers)
    if (load := machine["load_before"]) is not None and load > QUIET_LOAD * machine["cores"]:
        notes.append(f"the machine was not quiet: load {load:.2f} on {machine['cores']} cores before the run")
    times = race(contenders, rounds)
    ratios = compare(times)
    gigaflop = 4e-9 * sizes.b * sizes.d * sizes.n_gates * (sizes.q - 1)
    return {
        "benchmark": "step",
        "sizes": asdict(sizes),
        "rounds": rounds,
        "ratio_to_limit": ratios["ratio_to_limit"]["median"],
        "speedup": {name: ratios[name]["median"] if name in ratios else None for name in COUNTED},
        "peak_rss_mb": afresh["peak_rss_mb"],
        "data_mb": 4e-6 * sizes.n * sizes.d,
        "compile_s": afresh["compile_s"],
        "quartiles_of_ratios": ratios,
        "step_ms": {
            c.name: quartiles([1e3 * t for t in times[c.name]]) | {"turns": rounds, "steps_per_turn": c.steps}
            for c in contenders
        },
        "limit_gflop_per_s": gigaflop / float(np.median(times["limit"])),
        "machine": machine,
        "allocator_keeps_memory": keeps_memory,
        "versions": {name: found for name in PACKAGES if (found := _version(name)) is not None}
        | {"python": platform.python_version()},
        "notes": notes,
    }


def make_contenders(problem: Problem, cores: int, with_peers: bool) -> tuple[list[Contender], list[str]]:
    """The package's step, the limit and the peers that are installed; notes on those left out."""
    from benchmarks.kernel import Limit, PackageStep

    contenders: list[Contender] = [PackageStep(problem), Limit(problem)]
    if not with_peers:
        return contenders, ["peers left out on request"]
    try:
        from benchmarks.peers import make_peers
    except ModuleNotFoundError as error:
        return contenders, [f"peers left out: {error.name} is not installed (pip install '.[bench]')"]
    peers, notes = make_peers(problem, cores)
    return contenders + peers, notes


def race(contenders: Sequence[Contender], rounds: int, pause_s: float = PAUSE_S) -> dict[str, list[float]]:
    """Seconds per step of each contender in each round; a round gives every contender one turn.

    Each round starts with another contender, so that nobody always follows the same one.
    """
    for contender in contenders:
        # Three turns, until memory that earlier ones freed suffices.
        for _ in range(3):
            contender.run()
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    for r in range(rounds):
        for i in range(len(contenders)):
            contender = contenders[(r + i) % len(contenders)]
            time.sleep(pause_s)
            contender.rouse()
            start = time.perf_counter()
            contender.run()
            times[contender.name].append((time.perf_counter() - start) / contender.steps)
    return times


def compare(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Quartiles over rounds of the ratios of two turns in one round, which a slow minute of the machine cancels in."""
    ours = np.array(times["noisycgd"])
    ratios = {"ratio_to_limit": quartiles(ours / np.array(times["limit"]))}
    for peer, forms in COUNTED.items():
        raced = [times[form] for form in forms if form in times]
        if raced:
            ratios[peer] = quartiles(np.array(min(raced, key=np.median)) / ours)
    return ratios


def quartiles(values: Any) -> dict[str, float]:
    """The median and the quartiles around it."""
    q1, median, q3 = (float(v) for v in np.quantile(values, [0.25, 0.5, 0.75]))
    return {"median": median, "q1": q1, "q3": q3}


def describe_machine() -> dict[str, Any]:
    """Kind of machine, without its name; the load before the run tells whether it was quiet."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [
        line.split(":", 1)[1].strip()
        for line in (cpuinfo.read_text().splitlines() if cpuinfo.exists() else [])
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def table(result: dict[str, Any]) -> str:
    """The result for people: one line per contender, then one per number."""
    ours = result["step_ms"]["noisycgd"]["median"]
    lines = [f"{'contender':<30}{'ms per step':>12}{'quartiles':>20}{'times ours':>12}"]
    for name, ms in result["step_ms"].items():
        spread = f"{ms['q1']:.4g} - {ms['q3']:.4g}"
        lines.append(f"{name:<30}{ms['median']:>12.4g}{spread:>20}{ms['median'] / ours:>12.3g}")
    speedups = {name: value for name, value in result["speedup"].items() if value is not None}
    lines += ["", f"{'ratio to the limit':<30}{result['ratio_to_limit']:>12.3g}"]
    lines += [f"{'speedup over ' + name:<40}{value:>8.3g}" for name, value in speedups.items()]
    lines += [
        f"{'peak memory of a fit':<30}{result['peak_rss_mb']:>12.0f} MB (float32 data {result['data_mb']:.0f} MB)",
        f"{'compile':<30}{result['compile_s']:>12.2f} s",
    ]
    return "\n".join(lines + [f"note: {note}" for note in result["notes"]])


def write_whole(path: Path, text: str) -> None:
    """Write beside the target and move over it, so that a reader never finds half a file."""
    part = path.with_name(path.name + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(text)
    os.replace(part, path)


def _keep_freed_memory() -> bool:
    """Whether the C library agreed to keep freed memory; without that, page faults dominate steps of gigabytes."""
    if os.name != "posix" or not hasattr(libc := ctypes.CDLL(None), "mallopt"):
        return False
    m_trim_threshold, m_mmap_max = -1, -4
    return bool(libc.mallopt(m_mmap_max, 0)) and bool(libc.mallopt(m_trim_threshold, -1))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
