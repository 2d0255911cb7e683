"""`python -m reproduce page`: docs/reproduction.md, every table and figure with what is to be said about it."""

from __future__ import annotations

import re
from pathlib import Path

from noisycgd.cli.files import write_bytes
from reproduce.experiments import load_experiment, names
from reproduce.figures import image
from reproduce.runs import Store
from reproduce.show import PAGES

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
    parts, written = [INTRODUCTION.read_text().strip()], []
    for name in ORDER:
        experiment = load_experiment(name)
        shown = PAGES[experiment.kind](experiment, store)
        parts += [f"## {experiment.title}", f"In the paper: {experiment.source}."]
        if shown.figure is not None:
            picture = target.parent / "figures" / "reproduction" / f"{name}.png"
            write_bytes(picture, image(shown.figure, "png"))
            written.append(picture)
            parts.append(f"![{experiment.title}]({picture.relative_to(target.parent).as_posix()})")
        elif shown.pictured:
            parts.append("No runs yet, hence no picture.")
        # Headings of a page of its own become those of a section.
        parts += [experiment.note, re.sub(r"^#", "##", shown.text, flags=re.MULTILINE), experiment.findings]
    text = "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
    write_bytes(target, text.encode())
    return [target, *written]
