"""The room loads cvxpy and matplotlib only where they are used, and says how to get what is missing."""

import json
import subprocess
import sys

import pytest

from noisycgd._validation import NoisyCGDError
from noisycgd.exact import MissingExtraError, enumerate_arrangements, solve_gated_program, solve_relu_program


def test_importing_loads_no_solver_and_no_plots():
    heavy = ("cvxpy", "matplotlib", "jax", "sklearn")
    code = f"""
import json, sys
import noisycgd.exact
noisycgd.exact.enumerate_arrangements([[1.0, 2.0]])
print(json.dumps([name for name in {heavy} if name in sys.modules]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []


@pytest.mark.parametrize("solve", [solve_relu_program, solve_gated_program])
def test_without_cvxpy_the_error_names_the_extra(monkeypatch, solve):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    assert len(enumerate_arrangements([[1.0]])) == 2
    with pytest.raises(MissingExtraError, match=r"Run: pip install 'noisycgd\[exact\]'") as caught:
        solve([[1.0]], [1.0], beta=0.1)
    assert isinstance(caught.value, NoisyCGDError)
    assert isinstance(caught.value, ImportError)
