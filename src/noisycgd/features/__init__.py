"""Data-independent feature maps and the bounds on their norm."""

from noisycgd.features.gates import GATE_KINDS, GatedFeatures, make_gates

__all__ = ["GATE_KINDS", "GatedFeatures", "make_gates"]
