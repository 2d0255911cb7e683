"""Several runs of NoisyCGD at once, as a private selection needs them: equal in shape, different in all else.

Each run gets the weights that `train_cyclic` would give it, in one of three ways, whichever was measured to be fastest
for the size of a step (`python -m benchmarks.trials`). A tiny step waits for its dispatch: one program steps all runs.
A small one keeps one core busy: every core has a run of its own. A large one keeps all cores busy: runs take turns.

Every run has batches of its own. One program whose runs share their rows was tried and is hardly faster, while runs
that share a permutation do not compose as independent mixtures over it (THEORY section 1).
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import refuse
from noisycgd.contrasts import ContrastLoss, contrast_basis, to_logit_weights
from noisycgd.data.batches import FixedBatches
from noisycgd.losses import Loss
from noisycgd.training.cyclic import check_fits, train_cyclic
from noisycgd.training.kernel import StepBatch, run_epoch
from noisycgd.training.noise import Randomness
from noisycgd.types import Order, Plan

# Multiplications of one step, 2 b d M q', up to which one program is faster than a core for each run, and up to which
# a step leaves cores idle. Both are of a CPU; factors of two do not matter.
TINY_STEP = 200_000
SMALL_STEP = 20_000_000

# Tiny steps of all runs together that earn back the second that one more program takes to compile.
WORTH_COMPILING = 50_000

# Bytes that the runs of one program may take together.
PROGRAM_BYTES = 1 << 30


class Way(StrEnum):
    """How several runs share a machine."""

    PROGRAM = "program"
    """One compiled program steps all of them."""
    THREADS = "threads"
    """Each core takes a run of its own; all execute one compiled program."""
    TURNS = "turns"
    """One after the other, each on all cores."""


class Shape(NamedTuple):
    """What runs must have in common."""

    k: int  # batches in an epoch
    b: int  # slots of a batch
    d: int  # width of a row
    M: int  # gates
    q: int  # outputs
    epochs: int
    loss: type[Loss]  # its numbers may differ

    @property
    def trained_outputs(self) -> int:
        """Q' of `noisycgd.contrasts.contrast_basis`."""
        return self.q - 1 if self.loss.shift_invariant else self.q

    @property
    def step_multiplications(self) -> int:
        """2 b d M q', those of the two products of a step."""
        return 2 * self.b * self.d * self.M * self.trained_outputs

    @property
    def runs_per_program(self) -> int:
        """How many runs fit into 1 GB: two copies of their batches, six arrays like weights and four like products.

        The second copy is there while the batches are stacked. A caller that builds batches for its runs does well to
        build and hand over as many at once, not more.
        """
        batches = self.k * self.b * (4 * self.d + self.M + 8)
        states = 4 * (6 * self.d + 4 * self.b) * self.M * self.trained_outputs
        return max(1, PROGRAM_BYTES // (2 * batches + states))


def fastest_way(shape: Shape, n_runs: int, *, cores: int | None = None, backend: str | None = None) -> Way:
    """The way that `train_cyclic_many` takes, from sizes alone.

    Parameters
    ----------
    shape : Shape
        Of each run.
    n_runs : int
        How many there are.
    cores : int or None
        Cores of the CPU; None for those that this process may use.
    backend : str or None
        JAX's name of the device; None for the default one. On any but "cpu" a step is mostly launches, and one program
        launches once for all runs; that choice was not measured.
    """
    if n_runs < 2:
        return Way.TURNS
    tiny = shape.step_multiplications <= TINY_STEP and n_runs * shape.k * shape.epochs >= WORTH_COMPILING
    if tiny or (backend or jax.default_backend()) != "cpu":
        return Way.PROGRAM
    idle_cores = (cores or _usable_cores()) > 1 and shape.step_multiplications <= SMALL_STEP
    return Way.THREADS if idle_cores else Way.TURNS


def train_cyclic_many(
    batches: Sequence[FixedBatches],
    levels: Sequence[NDArray[np.float32]],
    losses: Sequence[Loss],
    plans: Sequence[Plan],
    n_outputs: int,
    randomnesses: Sequence[Randomness],
    on_epoch: Callable[[int], None] | None = None,
    way: Way | None = None,
) -> list[NDArray[np.float32]]:
    """Run T plans of equal shape, each as `train_cyclic` would; each sequence has one entry per run.

    Parameters
    ----------
    batches : sequence of FixedBatches
        Of equal shape, each in an order of its own and with the gates of its own hyperplanes.
    levels : sequence of ndarray of shape (M,)
        Weight of each gate.
    losses : sequence of Loss
        Of one class; margins and clips may differ.
    plans : sequence of Plan
        Equal in batches per epoch, batch size and epochs; learning rates, l2 and noise may differ.
    n_outputs : int
        q.
    randomnesses : sequence of Randomness
        Each run's own: it gives one key per epoch, as to `train_cyclic`.
    on_epoch : callable, optional
        Called with the number of finished epochs of all runs together, at most T E. It sees no number that depends on
        data; it may be called from another thread, but by one at a time.
    way : Way, optional
        How to share the machine; by default `fastest_way`. It changes no result beyond rounding.

    Returns
    -------
    list of ndarray of shape (d, M q), float32
        Last iterates in the order of the runs, equal to those of `train_cyclic` within 1e-5 of their largest entry.
        All other iterates stay inside.

    Raises
    ------
    ParameterError
        If runs differ in shape, if a run's batches or loss are not those that its plan accounts for, or if runs share
        rows although their plans average over a permutation.

    Notes
    -----
    One program holds as many runs as fit into 1 GB; more are done in groups of about equal size.
    """
    if not len(batches) == len(levels) == len(losses) == len(plans) == len(randomnesses):
        lengths = [len(s) for s in (batches, levels, losses, plans, randomnesses)]
        refuse("batches, levels, losses, plans and randomnesses", "of equal length", lengths, "Give one each per run.")
    if not plans:
        return []
    shape = _common_shape(batches, losses, plans, n_outputs)
    for each, loss, plan in zip(batches, losses, plans, strict=True):
        check_fits(each, loss, plan, n_outputs)
    _check_own_order(batches, plans)
    T = len(plans)
    way = fastest_way(shape, T) if way is None else way
    count = _Counter(on_epoch)
    runs = [_Run(*run) for run in zip(batches, levels, losses, plans, randomnesses, strict=True)]
    if way is not Way.PROGRAM:
        return _run_threads(runs, n_outputs, count, _usable_cores() if way is Way.THREADS else 1)
    n_groups = math.ceil(T / shape.runs_per_program)
    results = []
    for members in np.array_split(np.arange(T), n_groups):
        with jax.enable_x64(True):
            results += _run_program([runs[t] for t in members], n_outputs, count)
    return results


class _Run(NamedTuple):
    batches: FixedBatches
    levels: NDArray[np.float32]
    loss: Loss
    plan: Plan
    randomness: Randomness


class _Counter:
    """Adds up finished epochs, in whichever thread they finish; raises in all threads once stopped."""

    def __init__(self, on_epoch: Callable[[int], None] | None) -> None:
        self._on_epoch = on_epoch
        self._lock = threading.Lock()
        self._finished = 0
        self.stopped = False

    def add(self, epochs: int) -> None:
        """Count and report; CancelledError if another thread failed."""
        with self._lock:
            if self.stopped:
                raise CancelledError
            self._finished += epochs
            if self._on_epoch is None:
                return
            try:
                self._on_epoch(self._finished)
            except BaseException:
                self.stopped = True
                raise


@partial(jax.jit, donate_argnums=0)
def run_epoch_of_each(
    weights: jax.Array,
    batches: StepBatch,
    levels: jax.Array,
    losses: Any,
    basis: jax.Array,
    l2: jax.Array,
    noise_std: jax.Array,
    keys: tuple[jax.Array, ...],
) -> jax.Array:
    """`run_epoch` for T runs: (T, M q', d) weights, and batches with axes (k, T, ...), in the order that a scan reads.

    `losses` is a loss whose numbers have shape (T,). Keys come one by one, since stacking them outside costs more than
    a tiny epoch.
    """

    def run(theta: jax.Array, batch: StepBatch, level: jax.Array, loss: Loss, *numbers: jax.Array) -> jax.Array:
        stepped: jax.Array = run_epoch(theta, batch, level, ContrastLoss(loss, basis), *numbers)
        return stepped

    axes = StepBatch(rows=1, patterns=1, targets=1, scales=1, learning_rate=1, position=None)  # type: ignore[arg-type]
    last: jax.Array = jax.vmap(run, in_axes=(0, axes, 0, 0, 0, 0, 0))(
        weights, batches, levels, losses, l2, noise_std, jnp.stack(keys)
    )
    return last


def _run_program(runs: Sequence[_Run], n_outputs: int, count: _Counter) -> list[NDArray[np.float32]]:
    """All runs in one program, one epoch per call."""
    plan = runs[0].plan
    k, E, d = plan.batches_per_epoch, plan.epochs, runs[0].batches.rows.shape[2]
    rates = np.stack([run.plan.learning_rates.reshape(E, k) for run in runs], axis=2)
    epoch = StepBatch(
        **{
            name: jnp.asarray(np.stack([getattr(run.batches, name) for run in runs], axis=1))
            for name in ("rows", "patterns", "targets", "scales")
        },
        learning_rate=jnp.asarray(rates[0]),
        position=jnp.arange(k, dtype=jnp.int32),
    )
    basis = contrast_basis(runs[0].loss, n_outputs)
    levels = jnp.asarray(np.stack([run.levels for run in runs]))
    # float32, the precision that a lone loss's Python numbers take beside float32 logits.
    losses = jax.tree.map(lambda *numbers: jnp.asarray(numbers, jnp.float32), *(run.loss for run in runs))
    l2 = jnp.asarray([run.plan.l2 for run in runs], jnp.float64)
    noise_std = jnp.asarray([run.plan.noise_std for run in runs], jnp.float64)
    weights = jnp.zeros((len(runs), levels.shape[1] * len(basis), d), jnp.float64)
    contrasts = jnp.asarray(basis)
    for e in range(E):
        epoch = epoch._replace(learning_rate=jnp.asarray(rates[e]))
        keys = tuple(run.randomness.key() for run in runs)
        weights = run_epoch_of_each(weights, epoch, levels, losses, contrasts, l2, noise_std, keys)
        weights.block_until_ready()
        count.add(len(runs))
    return [to_logit_weights(each, basis) for each in np.array(weights)]


def _run_threads(runs: Sequence[_Run], n_outputs: int, count: _Counter, threads: int) -> list[NDArray[np.float32]]:
    """`train_cyclic` for each run, `threads` of them at a time."""

    def train(run: _Run) -> NDArray[np.float32]:
        return train_cyclic(
            run.batches, run.levels, run.loss, run.plan, n_outputs, run.randomness, lambda _: count.add(1)
        )

    if threads == 1:
        return [train(run) for run in runs]
    with ThreadPoolExecutor(min(threads, len(runs))) as pool:
        futures = [pool.submit(train, run) for run in runs]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # After an error here or in a run, the others end with the epoch that they are in.
            count.stopped = not all(future.done() for future in futures)
            pool.shutdown(cancel_futures=True)
    for future in futures:
        if not future.cancelled() and not isinstance(future.exception(), CancelledError):
            future.result()
    return [future.result() for future in futures]


def _common_shape(
    batches: Sequence[FixedBatches], losses: Sequence[Loss], plans: Sequence[Plan], n_outputs: int
) -> Shape:
    shapes = [
        Shape(*_sizes(each), n_outputs, plan.epochs, type(loss))
        for each, loss, plan in zip(batches, losses, plans, strict=True)
    ]
    for shape in shapes:
        if shape != shapes[0]:
            refuse(
                "runs",
                f"equal in shape (all as the first, {_shown(shapes[0])})",
                _shown(shape),
                "Group them by shape, or train each with train_cyclic.",
            )
    return shapes[0]


def _sizes(batches: FixedBatches) -> tuple[int, int, int, int]:
    k, b, d = batches.rows.shape
    return k, b, d, batches.patterns.shape[2]


def _shown(shape: Shape) -> str:
    numbers = ", ".join(f"{name}={value}" for name, value in shape._asdict().items() if name != "loss")
    return f"{numbers}, {shape.loss.__name__}"


def _check_own_order(batches: Sequence[FixedBatches], plans: Sequence[Plan]) -> None:
    """Refuse runs that share rows, hence a permutation, unless all plans count the worst position."""
    shared = len({id(each.rows) for each in batches}) < len(batches)
    if shared and any(plan.order is not Order.GIVEN for plan in plans):
        refuse(
            "batches",
            "permuted independently for each run where a plan averages over the permutation",
            "rows that several runs share",
            "Permute for each run, or plan with the given order, which counts the worst position.",
        )


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
