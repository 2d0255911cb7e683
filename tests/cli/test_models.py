from __future__ import annotations

import csv
import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from noisycgd import load_model
from noisycgd.cli import models
from noisycgd.cli.inputs import training_data
from noisycgd.estimators import save_model

QUICK = ["--epochs", 2, "--hyperplanes", 2, "--delta", 1e-4]

SCHEMA = """
[target]
name = "label"
classes = ["no", "yes"]
[columns.age]
type = "number"
bounds = [0, 100]
[columns.city]
type = "category"
categories = ["Espoo", "Utrecht"]
"""


def write_csv(path, rows=60, *, city=True, missing=False) -> None:
    generator = np.random.default_rng(0)
    with open(path, "w") as stream:
        stream.write("age," + ("city," if city else "height,") + "label\n")
        for i in range(rows):
            other = ["Espoo", "Utrecht"][i % 2] if city else f"{generator.normal():.3f}"
            age = "" if missing and i == 3 else i
            stream.write(f"{age},{other},{['no', 'yes'][i % 2]}\n")


def test_fit_digits_prints_what_machines_need(noisycgd) -> None:
    done = noisycgd("fit", "digits", *QUICK, "--epsilon", 4, "--out", "model", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert 0 <= found["test_accuracy"] <= 1
    assert found["seconds"] > 0
    assert found["model_path"] == "model"
    assert found["test_note"] == "public data"
    guarantee = found["guarantee"]
    assert guarantee["status"] == "proved"
    assert guarantee["epsilon"] <= 4
    assert guarantee["epsilon"] == pytest.approx(4)
    assert guarantee["delta"] == 1e-4
    assert guarantee["adjacency"] == "replace-one"
    assert guarantee["threat_model"] == "final-model"
    assert guarantee["mu"] > 0
    assert {"name", "requirement", "enforced"} == set(guarantee["conditions"][0])
    assert guarantee["assumed_public"] == []


def test_fit_without_out_writes_a_fresh_named_folder(noisycgd, tmp_path) -> None:
    paths = {noisycgd("fit", "digits", *QUICK, "--json").json["model_path"] for _ in range(2)}
    assert len(paths) == 2
    for path in paths:
        assert path.startswith("models/digits-")
        assert {p.name for p in (tmp_path / path).iterdir()} == {
            "model.json",
            "model.safetensors",
            "guarantee.png",
            "guarantee.txt",
        }


def test_text_output_states_the_guarantee(noisycgd) -> None:
    out = noisycgd("fit", "digits", *QUICK).out
    assert "PROVED" in out
    assert "test accuracy" in out
    assert "guarantee.png" in out


def test_info_predict_and_evaluate_agree_with_the_model(noisycgd) -> None:
    noisycgd("fit", "digits", *QUICK, "--out", "model")
    info = noisycgd("info", "model", "--json").json
    assert info["estimator"] == "ConvexReLUClassifier"
    assert info["guarantee"]["status"] == "proved"
    assert "PROVED" in noisycgd("info", "model").out
    rows = list(csv.DictReader(io.StringIO(noisycgd("predict", "model", "digits", "--proba").out)))
    scores = np.array([[float(row[f"score_{c}"]) for c in range(10)] for row in rows])
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-4)
    model = load_model("model")
    # The part that was held out, though the data set has no test part of its own.
    _, held_out = training_data(
        "digits",
        target=None,
        schema=None,
        data_dir=None,
        test=None,
        test_fraction=None,
        split_seed=0,
    )
    assert [int(row["prediction"]) for row in rows] == model.predict(held_out.X).tolist()
    evaluation = noisycgd("evaluate", "model", "digits", "--json").json
    assert evaluation["score"] == pytest.approx(model.score(held_out.X, held_out.y))
    assert (evaluation["metric"], evaluation["records"]) == ("accuracy", 449)


def test_evaluate_holds_out_what_fit_held_out(noisycgd) -> None:
    fitted = noisycgd("fit", "digits", *QUICK, "--test-fraction", 0.5, "--split-seed", 3, "--out", "m", "--json").json
    evaluation = noisycgd("evaluate", "m", "digits", "--json").json
    assert evaluation["records"] == fitted["test_records"] == 898
    assert evaluation["score"] == fitted["test_accuracy"]


@pytest.mark.parametrize("schema", [False, True])
def test_predict_needs_no_target_in_a_column_of_its_name(noisycgd, tmp_path, schema) -> None:
    write_csv(tmp_path / "data.csv", city=schema)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    how = ["--schema", "schema.toml"] if schema else ["--target", "label"]
    assert noisycgd("fit", "data.csv", *how, *QUICK, "--out", "m").code == 0
    header, *rows = (tmp_path / "data.csv").read_text().splitlines()
    place = header.split(",").index("label")
    for stand_in in ("", "?"):
        blank = [",".join([*row.split(",")[:place], stand_in, *row.split(",")[place + 1 :]]) for row in rows]
        (tmp_path / "new.csv").write_text("\n".join([header, *blank]) + "\n")
        done = noisycgd("predict", "m", "new.csv")
        assert done.code == 0, done.err
        assert len(done.out.splitlines()) == 1 + len(rows)
        if not stand_in:
            assert noisycgd("evaluate", "m", "new.csv").error
    if schema:
        np.savez(tmp_path / "new.npz", X=np.ones((3, 2)))
        assert "a table with named columns, as the schema has them" in noisycgd("predict", "m", "new.npz").error


def test_a_target_of_lists_is_refused_in_one_line(noisycgd, tmp_path) -> None:
    table = pa.table({"a": [1.0, 2.0, 3.0, 4.0], "y": [[1], [2], [1], [2]]})
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    assert noisycgd("fit", "data.parquet", "--target", "y", *QUICK, "--out", "m").error.startswith("error: y must be")


def test_predictions_do_not_replace_the_data(noisycgd, tmp_path) -> None:
    write_csv(tmp_path / "data.csv", city=False)
    before = (tmp_path / "data.csv").read_text()
    assert (
        "--out must be another file than the data" in noisycgd("predict", "m", "data.csv", "--out", "./data.csv").error
    )
    assert (tmp_path / "data.csv").read_text() == before


def test_a_missing_text_is_no_class(noisycgd, tmp_path) -> None:
    (tmp_path / "data.csv").write_text("a,b,y\n1,2,low\n3,1,high\n2,2,\n")
    assert "1 missing" in noisycgd("fit", "data.csv", "--target", "y", *QUICK, "--out", "m").error
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("model", "target", "other"),
    [("linear", "label", "income"), ("convex-relu-regressor", "income", "name"), ("linear", "label", "name")],
)
def test_evaluate_quotes_no_record(noisycgd, tmp_path, model, target, other) -> None:
    lines = [f"{i},{i % 7},{'yes' if i % 2 else 'no'},{1234.5 + i},Secret{i}" for i in range(40)]
    (tmp_path / "data.csv").write_text("a,b,label,income,name\n" + "\n".join(lines) + "\n")
    (tmp_path / "train.csv").write_text(
        f"a,b,{target}\n"
        + "\n".join(f"{i},{i % 7},{line.split(',')[2 if target == 'label' else 3]}" for i, line in enumerate(lines))
        + "\n"
    )
    assert (
        noisycgd(
            "fit", "train.csv", "--target", target, "--model", model, "--epochs", 2, "--delta", 1e-4, "--out", "m"
        ).code
        == 0
    )
    done = noisycgd("evaluate", "m", "data.csv", "--target", other)
    if done.code:
        assert not re.search(r"Secret|12\d\d|yes", done.error)
    else:
        assert (model, other) == ("linear", "name")


@pytest.mark.parametrize(
    "table",
    [
        "x",
        [1],
        {"schema": 1, "target": None, "columns": None},
        {"columns": ["a"]},
        {"schema": None, "target": 3, "columns": None},
        {"schema": None, "target": None, "columns": "ab"},
        {"schema": None, "target": None, "columns": None, "split": ["digits"]},
        {"schema": None, "target": None, "columns": None, "more": 1},
    ],
)
def test_a_model_whose_table_is_forged_is_refused_in_one_line(noisycgd, tmp_path, table) -> None:
    noisycgd("fit", "digits", *QUICK, "--out", "m")
    save_model(load_model("m"), tmp_path / "forged", table)
    for command in ("predict", "evaluate"):
        assert "must be" in noisycgd(command, "forged", "digits").error


def test_a_folder_that_cannot_be_written_is_refused_before_training(noisycgd, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(models, "_fit", never)
    assert "in a folder that can be written" in noisycgd("fit", "digits", "--out", "file/m").error


FOURIER = ["--model", "linear", "--features", "fourier"]


@pytest.mark.parametrize(
    "options", [["--hyperplanes"], [*FOURIER, "--components"], ["--model", "relu-network", "--width"]]
)
def test_sizes_that_no_array_has_are_refused(noisycgd, options) -> None:
    assert (
        "must be an integer at least 1 and at most 2147483647"
        in noisycgd("fit", "digits", *options, 10**23, "--out", "m").error
    )


@pytest.mark.parametrize("kind", ["linear", "convex-relu"])
def test_table_with_a_schema_round_trips(noisycgd, tmp_path, kind) -> None:
    write_csv(tmp_path / "data.csv")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    settings = ["--epochs", 2, "--delta", 1e-4] if kind == "linear" else QUICK
    done = noisycgd(
        "fit",
        "data.csv",
        "--schema",
        "schema.toml",
        *settings,
        "--model",
        kind,
        "--test-fraction",
        0.25,
        "--out",
        "m",
        "--json",
    )
    assert done.code == 0, done.err
    assert done.json["test_note"].startswith("non-private")
    assert done.json["guarantee"]["assumed_public"] == []
    assert done.json["train_records"] == 45
    # Predicting needs neither the target nor known categories.
    (tmp_path / "new.csv").write_text("city,age,other\nEspoo,10,1\nElsewhere,,2\n")
    out = noisycgd("predict", "m", "new.csv", "--out", "predictions.csv")
    assert out.code == 0, out.err
    lines = (tmp_path / "predictions.csv").read_text().splitlines()
    assert lines[0] == "prediction"
    assert set(lines[1:]) <= {"yes", "no"}
    assert len(lines) == 3
    assert "non-private" in noisycgd("evaluate", "m", "data.csv").out


def test_table_without_a_schema_lists_what_is_assumed_public(noisycgd, tmp_path) -> None:
    write_csv(tmp_path / "data.csv", city=False)
    done = noisycgd("fit", "data.csv", "--target", "label", *QUICK, "--out", "m", "--json")
    assert done.json["test_accuracy"] is None
    assumed = " ".join(done.json["guarantee"]["assumed_public"])
    assert "class labels" in assumed
    assert "columns" in assumed
    assert "assumed public" in noisycgd("info", "m").out
    assert noisycgd("evaluate", "m", "data.csv", "--json").json["records"] == 60


def test_regression_with_a_schema(noisycgd, tmp_path) -> None:
    write_csv(tmp_path / "data.csv")
    text = SCHEMA.replace('name = "label"\nclasses = ["no", "yes"]', 'name = "age"\nbounds = [0, 100]')
    text = text.replace('[columns.age]\ntype = "number"\nbounds = [0, 100]\n', "")
    (tmp_path / "schema.toml").write_text(text)
    done = noisycgd(
        "fit", "data.csv", "--schema", "schema.toml", *QUICK, "--test-fraction", 0.25, "--out", "m", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["test_accuracy"] is None
    assert done.json["test_r2"] is not None
    # Scored against the truth as it is, beyond the bounds too.
    (tmp_path / "far.csv").write_text("age,city,label\n1e6,Espoo,no\n10,Utrecht,yes\n20,Espoo,no\n")
    assert noisycgd("evaluate", "m", "far.csv", "--json").json["score"] < 0
    assert done.json["guarantee"]["assumed_public"] == []
    assert noisycgd("info", "m", "--json").json["estimator"] == "ConvexReLURegressor"
    assert "regression" in noisycgd("predict", "m", "data.csv", "--proba").error


def test_what_makes_predictions_worth_little_is_said(noisycgd, tmp_path) -> None:
    write_csv(tmp_path / "data.csv")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    assert noisycgd("fit", "data.csv", "--schema", "schema.toml", *QUICK, "--out", "m").err == ""
    (tmp_path / "new.csv").write_text((tmp_path / "data.csv").read_text().replace("Espoo", "ESPOO"))
    for command in ("predict", "evaluate"):
        expected = "warning: 30 of 60 rows have a value in column 'city' that the schema does not list; they count as"
        assert expected in noisycgd(command, "m", "new.csv").err
        assert noisycgd(command, "m", "data.csv").err == ""


def test_predictions_do_not_replace_a_part_of_the_model(noisycgd, tmp_path) -> None:
    noisycgd("fit", "digits", *QUICK, "--out", "m")
    for option in ("--csv", "--plot"):
        within = noisycgd("tradeoff", "--model", "m", option, "m/guarantee.png").error
        assert f"{option} must be outside of the model's folder; got 'm/guarantee.png'" in within
    for out in ("m/model.json", "m/new.csv", "m"):
        assert "--out must be outside of the model's folder" in noisycgd("predict", "m", "digits", "--out", out).error
    assert load_model(tmp_path / "m").n_features_in_ == 64


def test_npz(noisycgd, tmp_path) -> None:
    X, y = np.eye(30), np.arange(30) % 3
    np.savez(tmp_path / "data.npz", X=X, y=y)
    assert noisycgd("fit", "data.npz", *QUICK, "--out", "m", "--json").code == 0
    np.savez(tmp_path / "new.npz", X=X)
    assert noisycgd("predict", "m", "new.npz").code == 0
    assert "Save an array y beside X" in noisycgd("evaluate", "m", "new.npz").error
    assert "Save an array y beside X" in noisycgd("fit", "new.npz").error
    assert "got 'y'" in noisycgd("fit", "data.npz", "--target", "y").error


def test_unproven_is_refused_or_labelled(noisycgd) -> None:
    request = ["fit", "digits", *QUICK, "--loss", "norm_clipped_softmax", "--out", "m"]
    assert "allow_unproven" in noisycgd(*request).error
    done = noisycgd(*request, "--allow-unproven", "--json")
    assert done.json["guarantee"]["status"] == "unproven"
    assert "UNPROVEN" in noisycgd("info", "m").out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fit", "absent.csv", "--target", "y"], ["absent.csv"]),
        (["fit", "no-such-set"], ["digits, mnist"]),
        (["fit", "data.csv"], ["--target", "schema draft data.csv"]),
        (["fit", "data.csv", "--target", "label"], ["'city'", "noisycgd schema draft"]),
        (["fit", "data.csv", "--target", "nothing"], ["'nothing'"]),
        (["fit", "missing.csv", "--target", "label"], ["age"]),
        (["fit", "digits", "--epsilon", 0], ["epsilon must be a number above 0"]),
        (["fit", "digits", "--delta", 1], ["delta must be"]),
        (["fit", "digits", "--learning-rate", 3], ["learning_rate must be at most 0.124999", "auto"]),
        (["fit", "digits", "--learning-rate", "fast"], ["--learning-rate must be a number or auto"]),
        (["fit", "digits", "--hyperplanes", 3], ["n_hyperplanes must be even"]),
        (["fit", "digits", "--margin", -1], ["margin must be a number at least 0"]),
        (["fit", "digits", "--batch-size", 5000], ["batch_size must be at most the number of records (1348)"]),
        (["fit", "digits", "--target", "label"], ["--target must be left out"]),
        (["fit", "digits", "--method", "magic"], ["method must be one of 'noisycgd', 'dpsgd'"]),
        (["fit", "digits", "--model", "cnn"], ["--model must be one of"]),
        (["fit", "digits", "--model", "linear", "--hyperplanes", 4], ["--hyperplanes"]),
        (["fit", "digits", "--test-fraction", 1.5], ["--test-fraction"]),
        (["fit", "digits", "--out", "occupied"], ["occupied"]),
        (["fit", "digits", "--model", "linear", "--components", 9], ["--components must be left out for --features"]),
        (
            ["fit", "digits", "--model", "linear", "--features", "relu", "--bandwidth", 3],
            ["--bandwidth must be left out for --features relu; got '3.0'"],
        ),
        (["fit", "digits", "--radius", 3], ["--radius must be left out for --method noisycgd; got '3.0'"]),
        (["fit", "digits", "--clipping-norm", 3], ["--clipping-norm must be left out for --loss margin_softmax"]),
        (["fit", "digits", "--loss", "envelope_softmax", "--margin", 3], ["--margin must be left out for --loss env"]),
        (
            ["fit", "data.csv", "--schema", "schema.toml", "--test", "data.csv"],
            ["--test must be another file than data.csv"],
        ),
        (["fit", "text.csv", "--schema", "schema.toml"], ["text.csv: column 'age' must be a number, or empty"]),
        (["predict", "absent", "digits"], ["absent"]),
        (["info", "occupied"], ["occupied"]),
    ],
)
def test_user_errors_are_one_line_and_write_nothing(noisycgd, tmp_path, arguments, parts) -> None:
    write_csv(tmp_path / "data.csv")
    write_csv(tmp_path / "missing.csv", city=False, missing=True)
    (tmp_path / "text.csv").write_text((tmp_path / "data.csv").read_text().replace("\n7,", "\nsecret,"))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").write_text("do not lose me")
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    error = noisycgd(*arguments).error
    for part in parts:
        assert part in error
    assert "secret" not in error
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before
