"""The gated-linear kernel: one step of noisy gradient descent is two products, an epilogue and one noise draw.

A record's gradient is phi(x) (x) r with phi(x) = [g_1(x) x, ..., g_M(x) x] and residual r = dh/dz, so its norm is
||phi(x)|| ||r|| and is bounded by the loss and the rows alone: no per-record gradient is ever formed, none is clipped.

While they train, weights stand as (M q, d), one row per gate and output. So both products read the records in the order
in which they lie. With a (d, M q) state XLA copies each batch, transposed; beside that a model of one gate does little
else.

Products are float32, the weights between steps float64. A step moves a weight by far less than its size, the less the
later under a decaying schedule: in float32, rounding alone would come to 0.4 of what one record can move. Large batches
are added up in parts, these in float64: rounding grows with the number of records under one float32 sum, and could
exceed what one of 10^6 records can move by a part in 40.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from noisycgd.training.noise import standard_normal

# Accelerators would otherwise round the factors of a float32 product to TF32 or bfloat16 (THEORY section 5).
_multiply = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

LARGEST_SUM = 2048
"""Records under one float32 sum, at most (THEORY section 5)."""


class Residual(Protocol):
    """The part of a loss that a step needs: a pytree that maps (b, q) logits to their (b, q) derivative."""

    def residual(self, logits: jax.Array, targets: jax.Array, scale: jax.Array) -> jax.Array:
        """See `noisycgd.losses.Loss.residual`."""


class StepBatch(NamedTuple):
    """What one step reads; with a leading axis k, what one epoch scans over."""

    rows: jax.Array  # (b, d)
    patterns: jax.Array  # (b, M) int8
    targets: jax.Array  # (b,)
    scales: jax.Array  # (b,)
    learning_rate: jax.Array  # ()
    position: jax.Array  # () int32, the batch's place in its epoch


def summed_gradient(weights: jax.Array, batch: StepBatch, levels: jax.Array, loss: Residual) -> jax.Array:
    """(M q, d) weights -> (M q, d) sum over the batch of the records' gradients (THEORY section 3).

    A batch of more than `LARGEST_SUM` records is taken in equal parts, whose sums are added in float64.
    """
    b = len(batch.rows)
    n_parts = math.ceil(b / LARGEST_SUM)
    if n_parts == 1:
        return _sum_of_part(weights, batch, levels, loss)
    size = b // n_parts

    def part(start: int | jax.Array, size: int) -> jax.Array:
        rows, patterns, targets, scales = (
            jax.lax.dynamic_slice_in_dim(leaf, start, size)
            for leaf in (batch.rows, batch.patterns, batch.targets, batch.scales)
        )
        taken = batch._replace(rows=rows, patterns=patterns, targets=targets, scales=scales)
        return _sum_of_part(weights, taken, levels, loss).astype(float)

    total: jax.Array = jax.lax.fori_loop(
        0, n_parts, lambda i, total: total + part(i * size, size), jnp.zeros(weights.shape, float)
    )
    left = b - n_parts * size
    return total + part(n_parts * size, left) if left else total


def _sum_of_part(weights: jax.Array, batch: StepBatch, levels: jax.Array, loss: Residual) -> jax.Array:
    """The sum in one pass.

    Gates are applied by reshape, multiply and sum: XLA fuses these into one pass beside the products, which an
    einsum over the same axes would turn into many small products.
    """
    b, M = batch.patterns.shape
    gates = batch.patterns.astype(weights.dtype) * levels
    logits = (_multiply(batch.rows, weights.T).reshape(b, M, -1) * gates[:, :, None]).sum(axis=1)
    residual = loss.residual(logits, batch.targets, batch.scales)
    product: jax.Array = _multiply((gates[:, :, None] * residual[:, None, :]).reshape(b, -1).T, batch.rows)
    return product


@partial(jax.jit, donate_argnums=0)
def run_epoch(
    weights: jax.Array,
    batches: StepBatch,
    levels: jax.Array,
    loss: Residual,
    l2: jax.Array,
    noise_std: jax.Array,
    key: jax.Array,
) -> jax.Array:
    """One pass over the k fixed batches: theta <- theta - eta (sum / b + l2 theta + noise_std Z) (THEORY section 0).

    The divisor is the nominal b, also for a batch filled up with zero rows. The update is made in the weights' own
    precision.
    """
    nominal = batches.rows.shape[1]

    def step(theta: jax.Array, batch: StepBatch) -> tuple[jax.Array, None]:
        noise = standard_normal(jax.random.fold_in(key, batch.position), theta.shape)
        gradient = summed_gradient(theta.astype(batch.rows.dtype), batch, levels, loss) / nominal
        return theta - batch.learning_rate * (gradient + l2 * theta + noise_std * noise), None

    last: jax.Array = jax.lax.scan(step, weights, batches)[0]
    return last
