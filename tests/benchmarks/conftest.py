import sys
from pathlib import Path

# `python -m pytest` finds `benchmarks` by itself, `pytest` does not; and Opacus installs a package of the same name.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
