"""`python -m benchmarks.sampling`: what exact Poisson batches cost beside fixed and beside truncated ones.

The same gated-linear model, noise and update throughout; only how a batch is formed differs. Truncated batches drop
what does not fit in one chunk, so that records no longer enter independently: the accounting of Poisson sampling does
not cover them, and they are here for their speed alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from benchmarks.kernel import PackageStep
from benchmarks.network import circumstances, run_command
from benchmarks.problem import FULL, QUICK, Contender, Problem, Sizes, make_problem
from benchmarks.step import describe_machine, quartiles, race
from noisycgd.contrasts import ContrastLoss, contrast_basis
from noisycgd.losses import MarginSoftmax
from noisycgd.training.models import GatedLinearModel, GatedRecords
from noisycgd.training.noise import system_randomness
from noisycgd.training.poisson import (
    Settings,
    State,
    default_chunk,
    fill_slots,
    normal_like,
    run_poisson_epoch,
    sample_mask,
    step_keys,
)

DEVIATIONS = (2, 3, 4)
"""Standard deviations of the batch size above its mean in the single chunk of a truncated batch."""


@partial(jax.jit, donate_argnums=0, static_argnames=("sampling_rate", "chunk_size"))
def truncated_epoch(
    weights: jax.Array,
    records: GatedRecords,
    model: GatedLinearModel,
    settings: Settings,
    learning_rates: jax.Array,
    key: jax.Array,
    *,
    sampling_rate: float,
    chunk_size: int,
) -> jax.Array:
    """`run_poisson_epoch` with one chunk per step, whose records beyond it are dropped: not private as accounted."""
    sampling_key, noise_key = step_keys(key)

    def step(theta: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        t, eta = now
        mask = sample_mask(jax.random.fold_in(sampling_key, t), len(records.rows), sampling_rate)
        slots = jnp.arange(chunk_size, dtype=jnp.int32)
        gradient = model.clipped_sum(theta, *fill_slots(records, jnp.cumsum(mask, dtype=jnp.int32), slots))
        noise = normal_like(jax.random.fold_in(noise_key, t), theta)
        return theta - eta * (gradient / settings.batch_size + settings.noise_std * noise), None

    steps = jnp.arange(len(learning_rates), dtype=jnp.int32)
    last: jax.Array = jax.lax.scan(step, weights, (steps, learning_rates))[0]
    return last


def step_arguments(problem: Problem) -> tuple[GatedRecords, GatedLinearModel, Settings, jax.Array]:
    """What all Poisson contenders share: records, model, settings and an epoch's learning rates."""
    sizes = problem.sizes
    flat = (a.reshape(sizes.n, *a.shape[2:]) for a in (problem.rows, problem.patterns, problem.labels))
    basis = jnp.asarray(contrast_basis(MarginSoftmax(), sizes.q))
    return (
        GatedRecords(*(jnp.asarray(a) for a in flat), jnp.ones(sizes.n, jnp.float32)),
        GatedLinearModel(jnp.asarray(problem.features.levels), ContrastLoss(MarginSoftmax(), basis)),
        Settings(jnp.float32(sizes.b), jnp.float32(0), jnp.float32(problem.noise_std), None),
        jnp.full(sizes.k, problem.learning_rate, jnp.float32),
    )


class PoissonStep:
    """A contender on Poisson batches; one turn is one epoch."""

    def __init__(self, sizes: Sizes, arguments: tuple[Any, ...], chunk_size: int, *, truncated: bool) -> None:
        self.sampler, self.chunk_size, self.steps = "truncated" if truncated else "exact", chunk_size, sizes.k
        self.name = f"{self.sampler}_{chunk_size}"
        self._truncated, self._arguments = truncated, arguments
        self._options = {"sampling_rate": sizes.b / sizes.n, "chunk_size": chunk_size}
        self._randomness = system_randomness()
        kept = len(contrast_basis(MarginSoftmax(), sizes.q))
        self.weights = jnp.zeros((sizes.n_gates * kept, sizes.d), jnp.float32)

    def rouse(self) -> None:
        """Nothing: a turn of a whole epoch rouses itself, at its own cost."""

    def run(self) -> None:
        """One epoch."""
        key = self._randomness.key()
        with jax.enable_x64(True):  # as `train_poisson` does
            if self._truncated:
                self.weights = truncated_epoch(self.weights, *self._arguments, key, **self._options)
            else:
                state = run_poisson_epoch(State(self.weights, None), *self._arguments, key, **self._options)
                self.weights = state.parameters
            self.weights.block_until_ready()


def slot_shares(sizes: Sizes, chunk_size: int, *, truncated: bool) -> dict[str, float]:
    """Expected shares, from the binomial law of the batch size.

    Returns
    -------
    dict
        `stragglers`: steps whose batch exceeds one chunk. `wasted`: slots computed without a record in them.
        `dropped`: sampled records that are not used.
    """
    B = np.arange(sizes.n + 1)
    law = stats.binom(sizes.n, sizes.b / sizes.n)
    probability = law.pmf(B)
    slots = np.full(len(B), chunk_size) if truncated else -(-B // chunk_size) * chunk_size
    used = np.minimum(B, slots)
    return {
        "stragglers": float(law.sf(chunk_size)),
        "wasted": float(1 - probability @ used / (probability @ slots)),
        "dropped": float(1 - probability @ used / sizes.b) if truncated else 0.0,
    }


def make_contenders(problem: Problem) -> list[Any]:
    """Fixed batches first, then exact and truncated Poisson batches of several chunk sizes."""
    sizes, arguments = problem.sizes, step_arguments(problem)
    n, b = sizes.n, sizes.b
    deviation = np.sqrt(b * (1 - b / n))
    single = sorted({int(np.ceil(b + z * deviation)) for z in DEVIATIONS})
    exact = sorted({b // 8, b // 4, b // 2, b, *single, default_chunk(n, b)})
    return [
        PackageStep(problem),
        *(PoissonStep(sizes, arguments, c, truncated=False) for c in exact),
        *(PoissonStep(sizes, arguments, c, truncated=True) for c in single),
    ]


def measure(sizes: Sizes, rounds: int) -> dict[str, Any]:
    """Every number of the benchmark as one JSON-ready dictionary; README.md says what each key means."""
    machine = describe_machine()
    contenders: list[Contender | PoissonStep] = make_contenders(make_problem(sizes))
    times = {name: np.array(turns) for name, turns in race(contenders, rounds).items()}
    fixed = times[PackageStep.name]
    rows = []
    for contender in contenders:
        seconds, chunk = times[contender.name], sizes.b
        sampler, shares = "fixed", {"stragglers": 0.0, "wasted": 0.0, "dropped": 0.0}
        if isinstance(contender, PoissonStep):
            sampler, chunk = contender.sampler, contender.chunk_size
            shares = slot_shares(sizes, chunk, truncated=sampler == "truncated")
        rows.append(
            {
                "sampler": sampler,
                "chunk_size": chunk,
                "is_default": sampler == "exact" and chunk == default_chunk(sizes.n, sizes.b),
                "records_per_s": quartiles(sizes.b / seconds),
                "step_ms": quartiles(1e3 * seconds),
                "ratio_to_fixed": quartiles(seconds / fixed),
            }
            | shares
        )
    default = next(row for row in rows if row["is_default"])
    return {
        "benchmark": "sampling",
        "sizes": asdict(sizes),
        "rounds": rounds,
        "default_chunk": default["chunk_size"],
        "ratio_to_fixed": default["ratio_to_fixed"]["median"],
        "samplers": rows,
    } | circumstances(machine, [])


def table(result: dict[str, Any]) -> str:
    """The result for people: one line per sampler and chunk size."""
    heads = (
        ("chunk", 6),
        ("records/s", 12),
        ("ms", 8),
        ("x fixed", 9),
        ("stragglers", 12),
        ("wasted", 9),
        ("dropped", 10),
    )
    lines = [f"{'sampler':<12}" + "".join(f"{head:>{width}}" for head, width in heads)]
    for row in result["samplers"]:
        lines.append(
            f"{row['sampler'] + ' *' * row['is_default']:<12}{row['chunk_size']:>6}"
            f"{row['records_per_s']['median']:>12.0f}{row['step_ms']['median']:>8.2f}"
            f"{row['ratio_to_fixed']['median']:>9.3f}{row['stragglers']:>12.3%}{row['wasted']:>9.2%}{row['dropped']:>10.4%}"
        )
    lines += [
        "",
        "* the default. Truncated batches drop records, which the accounting of Poisson sampling does not cover.",
    ]
    return "\n".join(lines + [f"note: {note}" for note in result["notes"]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write to a file if asked to."""

    def measured(options: argparse.Namespace) -> dict[str, Any]:
        return measure(QUICK if options.quick else FULL, options.rounds)

    return run_command("sampling", __doc__, measured, table, arguments)


if __name__ == "__main__":
    sys.exit(main())
