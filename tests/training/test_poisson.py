"""Runs beside a twin in NumPy, and a model whose parameters count how often each record entered a batch."""

import dataclasses
import inspect
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from noisycgd._validation import ParameterError, ParameterTypeError
from noisycgd.accounting import GaussianProfile
from noisycgd.training import poisson, predictable_randomness, system_randomness
from noisycgd.training.poisson import (
    Settings,
    State,
    default_chunk,
    masked_sum,
    normal_like,
    project,
    run_poisson_epoch,
    sample_mask,
    step_keys,
    train_poisson,
)
from noisycgd.types import PoissonPlan

batch = jax.jit(sample_mask, static_argnames=("n_records", "rate"))


class CountingRandomness:
    """Hands out known keys and counts them."""

    secret = False

    def __init__(self, seed=100):
        self.seed, self.keys = seed, []

    def permutation(self, n_records):
        raise AssertionError("batches are drawn, not dealt")

    def key(self):
        self.keys.append(jax.random.key(self.seed + len(self.keys)))
        return self.keys[-1]


def make_plan(n, b, epochs=2, rates=0.5, **options):
    steps = epochs * -(-n // b)
    settings = {"l2": 0.0, "noise_multiplier": 1.0, "gradient_bound": 1.5} | options
    return PoissonPlan(
        n, b, epochs, np.full(steps, rates), profile=GaussianProfile(1.0), delta=1e-5, epsilon=1, **settings
    )


class Pulls(NamedTuple):
    """Parameters of two leaves: a record pulls both, with a force below 1."""

    place: jax.Array  # (d,)
    level: jax.Array  # ()


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PullModel:
    strength: float

    def clipped_sum(self, parameters, records, present):
        rows = jnp.where(present[:, None], records["rows"], 0)
        force = jnp.where(present[:, None], jnp.tanh(parameters.place - rows), 0)
        lift = jnp.where(present, jnp.tanh(parameters.level - rows.sum(axis=1)), 0)
        return Pulls(self.strength * force.sum(axis=0), self.strength * lift.sum())


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class CountModel:
    """Record i pulls parameter i down by 1, so that parameters count the records' turns."""

    def clipped_sum(self, parameters, records, present):
        return jnp.zeros_like(parameters).at[records].add(jnp.where(present, -1.0, 0.0))


def pull_records(n, d=3, seed=0):
    return {"rows": np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)}


PULLED = Pulls(np.array([0.3, -0.2, 0.1], np.float32), np.float32(0.4))


def count_turns(n, b, chunk_size=None, epochs=2, randomness=None):
    """(n,) how often each record entered a batch."""
    plan, randomness = make_plan(n, b, epochs, rates=1.0, noise_multiplier=0.0), randomness or CountingRandomness()
    turns = b * train_poisson(np.arange(n), CountModel(), np.zeros(n), plan, randomness, chunk_size=chunk_size)
    np.testing.assert_allclose(turns, np.rint(turns), atol=1e-3)
    return np.rint(turns)


def masks(keys, steps, n, rate):
    """(E, k, n): the batches of a run with these keys."""
    return np.array([[batch(jax.random.fold_in(step_keys(key)[0], t), n, rate) for t in range(steps)] for key in keys])


def numpy_run(normals, records, start, plan, keys):
    """Twin in float64, one record at a time."""
    rows = records["rows"].astype(np.float64)
    k = plan.steps // plan.epochs
    place, level = np.asarray(start.place, np.float64), float(start.level)
    iterates = []
    for t, eta in enumerate(plan.learning_rates):
        sampling, noise = step_keys(keys[t // k])
        force, lift = np.zeros_like(place), 0.0
        for i in np.flatnonzero(batch(jax.random.fold_in(sampling, t % k), len(rows), plan.sampling_rate)):
            force += np.tanh(place - rows[i])
            lift += np.tanh(level - rows[i].sum())
        noise = jax.random.fold_in(noise, t % k)
        Z = [normals(jax.random.fold_in(noise, i), shape) for i, shape in enumerate([(3,), ()])]
        std = plan.noise_multiplier * plan.gradient_bound / plan.batch_size
        place = place - eta * (force / plan.batch_size + plan.l2 * place + std * Z[0])
        level = level - eta * (lift / plan.batch_size + plan.l2 * level + std * Z[1])
        if plan.radius is not None:
            shrink = min(1.0, plan.radius / np.sqrt(np.sum(place**2) + level**2))
            place, level = shrink * place, shrink * level
        iterates.append(np.append(place, level))
    return np.mean(iterates, axis=0) if plan.average else iterates[-1]


def flat(parameters):
    return np.append(parameters.place, parameters.level)


@pytest.mark.parametrize("b", [1, 6, 20])
@pytest.mark.parametrize(
    "options", [{}, {"l2": 0.3}, {"radius": 0.4}, {"average": True}, {"radius": 0.3, "average": True, "l2": 0.1}]
)
def test_the_result_is_that_of_the_plain_twin(normals, b, options):
    plan = make_plan(20, b, epochs=3, noise_multiplier=0.5, **options)
    plan = dataclasses.replace(plan, learning_rates=np.linspace(0.8, 0.1, plan.steps))
    records, randomness = pull_records(20), CountingRandomness()
    actual = train_poisson(records, PullModel(1.0), PULLED, plan, randomness)
    assert isinstance(actual, Pulls)
    assert all((type(leaf), leaf.dtype) == (np.ndarray, np.float32) for leaf in actual)
    expected = numpy_run(normals, records, PULLED, plan, randomness.keys)
    np.testing.assert_allclose(flat(actual), expected, atol=1e-5)
    if b == 1 and not options:
        # Some batches were empty: their steps are noise alone, and the twin took them too.
        sizes = masks(randomness.keys, 20, 20, plan.sampling_rate).sum(axis=2)
        assert (sizes == 0).any()
    # Negative control: with other keys the twin ends elsewhere.
    other = numpy_run(normals, records, PULLED, plan, [jax.random.key(7 + e) for e in range(3)])
    assert np.abs(flat(actual) - other).max() > 1e-2


@pytest.mark.parametrize("b", [6, 20])
@pytest.mark.parametrize("chunk_size", [1, 2, 7, 20, 33])
def test_the_chunk_size_changes_nothing(b, chunk_size):
    plan, records = make_plan(20, b, epochs=3), pull_records(20)
    whole = train_poisson(records, PullModel(1.0), PULLED, plan, CountingRandomness())
    parts = train_poisson(records, PullModel(1.0), PULLED, plan, CountingRandomness(), chunk_size=chunk_size)
    np.testing.assert_allclose(flat(parts), flat(whole), atol=1e-5)


@pytest.mark.parametrize("b", [6, 20])
def test_large_batches_are_added_in_double_precision(monkeypatch, b):
    plan, records = make_plan(20, b, epochs=3), pull_records(20)
    whole = train_poisson(records, PullModel(1.0), PULLED, plan, CountingRandomness(), chunk_size=3)
    added = []
    monkeypatch.setattr(poisson, "masked_sum", lambda *a, wide: added.append(wide) or masked_sum(*a, wide=wide))
    for largest in (5, 20):
        jax.clear_caches()
        monkeypatch.setattr(poisson, "LARGEST_SUM", largest)
        parts = train_poisson(records, PullModel(1.0), PULLED, plan, CountingRandomness(), chunk_size=3)
        np.testing.assert_allclose(flat(parts), flat(whole), atol=1e-5)
        assert parts.place.dtype == np.float32
    assert set(added[: len(added) // 2]) == {True}
    assert set(added[len(added) // 2 :]) == {False}


def test_no_record_moves_a_large_sum_by_more_than_is_counted():
    # One pull of 60 000 turned round, against the others: see the kernel's test of the same name.
    n, chunk = 60_000, 2000
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal(3) + 0.2 * rng.standard_normal((n, 3))).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    class Rows:
        def clipped_sum(self, parameters, records, present):
            return jnp.where(present[:, None], records, 0).sum(axis=0)

    def excess(wide):
        def total(records):
            return masked_sum(jnp.zeros(3, jnp.float32), records, Rows(), jnp.ones(n, bool), chunk, wide=wide)

        add = jax.jit(total)
        with jax.enable_x64(True):
            found, moved = np.asarray(add(rows), np.float64), []
            for i in rng.integers(n, size=30):
                other = rows.copy()
                other[i] *= -1
                moved.append(np.linalg.norm(np.asarray(add(other), np.float64) - found))
        return max(moved) / 2 - 1

    assert excess(wide=True) < 2e-4
    # Negative control.
    assert excess(wide=False) > 5e-4


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 8, None])
def test_no_record_is_dropped_or_counted_twice(chunk_size):
    n, b, randomness = 40, 8, CountingRandomness()
    turns = count_turns(n, b, chunk_size, epochs=3, randomness=randomness)
    batches = masks(randomness.keys, 5, n, b / n)
    np.testing.assert_array_equal(turns, batches.sum(axis=(0, 1)))
    sizes = batches.sum(axis=2)
    # Batches of one chunk, of several, full ones and unfilled ones took part.
    assert sizes.min() < 8 < sizes.max()
    assert (sizes % 5 == 0).any()


def test_batches_of_all_records_take_every_one_in_every_step():
    np.testing.assert_array_equal(count_turns(12, 12, epochs=7), 7)
    assert (count_turns(12, 11, epochs=7) < 14).any()


def test_batches_of_all_records_are_full_batch_gradient_descent():
    plan, records = make_plan(15, 15, epochs=9, noise_multiplier=0.0), pull_records(15)
    runs = [flat(train_poisson(records, PullModel(1.0), PULLED, plan, CountingRandomness(seed))) for seed in (1, 2)]
    np.testing.assert_array_equal(*runs)
    rows = records["rows"].astype(np.float64)
    place, level = PULLED.place.astype(np.float64), float(PULLED.level)
    for _ in range(9):
        place, level = (
            place - 0.5 * np.tanh(place - rows).mean(axis=0),
            level - 0.5 * np.tanh(level - rows.sum(axis=1)).mean(),
        )
    np.testing.assert_allclose(runs[0], np.append(place, level), atol=1e-6)


def test_projection_acts_on_all_leaves_together():
    point = Pulls(jnp.asarray([3.0, 0.0, 0.0]), jnp.asarray(4.0))
    np.testing.assert_allclose(flat(project(point, jnp.float32(1.0))), [0.6, 0, 0, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(flat(project(point, jnp.float32(6.0))), flat(point))
    np.testing.assert_array_equal(project(jnp.zeros(3), jnp.float32(1.0)), np.zeros(3))


def test_every_iterate_is_projected():
    # A pull of 1 per step from the origin would go to T; the ball stops each of them, and so their mean.
    plan = make_plan(4, 4, epochs=30, rates=1.0, noise_multiplier=0.0, radius=2.0)
    start = np.zeros(4, np.float32)
    last = train_poisson(np.arange(4), CountModel(), start, plan, CountingRandomness())
    np.testing.assert_allclose(np.linalg.norm(last), 2.0, rtol=1e-6)
    mean = train_poisson(
        np.arange(4), CountModel(), start, dataclasses.replace(plan, average=True), CountingRandomness()
    )
    # Steps of norm 1/2: four until the boundary.
    np.testing.assert_allclose(np.linalg.norm(mean), np.mean([0.5, 1.0, 1.5, *[2.0] * 27]), rtol=1e-6)


def test_the_average_of_many_equal_iterates_is_exact():
    # In float32 the running sum would be off in the fifth digit.
    plan = make_plan(3000, 1, epochs=1, rates=0.0, noise_multiplier=0.0, average=True)
    start = np.full(3000, 0.1, np.float32)
    mean = train_poisson(np.arange(3000), CountModel(), start, plan, CountingRandomness())
    np.testing.assert_array_equal(mean, start)
    assert np.cumsum(np.full(3000, 0.1, np.float32))[-1] / np.float32(3000) != np.float32(0.1)


def test_an_empty_batch_takes_a_noise_step():
    # Rate 2^-33 is below the sampler's grid: every batch is empty, whatever the records hold.
    n = 4
    records = {"rows": np.full((n, 3), np.nan, np.float32)}
    state = State(Pulls(*(jnp.asarray(leaf) for leaf in PULLED)), None)
    settings = Settings(jnp.float32(1), jnp.float32(0.2), jnp.float32(0.3), None)
    key, rates = jax.random.key(3), jnp.asarray([0.5], jnp.float32)
    options = {"sampling_rate": 2.0**-33, "chunk_size": 2}
    found = run_poisson_epoch(state, records, PullModel(1.0), settings, rates, key, **options).parameters
    noise = normal_like(jax.random.fold_in(step_keys(key)[1], 0), PULLED)
    np.testing.assert_allclose(flat(found), flat(PULLED) * (1 - 0.5 * 0.2) - 0.5 * 0.3 * flat(noise), atol=1e-6)
    assert np.isfinite(flat(found)).all()


def test_each_epoch_takes_one_new_key_and_reports_its_end():
    seen, randomness = [], CountingRandomness()
    plan = make_plan(20, 6, epochs=4)
    train_poisson(
        pull_records(20), PullModel(1.0), PULLED, plan, randomness, lambda *got, **named: seen.append((got, named))
    )
    assert len(randomness.keys) == 4
    assert seen == [((e,), {}) for e in (1, 2, 3, 4)]
    callables = [
        p.name for p in inspect.signature(train_poisson).parameters.values() if "Callable" in str(p.annotation)
    ]
    assert callables == ["on_epoch"]


def test_an_interruption_ends_the_run_at_once():
    randomness = CountingRandomness()

    def stop(epoch):
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_poisson(pull_records(20), PullModel(1.0), PULLED, make_plan(20, 6, epochs=6), randomness, stop)
    assert len(randomness.keys) == 2


def test_two_runs_differ_and_predictable_ones_do_not():
    def run():
        return flat(train_poisson(pull_records(20), PullModel(1.0), PULLED, make_plan(20, 6), system_randomness()))

    assert (run() != run()).all()
    with predictable_randomness(3):
        first, second = run(), run()
    np.testing.assert_array_equal(first, second)


def test_the_callers_arrays_are_not_consumed():
    start = Pulls(*(jnp.asarray(leaf) for leaf in PULLED))
    records = jax.tree.map(jnp.asarray, pull_records(20))
    runs = [
        flat(train_poisson(records, PullModel(1.0), start, make_plan(20, 6), CountingRandomness())) for _ in range(2)
    ]
    np.testing.assert_array_equal(*runs)
    assert not any(leaf.is_deleted() for leaf in (*start, records["rows"]))


def test_new_numbers_compile_nothing_anew():
    # Shapes of this test's own: no other test has compiled them before.
    def run(strength=1.0, seed=0, **options):
        plan = make_plan(23, 6, **options)
        train_poisson(pull_records(23, seed=seed), PullModel(strength), PULLED, plan, CountingRandomness(seed))
        return run_poisson_epoch._cache_size()

    compiled = run()
    assert run(strength=0.5, seed=4, epochs=3, rates=0.1, l2=0.2, noise_multiplier=3.0) == compiled
    # Negative control: a projection is another program, but its radius is a number.
    projected = run(radius=1.0)
    assert projected == compiled + 1
    assert run(radius=0.5) == projected


@pytest.mark.parametrize("found", [19, 21])
def test_the_records_must_be_as_many_as_planned(found):
    plan = make_plan(20, 6)
    with pytest.raises(ParameterError, match=f"number of records must be 20 as planned; got {found}"):
        train_poisson(pull_records(found), PullModel(1.0), PULLED, plan, CountingRandomness())
    mixed = {"rows": pull_records(20)["rows"], "labels": np.zeros(found)}
    with pytest.raises(ParameterError, match=f"number of records must be 20 as planned; got {found}"):
        train_poisson(mixed, PullModel(1.0), PULLED, plan, CountingRandomness())
    with pytest.raises(ParameterError, match="number of records must be 20 as planned; got None"):
        train_poisson({"rows": np.float32(1)}, PullModel(1.0), PULLED, plan, CountingRandomness())


@pytest.mark.parametrize(
    ("chunk_size", "error"), [(0, ParameterError), (2049, ParameterError), (2.5, ParameterTypeError)]
)
def test_a_chunk_holds_a_whole_number_of_records(chunk_size, error):
    with pytest.raises(error, match="chunk_size must be an integer"):
        train_poisson(
            pull_records(20), PullModel(1.0), PULLED, make_plan(20, 6), CountingRandomness(), chunk_size=chunk_size
        )


def test_the_default_chunk_holds_almost_every_batch_with_few_slots_to_spare():
    n, b = 60_000, 1000
    chunk = default_chunk(n, b)
    assert stats.binom(n, b / n).sf(chunk) < 0.01
    assert chunk < 1.1 * b


@pytest.mark.parametrize(("n", "b"), [(1, 1), (50, 1), (50, 49), (60_000, 60_000), (60_000, 20_000), (10**6, 2040)])
def test_default_chunks_are_few_equal_and_moderate(n, b):
    chunk = default_chunk(n, b)
    chunks = -(-b // chunk)
    assert 1 <= chunk <= 2048
    # No more than half again what full batches of the expected size need, but for the smallest.
    assert chunk * chunks <= 1.5 * b + 5
    if b == n:
        assert chunk * chunks - n < chunks
