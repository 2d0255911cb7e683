from __future__ import annotations

import time

import numpy as np
import pytest

from noisycgd import load_model

QUICK = ["--epochs", 1, "--mean-trials", 2, "--law", "geometric", "--epsilon", 8, "--delta", 1e-4]
GRID = ["--grid", "hyperplanes=2,4", "--grid", "learning_rate_fraction=0.5,1"]


def write_csv(path, seed) -> None:
    rng = np.random.default_rng(seed)
    rows = [f"{rng.normal():.3f},{rng.normal():.3f},{['no', 'yes'][i % 2]}\n" for i in range(80)]
    path.write_text("a,b,label\n" + "".join(rows))


def test_prints_what_machines_need(noisycgd) -> None:
    done = noisycgd("tune", "digits", *QUICK, *GRID, "--out", "model", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert set(found["candidate"]) == {"n_hyperplanes", "learning_rate_fraction"}
    assert found["mean_trials"] == 2
    assert found["epsilon_of_one_trial"] < found["epsilon_in_total"] <= 8
    assert found["epsilon_in_total"] == found["guarantee"]["epsilon"]
    assert found["scored_on"].startswith("a private holdout of 135 records")
    assert found["train_records"] == 1348 - 135
    assert found["released"] == "the best trial's model"
    # How long it took tells how many trials ran.
    assert "seconds" not in found
    model = load_model("model")
    assert model.guarantee_.selection.law == "geometric"
    assert model.n_hyperplanes == found["candidate"]["n_hyperplanes"]


def test_a_tuned_model_is_dated_as_of_the_start_of_its_search(noisycgd, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    path = tmp_path / noisycgd("tune", "digits", *QUICK, *GRID, "--json").json["model_path"]
    assert {entry.stat().st_mtime for entry in (path, *path.iterdir())} == {1e9}
    assert load_model(path).guarantee_.selection is not None


def test_text_states_the_whole_search(noisycgd) -> None:
    done = noisycgd("tune", "digits", *QUICK, *GRID, "--score-on-test", "--workers", 1)
    assert done.code == 0, done.err
    for part in (
        "PROVED",
        "best of a random number of trials, 2 on average",
        "epsilon of one trial",
        "epsilon in total",
    ):
        assert part in done.out
    assert "the scoring data were declared public" in done.out
    assert "the test records, which are public" in done.out
    assert "trained on            1348 records\n" in done.out


def test_tables(noisycgd, tmp_path) -> None:
    write_csv(tmp_path / "private.csv", 0)
    write_csv(tmp_path / "public.csv", 1)
    done = noisycgd(
        "tune", "private.csv", "--target", "label", *QUICK, "--model", "linear", "--grid", "bias=0,1",
        "--public", "public.csv", "--out", "model", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["scored_on"] == "public data"
    listed = done.json["guarantee"]["assumed_public"]
    assert any("no schema was given" in fact for fact in listed)
    assert any("class labels" in fact for fact in listed)
    assert noisycgd("predict", "model", "public.csv").code == 0


def test_what_scores_is_neither_trained_nor_tested_on(noisycgd, tmp_path) -> None:
    write_csv(tmp_path / "private.csv", 0)
    write_csv(tmp_path / "public.csv", 1)
    (tmp_path / "copy.csv").write_bytes((tmp_path / "private.csv").read_bytes())
    tune = ["tune", "private.csv", "--target", "label", *QUICK, "--model", "linear", "--grid", "bias=0,1"]
    (tmp_path / "link.csv").symlink_to("private.csv")
    for split in ([], ["--test-fraction", 0.25]):
        for same in ("private.csv", "link.csv"):
            assert "another file than private.csv" in noisycgd(*tune, *split, "--public", same).error
    assert "other records than the records to train on" in noisycgd(*tune, "--public", "copy.csv").error
    tested = [*tune, "--public", "public.csv", "--test"]
    assert "--public must be another file than public.csv" in noisycgd(*tested, "public.csv").error
    (tmp_path / "again.csv").write_bytes((tmp_path / "public.csv").read_bytes())
    assert "other records than the records to test on" in noisycgd(*tested, "again.csv").error
    held = noisycgd(*tune, "--public", "public.csv", "--holdout", 0.2)
    assert "--holdout must be left out where public records score the trials" in held.error


def test_an_untrained_model_is_called_so(noisycgd, monkeypatch) -> None:
    monkeypatch.setattr("noisycgd.tuning.selection.draw_number", lambda law, generator: 0)
    done = noisycgd("tune", "digits", *QUICK, "--law", "poisson", "--grid", "hyperplanes=2", "--out", "model")
    assert "warning: the model is untrained: no trial ran" in done.err
    for command in ("predict", "evaluate"):
        assert "warning: the model is untrained" in noisycgd(command, "model", "digits").err


def test_values_are_numbers_truths_and_words(noisycgd) -> None:
    done = noisycgd(
        "tune", "digits", *QUICK, "--model", "linear", "--grid", "method=noisycgd,noisy-gd",
        "--grid", "center-rows=true", "--grid", "batch_size=auto", "--grid", "l2=1e-3", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = done.json["candidate"]
    assert (found["center_rows"], found["batch_size"], found["l2"]) == (True, "auto", 1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "hyperplanes"], "--grid must be name=value,value"),
        (["--grid", "hyperplanes=2,"], "--grid must be name=value,value"),
        (["--grid", "l2=0", "--grid", "l2=1"], "--grid must be given once for each parameter"),
        (["--grid", "hyperplanes=2", "--hyperplanes", 4], "--hyperplanes must be left out where --grid names it"),
        (["--grid", "epsilon=1,2"], "other than privacy's"),
        (["--grid", "hyperplanes=3"], "no trial has run"),
        (["--grid", "learning_rate=100"], "learning_rate must be at most"),
        (["--grid", "width=3"], "parameters of the estimator"),
        ([*GRID, "--score-on-test", "--public", "x.csv"], "--score-on-test must be left out when --public is given"),
        ([*GRID, "--law", "fixed"], "law must be one of"),
    ],
)
def test_errors_are_one_line(noisycgd, tmp_path, arguments, message) -> None:
    assert message in noisycgd("tune", "digits", *arguments, "--epochs", 1).error
    assert list(tmp_path.iterdir()) == []


def test_the_grid_is_required_and_noise_is_no_option(noisycgd) -> None:
    assert "--grid" in noisycgd("tune", "digits").error
    assert "--noise-multiplier" in noisycgd("tune", "digits", *GRID, "--noise-multiplier", 3).error


def test_a_private_table_has_no_public_test_part(noisycgd, tmp_path) -> None:
    write_csv(tmp_path / "private.csv", 0)
    found = noisycgd("tune", "private.csv", "--target", "label", *GRID, "--test-fraction", 0.5, "--score-on-test").error
    assert "--score-on-test must be left out unless DATA is a named data set" in found
