import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from noisycgd import clipping
from noisycgd._validation import ParameterError
from noisycgd.clipping import clip_norm, envelope_residual, envelope_value, rounding_slack, solver_error

ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text())
RECORDS = 512
residual_of = jax.jit(envelope_residual)
value_of = jax.jit(envelope_value)
distance_of = jax.jit(jax.grad(lambda *arguments: jnp.sum(envelope_value(*arguments)), argnums=2))


def call(function, logits, labels, clip, dtype=np.float64):
    """NumPy in, NumPy out. Records are padded to one number, so that few shapes need compiling."""
    records = len(logits)
    logits, labels, clip = (
        np.concatenate([a, np.repeat(a[-1:], RECORDS - records, axis=0)])
        for a in (np.asarray(logits, dtype), np.asarray(labels), np.broadcast_to(np.asarray(clip, dtype), records))
    )
    with jax.enable_x64(dtype is np.float64):
        result = function(jnp.array(logits), jnp.array(labels, jnp.int32), jnp.array(clip))
        assert result.dtype == dtype
    return np.asarray(result)[:records]


def softmax_residual(logits, labels):
    return softmax(logits, axis=-1) - np.eye(logits.shape[-1])[labels]


def scattered_logits(rng, records, outputs):
    """Logits of every size up to 1e4, a third of them integers (ties), and labels that are often far from winning."""
    logits = rng.normal(size=(records, outputs)) * 10 ** rng.uniform(-2, 4, (records, 1))
    logits[::3] = np.round(logits[::3])
    logits[1::6] = rng.choice([-1e4, 0.0, 1.0, 1e4], size=logits[1::6].shape)
    return np.clip(logits, -1e4, 1e4), rng.integers(0, outputs, records)


def exact_envelope_residual(logits, label, clip):
    """Forty-digit twin: bisection over Lambert's W, and a check that the result solves the problem as stated."""
    with mpmath.workdps(40):
        z, c = [mpmath.mpf(float(v)) for v in logits], mpmath.mpf(float(clip))
        rest = [j for j in range(len(z)) if j != label]

        def residual(point):
            top = max(point)
            weights = [mpmath.exp(v - top) for v in point]
            r = [w / mpmath.fsum(weights) for w in weights]
            r[label] = -mpmath.fsum(r[j] for j in rest)
            return r

        def norm(vector):
            return mpmath.sqrt(mpmath.fsum(v * v for v in vector))

        if norm(residual(z)) <= c:
            return residual(z)
        top = max(z[j] for j in rest)

        def direction(a):
            w = {g: mpmath.re(mpmath.lambertw(a * mpmath.exp(a - g))) / a for g in {top - z[j] for j in rest}}
            r = [w[top - v] for v in z[:label]] + [mpmath.mpf(0)] + [w[top - v] for v in z[label + 1 :]]
            r[label] = -mpmath.fsum(r)
            return r

        low, high = mpmath.mpf(10) ** -30, top - z[label] + mpmath.log(len(z) / c) + 1
        while high - low > mpmath.mpf(10) ** -36 * high:
            a = mpmath.sqrt(low * high) if high > 4 * low else (low + high) / 2
            r = direction(a)
            below = c * (mpmath.exp(a * (1 - r[label]) - (top - z[label])) - r[label]) < norm(r)
            low, high = (a, high) if below else (low, a)
        r = direction(low)
        g = [v * c / norm(r) for v in r]
        t = low * norm(r) / c
        back = residual([v - t * s for v, s in zip(z, g, strict=True)])
        assert norm([b - s for b, s in zip(back, g, strict=True)]) < mpmath.mpf(10) ** -22
        return g


@pytest.mark.parametrize("case", ORACLES["envelope"])
def test_envelope_oracles(case):
    record = [case["z"]], [case["y"]], case["c"]
    np.testing.assert_allclose(call(residual_of, *record)[0], case["g"], rtol=0, atol=1e-11)
    if case["value"] is not None:
        np.testing.assert_allclose(call(value_of, *record)[0], case["value"], rtol=1e-11)
    np.testing.assert_allclose(call(distance_of, *record)[0], case["t"] * case["c"], rtol=1e-10)


@pytest.mark.parametrize("outputs", [2, 3, 4])
def test_envelope_is_the_minimum_that_defines_it(outputs):
    rng = np.random.default_rng(outputs)
    logits, labels = rng.normal(size=(8, outputs)) * 3, rng.integers(0, outputs, 8)
    clips = rng.uniform(0.1, 1.2, 8)
    values, residuals = (call(function, logits, labels, clips) for function in (value_of, residual_of))
    active = 0
    for z, y, c, value, residual in zip(logits, labels, clips, values, residuals, strict=True):

        def objective(w, z=z, y=y, c=c):
            away = w - z
            length = np.linalg.norm(away) + 1e-300
            return logsumexp(w) - w[y] + c * length, softmax_residual(w, y) + c * away / length

        plain = softmax_residual(z, y)
        if np.linalg.norm(plain) <= c:
            assert value == pytest.approx(logsumexp(z) - z[y], abs=1e-12)
            np.testing.assert_allclose(residual, plain, atol=1e-12)
            continue
        active += 1
        found = minimize(objective, z - plain, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
        assert value == pytest.approx(found.fun, abs=1e-9)
        np.testing.assert_allclose(residual, softmax_residual(found.x, y), atol=1e-6)
    assert active >= 2


@pytest.mark.parametrize("outputs", [2, 3, 10])
def test_residual_is_the_numerical_gradient_of_the_value(outputs):
    rng = np.random.default_rng(outputs)
    logits, labels, clips = (
        rng.normal(size=(40, outputs)) * 4,
        rng.integers(0, outputs, 40),
        rng.uniform(0.05, 1.41, 40),
    )
    h = 1e-5
    numerical = np.stack(
        [
            (call(value_of, logits + h * e, labels, clips) - call(value_of, logits - h * e, labels, clips)) / (2 * h)
            for e in np.eye(outputs)
        ],
        axis=-1,
    )
    np.testing.assert_allclose(call(residual_of, logits, labels, clips), numerical, atol=1e-8)
    numerical = (call(value_of, logits, labels, clips + h) - call(value_of, logits, labels, clips - h)) / (2 * h)
    np.testing.assert_allclose(call(distance_of, logits, labels, clips), numerical, atol=1e-4)


@pytest.mark.parametrize(("outputs", "records"), [(2, 6), (3, 12), (10, 9), (100, 1)])
@pytest.mark.parametrize("clip", [0.01, 0.35, 1.0, 1.1, 1.41])
def test_error_in_float64_is_as_stated(outputs, records, clip):
    rng = np.random.default_rng([outputs, round(100 * clip)])
    logits, labels = scattered_logits(rng, records, outputs)
    undercut = clip * (1 - rounding_slack(outputs, np.float64))
    computed = call(residual_of, logits, labels, clip)
    exact = [exact_envelope_residual(z, y, undercut) for z, y in zip(logits, labels, strict=True)]
    error = np.linalg.norm(computed - np.array(exact, dtype=float), axis=-1)
    assert error.max() <= solver_error(np.float64) * clip


@pytest.mark.parametrize("outputs", [2, 3, 10, 100])
@pytest.mark.parametrize("clip", [0.01, 0.35, 0.9, 1.1, 1.3, 1.41])
def test_error_in_float32_is_as_stated(outputs, clip):
    logits, labels = scattered_logits(np.random.default_rng(outputs), 500, outputs)
    logits, clip = logits.astype(np.float32), np.float32(clip)
    computed = call(residual_of, logits, labels, clip, np.float32)
    undercut = clip * np.float32(1 - rounding_slack(outputs, np.float32))
    error = np.linalg.norm(computed - call(residual_of, logits, labels, undercut), axis=-1)
    assert error.max() <= solver_error(np.float32) * clip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("outputs", [2, 3, 10, 100])
@pytest.mark.parametrize("clip", [0.01, 0.3535, 0.7, 1.0, 1.2, 1.41])
def test_bound_holds_exactly_and_rows_sum_to_zero(dtype, outputs, clip):
    logits, labels = scattered_logits(np.random.default_rng(outputs), 500, outputs)
    residual = call(residual_of, logits, labels, clip, dtype).astype(np.longdouble)
    assert np.isfinite(residual).all()
    norms = np.sqrt(np.sum(residual**2, axis=-1))
    assert norms.max() <= clip
    assert norms.max() >= clip * (1 - 2 * rounding_slack(outputs, dtype))
    assert np.abs(residual.sum(axis=-1)).max() <= 2 * outputs * np.finfo(dtype).eps * clip


@pytest.mark.parametrize("clip", [0.05, 0.5, 1.0, 1.4])
def test_two_classes_are_clipped_by_norm(clip):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 2)) * 5, rng.integers(0, 2, 200)
    plain = softmax_residual(logits, labels)
    clipped = plain * np.minimum(1, clip / np.linalg.norm(plain, axis=-1, keepdims=True))
    np.testing.assert_allclose(call(residual_of, logits, labels, clip), clipped, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("clip", [1.4143, 10.0, math.inf])
def test_a_clip_above_root_two_changes_nothing(clip):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(200, 10)) * 3, rng.integers(0, 10, 200)
    plain = softmax_residual(logits, labels)
    values = logsumexp(logits, axis=-1) - logits[np.arange(200), labels]
    np.testing.assert_allclose(call(residual_of, logits, labels, clip), plain, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(call(value_of, logits, labels, clip), values, rtol=1e-12, atol=1e-14)


def test_value_is_between_zero_and_the_loss():
    logits, labels = scattered_logits(np.random.default_rng(1), 300, 10)
    loss = logsumexp(logits, axis=-1) - logits[np.arange(300), labels]
    for clip in (0.05, 0.5, 1.2):
        value = call(value_of, logits, labels, clip)
        assert np.all(value <= loss + 1e-11 * (1 + loss))
        assert np.all(value >= 0)


def test_halving_alone_finds_the_same_root(monkeypatch):
    logits, labels = scattered_logits(np.random.default_rng(2), RECORDS, 5)
    record = logits, labels, np.linspace(0.05, 1.4, RECORDS)

    def residual(newton_steps, most_steps):
        monkeypatch.setattr(clipping, "_NEWTON_STEPS", newton_steps)
        monkeypatch.setattr(clipping, "_MOST_STEPS", most_steps)
        # Compiled searches of this shape still hold the old constants.
        clipping._pull.clear_cache()
        return call(jax.jit(lambda *arguments: envelope_residual(*arguments)), *record)

    newton = call(residual_of, *record)
    np.testing.assert_allclose(residual(0, clipping._MOST_STEPS), newton, rtol=0, atol=1e-13)
    assert np.abs(residual(0, 3) - newton).max() > 1e-3
    monkeypatch.undo()
    clipping._pull.clear_cache()


def test_records_do_not_influence_each_other():
    logits, labels = scattered_logits(np.random.default_rng(3), 30, 10)
    clips = np.linspace(0.05, 1.3, 30)
    together = call(residual_of, logits, labels, clips)
    alone = [call(residual_of, logits[i : i + 1], labels[i : i + 1], clips[i])[0] for i in range(30)]
    mapped = call(jax.jit(jax.vmap(envelope_residual)), logits, labels, clips)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(together, mapped, rtol=0, atol=1e-14)


def test_clip_norm_scales_only_long_rows():
    rows = jnp.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-30.0, 40.0]])
    expected = [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [-0.6, 0.8]]
    np.testing.assert_allclose(clip_norm(rows, 1.0), expected, rtol=1e-5)
    np.testing.assert_array_equal(clip_norm(rows, 1.0)[1:3], rows[1:3])
    by_row = clip_norm(rows, jnp.array([5.1, 0.1, 1.0, math.inf]))
    np.testing.assert_allclose(by_row, [[3.0, 4.0], [0.06, 0.08], [0.0, 0.0], [-30.0, 40.0]], rtol=1e-5)


@pytest.mark.parametrize("outputs", [1, 2, 10, 300])
def test_clip_norm_never_exceeds_its_bound(outputs):
    rng = np.random.default_rng(outputs)
    rows = (rng.normal(size=(3000, outputs)) * 10 ** rng.uniform(-3, 3, (3000, 1))).astype(np.float32)
    clipped = np.asarray(clip_norm(jnp.array(rows), 0.1), np.longdouble)
    norms = np.sqrt(np.sum(clipped**2, axis=-1))
    assert norms.max() <= np.float32(0.1)
    # Without the slack rounding does carry rows over the bound, so this test can fail.
    naive = rows * np.minimum(1, np.float32(0.1) / np.sqrt(np.sum(rows * rows, axis=-1)))[:, None]
    assert np.sqrt(np.sum(naive.astype(np.longdouble) ** 2, axis=-1)).max() > np.float32(0.1)


def test_solver_error_is_known_for_two_precisions_only():
    assert solver_error(np.float64) <= 1e-10 < solver_error(jnp.float32)
    with pytest.raises(ParameterError, match="dtype must be float32 or float64; got 'bfloat16'"):
        solver_error(jnp.bfloat16)
