from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from reproduce.experiments import load_experiment, names
from reproduce.figures import classes_figure, curves_figure, image, line_styles, parameter_figure, title_of
from reproduce.summary import by_panel, standard_error, summaries

DRAW = {
    "curves": lambda found: curves_figure(found, "Points are hypothetical."),
    "along": lambda found: curves_figure(found, against="epochs"),
    "ablation": lambda found: parameter_figure(found, "batch_size"),
    "per-class": classes_figure,
}


@pytest.fixture(params=DRAW)
def kind(request):
    return request.param


@pytest.fixture
def found(kind, every_kind, store, fill):
    return summaries(every_kind[kind], fill(every_kind[kind], store))


def test_without_runs_there_is_no_figure(kind, every_kind, store):
    assert DRAW[kind](summaries(every_kind[kind], store)) is None


def test_a_figure_has_a_panel_per_noise_level_and_names_data_and_delta(kind, found):
    figure = DRAW[kind](found)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "the paper's epsilon 1.33 (its noise multiplier 15)",
        "the paper's epsilon 4.76 (its noise multiplier 5)",
    ]
    assert figure.get_suptitle().endswith(", delta = 1e-5")
    assert all(axes.get_xlabel() for axes in figure.axes)


def test_the_legend_lists_every_curve_below_the_panels(kind, found):
    figure = DRAW[kind](found)
    image(figure, "png")
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    titles = {one.cell.method.title if kind == "ablation" else one.title for one in found}
    assert {text.rpartition(" (")[0] for text in texts} == titles
    assert len(texts) == len(titles)
    assert any("2 seeds, unproven" in text for text in texts)
    lowest = min(axes.get_tightbbox().y0 for axes in figure.axes)
    box = legend.get_window_extent()
    assert box.y1 <= lowest
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_a_panel_without_runs_is_left_out(kind, found):
    some = [one if one.cell.noise_multiplier == 5.0 else replace(one, results=[]) for one in found]
    figure = DRAW[kind](some)
    assert len(figure.axes) == 1


def test_the_same_figure_is_the_same_bytes_whatever_the_users_style(kind, found):
    form = "png" if kind in ("curves", "per-class") else "svg"
    first = image(DRAW[kind](found), form)
    assert first.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 30, "svg.hashsalt": "other", "axes.facecolor": "red"}):
        assert image(DRAW[kind](found), form) == first
    assert image(DRAW[kind](found[1:]), form) != first


@pytest.mark.parametrize("name", [name for name in names() if load_experiment(name).methods])
def test_curves_differ_without_colour_and_ours_are_coloured(name, store):
    experiment = load_experiment(name)
    found = summaries(experiment, store)
    by_method = experiment.against != "epochs"
    for _, group in by_panel(found):
        styles = line_styles(group, by_method)
        drawn = {title_of(one, by_method): one.cell.method.ours for one in group}
        assert list(styles) == list(drawn)
        if experiment.kind in ("curves", "ablation", "per-class"):
            assert len({style["marker"] for style in styles.values()}) == len(styles)
            # A line style says nothing alone: it comes once among ours, and once among the others.
            assert len({(str(style["linestyle"]), drawn[title]) for title, style in styles.items()}) == len(styles)
        for title, style in styles.items():
            red, green, blue = to_rgb(style["color"])
            assert (red == green == blue) is not drawn[title]
            # Dark enough on white paper, printed in black.
            assert np.dot([0.2126, 0.7152, 0.0722], (red, green, blue)) <= 0.6


@pytest.mark.parametrize(("length", "columns"), [(20, 2), (60, 1)])
def test_a_legend_stays_within_its_figure(every_kind, store, fill, length, columns):
    found = summaries(every_kind["curves"], fill(every_kind["curves"], store))
    long = [replace(one, title=f"{one.title} " + "x" * length) for one in found]
    figure = curves_figure(long)
    (legend,) = figure.legends
    image(figure, "png")
    assert legend._ncols == columns
    assert legend.get_window_extent().width <= figure.bbox.width


def test_a_curve_keeps_its_style_in_every_panel_and_while_runs_are_missing(every_kind, store, fill):
    experiment = every_kind["curves"]
    before = line_styles(summaries(experiment, store))
    assert line_styles(summaries(experiment, fill(experiment, store))) == before


def test_error_bars_are_drawn_where_there_are_several_runs(every_kind, store, fill):
    found = summaries(every_kind["curves"], fill(every_kind["curves"], store))
    container = curves_figure(found).axes[0].containers[0]
    lengths = np.array([np.ptp(s[:, 1]) for s in container.lines[2][0].get_segments() if len(s)])
    values = np.array([[100 * accuracy for _, accuracy in r["curve"]] for r in found[0].results])
    wanted = [2 * 1.96 * standard_error(at_epoch) for at_epoch in values.T]
    assert lengths == pytest.approx(wanted, rel=1e-6)
    assert max(wanted) > 0


def test_error_bars_of_an_ablation(every_kind, store, fill):
    found = summaries(every_kind["ablation"], fill(every_kind["ablation"], store))
    container = parameter_figure(found, "batch_size").axes[0].containers[0]
    lengths = np.array([np.ptp(s[:, 1]) for s in container.lines[2][0].get_segments()])
    wanted = [2 * 1.96 * standard_error(one.values()) for one in found[:2]]
    assert lengths == pytest.approx(wanted, rel=1e-6)
    assert wanted[0] > 0


def test_no_bar_is_cut_off(every_kind, store, fill):
    found = summaries(every_kind["curves"], fill(every_kind["curves"], store))
    spread = [
        replace(
            one,
            results=[r | {"curve": [[e, a] for e in (1, 2, 3)]} for r, a in zip(one.results, (0.7, 0.9), strict=True)],
        )
        for one in found
    ]
    low, high = curves_figure(spread).axes[0].get_ylim()
    half = 1.96 * 100 * 0.1
    assert low < 80 - half < 80 + half < high


def test_the_note_stands_under_the_picture(every_kind, store, fill):
    found = summaries(every_kind["curves"], fill(every_kind["curves"], store))
    text = " ".join(DRAW["curves"](found).legends[0].get_title().get_text().split())
    assert text.startswith("Points are hypothetical. Each point is a release")
    assert text.endswith("Bars: 1.96 standard errors; a single seed has none. The steep start is left out.")
    assert "release" not in curves_figure(found, against="epochs").legends[0].get_title().get_text()


def test_numbers_of_seeds_that_differ_are_told_in_one_entry(every_kind, store, fill):
    found = summaries(every_kind["curves"], fill(every_kind["curves"], store))
    found[0] = replace(found[0], results=found[0].results[:1])
    texts = [text.get_text() for text in curves_figure(found).legends[0].get_texts()]
    assert texts[0] == "DP-SGD (1 of 2 and 2 seeds)"
    assert len(texts) == 3


def test_the_steep_start_is_left_out(every_kind, store, fill):
    curve = [[e, 0.1] for e in range(1, 5)] + [[e, 0.9 + 0.001 * e] for e in range(5, 31)]
    experiment = replace(every_kind["curves"], epochs=30)
    found = summaries(experiment, fill(experiment, store, curve=curve))
    low, high = curves_figure(found, against="epochs").axes[0].get_ylim()
    # An epoch in five is the start here.
    assert 89 < low < 90.5
    assert 93 < high <= 100
