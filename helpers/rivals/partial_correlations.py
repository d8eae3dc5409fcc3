"""What most people would use: correlations and partial correlations, and a graph of those that are significant.

Everything is computed from second moments S (..., m, m) and the number of independent samples behind them. A graph has
the pairs that a t-test with the false discovery rate of Benjamini and Hochberg (1995) lets pass.
"""

import numpy as np
import torch
from scipy import stats

from ..graphs import to_vector
from .graphical_lasso import partial_correlations

RATE = 0.05  # of false discoveries
SINGULAR = 1e-10  # of the largest eigenvalue: what is smaller is zero


def correlations(S):
    """Matrices (..., m, m) of correlations."""
    S = torch.as_tensor(S).double()
    d = S.diagonal(dim1=-2, dim2=-1)
    if not (d > 0).all():
        raise ValueError("S has a variance that is not positive: leave constant columns out")
    return S / (d[..., :, None] * d[..., None, :]).sqrt()


def partial(S):
    """Partial correlations (..., E). Where S is singular, as for N <= m, those of its pseudo-inverse."""
    S = torch.as_tensor(S).double()
    return partial_correlations(torch.linalg.pinv(S, rtol=SINGULAR, hermitian=True))


def shrink(S, intensity):
    """Ledoit and Wolf (2004): (1 - a) S + a tr(S)/m I, for an intensity a (...) in [0, 1]."""
    S = torch.as_tensor(S).double()
    a = torch.as_tensor(intensity).to(S)[..., None, None]
    if not ((a >= 0) & (a <= 1)).all():
        raise ValueError(f"intensity={intensity}: between 0 and 1")
    variance = S.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    return (1 - a) * S + a * variance * torch.eye(S.shape[-1], dtype=S.dtype)


def discoveries(r, n_samples, n_others=0, rate=RATE):
    """Which correlations r (..., E), given `n_others` further columns, are significant: (..., E) bool.

    Under independence t = r sqrt(f / (1 - r^2)) has Student's law with f = N - 2 - n_others degrees of freedom. With
    less than one degree there is no test, and the graph is empty.
    """
    r = torch.as_tensor(r).double().abs().clamp(max=1)
    freedom = (torch.as_tensor(n_samples).double() - 2 - n_others)[..., None].expand_as(r)
    t = r * (freedom.clamp(min=1) / (1 - r**2).clamp(min=1e-300)).sqrt()
    p = np.where(freedom >= 1, 2 * stats.t.sf(t, freedom.clamp(min=1)), 1.0)
    return torch.from_numpy(stats.false_discovery_control(p, axis=-1) <= rate)


def correlation_graph(S, n_samples):
    """Correlations (..., E), and which of them make the graph, (..., E) bool."""
    r = to_vector(correlations(S))
    return r, discoveries(r, n_samples)


def partial_graph(S, n_samples):
    """Partial correlations (..., E), and which of them make the graph, (..., E) bool."""
    r = partial(S)
    return r, discoveries(r, n_samples, n_others=S.shape[-1] - 2)
