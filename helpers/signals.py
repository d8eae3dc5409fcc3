"""Smooth signals on graphs and what the methods see of them: y, the mean squared differences between nodes."""

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy import stats

from .graphs import CHUNK, laplacian, n_nodes, sample_graphs, spawn, to_matrix, to_vector

SPLITS = ("train", "val", "test")
CUT = 3.0  # robust standard deviations at which a difference is clipped
BLOCK = 2**22  # differences held at a time


def distances(X):
    """y_ij = mean over signals of (x_i - x_j)^2: (..., n_signals, m) -> (..., E), in the precision of X."""
    X = torch.as_tensor(X)
    if X.ndim < 2 or X.shape[-1] < 3:
        raise ValueError(f"X has shape {tuple(X.shape)}: (..., n_signals, n_nodes) with at least 3 nodes is needed")
    if not torch.isfinite(X).all():
        raise ValueError("X contains NaN or infinite values: remove or impute them first")
    X = X.to(torch.float64)  # S_ii + S_jj - 2 S_ij cancels
    if (X == X[..., :1, :]).all() or (X == X[..., :1]).all():
        raise ValueError("X is constant: signals that do not vary say nothing about a graph")
    X = X - X.mean(-1, keepdim=True)  # differences do not see the common mode; without it less cancels
    return covariance_distances(X.mT @ X / X.shape[-2])


def covariance_distances(S):
    """y_ij = S_ii + S_jj - 2 S_ij: (..., m, m) -> (..., E)."""
    d = S.diagonal(dim1=-2, dim2=-1)
    return to_vector(d[..., :, None] + d[..., None, :] - 2 * S).clamp_min(0)


def pair_distances(X, pairs, *, robust=False):
    """y of the pairs (2, E) only: X (n_signals, m) -> (E,) float64; robust: see `spread`."""
    X = np.ascontiguousarray(np.asarray(X, dtype=np.float64).T)
    blocks = np.array_split(np.asarray(pairs), -(-X.shape[1] * len(pairs[0]) // BLOCK), 1)
    return torch.from_numpy(np.concatenate([spread((X[i] - X[j]).T, robust=robust) ** 2 for i, j in blocks]))


def spread(D, *, robust=False):
    """Root mean square of each column; robust: of its entries clipped at 3 of what the median says it is.

    Both estimate the standard deviation of normal columns of mean 0. A column that is 0 more often than not has no
    median to clip by, and keeps the root mean square.
    """
    squares = D * D
    if robust:
        bound = CUT**2 * np.median(squares, 0) / stats.norm.ppf(0.75) ** 2
        kept = stats.chi2.cdf(CUT**2, 3) + CUT**2 * stats.chi2.sf(CUT**2, 1)  # E min(z^2, CUT^2), z normal
        squares = np.where(bound > 0, np.minimum(squares, bound) / kept, squares)
    return np.sqrt(squares.mean(0))


def standardised(X):
    """Signals (..., n_signals, m), an array, with mean 0 and variance 1 at every node."""
    X = np.asarray(X, dtype=np.float64)
    spread = X.std(-2, keepdims=True)
    if not (spread > 0).all():
        raise ValueError(f"X has {int((spread == 0).sum())} constant signals: leave those nodes out")
    return (X - X.mean(-2, keepdims=True)) / spread


def correlations(y):
    """Second moments of the standardised signals that have distances y, 1 - y/2: (..., E) -> (..., m, m)."""
    return 1 - to_matrix(y) / 2


def sample_signals(w, n_signals=3000, sigma2=1e-4, *, seed):
    """Signals x ~ N(0, (L + sigma2 I)^-1) of the paper's Eq. (8): (..., E) -> (..., n_signals, m) float64."""
    factor = _covariance_factor(w, sigma2)
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((*factor.shape[:-2], n_signals, factor.shape[-1]))
    return torch.from_numpy(z) @ factor.mT


def sample_covariances(w, n_signals=3000, sigma2=1e-4, *, seed, n_jobs=1):
    """Second moments S = X'X / N of `n_signals` signals, without drawing the signals: (n, E) -> (n, m, m) float64.

    N S follows the Wishart law with N degrees of freedom and scale Sigma = F F', so that with Bartlett's lower
    triangular A (chi-distributed diagonal, normal below) F A A' F' has exactly the law of X'X. Costs O(m^3) a graph
    instead of O(N m^2). Fewer signals than nodes have no Bartlett factor: the signals themselves are drawn.
    """
    if n_signals < 1:
        raise ValueError(f"n_signals={n_signals}: at least 1 signal is needed")
    w = torch.as_tensor(w).cpu()
    flat = w.reshape(-1, w.shape[-1])
    parts = flat.split(CHUNK)
    chunks = Parallel(n_jobs)(
        delayed(_second_moments)(part, n_signals, sigma2, child)
        for part, child in zip(parts, spawn(seed, len(parts)), strict=True)
    )
    m = n_nodes(w.shape[-1])
    return torch.cat(chunks).reshape(*w.shape[:-1], m, m)


def sample_distances(w, n_signals=3000, sigma2=1e-4, *, seed, n_jobs=1):
    """Distances y of `n_signals` smooth signals on each graph: (..., E) -> (..., E), in the precision of w."""
    w = torch.as_tensor(w)
    S = sample_covariances(w, n_signals, sigma2, seed=seed, n_jobs=n_jobs)
    return covariance_distances(S).to(w)


def sample_split(run, split, n, *, epoch=0, n_jobs=1):
    """Second moments (n, m, m) float64 and graphs (n, E) float32 of a run; what any model sees derives from these.

    The test set depends on neither the run's seed nor its model.
    """
    entropy = (0 if split == "test" else run.seed, SPLITS.index(split), epoch)
    graphs, signals = np.random.SeedSequence(entropy).spawn(2)
    w = sample_graphs(
        run.family, n, run.n_nodes, seed=graphs, weighted=run.weighted, shuffle=run.shuffle, n_jobs=n_jobs,
        **dict(run.params),
    )  # fmt: skip
    return sample_covariances(w, run.n_signals, run.sigma2, seed=signals, n_jobs=n_jobs), w


def _covariance_factor(w, sigma2):
    """F with F F' = (L + sigma2 I)^-1."""
    if not sigma2 > 0:
        raise ValueError(f"sigma2={sigma2}: must be positive, a Laplacian alone has no inverse")
    w = torch.as_tensor(w).cpu().to(torch.float64)
    if not torch.isfinite(w).all() or (w < 0).any():
        raise ValueError("w must hold finite, non-negative edge weights")
    eye = torch.eye(n_nodes(w.shape[-1]), dtype=torch.float64)
    C = torch.linalg.cholesky(laplacian(w) + sigma2 * eye)
    return torch.linalg.solve_triangular(C.mT, eye.expand_as(C), upper=True)


def _second_moments(w, n_signals, sigma2, seed):
    F = _covariance_factor(w, sigma2)
    n, m = F.shape[:2]
    if n_signals < m:
        X = sample_signals(w, n_signals, sigma2, seed=seed)
        return X.mT @ X / n_signals
    rng = np.random.default_rng(seed)
    A = np.tril(rng.standard_normal((n, m, m)), -1)
    A[:, np.arange(m), np.arange(m)] = np.sqrt(rng.chisquare(n_signals - np.arange(m), (n, m)))
    B = F @ torch.from_numpy(A)
    return B @ B.mT / n_signals
