"""Make one run: load, fit, measure. Data here are public; only therefore may accuracies along training be seen."""

from __future__ import annotations

import datetime
import functools
import os
import platform
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduce.runs import Run

EVERY = 10
"""Epochs between two points of a curve."""
ORIGINAL_TEST_IMAGES = 1000
"""Of CIFAR-10's test images, the first so many count separately: the copy used here has the others from JPEG."""


CUSTOMARY = {
    "mnist": ([0.1307], [0.3081]),
    "fashion-mnist": ([0.2860], [0.3530]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
}
"""Mean and deviation of each channel that examples in the field use: numbers of the training data."""


@functools.lru_cache(maxsize=1)
def load(name: str, rows: str = "unit") -> tuple[NDArray[Any], ...]:
    """Training rows, labels, test rows, labels; see `Run.rows`."""
    from noisycgd.data.datasets import DATASETS, load_dataset

    data = load_dataset(name)
    X, y, X_test, y_test = data.X_train, data.y_train, data.X_test, data.y_test
    if X_test is None or y_test is None:
        # No test part of its own: the first 80 % train, in an order that is the same for every run.
        order = np.random.default_rng(0).permutation(data.n_rows)
        X, y, n = X[order], y[order], n_records(name)
        X, y, X_test, y_test = X[:n], y[:n], X[n:], y[n:]
    largest = np.float32(DATASETS[name].max_value)
    parts = [part.astype(np.float32) / largest for part in (X, X_test)]
    if rows == "standard":
        if name not in CUSTOMARY:
            raise ValueError(f'rows must be "unit" for data without a customary mean; got "{rows}" for {name}.')
        mean, deviation = (np.repeat(np.asarray(v, np.float32), X.shape[1] // len(v)) for v in CUSTOMARY[name])
        parts = [(part - mean) / deviation for part in parts]
    return parts[0], y, parts[1], y_test


def n_records(name: str) -> int:
    """Training records of a data set, without loading it."""
    from noisycgd.data.datasets import DATASETS

    n = DATASETS[name].n_train
    return n if DATASETS[name].n_test else int(0.8 * n)


def make(run: Run, verbose: bool = False) -> dict[str, Any]:
    """Fit, and return what is worth keeping as JSON values.

    Accuracies are shares of the test part. `epsilon` and `status` are those of the plan: what was run would promise
    them if nothing but its last iterate left, which is not so here.
    """
    import noisycgd
    from noisycgd.research import watched_iterates

    X, y, X_test, y_test = load(run.dataset, run.rows)
    estimator = getattr(noisycgd, run.estimator)
    iterative = "epochs" in run.parameters
    classes = list(range(int(y.max()) + 1))
    model = estimator(**{"epsilon": None, **run.parameters}, classes=classes, random_state=run.seed, verbose=verbose)
    curve: list[tuple[int, float]] = []

    def observe(epoch: int, iterate: Any) -> None:
        curve.append((epoch, round(float(np.mean(iterate.predict(X_test) == y_test)), 4)))

    started = time.perf_counter()
    if iterative:
        with watched_iterates(observe, every=EVERY):
            model.fit(X, y)
    else:
        model.fit(X, y)
    seconds = time.perf_counter() - started
    right = model.predict(X_test) == y_test
    # A watched fit promises nothing; what it was planned to promise is in its plan.
    plan, stated = model.plan_, model.guarantee_
    result: dict[str, Any] = {
        "accuracy": float(right.mean()),
        "per_class": [float(right[y_test == c].mean()) for c in classes],
        "epsilon": plan.epsilon if iterative else stated.epsilon,
        "delta": plan.delta,
        "status": str(getattr(plan, "status", "proved")) if iterative else str(stated.status),
        "noise_multiplier": plan.noise_multiplier,
        "peak_rate": float(plan.learning_rates.max()) if iterative else None,
        "curve": curve,
        "seconds": round(seconds, 1),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": noisycgd.__version__,
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
    }
    if run.dataset == "cifar10":
        result["accuracy_original"] = float(right[:ORIGINAL_TEST_IMAGES].mean())
    return result
