"""The two-layer ReLU network that the convex model approximates, trained by DP-SGD (paper, section 5).

A record's gradient in a dense layer is the outer product of the layer's input and its delta, the derivative in what the
layer puts out, so its norm is a product of two norms: records are clipped without a gradient of their own in memory.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from noisycgd._validation import check_integer
from noisycgd.clipping import rounding_slack
from noisycgd.losses import MarginSoftmax

# Accelerators would otherwise round the factors of a float32 product to TF32 or bfloat16 (THEORY section 5).
_multiply = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)

_ROWS_AT_ONCE = 8192


class NetworkParameters(NamedTuple):
    """logits = W2 relu(W1 x + b1) + b2.

    Weights stand as in `noisycgd.training.kernel`: one row per unit, so that products read the records as they lie.
    """

    hidden_weights: Any  # (W, d)
    hidden_bias: Any  # (W,)
    output_weights: Any  # (q, W)
    output_bias: Any  # (q,)


class NetworkRecords(NamedTuple):
    """Records of the network."""

    rows: Any  # (c, d), finite
    targets: Any  # (c,) integers in [0, q)


class _Pass(NamedTuple):
    """What the gradients of a chunk are made of."""

    hidden: jax.Array  # (c, W)
    hidden_delta: jax.Array  # (c, W)
    output_delta: jax.Array  # (c, q)
    norms: jax.Array  # (c,)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ReLUNetworkModel:
    """Softmax cross-entropy of the network; see `RecordModel`.

    Parameters
    ----------
    clipping_norm : float
        C > 0. A record's whole gradient, all four blocks, is scaled down to this norm if it is longer.
    """

    clipping_norm: float

    def clipped_sum(
        self, parameters: NetworkParameters, records: NetworkRecords, present: jax.Array
    ) -> NetworkParameters:
        """Like `parameters`; see `RecordModel.clipped_sum`.

        A record whose gradient leaves float32 adds nothing: one infinity in the sum would tell that it was there.
        """
        # Whatever an absent row holds, NaN included, ends here.
        rows = jnp.where(present[:, None], records.rows, 0)
        hidden, hidden_delta, output_delta, norms = _backward(parameters, rows, records.targets)
        slack = rounding_slack(max(*parameters.hidden_weights.shape, len(parameters.output_bias)), rows.dtype)
        usable = present & (norms < jnp.inf)
        # A zero gradient divides to infinity, which the minimum turns into 1.
        share = jnp.minimum(1, self.clipping_norm * (1 - slack) / norms)[:, None]
        hidden_delta = jnp.where(usable[:, None], hidden_delta * share, 0)
        output_delta = jnp.where(usable[:, None], output_delta * share, 0)
        return NetworkParameters(
            _multiply(hidden_delta.T, rows),
            hidden_delta.sum(axis=0),
            _multiply(output_delta.T, hidden),
            output_delta.sum(axis=0),
        )


def network_norms(parameters: NetworkParameters, records: NetworkRecords) -> jax.Array:
    """(c,) norms of the records' gradients, not clipped."""
    return _backward(parameters, records.rows, records.targets).norms


def _backward(parameters: NetworkParameters, rows: jax.Array, targets: jax.Array) -> _Pass:
    before = _multiply(rows, parameters.hidden_weights.T) + parameters.hidden_bias
    active = before > 0
    # Finite also after an overflow, so that a share of zero silences it in the products.
    hidden = jnp.where(active, jnp.minimum(before, np.finfo(before.dtype).max), 0)
    logits = _multiply(hidden, parameters.output_weights.T) + parameters.output_bias
    output_delta = MarginSoftmax().residual(logits, targets, jnp.ones((), logits.dtype))
    hidden_delta = jnp.where(active, _multiply(output_delta, parameters.output_weights), 0)
    squares = (_squared(rows) + 1) * _squared(hidden_delta) + (_squared(hidden) + 1) * _squared(output_delta)
    return _Pass(hidden, hidden_delta, output_delta, jnp.sqrt(squares))


def _squared(rows: jax.Array) -> jax.Array:
    return jnp.sum(rows * rows, axis=-1)


def start_network(n_features: int, width: int, n_outputs: int, seed: int) -> NetworkParameters:
    """Start parameters that no record enters: all entries of a layer uniform in +-1 / sqrt(its inputs).

    This is what `torch.nn.Linear` does. A start at zero would kill every gradient but the output bias's (THEORY
    section 6).

    Parameters
    ----------
    n_features, width, n_outputs : int
        d, W and q.
    seed : int
        Public; it has nothing to do with the noise.
    """
    rng = np.random.default_rng(check_integer("seed", seed, low=0))

    def uniform(inputs: int, *shape: int) -> NDArray[np.float32]:
        return rng.uniform(-1, 1, shape).astype(np.float32) / np.float32(math.sqrt(inputs))

    d, W, q = n_features, width, n_outputs
    return NetworkParameters(uniform(d, W, d), uniform(d, W), uniform(W, q, W), uniform(W, q))


def network_logits(parameters: NetworkParameters, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, d) -> (n, q), a few thousand rows at a time, so that the hidden layer never holds all records.

    Summed in float64, like the logits of `GatedFeatures`: no row's depend on the rows beside it.
    """
    W1, b1, W2, b2 = (np.asarray(leaf, np.float64) for leaf in parameters)
    logits = np.empty((len(rows), len(b2)), np.float32)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        logits[part] = np.maximum(rows[part].astype(np.float64) @ W1.T + b1, 0) @ W2.T + b2
    return logits
