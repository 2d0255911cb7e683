import json
import math

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from noisycgd._validation import DataError
from noisycgd.data.columns import Categories, Interval
from noisycgd.data.schema import REVIEW_MARK, Schema, draft_schema

TEXT = """
[target]
name = "label"
classes = ["a", "b"]
[columns.age]
type = "number"
bounds = [0, 120]
[columns.city]
type = "category"
categories = ["Amsterdam", "Espoo"]
[columns.ok]
type = "category"
categories = [false, true]
[columns.id]
type = "ignore"
"""
NAMES = ("age", "city=Amsterdam", "city=Espoo", "ok=false", "ok=true")
TABLE = pa.table(
    {
        "label": ["b", "a", "a", "b"],
        "extra": [1, 2, 3, 4],
        "ok": [True, None, False, True],
        "city": ["Espoo", "Paris", None, "Amsterdam"],
        "age": [60.0, 200.0, None, -math.inf],
    }
)
ENCODED = [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0], [0, 0, 0, 1, 0], [-1, 1, 0, 0, 1]]


def test_every_rule_of_encoding_on_one_table():
    schema = Schema.from_toml(TEXT)
    assert schema.feature_names == NAMES
    X = schema.encode(TABLE)
    np.testing.assert_array_equal(X, ENCODED)
    assert X.dtype == np.float32
    assert schema.encode_target(TABLE).tolist() == ["b", "a", "a", "b"]


def test_rows_with_unlisted_categories_are_counted():
    schema = Schema.from_toml(TEXT)
    # "Paris" is not listed; what is missing is no category.
    assert schema.unlisted(TABLE) == {"city": 1}
    assert schema.unlisted(TABLE.slice(2)) == {}
    assert schema.unlisted(TABLE.set_column(3, "city", pa.array(["", "espoo", None, "Espoo"]))) == {"city": 1}
    codes = Schema.from_toml(TEXT.replace("[false, true]", "[1, 2]"))
    assert codes.unlisted(TABLE.set_column(2, "ok", pa.array([1.0, math.nan, 2.0, 3.0]))) == {"city": 1, "ok": 1}


def test_a_truth_to_score_against_is_not_clipped():
    schema = Schema.from_toml(TEXT.replace('classes = ["a", "b"]', "bounds = [0, 10]"))
    table = TABLE.set_column(0, "label", pa.array([1e12, 5.0, -1e101, math.inf]))
    assert schema.encode_target(table).tolist() == [10, 5, 0, 10]
    assert schema.encode_target(table, clip=False).tolist() == [1e12, 5, 0, 10]


def test_polars_gives_the_same_rows():
    np.testing.assert_array_equal(Schema.from_toml(TEXT).encode(pl.from_arrow(TABLE).to_arrow()), ENCODED)


def test_a_schema_survives_each_form(tmp_path):
    schema = Schema.from_toml(TEXT)
    (tmp_path / "schema.toml").write_text(TEXT, encoding="utf-8")
    assert Schema.load(tmp_path / "schema.toml") == schema
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert schema.columns == {
        "age": Interval(0, 120),
        "city": Categories(("Amsterdam", "Espoo")),
        "ok": Categories((False, True)),
        "id": None,
    }
    with pytest.raises(AttributeError):
        schema.target = "other"


def facts():
    interval = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda p: p[0] != p[1])
    some = [st.text(), st.integers(-(2**63), 2**63 - 1), st.booleans()]
    values = st.one_of(*(st.lists(s, min_size=2, max_size=4, unique=True) for s in some))
    return interval.map(lambda p: {"bounds": [float(min(p)), float(max(p))]}), values


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_any_schema_survives_toml_and_json(data):
    interval, values = facts()
    number = interval.map(lambda f: {"type": "number", **f})
    category = values.map(lambda v: {"type": "category", "categories": v})
    columns = data.draw(
        st.dictionaries(st.text(), st.one_of(number, category, st.just({"type": "ignore"})), max_size=4)
    )
    target = data.draw(st.one_of(interval, values.map(lambda v: {"classes": v})))
    raw = {
        "target": {"name": "the target", **target},
        "columns": columns | {"x": {"type": "number", "bounds": [0.0, 1.0]}},
    }
    # "a" with the category "b" and a number "a=b" would share a feature's name, which is refused (tested below).
    assume(not any("=" in name for name in columns))
    schema = Schema.from_dict(raw)
    assert schema.to_dict() == raw
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_a_row_is_encoded_alike_whatever_the_others_are():
    schema = Schema.from_toml(TEXT)
    whole = schema.encode(TABLE)
    for i in range(TABLE.num_rows):
        np.testing.assert_array_equal(schema.encode(TABLE.slice(i, 1)), whole[i : i + 1])


def test_csv_types_come_from_the_schema_and_not_from_other_records(tmp_path):
    text = '[target]\nname = "y"\nclasses = [0, 1]\n[columns.zip]\ntype = "category"\ncategories = ["01", "A7"]\n'
    text += '[columns.x]\ntype = "number"\nbounds = [0, 10]\n'
    schema = Schema.from_toml(text)
    rows = []
    for other in ("07", "A7"):
        (tmp_path / "data.csv").write_text(f"x,zip,y\n5,01,1\nNA,{other},0\n")
        table = schema.read_table(tmp_path / "data.csv")
        rows.append(schema.encode(table)[0])
        assert schema.encode_target(table).tolist() == [1, 0]
    np.testing.assert_array_equal(rows, [[1, 0, 0], [1, 0, 0]])
    (tmp_path / "data.csv").write_text("x,zip,y\nfive,01,1\n")
    with pytest.raises(DataError, match=r"data\.csv: column 'x' must be a number, or empty, in every row"):
        schema.read_table(tmp_path / "data.csv")


def test_regression_target_is_clipped_in_its_own_unit():
    schema = Schema.from_toml(TEXT.replace('classes = ["a", "b"]', "bounds = [0.0, 10.0]"))
    np.testing.assert_array_equal(schema.encode_target(pa.table({"label": [5.0, 11.0, -1.0]})), [5, 10, 0])
    for bad in ([5.0, None], [5.0, math.nan]):
        with pytest.raises(DataError, match="Target 'label' must be a number in every row; got '1 rows"):
            schema.encode_target(pa.table({"label": bad}))


def test_tables_that_do_not_fit():
    schema = Schema.from_toml(TEXT)
    with pytest.raises(DataError, match="'city'"):
        schema.encode(TABLE.drop_columns(["city"]))
    with pytest.raises(DataError, match="more than once"):
        schema.encode(TABLE.append_column("age", TABLE["age"]))
    with pytest.raises(DataError, match="Column 'age' must be numbers"):
        schema.encode(TABLE.set_column(4, "age", pa.array(["old"] * 4)))
    with pytest.raises(DataError, match="'label'"):
        schema.encode_target(TABLE.drop_columns(["label"]))
    for bad in (["a", "c"], ["a", None]):
        with pytest.raises(DataError, match="classes in every row; got '1 rows"):
            schema.encode_target(pa.table({"label": bad}))
    # Prediction needs neither the target nor the ignored column.
    assert schema.encode(TABLE.drop_columns(["label", "extra"])).shape == (4, 5)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("[target]", "[target", "line 2"),
        ("[target]", "[goal]", "target must be given"),
        ('name = "label"', "", r"target\.name must be given"),
        ('name = "label"', "name = 3", r"target\.name must be a column's name; got 3"),
        ('name = "label"', 'name = "age"', r"columns\.age must be absent"),
        ('classes = ["a", "b"]', "", "either classes or bounds; got 'neither'"),
        ('classes = ["a", "b"]', 'classes = ["a", "b"]\nbounds = [0, 1]', "got 'both'"),
        ('classes = ["a", "b"]', 'classes = ["a"]', r"target\.classes must be a list of 2 or more"),
        ('classes = ["a", "b"]', 'classes = ["a", "a"]', "different"),
        ('classes = ["a", "b"]', "classes = [1, true]", "of one kind"),
        ('classes = ["a", "b"]', "classes = [1.0, 2.0]", "strings, integers or booleans"),
        ('classes = ["a", "b"]', "classes = [1, 9223372036854775808]", "64 bits"),
        ('classes = ["a", "b"]', 'classes = ["a", "b"]\ncolor = 1', r"Key target\.color must be one of name, classes"),
        ("[target]", "[extra]\n[target]", "Key extra must be one of target, columns"),
        ("bounds = [0, 120]", "bounds = [120, 0]", r"columns\.age\.bounds .* low below high; got \[120, 0\]"),
        ("bounds = [0, 120]", "bounds = [0, 0]", "low below high"),
        ("bounds = [0, 120]", "bounds = [0, inf]", "finite"),
        ("bounds = [0, 120]", "bounds = [nan, 1]", "finite"),
        ("bounds = [0, 120]", "bounds = [-1.7e308, 1.7e308]", "finite"),
        ("bounds = [0, 120]", "bounds = [0, 1" + "0" * 400 + "]", "beyond the range"),
        ("bounds = [0, 120]", "bounds = [false, true]", "two finite numbers"),
        ("bounds = [0, 120]", "bounds = 120", "two finite numbers"),
        ("bounds = [0, 120]", "bounds = [0, 60, 120]", "two finite numbers"),
        ("bounds = [0, 120]", "limits = [0, 120]", r"columns\.age\.bounds must be given"),
        ("bounds = [0, 120]", "bounds = [0, 120]\nunit = 1", r"Key columns\.age\.unit must be one of type, bounds"),
        ('type = "number"', 'type = "numeric"', r"columns\.age\.type must be one of 'number', 'category', 'ignore'"),
        ('type = "number"', "type = []", r"columns\.age\.type"),
        ('type = "number"', "", r"columns\.age\.type"),
        ('categories = ["Amsterdam", "Espoo"]', "categories = []", r"columns\.city\.categories must be a list of 1"),
        ('categories = ["Amsterdam", "Espoo"]', "categories = [[1]]", "strings, integers or booleans"),
        (
            '[columns.id]\ntype = "ignore"',
            '[columns."city=Espoo"]\ntype = "number"\nbounds = [0, 1]',
            "'city=Espoo' more",
        ),
    ],
)
def test_errors_name_the_place(tmp_path, old, new, match):
    assert old in TEXT
    path = tmp_path / "schema.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=match) as caught:
        Schema.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schema_without_features_is_refused():
    with pytest.raises(DataError, match="not ignored"):
        Schema.from_toml('[target]\nname = "y"\nclasses = [0, 1]\n[columns.id]\ntype = "ignore"\n')
    with pytest.raises(DataError, match="one table for each column"):
        Schema.from_dict({"target": {"name": "y", "classes": [0, 1]}, "columns": [1]})
    with pytest.raises(DataError, match=r"columns\.x\.type"):
        Schema.from_dict({"target": {"name": "y", "classes": [0, 1]}, "columns": {"x": 1}})
    with pytest.raises(DataError, match="a table"):
        Schema.from_dict([])


def test_unreadable_schema_files(tmp_path):
    with pytest.raises(DataError, match=r"absent\.toml"):
        Schema.load(tmp_path / "absent.toml")
    with pytest.raises(DataError, match="readable"):
        Schema.load(tmp_path)
    (tmp_path / "schema.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        Schema.load(tmp_path / "schema.toml")
    (tmp_path / "schema.toml").write_text("a = " + "[" * 100_000, encoding="utf-8")
    with pytest.raises(DataError, match="valid TOML"):
        Schema.load(tmp_path / "schema.toml")


DRAFTED = pa.table(
    {
        "age": [18.0, 83.5, math.inf, None] * 10,
        "kids": [0, 1, 2, None] * 10,
        "floating kids": [0.0, 1.0, math.nan, 5.0] * 10,
        "income": list(range(1000, 1040)),
        "city": ["Espoo", "Åbo", "", None] * 10,
        "ok": [True, False, None, True] * 10,
        "name": [f"person {i}" for i in range(40)],
        "empty": pa.array([None] * 40, pa.string()),
        "nothing": pa.array([None] * 40, pa.float64()),
        "huge": [1e305, -1e305, 0.5, 0.0] * 10,
        "day": pa.array([0] * 40, pa.date32()),
        'odd "name"\n#]': ['"', "\\", "\x7f\u2028", "a\nb"] * 10,
        "y": ["no", "yes"] * 20,
    }
)


def test_a_draft_says_what_it_saw_and_that_it_did():
    text = draft_schema(DRAFTED, "y")
    assert text.startswith("# This draft was written by looking at the records")
    schema = Schema.from_toml(text)
    assert schema.target_values == Categories(("no", "yes"))
    assert schema.columns == {
        "age": Interval(10, 90),
        "kids": Categories((0, 1, 2)),
        "floating kids": Categories((0, 1, 5)),
        "income": Interval(1000, 1040),
        "city": Categories(("Espoo", "Åbo")),
        "ok": Categories((False, True)),
        "name": None,
        "empty": None,
        "nothing": None,
        "huge": None,
        "day": None,
        'odd "name"\n#]': Categories(('"', "\\", "a\nb", "\x7f\u2028")),
    }
    for reason in ("40 different texts in 40 rows", "no values", "numbers beyond 1e300", "date32[day] values"):
        assert f"# review: inferred from data: {reason}" in text
    inferred = [
        line for line in text.splitlines() if line.startswith(("classes", "bounds", "categories")) or "ignore" in line
    ]
    marked = [line for line in inferred if "# review: inferred from data" in line]
    # All but the sentence of the head that explains the type.
    assert len(inferred) - len(marked) == 1
    # The head may stay when every line was reviewed.
    assert text.count(REVIEW_MARK) == len(marked)
    np.testing.assert_array_equal(schema.encode(DRAFTED).shape, (40, len(schema.feature_names)))
    assert schema.encode_target(DRAFTED).tolist() == DRAFTED["y"].to_pylist()


def test_a_draft_for_regression():
    schema = Schema.from_toml(draft_schema(DRAFTED, "age"))
    assert (schema.target, schema.target_values) == ("age", Interval(10, 90))


@pytest.mark.parametrize(
    ("table", "target", "match"),
    [
        (DRAFTED, "z", "'z'"),
        (DRAFTED, "name", "different texts"),
        (DRAFTED, "empty", "no values"),
        (DRAFTED, "day", "date32"),
        (DRAFTED.select(["name", "y"]), "y", "usable feature"),
        (DRAFTED.select(["y"]), "y", "the target alone"),
        (pa.table({"y": [1, 1], "x": [1.5, 2.5]}), "y", "a single value"),
    ],
)
def test_tables_that_cannot_be_drafted(table, target, match):
    with pytest.raises(DataError, match=match):
        draft_schema(table, target)


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.sampled_from([st.text(), st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans()]).flatmap(
            lambda values: st.lists(st.none() | values, min_size=6, max_size=6)
        ),
        min_size=2,
        max_size=4,
    )
)
@settings(max_examples=100, deadline=None)
def test_every_draft_can_be_read_and_encodes_its_own_table(columns):
    table = pa.table(columns)
    target = table.column_names[0]
    try:
        schema = Schema.from_toml(draft_schema(table, target))
    except DataError:
        return
    X = schema.encode(table)
    assert X.shape == (6, len(schema.feature_names))
    assert np.all(np.abs(X) <= 1)
    for name, fact in schema.columns.items():
        # A value that was there is a value that is found.
        if isinstance(fact, Categories):
            found = fact.codes(table[name], name) >= 0
            present = [v is not None and v != "" and v == v and v not in (math.inf, -math.inf) for v in columns[name]]
            np.testing.assert_array_equal(found, present)
