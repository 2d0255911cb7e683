"""From a user's table to bounded rows in fixed batches; every map of this room reads one row at a time."""

from noisycgd.data.batches import FixedBatches, make_batches
from noisycgd.data.bounds import RowBounds

__all__ = ["FixedBatches", "RowBounds", "make_batches"]
