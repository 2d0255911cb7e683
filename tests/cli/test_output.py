from __future__ import annotations

import json

from noisycgd.cli.output import print_conditions, print_json, print_rows


def test_json_holds_no_infinity_or_nan(capsys) -> None:
    print_json({"a": float("inf"), "b": [1.5, float("nan")], "c": {"d": (True, "x", None)}})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [1.5, None], "c": {"d": [True, "x", None]}}


def test_rows_are_aligned(capsys) -> None:
    print_rows([("a", "1"), ("long", "2")])
    assert capsys.readouterr().out == "a     1\nlong  2\n"


def test_conditions_have_a_line_each(capsys) -> None:
    print_conditions(["a is true", "b is"])
    assert capsys.readouterr().out == "  provided that a is true\n  provided that b is\n"
