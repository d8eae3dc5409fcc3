"""`GraphLearner` and what people would use instead, on data that others made, and on data of a broader law.

A `Case` holds data sets of one kind, reduced to what the methods need; `answers` has every method's answer to it, and
`rows` what is measured of them. `GraphLearner` is here by its network: the class adds units and names to it, nothing
else (a test compares the two).
"""

import time
import warnings
from functools import cache, partial
from typing import NamedTuple

import networkx as nx
import numpy as np
import torch
from safetensors.torch import save as tensors_to_bytes
from sklearn.covariance import ledoit_wolf_shrinkage

from .. import metrics, paths, solvers
from ..beyond.equivariant import EquivariantL2G
from ..beyond.likelihood import laplacian_mle
from ..graphs import all_pairs, degrees, differences, laplacian, sample_graphs, spawn, to_matrix, to_vector
from ..real import datasets, networks
from ..rivals import graphical_lasso
from ..rivals.partial_correlations import correlation_graph, correlations, partial_graph, shrink
from ..signals import Observations, bartlett
from . import methods, tables
from .runs import load_or_train

NETWORKS = {"GraphLearner": "equivariant-mixed", 'GraphLearner (prior="mixed")': "equivariant-mixed"}
LEARNER, MIXED = NETWORKS
LASSO = "Graphical lasso (cross-validation)"
LEDOIT_WOLF = "Partial correlations (Ledoit-Wolf)"
MLE = "Laplacian maximum likelihood"
LIKELY = 0.5  # a pair as probable as this is an edge of the graph that is returned
SURE = 0.9  # and one that is more probable than this should be an edge nine times out of ten
PENALTIES = np.geomspace(0.01, 0.6, 10)  # of the graphical lasso on correlations, for the extended BIC
LASSO_SCORES = "networks_lasso.safetensors"
LASSO_TOLERANCE = 1e-3  # of these scores: coordinate descent stops at 1e-4


# --- data ----------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """n data sets of one kind."""

    moments: torch.Tensor  # S (n, m, m) float64
    n_signals: torch.Tensor  # (n,) independent samples behind them
    shrinkage: torch.Tensor  # (n,) of Ledoit and Wolf's estimate
    edges: torch.Tensor  # (n, E) bool, the truth
    lasso: torch.Tensor | None = None  # (n, E) scores of GraphicalLassoCV, which needs rows and minutes


def real_cases():
    """{name: Case} of NetSim and Sachs; time series count as many samples as they are worth."""
    scores = lasso_scores()
    return {
        name: Case(r.moments, r.n_effective, r.shrinkage, r.edges.expand_as(r.correlations), scores[name])
        for name, r in (networks.netsim() | networks.sachs()).items()
    }


def lasso_scores():
    """{name: (n, E)}: |partial correlations| of scikit-learn's GraphicalLassoCV on the rows of real data, as shipped."""
    stored = datasets.read_tensors(paths.REAL / LASSO_SCORES)
    return {name: stored[file] for name, file in networks.FILES.items()}


def compare_lasso(*, write=False):
    """Whether the shipped scores are those of the raw files; None without these. `write` replaces them. Minutes."""
    found = {}
    for name, file in networks.FILES.items():
        folder, _ = datasets.find(networks.raw_file(name), None)
        if folder is None:
            return None
        X, _ = networks.rows(name, folder)
        found[file] = torch.stack([graphical_lasso.graphical_lasso(x, assume_centered=True) for x in X]).float()
    content = tensors_to_bytes(found)
    same = datasets.agrees(paths.REAL / LASSO_SCORES, content, atol=LASSO_TOLERANCE)
    if write and not same:
        paths.write_atomically(paths.REAL / LASSO_SCORES, content)
    return same


def case_of_signals(draw_rows, edges, *, seed):
    """Case of graphs `edges` (n, E) bool; draw_rows(k, rng) are the signals X (n_signals, m) on graph k."""
    found = []
    for k, child in enumerate(spawn(seed, len(edges))):
        X = draw_rows(k, np.random.default_rng(child))
        found.append((torch.from_numpy(X.T @ X / len(X)), len(X), ledoit_wolf_shrinkage(X, assume_centered=True)))
    S, n, shrinkage = zip(*found)
    return Case(torch.stack(S), torch.tensor(n, dtype=torch.float64), torch.tensor(shrinkage), edges)


# --- synthetic data of others ---------------------------------------------------------------------------------------

# Graphs on 20 nodes of M. Wasserman and G. Mateos, Graph structure learning with interpretable Bayesian neural
# networks, TMLR 2024: connected and unweighted. They report these shares of wrong pairs with infinitely many signals.
LAWS = {
    "geometric, radius 0.32": partial(nx.random_geometric_graph, 20, 0.32),
    "geometric, radius 0.5": partial(nx.random_geometric_graph, 20, 0.5),
    "ER, p = 0.5": partial(nx.gnp_random_graph, 20, 0.5),
    "BA trees": partial(nx.barabasi_albert_graph, 20, 1),
}
PUBLISHED = dict(zip(LAWS, (0.0157, 0.0190, 0.0051, 0.0222), strict=True))
SHAPES = {
    "geometric": partial(nx.random_geometric_graph, 20, 0.4),
    "grid": lambda seed: nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 5)),
    "communities": partial(nx.planted_partition_graph, 2, 10, 0.6, 0.05),
}
RESPONSES = {  # signals are white noise times a function of the Laplacian, its eigenvalues x relative to the largest
    "generative": lambda x: torch.where(x > 1e-9, x.clamp_min(1e-9).rsqrt(), 0),
    "Tikhonov": lambda x: 1 / (1 + 10 * x),
    "heat": lambda x: (-5 * x).exp(),
}


def connected_graphs(draw, n, *, seed):
    """n connected graphs (n, E) bool of a networkx generator draw(seed=)."""
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < n:
        graph = draw(seed=rng)
        if nx.is_connected(graph):
            found.append(torch.from_numpy(nx.to_numpy_array(graph) > 0))
    return to_vector(torch.stack(found))


def filtered_case(edges, response, n_signals, *, seed):
    """Case of signals X = Z h(L), Z white noise, on unweighted graphs (n, E): h is one of RESPONSES."""
    values, V = torch.linalg.eigh(laplacian(edges.double()))
    gain = response((values / values[:, -1:]).clamp_min(0))
    H = (V * gain[:, None] @ V.mT).numpy()
    m = H.shape[-1]
    return case_of_signals(lambda k, rng: rng.standard_normal((n_signals, m)) @ H[k], edges, seed=seed)


# --- methods --------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a method says of n data sets, each (n, E)."""

    score: torch.Tensor  # the higher, the more probably an edge
    graph: torch.Tensor  # bool, the graph that it returns
    probability: torch.Tensor | None = None


@cache
def network(model):
    """The trained network behind one of NETWORKS."""
    return load_or_train(NETWORKS[model])


@torch.no_grad()
def estimate(model, moments, n_signals, **kinds):
    """Probability of an edge, and expected signed weight, each (n, E); `kinds` go to a network that knows them."""
    if isinstance(network(model), EquivariantL2G):
        probability, weight = network(model)(differences(moments).clamp_min(0), n_signals)
        return probability, probability * weight
    found = network(model)(moments, n_signals, **kinds)
    return found.positive + found.negative, found.expected


def learner(model, case):
    probability, _ = estimate(model, case.moments, case.n_signals)
    return Answer(probability, probability >= LIKELY, probability)


def extended_bic(case):
    """The graphical lasso on correlations, its penalty by the extended Bayesian information criterion."""
    score = graphical_lasso.by_extended_bic(Observations(correlations(case.moments), case.n_signals), PENALTIES)
    return Answer(score, score > 0)


def smooth(case):
    """Eq. (4) of the paper, told how many edges per node the true graphs have on average."""
    degree = degrees(case.edges.double()).mean().item()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not every degree can be reached: the nearest one will do
        w = solvers.learn(differences(case.moments), max(degree, 1.0)).w
    w = torch.where(w > methods.NEGLIGIBLE * w.amax(-1, keepdim=True), w, 0)
    return Answer(w, w > 0)


def answers(case):
    """{method: Answer}, GraphLearner first."""
    S, n = case.moments, case.n_signals
    found = {model: learner(model, case) for model in NETWORKS}
    if case.lasso is not None:
        found[LASSO] = Answer(case.lasso, case.lasso > 0)
    found["Graphical lasso (extended BIC)"] = extended_bic(case)
    found[LEDOIT_WOLF] = Answer(*partial_graph(shrink(S, case.shrinkage), n))
    found["Partial correlations"] = Answer(*partial_graph(S, n))
    found["Correlations"] = Answer(*correlation_graph(S, n))
    found["Eq. (4)"] = smooth(case)
    return found


# --- measures -------------------------------------------------------------------------------------------------------


def rows(table, family, case, **more):
    """Tidy rows of every method: AUPRC, AUROC, F1 and share of wrong pairs of the returned graph; calibration."""
    w = case.edges.double()
    found = []
    for model, answer in answers(case).items():
        values = {
            "AUPRC": metrics.average_precision(answer.score, w),
            "AUROC": metrics.auc(answer.score, w),
            "F1": metrics.f1(answer.graph.double(), w, LIKELY),
            "wrong pairs": (answer.graph != case.edges).double().mean(-1),
        }
        row = tables.mean_row if len(w) > 1 else tables.single_row
        found += [row(table, family, metric, model, value, **more) for metric, value in values.items()]
        if answer.probability is not None:
            numbers = calibration_numbers(answer.probability, case.edges)
            found += [tables.single_row(table, family, metric, model, v, **more) for metric, v in numbers.items()]
    return found


def calibration_numbers(probability, edges):
    """Of all pairs together: the share of the sure ones that are edges, how many are sure, calibration error."""
    sure = probability > SURE
    true = edges[sure].double().mean() if sure.any() else torch.nan
    error = metrics.calibration_error(probability, edges.double())
    return {"true of the sure": true, "sure pairs": sure.sum(), "ece": error}


def reliability(cases):
    """{model: {case: curve}} for `charts.reliability`."""
    return {
        model: {
            name: metrics.calibration(learner(model, case).probability, case.edges.double())
            for name, case in cases.items()
        }
        for model in NETWORKS
    }


def seconds(calls, n_calls=3):
    """{name: least CPU seconds} of functions without arguments."""
    found = {}
    for name, call in calls.items():
        taken = []
        for _ in range(n_calls):
            start = time.process_time()
            call()
            taken.append(time.process_time() - start)
        found[name] = min(taken)
    return found
