"""Linear systems with a symmetric diagonally dominant matrix, for many right-hand sides at once.

    K = sum |w_ij| (e_i - sign(w_ij) e_j)(e_i - sign(w_ij) e_j)'  +  sum c_i e_i e_i',   so that  K_ij = -w_ij,  c >= 0:

a graph's Laplacian if all w >= 0 and c = 0. Its Cholesky factor would fill up. Here elimination of a node, which ties
all of its neighbours to each other, keeps a random tree of these ties with the right mean (Kyng and Sachdeva 2016):
the factor has about as many entries as K, and conjugate gradients with it need tens of iterations where those with the
diagonal need thousands. Blocks of right-hand sides are stored nodes first, (m, BLOCK).
"""

import heapq

import numpy as np
from numba import njit
from scipy.sparse import csr_array, diags_array

BLOCK = 16  # right-hand sides at once: two cache lines per node


class DominantSystem:
    """K x = u for the matrix K above.

    Parameters
    ----------
    edges : (2, E) int64, each pair once; w : (E,) float64 of either sign; ground : c (m,) >= 0
    seed : of the approximate factor, which has a bearing on the time only
    """

    def __init__(self, edges, w, ground, *, seed=0):
        m = len(ground)
        on = np.flatnonzero(w)
        i, j = edges[:, on].astype(np.int32, order="C")
        W = csr_array((w[on], (i, j)), shape=(m, m))
        W = W + W.T
        self.diagonal = abs(W).sum(1) + ground
        K = (diags_array(self.diagonal) - W).tocsr()
        self._matrix = K.indptr, K.indices, K.data
        self._factor = approximate_cholesky(i, j, w[on], ground, np.random.default_rng(seed))

    def solve(self, U, *, tol=1e-2, n_iter=1000):
        """X (m, BLOCK) with K X = U up to a relative residual `tol` in the norm of the preconditioner.

        Where K is singular, on a component without ground, the columns of U must add up to 0 there.
        """
        X = np.zeros_like(U)
        R = U.copy()
        Z = U.copy()
        P = np.zeros_like(U)
        Q = np.empty_like(U)
        last = np.ones(BLOCK)
        stop = None
        for _ in range(n_iter):
            _substitute(*self._factor, Z)
            rr = np.einsum("ib,ib->b", R, Z)
            stop = tol**2 * rr if stop is None else stop
            live = rr > stop
            if not live.any():
                break
            _turn(P, Z, np.where(live, rr / last, 0))
            pq = _multiply(*self._matrix, P, Q)
            _step(X, R, P, Q, Z, np.divide(rr, pq, out=np.zeros(BLOCK), where=live & (pq > 0)))
            last = np.where(live, rr, 1)
        return X


# --- the factor -----------------------------------------------------------------------------------------------------


@njit(cache=True)
def approximate_cholesky(heads, tails, w, ground, rng):
    """An approximate factor K ~ (I - V)' D (I - V)'^T: order (m,), starts (m + 1,), rows, values, 1 / D (m,).

    Node order[t] is eliminated at step t. Its neighbours are rows[starts[t]:starts[t+1]] and `values` their w / D. What
    elimination adds between two neighbours u, x is an edge |w_u w_x| / D; each u, from the lightest on, keeps one x
    among the heavier ones, drawn by weight, with all that it would have with these. The ground gets all of its part.

    An edge is two half-edges, 2e and 2e + 1, linked to lists per node. An edge of the eliminated node becomes the one
    that its neighbour keeps, so that there is never need for more.
    """
    m, n_edges = len(ground), len(w)
    c = ground.copy()
    end = np.empty(2 * n_edges, np.int32)
    weight = np.empty(2 * n_edges)
    following = np.empty(2 * n_edges, np.int32)
    first = np.full(m, -1, np.int32)
    count = np.zeros(m, np.int32)
    for e in range(n_edges):
        for h, a, b in ((2 * e, heads[e], tails[e]), (2 * e + 1, tails[e], heads[e])):
            end[h] = b
            weight[h] = w[e]
            following[h] = first[a]
            first[a] = h
            count[a] += 1
    queue = [(count[v], np.int32(v)) for v in range(m)]
    heapq.heapify(queue)
    done = np.zeros(m, np.bool_)
    order = np.empty(m, np.int32)
    inverse = np.zeros(m)
    starts = np.zeros(m + 1, np.int64)
    rows = np.empty(2 * n_edges + m, np.int32)
    values = np.empty(2 * n_edges + m)
    n_values = 0
    place = np.full(m, -1, np.int32)
    edge = np.empty(m, np.int32)
    size = np.empty(m)
    t = 0
    while t < m:
        n, v = heapq.heappop(queue)  # the node with the fewest edges; entries of the queue may be out of date
        if done[v]:
            continue
        if count[v] > n:
            heapq.heappush(queue, (count[v], v))
            continue
        done[v] = True

        # 1. Its neighbours, each once; two edges of opposite sign are one and something of the ground
        d = 0
        h = first[v]
        while h >= 0:
            u, x = end[h], weight[h]
            if x != 0 and place[u] < 0:
                place[u] = d
                edge[d] = h
                size[d] = x
                d += 1
            elif x != 0:
                k = place[u]
                if (x < 0) != (size[k] < 0):
                    both = 2 * min(abs(x), abs(size[k]))
                    c[v] += both
                    c[u] += both
                size[k] += x
                weight[h ^ 1] = 0
                count[u] -= 1
            h = following[h]

        # 2. The column of the factor, from the lightest neighbour to the heaviest
        ranks = np.argsort(np.abs(size[:d]))
        cumulative = np.cumsum(np.abs(size[ranks]))
        total = cumulative[-1] if d > 0 else 0.0
        pivot = total + c[v]
        order[t] = v
        if pivot > 0:
            inverse[v] = 1 / pivot
        if n_values + d > len(rows):
            rows = np.concatenate((rows, np.empty(len(rows) + d, np.int32)))
            values = np.concatenate((values, np.empty(len(values) + d)))
        for k in range(d):
            h, x = edge[ranks[k]], size[ranks[k]]
            u = end[h]
            place[u] = -1
            rows[n_values] = u
            values[n_values] = x / pivot if pivot > 0 else 0.0
            n_values += 1

            # 3. What elimination adds: to the ground, and to one heavier neighbour for all of them
            c[u] += c[v] * abs(values[n_values - 1])
            rest = total - cumulative[k]
            if k == d - 1 or rest <= 0 or x == 0:
                weight[h ^ 1] = 0
                count[u] -= 1
                heapq.heappush(queue, (count[u], u))
                continue
            q = np.searchsorted(cumulative, cumulative[k] + rng.random() * rest, side="right")
            q = ranks[min(max(q, k + 1), d - 1)]
            other = end[edge[q]]
            new = values[n_values - 1] * rest
            if size[q] < 0:
                new = -new
            end[h ^ 1] = other
            weight[h ^ 1] = new
            weight[h] = new
            following[h] = first[other]
            first[other] = h
            count[other] += 1
        t += 1
        starts[t] = n_values
    return order, starts, rows[:n_values].copy(), values[:n_values].copy(), inverse


# --- loops over blocks of right-hand sides ----------------------------------------------------------------------------


@njit(cache=True)
def _substitute(order, starts, rows, values, inverse, X):
    """X (m, BLOCK) <- (approximate K)^-1 X."""
    m = len(order)
    for t in range(m):
        v = order[t]
        for p in range(starts[t], starts[t + 1]):
            i, x = rows[p], values[p]
            for b in range(BLOCK):
                X[i, b] += x * X[v, b]
    for t in range(m - 1, -1, -1):
        v = order[t]
        for b in range(BLOCK):
            X[v, b] *= inverse[v]
        for p in range(starts[t], starts[t + 1]):
            i, x = rows[p], values[p]
            for b in range(BLOCK):
                X[v, b] += x * X[i, b]


@njit(cache=True)
def _multiply(indptr, indices, data, P, Q):
    """Q <- K P, each (m, BLOCK), and the products p'K p of the columns (BLOCK,)."""
    products = np.zeros(BLOCK)
    for i in range(len(P)):
        Q[i] = 0
        for p in range(indptr[i], indptr[i + 1]):
            j, x = indices[p], data[p]
            for b in range(BLOCK):
                Q[i, b] += x * P[j, b]
        for b in range(BLOCK):
            products[b] += P[i, b] * Q[i, b]
    return products


@njit(cache=True)
def _step(X, R, P, Q, Z, step):
    """X += step P, R -= step Q, Z = R: a step of conjugate gradients for each column."""
    for i in range(len(X)):
        for b in range(BLOCK):
            X[i, b] += step[b] * P[i, b]
            R[i, b] -= step[b] * Q[i, b]
            Z[i, b] = R[i, b]


@njit(cache=True)
def _turn(P, Z, ratio):
    """P <- Z + ratio P: the next direction of each column."""
    for i in range(len(P)):
        for b in range(BLOCK):
            P[i, b] = Z[i, b] + ratio[b] * P[i, b]
