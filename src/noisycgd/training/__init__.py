"""The training loop: reads a plan, adds its noise, and lets the last iterate out."""

from noisycgd.training.cyclic import train_cyclic
from noisycgd.training.noise import Randomness, predictable_randomness, system_randomness

__all__ = ["Randomness", "predictable_randomness", "system_randomness", "train_cyclic"]
