"""Where half-vectors live while Eq. (4) is solved: on all pairs of nodes, or on a list of candidate edges.

Both layouts offer the same operations on a batch of b graphs, and a solver need not know which of them it works on:

    enter, leave          half-vectors (b, E) into the layout's own form, and back
    enter_nodes           vectors over the nodes (b, m), likewise
    per_graph             one number per graph, (b,), in a shape that broadcasts against both
    degrees, adjoint      the operator D and its adjoint D'
    sum_edges             the sum over the edges, (b,)
    slack, residuals, newton_direction    what Newton's method on the dual needs, see `newton`
"""

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from ..graphs import degrees, degrees_adjoint, to_matrix, to_vector
from .kernels import add_signless_laplacian, list_active, list_residuals, list_slack, two_sum
from .linear_systems import conjugate_gradients

ENTRIES_AT_ONCE = 2**18  # of matrices worked on together: larger batches are cut so that they stay near the cache
# Up to so many nodes Newton's systems on a list are solved by a sparse factor. On smooth data conjugate gradients would
# be faster, by a few hundredths of a second; where some values are very large they need several times as many steps.
DIRECT_NODES = 1000


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


def sum_nodes(v):
    """Sum of a vector over the nodes, in either layout: (b,)."""
    return v.flatten(1).sum(1)


def advance(step, todo, state, given):
    """The next state of the graphs `todo` by step(*state, *given); the others stay as they are."""
    if len(todo) == len(state[0]):  # nothing is copied: lists of edges are long
        return step(*state, *given)
    new = step(*(x[todo] for x in (*state, *given)))
    return tuple(x.index_copy(0, todo, part) for x, part in zip(state, new, strict=True))
