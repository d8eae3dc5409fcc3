"""Solvers of the model-based graph learning problem, the paper's Eq. (4), and a certificate for any iterate.

    min over w >= 0 of  2 w'y - alpha 1'log(D w) + beta ||w||^2

`y` and `w` are half-vectors (..., E); `alpha` and `beta` are positive numbers or tensors that broadcast against the
leading shape, so that a grid is one call. Results have the device and dtype of `y`. Inside, half-vectors become
symmetric matrices with zero diagonal, where D W is a row sum and (D'v)_ij = v_i + v_j: the m x E operator never exists.
The second half of the file is Laplacian-constrained maximum likelihood, which uses the same y.
"""

import math
import warnings
from typing import NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning

from .graphs import degrees, degrees_adjoint, n_nodes, to_matrix, to_vector

ALPHAS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
BETAS = (0.5, 1.0, 1.5, 2.0, 3.0)
BLOCK = 2**20  # matrix entries worked on at a time: larger batches are cut so that they stay near the cache


# --- input ----------------------------------------------------------------------------------------------------------


def check_distances(y):
    """`y` (..., E) as a floating tensor; ValueError unless finite, non-negative, not all zero, E = m(m-1)/2, m >= 3."""
    y = torch.as_tensor(y)
    if not y.is_floating_point():
        y = y.to(torch.get_default_dtype())
    if y.ndim < 1:
        raise ValueError(f"y={y.item()}: a half-vector (..., m(m-1)/2) of distances is needed")
    n_nodes(y.shape[-1])
    if not torch.isfinite(y).all():
        raise ValueError("y contains NaN or infinite values: finite squared distances are needed")
    if (y < 0).any():
        raise ValueError(f"y has a negative entry, {y.min().item():g}: squared distances are >= 0")
    if (y == 0).all(-1).any():
        raise ValueError("y is 0 for all pairs of nodes: constant signals say nothing about a graph")
    return y


def check_problem(y, alpha, beta):
    """Checked `y`, `alpha`, `beta` as tensors of one device and dtype and of one leading shape."""
    y = check_distances(y)
    alpha, beta = (torch.as_tensor(x, dtype=y.dtype, device=y.device) for x in (alpha, beta))
    for name, x in (("alpha", alpha), ("beta", beta)):
        if not (torch.isfinite(x) & (x > 0)).all():
            raise ValueError(f"{name}={x.tolist()}: finite positive values are needed")
    try:
        lead = torch.broadcast_shapes(y.shape[:-1], alpha.shape, beta.shape)
    except RuntimeError:
        raise ValueError(
            f"alpha {tuple(alpha.shape)} and beta {tuple(beta.shape)} must broadcast against the leading shape "
            f"{tuple(y.shape[:-1])} of y"
        ) from None
    return y.expand(*lead, -1), alpha.expand(lead), beta.expand(lead)


# --- certificate ----------------------------------------------------------------------------------------------------


class Certificate(NamedTuple):
    """How far from optimal, per graph, in float64: `gap` bounds the excess of the objective, relative to its scale."""

    primal: torch.Tensor
    dual: torch.Tensor
    gap: torch.Tensor
    kkt: torch.Tensor


@torch.no_grad()
def certificate(w, y, alpha=1.0, beta=1.0, *, dual=None):
    """Primal and dual value of Eq. (4), relative duality gap and KKT residual of any iterate.

    Parameters
    ----------
    w : (..., E). A negative weight or an isolated node is infeasible (log 0): primal and gap are infinite.
    dual : (..., m), positive; None takes lambda = alpha / (D w), the dual point that belongs to w.

    Returns
    -------
    Certificate of (...) tensors. With s = D'lambda - 2y and w(lambda) = relu(s) / (2 beta),
    dual = -beta ||w(lambda)||^2 + alpha sum(1 + log(lambda / alpha)), and primal - dual is the sum of

        beta (w - w(lambda))^2 + w relu(-s)             over edges,
        alpha (u - 1 - log u), u = lambda D w / alpha,  over nodes,

    terms that are never negative and are summed as such, so that no digits cancel. `gap` is that sum over alpha m,
    its natural unit (2 w'y + 2 beta ||w||^2 = alpha m at the optimum). kkt = max |min(w, 2y + 2 beta w - D'lambda)|.
    """
    y, alpha, beta = check_problem(torch.as_tensor(y).double(), alpha, beta)
    w = torch.as_tensor(w).to(y)
    alpha, beta, m = alpha[..., None], beta[..., None], n_nodes(y.shape[-1])
    d = degrees(w)
    lam = alpha / d if dual is None else torch.as_tensor(dual).to(y)
    s = degrees_adjoint(lam) - 2 * y
    feasible = (w >= 0).all(-1) & (d > 0).all(-1) & (lam > 0).all(-1)
    u = lam * d / alpha
    gap = _edge_gap(w, s, beta).sum(-1) + (alpha * (u - 1 - u.log())).sum(-1)
    primal = (2 * w * y + beta * w * w).sum(-1) - (alpha * d.log()).sum(-1)
    lower = (alpha * (1 + (lam / alpha).log())).sum(-1) - (s.relu() ** 2 / (4 * beta)).sum(-1)
    kkt = torch.minimum(w, 2 * beta * w - s).abs().amax(-1)
    inf = torch.tensor(torch.inf).to(y)
    return Certificate(
        torch.where(feasible, primal, inf),
        torch.where(feasible, lower, -inf),
        torch.where(feasible, gap / (alpha[..., 0] * m), inf),
        torch.where(feasible, kkt, inf),
    )


def _edge_gap(w, s, beta):
    """beta w^2 - s w + relu(s)^2 / (4 beta), the Fenchel-Young gap of an edge, for w >= 0."""
    return beta * (w - s.relu() / (2 * beta)) ** 2 + w * (-s).relu()


# --- first-order methods of the paper ---------------------------------------------------------------------------------


def safe_step(m, beta=1.0):
    """Forward-backward-forward splitting converges for steps below 1 / (2 beta + ||D||), ||D|| = sqrt(2(m-1)).

    2 beta is the Lipschitz constant of the gradient of 2w'y + beta ||w||^2, and D D' = (m-2) I + 11' has norm 2(m-1).
    """
    return 1 / (2 * beta + math.sqrt(2 * (m - 1)))


def prox_log_barrier(r2, alpha_gamma, floor=1e-8):
    """Step 6: (r - sqrt(r^2 + 4 alpha gamma)) / 2. `floor` keeps the root real when trained parameters turn negative."""
    return (r2 - (r2 * r2 + 4 * alpha_gamma).clamp_min(floor).sqrt()) / 2


def pds_step(w, v, y, alpha, beta, gamma, project=torch.relu, *, operators=(degrees, degrees_adjoint), floor=1e-8):
    """One iteration of Algorithm 1, w (..., E) and v (..., m) -> the next w and v. Differentiable in all arguments.

    `project` is Step 5, which Algorithm 2 replaces; `operators` are D and D', for other layouts than half-vectors.
    """
    D, D_adjoint = operators
    r1 = w - gamma * (2 * beta * w + 2 * y + D_adjoint(v))  # Step 3
    r2 = v + gamma * D(w)  # Step 4
    p1 = project(r1)  # Step 5
    p2 = prox_log_barrier(r2, alpha * gamma, floor)  # Step 6
    # Steps 7-10: in w - r1 + q1 the terms w and 2y cancel, in v - r2 + q2 the term v does
    return p1 + gamma * (2 * beta * (w - p1) + D_adjoint(v - p2)), p2 + gamma * D(p1 - w)


def admm_step(w, v, y, alpha, beta, gamma, relaxation, listing=False, *, operators=(degrees, degrees_adjoint)):
    """One iteration of Algorithm 3; `listing` keeps the paper's Step 5, whose 2 r1 - w should read 2 p1 - w."""
    D, D_adjoint = operators
    r1 = w - gamma * (2 * beta * w + 2 * y + D_adjoint(v))  # Step 3
    p1 = torch.relu(r1)  # Step 4
    r2 = v + gamma * D(2 * (r1 if listing else p1) - w)  # Step 5
    p2 = prox_log_barrier(r2, alpha * gamma, floor=0)  # Step 6
    return w + relaxation * (p1 - w), v + relaxation * (p2 - v)  # Steps 7 and 8


@torch.no_grad()
def pds(y, alpha=1.0, beta=1.0, *, gamma=None, n_iter=20_000, tol=1e-7, path=False):
    """Primal-dual splitting, Algorithm 1.

    Parameters
    ----------
    y : (..., E); alpha, beta : positive, broadcast against the leading shape.
    gamma : step; None takes 0.9 of the largest one known to converge, see `safe_step`.
    n_iter, tol : stop when ||w - w_previous|| < tol ||w|| for all graphs, or after `n_iter` iterations, then with a
        ConvergenceWarning that states the gap reached. tol=0 runs `n_iter` iterations and is silent.
    path : return all iterates w^(1), ..., w^(T), not clamped, (..., T, E) instead of the last, clamped at 0, (..., E).
    """
    y, alpha, beta = check_problem(y, alpha, beta)
    gamma = 0.9 * safe_step(n_nodes(y.shape[-1]), beta) if gamma is None else _check_step(gamma, y)

    def step(W, v, Y, alpha, beta, gamma):
        return pds_step(W, v, Y, alpha, beta, gamma, operators=_MATRIX, floor=0)

    return _iterate(step, y, alpha, beta, gamma, n_iter, tol, path)


@torch.no_grad()
def admm(y, alpha=1.0, beta=1.0, *, gamma=None, relaxation=1.5, listing=False, n_iter=20_000, tol=1e-7, path=False):
    """ADMM, Algorithm 3, as a relaxed primal-dual iteration. Arguments as for `pds`, and

    relaxation : lambda of Algorithm 3, in (0, 2). The automatic step is 0.9 of the root of
        1/gamma - gamma ||D||^2 = beta / (2 - lambda), up to which the relaxed iteration is known to converge.
    listing : follow the paper's listing, whose fixed point depends on gamma and does not solve Eq. (4).
    """
    y, alpha, beta = check_problem(y, alpha, beta)
    if not 0 < relaxation < 2:
        raise ValueError(f"relaxation={relaxation}: between 0 and 2, both excluded")
    if gamma is None:
        k, norm2 = beta / (2 - relaxation), 2 * (n_nodes(y.shape[-1]) - 1)
        gamma = 0.9 * 2 / (k + (k * k + 4 * norm2).sqrt())
    else:
        gamma = _check_step(gamma, y)

    def step(W, v, Y, alpha, beta, gamma):
        return admm_step(W, v, Y, alpha, beta, gamma, relaxation, listing, operators=_MATRIX)

    return _iterate(step, y, alpha, beta, gamma, n_iter, tol, path)


def _check_step(gamma, y):
    gamma = torch.as_tensor(gamma, dtype=y.dtype, device=y.device)
    if not (torch.isfinite(gamma) & (gamma > 0)).all():
        raise ValueError(f"gamma={gamma.tolist()}: finite positive steps are needed")
    return gamma.expand(y.shape[:-1])


def _matrix_degrees(W):
    return W.sum(-1, keepdim=True)


def _matrix_degrees_adjoint(v):
    V = v + v.mT
    V.diagonal(dim1=-2, dim2=-1).zero_()
    return V


_MATRIX = (_matrix_degrees, _matrix_degrees_adjoint)  # D and D' for W (..., m, m), v (..., m, 1)


def _iterate(step, y, alpha, beta, gamma, n_iter, tol, path):
    """Repeat `step` from w = v = 0 in matrix form until the stopping rule of Algorithms 1 and 3."""
    if n_iter < 1:
        raise ValueError(f"n_iter={n_iter}: at least 1 iteration is needed")
    Y, params = to_matrix(y), [x[..., None, None] for x in (alpha, beta, gamma)]
    W, v, iterates = torch.zeros_like(Y), torch.zeros_like(Y[..., :1]), []
    for _ in range(n_iter):
        W_old = W
        W, v = step(W, v, Y, *params)
        if path:
            iterates.append(to_vector(W))
        if tol and _settled(W, W_old, tol):
            break
    w = to_vector(W).clamp_min(0)
    if tol and not _settled(W, W_old, tol):
        _warn_gap(certificate(w, y, alpha, beta).gap, f"the relative change is above tol={tol:g}", n_iter)
    return torch.stack(iterates, -2) if path else w


def _settled(W, W_old, tol):
    """||w - w_old|| < tol ||w|| for all graphs; strict, because the first step of Algorithm 3 stays at w = 0."""
    norm = torch.linalg.matrix_norm
    return bool((norm(W - W_old) < tol * norm(W)).all())


def _warn_gap(gap, what, n_iter):
    text = f"{what} after {n_iter} iterations; largest relative gap {gap.max().item():.1e}"
    warnings.warn(text, ConvergenceWarning, stacklevel=4)


# --- exact solution ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def exact(y, alpha=1.0, beta=1.0, *, tol=1e-14, n_iter=500, path=False):
    """Solve Eq. (4) by Newton's method on its dual, which has only m variables.

    By the scale law w(y, alpha, beta) = sqrt(alpha/beta) w(y / sqrt(alpha beta), 1, 1) it is enough to minimise

        sum over edges of relu(l_i + l_j - 2y)^2 / 4 - sum over nodes of log l_i,    w(l) = relu(l_i + l_j - 2y) / 2.

    Always in float64; the result is cast to the dtype of `y`, whose edges that are absent are exactly 0.

    Parameters
    ----------
    y : (..., E); alpha, beta : positive, broadcast against the leading shape.
    tol : relative duality gap, see `certificate`; a ConvergenceWarning if it is not met within `n_iter` steps.
    path : return the iterates (..., T, E) instead of the last, (..., E).
    """
    y, alpha, beta = check_problem(y, alpha, beta)
    alpha, beta = alpha.double(), beta.double()
    scaled = y.double() / (alpha * beta).sqrt()[..., None]
    w, _, iterates = _dual_newton(scaled, tol=tol, n_iter=n_iter, path=path)
    scale = (alpha / beta).sqrt()[..., None]
    return (torch.stack(iterates, -2) * scale[..., None, :] if path else w * scale).to(y.dtype)


def _dual_newton(y, lam=None, *, tol=1e-14, n_iter=500, path=False):
    """Solution for alpha = beta = 1, its dual variable and the iterates, from the dual point `lam` (..., m) or none."""
    lead, m = y.shape[:-1], n_nodes(y.shape[-1])
    Y = to_matrix(y.reshape(-1, y.shape[-1]))
    Y.diagonal(dim1=-2, dim2=-1).fill_(1e300)  # no loops: relu(l_i + l_i - 2e300) = 0
    if lam is None:  # the solution if every node only had its nearest neighbour, and that one the same degree
        near = Y.amin(-1)
        lam = (near + (near * near + 4).sqrt()) / 2
    lam, w = lam.reshape(-1, m).clone(), torch.empty_like(y.reshape(len(Y), -1))
    todo, iterates = torch.arange(len(Y), device=y.device), []
    for _ in range(n_iter):
        parts = [_dual_newton_step(lam[block], Y[block]) for block in todo.split(max(1, BLOCK // m**2))]
        W, gap, new = (torch.cat(part) for part in zip(*parts))
        w[todo] = to_vector(W)
        if path:
            iterates.append(w.reshape(*lead, -1).clone())
        if not (gap > tol).any():
            break
        lam[todo] = torch.where((gap > tol)[:, None], new, lam[todo])
        todo = todo[gap > tol]
    else:
        _warn_gap(gap, f"the relative gap is above tol={tol:g}", n_iter)
    return w.reshape(y.shape), lam.reshape(*lead, m), iterates


def _dual_newton_step(lam, Y):
    """w(lambda) and its relative gap, and the next lambda: one damped semi-smooth Newton step, (b, m) and (b, m, m)."""

    def dual(lam):
        R = (lam[:, :, None] + lam[:, None, :] - 2 * Y).relu()
        return R, (R * R).sum((-1, -2)) / 8 - lam.log().sum(-1)

    R, value = dual(lam)
    d = R.sum(-1) / 2
    gap = _edge_gap(R / 2, 1 / d[:, :, None] + 1 / d[:, None, :] - 2 * Y, 1.0).sum((-1, -2)) / 2 / d.shape[-1]
    gradient = d - 1 / lam
    H = (R > 0).to(R) / 2  # Hessian: half the signless Laplacian of the current edges, plus 1 / lambda^2
    H.diagonal(dim1=-2, dim2=-1).add_(H.sum(-1) + lam**-2)
    step = -torch.cholesky_solve(gradient[..., None], torch.linalg.cholesky(H))[..., 0]
    slope = (gradient * step).sum(-1)
    t = 0.9 / (-step / lam).amax(-1).clamp_min(0.9)  # stay positive
    for _ in range(40):
        new = lam + t[:, None] * step
        worse = dual(new)[1] > value + 1e-4 * t * slope + 1e-14 * value.abs()
        if not worse.any():
            break
        t = torch.where(worse, t / 2, t)
    return R / 2, gap, new
