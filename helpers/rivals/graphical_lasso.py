"""The graphical lasso (Banerjee et al. 2008; Friedman et al. 2008): scikit-learn's from signals, ours from moments."""

import math

import numpy as np
import torch
from sklearn.covariance import GraphicalLassoCV

from ..graphs import to_vector
from .glad import ThetaEigen, identity

RELAXATION = 1.6  # of ADMM, between 1 and 2
IMBALANCE = 5.0  # ratio of the two residuals from which on the penalty rho of ADMM is changed


def graphical_lasso(X, **options):
    """|partial correlations| (E,) float64 of signals X (n_signals, m), penalty by 5-fold cross-validation.

    `options` go to scikit-learn's GraphicalLassoCV. It runs on the CPU, and so the answer is there.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] < 3:
        raise ValueError(f"X has shape {X.shape}: (n_signals, n_nodes) with at least 3 nodes is needed")
    if not np.isfinite(X).all():
        raise ValueError("X contains NaN or infinite values: remove or impute them first")
    return partial_correlations(torch.from_numpy(GraphicalLassoCV(**options).fit(X).precision_)).abs()


def partial_correlations(P):
    """Partial correlations of precision matrices: (..., m, m) -> (..., E)."""
    d = P.diagonal(dim1=-2, dim2=-1).rsqrt()
    return -to_vector(d[..., :, None] * P * d[..., None, :])


def from_moments(observations, alpha):
    """|partial correlations| (..., E) of the graphical lasso, from observations or second moments S (..., m, m)."""
    return partial_correlations(precision(observations, alpha)).abs()


@torch.no_grad()
def precision(observations, alpha, *, tol=1e-4, n_iter=2000):
    """argmin of tr(S Z) - logdet Z + alpha sum over i != j of |Z_ij|: (..., m, m) float64, with exact zeros.

    ADMM, whose first step is GLAD's, on all matrices at once and on their device. It is sound where coordinate descent
    fails, on nodes that are almost copies of each other.

    Parameters
    ----------
    observations : Observations, or second moments S (..., m, m)
    alpha : penalty, positive
    tol : bound on the relative primal and dual residuals, or FloatingPointError after `n_iter` iterations
    """
    S = _moments(observations)
    if not alpha > 0:
        raise ValueError(f"alpha={alpha}: a positive penalty is needed")
    off_diagonal = 1 - identity(S)
    variances = S.diagonal(dim1=-2, dim2=-1)
    Z = torch.diag_embed(1 / (variances + alpha))
    U = torch.zeros_like(S)  # the scaled dual variable
    rho = variances.mean(-1)[..., None, None].square()  # has the unit of S^2, so that no unit matters
    for k in range(n_iter):
        Z_old = Z
        Theta = ThetaEigen.apply(S / rho - Z + U, 4 / rho)
        X = RELAXATION * Theta + (1 - RELAXATION) * Z + U
        Z = X.sign() * (X.abs() - alpha / rho * off_diagonal).relu()
        U = X - Z
        primal = _norm(Theta - Z) / _norm(Z)
        dual = rho * _norm(Z - Z_old) / _norm(S)
        worst = torch.maximum(primal, dual).max()
        if worst < tol:
            return Z
        if k % 10 == 9:  # keep the residuals in balance: double or halve rho
            factor = 1 + (primal > IMBALANCE * dual).to(S) - 0.5 * (dual > IMBALANCE * primal).to(S)
            rho = rho * factor
            U = U / factor
    raise FloatingPointError(
        f"relative residual {worst:.1e} above tol={tol:g} after {n_iter} iterations: "
        f"allow more (n_iter=) or take a larger penalty than alpha={alpha}"
    )


def best_penalty(observations, held_out, alphas):
    """The penalty whose fits give `held_out` the highest mean likelihood: a float out of `alphas`.

    observations, held_out : Observations, or second moments (n, m, m), of the same n graphs
    """
    S = _moments(held_out)

    def loss(alpha):
        P = precision(observations, alpha)
        return ((S * P).sum((-2, -1)) - torch.logdet(P)).mean()

    return min(alphas, key=loss)


def extended_bic(P, S, n_signals, gamma=0.1):
    """Foygel and Drton (2010): N (tr(S P) - logdet P) + k log N + 4 k gamma log m, k edges: (..., m, m) -> (...)."""
    m = P.shape[-1]
    n = torch.as_tensor(n_signals).to(P)
    k = (to_vector(P) != 0).sum(-1)
    fit = (S * P).sum((-2, -1)) - torch.logdet(P)
    return n * fit + k * (n.log() + 4 * gamma * math.log(m))


def by_extended_bic(observations, alphas, gamma=0.1):
    """Partial correlations (..., E), each graph with the penalty out of `alphas` that has its least `extended_bic`.

    It needs no rows, only second moments and the number of signals.
    """
    S = _moments(observations)
    found = [precision(S, alpha) for alpha in alphas]
    best = torch.stack([extended_bic(P, S, observations.n_signals, gamma) for P in found]).argmin(0)
    return partial_correlations(torch.stack(found).gather(0, best[None, ..., None, None].expand(1, *S.shape))[0])


def _moments(observations):
    return torch.as_tensor(getattr(observations, "moments", observations)).double()


def _norm(A):
    return torch.linalg.matrix_norm(A, keepdim=True)
