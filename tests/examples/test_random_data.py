"""The example's formulas against brute force, and the example itself at toy size."""

import math
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from noisycgd.accounting import GaussianProfile, composition_mu, gaussian_mu
from noisycgd.features import make_gates
from noisycgd.losses import ClippedSquared

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import random_data as example

TOY = example.Sizes(ratios=(1, 2), records=(24, 40), widths=(2, 6), most=12, seeds=2, epsilons=(1.0, 32.0), draws=2)


@pytest.fixture(scope="module")
def results():
    rows = [row for _, part in example.jobs(TOY) for row in part()]
    kinds = example.Planes, example.Conditioning, example.PrivateRun
    return [[row for row in rows if isinstance(row, kind)] for kind in kinds]


def explicit_features(rows, kind, P):
    """(n, P d): [D_1 X, ..., D_P X] of the hyperplanes that `smallest_planes` sees with seed 7."""
    H = P if kind == "iid" else P // 2
    dots = rows @ make_gates(kind, rows.shape[1], example.MOST_PLANES, 7).hyperplanes[:, :H]
    gates = dots >= 0 if kind == "iid" else np.concatenate([dots >= 0, dots < 0], axis=1)
    return (gates[:, :, None] * rows[:, None, :].astype(float)).reshape(len(rows), -1)


@pytest.mark.parametrize("kind", ["iid", "antithetic"])
@pytest.mark.parametrize(("n", "d"), [(8, 8), (24, 12), (40, 10), (30, 4), (2, 2), (1, 1)])
def test_smallest_planes_is_where_the_explicit_matrix_gets_full_rank(kind, n, d):
    rows, step = example.draw_rows(n, d, 5), 1 if kind == "iid" else 2
    P, error_before, error = example.smallest_planes(rows, kind, 7)
    assert P * d >= n
    assert P % step == 0
    assert np.linalg.matrix_rank(explicit_features(rows, kind, P)) == n
    assert np.linalg.matrix_rank(explicit_features(rows, kind, P - step)) < n
    assert error < 1e-6 < error_before <= 1
    labels = np.random.default_rng(7).standard_normal(n)
    for planes, expected in ((P, error), (P - step, error_before)):
        features = explicit_features(rows, kind, planes)
        left = features @ np.linalg.lstsq(features, labels, rcond=None)[0] - labels if planes else labels
        assert np.linalg.norm(left) / np.linalg.norm(labels) == pytest.approx(expected, abs=1e-6)


def test_antithetic_pairs_need_no_logarithm():
    # With n = d both halves of a pair have at most d rows, which are independent; an iid gate leaves out half the rows.
    rows = example.draw_rows(60, 60, 0)
    assert example.smallest_planes(rows, "antithetic", 0)[0] == 2
    assert example.smallest_planes(rows, "iid", 0)[0] >= 4


def test_expected_gates_agree_with_random_ones():
    # 20 000 gates: a frequency is off by at most 0.0036 x 5 sigma; 45 pairs, error probability below 1e-4, fixed seed.
    rows, draws = example.draw_rows(10, 4, 1), 20_000
    gates = (rows @ np.random.default_rng(2).standard_normal((4, draws))) >= 0
    frequency = gates.astype(float) @ gates.T / draws
    products = rows.astype(float) @ rows.T
    sigma = example.expected_gram(rows)
    assert (np.abs(sigma / products - frequency) < 0.018).all()
    # Independent gates, 1/4 off the diagonal, are refused.
    independent = np.where(np.eye(10), 0.5, 0.25)
    assert not (np.abs(independent - frequency) < 0.018).all()


def test_condition_number_of_special_rows():
    assert example.condition_number(np.eye(5, dtype=np.float32)) == pytest.approx(2)
    # The gates of x and -x are never open together: they count as orthogonal, though XX' has eigenvalue 2.
    assert example.condition_number(np.float32([[1, 0], [-1, 0]])) == pytest.approx(4)
    assert example.condition_number(np.float32([[1, 2], [2, 4]])) == math.inf
    rows = example.draw_rows(12, 6, 0)
    assert example.condition_number(4 * rows) == pytest.approx(example.condition_number(rows))


def test_condition_number_nears_its_limit_from_above():
    kappas = [example.condition_number(example.draw_rows(2 * d, d, 0)) for d in (8, 32, 128)]
    limit = 4 * (math.sqrt(2) + 1) ** 2
    assert kappas[0] > kappas[1] > kappas[2] > limit
    assert kappas[2] < 1.5 * limit


def test_features_are_bounded_and_the_loss_is_the_packages():
    features = example.unit_features(30, 10, 8, 0)
    norms = np.linalg.norm(features.astype(float), axis=1)
    assert (norms <= 1 + 1e-6).all()
    assert norms.mean() > 0.6
    residuals = np.float32([-3, -1, -0.2, 0, 0.5, 1, 7])
    one = jnp.ones(7)
    expected = ClippedSquared(1.0).value(jnp.asarray(residuals)[:, None], 0 * one, one)
    assert example.huber(residuals) == pytest.approx(float(expected.mean()), rel=1e-6)
    slope = ClippedSquared(1.0).residual(jnp.asarray(residuals)[:, None], 0 * one, one)
    np.testing.assert_allclose(np.clip(residuals, -1, 1), slope[:, 0])


def test_best_in_ball_agrees_with_a_general_solver():
    features = example.unit_features(12, 4, 3, 0)
    labels = np.random.default_rng(0).choice(np.float32([-1, 1]), 12)
    for radius in (0.5, 1.0):
        solved = minimize(
            lambda theta: example.huber(features.astype(float) @ theta - labels),
            np.zeros(12),
            method="SLSQP",
            constraints={"type": "ineq", "fun": lambda theta, R=radius: R**2 - theta @ theta},
            options={"ftol": 1e-12},
        )
        found = example.best_in_ball(features, labels, radius)
        assert solved.fun * (1 - 3e-4) < found <= solved.fun + 1e-6


def test_descent_is_the_algorithm_written_out():
    features, labels = example.unit_features(20, 5, 4, 0), np.random.default_rng(1).choice(np.float32([-1, 1]), 20)
    radii, mu, steps, seed = np.array([0.05, 3.0]), 2.0, 30, 3
    losses = example.private_descent(features, labels, radii, mu, steps, seed)

    def twin(factor):
        rng, std = np.random.default_rng(seed), factor * 2 * math.sqrt(steps) / (20 * mu)
        theta, total = np.zeros((20, 2)), np.zeros((20, 2))
        for _ in range(steps):
            noise = std * rng.standard_normal((20, 2), dtype=np.float32)
            for k, radius in enumerate(radii):
                residuals = [min(1.0, max(-1.0, features[i] @ theta[:, k] - labels[i])) for i in range(20)]
                gradient = sum(r * features[i].astype(float) for i, r in enumerate(residuals)) / 20 + noise[:, k]
                moved = theta[:, k] - radius / math.sqrt(steps) / math.sqrt(1 + 20 * std**2) * gradient
                theta[:, k] = moved * min(1.0, radius / np.linalg.norm(moved))
            total += theta
        return [example.huber(features @ total[:, k] / steps - labels) for k in range(2)]

    np.testing.assert_allclose(losses, twin(1.0), rtol=1e-5)
    assert not np.allclose(losses, twin(0.9), rtol=1e-5)


@pytest.mark.parametrize("epsilon", [1.0, 16.0, 256.0])
def test_noise_meets_the_epsilon(epsilon):
    n, steps = 48, 531
    std = example.noise_std(gaussian_mu(epsilon, example.DELTA), steps, n)
    profile = GaussianProfile(composition_mu(steps, std * n))
    assert profile.epsilon(example.DELTA) == pytest.approx(epsilon, rel=1e-9)


def test_the_two_inequalities_behind_the_floor():
    z = np.linspace(-6, 6, 4801)
    capped = [np.minimum(1.5, [float(example.huber(np.array([v - y]))) for v in z]) for y in (-1, 1)]
    assert np.mean(capped, axis=0).min() == pytest.approx(0.5)
    for mu in (0.1, 1.0, 3.0):
        assert example.privacy_floor(mu) == pytest.approx(1.5 * norm.cdf(norm.ppf(1 / 3) - mu))
    assert example.privacy_floor(1e-9) == pytest.approx(0.5)


def test_the_floor_holds_for_the_best_use_of_a_noisy_label():
    # Release y + (2 / mu) Z, which is mu-GDP, and predict z(release) with the least posterior loss; the loss of that is
    # found by quadrature. A floor for a tenth of the mu would be wrong.
    grid = np.linspace(-1.0, 1.0, 401)
    loss = {y: np.array([float(example.huber(np.array([z - y]))) for z in grid]) for y in (-1, 1)}
    for mu in (0.5, 1.0, 2.0):
        release = np.linspace(-1 - 16 / mu, 1 + 16 / mu, 4001)
        density = {y: norm.pdf(release, y, 2 / mu) / 2 for y in (-1, 1)}
        least = (density[-1][:, None] * loss[-1] + density[1][:, None] * loss[1]).min(axis=1)
        best = float(least.sum() * (release[1] - release[0]))
        assert example.privacy_floor(mu) <= best
        assert example.privacy_floor(mu / 10) > best


def test_planes(results):
    planes, _, _ = results
    assert [(row.c, row.n, row.gates) for row in planes] == [
        (c, n, gates) for c in (1, 2) for n in (24, 40) for gates in ("iid", "antithetic")
    ]
    for row in planes:
        assert row.c <= row.low <= row.P <= row.high < row.lemma
        assert row.error < 1e-6 < row.error_before


def test_conditioning(results):
    _, conditioning, _ = results
    assert [(row.c, row.d) for row in conditioning] == [(1, 2), (1, 6), (2, 2), (2, 6)]
    for row in conditioning:
        assert row.low <= row.kappa <= row.high
    assert conditioning[0].bound == pytest.approx(40 * math.sqrt(2))


def test_private_runs(results):
    runs = results[2]
    assert [(row.n, row.epsilon, row.radius) for row in runs] == [
        (n, e, radius) for n in (24, 40) for e in (1.0, 32.0) for radius in ("constant", "interpolating")
    ]
    for row in runs:
        # Expectations, but far apart: the proof's constants are loose.
        assert 0 < row.excess < row.proof
        assert row.steps >= (row.n * row.mu) ** 2 / (4 * row.p)
        if row.radius == "interpolating":
            assert row.zero == 0.5
            assert row.floor < row.excess < 0.7
        else:
            assert 0 < row.zero < 0.5
    at = {(row.n, row.epsilon, row.radius): row for row in runs}
    assert at[40, 32.0, "interpolating"].excess < at[40, 1.0, "interpolating"].excess
    # In the fixed ball the model that predicts zero gets better with n as well: about 1 / sqrt(n).
    assert at[40, 1.0, "constant"].zero < at[24, 1.0, "constant"].zero


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: example.draw_rows(3, 4, 0), "d must be between 1 and n .*; got n=3, d=4"),
        (lambda: example.draw_rows(3, 0, 0), "d must be between 1 and n"),
        (lambda: example.smallest_planes(example.draw_rows(3, 3, 0), "linear", 0), "kind must be one of .*'linear'"),
        (lambda: example.smallest_planes(np.ones((3, 2), np.float32), "iid", 0), "rows must be in general position"),
        (
            lambda: example.best_in_ball(example.unit_features(6, 3, 8, 0), np.ones(6, np.float32), 99.0),
            "radius must be too small to interpolate; got 99",
        ),
        (lambda: example.private_runs(2, 1.0, 1), "n must give a ball that holds an interpolating solution; got n=2"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_command_prints_tables_and_writes_a_whole_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(example, "QUICK", TOY)
    out = tmp_path / "new" / "picture.png"
    assert example.main(["--quick", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for kind in (example.Planes, example.Conditioning, example.PrivateRun):
        assert list(kind._fields) in [line.split() for line in printed.splitlines()]
    assert [path.name for path in out.parent.iterdir()] == ["picture.png"]
    header = out.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")) == (1890, 952)


@pytest.mark.parametrize("name", ["picture.pdf", "folder.png"])
def test_a_picture_that_cannot_be_written_is_refused_at_once(tmp_path, capsys, name):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(SystemExit) as stopped:
        example.main(["--quick", "--out", str(tmp_path / name)])
    assert stopped.value.code == 2
    assert f"--out must be a file that ends in .png; got {tmp_path / name}." in capsys.readouterr().err
