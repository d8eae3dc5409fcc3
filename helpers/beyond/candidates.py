"""Candidate edges: the list of pairs that stands in for the complete graph on many thousand nodes.

A half-vector has m(m-1)/2 entries, a real graph a few m. Here `edges` (2, E) lists the pairs that may become edges,
found by nearest-neighbour search, and y, w (E,) live on that list: nothing of size m x m ever exists. Solvers and
likelihood take such a list as `edges=` and `n_nodes=`. Everything here stays on the CPU.
"""

import math

import numpy as np
import torch
from scipy.sparse import coo_array
from sklearn.metrics import euclidean_distances
from sklearn.neighbors import NearestNeighbors

from ..graphs import all_pairs
from ..signals import DIFFERENCES_AT_ONCE, pair_distances

GB = 2**30
EXACT_SEARCH = 10_000  # up to so many nodes all distances are looked at, in slices


def candidate_edges(X, n_candidates, *, seed=0, n_jobs=1):
    """Pairs of nodes worth a weight: each node with its `n_candidates` nearest, symmetrised.

    Parameters
    ----------
    X : (n_signals, n_nodes), finite; the nodes, columns of X, are the points that are searched. Kept in single
        precision if it comes so.
    n_candidates : int, about three times the wished degree; a node may end up in more pairs, as a neighbour of others.
    seed : of the approximate search (an inverted file of faiss), used above 10,000 nodes; below, the search is exact.
    n_jobs : threads of the search.

    Returns
    -------
    edges : (2, E) int64, edges[0] < edges[1], sorted by row, then column, each pair once
    y : (E,) float64, mean over signals of (x_i - x_j)^2

    Identical nodes are neighbours at y = 0, which is no problem for the solvers; more than `n_candidates` copies of one
    node see only each other.

    Ties are common where signals are whole numbers. Of several nodes that are equally far from node i, if not all of
    them can be its candidates, those that follow it come first: i + 1, i + 2 and so on, and after the last node the
    first. So the list does not depend on rounding, which differs between processors, and no node is preferred by all.
    Above 10,000 nodes the order among ties is that of faiss, which cannot be chosen.
    """
    points = _points(X)
    _check_candidates(n_candidates, len(points))
    edges = _pairs(_search(points, n_candidates, seed, n_jobs))
    return edges, pair_distances(points.T, edges)


def signed_candidate_edges(Z, n_candidates, *, seed=0, n_jobs=1):
    """Pairs worth a weight of either sign: each node with those of the largest absolute correlation, and half as many
    that are nearest in difference or in sum; as there are two signs, 3/2 and 3/4 of `n_candidates`.

    A column at |x_i + x_j| is the mirror image of one at |x_i - x_j|: both are found among the columns of [Z, -Z],
    which are divided by their root mean squares for the first search. A node with many neighbours varies little and is
    correlated with none of them much: the second search finds it. Z (n, m) -> edges (2, E), y (E,), and the order
    among ties, as of `candidate_edges`.
    """
    Z = _check_signals(Z)
    m = Z.shape[1]
    _check_candidates(n_candidates, m)
    if n_candidates == m - 1:
        edges = all_pairs(m)
        return edges, pair_distances(Z, edges)
    size = np.sqrt(np.einsum("ni,ni->i", Z, Z) / len(Z))
    size[size == 0] = 1
    correlated = _search_mirrored(Z / size, 3 * n_candidates // 2, seed, n_jobs)
    near = _search_mirrored(Z, max(1, 3 * n_candidates // 4), seed, n_jobs)
    edges = _pairs(correlated, near)
    return edges, pair_distances(Z, edges)


def _search_mirrored(Z, k, seed, n_jobs):
    """`_search` for each column of Z (n, m) among the columns of [Z, -Z], whose numbers are then those of Z."""
    m = Z.shape[1]
    precision = Z.dtype if m <= EXACT_SEARCH else np.float32
    points = np.concatenate([Z.T, -Z.T], dtype=precision)
    near = _search(points, k, seed, n_jobs, queries=points[:m])
    return np.where(near < 0, near, near % m)


def _check_candidates(n_candidates, m):
    if not 1 <= n_candidates <= m - 1:
        raise ValueError(f"n_candidates={n_candidates}: between 1 and n_nodes - 1 = {m - 1}")


def _pairs(*lists):
    """The pairs in lists (m, k + 1) of the nodes found for each, less one: itself if found, else the last; (2, E)."""
    keys = []
    for near in lists:
        m = len(near)
        own = near == np.arange(m)[:, None]  # among copies, a node need not find itself first, or at all
        own[~own.any(1), -1] = True
        i, column = np.nonzero(~own & (near >= 0))
        j = near[i, column]
        keys.append(np.minimum(i, j) * m + np.maximum(i, j))
    return torch.from_numpy(np.stack(np.divmod(np.unique(np.concatenate(keys)), m)))


def _check_signals(X):
    """X (n_signals, m) as an array, in single precision if it comes so; or ValueError."""
    X = np.asarray(X)
    if X.ndim != 2 or X.shape[1] < 3:
        raise ValueError(f"X has shape {X.shape}: (n_signals, n_nodes) with at least 3 nodes is needed")
    bad = np.flatnonzero(~np.isfinite(X).all(0))
    if len(bad):
        raise ValueError(f"X has NaN or infinite values at {len(bad)} nodes, first {bad[:5].tolist()}: remove them")
    return X if X.dtype == np.float32 else X.astype(np.float64, copy=False)


def _points(X):
    """X (n_signals, m) as points (m, n_signals), each signal centred; or ValueError."""
    X = _check_signals(X)
    points = np.subtract(X.T, X.mean(1, dtype=np.float64), dtype=X.dtype, order="C")
    if not points.any():
        raise ValueError("X is constant over the nodes: such signals say nothing about a graph")
    return points


def _search(points, k, seed, n_jobs, queries=None):
    """The k + 1 points nearest to each of `queries` (q, n), (q, k + 1); -1 where the approximate search found fewer.

    Without `queries`, to each point, itself among them.
    """
    n = points.shape[1]
    queries = points if queries is None else queries
    m = len(queries)
    if m <= EXACT_SEARCH:
        return _search_exactly(points, queries, k, n_jobs)
    try:
        import faiss  # an extra: only needed for so many nodes
    except ImportError:
        raise ImportError(f"a search among {m} nodes needs faiss: pip install 'l2g-reproduction[large]'") from None
    faiss.omp_set_num_threads(n_jobs)
    points = points.astype(np.float32, copy=False)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(n), n, int(4 * math.sqrt(m)))
    index.cp.seed = seed
    index.cp.min_points_per_centroid = 1
    index.cp.max_points_per_centroid = 64
    index.nprobe = max(8, math.ceil(32 * k / math.sqrt(m)))  # of the cells, sqrt(m)/4 points each: 8k points or more
    index.train(points)
    index.add(points)
    return index.search(queries.astype(np.float32, copy=False), k + 1)[1]


def _search_exactly(points, queries, k, n_jobs):
    """`_search` through all distances; ties are broken as `candidate_edges` says.

    The library's search, which is fast, breaks ties by the last digits of its products. So it looks for one neighbour
    more, which shows the nodes that have a tie at the end of their list, and only these are looked at once more.
    """
    n_neighbours = min(k + 2, len(points))
    search = NearestNeighbors(n_neighbors=n_neighbours, algorithm="brute", n_jobs=n_jobs).fit(points)
    distance, near = search.kneighbors(queries)
    if n_neighbours == k + 1:  # all points
        return near
    last, next_one = distance[:, k:].T ** 2
    tied = np.flatnonzero(next_one - last <= 2 * _rounding(queries, last))
    near = near[:, : k + 1]
    at_once = max(1, DIFFERENCES_AT_ONCE // len(points))
    for start in range(0, len(tied), at_once):
        rows = tied[start : start + at_once]
        near[rows] = _nearest_in_order(points, queries[rows], rows, len(queries), k)
    return near


def _nearest_in_order(points, queries, rows, m, k):
    """The k + 1 points nearest to `queries` (r, n), which are the nodes `rows` of m; of those as far as the last, the
    ones that follow it: (r, k + 1)."""
    squares = euclidean_distances(*(x.astype(np.float64, copy=False) for x in (queries, points)), squared=True)
    last = np.partition(squares, k, 1)[:, k]
    margin = _rounding(queries, last)
    rank = (np.arange(len(points)) - rows[:, None]) % m
    rank[squares > (last + margin)[:, None]] = m
    rank[squares < (last - margin)[:, None]] = -1
    return np.argpartition(rank, k, 1)[:, : k + 1]


def _rounding(queries, squares):
    """By how much squared distances of about `squares` (q,) from `queries` (q, n) may be wrong, a bound: (q,).

    They are |a|^2 - 2ab + |b|^2, computed in double precision, and the points themselves were rounded to their own.
    """
    own = np.einsum("qn,qn->q", queries, queries, dtype=np.float64)
    of_points = 4 * np.finfo(queries.dtype).eps * (np.sqrt(own * squares) + squares)
    return 1e-12 * (own + squares) + of_points


def adjacency(w, edges, n_nodes):
    """Symmetric sparse matrix (m, m) of the weights (E,) that are not zero."""
    W = coo_array((np.asarray(w), tuple(np.asarray(edges))), shape=(n_nodes, n_nodes)).tocsr()
    W.eliminate_zeros()
    return W + W.T


def estimate_memory(n_nodes, n_signals, n_candidates):
    """Bytes that X in float32, `candidate_edges` and `solvers.learn` hold at their peak; an upper estimate.

    The search holds the points three times (X, centred, and in the index of faiss) and the neighbours of each; the
    solver some ten numbers per candidate edge, of which there are at most n_nodes * n_candidates. Distances need a
    fixed amount more: some four arrays of differences at a time.
    """
    per_node = 3 * 4 * n_signals + 12 * (n_candidates + 1) + 8 * 10 * n_candidates
    return n_nodes * per_node + 4 * 8 * DIFFERENCES_AT_ONCE


def fit_memory(n, m, candidates, method):
    """Bytes that `GraphLearner.fit` needs at its peak for X (n, m), beside X; "broad" is a method here."""
    if candidates is None:
        per_pair = 190 if method == "broad" else 60  # measured with m = 150 to 700: 117 to 183, others 24 to 58
        return 8 * (3 * n * m + per_pair * m * m)
    # broad: 1,400 to 1,600 bytes per pair were measured at 30,000 and 100,000 nodes, and there are up to 1.3 k m pairs
    per_candidate = {"equivariant": 800, "broad": 2200}.get(method, 0)
    network = per_candidate * m * candidates + 24 * min(m, 2000) ** 2 if per_candidate else 0
    return estimate_memory(m, n, candidates) + 8 * 3 * n * m + network


def check_memory(n, m, candidates, method, free):
    """What memory a fit needs, as text; if fewer bytes are `free`, MemoryError with options that fit."""
    needed = fit_memory(n, m, candidates, method)
    if needed > free:
        need = f"{m:,} nodes need about {needed / GB:.2g} GB, {free / GB:.2g} GB are free"
        raise MemoryError(f"{need}: {fitting_options(n, m, method, free)}")
    return f"{m:,} nodes, {n:,} samples: about {needed / GB:.2g} GB of memory, {free / GB:.2g} GB are free"


def fitting_options(n, m, method, free):
    """Options that fit into `free` bytes, as text."""
    if method not in ("equivariant", "broad", "exact", "pds"):
        method = "exact"  # mle needs all pairs, unrolling is not made for so many nodes
    name = "equivariant" if method == "broad" else method
    for k in (100, 50, 30, 20, 10, 5):
        needed = fit_memory(n, m, k, method)
        if k < m and needed <= free:
            return f"method={name!r}, candidates={k} needs {needed / GB:.2g} GB"
    return "take fewer samples or nodes"
