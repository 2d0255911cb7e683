"""Private hyperparameter tuning: the best of a random number of private trials, with one guarantee for all of it."""

from noisycgd.tuning.selection import PrivateSelection

__all__ = ["PrivateSelection"]
