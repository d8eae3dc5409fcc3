"""Three kinds of atoms on a list of candidate pairs: resistances and approximate maximum likelihood.

    K = sum a_ij (e_i - e_j)(e_i - e_j)'  +  sum b_ij (e_i + e_j)(e_i + e_j)'  +  sum c_i e_i e_i',    a, b, c >= 0,

as in `atoms`, but a and b live on a list `edges` (2, E), and nothing of size m x m exists beyond 2,000 nodes. There the
resistances r_u = u'K^-1 u of all atoms are means over random projections. Float64, on the CPU.
"""

from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from tqdm.auto import tqdm

from ..engine.elimination import BLOCK, DominantSystem
from ..engine.problem import check_edges
from ..graphs import degrees, degrees_adjoint, spawn

DENSE_NODES = 2_000  # up to so many nodes a matrix is inverted
N_PROBES = 256  # beyond
N_UPDATES = 40
RELAXATION = 1.9  # below 2, see `relaxed_update`


class ListAtoms(NamedTuple):
    """One number per atom on a list of pairs; None or zeros for a kind that is left out."""

    difference: torch.Tensor  # (E,)
    sum: torch.Tensor | None  # (E,)
    ground: torch.Tensor | None  # (m,)


def dominant_matrix(w, edges):
    """K as pairs (E,), K_ij = -v_ij, and ground (m,), K_ii = sum_j |v_ij| + c_i.

    Of two atoms of one pair the difference counts, and what they have in common is ground, because they add up to
    2 e_i e_i' + 2 e_j e_j'.
    """
    both = torch.minimum(w.difference, w.sum)
    return w.difference - w.sum, w.ground + 2 * degrees(both, edges, len(w.ground))


# --- resistances ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def resistances(w, edges, *, n_probes=None, seed=0, tol=1e-2):
    """r_u = u'K^-1 u of all atoms on the list, with weight or without: ListAtoms -> ListAtoms.

    Where K is a Laplacian, on a component without sums and ground, it is that of the pseudo-inverse.

    Parameters
    ----------
    w : ListAtoms, difference (E,), sum (E,) and ground (m,), each >= 0
    n_probes : estimate r from so many random projections, see `sketch`, a multiple of 16; None inverts K, and beyond
        2,000 nodes takes 256
    seed, tol : of the projections, and the relative residual of their linear systems
    """
    v, c = dominant_matrix(w, edges)
    if n_probes is None and len(c) > DENSE_NODES:
        n_probes = N_PROBES
    if n_probes is None:
        return _dense(v, c, edges)
    return sketch(v.numpy(), c.numpy(), edges.numpy(), n_probes, seed=seed, tol=tol)


def _dense(v, c, edges):
    """Resistances from the (pseudo-)inverse of K, where K = 0 on the constants of a component by those of K + T."""
    i, j = edges
    K = torch.zeros(len(c), len(c), dtype=torch.float64)
    K[i, j] = K[j, i] = -v
    K.diagonal().copy_(degrees(v.abs(), edges, len(c)) + c)
    T = _constants(v, c, edges)
    scale = K.diagonal().mean()
    Sigma = torch.cholesky_inverse(torch.linalg.cholesky(K + scale * T)) - T / scale
    variance = Sigma.diagonal()
    ends = degrees_adjoint(variance, edges)
    return ListAtoms(ends - 2 * Sigma[i, j], ends + 2 * Sigma[i, j], variance.clone())


def components(v, edges, n_nodes):
    """The number of the component that each node belongs to, (m,)."""
    A = coo_array((np.asarray(v) != 0, tuple(np.asarray(edges))), shape=(n_nodes, n_nodes))
    A.eliminate_zeros()
    return torch.from_numpy(connected_components(A, directed=False)[1].astype(np.int64))


def _constants(v, c, edges):
    """The projector on the vectors that are constant on a component without ground and 0 elsewhere, (m, m)."""
    component = components(v, edges, len(c))
    without = torch.zeros(len(c), dtype=c.dtype).index_add(0, component, c)[component] == 0
    T = ((component[:, None] == component) & without).double()
    return T / T.sum(0).clamp_min(1)


def sketch(v, c, edges, n_probes, *, seed=0, tol=1e-2):
    """Resistances of all atoms by random projection (Spielman and Srivastava 2011), the first terms exactly.

    For random signs s, u = sum_ij sqrt|v_ij| s_ij (e_i -+ e_j) + sum_i sqrt(c_i) s_i e_i has covariance K, and
    z = K^-1 u covariance K^-1. With D the diagonal of K and K = D - V,

        K^-1 = D^-1 + D^-1 V D^-1 + D^-1 V K^-1 V D^-1,    D^-1 V z = z - D^-1 u =: t,

    so that only r_ij - (1/d_i + 1/d_j - 2 v_ij / (d_i d_j)) = E (t_i - t_j)^2, with + for sums, and
    r_i - 1/d_i = E t_i^2 are means over `n_probes` draws, each with a relative error of sqrt(2 / n_probes).
    """
    if n_probes < 1 or n_probes % BLOCK:
        raise ValueError(f"n_probes={n_probes}: a positive multiple of {BLOCK} is needed")
    i, j = edges
    child, *children = spawn(seed, 1 + n_probes // BLOCK)
    system = DominantSystem(edges, v, c, seed=child)
    inverse = np.divide(1, system.diagonal, out=np.zeros(len(c)), where=system.diagonal > 0)
    ends = inverse[i] + inverse[j]
    across = 2 * v * inverse[i] * inverse[j]
    r = ends - across, ends + across, inverse.copy()
    for child in children:
        rng = np.random.default_rng(child)
        U = np.zeros((len(c), BLOCK))
        _add_signs(i, j, v, rng.integers(0, 2**BLOCK, len(v)), U)
        U += np.sqrt(c)[:, None] * (2.0 * rng.integers(0, 2, U.shape) - 1)
        t = system.solve(U, tol=tol) - inverse[:, None] * U
        _add_squares(i, j, t, n_probes, *r)
    return ListAtoms(*(torch.from_numpy(x) for x in r))


@njit(cache=True)
def _add_signs(heads, tails, v, bits, U):
    """Add sqrt|v| s (e_i - sign(v) e_j) to every column of U (m, BLOCK), s = +-1 from the bits (E,) of a number."""
    for e in range(len(v)):
        i, j = heads[e], tails[e]
        root = np.sqrt(abs(v[e]))
        other = root if v[e] > 0 else -root
        for b in range(BLOCK):
            s = 2.0 * ((bits[e] >> b) & 1) - 1.0
            U[i, b] += s * root
            U[j, b] -= s * other


@njit(cache=True)
def _add_squares(heads, tails, t, n_probes, difference, total, ground):
    """Add the squares of t_i - t_j, t_i + t_j (E,) and t_i (m,), summed over the columns of t, divided by n_probes."""
    for e in range(len(heads)):
        i, j = heads[e], tails[e]
        minus = 0.0
        plus = 0.0
        for b in range(BLOCK):
            minus += (t[i, b] - t[j, b]) ** 2
            plus += (t[i, b] + t[j, b]) ** 2
        difference[e] += minus / n_probes
        total[e] += plus / n_probes
    for i in range(len(t)):
        for b in range(BLOCK):
            ground[i] += t[i, b] ** 2 / n_probes


# --- approximate maximum likelihood ---------------------------------------------------------------------------------


def even_start(y, n_nodes):
    """Weights of equal leverage w y, which add up to about m: ListAtoms of moments -> ListAtoms of weights.

    Of the two atoms of a pair the one that sees less has most. A kind whose moments are None has weights 0.
    """
    share = n_nodes / len(y.difference)
    ground = y.difference.new_zeros(n_nodes) if y.ground is None else 0.2 / y.ground
    if y.sum is None:
        return ListAtoms(share / y.difference, torch.zeros_like(y.difference), ground)
    large, small = share, 0.05 * share
    nearer = y.difference <= y.sum
    difference = torch.where(nearer, large, small) / y.difference
    return ListAtoms(difference, torch.where(nearer, small, large) / y.sum, ground)


def relaxed_update(w, y, r, relaxation=1.0):
    """w (r / y)^p, p = q / (1 + (q - 1) w r) for a relaxation q: one update of the atoms of one kind.

    In log w, and near the maximum, w r / y is a gradient step with a matrix H whose eigenvalues are in [0, 1] and whose
    diagonal is the leverage w r. So steps up to q = 2 are stable, and halve the number of updates, but an atom of
    leverage 1, such as a bridge, arrives in a single step of 1.
    """
    return w * (r / y) ** (relaxation / (1 + (relaxation - 1) * (w * r).clamp_max(1)))


@torch.no_grad()
def likely_atoms(y, edges, n_nodes, n_updates=N_UPDATES, *, n_probes=None, seed=0, progress=False):
    """Weights near the most likely ones, and their resistances: ListAtoms of moments -> two ListAtoms.

    The relaxation of the updates is 1.9 for the first third and then falls, so that the errors of the sketches, drawn
    anew for each update, average out: 16 projections per update do. With 40 updates the likelihood per node is some
    .002 below its maximum, with resistances that are exact or not; 40 plain updates w r / y get to .0025.

    Parameters
    ----------
    y : ListAtoms of moments u'S u > 0; None leaves a kind out, whose weights and resistances are 0
    edges : (2, E) int64, edges[0] < edges[1], each pair once
    n_probes : random projections for the resistances of the result, a multiple of 16; None inverts a matrix for all
        resistances, and beyond 2,000 nodes takes 256
    """
    y = ListAtoms(*(_check_moments(name, x) for name, x in zip(ListAtoms._fields, y)))
    edges = check_edges(edges, n_nodes, len(y.difference))
    if n_probes is None and n_nodes <= DENSE_NODES:
        return _update(y, edges, n_nodes, n_updates, None, None, seed, progress)
    nodes, pairs, edges = _close_in_memory(edges, n_nodes)
    y = ListAtoms(*(x if x is None else x[k] for x, k in zip(y, (pairs, pairs, nodes))))
    found = _update(y, edges, n_nodes, n_updates, BLOCK, n_probes or N_PROBES, seed, progress)
    pairs, nodes = pairs.argsort(), nodes.argsort()
    return tuple(ListAtoms(x.difference[pairs], x.sum[pairs], x.ground[nodes]) for x in found)


def _close_in_memory(edges, n_nodes):
    """Another order of the nodes (m,) and of the pairs (E,), and the list in it: neighbours have similar numbers.

    That halves the time of all loops over a list that is larger than the processor's cache.
    """
    A = coo_array((np.ones(edges.shape[1]), tuple(edges.numpy())), shape=(n_nodes, n_nodes)).tocsr()
    nodes = torch.from_numpy(reverse_cuthill_mckee(A + A.T, symmetric_mode=True).astype(np.int64))
    i, j = nodes.argsort()[edges].sort(0).values
    pairs = (i * n_nodes + j).argsort()
    return nodes, pairs, torch.stack([i[pairs], j[pairs]])


def _update(y, edges, n_nodes, n_updates, n_each, n_last, seed, progress):
    """`likely_atoms` with so many projections for each update and for the result; None is exact."""
    *seeds, last = spawn(seed, n_updates + 1)
    w = even_start(y, n_nodes)
    for t in tqdm(range(n_updates), "likelihood", disable=not progress, leave=False):
        r = resistances(w, edges, n_probes=n_each, seed=seeds[t])
        q = min(RELAXATION, 3 * (1 - t / n_updates))
        w = ListAtoms(*(x if s is None else relaxed_update(x, s, rx, q) for x, s, rx in zip(w, y, r)))
    r = resistances(w, edges, n_probes=n_last, seed=last)
    r = ListAtoms(*(torch.zeros_like(x) if s is None else x for x, s in zip(r, y)))

    # the most likely scale: Foster's sum of w r over all atoms is the rank of K, and y measures r without bias
    factor = sum(x @ rx for x, rx in zip(w, r)) / sum(x @ s for x, s in zip(w, y) if s is not None)
    return ListAtoms(*(factor * x for x in w)), ListAtoms(*(x / factor for x in r))


def _check_moments(name, y):
    """y as a float64 tensor, or None; ValueError if it is not finite and positive."""
    if y is None:
        return None
    y = torch.as_tensor(y).double()
    if not (y.isfinite() & (y > 0)).all():
        worst = y.min().item()
        raise ValueError(f"y.{name} has a value of {worst:g}: finite positive moments are needed; add a white signal")
    return y
