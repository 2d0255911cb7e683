"""Privacy accounting of the hidden-state mechanism, in float64 and log space, rounding towards more epsilon.

A schedule gives one multiplier per batch position (`constant_multipliers`, `multipliers`); a noise multiplier and the
order of the records turn them into a privacy profile (`hidden_state_profile`), an object with `delta(epsilon)`,
`epsilon(delta)` and `tradeoff(fpr)`; `calibrate_noise` inverts a target. `poisson_profile` and `calibrate_poisson` do
the same for Poisson-subsampled DP-SGD; `SelectionProfile` is the best of several trials, `shuffling_epsilon` is for one
shuffled epoch; `compose` joins the profiles of several releases, `risk_summary` says what one means. The room needs
NumPy and SciPy, and dp-accounting only where many steps are composed or its objects exchanged.
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
from noisycgd.accounting.pool import EnvelopeProfile, MaxProfile
from noisycgd.accounting.profile import GaussianProfile, MixtureProfile
from noisycgd.accounting.risk import (
    RiskSummary,
    log_odds_shift,
    membership_advantage,
    posterior_bound,
    risk_summary,
    true_positive_rate,
)
from noisycgd.accounting.selection import (
    SelectionBound,
    SelectionProfile,
    calibrate_selection_base,
    selection_bound,
)
from noisycgd.accounting.shuffling import ShufflingBound, shuffling_epsilon
from noisycgd.accounting.trials import NegativeBinomialTrials, PoissonTrials
from noisycgd.types import PrivacyProfile

__all__ = [
    "ConvertedProfile",
    "EnvelopeProfile",
    "GaussianProfile",
    "MaxProfile",
    "MixtureProfile",
    "NegativeBinomialTrials",
    "PLDProfile",
    "PoissonTrials",
    "PrivacyProfile",
    "RiskSummary",
    "SelectionBound",
    "SelectionProfile",
    "ShufflingBound",
    "batch_weights",
    "calibrate_noise",
    "calibrate_poisson",
    "calibrate_selection_base",
    "compose",
    "compose_shared_permutation",
    "composition_mu",
    "constant_multipliers",
    "gaussian_mu",
    "hidden_state_profile",
    "log_delta",
    "log_odds_shift",
    "membership_advantage",
    "multipliers",
    "poisson_profile",
    "posterior_bound",
    "risk_summary",
    "selection_bound",
    "shuffling_epsilon",
    "true_positive_rate",
]
