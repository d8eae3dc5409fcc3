"""The methods of the paper's tables on one footing: each is a callable from Observations to graphs w (n, E)."""

from dataclasses import replace
from functools import cache, partial

import torch

from ..beyond.transfer import smaller_steps, unroll
from ..graphs import count_nodes
from ..likelihood import laplacian_mle
from ..solvers import admm, exact, grid_search, inverse_covariance, pds
from .runs import RUNS, load_or_train, sample

N_TEST = 64
N_TUNE = 64  # training graphs that the grid search of PDS and ADMM sees
N_ITERATIONS = 1000  # of PDS and ADMM: nodes of ER without edges keep the gap large long after the weights settle
NEGLIGIBLE = 1e-6  # of the largest weight: what is smaller is zero at the optimum, and still falling


# --- data ----------------------------------------------------------------------------------------------------------


def test_set(family, n=N_TEST, **changes):
    """Observations of n graphs and the graphs w (n, E): the protocol's test set; `changes` alter the protocol."""
    return sample(_protocol(family, changes), "test", n)


@cache
def tune(family, n=N_TUNE, **changes):
    """The (alpha, beta) of least GMSE on n training graphs of the protocol, altered by `changes`."""
    observations, w = sample(_protocol(family, changes), "train", n)
    grid = grid_search(observations, w.double())
    return grid.alpha, grid.beta


def _protocol(family, changes):
    return replace(RUNS[f"l2g-{family.lower()}"], **changes)


# --- methods -------------------------------------------------------------------------------------------------------


def paper_solvers(family):
    """PDS and ADMM, tuned on training graphs as the text says and at alpha = beta = 1, the paper's BA value."""
    alpha, beta = tune(family)
    return {
        "ADMM": settle(admm, alpha, beta),
        "ADMM (alpha=beta=1)": settle(admm, 1.0, 1.0),
        "PDS": settle(pds, alpha, beta),
        "PDS (alpha=beta=1)": settle(pds, 1.0, 1.0),
    }


def settle(solver, alpha, beta):
    """PDS or ADMM after 1,000 iterations, without the weights that are on their way to zero."""

    def method(observations):
        w = solver(observations, alpha, beta, n_iter=N_ITERATIONS, tol=0)
        return torch.where(w > NEGLIGIBLE * w.amax(-1, keepdim=True), w, 0)

    return method


def networks(family):
    """The unrolled networks, from checkpoints."""
    name = family.lower()
    return _predictors(
        {
            "Recurrent Unrolling": f"recurrent-{name}",
            "Unrolling": f"unrolling-{name}",
            "Unrolling (lr 1e-4)": f"unrolling-{name}-lr1e-4",
            "L2G": f"l2g-{name}",
        }
    )


def paper_rivals(family):
    """GLAD and Deep-graph, each as the paper's number came about and soundly.

    Deep-graph returns probabilities. Taken as weights they are far too large; `rescale` gives them a mean degree of 1.
    """
    name = family.lower()
    methods = _predictors(
        {
            "GLAD (newton_schulz)": f"glad-{name}-newton_schulz",
            "GLAD (stable)": f"glad-{name}",
            "Deep-graph": "deepgraph-original-m20",
        }
    )
    fair = load_or_train(f"deepgraph-{name}-fair").predict
    return methods | {
        "Deep-graph (rescaled)": lambda observations: rescale(methods["Deep-graph"](observations)),
        "Deep-graph (fair)": lambda observations: rescale(fair(observations)),
    }


def binary(family):
    """The methods of the appendix table on binary graphs. Deep-graph learned edges: its networks serve as they are."""
    name = family.lower()
    methods = _predictors(
        {
            "Deep-graph": "deepgraph-original-m20",
            "Deep-graph (fair)": f"deepgraph-{name}-fair",
            "L2G": f"l2g-{name}-binary",
        }
    )
    return methods | references()


def references():
    """What needs no training and no tuning."""
    return {"Inverse covariance": inverse_covariance, "Laplacian maximum likelihood": laplacian_mle}


def at_signals(n_signals, family="BA"):
    """The methods of notebook 10 for data of `n_signals` signals.

    PDS (its exact optimum) is tuned and the networks are trained on such data or, in brackets, on 3,000 signals;
    EquivariantL2G is the one mixed model, which is told N.
    """
    alpha, beta = tune(family, n_signals=n_signals)
    usual = {"Unrolling": f"unrolling-{family.lower()}", "L2G": f"l2g-{family.lower()}"}
    suffix = "" if n_signals == 3000 else f"-signals{n_signals}"
    names = {f"{method} (trained at 3,000)": name for method, name in usual.items()}
    names |= {method: name + suffix for method, name in usual.items()}
    return {
        "PDS": partial(exact, alpha=alpha, beta=beta),
        "Laplacian maximum likelihood": laplacian_mle,
        **_predictors(names),
        "EquivariantL2G": equivariant_l2g("mixed"),
    }


def at_nodes(n_nodes, family="BA"):
    """Unrolling trained on 20 nodes, for graphs of `n_nodes` nodes: as it is, and by the rules of `beyond.transfer`."""
    model = load_or_train(f"unrolling-{family.lower()}").double()
    return {
        "Unrolling (m=20)": model.predict,
        "Unrolling (m=20, smaller steps)": smaller_steps(model, n_nodes).predict,
        "Unrolling (m=20, scaled degrees)": partial(unroll, model),
    }


def equivariant_l2g(family):
    """EquivariantL2G trained on one family, or on all: "mixed"."""
    return load_or_train(f"equivariant-{family.lower()}").predict


def rescale(w):
    """Weights (..., E) with a mean degree of 1."""
    return w * count_nodes(w.shape[-1]) / (2 * w.sum(-1, keepdim=True))


def _predictors(names):
    """{method: run name} -> {method: callable}."""
    return {method: load_or_train(name).predict for method, name in names.items()}
