"""DP-SGD: noisy gradient descent on Poisson batches, accounted with every iterate released (THEORY section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from noisycgd._validation import check_integer, refuse
from noisycgd.training.kernel import LARGEST_SUM
from noisycgd.training.models import Parameters, RecordModel
from noisycgd.training.noise import Randomness, random_bits, standard_normal
from noisycgd.training.watching import show
from noisycgd.types import PoissonPlan

# 1 batch in 160 overflows its chunk: a larger one wastes slots in every step, a smaller one needs a second more often.
_DEVIATIONS = 2.5


class State(NamedTuple):
    """What one epoch hands to the next."""

    parameters: Parameters
    total: Parameters
    """Sum of the iterates so far, or None if it is not wanted."""


class Settings(NamedTuple):
    """Numbers of a run; arrays of shape (), so that new values compile nothing anew."""

    batch_size: jax.Array
    """Expected batch size b, the divisor of every sum."""
    l2: jax.Array
    noise_std: jax.Array
    radius: jax.Array | None


def train_poisson(
    records: Any,
    model: RecordModel,
    start: Parameters,
    plan: PoissonPlan,
    randomness: Randomness,
    on_epoch: Callable[[int], None] | None = None,
    chunk_size: int | None = None,
) -> Parameters:
    """Run the plan from a public start and return the last iterate, or the mean of all.

    Each step is theta <- theta - eta (sum / b + l2 theta + noise_std Z), where the sum is over a batch that each record
    enters with probability b / n, independently of all others. All records of a batch are used, however many they are.

    Parameters
    ----------
    records : pytree of arrays of shape (n, ...)
        What `model.clipped_sum` reads, float32 where it is real.
    model : RecordModel
        Sums gradients of norm at most `plan.gradient_bound`.
    start : pytree of arrays
        First iterate; must not depend on the records.
    plan : PoissonPlan
        Learning rates, l2, noise, sampling rate; fixed before any record was seen.
    randomness : Randomness
        Gives each epoch its own key, for the batches and the noise.
    on_epoch : callable, optional
        Called with the number of finished epochs, for a progress bar. It sees no number that depends on data.
    chunk_size : int, optional
        Records whose gradients are computed at once, at most `LARGEST_SUM`; see `default_chunk`. It changes memory
        and time only.

    Returns
    -------
    pytree of ndarrays, float32
        Like `start`.

    Raises
    ------
    ParameterError
        If the records are not as many as the plan accounts for.

    Notes
    -----
    With b = n every record is in every batch: full-batch noisy gradient descent.
    """
    _check_fits(records, plan)
    n, b = plan.n_records, plan.batch_size
    chunk = default_chunk(n, b) if chunk_size is None else check_integer("chunk_size", chunk_size, high=LARGEST_SUM)
    # The state stays float32; iterates, and the chunks of large batches, are added in float64.
    with jax.enable_x64(True):
        records = jax.tree.map(jnp.asarray, records)
        # A copy: the epochs consume their state.
        parameters = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32), start)
        # In float32 the sum would lose the last digits of each of a million iterates.
        total = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float64), parameters) if plan.average else None
        radius = None if plan.radius is None else jnp.float32(plan.radius)
        settings = Settings(jnp.float32(b), jnp.float32(plan.l2), jnp.float32(plan.noise_std), radius)
        rates = plan.learning_rates.reshape(plan.epochs, -1).astype(np.float32)
        state = State(parameters, total)

        def released(epochs: int) -> Parameters:
            if plan.average:
                steps = epochs * rates.shape[1]
                return jax.tree.map(lambda leaf: np.array(leaf / steps, np.float32), state.total)
            return jax.tree.map(np.array, state.parameters)

        for e in range(plan.epochs):
            state = run_poisson_epoch(
                state,
                records,
                model,
                settings,
                jnp.asarray(rates[e]),
                randomness.key(),
                sampling_rate=plan.sampling_rate,
                chunk_size=chunk,
            )
            # Waiting here keeps Ctrl-C prompt and the progress bar true; an epoch is long beside one dispatch.
            jax.tree.map(lambda leaf: leaf.block_until_ready(), state)
            if on_epoch is not None:
                on_epoch(e + 1)
            show(e + 1, plan.epochs, partial(released, e + 1))
        return released(plan.epochs)


@partial(jax.jit, donate_argnums=0, static_argnames=("sampling_rate", "chunk_size"))
def run_poisson_epoch(
    state: State,
    records: Any,
    model: RecordModel,
    settings: Settings,
    learning_rates: jax.Array,
    key: jax.Array,
    *,
    sampling_rate: float,
    chunk_size: int,
) -> State:
    """One step per learning rate; see `train_poisson`."""
    n = jax.tree.leaves(records)[0].shape[0]
    sampling_key, noise_key = step_keys(key)

    def step(state: State, now: tuple[jax.Array, jax.Array]) -> tuple[State, None]:
        t, eta = now
        theta = state.parameters
        mask = sample_mask(jax.random.fold_in(sampling_key, t), n, sampling_rate)
        gradient = masked_sum(theta, records, model, mask, chunk_size, wide=sampling_rate * n > LARGEST_SUM)
        noise = normal_like(jax.random.fold_in(noise_key, t), theta)

        def moved(v: jax.Array, g: jax.Array, z: jax.Array) -> jax.Array:
            # Rounded after the noise, not before: one of 10^6 records could otherwise move a sum more than is counted.
            return (v - eta * (g / settings.batch_size + settings.l2 * v + settings.noise_std * z)).astype(v.dtype)

        theta = jax.tree.map(moved, theta, gradient, noise)
        if settings.radius is not None:
            theta = project(theta, settings.radius)
        total = None if state.total is None else jax.tree.map(jnp.add, state.total, theta)
        return State(theta, total), None

    steps = jnp.arange(len(learning_rates), dtype=jnp.int32)
    last: State = jax.lax.scan(step, state, (steps, learning_rates))[0]
    return last


def step_keys(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Keys of an epoch's two streams, batches and noise; step t uses `fold_in(stream, t)` of each."""
    return jax.random.fold_in(key, 0), jax.random.fold_in(key, 1)


def sample_mask(key: jax.Array, n_records: int, rate: float) -> jax.Array:
    """(n,) bool: each record independently in the batch, with probability floor(rate 2^32) / 2^32.

    So the rate used is never above the one accounted for. Less is safe: sampling at a lower rate is sampling at `rate`
    or, with some probability, not at all, and that mixture divulges no more (joint convexity of the divergence).
    """
    threshold = math.floor(rate * 2**32)
    if threshold == 2**32:
        return jnp.ones(n_records, bool)
    return random_bits(key, (n_records,)) < np.uint32(threshold)


def masked_sum(
    parameters: Parameters, records: Any, model: RecordModel, mask: jax.Array, chunk_size: int, *, wide: bool
) -> Parameters:
    """Sum of the gradients of all records in a mask of shape (n,), `chunk_size` of them at a time.

    Chunks are added in float64 if `wide`, as they must be where most batches exceed `LARGEST_SUM` (THEORY section 5).
    """
    running = jnp.cumsum(mask, dtype=jnp.int32)

    def unfinished(state: tuple[jax.Array, Parameters]) -> jax.Array:
        return state[0] < running[-1]

    def add(state: tuple[jax.Array, Parameters]) -> tuple[jax.Array, Parameters]:
        first, total = state
        chunk, present = fill_slots(records, running, first + jnp.arange(chunk_size, dtype=jnp.int32))
        part = model.clipped_sum(parameters, chunk, present)
        return first + chunk_size, jax.tree.map(jnp.add, total, part)

    nothing = jnp.int32(0), jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, float if wide else leaf.dtype), parameters)
    return jax.lax.while_loop(unfinished, add, nothing)[1]


def fill_slots(records: Any, running: jax.Array, slots: jax.Array) -> tuple[Any, jax.Array]:
    """Records in some slots of a batch, and whether there are any there.

    Parameters
    ----------
    records : pytree of Arrays of shape (n, ...)
        All records.
    running : Array of shape (n,)
        Number of records of the batch up to each one, itself included.
    slots : Array of shape (c,)
        Places in the batch, from 0 on.
    """
    # Slot s holds the first record up to which more than s are in the batch. The search is unrolled because XLA runs
    # the steps of a loop one by one and fuses these.
    chosen = jnp.searchsorted(running, slots, side="right", method="scan_unrolled")
    return jax.tree.map(lambda leaf: leaf.at[chosen].get(mode="clip"), records), slots < running[-1]


def normal_like(key: jax.Array, parameters: Parameters) -> Parameters:
    """Standard normals in the shape of the parameters, each leaf from a key of its own; see `standard_normal`."""
    leaves, structure = jax.tree.flatten(parameters)
    keys = [jax.random.fold_in(key, i) for i in range(len(leaves))]
    noise = [standard_normal(k, leaf.shape).astype(leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, noise)


def project(parameters: Parameters, radius: jax.Array) -> Parameters:
    """The nearest point of the ball around 0, in the l2 norm over all leaves together."""
    norm = jnp.sqrt(sum(jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(parameters)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1, radius / norm), parameters)


def default_chunk(n_records: int, batch_size: int) -> int:
    """Chunk size, from n and b alone: equal chunks of moderate size that together just hold almost every batch."""
    deviation = math.sqrt(batch_size * (1 - batch_size / n_records))
    capacity = min(n_records, math.ceil(batch_size + _DEVIATIONS * deviation))
    return math.ceil(capacity / math.ceil(capacity / LARGEST_SUM))


def _check_fits(records: Any, plan: PoissonPlan) -> None:
    """Refuse records whose number is not the one that the sampling rate was accounted for."""
    for leaf in jax.tree.leaves(records):
        found = np.shape(leaf)[0] if np.ndim(leaf) else None
        if found != plan.n_records:
            refuse("number of records", f"{plan.n_records} as planned", found, "Plan with n_records of these data.")
