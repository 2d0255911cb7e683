from __future__ import annotations

import csv

import pytest

from noisycgd._validation import rounded_down
from noisycgd.accounting import gaussian_mu

RUN = ["--records", 6000, "--batch-size", 100, "--epochs", 20]


def test_epochs_prints_writes_and_draws(noisycgd, tmp_path) -> None:
    done = noisycgd(
        "compare",
        "epochs",
        *RUN,
        "--noise-multiplier",
        15,
        "--eta-l2",
        0,
        "--eta-l2",
        1e-3,
        "--csv",
        "c.csv",
        "--plot",
        "c.svg",
    )
    assert done.code == 0, done.err
    assert "DP-SGD" in done.out
    assert "all-iterates" in done.out
    rows = list(csv.DictReader((tmp_path / "c.csv").read_text().splitlines()))
    assert {row["threat_model"] for row in rows} == {"final-model", "all-iterates"}
    assert (tmp_path / "c.svg").read_text().startswith("<?xml")
    found = noisycgd("compare", "epochs", *RUN, "--noise-multiplier", 15, "--mechanism", "noisycgd", "--json").json
    assert found["curves"][0]["y"][-1] > 0
    assert "(not checked: no smoothness was stated)" in found["conditions"][1]
    assert done.out.count("  provided that ") == len(found["conditions"])
    seen = noisycgd("compare", "epochs", *RUN, "--noise-multiplier", 15, "--mechanism", "dpsgd")
    assert "provided that" not in seen.out


def test_shuffling(noisycgd) -> None:
    found = noisycgd("compare", "shuffling", "--batches", 60, "--noise-multiplier", 5, "--json").json
    assert [c["name"] for c in found["curves"]] == ["Gaussian, no amplification", "shuffled, 60 batches"]


def test_schedules(noisycgd, tmp_path) -> None:
    done = noisycgd("compare", "schedules", *RUN, "--epsilon", 1, "--csv", "s.csv")
    assert "warmup-stable-decay" in done.out
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 5
    assert "provided" not in (tmp_path / "s.csv").read_text()
    exact = noisycgd("compare", "schedules", *RUN, "--epsilon", 1, "--json").json
    assert exact[0]["schedule"] == "linear"
    assert [f"  provided that {c}" for c in exact[0]["conditions"]] == done.out.splitlines()[7:]
    for line, row in zip(done.out.splitlines()[1:], exact, strict=False):
        for shown, name in zip(line.split()[1:], ("epsilon", "mu_worst", "noise_multiplier"), strict=True):
            assert row[name] <= float(shown) <= row[name] * (1 + 1e-5)


def test_tradeoff_in_words_and_for_a_model(noisycgd, tmp_path) -> None:
    done = noisycgd("tradeoff", "--epsilon", 1.33, "--fpr", 0.05, "--prior", 0.5, "--plot", "t.png")
    assert "false-positive rate of at most 5 %" in done.out
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert noisycgd("tradeoff", "--mu", 0.5, "--json").json["advantage"] == pytest.approx(0.1974, abs=1e-3)
    noisycgd("fit", "digits", "--epochs", 1, "--hyperplanes", 2, "--delta", 1e-4, "--out", "m")
    assert noisycgd("tradeoff", "--model", "m", "--delta", 1e-4, "--json").json["epsilon"] == pytest.approx(1.0)
    assert "exactly one" in noisycgd("tradeoff").error
    assert "got '--mu and --epsilon'" in noisycgd("tradeoff", "--mu", 1, "--epsilon", 1).error


def test_tradeoff_of_two_numbers_says_of_which_mechanism(noisycgd) -> None:
    # Pure (1.33, 0)-DP allows an advantage of (e^1.33 - 1) / (e^1.33 + 1), far more than the Gaussian's.
    told = noisycgd("tradeoff", "--epsilon", 1.33).out
    found = noisycgd("tradeoff", "--epsilon", 1.33, "--json").json
    assert found["advantage"] < 0.3 < 0.58
    mu = rounded_down(gaussian_mu(1.33, 1e-5), 8)
    assert found["provided"].startswith(f"the mechanism is {mu}-GDP; another with the same epsilon and delta")
    assert found["provided"] in told
    assert "(all that is released): epsilon 1.33 at delta 1e-05" in told
    noisycgd("fit", "digits", "--epochs", 1, "--hyperplanes", 2, "--delta", 1e-4, "--out", "m")
    # Without another one, delta is the model's.
    own = noisycgd("tradeoff", "--model", "m").out
    assert own == noisycgd("tradeoff", "--model", "m", "--delta", 1e-4).out
    assert own.startswith("m (final-model): epsilon 1 at delta 0.0001\n")
    assert "provided" not in own
    assert noisycgd("tradeoff", "--model", "m", "--json").json["provided"] is None


def test_epsilons_are_rounded_up_wherever_they_stand(noisycgd, tmp_path) -> None:
    shown = noisycgd("compare", "shuffling", "--batches", 60, "--noise-multiplier", 5).out
    exact = noisycgd("compare", "shuffling", "--batches", 60, "--noise-multiplier", 5, "--json").json
    assert "delta (probability) at the end of each curve:" in shown
    lines = [line for line in shown.splitlines() if " = " in line]
    for line, curve in zip(lines, exact["curves"], strict=True):
        epsilon = float(line.split(" = ")[1].split()[0])
        assert curve["x"][-1] <= epsilon <= curve["x"][-1] * (1 + 1e-5)
    noisycgd("tradeoff", "--mu", 1.23441, "--csv", "t.csv")
    assert "1.235-GDP" in (tmp_path / "t.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["epochs", *RUN, "--noise-multiplier", 15, "--mechanism", "magic"], "mechanism must be one of"),
        (
            ["epochs", *RUN, "--noise-multiplier", 15, "--plot", "c.bmp", "--csv", "c.csv"],
            "format of a picture must be one of",
        ),
        (["epochs", *RUN, "--noise-multiplier", -1], "noise_multiplier must be"),
        (["shuffling", "--batches", 0, "--noise-multiplier", 5], "batches must be"),
        (["schedules", *RUN, "--epsilon", 0], "epsilon must be"),
    ],
)
def test_nonsense_is_one_clear_line_and_writes_nothing(noisycgd, tmp_path, arguments, part) -> None:
    assert part in noisycgd("compare", *arguments).error
    assert list(tmp_path.iterdir()) == []
