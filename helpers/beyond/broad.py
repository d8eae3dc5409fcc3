"""BroadL2G: probability, sign and weight of every edge, for data that follow no law in particular.

    S, N ──► white signal ──► likelihood of three kinds of atoms ──► features ──► message passing ──► Estimate
                                                                                      ▲                  │
                                                                                      └───── looks ◄─────┘

It differs from `equivariant.EquivariantL2G` in what it can represent (negative edges, and variance that a node shares
with nobody, see `atoms`), in what it learned from (`broad_law`), and in its features, none of which a single heavy edge
can drown. Renumbering the nodes renumbers the answer; c S in place of S divides the weights by c. A batch is stored
pairs first inside, (E, B, ...).
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.functional import log_softmax, relu

from ..engine.problem import check_edges
from ..graphs import all_pairs, count_nodes, degrees, degrees_adjoint, to_vector
from ..signals import Observations
from . import atom_lists
from .atom_lists import ListAtoms, likely_atoms
from .atoms import Atoms, Kinds, approximate_mle, resistances, white_signal
from .equivariant import sum_at_nodes
from .looks import (
    N_AFTERTHOUGHTS,
    N_FITTED,
    N_SETTLED,
    N_WEIGHED,
    Known,
    Look,
    Thought,
    explain_away,
    in_parts,
    mean_and_spread,
    positive_share,
    settle,
    split,
)

N_UPDATES = 40  # of the likelihood
N_PAIR_FEATURES = 24
N_NODE_FEATURES = 8
N_PAIR_ROWS = N_PAIR_FEATURES + 6  # features, and what estimates are made from: see `describe`
N_NODE_ROWS = N_NODE_FEATURES + 3
EARLIER = 0.25  # what an estimate that is made on the way counts in the loss
PAIRS_PER_STEP = 12_000  # of all graphs together, in training
MISSING = 1e-9  # of the largest eigenvalue: what is smaller is zero
FILLED = 1e4  # of the largest eigenvalue: about the variance of the constant vector in the paper's law
PAIRS_AT_ONCE = 30_000  # of all graphs together that a forward pass without gradients holds at once


class Estimate(NamedTuple):
    """What is known of every pair of nodes, each (..., E)."""

    positive: torch.Tensor  # probability of an edge with positive weight, that is, a positive partial correlation
    negative: torch.Tensor  # probability of an edge with negative weight
    weight: torch.Tensor  # its size if there is one, > 0

    @property
    def expected(self):
        """The expected signed weight, (..., E)."""
        return (self.positive - self.negative) * self.weight


@dataclass(frozen=True)
class KindObservations(Observations):
    """Observations with the kinds of atoms that each graph is to be learned with, (...) bool or one for all."""

    signed: bool | torch.Tensor = True
    self_loops: bool | torch.Tensor = True

    def __getitem__(self, rows):
        def some(x):
            return x if torch.as_tensor(x).ndim == 0 else x[rows]

        return KindObservations(self.moments[rows], *(some(x) for x in (self.n_signals, self.signed, self.self_loops)))

    def to(self, *device_or_dtype):
        plain = Observations(self.moments, self.n_signals).to(*device_or_dtype)
        return KindObservations(plain.moments, plain.n_signals, self.signed, self.self_loops)


class BroadL2G(nn.Module):
    """Second moments S (..., m, m) and the number of signals N -> Estimate, for any number of nodes from 3 on.

    Parameters
    ----------
    n_rounds, width : of the message passing
    n_looks : how many of the rounds, the last ones, begin with a look at what the estimate so far explains of each pair
    weighs : whether a look also tells how probable the pair is and how heavy, if all others are as they are thought to
        be, see `weigh_evidence`
    fits : whether for that the law of weights is fitted to the graph, see `fit_law`, and told, too
    n_steps : how often weights and ground are brought nearer to what the data say of them, given the probabilities,
        whenever these change, see `settle`; 0 leaves the weights as they are and takes one step of the likelihood in
        the ground
    """

    max_gradient = 1.0
    geometric_error = True  # of the graphs of the law some have a thousand times the error of others
    learns_in_bfloat16 = False  # multiplies matrices in it while it is trained: faster, if the processor knows it

    def __init__(self, n_rounds=7, *, width=96, n_looks=4, weighs=True, fits=True, n_steps=3):
        super().__init__()
        if not 0 <= n_looks < n_rounds:
            raise ValueError(f"n_looks={n_looks}: a number between 0 and n_rounds - 1 = {n_rounds - 1} is needed")
        if fits and not weighs:
            raise ValueError("fits=True: a law of weights is for evidence to be weighed with, take weighs=True")
        if n_steps and not fits:
            raise ValueError(f"n_steps={n_steps}: weights settle under a law that is fitted, take fits=True")
        self.width = width
        self.embed = nn.Linear(N_PAIR_FEATURES, width)
        self.nodes = nn.Linear(N_NODE_FEATURES, width)
        self.rounds = nn.ModuleList(Round(width) for _ in range(n_rounds))
        self.fits = fits
        self.n_steps = n_steps
        kinds = ((weighs, N_WEIGHED), (fits, N_FITTED), (n_steps > 0, N_SETTLED))
        self.n_told = N_AFTERTHOUGHTS - sum(n for there, n in kinds if not there)
        self.looks = nn.ModuleList(nn.Linear(self.n_told, width) for _ in range(n_looks))
        self.edge = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        n_given = width + 5 + (n_steps > 0)
        self.size = nn.Sequential(nn.Linear(n_given, width), nn.ReLU(), nn.Linear(width, 3 + weighs))
        nn.init.constant_(self.edge[-1].bias, -2.0)  # most pairs are no edges
        nn.init.ones_(self.size[-1].bias[3:])  # at first, evidence has most of the say in weights

    def grow_from(self, smaller):
        """Take the weights of a network with fewer rounds and looks, or narrower ones; the rest adds nothing at first.

        If it does not weigh evidence, this has most of the say in weights from the beginning.
        """
        if len(self.rounds) - len(self.looks) != len(smaller.rounds) - len(smaller.looks):
            raise ValueError("smaller: a network with as many rounds before its first look is needed")
        learned = {name: x.clone() for name, x in smaller.state_dict().items()}
        for layer in (*(message_round.out for message_round in self.rounds[len(smaller.rounds) :]), *self.looks):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(self.size[-1].weight)
        with torch.no_grad():
            for name, x in learned.items():
                mine = self.state_dict()[name][: len(x)]
                if x.ndim == 1:
                    mine[:] = x
                else:  # what is new may listen to all, but nobody listens to it
                    mine.zero_()
                    mine[:, self._columns_of(smaller, x.shape[1], mine.shape[1])] = x

    def _columns_of(self, smaller, n_old, n_new):
        """Where the inputs of a layer of a smaller network are among those of this one: (n_old,) int64.

        Inputs are vectors of the network's width, one after the other, and then what has no width.
        """
        wider = self.width - smaller.width
        n_vectors = (n_new - n_old) // wider if wider else 0
        column = torch.arange(n_old)
        return column + wider * (column // smaller.width).clamp_max(n_vectors)

    # --- what a method and a trainable model offer ------------------------------------------------------------------

    def predict(self, observations):
        """The expected signed weights: Observations or KindObservations -> w (..., E)."""
        kinds = {name: getattr(observations, name, True) for name in ("signed", "self_loops")}
        with torch.no_grad():
            return self(observations.moments, observations.n_signals, **kinds).expected

    def prepare(self, observations):
        """The features of every graph, computed once: (n, N_PAIR_ROWS * E + N_NODE_ROWS * m) float32."""
        signed, loops = (getattr(observations, name, True) for name in ("signed", "self_loops"))
        pairs, nodes = describe(observations.moments, observations.n_signals, Kinds(signed, loops))
        return torch.cat([pairs.flatten(1), nodes.flatten(1)], 1).float()

    def loss(self, prepared, w, generator=None):
        """Mean log GMSE of the expected weights where there are edges, and cross-entropy per node of their signs.

        Estimates that are made on the way count, too, each a little.
        """
        n, E = w.shape
        m = count_nodes(E)
        pairs = prepared[:, : N_PAIR_ROWS * E].reshape(n, N_PAIR_ROWS, E)
        nodes = prepared[:, N_PAIR_ROWS * E :].reshape(n, N_NODE_ROWS, m)
        w = (w * nodes[:, -1, :1]).T
        with torch.autocast(w.device.type, torch.bfloat16) if self.learns_in_bfloat16 else nullcontext():
            estimates = self._estimates(pairs, nodes, all_pairs(m, w.device))
        *earlier, last = (error_of(found.log_p, found.weight, w, m) for found in estimates)
        return last + EARLIER * sum(earlier)

    def graphs_per_step(self, n_pairs):
        """How many graphs of so many pairs make up a step of training."""
        return min(256, max(1, PAIRS_PER_STEP // n_pairs))

    # --- the network ------------------------------------------------------------------------------------------------

    def forward(self, moments, n_signals, *, signed=True, self_loops=True):
        """What is known of every pair, in the dtype of `moments`.

        Parameters
        ----------
        moments : S (..., m, m), positive semidefinite, of whatever rank
        n_signals : N, a number, (...), or (..., m, m), how many samples there are behind each entry
        signed : whether there may be negative edges; self_loops : whether nodes may vary on their own. Each a bool or
            (...) bool
        """
        S = check_moments(moments)
        shape = S.shape[:-2]
        m = S.shape[-1]
        n = torch.as_tensor(n_signals, dtype=torch.float64, device=S.device)
        if not ((n > 0) & n.isfinite()).all():
            raise ValueError(f"n_signals={n_signals}: finite numbers above 0 are needed")
        n = n.expand(S.shape if n.ndim >= 2 and n.shape[-2:] == S.shape[-2:] else shape)
        flags = (torch.as_tensor(x, dtype=torch.bool, device=S.device).expand(shape) for x in (signed, self_loops))
        S = fill_missing_direction(S.double(), n if n.shape == shape else n.mean((-2, -1)))
        flat = [S.reshape(-1, m, m), n.reshape(-1, *n.shape[len(shape) :]), *(x.reshape(-1) for x in flags)]
        at_once = max(1, PAIRS_AT_ONCE // (m * (m - 1) // 2))
        parts = [
            self._estimate(*part, all_pairs(m, S.device))
            for part in zip(*(x.split(at_once) for x in flat), strict=True)
        ]
        return Estimate(*(torch.cat(x).reshape(*shape, -1).to(moments.dtype) for x in zip(*parts, strict=True)))

    @torch.no_grad()
    def on_list(self, difference, sum, ground, n_signals, edges, n_nodes, *, self_loops=True, seed=0, progress=False):
        """What is known of the pairs on a list, for many thousand nodes: Estimate, each (E,), float64.

        Likelihood and messages are restricted to the list, see `atom_lists.likely_atoms`.

        Parameters
        ----------
        difference, sum, ground : what the atoms see, (E,), (E,) and (m,): `signals.pair_distances`,
            `moments.pair_sums` and `moments.column_variances`. If `sum` is None, there are no negative edges. The
            ground is needed with self-loops and without
        n_signals : N, a number
        edges : (2, E) int64, edges[0] < edges[1], each pair once, every node in at least one
        self_loops : bool, as in `forward`
        seed : of the random projections, beyond 2,000 nodes; progress : show a bar
        """
        edges = check_edges(edges, n_nodes, len(difference))
        kinds = Kinds(sum is not None, self_loops)
        y = ListAtoms(difference, sum, ground)
        pairs, nodes = describe_list(y, n_signals, kinds, edges, n_nodes, seed=seed, progress=progress)

        def explain(w, constant):
            w = ListAtoms(*(x[0] for x in w))
            return Atoms(*(x[None] for x in atom_lists.resistances(w, edges, seed=seed)))

        return Estimate(*(x[0].double() for x in self._decide(pairs, nodes, edges, explain)))

    def _estimate(self, S, n, signed, self_loops, edges):
        return self._decide(*describe(S, n, Kinds(signed, self_loops)), edges)

    def _decide(self, pairs, nodes, edges, explain=resistances):
        log_p, weight, _ = self._estimates(pairs, nodes, edges, explain)[-1]
        _, positive, negative = log_p.exp().unbind(-1)
        return positive.T, negative.T, weight.T.double() / nodes[:, -1, :1].double()

    def _estimates(self, pairs, nodes, edges, explain=resistances):
        """What is thought before every look and at the end, from `describe`: a list of what `_judge` returns.

        `explain` are the resistances of all atoms, given their weights, as `atoms.resistances` has them.
        """
        x, given = pairs.permute(2, 0, 1).split([N_PAIR_FEATURES, N_PAIR_ROWS - N_PAIR_FEATURES], -1)
        x = x.to(self.embed.weight.dtype)  # features only: digits cancel in what weights are made from
        nodes = nodes.permute(2, 0, 1)
        signed, loops = (x[0, :, k] > 0 for k in (-2, -1))
        left, ground, y_ground = nodes[..., N_NODE_FEATURES - 1 : -1].unbind(-1)
        known = Known(*given.unbind(-1), y_ground, left, signed, loops, (~signed & ~loops).to(x))
        at_nodes = self.nodes(nodes[..., :N_NODE_FEATURES].to(x))
        s = known.s.to(x)
        count = sum_at_nodes(s, edges, len(nodes))
        h = in_parts(self.embed, x).to(x)
        look = Look(None, (known.difference, known.sum), ground)
        found = []
        for k, message_round in enumerate(self.rounds, len(self.looks) - len(self.rounds)):
            if k >= 0:
                found.append(self._judge(h, known, look, explain))
                look = explain_away(found[-1], known, look, edges, explain, fits=self.fits)
                h = h + in_parts(self.looks[k], look.told[..., : self.n_told])
            h = message_round(h, at_nodes, s, count, edges)
        return [*found, self._judge(h, known, look, explain)]

    def _judge(self, h, known, look, explain):
        """What is thought after a round: h (E, B, F) -> Thought."""
        logit = in_parts(self.edge, h).to(h)
        negative = logit[..., 1].masked_fill(~known.signed, -30.0)
        log_p = log_softmax(torch.stack([torch.zeros_like(negative), logit[..., 0], negative], -1), -1)
        rest = settle(log_p.double().exp(), known, look, explain, self.n_steps) if self.n_steps else None
        return Thought(log_p, self._weights(h, log_p, known, look, rest), rest)

    def _weights(self, h, log_p, known, look, rest):
        """Weights (E, B): the most likely ones, drawn towards their mean, in the scale of the data, and corrected.

        They may give way to those at rest or, in networks without these, to what the last look made of them.
        """
        _, positive, negative = log_p.exp().unbind(-1)
        share = positive_share(positive, negative)

        def of_sign(a, b):
            return (share * a + (1 - share) * b).clamp_min(1e-9).log()

        logarithm = of_sign(known.difference, known.sum)
        law = rest.law if rest else look.law
        mean, spread = (x.to(logarithm) for x in law or mean_and_spread(positive + negative, logarithm))
        ratio = logarithm - mean
        # what the ground leaves of the leverage to the pairs; sums without an edge share the common mode with it
        rank = (known.left.sum(0) - ((1 - negative) * known.sum * known.y_sum).sum(0)).clamp_min(0.1)

        def scale(weight):
            """Foster: the leverages of the edges add up to the rank, and y measures resistances without bias."""
            of_edges = positive * (weight * known.y_difference).clamp_max(2)
            seen = of_edges + negative * (weight * known.y_sum).clamp_max(2)
            return (rank / seen.sum(0).clamp_min(1e-3)).clamp(0.05, 20).log()

        told = [ratio / 3, ratio / (spread + 0.1) / 3, spread.log() / 3, scale(logarithm.exp())]
        told.append((of_sign(*look.alone) - mean) / 3)
        weighed = of_sign(*look.weighed) if look.weighed else None
        if rest:
            weighed = rest.weight.log().to(logarithm)
            told.append((weighed - mean) / 3)
        told = torch.stack([x.clamp(-5, 5).expand_as(ratio) for x in told], -1).to(h)
        pull, add, trust, *give = in_parts(lambda *x: self.size(torch.cat(x, -1)), h, told).to(h).unbind(-1)
        logarithm = (mean + ratio * torch.sigmoid(3 - pull)).clamp(-25, 25)
        # where weights are equal the scale is known best from all of them, where one is heavy from itself alone
        logarithm = logarithm + torch.sigmoid(trust) * scale(logarithm.exp()) + (0.3 * add).clamp(-3, 3)
        if give and weighed is not None:
            logarithm = logarithm + torch.sigmoid(give[0]) * (weighed - logarithm)
        return logarithm.exp()


def error_of(log_p, weight, w, n_nodes):
    """Log GMSE of the expected weights (0 for an empty graph) and cross-entropy per node: w (E, B) -> their mean."""
    _, positive, negative = log_p.exp().unbind(-1)
    off = (positive * weight - w.clamp_min(0)).square() + (negative * weight - (-w).clamp_min(0)).square()
    size = w.square().sum(0)
    error = torch.where(size > 0, (off.sum(0) / size.clamp_min(1e-30) + 1e-5).log(), 0)
    kind = torch.where(w > 0, 1, torch.where(w < 0, 2, 0))
    entropy = -log_p.gather(-1, kind[..., None])[..., 0].sum(0) / n_nodes
    return (error + entropy).mean()


class Round(nn.Module):
    """Pairs tell their nodes, nodes tell their pairs and the graph: h (E, B, F) -> (E, B, F).

    A node takes the mean of what its pairs tell, weighted by s (E, B), how much each stands out of the noise, so that
    one heavy edge counts as one.
    """

    def __init__(self, width):
        super().__init__()
        self.tell = nn.Linear(width, width)
        self.node = nn.Linear(2 * width, width)
        self.own = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, h, at_nodes, s, count, edges):
        parts = zip(split(h), split(s), split(edges.T))
        node = sum(sum_at_nodes(relu(self.tell(x)) * a[..., None], e.T, len(count)) for x, a, e in parts)
        node = node / (count + 0.1)[..., None]
        graph = node.mean(0, keepdim=True).expand_as(node)
        node = self.node(torch.cat([node, graph], -1)) + at_nodes
        return in_parts(lambda x, e: self._answer(x, node, e.T), h, edges.T)

    def _answer(self, h, node, edges):
        new = self.own(h) + node.index_select(0, edges[0]) + node.index_select(0, edges[1])
        return h + self.out(relu(new))


# --- features -------------------------------------------------------------------------------------------------------


def check_moments(S):
    """S (..., m, m) as a floating tensor, or ValueError."""
    S = torch.as_tensor(S)
    if S.ndim < 2 or S.shape[-1] != S.shape[-2] or S.shape[-1] < 3:
        raise ValueError(f"moments has shape {tuple(S.shape)}: (..., n_nodes, n_nodes) with at least 3 nodes is needed")
    if not torch.isfinite(S).all():
        raise ValueError("moments contains NaN or infinite values: remove or impute them first")
    return S


@torch.no_grad()
def fill_missing_direction(S, n_signals):
    """S (..., m, m) with a large variance along v where S v = 0 for one v that involves all nodes, N (...) > m.

    So it is if every row has the sum 0, as after a common reference or of signals L^(+1/2) z: each column follows from
    all others, and the inverse, infinite, says nothing else. The paper's law has v, constant, as its largest variance.
    """
    values, V = torch.linalg.eigh(S)
    least, largest = values[..., 0], values[..., -1]
    v = V[..., 0]
    none = (least < MISSING * largest) & (values[..., 1] >= MISSING * largest)
    spread = v.abs().amin(-1) > 0.01 * v.abs().amax(-1)
    size = torch.where(none & spread & (n_signals > S.shape[-1]), FILLED * largest, 0)
    return S + size[..., None, None] * v[..., :, None] * v[..., None, :]


@torch.no_grad()
def describe(S, n_signals, kinds):
    """Features and weights of pairs and nodes: S (B, m, m) -> (B, N_PAIR_ROWS, E) and (B, N_NODE_ROWS, m).

    The rows of a pair: its features; then the most likely weights of its two atoms, what they see, how much the pair
    stands out of the noise, and the samples behind it. The rows of a node: its features, of which the last is what the
    ground leaves of its leverage; then the most likely ground, its variance, and the unit of both.
    """
    B, m, _ = S.shape
    unit = S.diagonal(dim1=-2, dim2=-1).mean(-1)  # of S inside; weights are counted in its inverse
    S = S / unit[:, None, None]
    n = torch.as_tensor(n_signals, dtype=S.dtype, device=S.device)
    per_entry = n.ndim == 3
    n_pair = to_vector(n) if per_entry else n.reshape(-1, 1).expand(B, m * (m - 1) // 2)
    n_node = n.diagonal(dim1=-2, dim2=-1) if per_entry else n.reshape(-1, 1).expand(B, m)
    n_all = n_pair.mean(-1)
    signed, loops, constant = kinds.masks(S[..., 0])
    y = Atoms.of(S)
    white = white_signal(y, n_all) + 1e-10
    S = S + torch.diag_embed(white[:, None].expand(B, m))
    y = Atoms.of(S)
    w, r = approximate_mle(S, kinds, N_UPDATES)
    K = torch.linalg.inv(S)
    edges = all_pairs(m, S.device)
    i, j = edges
    k = K.diagonal(dim1=-2, dim2=-1)
    partial = -to_vector(K) / (k[:, i] * k[:, j]).sqrt()
    return features(y, w, r, k, partial, n_pair, n_node, (signed, loops, constant), unit, edges)


@torch.no_grad()
def describe_list(y, n_signals, kinds, edges, n_nodes, *, seed=0, progress=False):
    """The same for a list of pairs: y (E,), (E,) or None, (m,) -> (1, N_PAIR_ROWS, E) and (1, N_NODE_ROWS, m).

    There is no inverse of S; the most likely K stands in for it.
    """
    n = torch.as_tensor(n_signals, dtype=torch.float64)
    if n.ndim or not (0 < n < torch.inf):
        raise ValueError(f"n_signals={n_signals}: a finite number above 0 is needed")
    ground = torch.as_tensor(y.ground).double()
    difference = torch.as_tensor(y.difference).double()
    both = 2 * degrees_adjoint(ground, edges)
    total = (both - difference).clamp_min(0) if y.sum is None else torch.as_tensor(y.sum).double()
    unit = ground.mean()
    y = ListAtoms(difference / unit, total / unit, ground / unit)
    white = white_signal(y, n, edges) + 1e-10
    y = ListAtoms(y.difference + 2 * white, y.sum + 2 * white, y.ground + white)
    seen = ListAtoms(y.difference, y.sum if kinds.signed else None, y.ground if kinds.self_loops else None)
    w, r = likely_atoms(seen, edges, n_nodes, seed=seed, progress=progress)
    k = degrees(w.difference + w.sum, edges, n_nodes) + w.ground
    i, j = edges
    partial = (w.difference - w.sum) / (k[i] * k[j]).sqrt()
    y, w, r = (Atoms(*(x[None] for x in atoms)) for atoms in (y, w, r))
    masks = kinds.masks(y.ground)
    numbers = n.expand(1, edges.shape[1]), n.expand(1, n_nodes)
    return features(y, w, r, k[None], partial[None], *numbers, masks, unit[None], edges)


def features(y, w, r, k, partial, n_pair, n_node, masks, unit, edges):
    """The rows of `describe` from what atoms see, their weights and resistances, each Atoms.

    k (B, m), partial (B, E) : of the inverse of S, its diagonal and the partial correlations
    n_pair (B, E), n_node (B, m) : numbers of signals; masks : of `Kinds`; unit (B,)
    """
    signed, loops, constant = masks
    B, m = k.shape
    n_possible = 1 + 2 * partial.shape[1] / m  # m on all pairs

    # how sure the data are of each weight: over its standard error as an entry of an inverse covariance
    diagonal = degrees(w.difference + w.sum, edges, m) + w.ground
    i, j = edges
    g = (diagonal[:, i] * diagonal[:, j]).sqrt()
    v = w.difference - w.sum
    root = n_pair.sqrt()
    z = root * v / (g.square() + v.square()).sqrt()
    correlation = (y.sum - y.difference) / 4 / (y.ground[:, i] * y.ground[:, j]).sqrt()
    s = z.square() / (z.square() + 9)
    larger = torch.maximum(w.difference, w.sum)
    typical = ((s * (larger + 1e-9).log()).sum(-1) / s.sum(-1).clamp_min(1e-9))[:, None]

    def logarithm(x):
        return (x.clamp_min(1e-12).log()).clamp(-12, 12) / 3

    def atom(w, y, r, on):
        leverage = (w * r).clamp_max(1.5) * on
        slack = (1 - r / y).clamp(-3, 1) * on
        return [
            (logarithm(w) - typical / 3).clamp(-4, 4) * on, (logarithm(w / g)).clamp_min(-4) * on,
            (logarithm(y) + typical / 3).clamp(-4, 4) * on, leverage, slack,
            (root * leverage / 2).asinh(), (root * slack / 2).asinh(),
        ]  # fmt: skip

    one = torch.ones_like(z)
    columns = [
        *atom(w.difference, y.difference, r.difference, one), *atom(w.sum, y.sum, r.sum, signed * one),
        z.asinh(), (root * partial).asinh(), partial, (root * correlation).asinh(), correlation,
        n_pair.log() / 6, one * math.log(n_possible) / 4, (n_pair / n_possible).log() / 4, signed * one, loops * one,
    ]  # fmt: skip
    scale = torch.exp(typical)
    given = [w.difference, w.sum, y.difference, y.sum, s, n_pair]
    pairs = torch.stack([*columns, *given], 1)

    ground = w.ground * y.ground
    count = degrees(s, edges, m)
    of_node = [
        (diagonal / scale).log().clamp(-9, 9) / 3, w.ground / diagonal, (w.ground * r.ground).clamp_max(1.5),
        ((n_node / 2).sqrt() * (1 - r.ground / y.ground).clamp(-3, 1)).asinh() * loops,
        (y.ground * k).log().clamp(0, 12) / 3, (y.ground * diagonal).log().clamp(-3, 12) / 3, (count + 0.1).log() / 2,
        1 - constant / m - ground, w.ground, y.ground, unit[:, None].expand(B, m),
    ]  # fmt: skip
    return pairs, torch.stack(of_node, 1)
