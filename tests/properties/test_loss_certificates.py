"""What is certified of a loss, tried on pairs of points; each claim has a pair that breaks a stronger one."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisycgd.losses import ClippedSquared, EnvelopeSoftmax, Logistic, MarginSoftmax, NormClippedSoftmax

CERTIFIED = [
    *[(MarginSoftmax(m), q) for m in (0.0, 2.5, 20.0) for q in (2, 3, 10)],
    *[(EnvelopeSoftmax(c), q) for c in (0.05, 0.3535, 0.6, 0.8, 1.1, 1.3) for q in (2, 3, 10)],
    *[(NormClippedSoftmax(c), 2) for c in (0.1, 0.6, 1.0)],
    *[(Logistic(c), 1) for c in (0.3, 0.6, 1.0)],
    *[(ClippedSquared(c), 1) for c in (0.1, 2.0)],
]


@jax.jit
def compiled(loss, logits, labels):
    return loss.residual(logits, labels, jnp.ones(len(labels), logits.dtype))


def residual(loss, logits, labels):
    with jax.enable_x64(True):
        return np.asarray(compiled(loss, jnp.array(logits), jnp.array(labels)))


def pairs(loss, outputs, count=1500, seed=0):
    """Two arrays of logits and one of targets: far pairs, near pairs, and near pairs where two classes lead."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(count, outputs)) * 10 ** rng.uniform(-1, 1.5, (count, 1))
    second = first + rng.normal(size=(count, outputs)) * 10 ** rng.uniform(-2, 1, (count, 1))
    third = count // 3
    second[:third] = rng.normal(size=(third, outputs)) * 10 ** rng.uniform(-1, 1.5, (third, 1))
    if outputs == 1:
        targets = rng.integers(0, 2, count) if isinstance(loss, Logistic) else rng.normal(size=count)
        first[-third:], second[-third:] = 0.3 * first[-third:], 0.3 * first[-third:] + 1e-2
        return first, second, targets
    targets = rng.integers(0, outputs, count)
    rows = np.arange(count - third, count)
    leader = targets[rows]
    rival = (leader + rng.integers(1, outputs, third)) % outputs
    margin = getattr(loss, "margin", 0.0)
    first[rows] = -60.0
    first[rows, leader] = margin
    first[rows, rival] = rng.uniform(-8, 4, third)
    second[rows] = first[rows]
    second[rows, rival] += 5e-3
    second[rows, leader] -= 5e-3
    return first, second, targets


def differences(loss, outputs):
    first, second, targets = pairs(loss, outputs)
    before, after = residual(loss, first, targets), residual(loss, second, targets)
    bound = np.linalg.norm(np.concatenate([before, after]), axis=-1).max()
    return after - before, second - first, bound


@pytest.mark.parametrize(("loss", "outputs"), CERTIFIED, ids=str)
def test_certificate_holds_on_pairs(loss, outputs):
    certificate = loss.certificate(outputs)
    dr, dz, norm = differences(loss, outputs)
    rounding = 1e-12 * np.linalg.norm(dz, axis=-1)
    inner = np.sum(dr * dz, axis=-1)
    assert certificate.convex
    assert norm <= certificate.gradient_bound
    assert np.all(inner >= -rounding)
    assert np.all(inner >= np.sum(dr * dr, axis=-1) / certificate.smoothness - rounding)
    assert np.all(np.linalg.norm(dr, axis=-1) <= certificate.smoothness * np.linalg.norm(dz, axis=-1) + rounding)


@pytest.mark.parametrize(
    ("loss", "outputs"),
    # For a clip below 1/2 the logistic loss is smoother than the 1/4 of the table.
    [pair for pair in CERTIFIED if pair[0] != Logistic(0.3)],
    ids=str,
)
def test_nine_tenths_of_the_certificate_do_not_hold(loss, outputs):
    certificate = loss.certificate(outputs)
    dr, dz, norm = differences(loss, outputs)
    smoothness = 0.9 * certificate.smoothness
    assert norm > 0.9 * certificate.gradient_bound
    assert np.any(np.sum(dr * dz, axis=-1) < np.sum(dr * dr, axis=-1) / smoothness - 1e-9)
    assert np.any(np.linalg.norm(dr, axis=-1) > smoothness * np.linalg.norm(dz, axis=-1))


@pytest.mark.parametrize("outputs", [3, 10])
def test_norm_clipping_of_three_classes_is_not_monotone(outputs):
    clip, loss = 0.3535, NormClippedSoftmax(0.3535)
    assert not loss.certificate(outputs).convex
    logits = np.r_[0.0, 2.0, 1.0, np.full(outputs - 3, -1.0)]
    r = residual(MarginSoftmax(), [logits], [0])[0]
    n = r / np.linalg.norm(r)
    p = r + np.eye(outputs)[0]
    H = np.diag(p) - np.outer(p, p)
    u = (np.eye(outputs) - np.outer(n, n)) @ H @ n
    t = -(u @ H @ n) / (2 * u @ H @ u)
    step = 1e-3 * (n + t * u)

    def slope(candidate):
        before, after = residual(candidate, [logits - step, logits + step], [0, 0])
        return (after - before) @ (2 * step) / (4 * step @ step)

    predicted = clip / np.linalg.norm(r) * (t * u @ H @ n + t * t * u @ H @ u) / ((n + t * u) @ (n + t * u))
    assert predicted < -1e-4
    assert slope(loss) == pytest.approx(predicted, rel=1e-3)
    assert slope(EnvelopeSoftmax(clip)) > 0


def test_a_norm_clipped_step_can_expand_where_the_envelope_contracts():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(4000, 10)) * 3
    second = first + 1e-3 * rng.normal(size=first.shape)
    labels = rng.integers(0, 10, 4000)
    gaps = {}
    for loss in (NormClippedSoftmax(0.3535), EnvelopeSoftmax(0.3535)):
        dr = residual(loss, second, labels) - residual(loss, first, labels)
        dz = second - first
        gaps[loss.name] = np.linalg.norm(dz - 3.9 * dr, axis=-1) / np.linalg.norm(dz, axis=-1)
    assert gaps["envelope_softmax"].max() <= 1 + 1e-9
    assert gaps["norm_clipped_softmax"].max() > 1 + 1e-5


@settings(deadline=None, max_examples=200)
@given(clip=st.floats(0.001, 2.0), scale=st.floats(1.0, 1e4))
def test_shorter_features_make_up_for_their_larger_clip(clip, scale):
    """||phi||^2 beta_h(c rho / ||phi||) <= rho^2 beta_h(c), and the same for the gradient bound."""
    for loss, outputs in ((EnvelopeSoftmax(clip), 10), (NormClippedSoftmax(clip), 2), (ClippedSquared(clip), 1)):
        base = loss.certificate(outputs)
        scaled = dataclasses.replace(loss, clip=clip * scale).certificate(outputs)
        assert scaled.smoothness / scale**2 <= base.smoothness * (1 + 1e-12)
        assert scaled.gradient_bound / scale <= base.gradient_bound * (1 + 1e-12)


def test_smoothness_would_not_scale_without_the_square():
    base, scaled = EnvelopeSoftmax(0.2).certificate(3), EnvelopeSoftmax(0.4).certificate(3)
    assert scaled.smoothness > base.smoothness
    assert scaled.smoothness / 4 < base.smoothness < math.sqrt(2) * 0.2
