import math
from dataclasses import replace

import pytest

from noisycgd.accounting import GaussianProfile, poisson_profile
from reproduce import methods as module
from reproduce.methods import Cell, Method, best_of, climb, equal_contraction, exact_epsilon, methods
from reproduce.privacy import epsilon_at
from reproduce.runs import Run
from reproduce.training import n_records


@pytest.mark.parametrize(
    ("scores", "following"),
    [
        ({}, 2),
        ({2: 0.5}, 3),
        ({2: 0.5, 3: 0.4}, 1),
        ({2: 0.5, 3: 0.6}, 4),
        ({2: 0.5, 3: 0.6, 4: 0.5}, None),
        ({2: 0.5, 3: 0.4, 1: 0.6}, 0),
        ({2: 0.5, 3: 0.4, 1: 0.6, 0: 0.7}, None),
        ({2: 0.5, 3: 0.6, 4: 0.7}, None),
    ],
)
def test_climb(scores, following):
    assert climb(5, 2, scores) == following


@pytest.mark.parametrize("peak", range(6))
@pytest.mark.parametrize("start", range(6))
def test_climb_reaches_the_top_of_a_hill_and_stops(start, peak):
    scores = {}
    while (following := climb(6, start, scores)) is not None:
        assert following not in scores
        scores[following] = -abs(following - peak)
    assert best_of(scores) == peak
    # It need not look at everything: only at the way there and one step beyond on either side.
    assert len(scores) <= abs(start - peak) + 3


def test_of_equal_scores_the_first_is_best():
    assert best_of({3: 0.5, 1: 0.5, 2: 0.4}) == 1


def make_cell(**parameters):
    return Cell(Method("m", "M", "LinearClassifier", parameters), "mnist", 15.0)


def test_what_is_nearer_to_the_cell_wins():
    method = Method(
        "m",
        "M",
        "LinearClassifier",
        {"a": 1, "b": 1, "c": 1, "d": 1},
        by_dataset={"mnist": {"b": 2, "c": 2, "d": 2}},
        by_noise={"15": {"c": 3, "d": 3}},
    )
    run = Cell(method, "mnist", 15.0, {"d": 4}, epochs=7).run(seed=4)
    assert run.parameters == {"a": 1, "b": 2, "c": 3, "d": 4, "delta": 1e-5, "epochs": 7, "noise_multiplier": 15.0}
    assert run.seed == 4
    assert Cell(method, "cifar10", 15.0).run(0).parameters["b"] == 1
    assert Cell(method, "mnist", 5.0).run(0).parameters["c"] == 2


def test_a_method_of_one_pass_has_no_epochs_and_a_given_epsilon_no_noise_multiplier():
    given = Cell(Method("m", "M", "SSPClassifier", {"epsilon": "<label>"}), "mnist", 5.0).run(0).parameters
    assert given == {"epsilon": 4.76, "delta": 1e-5}


def test_seeds_that_chose_the_parameters_are_left_out():
    cell = make_cell()
    later = replace(cell, method=replace(cell.method, first_seed=2))
    assert [later.run(seed).seed for seed in (0, 1)] == [2, 3]
    assert later.run(0).key == cell.run(2).key


def test_a_method_may_bring_its_own_noise_multiplier():
    assert make_cell(noise_multiplier=0.001).run(0).parameters["noise_multiplier"] == 0.001


@pytest.mark.parametrize(
    ("mark", "epsilon"), [("<label, a fit per class>", 1.33), ("<selection label, a fit per class>", 2.88)]
)
def test_noise_of_ten_fits_that_share_a_budget(mark, epsilon):
    noise = make_cell(noise_multiplier=mark).run(0).parameters["noise_multiplier"]
    # AdaSSP: noise over sensitivity is sqrt(log(6 / delta)) over a third of epsilon, of a tenth of the budget each.
    assert noise / 2 == pytest.approx(math.sqrt(math.log(6e6)) * 30 / epsilon, rel=1e-5)
    # The classical calibration is far from tight: all thirty releases together have less than half of the epsilon.
    together = GaussianProfile(2 * math.sqrt(30) / noise).epsilon(1e-5)
    assert together < epsilon / 2


def test_exact_epsilon_is_the_papers_run_rounded_down():
    assert make_cell(epsilon="<exact>").run(0).parameters["epsilon"] == 1.3172
    assert 1.3172 <= exact_epsilon("mnist", 15.0) < 1.3173
    # CIFAR-10 has fewer records: the paper's one label for all does not fit it.
    assert exact_epsilon("cifar10", 15.0) == pytest.approx(1.4568, abs=1e-4)


def test_equal_base_divides_by_the_learning_rate():
    given = make_cell(l2="<equal base>", learning_rate=0.01).run(0).parameters
    assert given["l2"] * 0.01 == pytest.approx(equal_contraction("mnist", 15.0), rel=1e-4)
    assert make_cell(l2="<equal base>").run(0, rate=0.1).parameters["l2"] == pytest.approx(given["l2"] / 10, rel=1e-4)


def test_equal_noise_gives_every_batch_size_the_same_epsilon():
    assert make_cell(noise_multiplier="<equal noise>", batch_size=1000).run(0).parameters["noise_multiplier"] == 15.0
    for b in (500, 2000):
        noise = make_cell(noise_multiplier="<equal noise>", batch_size=b).run(0).parameters["noise_multiplier"]
        epsilon = poisson_profile(60_000, b, noise, epochs=400, delta=1e-5).epsilon(1e-5)
        assert exact_epsilon("mnist", 15.0) * (1 - 1e-4) < epsilon <= exact_epsilon("mnist", 15.0)
        # With it, NoisyCGD's formula gives that epsilon too.
        cell = make_cell(noise_multiplier="<equal noise>", l2="<equal base>", learning_rate=0.01, batch_size=b)
        given = cell.run(0).parameters
        cyclic = {**given, "schedule": "constant", "batch_order": "given"}
        found = epsilon_at(Run("mnist", "LinearClassifier", cyclic, seed=0), given["noise_multiplier"], 400)
        assert found == pytest.approx(epsilon, rel=1e-3) if given["l2"] else found <= epsilon


def test_an_unknown_mark_is_refused():
    expected = r"mark must be <label>, <label, a fit per class>, .* or <equal base>; got <exakt>\."
    with pytest.raises(ValueError, match=expected):
        make_cell(epsilon="<exakt>").run(0)


def test_the_search_asks_for_short_runs_of_one_seed_until_the_top(store, result):
    cell = replace(make_cell(), method=replace(make_cell().method, rates=(1.0, 0.01, 0.1), first_rate=0.01))
    tried = []
    while (run := cell.search(store)[0]) is not None:
        tried.append(run.parameters["learning_rate"])
        assert (run.parameters["epochs"], run.seed) == (module.SEARCH_EPOCHS, module.SEARCH_SEED)
        store.add(run, result(run, {0.01: 0.5, 0.1: 0.7, 1.0: 0.6}[tried[-1]]))
    assert tried == [0.01, 0.1, 1.0]
    assert cell.search(store) == (None, 0.1)
    assert cell.run(3, 0.1).parameters["learning_rate"] == 0.1
    # A run of the table is another one than that of the search.
    assert store.result(cell.run(0, 0.1)) is None


def test_the_search_starts_at_a_rate_that_goes_with_the_clipping_norm(store):
    method = replace(make_cell().method, rates=(0.01, 0.1, 1.0), first_rate=1.0)

    def start(**changes):
        return replace(make_cell(), method=method, changes=changes).search(store)[0].parameters["learning_rate"]

    assert (start(), start(clipping_norm=1.0), start(clipping_norm=10.0), start(clipping_norm=1e9)) == (
        1.0,
        1.0,
        0.1,
        0.01,
    )


def test_the_search_of_shorter_runs_is_as_short(store):
    method = replace(make_cell().method, rates=(0.1, 1.0))
    assert replace(make_cell(), method=method, epochs=3).search(store)[0].parameters["epochs"] == 3


def test_nothing_is_searched_where_the_rate_is_given(store):
    method = replace(make_cell().method, rates=(0.1, 1.0))
    assert replace(make_cell(), method=method, changes={"learning_rate": 0.5}).search(store) == (None, None)
    assert make_cell().search(store) == (None, None)


def test_an_entry_like_another_differs_in_what_it_says(tmp_path):
    path = tmp_path / "methods.toml"
    path.write_text(
        '[a]\ntitle = "A"\nestimator = "E"\nrates = [0.1]\nparameters = { x = 1, y = 1 }\nby_noise.15.x = 3\n'
        '[b]\nlike = "a"\ntitle = "B"\nparameters = { y = 2 }\n'
        '[c]\nlike = "b"\nrates = []\n'
    )
    a, b, c = methods(path).values()
    assert a == Method("a", "A", "E", {"x": 1, "y": 1}, by_noise={"15": {"x": 3}}, rates=[0.1])
    assert b == replace(a, name="b", title="B", parameters={"x": 1, "y": 2})
    assert c == replace(b, name="c", rates=[])


@pytest.mark.parametrize("text", ['[a]\nlike = "b"\n[b]\ntitle = "B"', '[a]\ntitle = "A"', '[a]\ncolour = "red"'])
def test_a_file_of_methods_that_cannot_be_meant(text, tmp_path):
    path = tmp_path / "methods.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a must hold known fields, .*; got .* Correct methods\.toml\."):
        methods(path)


def test_the_file_of_methods_is_whole():
    for method in methods().values():
        assert method.title
        assert not method.rates or method.first_rate in method.rates
        # The paper's grid: powers of the root of ten.
        steps = [2 * math.log10(rate) for rate in method.rates]
        assert steps == pytest.approx([round(step) for step in steps], abs=1e-6)
    assert n_records("digits") == 1437
