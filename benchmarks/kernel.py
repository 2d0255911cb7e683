"""The package's own step, and the limit that it is measured against."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.problem import Problem
from noisycgd.contrasts import ContrastLoss, contrast_basis, to_logit_weights
from noisycgd.losses import MarginSoftmax
from noisycgd.training.kernel import StepBatch, run_epoch
from noisycgd.training.noise import standard_normal, system_randomness

# The precision that the package asks for; on a CPU there is no other.
_multiply = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


class PackageStep:
    """`noisycgd.training.kernel.run_epoch`, fed as `train_cyclic` feeds it; one turn is one epoch."""

    name = "noisycgd"

    def __init__(self, problem: Problem) -> None:
        sizes = problem.sizes
        self.steps = sizes.k
        self._levels = jnp.asarray(problem.features.levels)
        self._randomness = system_randomness()
        self._basis = contrast_basis(MarginSoftmax(), sizes.q)
        self._loss = ContrastLoss(MarginSoftmax(), jnp.asarray(self._basis))
        with jax.enable_x64(True):
            self._batches = StepBatch(
                rows=jnp.asarray(problem.rows),
                patterns=jnp.asarray(problem.patterns),
                targets=jnp.asarray(problem.labels),
                scales=jnp.ones((sizes.k, sizes.b), jnp.float32),
                learning_rate=jnp.full(sizes.k, problem.learning_rate, jnp.float64),
                position=jnp.arange(sizes.k, dtype=jnp.int32),
            )
            self._l2, self._noise_std = jnp.float64(0), jnp.float64(problem.noise_std)
            self._state = jnp.zeros((sizes.n_gates * len(self._basis), sizes.d), jnp.float64)

    @property
    def weights(self) -> NDArray[np.float32]:
        """(d, M q): what `train_cyclic` would return."""
        return to_logit_weights(np.asarray(self._state), self._basis)

    def rouse(self) -> None:
        """Nothing: a turn of a whole epoch rouses itself, at its own cost."""

    def run(self) -> None:
        """One epoch."""
        with jax.enable_x64(True):
            self._state = run_epoch(
                self._state,
                self._batches,
                self._levels,
                self._loss,
                self._l2,
                self._noise_std,
                self._randomness.key(),
            )
            self._state.block_until_ready()


@partial(jax.jit, donate_argnums=0)
def limit_epoch(
    weights: jax.Array,
    rows: jax.Array,
    position: jax.Array,
    learning_rate: jax.Array,
    noise_std: jax.Array,
    key: jax.Array,
) -> jax.Array:
    """Two products, one noise draw and an update per batch, and nothing else: theta - eta ((X theta')' X / b + s Z).

    The first product feeds the second, the second the next step's first, so nothing is dead; X'X is never cheaper.
    """
    b = rows.shape[1]

    def step(theta: jax.Array, batch: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        x, place = batch
        noise = standard_normal(jax.random.fold_in(key, place), theta.shape)
        return theta - learning_rate * (_multiply(_multiply(x, theta.T).T, x) / b + noise_std * noise), None

    last: jax.Array = jax.lax.scan(step, weights, (rows, position))[0]
    return last


class Limit:
    """`limit_epoch` on the same batches, with the same generator and the q - 1 contrasts; one turn is one epoch."""

    name = "limit"

    def __init__(self, problem: Problem) -> None:
        sizes = problem.sizes
        self.steps = sizes.k
        self._arguments = (
            jnp.asarray(problem.rows),
            jnp.arange(sizes.k, dtype=jnp.int32),
            jnp.float32(problem.learning_rate),
            jnp.float32(problem.noise_std),
        )
        self._randomness = system_randomness()
        kept = len(contrast_basis(MarginSoftmax(), sizes.q))
        self.weights = jnp.zeros((sizes.n_gates * kept, sizes.d), jnp.float32)

    def rouse(self) -> None:
        """Nothing, as for the package's step."""

    def run(self) -> None:
        """One epoch."""
        self.weights = limit_epoch(self.weights, *self._arguments, self._randomness.key())
        self.weights.block_until_ready()
