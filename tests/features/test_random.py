import json
import math

import numpy as np
import pytest

from noisycgd._validation import DataError, ParameterError, ParameterTypeError
from noisycgd.data import RowBounds, make_batches
from noisycgd.features import GatedFeatures, make_gates
from noisycgd.features.random import (
    ROW_FEATURE_KINDS,
    FourierFeatures,
    ReLUFeatures,
    default_bandwidth,
    make_row_features,
    read_row_features,
    seen_rows,
)
from noisycgd.losses import MarginSoftmax
from noisycgd.planning import plan_noisy_cgd
from noisycgd.training import predictable_randomness, system_randomness, train_cyclic
from noisycgd.types import NoiseMultiplier

D, P, R = 7, 8, 1.5
LEVEL = 1e-9
"""Error probability of the statistical test, were it not seeded."""

MAPS = [("fourier", "antithetic")]
MAPS += [(kind, draw) for kind in ROW_FEATURE_KINDS[1:] for draw in ("iid", "antithetic")]
EXACT = [("fourier", "antithetic"), ("relu-patterns", "antithetic"), ("convex-relu", "antithetic")]


def make(kind, draw="antithetic", seed=0, d=D, components=P, **options):
    return make_row_features(kind, d, components, seed, row_norm=R, hyperplanes=draw, **options)


def random_rows(n=400, d=D, seed=1):
    """Rows of norm R, up to rounding."""
    return RowBounds.create(R, "normalize", False, 0.0, None, d)(np.random.default_rng(seed).standard_normal((n, d)))


def difficult_rows(features):
    """Zero and tiny rows, rows on hyperplanes, singular vectors and axes, of norm R or less."""
    U = features.directions.astype(np.float64)
    left, _, _ = np.linalg.svd(U)
    on_a_plane = left - U[:, :1] @ (U[:, :1].T @ left) / (U[:, 0] @ U[:, 0])
    rows = np.concatenate([left.T, -left.T, on_a_plane.T, np.eye(len(U))])
    bounded = RowBounds.create(R, "normalize", False, 0.0, None, len(U))(rows)
    return np.concatenate([np.zeros((1, len(U)), np.float32), bounded, bounded * np.float32(1e-38)])


def norms(mapped):
    return np.linalg.norm(mapped.astype(np.float64), axis=1)


def in_words(features, x):
    """Twin: the features of one row, from their definition, in float64."""
    U, x = features.directions.astype(np.float64), x.astype(np.float64)
    t = [float(U[:, i] @ x) for i in range(U.shape[1])]
    if features.kind == "fourier":
        H = len(t)
        return np.array([math.cos(a) / math.sqrt(H) for a in t] + [math.sin(a) / math.sqrt(H) for a in t])
    paired = features.hyperplanes == "antithetic"
    if features.kind == "relu":
        return np.array([max(a, 0) for a in t] + [max(-a, 0) for a in t if paired])
    if paired:
        H = len(t)
        gates = [math.sqrt(2 * H) / 2] + [math.sqrt(0.5) * (1 if a >= 0 else -1) for a in t]
    else:
        gates = [1.0 if a >= 0 else 0.0 for a in t]
    return np.array(gates) if features.kind == "relu-patterns" else np.concatenate([g * x for g in gates])


@pytest.mark.parametrize(("kind", "draw"), MAPS)
def test_every_map_is_what_its_definition_says(kind, draw):
    features = make(kind, draw)
    rows = random_rows(30)
    mapped = features.transform(rows)
    assert (mapped.dtype, mapped.shape) == (np.float32, (30, features.n_features))
    np.testing.assert_allclose(mapped, [in_words(features, x) for x in rows], atol=2e-6)


@pytest.mark.parametrize(
    ("kind", "draw", "width"),
    [
        ("fourier", "iid", P),
        ("relu-patterns", "iid", P),
        ("relu-patterns", "antithetic", P // 2 + 1),
        ("relu", "iid", P),
        ("relu", "antithetic", P),
        ("convex-relu", "iid", P * D),
        ("convex-relu", "antithetic", (P // 2 + 1) * D),
    ],
)
def test_widths(kind, draw, width):
    features = make(kind, draw)
    assert (features.n_features_in, features.n_features) == (D, width)


@pytest.mark.parametrize(("kind", "draw"), MAPS)
@pytest.mark.parametrize(("d", "components"), [(1, 2), (D, P), (40, 6), (3, 60)])
def test_feature_norm_bounds_every_row(kind, draw, d, components):
    features = make(kind, draw, d=d, components=components)
    for rows in (random_rows(2000, d), difficult_rows(features)):
        assert norms(features.transform(rows)).max() <= features.feature_norm(R)
    assert features.feature_norm(R) == pytest.approx(features.norm(R), rel=1.1e-6)


@pytest.mark.parametrize(("kind", "draw"), EXACT)
def test_norms_that_are_equalities(kind, draw):
    # Negative control of the bound as well: one of 99.9999 % would have been refuted.
    features = make(kind, draw)
    found = norms(features.transform(random_rows()))
    np.testing.assert_allclose(found, features.norm(R), rtol=5e-7)


def test_the_antithetic_relu_bound_is_attained():
    features = make("relu", d=5, components=40)
    assert norms(features.transform(difficult_rows(features))).max() > (1 - 1e-6) * features.feature_norm(R)
    rows = random_rows(50, 5)
    np.testing.assert_allclose(norms(features.transform(rows)), norms(rows @ features.directions), rtol=1e-5)


def test_the_iid_relu_bound_is_attained_where_one_row_opens_all():
    # Normals close to one direction: the leading singular vector has a positive product with each.
    rng = np.random.default_rng(0)
    U = np.ones((D, 1)) + 0.1 * rng.standard_normal((D, P))
    features = ReLUFeatures((U / np.linalg.norm(U, axis=0)).astype(np.float32), "iid")
    assert norms(features.transform(difficult_rows(features))).max() > (1 - 1e-6) * features.feature_norm(R)


def test_the_relu_bound_is_far_below_that_of_the_rows():
    features = make("relu", "iid", d=784, components=64)
    np.testing.assert_allclose(np.linalg.norm(features.directions, axis=0), 1, atol=1e-6)
    assert features.norm(R) < 1.4 * R < R * math.sqrt(64) / 5


@pytest.mark.parametrize("kind", ["relu-patterns", "convex-relu"])
def test_the_iid_norm_is_attained_when_every_gate_opens(kind):
    features = make(kind, "iid", components=D)
    row = np.linalg.solve(features.directions.T.astype(np.float64), np.ones(D))
    row = (R * row / np.linalg.norm(row)).astype(np.float32)[None]
    assert norms(features.transform(row))[0] > (1 - 2e-6) * features.feature_norm(R)


def test_no_angle_breaks_the_fourier_bound():
    # float32 cosines and sines at all scales, next to multiples of pi / 4 and far from zero.
    features = FourierFeatures(np.ones((1, 1), np.float32), 1.0)
    near = np.arange(1, 20000) * (math.pi / 4)
    angles = [near, np.nextafter(near.astype(np.float32), np.float32(0)), np.linspace(-20, 20, 200001)]
    angles += [np.logspace(-44, 7, 50001), np.zeros(1)]
    mapped = features.transform(np.concatenate(angles).astype(np.float32)[:, None])
    assert norms(mapped).max() <= features.feature_norm(0.0)
    assert norms(mapped).min() >= 1 - 1e-6


def test_a_float32_product_would_break_the_relu_bound():
    # Why products are in float64: summed one by one in float32, u . u comes out above its bound.
    features = make("relu", d=4096, components=2, seed=10)
    u = features.directions[:, 0]
    assert np.cumsum(u * u, dtype=np.float32)[-1] > features.feature_norm(1.0)
    assert norms(features.transform(u[None]))[0] <= features.feature_norm(float(norms(u[None])[0]))


def test_fourier_features_approximate_the_gaussian_kernel():
    # The mean of H cosines in [-1, 1]: Hoeffding, with a union over the pairs.
    H, n, bandwidth = 20_000, 12, 0.8
    features = make("fourier", components=2 * H, bandwidth=bandwidth, seed=3)
    rows = random_rows(n) * np.linspace(0.2, 1, n, dtype=np.float32)[:, None]
    mapped = features.transform(rows).astype(np.float64)
    squares = ((rows[:, None, :].astype(np.float64) - rows[None, :, :]) ** 2).sum(axis=2)
    within = math.sqrt(2 * math.log(2 * n * n / LEVEL) / H) + 1e-5

    def agrees(width):
        return np.abs(mapped @ mapped.T - np.exp(-squares / (2 * width**2))).max() <= within

    assert agrees(bandwidth)
    assert not agrees(0.9 * bandwidth)
    assert not agrees(1.1 * bandwidth)


def test_the_default_bandwidth_follows_from_the_row_norm_alone():
    assert default_bandwidth(R) == pytest.approx(R / math.sqrt(2))
    small, large = (make_row_features("fourier", D, P, 0, row_norm=r) for r in (1.0, 1000.0))
    assert large.bandwidth == 1000 * small.bandwidth
    rows = random_rows(20)
    np.testing.assert_allclose(small.transform(rows), large.transform(rows * np.float32(1000)), atol=1e-5)
    # Orthogonal rows of norm R: similarity e^-2.
    wide = make_row_features("fourier", 2, 40_000, 0, row_norm=R)
    first, second = wide.transform(R * np.eye(2, dtype=np.float32)).astype(np.float64)
    assert first @ second == pytest.approx(math.exp(-2), abs=math.sqrt(2 * math.log(2 / LEVEL) / 20_000))


def test_zero_rows():
    zero = np.zeros((1, D), np.float32)
    np.testing.assert_allclose(make("fourier").transform(zero)[0], np.repeat([0.5, 0], P // 2), atol=1e-7)
    assert not make("relu").transform(zero).any()
    assert not make("convex-relu").transform(zero).any()
    np.testing.assert_array_equal(make("relu-patterns", "iid").transform(zero), 1)
    assert norms(make("relu-patterns").transform(zero))[0] == pytest.approx(math.sqrt(P / 2), rel=1e-6)


def test_antithetic_patterns_have_the_kernel_of_the_explicit_pairs():
    features = make("relu-patterns")
    rows = difficult_rows(features)[:30]
    dots = rows @ features.directions
    explicit = np.concatenate([dots >= 0, -dots > 0], axis=1).astype(np.float64)
    mapped = features.transform(rows).astype(np.float64)
    np.testing.assert_allclose(mapped @ mapped.T, explicit @ explicit.T, rtol=1e-6, atol=1e-6)


def test_convex_relu_models_are_those_of_the_gates():
    features = make("convex-relu")
    gates = GatedFeatures("antithetic", P, features.directions)
    rows, theta = random_rows(20), np.random.default_rng(5).standard_normal((features.n_features, 3))
    # (M d, q) -> (d, M q), the layout of released weights.
    weights = theta.reshape(gates.n_gates, D, 3).transpose(1, 0, 2).reshape(D, -1).astype(np.float32)
    np.testing.assert_allclose(gates.logits(rows, weights), features.transform(rows) @ theta, atol=1e-4)
    assert features.feature_norm(R) == gates.feature_norm(R)


@pytest.mark.parametrize(("kind", "draw"), MAPS)
def test_the_seed_fixes_the_map_and_a_state_moves_on(kind, draw):
    np.testing.assert_array_equal(make(kind, draw, 3).directions, make(kind, draw, 3).directions)
    assert not np.array_equal(make(kind, draw, 3).directions, make(kind, draw, 4).directions)
    state = np.random.RandomState(3)
    first, second = make(kind, draw, state), make(kind, draw, state)
    np.testing.assert_array_equal(first.directions, make(kind, draw, 3).directions)
    assert not np.array_equal(first.directions, second.directions)


@pytest.mark.parametrize(("kind", "draw"), MAPS)
def test_a_map_comes_back_from_its_numbers(kind, draw):
    features = make(kind, draw)
    values = json.loads(json.dumps(features.to_dict()))
    again = read_row_features(features.to_tensors(), values)
    assert type(again) is type(features)
    assert again.to_dict() == features.to_dict()
    rows = random_rows(9)
    np.testing.assert_array_equal(again.transform(rows), features.transform(rows))
    assert again.feature_norm(R) == features.feature_norm(R)


@pytest.mark.parametrize(
    ("tensors", "values", "words"),
    [
        ({}, {"kind": "cubic"}, "kind must be one of"),
        ({}, {"kind": "relu", "hyperplanes": "linear"}, "hyperplanes must be one of 'iid', 'antithetic'"),
        ({}, {"kind": "fourier", "bandwidth": 0.0}, "bandwidth must be a number above 0"),
        ({"directions": np.ones(3, np.float32)}, {"kind": "relu", "hyperplanes": "iid"}, "float32 matrix"),
        ({"directions": np.ones((3, 2))}, {"kind": "relu", "hyperplanes": "iid"}, "float32 matrix"),
        ({"directions": np.ones((3, 0), np.float32)}, {"kind": "relu", "hyperplanes": "iid"}, "non-empty"),
        ({"directions": np.full((3, 2), np.nan, np.float32)}, {"kind": "fourier", "bandwidth": 1.0}, "finite"),
    ],
)
def test_damaged_states_are_refused(tensors, values, words):
    with pytest.raises(ParameterError, match=words):
        read_row_features({"directions": np.ones((D, 2), np.float32)} | tensors, values)


@pytest.mark.parametrize(
    ("kind", "components", "options", "error", "words"),
    [
        ("cubic", 4, {}, ParameterError, "kind must be one of 'fourier', 'relu-patterns', 'relu', 'convex-relu'"),
        ("relu", 4, {"hyperplanes": "linear"}, ParameterError, "hyperplanes must be one of 'iid', 'antithetic'"),
        ("relu", 0, {}, ParameterError, "n_components must be an integer at least 1 and at most 2147483647; got 0"),
        ("fourier", 2.0, {}, ParameterTypeError, "n_components must be an integer"),
        ("fourier", 5, {}, ParameterError, "n_components must be even: a frequency has a cosine and a sine; got 5"),
        (
            "relu",
            5,
            {},
            ParameterError,
            "even for antithetic pairs; got 5. Use an even number, or iid hyperplanes",
        ),
        ("relu", 4, {"bandwidth": 1.0}, ParameterError, "bandwidth must be None for kind='relu'; got 1.0"),
        ("fourier", 4, {"bandwidth": 0.0}, ParameterError, "bandwidth must be a number at least"),
        ("fourier", 4, {"bandwidth": 1e-9}, ParameterError, "bandwidth must be a number at least 1e-06"),
        ("relu", 4, {"row_norm": -1.0}, ParameterError, "row_norm must be a number above 0"),
        ("convex-relu", 2000, {"hyperplanes": "iid"}, ParameterError, r"\(2000 x 7\) to stay within 8192; got 2000"),
    ],
)
def test_refusals(kind, components, options, error, words):
    with pytest.raises(error, match=words):
        make_row_features(kind, D, components, 0, **{"row_norm": 1.0, **options})


@pytest.mark.parametrize(("kind", "draw"), MAPS)
def test_mapped_rows_stand_in_for_bounded_rows(kind, draw):
    bounds = RowBounds.create(R, "clip", True, 0.5, None, D - 1)
    features = make(kind, draw)
    mapped = seen_rows(bounds, features)
    X = np.random.default_rng(2).standard_normal((5000, D - 1))
    assert mapped.width(D - 1) == features.n_features
    assert mapped.method.startswith("clip")
    expected = features.transform(bounds(X))
    np.testing.assert_allclose(mapped(X), expected)
    parts = list(mapped.chunks(X))
    assert len(parts) > 1
    # Up to the order in which a product of another size is summed.
    np.testing.assert_allclose(np.concatenate([chunk for _, chunk in parts]), expected, atol=1e-6)
    assert [part.start for part, _ in parts] == [0, *[part.stop for part, _ in parts[:-1]]]
    assert norms(expected).max() <= features.gates.feature_norm(mapped.row_norm) == features.feature_norm(R)
    with pytest.raises(DataError, match="finite"):
        mapped(np.full((1, D - 1), np.nan))
    with pytest.raises(ParameterError, match="width of a bounded row must be the 7 that the features map; got 8"):
        mapped.width(D)


@pytest.mark.parametrize(("kind", "harmonic"), [("fourier", 2), ("convex-relu", 2), ("relu-patterns", 3)])
def test_noisy_cgd_trains_on_mapped_rows(kind, harmonic):
    # The class alternates around the circle: no linear model finds it. Patterns see odd functions of a row alone.
    angles = np.random.default_rng(4).uniform(0, 2 * math.pi, 600)
    X, y = np.column_stack([np.cos(angles), np.sin(angles)]), (np.sin(harmonic * angles) > 0).astype(np.int32)
    plain, loss = RowBounds.create(1.0, "normalize", False, 0.0, None, 2), MarginSoftmax(1.0)
    features = make_row_features(kind, 2, 40, 0, row_norm=1.0)

    def accuracy(bounds, gates):
        batches = make_batches(X, y, None, 100, bounds, gates)
        np.testing.assert_allclose(batches.rows.reshape(600, -1), bounds(X), atol=1e-6)
        plan = plan_noisy_cgd(
            certificate=loss.certificate(2),
            feature_norm=gates.feature_norm(bounds.row_norm),
            n_records=600,
            target=NoiseMultiplier(0.2, 1e-4),
            epochs=20,
            batch_size=100,
        )
        with predictable_randomness(0):
            weights = train_cyclic(batches, gates.levels, loss, plan, 2, system_randomness())
        logits = np.concatenate([gates.logits(chunk, weights) for _, chunk in bounds.chunks(X)])
        return (logits.argmax(axis=1) == y).mean()

    assert accuracy(seen_rows(plain, features), features.gates) > 0.9
    assert accuracy(plain, make_gates("linear", 2, 0, None)) < 0.75
