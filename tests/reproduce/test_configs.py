"""The committed configs: every method can be planned on every data set that it is asked for, before data are read."""

from dataclasses import replace

import pytest

import noisycgd
from reproduce.experiments import load_experiment, names
from reproduce.methods import Cell, methods
from reproduce.runs import Run, Store
from reproduce.training import n_records

COLUMNS = {"mnist": 784, "fashion-mnist": 784, "cifar10": 3072}
ASKED = sorted({(c.method.name, c.dataset) for name in names() for c in load_experiment(name).cells()})


@pytest.mark.parametrize(("name", "dataset"), ASKED)
def test_a_method_fits_its_data(name, dataset):
    cell = Cell(methods()[name], dataset, 15.0)
    run = cell.run(0, 0.01 if cell.method.rates else None)
    model = getattr(noisycgd, run.estimator)(**{"epsilon": None, **run.parameters}, random_state=0)
    plan = model._plan_for(model._shape(n_records(dataset), COLUMNS[dataset], 10))
    assert plan.delta == 1e-5
    # A random map of so many columns would be refused here.
    assert plan.n_records == n_records(dataset)


def replanned():
    """What each committed run's plan depends on, with the numbers in its lines."""
    kinds = {}
    for record in Store():
        run = Run(**record["run"])
        kinds.setdefault(replace(run, seed=0).key, (run, []))[1].append(record["result"])
    return [pytest.param(*kind, id=f"{kind[0].dataset}-{key}") for key, kind in kinds.items()]


@pytest.mark.parametrize(("run", "results"), replanned())
def test_todays_software_plans_what_was_run(run, results):
    """A default that changed would change no key, and leave a table of other runs than it says."""
    model = getattr(noisycgd, run.estimator)(**{"epsilon": None, **run.parameters}, random_state=0)
    plan = model._plan_for(model._shape(n_records(run.dataset), COLUMNS[run.dataset], 10))
    for result in results:
        assert plan.noise_multiplier == pytest.approx(result["noise_multiplier"], rel=1e-9)
        if "epochs" in run.parameters:
            assert plan.epsilon == pytest.approx(result["epsilon"], rel=1e-9)
            # The oldest lines do not have it.
            peak_rate = result.get("peak_rate", plan.learning_rates.max())
            assert plan.learning_rates.max() == pytest.approx(peak_rate, rel=1e-9)
            assert str(getattr(plan, "status", "proved")) == result["status"]


def test_a_bank_has_all_its_candidates():
    bank = load_experiment("table3")
    counts = {
        dataset: [len(bank.cells_of(methods()[name], dataset, 15.0)) for name in bank.methods]
        for dataset in bank.datasets
    }
    # The paper's grids: six rates, 2 or 3 numbers of hyperplanes or hidden units; one of sums of squares.
    assert counts == {"mnist": [1, 1, 1, 12, 18, 12], "cifar10": [1, 1, 1, 18, 12, 18]}
