"""From the edges of a graph to a precision matrix: its most likely diagonal and scale.

Signed weights W (m, m) say which entries of a precision matrix K are not zero, and in which proportions. What is left
is a concave problem in m + 1 unknowns, the diagonal k and one factor t,

    maximise  logdet K - tr(S K),    K = diag(k) - t W,

S the second moments. At the maximum (K^-1)_ii = S_ii, and K^-1 and S agree in sum_ij W_ij S_ij. In units in which all
S_ii = 1, Newton's method finds it: the objective is self-concordant, so that the Newton decrement bounds what is
missing. On many thousand nodes the pseudo-likelihood, sum over nodes of log p(x_i | others), stands in, which has the
diagonal in closed form. Float64, NumPy.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import minimize_scalar
from scipy.sparse import csgraph

N_ITERATIONS = 200
MIN_STEP = 1e-10
RIDGE = 1e-14  # of the scaled Hessian, which rounding may leave singular
DOMINANCE = 1 + 1e-6  # of a diagonal over the sum of its row, where nothing else tells that K is positive definite


class Completion(NamedTuple):
    """K (m, m), positive definite; its t; and by how much logdet K - tr(S K) is at most below its maximum."""

    precision: np.ndarray
    scale: float
    gap: float


def complete(S, W, *, tol=1e-10):
    """The most likely K = diag(k) - t W for second moments S (m, m), S positive definite, W symmetric of zero diagonal.

    t > 0 exists only if W agrees with S more often than not, sum_ij W_ij S_ij > 0. Otherwise t = 1 and the diagonal
    alone is the most likely one.
    """
    if not np.isfinite(S).all() or (np.diag(S) <= 0).any():
        raise ValueError("S has entries that are not finite, or variances that are not positive: see add_white_signal")
    d = np.sqrt(np.diag(S))
    R = S / np.outer(d, d)
    A = W * np.outer(d, d)
    size = np.abs(A).max()
    if size == 0:
        return Completion(np.diag(1 / d**2), 1.0, 0.0)
    A = A / size
    free = (A * R).sum() > 0
    start = _start(R, A) if free else np.append(1 + size * np.abs(A).sum(1), size)
    x, gap = _newton(start, R, A, free, tol)
    K = (np.diag(x[:-1]) - x[-1] * A) / np.outer(d, d)
    return Completion(K, x[-1] / size, gap)


def _newton(x, R, A, free, tol):
    """Maximise f(x) = logdet K - sum k + t tr(R A), x = (k, t), by damped steps; t stays as it is unless `free`."""
    slope = np.append(-np.ones(len(R)), (R * A).sum())
    value, Sigma = _evaluate(x, A, slope)
    gap = math.inf
    for _ in range(N_ITERATIONS):
        step, squared = _newton_step(Sigma, A, slope, free)
        gap = _missing(squared)
        if gap <= tol:
            break
        stride = 1.0
        new = _evaluate(x + step, A, slope)
        while new[0] < value + 0.1 * stride * squared and stride > MIN_STEP:
            stride /= 2  # 1 / (1 + decrement) is short enough, but for rounding
            new = _evaluate(x + stride * step, A, slope)
        while (longer := _evaluate(x + 2 * stride * step, A, slope))[0] > new[0]:  # K near the border of the cone
            stride *= 2
            new = longer
        if not new[0] > value:
            break
        x = x + stride * step
        value, Sigma = new
    return x, gap


def _start(R, A):
    """The likeliest of some K = c (D + eps I - A), D the row sums of |A|, and of the identity: x = (k, t)."""
    m = len(R)
    D = np.abs(A).sum(1)
    slope = np.append(-np.ones(m), (R * A).sum())
    starts = [np.append(np.ones(m), 0.0)]
    for eps in (1.0, 1e-2, 1e-4):
        x = np.append(D + eps * D.mean(), 1.0)
        starts.append(x * m / -(slope @ x))  # tr(S K) = m: the likeliest c
    return max(starts, key=lambda x: _evaluate(x, A, slope)[0])


def _evaluate(x, A, slope):
    """f(x) and K^-1; -inf and None where K is not positive definite."""
    K = np.diag(x[:-1]) - x[-1] * A
    C, failed = linalg.lapack.dpotrf(K, lower=1)
    if failed:
        return -math.inf, None
    Sigma, failed = linalg.lapack.dpotri(C, lower=1)
    if failed:
        return -math.inf, None
    Sigma = np.tril(Sigma) + np.tril(Sigma, -1).T
    return 2 * np.log(np.diag(C)).sum() + slope @ x, Sigma


def _newton_step(Sigma, A, slope, free):
    """H^-1 g and the squared decrement g'H^-1 g; with Sigma = K^-1,

    g = (diag Sigma, -tr Sigma A) + slope,    H = [Sigma o Sigma, -diag(Sigma A Sigma); ., tr(Sigma A Sigma A)].
    """
    m = len(Sigma)
    SA = Sigma @ A
    H = np.empty((m + 1, m + 1))
    H[:m, :m] = Sigma**2
    H[m, :m] = H[:m, m] = -(SA * Sigma).sum(1)
    H[m, m] = (SA * SA.T).sum()
    g = np.append(np.diag(Sigma), -np.trace(SA)) + slope
    n = m + 1 if free else m
    scale = np.sqrt(np.diag(H)[:n])
    scaled = H[:n, :n] / np.outer(scale, scale)
    _, solution, failed = linalg.lapack.dposv(scaled + RIDGE * np.eye(n), g[:n] / scale)
    step = np.zeros(m + 1)
    step[:n] = (g[:n] / scale if failed else solution) / scale
    return step, max(float(g @ step), 0.0)


def _missing(squared):
    """What a self-concordant function lacks at most, from its squared Newton decrement: -l - log(1 - l) if l < 1."""
    decrement = math.sqrt(squared)
    return -decrement - math.log1p(-decrement) if decrement < 1 else math.inf


def completion_gap(K, S, W):
    """By how much logdet K - tr(S K) is at most below its maximum over diag(k) - t W, whoever found K."""
    d = np.sqrt(np.diag(S))
    R = S / np.outer(d, d)
    A = W * np.outer(d, d)
    Sigma = np.linalg.inv(K * np.outer(d, d))
    return _missing(_newton_step(Sigma, A, np.append(-np.ones(len(R)), (R * A).sum()), bool(A.any()))[1])


# --- on a list of candidates ------------------------------------------------------------------------------------------


def complete_on_list(Z, W, variances):
    """K = diag(k) - t W, sparse, and t, by pseudo-likelihood: signals Z (n, m), W (m, m) sparse, variances S_ii (m,).

    With q_i the mean square of sum_j W_ij x_j and b_i its mean product with x_i, node i adds
    log k_i - k_i S_ii + 2 t b_i - t^2 q_i / k_i, whose maximum has S_ii k_i^2 - k_i - t^2 q_i = 0. All of it is concave
    in (k, t). K is made diagonally dominant where it is not, hence positive definite for any input.
    """
    told = (W @ Z.T).T
    q = (told**2).mean(0)
    b = (told * Z).mean(0)

    def diagonal(t):
        return (1 + np.sqrt(1 + 4 * variances * t**2 * q)) / (2 * variances)

    def loss(log_t):
        t = math.exp(log_t)
        k = diagonal(t)
        return -(np.log(k) - k * variances + 2 * t * b - t**2 * q / k).sum()

    t = 1.0
    if b.sum() > 0:  # else the edges contradict the signals, see `complete`
        typical = math.log(b.sum() / (q * variances).sum())
        t = math.exp(minimize_scalar(loss, bounds=(typical - 20, typical + 20), method="bounded").x)
    k = np.maximum(diagonal(t), DOMINANCE * t * abs(W).sum(1))
    return sparse.csr_array(sparse.diags_array(k) - t * W), t


# --- Laplacians -------------------------------------------------------------------------------------------------------


def signed_laplacian(A):
    """D - A, D the row sums of |A|: (m, m), an array or sparse, as A is."""
    D = abs(A).sum(0)
    if sparse.issparse(A):
        return sparse.csr_array(sparse.diags_array(D) - A)
    return np.diag(D) - A


def laplacian_rank(A):
    """The rank of `signed_laplacian(A)`: m less the number of balanced components.

    A component is balanced if its nodes fall into two groups with positive edges within and negative edges between
    them. In the signed double cover it falls apart in two, other components do not.
    """
    A = sparse.csr_array(A)
    n_components = csgraph.connected_components(A, directed=False)[0]
    positive, negative = A.maximum(0), (-A).maximum(0)
    cover = sparse.block_array([[positive, negative], [negative, positive]])
    return A.shape[0] - (csgraph.connected_components(cover, directed=False)[0] - n_components)


def partial_correlations(K):
    """-K_ij / sqrt(K_ii K_jj), and 1 on the diagonal: (m, m), an array or sparse, as K is."""
    d = np.sqrt(K.diagonal())
    if sparse.issparse(K):
        scale = sparse.diags_array(1 / d)
        return sparse.csr_array(2 * sparse.eye_array(len(d)) - scale @ K @ scale)
    R = -K / d / d[:, None]
    np.fill_diagonal(R, 1)
    return R
