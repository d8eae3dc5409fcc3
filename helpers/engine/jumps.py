"""The moves of a Markov chain over signed graphs and their weights, compiled: see `beyond.posterior.walk`.

The state is `signs` (E,) in {1, 0, -1}, log-weights `x` (U,) of all pairs and then of the ground, if there is one, and
`log_unit` (1,). Beside it goes C = K^-1 (m, m), where K = sum_u w_u u u' + noise I and u = e_i - sign e_j, for the
ground e_i. If the weight of an atom changes by d, then with r = u'C u and y = u'S u the log-likelihood of N signals
gains N/2 (log(1 + d r) - d y), and C becomes C - d C u u'C / (1 + d r): a proposal costs a few operations, an accepted
one m^2.
"""

import numpy as np
from numba import njit

RENEWAL = 8  # sweeps after which C is computed anew, so that rounding errors of updates do not add up
STEPS = (1.0, 0.3, 0.1)  # of a random walk of log-weights, in units of their spread


@njit(cache=True)
def walk(S, half, constants, ends, index, signs, x, log_unit, moves, rng, each, shares):
    """Sweeps of all moves, each of which leaves the posterior as it is; `half` is N/2. Fills the shares of a batch."""
    spread, unit, a, b, noise, least, signed = constants
    n_pairs = len(signs)
    k = np.count_nonzero(signs)
    C = _covariance(ends, signs, x, len(S), noise)
    for batch in range(len(shares)):
        for sweep in range(each):
            if sweep % RENEWAL == 0:
                C = _covariance(ends, signs, x, len(S), noise)
            for e in range(n_pairs if moves[0] else 0):
                i, j = ends[0, e], ends[1, e]
                k += _toggle(S, C, half, e, i, j, k, spread, a, b, least, signed, signs, x, log_unit, rng)
            for u in range(len(x) if moves[1] else 0):
                if u >= n_pairs:
                    _stretch(S, C, half, u, u - n_pairs, u - n_pairs, 0, spread, x, log_unit, rng)
                elif signs[u] != 0:
                    _stretch(S, C, half, u, ends[0, u], ends[1, u], signs[u], spread, x, log_unit, rng)
            for _ in range(n_pairs if moves[2] else 0):
                e = int(n_pairs * rng.random())  # by chance: in turn, an edge could go where it cannot come back from
                if signs[e] != 0:
                    _move(S, C, half, e, ends[0, e], ends[1, e], index, signed, signs, x, rng)
            if moves[3]:
                _shift(spread, unit, signs, x, log_unit, rng)
            for e in range(n_pairs):
                if signs[e] != 0:
                    shares[batch, 0 if signs[e] > 0 else 1, e] += 1 / each


@njit(cache=True)
def _covariance(ends, signs, x, m, noise):
    """K^-1."""
    K = noise * np.eye(m)
    for e in range(len(signs)):
        if signs[e] != 0:
            _add_atom(K, ends[0, e], ends[1, e], signs[e], np.exp(x[e]))
    for u in range(len(signs), len(x)):
        K[u - len(signs), u - len(signs)] += np.exp(x[u])
    return np.linalg.inv(K)


@njit(cache=True)
def _add_atom(K, i, j, sign, w):
    K[i, i] += w
    K[j, j] += w
    K[i, j] -= sign * w
    K[j, i] -= sign * w


@njit(cache=True)
def _square(A, i, j, sign):
    """u'A u for u = e_i - sign e_j; with sign 0 it is the ground's."""
    return A[i, i] + sign * sign * A[j, j] - 2 * sign * A[i, j]


@njit(cache=True)
def _update(C, i, j, sign, change):
    """C becomes (K + change u u')^-1."""
    v = C[i] - sign * C[j]
    f = change / (1 + change * _square(C, i, j, sign))
    for k in range(len(C)):
        for l in range(len(C)):  # noqa: E741
            C[k, l] -= f * v[k] * v[l]


@njit(cache=True)
def _gain(S, C, half, i, j, sign, change):
    """What the log-likelihood gains if the weight of an atom changes."""
    return half * (np.log(1 + change * _square(C, i, j, sign)) - change * _square(S, i, j, sign))


@njit(cache=True)
def _accepts(log_ratio, rng):
    return np.log(rng.random()) < log_ratio  # not if it is NaN


@njit(cache=True)
def _toggle(S, C, half, e, i, j, k, spread, a, b, least, signed, signs, x, log_unit, rng):
    """Birth of an edge, its sign and weight from the prior; or death. Returns the change of k, the number of edges.

    Sign and weight cancel, and what is left of the prior is P(k + 1 edges) / P(k edges) = (a + k) / (b + E - k - 1).
    """
    if signs[e] == 0:
        sign = -1 if signed and rng.random() < 0.5 else 1
        log_weight = log_unit[0] + spread * rng.standard_normal()
        w = np.exp(log_weight)
        if _accepts(_gain(S, C, half, i, j, sign, w) + np.log((a + k) / (b + len(signs) - k - 1)), rng):
            _update(C, i, j, sign, w)
            signs[e] = sign
            x[e] = log_weight
            return 1
    elif k > least:
        w = np.exp(x[e])
        if _accepts(_gain(S, C, half, i, j, signs[e], -w) - np.log((a + k - 1) / (b + len(signs) - k)), rng):
            _update(C, i, j, signs[e], -w)
            signs[e] = 0
            return -1
    return 0


@njit(cache=True)
def _stretch(S, C, half, u, i, j, sign, spread, x, log_unit, rng):
    """A step of a random walk of one log-weight."""
    new = x[u] + spread * STEPS[int(len(STEPS) * rng.random())] * rng.standard_normal()
    change = np.exp(new) - np.exp(x[u])
    prior = ((x[u] - log_unit[0]) ** 2 - (new - log_unit[0]) ** 2) / (2 * spread**2)
    if _accepts(_gain(S, C, half, i, j, sign, change) + prior, rng):
        _update(C, i, j, sign, change)
        x[u] = new


@njit(cache=True)
def _move(S, C, half, e, i, j, index, signed, signs, x, rng):
    """An edge keeps its weight and one of its ends and goes to another node, or, in a signed law, changes its sign."""
    if rng.random() < 0.5:
        i, j = j, i
    k, sign = j, -signs[e]
    if not signed or rng.random() < 0.5:
        k, sign = int(len(S) * rng.random()), signs[e]
        if k in (i, j) or signs[index[i, k]] != 0:
            return
    w = np.exp(x[e])
    # of the atoms u = e_i - signs[e] e_j and v = e_i - sign e_k, which u leaves its weight to
    cross = C[i, i] - sign * C[i, k] - signs[e] * C[i, j] + sign * signs[e] * C[j, k]
    determinant = (1 - w * _square(C, i, j, signs[e])) * (1 + w * _square(C, i, k, sign)) + (w * cross) ** 2
    fit = w * (_square(S, i, k, sign) - _square(S, i, j, signs[e]))
    if _accepts(half * (np.log(determinant) - fit), rng):
        _update(C, i, k, sign, w)
        _update(C, i, j, signs[e], -w)
        signs[e] = 0
        signs[index[i, k]] = sign
        x[index[i, k]] = np.log(w)


@njit(cache=True)
def _shift(spread, unit, signs, x, log_unit, rng):
    """The unit given the weights is normal."""
    total, n = 0.0, 0
    for u in range(len(x)):
        if u >= len(signs) or signs[u] != 0:
            total += x[u]
            n += 1
    precision = 1 / unit**2 + n / spread**2
    log_unit[0] = total / spread**2 / precision + rng.standard_normal() / np.sqrt(precision)
