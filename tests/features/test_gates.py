import math

import numpy as np
import pytest

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.features import GatedFeatures, make_gates

D, P, Q = 7, 8, 3


def rows_with_ties(features, n=40):
    """Rows of which some are zero and some lie exactly on a hyperplane."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((n, D)).astype(np.float32)
    rows[0] = 0
    rows[1:4] = 0
    rows[1:4, 0] = [1, -1, 2]
    hyperplanes = features.hyperplanes.copy()
    hyperplanes[0, :2] = 0
    return rows, GatedFeatures(features.kind, features.n_hyperplanes, hyperplanes)


def explicit_pairs(rows, hyperplanes):
    """(n, P d): [1(u.x >= 0) x, 1(-u.x > 0) x] for every pair, in float64."""
    dots = rows @ hyperplanes
    gates = np.stack([dots >= 0, -dots > 0], axis=2).reshape(len(rows), -1)
    return (gates[:, :, None] * rows[:, None, :].astype(np.float64)).reshape(len(rows), -1)


def compact(features, rows):
    """(n, M d): phi in the package's coordinates, in float64."""
    gates = features.patterns(rows) * features.levels.astype(np.float64)
    return (gates[:, :, None] * rows[:, None, :].astype(np.float64)).reshape(len(rows), -1)


def change_of_coordinates():
    """(P/2 + 1, P): the sum of all gates over sqrt P, then each pair's difference over sqrt 2."""
    W = np.zeros((P // 2 + 1, P))
    W[0] = 1 / math.sqrt(P)
    for i in range(P // 2):
        W[1 + i, 2 * i], W[1 + i, 2 * i + 1] = math.sqrt(0.5), -math.sqrt(0.5)
    return W


@pytest.fixture
def antithetic():
    return rows_with_ties(make_gates("antithetic", D, P, 0))


def test_the_change_of_coordinates_is_a_partial_isometry():
    # W W' = I: white noise in the P d full coordinates becomes white noise in ours.
    W = change_of_coordinates()
    np.testing.assert_allclose(W @ W.T, np.eye(P // 2 + 1), atol=1e-15)


def test_antithetic_features_are_the_explicit_gates_in_other_coordinates(antithetic):
    rows, features = antithetic
    full, ours = explicit_pairs(rows, features.hyperplanes), compact(features, rows)
    W = np.kron(change_of_coordinates(), np.eye(D))
    np.testing.assert_allclose(full @ W.T, ours, atol=1e-6)
    # Nothing is lost on the way: the explicit features lie in the subspace that W keeps.
    np.testing.assert_allclose(ours @ W, full, atol=1e-6)


def test_antithetic_logits_equal_those_of_the_explicit_gates(antithetic):
    rows, features = antithetic
    full_weights = np.random.default_rng(2).standard_normal((P * D, Q))
    ours = (np.kron(change_of_coordinates(), np.eye(D)) @ full_weights).reshape(-1, D, Q)
    weights = ours.transpose(1, 0, 2).reshape(D, -1).astype(np.float32)
    expected = explicit_pairs(rows, features.hyperplanes) @ full_weights
    np.testing.assert_allclose(features.logits(rows, weights), expected, atol=1e-5 * np.abs(expected).max())


def test_antithetic_logits_equal_the_pair_formula(antithetic):
    # z = x'A + sum_i s_i x'B_i with A the half sum and B_i the half differences of the pairs' weights.
    rows, features = antithetic
    v = np.random.default_rng(3).standard_normal((P // 2, 2, D, Q))
    A, B = v.sum(axis=(0, 1)) / 2, (v[:, 0] - v[:, 1]) / 2
    signs = np.where(rows @ features.hyperplanes >= 0, 1, -1)
    expected = rows @ A + np.einsum("ni,nd,idq->nq", signs, rows, B)
    actual = explicit_pairs(rows, features.hyperplanes) @ v.reshape(P * D, Q)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_a_step_in_full_coordinates_is_the_same_step_in_ours(antithetic):
    # Gradients of the same residuals: equal norms per record, and W maps one onto the other.
    rows, features = antithetic
    residuals = np.random.default_rng(4).standard_normal((len(rows), Q))
    full = np.einsum("np,nq->npq", explicit_pairs(rows, features.hyperplanes), residuals)
    ours = np.einsum("np,nq->npq", compact(features, rows), residuals)
    np.testing.assert_allclose(
        np.linalg.norm(full, axis=(1, 2)), np.linalg.norm(ours, axis=(1, 2)), rtol=1e-6, atol=1e-12
    )
    W = np.kron(change_of_coordinates(), np.eye(D))
    np.testing.assert_allclose(W @ full.sum(axis=0), ours.sum(axis=0), atol=1e-4)


def test_antithetic_norm_is_an_equality_also_on_hyperplanes(antithetic):
    rows, features = antithetic
    assert (rows @ features.hyperplanes == 0).any(axis=1)[:4].all()
    expected = P / 2 * (rows.astype(np.float64) ** 2).sum(axis=1)
    np.testing.assert_allclose((compact(features, rows) ** 2).sum(axis=1), expected, rtol=1e-6)
    np.testing.assert_allclose((explicit_pairs(rows, features.hyperplanes) ** 2).sum(axis=1), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "iid", "antithetic"])
def test_feature_norm_bounds_every_row(kind):
    features = make_gates(kind, D, P, 0)
    rows = np.random.default_rng(5).standard_normal((500, D)).astype(np.float32)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    phi = np.linalg.norm(compact(features, rows), axis=1)
    assert all(phi[i] <= features.feature_norm(norms[i]) for i in range(len(rows)))


def test_the_iid_norm_is_attained_when_every_gate_opens():
    features = make_gates("iid", D, D, 0)
    row = np.linalg.solve(features.hyperplanes.T.astype(np.float64), np.ones(D)).astype(np.float32)[None]
    phi, norm = np.linalg.norm(compact(features, row)), np.linalg.norm(row.astype(np.float64))
    assert 0.999999 * features.feature_norm(norm) <= phi <= features.feature_norm(norm)


def test_iid_gates_are_one_on_the_closed_side():
    rows, features = rows_with_ties(make_gates("iid", D, P, 0))
    np.testing.assert_array_equal(features.patterns(rows), rows @ features.hyperplanes >= 0)
    assert (features.patterns(rows[:1]) == 1).all()


def test_antithetic_signs_are_plus_one_on_the_hyperplane(antithetic):
    rows, features = antithetic
    assert (features.patterns(rows[:1]) == 1).all()
    assert (features.patterns(rows[1:4])[:, 1:3] == 1).all()
    assert set(np.unique(features.patterns(rows))) == {-1, 1}


@pytest.mark.parametrize(("kind", "gates"), [("linear", 1), ("iid", P), ("antithetic", P // 2 + 1)])
def test_gate_counts_and_dtypes(kind, gates):
    features = make_gates(kind, D, P, 0)
    patterns = features.patterns(np.ones((3, D), np.float32))
    assert features.n_gates == gates
    assert patterns.shape == (3, gates)
    assert (patterns.dtype, features.levels.dtype, features.hyperplanes.dtype) == (np.int8, np.float32, np.float32)


@pytest.mark.parametrize("kind", ["linear", "iid", "antithetic"])
def test_gates_ignore_the_length_of_a_row(kind):
    features = make_gates(kind, D, P, 0)
    rows = np.random.default_rng(6).standard_normal((50, D)).astype(np.float32)
    np.testing.assert_array_equal(features.patterns(rows), features.patterns(rows * np.float32(0.25)))


@pytest.mark.parametrize("kind", ["linear", "iid", "antithetic"])
def test_logits_equal_the_sum_over_gates(kind):
    features = make_gates(kind, D, P, 0)
    rng = np.random.default_rng(7)
    rows, weights = rng.standard_normal((20, D)), rng.standard_normal((D, features.n_gates * Q))
    rows, weights = rows.astype(np.float32), weights.astype(np.float32)
    V = weights.reshape(D, features.n_gates, Q).transpose(1, 0, 2).reshape(-1, Q)
    np.testing.assert_allclose(features.logits(rows, weights), compact(features, rows) @ V, atol=1e-4)


def test_the_seed_fixes_the_hyperplanes_and_a_state_moves_on():
    same = [make_gates("iid", D, P, 3).hyperplanes for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(same[0], make_gates("iid", D, P, 4).hyperplanes)
    state = np.random.RandomState(3)
    first, second = make_gates("iid", D, P, state).hyperplanes, make_gates("iid", D, P, state).hyperplanes
    np.testing.assert_array_equal(first, same[0])
    assert not np.array_equal(first, second)


def test_linear_ignores_the_number_of_hyperplanes():
    assert make_gates("linear", D, -5, None).n_hyperplanes == 0


@pytest.mark.parametrize(
    ("kind", "planes", "error", "words"),
    [
        ("cubic", 4, ParameterError, "gates must be one of 'linear', 'iid', 'antithetic'; got 'cubic'"),
        ("iid", 0, ParameterError, "n_hyperplanes must be an integer at least 1 and at most 2147483647; got 0"),
        ("iid", 2.5, ParameterTypeError, "n_hyperplanes must be an integer"),
        ("antithetic", 5, ParameterError, 'even for antithetic pairs; got 5. Use an even number, or gates="iid"'),
    ],
)
def test_refusals(kind, planes, error, words):
    with pytest.raises(error, match=words):
        make_gates(kind, D, planes, 0)


@pytest.mark.parametrize("kind", ["linear", "iid", "antithetic"])
def test_logits_of_a_row_are_the_same_beside_others_and_alone(kind):
    # A float64 sum moves a float32 result with probability 1e-8 or so; a float32 sum moves most of these.
    d = 200
    features = make_gates(kind, d, 16, 0)
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((64, d)).astype(np.float32)
    weights = rng.standard_normal((d, features.n_gates * Q)).astype(np.float32)
    alone = np.concatenate([features.logits(row[None], weights) for row in rows])
    assert alone.dtype == np.float32
    np.testing.assert_array_equal(features.logits(rows, weights), alone)
