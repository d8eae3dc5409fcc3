"""EquivariantL2G, our own estimator: maximum likelihood, then message passing between edges and nodes.

    y, N ──► add_white_signal ──► approximate_mle: w, r ──► message passing ──► probability and weight of every edge

The paper has no such model. Nodes enter by sums only, so that renumbering them renumbers the answer and the same
parameters fit any number of nodes. Units cancel: c y in place of y gives w / c. Inside, a batch is stored edges first,
(E, B, ...).
"""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid, relu

from ..engine.problem import check_distances
from ..graphs import all_pairs, count_nodes, degrees
from .likelihood import approximate_mle, effective_resistances

N_FEATURES = 8  # of an edge, see `edge_features`
N_UPDATES = 10  # of the likelihood on all pairs
N_UPDATES_ON_A_LIST = 30  # where there is no inverse covariance to start from
STATE_ENTRIES = 2_000_000  # of the edge state (E, B, width) that a forward pass without gradients holds at once
UNKNOWN_SIGNALS = 1000.0  # stands in for N in a model that is not told


def add_white_signal(y, n_signals):
    """y + h/N, h the harmonic mean of the distances: (..., E), N (...) -> (..., E).

    To add c to every distance is to add c/2 I to the covariance: like one more signal, white and of the size of the
    near distances. It keeps the likelihood bounded for N < m and for nodes that always agree, and fades as 1/N.
    """
    tiny = torch.finfo(y.dtype).tiny
    inverse = torch.where(y > 0, 1 / y.clamp_min(tiny), 0)
    h = (y > 0).sum(-1, keepdim=True) / inverse.sum(-1, keepdim=True).clamp_min(tiny)
    return y + h / torch.as_tensor(n_signals).to(y)[..., None]


class EquivariantL2G(nn.Module):
    """y (..., E) and the number of signals N -> probability and weight of every edge, for any number of nodes.

    Parameters
    ----------
    n_rounds, width : of the message passing
    likelihood, messages, signals : False takes one part away (for ablations): the likelihood (1/y stands in for it),
        the exchange between edges, the knowledge of N
    """

    def __init__(self, n_rounds=3, *, width=32, likelihood=True, messages=True, signals=True):
        super().__init__()
        self.width = width
        self.likelihood = likelihood
        self.messages = messages
        self.signals = signals
        self.embed = nn.Linear(N_FEATURES, width)
        self.rounds = nn.ModuleList(Round(width, messages) for _ in range(n_rounds))
        self.edge = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.size = nn.Sequential(nn.Linear(width + 1, width), nn.ReLU(), nn.Linear(width, 1))

    # --- what a method and a trainable model offer ------------------------------------------------------------------

    def predict(self, observations):
        """The expected weights, probability x weight: Observations -> w (..., E) >= 0."""
        with torch.no_grad():
            probability, weight = self(observations.distances, observations.n_signals)
        return probability * weight

    def prepare(self, observations):
        """The estimate that message passing starts from, computed once per graph: (n, 4, E) float32, w, y, r and N."""
        y = check_distances(observations)
        n = self._check_signals(observations.n_signals, y)
        with torch.no_grad():
            w, y, r = self._estimate(y.double(), n)
        return torch.stack([w, y, r, n[:, None].expand_as(y)], 1).float()

    def loss(self, prepared, w, generator=None):
        """Mean log GMSE of probability x weight, and cross-entropy of the probability; prepared (B, 4, E), w (B, E)."""
        w_mle, y, r, n = prepared.unbind(1)
        m = count_nodes(w.shape[-1])
        logit, weight = self._pass_messages(w_mle, y, r, n[:, 0], all_pairs(m, w.device), m)
        error = (logit.sigmoid() * weight - w).square().sum(-1) / w.square().sum(-1)
        return error.log().mean() + 10 * binary_cross_entropy_with_logits(logit, (w > 0).to(logit))

    # --- the network ------------------------------------------------------------------------------------------------

    def forward(self, y, n_signals, edges=None, n_nodes=None, *, progress=False):
        """Probability and weight of every edge, each (..., E), in the dtype of y.

        Parameters
        ----------
        y : (..., E) distances; n_signals : N, a number or (...)
        edges : (2, E) candidates among `n_nodes`, or None for all pairs. On a list, likelihood and messages are
            restricted to it; resistances are exact up to 2,000 nodes and sketched beyond, which takes minutes.
        progress : show a bar, on a list
        """
        y = check_distances(y, edges)
        n = self._check_signals(n_signals, y).reshape(-1)
        estimate = self._estimate(y.double().reshape(-1, y.shape[-1]), n, edges, n_nodes, progress)
        if edges is None:
            n_nodes = count_nodes(y.shape[-1])
            edges = all_pairs(n_nodes, y.device)
        graphs_at_once = len(n)
        if not torch.is_grad_enabled():
            graphs_at_once = max(1, STATE_ENTRIES // (self.width * y.shape[-1]))
        parts = zip(*(t.split(graphs_at_once) for t in (*estimate, n)), strict=True)
        logit, weight = zip(*(self._pass_messages(*part, edges, n_nodes) for part in parts), strict=True)
        probability = torch.cat(logit).sigmoid()
        return tuple(t.reshape(y.shape).to(y.dtype) for t in (probability, torch.cat(weight)))

    def _check_signals(self, n_signals, y):
        """N as a float64 tensor of y's leading shape, or ValueError."""
        n = torch.as_tensor(n_signals, dtype=torch.float64, device=y.device)
        if not ((n >= 1) & n.isfinite()).all():
            raise ValueError(f"n_signals={n_signals}: a finite number of signals, at least 1, is needed")
        return n.expand(y.shape[:-1])

    def _estimate(self, y, n_signals, edges=None, n_nodes=None, progress=False):
        """The estimate that message passing starts from: y (B, E) float64 -> w, y, r (B, E); y with a white signal."""
        y = add_white_signal(y, n_signals)
        if edges is None:
            w, r = self._likely(y)
        else:  # graph by graph
            found = [self._likely(row, edges, n_nodes, progress) for row in y]
            w, r = (torch.stack(t) for t in zip(*found, strict=True))
        return w, y, r

    def _likely(self, y, edges=None, n_nodes=None, progress=False):
        """Weights near the most likely ones, and their effective resistances: y (B, E), on a list (E,)."""
        if not self.likelihood:
            return 1 / y, effective_resistances(1 / y, edges, n_nodes)
        if edges is None:
            return approximate_mle(y, N_UPDATES)
        return approximate_mle(y, N_UPDATES_ON_A_LIST, edges=edges, n_nodes=n_nodes, progress=progress)

    def _pass_messages(self, w, y, r, n_signals, edges, n_nodes):
        """Logit of the probability, and weight, each (B, E), from an estimate w, its y and resistances r, N (B,)."""
        n = n_signals[:, None] if self.signals else torch.full_like(w[:, :1], UNKNOWN_SIGNALS)

        # 1. What stands out of the noise, a, and the unit of w: the mean degree of a
        z = standard_scores(w, n, edges, n_nodes)
        a = w * z**2 / (z**2 + 9)
        unit = 2 * a.sum(-1, keepdim=True) / n_nodes

        # 2. Edges as vectors h (E, B, width), which exchange messages along a, all free of units
        x = edge_features(w / unit, y * unit, r / y, z, n).to(self.embed.weight)
        w = (w / unit).T.to(x)
        y = (y * unit).T.to(x)
        a = (a / unit).T.to(x)
        d = degrees(a.T, edges, n_nodes).T.clamp_min(1e-9)  # a node without candidates has no degree
        h = self.embed(x)
        for message_round in self.rounds:
            h = message_round(h, a, d, edges)

        # 3. Probability; weight as a multiple of the graph's typical one, then in the scale of the data
        logit = self.edge(h)[..., 0]
        typical = self._typical_weight(logit, a)
        ratio = (w / typical).clamp_min(1e-4).log()
        weight = typical * self.size(torch.cat([h, ratio[..., None]], -1))[..., 0].clamp(-5, 5).exp()
        if self.messages:
            weight = weight * foster_scale(logit, weight * y, edges, n_nodes)
        return logit.T, weight.T * unit.to(x)

    def _typical_weight(self, logit, a):
        """Mean weight of the probable edges per graph: (E, B) -> (B,); 1 in a model without messages."""
        if not self.messages:
            return torch.ones_like(a[0])
        p = logit.sigmoid()
        return (p * a).sum(0) / p.sum(0).clamp_min(1e-6)


class Round(nn.Module):
    """Edges tell their nodes, nodes tell their edges and the graph: h (E, B, F) -> (E, B, F).

    A node takes the mean of what its edges tell, weighted by a (E, B), and knows the logarithm of its degree d (m, B):
    nothing grows with the number of nodes or the size of a hub.
    """

    def __init__(self, width, messages=True):
        super().__init__()
        self.messages = messages
        self.tell = nn.Linear(width, width)
        self.node = nn.Linear(2 * width + 1, width)
        self.own = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, h, a, d, edges):
        new = self.own(h)
        if self.messages:
            told = relu(self.tell(h)) * a[..., None]
            node = sum_at_nodes(told, edges, len(d)) / d[..., None]
            graph = node.mean(0, keepdim=True).expand_as(node)
            node = self.node(torch.cat([node, graph, d.log()[..., None]], -1))
            new = new + node.index_select(0, edges[0]) + node.index_select(0, edges[1])
        return h + self.out(relu(new))


def sum_at_nodes(x, edges, n_nodes):
    """The sum over the edges at every node: (E, B, ...) -> (m, B, ...)."""
    total = x.new_zeros(n_nodes, *x.shape[1:])
    return total.index_add(0, edges[0], x).index_add(0, edges[1], x)


def standard_scores(w, n_signals, edges, n_nodes):
    """w over its standard error as an entry of an inverse covariance, sqrt((d_i d_j + w^2) / N): (B, E) -> (B, E)."""
    d = degrees(w, edges, n_nodes)
    error = ((d[:, edges[0]] * d[:, edges[1]] + w**2) / n_signals).sqrt()
    return torch.where(w > 0, w / error, 0)


def edge_features(w, y, ratio, z, n):
    """Unit-free w, y, ratio = r/y and z (B, E), N (B, 1) -> (E, B, 8).

    Whether an edge is in shows in w r and in z, whether it is out in 1 - r/y, each against its standard error.
    """
    leverage = (w * y * ratio).clamp_max(2)
    slack = (1 - ratio).clamp(-3, 1)
    root = (n / 2).sqrt()
    columns = [
        (w + 1e-5).log() / 3, y.log().clamp(-5, 5) / 3, leverage, slack,
        (root * leverage).asinh(), (root * slack).asinh(), z.asinh(), n.log().expand_as(w) / 6,
    ]  # fmt: skip
    return torch.stack([c.T for c in columns], -1)


def foster_scale(logit, wy, edges, n_nodes):
    """The factor (B,) that gives the graph the scale of the data; logit, w y (E, B).

    Foster: the leverages w r of a connected graph add up to m - 1, with k isolated nodes to m - 1 - k; and y measures r
    without bias. No leverage is above 1, so w y is cut at 2: nodes in different components are far apart.
    """
    alone = sum_at_nodes(logsigmoid(-logit), edges, n_nodes).exp()  # probability that a node has no edge, (m, B)
    rank = (n_nodes - 1 - alone.sum(0)).clamp_min(1)
    return rank / (logit.sigmoid() * wy.clamp_max(2)).sum(0).clamp_min(1e-6)
