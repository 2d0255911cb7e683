"""Small problems for the training loop; every plan of these tests is made here."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy.special import erfinv, ndtri

from noisycgd.data import FixedBatches, RowBounds, make_batches
from noisycgd.features import GatedFeatures, make_gates
from noisycgd.losses import ClippedSquared, EnvelopeSoftmax, Logistic, MarginSoftmax, NormClippedSoftmax
from noisycgd.planning import plan_noisy_cgd
from noisycgd.training.kernel import StepBatch
from noisycgd.types import NoiseMultiplier, Order, Plan


@dataclass
class Problem:
    loss: Any
    n_outputs: int
    batches: FixedBatches
    features: GatedFeatures
    plan: Plan


def plan_for(loss, n_outputs, n_records, feature_norm, batch_size, *, epochs=2, noise_multiplier=2.0, **options):
    return plan_noisy_cgd(
        certificate=loss.certificate(n_outputs),
        feature_norm=feature_norm,
        n_records=n_records,
        target=NoiseMultiplier(noise_multiplier, 1e-6),
        epochs=epochs,
        batch_size=batch_size,
        order=Order.GIVEN,
        allow_unproven=True,
        **options,
    )


@pytest.fixture
def make_problem():
    """A function: build rows, gates, batches and a plan for a loss."""

    def build(loss, n_outputs, *, n=22, d=5, P=None, b=8, kind="antithetic", method="normalize", seed=0, **options):
        rng = np.random.default_rng(seed)
        spread = np.logspace(-3, 1, n)[:, None] if method == "clip" else 1.0
        rows = rng.standard_normal((n, d)) * spread
        if isinstance(loss, ClippedSquared):
            targets = rng.standard_normal(n).astype(np.float32)
        else:
            targets = rng.integers(0, max(n_outputs, 2), n).astype(np.int32)
        bounds = RowBounds.create(1.5, method, False, 0.0, None, d)
        # Four gates in both kinds, so that they share compiled programs.
        features = make_gates(kind, d, P or {"linear": 0, "iid": 4, "antithetic": 6}[kind], 0)
        batches = make_batches(rows, targets, None, b, bounds, features)
        plan = plan_for(loss, n_outputs, n, features.feature_norm(1.5), b, **options)
        return Problem(loss, n_outputs, batches, features, plan)

    return build


@pytest.fixture
def as_epoch():
    """A function: batches and a plan -> the arrays of one epoch, floats in the given precision."""

    def convert(batches, rates, dtype=jnp.float32):
        k = len(batches.rows)
        whole = np.issubdtype(batches.targets.dtype, np.integer)
        return StepBatch(
            rows=jnp.asarray(batches.rows, dtype),
            patterns=jnp.asarray(batches.patterns),
            targets=jnp.asarray(batches.targets, jnp.int32 if whole else dtype),
            scales=jnp.asarray(batches.scales, dtype),
            learning_rate=jnp.asarray(np.broadcast_to(rates, k), dtype),
            position=jnp.arange(k, dtype=jnp.int32),
        )

    return convert


@pytest.fixture(scope="session")
def residual():
    """A function (loss, logits, targets, scales) -> residuals, compiled once per kind of loss and shape."""
    return jax.jit(lambda loss, z, targets, scales: loss.residual(z, targets, scales))


@pytest.fixture(scope="session")
def exact_normals():
    """A function of two words -> float64: the sign in the first bit, the two-sided tail probability in all others."""

    def convert(high, low):
        m = high.astype(np.uint64) % 2**31 * 2**32 + low
        t, u = (m + 0.5) * 2.0**-63, (2**63 - 1 - m + 0.5) * 2.0**-63
        return np.where(high >> 31, -1, 1) * np.where(u < 0.5, np.sqrt(2) * erfinv(u), -ndtri(t / 2))

    return convert


@pytest.fixture(scope="session")
def normals(exact_normals):
    """A function (key, shape) -> float64: the noise that a step should draw, from JAX's own Threefry and SciPy."""

    def draw(key, shape):
        first, rest = np.divmod(np.arange(np.prod(shape, dtype=int)), np.prod(shape[1:], dtype=int))
        words = threefry_2x32(jax.random.key_data(key), jnp.asarray([first, rest], jnp.uint32).ravel())
        return exact_normals(*np.asarray(words).reshape(2, -1)).reshape(shape)

    return draw


LOSSES = {
    "margin": (MarginSoftmax(2.0), 3),
    "envelope": (EnvelopeSoftmax(0.4), 3),
    "norm-clipped-2": (NormClippedSoftmax(0.4), 2),
    "norm-clipped-3": (NormClippedSoftmax(0.4), 3),
    "logistic": (Logistic(0.6), 1),
    "squared": (ClippedSquared(0.5), 1),
}


@pytest.fixture(params=LOSSES)
def loss_and_outputs(request):
    """Every loss with its number of logits."""
    return LOSSES[request.param]
