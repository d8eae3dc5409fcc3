"""Smooth signals on graphs, and `Observations`: what every method sees of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy import stats

from .graphs import GRAPHS_PER_SEED, count_nodes, differences, laplacian, renumber, spawn, to_matrix

CUT = 3.0  # robust standard deviations at which a difference is clipped
DIFFERENCES_AT_ONCE = 2**22


# --- what a method sees --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Observations:
    """Second moments of the signals on each graph. A method is a callable from Observations to weights w (..., E).

    moments : S = X'X / N, (..., m, m)
    n_signals : N, a number or (...)
    """

    moments: torch.Tensor
    n_signals: float | torch.Tensor

    @cached_property
    def distances(self):
        """y_ij = mean over signals of (x_i - x_j)^2: (..., E)."""
        return differences(self.moments).clamp_min(0)

    def __len__(self):
        return len(self.moments)

    def __getitem__(self, rows):
        """Some of the graphs, by any index into the leading dimensions."""
        one_for_all = torch.as_tensor(self.n_signals).ndim == 0
        return Observations(self.moments[rows], self.n_signals if one_for_all else self.n_signals[rows])

    def to(self, *device_or_dtype):
        """The same observations on another device or in another precision."""
        moments = self.moments.to(*device_or_dtype)
        several = torch.is_tensor(self.n_signals)
        return Observations(moments, self.n_signals.to(moments.device) if several else self.n_signals)

    def renumber(self, order):
        """The same signals with node order[k] called k; `order` (m,) is a permutation."""
        return Observations(self.moments[..., order[:, None], order], self.n_signals)


def observe(X):
    """Observations of signals X (..., n_signals, m), float64."""
    X = check_signals(X).double()
    return Observations(X.mT @ X / X.shape[-2], float(X.shape[-2]))


def in_order(method, observations, order):
    """What `method` makes of the observations when shown the nodes in another order, put back in theirs: (..., E)."""
    return renumber(method(observations.renumber(order)), order.argsort())


# --- distances -----------------------------------------------------------------------------------------------------


def check_signals(X):
    """X (..., n_signals, m) as a floating tensor, or ValueError: at least 3 nodes, finite, not equal at all nodes."""
    X = torch.as_tensor(X)
    if X.ndim < 2 or X.shape[-1] < 3 or X.shape[-2] < 1:
        raise ValueError(f"X has shape {tuple(X.shape)}: (..., n_signals, n_nodes) with at least 3 nodes is needed")
    if not X.is_floating_point():
        X = X.to(torch.get_default_dtype())
    if not torch.isfinite(X).all():
        raise ValueError("X contains NaN or infinite values: remove or impute them first")
    constant = (X == X[..., :1]).flatten(-2).all(-1)
    if constant.any():
        which = f" in item {constant.flatten().nonzero()[0].item()} of the batch" if constant.ndim else ""
        raise ValueError(f"X is constant over the nodes{which}: such signals say nothing about a graph")
    return X


def distances(X):
    """y_ij = mean over signals of (x_i - x_j)^2: (..., n_signals, m) -> (..., E), in the precision of X."""
    X = check_signals(X)
    Z = X.double()  # S_ii + S_jj - 2 S_ij cancels
    Z = Z - Z.mean(-1, keepdim=True)  # differences do not see the common mode; without it less cancels
    return differences(Z.mT @ Z / Z.shape[-2]).clamp_min(0).to(X.dtype)


def pair_distances(X, edges, *, robust=False):
    """y of the pairs `edges` (2, E) only: X (n_signals, m) -> (E,) float64; robust: see `root_mean_square`."""
    points = np.ascontiguousarray(np.asarray(X).T)
    edges = np.asarray(edges)
    n_blocks = max(1, -(-points.shape[1] * edges.shape[1] // DIFFERENCES_AT_ONCE))
    blocks = np.array_split(edges, n_blocks, 1)
    y = [root_mean_square(np.subtract(points[i], points[j], dtype=np.float64).T, robust=robust) ** 2 for i, j in blocks]
    return torch.from_numpy(np.concatenate(y))


def root_mean_square(D, *, robust=False):
    """Root mean square of each column; robust: of its entries clipped at 3 of what the median says it is.

    Both estimate the standard deviation of normal columns of mean 0. A column that is 0 more often than not has no
    median to clip by, and keeps the root mean square. NaN are left out.
    """
    squares = D * D
    median, mean = (np.nanmedian, np.nanmean) if np.isnan(squares).any() else (np.median, np.mean)
    if robust:
        bound = CUT**2 * median(squares, 0) / stats.norm.ppf(0.75) ** 2
        kept = stats.chi2.cdf(CUT**2, 3) + CUT**2 * stats.chi2.sf(CUT**2, 1)  # E min(z^2, CUT^2), z normal
        squares = np.where(bound > 0, np.minimum(squares, bound) / kept, squares)
    return np.sqrt(mean(squares, 0))


def standardise(X):
    """Signals (..., n_signals, m), an array, with mean 0 and variance 1 at every node."""
    X = np.asarray(X, dtype=np.float64)
    if not np.isfinite(X).all():
        raise ValueError("X contains NaN or infinite values: remove or impute them first")
    constant = (X == X[..., :1, :]).all(-2)
    if constant.any():
        raise ValueError(f"X has {int(constant.sum())} constant signals: leave those nodes out")
    return (X - X.mean(-2, keepdims=True)) / X.std(-2, keepdims=True)


def correlations(y):
    """Second moments of the standardised signals that have distances y, 1 - y/2: (..., E) -> (..., m, m)."""
    return 1 - to_matrix(y) / 2


# --- the law of Section 5 ------------------------------------------------------------------------------------------


def sample_signals(w, n_signals=3000, sigma2=1e-4, *, seed):
    """Signals x ~ N(0, (L + sigma2 I)^-1) of the paper's Eq. (9): (..., E) -> (..., n_signals, m) float64."""
    factor = _covariance_factor(w, sigma2)
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((*factor.shape[:-2], n_signals, factor.shape[-1]))
    return torch.from_numpy(z) @ factor.mT


def sample_observations(w, n_signals=3000, sigma2=1e-4, *, seed, n_jobs=1):
    """Observations of `n_signals` signals on each graph w (..., E), without drawing the signals; float64.

    N S follows the Wishart law with N degrees of freedom and scale Sigma = F F', so that F A A' F' with Bartlett's A
    has exactly the law of X'X. This costs O(m^3) per graph instead of O(N m^2). Fewer signals than nodes are drawn.
    """
    if n_signals < 1:
        raise ValueError(f"n_signals={n_signals}: at least 1 signal is needed")
    w = torch.as_tensor(w).cpu()
    parts = w.reshape(-1, w.shape[-1]).split(GRAPHS_PER_SEED)
    chunks = Parallel(n_jobs)(
        delayed(_sample_moments)(part, n_signals, sigma2, child)
        for part, child in zip(parts, spawn(seed, len(parts)), strict=True)
    )
    m = count_nodes(w.shape[-1])
    return Observations(torch.cat(chunks).reshape(*w.shape[:-1], m, m), float(n_signals))


def bartlett(rng, n, m, n_signals):
    """Lower trapeziums A (n, m, k), k = min(m, N), for which A A' has the law of Z'Z, Z (N, m) standard normal.

    Normal below the diagonal; on it, the square roots of chi-squares with N, N - 1, ... degrees of freedom.
    """
    k = min(m, n_signals)
    A = np.tril(rng.standard_normal((n, m, k)), -1)
    A[:, np.arange(k), np.arange(k)] = np.sqrt(rng.chisquare(n_signals - np.arange(k), (n, k)))
    return A


def _sample_moments(w, n_signals, sigma2, seed):
    F = _covariance_factor(w, sigma2)
    n, m = F.shape[:2]
    if n_signals < m:  # as cheap, and the draws that the shipped networks learned from
        X = sample_signals(w, n_signals, sigma2, seed=seed)
        return X.mT @ X / n_signals
    B = F @ torch.from_numpy(bartlett(np.random.default_rng(seed), n, m, n_signals))
    return B @ B.mT / n_signals


def _covariance_factor(w, sigma2):
    """F with F F' = (L + sigma2 I)^-1."""
    if not sigma2 > 0:
        raise ValueError(f"sigma2={sigma2}: must be positive, a Laplacian alone has no inverse")
    w = torch.as_tensor(w).cpu().to(torch.float64)
    if not torch.isfinite(w).all() or (w < 0).any():
        raise ValueError("w must hold finite, non-negative edge weights")
    eye = torch.eye(count_nodes(w.shape[-1]), dtype=torch.float64)
    C = torch.linalg.cholesky(laplacian(w) + sigma2 * eye)
    return torch.linalg.solve_triangular(C.mT, eye.expand_as(C), upper=True)
