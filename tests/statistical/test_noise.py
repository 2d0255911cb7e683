"""The noise that a run adds is the noise that its plan accounts for: scale, shape and independence.

Rows of zeros have no gradient, so the last iterate is a sum of noise alone. Every draw is seeded; LEVEL is the error
probability that each test would have under fresh randomness, and each kind of test also rejects wrong noise.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from noisycgd.data import RowBounds, make_batches
from noisycgd.features import make_gates
from noisycgd.losses import MarginSoftmax
from noisycgd.planning import plan_noisy_cgd
from noisycgd.training import predictable_randomness, system_randomness, train_cyclic
from noisycgd.training.kernel import StepBatch, run_epoch
from noisycgd.training.noise import standard_normal
from noisycgd.types import NoiseMultiplier

LEVEL = 1e-6
# So many classes that the common shift, which is never trained (a share 1 / Q of the variance), is below all levels.
N, B, D, P, Q = 50, 20, 10, 8, 200
FEATURES = make_gates("antithetic", D, P, 0)
COORDINATES = D * FEATURES.n_gates * Q
LOSS = MarginSoftmax(1.0)


def make_plan(**options):
    options = {"epochs": 3, "batch_size": B, "schedule": "linear", "l2": 0.0} | options
    return plan_noisy_cgd(
        certificate=LOSS.certificate(Q),
        feature_norm=FEATURES.feature_norm(1.0),
        n_records=N,
        target=NoiseMultiplier(3.0, 1e-3),
        **options,
    )


def pure_noise(plan, seed, q=Q):
    """Last iterate of a run over rows of zeros."""
    bounds = RowBounds.create(1.0, "normalize", False, 0.0, None, D)
    batches = make_batches(np.zeros((N, D)), np.zeros(N, np.int32), None, plan.batch_size, bounds, FEATURES)
    with predictable_randomness(seed):
        weights = train_cyclic(batches, FEATURES.levels, LOSS, plan, q, system_randomness())
    return weights.astype(np.float64).ravel()


def has_scale(sample, std):
    """Two-sided chi-square test of the scale of independent centred Gaussian numbers."""
    p = stats.chi2(sample.size).cdf(np.sum((sample / std) ** 2))
    return 2 * min(p, 1 - p) > LEVEL


def is_centred(sample, std):
    return 2 * stats.norm.sf(abs(sample.mean()) * np.sqrt(sample.size) / std) > LEVEL


def uncorrelated(a, b):
    """Fisher's test of the correlation of two samples."""
    r = np.corrcoef(a, b)[0, 1]
    return 2 * stats.norm.sf(abs(np.arctanh(r)) * np.sqrt(len(a) - 3)) > LEVEL


@pytest.fixture(scope="module")
def steps():
    """(E, k, N): noise of every single step, read off runs in which only that step moves."""
    E, k = 3, 4
    rows = jnp.zeros((k, 2, D))
    with predictable_randomness(31):
        randomness = system_randomness()
        keys = [randomness.key() for _ in range(E)]

    def alone(key, j):
        epoch = StepBatch(
            rows=rows,
            patterns=jnp.ones((k, 2, FEATURES.n_gates), jnp.int8),
            targets=jnp.zeros((k, 2), jnp.int32),
            scales=jnp.ones((k, 2)),
            learning_rate=jnp.asarray(np.eye(k)[j], jnp.float32),
            position=jnp.arange(k, dtype=jnp.int32),
        )
        start = jnp.zeros((FEATURES.n_gates * Q, D))
        return run_epoch(start, epoch, jnp.asarray(FEATURES.levels), LOSS, jnp.float32(0), jnp.float32(1), key)

    return np.array([[np.ravel(alone(key, j)) for j in range(k)] for key in keys], np.float64)


def last_iterate_std(plan):
    """Twin: the variance of each step's noise is carried through the later steps, one step at a time."""
    variance = 0.0
    for eta in plan.learning_rates:
        variance = (1 - eta * plan.l2) ** 2 * variance
        variance += (eta * plan.noise_multiplier * plan.gradient_bound / plan.batch_size) ** 2
    return np.sqrt(variance)


def test_a_single_step_has_the_planned_scale():
    plan = make_plan(epochs=1, batch_size=N)
    assert plan.steps == 1
    sample = pure_noise(plan, 1)
    planned = plan.learning_rates[0] * plan.noise_multiplier * plan.gradient_bound / N
    assert sample.size == COORDINATES
    assert has_scale(sample, planned)
    assert is_centred(sample, planned)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_wrong_scale_is_found(factor):
    plan = make_plan(epochs=1, batch_size=N)
    weaker = dataclasses.replace(plan, noise_multiplier=factor * plan.noise_multiplier)
    planned = plan.learning_rates[0] * plan.noise_std
    assert not has_scale(pure_noise(weaker, 1), planned)


@pytest.mark.parametrize("schedule", ["linear", "constant"])
@pytest.mark.parametrize("l2", [0.0, 0.2])
@pytest.mark.parametrize("batch_size", [20, 50])
def test_the_last_iterate_has_the_planned_scale(schedule, l2, batch_size):
    plan = make_plan(schedule=schedule, l2=l2, batch_size=batch_size, epochs=4)
    std = last_iterate_std(plan)
    assert plan.logit_noise == pytest.approx(plan.feature_norm * std, rel=1e-9)
    sample = pure_noise(plan, 2)
    assert has_scale(sample, std)
    assert is_centred(sample, std)
    # Negative control: noise that were not carried through the later steps would be found.
    if l2:
        assert not has_scale(sample, last_iterate_std(dataclasses.replace(plan, l2=0.0)))


def test_a_released_logit_at_the_bound_has_the_planned_noise():
    plan = make_plan(epochs=4, l2=0.1)
    row = np.zeros((1, D), np.float32)
    row[0, 3] = 1
    weights = [pure_noise(plan, seed).reshape(D, -1).astype(np.float32) for seed in range(40)]
    logits = np.concatenate([FEATURES.logits(row, w).ravel() for w in weights]).astype(np.float64)
    assert has_scale(logits, plan.logit_noise)
    assert not has_scale(logits, 0.9 * plan.logit_noise)


@pytest.mark.parametrize("q", [2, 4])
def test_few_classes_differ_by_the_planned_noise_and_have_none_in_common(q):
    plan = make_plan(epochs=4)
    weights = np.stack([pure_noise(plan, seed, q).reshape(-1, q) for seed in range(40)]).reshape(-1, q)
    assert np.abs(weights.sum(axis=1)).max() < 1e-5 * np.abs(weights).max()
    difference = weights[:, 0] - weights[:, 1]
    std = np.sqrt(2) * plan.logit_noise / plan.feature_norm
    assert has_scale(difference, std)
    assert not has_scale(difference, np.sqrt(1 - 1 / q) * std)


def test_each_step_is_standard_normal(steps):
    for sample in steps.reshape(-1, COORDINATES):
        assert has_scale(sample, 1.0)
        assert is_centred(sample, 1.0)
        assert stats.kstest(sample, "norm").pvalue > LEVEL


def test_other_shapes_of_the_same_scale_are_found():
    generator = np.random.default_rng(5)
    for sample in (
        generator.laplace(scale=np.sqrt(0.5), size=COORDINATES),
        generator.uniform(-np.sqrt(3), np.sqrt(3), COORDINATES),
    ):
        assert stats.kstest(sample, "norm").pvalue < LEVEL


def test_steps_and_epochs_are_independent(steps):
    flat = steps.reshape(-1, COORDINATES)
    for i in range(len(flat)):
        for j in range(i):
            assert uncorrelated(flat[i], flat[j])
            # Neither the noise nor its size repeats.
            assert uncorrelated(flat[i] ** 2, flat[j] ** 2)


def test_noise_shared_between_steps_is_found(steps):
    first, second = steps[0, 0], steps[0, 1]
    assert not uncorrelated(first, np.sqrt(0.99) * second + 0.1 * first)


@pytest.mark.parametrize("lag", [1, 2, Q, Q * FEATURES.n_gates])
def test_coordinates_are_independent(steps, lag):
    # Neighbours in classes, gates and columns.
    for sample in steps.reshape(-1, COORDINATES):
        assert uncorrelated(sample[lag:], sample[:-lag])


def test_noise_shared_between_coordinates_is_found(steps):
    smooth = (steps[0, 0][1:] + 0.1 * steps[0, 0][:-1]) / np.sqrt(1.01)
    assert not uncorrelated(smooth[1:], smooth[:-1])


def test_two_fits_are_independent():
    plan = make_plan()
    assert uncorrelated(pure_noise(plan, 7), pure_noise(plan, 8))
    # Negative control: a seed that repeated would be found.
    assert np.array_equal(pure_noise(plan, 7), pure_noise(plan, 7))


def test_keys_of_the_operating_system_give_the_same_law():
    # Not seeded: fails by chance once in a million runs.
    source = system_randomness()
    sample = np.asarray(standard_normal(source.key(), (COORDINATES,)), np.float64)
    assert has_scale(sample, 1.0)
