"""`GraphLearner` where the paper's law ends: one thing at a time that its signals do not have, and the broad law.

Unless stated otherwise graphs are ER graphs with 50 nodes, and signals are Gaussian with a diagonally dominant
precision matrix. Networks, answers and measures are those of `benchmarks`.
"""

from itertools import pairwise, product

import numpy as np
import torch

from .. import metrics
from ..beyond import broad_law
from ..beyond.atoms import Kinds
from ..beyond.broad import N_PAIR_FEATURES, describe
from ..beyond.likelihood import laplacian_mle
from ..beyond.moments import effective_share, pairwise_moments, second_moments
from ..graphs import all_pairs, degrees, differences, sample_graphs, spawn, to_matrix
from ..rivals.partial_correlations import partial, partial_graph, shrink
from ..signals import Observations, bartlett
from . import benchmarks, methods, tables
from .benchmarks import LEARNER, LEDOIT_WOLF, LIKELY, NETWORKS, calibration_numbers, case_of_signals
from .runs import RUNS, load_or_train, read_record

MLE = "Laplacian maximum likelihood"
THIS_LAW = "BroadL2G (this law)"  # trained on nothing but the graphs and signals that it is tested on
N_NODES, N_SIGNALS = 50, 500  # of the ER graphs below
SPREADS = (0.0, 0.5, 1.0, 2.0)  # standard deviations of log-weights
N_SPREAD = 64  # graphs of each
HEAVY = 1000.0  # times as heavy as the others
NUMBERS = (5, 50, 500, 20_000)  # between which numbers of samples are taken together


def precision_matrix(w, ground=1e-4):
    """Signed weights (n, E) -> diag(degrees of |w| + ground) - W, (n, m, m): diagonally dominant."""
    diagonal = degrees(w.abs()) + ground
    return torch.diag_embed(diagonal) - to_matrix(w)


def gaussian_case(w, n_signals, *, seed):
    """Case of Gaussian signals whose precision matrix has the signed weights w (n, E)."""
    C = torch.linalg.cholesky(precision_matrix(w))
    F = torch.linalg.solve_triangular(C.mT, torch.eye(C.shape[-1], dtype=C.dtype).expand_as(C), upper=True).mT.numpy()
    m = F.shape[-1]
    return case_of_signals(lambda k, rng: rng.standard_normal((n_signals, m)) @ F[k], w != 0, seed=seed)


def er_graphs(n, spread=0.1, *, seed):
    """ER graphs (n, E) of mean degree 1 with lognormal weights; `spread` is the standard deviation of their log."""
    present = sample_graphs("ER", n, N_NODES, seed=seed, weighted=False, dtype=torch.float64, p=0.1)
    z = torch.from_numpy(np.random.default_rng(seed + 1).standard_normal(present.shape))
    w = present * (spread * z).exp()
    return w * N_NODES / (2 * w.sum(-1, keepdim=True))


def errors_on_the_papers_law(sizes=((20, 64), (100, 8))):
    """GMSE of the expected weights on the paper's law: all families at 20 nodes, BA at 100; sizes are (m, n_graphs)."""
    found = []
    for m, n in sizes:
        for family in ("BA", "ER", "SBM", "WS") if m == 20 else ("BA",):
            observations, w = methods.test_set(family, n, shuffle=True, n_nodes=m)
            weights = {
                model: benchmarks.estimate(model, observations.moments, observations.n_signals)[1] for model in NETWORKS
            }
            weights[MLE] = laplacian_mle(observations)
            name = f"{family}, {m} nodes"
            found += [
                tables.mean_row("paper's law", name, "gmse", model, metrics.gmse(v, w)) for model, v in weights.items()
            ]
    return found


def spread_case(n, spread):
    """Weights (n, E) whose logarithms have that standard deviation, and the Case of signals."""
    w = er_graphs(n, spread, seed=10)
    return w, gaussian_case(w, N_SIGNALS, seed=11)


def likely_weights(case):
    """The most likely weights of a Laplacian, (n, E)."""
    return laplacian_mle(differences(case.moments), sigma2=1e-4, tol=1e-4)


def errors_by_spread(n=N_SPREAD):
    """GMSE of the expected weights, by the spread of the true ones."""
    found = []
    for spread in SPREADS:
        w, case = spread_case(n, spread)
        weights = {model: benchmarks.estimate(model, case.moments, case.n_signals)[1] for model in NETWORKS}
        weights[MLE] = likely_weights(case)
        weights[THIS_LAW] = load_or_train("broad-told").predict(Observations(case.moments, case.n_signals))
        found += [
            tables.mean_row("weights", f"log-sd {spread:g}", "gmse", model, metrics.gmse(v, w))
            for model, v in weights.items()
        ]
    return found


def false_edges_in_white_noise(sizes=((20, 512), (50, 64), (100, 16)), numbers=(100, 1000, 10_000)):
    """Share of pairs with p > 0.5 where no pair is joined; sizes are (m, n_graphs)."""
    found = []
    for m, n in sizes:
        for n_signals in numbers:
            A = torch.from_numpy(bartlett(np.random.default_rng((m, n_signals)), n, m, n_signals))
            S = A @ A.mT / n_signals
            for model in NETWORKS:
                share = (benchmarks.estimate(model, S, n_signals)[0] > LIKELY).double().mean(-1)
                found.append(tables.mean_row("white noise", f"{m} nodes", "false edges", model, share, x=n_signals))
    return found


def ranks_by_sign(n=64, shares=(0.0, 0.2, 0.5)):
    """AUPRC, by the share of negative edges."""
    found = []
    w = er_graphs(n, seed=20)
    coin = torch.from_numpy(np.random.default_rng(21).random(w.shape))
    for share in shares:
        signed = torch.where(coin < share, -w, w)
        case = gaussian_case(signed, N_SIGNALS, seed=22)
        scores = {model: benchmarks.learner(model, case).score for model in NETWORKS}
        scores[LEDOIT_WOLF] = partial(shrink(case.moments, case.shrinkage)).abs()
        found += [
            tables.mean_row("signs", f"{share:.0%} negative", "AUPRC", model, metrics.average_precision(v, w))
            for model, v in scores.items()
        ]
    return found


def graphs_beside_a_heavy_edge(n=64, numbers=(500, 1000, 3000)):
    """F1 of all other pairs where one edge is 1,000 times as heavy, also without those that share a node with it.

    "F1 if it is not heavy" is that of the same graphs and pairs if that edge has a weight like the others, and "F1 if
    only the end is unknown" that of a graph which has, for each true edge at one end of the heavy one, both ends.
    """
    w = er_graphs(n, seed=30)
    heavy = torch.zeros_like(w, dtype=torch.bool).scatter(1, w.argmax(1, keepdim=True), True)
    near = touches(heavy)
    found = []
    for n_signals in numbers:
        case = gaussian_case(torch.where(heavy, HEAVY * w, w), n_signals, seed=31)
        graphs = {model: benchmarks.learner(model, case).graph for model in NETWORKS}
        graphs[LEDOIT_WOLF] = partial_graph(shrink(case.moments, case.shrinkage), case.n_signals)[1]
        graphs["Partial correlations"] = partial_graph(case.moments, case.n_signals)[1]
        light = benchmarks.learner(LEARNER, gaussian_case(w, n_signals, seed=31)).graph
        scores = {(model, "F1"): (graph, heavy) for model, graph in graphs.items()}
        scores[LEARNER, "F1 away from it"] = graphs[LEARNER], near
        scores[LEARNER, "F1 if it is not heavy"] = light, heavy
        scores[LEARNER, "F1 if only the end is unknown"] = (
            torch.where(near, at_either_end(w > 0, heavy), graphs[LEARNER]),
            heavy,
        )
        for (model, metric), (graph, left_out) in scores.items():
            value = metrics.f1((graph & ~left_out).double(), torch.where(left_out, 0, w), LIKELY)
            found.append(tables.mean_row("heavy edge", f"N = {n_signals}", metric, model, value))
    return found


def touches(edge):
    """Pairs that share a node with the edge, the edge among them: (n, E) bool, one edge each -> (n, E) bool."""
    ends = degrees(edge.double()) > 0
    i, j = all_pairs(ends.shape[-1])
    return ends[:, i] | ends[:, j]


def at_either_end(edges, heavy):
    """Pairs of an end of the one heavy edge with what either end is joined to: (n, E) bool, (n, E) bool -> (n, E)."""
    ends = degrees(heavy.double()) > 0
    others = (to_matrix(edges.double()) * ends[:, None, :]).sum(-1) > 0  # nodes with an edge to one of the ends
    i, j = all_pairs(ends.shape[-1])
    return (ends[:, i] & others[:, j]) | (ends[:, j] & others[:, i])


def evidence_of_an_end(n=16, numbers=(500, 1000, 3000)):
    """How surely N signals tell which end an edge has: the mean log-likelihood ratio to the graph where it has another.

    In the row "at the heavy edge" that is the other end of the heavy edge, "elsewhere" a node at random. In nats: who
    looks for the likelier graph errs with a probability of 0.5 at 0, and of 0.08 at 4.
    """
    w = er_graphs(n, seed=30)
    heavy = w.argmax(1)
    w = w.scatter(1, heavy[:, None], HEAVY * w.gather(1, heavy[:, None]))
    found = {"at the heavy edge": [], "elsewhere": []}
    for graph, rng in enumerate(map(np.random.default_rng, spawn(32, n))):
        A = to_matrix(w[graph])
        K = precision_matrix(w[graph : graph + 1])[0]
        ends = all_pairs(N_NODES)[:, heavy[graph]].tolist()
        near, far = [], []
        for i, j in (ends, ends[::-1]):
            near += [divergence(K, A, i, k, j) for k in _to_move(A, i, j)]
            i, j = rng.choice([node for node in range(N_NODES) if node not in ends], 2, replace=False)
            far += [divergence(K, A, i, k, j) for k in _to_move(A, i, j) if k not in ends]
        for name, values in zip(found, (near, far)):
            if values:
                found[name].append(np.mean(values))
    return [
        tables.mean_row("heavy edge", f"N = {n_signals}", f"evidence {name}", "nats", n_signals * np.array(values))
        for n_signals in numbers
        for name, values in found.items()
    ]


def _to_move(A, i, j):
    """Nodes that are joined to i but not to j."""
    return [k for k in range(len(A)) if A[i, k] > 0 and A[j, k] == 0 and k != j]


def divergence(K, A, i, k, j):
    """Kullback-Leibler divergence of the law with precision K from that in which the edge i-k has become j-k."""
    U = torch.zeros(len(K), 2, dtype=K.dtype)
    U[i, 0] = U[j, 1] = 1
    U[k] = -1
    change = U @ torch.diag(A[i, k] * torch.tensor([-1.0, 1.0], dtype=K.dtype)) @ U.T
    ratio = torch.eye(len(K), dtype=K.dtype) + torch.linalg.solve(K, change)
    return float(ratio.trace() - len(K) - torch.linalg.slogdet(ratio)[1]) / 2


GROUNDS = {"": 0.1, " with a strong common part": 1e-4}  # of graphs with mean degree 1; the second one is the paper's


def missing_values(n=16, shares=(0.0, 0.1, 0.3, 0.5), n_rows=200):
    """AUPRC and calibration by the share of missing values, which is another one in each column.

    Besides the learner, which is told how many rows are behind each pair, the same network told their mean, and told
    the moments of each pair over the rows that have both. With little ground all nodes have a large part in common, of
    which moments over different rows disagree.
    """
    w = er_graphs(n, 0.5, seed=50)
    found = []
    for (name, ground), share in product(GROUNDS.items(), shares):
        L = torch.linalg.cholesky(precision_matrix(w, ground)).mT.numpy()
        rows = [_rows_with_gaps(L[k], share, n_rows, child) for k, child in enumerate(spawn(51, n))]
        filled = [second_moments(X) for X in rows]
        S = torch.from_numpy(np.stack([x.matrix for x in filled]))
        counts = torch.from_numpy(np.stack([x.counts.clip(1) for x in filled]))
        apart = torch.from_numpy(np.stack([pairwise_moments(X)[0] for X in rows]))
        told = {
            LEARNER: (S, counts),
            f"{LEARNER}, told the mean": (S, counts.mean((-2, -1))),
            f"{LEARNER}, pairs apart": (apart, counts),
        }
        for model, data in told.items():
            found += _trust("gaps", f"{share:.0%} missing{name}", model, benchmarks.estimate(LEARNER, *data)[0], w)
    return found


def _rows_with_gaps(L, share, n_rows, seed):
    """Rows x (n_rows, m), L x white noise, of which up to twice the share is missing per column."""
    rng = np.random.default_rng(seed)
    X = np.linalg.solve(L, rng.standard_normal((len(L), n_rows))).T
    X[rng.random(X.shape) < rng.uniform(0, 2 * share, len(L)).clip(0, 0.9)] = np.nan
    return X


def series(n=32, memories=(0.0, 0.5, 0.9), n_rows=500):
    """AUPRC and calibration where each row is `memory` times the one before plus something new.

    The learner filters the rows, counts how many independent ones they are worth, or believes that all are.
    """
    w = er_graphs(n, 0.5, seed=60)
    L = torch.linalg.cholesky(precision_matrix(w)).mT.numpy()
    found = []
    for memory in memories:
        rows = [_series(L[k], memory, n_rows, child) for k, child in enumerate(spawn(61, n))]
        filtered = [benchmarks.whiten(X) for X in rows]
        S, worth = moments_of_series(rows)
        told = {
            LEARNER: moments_of_series(filtered),
            f"{LEARNER}, rows counted": (S, worth),
            f"{LEARNER}, all rows count": (S, n_rows),
        }
        for model, (moments, numbers) in told.items():
            found += _trust("series", f"memory {memory:g}", model, benchmarks.estimate(LEARNER, moments, numbers)[0], w)
    return found


def moments_of_series(rows):
    """Second moments (n, m, m) of tables, each (n_rows, m), and how many independent rows each is worth, (n,)."""
    S = torch.from_numpy(np.stack([X.T @ X / len(X) for X in rows]))
    return S, torch.tensor([len(X) * effective_share(X) for X in rows])


def _series(L, memory, n_rows, seed):
    rng = np.random.default_rng(seed)
    X = np.linalg.solve(L, rng.standard_normal((len(L), n_rows))).T
    for t in range(1, n_rows):
        X[t] = memory * X[t - 1] + (1 - memory**2) ** 0.5 * X[t]
    return X


def _trust(table, family, model, probability, w):
    """Rows: AUPRC and `calibration_numbers`."""
    rank = tables.mean_row(table, family, "AUPRC", model, metrics.average_precision(probability, w))
    numbers = calibration_numbers(probability, w != 0)
    return [rank, *(tables.single_row(table, family, metric, model, value) for metric, value in numbers.items())]


def judge_on_the_broad_law(n=64, n_nodes=30):
    """On graphs of the law that the network learned from, per family and per N: the share of sure pairs that are edges,
    and the logarithm of the error of weights, relative to that of maximum likelihood of the same atoms."""
    families = [family for family in broad_law.FAMILIES if family != "empty"]
    draws = [
        broad_law.sample_broad(n, n_nodes, seed=seed, families=[family])
        for family, seed in zip(families, spawn(40, len(families)))
    ]
    w = torch.cat([draw.w for draw in draws]).double()
    n_signals = torch.cat([draw.n_signals for draw in draws]).mean((-2, -1))
    family = np.repeat(families, n)
    parts = {name: torch.from_numpy(family == name) for name in families}
    parts |= {f"N = {low:,} to {high:,}": (n_signals >= low) & (n_signals < high) for low, high in pairwise(NUMBERS)}
    likely = torch.cat([likely_on_atoms(draw) for draw in draws])
    found = []
    for model in NETWORKS:
        answers = [
            benchmarks.estimate(model, d.moments, _numbers(model, d), signed=d.signed, self_loops=d.self_loops)
            for d in draws
        ]
        probability, expected = (torch.cat(x) for x in zip(*answers))
        for name, chosen in parts.items():
            numbers = calibration_numbers(probability[chosen], w[chosen] != 0)
            found += [tables.single_row("broad law", name, metric, model, v) for metric, v in numbers.items()]
            some = chosen & w.any(-1)
            ratio = (metrics.gmse(expected[some].double(), w[some]) / metrics.gmse(likely[some], w[some])).log()
            found.append(tables.mean_row("broad law", name, "log GMSE over likelihood", model, ratio))
    return found


def likely_on_atoms(draw):
    """The most likely signed weights (n, E) of atoms of all kinds that a graph may have, as the network sees them."""
    pairs, nodes = describe(draw.moments, draw.n_signals, Kinds(draw.signed, draw.self_loops))
    return (pairs[:, N_PAIR_FEATURES] - pairs[:, N_PAIR_FEATURES + 1]) / nodes[:, -1, :1]


def _numbers(model, draw):
    """Numbers of signals as a network takes them: per pair, or one for all."""
    return draw.n_signals if model == LEARNER else draw.n_signals.mean((-2, -1))


# --- sizes of the network -------------------------------------------------------------------------------------------

# runs, the last is GraphLearner's
SIZES = (
    "broad-4x64-looks0",
    "broad-5x64-looks2",
    "broad-6x64-looks3",
    "broad-7x64-looks4",
    "broad-7x64-fourth",
    "broad-7x64-fifth",
    "broad-7x96-sixth",
    "broad-7x96-seventh",
    "broad-7x96-eighth",
    "broad",
)


def courses(name):
    """The names of the runs that a network learned in, one after the other."""
    start = RUNS[name].start
    return [*courses(start), name] if start else [name]


@torch.no_grad()
def compare_sizes(n=32, n_nodes=30):
    """Rows per run: log-loss per pair and log GMSE on fresh graphs of the broad law, parameters and CPU minutes."""
    draw = broad_law.sample_broad(n * len(broad_law.FAMILIES), n_nodes, seed=70, n_parts=len(broad_law.FAMILIES) * 4)
    there = draw.w.any(-1)
    found = []
    for name in SIZES:
        model = load_or_train(name)
        answer = model(draw.moments, draw.n_signals, signed=draw.signed, self_loops=draw.self_loops)
        none = (1 - answer.positive - answer.negative).clamp_min(1e-12)
        likely = torch.where(draw.w > 0, answer.positive, torch.where(draw.w < 0, answer.negative, none))
        trainings = [read_record(RUNS[course]) for course in courses(name)]
        values = {
            "log-loss": -likely.clamp_min(1e-12).log().mean(-1),
            "log GMSE": metrics.gmse(answer.expected[there], draw.w[there]).log(),
        }
        found += [tables.mean_row("sizes", name, metric, "BroadL2G", value) for metric, value in values.items()]
        minutes = sum(x["seconds"] for x in trainings) / 60
        numbers = {"parameters": trainings[-1]["n_parameters"], "CPU minutes": minutes}
        found += [tables.single_row("sizes", name, metric, "BroadL2G", value) for metric, value in numbers.items()]
    return found
