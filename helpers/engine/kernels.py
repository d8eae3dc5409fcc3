"""T layers of Algorithm 2 without enhancement, and their adjoint, compiled for the CPU.

A layer is a dozen operations on a few thousand numbers: as tensor operations nearly all of its time is overhead. Here
it is three loops over edges whose inner loop runs over the batch, stored edges first. With c = 2 beta gamma,
e = w - p1 and f = v - p2, a layer is

    r1 = (1 - c) w - 2 gamma y - gamma D'v        r2 = v + gamma D w
    p1 = relu(r1)                                 p2 = (r2 - root) / 2,  root = sqrt(r2^2 + 4 alpha gamma)
    w <- p1 + c e + gamma D'f                     v <- p2 - gamma D e

(the 2y of Steps 3 and 7 cancels in Step 9). The backward pass is the adjoint recursion, written by hand. Edges are a
list of end points, so nothing here depends on the graph being complete.

The second part holds the loops over a list of candidate edges that the exact solver spends its time in.
"""

import numpy as np
import torch
from numba import njit
from torch.autograd.function import once_differentiable

ROOT_FLOOR = 1e-8  # the released code's floor under the root of Step 6: trained alpha * gamma may turn negative


@njit(cache=True)
def _forward(heads, tails, y, constants, slope, W, V, P, R, Q, F, D, De):
    """Fill W (T+1, E, B) and V (T+1, m, B) from their first entries, and what the adjoint needs:
    P = p1 (T, E, B); R = r2, Q = root, F = f, D = D w and De (T, m, B)."""
    n_layers, m, n = R.shape
    half, floor = y.dtype.type(0.5), y.dtype.type(ROOT_FLOOR)
    D[:] = 0
    De[:] = 0
    for t in range(n_layers):
        c, keep, gamma, two_gamma, four_alpha_gamma = constants[t]
        for k in range(len(heads)):
            i, j = heads[k], tails[k]
            for b in range(n):
                w = W[t, k, b]
                r1 = keep * w - two_gamma * y[k, b] - gamma * (V[t, i, b] + V[t, j, b])
                p1 = max(r1, slope * r1)
                P[t, k, b] = p1
                D[t, i, b] += w
                D[t, j, b] += w
                De[t, i, b] += w - p1
                De[t, j, b] += w - p1
        for i in range(m):
            for b in range(n):
                v = V[t, i, b]
                r2 = v + gamma * D[t, i, b]
                root = np.sqrt(max(r2 * r2 + four_alpha_gamma, floor))
                f = v - half * (r2 - root)
                R[t, i, b], Q[t, i, b], F[t, i, b] = r2, root, f
                V[t + 1, i, b] = v - f - gamma * De[t, i, b]
        for k in range(len(heads)):
            i, j = heads[k], tails[k]
            for b in range(n):
                p1 = P[t, k, b]
                W[t + 1, k, b] = p1 + c * (W[t, k, b] - p1) + gamma * (F[t, i, b] + F[t, j, b])


@njit(cache=True)
def _backward(heads, tails, y, constants, slope, W, V, P, R, Q, F, D, De, g_W, g_w, g_v, g_y, sums):
    """Adjoint of `_forward`. `g_W` (T, E, B) are gradients by the path; `g_w` (E, B) and `g_v` (m, B) come in as those
    by the last w and v and go out as those by the first. `sums` (T, 3, B) is what the gradients by theta need."""
    n_layers, m, n = R.shape
    Dg, Dg_r1, g_r2 = np.empty_like(g_v), np.empty_like(g_v), np.empty_like(g_v)
    zero, half, one, floor = y.dtype.type(0), y.dtype.type(0.5), y.dtype.type(1), y.dtype.type(ROOT_FLOOR)
    for t in range(n_layers - 1, -1, -1):
        c, keep, gamma, two_gamma, four_alpha_gamma = constants[t]
        Dg[:] = 0
        Dg_r1[:] = 0
        for k in range(len(heads)):
            i, j = heads[k], tails[k]
            for b in range(n):
                g = g_w[k, b] + g_W[t, k, b]
                g_e = c * g - gamma * (g_v[i, b] + g_v[j, b])
                by_r1 = g - g_e if P[t, k, b] > zero else slope * (g - g_e)  # p1 has the sign of r1
                Dg[i, b] += g
                Dg[j, b] += g
                Dg_r1[i, b] += by_r1
                Dg_r1[j, b] += by_r1
                w = W[t, k, b]
                sums[t, 1, b] += g * (w - P[t, k, b]) - by_r1 * w
                sums[t, 2, b] -= by_r1 * (y[k, b] + y[k, b])
                g_y[k, b] -= two_gamma * by_r1
                g_w[k, b] = g_e + keep * by_r1
        for i in range(m):
            for b in range(n):
                r2, root = R[t, i, b], Q[t, i, b]
                g_p2 = g_v[i, b] - gamma * Dg[i, b]
                inverse = one / root if r2 * r2 + four_alpha_gamma > floor else zero  # the root is flat at its floor
                by_r2 = half * g_p2 * (one - r2 * inverse)
                sums[t, 0, b] += g_p2 * inverse
                sums[t, 2, b] += Dg[i, b] * F[t, i, b] - g_v[i, b] * De[t, i, b]
                sums[t, 2, b] += by_r2 * D[t, i, b] - Dg_r1[i, b] * V[t, i, b]
                g_r2[i, b] = by_r2
                g_v[i, b] = by_r2 + gamma * (Dg[i, b] - Dg_r1[i, b])
        for k in range(len(heads)):
            i, j = heads[k], tails[k]
            for b in range(n):
                g_w[k, b] += gamma * (g_r2[i, b] + g_r2[j, b])


class PDSLayers(torch.autograd.Function):
    """w, y (..., E, B), v (..., m, B), theta (..., T, 3), edges (2, E) -> path (..., T, E, B), last v (..., m, B).

    The dots are (S,) for S stacked networks, each with its own theta, or nothing. CPU tensors of one dtype.
    """

    @staticmethod
    def forward(ctx, w, v, y, theta, slope, edges):
        stack = y.shape[:-2]
        w, v, y, rows = (x.detach().reshape(-1, *x.shape[-2:]) for x in (w, v, y, theta))
        (n_stacked, n_edges, n), m, n_layers = y.shape, v.shape[1], rows.shape[1]
        alpha, beta, gamma = rows.double().numpy().transpose(2, 0, 1)
        c = 2 * beta * gamma
        y = np.ascontiguousarray(y.numpy())
        constants = np.stack([c, 1 - c, gamma, 2 * gamma, 4 * alpha * gamma], 2)
        with np.errstate(over="ignore"):  # a training that diverges is noticed by its loss
            constants = constants.astype(y.dtype)
        W = np.empty((n_stacked, n_layers + 1, n_edges, n), y.dtype)
        V = np.empty((n_stacked, n_layers + 1, m, n), y.dtype)
        W[:, 0] = w.numpy()
        V[:, 0] = v.numpy()
        P = np.empty((n_stacked, n_layers, n_edges, n), y.dtype)
        nodes = np.empty((n_stacked, 5, n_layers, m, n), y.dtype)
        ctx.calls = [
            (*edges.numpy(), y[s], constants[s], y.dtype.type(slope), W[s], V[s], P[s], *nodes[s])
            for s in range(n_stacked)
        ]
        ctx.save_for_backward(theta)
        for arguments in ctx.calls:
            _forward(*arguments)
        path = torch.from_numpy(W[:, 1:]).reshape(*stack, n_layers, n_edges, n)
        return path, torch.from_numpy(V[:, -1].copy()).reshape(*stack, m, n)

    @staticmethod
    @once_differentiable
    def backward(ctx, g_path, g_v):
        (theta,) = ctx.saved_tensors
        stack = theta.shape[:-2]
        g_path = np.ascontiguousarray(g_path.reshape(len(ctx.calls), *g_path.shape[-3:]).numpy())
        g_v = g_v.reshape(len(ctx.calls), *g_v.shape[-2:]).numpy().copy()
        g_w = np.zeros((len(ctx.calls), *g_path.shape[-2:]), g_path.dtype)
        g_y = np.zeros_like(g_w)
        sums = np.zeros((len(ctx.calls), g_path.shape[1], 3, g_path.shape[-1]), g_path.dtype)
        for s, arguments in enumerate(ctx.calls):
            _backward(*arguments, g_path[s], g_w[s], g_v[s], g_y[s], sums[s])
        alpha, beta, gamma = theta.double().unbind(-1)
        by_root, by_beta, by_gamma = torch.from_numpy(sums.sum(3, dtype=np.float64)).reshape(*theta.shape).unbind(-1)
        g_gamma = 2 * beta * by_beta + by_gamma - alpha * by_root
        g_theta = torch.stack([-gamma * by_root, 2 * gamma * by_beta, g_gamma], -1).to(theta)
        by_w, by_v, by_y = (torch.from_numpy(g).reshape(*stack, *g.shape[1:]) for g in (g_w, g_v, g_y))
        return by_w, by_v, by_y, g_theta, None, None


# --- candidate edge lists ---------------------------------------------------------------------------------------------


def two_sum(a, b):
    """a + b as a floating-point sum and its rounding error (Knuth); for numbers, arrays and tensors."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


_two_sum = njit(two_sum)


@njit(cache=True)
def list_residuals(heads, tails, y, lam, low, R, d, squares):
    """Fill R = relu(l_i + l_j - 2y) (b, E), the degrees d (b, m) of w = R / 2 and the sums of R^2 (b,).

    l is the sum `lam` + `low`, each (b, m).
    """
    d[:] = 0
    squares[:] = 0
    for b in range(len(y)):
        for e in range(len(heads)):
            i, j = heads[e], tails[e]
            total, lost = _two_sum(lam[b, i], lam[b, j])
            r = max(total - 2 * y[b, e] + (lost + low[b, i] + low[b, j]), 0.0)
            R[b, e] = r
            d[b, i] += r / 2
            d[b, j] += r / 2
            squares[b] += r * r


@njit(cache=True)
def list_slack(heads, tails, y, lam, slack):
    """Fill slack (b, m) with the least 2y - l_i - l_j among the edges at each node."""
    slack[:] = np.inf
    for b in range(len(y)):
        for e in range(len(heads)):
            i, j = heads[e], tails[e]
            value = 2 * y[b, e] - lam[b, i] - lam[b, j]
            slack[b, i] = min(slack[b, i], value)
            slack[b, j] = min(slack[b, j], value)


@njit(cache=True)
def list_active(heads, tails, R, count):
    """The ends of the edges with R > 0, R (E,), and in `count` (m,) how many of them each node has."""
    count[:] = 0
    active_heads = np.empty_like(heads)
    active_tails = np.empty_like(tails)
    n = 0
    for e in range(len(heads)):
        i, j, on = heads[e], tails[e], R[e] > 0
        active_heads[n] = i
        active_tails[n] = j
        n += on
        count[i] += on
        count[j] += on
    return active_heads[:n], active_tails[:n]


@njit(cache=True)
def add_signless_laplacian(heads, tails, factor, x, out):
    """Add factor * |B||B|'x to `out` (m,), (|B||B|'x)_i = the sum of x_i + x_j over the edges ij at node i."""
    for e in range(len(heads)):
        i, j = heads[e], tails[e]
        value = factor * (x[i] + x[j])
        out[i] += value
        out[j] += value
