import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from noisycgd.contrasts import ContrastLoss, contrast_basis, to_logit_weights
from noisycgd.losses import ClippedSquared, EnvelopeSoftmax, Logistic, MarginSoftmax, NormClippedSoftmax

SOFTMAX = [MarginSoftmax(2.0), EnvelopeSoftmax(0.4), NormClippedSoftmax(0.4)]
SINGLE = [Logistic(0.6), ClippedSquared(0.5)]


def sample(q, n=500, size=5.0):
    rng = np.random.default_rng(0)
    logits = size * rng.standard_normal((n, q))
    return logits, jnp.asarray(rng.integers(0, q, n)), jnp.asarray(rng.uniform(1, 3, n))


@pytest.mark.parametrize("q", [2, 3, 10])
@pytest.mark.parametrize("loss", SOFTMAX, ids=lambda loss: loss.name)
def test_residuals_of_a_shift_invariant_loss_sum_to_zero_and_see_no_common_shift(loss, q):
    assert loss.shift_invariant
    with jax.enable_x64(True):
        logits, targets, scale = sample(q)
        residual = np.asarray(loss.residual(jnp.asarray(logits), targets, scale))
        shifted = np.asarray(loss.residual(jnp.asarray(logits + 7.5), targets, scale))
    assert np.abs(residual.sum(axis=1)).max() < 1e-12
    assert np.abs(residual).max() > 0.1
    np.testing.assert_allclose(shifted, residual, atol=1e-10)


def test_a_loss_that_sees_a_common_shift_keeps_every_logit():
    for loss in SINGLE:
        assert not loss.shift_invariant
        logits, targets, scale = sample(1)
        assert np.abs(np.asarray(loss.residual(jnp.asarray(logits), targets, scale)).sum(axis=1)).max() > 0.1
        np.testing.assert_array_equal(contrast_basis(loss, 1), [[1.0]])


@pytest.mark.parametrize("q", [2, 3, 10, 1000])
def test_the_basis_is_orthonormal_and_orthogonal_to_a_common_shift(q):
    basis = contrast_basis(MarginSoftmax(), q).astype(np.float64)
    assert basis.shape == (q - 1, q)
    np.testing.assert_allclose(basis @ basis.T, np.eye(q - 1), atol=3e-7)
    np.testing.assert_allclose(basis.sum(axis=1), 0, atol=1e-6)


@pytest.mark.parametrize("q", [2, 3, 10])
@pytest.mark.parametrize("loss", SOFTMAX, ids=lambda loss: loss.name)
def test_the_residual_in_contrasts_is_the_derivative_in_contrasts(loss, q):
    with jax.enable_x64(True):
        basis = jnp.asarray(contrast_basis(loss, q), jnp.float64)
        logits, targets, scale = sample(q)
        contrasts = jnp.asarray(logits[:, 1:])
        reduced = ContrastLoss(loss, basis)
        actual = reduced.residual(contrasts, targets, scale)
        full = loss.residual(contrasts @ basis, targets, scale)
        np.testing.assert_allclose(np.linalg.norm(actual, axis=1), np.linalg.norm(full, axis=1), rtol=1e-6)
        if not (isinstance(loss, NormClippedSoftmax) and q > 2):
            derivative = jax.grad(lambda v: loss.value(v @ basis, targets, scale).sum())(contrasts)
            np.testing.assert_allclose(actual, derivative, atol=1e-6)


def test_it_is_a_pytree_whose_numbers_compile_nothing_anew():
    reduced = ContrastLoss(MarginSoftmax(2.0), jnp.asarray(contrast_basis(MarginSoftmax(), 3)))
    leaves, structure = jax.tree_util.tree_flatten(reduced)
    other = dataclasses.replace(reduced, loss=MarginSoftmax(9.0))
    assert len(leaves) == 2
    assert jax.tree_util.tree_structure(other) == structure


def test_logit_weights_give_the_logits_of_the_contrasts():
    rng = np.random.default_rng(1)
    d, M, q = 4, 3, 5
    basis = contrast_basis(MarginSoftmax(), q)
    weights = rng.standard_normal((M * (q - 1), d)).astype(np.float32)
    full = to_logit_weights(weights, basis)
    assert full.flags.c_contiguous
    assert (full.shape, full.dtype) == ((d, M * q), np.float32)
    x, gates = rng.standard_normal(d), rng.standard_normal(M)
    contrasts = np.einsum("d,m,mkd->k", x, gates, weights.reshape(M, q - 1, d))
    logits = np.einsum("d,m,dmq->q", x, gates, full.reshape(d, M, q))
    np.testing.assert_allclose(logits, contrasts @ basis, atol=1e-5)
    np.testing.assert_allclose(full.reshape(d, M, q).sum(axis=2), 0, atol=1e-5)
