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
import pandas as pd
import torch
from safetensors.torch import save as tensors_to_bytes
from scipy.sparse.csgraph import shortest_path
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from tqdm.auto import tqdm

from .. import metrics, paths, solvers
from ..beyond.equivariant import EquivariantL2G
from ..beyond.moments import effective_share, find_memory, forget
from ..graphs import degrees, differences, laplacian, spawn, to_matrix, to_vector
from ..real import datasets, networks
from ..rivals import graphical_lasso
from ..rivals.partial_correlations import correlation_graph, correlations, partial_graph, shrink
from ..rivals.partial_correlations import partial as sample_partial
from ..signals import Observations
from . import methods, tables
from .runs import load_or_train

# The run behind each learner: its default, and the network of the paper's law
NETWORKS = {"GraphLearner": "broad", 'GraphLearner (prior="mixed")': "equivariant-mixed"}
LEARNER, MIXED = NETWORKS
LASSO = "Graphical lasso (cross-validation)"
LEDOIT_WOLF = "Partial correlations (Ledoit-Wolf)"
LIKELY = 0.5  # a pair as probable as this is an edge of the graph that is returned
SURE = 0.9  # and one that is more probable than this should be an edge nine times out of ten
PENALTIES = np.geomspace(0.02, 0.6, 8)  # of the graphical lasso on correlations, for the extended BIC
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


def real_cases(*, filtered=False):
    """{name: Case} of NetSim and Sachs, or of filtered NetSim; series count as many samples as they are worth."""
    scores = lasso_scores()
    return {
        name: Case(r.moments, r.n_effective, r.shrinkage, r.edges.expand_as(r.correlations), scores.get(name))
        for name, r in (networks.netsim(effective_share, whiten) | networks.sachs()).items()
        if name.endswith("filtered") == filtered
    }


def whiten(X):
    """Rows of a series X (n_rows, m) as `GraphLearner(time_series=True)` filters them."""
    return forget(X, find_memory(X))


def compare_networks(*, write=False):
    """Whether the shipped statistics of NetSim and Sachs are those of the raw files; None without these."""
    return networks.compare(effective_share, whiten, write=write)


def lasso_scores():
    """{name: (n, E)}: |partial correlations| of scikit-learn's GraphicalLassoCV on the rows behind real data.

    Not of filtered ones.
    """
    stored = datasets.read_tensors(paths.REAL / LASSO_SCORES)
    return {name: stored[file] for name, file in networks.FILES.items() if file in stored}


def compare_lasso(*, write=False):
    """Whether the shipped scores are those of the raw files; None without these. `write` replaces them. Minutes."""
    found = {}
    for name, file in networks.FILES.items():
        if name.endswith("filtered"):
            continue
        folder, _ = datasets.find(networks.raw_file(name), None)
        if folder is None:
            return None
        found[file] = cross_validate(networks.rows(name, folder)[0], name)
    content = tensors_to_bytes(found)
    same = datasets.agrees(paths.REAL / LASSO_SCORES, content, atol=LASSO_TOLERANCE)
    if write and not same:
        paths.write_atomically(paths.REAL / LASSO_SCORES, content)
    return same


def cross_validate(X, name=""):
    """Scores (n, E) float32 of the graphical lasso, cross-validated on the rows of each X (n, n_samples, m)."""
    with warnings.catch_warnings():
        for kind in (ConvergenceWarning, RuntimeWarning):  # of penalties that are then not chosen
            warnings.simplefilter("ignore", kind)
        fits = [graphical_lasso.graphical_lasso(x, assume_centered=True) for x in tqdm(X, name, leave=False)]
    return torch.stack(fits).float()


def case_of_signals(draw_rows, edges, *, seed):
    """Case of graphs `edges` (n, E) bool; draw_rows(k, rng) are the signals X (n_signals, m) on graph k."""
    found = []
    for k, child in enumerate(spawn(seed, len(edges))):
        X = draw_rows(k, np.random.default_rng(child))
        found.append((torch.from_numpy(X.T @ X / len(X)), len(X), ledoit_wolf_shrinkage(X, assume_centered=True)))
    S, n, shrinkage = zip(*found)
    return Case(torch.stack(S), torch.tensor(n, dtype=torch.float64), torch.tensor(shrinkage), edges)


def rows_like(case, n_samples, *, seed):
    """Gaussian samples X (n_samples, m) with the covariance of the first data set of a case."""
    C = torch.linalg.cholesky(case.moments[0]).numpy()
    return np.random.default_rng(seed).standard_normal((n_samples, len(C))) @ C.T


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


def filters(edges, response):
    """h(L) (n, m, m) for unweighted graphs (n, E) bool: h is one of RESPONSES."""
    values, V = torch.linalg.eigh(laplacian(edges.double()))
    gain = response((values / values[:, -1:]).clamp_min(0))
    return V * gain[:, None] @ V.mT


def filtered_case(edges, response, n_signals, *, seed):
    """Case of signals X = Z h(L), Z white noise, on unweighted graphs (n, E): h is one of RESPONSES."""
    H = filters(edges, response).numpy()
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
def estimate(model, moments, n_signals, *, positive=False, **kinds):
    """Probability of an edge, or of a positive one, and expected signed weight, each (n, E).

    `kinds` go to a network that knows them.
    """
    if isinstance(network(model), EquivariantL2G):
        probability, weight = network(model)(differences(moments).clamp_min(0), n_signals)
        return probability, probability * weight
    found = network(model)(moments, n_signals, **kinds)
    probability = found.positive if positive else (found.positive + found.negative).clamp_max(1)  # rounding
    return probability, found.expected


def learner(model, case, *, positive=False):
    probability, _ = estimate(model, case.moments, case.n_signals, positive=positive)
    return Answer(probability, probability >= LIKELY, probability)


def extended_bic(case):
    """The graphical lasso on correlations, its penalty by the extended criterion: partial correlations and graph."""
    r = graphical_lasso.by_extended_bic(Observations(correlations(case.moments), case.n_signals), PENALTIES)
    return r, r != 0


def smooth(case):
    """Eq. (4) of the paper, told how many edges per node the true graphs have on average."""
    degree = degrees(case.edges.double()).mean().item()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not every degree can be reached: the nearest one will do
        w = solvers.learn(differences(case.moments), max(degree, 1.0)).w
    w = torch.where(w > methods.NEGLIGIBLE * w.amax(-1, keepdim=True), w, 0)
    return Answer(w, w > 0)


def answers(case, *, positive=False):
    """{method: Answer}, GraphLearner first; with `positive` every method is asked for positive edges only."""
    S, n = case.moments, case.n_signals
    found = {model: learner(model, case, positive=positive) for model in NETWORKS}
    if case.lasso is not None and not positive:  # its scores have no sign
        found[LASSO] = Answer(case.lasso, case.lasso > 0)
    signed = {
        "Graphical lasso (extended BIC)": extended_bic(case),
        LEDOIT_WOLF: partial_graph(shrink(S, case.shrinkage), n),
        "Partial correlations": partial_graph(S, n),
        "Correlations": correlation_graph(S, n),
    }
    for model, (r, graph) in signed.items():
        found[model] = Answer(r.clamp_min(0), graph & (r > 0)) if positive else Answer(r.abs(), graph)
    found["Eq. (4)"] = smooth(case)
    return found


def signs_by_steps(name, edges, response, n_signals, *, seed):
    """Tidy rows: partial correlations of filtered signals and what GraphLearner finds, by the steps between two nodes.

    The partial correlations are the true ones, of the precision matrix h(L)^-2, which must exist. A pair is found to be
    positive or negative if the probability of that is above 0.9; the sign is right if the true one is the same.
    """
    case = filtered_case(edges, response, n_signals, seed=seed)
    H = filters(edges, response)
    r = sample_partial(H @ H)
    with torch.no_grad():
        found = network(LEARNER)(case.moments, case.n_signals)
    signs = {"positive": found.positive > SURE, "negative": found.negative > SURE}
    values = {"partial correlation": r, "positive": r > 0} | {f"found {sign}": sure for sign, sure in signs.items()}
    lengths = [torch.from_numpy(shortest_path(A.numpy(), unweighted=True)) for A in to_matrix(edges.double())]
    steps = to_vector(torch.stack(lengths))
    found = [
        tables.single_row("steps", name, metric, LEARNER, value[steps == n].double().mean(), x=n)
        for n in range(1, int(steps.max()) + 1)
        for metric, value in values.items()
    ]
    right = (r > 0)[signs["positive"]].sum() + (r < 0)[signs["negative"]].sum()
    n_found = sum(sure.sum() for sure in signs.values())
    return [*found, tables.single_row("steps", name, "right sign of the sure", LEARNER, right / n_found)]


# --- measures -------------------------------------------------------------------------------------------------------


def rows(table, family, case, *, hindsight=False, positive=False, **more):
    """Tidy rows of every method: AUPRC, AUROC, F1 and share of wrong pairs of the returned graph; calibration.

    With `hindsight` also the F1 that its order of the pairs would allow, see `f1_in_hindsight`; with `positive` every
    method is asked for positive edges only.
    """
    w = case.edges.double()
    given = answers(case, positive=positive)
    row = tables.mean_row if len(w) > 1 else tables.single_row
    found = []
    for model, answer in given.items():
        values = {
            "AUPRC": metrics.average_precision(answer.score, w),
            "AUROC": metrics.auc(answer.score, w),
            "F1": metrics.f1(answer.graph.double(), w, LIKELY),
            "wrong pairs": (answer.graph != case.edges).double().mean(-1),
        }
        if hindsight:
            values["F1 in hindsight"] = f1_in_hindsight(answer.score, w)
        found += [row(table, family, metric, model, value, **more) for metric, value in values.items()]
        if answer.probability is not None:
            numbers = calibration_numbers(answer.probability, case.edges)
            found += [tables.single_row(table, family, metric, model, v, **more) for metric, v in numbers.items()]
    gain = metrics.average_precision(given[LEARNER].score, w) - metrics.average_precision(given[LEDOIT_WOLF].score, w)
    return [*found, row(table, family, "AUPRC gain", f"{LEARNER} - {LEDOIT_WOLF}", gain, **more)]


def f1_in_hindsight(score, w, n_thresholds=200):
    """F1 (n,) with the one threshold for all data sets that suits them best, which nobody knows beforehand."""
    thresholds = torch.unique(score.flatten().double().quantile(torch.linspace(0, 1, n_thresholds).double()))
    found = torch.stack([metrics.f1((score >= threshold).double(), w, LIKELY) for threshold in thresholds])
    return found[found.mean(-1).argmax()]


def f1_told_the_truth(case, n_parts=5):
    """F1 (n,) of a classifier of pairs that learns from the true networks of other subjects, threshold in hindsight.

    Logistic regression on what all methods here go by: correlations, partial correlations, also shrunk ones, the
    probabilities of both learners, and the ranks of the last three within a subject. No user has such a teacher.
    """
    E = case.edges.shape[1]
    plain, shrunk = (sample_partial(S).abs() for S in (case.moments, shrink(case.moments, case.shrinkage)))
    both = [learner(model, case).probability.double().clamp(1e-6, 1 - 1e-6) for model in NETWORKS]
    ranks = [x.argsort(-1).argsort(-1) / E for x in (shrunk, *both)]
    seen = torch.stack([to_vector(case.moments), plain, shrunk, *(p.logit() for p in both), *ranks], -1)
    seen = ((seen - seen.mean((0, 1))) / seen.std((0, 1))).flatten(0, 1).numpy()
    subject = np.arange(len(case.edges)).repeat(E)
    edges = case.edges.flatten().numpy()
    folds = GroupKFold(n_parts)
    score = cross_val_predict(LogisticRegression(), seen, edges, groups=subject, cv=folds, method="decision_function")
    return f1_in_hindsight(torch.from_numpy(score).reshape(case.edges.shape), case.edges.double())


def calibration_numbers(probability, edges):
    """Of all pairs together: the share of the sure ones that are edges, how many are sure, calibration error."""
    sure = probability > SURE
    true = edges[sure].double().mean() if sure.any() else torch.nan
    error = metrics.calibration_error(probability, edges.double())
    return {"true of the sure": true, "sure pairs": sure.sum(), "ece": error}


def standing(frame, metric, least=False):
    """Where GraphLearner stands in a table of `rows`: its value, its rank, and the best of the others, per family.

    "ahead" and "behind" mean that the 95 % intervals do not overlap; a number without an interval counts as it is.
    """
    part = frame[(frame.metric == metric) & ~frame.model.str.startswith(MIXED)].fillna({"ci": 0})
    found = {}
    for family, rows in part.groupby("family", sort=False):
        order = rows.sort_values("value", ascending=least, kind="stable").reset_index(drop=True)
        ours = order[order.model == LEARNER].iloc[0]
        best = order[order.model != LEARNER].iloc[0]
        lead = (ours.value - best.value) * (-1 if least else 1)
        word = "level with" if abs(lead) <= ours.ci + best.ci else "ahead of" if lead > 0 else "behind"
        rank = f"{1 + (order.value < ours.value if least else order.value > ours.value).sum()} of {len(order)}"
        found[family] = {
            LEARNER: ours.value,
            "rank": rank,
            "": word,
            "the best rival": best.model,
            "its value": best.value,
        }
    return pd.DataFrame(found).T.rename_axis(metric)


def reliability(cases):
    """{model: {case: curve}} for `charts.reliability`."""
    return {
        model: {
            name: metrics.calibration(learner(model, case).probability, case.edges.double())
            for name, case in cases.items()
        }
        for model in NETWORKS
    }


def seconds(calls, n_calls=2):
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
