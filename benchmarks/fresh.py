"""What can only be measured in a process of its own: the peak memory of a fit, and the time to compile.

`python -m benchmarks.fresh memory '{"n": 60000, ...}'` prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problem import Sizes


def fit_memory(sizes: Sizes) -> dict[str, float]:
    """Peak resident memory of a process that fits `ConvexReLUClassifier` for two epochs on uint8 rows, like MNIST."""
    from noisycgd import ConvexReLUClassifier

    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (sizes.n, sizes.d), dtype=np.uint8)
    y = rng.integers(0, sizes.q, sizes.n)
    ConvexReLUClassifier(
        epsilon=4.0, delta=1e-5, epochs=2, batch_size=sizes.b, n_hyperplanes=sizes.P, classes=range(sizes.q)
    ).fit(X, y)
    return {"peak_rss_mb": _peak_bytes() / 1e6}


def compile_time(sizes: Sizes) -> dict[str, float]:
    """Seconds that the first epoch takes longer than a later one: tracing and compiling."""
    from benchmarks.kernel import PackageStep
    from benchmarks.problem import make_problem

    contender = PackageStep(make_problem(sizes))
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        contender.run()
        seconds.append(time.perf_counter() - start)
    return {"compile_s": seconds[0] - float(np.median(seconds[1:]))}


MEASURES = {"memory": fit_memory, "compile": compile_time}


def measure_afresh(measure: str, sizes: Sizes) -> dict[str, float]:
    """Run one of `MEASURES` in a new process, without a compilation cache."""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fresh", measure, json.dumps(asdict(sizes))],
        cwd=Path(__file__).resolve().parents[1],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _peak_bytes() -> float:
    # Linux carries ru_maxrss over from the process that forked, so that a large parent would be counted here.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024.0 * int(line.split()[1])
    import resource

    peak: Any = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](Sizes(**json.loads(sys.argv[2])))))
