"""Graphs of many thousand nodes: a list of candidate edges stands in for the complete graph.

A half-vector has m(m-1)/2 entries, a real graph a few m. Here `edges` (2, E) lists the pairs that may become edges,
found by nearest-neighbour search, and y, w (E,) live on that list: nothing of size m x m ever exists. Every solution
and every certificate is that of Eq. (4) *restricted* to the candidates. Tensors on the CPU, float64 inside.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors

from .graphs import degrees, degrees_adjoint
from .solvers import Certificate, _warn, certificate, check_problem, pds_step

EXACT_SEARCH = 10_000  # up to so many nodes all distances are looked at, in slices
PROBES = 16  # right-hand sides solved at a time


# --- candidates -------------------------------------------------------------------------------------------------------


def candidate_edges(X, n_candidates, *, seed=0, n_jobs=1):
    """Pairs of nodes worth a weight: each node with its `n_candidates` nearest, symmetrised.

    Parameters
    ----------
    X : (n_signals, n_nodes), finite; the nodes are the points that are searched, columns of X.
    n_candidates : int, about three times the wished degree; a node may end up in more pairs, as a neighbour of others.
    seed : of the approximate search (an inverted file of faiss), used above 10,000 nodes; below, the search is exact.
    n_jobs : threads of the search.

    Returns
    -------
    edges : (2, E) int64, edges[0] < edges[1], sorted by row, then column, each pair once
    y : (E,) float64, mean over signals of (x_i - x_j)^2

    Identical nodes are neighbours at y = 0, which is no problem for the solvers; more than `n_candidates` copies of one
    node see only each other.
    """
    points = _points(X)
    m = len(points)
    if not 1 <= n_candidates <= m - 1:
        raise ValueError(f"n_candidates={n_candidates}: between 1 and n_nodes - 1 = {m - 1}")
    near = _search(points, n_candidates, seed, n_jobs)
    own = near == np.arange(m)[:, None]  # among copies, a node need not find itself first, or at all
    own[~own.any(1), -1] = True
    i, column = np.nonzero(~own & (near >= 0))
    j = near[i, column]
    keys = np.unique(np.minimum(i, j) * m + np.maximum(i, j))
    edges = np.stack(np.divmod(keys, m))
    y = np.empty(len(keys))
    _mean_squared_differences(points, *edges, y)
    return torch.from_numpy(edges), torch.from_numpy(y)


def _points(X):
    """X (n_signals, m) as points (m, n_signals), each signal centred; or ValueError."""
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] < 3:
        raise ValueError(f"X has shape {X.shape}: (n_signals, n_nodes) with at least 3 nodes is needed")
    bad = np.flatnonzero(~np.isfinite(X).all(0))
    if len(bad):
        raise ValueError(f"X has NaN or infinite values at {len(bad)} nodes, first {bad[:5].tolist()}: remove them")
    X = X if X.dtype == np.float32 else X.astype(np.float64, copy=False)
    points = np.subtract(X.T, X.mean(1, dtype=np.float64), dtype=X.dtype, order="C")
    if not points.any():
        raise ValueError("X is constant over the nodes: such signals say nothing about a graph")
    return points


def _search(points, k, seed, n_jobs):
    """The k + 1 points nearest to each, itself among them, (m, k + 1); -1 where the approximate search found fewer."""
    m, n = points.shape
    if m <= EXACT_SEARCH:
        search = NearestNeighbors(n_neighbors=k + 1, algorithm="brute", n_jobs=n_jobs).fit(points)
        return search.kneighbors(points, return_distance=False)
    try:
        import faiss
    except ImportError:
        raise ImportError(f"a search among {m} nodes needs faiss: pip install 'l2g-reproduction[large]'") from None
    faiss.omp_set_num_threads(n_jobs)
    points = points.astype(np.float32, copy=False)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(n), n, int(4 * math.sqrt(m)))
    index.cp.seed, index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = seed, 1, 64
    index.nprobe = max(8, math.ceil(32 * k / math.sqrt(m)))  # of the cells, sqrt(m)/4 points each: 8k points or more
    index.train(points)
    index.add(points)
    return index.search(points, k + 1)[1]


@njit(cache=True)
def _mean_squared_differences(points, heads, tails, y):
    n = points.shape[1]
    for e in range(len(y)):
        a, b, total = points[heads[e]], points[tails[e]], 0.0
        for k in range(n):
            total += (np.float64(a[k]) - np.float64(b[k])) ** 2
        y[e] = total / n


# --- exact solution ---------------------------------------------------------------------------------------------------


@njit(cache=True)
def _dual(heads, tails, y, lam, d):
    """Fill d = D w, w = relu(l_i + l_j - 2y) / 2; returns the dual objective to minimise and the size of its terms."""
    d[:] = 0
    quadratic, log, size = 0.0, 0.0, 0.0
    for e in range(len(y)):
        i, j = heads[e], tails[e]
        r = lam[i] + lam[j] - 2 * y[e]
        if r > 0:
            quadratic += r * r
            d[i] += r / 2
            d[j] += r / 2
    for x in lam:
        log += np.log(x)
        size += abs(np.log(x))
    return quadratic / 4 - log, quadratic / 4 + size


@njit(cache=True)
def _relative_gap(heads, tails, y, lam, d):
    """Duality gap of w(l) and the dual point 1 / (D w), over m, as in `solvers.certificate`; and the active edges."""
    gap, n_active = 0.0, 0
    for e in range(len(y)):
        i, j = heads[e], tails[e]
        w = max(lam[i] + lam[j] - 2 * y[e], 0.0) / 2
        s = (1 / d[i] + 1 / d[j] - 2 * y[e]) if d[i] > 0 and d[j] > 0 else np.inf
        gap += (w - max(s, 0.0) / 2) ** 2 + w * max(-s, 0.0)
        n_active += w > 0
    return gap / len(lam), n_active


@njit(cache=True)
def _newton_step(heads, tails, diagonal, gradient, tol):
    """Solve (half the signless Laplacian of the active edges + diagonal) x = -gradient by conjugate gradients."""
    m = len(gradient)
    scale = diagonal.copy()
    for e in range(len(heads)):
        scale[heads[e]] += 0.5
        scale[tails[e]] += 0.5
    x, r, Hp = np.zeros(m), -gradient, np.empty(m)
    p = r / scale
    rr = np.dot(r, p)
    stop = tol * tol * rr
    for _ in range(1000):
        if rr <= stop:
            break
        Hp[:] = diagonal * p
        for e in range(len(heads)):
            i, j = heads[e], tails[e]
            half = (p[i] + p[j]) / 2
            Hp[i] += half
            Hp[j] += half
        a = rr / np.dot(p, Hp)
        rr_old, rr = rr, 0.0
        for i in range(m):
            x[i] += a * p[i]
            r[i] -= a * Hp[i]
            rr += r[i] * r[i] / scale[i]
        for i in range(m):
            p[i] = r[i] / scale[i] + rr / rr_old * p[i]
    return x


@njit(cache=True)
def _dual_newton(heads, tails, y, lam, tol, n_iter):
    """Minimise sum_e relu(l_i + l_j - 2y)^2 / 4 - sum_i log l_i from `lam`, in place; returns the relative gap.

    The semi-smooth Newton method of `solvers.exact`, whose m x m system is solved by conjugate gradients, as
    accurately as the gap asks for.
    """
    d, new_d = np.empty_like(lam), np.empty_like(lam)
    value, size = _dual(heads, tails, y, lam, d)
    gap = np.inf
    for _ in range(n_iter):
        gap, n_active = _relative_gap(heads, tails, y, lam, d)
        if gap <= tol:
            break
        i, j, n = np.empty(n_active, heads.dtype), np.empty(n_active, heads.dtype), 0
        for e in range(len(y)):
            if lam[heads[e]] + lam[tails[e]] > 2 * y[e]:
                i[n], j[n] = heads[e], tails[e]
                n += 1
        gradient = d - 1 / lam
        step = _newton_step(i[:n], j[:n], lam**-2, gradient, max(min(0.1, math.sqrt(gap)), 1e-8))
        slope, t = np.dot(gradient, step), 0.9 / max((-step / lam).max(), 0.9)  # l stays positive
        for _ in range(40):
            new = lam + t * step
            new_value, new_size = _dual(heads, tails, y, new, new_d)
            if new_value <= value + 1e-4 * t * slope + 1e-13 * size:
                break
            t /= 2
        lam[:], d[:], value, size = new, new_d, new_value, new_size
    return gap


def _start(y, edges, n_nodes):
    """Dual variables as if every node had one neighbour only, the nearest, and that one the same degree."""
    near = torch.full((n_nodes,), torch.inf, dtype=y.dtype)
    near = near.scatter_reduce(0, edges[0], y, "amin").scatter_reduce(0, edges[1], y, "amin")
    return (near + (near * near + 4).sqrt()) / 2


def _check(y, edges, n_nodes):
    """y (E,) float64 and edges (2, E) int64, contiguous; ValueError for what is not a list of candidates."""
    edges, y = torch.as_tensor(edges).to(torch.int64).contiguous(), torch.as_tensor(y).to(torch.float64).contiguous()
    if edges.ndim != 2 or len(edges) != 2 or y.shape != edges.shape[1:]:
        raise ValueError(f"edges {tuple(edges.shape)} and y {tuple(y.shape)}: shapes (2, E) and (E,) are needed")
    if not (edges[0] < edges[1]).all() or edges.min() < 0 or edges.max() >= n_nodes:
        raise ValueError(f"edges: 0 <= edges[0] < edges[1] < n_nodes = {n_nodes} is needed")
    isolated = torch.nonzero(torch.bincount(edges.flatten(), minlength=n_nodes) == 0)[:, 0]
    if len(isolated):
        raise ValueError(
            f"edges: {len(isolated)} nodes have no candidate, first {isolated[:5].tolist()}: "
            "Eq. (4) gives every node a neighbour; leave them out or add candidates"
        )
    check_problem(y, 1.0, 1.0, edges)
    return y, edges


def _solve(y, edges, lam, tol, n_iter=200):
    gap = _dual_newton(*edges.numpy(), y.numpy(), lam.numpy(), tol, n_iter)
    if not gap <= tol:
        _warn(f"relative gap {gap:.1e} after {n_iter} iterations, above tol={tol:g}")
    return degrees_adjoint(lam, edges).sub_(2 * y).relu_() / 2


@torch.no_grad()
def exact(y, edges, n_nodes, alpha=1.0, beta=1.0, *, tol=1e-20):
    """`solvers.exact` on candidates: w (E,) for y (E,) to a relative gap `tol` of the restricted problem."""
    y, edges = _check(y, edges, n_nodes)
    y, alpha, beta = check_problem(y, alpha, beta, edges)
    y = y * (alpha * beta).rsqrt()
    return _solve(y, edges, _start(y, edges, n_nodes), tol) * (alpha / beta).sqrt()


class Learned(NamedTuple):
    """Weights (E,), theta, and the certificate of the restricted problem for theta y, alpha = beta = 1."""

    w: torch.Tensor
    theta: float
    certificate: Certificate


@torch.no_grad()
def learn_edges(y, edges, n_nodes, *, average_degree=4, tol=1e-6, degree_tol=0.02):
    """`solvers.learn` on candidates: a graph of a wished density.

    Parameters
    ----------
    y, edges : (E,) and (2, E), see `candidate_edges`
    average_degree : edges a node, weights above 1e-6 of the largest, met up to a relative `degree_tol`
    tol : relative duality gap of the restricted problem

    Returns
    -------
    Learned, a tuple (w, theta, certificate)
    """
    return path(y, edges, n_nodes, degrees=(average_degree,), tol=tol, degree_tol=degree_tol)[0]


@torch.no_grad()
def path(y, edges, n_nodes, *, degrees=(2, 3, 5, 8, 12, 20, 30), tol=1e-6, degree_tol=0.02):
    """Graphs of several densities, each solve started from the one before: a list of `Learned`, see `learn_edges`."""
    y, edges = _check(y, edges, n_nodes)
    limit = 2 * len(y) / n_nodes
    for wished in degrees:
        if not 1 <= wished <= limit:
            raise ValueError(
                f"average_degree={wished}: between 1 and 2E/n_nodes = {limit:.3g}, all candidates; take more candidates"
            )
    theta = 1 / y.mean().item()
    lam, seen, found = _start(theta * y, edges, n_nodes), {}, []
    for wished in degrees:
        for _ in range(40):
            if seen:
                theta, old = math.exp(_next_log_theta(seen, math.log(wished))), theta
                lam *= theta / old  # keeps the active edges
            w = _solve(theta * y, edges, lam, tol)
            seen[math.log(theta)] = degree = 2 * (w > 1e-6 * w.max()).sum().item() / n_nodes
            if abs(degree - wished) <= max(degree_tol * wished, 1 / n_nodes):
                break
        else:
            _warn(f"average_degree={wished} is not reached, the last seen is {degree:.3g}")
        found.append(Learned(w, theta, certificate(w, theta * y, edges=edges, n_nodes=n_nodes)))
    return found


def _next_log_theta(seen, target):
    """Where log degree, which falls with log theta, should meet `target`, given {log theta: degree}."""
    x = sorted(seen)
    f = [math.log(seen[k]) - target for k in x]
    k = sum(value > 0 for value in f)  # so many are too dense
    if 0 < k < len(x):
        share = f[k - 1] / (f[k - 1] - f[k])
        return x[k - 1] + min(max(share, 0.1), 0.9) * (x[k] - x[k - 1])
    end, other = (0, 1) if k == 0 else (-1, -2)
    flat = len(x) < 2 or f[end] == f[other]
    slope = 1.0 if flat else min(max((x[other] - x[end]) / (f[end] - f[other]), 0.5), 2.0)
    return x[end] + min(max(1.1 * slope * f[end], -2.0), 2.0) + math.copysign(0.01, f[end])


@torch.no_grad()
def pds(y, edges, n_nodes, alpha=1.0, beta=1.0, *, gamma=None, n_iter=20_000, tol=1e-6):
    """`solvers.pds` on candidates, y (E,) -> w (E,), same stopping rule and warning."""
    y, edges = _check(y, edges, n_nodes)
    y, alpha, beta = check_problem(y, alpha, beta, edges)
    gamma = 0.9 / (2 * beta + norm_bound(edges, n_nodes)) if gamma is None else gamma
    w, v = torch.zeros_like(y), y.new_zeros(n_nodes)
    for _ in range(n_iter):
        old = w
        w, v = pds_step(w, v, y, alpha, beta, gamma, operators=_operators(edges, n_nodes), floor=0)
        if tol and torch.linalg.norm(w - old) < tol * torch.linalg.norm(w):
            break
    else:
        if tol:
            gap = certificate(w.clamp_min(0), y, alpha, beta, edges=edges, n_nodes=n_nodes).gap.item()
            _warn(f"relative change above tol={tol:g} after {n_iter} iterations, relative gap {gap:.1e}")
    return w.clamp_min(0)


def _operators(edges, n_nodes):
    return lambda w: degrees(w, edges, n_nodes), lambda v: degrees_adjoint(v, edges)


def norm_bound(edges, n_nodes):
    """sqrt(max over edges of c_i + c_j), c the numbers of candidates: bounds ||D||, and is it for the complete graph.

    These are the row sums of D'D, whose entries are not negative: no eigenvalue is larger.
    """
    count = torch.bincount(edges.flatten(), minlength=n_nodes)
    return degrees_adjoint(count, edges).max().item() ** 0.5


# --- effective resistances --------------------------------------------------------------------------------------------


@torch.no_grad()
def effective_resistances(w, edges, n_nodes, *, n_probes=64, seed=0, tol=1e-3):
    """Effective resistances r_e = b'L^+ b at the ends of all candidates, by random projection, (E,) -> (E,).

    For random signs s, u = B'W^(1/2) s has covariance L, and z = L^+ u, from conjugate gradients to a relative `tol`,
    covariance L^+. With L^+ = D^-1 + D^-1 W L^+ the first terms are known,

        r_ij = 1/d_i + 1/d_j - 2 w_ij / (d_i d_j) + E (b'D^-1 W z)^2,

    and only the last is a mean over `n_probes` draws, with a relative error of sqrt(2 / n_probes). Infinite between
    components.
    """
    edges, w = torch.as_tensor(edges).contiguous(), torch.as_tensor(w).to(torch.float64)
    d = degrees(w, edges, n_nodes)
    on = w > 0
    heads, tails = edges[:, on].contiguous().numpy()
    graph = coo_array((np.ones(len(heads)), (heads, tails)), shape=(n_nodes, n_nodes))
    component = torch.from_numpy(connected_components(graph, directed=False)[1])
    rest, rng = np.zeros(len(w)), np.random.default_rng(seed)
    for start in range(0, n_probes, PROBES):
        n = min(PROBES, n_probes - start)
        signs = rng.integers(0, 2, (len(heads), n), dtype=np.int8) * 2 - 1
        z = _smoothed_potentials(heads, tails, w[on].numpy(), d.numpy(), signs, tol)
        _add_squared_differences(*edges.numpy(), z, rest)
    r = degrees_adjoint(1 / d, edges) - 2 * w / (d[edges[0]] * d[edges[1]]) + torch.from_numpy(rest / n_probes)
    return torch.where(component[edges[0]] == component[edges[1]], r, torch.inf)


@njit(cache=True)
def _smoothed_potentials(heads, tails, w, d, signs, tol):
    """D^-1 W z = z - D^-1 u for L z = u = B'W^(1/2) s: signs s (E, n) -> (m, n), by scaled conjugate gradients."""
    m, n = len(d), signs.shape[1]
    inverse = np.array([1 / x if x > 0 else 0.0 for x in d])
    R, Z, P, Lp = np.zeros((m, n)), np.zeros((m, n)), np.empty((m, n)), np.empty((m, n))
    for e in range(len(w)):
        for b in range(n):
            u = np.sqrt(w[e]) * signs[e, b]
            R[heads[e], b] += u
            R[tails[e], b] -= u
    rr, pLp, a, ratio = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    for i in range(m):
        for b in range(n):
            P[i, b] = inverse[i] * R[i, b]
            Z[i, b] = -P[i, b]
            rr[b] += R[i, b] * P[i, b]
    stop = tol * tol * rr
    for _ in range(10 * m):
        if (rr <= stop).all():
            break
        Lp[:] = 0
        pLp[:] = 0
        for e in range(len(w)):
            i, j = heads[e], tails[e]
            for b in range(n):
                difference = P[i, b] - P[j, b]
                current = w[e] * difference
                Lp[i, b] += current
                Lp[j, b] -= current
                pLp[b] += current * difference
        for b in range(n):
            a[b] = rr[b] / pLp[b] if pLp[b] > 0 else 0.0
            ratio[b], rr[b] = rr[b], 0.0
        for i in range(m):
            for b in range(n):
                Z[i, b] += a[b] * P[i, b]
                R[i, b] -= a[b] * Lp[i, b]
                rr[b] += inverse[i] * R[i, b] * R[i, b]
        for b in range(n):
            ratio[b] = rr[b] / ratio[b] if ratio[b] > 0 else 0.0
        for i in range(m):
            for b in range(n):
                P[i, b] = inverse[i] * R[i, b] + ratio[b] * P[i, b]
    return Z


@njit(cache=True)
def _add_squared_differences(heads, tails, z, total):
    for e in range(len(heads)):
        for b in range(z.shape[1]):
            total[e] += (z[heads[e], b] - z[tails[e], b]) ** 2


# --- memory -----------------------------------------------------------------------------------------------------------


def estimate_memory(n_nodes, n_signals, n_candidates):
    """Bytes that `candidate_edges` and `learn_edges` hold at their peak, beside X itself; an upper estimate.

    The search holds the points twice (as centred copy and in the index of faiss) and the neighbours of each; the
    solver some ten numbers a candidate edge, of which there are at most n_nodes * n_candidates.
    """
    search = n_nodes * (2 * 4 * n_signals + 12 * (n_candidates + 1))
    return search + n_nodes * n_candidates * 8 * 10
