"""Where a loss certificate and a privacy target meet: everything a run needs is fixed here, before a record is seen."""

from noisycgd.planning.cyclic import Account, account_noisy_cgd, plan_noisy_cgd
from noisycgd.planning.poisson import plan_dp_sgd, plan_noisy_gd
from noisycgd.planning.selection import (
    LAWS,
    EqualBase,
    SelectionPlan,
    equal_base_contraction,
    equal_base_noise,
    plan_selection,
    trials_law,
)
from noisycgd.planning.settings import auto_batch_size, check_target, is_auto

__all__ = [
    "LAWS",
    "Account",
    "EqualBase",
    "SelectionPlan",
    "account_noisy_cgd",
    "auto_batch_size",
    "check_target",
    "equal_base_contraction",
    "equal_base_noise",
    "is_auto",
    "plan_dp_sgd",
    "plan_noisy_cgd",
    "plan_noisy_gd",
    "plan_selection",
    "trials_law",
]
