"""What a training loop asks of a model: the sum of its records' gradients, each of bounded norm."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp

from noisycgd.training.kernel import Residual, StepBatch, summed_gradient

Parameters: TypeAlias = Any
"""A pytree of float32 arrays."""


class RecordModel(Protocol):
    """A pytree that turns parameters and a chunk of records into a sum of bounded gradients."""

    def clipped_sum(self, parameters: Parameters, records: Any, present: jax.Array) -> Parameters:
        """Sum of the gradients of those records of the chunk that are present, each of norm at most C.

        Parameters
        ----------
        parameters : pytree
            As in the result.
        records : pytree of Arrays of shape (c, ...)
            A chunk of records; what it holds is the model's own.
        present : Array of shape (c,), bool
            Records that are absent add nothing.
        """


class GatedRecords(NamedTuple):
    """Records of a gated-linear model, see `noisycgd.data.FixedBatches`."""

    rows: jax.Array  # (c, d)
    patterns: jax.Array  # (c, M) int8
    targets: jax.Array  # (c,)
    scales: jax.Array  # (c,)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GatedLinearModel:
    """logits = sum_m g_m(x) x' V_m with a loss whose residual is bounded, so that no gradient needs clipping.

    Parameters
    ----------
    levels : Array of shape (M,)
        Weight of each gate.
    loss : Residual
        The loss.
    """

    levels: jax.Array
    loss: Residual

    def clipped_sum(self, parameters: jax.Array, records: GatedRecords, present: jax.Array) -> jax.Array:
        """(M q, d), see `RecordModel.clipped_sum`: a row of zeros has no gradient.

        A record whose logits leave float32 adds nothing: one NaN in the sum would tell that it was there.
        """
        rows = jnp.where(present[:, None], records.rows, 0)
        zero = jnp.zeros((), jnp.float32)
        batch = StepBatch(rows, records.patterns, records.targets, records.scales, zero, zero)
        return summed_gradient(parameters, batch, self.levels, _Finite(self.loss))


@dataclasses.dataclass(frozen=True)
class _Finite:
    """A loss whose residual is zero where it cannot be computed."""

    loss: Residual

    def residual(self, logits: jax.Array, targets: jax.Array, scale: jax.Array) -> jax.Array:
        """See `Residual`."""
        found = self.loss.residual(logits, targets, scale)
        return jnp.where(jnp.isfinite(found).all(axis=-1, keepdims=True), found, 0)
