"""A config of `configs/` as cells, and the cells as runs that are still to be made."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from reproduce.methods import EPOCHS, Cell, Method, methods
from reproduce.runs import Run, Store

CONFIGS = Path(__file__).parent / "configs"
KINDS = ("table", "curves", "ablation", "selection", "per-class", "accounting")


class Printed(NamedTuple):
    """A number of the paper, in per cent, with the spread that stands beside it."""

    value: float
    spread: float | None = None

    def difference(self, mean: float) -> float:
        """Ours minus the paper's, to the paper's one digit, and never -0."""
        return round(mean - self.value, 1) + 0.0


@dataclass(frozen=True)
class Experiment:
    """One table or figure.

    Attributes
    ----------
    name, title, source : str
        File name of the config, heading, and where the paper has it.
    kind : str
        One of `KINDS`; says what `show` makes of the cells.
    methods : sequence of str
        Rows or curves; names of `methods.toml`.
    datasets, noise_multipliers : sequences
        Columns or panels.
    seeds : mapping
        Number of seeds per data set.
    epochs : int
        Of each run, where the method has none of its own.
    changes : mapping
        Parameters that differ from `methods.toml` in the whole experiment, under "all", a method's name, or
        "METHOD on DATASET"; the last that has a parameter wins.
    vary : mapping
        The same with values that are tried one after another: an ablation, or a bank of candidates.
    against : str
        Of an ablation's picture: "epochs", or the parameter that varies.
    comparison : mapping
        What is accounted, and with which settings (`reproduce.accounts`); such an experiment needs no runs.
    rates : sequence of float
        A bank's learning rates; no search then.
    paper : mapping
        method -> data set -> noise multiplier -> what the paper prints.
    note : str
        What a reader of the result must know.
    findings : str
        Markdown: what agrees with the paper, what does not, and why.
    """

    name: str
    title: str
    source: str
    kind: str
    methods: Sequence[str] = ()
    datasets: Sequence[str] = ()
    noise_multipliers: Sequence[float] = (15.0, 5.0)
    seeds: Mapping[str, int] = field(default_factory=dict)
    epochs: int = EPOCHS
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    vary: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    against: str = "epochs"
    comparison: Mapping[str, Any] = field(default_factory=dict)
    rates: Sequence[float] = ()
    paper: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    note: str = ""
    findings: str = ""

    def printed(self, method: str, dataset: str, noise_multiplier: float) -> Printed | None:
        """What the paper prints in a cell."""
        found = self.paper.get(method, {}).get(dataset, {}).get(f"{noise_multiplier:g}")
        return None if found is None else Printed(*found) if isinstance(found, list) else Printed(found)

    def varied(self, method: Method, dataset: str) -> dict[str, Sequence[Any]]:
        """What tells a method's cells on a data set from one another, with the values."""
        rates = {"learning_rate": self.rates} if self.rates and method.rates else {}
        return {**_meant(self.vary, method.name, dataset), **rates}

    def cells_of(self, method: Method, dataset: str, noise_multiplier: float) -> list[Cell]:
        """A method's cells: one, or one per combination of what varies."""
        fixed, varied = _meant(self.changes, method.name, dataset), self.varied(method, dataset)
        epochs = method.epochs or self.epochs
        return [
            Cell(method, dataset, noise_multiplier, {**fixed, **dict(zip(varied, values, strict=True))}, epochs)
            for values in itertools.product(*varied.values())
        ]

    def cells(self) -> Iterator[Cell]:
        """All cells, data set by data set."""
        known = methods()
        for dataset, noise, name in itertools.product(self.datasets, self.noise_multipliers, self.methods):
            if dataset in (known[name].datasets or self.datasets):
                yield from self.cells_of(known[name], dataset, float(noise))

    def n_seeds(self, dataset: str, seeds: int | None = None) -> int:
        """Seeds of a data set; `seeds` overrides the config."""
        return self.seeds.get(dataset, 1) if seeds is None else seeds

    def results(self, cell: Cell, store: Store) -> list[dict[str, Any]]:
        """Finished runs of a cell by seed, at the best learning rate known so far; any number of seeds."""
        following, rate = cell.search(store)
        if following is not None:
            return []
        found = (store.result(cell.run(seed, rate)) for seed in range(store.n_seeds))
        return [result for result in found if result is not None]

    def todo(self, store: Store, seeds: int | None = None) -> list[Run]:
        """Runs that can be made now, without repetition; those of a seed come before those of the next."""
        runs: dict[str, Run] = {}
        searched = [(cell, *cell.search(store)) for cell in self.cells()]
        for seed in range(max((self.n_seeds(cell.dataset, seeds) for cell, *_ in searched), default=0)):
            for cell, following, rate in searched:
                if seed < self.n_seeds(cell.dataset, seeds):
                    run = cell.run(seed, rate) if following is None else following
                    if store.result(run) is None:
                        runs.setdefault(run.key, run)
        return list(runs.values())

    def count(self, store: Store, seeds: int | None = None) -> tuple[int, int]:
        """Runs done and runs in all, searches not counted."""
        done = total = 0
        for cell in self.cells():
            wanted = self.n_seeds(cell.dataset, seeds)
            total += wanted
            done += min(wanted, len(self.results(cell, store)))
        return done, total


def _meant(table: Mapping[str, Mapping[str, Any]], method: str, dataset: str) -> dict[str, Any]:
    """What a table of parameters says of a method on a data set."""
    return {**table.get("all", {}), **table.get(method, {}), **table.get(f"{method} on {dataset}", {})}


def load_experiment(name: str, folder: Path = CONFIGS) -> Experiment:
    """Read a config.

    Raises
    ------
    ValueError
        If there is none of that name, or it holds something unknown.
    """
    path = folder / f"{name}.toml"
    if not path.is_file():
        raise ValueError(f"NAME must be one of {', '.join(names(folder))}; got {name}.")
    with path.open("rb") as file:
        values = tomllib.load(file)
    try:
        experiment = Experiment(name=name, **values)
    except TypeError as error:
        raise ValueError(f"{path.name} must hold known fields only; {error}. Correct it.") from None
    if experiment.kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {experiment.kind}. Correct {path.name}.")
    if experiment.kind == "ablation" and experiment.against not in ("epochs", *experiment.vary.get("all", {})):
        raise ValueError(
            f"against must be epochs, or what varies in all methods; got {experiment.against}. Correct {path.name}."
        )
    if unknown := set(experiment.methods) - methods().keys():
        raise ValueError(f"methods must stand in methods.toml; got {', '.join(sorted(unknown))}. Correct {path.name}.")
    return experiment


def names(folder: Path = CONFIGS) -> list[str]:
    """All experiments, in the order of their files."""
    return sorted(path.stem for path in folder.glob("*.toml"))
