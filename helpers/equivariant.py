"""Our own estimator: maximum likelihood, then permutation-equivariant refinement (the paper has no such model).

    y, N ──► likelihood: w, r ──► refine: edge-node message passing ──► probability and weight of every edge

Nodes enter by sums only, so renumbering them renumbers the answer and the same weights fit any number of nodes. Units
cancel: y -> c y gives w -> w / c. Inside, a batch is stored edges first, (E, B, features).
"""

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, relu

from .graphs import FAMILIES, degrees, degrees_adjoint, edges, n_nodes, to_matrix, to_vector
from .signals import covariance_distances, sample_split
from .solvers import check_distances

N_UPDATES, N_FEATURES = 10, 8
SIZES, SIGNALS = (10, 100), (10, 10_000)  # what `mixed` learns from: nodes and signals, log-uniform
CHUNK = 2_000_000  # entries of an edge state (E, B, features) that predict holds at once


# --- likelihood ----------------------------------------------------------------------------------------------------


def shrink(y, n_signals):
    """y + h/N, h the harmonic mean of the distances: (..., E) -> (..., E).

    To add c to every distance is to add c/2 I to the covariance: like one more signal, white and of the size of the
    near distances. It keeps the likelihood bounded for N < m and for nodes that always agree, and fades as 1/N.
    """
    inverse = torch.where(y > 0, 1 / y.clamp_min(torch.finfo(y.dtype).tiny), 0)
    h = (y > 0).sum(-1, keepdim=True) / inverse.sum(-1, keepdim=True).clamp_min(torch.finfo(y.dtype).tiny)
    return y + h / torch.as_tensor(n_signals).to(y)[..., None]


def resistances(w):
    """Effective resistances r_ij = b' (L + 11'/m)^-1 b of graphs with weights w > 0: (..., E) -> (..., E)."""
    W = to_matrix(w)
    Sigma = torch.linalg.inv(torch.diag_embed(W.sum(-1)) - W + 1 / W.shape[-1])
    return degrees_adjoint(Sigma.diagonal(dim1=-2, dim2=-1)) - 2 * to_vector(Sigma)


@torch.no_grad()
def likelihood(y, n_updates=N_UPDATES):
    """Approximate Laplacian maximum likelihood and its resistances: y > 0 (..., E) -> w > 0 and r, each (..., E).

    From the clipped inverse covariance, `n_updates` of w <- w r/y. In x = w y this is Titterington's update for
    D-optimal designs: it keeps w'y = m - 1 and never decreases logdet. Float64 inside.
    """
    m, y = n_nodes(y.shape[-1]), y.double()
    unit = y.median(-1, keepdim=True).values
    y = y / unit
    Y = to_matrix(y)
    S = -0.5 * (Y - Y.mean(-1, keepdim=True) - Y.mean(-2, keepdim=True) + Y.mean((-2, -1), keepdim=True))
    w = torch.maximum(1 / m - to_vector(torch.linalg.inv(S + 1 / m)), 0.01 / (m * y))
    for _ in range(n_updates):
        w = w * resistances(w) / y
    return w / unit, resistances(w) * unit


# --- model ---------------------------------------------------------------------------------------------------------


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
        self.width, self.likelihood, self.messages, self.signals = width, likelihood, messages, signals
        self.embed = nn.Linear(N_FEATURES, width)
        self.rounds = nn.ModuleList(Round(width, messages) for _ in range(n_rounds))
        self.edge = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.size = nn.Sequential(nn.Linear(width + 1, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, y, n_signals):
        """y (..., E), n_signals a number or (...) -> probability, weight, each (..., E)."""
        y = check_distances(y)
        n = torch.as_tensor(n_signals, dtype=torch.float64, device=y.device).expand(y.shape[:-1]).reshape(-1)
        if not (n >= 1).all():
            raise ValueError(f"n_signals={n_signals}: at least 1 signal is needed")
        w, flat, r = self._estimate(y.reshape(-1, y.shape[-1]), n)
        m = n_nodes(y.shape[-1])
        step = max(1, CHUNK // (self.width * y.shape[-1])) if not torch.is_grad_enabled() else len(flat)
        parts = zip(*(t.split(step) for t in (w, flat, r, n)), strict=True)
        answer = [self.refine(*part, edges(m, y.device), m) for part in parts]
        return tuple(torch.cat(t).reshape(y.shape).to(y.dtype) for t in zip(*answer, strict=True))

    def predict(self, y, n_signals=3000):
        """The expected weights, probability x weight: y (..., E) -> w (..., E), non-negative."""
        with torch.no_grad():
            probability, weight = self(y, n_signals)
        return probability * weight

    def refine(self, w, y, r, n_signals, edges, n_nodes):
        """Probability and weight (B, E) from an estimate and its resistances, w, y, r (B, E), n_signals (B,).

        `edges` (2, E) may be any list of candidate edges among `n_nodes` nodes, and (w, r) any estimate on it that is
        near the likelihood's.
        """
        logit, weight = self._refine(w, y, r, n_signals, edges, n_nodes)
        return logit.sigmoid(), weight

    def _estimate(self, y, n_signals):
        """y (B, E) -> w, y, r (B, E) float64, y shrunk."""
        y = shrink(y.double(), n_signals)
        w, r = likelihood(y) if self.likelihood else (1 / y, resistances(1 / y))
        return w, y, r

    def _refine(self, w, y, r, n_signals, edges, m):
        n = n_signals[:, None] if self.signals else torch.full_like(w[:, :1], 1000.0)
        d = degrees(w, edges, m)
        error = ((d[:, edges[0]] * d[:, edges[1]] + w**2) / n).sqrt()  # of w as an entry of an inverse covariance
        z = torch.where(w > 0, w / error, 0)
        a = w * z**2 / (z**2 + 9)  # without most of the many small weights that are noise
        scale = 2 * a.sum(-1, keepdim=True) / m  # mean degree: carries the unit of w
        x = self._features(w / scale, y * scale, r / y, z, n).to(self.embed.weight)
        a, h = (a / scale).T.to(x), self.embed(x)
        d = degrees(a.T, edges, m).T.clamp_min(1e-9)  # a node without candidates has no degree
        for round in self.rounds:
            h = round(h, a, d, edges)
        logit = self.edge(h)[..., 0]
        p = logit.sigmoid()
        typical = (p * a).sum(0) / p.sum(0).clamp_min(1e-6) if self.messages else torch.ones_like(a[0])
        ratio = ((w / scale).T.to(x) / typical).clamp_min(1e-4).log()
        weight = typical * self.size(torch.cat([h, ratio[..., None]], -1))[..., 0].clamp(-5, 5).exp()
        if self.messages:
            weight = weight * foster(logit, weight * (y * scale).T.to(x), edges, m)
        return logit.T, weight.T * scale.to(x)

    def _features(self, w, y, ratio, z, n):
        """Unit-free w, y, r/y, z (B, E), N (B, 1) -> (E, B, 8).

        Whether an edge is in shows in w r and in z, whether it is out in 1 - r/y, each against its standard error.
        """
        leverage, slack, root = (w * y * ratio).clamp_max(2), (1 - ratio).clamp(-3, 1), (n / 2).sqrt()
        columns = [
            (w + 1e-5).log() / 3, y.log().clamp(-5, 5) / 3, leverage, slack,
            (root * leverage).asinh(), (root * slack).asinh(), z.asinh(), n.log().expand_as(w) / 6,
        ]  # fmt: skip
        return torch.stack([c.T for c in columns], -1)

    def loss(self, x, w, generator=None):
        """Mean log GMSE of probability x weight, and cross-entropy of the probabilities; see `sample_pairs`."""
        *estimate, n = x.unbind(1)
        m = n_nodes(w.shape[-1])
        logit, weight = self._refine(*estimate, n[:, 0], edges(m, w.device), m)
        error = (logit.sigmoid() * weight - w).square().sum(-1) / w.square().sum(-1)
        return error.log().mean() + 10 * binary_cross_entropy_with_logits(logit, (w > 0).to(logit))

    def predict_pairs(self, x):
        """As `predict`, on what `sample_pairs` gives."""
        *estimate, n = x.unbind(1)
        m = n_nodes(x.shape[-1])
        with torch.no_grad():
            probability, weight = self.refine(*estimate, n[:, 0], edges(m, x.device), m)
        return probability * weight

    def sample_pairs(self, run, split, n, *, epoch=0):
        """Estimates (n, 4, E), rows w, y, r, N, and graphs (n, E), both float32; graphs without edges are left out.

        With fewer graphs in an epoch whose graphs are larger than the run's, for equal work.
        """
        parts = varied(run, epoch) if split == "train" else [replace(run, family=name) for name in families(run)]
        share = min(1, (run.n_nodes / parts[0].n_nodes) ** 2) / len(parts)
        pairs = [self._pairs(part, split, max(1, int(n * share)), epoch) for part in parts]
        return tuple(map(torch.cat, zip(*pairs, strict=True)))

    def _pairs(self, run, split, n, epoch):
        S, w = sample_split(run, split, n, epoch=epoch)
        S, w = S[w.any(-1)], w[w.any(-1)]  # an empty graph has no relative error
        n_signals = torch.full(w.shape[:1], float(run.n_signals), dtype=torch.float64)
        estimate = self._estimate(covariance_distances(S), n_signals)
        return torch.stack([*estimate, n_signals[:, None].expand_as(w)], 1).float(), w


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
            node = told.new_zeros(len(d), *told.shape[1:]).index_add(0, edges[0], told).index_add(0, edges[1], told)
            node, log_d = node / d[..., None], d.log()[..., None]
            node = self.node(torch.cat([node, node.mean(0, keepdim=True).expand_as(node), log_d], -1))
            new = new + node.index_select(0, edges[0]) + node.index_select(0, edges[1])
        return h + self.out(relu(new))


def foster(logit, wy, edges, m):
    """The factor (B,) that gives the graph the scale of the data; logit, w y (E, B).

    Foster: the leverages w r of a connected graph add up to m - 1, with k isolated nodes to m - 1 - k; and y measures r
    without bias. No leverage is above 1, so w y is cut at 2: nodes in different components are far apart.
    """
    nothing = nn.functional.logsigmoid(-logit)  # log-probability that an edge is not there
    none = nothing.new_zeros(m, nothing.shape[1]).index_add(0, edges[0], nothing).index_add(0, edges[1], nothing)
    rank = (m - 1 - none.exp().sum(0)).clamp_min(1)
    return rank / (logit.sigmoid() * wy.clamp_max(2)).sum(0).clamp_min(1e-6)


# --- what it learns from -------------------------------------------------------------------------------------------


def families(run):
    return FAMILIES if run.family == "mixed" else (run.family,)


def varied(run, epoch, n_parts=16):
    """The runs that make up one epoch of training: N anew for each, log-uniform from N/10 to 3N of the run.

    Only with doubtful edges among the clear ones are probabilities learned that hold on larger graphs, too. The family
    "mixed" has all families in turn, N from SIGNALS, and for each epoch an m from SIZES.
    """
    rng, mixed = np.random.default_rng((run.seed, epoch)), run.family == "mixed"
    m = int(log_uniform(rng, *SIZES)) if mixed else run.n_nodes
    signals = log_uniform(rng, *(SIGNALS if mixed else (run.n_signals / 10, 3 * run.n_signals)), n_parts)
    names = families(run) * n_parts
    return [
        replace(run, family=names[k], n_nodes=m, n_signals=int(N), seed=n_parts * run.seed + k)
        for k, N in enumerate(signals)
    ]


def log_uniform(rng, low, high, size=None):
    return np.exp(rng.uniform(np.log(low), np.log(high), size))
