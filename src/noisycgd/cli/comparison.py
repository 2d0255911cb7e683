"""`noisycgd compare` and `noisycgd tradeoff`: epsilons side by side, as a table, CSV or picture."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisycgd._validation import delta_in_print, rounded_down, rounded_up
from noisycgd.cli.options import refuse_within
from noisycgd.cli.output import print_conditions, print_json, print_rows

if TYPE_CHECKING:
    from noisycgd.comparison import Comparison

compare = typer.Typer(help="Mechanisms and settings side by side.", no_args_is_help=True, rich_markup_mode=None)

Records = Annotated[int, typer.Option(help="Number of records n (public).")]
BatchSize = Annotated[int, typer.Option(help="Records per batch b.")]
Delta = Annotated[float, typer.Option(help="Delta at which epsilon is stated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write the points to this CSV file.")]
Plot = Annotated[Path | None, typer.Option(help="Write the picture to this .png or .svg file.")]


@compare.callback()
def _compare() -> None:
    pass


@compare.command("epochs")
def compare_epochs(
    records: Records,
    batch_size: BatchSize,
    epochs: Annotated[int, typer.Option(help="Largest number of epochs.")],
    noise_multiplier: Annotated[float, typer.Option(help="Noise multiplier.")],
    delta: Delta = 1e-5,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            help="noisycgd, noisycgd-given, noisycgd-linear, noisycgd-cosine, dpsgd, composition; repeatable."
        ),
    ] = None,
    eta_l2: Annotated[list[float] | None, typer.Option(help="Learning rate times l2; repeatable.")] = None,
    as_json: AsJson = False,
    csv_file: CsvFile = None,
    plot: Plot = None,
) -> None:
    """Epsilon against epochs for several mechanisms and strengths of l2."""
    from noisycgd.comparison import epsilon_against_epochs

    found = epsilon_against_epochs(
        n_records=records,
        batch_size=batch_size,
        noise_multiplier=noise_multiplier,
        delta=delta,
        epochs=epochs,
        mechanisms=mechanism or ("noisycgd", "noisycgd-given", "dpsgd"),
        eta_l2=eta_l2 or (0.0,),
    )
    _show(found, as_json, csv_file, plot)


@compare.command("shuffling")
def compare_shuffling(
    batches: Annotated[list[int], typer.Option(help="Number of batches of the epoch; repeatable.")],
    noise_multiplier: Annotated[float, typer.Option(help="Noise multiplier.")],
    as_json: AsJson = False,
    csv_file: CsvFile = None,
    plot: Plot = None,
) -> None:
    """Delta against epsilon of one shuffled epoch, beside the plain Gaussian."""
    from noisycgd.comparison import shuffling_profiles

    _show(shuffling_profiles(batches=batches, noise_multiplier=noise_multiplier), as_json, csv_file, plot)


@compare.command("schedules")
def schedules(
    records: Records,
    batch_size: BatchSize,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")],
    epsilon: Annotated[float, typer.Option(help="Target epsilon.")],
    delta: Delta = 1e-5,
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate.")] = 1.0,
    l2: Annotated[float, typer.Option("--l2", help="Coefficient of (l2/2) ||theta||^2.")] = 0.0,
    as_json: AsJson = False,
    csv_file: CsvFile = None,
) -> None:
    """What each learning-rate schedule costs: epsilon at equal noise, and noise at equal epsilon."""
    from noisycgd.comparison import compare_schedules

    rows = compare_schedules(
        n_records=records,
        batch_size=batch_size,
        epochs=epochs,
        epsilon=epsilon,
        delta=delta,
        learning_rate=learning_rate,
        l2=l2,
    )
    table = [asdict(row) for row in rows]
    if csv_file is not None:
        _write_csv(csv_file, [{name: row[name] for name in row if name != "conditions"} for row in table])
    if as_json:
        print_json(table)
        return
    typer.echo(f"{'schedule':<22}{'epsilon':>9} {'mu, worst':>12} {'noise multiplier':>17}")
    for row in rows:
        shown = [rounded_up(value) for value in (row.epsilon, row.mu_worst, row.noise_multiplier)]
        typer.echo(f"{row.schedule:<22}{shown[0]:>9} {shown[1]:>12} {shown[2]:>17}")
    typer.echo(f"epsilon and mu: with the noise that the constant schedule needs for epsilon {rounded_up(epsilon)}")
    typer.echo(f"noise multiplier: what the schedule needs for epsilon {rounded_up(epsilon)}")
    print_conditions(rows[0].conditions)


def tradeoff(
    mu: Annotated[float | None, typer.Option(help="A mu-GDP mechanism.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The Gaussian mechanism through (epsilon, delta).")] = None,
    model: Annotated[Path | None, typer.Option(help="A saved model.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Delta of epsilon and of the odds; default: the model's, or 1e-5.")
    ] = None,
    prior: Annotated[list[float] | None, typer.Option(help="Prior probability; repeatable.")] = None,
    fpr: Annotated[list[float] | None, typer.Option(help="False-positive rate; repeatable.")] = None,
    as_json: AsJson = False,
    csv_file: CsvFile = None,
    plot: Plot = None,
) -> None:
    """Risk of one record in plain words: membership tests and posterior odds."""
    from noisycgd._validation import refuse
    from noisycgd.accounting import GaussianProfile, gaussian_mu, risk_summary
    from noisycgd.comparison import tradeoff_curve
    from noisycgd.types import PrivacyProfile, Status

    options = {"--mu": mu, "--epsilon": epsilon, "--model": model}
    given = [option for option, value in options.items() if value is not None]
    if len(given) != 1:
        refuse("--mu, --epsilon, --model", "given once", " and ".join(given) or None, "Give exactly one of them.")
    assumed = None
    profile: PrivacyProfile
    if model is not None:
        refuse_within(model, {"--csv": csv_file, "--plot": plot})
        from noisycgd.estimators import load_model
        from noisycgd.guarantee import Guarantee
        from noisycgd.verification import profile_of

        guarantee: Guarantee = load_model(model).guarantee_
        if guarantee.status is not Status.PROVED:
            way_out = "Its guarantee says why: noisycgd info."
            refuse("--model", "a model whose guarantee is proved", guarantee.status.value, way_out)
        delta = guarantee.delta if delta is None else delta
        profile, name, seen = profile_of(guarantee), str(model), guarantee.threat_model.value
    else:
        delta = 1e-5 if delta is None else delta
        mu = mu if mu is not None else gaussian_mu(epsilon, delta)  # type: ignore[arg-type]
        profile, name, seen = GaussianProfile(mu), f"{rounded_up(mu, 4)}-GDP", "all that is released"
        assumed = f"the mechanism is {rounded_down(mu, 8)}-GDP; another with the same epsilon and delta may be riskier"
    risk = risk_summary(profile, delta, tuple(prior or (0.01, 0.1, 0.5)), tuple(fpr or (0.001, 0.01, 0.1)))
    curve = tradeoff_curve(profile, name, seen)
    _write(curve, csv_file, plot)
    if as_json:
        print_json({**asdict(risk), "adjacency": risk.adjacency.value, "provided": assumed})
        return
    shown = rounded_up(risk.epsilon if epsilon is None else epsilon)
    typer.echo(f"{name} ({seen}): epsilon {shown} at delta {delta_in_print(delta)}")
    typer.echo(str(risk))
    if assumed is not None:
        typer.echo(f"All this provided that {assumed}. A saved model's own risk: --model.")


def _show(comparison: Comparison, as_json: bool, csv_file: Path | None, plot: Path | None) -> None:
    _write(comparison, csv_file, plot)
    if as_json:
        print_json(asdict(comparison))
        return
    typer.echo(f"{comparison.title}\n{comparison.y_label} at the end of each curve:")
    rows = [
        (c.name, f"{rounded_up(c.y[-1])} at {comparison.x_label} = {rounded_up(c.x[-1])} ({c.threat_model})")
        for c in comparison.curves
    ]
    print_rows(rows)
    if comparison.conditions:
        typer.echo("final-model curves hold")
        print_conditions(comparison.conditions)
    if csv_file is None and plot is None:
        typer.echo("all points: --json, --csv FILE or --plot FILE")


def _write(comparison: Comparison, csv_file: Path | None, plot: Path | None) -> None:
    from noisycgd.cli.files import write_bytes

    pictures = []
    if plot is not None:
        from noisycgd.report.curves import comparison_image

        # Drawn before anything is written, should the picture's format be unknown.
        pictures = [(plot, comparison_image(comparison, plot.suffix.lstrip(".").lower()))]
    if csv_file is not None:
        _write_csv(csv_file, comparison.rows())
    for path, image in pictures:
        write_bytes(path, image)


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    from noisycgd.cli.files import write_text

    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
