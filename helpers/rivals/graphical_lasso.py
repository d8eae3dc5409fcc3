"""The graphical lasso (Banerjee et al. 2008; Friedman et al. 2008): scikit-learn's from signals, ours from moments."""

import numpy as np
import torch
from sklearn.covariance import GraphicalLassoCV

from ..graphs import to_vector
from .glad import ThetaEigen


def graphical_lasso(X, **options):
    """|partial correlations| (E,) float64 of signals X (n_signals, m), penalty by 5-fold cross-validation.

    `options` go to scikit-learn's GraphicalLassoCV.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or X.shape[1] < 3:
        raise ValueError(f"X has shape {X.shape}: (n_signals, n_nodes) with at least 3 nodes is needed")
    if not np.isfinite(X).all():
        raise ValueError("X contains NaN or infinite values: remove or impute them first")
    return partial_correlations(torch.from_numpy(GraphicalLassoCV(**options).fit(X).precision_))


def partial_correlations(P):
    """|partial correlations| of precision matrices: (..., m, m) -> (..., E)."""
    d = P.diagonal(dim1=-2, dim2=-1).rsqrt()
    return to_vector(d[..., :, None] * P * d[..., None, :]).abs()


@torch.no_grad()
def precision(S, alpha, *, tol=1e-4, n_iter=2000):
    """argmin of tr(S Z) - logdet Z + alpha sum over i != j of |Z_ij|, for second moments S (..., m, m); exact zeros.

    ADMM, whose first step is GLAD's; all matrices at once, and sound where coordinate descent meets companies that
    are almost copies of each other. `tol` bounds the relative primal and dual residuals.
    """
    S = torch.as_tensor(S, dtype=torch.float64)
    if not alpha > 0:
        raise ValueError(f"alpha={alpha}: a positive penalty is needed")
    norm = lambda M: torch.linalg.matrix_norm(M, keepdim=True)  # noqa: E731
    eye = torch.eye(S.shape[-1], dtype=S.dtype)
    Z = torch.diag_embed(1 / (S.diagonal(dim1=-2, dim2=-1) + alpha))
    U, rho = torch.zeros_like(S), S.new_ones(*S.shape[:-2], 1, 1)
    for k in range(n_iter):
        Theta, old = ThetaEigen.apply(S / rho - Z + U, 4 / rho), Z
        X = 1.6 * Theta - 0.6 * Z + U  # over-relaxed
        Z = X.sign() * (X.abs() - alpha / rho * (1 - eye)).relu()
        U = X - Z
        primal, dual = norm(Theta - Z) / norm(Z), rho * norm(Z - old) / norm(S)
        if max(primal.max(), dual.max()) < tol:
            return Z
        if k % 10 == 9:  # keep the residuals in balance
            factor = 1 + (primal > 5 * dual).to(S) - 0.5 * (dual > 5 * primal).to(S)
            rho, U = rho * factor, U / factor
    raise FloatingPointError(f"residuals above tol={tol:g} after {n_iter} iterations: a larger alpha={alpha} is needed")


def from_moments(S, alpha):
    """|partial correlations| (..., E) of the graphical lasso for second moments S (..., m, m)."""
    return partial_correlations(precision(S, alpha))


def best_penalty(S, held_out, alphas):
    """The penalty with which fits to S (n, m, m) give `held_out` (n, m, m) the highest mean likelihood: a float."""

    def loss(alpha):
        P = precision(S, alpha)
        return ((held_out * P).sum((-2, -1)) - torch.logdet(P)).mean()

    return min(alphas, key=loss)
