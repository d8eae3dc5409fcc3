"""Graphs as half-vectors: the linear operators of the paper's Eq. (2) and the random families of Section 5.

A graph on m nodes is the vector `w` of its E = m(m-1)/2 edge weights: the upper triangle of the adjacency matrix,
row by row (the order of `scipy.spatial.distance.squareform`). Leading dimensions are batches.
"""

import inspect
import math
from functools import lru_cache

import numpy as np
import torch
from joblib import Parallel, delayed

FAMILIES = ("BA", "ER", "SBM", "WS")
GRAPHS_PER_SEED = 256  # drawn from one spawned seed: the unit of work, so that the number of workers cannot matter


# --- half-vectors and matrices -------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def all_pairs(m, device="cpu"):
    """End points of every edge of the complete graph on `m` nodes, row-major upper triangle: (2, E) int64."""
    return torch.triu_indices(m, m, offset=1, device=device)


def count_nodes(n_edges):
    """The m for which a half-vector has `n_edges` = m(m-1)/2 entries."""
    m = (1 + math.isqrt(1 + 8 * n_edges)) // 2
    if m * (m - 1) // 2 != n_edges or m < 3:
        raise ValueError(f"n_edges={n_edges}: a half-vector has m(m-1)/2 entries for some m >= 3 (3, 6, 10, 15, ...)")
    return m


def to_vector(W):
    """Upper triangle of symmetric matrices (..., m, m) -> (..., E)."""
    i, j = all_pairs(W.shape[-1], W.device)
    return W[..., i, j]


def to_matrix(w):
    """Symmetric matrices with zero diagonal (..., E) -> (..., m, m)."""
    m = count_nodes(w.shape[-1])
    padded = torch.cat([w, w.new_zeros(*w.shape[:-1], 1)], -1)  # the diagonal reads the zero at the end
    return padded[..., _positions(m, w.device)].unflatten(-1, (m, m))


@lru_cache(maxsize=64)
def _positions(m, device):
    """Where each entry of a flat m x m matrix stands in its half-vector; the diagonal points behind the end."""
    index = torch.full((m, m), m * (m - 1) // 2, device=device)
    i, j = all_pairs(m, device)
    index[i, j] = index[j, i] = torch.arange(len(i), device=device)
    return index.flatten()


def degrees(w, edges=None, n_nodes=None):
    """The operator D of Eq. (2), node degrees D w = W 1: (..., E) -> (..., m).

    With `edges` (2, E) and `n_nodes` the half-vector lives on that list of candidate edges, not on the complete graph.
    """
    if edges is None:
        return to_matrix(w).sum(-1)
    d = w.new_zeros(*w.shape[:-1], n_nodes)
    return d.index_add(-1, edges[0], w).index_add(-1, edges[1], w)


def degrees_adjoint(v, edges=None):
    """The adjoint of `degrees`, (D' v)_ij = v_i + v_j: (..., m) -> (..., E)."""
    i, j = all_pairs(v.shape[-1], v.device) if edges is None else edges
    return v[..., i] + v[..., j]


def laplacian(w, edges=None, n_nodes=None):
    """Combinatorial Laplacian L = diag(D w) - W: (..., E) -> (..., m, m)."""
    if edges is None:
        W = to_matrix(w)
    else:
        W = w.new_zeros(*w.shape[:-1], n_nodes, n_nodes)
        W[..., edges[0], edges[1]] = W[..., edges[1], edges[0]] = w
    return torch.diag_embed(W.sum(-1)) - W


def differences(S, edges=None):
    """b'S b = S_ii + S_jj - 2 S_ij with b = e_i - e_j, for every pair: (..., m, m) -> (..., E).

    Distances if S are second moments, effective resistances if S is the inverse of a Laplacian.
    """
    i, j = all_pairs(S.shape[-1], S.device) if edges is None else edges
    return degrees_adjoint(S.diagonal(dim1=-2, dim2=-1), edges) - 2 * S[..., i, j]


def renumber(w, order):
    """The same graphs (..., E) with node order[k] called k; `order` (m,) is a permutation."""
    return to_vector(to_matrix(w)[..., order[:, None], order])


# --- random families -----------------------------------------------------------------------------------------------


def sample_graphs(
    family, n_graphs, n_nodes, *, seed, weighted=True, shuffle=False, n_jobs=1, dtype=torch.float32, **params
):
    """Draw graphs of one family with the weights of Section 5.

    Parameters
    ----------
    family : "BA" (n_attach=3), "ER" (p=0.2), "SBM" (sizes=two halves, p_in=0.6, p_out=None, n_inter=m/10) or
        "WS" (k=4, p=0.2); the values in brackets are the protocol's, `params` replaces them.
    n_graphs, n_nodes : int, n_nodes >= 3
    seed : int or numpy SeedSequence; the result does not depend on `n_jobs`.
    weighted : lognormal(0, 0.1) averaged with its transpose, then rescaled to a mean degree of 1;
        False gives ones, unscaled.
    shuffle : number the nodes at random; False keeps the generator's order, as the paper does.

    Returns
    -------
    w : (n_graphs, E) tensor
    """
    params = family_parameters(family, **params)
    if n_nodes < 3:
        raise ValueError(f"n_nodes={n_nodes}: at least 3 nodes are needed")
    if n_graphs < 1:
        raise ValueError(f"n_graphs={n_graphs}: at least 1 graph is needed")
    sizes = [min(GRAPHS_PER_SEED, n_graphs - start) for start in range(0, n_graphs, GRAPHS_PER_SEED)]
    draw = delayed(_draw_chunk)
    chunks = Parallel(n_jobs)(
        draw(family, size, n_nodes, child, weighted, shuffle, params)
        for size, child in zip(sizes, spawn(seed, len(sizes)), strict=True)
    )
    return torch.from_numpy(np.concatenate(chunks)).to(dtype)


def family_parameters(family, **params):
    """All parameters of a family's generator by name, defaults included."""
    if family not in FAMILIES:
        raise ValueError(f"family={family!r}: choose one of {', '.join(FAMILIES)}")
    known = {p.name: p.default for p in inspect.signature(_GENERATORS[family]).parameters.values()}
    defaults = {name: value for name, value in known.items() if value is not inspect.Parameter.empty}
    if unknown := params.keys() - defaults.keys():
        raise ValueError(f"{', '.join(sorted(unknown))}: the family {family} has the parameters {', '.join(defaults)}")
    return defaults | params


def spawn(seed, n):
    """`n` independent child seeds of an int or SeedSequence, the same at every call."""
    if isinstance(seed, np.random.SeedSequence):  # spawn() has a counter; start it anew
        seed = np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key, pool_size=seed.pool_size)
    else:
        seed = np.random.SeedSequence(seed)
    return seed.spawn(n)


def random_adjacency(rng, family, n_graphs, n_nodes, **params):
    """Graphs of one family without weights, in the generator's node order: (n, m, m) bool."""
    return _GENERATORS[family](rng, n_graphs, n_nodes, **family_parameters(family, **params))


def _draw_chunk(family, n, m, seed, weighted, shuffle, params):
    rng = np.random.default_rng(seed)
    A = _GENERATORS[family](rng, n, m, **params)
    if shuffle:
        order = rng.random((n, m)).argsort(1)
        A = A[np.arange(n)[:, None, None], order[:, :, None], order[:, None, :]]
    i, j = np.triu_indices(m, 1)
    w = A[:, i, j].astype(np.float64)
    if weighted:
        w *= rng.lognormal(0, 0.1, (2, *w.shape)).mean(0)  # (W + W')/2
        total = w.sum(1, keepdims=True)  # an empty graph stays empty
        w *= np.divide(m / 2, total, where=total > 0, out=np.zeros_like(total))
    return w


def _barabasi_albert(rng, n, m, n_attach=3):
    """Node n_attach joins all seeds 0..n_attach-1, then preferential attachment (networkx's order before 2.6).

    A new node picks `n_attach` distinct old ones, successively, with probabilities proportional to their degrees:
    the largest Gumbel-perturbed log-degrees are exactly such a draw, for all graphs at once.
    """
    if not 1 <= n_attach < m:
        raise ValueError(f"n_attach={n_attach}: between 1 and n_nodes - 1 = {m - 1}")
    A = np.zeros((n, m, m), dtype=bool)
    A[:, n_attach, :n_attach] = A[:, :n_attach, n_attach] = True
    rows = np.arange(n)[:, None]
    for new in range(n_attach + 1, m):
        keys = np.log(A[:, :new].sum(2)) + rng.gumbel(size=(n, new))
        targets = np.argpartition(-keys, n_attach - 1, axis=1)[:, :n_attach]
        A[rows, targets, new] = A[rows, new, targets] = True
    return A


def _erdos_renyi(rng, n, m, p=0.2):
    _check_probability(p=p)
    return _symmetric(rng.random((n, m, m)) < p)


def _stochastic_block(rng, n, m, sizes=None, p_in=0.6, p_out=None, n_inter=None):
    """Blocks in node order; exactly `n_inter` edges between blocks (m/10 by default), or each with `p_out`."""
    sizes = (m - m // 2, m // 2) if sizes is None else tuple(sizes)
    if sum(sizes) != m:
        raise ValueError(f"sizes={sizes}: block sizes must add up to n_nodes={m}")
    _check_probability(p_in=p_in, p_out=0 if p_out is None else p_out)
    block = np.repeat(np.arange(len(sizes)), sizes)
    inside = block[:, None] == block[None, :]
    if p_out is not None:
        return _symmetric(rng.random((n, m, m)) < np.where(inside, p_in, p_out))
    A = _symmetric(rng.random((n, m, m)) < np.where(inside, p_in, 0))
    i, j = np.nonzero(np.triu(~inside, 1))
    n_inter = round(m / 10) if n_inter is None else n_inter
    if not 0 <= n_inter <= len(i):
        raise ValueError(f"n_inter={n_inter}: between 0 and the {len(i)} pairs of nodes in different blocks")
    chosen = rng.random((n, len(i))).argsort(1)[:, :n_inter]
    rows = np.arange(n)[:, None]
    A[rows, i[chosen], j[chosen]] = A[rows, j[chosen], i[chosen]] = True
    return A


def _watts_strogatz(rng, n, m, k=4, p=0.2):
    """Ring lattice with k//2 neighbours on each side; each edge (u, u+j) moves its far end with probability p."""
    if not 2 <= k < m:
        raise ValueError(f"k={k}: between 2 and n_nodes - 1 = {m - 1}")
    _check_probability(p=p)
    A = np.zeros((n, m, m), dtype=bool)
    nodes = np.arange(m)
    for j in range(1, k // 2 + 1):
        A[:, nodes, (nodes + j) % m] = A[:, (nodes + j) % m, nodes] = True
    for j in range(1, k // 2 + 1):
        for u in range(m):
            free = ~A[:, u]
            free[:, u] = False
            rows = np.flatnonzero((rng.random(n) < p) & free.any(1))
            new = np.where(free[rows], rng.random((len(rows), m)), -1).argmax(1)
            old = (u + j) % m
            A[rows, u, old] = A[rows, old, u] = False
            A[rows, u, new] = A[rows, new, u] = True
    return A


_GENERATORS = {"BA": _barabasi_albert, "ER": _erdos_renyi, "SBM": _stochastic_block, "WS": _watts_strogatz}


def _symmetric(A):
    upper = np.triu(A, 1)
    return upper | upper.transpose(0, 2, 1)


def _check_probability(**named):
    for name, p in named.items():
        if not 0 <= p <= 1:
            raise ValueError(f"{name}={p}: a probability between 0 and 1")
