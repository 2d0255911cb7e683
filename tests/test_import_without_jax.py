import json
import subprocess
import sys

import pytest

HEAVY = ("jax", "sklearn", "pyarrow", "matplotlib")


def loaded_after(statement: str) -> set[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout))


@pytest.mark.parametrize("statement", ["import noisycgd", "import noisycgd.accounting"])
def test_the_accountant_stays_light(statement):
    assert loaded_after(statement) == set()


def test_the_probe_sees_what_is_loaded():
    assert loaded_after("import sklearn") >= {"sklearn"}
