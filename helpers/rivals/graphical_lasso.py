"""The graphical lasso (Banerjee et al. 2008; Friedman et al. 2008), scikit-learn's."""

import warnings

import numpy as np
import torch
from sklearn.covariance import GraphicalLassoCV
from sklearn.covariance import graphical_lasso as solve
from sklearn.exceptions import ConvergenceWarning

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
    return _partial_correlations(GraphicalLassoCV(**options).fit(X).precision_)


def from_moments(S, alpha):
    """|partial correlations| (..., E) float64 from second moments S (..., m, m), with the penalty `alpha`."""
    S = np.asarray(S, dtype=np.float64)
    rows = [_partial_correlations(_precision(part, alpha)) for part in S.reshape(-1, *S.shape[-2:])]
    return torch.stack(rows).reshape(*S.shape[:-2], -1)


def best_penalty(S, alphas):
    """The penalty of the highest likelihood, each of the second moments S (n, m, m) held out once: a float."""
    S = np.asarray(S, dtype=np.float64)

    def loss(alpha, k):
        P = _precision(np.delete(S, k, 0).mean(0), alpha)
        return (S[k] * P).sum() - np.linalg.slogdet(P)[1]

    return min(alphas, key=lambda alpha: sum(loss(alpha, k) for k in range(len(S))))


def _precision(S, alpha):
    with warnings.catch_warnings():  # a duality gap of 1e-4 now and then not reached: weights are the same to 1e-3
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(S, alpha)[1]


def _partial_correlations(P):
    d = np.sqrt(P.diagonal())
    return to_vector(torch.from_numpy(np.abs(P / d[:, None] / d)))
