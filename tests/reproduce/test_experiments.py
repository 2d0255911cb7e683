import itertools
from dataclasses import replace

import pytest

from reproduce.experiments import KINDS, Printed, load_experiment, names
from reproduce.methods import methods


@pytest.fixture
def config(tmp_path):
    """Write a config and load it."""

    def load(text):
        (tmp_path / "mine.toml").write_text(text)
        return load_experiment("mine", tmp_path)

    return load


HEAD = 'title = "T"\nsource = "S"\nkind = "table"\n'


def test_a_config_is_read(config):
    found = config(
        HEAD + 'methods = ["sums"]\ndatasets = ["digits"]\n[paper.sums]\ndigits = { 15 = [50.5, 1.5], 5 = 60.0 }\n'
    )
    assert (found.name, found.title, found.noise_multipliers) == ("mine", "T", (15.0, 5.0))
    assert found.printed("sums", "digits", 15.0) == Printed(50.5, 1.5)
    assert found.printed("sums", "digits", 5.0) == Printed(60.0, None)
    assert found.printed("sums", "mnist", 5.0) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "colour = 1\n", r"mine\.toml must hold known fields only; .*colour.*Correct it"),
        (HEAD.replace("table", "ablation") + 'against = "width"\n', r"against must be epochs, or what varies"),
        ('title = "T"\nkind = "table"\n', r"mine\.toml must hold known fields only; .*source"),
        (HEAD.replace("table", "tabel"), r"kind must be one of table, .*; got tabel\. Correct mine\.toml"),
        (HEAD + 'methods = ["sums", "magic"]\n', r"methods must stand in methods\.toml; got magic\."),
        (HEAD + "datasets = [\n", r"."),
    ],
)
def test_a_wrong_config_is_refused(config, text, message):
    with pytest.raises(ValueError, match=message):
        config(text)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"NAME must be one of .*figure-mnist, .*table1.*; got table9\."):
        load_experiment("table9")


@pytest.mark.parametrize("name", names())
def test_every_config_makes_runs_that_its_estimators_take(name):
    import noisycgd

    experiment = load_experiment(name)
    cells = list(experiment.cells())
    assert bool(cells) == (experiment.kind != "accounting")
    for cell in cells:
        run = cell.run(0, cell.method.first_rate if "learning_rate" not in cell.changes else None)
        parameters = getattr(noisycgd, run.estimator)().get_params()
        assert run.parameters.keys() <= parameters.keys()
        assert not any(isinstance(value, str) and "<" in value for value in run.parameters.values())
    # What the paper prints stands in a cell, and what is changed belongs to a method of the experiment.
    for method, of_method in experiment.paper.items():
        for dataset, of_dataset in of_method.items():
            assert {float(noise) for noise in of_dataset} <= set(map(float, experiment.noise_multipliers))
            assert dataset in experiment.datasets
        assert method in experiment.methods
    named = {"all", *experiment.methods, *map(" on ".join, itertools.product(experiment.methods, experiment.datasets))}
    assert {*experiment.changes, *experiment.vary} <= named


def test_all_kinds_are_used():
    assert {load_experiment(name).kind for name in names()} == set(KINDS)


def test_cells_combine_what_varies(experiment):
    vary = {"all": {"batch_size": [100, 200]}, "sampled": {"n_hyperplanes": [2, 4]}}
    changes = {"all": {"l2": 0.1}, "defaults": {"l2": 0.2}}
    cells = list(replace(experiment, vary=vary, changes=changes).cells())
    found = [(c.method.name, *c.changes.values()) for c in cells]
    assert found == [
        *(("sampled", 0.1, b, P) for b, P in itertools.product([100, 200], [2, 4])),
        *(("defaults", 0.2, b) for b in [100, 200]),
    ]


def test_a_data_set_may_have_values_of_its_own(experiment):
    vary = {"sampled": {"n_hyperplanes": [2, 4]}, "sampled on mnist": {"n_hyperplanes": [8]}}
    cells = replace(experiment, datasets=("digits", "mnist"), methods=("sampled",), vary=vary).cells()
    assert [(c.dataset, c.changes["n_hyperplanes"]) for c in cells] == [("digits", 2), ("digits", 4), ("mnist", 8)]


def test_a_method_may_have_epochs_and_data_sets_of_its_own(experiment, monkeypatch):
    own = replace(methods()["ours"], name="own", epochs=7, datasets=("cifar10",))
    monkeypatch.setattr("reproduce.experiments.methods", lambda: {**methods(), "own": own})
    both = replace(experiment, methods=("ours", "own"), datasets=("mnist", "cifar10"))
    found = [(cell.dataset, cell.method.name, cell.epochs) for cell in both.cells()]
    assert found == [("mnist", "ours", 3), ("cifar10", "ours", 3), ("cifar10", "own", 7)]


def test_a_banks_rates_take_the_place_of_the_search(experiment, store):
    bank = replace(experiment, rates=[0.01, 0.1])
    cells = list(bank.cells())
    assert [c.changes.get("learning_rate") for c in cells] == [0.01, 0.1, None]
    assert all(cell.search(store)[0] is None for cell in cells)


def test_the_search_comes_first_and_seeds_come_in_turn(experiment, store, result):
    first = experiment.todo(store)
    assert [(run.estimator, run.seed, run.parameters.get("learning_rate")) for run in first] == [
        ("ConvexReLUClassifier", 0, 0.1),  # the search's first; asked for once, though both seeds wait for it
        ("LinearClassifier", 0, None),
        ("LinearClassifier", 1, None),
    ]
    for rate, accuracy in ((0.1, 0.5), (1.0, 0.6)):
        run = experiment.todo(store)[0]
        assert run.parameters["learning_rate"] == rate
        store.add(run, result(run, accuracy))
    # Found: 1.0 is at the end of the grid, and its search run is also the table's, since both have three epochs.
    seeds = [run.seed for run in experiment.todo(store)]
    assert seeds == sorted(seeds) == [0, 1, 1]
    assert [run.parameters["learning_rate"] for run in experiment.todo(store) if run.estimator.startswith("C")] == [1.0]


def test_nothing_is_left_of_a_full_experiment(experiment, store, fill):
    assert experiment.count(store) == (0, 4)
    fill(experiment, store)
    assert experiment.todo(store) == []
    assert experiment.count(store) == (4, 4)
    # More seeds go on where it stopped.
    more = experiment.todo(store, seeds=3)
    assert [run.seed for run in more] == [2, 2]
    assert experiment.count(store, seeds=3) == (4, 6)
    assert experiment.todo(store, seeds=1) == []


def test_experiments_share_runs(experiment, store, fill):
    fill(experiment, store)
    other = replace(experiment, name="other", kind="curves", seeds={"digits": 1})
    assert other.todo(store) == []


def test_results_wait_for_the_search(experiment, store, result):
    sampled, defaults = experiment.cells()
    assert experiment.results(sampled, store) == []
    run = defaults.run(1)
    store.add(run, result(run, 0.75))
    assert [found["accuracy"] for found in experiment.results(defaults, store)] == [0.75]
    run = sampled.search(store)[0]
    store.add(run, result(run, 0.5))
    assert experiment.results(sampled, store) == []


def test_results_of_any_seed_count(experiment, store, result):
    cell = list(experiment.cells())[1]
    for seed in (0, 150):
        store.add(cell.run(seed), result(cell.run(seed), 0.9 + seed / 1e4))
    assert [r["accuracy"] for r in experiment.results(cell, store)] == [0.9, 0.915]


def test_a_data_set_without_a_number_of_seeds_has_one(experiment):
    assert (experiment.n_seeds("digits"), experiment.n_seeds("mnist"), experiment.n_seeds("mnist", 4)) == (2, 1, 4)
