"""The training loops: each reads a plan, adds its noise, and lets out what the plan accounts for."""

from noisycgd.training.cyclic import train_cyclic
from noisycgd.training.noise import Randomness, predictable_randomness, system_randomness
from noisycgd.training.poisson import train_poisson

__all__ = ["Randomness", "predictable_randomness", "system_randomness", "train_cyclic", "train_poisson"]
