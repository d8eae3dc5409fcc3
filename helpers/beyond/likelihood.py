"""Maximum likelihood of a graph's Laplacian, from the same distances that Eq. (4) sees.

Signals x ~ N(0, (L + sigma2 I)^-1), the paper's Eq. (9), have the log-likelihood, per signal and without the constant
part of x, of which distances know nothing,

    ( logdet(L + sigma2 P + 11'/m) - w'y - sigma2 sum(y) / m ) / 2,    P = I - 11'/m,

up to a constant. Its gradient compares y with the effective resistances r of the graph: r <= y at the maximum, and
r = y on every edge. Half-vectors (..., E) belong to the complete graph or, with `edges` (2, E) and `n_nodes`, to a list
of candidate edges, which stays on the CPU. Float64 inside.
"""

import math
import warnings
from dataclasses import dataclass

import torch
from sklearn.exceptions import ConvergenceWarning

from ..engine.linear_systems import conjugate_gradients
from ..engine.problem import check_distances
from ..graphs import all_pairs, count_nodes, differences, laplacian, to_matrix, to_vector
from ..solvers import REMEDY, Certificate, bounds_if
from .atom_lists import ListAtoms, components, likely_atoms, resistances

NEGLIGIBLE = 1e-6  # of the largest weight: what is smaller counts as no edge
RIDGE = 1e-9  # of the median distance, where there is no inverse without
ENTRIES_AT_ONCE = 2**16  # of matrices that the interior-point method works on together


# --- likelihood, scale ----------------------------------------------------------------------------------------------


def log_likelihood(w, y, *, sigma2=0.0):
    """Mean log-likelihood per signal, as at the top of this file, with its constant: (..., E), (..., E) -> (...).

    sigma2 : a number >= 0 or (...)
    """
    m = count_nodes(w.shape[-1])
    _, logdet = _covariance(w, sigma2)
    return (logdet - (w * y).sum(-1) - sigma2 * y.sum(-1) / m - (m - 1) * math.log(2 * math.pi)) / 2


def likely_scale(w, y, rank):
    """The factor (...) that gives w (..., E) its most likely scale: rank / w'y.

    `rank` is that of the Laplacian, m less the number of components. By Foster's theorem w'r = rank for every graph,
    and y measures r without bias.
    """
    return rank / (w * y).sum(-1)


def is_edge(w):
    """Where weights (E,) of one graph are not negligible."""
    return w > NEGLIGIBLE * w.max()


def most_likely(w, y, edges, m):
    """One graph w (E,) with its most likely scale, w'y = m - number of components, on all pairs, `edges` = None, or on
    a list; a graph that does not tell (w'y = 0) stays."""
    n_components = components(w, all_pairs(m) if edges is None else edges, m).max().item() + 1
    return w * likely_scale(w, y, m - n_components) if w @ y > 0 else w


def laplacian_log_likelihood(L, y, sigma2):
    """`log_likelihood`, from a Laplacian (m, m), and for two nodes, too."""
    w = -to_vector(L)
    if len(w) > 1:
        return log_likelihood(w, y, sigma2=sigma2)
    (edge,), (distance,) = w, y
    precision = 2 * edge + sigma2  # of (x_0 - x_1) / sqrt(2), whose mean square is distance / 2
    return (precision.log() - precision * distance / 2 - math.log(2 * math.pi)) / 2


def unit_scale(y, w=None, n_nodes=None):
    """The factor (...) by which y (..., E) is multiplied before a network sees it that learned on mean degrees of 1.

    The most likely graph obeys w(c y) = w(y) / c, so with c its mean degree at y, c y is what signals on a graph of
    mean degree 1 look like: units of the signals then do not matter. `w` replaces the most likely graph by another one,
    at its most likely scale; it must be connected, and may live on a list of edges among `n_nodes`.
    """
    m = n_nodes or count_nodes(y.shape[-1])
    w = laplacian_mle(y) if w is None else w * likely_scale(w, y, m - 1)[..., None]
    return 2 * w.sum(-1) / m


def _covariance(w, sigma2):
    """Sigma = (L + sigma2 P + 11'/m)^-1 (..., m, m) and the logarithm of the determinant of its inverse (...).

    Where there is no inverse, as for a disconnected graph and sigma2 = 0, Sigma = I and logdet = -inf.
    """
    sigma2 = torch.as_tensor(sigma2, dtype=w.dtype, device=w.device)[..., None, None]
    if not ((sigma2 >= 0) & sigma2.isfinite()).all():
        raise ValueError(f"sigma2={sigma2.squeeze().tolist()}: a finite variance >= 0 is needed")
    L = laplacian(w)
    eye = torch.eye(L.shape[-1], dtype=w.dtype, device=w.device)
    C, failed = torch.linalg.cholesky_ex(L + sigma2 * eye + (1 - sigma2) / len(eye))
    diagonal = C.diagonal(dim1=-2, dim2=-1)
    failed = (failed > 0) | (diagonal < 1e-150).any(-1)
    Sigma = torch.cholesky_inverse(torch.where(failed[..., None, None], eye, C))
    return Sigma, torch.where(failed, -torch.inf, 2 * diagonal.log().sum(-1))


def cross_differences(Sigma, edges):
    """b_a'Sigma b_c, b = e_i - e_j, for every two of the edges (2, k): (m, m) -> (k, k)."""
    i, j = edges
    B = Sigma[i] - Sigma[j]
    return B[:, i] - B[:, j]


# --- effective resistances ------------------------------------------------------------------------------------------


@torch.no_grad()
def effective_resistances(w, edges=None, n_nodes=None, *, n_probes=None, seed=0, tol=1e-2):
    """Effective resistances r_ij = b'L^+ b between the ends of all edges: w (..., E) -> (..., E).

    Parameters
    ----------
    w : positive for the complete graph; >= 0 on a list, where r is infinite between components
    n_probes, seed, tol : on a list, see `atom_lists.resistances`: None inverts a matrix, and beyond 2,000 nodes takes
        256 random projections
    """
    if edges is None:
        return differences(_covariance(w.double(), 0.0)[0]).to(w)
    w = torch.as_tensor(w).detach().double()
    atoms = ListAtoms(w, torch.zeros_like(w), w.new_zeros(n_nodes))
    r = resistances(atoms, edges, n_probes=n_probes, seed=seed, tol=tol).difference
    component = components(w, edges, n_nodes)
    return torch.where(component[edges[0]] == component[edges[1]], r, torch.inf)


# --- approximate maximum likelihood ---------------------------------------------------------------------------------


@torch.no_grad()
def multiplicative_updates(w, y, n_updates):
    """`n_updates` of w <- w r / y, and the resistances r of the result: (..., E), (..., E) -> two (..., E).

    In x = w y this is Titterington's update for D-optimal designs: it keeps w'y = m - 1 and never decreases the
    likelihood. Weights of edges that the maximum does not have vanish only slowly.
    """
    for _ in range(n_updates):
        w = w * effective_resistances(w) / y
    return w, effective_resistances(w)


@torch.no_grad()
def approximate_mle(y, n_updates=10, *, edges=None, n_nodes=None, n_probes=None, seed=0, progress=False):
    """Approximate Laplacian maximum likelihood and its resistances: y > 0 (..., E) -> w > 0 and r, each (..., E).

    `multiplicative_updates` from the clipped inverse covariance or, on a list of candidates (E,), which has none, the
    relaxed ones of `atom_lists.likely_atoms`; beyond 2,000 nodes r is sketched there.
    """
    y = check_distances(y, edges).double()
    if not (y > 0).all():
        raise ValueError("y has a zero: for two nodes that always agree the most likely weight is infinite")
    if edges is None:
        unit = y.median(-1, keepdim=True).values
        w, r = multiplicative_updates(_clipped_inverse(y / unit), y / unit, n_updates)
        return w / unit, r * unit
    moments = ListAtoms(y, None, None)
    w, r = likely_atoms(moments, edges, n_nodes, n_updates, n_probes=n_probes, seed=seed, progress=progress)
    return w.difference, r.difference


def _clipped_inverse(y):
    """The inverse covariance of signals with distances y, off-diagonal entries where positive, else little."""
    m = count_nodes(y.shape[-1])
    Y = to_matrix(y)
    S = -0.5 * (Y - Y.mean(-1, keepdim=True) - Y.mean(-2, keepdim=True) + Y.mean((-2, -1), keepdim=True))
    inverse, failed = torch.linalg.inv_ex(S + 1 / m)
    if failed.any():  # copies of a column, which are infinitely connected, in exact numbers
        ridge = RIDGE * torch.eye(m, dtype=S.dtype, device=S.device)
        inverse = torch.where((failed > 0)[..., None, None], torch.linalg.inv(S + 1 / m + ridge), inverse)
    return torch.maximum(1 / m - to_vector(inverse), 0.01 / (m * y))


# --- maximum likelihood ---------------------------------------------------------------------------------------------


@torch.no_grad()
def laplacian_mle(y, *, sigma2=0.0, tol=1e-9, n_iter=60, path=False):
    """Laplacian-constrained maximum likelihood: min over w >= 0 of w'y - logdet(L(w) + sigma2 P + 11'/m).

    No hyper-parameter; exists for any number of signals if all y > 0. A primal-dual interior-point method (Mehrotra's
    predictor-corrector) in x = w y and a slack s, which tends to 1 - r/y.

    Parameters
    ----------
    y : (..., E) or Observations, positive; sigma2 : noise variance >= 0.
    tol : KKT residual max |min(w y, 1 - r/y)|; a ConvergenceWarning if not met within `n_iter` iterations.
    path : return the iterates (..., T, E) instead of the last, (..., E).
    """
    y = check_distances(y)
    if not (y > 0).all():
        raise ValueError("y has a zero: for two nodes that always agree the most likely weight is infinite")
    flat = y.double().reshape(-1, y.shape[-1])
    at_once = len(flat) if path else max(1, ENTRIES_AT_ONCE // count_nodes(y.shape[-1]) ** 2)
    w, kkt = zip(*(interior_point(part, Laplacians(sigma2), tol, n_iter, path) for part in flat.split(at_once)))
    w = torch.cat(w)
    warn_if_above(tol, torch.cat(kkt), n_iter)
    return w.reshape(*y.shape[:-1], *w.shape[1:]).to(y.dtype)


def warn_if_above(tol, kkt, n_iter):
    """A ConvergenceWarning if a KKT residual (b,) is above `tol`."""
    worst = kkt.max().item()
    if not worst <= tol:
        text = f"KKT residual {worst:.1e} after {n_iter} iterations, above tol={tol:g}{REMEDY}"
        warnings.warn(text, ConvergenceWarning, stacklevel=4)


@dataclass(frozen=True)
class Laplacians:
    """The linear maps between weights w (..., E) of differences and matrices, as `interior_point` needs them."""

    sigma2: float = 0.0

    def covariance(self, w):
        return _covariance(w, self.sigma2)

    def matrix(self, w):
        return laplacian(w)

    def moments(self, S):
        return differences(S)

    def cross_moments(self, S):
        """u_a'S u_c for every two atoms: (m, m) -> (E, E)."""
        return cross_differences(S, all_pairs(S.shape[-1], S.device))


def interior_point(y, design, tol, n_iter, path=False):
    """The MLE for y (b, A): w (b, A) or its path (b, T, A), and the KKT residuals (b,).

    design : the atoms u whose weights are sought: the matrix sum w_u u u', its inverse, and u'S u; see `Laplacians`
    """
    m = design.covariance(y)[0].shape[-1]
    x = torch.full_like(y, (m - 1) / y.shape[-1])  # leverages add up to the rank, nearly
    s = torch.ones_like(y)
    iterates = []
    for _ in range(n_iter):
        Sigma, _ = design.covariance(x / y)
        g = 1 - design.moments(Sigma) / y  # gradient of the objective in x
        kkt = torch.minimum(x, g).abs().amax(-1)
        if path:
            iterates.append(x / y)
        if not (kkt > tol).any():
            break
        dx = _newton_system(design, Sigma, y, s / x, -g)  # predictor: aim at x s = 0
        ds = -s - s / x * dx
        mu = (x * s).mean(-1, keepdim=True)
        reached = ((x + _stride(x, dx) * dx) * (s + _stride(s, ds) * ds)).mean(-1, keepdim=True)
        target = mu * (reached / mu) ** 3 - dx * ds  # corrector: aim at x s = target
        dx = _newton_system(design, Sigma, y, s / x, target / x - g)
        ds = (target - s * dx) / x - s
        x, s = x + _stride(x, dx) * dx, s + _stride(s, ds) * ds
    w = torch.where((x < s) & (x < tol), 0, x) / y
    return torch.stack(iterates, 1) if path else w, kkt


def _stride(x, dx):
    """The largest step <= 1 that keeps 0.5 % of x."""
    return 0.995 / (-dx / x).amax(-1, keepdim=True).clamp_min(0.995)


def _newton_system(design, Sigma, y, ratio, rhs, *, tol=0.01):
    """Solve (H + diag(ratio)) z = rhs, H_ac = (u_a'Sigma u_c)^2 / (y_a y_c), for each row of rhs (b, A).

    By conjugate gradients, since H p = u'Sigma K(p/y) Sigma u / y needs only m x m products. Rows that stay unsolved
    (almost unconnected components make H ill-conditioned) get a Cholesky factor, where there are few enough edges.
    """

    def apply(p):
        return design.moments(Sigma @ design.matrix(p / y) @ Sigma) / y + ratio * p

    scale = 1 / ((design.moments(Sigma) / y) ** 2 + ratio)  # 1 / diagonal
    few = y.shape[-1] <= 2000
    z, unsolved = conjugate_gradients(apply, rhs, scale, tol=tol, n_iter=40 if few else 1000)
    for row in torch.nonzero(unsolved[:, 0] & few)[:, 0]:
        f = scale[row].sqrt()
        H = design.cross_moments(Sigma[row]) ** 2 * (f / y[row])[:, None] * (f / y[row])
        C = torch.linalg.cholesky(H.fill_diagonal_(1 + 1e-9))  # sums and differences may make H singular
        z[row] = f * torch.cholesky_solve((f * rhs[row])[:, None], C)[:, 0]
    return z


@torch.no_grad()
def mle_certificate(w, y, *, sigma2=0.0):
    """Primal and dual value, relative gap and KKT residual of any w (..., E) for `laplacian_mle`, in float64.

    With c = min(y / r), X = c Sigma on the complement of the constants is feasible for the dual, the maximum
    of m - 1 + logdet X - sigma2 tr X over b'X b <= y. `gap` is relative to m - 1, which is w'y at the optimum
    for sigma2 = 0; `kkt` is max |min(w y, 1 - r/y)|. A negative weight, or a disconnected graph for
    sigma2 = 0, is infeasible: primal, gap and kkt are infinite.
    """
    y = check_distances(y).double()
    w = torch.as_tensor(w).to(y)
    Sigma, logdet = _covariance(w, sigma2)
    r = differences(Sigma)
    m = Sigma.shape[-1]
    trace = Sigma.diagonal(dim1=-2, dim2=-1).sum(-1) - 1  # without the constants
    c = (y / r).amin(-1)
    feasible = (w >= 0).all(-1) & (r > 0).all(-1) & logdet.isfinite()
    wy = (w * y).sum(-1)
    gap = wy - (m - 1) * (1 + c.log()) + c * sigma2 * trace
    kkt = torch.minimum(w * y, 1 - r / y).abs().amax(-1)
    return Certificate(*bounds_if(feasible, wy - logdet, wy - logdet - gap, gap / (m - 1), kkt))
