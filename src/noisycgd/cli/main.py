"""The `noisycgd` command: its tree of subcommands, and the one place where errors become exit codes.

Exit codes: 0 success, 2 an error the user can mend (one line on standard error), 130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from noisycgd import __version__
from noisycgd._validation import NoisyCGDError
from noisycgd.cli import accounting, comparison, files, models, schemas, tuning

INTERRUPTED = 130

app = typer.Typer(
    name="noisycgd",
    help="Train models under differential privacy when only the final model is released.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models.add_to(app)
app.command()(tuning.tune)
app.add_typer(accounting.account, name="account")
app.add_typer(accounting.calibrate, name="calibrate")
app.add_typer(comparison.compare, name="compare")
app.command()(comparison.tradeoff)
app.add_typer(schemas.schema, name="schema")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"noisycgd {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; every error a user can cause is one line and exit code 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    files.forget()
    try:
        code = app(args=arguments, standalone_mode=False) or 0
    except typer.TyperException as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        # A command that needs a subcommand answers with its help.
        return _fail(text) if not text.startswith("Usage:") else _print_help(text)
    except NoisyCGDError as error:
        return _fail(str(error))
    except OSError as error:
        # A full disk or a forbidden folder is the user's to mend; the system's own words name the file.
        return _fail(str(error))
    except typer.Abort:
        code = INTERRUPTED
    except Exception as error:
        if not _lacks_memory(error):
            raise
        found = str(error) or "no more"
        return _fail(f"memory must suffice; got: {found}. Ask for fewer hyperplanes, components, units or records.")
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        done = " and ".join(map(str, files.written()))
        typer.echo(f"interrupted; {f'{done} had been written' if done else 'nothing was written'}", err=True)
    return int(code)


def _lacks_memory(error: Exception) -> bool:
    """Whether NumPy, or JAX in an error of its own, found too little."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _print_help(text: str) -> int:
    typer.echo(text, err=True)
    return 2


def _fail(text: str) -> int:
    typer.echo("error: " + " ".join(text.split()), err=True)
    return 2


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: object = None,
) -> None:
    typer.echo("warning: " + " ".join(str(message).split()), err=True)
