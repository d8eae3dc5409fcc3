"""Solvers of the model-based graph learning problem, the paper's Eq. (4), and a certificate for any iterate.

    min over w >= 0 of  2 w'y - alpha 1'log(D w) + beta ||w||^2

`y` (..., E) are distances, or `Observations`, whose distances are then taken; `alpha` and `beta` are positive numbers
or tensors that broadcast against the leading shape, so that a grid is one call. With `edges` (2, E) and `n_nodes` the
problem is restricted to that list of candidate edges, and so is its certificate; otherwise all pairs of nodes count.
All solvers work in float64 and return w in the dtype and on the device of `y`; lists stay on the CPU.
"""

import math
import sys
import warnings
from functools import partial
from typing import NamedTuple

import torch
from sklearn.exceptions import ConvergenceWarning

from .engine.layouts import advance, sum_nodes
from .engine.newton import dual_newton, node_gap, search_theta
from .engine.problem import Problem, check_positive
from .graphs import degrees, degrees_adjoint, to_vector

REMEDY = "; if distances differ by orders of magnitude, scale signals to equal deviations, and drop copies of a node"
CHECK_EVERY = 20  # iterations of PDS and ADMM between two looks at the duality gap


# --- Algorithms 1 and 3 ---------------------------------------------------------------------------------------------


def operator_norm(n_nodes, edges=None):
    """||D||: exactly sqrt(2(m-1)) for the complete graph, where D D' = (m-2) I + 11'; a bound for a list of edges.

    That bound is sqrt(max over edges of c_i + c_j), c_i the number of candidates of node i: these are the row sums of
    D'D, whose entries are not negative, and no eigenvalue is larger.
    """
    if edges is None:
        return math.sqrt(2 * (n_nodes - 1))
    count = torch.bincount(edges.flatten(), minlength=n_nodes)
    return math.sqrt(degrees_adjoint(count, edges).max().item())


def safe_step(n_nodes, beta=1.0, edges=None):
    """Algorithm 1 converges for steps below 1 / (2 beta + ||D||).

    That is the bound of forward-backward-forward splitting: 2 beta is the Lipschitz constant of the gradient
    of 2w'y + beta ||w||^2.
    """
    return 1 / (2 * beta + operator_norm(n_nodes, edges))


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
def pds(y, alpha=1.0, beta=1.0, *, gamma=None, n_iter=20_000, tol=1e-6, path=False, edges=None, n_nodes=None):
    """Primal-dual splitting, Algorithm 1.

    Parameters
    ----------
    y : (..., E); alpha, beta : positive, broadcast against the leading shape.
    gamma : step; None takes 0.9 of the bound in `safe_step`.
    tol : relative duality gap at which a graph is done, see `certificate`. After `n_iter` iterations without it a
        ConvergenceWarning states the gap reached; tol=0 runs all iterations and is silent.
    path : return all iterates w^(1), ..., w^(T), unclamped, (..., T, E), not the last clamped at 0, (..., E).
    """
    problem = Problem(y, alpha, beta, edges, n_nodes)
    layout = problem.layout
    if gamma is None:
        gamma = 0.9 * safe_step(layout.n_nodes, problem.beta, layout.edges).reshape(problem.lead)
    step = partial(pds_step, operators=(layout.degrees, layout.adjoint), floor=0)
    return _iterate(problem, step, gamma, n_iter, tol, path)


@torch.no_grad()
def admm(
    y, alpha=1.0, beta=1.0, *, gamma=None, relaxation=1.5, listing=False, n_iter=20_000, tol=1e-6, path=False,
    edges=None, n_nodes=None,
):  # fmt: skip
    """ADMM, Algorithm 3, a relaxed primal-dual iteration. Arguments as for `pds`, and

    relaxation : lambda of Algorithm 3, in (0, 2). The automatic step is 0.9 of the root of
        1/gamma - gamma ||D||^2 = beta / (2 - lambda), up to which the relaxed iteration converges.
    listing : follow the paper's listing, whose fixed point depends on gamma and does not solve Eq. (4).
    """
    if not 0 < relaxation < 2:
        raise ValueError(f"relaxation={relaxation}: between 0 and 2, both excluded")
    problem = Problem(y, alpha, beta, edges, n_nodes)
    layout = problem.layout
    if gamma is None:
        k = problem.beta.reshape(problem.lead) / (2 - relaxation)
        gamma = 1.8 / (k + (k * k + 4 * operator_norm(layout.n_nodes, layout.edges) ** 2).sqrt())
    operators = (layout.degrees, layout.adjoint)
    step = partial(admm_step, relaxation=relaxation, listing=listing, operators=operators)
    return _iterate(problem, step, gamma, n_iter, tol, path)


def _iterate(problem, step, gamma, n_iter, tol, path):
    """Repeat `step` from w = v = 0 until the duality gap of every graph is below `tol`."""
    if n_iter < 1:
        raise ValueError(f"n_iter={n_iter}: at least 1 iteration is needed")
    layout, Y = problem.layout, problem.Y
    gamma = check_positive(Y, gamma=gamma).expand(problem.lead).flatten()
    given = (Y, *(layout.per_graph(x) for x in (problem.alpha, problem.beta, gamma)))
    state = (torch.zeros_like(Y), torch.zeros_like(layout.degrees(Y)))  # w and v
    iterates = []
    todo = torch.arange(len(Y), device=Y.device)  # the graphs whose gap is too large
    for k in range(1, n_iter + 1):
        state = advance(step, todo, state, given)
        if path:
            iterates.append(state[0])
        if tol and (k % CHECK_EVERY == 0 or k == n_iter):
            gap = _certify(layout, *(x[todo] for x in (state[0].relu(), Y, problem.alpha, problem.beta))).gap
            todo = todo[~(gap <= tol)]
            if not len(todo):
                break
    if tol and len(todo):
        _warn_of(gap, tol, f"after {n_iter} iterations")
    return problem.path(iterates) if path else problem.answer(state[0].relu())


# --- certificate ----------------------------------------------------------------------------------------------------


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
    w : (..., E). A negative weight or an isolated node (log 0) is infeasible: primal, gap and kkt are infinite.
    dual : (..., m), positive; None takes lambda = alpha / (D w), the dual point that belongs to w.
    edges : (2, E) candidates among `n_nodes`, for the problem restricted to them; None is the complete graph.

    Returns
    -------
    Certificate of (...) tensors. With s = D'lambda - 2y and w(lambda) = relu(s) / (2 beta), the dual value is
    -beta ||w(lambda)||^2 + alpha sum(1 + log(lambda / alpha)), and primal - dual is the sum of

        beta (w - w(lambda))^2 + w relu(-s)             over edges,
        alpha (u - 1 - log u), u = lambda D w / alpha,  over nodes,

    terms that are never negative and are summed as such, so that no digits cancel. `gap` is that sum divided
    by alpha m, its natural unit: 2 w'y + 2 beta ||w||^2 = alpha m at the optimum. `kkt` is max |min(w, gradient)|
    with the gradient 2y + 2 beta w - D'(alpha / (D w)) of the objective.
    """
    w = torch.as_tensor(w)
    problem = Problem(y, alpha, beta, edges, n_nodes, lead=w.shape[:-1])
    layout = problem.layout
    W = layout.enter(problem.flat(w.to(problem.alpha)))
    lam = None if dual is None else layout.enter_nodes(problem.flat(torch.as_tensor(dual).to(problem.alpha)))
    found = _certify(layout, W, problem.Y, problem.alpha, problem.beta, lam)
    return Certificate(*(problem.per_graph(x) for x in found))


def _certify(layout, W, Y, alpha, beta, lam=None):
    """The certificate of W in its layout, each of the four (b,)."""
    a = layout.per_graph(alpha)
    b = layout.per_graph(beta)
    d = layout.degrees(W)
    own = layout.adjoint(a / d) - 2 * Y
    s = own if lam is None else layout.adjoint(lam) - 2 * Y
    lam = a / d if lam is None else lam
    feasible = (W >= 0).flatten(1).all(1) & ((d > 0) & (lam > 0)).flatten(1).all(1)
    primal = layout.sum_edges(2 * W * Y + b * W * W) - sum_nodes(a * d.log())
    lower = sum_nodes(a * (1 + (lam / a).log())) - layout.sum_edges(s.relu() ** 2 / (4 * b))
    on_edges = layout.sum_edges(b * (W - s.relu() / (2 * b)) ** 2 + W * (-s).relu())
    gap = (on_edges / alpha + node_gap(lam * d / a)) / layout.n_nodes
    kkt = torch.minimum(W, 2 * b * W - own).abs().flatten(1).amax(1)
    return Certificate(*bounds_if(feasible, primal, lower, gap, kkt))


def bounds_if(feasible, primal, dual, gap, kkt):
    """The four numbers of a certificate where `feasible`, else infinite ones that say nothing."""
    nothing = (torch.inf, -torch.inf, torch.inf, torch.inf)
    return (torch.where(feasible, x, bad) for x, bad in zip((primal, dual, gap, kkt), nothing))


# --- exact solution -------------------------------------------------------------------------------------------------


@torch.no_grad()
def exact(y, alpha=1.0, beta=1.0, *, tol=1e-14, n_iter=1000, path=False, edges=None, n_nodes=None):
    """Solve Eq. (4) by Newton's method on its dual, which has only m variables.

    By the scale law w(y, alpha, beta) = sqrt(alpha/beta) w(y / sqrt(alpha beta), 1, 1) it is enough to
    minimise

        sum over edges of relu(l_i + l_j - 2y)^2 / 4  -  sum over nodes of log l_i

    whose solution gives w = relu(l_i + l_j - 2y) / 2, with exact zeros.

    Parameters
    ----------
    y : (..., E); alpha, beta : positive, broadcast against the leading shape.
    tol : relative duality gap between w and l, see `certificate`; a ConvergenceWarning states the gap if it is not met
        within `n_iter` steps, or not at all because y spans too many orders of magnitude.
    path : return the iterates (..., T, E) instead of the last, (..., E).
    """
    problem = Problem(y, alpha, beta, edges, n_nodes)
    layout = problem.layout
    Y = problem.Y * layout.per_graph((problem.alpha * problem.beta).rsqrt())
    scale = layout.per_graph((problem.alpha / problem.beta).sqrt())
    W, _, gap, iterates = dual_newton(layout, Y, tol=tol, n_iter=n_iter, path=path)
    _warn_of(gap, tol)
    return problem.path([scale * X for X in iterates]) if path else problem.answer(scale * W)


# --- choice of alpha and beta ---------------------------------------------------------------------------------------


class Learned(NamedTuple):
    """Weights (..., E), theta (...), and the certificate of w for theta y and alpha = beta = 1."""

    w: torch.Tensor
    theta: torch.Tensor
    certificate: Certificate


def learn(y, average_degree, *, tol=1e-14, degree_tol=0.02, edges=None, n_nodes=None):
    """A graph of a wished density, without guessing alpha and beta.

    By the scale law alpha and beta set a factor of w and, through theta = 1 / sqrt(alpha beta), its sparsity.
    Here w solves Eq. (4) for theta y and alpha = beta = 1, with the theta that gives a node `average_degree` edges on
    average (weights above 1e-6 of the largest), up to a relative `degree_tol` or half an edge in the graph. Not every
    degree exists (ties in y, or sparser than the nearest-neighbour graph): then the closest one seen is returned with a
    ConvergenceWarning. `tol` is the relative duality gap of the solution, as for `exact`.
    """
    return learn_path(y, (average_degree,), tol=tol, degree_tol=degree_tol, edges=edges, n_nodes=n_nodes)[0]


@torch.no_grad()
def learn_path(y, average_degrees, *, tol=1e-14, degree_tol=0.02, edges=None, n_nodes=None):
    """Graphs of several densities, each solve started from the one before: a list of `Learned`, see `learn`."""
    problem = Problem(y, 1.0, 1.0, edges, n_nodes)
    layout, Y = problem.layout, problem.Y
    most = 2 * problem.n_edges / layout.n_nodes
    for degree in average_degrees:
        if not 1 <= degree <= most:
            hint = "" if edges is None else "; take more candidates"
            raise ValueError(f"average_degree={degree}: between 1 and 2E/m = {most:.3g}{hint}")
    theta = problem.n_edges / layout.sum_edges(Y)
    lam = None
    found = []
    for degree in average_degrees:
        enough = max(degree_tol * degree, 1 / layout.n_nodes)
        best, last = search_theta(layout, Y, degree, theta, lam, tol, enough)
        theta = last.theta
        lam = last.lam
        error = (best.degree - degree).abs().max().item()
        if error > enough:
            _warn(f"average_degree={degree} is not reached, the closest is {error:.2g} off")
        _warn_of(best.gap, tol)
        proof = _certify(layout, best.W, layout.per_graph(best.theta) * Y, problem.alpha, problem.beta, best.lam)
        proof = Certificate(*(problem.per_graph(x) for x in proof))
        found.append(Learned(problem.answer(best.W), problem.per_graph(best.theta).to(problem.dtype), proof))
    return found


# --- without a model ------------------------------------------------------------------------------------------------


@torch.no_grad()
def inverse_covariance(observations):
    """w_ij = max(0, -(S^-1)_ij) from second moments S (..., m, m), with more signals than nodes: (..., E)."""
    S = torch.as_tensor(getattr(observations, "moments", observations))
    if S.ndim < 2 or S.shape[-1] != S.shape[-2] or S.shape[-1] < 3 or not torch.isfinite(S).all():
        raise ValueError(f"S has shape {tuple(S.shape)}: finite matrices (..., m, m) with m >= 3 are needed")
    values = torch.linalg.eigvalsh(S.double())
    if (values[..., 0] <= S.shape[-1] * torch.finfo(S.dtype).eps * values[..., -1]).any():
        raise ValueError("S is singular: more signals than nodes (N > m) are needed, and no constant ones")
    return (-to_vector(torch.linalg.inv(S.double()))).relu().to(S.dtype)


# --- warnings ------------------------------------------------------------------------------------------------------


def _warn_of(gap, tol, where="of the dual Newton method"):
    """Nothing if the relative gap of every graph (b,) is within `tol`, otherwise the largest one."""
    if not (gap <= tol).all():
        _warn(f"relative gap {gap.max().item():.1e} {where}, above tol={tol:g}")


def _warn(text):
    """A ConvergenceWarning that names the line that called the solver."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals["__name__"] in (__name__, "torch.utils._contextlib"):
        frame = frame.f_back
        level += 1
    warnings.warn(text + REMEDY, ConvergenceWarning, stacklevel=level)
