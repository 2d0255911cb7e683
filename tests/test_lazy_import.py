import inspect
import subprocess
import sys

import pytest

import noisycgd
from noisycgd.data.datasets import DATASETS

HEAVY = ("jax", "sklearn", "pyarrow", "matplotlib")


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
