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


@pytest.mark.parametrize("arguments", [["tradeoff", "--mu", "1"], ["tradeoff", "--epsilon", "2"]])
def test_accounting_commands_need_no_training_library(arguments):
    called = f"""
import contextlib, io
from noisycgd.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
    sys.argv = ["noisycgd", *{arguments!r}]
    main()
assert "true-positive rate" in out.getvalue(), out.getvalue()"""
    assert not loaded_after(called) & {"jax", "sklearn"}


def test_the_probe_sees_what_is_loaded():
    assert loaded_after("import sklearn") >= {"sklearn"}
