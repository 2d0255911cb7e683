"""`noisycgd schema`: public facts of a table, drafted from the data for a person to review."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisycgd._validation import DataError
from noisycgd.cli.output import print_json

schema = typer.Typer(help="State what is public about a table.", no_args_is_help=True, rich_markup_mode=None)


@schema.callback()
def _group() -> None:
    pass


@schema.command()
def draft(
    data: Annotated[str, typer.Argument(metavar="DATA", help="CSV, Parquet or Feather file.")],
    target: Annotated[str | None, typer.Option(help="Column to predict; default: the last one.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
) -> None:
    """Write a schema inferred from DATA. Review it: what it says becomes public."""
    from noisycgd.cli.files import write_text
    from noisycgd.data.schema import draft_schema
    from noisycgd.data.sources import read_table

    table = read_table(data)
    text = draft_schema(table, target or table.column_names[-1])
    if out is None:
        typer.echo(text, nl=False)
        return
    if out.exists():
        raise DataError(f"--out must be a new file; {out} exists. Choose another name, so that no review is lost.")
    write_text(out, text)
    typer.echo(
        f"{out}: review it, since what it says becomes public; then noisycgd fit {data} --schema {out}", err=True
    )


@schema.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="SCHEMA", help="Schema file (TOML).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a schema file and list the features it makes."""
    from noisycgd.data.schema import Schema

    found = Schema.load(file)
    if as_json:
        print_json({"target": found.target, "features": list(found.feature_names), "schema": found.to_dict()})
        return
    typer.echo(f"target    {found.target}")
    for name in found.feature_names:
        typer.echo(f"feature   {name}")
