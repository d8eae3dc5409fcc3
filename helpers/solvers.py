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

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu
from sklearn.exceptions import ConvergenceWarning

from .graphs import count_nodes, degrees, degrees_adjoint, to_matrix, to_vector
from .kernels import add_signless_laplacian, list_active, list_residuals, list_slack, two_sum

ENTRIES_AT_ONCE = 2**18  # of matrices worked on together: larger batches are cut so that they stay near the cache
DIRECT_NODES = 1000  # up to so many nodes Newton's systems on a list are solved by a sparse factor
CHECK_EVERY = 20  # iterations of PDS and ADMM between two looks at the duality gap
PATIENCE = 30  # Newton steps without a smaller gap or objective, after which rounding is taken to be in the way


# --- input ----------------------------------------------------------------------------------------------------------


def check_distances(y, edges=None):
    """`y` (..., E) as a floating tensor, or ValueError: finite, >= 0, not all zero; without `edges`, E = m(m-1)/2.

    `y` may be Observations: every solver and every network takes either.
    """
    y = torch.as_tensor(getattr(y, "distances", y))
    if not y.is_floating_point():
        y = y.to(torch.get_default_dtype())
    if y.ndim < 1:
        raise ValueError(f"y={y.item()}: a half-vector (..., m(m-1)/2) of distances is needed")
    if edges is None:
        count_nodes(y.shape[-1])
    if not torch.isfinite(y).all():
        raise ValueError("y contains NaN or infinite values: finite squared distances are needed")
    if (y < 0).any():
        raise ValueError(f"y has a negative entry, {y.min().item():g}: squared distances are >= 0")
    if (y == 0).all(-1).any():
        raise ValueError("y is 0 for all pairs of nodes: constant signals say nothing about a graph")
    return y


def check_edges(edges, n_nodes, n_weights):
    """`edges` as a (2, E) int64 tensor, or ValueError: each pair once in order, every node in at least one."""
    edges = torch.as_tensor(edges).to(torch.int64).contiguous()
    if edges.ndim != 2 or len(edges) != 2 or edges.shape[1] != n_weights:
        raise ValueError(f"edges has shape {tuple(edges.shape)}: (2, {n_weights}) is needed, one column per entry of y")
    if n_nodes is None:
        raise ValueError("n_nodes=None: a list of edges needs the number of nodes")
    if not (edges[0] < edges[1]).all() or edges.min() < 0 or edges.max() >= n_nodes:
        raise ValueError(f"edges: 0 <= edges[0] < edges[1] < n_nodes = {n_nodes} is needed")
    isolated = torch.nonzero(torch.bincount(edges.flatten(), minlength=n_nodes) == 0)[:, 0]
    if len(isolated):
        raise ValueError(
            f"edges: {len(isolated)} nodes have no candidate, first {isolated[:5].tolist()}: "
            "Eq. (4) gives every node a neighbour; leave them out or add candidates"
        )
    return edges


class Problem:
    """Eq. (4) as the solvers see it: checked, in float64, one row per graph, in the layout of all pairs or of a list.

    The leading shapes of y, alpha and beta, and `lead`, broadcast to `self.lead`; b graphs in all.
    """

    def __init__(self, y, alpha, beta, edges, n_nodes, lead=()):
        y = check_distances(y, edges)
        self.dtype = y.dtype
        self.n_edges = y.shape[-1]
        alpha = _positive(y, alpha=alpha)
        beta = _positive(y, beta=beta)
        try:
            self.lead = torch.broadcast_shapes(y.shape[:-1], alpha.shape, beta.shape, lead)
        except RuntimeError:
            raise ValueError(
                f"alpha has shape {tuple(alpha.shape)} and beta {tuple(beta.shape)}: "
                f"they must broadcast against the leading shape {tuple(y.shape[:-1])} of y"
            ) from None
        if edges is None:
            self.layout = CompleteGraph(count_nodes(y.shape[-1]))
        else:
            self.layout = CandidateEdges(check_edges(edges, n_nodes, y.shape[-1]), n_nodes)
        self.Y = self.layout.enter(self.flat(y.double()))
        self.alpha = alpha.expand(self.lead).flatten()  # (b,)
        self.beta = beta.expand(self.lead).flatten()

    def flat(self, x):
        """(..., k) -> (b, k)."""
        return x.expand(*self.lead, -1).reshape(-1, x.shape[-1])

    def answer(self, W):
        """Weights in the layout -> (..., E), in the caller's dtype."""
        return self.layout.leave(W).reshape(*self.lead, -1).to(self.dtype)

    def path(self, iterates):
        """T iterates in the layout -> (..., T, E)."""
        return torch.stack([self.answer(W) for W in iterates], -2)

    def certificate(self, W, Y, lam=None):
        """That of W for the distances Y, both in the layout: four tensors (...)."""
        found = _certify(self.layout, W, Y, self.alpha, self.beta, lam)
        return Certificate(*(x.reshape(self.lead) for x in found))


def _positive(y, **named):
    ((name, x),) = named.items()
    x = torch.as_tensor(x, dtype=torch.float64, device=y.device)
    if not (torch.isfinite(x) & (x > 0)).all():
        raise ValueError(f"{name}={x.tolist()}: finite positive values are needed")
    return x


def _warn(text):
    """A ConvergenceWarning that names the line that called the solver."""
    level = 2
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals["__name__"] in (__name__, "torch.utils._contextlib"):
        frame = frame.f_back
        level += 1
    warnings.warn(text, ConvergenceWarning, stacklevel=level)


# --- where half-vectors live: all pairs, or a list ------------------------------------------------------------------


class CompleteGraph:
    """All pairs of m nodes. Half-vectors (b, E) become symmetric matrices (b, m, m) with zero diagonal and node vectors
    (b, m) columns (b, m, 1): D is then a row sum, (D'v)_ij = v_i + v_j, and the m x E operator never exists."""

    edges = None

    def __init__(self, n_nodes):
        self.n_nodes = n_nodes
        self.graphs_at_once = max(1, ENTRIES_AT_ONCE // n_nodes**2)

    def enter(self, x):
        return to_matrix(x)

    def leave(self, X):
        return to_vector(X)

    def enter_nodes(self, v):
        return v[..., None]

    def per_graph(self, x):
        return x[:, None, None]

    def degrees(self, W):
        return W.sum(-1, keepdim=True)

    def adjoint(self, v):
        V = v + v.mT
        V.diagonal(dim1=-2, dim2=-1).zero_()
        return V

    def sum_edges(self, X):
        return X.sum((-2, -1)) / 2

    def slack(self, lam, Y):
        """The least 2y_ij - l_i - l_j at every node: (b, m, 1)."""
        S = 2 * Y - lam - lam.mT
        S.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
        return S.amin(-1, keepdim=True)

    def residuals(self, lam, low, Y):
        """R = relu(l_i + l_j - 2y), the degrees of w = R / 2 and the sum of R^2 over edges, for l = lam + low.

        Compensated: between the components of a disconnected graph the difference may be 1e-9 of each of its terms.
        """
        total, lost = two_sum(lam, lam.mT)
        R = (total - 2 * Y + (lost + low + low.mT)).relu()
        R.diagonal(dim1=-2, dim2=-1).zero_()
        return R, self.degrees(R) / 2, self.sum_edges(R * R)

    def newton_direction(self, R, lam, gradient, accuracy):
        """Solve H x = -gradient by Cholesky: H is half the signless Laplacian of the edges R > 0, plus diag(1/l^2)."""
        H = (R > 0).to(R) / 2
        H.diagonal(dim1=-2, dim2=-1).add_(H.sum(-1) + lam[..., 0] ** -2)
        for surplus in (1e-14, 1e-12, 1e-9, 1e-6):  # bipartite edges make H singular to working precision
            H.diagonal(dim1=-2, dim2=-1).mul_(1 + surplus)
            C, failed = torch.linalg.cholesky_ex(H)
            if not failed.any():
                break
        return -torch.cholesky_solve(gradient, C)


class CandidateEdges:
    """A list of edges (2, E) among m nodes; half-vectors (b, E) and node vectors (b, m) keep their shapes.

    Inside, nodes are renumbered so that neighbours are close in memory (reverse Cuthill-McKee), and edges follow them:
    with nodes in random order most of the time of a large problem is spent waiting for memory.
    """

    graphs_at_once = 1

    def __init__(self, edges, n_nodes):
        self.n_nodes = n_nodes
        shape = (n_nodes, n_nodes)
        A = csr_array((np.ones(edges.shape[1], np.int8), tuple(edges.numpy())), shape=shape)
        self.node_order = torch.from_numpy(reverse_cuthill_mckee(A + A.T, symmetric_mode=True).copy())
        place = torch.empty_like(self.node_order)
        place[self.node_order] = torch.arange(n_nodes, dtype=place.dtype)
        ends = place[edges].sort(0).values.numpy()
        rows = csr_array((np.arange(edges.shape[1]), tuple(ends)), shape=shape)  # sorts faster than a sort
        self.order = torch.from_numpy(rows.data)
        self.heads, self.tails = ends[:, rows.data]
        self.edges = torch.from_numpy(np.stack([self.heads, self.tails]))

    def enter(self, x):
        return x[..., self.order]

    def leave(self, x):
        out = torch.empty_like(x)
        out[..., self.order] = x
        return out

    def enter_nodes(self, v):
        return v[..., self.node_order]

    def per_graph(self, x):
        return x[:, None]

    def degrees(self, w):
        return degrees(w, self.edges, self.n_nodes)

    def adjoint(self, v):
        return degrees_adjoint(v, self.edges)

    def sum_edges(self, x):
        return x.sum(-1)

    def slack(self, lam, y):
        slack = torch.empty_like(lam)
        list_slack(self.heads, self.tails, y.numpy(), lam.numpy(), slack.numpy())
        return slack

    def residuals(self, lam, low, y):
        R = torch.empty_like(y)
        d = torch.empty_like(lam)
        squares = y.new_empty(len(y))
        given = (y.numpy(), lam.numpy(), low.numpy())
        list_residuals(self.heads, self.tails, *given, R.numpy(), d.numpy(), squares.numpy())
        return R, d, squares

    def newton_direction(self, R, lam, gradient, accuracy):
        """As for the complete graph; where there are many nodes, only as accurately as `accuracy` (b,) asks for."""
        return torch.stack([self._direction(*row) for row in zip(R, lam, gradient, accuracy.tolist())])

    def _direction(self, R, lam, gradient, accuracy):
        """By conjugate gradients, or by a sparse factor: for few nodes, or if they fail since H is ill-conditioned,
        which it becomes when few edges are left."""
        count = torch.empty_like(lam)
        heads, tails = list_active(self.heads, self.tails, R.numpy(), count.numpy())
        diagonal = lam**-2

        def apply(x):
            out = diagonal * x
            add_signless_laplacian(heads, tails, 0.5, x.numpy(), out.numpy())
            return out

        scale = 1 / (diagonal + count / 2)
        n_iter = 500 if self.n_nodes > DIRECT_NODES else 0
        x, unsolved = conjugate_gradients(apply, -gradient, scale, tol=accuracy, n_iter=n_iter)
        if not unsolved:
            return x
        A = csr_array((np.full(len(heads), 0.5), (heads, tails)), shape=(self.n_nodes, self.n_nodes))
        H = A + A.T + diags_array(1 / scale.numpy())
        return -torch.from_numpy(splu(H.tocsc()).solve(gradient.numpy()))


def conjugate_gradients(apply, b, scale, *, tol, n_iter):
    """Solve A x = b for every row of b (..., k), A symmetric positive definite, `scale` about 1 / diag(A).

    Parameters
    ----------
    apply : x (..., k) -> A x (..., k)
    tol : relative residual in the norm of `scale`, at which a row is done

    Returns
    -------
    x : (..., k)
    unsolved : (..., 1) bool, the rows that are not done after `n_iter` iterations
    """
    x = torch.zeros_like(b)
    r = b.clone()
    z = scale * r
    p = z.clone()
    rr = torch.linalg.vecdot(r, z)[..., None]
    stop = tol**2 * rr
    for _ in range(n_iter):
        live = rr > stop
        if not live.any():
            break
        Ap = apply(p)
        step = torch.where(live, rr / torch.linalg.vecdot(p, Ap)[..., None], 0)
        x.addcmul_(step, p)  # in place: fresh memory for long vectors costs more than the arithmetic
        r.addcmul_(step, Ap, value=-1)
        torch.mul(scale, r, out=z)
        previous = rr
        rr = torch.where(live, torch.linalg.vecdot(r, z)[..., None], rr)
        p.mul_(torch.where(live, rr / previous, 0)).add_(z)
    return x, rr > stop


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
    return problem.certificate(W, problem.Y, lam)


def _certify(layout, W, Y, alpha, beta, lam=None):
    """The certificate of W in its layout, each of the four (b,)."""
    a = layout.per_graph(alpha)
    b = layout.per_graph(beta)
    d = layout.degrees(W)
    own = layout.adjoint(a / d) - 2 * Y
    s = own if lam is None else layout.adjoint(lam) - 2 * Y
    lam = a / d if lam is None else lam
    feasible = _all(W >= 0) & _all(d > 0) & _all(lam > 0)
    primal = layout.sum_edges(2 * W * Y + b * W * W) - _total(a * d.log())
    lower = _total(a * (1 + (lam / a).log())) - layout.sum_edges(s.relu() ** 2 / (4 * b))
    on_edges = layout.sum_edges(b * (W - s.relu() / (2 * b)) ** 2 + W * (-s).relu())
    gap = (on_edges / alpha + _node_gap(lam * d / a)) / layout.n_nodes
    kkt = torch.minimum(W, 2 * b * W - own).abs().flatten(1).amax(1)
    return Certificate(*bounds_if(feasible, primal, lower, gap, kkt))


def bounds_if(feasible, primal, dual, gap, kkt):
    """The four numbers of a certificate where `feasible`, else infinite ones that say nothing."""
    nothing = (torch.inf, -torch.inf, torch.inf, torch.inf)
    return (torch.where(feasible, x, bad) for x, bad in zip((primal, dual, gap, kkt), nothing))


def _all(condition):
    return condition.flatten(1).all(1)


def _total(v):
    """Sum over the nodes, per graph."""
    return v.flatten(1).sum(1)


def _node_gap(u):
    """The part of the duality gap that nodes have, sum of u - 1 - log u, per graph, for alpha = 1."""
    return _total(u - 1 - u.log())


# --- first-order methods of the paper -------------------------------------------------------------------------------


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
    gamma = _positive(Y, gamma=gamma).expand(problem.lead).flatten()
    given = (Y, *(layout.per_graph(x) for x in (problem.alpha, problem.beta, gamma)))
    state = (torch.zeros_like(Y), torch.zeros_like(layout.degrees(Y)))  # w and v
    iterates = []
    todo = torch.arange(len(Y), device=Y.device)  # the graphs whose gap is too large
    for k in range(1, n_iter + 1):
        state = _advance(step, todo, state, given)
        if path:
            iterates.append(state[0])
        if tol and (k % CHECK_EVERY == 0 or k == n_iter):
            gap = _certify(layout, *(x[todo] for x in (state[0].relu(), Y, problem.alpha, problem.beta))).gap
            todo = todo[~(gap <= tol)]
            if not len(todo):
                break
    if tol and len(todo):
        _warn(f"relative gap {gap.max().item():.1e} after {n_iter} iterations, above tol={tol:g}")
    return problem.path(iterates) if path else problem.answer(state[0].relu())


def _advance(step, todo, state, given):
    """The next state of the graphs `todo` by step(*state, *given); the others stay as they are."""
    if len(todo) == len(state[0]):  # nothing is copied: lists of edges are long
        return step(*state, *given)
    new = step(*(x[todo] for x in (*state, *given)))
    return tuple(x.index_copy(0, todo, part) for x, part in zip(state, new, strict=True))


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
    W, _, gap, iterates = _dual_newton(layout, Y, tol=tol, n_iter=n_iter, path=path)
    _warn_of(gap, tol)
    return problem.path([scale * X for X in iterates]) if path else problem.answer(scale * W)


def _warn_of(gap, tol):
    if not (gap <= tol).all():
        _warn(f"relative gap {gap.max().item():.1e} of the dual Newton method, above tol={tol:g}")


def _dual_newton(layout, Y, start=None, *, tol=1e-14, n_iter=1000, path=False):
    """For alpha = beta = 1: solution W, dual variable l, relative gap (b,) and iterates of W, from the dual `start`."""
    start = _awake(layout, Y, start)
    at_once = len(Y) if path else layout.graphs_at_once
    parts = zip(Y.split(at_once), start.split(at_once))
    W, lam, gap, iterates = zip(*(_dual_newton_part(layout, *part, tol, n_iter, path) for part in parts))
    return torch.cat(W), torch.cat(lam), torch.cat(gap), iterates[0]


def _awake(layout, Y, lam):
    """A dual point at which no node sleeps: each has an edge with l_i + l_j > 2y, without which Newton's steps crawl.

    Without `lam`, as if every node had one neighbour only, the nearest, and that one the same degree.
    """
    if lam is None:
        near = layout.slack(torch.zeros_like(layout.degrees(Y)), Y) / 2
        lam = (near + (near * near + 4).sqrt()) / 2
    b = lam + layout.slack(lam, Y)  # with the one nearest neighbour l - b = 2 / l
    return torch.maximum(lam, (b + (b * b + 8).sqrt()) / 2 * (1 + 1e-15))


def _dual_newton_part(layout, Y, lam, tol, n_iter, path):
    """`_dual_newton` for graphs that are worked on together."""
    low = torch.zeros_like(lam)  # the digits of l that do not fit into lam
    state = (lam, low, *_dual_objective(layout, lam, low, Y))
    best = least = Y.new_full((len(Y),), torch.inf)  # gap and objective
    waited = torch.zeros_like(best)
    iterates = []
    for _ in range(n_iter):
        lam, _, R, d, value = state
        gap = _node_gap(lam * d) / layout.n_nodes
        other = gap + _total((lam * (lam * d - 1)) ** 2) / layout.n_nodes  # about that at the dual point 1 / d
        if path:
            iterates.append(R / 2)
        waited = torch.where((other < best) | (value < least - 1e-12 * value.abs()), 0, waited + 1)
        best = torch.minimum(other, best)
        least = torch.minimum(value, least)
        more = ~(other <= tol) & (waited < PATIENCE)
        if not more.any():
            break
        todo = torch.nonzero(more)[:, 0]
        state = _advance(partial(_dual_newton_step, layout), todo, state, (Y, gap))
    return state[2] / 2, state[0], gap, iterates


def _dual_objective(layout, lam, low, Y):
    """R = relu(l_i + l_j - 2y), the degrees of w(l) = R / 2, and the objective of the dual (b,) at l = lam + low."""
    R, d, squares = layout.residuals(lam, low, Y)
    return R, d, squares / 4 - _total(lam.log())


def _dual_newton_step(layout, lam, low, R, d, value, Y, gap):
    """The next l and what `_dual_objective` says of it: a damped semi-smooth Newton step."""
    gradient = d - 1 / lam
    step = layout.newton_direction(R, lam, gradient, gap.sqrt().clamp(1e-8, 0.1))
    slope = _total(gradient * step)
    t = 0.9 / (-step / lam).flatten(1).amax(1).clamp_min(0.9)  # l stays positive
    for _ in range(40):
        new, rest = two_sum(lam, low + layout.per_graph(t) * step)
        R, d, new_value = _dual_objective(layout, new, rest, Y)
        worse = new_value > value + 1e-4 * t * slope + 1e-14 * value.abs()
        if not worse.any():
            break
        t = torch.where(worse, t / 2, t)
    return new, rest, R, d, new_value


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
        best, theta, lam = _search_theta(layout, Y, degree, theta, lam, tol, degree_tol)
        _warn_of(best.gap, tol)
        proof = problem.certificate(best.W, layout.per_graph(best.theta) * Y, best.lam)
        found.append(Learned(problem.answer(best.W), best.theta.reshape(problem.lead).to(problem.dtype), proof))
    return found


class _Solution(NamedTuple):
    """Eq. (4) solved for theta y: weights and dual variable in their layout; theta, relative gap and degree, (b,)."""

    W: torch.Tensor
    lam: torch.Tensor
    theta: torch.Tensor
    gap: torch.Tensor
    degree: torch.Tensor


def _solve(layout, Y, theta, lam, tol):
    W, lam, gap, _ = _dual_newton(layout, layout.per_graph(theta) * Y, lam, tol=tol)
    largest = layout.per_graph(W.flatten(1).amax(1))
    return _Solution(W, lam, theta, gap, 2 * layout.sum_edges(W > 1e-6 * largest) / layout.n_nodes)


def _closer(a, b, wish):
    """Of two solutions the one whose degree is closer to the wish, per graph."""
    first = (a.degree - wish).abs() < (b.degree - wish).abs()
    return _Solution(*(torch.where(first.reshape(-1, *[1] * (x.ndim - 1)), x, y) for x, y in zip(a, b)))


def _search_theta(layout, Y, wish, theta, lam, tol, degree_tol, n_iter=60):
    """The solution of the wished degree, and the last theta (b,) and l, from which the next search starts.

    log degree falls with log theta. Each step interpolates linearly between the nearest thetas that were too small and
    too large or, as long as one of the two is missing, follows the slope -1.
    """
    enough = max(degree_tol * wish, 1 / layout.n_nodes)
    near = layout.slack(torch.zeros_like(layout.degrees(Y)), Y).flatten(1).quantile(0.9, 1) / 2
    low = torch.full_like(theta, -torch.inf)  # log theta, and log(degree / wish) there
    high = torch.full_like(theta, torch.inf)
    f_low = torch.zeros_like(theta)
    f_high = torch.zeros_like(theta)
    best = None
    for _ in range(n_iter):
        seen = _solve(layout, Y, theta, lam, tol)
        best = seen if best is None else _closer(seen, best, wish)
        x = theta.log()
        f = (seen.degree / wish).log()
        low, f_low = torch.where(f > 0, x, low), torch.where(f > 0, f, f_low)
        high, f_high = torch.where(f > 0, high, x), torch.where(f > 0, f_high, f)
        share = (f_low / (f_low - f_high)).nan_to_num(0.5).clamp(0.1, 0.9)
        inside = low + share * (high - low)
        outside = x + (1.2 * f).clamp(-2, 2) + torch.where(f > 0, 0.02, -0.02)
        outside = torch.minimum(outside, (1e4 / near).log())  # beyond, only the nearest neighbours are left
        new = torch.where(low.isfinite() & high.isfinite(), inside, outside)
        error = (best.degree - wish).abs()
        done = (error <= enough) | ((new - x).abs() < 1e-9) | ~(seen.gap <= 1)  # lost in rounding: no use to go on
        if done.all():
            break
        new = torch.where(done, x, new)
        lam = seen.lam * layout.per_graph((new - x).exp())  # together with theta, which keeps the active edges
        theta = torch.where(done, theta, new.exp())
    if (error > enough).any():
        _warn(f"average_degree={wish} is not reached, the closest is {error.max().item():.2g} off")
    return best, seen.theta, seen.lam


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
