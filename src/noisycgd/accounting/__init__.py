"""Privacy accounting of the hidden-state mechanism, in float64 and log space, rounding towards more epsilon.

A schedule gives one multiplier per batch position (`constant_multipliers`, `multipliers`); a noise multiplier and the
order of the records turn them into a privacy profile (`hidden_state_profile`), an object with `delta(epsilon)`,
`epsilon(delta)` and `tradeoff(fpr)`; `calibrate_noise` inverts a target. `poisson_profile` and `calibrate_poisson` do
the same for Poisson-subsampled DP-SGD, and `compose` joins the profiles of several releases. The room needs NumPy and
SciPy, and dp-accounting only where many steps are composed or its objects exchanged.
"""

from noisycgd.accounting.calibration import calibrate_noise
from noisycgd.accounting.conversion import ConvertedProfile
from noisycgd.accounting.gaussian import gaussian_mu, log_delta
from noisycgd.accounting.hidden_state import (
    batch_weights,
    composition_mu,
    constant_multipliers,
    hidden_state_profile,
    multipliers,
)
from noisycgd.accounting.pld import PLDProfile, compose, compose_shared_permutation
from noisycgd.accounting.poisson import calibrate_poisson, poisson_profile
from noisycgd.accounting.profile import GaussianProfile, MixtureProfile

__all__ = [
    "ConvertedProfile",
    "GaussianProfile",
    "MixtureProfile",
    "PLDProfile",
    "batch_weights",
    "calibrate_noise",
    "calibrate_poisson",
    "compose",
    "compose_shared_permutation",
    "composition_mu",
    "constant_multipliers",
    "gaussian_mu",
    "hidden_state_profile",
    "log_delta",
    "multipliers",
    "poisson_profile",
]
