"""The picture of a guarantee shows the accountant's numbers, says what they are worth, and fits on the page."""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from noisycgd.accounting import (
    GaussianProfile,
    MixtureProfile,
    calibrate_noise,
    composition_mu,
    constant_multipliers,
    hidden_state_profile,
)
from noisycgd.guarantee import Guarantee, Selection
from noisycgd.planning import plan_selection
from noisycgd.report import guarantee_figure, guarantee_png
from noisycgd.types import Adjacency, EpsilonDelta, Order, Status, ThreatModel


def make(epsilon=1.33, delta=1e-5, epochs=400, batches=60, order=Order.PERMUTED, **changes) -> Guarantee:
    multipliers = constant_multipliers(batches, epochs, 5.4e-5)
    noise = calibrate_noise(multipliers, EpsilonDelta(epsilon, delta), order)
    profile = hidden_state_profile(multipliers, noise, order)
    mus = 2 * multipliers / noise if order is Order.PERMUTED else np.array([profile.mu])
    values = {
        "epsilon": profile.epsilon(delta),
        "delta": delta,
        "mu": profile.mu,
        "status": Status.PROVED,
        "adjacency": Adjacency.REPLACE_ONE,
        "threat_model": ThreatModel.FINAL_MODEL,
        "mechanism": "NoisyCGD",
        "order": order,
        "n_records": 1000 * batches,
        "batch_size": 1000,
        "epochs": epochs,
        "noise_multiplier": float(noise),
        "gradient_bound": 1.0,
        "conditions": (),
        "position_mus": tuple(mus),
        "position_weights": (1 / mus.size,) * mus.size,
    }
    return Guarantee(**(values | changes))


CASES = {
    "usual": make(),
    "tiny": make(0.01),
    "tinier": make(1e-4, 1e-9, epochs=10),
    "large": make(30.0),
    "huge": make(500.0, batches=4, epochs=50),
    "tiny delta": make(1.0, 1e-300),
    "large delta": make(1.0, 0.5),
    "one epoch": make(1.0, epochs=1),
    "one batch": make(1.0, batches=1),
    "many positions": make(2.0, batches=1000, epochs=20, status=Status.CONDITIONAL),
    "given order": make(1.0, order=Order.GIVEN),
    "unproven": make(4.6, status=Status.UNPROVEN),
    # So little information that delta(0) is below delta: epsilon is 0 and the curve starts under the stated point.
    "zero": dataclasses.replace(make(0.01, 1e-3, epochs=2), epsilon=0.0, delta=0.02),
}


def curve(axes, start):
    (line,) = [line for line in axes.lines if str(line.get_label()).startswith(start)]
    return line.get_xdata(), line.get_ydata()


def texts(figure):
    return [text.get_text() for text in figure.texts]


@functools.cache
def drawn(name):
    return guarantee_figure(CASES[name])


@pytest.fixture
def usual():
    return CASES["usual"], drawn("usual")


class TestProfilePanel:
    def test_released_curve_is_the_mixture_over_positions(self, usual):
        guarantee, figure = usual
        epsilons, deltas = curve(figure.axes[0], "released")
        exact = MixtureProfile(guarantee.position_mus, guarantee.position_weights)
        assert deltas == pytest.approx(exact.delta(epsilons), rel=1e-12)

    @pytest.mark.parametrize("name", [name for name in CASES if name not in ("zero", "tiny delta")])
    def test_released_curve_meets_the_stated_point(self, name):
        guarantee = CASES[name]
        axes = drawn(name).axes[0]
        epsilons, deltas = curve(axes, "released")
        shown = np.isfinite(deltas)
        crossing = np.interp(math.log(guarantee.delta), np.log(deltas[shown])[::-1], epsilons[shown][::-1])
        assert crossing == pytest.approx(guarantee.epsilon, rel=0.01)
        assert curve(axes, "stated") == ([guarantee.epsilon], [guarantee.delta])

    def test_comparison_is_composition_over_epochs(self, usual):
        guarantee, figure = usual
        epsilons, deltas = curve(figure.axes[0], "if every step were published (ε = 15.63)")
        published = GaussianProfile(2 * math.sqrt(guarantee.epochs) / guarantee.noise_multiplier)
        assert deltas == pytest.approx(published.delta(epsilons), rel=1e-12)
        assert published.epsilon(guarantee.delta) == pytest.approx(15.63, abs=0.005)

    def test_given_order_is_the_worst_position(self):
        guarantee = CASES["given order"]
        epsilons, deltas = curve(drawn("given order").axes[0], "released")
        assert deltas == pytest.approx(GaussianProfile(guarantee.mu).delta(epsilons), rel=1e-12)

    @pytest.mark.parametrize("changes", [{"threat_model": ThreatModel.ALL_ITERATES}, {"noise_multiplier": 0.0}])
    def test_no_comparison_where_there_is_none(self, changes):
        figure = guarantee_figure(dataclasses.replace(CASES["usual"], **changes))
        assert not any(str(line.get_label()).startswith("if every") for line in figure.axes[0].lines)
        assert len(figure.axes[1].lines) == 2

    def test_many_positions_are_grouped_towards_more_delta(self):
        guarantee = CASES["many positions"]
        epsilons, deltas = (values[::10] for values in curve(drawn("many positions").axes[0], "released"))
        exact = MixtureProfile(guarantee.position_mus, guarantee.position_weights).delta(epsilons)
        assert np.all(deltas >= exact * (1 - 1e-12))
        assert np.any(deltas > exact * 1.0001)
        assert np.all(deltas <= 1.1 * exact)

    @pytest.mark.parametrize("name", CASES)
    def test_promise_is_in_sight(self, name):
        guarantee = CASES[name]
        axes = drawn(name).axes[0]
        (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert low == 0 <= guarantee.epsilon < high < math.inf
        assert 0 < bottom < guarantee.delta < top
        _, deltas = curve(axes, "released")
        # The curve starts above the point, unless epsilon is 0, and takes a fifth of the width or more.
        assert (np.nanmax(deltas) > guarantee.delta) == (guarantee.epsilon > 0)
        assert np.count_nonzero(deltas > bottom) >= 80

    def test_nothing_to_show_is_shown(self):
        axes = guarantee_figure(
            dataclasses.replace(CASES["given order"], mu=0.0, epsilon=0.0, position_mus=(), position_weights=())
        ).axes[0]
        assert np.isnan(curve(axes, "released")[1]).all()


class TestTradeoffPanel:
    def test_curve_is_the_best_test(self, usual):
        guarantee, figure = usual
        released, published, diagonal = figure.axes[1].lines
        exact = MixtureProfile(guarantee.position_mus, guarantee.position_weights)
        assert released.get_ydata() == pytest.approx(exact.tradeoff(released.get_xdata()), abs=1e-12)
        composed = GaussianProfile(composition_mu(guarantee.epochs, guarantee.noise_multiplier))
        assert published.get_ydata() == pytest.approx(composed.tradeoff(published.get_xdata()), abs=1e-12)
        assert diagonal.get_xydata().tolist() == [[0.0, 1.0], [1.0, 0.0]]

    @pytest.mark.parametrize("name", CASES)
    def test_curve_runs_corner_to_corner_below_the_diagonal(self, name):
        x, y = drawn(name).axes[1].lines[0].get_data()
        assert (x[0], y[0], x[-1], y[-1]) == (0.0, 1.0, 1.0, 0.0)
        assert np.all(np.diff(x) > 0)
        assert np.all(np.diff(y) <= 0)
        assert np.all(y <= 1 - x)

    @pytest.mark.parametrize("name", CASES)
    def test_example_is_rounded_towards_more_power(self, name):
        guarantee = CASES[name]
        figure = drawn(name)
        (text,) = [text.get_text() for text in figure.axes[1].texts if "At 1%" in text.get_text()]
        shown = float(text.split("at most ")[1].rstrip("."))
        exact = MixtureProfile(guarantee.position_mus, guarantee.position_weights)
        assert 0 <= shown - (1 - exact.tradeoff(0.01)) <= 0.0011


class TestWords:
    @pytest.mark.parametrize(
        ("status", "headline", "meaning"),
        [
            (Status.PROVED, "(ε = 1.33, δ = 1e-05)-differential privacy — PROVED", "Every condition"),
            (Status.CONDITIONAL, "(ε = 1.33, δ = 1e-05)-differential privacy — CONDITIONAL", "Holds only if"),
            (Status.UNPROVEN, "(ε = 1.33, δ = 1e-05)-differential privacy — UNPROVEN", "not a guarantee"),
            (Status.VOID, "No differential privacy — VOID", "No privacy at all"),
        ],
    )
    def test_status(self, status, headline, meaning):
        figure = guarantee_figure(dataclasses.replace(CASES["usual"], status=status))
        assert texts(figure)[0] == headline
        assert meaning in texts(figure)[1]
        for axes in figure.axes:
            marked = status.upper() in [text.get_text() for text in axes.texts]
            assert marked == (status is not Status.PROVED)

    def test_adjacency_threat_model_and_order(self):
        facts = texts(drawn("usual"))[1]
        assert "replacing one of 60,000 records" in facts
        assert "sees the final parameters only" in facts
        assert "averaged over one random permutation" in facts
        other = dataclasses.replace(
            CASES["given order"], adjacency=Adjacency.ADD_REMOVE, threat_model=ThreatModel.ALL_ITERATES
        )
        facts = texts(guarantee_figure(other))[1]
        assert "adding or removing one of 60,000 records" in facts
        assert "may see every step of training" in facts
        assert "worst position of a record in the given order" in facts

    def test_axes_have_labels_and_units(self, usual):
        labels = [(axes.get_xlabel(), axes.get_ylabel()) for axes in usual[1].axes]
        assert labels == [
            ("ε (nats)", "smallest δ (probability)"),
            ("false-positive rate of a membership test", "least false-negative rate"),
        ]

    @pytest.mark.parametrize("changes", [{}, {"n_records": 10**12, "epsilon": 1.23456e-10, "delta": 1.23457e-10}])
    @pytest.mark.parametrize("status", Status)
    def test_everything_fits_on_the_page(self, status, changes):
        guarantee = dataclasses.replace(CASES["tinier"], status=status, adjacency=Adjacency.ADD_REMOVE, **changes)
        figure = guarantee_figure(guarantee)
        figure.canvas.draw()
        page = figure.bbox
        for artist in [*figure.texts, *figure.legends, *(t for axes in figure.axes for t in axes.texts), *figure.axes]:
            box = artist.get_tightbbox()
            assert page.x0 <= box.x0 < box.x1 <= page.x1, artist
            assert page.y0 <= box.y0 < box.y1 <= page.y1, artist

    def test_reads_without_colour(self, usual):
        for axes in usual[1].axes:
            lines = [line for line in axes.lines if line.get_zorder() > 0]
            styles = {(str(line.get_linestyle()), line._unscaled_dash_pattern, line.get_marker()) for line in lines}
            assert len(styles) == len(lines)
            for line in lines:
                r, g, b = matplotlib.colors.to_rgb(line.get_color())
                assert r == g == b


@pytest.mark.parametrize("changes", [{}, {"epsilon": math.inf, "mu": math.inf}])
def test_void_is_drawn_as_no_privacy(changes):
    figure = guarantee_figure(dataclasses.replace(CASES["usual"], status=Status.VOID, **changes))
    left, right = figure.axes
    assert np.all(curve(left, "released")[1] == 1.0)
    assert not any(str(line.get_label()).startswith(("stated", "if every")) for line in left.lines)
    assert right.lines[0].get_ydata()[0] == 1.0
    assert np.all(right.lines[0].get_ydata()[1:] == 0.0)


class TestSelection:
    @pytest.fixture(params=[False, True], ids=["gaussian", "sampled"])
    def selected(self, request):
        budget = plan_selection(mean_trials=20, epsilon=3.0, delta=1e-5, sampled=request.param)
        chosen = Selection("poisson", 20.0, budget.mu, budget.base_epsilon, request.param, 50, False)
        changes = {"epsilon": budget.epsilon, "mu": None, "position_mus": (), "position_weights": ()}
        guarantee = dataclasses.replace(CASES["usual"], selection=chosen, **changes)
        return budget, guarantee, guarantee_figure(guarantee)

    def test_its_own_profile_is_drawn_without_comparison(self, selected):
        budget, _, figure = selected
        x, y = curve(figure.axes[0], "released")
        np.testing.assert_allclose(y, budget.profile.delta(x), rtol=1e-9)
        assert curve(figure.axes[0], "stated")[0] == pytest.approx([3.0])
        assert not any(str(line.get_label()).startswith("if every") for line in figure.axes[0].lines)

    def test_the_title_says_so_and_fits(self, selected):
        figure = selected[2]
        figure.canvas.draw()
        assert "best of a random number of trials, 20 on average (poisson)" in figure.texts[1].get_text()
        for text in figure.texts:
            box = text.get_tightbbox()
            assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


class TestPNG:
    def test_same_guarantee_same_bytes_whatever_the_style(self):
        first = guarantee_png(CASES["usual"])
        assert first[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", first[16:24]) == (1350, 690)
        assert b"Software" not in first
        with matplotlib.rc_context({"text.color": "red", "axes.facecolor": "black", "font.size": 30}):
            before = dict(matplotlib.rcParams)
            assert guarantee_png(CASES["usual"]) == first
            assert dict(matplotlib.rcParams) == before
        assert guarantee_png(CASES["large"]) != first

    def test_matplotlib_is_loaded_late_and_pyplot_never(self):
        code = (
            "import sys\nimport noisycgd.report as report\n"
            "assert 'matplotlib' not in sys.modules\n"
            "from noisycgd.guarantee import *\n"
            "report.guarantee_png(Guarantee(1.0, 1e-5, 0.3, Status.PROVED, Adjacency.REPLACE_ONE,"
            " ThreatModel.FINAL_MODEL, 'NoisyCGD', Order.GIVEN, 10, 5, 2, 4.0, 1.0, ()))\n"
            "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
