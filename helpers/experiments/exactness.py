"""Edge probabilities beside the exact ones, pair by pair, on the laws of `beyond.posterior.LAWS`.

The exact ones take minutes, so they are shipped: data/results/exact_posteriors.csv has those of every pair of the test
graphs, with their Monte-Carlo errors. Graphs of 4 and 5 nodes are enumerated, and the chain runs on the first of them
as well, where it must come to the same; on 10 and 20 nodes there is the chain alone. On 50 nodes the chain tells how
small the error of weights can be, in data/results/exact_weights.csv. `l2g exact` computes them again.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from .. import metrics, paths
from ..beyond.posterior import LAWS, Law, enumerate_supports, mean_weights, run_chains
from . import stress, tables
from .runs import RUNS, sample

NAME = "exact_posteriors"
TITLES = {
    "exact4": "4 nodes, signed",
    "exact5": "5 nodes",
    "exact10": "10 nodes",
    "exact20": "20 nodes",
}
N_GRAPHS = {"exact4": 40, "exact5": 24, "exact10": 24, "exact20": 12}  # test graphs
ENUMERATED = ("exact4", "exact5")
N_BOTH = 10  # of the enumerated graphs, for which there is a chain as well
N_SWEEPS = {"exact4": 20_000, "exact5": 20_000, "exact10": 80_000, "exact20": 100_000}  # of each of four chains
COLUMNS = ["law", "method", "graph", "pair", "positive", "negative", "error_positive", "error_negative"]
KINDS = ["positive", "negative"]
DIGITS = 5  # decimals that are stored
LEAST_ERROR = 5e-4  # of a probability near 0 or 1, where a chain of finite length may never have seen the other case
FAR = 5.0  # standard errors by which another computation may differ

WEIGHTS = "exact_weights"
TOLD = "Posterior mean (told the law)"
TOLD_LESS = "Posterior mean (neither density nor spread)"
SPREADS = np.geomspace(0.03, 3, 100)  # of log-weights, if it is not told
WEIGHT_SWEEPS = 2000  # of each of two chains
LEAST_SPREAD = 0.05  # stands in for weights that are all equal
OTHERWISE = 0.05  # share by which the mean error of another computation may differ


# --- the exact probabilities ---------------------------------------------------------------------------------------


def test_set(law):
    """Observations and signed weights (n, E) of a law's test graphs, with 10 to 100 signals each."""
    return sample(RUNS[f"broad-{law}"], "test", N_GRAPHS[law])


def compute(law):
    """Exact probabilities of the test graphs of a law: one row per method, graph and pair."""
    observations, _ = test_set(law)
    frames = []
    for graph in range(len(observations)):
        data = (LAWS[law], observations.moments[graph].numpy(), float(observations.n_signals[graph]))
        if law in ENUMERATED:
            frames.append(_frame(law, "enumeration", graph, enumerate_supports(*data, seed=graph)))
        if law not in ENUMERATED or graph < N_BOTH:
            frames.append(_frame(law, "chain", graph, run_chains(*data, n_sweeps=N_SWEEPS[law], seed=graph)))
    return pd.concat(frames, ignore_index=True)


def _frame(law, method, graph, found):
    columns = [found.positive, found.negative, *found.error]
    frame = pd.DataFrame(dict(zip(COLUMNS[4:], columns, strict=True))).assign(law=law, method=method, graph=graph)
    return frame.assign(
        pair=range(len(frame)), r_hat=found.diagnostics.get("r_hat", np.nan), effective=found.diagnostics["effective"]
    )[[*COLUMNS, "r_hat", "effective"]]


def read(law=None, method=None):
    """The shipped probabilities: of all laws, or of one and by one method."""
    frame = pd.read_csv(paths.RESULTS / f"{NAME}.csv")
    for column, value in {"law": law, "method": method}.items():
        frame = frame[frame[column] == value] if value else frame
    return frame.reset_index(drop=True)


def compare(laws=tuple(LAWS), *, write=False):
    """The laws whose shipped probabilities differ from those computed here; `write` replaces these."""
    path = paths.RESULTS / f"{NAME}.csv"
    differ = []
    for law in laws:
        here = compute(law)
        there = read() if path.exists() else here[:0]
        if agree(there[there.law == law], here):
            continue
        differ.append(law)
        if write:
            parts = {name: here if name == law else there[there.law == name] for name in LAWS}
            frame = pd.concat([part for part in parts.values() if len(part)], ignore_index=True)
            paths.write_atomically(path, frame.round(DIGITS).to_csv(index=False).encode())
    return differ


def agree(there, here):
    """Whether two computations have the same rows, and probabilities within FAR of their standard errors."""
    keys = COLUMNS[:4]
    if not np.array_equal(there[keys].to_numpy(str), here[keys].to_numpy(str)):
        return False
    return bool((np.abs(scores(there, here)) <= FAR).all())


def scores(a, b):
    """How many standard errors two computations are apart: (rows, 2), positive and negative edges."""
    variance = sum(frame[[f"error_{kind}" for kind in KINDS]].to_numpy() ** 2 for frame in (a, b))
    return (a[KINDS].to_numpy() - b[KINDS].to_numpy()) / np.sqrt(variance + LEAST_ERROR**2)


# --- the least error of weights ------------------------------------------------------------------------------------


def compute_weights(n_graphs=stress.N_SPREAD):
    """GMSE of the exact posterior mean on the graphs of `stress.errors_by_spread`: a row per spread and graph, twice.

    The law is told how dense the graphs are and how much their weights differ, but not the unit of the weights; or
    neither of them, then any density and any order of magnitude of the spread are equally probable.
    """
    rows = []
    for spread in stress.SPREADS:
        w, case = stress.spread_case(n_graphs, spread)
        start = stress.likely_weights(case).numpy()
        law = Law(stress.N_NODES, a=100.0, b=900.0, spread=max(spread, LEAST_SPREAD))
        for told in (True, False):
            law = law if told else replace(law, a=1.0, b=1.0)
            rows += [
                {"told": told, "spread": spread, "graph": k}
                | _least_error((k, round(10 * spread)), law, told, w[k], case.moments[k].numpy(), start[k])
                for k in range(n_graphs)
            ]
    return pd.DataFrame(rows)


def _least_error(seed, law, told, w, moments, start):
    options = {"n_sweeps": WEIGHT_SWEEPS, "spreads": None if told else SPREADS, "seed": seed}
    found = mean_weights(law, moments, stress.N_SIGNALS, start, **options)
    chains = torch.from_numpy(found)
    mean = chains.mean(0)
    chance = (chains - mean).square().sum() / 2 / w.square().sum()  # what the chains' finite length adds
    return {"gmse": metrics.gmse(mean, w).item(), "chance": chance.item()}


def compare_weights(*, write=False):
    """Whether the shipped errors are those computed here, on average over graphs; `write` replaces them."""
    path = paths.RESULTS / f"{WEIGHTS}.csv"
    here = compute_weights()
    if path.exists():
        there = pd.read_csv(path)
        means = (frame.groupby(["told", "spread"]).gmse.mean() for frame in (there, here))
        if np.allclose(*means, rtol=OTHERWISE, atol=0):
            return True
    if write:
        paths.write_atomically(path, here.round(6).to_csv(index=False).encode())
    return False


def weight_rows():
    """Rows of the shipped errors beside those of `stress.errors_by_spread`."""
    stored = pd.read_csv(paths.RESULTS / f"{WEIGHTS}.csv")
    return [
        tables.mean_row("weights", f"log-sd {spread:g}", "gmse", TOLD if told else TOLD_LESS, np.array(rows.gmse))
        for (told, spread), rows in stored.groupby(["told", "spread"])
    ]


# --- a network's probabilities -------------------------------------------------------------------------------------


def exact_probabilities(law):
    """P(no edge), P(positive), P(negative) of every pair of the test graphs: (n, E, 3)."""
    frame = read(law, reference_method(law))
    return with_none(*(frame[kind].to_numpy().reshape(N_GRAPHS[law], -1) for kind in KINDS))


def with_none(positive, negative):
    """(..., E) twice -> (..., E, 3): the probability of no edge goes first."""
    positive, negative = np.asarray(positive, dtype=float), np.asarray(negative, dtype=float)
    return np.stack([np.clip(1 - positive - negative, 0, 1), positive, negative], -1)


def ask(model, law):
    """What a BroadL2G says of the test graphs of a law, as `exact_probabilities` has it."""
    observations, _ = test_set(law)
    kinds = {"signed": LAWS[law].signed, "self_loops": LAWS[law].signed}
    found = model(observations.moments, observations.n_signals, **kinds)
    return with_none(found.positive.detach(), found.negative.detach())


# --- tables --------------------------------------------------------------------------------------------------------


def accuracy_rows():
    """How well the exact probabilities are known, and, in the table "check", what the chain says of enumerated graphs.

    Per law: the largest Monte-Carlo error of a probability, and the mean; of chains the largest r_hat and the least
    number of effective draws; where there are both, by how much they differ, also in standard errors.
    """
    rows = []
    for law, title in TITLES.items():
        frame = read(law, reference_method(law))
        errors = frame[["error_positive", "error_negative"]].max(axis=1)
        numbers = {"largest error": errors.max(), "mean error": errors.mean()}
        if law in ENUMERATED:
            chain = read(law, "chain")
            frame = frame[frame.graph < N_BOTH]
            off = np.abs(chain[KINDS].to_numpy() - frame[KINDS].to_numpy())
            z = np.abs(scores(chain, frame))
            checks = diagnostics(chain) | {"largest difference": off.max(), "largest difference in errors": z.max()}
            rows += [tables.single_row("check", title, metric, "chain", value) for metric, value in checks.items()]
        else:
            numbers |= diagnostics(frame)
        rows += [tables.single_row("accuracy", title, metric, "exact", value) for metric, value in numbers.items()]
    return rows


def reference_method(law):
    return "enumeration" if law in ENUMERATED else "chain"


def diagnostics(frame):
    """The worst of all graphs."""
    return {"r_hat": frame.r_hat.max(), "effective draws": frame.effective.min()}


def agreement_rows(law, found):
    """Probabilities {model: (n, E, 3)} beside the exact ones.

    Metrics, with an interval over graphs: the "difference" of two laws of a pair, half of the sum of |p - q| over no,
    positive and negative edge, which without signs is that of the two edge probabilities; the "log-loss" per pair, in
    nats, expected under the exact probabilities, and its "excess" over theirs; and the "correlation" over all pairs.
    """
    p = exact_probabilities(law)
    row = [tables.mean_row("agreement", TITLES[law], "log-loss", "exact", log_loss(p, p).mean(-1))]
    for model, q in found.items():
        per_graph = {
            "difference": np.abs(p - q).sum(-1).mean(-1) / 2,
            "log-loss": log_loss(p, q).mean(-1),
            "excess": (log_loss(p, q) - log_loss(p, p)).mean(-1),
        }
        row += [tables.mean_row("agreement", TITLES[law], name, model, values) for name, values in per_graph.items()]
        correlation = np.corrcoef(1 - p[..., 0].ravel(), 1 - q[..., 0].ravel())[0, 1]
        row.append(tables.single_row("agreement", TITLES[law], "correlation", model, correlation))
    return row


def log_loss(p, q):
    """-sum p log q: two (..., 3) -> (...)."""
    return -(p * np.log(np.maximum(q, 1e-12))).sum(-1)
