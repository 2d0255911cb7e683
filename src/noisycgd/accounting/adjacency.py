"""Checks that profiles speak of the same neighbours."""

from __future__ import annotations

from noisycgd._validation import check_choice, refuse
from noisycgd.types import Adjacency


def check_adjacency(value: object) -> Adjacency:
    """Return `value` as an `Adjacency`, else raise `ParameterError`."""
    return Adjacency(check_choice("adjacency", value, [a.value for a in Adjacency]))


def check_same_adjacency(first: Adjacency, second: Adjacency) -> None:
    """Raise `ParameterError` unless two profiles speak of the same neighbours."""
    if first is not second:
        way_out = "Convert the add-remove profile with to_replace_one() first."
        refuse("adjacency", f"that of the other profile, {first.value!r}", second.value, way_out)


def check_convertible(adjacency: Adjacency) -> None:
    """Raise `ParameterError` unless a profile can be turned into replace-one."""
    if adjacency is not Adjacency.ADD_REMOVE:
        # Nor the other way: replace-one takes n as public and says nothing about data sets of different sizes.
        refuse("adjacency", "'add-remove' to be turned into replace-one", adjacency.value, "Use the profile as it is.")
