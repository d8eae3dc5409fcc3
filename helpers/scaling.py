"""What large graphs cost and what they are good for: time, memory, label spreading (notebook 11)."""

import json
import resource
import subprocess
import sys
import time

import numpy as np
import pandas as pd
from scipy.sparse import diags_array, eye_array
from scipy.sparse.linalg import splu

from . import large, paths, results, training
from .benchmark import smaller_steps, tuned
from .graphs import edges as complete
from .graphs import sample_graphs, spawn
from .signals import distances, sample_signals


def plane_signals(n_nodes, n_signals=32, *, seed=0):
    """Plane waves of random direction, length and phase at random places in a square, with noise: (n, m) float32."""
    rng = np.random.default_rng(seed)
    place, wave, phase = rng.random((n_nodes, 2)), rng.normal(size=(2, n_signals)), rng.uniform(0, 2 * np.pi, n_signals)
    X = rng.standard_normal((n_signals, n_nodes), dtype=np.float32)
    for k, row in enumerate(X):  # one by one, to hold little more than X
        row[:] = row / 10 + np.sqrt(2) * np.cos(12 * place @ wave[:, k] + phase[k])
    return X


def large_job(n_nodes, n_candidates, average_degree=5):
    """Search and solve once, after a small job that compiles; prints CPU seconds, gigabytes and gap as JSON."""

    def run(X):
        start = time.process_time()
        edges, y = large.candidate_edges(X, n_candidates)
        found = time.process_time()
        learned = large.learn_edges(y, edges, X.shape[1], average_degree=average_degree)
        return found - start, time.process_time() - found, learned.certificate.gap.item()

    run(plane_signals(large.EXACT_SEARCH + 1))
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    search, solve, gap = run(plane_signals(n_nodes))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"search": search, "solve": solve, "gap": gap, "memory": (peak - idle) / 1e6, "peak": peak / 1e6}))


def scaling(cases, name="11_scaling"):
    """Time and memory of `large_job` for (n_nodes, n_candidates) in fresh processes, one row a number.

    Updates data/results/<name>.csv and returns all of it. With L2G_CHECK set, nothing is measured: times never repeat.
    """
    stored = (
        results.read(name)
        if (paths.RESULTS / f"{name}.csv").exists()
        else pd.DataFrame(columns=[*results.COLUMNS, "x"])
    )
    if paths.CHECK:
        return stored
    rows = []
    for m, k in cases:
        call = [sys.executable, "-c", f"from helpers.scaling import large_job; large_job({m}, {k})"]
        numbers = json.loads(subprocess.run(call, capture_output=True, text=True, check=True, cwd=paths.ROOT).stdout)
        stored = stored[(stored.x != m) | (stored.model != f"{k} candidates")]
        rows += [number(metric, f"{k} candidates", value, m) for metric, value in numbers.items()]
    frame = pd.concat([stored, pd.DataFrame(rows)])[[*results.COLUMNS, "x"]]
    return results.write(name, frame.sort_values(["x", "model"], kind="stable", ignore_index=True))


def number(metric, model, value, x):
    """One number of a table, without interval."""
    return {"table": "11", "family": "plane", "metric": metric, "model": model, "value": value, "ci": np.nan, "x": x}


def slope(frame, metric):
    """Exponent of the power law in x that fits one metric, without values too small to measure."""
    part = frame[(frame.metric == metric) & (frame.value > 0.01)]
    return np.polyfit(np.log(part.x), np.log(part.value), 1)[0]


def label_spreading(W, labels, n_labels, *, n_draws=20, seed=0, alpha=0.99):
    """Accuracies (n_draws,) on the nodes without label, `n_labels` of each class drawn (Zhou et al.'s label spreading).

    F = (I - alpha D^-1/2 W D^-1/2)^-1 Y on the sparse graph W; the class of largest F wins.
    """
    rng, classes = np.random.default_rng(seed), np.unique(labels)
    root = diags_array(1 / np.sqrt(np.maximum(W.sum(1), 1e-300)))
    factor = splu((eye_array(len(labels)) - alpha * root @ W @ root).tocsc())
    accuracy = []
    for _ in range(n_draws):
        known = np.concatenate([rng.choice(np.flatnonzero(labels == c), n_labels, replace=False) for c in classes])
        Y = np.zeros((len(labels), len(classes)))
        Y[known] = labels[known, None] == classes
        right = classes[factor.solve(Y).argmax(1)] == labels
        accuracy.append(np.delete(right, known).mean())
    return np.array(accuracy)


def transfer(run, n_nodes, n_graphs, *, n_candidates=15, seed=0):
    """GMSE (n_graphs,), at most 1,000, of a trained Unrolling on larger graphs of its family, by method.

    And `recall`, the share of true edges among the candidates. The 15 nearest, symmetrised, are about 19 a node, as
    many as a node has possible neighbours in training.
    """
    model, m0 = training.load_or_train(run), run.n_nodes
    smaller = smaller_steps(model, n_nodes, m0)
    (alpha, beta), errors = tuned(run.family), {}
    for w, child in zip(sample_graphs(run.family, n_graphs, n_nodes, seed=seed), spawn((seed, 1), n_graphs)):
        X = sample_signals(w, run.n_signals, run.sigma2, seed=child)
        y, pairs, (edges, near) = distances(X), complete(n_nodes), large.candidate_edges(X, n_candidates)
        estimates = {
            "Unrolling (as trained)": (model.predict(y.float()), pairs),
            "Unrolling (smaller steps)": (smaller.predict(y.float()), pairs),
            "Unrolling (rule, all pairs)": (large.unroll(model, y, pairs, n_nodes, trained_nodes=m0), pairs),
            "Unrolling (rule, candidates)": (large.unroll(model, near, edges, n_nodes, trained_nodes=m0), edges),
            "PDS (candidates)": (large.exact(near, edges, n_nodes, alpha, beta), edges),
        }
        truth = large.adjacency(w.double(), pairs, n_nodes)
        for name, (w_hat, where) in estimates.items():
            error = relative_error(large.adjacency(w_hat.double(), where, n_nodes), truth)
            errors.setdefault(name, []).append(min(error, 1000.0))
        errors.setdefault("recall", []).append((truth[tuple(edges.numpy())] > 0).sum() / (w > 0).sum().item())
    return errors


def relative_error(W_hat, W):
    """GMSE ||w_hat - w||^2 / ||w||^2 of sparse symmetric matrices."""
    return (W_hat - W).power(2).sum() / W.power(2).sum()


def dense_resistances(w, edges, n_nodes):
    """Effective resistances (E,) by the pseudo-inverse, for comparison."""
    W = large.adjacency(w, edges, n_nodes).toarray()
    S = np.linalg.pinv(np.diag(W.sum(1)) - W, hermitian=True)
    return S[edges[0], edges[0]] + S[edges[1], edges[1]] - 2 * S[edges[0], edges[1]]
