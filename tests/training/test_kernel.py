import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from noisycgd.contrasts import ContrastLoss, contrast_basis
from noisycgd.losses import EnvelopeSoftmax, MarginSoftmax, NormClippedSoftmax
from noisycgd.planning import plan_noisy_cgd
from noisycgd.training import kernel
from noisycgd.training.kernel import StepBatch, run_epoch, summed_gradient
from noisycgd.types import NoiseMultiplier

KINDS = ["linear", "iid", "antithetic"]


def one_batch(epoch, j):
    return StepBatch(*(field[j] for field in epoch))


gradient = jax.jit(summed_gradient)


@partial(jax.jit, static_argnames="convex")
def record_gradients(weights, batch, levels, loss, convex=True):
    """(b, M q, d) twin: each record's own derivative, by automatic differentiation of the loss of its logits."""

    def of_record(x, gates, target, scale):
        def logits(w):
            return jnp.einsum("m,d,mqd->q", gates * levels, x, w.reshape(len(levels), -1, len(x)))

        z, pull_back = jax.vjp(logits, weights)
        if convex:
            slope = jax.grad(lambda z: loss.value(z[None], target[None], scale[None])[0])(z)
        else:
            # Norm clipping of three or more logits is the gradient of nothing; for two it is the envelope.
            slope = loss.residual(z[None], target[None], scale[None])[0]
        return pull_back(slope)[0]

    patterns = batch.patterns.astype(weights.dtype)
    return jax.vmap(of_record)(batch.rows, patterns, batch.targets, batch.scales)


def random_weights(problem, size, dtype=np.float32, seed=3):
    shape = problem.features.n_gates * problem.n_outputs, problem.batches.rows.shape[2]
    return jnp.asarray(size * np.random.default_rng(seed).standard_normal(shape), dtype)


@pytest.mark.parametrize(
    ("kind", "dtype", "tolerance"),
    [*((kind, "float64", 1e-10) for kind in KINDS), ("iid", "float32", 1e-5), ("antithetic", "float32", 1e-5)],
)
def test_summed_gradient_is_the_sum_of_the_records_gradients(
    make_problem, as_epoch, loss_and_outputs, kind, dtype, tolerance
):
    problem = make_problem(*loss_and_outputs, kind=kind, method="clip")
    with jax.enable_x64(dtype == "float64"):
        epoch = as_epoch(problem.batches, 1.0, dtype)
        levels = jnp.asarray(problem.features.levels, dtype)
        weights = random_weights(problem, 1.0, dtype)
        for j in range(len(problem.batches.rows)):
            batch = one_batch(epoch, j)
            convex = not isinstance(problem.loss, NormClippedSoftmax)
            each = np.asarray(record_gradients(weights, batch, levels, problem.loss, convex), np.float64)
            actual = np.asarray(gradient(weights, batch, levels, problem.loss))
            assert actual.dtype == dtype
            scale = np.linalg.norm(each, axis=(1, 2)).sum()
            assert scale > 0
            assert np.linalg.norm(actual - each.sum(axis=0)) <= tolerance * scale


@pytest.mark.parametrize("method", ["normalize", "clip"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_records_gradient_exceeds_the_planned_bound(make_problem, as_epoch, loss_and_outputs, kind, method):
    problem = make_problem(*loss_and_outputs, kind=kind, method=method, n=32, b=8)
    epoch, levels = as_epoch(problem.batches, 1.0), jnp.asarray(problem.features.levels)
    largest = 0.0
    for size in (0.0, 1.0, 30.0, 1e4):
        weights = random_weights(problem, size)
        for j in range(len(problem.batches.rows)):
            batch = one_batch(epoch, j)
            for i in range(8):
                # The other records become zero rows, which have no gradient.
                alone = batch._replace(rows=batch.rows.at[jnp.arange(8) != i].set(0))
                value = np.asarray(gradient(weights, alone, levels, problem.loss), np.float64)
                largest = max(largest, np.linalg.norm(value))
    # Not a bit above: the float32 slack in rho covers all rounding.
    assert largest <= problem.plan.gradient_bound
    if kind != "iid":
        # Negative control: the bound is attained, so that one of 99 % would have been refuted.
        assert largest > 0.99 * problem.plan.gradient_bound


def test_filler_rows_have_no_gradient(make_problem, as_epoch, loss_and_outputs):
    problem = make_problem(*loss_and_outputs, n=22, b=8)
    convex = not isinstance(problem.loss, NormClippedSoftmax)
    last = one_batch(as_epoch(problem.batches, 1.0), 2)
    levels, weights = jnp.asarray(problem.features.levels), random_weights(problem, 1.0)
    filled = np.asarray(gradient(weights, last, levels, problem.loss))
    each = np.asarray(record_gradients(weights, last, levels, problem.loss, convex))
    np.testing.assert_allclose(filled, each[:6].sum(axis=0), atol=1e-5 * np.abs(filled).max())
    assert each[:6].any(axis=(1, 2)).all()
    only_filler = StepBatch(*(jnp.broadcast_to(field[-1:], field.shape) if field.ndim else field for field in last))
    assert not np.asarray(gradient(weights, only_filler, levels, problem.loss)).any()


def numpy_epoch(residual, normals, weights, problem, rates, l2, noise_std, key, divisor=None):
    """Twin: theta <- theta - eta (sum of gradients / b + l2 theta + noise_std Z), one record at a time, in float64."""
    theta = np.asarray(weights, np.float64)
    levels, batches = problem.features.levels.astype(np.float64), problem.batches
    _, b, d = batches.rows.shape
    for j, eta in enumerate(rates):
        z = []
        for x, gates in zip(batches.rows[j], batches.patterns[j], strict=True):
            z.append(np.einsum("d,mqd,m->q", x, theta.reshape(len(levels), -1, d), gates * levels))
        r = np.asarray(residual(problem.loss, np.asarray(z, np.float32), batches.targets[j], batches.scales[j]))
        total = np.zeros_like(theta)
        for x, gates, slope in zip(batches.rows[j], batches.patterns[j], r, strict=True):
            total += np.einsum("d,m,q->mqd", x, gates * levels, slope).reshape(-1, d)
        Z = normals(jax.random.fold_in(key, j), theta.shape)
        theta = theta - eta * (total / (divisor or b) + l2 * theta + noise_std * Z)
    return theta


@pytest.mark.parametrize("kind", ["iid", "antithetic"])
def test_run_epoch_is_the_update_formula(make_problem, as_epoch, residual, normals, loss_and_outputs, kind):
    problem = make_problem(*loss_and_outputs, kind=kind)
    rates, key = np.array([0.5, 0.3, 0.2]), jax.random.key(5)
    weights = random_weights(problem, 0.5)
    expected = numpy_epoch(residual, normals, weights, problem, rates, 0.1, 0.7, key)
    epoch, levels = as_epoch(problem.batches, rates), jnp.asarray(problem.features.levels)
    actual = run_epoch(weights, epoch, levels, problem.loss, jnp.float32(0.1), jnp.float32(0.7), key)
    np.testing.assert_allclose(actual, expected, atol=2e-5 * np.abs(expected).max())


def test_the_divisor_is_the_nominal_batch_size(make_problem, as_epoch, residual, normals):
    # 17 records in batches of 16: the last record counts as 1/16, not as a batch of its own.
    problem = make_problem(MarginSoftmax(2.0), 3, n=17, b=16)
    rates, key = np.array([0.0, 1.0]), jax.random.key(5)
    epoch, levels = as_epoch(problem.batches, rates), jnp.asarray(problem.features.levels)
    zero = np.zeros_like(random_weights(problem, 0.0))
    actual = run_epoch(jnp.asarray(zero), epoch, levels, problem.loss, jnp.float32(0), jnp.float32(0), key)
    np.testing.assert_allclose(actual, numpy_epoch(residual, normals, zero, problem, rates, 0, 0, key), atol=1e-6)
    assert not np.allclose(
        actual, numpy_epoch(residual, normals, zero, problem, rates, 0, 0, key, divisor=1), atol=1e-2
    )


@pytest.mark.parametrize("b", [2, 8])
def test_l2_enters_once_per_batch(make_problem, as_epoch, b):
    problem = make_problem(MarginSoftmax(2.0), 3, n=16, b=b)
    k = len(problem.batches.rows)
    epoch, levels = as_epoch(problem.batches, 0.5), jnp.asarray(problem.features.levels)
    epoch = epoch._replace(rows=jnp.zeros_like(epoch.rows))
    weights = random_weights(problem, 1.0)
    expected = np.asarray(weights, np.float64) * (1 - 0.5 * 0.2) ** k
    actual = run_epoch(weights, epoch, levels, problem.loss, jnp.float32(0.2), jnp.float32(0), jax.random.key(0))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("when", [0, -1], ids=["first", "last"])
def test_rounding_moves_the_weights_far_less_than_a_record_can(make_problem, as_epoch, when):
    # MNIST's sizes and the paper's 400 epochs, under the decaying default: THEORY section 5 covers an error of at most
    # e in a step by s + 2 e, and e / s = 1e-4 costs a hundredth of the noise.
    problem = make_problem(MarginSoftmax(20.0), 10, n=1000, d=784, P=64, b=1000)
    plan = plan_noisy_cgd(
        certificate=problem.plan.certificate,
        feature_norm=problem.plan.feature_norm,
        n_records=60_000,
        target=NoiseMultiplier(15.0, 1e-5),
        epochs=400,
        batch_size=1000,
    )
    rate = plan.learning_rates[when]
    moved = 2 * rate * plan.gradient_bound / 1000

    def step(weights, state, products):
        epoch = as_epoch(problem.batches, rate, products)._replace(learning_rate=jnp.asarray([rate], state))
        levels, key = jnp.asarray(problem.features.levels, products), jax.random.key(7)
        numbers = jnp.asarray(plan.l2, state), jnp.asarray(plan.noise_std, state)
        found = run_epoch(jnp.asarray(weights, state), epoch, levels, problem.loss, *numbers, key)
        assert found.dtype == state
        return np.asarray(found, np.float64)

    with jax.enable_x64(True):
        weights = np.asarray(random_weights(problem, plan.logit_noise / plan.feature_norm, np.float64))
        error = np.linalg.norm(step(weights, "float64", "float32") - step(weights, "float64", "float64"))
        assert error < 5e-5 * moved
        # Negative control: so much for weights that are float32 themselves.
        weights = np.float32(weights)
        error = np.linalg.norm(step(weights, "float32", "float32") - step(weights, "float64", "float64"))
        assert error > (5e-3, 0.3)[when] * moved


def fixed_records(rows):
    """A batch of two classes with one label, whose residual at the zero model is (nearly) as long as it gets."""
    b = len(rows)
    return StepBatch(
        jnp.asarray(rows),
        jnp.ones((b, 1), jnp.int8),
        jnp.zeros(b, jnp.int32),
        jnp.ones(b, jnp.float32),
        jnp.zeros(()),
        jnp.int32(0),
    )


class TestLargeSums:
    """Batches beyond LARGEST_SUM are added up in float64, part by part (THEORY section 5)."""

    @pytest.mark.parametrize("b", [7, 8, 9, 23, 24])
    def test_parts_add_up_to_the_whole(self, make_problem, as_epoch, monkeypatch, b):
        problem = make_problem(MarginSoftmax(2.0), 3, n=b, b=b)
        levels, weights = jnp.asarray(problem.features.levels), random_weights(problem, 1.0)
        batch = one_batch(as_epoch(problem.batches, 0.1), 0)
        whole = summed_gradient(weights, batch, levels, problem.loss)
        monkeypatch.setattr(kernel, "LARGEST_SUM", 8)
        with jax.enable_x64(True):
            parts = summed_gradient(weights, batch, levels, problem.loss)
        assert parts.dtype == (np.float64 if b > 8 else np.float32)
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("b", [1000, 60_000])
    def test_no_record_moves_a_sum_by_more_than_is_counted(self, monkeypatch, b):
        # Rows that nearly agree, one of them turned round: the worst that was found for rounding.
        rng = np.random.default_rng(0)
        rows = rng.standard_normal(3) + 0.2 * rng.standard_normal((b, 3))
        rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        loss = ContrastLoss(MarginSoftmax(20.0), jnp.asarray(contrast_basis(MarginSoftmax(20.0), 2)))
        weights, levels = jnp.zeros((1, 3), jnp.float32), jnp.ones(1, jnp.float32)

        def excess():
            add = jax.jit(lambda batch: summed_gradient(weights, batch, levels, loss))
            with jax.enable_x64(True):
                found = np.asarray(add(fixed_records(rows)), np.float64)
                moved = []
                for i in rng.integers(b, size=20):
                    other = rows.copy()
                    other[i] *= -1
                    moved.append(np.linalg.norm(np.asarray(add(fixed_records(other)), np.float64) - found))
            return max(moved) / (2 * np.sqrt(2)) - 1

        assert excess() < 2e-4
        if b > kernel.LARGEST_SUM:
            # Negative control: one float32 sum of them all.
            monkeypatch.setattr(kernel, "LARGEST_SUM", b)
            assert excess() > 5e-4


def test_rounding_of_records_made_to_that_end():
    # All rows equal, logits where the loss bends most: every record's rounding points the same way, and the step may
    # take two models further apart, which the proof excludes. THEORY section 5 says by how much of s.
    b, d, margin = 980, 64, 20.0
    rng = np.random.default_rng(0)
    row = rng.standard_normal(d)
    row = (row / np.linalg.norm(row)).astype(np.float32)
    basis = contrast_basis(MarginSoftmax(margin), 2)
    loss = ContrastLoss(MarginSoftmax(margin), jnp.asarray(basis))
    rate = 0.97 * 2 / MarginSoftmax(margin).certificate(2).smoothness

    def spread(products):
        with jax.enable_x64(True):
            batch = fixed_records(np.tile(row, (b, 1)).astype(products))
            levels = jnp.ones(1, products)
            add = jax.jit(lambda weights: summed_gradient(weights.astype(products), batch, levels, loss))
            worst, rng = -np.inf, np.random.default_rng(1)
            for _ in range(60):
                first = 0.3 * margin / 8 * rng.standard_normal((1, d))
                bend = margin / (basis[0, 0] - basis[0, 1]) * (1 + 0.02 * rng.standard_normal())
                first += (bend - first @ row) * row / (row @ row)
                way = rng.standard_normal((1, d))
                second = first + 1e-6 * margin * way / np.linalg.norm(way)
                step = np.asarray(add(jnp.asarray(second)) - add(jnp.asarray(first)), np.float64) * rate / b
                worst = max(worst, np.linalg.norm(second - first - step) - np.linalg.norm(second - first))
        return worst / (rate * 2 * np.sqrt(2) / b)

    assert 1e-4 < spread("float32") < 5e-3
    # In float64 the step brings models together, as the proof says, up to rounding that is far below.
    assert spread("float64") < 1e-9


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def sizes_in_jaxpr(function, *arguments):
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    return [variable.aval.size for e in equations(jaxpr) for variable in e.outvars]


def sizes_in_program(function, *arguments):
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return [int(np.prod([int(n) for n in dims.split(",")])) for dims in re.findall(r"[a-z]+\d+\[([\d,]+)\]", text)]


@pytest.mark.parametrize(
    ("loss", "sizes"),
    [
        (MarginSoftmax(2.0), sizes_in_jaxpr),
        (MarginSoftmax(2.0), sizes_in_program),
        (EnvelopeSoftmax(0.4), sizes_in_jaxpr),
    ],
)
def test_no_record_has_a_gradient_of_its_own_in_memory(make_problem, as_epoch, sizes, loss):
    n, b, d, P, q = 48, 24, 10, 8, 3
    problem = make_problem(loss, q, n=n, d=d, P=P, b=b)
    M = problem.features.n_gates
    epoch, levels = as_epoch(problem.batches, 0.1), jnp.asarray(problem.features.levels)
    weights = random_weights(problem, 1.0)
    arguments = weights, epoch, levels, loss, jnp.float32(0), jnp.float32(1), jax.random.key(0)
    forbidden = b * d * M
    found = sizes(run_epoch, *arguments)
    assert {b * M * q, d * M * q} <= set(found)
    assert max(found) < forbidden
    # Negative control: the twin does form them, and the same inspection sees it.
    assert max(sizes(record_gradients, weights, one_batch(epoch, 0), levels, loss)) >= forbidden


def test_products_ask_for_full_float32_precision(make_problem, as_epoch):
    # By default accelerators round the factors to TF32 or bfloat16.
    problem = make_problem(MarginSoftmax(2.0), 3)
    epoch, levels = as_epoch(problem.batches, 0.1), jnp.asarray(problem.features.levels)
    function = partial(summed_gradient, levels=levels, loss=problem.loss)
    jaxpr = jax.make_jaxpr(function)(random_weights(problem, 1.0), one_batch(epoch, 0)).jaxpr
    products = [e for e in equations(jaxpr) if e.primitive.name == "dot_general"]
    assert len(products) == 2
    highest = jax.lax.Precision.HIGHEST
    assert all(e.params["precision"] == (highest, highest) for e in products)


def test_weights_are_donated_and_nothing_else_is(make_problem, as_epoch):
    problem = make_problem(MarginSoftmax(2.0), 3)
    epoch, levels = as_epoch(problem.batches, 0.1), jnp.asarray(problem.features.levels)
    results = []
    for _ in range(2):
        weights = random_weights(problem, 1.0)
        results.append(
            run_epoch(weights, epoch, levels, problem.loss, jnp.float32(0), jnp.float32(1), jax.random.key(0))
        )
        assert weights.is_deleted()
        assert not any(array.is_deleted() for array in (*epoch, levels))
    np.testing.assert_array_equal(*results)


def test_new_numbers_compile_nothing_anew(make_problem, as_epoch):
    # Shapes of this test's own: no other test has compiled them before.
    problem = make_problem(MarginSoftmax(2.0), 3, d=9)
    levels = jnp.asarray(problem.features.levels)

    def run(loss, rate=0.1, l2=0.0, noise_std=1.0, seed=0):
        epoch = as_epoch(problem.batches, rate)
        weights = random_weights(problem, 1.0)
        run_epoch(weights, epoch, levels, loss, jnp.float32(l2), jnp.float32(noise_std), jax.random.key(seed))
        return run_epoch._cache_size()

    compiled = run(MarginSoftmax(2.0))
    assert run(MarginSoftmax(7.5), rate=0.3, l2=0.2, noise_std=4.0, seed=1) == compiled
    # Negative control: another loss is another program.
    with_clip = run(NormClippedSoftmax(0.5))
    assert with_clip == compiled + 1
    assert run(NormClippedSoftmax(0.3)) == with_clip
