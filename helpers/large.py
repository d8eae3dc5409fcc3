"""Graphs of many thousand nodes: a list of candidate edges stands in for the complete graph.

A half-vector has m(m-1)/2 entries, a real graph a few m. Here `edges` (2, E) lists the pairs that may become edges,
found by nearest-neighbour search, and y, w (E,) live on that list: nothing of size m x m ever exists. Every solution
and every certificate is that of Eq. (4) *restricted* to the candidates. Tensors on the CPU, float64 inside.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array, diags_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from sklearn.neighbors import NearestNeighbors
from torch.nn.functional import leaky_relu
from tqdm.auto import tqdm

from .equivariant import shrink
from .graphs import degrees, degrees_adjoint, spawn
from .kernels import dual_newton, mean_squared_differences
from .solvers import Certificate, _warn, certificate, check_problem, pds_step

EXACT_SEARCH = 10_000  # up to so many nodes all distances are looked at, in slices
DENSE = 2_000  # up to so many nodes a matrix is inverted for effective resistances
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
    mean_squared_differences(points, *edges, y)
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


# --- exact solution ---------------------------------------------------------------------------------------------------


def _start(y, edges, n_nodes):
    """Dual variables as if every node had one neighbour only, the nearest, and that one the same degree."""
    near = torch.full((n_nodes,), torch.inf, dtype=y.dtype)
    near = near.scatter_reduce(0, edges[0], y, "amin").scatter_reduce(0, edges[1], y, "amin")
    return (near + (near * near + 4).sqrt()) / 2


def _check(y, edges, n_nodes):
    """y (E,) float64 and edges (2, E) int64, contiguous; ValueError for what is not a list of candidates."""
    edges, y = torch.as_tensor(edges).to(torch.int64).contiguous(), torch.as_tensor(y).detach()
    y = y.to(torch.float64).contiguous()
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


def _solve(y, edges, lam, tol, depth=4, n_iter=200):
    """w (E,) for alpha = beta = 1 from the dual variables `lam`, which are changed to the solution's."""
    gap = dual_newton(*edges.numpy(), y.numpy(), lam.numpy(), tol, n_iter)
    if not gap <= tol:
        _warn(f"relative gap {gap:.1e} after {n_iter} iterations, above tol={tol:g}", depth)
    return degrees_adjoint(lam, edges).sub_(2 * y).relu_() / 2


def exact(y, edges, n_nodes, alpha=1.0, beta=1.0, *, tol=1e-20):
    """`solvers.exact` on candidates: w (E,) for y (E,) to a relative gap `tol` of the restricted problem."""
    y, edges = _check(y, edges, n_nodes)
    y, alpha, beta = check_problem(y, alpha, beta, edges)
    y = y * (alpha * beta).rsqrt()
    return _solve(y, edges, _start(y, edges, n_nodes), tol) * (alpha / beta).sqrt()


def adjacency(w, edges, n_nodes):
    """Symmetric sparse matrix (m, m) of the weights (E,) that are not zero."""
    W = coo_array((np.asarray(w), tuple(np.asarray(edges))), shape=(n_nodes, n_nodes)).tocsr()
    W.eliminate_zeros()
    return W + W.T


class Learned(NamedTuple):
    """Weights (E,), theta, and the certificate of the restricted problem for theta y, alpha = beta = 1."""

    w: torch.Tensor
    theta: float
    certificate: Certificate


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
    return _path(*_check(y, edges, n_nodes), n_nodes, (average_degree,), tol, degree_tol)[0]


def path(y, edges, n_nodes, *, degrees=(2, 3, 5, 8, 12, 20, 30), tol=1e-6, degree_tol=0.05):
    """Graphs of several densities, each solve started from the one before: a list of `Learned`, see `learn_edges`."""
    return _path(*_check(y, edges, n_nodes), n_nodes, degrees, tol, degree_tol)


def _renumbered(y, edges, m):
    """The same problem with neighbours close in memory (reverse Cuthill-McKee), and where each pair went, (E,).

    With nodes in random order most of the time of a large solve is spent waiting for memory.
    """
    rank = np.empty(m, np.int64)
    rank[reverse_cuthill_mckee(adjacency(np.ones(len(y), np.int8), edges, m), symmetric_mode=True)] = np.arange(m)
    new = np.sort(rank[edges.numpy()], 0)
    order = np.argsort(new[0] * m + new[1])
    place = np.empty(len(y), np.int64)
    place[order] = np.arange(len(y))
    return y[order], torch.from_numpy(np.ascontiguousarray(new[:, order])), torch.from_numpy(place)


def _path(y, edges, m, wishes, tol, degree_tol):
    if not all(1 <= wish <= 2 * len(y) / m for wish in wishes):
        raise ValueError(f"average_degree={wishes}: between 1 and 2E/m = {2 * len(y) / m:.3g}; take more candidates")
    (y, edges, place), given = _renumbered(y, edges, m), (y, edges)
    theta, seen, found = 1 / y.mean().item(), {}, []
    lam = _start(theta * y, edges, m)

    def solve():
        w = _solve(theta * y, edges, lam, tol, 6)
        seen[math.log(theta)] = degree = 2 * (w > 1e-6 * w.max()).sum().item() / m
        return w, degree

    w, degree = solve()
    for wish in wishes:
        best, error, enough = (w, theta), abs(degree - wish), max(degree_tol * wish, 1 / m)
        while error > enough and (x := _next_log_theta(seen, math.log(wish))) is not None:
            lam, theta = lam * (math.exp(x) / theta), math.exp(x)  # together, which keeps the active edges
            w, degree = solve()
            if abs(degree - wish) < error:
                best, error = (w, theta), abs(degree - wish)
        if error > enough:
            _warn(f"average_degree={wish} is not reached, the closest is {error:.2g} off")
        w_best, theta_best = best[0][place], best[1]
        proof = certificate(w_best, theta_best * given[0], edges=given[1], n_nodes=m)
        found.append(Learned(w_best, theta_best, proof))
    return found


def _next_log_theta(seen, target):
    """Where log degree, which falls with log theta, should meet `target`, given {log theta: degree}; None: nowhere."""
    x = sorted(seen)
    f = [math.log(seen[k]) - target for k in x]
    k = max((n + 1 for n, value in enumerate(f) if value > 0), default=0)  # the last that is too dense, and one
    if 0 < k < len(x):
        share = f[k - 1] / (f[k - 1] - f[k])
        return None if x[k] - x[k - 1] < 1e-9 else x[k - 1] + min(max(share, 0.1), 0.9) * (x[k] - x[k - 1])
    end, other = (0, 1) if k == 0 else (-1, -2)
    if sum(value == f[end] for value in f) > 8:
        return None
    slope = (x[other] - x[end]) / (f[end] - f[other]) if len(x) > 1 and f[end] != f[other] else 1.0
    return x[end] + min(max(1.1 * min(max(slope, 0.5), 2.0) * f[end], -2.0), 2.0) + math.copysign(0.01, f[end])


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
            _warn(f"relative change above tol={tol:g} after {n_iter} iterations, relative gap {gap:.1e}", 3)
    return w.clamp_min(0)


def _operators(edges, n_nodes, scale=1.0):
    """S D and its adjoint, S = diag(scale)."""
    return lambda w: scale * degrees(w, edges, n_nodes), lambda v: degrees_adjoint(scale * v, edges)


def unroll(model, y, edges, n_nodes, *, trained_nodes=20, degree_ratio=1.0):
    """A trained `models.Unrolling` on candidates, y (E,) -> w (E,) >= 0, whatever the number of nodes.

    The rule that carries its parameters from the complete graph on m0 = `trained_nodes` to any list of candidates:

        D -> S D,  s_i^2 = (m0 - 1) / c_i,  c_i the candidates of node i (m - 1 in a complete graph),
        alpha -> k alpha and w -> w / k,    k = `degree_ratio`, edges a node here over edges a node in training.

    The objective sees S only as a constant, since log(s d) = log s + log d: the problem that is solved stays the same.
    ||S D|| <= sqrt(2 (m0 - 1)), the norm in training, so steps that were stable stay so. A graph of which every node is
    replaced by k copies has the weights w / k, and the rule then is exact; as it is, with k = 1, for graphs side by
    side. Distances need no rule: with a mean degree of 1, sum w r = m - 1 and sum w = m / 2 (Foster's theorem), so that
    they are about 2 on true edges for all m; bring real data to that scale.
    """
    y, edges = _check(y, edges, n_nodes)
    scale = ((trained_nodes - 1) / torch.bincount(edges.flatten(), minlength=n_nodes).double()).sqrt()
    w, v, operators = torch.zeros_like(y), y.new_zeros(n_nodes), _operators(edges, n_nodes, scale)
    project = partial(leaky_relu, negative_slope=model.slope)
    for alpha, beta, gamma in model.theta.detach().double().expand(model.n_layers, 3):
        w, v = pds_step(w, v, y, degree_ratio * alpha, beta, gamma, project, operators=operators)
    return w.clamp_min(0) / degree_ratio


def norm_bound(edges, n_nodes):
    """sqrt(max over edges of c_i + c_j), c the numbers of candidates: bounds ||D||, and is it for the complete graph.

    These are the row sums of D'D, whose entries are not negative: no eigenvalue is larger.
    """
    count = torch.bincount(edges.flatten(), minlength=n_nodes)
    return degrees_adjoint(count, edges).max().item() ** 0.5


# --- effective resistances --------------------------------------------------------------------------------------------


def effective_resistances(w, edges, n_nodes, *, n_probes=64, seed=0, tol=1e-3):
    """Effective resistances r_e = b'L^+ b at the ends of all candidates, by random projection, (E,) -> (E,).

    For random signs s, u = B'W^(1/2) s has covariance L, and z = L^+ u, from conjugate gradients to a relative `tol`,
    covariance L^+. With L^+ = D^-1 + D^-1 W L^+ the first terms are known,

        r_ij = 1/d_i + 1/d_j - 2 w_ij / (d_i d_j) + E (b'D^-1 W z)^2,   D^-1 W z = z - D^-1 u,

    and only the last is a mean over `n_probes` draws, with a relative error of sqrt(2 / n_probes). Infinite between
    components.
    """
    w, (i, j) = torch.as_tensor(w).detach().double().numpy(), torch.as_tensor(edges).numpy()
    W = adjacency(w, edges, n_nodes)
    component, d, on = connected_components(W, directed=False)[1], W.sum(1), np.flatnonzero(w > 0)
    L = (diags_array(d) - W).tocsr()
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d > 0)
    r, rng = inverse[i] + inverse[j] - 2 * w * inverse[i] * inverse[j], np.random.default_rng(seed)
    B = coo_array((np.sqrt(w[on]), (i[on], np.arange(len(on)))), shape=(n_nodes, len(on)))
    B = (B - coo_array((B.data, (j[on], np.arange(len(on)))), shape=B.shape)).tocsr()
    for start in range(0, n_probes, PROBES):
        signs = rng.integers(0, 2, (len(on), min(PROBES, n_probes - start))) * 2.0 - 1
        u = B @ signs
        z = _conjugate_gradients(L, u, inverse[:, None], tol) - inverse[:, None] * u
        for probe in np.ascontiguousarray(z.T):
            r += (probe[i] - probe[j]) ** 2 / n_probes
    return torch.from_numpy(np.where(component[i] == component[j], r, np.inf))


def _conjugate_gradients(A, B, scale, tol):
    """Solve A X = B for each column of B (m, n), preconditioned by `scale` (m, 1)."""
    X, R, P = np.zeros_like(B), B.copy(), scale * B
    rr = (R * P).sum(0)
    stop = tol * tol * rr
    for _ in range(10 * len(B)):
        if not (rr > stop).any():
            break
        AP = A @ P
        step = np.where(rr > stop, rr / np.maximum((P * AP).sum(0), 1e-300), 0)
        X += step * P
        R -= step * AP
        new = (R * R * scale).sum(0)
        P = scale * R + new / np.maximum(rr, 1e-300) * P
        rr = new
    return X


@torch.no_grad()
def refine(model, y, edges, n_nodes, n_signals, *, n_updates=30, seed=0, progress=False):
    """A trained `EquivariantL2G` on candidates: y (E,) -> probability and weight of each, (E,).

    The likelihood restricted to the candidates, by `n_updates` of w <- w r / y from the solution of Eq. (4) (one has to
    be patient, there is no inverse covariance to start from), then the network's message passing on the same list.
    Resistances are exact up to 2,000 nodes and sketched beyond, see `effective_resistances`, which takes minutes.
    """
    n_signals = torch.tensor([float(n_signals)], dtype=torch.float64)
    y = shrink(torch.as_tensor(y).double()[None], n_signals)[0]
    w = learn_edges(y, edges, n_nodes, average_degree=min(4, len(y) / n_nodes), degree_tol=0.2).w  # a start
    w = torch.maximum(w * ((n_nodes - 1) / (w @ y)), 0.01 / (n_nodes * y))
    pieces = connected_components(coo_array((w, tuple(edges.numpy())), shape=(n_nodes, n_nodes)), directed=False)[1]

    def resistances(w):
        if n_nodes > DENSE:
            return effective_resistances(w, edges, n_nodes, seed=seed)
        L = torch.diag(degrees(w, edges, n_nodes)).index_put(tuple(edges), -w).index_put(tuple(edges.flip(0)), -w)
        same = torch.from_numpy(pieces[:, None] == pieces).double()
        Sigma = torch.linalg.inv(L + same / same.sum(0))
        return degrees_adjoint(Sigma.diagonal(), edges) - 2 * Sigma[tuple(edges)]

    for _ in tqdm(range(n_updates), "likelihood", disable=not progress, leave=False):
        w = w * resistances(w) / y
    answer = model.refine(w[None], y[None], resistances(w)[None], n_signals, edges, n_nodes)
    return tuple(x[0].to(y) for x in answer)


def likelihood(y, edges, n_nodes, *, n_updates=60, n_probes=64, seed=0):
    """`solvers.laplacian_mle` on candidates, roughly: w > 0 and its effective resistances r, each (E,).

    `n_updates` of w <- w r / y, each of which increases the likelihood; r is sketched with new probes every time. The
    solution has r <= y, and r = y where w > 0; small weights vanish only slowly.
    """
    y, edges = _check(y, edges, n_nodes)
    if not (y > 0).all():
        raise ValueError("y has a zero: for two nodes that always agree the most likely weight is infinite")
    w, seeds = (n_nodes - 1) / (len(y) * y), spawn(seed, n_updates + 1)
    for child in seeds[1:]:
        w = w * effective_resistances(w, edges, n_nodes, n_probes=n_probes, seed=child) / y
    return w, effective_resistances(w, edges, n_nodes, n_probes=n_probes, seed=seeds[0])


# --- memory -----------------------------------------------------------------------------------------------------------


def estimate_memory(n_nodes, n_signals, n_candidates):
    """Bytes that X in float32, `candidate_edges` and `learn_edges` hold at their peak; an upper estimate.

    The search holds the points three times (X, centred, and in the index of faiss) and the neighbours of each; the
    solver some ten numbers a candidate edge, of which there are at most n_nodes * n_candidates.
    """
    search = n_nodes * (3 * 4 * n_signals + 12 * (n_candidates + 1))
    return search + n_nodes * n_candidates * 8 * 10
