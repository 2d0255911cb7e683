"""The arrangement of points on a line and the network that fits them best, side by side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from noisycgd._drawing import default_style
from noisycgd._validation import DataError, message
from noisycgd.exact.arrangements import check_rows
from noisycgd.exact.networks import ReLUNetwork, recover_network
from noisycgd.exact.programs import ReLUSolution, solve_relu_program

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_POINTS = 12
_INK, _GREY = "0.1", "0.45"
# Two neurons of this cosine are drawn as one: the solver finds directions to about 1e-5.
_SAME_DIRECTION = 1 - 1e-8


class _Neuron(NamedTuple):
    angle: float
    weight: float  # ||v||, the same for input and output
    sign: float


def exact_fit_figure(x: ArrayLike, y: ArrayLike, *, beta: float) -> Figure:
    """Draw the arrangement of points on a line, with a bias, and the ReLU network of least regularised squared loss.

    Left: the plane of normals u = (slope, bias). Row (x_j, 1) is orthogonal to line j, on one side of which point j
    switches the neuron on; the lines cut the plane into cones, each labelled by its activation pattern, one dot for
    each point from left to right, filled where the neuron is on. Arrows are the neurons of the optimal network,
    as long as their weight. Right: the points, the network's function, and what each neuron adds to it.

    Parameters
    ----------
    x, y : array_like of shape (n,)
        2 to 12 points with distinct x.
    beta : float
        Weight of the regulariser (see `solve_relu_program`).

    Returns
    -------
    matplotlib.figure.Figure
        11 x 5.4 inches, with an Agg canvas; shows nothing by itself.

    Raises
    ------
    DataError
        If x is no vector of 2 to 12 distinct numbers.
    NoisyCGDError
        As `solve_relu_program` does.
    """
    one_row: Any = [x]
    positions = check_rows(one_row)[0]
    if not 2 <= len(np.unique(positions)) == positions.size <= _MOST_POINTS:
        raise DataError(message("x", f"2 to {_MOST_POINTS} distinct numbers", positions))
    order = np.argsort(positions)
    rows = np.column_stack([positions, np.ones_like(positions)])[order]
    targets = np.array(y)
    targets = targets[order] if targets.shape == order.shape else targets  # else the program refuses it
    solution = solve_relu_program(rows, targets, beta=beta)
    with default_style():
        return _drawn(rows, targets, solution)


def _neurons(network: ReLUNetwork) -> list[_Neuron]:
    """The neurons; those of one direction and sign are one, since cones share the ray between them."""
    neurons: list[_Neuron] = []
    for u, alpha in zip(network.hidden, network.output, strict=True):
        new = _Neuron(math.atan2(u[1], u[0]), alpha**2, math.copysign(1.0, alpha))
        for k, old in enumerate(neurons):
            if old.sign == new.sign and math.cos(old.angle - new.angle) > _SAME_DIRECTION:
                neurons[k] = old._replace(weight=old.weight + new.weight)
                break
        else:
            neurons.append(new)
    return neurons


def _drawn(rows: NDArray[np.float64], targets: NDArray[np.float64], solution: ReLUSolution) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 5.4), facecolor="white")
    FigureCanvasAgg(figure)
    left = figure.add_axes((0.0, 0.0, 0.5, 0.89))
    right = figure.add_axes((0.54, 0.115, 0.44, 0.735))
    neurons = _neurons(recover_network(solution))
    _draw_cones(left, rows, neurons)
    _draw_fit(right, rows, targets, neurons)
    left_title = f"{len(rows)} points, {len(solution.patterns)} activation patterns"
    left_note = "normals u = (slope, bias); dots: the points, filled where u is active"
    right_title = f"The best of all ReLU networks at beta = {solution.beta:g}"
    right_note = "solid: the network; dashed: what each neuron of the left picture adds"
    for x, title, note in ((0.02, left_title, left_note), (0.54, right_title, right_note)):
        figure.text(x, 0.955, title, fontsize=12.5, fontweight="bold", va="center", color=_INK)
        figure.text(x, 0.905, note, fontsize=9.5, va="center", color=_GREY)
    return figure


def _hue(angle: float) -> Any:
    """A pastel that goes round the circle with the angle."""
    from matplotlib.colors import hsv_to_rgb

    return hsv_to_rgb(((angle / (2 * math.pi)) % 1.0, 0.28, 0.97))


def _deep(angle: float) -> Any:
    """The same hue, dark enough for lines."""
    from matplotlib.colors import hsv_to_rgb

    return hsv_to_rgb(((angle / (2 * math.pi)) % 1.0, 0.85, 0.68))


def _draw_cones(axes: Axes, rows: NDArray[np.float64], neurons: list[_Neuron]) -> None:
    from matplotlib.patches import Wedge

    normals = np.arctan2(rows[:, 1], rows[:, 0])
    walls = np.sort(np.concatenate([normals - math.pi / 2, normals + math.pi / 2]) % (2 * math.pi))
    for start, end in zip(walls, np.append(walls[1:], walls[0] + 2 * math.pi), strict=True):
        middle = (start + end) / 2
        direction = np.array([math.cos(middle), math.sin(middle)])
        axes.add_patch(Wedge((0, 0), 1.0, math.degrees(start), math.degrees(end), color=_hue(middle), linewidth=0))
        label = "".join("●" if product > 0 else "○" for product in rows @ direction)
        axes.text(
            1.1 * direction[0], 1.1 * direction[1], label, fontsize=8.5, color=_INK,
            ha="left" if direction[0] > 0.15 else "right" if direction[0] < -0.15 else "center",
            va="bottom" if direction[1] > 0.6 else "top" if direction[1] < -0.6 else "center",
        )  # fmt: skip
    for wall in walls:
        axes.plot([0, math.cos(wall)], [0, math.sin(wall)], color="white", linewidth=1.6)
    for j, normal in enumerate(normals):
        for wall in (normal - math.pi / 2, normal + math.pi / 2):
            _draw_badge(axes, math.cos(wall), math.sin(wall), str(j + 1))
    largest = max((neuron.weight for neuron in neurons), default=1.0)
    for neuron in neurons:
        length = 0.72 * neuron.weight / largest
        tip = length * math.cos(neuron.angle), length * math.sin(neuron.angle)
        style = {"arrowstyle": "-|>", "color": _deep(neuron.angle), "linewidth": 2.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", tip, (0, 0), arrowprops=style)
        sign = "+" if neuron.sign > 0 else "−"
        beyond = length + 0.07
        axes.text(
            beyond * math.cos(neuron.angle), beyond * math.sin(neuron.angle), sign, fontsize=13, fontweight="bold",
            color=_deep(neuron.angle), ha="center", va="center",
        )  # fmt: skip
    axes.plot(0, 0, "o", color=_INK, markersize=4)
    axes.set_aspect("equal")
    axes.set_xlim(-1.6, 1.6)
    axes.set_ylim(-1.24, 1.24)
    axes.set_axis_off()


def _draw_fit(axes: Axes, rows: NDArray[np.float64], targets: NDArray[np.float64], neurons: list[_Neuron]) -> None:
    positions = rows[:, 0]
    margin = 0.12 * np.ptp(positions)
    kinks = [-math.tan(neuron.angle) for neuron in neurons]
    grid = np.unique(np.concatenate([np.linspace(positions[0] - margin, positions[-1] + margin, 401), kinks]))
    grid = grid[(grid >= positions[0] - margin) & (grid <= positions[-1] + margin)]
    total = np.zeros_like(grid)
    for neuron in neurons:
        slope, bias = math.cos(neuron.angle), math.sin(neuron.angle)
        part = neuron.sign * neuron.weight * np.maximum(slope * grid + bias, 0.0)
        total += part
        axes.plot(
            grid, np.where(part != 0, part, np.nan), color=_deep(neuron.angle), linewidth=1.3, linestyle=(0, (4, 2))
        )
    axes.plot(grid, total, color=_INK, linewidth=2.4, zorder=3)
    for j, (position, target) in enumerate(zip(positions, targets, strict=True)):
        _draw_badge(axes, position, target, str(j + 1))
    axes.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("x")
    axes.set_ylabel("y")


def _draw_badge(axes: Axes, x: float, y: float, text: str) -> None:
    """A numbered disc: a point on the right, and on the left the ends of its line."""
    disc = {"boxstyle": "circle,pad=0.25", "facecolor": "white", "edgecolor": _INK, "linewidth": 0.9}
    axes.text(x, y, text, fontsize=7.5, color=_INK, ha="center", va="center", bbox=disc, zorder=5)
