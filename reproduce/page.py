"""`python -m reproduce page`: docs/reproduction.md, every table and figure with what is to be said about it."""

from __future__ import annotations

import re
from pathlib import Path

from noisycgd.cli.files import write_bytes
from reproduce.experiments import Experiment, load_experiment, names
from reproduce.figures import image
from reproduce.runs import Store
from reproduce.show import PAGES, section

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reproduction.md"
INTRODUCTION = Path(__file__).parent / "introduction.md"
ORDER = (
    "table1", "per-class", "figure-mnist", "figure-fashion-mnist", "figure-cifar10", "table2", "table3",
    "figure-epsilon-epochs", "figure-hyperplanes", "figure-hyperplanes-private", "figure-batch-size",
    "figure-shuffling",
)  # fmt: skip


def page(store: Store, target: Path = TARGET) -> list[Path]:
    """Write the page and its pictures, and return what was written."""
    if unknown := set(names()) ^ set(ORDER):
        raise ValueError(f"ORDER in page.py must name every config; differs in {', '.join(sorted(unknown))}.")
    experiments = {name: load_experiment(name) for name in ORDER}
    parts = [INTRODUCTION.read_text().replace("{contents}", contents(list(experiments.values())))]
    written = [target]
    for name, experiment in experiments.items():
        shown = PAGES[experiment.kind](experiment, store)
        picture = target.parent / "figures" / "reproduction" / f"{name}.png"
        if shown.figure is not None:
            write_bytes(picture, image(shown.figure, "png"))
            written.append(picture)
        parts.append(section(experiment, shown, picture.relative_to(target.parent).as_posix(), level=2))
    write_bytes(target, "\n".join(parts).encode())
    return written


def contents(experiments: list[Experiment]) -> str:
    """A Markdown list of the sections, each linked by the name that its heading gets on GitHub."""
    return "\n".join(f"- [{one.title}](#{_anchor(one.title)}): {one.source}" for one in experiments)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
