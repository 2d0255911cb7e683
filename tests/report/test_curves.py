from __future__ import annotations

import pytest

from noisycgd._validation import ParameterError
from noisycgd.comparison import Comparison, Curve
from noisycgd.report.curves import comparison_figure, comparison_image

COMPARISON = Comparison(
    "title",
    "epochs",
    "epsilon (nats)",
    tuple(Curve(f"c{i}", (1.0, 2.0, 3.0), (0.1 * i, 0.2 * i, 0.3 * i + 0.1), "final-model") for i in range(6)),
)


def test_figure_has_labels_and_tells_curves_apart_without_colour() -> None:
    axes = comparison_figure(COMPARISON).axes[0]
    assert axes.get_xlabel() == "epochs"
    assert axes.get_ylabel() == "epsilon (nats)"
    looks = {(str(line.get_linestyle()), str(line._unscaled_dash_pattern), line.get_marker()) for line in axes.lines}
    assert len(looks) == 6
    assert axes.get_legend().get_texts()[0].get_text() == "c5 (final-model)"


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_images(kind, start) -> None:
    assert comparison_image(COMPARISON, kind).startswith(start)


def test_other_formats_are_refused() -> None:
    with pytest.raises(ParameterError, match="format of a picture must be one of 'png', 'svg'"):
        comparison_image(COMPARISON, "bmp")
