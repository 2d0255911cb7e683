"""How commands print: JSON for machines, calm text for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer


def print_json(values: Any) -> None:
    """Print one JSON document; a number that JSON does not have becomes null."""
    typer.echo(json.dumps(_finite(values), indent=2))


def print_rows(rows: list[tuple[str, str]]) -> None:
    """Print aligned `name value` lines."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


def print_conditions(conditions: Sequence[str]) -> None:
    """Print what numbers above take as true."""
    for condition in conditions:
        typer.echo(f"  provided that {condition}")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
