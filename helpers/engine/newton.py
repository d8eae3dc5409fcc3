"""Newton's method on the dual of Eq. (4), and the search for the theta that gives a graph a wished density.

With alpha = beta = 1 the dual problem has one variable l > 0 per node,

    min over l of  sum over edges of relu(l_i + l_j - 2y)^2 / 4  -  sum over nodes of log l_i,

and its solution gives w = relu(l_i + l_j - 2y) / 2. Distances Y and weights W are in
a layout (see `layouts`); l is the sum of `lam` and, where digits count, a much smaller `low`.
"""

from functools import partial
from typing import NamedTuple

import torch

from .kernels import two_sum
from .layouts import advance, sum_nodes

PATIENCE = 30  # Newton steps without a smaller gap or objective, after which rounding is taken to be in the way


# --- dual Newton ----------------------------------------------------------------------------------------------------


def dual_newton(layout, Y, start=None, *, tol=1e-14, n_iter=1000, path=False):
    """Solution W, dual variable l, relative gap (b,) and, with `path`, the iterates of W; l starts at `start`."""
    start = _awake(layout, Y, start)
    at_once = len(Y) if path else layout.graphs_at_once
    parts = zip(Y.split(at_once), start.split(at_once))
    W, lam, gap, iterates = zip(*(_newton_part(layout, *part, tol, n_iter, path) for part in parts))
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


def _newton_part(layout, Y, lam, tol, n_iter, path):
    """`dual_newton` for graphs that are worked on together.

    A graph is done when its gap is within `tol`, or when PATIENCE steps made neither its gap nor its objective smaller.
    """
    low = torch.zeros_like(lam)  # the digits of l that do not fit into lam
    state = (lam, low, *_dual_objective(layout, lam, low, Y))
    best = least = Y.new_full((len(Y),), torch.inf)  # gap and objective
    waited = torch.zeros_like(best)
    iterates = []
    for _ in range(n_iter):
        lam, _, R, d, value = state
        if path:
            iterates.append(R / 2)
        gap = node_gap(lam * d) / layout.n_nodes  # from w(l) to l
        other = gap + sum_nodes((lam * (lam * d - 1)) ** 2) / layout.n_nodes  # about that from w(l) to its own 1 / d
        waited = torch.where((other < best) | (value < least - 1e-12 * value.abs()), 0, waited + 1)
        best = torch.minimum(other, best)
        least = torch.minimum(value, least)
        more = ~(other <= tol) & (waited < PATIENCE)
        if not more.any():
            break
        todo = torch.nonzero(more)[:, 0]
        state = advance(partial(_newton_step, layout), todo, state, (Y, gap))
    return state[2] / 2, state[0], gap, iterates


def _dual_objective(layout, lam, low, Y):
    """R = relu(l_i + l_j - 2y), the degrees of w(l) = R / 2, and the objective of the dual (b,) at l = lam + low."""
    R, d, squares = layout.residuals(lam, low, Y)
    return R, d, squares / 4 - sum_nodes(lam.log())


def _newton_step(layout, lam, low, R, d, value, Y, gap):
    """The next l and what `_dual_objective` says of it: a damped semi-smooth Newton step."""
    gradient = d - 1 / lam
    step = layout.newton_direction(R, lam, gradient, gap.sqrt().clamp(1e-8, 0.1))
    slope = sum_nodes(gradient * step)
    t = 0.9 / (-step / lam).flatten(1).amax(1).clamp_min(0.9)  # l stays positive
    for _ in range(40):
        new, rest = two_sum(lam, low + layout.per_graph(t) * step)
        R, d, new_value = _dual_objective(layout, new, rest, Y)
        worse = new_value > value + 1e-4 * t * slope + 1e-14 * value.abs()
        if not worse.any():
            break
        t = torch.where(worse, t / 2, t)
    return new, rest, R, d, new_value


def node_gap(u):
    """The part of the duality gap that belongs to nodes, the sum of u - 1 - log u with u = l d: (b,)."""
    return sum_nodes(u - 1 - u.log())


# --- a wished density -----------------------------------------------------------------------------------------------


class Solution(NamedTuple):
    """Eq. (4) solved for theta y: weights and dual variable in their layout; theta, relative gap and degree, (b,)."""

    W: torch.Tensor
    lam: torch.Tensor
    theta: torch.Tensor
    gap: torch.Tensor
    degree: torch.Tensor


def _solve(layout, Y, theta, lam, tol):
    W, lam, gap, _ = dual_newton(layout, layout.per_graph(theta) * Y, lam, tol=tol)
    largest = layout.per_graph(W.flatten(1).amax(1))
    return Solution(W, lam, theta, gap, 2 * layout.sum_edges(W > 1e-6 * largest) / layout.n_nodes)


def _closer(a, b, wish):
    """Of two solutions the one whose degree is closer to the wish, per graph."""
    first = (a.degree - wish).abs() < (b.degree - wish).abs()
    return Solution(*(torch.where(first.reshape(-1, *[1] * (x.ndim - 1)), x, y) for x, y in zip(a, b)))


def search_theta(layout, Y, wish, theta, lam, tol, enough, n_iter=60):
    """The solution whose degree is closest to the wish, and the last one seen, from which a next search may start.

    It starts at `theta` (b,) and the dual point `lam`, and ends where the degree is within `enough` of the wish. The
    logarithm of the degree falls with that of theta. Each step interpolates linearly between the nearest thetas that
    were too small and too large or, as long as one of the two is missing, follows the slope -1.
    """
    near = layout.slack(torch.zeros_like(layout.degrees(Y)), Y).flatten(1).quantile(0.9, 1) / 2
    largest = (1e4 / near).log()  # of log theta: beyond, only the nearest neighbours are left
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
        new = torch.where(low.isfinite() & high.isfinite(), inside, torch.minimum(outside, largest))
        found = (best.degree - wish).abs() <= enough
        lost = ~(seen.gap <= 1)  # in rounding: no use to go on
        done = found | lost | ((new - x).abs() < 1e-9)
        if done.all():
            break
        new = torch.where(done, x, new)
        lam = seen.lam * layout.per_graph((new - x).exp())  # together with theta, which keeps the active edges
        theta = torch.where(done, theta, new.exp())
    return best, seen
