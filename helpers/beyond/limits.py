"""What no estimator can beat on the synthetic graphs: how much N signals tell about edge weights.

Signals x ~ N(0, K^-1), K = L(w) + sigma2 I. All references here are told which edges exist, the support, which an
estimator has to find out: they bound it from below. Everything is computed in float64 on the device of its input.
"""

import math

import torch

from ..graphs import all_pairs, count_nodes, laplacian
from .likelihood import cross_differences, log_likelihood

WEIGHT_SD = 0.1  # of the generator's log-weights, two of which are averaged
LOG_SD = math.log1p(math.expm1(WEIGHT_SD**2) / 2) ** 0.5  # of the lognormal with the moments of that average


def fisher_information(w, n_signals=3000, sigma2=1e-4, *, support=None):
    """I_ab = N/2 (b_a' K^-1 b_b)^2, b_a = e_i - e_j, of one graph: w (E,) -> (k, k).

    support : (E,) bool, the k edges whose weights are free; those with w > 0 by default.
    """
    support = w > 0 if support is None else support
    return n_signals / 2 * cross_resistances(w.double(), support, sigma2) ** 2


def cross_resistances(w, support, sigma2):
    """b_a' K^-1 b_b for all pairs of edges on the support: w (E,), support (E,) bool -> (k, k)."""
    m = count_nodes(w.shape[-1])
    Sigma = torch.linalg.inv(laplacian(w) + sigma2 * torch.eye(m, dtype=w.dtype, device=w.device))
    return cross_differences(Sigma, all_pairs(m, w.device)[:, support])


def cramer_rao(w, n_signals=3000, sigma2=1e-4):
    """Least GMSE of unbiased estimators that know the support, tr I^-1 / ||w||^2: (..., E) -> (...)."""
    w = torch.as_tensor(w).double()
    flat = w.reshape(-1, w.shape[-1])
    traces = [torch.linalg.inv(fisher_information(row, n_signals, sigma2)).trace() for row in flat]
    return (torch.stack(traces) / flat.square().sum(-1)).reshape(w.shape[:-1])


def best_constant(w):
    """GMSE of the best constant on the true support, 1 - (sum w)^2 / (|E| ||w||^2): (..., E) -> (...).

    It needs no signals at all: the generator's weights hardly vary.
    """
    w = torch.as_tensor(w).double()
    return 1 - w.sum(-1) ** 2 / ((w > 0).sum(-1) * w.square().sum(-1))


def bayes_reference(y, support, n_signals=3000, sigma2=1e-4, *, n_samples=0, seed=0):
    """Posterior mean of the weights given the true support and the generator's law of weights: (..., E) -> (..., E).

    That law is w = m/2 v / sum(v) on the support, v lognormal. In u = log v the posterior is nearly Gaussian.

    Parameters
    ----------
    y, support : (..., E), distances (or Observations) and where edges are (bool)
    n_samples : 0 takes the mode (Laplace's approximation); else so many draws from its Gaussian, weighted by the ratio
        of the true posterior to it, which has the posterior mean as its limit
    """
    y = torch.as_tensor(getattr(y, "distances", y)).double()
    support = torch.as_tensor(support)
    if support.dtype != torch.bool or support.shape != y.shape:
        raise ValueError(f"support has shape {tuple(support.shape)}, {support.dtype}: bool of y's {tuple(y.shape)}")
    generator = torch.Generator().manual_seed(seed)
    answer = torch.zeros_like(y).reshape(-1, y.shape[-1])
    for row, y_row, s in zip(answer, y.reshape(answer.shape), support.reshape(answer.shape), strict=True):
        if s.any():
            row[s] = _posterior_mean(y_row, s, n_signals, sigma2, n_samples, generator)
    return answer.reshape(y.shape)


def _posterior_mean(y, support, n_signals, sigma2, n_samples, generator):
    u, H = _mode(y, support, n_signals, sigma2)
    m = count_nodes(len(y))
    if not n_samples:
        return _weights(u, m)
    C = torch.linalg.cholesky(H)
    z = torch.randn(n_samples, len(u), generator=generator, dtype=u.dtype).to(u.device)  # the same on every device
    draws = u + torch.linalg.solve_triangular(C.mT, z.T, upper=True).T
    ratio = z.square().sum(-1) / 2 - _energy(draws, y, support, n_signals, sigma2)
    return ratio.softmax(0) @ _weights(draws, m)


def _weights(u, m):
    """Mean degree 1 fixes the sum: (..., k) -> (..., k)."""
    return m / 2 * u.softmax(-1)


def _on_support(s, support):
    """Weights s (..., k) of the free edges as a half-vector (..., E)."""
    w = s.new_zeros(*s.shape[:-1], len(support))
    w[..., support] = s
    return w


def _energy(u, y, support, n_signals, sigma2):
    """Minus the log-posterior of u (..., k), up to a constant: (...)."""
    w = _on_support(_weights(u, count_nodes(len(y))), support)
    prior = u.square().sum(-1) / (2 * LOG_SD**2)
    return prior - n_signals * log_likelihood(w, y, sigma2=sigma2)


def _mode(y, support, n_signals, sigma2, *, tol=1e-10, n_iter=50):
    """Mode u (k,) of the posterior by Newton steps with halving, and the Hessian (k, k) there (Gauss-Newton)."""
    m = count_nodes(len(y))
    u = y.new_zeros(int(support.sum()))
    precision = torch.eye(len(u), dtype=y.dtype, device=y.device) / LOG_SD**2  # of the prior
    for _ in range(n_iter):
        s = _weights(u, m)
        R = cross_resistances(_on_support(s, support), support, sigma2)
        J = torch.diag(s) - torch.outer(s, s) * 2 / m  # dw/du
        H = n_signals / 2 * J @ R**2 @ J + precision
        g = n_signals / 2 * J @ (y[support] - R.diagonal()) + precision @ u
        step = torch.linalg.solve(H, g)
        if g @ step < tol:
            break
        energy = _energy(u, y, support, n_signals, sigma2)
        t = 1.0
        while t > 1e-6 and not _energy(u - t * step, y, support, n_signals, sigma2) < energy:
            t /= 2
        u = u - t * step
    return u, H
