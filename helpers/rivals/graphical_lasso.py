"""The graphical lasso (Banerjee et al. 2008; Friedman et al. 2008), scikit-learn's."""

import numpy as np
import torch
from sklearn.covariance import GraphicalLassoCV

from ..graphs import to_vector


def graphical_lasso(X, **options):
    """|partial correlations| (E,) float64 of signals X (n_signals, m), penalty by 5-fold cross-validation.

    `options` go to scikit-learn's GraphicalLassoCV.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] < 3:
        raise ValueError(f"X has shape {X.shape}: (n_signals, n_nodes) with at least 3 nodes is needed")
    if not np.isfinite(X).all():
        raise ValueError("X contains NaN or infinite values: remove or impute them first")
    P = GraphicalLassoCV(**options).fit(X).precision_
    d = np.sqrt(P.diagonal())
    return to_vector(torch.from_numpy(np.abs(P / d[:, None] / d)))
