import dataclasses
import json
import math
from pathlib import Path

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.losses import ClippedSquared, EnvelopeSoftmax, Logistic, MarginSoftmax, NormClippedSoftmax

ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text())

SOFTMAX = [MarginSoftmax(), MarginSoftmax(3.0), EnvelopeSoftmax(0.35), EnvelopeSoftmax(1.0)]
ONE_OUTPUT = [Logistic(), Logistic(0.3), ClippedSquared(0.7)]
CLIPPED = [EnvelopeSoftmax, NormClippedSoftmax, Logistic, ClippedSquared]


@jax.jit
def compiled_residual(loss, logits, targets, scale):
    return loss.residual(logits, targets, scale)


def draw(loss, records=64, outputs=5, seed=0):
    """Logits, targets and scales that the loss takes; scales start at 1, and one is infinite."""
    rng = np.random.default_rng(seed)
    if isinstance(loss, (Logistic, ClippedSquared)):
        logits = 3 * rng.normal(size=(records, 1))
        targets = rng.integers(0, 2, records) if isinstance(loss, Logistic) else rng.normal(size=records)
    else:
        logits, targets = 3 * rng.normal(size=(records, outputs)), rng.integers(0, outputs, records)
    scale = 1 + rng.exponential(size=records)
    scale[0], scale[-1] = 1.0, math.inf
    return jnp.array(logits), jnp.array(targets), jnp.array(scale)


@pytest.mark.parametrize("loss", [*SOFTMAX, *ONE_OUTPUT], ids=str)
def test_residual_is_the_gradient_of_the_value(loss):
    with jax.enable_x64(True):
        logits, targets, scale = draw(loss)
        gradient = jax.jit(jax.grad(lambda z: jnp.sum(loss.value(z, targets, scale))))(logits)
        residual = compiled_residual(loss, logits, targets, scale)
        np.testing.assert_allclose(residual, gradient, rtol=1e-11, atol=1e-14)
        assert residual.shape == logits.shape
        assert loss.value(logits, targets, scale).shape == targets.shape


@pytest.mark.parametrize("loss", [*SOFTMAX, NormClippedSoftmax(0.35), *ONE_OUTPUT], ids=str)
def test_float32_agrees_with_float64(loss):
    with jax.enable_x64(True):
        logits, targets, scale = draw(loss)
        logits = logits.astype(jnp.float32)
        exact = compiled_residual(loss, logits.astype(jnp.float64), targets, scale)
    single = compiled_residual(
        loss,
        jnp.array(np.asarray(logits)),
        jnp.array(np.asarray(targets), jnp.float32 if isinstance(loss, ClippedSquared) else jnp.int32),
        jnp.array(np.asarray(scale), jnp.float32),
    )
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, exact, atol=5e-6)


@pytest.mark.parametrize("margin", [0.0, 0.5, 7.4])
def test_margin_softmax_is_softmax_of_shifted_logits(margin):
    with jax.enable_x64(True):
        logits, labels, scale = draw(MarginSoftmax())
        onehot = np.eye(5)[np.asarray(labels)]
        expected = softmax(np.asarray(logits) + margin * (1 - onehot), axis=-1) - onehot
        residual = MarginSoftmax(margin).residual(logits, labels, scale)
        np.testing.assert_allclose(residual, expected, rtol=1e-10, atol=1e-14)


def test_margin_softmax_at_extremes():
    loss, scale = MarginSoftmax(1e6), jnp.ones(1)
    cases = {
        # A margin that swamps the logits must not round their differences away.
        (0.0, 0.3, 0.1): softmax([0.3, 0.1]),
        (1e6, 0.0, 0.0): [1 / 3, 1 / 3],
        (-1e6, 1e6, -1e6): [1.0, 0.0],
        (1e6, 1e6, 1e6): [0.5, 0.5],
    }
    for logits, others in cases.items():
        residual = np.asarray(loss.residual(jnp.array([logits]), jnp.array([0]), scale))[0]
        np.testing.assert_allclose(residual, [-sum(others), *others], atol=5e-6)
    won = MarginSoftmax().residual(jnp.array([[1e6, -1e6, 0.0]]), jnp.array([0]), scale)
    np.testing.assert_array_equal(won, jnp.zeros((1, 3)))
    assert loss.value(jnp.array([[-1e6, 1e6]]), jnp.array([0]), scale)[0] == pytest.approx(3e6, rel=1e-6)


def test_a_well_classified_record_keeps_its_relative_accuracy():
    residual = MarginSoftmax().residual(jnp.array([[30.0, 0.0, 0.0]]), jnp.array([0]), jnp.ones(1))
    np.testing.assert_allclose(residual[0], math.exp(-30) * np.array([-2, 1, 1]), rtol=1e-5)


@settings(deadline=None, max_examples=60)
@given(
    logits=hnp.arrays(np.float32, (8, 6), elements=st.floats(-1e6, 1e6, width=32)),
    labels=hnp.arrays(np.int32, 8, elements=st.integers(0, 5)),
    margin=st.floats(0, 1e6),
)
def test_margin_softmax_keeps_its_bound_in_float32(logits, labels, margin):
    residual = compiled_residual(MarginSoftmax(margin), jnp.array(logits), jnp.array(labels), jnp.ones(8))
    residual = np.asarray(residual, np.longdouble)
    assert np.isfinite(residual).all()
    assert np.sqrt(np.sum(residual**2, axis=-1)).max() < math.sqrt(2)
    assert np.abs(residual.sum(axis=-1)).max() <= 1e-6


@pytest.mark.parametrize("kind", CLIPPED)
def test_each_record_is_clipped_at_its_own_scale(kind):
    loss = kind(0.2)
    logits, targets, scale = draw(loss)
    logits, scale = 10 * logits, jnp.where(jnp.isinf(scale), 1.0, scale)
    norms = np.linalg.norm(np.asarray(loss.residual(logits, targets, scale), np.float64), axis=-1)
    limits = np.float32(0.2) * np.asarray(scale, np.float64)
    assert np.all(norms <= limits * (1 + 1e-7))
    assert np.any((norms > 0.999 * limits) & (np.asarray(scale) > 1.5))


@pytest.mark.parametrize("clip", [0.3535, 1.0])
def test_norm_clipped_softmax(clip):
    loss = NormClippedSoftmax(clip)
    logits, labels, scale = draw(loss)
    plain = np.asarray(MarginSoftmax().residual(logits, labels, scale))
    factor = np.minimum(1, clip * np.asarray(scale) / np.linalg.norm(plain, axis=-1))
    np.testing.assert_allclose(loss.residual(logits, labels, scale), plain * factor[:, None], rtol=1e-5)
    with pytest.raises(ParameterError, match=r"number of logits must be 2 .*; got 5"):
        loss.value(logits, labels, scale)


def test_norm_clipped_softmax_of_two_classes_is_the_envelope():
    with jax.enable_x64(True):
        logits, labels, scale = draw(NormClippedSoftmax(0.4), outputs=2)
        scale = jnp.minimum(scale, 2.5)  # the envelope's clips end at 1
        ours, envelope = NormClippedSoftmax(0.4), EnvelopeSoftmax(0.4)
        for method in ("residual", "value"):
            np.testing.assert_allclose(
                getattr(ours, method)(logits, labels, scale),
                getattr(envelope, method)(logits, labels, scale),
                rtol=1e-12,
                atol=1e-14,
            )
    for field in ("gradient_bound", "smoothness", "convex"):
        assert getattr(ours.certificate(2), field) == getattr(envelope.certificate(2), field)


def test_logistic_by_hand():
    logits, targets = jnp.array([[0.0], [0.0], [100.0], [-100.0], [2.0]]), jnp.array([0, 1, 0, 1, 1])
    residual = Logistic(0.6).residual(logits, targets, jnp.array([1.0, 1.0, 1.0, 1.5, 1.0]))
    np.testing.assert_allclose(residual[:, 0], [0.5, -0.5, 0.6, -0.9, -1 / (1 + math.exp(2))], rtol=1e-6)
    value = Logistic().value(logits, targets, jnp.ones(5))
    np.testing.assert_allclose(value, [math.log(2), math.log(2), 100, 100, math.log1p(math.exp(-2))], rtol=1e-6)


def test_clipped_squared_by_hand():
    logits, targets, scale = jnp.array([[1.0], [3.0], [-4.0]]), jnp.array([0.5, 0.0, 0.0]), jnp.array([1.0, 1.0, 1.5])
    loss = ClippedSquared(2.0)
    np.testing.assert_allclose(loss.residual(logits, targets, scale)[:, 0], [0.5, 2.0, -3.0], rtol=1e-6)
    np.testing.assert_allclose(loss.value(logits, targets, scale), [0.125, 4.0, 7.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "outputs", "bound", "smoothness", "convex"),
    [
        (MarginSoftmax(20.0), 10, math.sqrt(2), 0.5, True),
        (EnvelopeSoftmax(0.2), 10, 0.2, math.sqrt(2) * 0.2 - 0.04, True),
        (EnvelopeSoftmax(1.0), 10, 1.0, 0.5, True),
        (EnvelopeSoftmax(5.0), 10, 1.0, 0.5, True),
        (NormClippedSoftmax(0.2), 2, 0.2, math.sqrt(2) * 0.2 - 0.04, True),
        (NormClippedSoftmax(0.2), 3, 0.2, 0.5, False),
        (Logistic(), 1, 1.0, 0.25, True),
        (Logistic(0.4), 1, 0.4, 0.25, True),
        (ClippedSquared(3.0), 1, 3.0, 1.0, True),
    ],
    ids=str,
)
def test_certificates_are_the_table_of_the_theory(loss, outputs, bound, smoothness, convex):
    certificate = loss.certificate(outputs)
    assert certificate.loss == loss.name
    assert certificate.gradient_bound == pytest.approx(bound, rel=1e-15)
    assert certificate.smoothness == pytest.approx(smoothness, rel=1e-14)
    assert certificate.convex is convex
    assert certificate.reference.startswith("THEORY section 2")


@pytest.mark.parametrize(("clip", "smoothness"), ORACLES["envelope_smoothness"])
def test_envelope_smoothness_oracles(clip, smoothness):
    assert EnvelopeSoftmax(clip).certificate(10).smoothness == pytest.approx(smoothness, abs=1e-6)


@pytest.mark.parametrize("loss", [*SOFTMAX, NormClippedSoftmax(1.0)], ids=str)
def test_softmax_needs_two_outputs(loss):
    with pytest.raises(ParameterError, match=r"n_outputs must be an integer at least 2; got 1\. For one logit use Log"):
        loss.certificate(1)


@pytest.mark.parametrize("loss", ONE_OUTPUT, ids=str)
def test_scalar_losses_take_one_output(loss):
    with pytest.raises(ParameterError, match="n_outputs must be an integer at least 1 and at most 1; got 2"):
        loss.certificate(2)


def test_names_are_those_of_the_documentation():
    losses = [MarginSoftmax(), EnvelopeSoftmax(1.0), NormClippedSoftmax(1.0), Logistic(), ClippedSquared(1.0)]
    names = ["margin_softmax", "envelope_softmax", "norm_clipped_softmax", "logistic", "clipped_squared"]
    assert [loss.name for loss in losses] == names


@pytest.mark.parametrize("kind", CLIPPED)
@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan])
def test_a_clip_is_positive_and_finite(kind, clip):
    with pytest.raises(ParameterError, match="clip must be a number above 0; got"):
        kind(clip)


@pytest.mark.parametrize("margin", [-1e-9, math.inf, math.nan])
def test_a_margin_is_not_negative(margin):
    with pytest.raises(ParameterError, match="margin must be a number at least 0; got"):
        MarginSoftmax(margin)


@pytest.mark.parametrize("value", ["1", None, True, [1.0]])
def test_parameters_are_numbers(value):
    with pytest.raises(ParameterTypeError):
        MarginSoftmax(value)
    with pytest.raises(ParameterTypeError):
        EnvelopeSoftmax(value)


def test_parameters_take_the_precision_of_the_logits():
    with jax.enable_x64(True):
        loss = MarginSoftmax(np.float64(2))
        assert type(loss.margin) is float
        assert loss.residual(jnp.ones((1, 2), jnp.float32), jnp.array([0]), jnp.ones(1)).dtype == jnp.float32


@pytest.mark.parametrize("loss", [MarginSoftmax(1.5), NormClippedSoftmax(0.5), *SOFTMAX[2:], *ONE_OUTPUT], ids=str)
def test_a_new_parameter_compiles_nothing_anew(loss):
    logits, targets, scale = draw(loss)
    compiled = jax.jit(lambda loss, *data: loss.residual(*data))
    field = dataclasses.fields(loss)[0].name
    for factor in (1.0, 1.1, 2):
        variant = dataclasses.replace(loss, **{field: factor * getattr(loss, field)})
        np.testing.assert_allclose(
            compiled(variant, logits, targets, scale), compiled_residual(variant, logits, targets, scale), atol=5e-6
        )
    assert compiled._cache_size() == 1


def test_a_loss_is_a_pytree_of_anything():
    leaves, structure = jax.tree_util.tree_flatten(MarginSoftmax(2.0))
    assert leaves == [2.0]
    assert jax.tree_util.tree_unflatten(structure, leaves) == MarginSoftmax(2.0)
    for placeholder in (object(), None, True):
        assert jax.tree_util.tree_unflatten(structure, [placeholder]).margin is placeholder
    [(path, _)] = jax.tree_util.tree_leaves_with_path(MarginSoftmax(2.0))
    assert jax.tree_util.keystr(path) == ".margin"


def test_margins_can_be_mapped_over():
    logits, labels, scale = draw(MarginSoftmax())
    margins = jnp.array([0.0, 1.0, 20.0])
    mapped = jax.vmap(lambda loss: loss.residual(logits, labels, scale))(MarginSoftmax(margins))
    built_inside = jax.vmap(lambda margin: MarginSoftmax(margin).residual(logits, labels, scale))(margins)
    expected = [MarginSoftmax(float(margin)).residual(logits, labels, scale) for margin in margins]
    np.testing.assert_allclose(mapped, expected, atol=1e-6)
    np.testing.assert_allclose(built_inside, expected, atol=1e-6)
