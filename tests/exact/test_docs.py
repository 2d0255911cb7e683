"""The page on the exact programs: its code runs as it stands, and prints the numbers that it states."""

import re
from pathlib import Path

import pytest

pytest.importorskip("cvxpy")

PAGE = (Path(__file__).parents[2] / "docs" / "exact.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    lines: list[list[object]] = []
    names = {"__name__": "docs", "print": lambda *values: lines.append(list(values))}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
            exec(compile(block, "exact.md", "exec"), names)
    return lines, folder


def test_stated_numbers_are_printed(printed):
    stated = re.findall(r"^print\(.*\)  # ([0-9.]+)$", PAGE, re.MULTILINE)
    assert len(stated) == 4
    for text, values in zip(stated, printed[0], strict=False):
        assert f"{values[0]:.{len(text.partition('.')[2])}f}" == text


def test_table_is_what_the_loop_prints(printed):
    rows = {
        name: cells.split(" | ")
        for name, cells in re.findall(
            r"^\| (hyperplanes drawn|distinct patterns|exact|relaxed) \| (.*) \|$", PAGE, re.MULTILINE
        )
    }
    loop = printed[0][4:]
    assert len(loop) == 4
    for k, (drawn, distinct, exact, relaxed) in enumerate(loop):
        shown = [str(drawn), str(distinct), f"{exact:.3f}", f"{relaxed:.3f}"]
        assert [row[k] for row in rows.values()] == shown


def test_table_ends_with_every_pattern():
    import numpy as np

    from noisycgd.exact import enumerate_arrangements, solve_gated_program, solve_relu_program

    rng = np.random.RandomState(0)
    X = rng.standard_normal((20, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    patterns = enumerate_arrangements(X)
    values = [
        f"{solve(X, y, beta=0.1, patterns=patterns).value:.3f}" for solve in (solve_relu_program, solve_gated_program)
    ]
    last = re.findall(r"\| ([0-9.]+) \|$", PAGE, re.MULTILINE)
    assert last == [str(len(patterns)), *values]
    assert f"the zero network has {y @ y / 2:.2f}" in PAGE


def test_the_picture_is_drawn_and_stored(printed):
    drawn, stored = printed[1] / "arrangements.png", Path(__file__).parents[2] / "docs" / "figures" / "arrangements.png"
    for picture in (drawn, stored):
        content = picture.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert (int.from_bytes(content[16:20]), int.from_bytes(content[20:24])) == (1650, 810)
