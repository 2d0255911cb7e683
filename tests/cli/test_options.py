from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from noisycgd._validation import ParameterError
from noisycgd.cli.options import ModelOptions, grouped, number_or_auto, option_of
from noisycgd.estimators.persistence import ESTIMATORS


@dataclass(frozen=True)
class Colours:
    red: Annotated[int, typer.Option(help="Red.")] = 1
    blue: int = 2


seen = []


@grouped
def paint(wall: str, colours: Colours, coats: int = 3) -> None:
    """Paint it."""
    seen.append((wall, colours, coats))


def test_a_group_becomes_one_option_for_each_field():
    signature = inspect.signature(paint)
    assert list(signature.parameters) == ["wall", "red", "blue", "coats"]
    assert signature.parameters["blue"].default == 2
    assert paint.__doc__ == "Paint it."
    paint(wall="north", red=5, blue=6, coats=1)
    assert seen == [("north", Colours(5, 6), 1)]


def test_only_what_was_given_is_passed_on():
    assert ModelOptions().given() == {}
    given = ModelOptions(hyperplanes=4, batch_size="auto", margin="2.5", center_rows=True, model="linear").given()
    assert given == {"n_hyperplanes": 4, "batch_size": "auto", "margin": 2.5, "center_rows": True}


def test_every_option_is_a_parameter_of_some_model():
    everything = ModelOptions(
        **{name: "1" if "str" in kind else 1 for name, kind in inspect.get_annotations(ModelOptions).items()}
    ).given()
    known = {name for cls in ESTIMATORS.values() for name in cls().get_params()}
    assert everything.keys() <= known
    assert len(everything) == len(inspect.get_annotations(ModelOptions)) - 1


def test_options_are_spelled_as_on_the_command_line():
    assert (option_of("n_hyperplanes"), option_of("row_norm")) == ("--hyperplanes", "--row-norm")


def test_a_number_or_auto():
    assert (number_or_auto("--x", None, int), number_or_auto("--x", "3", int)) == (None, 3)
    with pytest.raises(ParameterError, match="--x must be a number or auto; got 'many'"):
        number_or_auto("--x", "many", float)
