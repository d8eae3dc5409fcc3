"""Eq. (4) as the solvers see it: arguments checked, in float64, one row per graph, in a layout."""

import torch

from ..graphs import count_nodes
from .layouts import CandidateEdges, CompleteGraph


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
    """min over w >= 0 of 2 w'y - alpha 1'log(D w) + beta ||w||^2, on all pairs of nodes or on a list of candidates.

    The leading shapes of y, alpha and beta, and `lead`, broadcast to `self.lead`; b graphs in all.
    """

    def __init__(self, y, alpha, beta, edges, n_nodes, lead=()):
        y = check_distances(y, edges)
        self.dtype = y.dtype
        self.n_edges = y.shape[-1]
        alpha = check_positive(y, alpha=alpha)
        beta = check_positive(y, beta=beta)
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

    def per_graph(self, x):
        """One number per graph, (b,) -> (...)."""
        return x.reshape(self.lead)

    def path(self, iterates):
        """T iterates in the layout -> (..., T, E)."""
        return torch.stack([self.answer(W) for W in iterates], -2)


def check_positive(y, **named):
    """The one named argument as a float64 tensor on the device of y, or ValueError: finite and positive."""
    ((name, x),) = named.items()
    x = torch.as_tensor(x, dtype=torch.float64, device=y.device)
    if not (torch.isfinite(x) & (x > 0)).all():
        raise ValueError(f"{name}={x.tolist()}: finite positive values are needed")
    return x
