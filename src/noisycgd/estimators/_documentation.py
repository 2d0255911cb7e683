"""Docstring blocks of the estimators, so that each shared parameter is described once."""

from __future__ import annotations

import inspect
from string import Template
from typing import TypeVar

T = TypeVar("T")

PARAMETERS = {
    "classifier": """    loss : str, default "margin_softmax"
        "margin_softmax", "envelope_softmax", "norm_clipped_softmax" or "logistic", see `noisycgd.losses`. Norm
        clipping has no proved guarantee for three or more classes; `logistic` is for two.
    margin : float or "auto", default "auto"
        Margin of `margin_softmax` in logits; "auto" is 3 standard deviations of a released logit's noise.
""",
    "classes": """    classes : array-like or None, default None
        All labels that may occur. None reads them off the training labels and lists that as assumed public.
""",
    "shared": """    epsilon, delta : float, default 1.0 and 1e-5
        The target; delta should stay below 1/n.
    mu, noise_multiplier : float or None, default None
        Other targets in place of epsilon, which is then left out: mu-GDP at the worst position, or the noise
        multiplier itself.
    row_norm : float, default 1.0
        R, public bound on the norm of a row.
    row_bounding : {"normalize", "clip"}, default "normalize"
        Scale every row to norm R, or only longer ones.
    center_rows : bool, default False
        Subtract each row's own mean first; it helps images.
    bias : float, default 0.0
        Value of a constant feature; 0 adds none.
    column_bounds : (low, high), array of shape (d, 2) or None, default None
        Public bounds of the columns, which are then clipped to them and scaled to [-1, 1].
    random_state : int, RandomState or None, default None
        Seeds what is public only (hyperplanes, random features, start weights). Noise, permutation and samples come
        from the operating system.
    verbose : bool, default False
        Show a progress bar on a terminal.
""",
    "gated": """    method : {"noisycgd", "dpsgd", "noisy-gd"}, default "noisycgd"
        NoisyCGD, whose guarantee covers the released model; DP-SGD on Poisson batches, whose guarantee covers every
        iterate; or full-batch noisy gradient descent with projection and averaging, the paper's reference algorithm.
    epochs : int, default 200
        Passes over the data.
    batch_size : int or "auto", default "auto"
        Records per batch (expected ones in DP-SGD); "auto" follows from the number of records alone.
    learning_rate : float or "auto", default "auto"
        Peak learning rate; "auto" is 0.97 * 2 / (beta + l2) for beta-smooth losses (NoisyCGD's guarantee admits
        2 / beta), and shorter for full-batch gradient descent.
    schedule : {"auto", "linear", "constant", "cosine", "warmup-stable-decay"} or array, default "auto"
        Course of the learning rate, or factors in (0, 1] per step or per epoch. "auto" is linear, and constant where
        iterates are averaged.
    l2 : float, default 0.0
        Coefficient of (l2/2) ||theta||^2; the guarantee needs none.
    clipping_norm : float or "auto", default "auto"
        Bound C on a record's gradient, for losses that clip.
    batch_order : {"permuted", "given"}, default "permuted"
        NoisyCGD: permute the records once, in secret, or use them in the order given at a higher epsilon.
    radius : float or "auto", default "auto"
        Full-batch gradient descent: radius of the ball of parameters; "auto" lets a logit reach 10.
    allow_unproven : bool, default False
        Train even where the guarantee is not proved, and label it `unproven`.
""",
    "ssp": """    features : {"fourier", "identity", "relu-patterns", "relu", "convex-relu"}, default "fourier"
        Public random features of a bounded row; see `noisycgd.features.random`. `identity` takes the row itself.
    n_components : int, default 1024
        Number of Fourier features, or of hyperplanes; even but for `iid` ones. At most 8192 columns may result.
    bandwidth : float or "auto", default "auto"
        Scale of Fourier features in units of a row; "auto" is row_norm / sqrt(2).
    gates : {"antithetic", "iid"}, default "antithetic"
        Hyperplanes of the other features: pairs (u, -u), or independent ones (the paper). P patterns of pairs span
        P/2 + 1 dimensions only.
    ridge : {"spectral", "adassp"}, default "spectral"
        What the smallest eigenvalue is brought up to: a bound on the noise's largest eigenvalue, or the literature's,
        which is looser; see `noisycgd.ssp.plan_ssp`.
    rho : float, default 0.05
        AdaSSP's failure probability, which bears on usefulness alone.
    clip : {"public", "data"}, default "public"
        Take the bound on a row's norm from the map, or from the records as in the paper's experiments: the latter is
        not private, and its guarantee is void.
""",
    "ssp_attributes": """    weights_ : ndarray of shape (D, q), float64
        The released coefficients.
    row_features_ : RowFeatures or None
        The public random features of a bounded row.
""",
    "common": """    guarantee_ : Guarantee
        What is promised, to whom, and how each condition was enforced.
    plan_ : Plan, PoissonPlan or SSPPlan
        Noise and all that the guarantee rests on, fixed before any record was read.
    bounds_ : RowBounds
        The public map that bounds a row.
    fitted_parameters_ : dict
        The parameters as they were in `fit`.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had any.
""",
    "attributes": """    weights_ : ndarray of shape (d, M q), float32
        The released parameters.
    features_ : GatedFeatures
        The public gates.
    row_features_ : RowFeatures or None
        The public random features of a bounded row, where the model uses some.
    permutation_ : ndarray of shape (n,) or None
        NoisyCGD: the order in which records were put into batches.
""",
}


def documented(cls: type[T]) -> type[T]:
    """Fill in the blocks above, as `$shared`, in the docstring of `cls`."""
    blocks = {name: text.strip() for name, text in PARAMETERS.items()}
    cls.__doc__ = Template(inspect.getdoc(cls) or "").substitute(
        {name: inspect.cleandoc("    " + text) for name, text in blocks.items()}
    )
    return cls
