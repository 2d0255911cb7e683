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


RUN = ["--records", "60", "--batch-size", "10", "--epochs", "2"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["tradeoff", "--mu", "1"],
        ["tradeoff", "--epsilon", "2"],
        ["compare", "epochs", *RUN, "--noise-multiplier", "5"],
        ["compare", "schedules", *RUN, "--epsilon", "1"],
        ["account", "noisycgd", *RUN, "--noise-multiplier", "5"],
        ["account", "dpsgd", *RUN, "--noise-multiplier", "5"],
    ],
)
def test_accounting_commands_are_as_light(arguments):
    called = f"""
import contextlib, io
from noisycgd.cli.main import main
sys.argv = ["noisycgd", *{arguments!r}]
with contextlib.redirect_stdout(io.StringIO()) as out:
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
assert "epsilon" in out.getvalue()"""
    assert loaded_after(called) == set()


def test_the_probe_sees_what_is_loaded():
    assert loaded_after("import sklearn") >= {"sklearn"}
