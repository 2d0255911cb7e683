import dataclasses
import inspect

import jax
import numpy as np
import pytest

from noisycgd._validation import ParameterError
from noisycgd.contrasts import contrast_basis, to_logit_weights
from noisycgd.losses import EnvelopeSoftmax, MarginSoftmax
from noisycgd.training import predictable_randomness, system_randomness, train_cyclic
from noisycgd.training.kernel import run_epoch


class CountingRandomness:
    """Hands out known keys and counts them."""

    secret = False

    def __init__(self):
        self.keys = []

    def permutation(self, n_records):
        raise AssertionError("the order of records is fixed before training")

    def key(self):
        self.keys.append(jax.random.key(100 + len(self.keys)))
        return self.keys[-1]


def train(problem, randomness, on_epoch=None, plan=None):
    return train_cyclic(
        problem.batches,
        problem.features.levels,
        problem.loss,
        plan or problem.plan,
        problem.n_outputs,
        randomness,
        on_epoch,
    )


def numpy_run(residual, normals, problem, keys):
    """Twin in float64: every step spelled out, on all q logits, with noise that has no part along a common shift."""
    plan, batches = problem.plan, problem.batches
    basis = contrast_basis(problem.loss, problem.n_outputs).astype(np.float64)
    k, b, d = batches.rows.shape
    g = batches.patterns * problem.features.levels.astype(np.float64)
    theta = np.zeros((d, g.shape[2], problem.n_outputs))
    for t, eta in enumerate(plan.learning_rates):
        j = t % k
        x = batches.rows[j].astype(np.float64)
        z = np.einsum("bd,bm,dmq->bq", x, g[j], theta).astype(np.float32)
        r = np.asarray(residual(problem.loss, z, batches.targets[j], batches.scales[j]), np.float64)
        gradient = np.einsum("bd,bm,bq->dmq", x, g[j], r) / b
        shape = g.shape[2] * len(basis), d
        Z = normals(jax.random.fold_in(keys[t // k], j), shape).T.reshape(d, -1, len(basis)) @ basis
        noise = plan.noise_multiplier * plan.gradient_bound / b * Z
        theta = theta - eta * (gradient + plan.l2 * theta + noise)
    return theta.reshape(d, -1)


@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_the_result_is_the_last_iterate_of_the_plain_twin(
    make_problem, residual, normals, loss_and_outputs, schedule, l2
):
    problem = make_problem(*loss_and_outputs, epochs=3, schedule=schedule, l2=l2, noise_multiplier=0.5)
    randomness = CountingRandomness()
    actual = train(problem, randomness)
    expected = numpy_run(residual, normals, problem, randomness.keys)
    np.testing.assert_allclose(actual, expected, atol=5e-5 * np.abs(expected).max())


def test_the_result_under_predictable_randomness_is_the_twins(make_problem, residual, normals):
    problem = make_problem(MarginSoftmax(2.0), 3, epochs=3)
    with predictable_randomness(11):
        actual = train(problem, system_randomness())
        source = system_randomness()
    expected = numpy_run(residual, normals, problem, [source.key() for _ in range(3)])
    np.testing.assert_allclose(actual, expected, atol=5e-5 * np.abs(expected).max())


def test_each_epoch_takes_one_new_key(make_problem):
    problem = make_problem(MarginSoftmax(2.0), 3, epochs=5)
    randomness = CountingRandomness()
    train(problem, randomness)
    assert len(randomness.keys) == 5


def test_two_fits_draw_different_noise(make_problem):
    problem = make_problem(MarginSoftmax(2.0), 3)
    first, second = train(problem, system_randomness()), train(problem, system_randomness())
    assert (first != second).mean() > 0.99


def test_training_twice_on_the_same_batches_gives_the_same(make_problem):
    # Donated buffers are the loop's own: nothing of the caller's is consumed.
    problem = make_problem(MarginSoftmax(2.0), 3, epochs=3)
    np.testing.assert_array_equal(train(problem, CountingRandomness()), train(problem, CountingRandomness()))


def test_only_the_last_iterate_leaves(make_problem, monkeypatch):
    problem = make_problem(MarginSoftmax(2.0), 3, epochs=4)
    basis = contrast_basis(problem.loss, 3)
    iterates = []

    def watched(*arguments, **settings):
        last = run_epoch(*arguments, **settings)
        iterates.append(to_logit_weights(np.array(last), basis))
        return last

    monkeypatch.setattr("noisycgd.training.cyclic.run_epoch", watched)
    result = train(problem, CountingRandomness())
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.flags.writeable) == (np.float32, True)
    np.testing.assert_array_equal(result, iterates[-1])
    assert all(not np.array_equal(result, earlier) for earlier in iterates[:-1])


def test_the_private_path_has_one_callback_and_it_takes_a_count(make_problem):
    callables = [p.name for p in inspect.signature(train_cyclic).parameters.values() if "Callable" in str(p.annotation)]
    assert callables == ["on_epoch"]
    seen = []
    train(
        make_problem(MarginSoftmax(2.0), 3, epochs=4),
        CountingRandomness(),
        lambda *got, **named: seen.append((got, named)),
    )
    assert seen == [((e,), {}) for e in (1, 2, 3, 4)]
    assert all(type(got[0]) is int for got, _ in seen)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_interruption_ends_the_run_at_once(make_problem, error):
    problem, randomness = make_problem(MarginSoftmax(2.0), 3, epochs=6), CountingRandomness()

    def stop(epoch):
        if epoch == 2:
            raise error("stop")

    with pytest.raises(error, match="stop"):
        train(problem, randomness, stop)
    assert len(randomness.keys) == 2


def test_batches_must_be_those_of_the_plan(make_problem):
    # 22 records in 3 batches either way, but the noise was scaled to a divisor of 8.
    problem, other = make_problem(MarginSoftmax(2.0), 3, b=8), make_problem(MarginSoftmax(2.0), 3, b=9)
    assert len(problem.batches.rows) == len(other.batches.rows)
    with pytest.raises(ParameterError, match=r"batches must be 3 of 9 slots as planned; got \(3, 8\)"):
        train(problem, CountingRandomness(), plan=other.plan)


def test_the_loss_must_be_certified_as_planned(make_problem):
    problem = make_problem(EnvelopeSoftmax(0.5), 3)
    larger = dataclasses.replace(problem, loss=EnvelopeSoftmax(1.0))
    with pytest.raises(ParameterError, match="loss must be certified as planned"):
        train(larger, CountingRandomness())
    # A margin changes nothing that the plan accounts for, so it may follow from the plan.
    margin = make_problem(MarginSoftmax(0.0), 3)
    train(dataclasses.replace(margin, loss=MarginSoftmax(9.0)), CountingRandomness())
