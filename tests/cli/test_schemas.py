from __future__ import annotations

import tomllib


def test_draft_is_marked_and_usable(noisycgd, tmp_path) -> None:
    (tmp_path / "data.csv").write_text(
        "age,city,label\n" + "".join(f"{i},{'ab'[i % 2]},{'xy'[i % 2]}\n" for i in range(40))
    )
    draft = noisycgd("schema", "draft", "data.csv", "--target", "label")
    assert draft.code == 0, draft.err
    assert "review: inferred from data" in draft.out
    assert tomllib.loads(draft.out)["target"]["name"] == "label"
    assert noisycgd("schema", "draft", "data.csv", "--out", "schema.toml").code == 0
    assert (tmp_path / "schema.toml").read_text() == draft.out
    checked = noisycgd("schema", "check", "schema.toml", "--json").json
    assert checked["features"] == ["age", "city=a", "city=b"]
    assert "feature   city=a" in noisycgd("schema", "check", "schema.toml").out
    done = noisycgd(
        "fit", "data.csv", "--schema", "schema.toml", "--epochs", 1, "--hyperplanes", 2, "--out", "m", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["guarantee"]["status"] == "conditional"
    assert "review" in done.json["guarantee"]["assumed_public"][0]
    reviewed = (tmp_path / "schema.toml").read_text().replace("review: inferred from data", "")
    (tmp_path / "reviewed.toml").write_text(reviewed)
    quick = ["--epochs", 1, "--hyperplanes", 2, "--out", "m", "--json"]
    assert noisycgd("fit", "data.csv", "--schema", "reviewed.toml", *quick).json["guarantee"]["status"] == "proved"


def test_a_review_is_never_overwritten(noisycgd, tmp_path) -> None:
    (tmp_path / "data.csv").write_text("a,y\n1,0\n2,1\n")
    (tmp_path / "schema.toml").write_text("reviewed")
    assert "schema.toml" in noisycgd("schema", "draft", "data.csv", "--out", "schema.toml").error
    assert (tmp_path / "schema.toml").read_text() == "reviewed"


def test_a_broken_schema_is_one_line(noisycgd, tmp_path) -> None:
    (tmp_path / "schema.toml").write_text("[target\n")
    assert "schema.toml" in noisycgd("schema", "check", "schema.toml").error
