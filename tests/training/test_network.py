import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from noisycgd._validation import ParameterError
from noisycgd.training.network import (
    NetworkParameters,
    NetworkRecords,
    ReLUNetworkModel,
    network_logits,
    network_norms,
    start_network,
)

clipped_sum = jax.jit(lambda model, *arguments: model.clipped_sum(*arguments))
norms_of = jax.jit(network_norms)


def make_parameters(d, W, q, dtype=np.float32, seed=0, size=1.0):
    rng = np.random.default_rng(seed)
    shapes = (W, d), (W,), (q, W), (q,)
    return NetworkParameters(*(jnp.asarray(size * rng.standard_normal(shape), dtype) for shape in shapes))


def make_records(c, d, q, dtype=np.float32, seed=1):
    # Rows of very different norms, a zero row among them.
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((c, d)) * np.logspace(-3, 0, c)[:, None]
    rows[0] = 0
    return NetworkRecords(jnp.asarray(rows, dtype), jnp.asarray(rng.integers(0, q, c), jnp.int32))


@jax.jit
def record_gradients(parameters, records):
    """Each record's own gradient, by automatic differentiation of the plain loss."""

    def loss(parameters, x, target):
        W1, b1, W2, b2 = parameters
        return -jax.nn.log_softmax(W2 @ jax.nn.relu(W1 @ x + b1) + b2)[target]

    return jax.vmap(jax.grad(loss), (None, 0, 0))(parameters, *records)


def twin(parameters, records):
    """(c, all numbers): `record_gradients` in float64, as those of well classified records cancel in float32."""
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), parameters)
        found = record_gradients(wide, NetworkRecords(jnp.asarray(records.rows, jnp.float64), records.targets))
        return np.concatenate([np.asarray(leaf).reshape(len(leaf), -1) for leaf in found], axis=1)


def flat(total):
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in total])


PRECISIONS = [("float32", 1e-5), ("float64", 1e-10)]


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("size", [0.1, 1.0])
def test_norms_are_those_of_the_records_gradients(dtype, tolerance, size):
    with jax.enable_x64(dtype == "float64"):
        parameters, records = make_parameters(7, 11, 4, dtype, size=size), make_records(30, 7, 4, dtype)
        actual = norms_of(parameters, records)
        assert actual.dtype == dtype
        np.testing.assert_allclose(actual, np.linalg.norm(twin(parameters, records), axis=1), rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("bound", [1e-3, 1.0, 4.0, 1e6])
def test_the_sum_is_that_of_the_clipped_gradients(dtype, tolerance, bound):
    with jax.enable_x64(dtype == "float64"):
        parameters, records = make_parameters(7, 11, 4, dtype), make_records(30, 7, 4, dtype)
        present = jnp.arange(30) % 3 != 1
        each = twin(parameters, records)
        norms = np.linalg.norm(each, axis=1)
        if bound == 4.0:
            assert (norms < bound).any()
            assert (norms > bound).any()
        expected = (each * np.minimum(1, bound / norms)[:, None])[np.asarray(present)].sum(axis=0)
        actual = clipped_sum(ReLUNetworkModel(bound), parameters, records, present)
        assert [(leaf.shape, leaf.dtype) for leaf in actual] == [(leaf.shape, leaf.dtype) for leaf in parameters]
        np.testing.assert_allclose(flat(actual), expected, rtol=0, atol=tolerance * np.linalg.norm(expected))


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_no_record_adds_more_than_the_bound(size):
    c, bound = 40, 0.7
    parameters, records = make_parameters(9, 13, 5, size=size), make_records(c, 9, 5)
    model = ReLUNetworkModel(bound)
    largest = 0.0
    for i in range(c):
        alone = flat(clipped_sum(model, parameters, records, jnp.arange(c) == i))
        largest = max(largest, np.linalg.norm(alone))
    # Not a bit above, and attained up to rounding.
    assert 0.9999 * bound < largest <= bound


@pytest.mark.parametrize("garbage", [1e30, np.inf, -np.inf, np.nan])
def test_absent_rows_add_nothing_whatever_they_hold(garbage):
    parameters, records = make_parameters(7, 11, 4), make_records(12, 7, 4)
    present = jnp.arange(12) < 8
    model = ReLUNetworkModel(1.0)
    expected = clipped_sum(model, parameters, NetworkRecords(records.rows[:8], records.targets[:8]), jnp.ones(8, bool))
    spoiled = NetworkRecords(records.rows.at[8:].set(garbage), records.targets.at[8:].set(-7))
    found = clipped_sum(model, parameters, spoiled, present)
    np.testing.assert_allclose(flat(found), flat(expected), atol=1e-6)
    assert not flat(clipped_sum(model, parameters, spoiled, jnp.zeros(12, bool))).any()


@pytest.mark.parametrize("size", [1e12, 1e25, 1e37])
def test_a_record_whose_gradient_overflows_adds_nothing_and_spoils_nothing(size):
    # Row 0 overflows in a product or in its norm; row 1 does not even activate anything.
    parameters = NetworkParameters(
        jnp.full((3, 2), 1.0).at[:, 1].set(-1.0), jnp.zeros(3), jnp.asarray([[1.0, 2, 0], [-1, 1, 1]]), jnp.zeros(2)
    )
    rows, targets = jnp.asarray([[size, 0.0], [0.0, 1.0]]), jnp.asarray([1, 1])
    model = ReLUNetworkModel(0.5)
    larger = parameters._replace(hidden_weights=size * parameters.hidden_weights)
    alone = clipped_sum(model, larger, NetworkRecords(rows, targets), jnp.asarray([False, True]))
    both = clipped_sum(model, larger, NetworkRecords(rows, targets), jnp.asarray([True, True]))
    assert np.isfinite(flat(both)).all()
    assert np.linalg.norm(flat(both) - flat(alone)) <= 0.5
    assert np.linalg.norm(flat(alone)) == pytest.approx(0.5, rel=1e-4)


def sizes_in_program(function, *arguments):
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return [int(np.prod([int(n) for n in dims.split(",")])) for dims in re.findall(r"[a-z]+\d+\[([\d,]+)\]", text)]


def test_no_record_has_a_gradient_of_its_own_in_memory():
    c, d, W, q = 24, 10, 18, 3
    parameters, records = make_parameters(d, W, q), make_records(c, d, q)
    forbidden = c * W * q
    found = sizes_in_program(ReLUNetworkModel(1.0).clipped_sum, parameters, records, jnp.ones(c, bool))
    assert {c * d, c * W, d * W} <= set(found)
    assert max(found) < forbidden < c * d * W
    # Negative control: the twin does form them, and the same inspection sees it.
    assert max(sizes_in_program(record_gradients, parameters, records)) >= c * d * W


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_products_ask_for_full_float32_precision():
    # By default accelerators round the factors to TF32 or bfloat16.
    parameters, records = make_parameters(7, 11, 4), make_records(12, 7, 4)
    jaxpr = jax.make_jaxpr(ReLUNetworkModel(1.0).clipped_sum)(parameters, records, jnp.ones(12, bool)).jaxpr
    products = [e for e in equations(jaxpr) if e.primitive.name == "dot_general"]
    # Two forward, one back, and one per block of weights.
    assert len(products) == 5
    highest = jax.lax.Precision.HIGHEST
    assert all(e.params["precision"] == (highest, highest) for e in products)


def test_start_parameters_are_uniform_in_the_layers_inputs():
    d, W, q = 400, 100, 10
    start = start_network(d, W, q, seed=3)
    assert [leaf.shape for leaf in start] == [(W, d), (W,), (q, W), (q,)]
    for leaf, inputs in zip(start, (d, d, W, W), strict=True):
        assert leaf.dtype == np.float32
        limit = 1 / np.sqrt(inputs)
        assert 0.8 * limit < np.abs(leaf).max() <= limit * (1 + 1e-6)
    # A uniform's standard deviation; of 40 000 draws it is off by 0.3 % (5 sigma would be 1.2 %).
    assert start.hidden_weights.std() == pytest.approx(1 / np.sqrt(3 * d), rel=0.012)
    again, other = start_network(d, W, q, seed=3), start_network(d, W, q, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(start, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(start, other, strict=True))
    with pytest.raises(ParameterError, match="seed must be an integer at least 0; got -1"):
        start_network(d, W, q, seed=-1)


def test_a_start_at_zero_would_train_the_output_bias_alone():
    # Why there is a random start (THEORY section 6).
    zero = jax.tree.map(jnp.zeros_like, make_parameters(7, 11, 4))
    records, present = make_records(12, 7, 4), jnp.ones(12, bool)
    stuck = clipped_sum(ReLUNetworkModel(1.0), zero, records, present)
    assert [bool(leaf.any()) for leaf in stuck] == [False, False, False, True]
    moving = clipped_sum(ReLUNetworkModel(1.0), start_network(7, 11, 4, 0), records, present)
    assert all(leaf.any() for leaf in moving)


@pytest.mark.parametrize("n", [0, 1, 25])
def test_logits_are_those_of_the_network(n, monkeypatch):
    monkeypatch.setattr("noisycgd.training.network._ROWS_AT_ONCE", 10)
    parameters = jax.tree.map(np.asarray, make_parameters(7, 11, 4))
    rows = np.random.default_rng(5).standard_normal((n, 7)).astype(np.float32)
    W1, b1, W2, b2 = (leaf.astype(np.float64) for leaf in parameters)
    expected = [[sum(max(x @ W1[j] + b1[j], 0) * W2[c, j] for j in range(11)) + b2[c] for c in range(4)] for x in rows]
    actual = network_logits(parameters, rows)
    assert (actual.shape, actual.dtype) == ((n, 4), np.float32)
    np.testing.assert_allclose(actual, np.reshape(expected, (n, 4)), rtol=1e-6, atol=1e-6)


def test_logits_of_a_row_are_the_same_beside_others_and_alone():
    # A float64 sum moves a float32 result with probability 1e-8 or so; a float32 sum moves most of these.
    parameters = jax.tree.map(np.asarray, make_parameters(200, 50, 4))
    rows = np.random.default_rng(6).standard_normal((64, 200)).astype(np.float32)
    alone = np.concatenate([network_logits(parameters, row[None]) for row in rows])
    np.testing.assert_array_equal(network_logits(parameters, rows), alone)
