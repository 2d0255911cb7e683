from __future__ import annotations

import re

import pytest

RUN = ["--records", 60000, "--batch-size", 1000, "--epochs", 400, "--delta", 1e-5]
PAPER = [*RUN, "--learning-rate", 1, "--l2", 5.4e-5, "--schedule", "constant", "--smoothness", 0.5]


@pytest.mark.parametrize(
    ("order", "multiplier", "epsilon"),
    [("permuted", 15, 1.234670191), ("given", 15, 1.3357), ("permuted", 5, 4.24833852), ("given", 5, 4.6113)],
)
def test_account_reproduces_the_oracles(noisycgd, order, multiplier, epsilon) -> None:
    done = noisycgd("account", "noisycgd", *PAPER, "--noise-multiplier", multiplier, "--order", order, "--json")
    assert done.json["epsilon"] == pytest.approx(epsilon, rel=2e-5)
    assert done.json["adjacency"] == "replace-one"
    assert done.json["threat_model"] == "final-model"
    assert done.json["status"] == "proved"
    assert done.json["mu_worst"] == pytest.approx(2 * 2.61487747081 / multiplier)
    assert done.json["epsilon"] < done.json["epsilon_all_iterates"]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_calibrate_inverts_account_on_the_private_side(noisycgd, schedule) -> None:
    run = [*RUN, "--schedule", schedule]
    found = noisycgd("calibrate", "noisycgd", *run, "--epsilon", 2, "--json").json
    again = noisycgd("account", "noisycgd", *run, "--noise-multiplier", repr(found["noise_multiplier"]), "--json").json
    assert again["epsilon"] <= 2
    assert again["epsilon"] == pytest.approx(2, rel=1e-9)


def test_calibrate_to_mu(noisycgd) -> None:
    found = noisycgd("calibrate", "noisycgd", *RUN, "--mu", 0.5, "--json").json
    assert found["mu_worst"] <= 0.5
    assert found["mu_worst"] == pytest.approx(0.5)


def test_without_smoothness_the_answer_is_conditional(noisycgd) -> None:
    done = noisycgd("account", "noisycgd", *RUN, "--noise-multiplier", 15)
    assert "conditional" in done.out
    assert "not checked" in done.out


def test_a_million_epochs_need_no_array_of_steps(noisycgd) -> None:
    run = ["--records", 60000, "--batch-size", 1000, "--epochs", 10**6, "--learning-rate", 1, "--l2", 1e-6]
    assert noisycgd("account", "noisycgd", *run, "--noise-multiplier", 15, "--json").json["epsilon"] > 10


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (["--learning-rate", 5], ["learning_rate must be at most 4", "2/beta", "Lower it"]),
        (["--noise-multiplier", 0], ["noise_multiplier must be a number above 0"]),
        (["--delta", 1.5], ["delta must be", "below 1", "1.5"]),
        (["--batch-size", 60001], ["batch_size must be at most the number of records (60000)"]),
        (["--epochs", 0], ["epochs must be an integer at least 1"]),
        (["--records", -3], ["records must be"]),
        (["--l2", -1], ["l2 must be a number at least 0"]),
        (["--order", "sorted"], ["--order must be one of 'permuted', 'given'"]),
        (["--schedule", "wild"], ["schedule must be one of"]),
        (["--smoothness", "nan"], ["smoothness must be"]),
    ],
)
def test_nonsense_is_one_clear_line(noisycgd, change, parts) -> None:
    error = noisycgd("account", "noisycgd", *PAPER, "--noise-multiplier", 15, *change).error
    for part in parts:
        assert part in error


def test_l2_without_a_learning_rate_is_refused(noisycgd) -> None:
    assert (
        "--learning-rate must be given"
        in noisycgd("account", "noisycgd", *RUN, "--noise-multiplier", 15, "--l2", 0.1).error
    )


def test_calibrate_takes_exactly_one_target(noisycgd) -> None:
    assert "--epsilon must be given" in noisycgd("calibrate", "noisycgd", *RUN).error
    assert "not both" in noisycgd("calibrate", "noisycgd", *RUN, "--epsilon", 1, "--mu", 1).error


def test_dpsgd_is_bracketed_and_calibrated(noisycgd) -> None:
    found = noisycgd("account", "dpsgd", *RUN, "--noise-multiplier", 15, "--json").json
    assert found["epsilon_lower"] <= 1.31712 <= found["epsilon"] + 1e-4
    assert found["epsilon"] == pytest.approx(1.31712, abs=2e-3)
    assert (found["adjacency"], found["threat_model"]) == ("replace-one", "all-iterates")
    assert {"delta", "method"} <= set(found)
    other = noisycgd("account", "dpsgd", *RUN, "--noise-multiplier", 15, "--adjacency", "add-remove", "--json").json
    assert other["epsilon"] < found["epsilon"]
    back = noisycgd("calibrate", "dpsgd", *RUN, "--epsilon", found["epsilon"], "--json").json
    assert back["noise_multiplier"] == pytest.approx(15, rel=1e-3)
    assert back["epsilon"] <= found["epsilon"]


def test_full_batches_are_noisygd(noisycgd) -> None:
    same = ["--epochs", 10, "--noise-multiplier", 15, "--order", "given", "--json"]
    cyclic = noisycgd("account", "noisycgd", "--records", 50, "--batch-size", 50, *same).json
    full = noisycgd("account", "noisygd", "--records", 50, "--epochs", 10, "--noise-multiplier", 15, "--json").json
    assert full["epsilon"] == cyclic["epsilon"]
    bounded = ["account", "noisygd", "--records", 50, "--epochs", 1000, "--noise-multiplier", 15, "--diameter", 2]
    assert "--learning-rate must be given" in noisycgd(*bounded).error
    bounded += ["--learning-rate", 1]
    assert noisycgd(*bounded, "--json").json["epsilon"] < noisycgd(*bounded[:-4], "--json").json["epsilon"] / 2
    assert noisycgd("calibrate", "noisygd", "--records", 50, "--epochs", 10, "--epsilon", 1, "--json").code == 0


def test_selection(noisycgd) -> None:
    run = ["selection", "--mean-trials", 20]
    found = noisycgd("account", *run, "--base-epsilon", 1.33, "--json").json
    assert found["epsilon"] == pytest.approx(3.781, abs=2e-3)
    assert found["epsilon_profile"] == pytest.approx(4.32286, abs=1e-4)
    assert found["method"] == "renyi"
    base = noisycgd("calibrate", *run, "--epsilon", 3.781, "--json").json
    assert base["base_epsilon"] == pytest.approx(1.33, abs=2e-3)
    geometric = noisycgd("account", *run, "--base-epsilon", 1.33, "--trials", "geometric", "--json").json
    assert geometric["epsilon"] < found["epsilon"]
    assert "--trials must be one of" in noisycgd("account", *run, "--base-epsilon", 1, "--trials", "many").error


@pytest.mark.parametrize("mean", [5, 20])
@pytest.mark.parametrize("epsilon", [1, 8])
def test_a_permitted_base_is_printed_no_larger_than_it_is(noisycgd, mean, epsilon) -> None:
    arguments = ["calibrate", "selection", "--mean-trials", mean, "--epsilon", epsilon]
    exact, text = noisycgd(*arguments, "--json").json, noisycgd(*arguments).out
    shown = re.search(r"^base mu +(\S+)$", text, re.MULTILINE)
    stated = re.search(r"each trial is (\S+)-GDP", text)
    assert shown is not None
    assert stated is not None
    for number in (shown[1], stated[1]):
        assert exact["base_mu"] * (1 - 1e-6) <= float(number) <= exact["base_mu"]
    printed = re.search(r"^base epsilon +(\S+)$", text, re.MULTILINE)
    assert printed is not None
    again = noisycgd("account", "selection", "--mean-trials", mean, "--base-epsilon", printed[1], "--json").json
    assert again["epsilon"] <= epsilon


def test_both_ends_of_a_bracket_are_rounded_outward(noisycgd) -> None:
    arguments = ["account", "dpsgd", "--records", 1000, "--batch-size", 100, "--epochs", 3, "--noise-multiplier", 3]
    exact, text = noisycgd(*arguments, "--json").json, noisycgd(*arguments).out
    low, high = (re.search(rf"^{name} +(\S+)$", text, re.MULTILINE) for name in ("epsilon lower", "epsilon"))
    assert low is not None
    assert high is not None
    assert float(low[1]) <= exact["epsilon_lower"] <= exact["epsilon"] <= float(high[1])


def test_shuffling(noisycgd) -> None:
    found = noisycgd("account", "shuffling", "--batches", 60, "--noise-multiplier", 5, "--json").json
    assert found["method"] == "gaussian"
    assert found["epsilon"] == pytest.approx(1.55498, abs=1e-5)
    assert found["epsilon_shuffling"] == pytest.approx(2.0925, rel=0.01)
