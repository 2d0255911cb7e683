import matplotlib
import numpy as np
import pytest

from noisycgd._validation import DataError
from noisycgd.exact import enumerate_arrangements, exact_fit_figure, recover_network, solve_relu_program

pytest.importorskip("cvxpy")

X = [0.1, -1.0, 1.6, -1.7, 0.75, -0.45]
Y = [-0.1, 0.2, 0.5, 0.9, 0.9, -0.6]


@pytest.fixture(scope="module")
def figure():
    return exact_fit_figure(X, Y, beta=0.05)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_labels_every_cone_with_its_pattern(figure):
    rows = np.column_stack([np.sort(X), np.ones(6)])
    expected = {"".join("●" if on else "○" for on in pattern) for pattern in enumerate_arrangements(rows)}
    labels = [text for text in texts(figure.axes[0]) if set(text) <= set("●○") and text]
    assert len(labels) == len(set(labels)) == 12
    assert set(labels) == expected
    assert len(figure.axes[0].patches) >= 12
    assert figure.texts[0].get_text() == "6 points, 12 activation patterns"


def test_curve_is_the_optimal_network(figure):
    rows = np.column_stack([X, np.ones(6)])
    network = recover_network(solve_relu_program(rows, Y, beta=0.05))
    x, y = max((line.get_data() for line in figure.axes[1].lines), key=lambda data: np.isfinite(data[1]).sum())
    np.testing.assert_allclose(y, network.predict(np.column_stack([x, np.ones_like(x)])), atol=1e-4)
    assert texts(figure.axes[1]) == ["1", "2", "3", "4", "5", "6"]
    shown = [text.get_position() for text in figure.axes[1].texts]
    assert shown == sorted(zip(X, Y, strict=True))


def test_one_arrow_and_one_sign_for_each_neuron(figure):
    rows = np.column_stack([X, np.ones(6)])
    network = recover_network(solve_relu_program(rows, Y, beta=0.05))
    ways = {(round(float(a), 3), s) for a, s in zip(np.arctan2(*network.hidden.T), network.output > 0, strict=True)}
    signs = [text for text in texts(figure.axes[0]) if text in ("+", "−")]
    assert len(signs) == len(ways)
    assert signs.count("+") == sum(positive for _, positive in ways)


def test_leaves_the_users_style_alone():
    with matplotlib.rc_context({"font.size": 31.0, "axes.facecolor": "red"}):
        figure = exact_fit_figure(X, Y, beta=0.05)
        assert matplotlib.rcParams["font.size"] == 31.0
    assert figure.axes[1].get_facecolor() == (1.0, 1.0, 1.0, 1.0)


def test_nothing_sticks_out(figure):
    figure.canvas.draw()
    frame = figure.bbox
    for text in [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]:
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
        assert frame.y0 <= box.y0 <= box.y1 <= frame.y1


def test_without_neurons(tmp_path):
    figure = exact_fit_figure([0.0, 1.0], [0.1, 0.2], beta=100.0)
    figure.savefig(tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        ([1.0], [1.0], "x must be 2 to 12 distinct numbers"),
        ([1.0, 1.0], [1.0, 2.0], "x must be 2 to 12 distinct numbers"),
        (range(13), range(13), "x must be 2 to 12 distinct numbers"),
        ([1.0, np.nan], [1.0, 2.0], "finite"),
        ([[1.0, 2.0]], [1.0, 2.0], "got \\(1, 1, 2\\)"),
        ([1.0, 2.0], [1.0], "y must be of shape \\(2,\\)"),
        ([1.0, 2.0], ["a", "b"], "y must be a vector of numbers"),
    ],
)
def test_refusals(x, y, text):
    with pytest.raises(DataError, match=text):
        exact_fit_figure(x, y, beta=0.1)
