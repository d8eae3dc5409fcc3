"""What several test files share: random distances, a small network with its training, three pairs to look at."""

import json
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import nn

from helpers import training
from helpers.beyond.looks import Known, Look
from helpers.engine.checkpoints import files
from helpers.graphs import to_vector
from helpers.signals import distances, observe
from helpers.training import Schedule

N_EDGES = 10  # of 5 nodes
SCHEDULE = Schedule(
    epochs=4, batch_size=8, lr=0.05, decay=0.5, n_train=20, n_val=6, stream=False, keep_best=False, seed=3
)  # fmt: skip
CONFIGURATION = {"lr": 0.05, "arguments": {"width": [3, 4]}}


class Toy(nn.Module):
    """A linear map of distances, with some noise in its loss; its parameters may be stacked."""

    half_precision = ("map.",)
    stackable = True

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.full((N_EDGES,), 1 / 3))
        self.map = nn.Linear(N_EDGES, N_EDGES)
        with torch.no_grad():
            self.map.weight.copy_(torch.eye(N_EDGES) / 3)
            self.map.bias.zero_()
        self.n_threads = None

    def prepare(self, observations):
        return observations.distances.float()

    def forward(self, y):
        return self.theta.unsqueeze(-2) * (y @ self.map.weight.mT + self.map.bias.unsqueeze(-2))

    def loss(self, prepared, w, generator=None):
        self.n_threads = torch.get_num_threads()
        generators = generator if isinstance(generator, list) else [generator]
        noise = torch.stack([torch.randn(w.shape[-2:], generator=g) for g in generators]).reshape(w.shape)
        return (self(prepared) + 0.1 * noise - w).square().sum(-1).mean(-1)

    def predict(self, observations):
        y = observations if isinstance(observations, torch.Tensor) else self.prepare(observations)
        with torch.no_grad():
            return self(y).clamp_min(0)


def data(split, n, epoch):
    """Observations of random signals; the graphs are some function of them."""
    seed = 1000 * training.SPLITS.index(split) + epoch
    observations = observe(torch.randn(n, 30, 5, generator=torch.Generator().manual_seed(seed)))
    return observations, observations.distances.float().sqrt()


def fit(folder, model=None, *, schedule=SCHEDULE, source=data, configuration=CONFIGURATION, **how):
    model = Toy() if model is None else model
    return training.fit(model, source, schedule, folder / "toy", configuration, progress=False, **how)


def stored(folder):
    weights, sidecar, _ = files(folder / "toy")
    return load_file(weights), json.loads(sidecar.read_text())


def assert_same_weights(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


def random_distances(m, n, seed, lead=()):
    generator = torch.Generator().manual_seed(seed)
    return distances(torch.randn(*lead, n, m, generator=generator, dtype=torch.float64))


def nearest_pairs(Y, k):
    """Each node with its k nearest, symmetrised: edges (2, E) and y (E,)."""
    Y = Y.clone().fill_diagonal_(torch.inf)
    near = Y <= Y.sort(1).values[:, k - 1 : k]
    edges = torch.nonzero(torch.triu(near | near.T)).T.contiguous()
    return edges, Y[edges[0], edges[1]]


# --- a stand-in for the broad network ---------------------------------------------------------------------------------


class Estimate(NamedTuple):
    positive: torch.Tensor
    negative: torch.Tensor
    weight: torch.Tensor


class ShrunkInverse(nn.Module):
    """Edges by the size of partial correlations, of a shrunk inverse covariance, against their standard error."""

    def forward(self, moments, n_signals, *, signed=True, self_loops=True):
        m = moments.shape[-1]
        n = torch.as_tensor(n_signals, dtype=torch.float64)
        n = to_vector(n.expand(m, m))
        d = moments.diagonal().sqrt()
        R = moments / d / d[:, None] + torch.eye(m, dtype=torch.float64) / n.mean()
        K = torch.linalg.inv(R)
        r = to_vector(-K / K.diagonal().sqrt() / K.diagonal().sqrt()[:, None])
        probability = torch.sigmoid(2 * (r.abs() * n.sqrt() - 4))
        positive = torch.where(r > 0, probability, 0)
        negative = torch.where(r < 0, probability, 0) * signed
        return Estimate(positive, negative, to_vector(K / d / d[:, None]).abs())

    def on_list(self, difference, sum, ground, n_signals, edges, n_nodes, *, self_loops=True, progress=False):
        """The same from correlations of the listed pairs; others count as 0."""
        d = ground.sqrt()
        i, j = edges
        r = (d[i] ** 2 + d[j] ** 2 - difference) / (2 * d[i] * d[j])
        probability = torch.sigmoid(2 * (r.abs() * n_signals**0.5 - 4))
        positive = torch.where(r > 0, probability, 0)
        negative = torch.where(r < 0, probability, 0) * (sum is not None)
        return Estimate(positive, negative, (r / d[i] / d[j]).abs())


def known_of(a, b, y_difference, y_sum, left, *, signed=True, loops=True, n_signals=30.0):
    """What is known of 3 pairs of 3 nodes in one graph, each (3, 1)."""
    one = torch.ones_like(a)
    kinds = torch.tensor([signed]), torch.tensor([loops])
    return Known(a, b, y_difference, y_sum, one, n_signals * one, 2 * one, left, *kinds, torch.zeros(1))


def look_of(ground, law=None, rest=None):
    """What the next look, or what settles, goes on from."""
    return Look(None, None, ground, None, law, rest)
