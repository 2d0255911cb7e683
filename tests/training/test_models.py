import jax
import jax.numpy as jnp
import numpy as np

from noisycgd.losses import MarginSoftmax
from noisycgd.training.kernel import StepBatch, summed_gradient
from noisycgd.training.models import GatedLinearModel, GatedRecords

B, D, M, Q = 12, 5, 3, 4
RNG = np.random.default_rng(0)
RECORDS = GatedRecords(
    jnp.asarray(RNG.standard_normal((B, D)), jnp.float32),
    jnp.asarray(RNG.choice([-1, 1], (B, M)), jnp.int8),
    jnp.asarray(RNG.integers(0, Q, B), jnp.int32),
    jnp.ones(B, jnp.float32),
)
LEVELS = jnp.asarray([2.0, 0.7, 0.7], jnp.float32)
WEIGHTS = jnp.asarray(RNG.standard_normal((M * Q, D)), jnp.float32)
MODEL = GatedLinearModel(LEVELS, MarginSoftmax(1.5))


def test_present_records_are_summed_by_the_kernel():
    present = jnp.asarray(RNG.random(B) < 0.5)
    chosen = GatedRecords(*(field[present] for field in RECORDS))
    batch = StepBatch(*chosen, jnp.float32(0), jnp.int32(0))
    expected = summed_gradient(WEIGHTS, batch, LEVELS, MarginSoftmax(1.5))
    found = MODEL.clipped_sum(WEIGHTS, RECORDS, present)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(expected).max() > 0.1


def test_absent_records_add_nothing_whatever_they_hold():
    present = jnp.arange(B) < 7
    rows = jnp.where(present[:, None], RECORDS.rows, jnp.nan)
    found = MODEL.clipped_sum(WEIGHTS, RECORDS._replace(rows=rows), present)
    np.testing.assert_array_equal(found, MODEL.clipped_sum(WEIGHTS, RECORDS, present))
    assert not np.asarray(MODEL.clipped_sum(WEIGHTS, RECORDS, jnp.zeros(B, bool))).any()


def test_a_record_whose_logits_leave_float32_adds_nothing():
    # Products of finite numbers: infinity less infinity among the logits of the last record alone.
    weights = WEIGHTS * 1e30
    rows = RECORDS.rows.at[-1].multiply(1e20).at[:-1].multiply(1e-20)
    large = RECORDS._replace(rows=rows)
    logits = summed_gradient(weights, StepBatch(*large, jnp.float32(0), jnp.int32(0)), LEVELS, MarginSoftmax(1.5))
    assert not np.isfinite(logits).all()
    everyone, others = (MODEL.clipped_sum(weights, large, jnp.arange(B) < n) for n in (B, B - 1))
    assert np.abs(others).max() > 0
    np.testing.assert_array_equal(everyone, others)


def test_it_is_a_pytree():
    leaves, structure = jax.tree.flatten(MODEL)
    assert len(leaves) == 2
    assert isinstance(jax.tree.unflatten(structure, leaves), GatedLinearModel)
