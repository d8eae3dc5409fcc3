"""The methods of the paper's tables as callables on one footing: second moments S (n, m, m) in, graphs (n, E) out."""

import copy
from dataclasses import replace
from functools import partial

import torch

from .graphs import edges, n_nodes
from .large import unroll
from .runs import RUNS, Run, deepgraph, equivariant, glad, unrolling_slow
from .signals import covariance_distances, sample_split
from .solvers import admm, exact, grid_search, inverse_covariance, laplacian_mle, pds, safe_step
from .training import load_or_train

N_TEST = 64
N_TUNE = 64  # training graphs that the grid search of PDS and ADMM sees


def test_set(family, n=N_TEST, **changes):
    """Second moments (n, m, m) float64 and graphs (n, E) of the protocol's test set; `changes` alter the protocol."""
    return sample_split(replace(Run("l2g", family), **changes), "test", n)


def from_distances(estimate):
    """A callable on S out of one on y; y in single precision, as the networks were trained."""
    return lambda S: estimate(covariance_distances(S).float())


def tuned(family, n=N_TUNE, **changes):
    """(alpha, beta) of least GMSE on n training graphs."""
    S, w = sample_split(replace(Run("l2g", family), **changes), "train", n)
    grid = grid_search(covariance_distances(S), w.double())
    return grid.alpha, grid.beta


def solvers(family):
    """PDS and ADMM, tuned on training graphs as the text says and at alpha = beta = 1, the paper's BA value."""
    alpha, beta = tuned(family)
    return {
        "ADMM": from_distances(partial(admm, alpha=alpha, beta=beta)),
        "ADMM (alpha=beta=1)": from_distances(admm),
        "PDS": from_distances(partial(pds, alpha=alpha, beta=beta)),
        "PDS (alpha=beta=1)": from_distances(pds),
    }


def networks(family):
    """The unrolled networks, from checkpoints."""
    runs = {
        "Recurrent Unrolling": Run("recurrent", family, epochs=20),
        "Unrolling": Run("unrolling", family),
        "Unrolling (lr 1e-4)": unrolling_slow(family),
        "L2G": Run("l2g", family),
    }
    return {name: from_distances(load_or_train(RUNS[run.name]).predict) for name, run in runs.items()}


def rivals(family):
    """GLAD and Deep-graph, each as the paper's number came about and soundly.

    Deep-graph returns probabilities. Taken as weights they are far too large; `rescaled` gives them a mean degree of 1.
    """
    runs = {
        "GLAD (newton_schulz)": glad(family, numerics="newton_schulz"),
        "GLAD (stable)": glad(family),
        "Deep-graph": deepgraph("sparse", "original", 13, 0.85, n_signals=35),
        "Deep-graph (fair)": deepgraph(family, "fair", 8),
    }
    models = {name: load_or_train(RUNS[run.name]).predict for name, run in runs.items()}
    fair = models.pop("Deep-graph (fair)")
    return models | {
        "Deep-graph (rescaled)": lambda S: rescaled(models["Deep-graph"](S)),
        "Deep-graph (fair)": lambda S: rescaled(fair(S)),
    }


def binary(family):
    """The methods of the appendix table on binary graphs. Deep-graph learned edges: its networks serve as they are."""
    models = {
        "Deep-graph": deepgraph("sparse", "original", 13, 0.85, n_signals=35),
        "Deep-graph (fair)": deepgraph(family, "fair", 8),
        "L2G": Run("l2g", family, weighted=False),
    }
    loaded = {name: load_or_train(RUNS[run.name]).predict for name, run in models.items()}
    return loaded | {"L2G": from_distances(loaded["L2G"])} | references()


def rescaled(w):
    """Weights (..., E) with a mean degree of 1."""
    return w * n_nodes(w.shape[-1]) / (2 * w.sum(-1, keepdim=True))


def references():
    """What needs no training and no tuning."""
    return {
        "Inverse covariance": inverse_covariance,
        "Laplacian maximum likelihood": lambda S: laplacian_mle(covariance_distances(S)),
    }


def at_signals(n_signals, family="BA"):
    """The methods of notebook 09 for data of `n_signals` signals.

    PDS (its exact optimum) is tuned and the networks are trained on such data or, in brackets, on 3,000 signals;
    EquivariantL2G is the one mixed model, told N.
    """
    alpha, beta = tuned(family, n_signals=n_signals)
    usual = {"Unrolling": Run("unrolling", family), "L2G": Run("l2g", family)}
    runs = {f"{name} (trained at 3,000)": run for name, run in usual.items()} | usual
    if n_signals != 3000:
        runs |= {name: replace(run, n_signals=n_signals, epochs=30) for name, run in usual.items()}
    networks = {name: from_distances(load_or_train(RUNS[run.name]).predict) for name, run in runs.items()}
    return {
        "PDS": from_distances(partial(exact, alpha=alpha, beta=beta)),
        "Laplacian maximum likelihood": references()["Laplacian maximum likelihood"],
        **networks,
        "EquivariantL2G": refined("mixed", n_signals),
    }


def refined(family, n_signals=3000):
    """EquivariantL2G trained on one family, or on "mixed"."""
    model = load_or_train(RUNS[equivariant(family).name])
    return from_distances(partial(model.predict, n_signals=n_signals))


def smaller_steps(model, n_nodes, trained_nodes=20):
    """A copy of an Unrolling whose steps are shrunk like the largest step that is safe for PDS on `n_nodes` nodes."""
    model = copy.deepcopy(model)
    model.theta.data[:, 2] *= safe_step(n_nodes) / safe_step(trained_nodes)
    return model


def moved(n_nodes, family="BA"):
    """Unrolling trained on 20 nodes as callables on distances of `n_nodes` nodes: as it is, and by two rules.

    The rules are `smaller_steps` and that of `large.unroll`.
    """
    plain, pairs = load_or_train(RUNS[Run("unrolling", family).name]).double(), edges(n_nodes)
    return {
        "Unrolling (m=20)": plain.predict,
        "Unrolling (m=20, smaller steps)": smaller_steps(plain, n_nodes).predict,
        "Unrolling (m=20, scaled degrees)": lambda y: torch.stack([unroll(plain, x, pairs, n_nodes) for x in y]),
    }
