"""Guarantees for people: pictures of what a released model promises."""

from noisycgd.report.plots import guarantee_figure, guarantee_png

__all__ = ["guarantee_figure", "guarantee_png"]
