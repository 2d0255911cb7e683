import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

# `python -m pytest` finds `reproduce` by itself, `pytest` does not.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from reproduce.experiments import Experiment
from reproduce.methods import Method, methods
from reproduce.runs import Store

RATES = (0.01, 0.1, 1.0)
SHARED = {"batch_size": 200, "n_hyperplanes": 4, "schedule": "constant", "loss": "norm_clipped_softmax"}
METHODS = {
    "sampled": Method(
        "sampled", "DP-SGD", "ConvexReLUClassifier", {"method": "dpsgd", **SHARED}, rates=RATES, first_rate=0.1
    ),
    "cyclic": Method(
        "cyclic",
        "NoisyCGD",
        "ConvexReLUClassifier",
        {"batch_order": "given", "allow_unproven": True, "l2": "<equal base>", **SHARED},
        rates=RATES,
        first_rate=0.1,
    ),
    "defaults": Method("defaults", "ours", "LinearClassifier", {"batch_size": 200}),
    "sums": Method("sums", "SSP", "SSPClassifier", {"epsilon": "<label>", "clip": "data"}),
}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture(autouse=True)
def few_methods(monkeypatch):
    """Methods that train on `digits` in a second, beside those that ship."""
    monkeypatch.setattr("reproduce.experiments.methods", lambda: {**methods(), **METHODS})


@pytest.fixture
def experiment():
    """Two methods on `digits` at one noise level, two seeds, three epochs."""
    return Experiment(
        name="tiny",
        title="A tiny table",
        source="Table 0",
        kind="table",
        methods=("sampled", "defaults"),
        datasets=("digits",),
        noise_multipliers=(5.0,),
        seeds={"digits": 2},
        epochs=3,
        paper={"sampled": {"digits": {"5": [90.0, 0.5]}}},
    )


def found(run, accuracy=0.9, **more):
    """A result as `training.make` returns it; a later seed has a larger epsilon."""
    status = "void" if run.parameters.get("clip") == "data" else "proved"
    noise = run.parameters.get("noise_multiplier", 5.0)
    values = {
        "accuracy": accuracy,
        "per_class": [accuracy + 0.001 * (c - 4.5) for c in range(10)],
        "epsilon": 1.25 + 0.01 * run.seed,
        "delta": 1e-5,
        "status": "unproven" if run.parameters.get("allow_unproven") else status,
        "noise_multiplier": noise,
        "curve": [[e, round(accuracy - 0.1 / e, 4)] for e in range(1, run.epochs + 1)] if run.epochs > 1 else [],
        "seconds": 1.0,
    }
    return values | more


@pytest.fixture
def result():
    return found


@pytest.fixture
def fill():
    """Make every run of an experiment; accuracies are drawn around 0.9 and best at the middle learning rate."""

    def filled(experiment, store, seeds=None, **more):
        rng = np.random.default_rng(0)
        while todo := experiment.todo(store, seeds):
            for run in todo:
                rate = run.parameters.get("learning_rate", 0.1)
                worse = 0.01 * abs(np.log10(rate) + 1) if isinstance(rate, float) else 0.0
                store.add(run, found(run, 0.9 - worse + 0.001 * float(rng.standard_normal()), **more))
        return store

    return filled


@pytest.fixture
def every_kind(experiment):
    """One small experiment of each kind that needs runs."""
    both = replace(experiment, methods=("sampled", "cyclic", "defaults"), noise_multipliers=(15.0, 5.0))
    return {
        "table": replace(both, methods=("sums", *both.methods)),
        "curves": replace(both, kind="curves", note="Points are hypothetical."),
        "ablation": replace(both, kind="ablation", against="batch_size", vary={"all": {"batch_size": [100, 200]}}),
        "along": replace(both, kind="ablation", vary={"sampled": {"n_hyperplanes": [2, 4]}}),
        "selection": replace(
            both,
            kind="selection",
            methods=("sampled", "cyclic"),
            rates=RATES,
            vary={"sampled": {"n_hyperplanes": [2, 4]}},
            paper={"sampled": {"digits": {"15": [80.0, 0.3]}}},
        ),
        "per-class": replace(both, kind="per-class"),
    }
