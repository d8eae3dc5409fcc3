"""The methods of the paper's tables on one footing: each is a callable from Observations to graphs w (n, E)."""

from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch

from ..beyond.likelihood import laplacian_mle
from ..beyond.transfer import smaller_steps, unroll
from ..engine.problem import check_distances
from ..metrics import gmse
from ..solvers import admm, exact, inverse_covariance, pds
from . import runs
from .runs import N_TEST, RUNS, load_or_train, rescale, sample

N_TUNE = 64  # training graphs that the grid search of PDS and ADMM sees
ALPHAS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)  # of that search
BETAS = (0.5, 1.0, 1.5, 2.0, 3.0)
SOLUTIONS_AT_ONCE = 10_000  # graphs of 20 nodes, so that the search fits into memory
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


class Grid(NamedTuple):
    """The best pair and the mean GMSE of all, (len(alphas), len(betas))."""

    alpha: float
    beta: float
    gmse: torch.Tensor


@torch.no_grad()
def grid_search(y, w, alphas=ALPHAS, betas=BETAS, solver=exact):
    """The (alpha, beta) of least mean GMSE = ||w_hat - w||^2 / ||w||^2 on training pairs y, w (n, E).

    `solver(y, alpha, beta)` returns w_hat, e.g. `functools.partial(pds, n_iter=500, tol=0)`.
    """
    y = check_distances(y)
    if w.shape != y.shape or not (w.square().sum(-1) > 0).all():
        raise ValueError(f"w has shape {tuple(w.shape)}: non-empty graphs of the shape {tuple(y.shape)} of y")
    alpha = torch.tensor(alphas, dtype=torch.float64)[:, None, None]
    beta = torch.tensor(betas, dtype=torch.float64)[:, None]
    at_once = max(1, SOLUTIONS_AT_ONCE * 190 // (len(alphas) * len(betas) * y.shape[-1]))
    gmse = 0
    for y_part, w_part in zip(y.split(at_once), w.to(y).split(at_once)):
        error = (solver(y_part, alpha, beta) - w_part).square().sum(-1) / w_part.square().sum(-1)
        gmse = gmse + error.double().sum(-1) / len(y)
    i, j = divmod(gmse.argmin().item(), len(betas))
    return Grid(alphas[i], betas[j], gmse)


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


def trainings(family):
    """{row of Table 1: the runs behind it, one per training seed}; a plain name is the model as the text has it."""
    rows = {"Recurrent Unrolling": runs.text("recurrent", family), "Recurrent Unrolling (ours)": runs.recurrent(family)}
    for name, model in (("Unrolling", "unrolling"), ("L2G", "l2g")):
        rows[name] = runs.text(model, family)
        rows[f"{name} (released code)"] = runs.released(model, family)
        rows[f"{name} (ours)"] = runs.network(model, family)
    return {name: runs.repeated(run) for name, run in rows.items()}


def networks(family):
    """The unrolled networks of Table 1, each from its first training."""
    return {name: load_or_train(seeds[0]).predict for name, seeds in trainings(family).items()}


def prepared_for_harder(family):
    """PDS tuned and networks trained on graphs of `runs.HARDER`, to be compared with those of the protocol."""
    alpha, beta = tune(family, params=runs.HARDER[family])
    trained = {
        "Unrolling (ours, on these graphs)": runs.network("unrolling", family),
        "L2G (on these graphs)": runs.text("l2g", family),
        "L2G (ours, on these graphs)": runs.network("l2g", family),
    }
    learned = {name: load_or_train(runs.harder(run)).predict for name, run in trained.items()}
    return {"PDS (on these graphs)": settle(pds, alpha, beta)} | learned


def layer_errors(run):
    """GMSE after each layer of a network on its test graphs, (T, 64); from its sidecar if it left no weights."""
    if not run.keep_weights:
        return np.array(runs.read_record(run)["test"]["gmse_layers"])
    observations, w = sample(run, "test", N_TEST)
    path = load_or_train(run)(observations).detach().clamp_min(0)
    return np.stack([gmse(path[:, t], w) for t in range(run.n_layers)])


def graphs_seen(family):
    """{row of Table 1: number of different graphs it was trained or tuned on}; rows that are left out saw none."""
    seen = {name: runs.graphs_seen(seeds[0]) for name, seeds in trainings(family).items()}
    for name, run in _rivals(family).items():
        seen[name] = runs.graphs_seen(RUNS[run])
    seen["Deep-graph (rescaled)"] = seen["Deep-graph"]
    return seen | {"ADMM": N_TUNE, "PDS": N_TUNE}


def shuffled(name):
    """Name of the row of a method on nodes that are numbered at random."""
    return f"{name[:-1]}, shuffled ids)" if name.endswith(")") else f"{name} (shuffled ids)"


def paper_rivals(family):
    """GLAD and Deep-graph, each as the paper's number came about and soundly.

    Deep-graph returns probabilities. Taken as weights they are far too large; `rescale` gives them a mean degree of 1.
    """
    methods = _predictors(_rivals(family))
    fair = methods["Deep-graph (fair)"]
    return methods | {
        "Deep-graph (rescaled)": lambda observations: rescale(methods["Deep-graph"](observations)),
        "Deep-graph (fair)": lambda observations: rescale(fair(observations)),
    }


def _rivals(family):
    name = family.lower()
    return {
        "GLAD (newton_schulz)": f"glad-{name}-newton_schulz",
        "GLAD (stable)": f"glad-{name}",
        "Deep-graph": "deepgraph-original-m20",
        "Deep-graph (fair)": f"deepgraph-{name}-fair",
    }


def binary(family):
    """The methods of the appendix table on binary graphs. Deep-graph learned edges: its networks serve as they are."""
    name = family.lower()
    methods = _predictors(
        {
            "Deep-graph": "deepgraph-original-m20",
            "Deep-graph (fair)": f"deepgraph-{name}-fair",
            "L2G (ours)": f"l2g-{name}-binary",
        }
    )
    return methods | references()


def references():
    """What needs no training and no tuning."""
    return {"Inverse covariance": inverse_covariance, "Laplacian maximum likelihood": laplacian_mle}


def at_signals(n_signals, family="BA"):
    """The methods of notebook 10 for data of `n_signals` signals.

    PDS (its exact optimum) is tuned and our networks are trained on such data or, if their name says so, on 3,000
    signals; EquivariantL2G is the one mixed model, which is told N.
    """
    alpha, beta = tune(family, n_signals=n_signals)
    usual = {"Unrolling": f"unrolling-{family.lower()}", "L2G": f"l2g-{family.lower()}"}
    suffix = "" if n_signals == 3000 else f"-signals{n_signals}"
    names = {f"{method} (ours, trained at 3,000)": name for method, name in usual.items()}
    names |= {f"{method} (ours)": name + suffix for method, name in usual.items()}
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
        "Unrolling (ours, m=20)": model.predict,
        "Unrolling (ours, m=20, smaller steps)": smaller_steps(model, n_nodes).predict,
        "Unrolling (ours, m=20, scaled degrees)": partial(unroll, model),
    }


def equivariant_l2g(family):
    """EquivariantL2G trained on one family, or on all: "mixed"."""
    return load_or_train(f"equivariant-{family.lower()}").predict


def _predictors(names):
    """{method: run name} -> {method: callable}."""
    return {method: load_or_train(name).predict for method, name in names.items()}
