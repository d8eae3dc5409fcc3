"""Solvers of the model-based graph learning problem, the paper's Eq. (4), and a certificate for any iterate.

    min over w >= 0 of  2 w'y - alpha 1'log(D w) + beta ||w||^2

`y` and `w` are half-vectors (..., E); `alpha` and `beta` are positive numbers or tensors that broadcast
against the leading shape, so that a grid is one call. Results have the device and dtype of `y`. Inside,
half-vectors become symmetric matrices with zero diagonal, where D W is a row sum and (D'v)_ij = v_i + v_j:
the m x E operator never exists. The last part is Laplacian-constrained maximum likelihood from the same y.
"""

import math
import warnings
from typing import NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning

from .graphs import degrees, degrees_adjoint, edges, laplacian, n_nodes, to_matrix, to_vector

ALPHAS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
BETAS = (0.5, 1.0, 1.5, 2.0, 3.0)
BLOCK = 2**18  # matrix entries worked on at a time: larger batches are cut so that they stay near the cache


# --- input ------------------------------------------------------------------------------------------------


def check_distances(y, edges=None):
    """`y` (..., E) as a floating tensor, or ValueError: finite, >= 0, not all zero; without `edges`, E = m(m-1)/2."""
    y = torch.as_tensor(y)
    if not y.is_floating_point():
        y = y.to(torch.get_default_dtype())
    if y.ndim < 1:
        raise ValueError(f"y={y.item()}: a half-vector (..., m(m-1)/2) of distances is needed")
    if edges is None:
        n_nodes(y.shape[-1])
    if not torch.isfinite(y).all():
        raise ValueError("y contains NaN or infinite values: finite squared distances are needed")
    if (y < 0).any():
        raise ValueError(f"y has a negative entry, {y.min().item():g}: squared distances are >= 0")
    if (y == 0).all(-1).any():
        raise ValueError("y is 0 for all pairs of nodes: constant signals say nothing about a graph")
    return y


def check_problem(y, alpha, beta, edges=None):
    """Checked `y`, `alpha`, `beta` as tensors of one device, dtype and leading shape."""
    y = check_distances(y, edges)
    alpha, beta = _positive(y, alpha=alpha), _positive(y, beta=beta)
    try:
        lead = torch.broadcast_shapes(y.shape[:-1], alpha.shape, beta.shape)
    except RuntimeError:
        raise ValueError(
            f"alpha has shape {tuple(alpha.shape)} and beta {tuple(beta.shape)}: "
            f"they must broadcast against the leading shape {tuple(y.shape[:-1])} of y"
        ) from None
    return y.expand(*lead, -1), alpha.expand(lead), beta.expand(lead)


def _positive(y, **named):
    ((name, x),) = named.items()
    x = torch.as_tensor(x, dtype=y.dtype, device=y.device)
    if not (torch.isfinite(x) & (x > 0)).all():
        raise ValueError(f"{name}={x.tolist()}: finite positive values are needed")
    return x


def _warn(text, depth=4):
    warnings.warn(text, ConvergenceWarning, stacklevel=depth)  # names the line that called the solver


# --- certificate ------------------------------------------------------------------------------------------


class Certificate(NamedTuple):
    """How far from optimal, per graph, in float64; `gap` is primal - dual in units of the objective."""

    primal: torch.Tensor
    dual: torch.Tensor
    gap: torch.Tensor
    kkt: torch.Tensor


@torch.no_grad()
def certificate(w, y, alpha=1.0, beta=1.0, *, dual=None, edges=None, n_nodes=None):
    """Primal and dual value of Eq. (4), relative duality gap and KKT residual of any iterate.

    Parameters
    ----------
    w : (..., E). A negative weight or an isolated node (log 0) is infeasible: primal, gap, kkt are infinite.
    dual : (..., m), positive; None takes lambda = alpha / (D w), the dual point that belongs to w.
    edges : (2, E) candidates among `n_nodes`, for the problem restricted to them; None is the complete graph.

    Returns
    -------
    Certificate of (...) tensors. With s = D'lambda - 2y and w(lambda) = relu(s) / (2 beta), the dual value is
    -beta ||w(lambda)||^2 + alpha sum(1 + log(lambda / alpha)), and primal - dual is the sum of

        beta (w - w(lambda))^2 + w relu(-s)             over edges,
        alpha (u - 1 - log u), u = lambda D w / alpha,  over nodes,

    terms that are never negative and are summed as such, so that no digits cancel. `gap` is that sum divided
    by alpha m, its natural unit: 2 w'y + 2 beta ||w||^2 = alpha m at the optimum. `kkt` is the residual
    max |min(w, 2y + 2 beta w - D'lambda)|.
    """
    y, alpha, beta = check_problem(torch.as_tensor(y).double(), alpha, beta, edges)
    w, alpha, beta = torch.as_tensor(w).to(y), alpha[..., None], beta[..., None]
    d = degrees(w, edges, n_nodes)
    lam = alpha / d if dual is None else torch.as_tensor(dual).to(y)
    s, u = degrees_adjoint(lam, edges) - 2 * y, lam * d / alpha
    feasible = (w >= 0).all(-1) & (d > 0).all(-1) & (lam > 0).all(-1)
    primal = (2 * w * y + beta * w * w).sum(-1) - (alpha * d.log()).sum(-1)
    lower = (alpha * (1 + (lam / alpha).log())).sum(-1) - (s.relu() ** 2 / (4 * beta)).sum(-1)
    gap = (_edge_gap(w, s, beta) / alpha).sum(-1) + (u - 1 - u.log()).sum(-1)
    kkt = torch.minimum(w, 2 * beta * w - s).abs().amax(-1)
    return _certify(feasible, primal, lower, gap / d.shape[-1], kkt)


def _edge_gap(w, s, beta):
    """beta w^2 - s w + relu(s)^2 / (4 beta), the Fenchel-Young gap of an edge, for w >= 0."""
    return beta * (w - s.relu() / (2 * beta)) ** 2 + w * (-s).relu()


def _certify(feasible, primal, dual, gap, kkt):
    inf = torch.full_like(primal, torch.inf)
    bounds = zip((primal, dual, gap, kkt), (inf, -inf, inf, inf))
    return Certificate(*(torch.where(feasible, x, bad) for x, bad in bounds))


# --- first-order methods of the paper ---------------------------------------------------------------------


def safe_step(m, beta=1.0):
    """Algorithm 1 converges for steps below 1 / (2 beta + ||D||), ||D|| = sqrt(2(m-1)).

    That is the bound of forward-backward-forward splitting: 2 beta is the Lipschitz constant of the gradient
    of 2w'y + beta ||w||^2, and D D' = (m-2) I + 11' has norm 2(m-1).
    """
    return 1 / (2 * beta + math.sqrt(2 * (m - 1)))


def prox_log_barrier(r2, alpha_gamma, floor=1e-8):
    """Step 6, (r - sqrt(r^2 + 4 alpha gamma)) / 2; the floor is for trained parameters that turn negative."""
    return (r2 - (r2 * r2 + 4 * alpha_gamma).clamp_min(floor).sqrt()) / 2


def pds_step(w, v, y, alpha, beta, gamma, project=torch.relu, *, operators=(degrees, degrees_adjoint), floor=1e-8):
    """One iteration of Algorithm 1, w (..., E) and v (..., m) -> the next w and v. Differentiable.

    `project` is Step 5, which Algorithm 2 replaces; `operators` are D and D', for other layouts of w and v.
    """
    D, D_adjoint = operators
    r1 = w - gamma * (2 * beta * w + 2 * y + D_adjoint(v))  # Step 3
    r2 = v + gamma * D(w)  # Step 4
    p1 = project(r1)  # Step 5
    p2 = prox_log_barrier(r2, alpha * gamma, floor)  # Step 6
    # Steps 7-10: in w - r1 + q1 the terms w and 2y cancel, in v - r2 + q2 the term v does
    return p1 + gamma * (2 * beta * (w - p1) + D_adjoint(v - p2)), p2 + gamma * D(p1 - w)


def admm_step(w, v, y, alpha, beta, gamma, relaxation, listing=False, *, operators=(degrees, degrees_adjoint)):
    """One iteration of Algorithm 3; `listing` keeps the paper's Step 5: its 2 r1 - w should read 2 p1 - w."""
    D, D_adjoint = operators
    r1 = w - gamma * (2 * beta * w + 2 * y + D_adjoint(v))  # Step 3
    p1 = torch.relu(r1)  # Step 4
    r2 = v + gamma * D(2 * (r1 if listing else p1) - w)  # Step 5
    p2 = prox_log_barrier(r2, alpha * gamma, floor=0)  # Step 6
    return w + relaxation * (p1 - w), v + relaxation * (p2 - v)  # Steps 7 and 8


@torch.no_grad()
def pds(y, alpha=1.0, beta=1.0, *, gamma=None, n_iter=20_000, tol=1e-6, path=False):
    """Primal-dual splitting, Algorithm 1.

    Parameters
    ----------
    y : (..., E); alpha, beta : positive, broadcast against the leading shape.
    gamma : step; None takes 0.9 of the bound in `safe_step`.
    n_iter, tol : stop when ||w - w_previous|| < tol ||w|| for all graphs, or after `n_iter` iterations, then
        with a ConvergenceWarning that states the gap reached. tol=0 runs `n_iter` iterations and is silent.
    path : return all iterates w^(1), ..., w^(T), unclamped, (..., T, E), not the last clamped at 0, (..., E).
    """
    y, alpha, beta = check_problem(y, alpha, beta)
    gamma = 0.9 * safe_step(n_nodes(y.shape[-1]), beta) if gamma is None else _positive(y, gamma=gamma)

    def step(W, v, Y, alpha, beta, gamma):
        return pds_step(W, v, Y, alpha, beta, gamma, operators=_MATRIX, floor=0)

    return _iterate(step, y, alpha, beta, gamma, n_iter, tol, path)


@torch.no_grad()
def admm(y, alpha=1.0, beta=1.0, *, gamma=None, relaxation=1.5, listing=False, n_iter=20_000, tol=1e-6, path=False):
    """ADMM, Algorithm 3, a relaxed primal-dual iteration. Arguments as for `pds`, and

    relaxation : lambda of Algorithm 3, in (0, 2). The automatic step is 0.9 of the root of
        1/gamma - gamma ||D||^2 = beta / (2 - lambda), up to which the relaxed iteration converges.
    listing : follow the paper's listing, whose fixed point depends on gamma and does not solve Eq. (4).
    """
    y, alpha, beta = check_problem(y, alpha, beta)
    if not 0 < relaxation < 2:
        raise ValueError(f"relaxation={relaxation}: between 0 and 2, both excluded")
    k, norm2 = beta / (2 - relaxation), 2 * (n_nodes(y.shape[-1]) - 1)
    gamma = 1.8 / (k + (k * k + 4 * norm2).sqrt()) if gamma is None else _positive(y, gamma=gamma)

    def step(W, v, Y, alpha, beta, gamma):
        return admm_step(W, v, Y, alpha, beta, gamma, relaxation, listing, operators=_MATRIX)

    return _iterate(step, y, alpha, beta, gamma, n_iter, tol, path)


def _matrix_degrees(W):
    return W.sum(-1, keepdim=True)


def _matrix_degrees_adjoint(v):
    V = v + v.mT
    V.diagonal(dim1=-2, dim2=-1).zero_()
    return V


_MATRIX = (_matrix_degrees, _matrix_degrees_adjoint)  # D and D' for W (..., m, m), v (..., m, 1)


def _iterate(step, y, alpha, beta, gamma, n_iter, tol, path):
    """Repeat `step` from w = v = 0, in matrix form, until the stopping rule of Algorithms 1 and 3."""
    if n_iter < 1:
        raise ValueError(f"n_iter={n_iter}: at least 1 iteration is needed")
    Y, params = to_matrix(y), [x[..., None, None] for x in (alpha, beta, gamma)]
    W, v, iterates, norm = torch.zeros_like(Y), torch.zeros_like(Y[..., :1]), [], torch.linalg.matrix_norm
    for _ in range(n_iter):
        W_old = W
        W, v = step(W, v, Y, *params)
        if path:
            iterates.append(to_vector(W))
        # strictly smaller, because the first step of Algorithm 3 stays at w = 0
        if tol and (norm(W - W_old) < tol * norm(W)).all():
            break
    else:
        if tol:
            gap = certificate(to_vector(W).clamp_min(0), y, alpha, beta).gap.max().item()
            _warn(f"relative change above tol={tol:g} after {n_iter} iterations, relative gap {gap:.1e}", 5)
    return torch.stack(iterates, -2) if path else to_vector(W).clamp_min(0)


# --- exact solution ---------------------------------------------------------------------------------------


@torch.no_grad()
def exact(y, alpha=1.0, beta=1.0, *, tol=1e-14, n_iter=1000, path=False):
    """Solve Eq. (4) by Newton's method on its dual, which has only m variables.

    By the scale law w(y, alpha, beta) = sqrt(alpha/beta) w(y / sqrt(alpha beta), 1, 1) it is enough to
    minimise

        sum over edges of relu(l_i + l_j - 2y)^2 / 4  -  sum over nodes of log l_i

    whose solution gives w = relu(l_i + l_j - 2y) / 2, with exact zeros. In float64, cast back in the end.

    Parameters
    ----------
    y : (..., E); alpha, beta : positive, broadcast against the leading shape.
    tol : relative duality gap, see `certificate`; a ConvergenceWarning if not met within `n_iter` steps.
    path : return the iterates (..., T, E) instead of the last, (..., E).
    """
    y, alpha, beta = check_problem(y, alpha, beta)
    theta, scale = (alpha.double() * beta).rsqrt()[..., None], (alpha.double() / beta).sqrt()[..., None]
    w, _, iterates = _dual_newton(theta * y, tol=tol, n_iter=n_iter, path=path)
    return (torch.stack(iterates, -2) * scale[..., None, :] if path else w * scale).to(y.dtype)


def _dual_newton(y, start=None, *, tol=1e-14, n_iter=1000, path=False):
    """Solution w for alpha = beta = 1, its dual variable l and the iterates of w, from the dual `start`."""
    lead, m = y.shape[:-1], n_nodes(y.shape[-1])
    Y = to_matrix(y.reshape(-1, y.shape[-1]))
    Y.diagonal(dim1=-2, dim2=-1).fill_(1e300)  # no loops: relu(l_i + l_i - 2e300) = 0
    if start is None:  # as if every node had one neighbour only, the nearest, and that one the same degree
        near = Y.amin(-1)
        start = (near + (near * near + 4).sqrt()) / 2
    lam = torch.stack([start.reshape(-1, m), torch.zeros_like(Y[..., 0])], -1)  # leading, trailing digits
    w, iterates, todo = y.reshape(len(Y), -1).clone(), [], torch.arange(len(Y), device=y.device)
    for _ in range(n_iter):
        parts = [_dual_newton_step(lam[rows], Y[rows]) for rows in todo.split(max(1, BLOCK // m**2))]
        W, gap, new = (torch.cat(part) for part in zip(*parts))
        w[todo] = to_vector(W)
        if path:
            iterates.append(w.reshape(*lead, -1).clone())
        more = ~(gap <= tol)
        lam[todo], todo = torch.where(more[:, None, None], new, lam[todo]), todo[more]
        if not len(todo):
            break
    else:
        _warn(f"relative gap {gap.max().item():.1e} after {n_iter} iterations, above tol={tol:g}", 5)
    return w.reshape(y.shape), lam[..., 0].reshape(*lead, m), iterates


def _dual_newton_step(lam, Y):
    """w(l), its relative gap, and the next l: a damped semi-smooth Newton step, l (b, m, 2), Y (b, m, m)."""

    def dual(l1, l2):
        # Compensated: l_i + l_j - 2y may be 1e-9 of each term, as between components of a disconnected graph
        total, lost = _two_sum(l1[:, :, None], l1[:, None, :])
        R = (total - 2 * Y + (lost + l2[:, :, None] + l2[:, None, :])).relu()
        return R, (R * R).sum((-1, -2)) / 8 - l1.log().sum(-1)

    l1, l2 = lam.unbind(-1)
    R, value = dual(l1, l2)
    d = R.sum(-1) / 2
    s = 1 / d[:, :, None] + 1 / d[:, None, :] - 2 * Y
    gap = _edge_gap(R / 2, s, 1.0).sum((-1, -2)) / (2 * d.shape[-1])
    gradient = d - 1 / l1
    H = (R > 0).to(R) / 2  # Hessian: half the signless Laplacian of the current edges, plus diag(1 / l^2)
    H.diagonal(dim1=-2, dim2=-1).add_(H.sum(-1) + l1**-2).mul_(1 + 1e-14)  # a factor exists after rounding
    step = -torch.cholesky_solve(gradient[..., None], torch.linalg.cholesky(H))[..., 0]
    slope = (gradient * step).sum(-1)
    t = 0.9 / (-step / l1).amax(-1).clamp_min(0.9)  # l stays positive
    for _ in range(40):
        new, lost = _two_sum(l1, t[:, None] * step)
        worse = dual(new, l2 + lost)[1] > value + 1e-4 * t * slope + 1e-14 * value.abs()
        if not worse.any():
            break
        t = torch.where(worse, t / 2, t)
    return R / 2, gap, torch.stack([new, l2 + lost], -1)


def _two_sum(a, b):
    """a + b as a floating-point sum and its rounding error."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


# --- choice of alpha and beta -----------------------------------------------------------------------------


@torch.no_grad()
def learn(y, average_degree, *, tol=0.02, n_iter=60):
    """A graph of a wished density, without guessing alpha and beta: w (..., E) and theta (...).

    By the scale law alpha and beta set a factor of w and, through theta = 1 / sqrt(alpha beta), its sparsity.
    Here w solves Eq. (4) for theta y and alpha = beta = 1, theta found by bisection such that a node has
    `average_degree` edges (weights above 1e-6 of the largest), up to a relative `tol` or half an edge in the
    graph. Not every degree exists (ties in y, or sparser than the nearest-neighbour graph): then the closest
    one seen is returned with a ConvergenceWarning.
    """
    y = check_distances(y)
    m = n_nodes(y.shape[-1])
    if not 1 <= average_degree <= m - 1:
        raise ValueError(f"average_degree={average_degree}: between 1 and m - 1 = {m - 1}")
    theta, lam = 1 / y.double().mean(-1), None
    low, high = torch.zeros_like(theta), torch.full_like(theta, torch.inf)
    best_w, best_theta, best = torch.zeros_like(y, dtype=torch.float64), theta, high
    for _ in range(n_iter):
        w, lam, _ = _dual_newton(theta[..., None] * y, lam)
        degree = 2 * (w > 1e-6 * w.amax(-1, keepdim=True)).sum(-1) / m
        closer = (degree - average_degree).abs() < best
        best = torch.where(closer, (degree - average_degree).abs(), best)
        best_w, best_theta = torch.where(closer[..., None], w, best_w), torch.where(closer, theta, best_theta)
        if (best <= max(tol * average_degree, 1 / m)).all():
            break
        dense = degree > average_degree
        low, high = torch.where(dense, theta, low), torch.where(dense, high, theta)
        theta = torch.where(high.isinf(), 4 * low, torch.where(low == 0, high / 4, (low * high).sqrt()))
    else:
        _warn(f"average_degree={average_degree} is not reached, the closest is {best.max().item():.2g} off")
    return best_w.to(y.dtype), best_theta.to(y.dtype)


def theta_for_degree(y, average_degree, **options):
    """theta (...) for which `exact(theta y)` has `average_degree` edges a node; see `learn`."""
    return learn(y, average_degree, **options)[1]


class Grid(NamedTuple):
    """The best pair and the mean GMSE of all, (len(alphas), len(betas))."""

    alpha: float
    beta: float
    gmse: torch.Tensor


@torch.no_grad()
def grid_search(y, w, alphas=ALPHAS, betas=BETAS, solver=exact):
    """The (alpha, beta) of least mean GMSE = ||w_hat - w||^2 / ||w||^2 on training pairs y, w (..., E).

    `solver(y, alpha, beta)` returns w_hat, e.g. `functools.partial(pds, n_iter=500, tol=0)`.
    """
    y, w = check_distances(y), torch.as_tensor(w)
    if w.shape != y.shape or not (w.square().sum(-1) > 0).all():
        raise ValueError(f"w has shape {tuple(w.shape)}: non-empty graphs of the shape {tuple(y.shape)} of y")
    alpha, beta = _positive(y, alphas=alphas)[:, None, None], _positive(y, betas=betas)[None, :, None]
    y, w = y.reshape(-1, y.shape[-1]), w.to(y).reshape(-1, y.shape[-1])
    chunk = max(1, 16 * BLOCK // (alpha.numel() * beta.numel() * n_nodes(y.shape[-1]) ** 2))
    gmse = 0
    for y_part, w_part in zip(y.split(chunk), w.split(chunk)):
        error = (solver(y_part, alpha, beta) - w_part).square().sum(-1) / w_part.square().sum(-1)
        gmse = gmse + error.double().sum(-1) / len(y)
    i, j = divmod(gmse.argmin().item(), gmse.shape[1])
    return Grid(alpha[i].item(), beta[0, j].item(), gmse)


# --- maximum likelihood -----------------------------------------------------------------------------------


@torch.no_grad()
def laplacian_mle(y, *, sigma2=0.0, tol=1e-9, n_iter=60, path=False):
    """Laplacian-constrained maximum likelihood: min over w >= 0 of w'y - logdet(L(w) + sigma2 P + 11'/m).

    P = I - 11'/m: up to constants the log-likelihood of signals x ~ N(0, (L + sigma2 I)^-1), of whose
    constant part y knows nothing. No hyper-parameter; exists for any number of signals if all y > 0.

    A primal-dual interior-point method (Mehrotra's predictor-corrector) in x = w y and a slack s, which tends
    to 1 - r/y, with r_ij = b'Sigma b the effective resistances, Sigma = (L + sigma2 P + 11'/m)^-1. Float64.

    Parameters
    ----------
    y : (..., E), positive; sigma2 : noise variance >= 0.
    tol : KKT residual max |min(w y, 1 - r/y)|; a ConvergenceWarning if not met within `n_iter` iterations.
    path : return the iterates (..., T, E) instead of the last, (..., E).
    """
    y = check_distances(y)
    if not (y > 0).all():
        raise ValueError("y has a zero: for two nodes that always agree the most likely weight is infinite")
    flat = y.double().reshape(-1, y.shape[-1])
    chunk = len(flat) if path else max(1, BLOCK // 4 // n_nodes(y.shape[-1]) ** 2)
    w, kkt = zip(*(_interior_point(part, sigma2, tol, n_iter, path) for part in flat.split(chunk)))
    w, worst = torch.cat(w), torch.cat(kkt).max().item()
    if not worst <= tol:
        _warn(f"KKT residual {worst:.1e} after {n_iter} iterations, above tol={tol:g}")
    return w.reshape(*y.shape[:-1], *w.shape[1:]).to(y.dtype)


def _interior_point(y, sigma2, tol, n_iter, path):
    """The MLE for y (b, E): w (b, E) or its path (b, T, E), and the KKT residuals (b,)."""
    x, s, iterates = torch.full_like(y, 2 / n_nodes(y.shape[-1])), torch.ones_like(y), []
    for _ in range(n_iter):
        Sigma, r, _ = _resistances(x / y, sigma2)
        g = 1 - r / y  # gradient of the objective in x
        kkt = torch.minimum(x, g).abs().amax(-1)
        if path:
            iterates.append(x / y)
        if not (kkt > tol).any():
            break
        dx = _newton_system(Sigma, y, s / x, -g)  # predictor: aim at x s = 0
        ds = -s - s / x * dx
        mu = (x * s).mean(-1, keepdim=True)
        reached = ((x + _stride(x, dx) * dx) * (s + _stride(s, ds) * ds)).mean(-1, keepdim=True)
        target = mu * (reached / mu) ** 3 - dx * ds  # corrector: aim at x s = target
        dx = _newton_system(Sigma, y, s / x, target / x - g)
        ds = (target - s * dx) / x - s
        x, s = x + _stride(x, dx) * dx, s + _stride(s, ds) * ds
    w = torch.where((x < s) & (x < tol), 0, x) / y
    return torch.stack(iterates, 1) if path else w, kkt


def _stride(x, dx):
    """The largest step <= 1 that keeps 0.5 % of x."""
    return 0.995 / (-dx / x).amax(-1, keepdim=True).clamp_min(0.995)


def _resistances(w, sigma2):
    """Sigma (..., m, m), r_ij = b'Sigma b (..., E), and logdet of the inverse of Sigma (...)."""
    if not 0 <= sigma2 < math.inf:
        raise ValueError(f"sigma2={sigma2}: a finite variance >= 0 is needed")
    L = laplacian(w)
    eye = torch.eye(L.shape[-1], dtype=w.dtype, device=w.device)
    C, failed = torch.linalg.cholesky_ex(L + sigma2 * eye + (1 - sigma2) / len(eye))
    failed = (failed > 0) | (C.diagonal(dim1=-2, dim2=-1) < 1e-150).any(-1)  # no inverse: logdet = -inf
    Sigma = torch.cholesky_inverse(torch.where(failed[..., None, None], eye, C))
    logdet = torch.where(failed, -torch.inf, 2 * C.diagonal(dim1=-2, dim2=-1).log().sum(-1))
    return Sigma, _differences(Sigma), logdet


def _differences(S):
    """b'S b = S_ii + S_jj - 2 S_ij for all pairs: (..., m, m) -> (..., E)."""
    return degrees_adjoint(S.diagonal(dim1=-2, dim2=-1)) - 2 * to_vector(S)


def _newton_system(Sigma, y, ratio, rhs, *, tol=0.01):
    """Solve (H + diag(ratio)) z = rhs, H_ac = (b_a'Sigma b_c)^2 / (y_a y_c), for each row of rhs (b, E).

    By preconditioned conjugate gradients, since H p = b'Sigma L(p/y) Sigma b / y needs only m x m products.
    Rows that stay unsolved (almost unconnected components make H ill-conditioned) get a Cholesky factor.
    """
    scale = ((_differences(Sigma) / y) ** 2 + ratio).rsqrt()  # diagonal^(-1/2)
    z, r = torch.zeros_like(rhs), rhs
    p, rr = r * scale**2, ((r * scale) ** 2).sum(-1, keepdim=True)
    stop, small = tol**2 * rr, y.shape[-1] <= 2000
    for _ in range(40 if small else 1000):
        live = rr > stop
        if not live.any():
            return z
        Hp = _differences(Sigma @ laplacian(p / y) @ Sigma) / y + ratio * p
        a = torch.where(live, rr / (p * Hp).sum(-1, keepdim=True), 0)
        z, r = z + a * p, r - a * Hp
        rr, old = torch.where(live, ((r * scale) ** 2).sum(-1, keepdim=True), rr), rr
        p = r * scale**2 + rr / old * p
    i, j = edges(Sigma.shape[-1], Sigma.device)
    for row in torch.nonzero((rr > stop)[:, 0] & small)[:, 0]:
        B, f = Sigma[row, i] - Sigma[row, j], scale[row]
        H = (B[:, i] - B[:, j]) ** 2 * (f / y[row])[:, None] * (f / y[row])
        C = torch.linalg.cholesky(H.fill_diagonal_(1.0))
        z[row] = f * torch.cholesky_solve((f * rhs[row])[:, None], C)[:, 0]
    return z


@torch.no_grad()
def mle_certificate(w, y, *, sigma2=0.0):
    """Primal and dual value, relative gap and KKT residual of any w (..., E) for `laplacian_mle`, in float64.

    With c = min(y / r), X = c Sigma on the complement of the constants is feasible for the dual, the maximum
    of m - 1 + logdet X - sigma2 tr X over b'X b <= y. `gap` is relative to m - 1, which is w'y at the optimum
    for sigma2 = 0; `kkt` is max |min(w y, 1 - r/y)|. A negative weight, or a disconnected graph for
    sigma2 = 0, is infeasible: primal, gap and kkt are infinite.
    """
    y = check_distances(y).double()
    w = torch.as_tensor(w).to(y)
    Sigma, r, logdet = _resistances(w, sigma2)
    trace, c = Sigma.diagonal(dim1=-2, dim2=-1).sum(-1) - 1, (y / r).amin(-1)
    feasible = (w >= 0).all(-1) & (r > 0).all(-1) & logdet.isfinite()
    wy, m = (w * y).sum(-1), Sigma.shape[-1]
    gap = wy - (m - 1) * (1 + c.log()) + c * sigma2 * trace
    kkt = torch.minimum(w * y, 1 - r / y).abs().amax(-1)
    return _certify(feasible, wy - logdet, wy - logdet - gap, gap / (m - 1), kkt)


@torch.no_grad()
def inverse_covariance(S):
    """w_ij = max(0, -(S^-1)_ij) from second moments S = X'X / N (..., m, m), with more signals than nodes."""
    S = torch.as_tensor(S)
    if S.ndim < 2 or S.shape[-1] != S.shape[-2] or S.shape[-1] < 3 or not torch.isfinite(S).all():
        raise ValueError(f"S has shape {tuple(S.shape)}: finite matrices (..., m, m) with m >= 3 are needed")
    values = torch.linalg.eigvalsh(S.double())
    if (values[..., 0] <= S.shape[-1] * torch.finfo(S.dtype).eps * values[..., -1]).any():
        raise ValueError("S is singular: more signals than nodes (N > m) are needed, and no constant ones")
    return (-to_vector(torch.linalg.inv(S.double()))).relu().to(S.dtype)
