"""Runs at once are the runs one by one: `train_cyclic` is the twin of every test here."""

import dataclasses
import threading

import jax
import numpy as np
import pytest

from noisycgd._validation import ParameterError
from noisycgd.losses import EnvelopeSoftmax, MarginSoftmax
from noisycgd.training import many, train_cyclic
from noisycgd.training.many import SMALL_STEP, TINY_STEP, Shape, Way, fastest_way, train_cyclic_many
from noisycgd.types import Order

WAYS = list(Way)
MARGIN = MarginSoftmax(2.0)


class SeededKeys:
    """Hands out the keys of a seed and counts them."""

    secret = False

    def __init__(self, seed):
        self.seed, self.drawn = seed, 0

    def permutation(self, n_records):
        raise AssertionError("the order of records is fixed before training")

    def key(self):
        self.drawn += 1
        return jax.random.key(1000 * self.seed + self.drawn)


@pytest.fixture
def make_runs(make_problem):
    """A function: runs that differ in rows, gates, loss numbers, learning rates, l2 and noise."""

    def build(loss=MARGIN, n_outputs=3, T=3, **options):
        (number,) = (field.name for field in dataclasses.fields(loss))
        runs = []
        for t in range(T):
            own = dataclasses.replace(loss, **{number: getattr(loss, number) * (1 + 0.1 * t)})
            settings = {
                "seed": t,
                "kind": ("antithetic", "iid")[t % 2],
                "method": "clip",
                "l2": 0.02 * t,
                "schedule": ("linear", "constant")[t % 2],
                "noise_multiplier": 0.5 + 0.25 * t,
            }
            runs.append(make_problem(own, n_outputs, **settings | options))
        return runs

    return build


def train_all(runs, on_epoch=None, way=None, plans=None, sources=None):
    sources = sources or [SeededKeys(t) for t in range(len(runs))]
    weights = train_cyclic_many(
        [run.batches for run in runs],
        [run.features.levels for run in runs],
        [run.loss for run in runs],
        plans or [run.plan for run in runs],
        runs[0].n_outputs,
        sources,
        on_epoch,
        way,
    )
    return weights, sources


def train_one(run, seed):
    levels = run.features.levels
    return train_cyclic(run.batches, levels, run.loss, run.plan, run.n_outputs, SeededKeys(seed))


def assert_same(found, expected):
    """Equal within 1e-5 of the largest entry."""
    assert (found.dtype, found.shape, found.flags.writeable) == (np.float32, expected.shape, True)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("way", WAYS)
def test_each_run_is_what_train_cyclic_gives(make_runs, loss_and_outputs, way):
    runs = make_runs(*loss_and_outputs, epochs=3)
    found, sources = train_all(runs, way=way)
    expected = [train_one(run, t) for t, run in enumerate(runs)]
    for weights, twin in zip(found, expected, strict=True):
        assert_same(weights, twin)
    assert [source.drawn for source in sources] == [3, 3, 3]
    # Negative control: no run has another's weights.
    for s in range(3):
        for t in range(s):
            assert np.abs(expected[s] - expected[t]).max() > 0.1 * np.abs(expected[s]).max()


def test_runs_that_do_not_fit_into_one_program_are_done_in_groups(make_runs, monkeypatch):
    runs = make_runs(T=3)
    sizes = []

    def watched(weights, *arguments, **settings):
        sizes.append(len(weights))
        return run_epoch_of_each(weights, *arguments, **settings)

    run_epoch_of_each = many.run_epoch_of_each
    monkeypatch.setattr(many, "run_epoch_of_each", watched)
    whole, _ = train_all(runs, way=Way.PROGRAM)
    assert sizes == [3, 3]
    shape = Shape(*runs[0].batches.rows.shape, 4, 3, 2, MarginSoftmax)
    monkeypatch.setattr(many, "PROGRAM_BYTES", 2 * many.PROGRAM_BYTES // shape.runs_per_program + 2)
    assert shape.runs_per_program == 2
    sizes.clear()
    for weights, together in zip(train_all(runs, way=Way.PROGRAM)[0], whole, strict=True):
        assert_same(weights, together)
    assert sizes == [2, 2, 1, 1]


def test_a_program_stays_within_a_gigabyte():
    mnist = Shape(60, 1000, 784, 33, 10, 400, MarginSoftmax)
    arrays = 2 * 60_000 * (4 * 784 + 33 + 4 + 4) + 4 * 784 * 33 * 9
    assert mnist.runs_per_program >= 2
    assert mnist.runs_per_program * arrays <= 2**30
    assert mnist._replace(k=10**6).runs_per_program == 1


def test_no_runs_give_no_weights(make_runs):
    assert train_cyclic_many([], [], [], [], 3, []) == []


def test_each_run_needs_all_of_its_parts(make_runs):
    (run,) = make_runs(T=1)
    with pytest.raises(ParameterError, match=r"must be of equal length; got \[1, 1, 1, 2, 1\]"):
        train_all([run], plans=[run.plan, run.plan])


@pytest.mark.parametrize(
    "other",
    [
        {"n": 30},
        {"b": 9},
        {"d": 6},
        {"epochs": 3},
        {"kind": "linear"},
        {"loss": EnvelopeSoftmax(0.4)},
    ],
)
def test_runs_of_unequal_shape_are_refused(make_problem, other):
    options = {"loss": MARGIN, "n_outputs": 3}
    runs = [make_problem(**options), make_problem(**options | other)]
    with pytest.raises(ParameterError, match=r"runs must be equal in shape .* Group them by shape"):
        train_all(runs)


def test_every_run_must_be_the_one_that_its_plan_accounts_for(make_runs):
    runs = make_runs(EnvelopeSoftmax(0.4), T=2)
    runs[1] = dataclasses.replace(runs[1], loss=EnvelopeSoftmax(0.6))
    with pytest.raises(ParameterError, match="loss must be certified as planned"):
        train_all(runs)


def test_a_shared_permutation_is_refused_where_a_plan_averages_over_it(make_runs):
    first, second = make_runs(T=2)
    permuted = [dataclasses.replace(run.plan, order=Order.PERMUTED) for run in (first, second)]
    train_all([first, second], plans=permuted)
    second = dataclasses.replace(second, batches=dataclasses.replace(second.batches, rows=first.batches.rows))
    train_all([first, second])
    for plans in (permuted, [permuted[0], second.plan]):
        with pytest.raises(ParameterError, match="batches must be permuted independently for each run"):
            train_all([first, second], plans=plans)


@pytest.mark.parametrize("way", WAYS)
def test_progress_counts_the_epochs_of_all_runs(make_runs, way):
    seen = []
    train_all(make_runs(T=3, epochs=4), on_epoch=lambda *got: seen.append(got), way=way)
    assert all(len(got) == 1 and type(got[0]) is int for got in seen)
    step = 3 if way is Way.PROGRAM else 1
    assert [got[0] for got in seen] == list(range(step, 13, step))


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("way", WAYS)
def test_an_interruption_ends_all_runs(make_runs, way, error, monkeypatch):
    monkeypatch.setattr(many, "_usable_cores", lambda: 2)
    threads = threading.active_count()
    sources = [SeededKeys(t) for t in range(4)]

    def stop(epochs):
        if epochs == 8:
            raise error("stop")

    with pytest.raises(error, match="stop"):
        train_all(make_runs(T=4, epochs=50), stop, way, sources=sources)
    # What runs beside ends with its epoch; what waits may begin, and ends with its first.
    assert 8 <= sum(source.drawn for source in sources) <= 8 + 3
    assert threading.active_count() == threads


def test_threads_run_side_by_side(make_runs, monkeypatch):
    monkeypatch.setattr(many, "_usable_cores", lambda: 2)
    both = threading.Barrier(2)

    def meet(*arguments):
        both.wait(timeout=60)  # a single thread would wait for ever
        return train_cyclic(*arguments)

    monkeypatch.setattr(many, "train_cyclic", meet)
    train_all(make_runs(T=2), way=Way.THREADS)


def test_the_way_follows_from_the_size_of_a_step():
    tiny = Shape(10, 100, 16, 5, 2, 1000, MarginSoftmax)
    digits = Shape(10, 147, 64, 33, 10, 100, MarginSoftmax)
    mnist = Shape(60, 1000, 784, 33, 10, 400, MarginSoftmax)
    assert tiny.step_multiplications == 2 * 100 * 16 * 5 * 1 < TINY_STEP
    assert TINY_STEP < digits.step_multiplications == 2 * 147 * 64 * 33 * 9 < SMALL_STEP < mnist.step_multiplications
    cpu = {"cores": 2, "backend": "cpu"}
    assert [fastest_way(shape, 8, **cpu) for shape in (tiny, digits, mnist)] == [Way.PROGRAM, Way.THREADS, Way.TURNS]
    # A second of compiling is too much for 8 * 10 * 100 tiny steps.
    assert fastest_way(tiny._replace(epochs=100), 8, **cpu) is Way.THREADS
    assert fastest_way(digits, 8, cores=1, backend="cpu") is Way.TURNS
    assert fastest_way(digits, 8, cores=2, backend="gpu") is Way.PROGRAM
    assert fastest_way(tiny, 1, **cpu) is Way.TURNS
