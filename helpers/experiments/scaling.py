"""Experiments of notebook 12 on large graphs: signals, transfer of Unrolling, probabilities, label spreading."""

import numpy as np
import torch
from scipy.sparse import diags_array, eye_array
from scipy.sparse.linalg import splu

from ..beyond.candidates import adjacency, candidate_edges
from ..beyond.transfer import smaller_steps, unroll
from ..graphs import all_pairs, sample_graphs, spawn
from ..metrics import auc, calibration_error
from ..signals import distances, sample_signals
from ..solvers import exact
from .methods import tune
from .runs import load_or_train

WORST = 1000.0  # a larger error counts as this one: a network that diverges must not decide a mean


def plane_signals(n_nodes, n_signals=32, *, seed=0):
    """Plane waves of random direction, length and phase at random places in a square, with noise: (n, m) float32."""
    rng = np.random.default_rng(seed)
    place = rng.random((n_nodes, 2))
    wave = rng.normal(size=(2, n_signals))
    phase = rng.uniform(0, 2 * np.pi, n_signals)
    X = rng.standard_normal((n_signals, n_nodes), dtype=np.float32)
    for k, row in enumerate(X):  # one by one, to hold little more than X
        row[:] = row / 10 + np.sqrt(2) * np.cos(12 * place @ wave[:, k] + phase[k])
    return X


def transfer_errors(run, n_nodes, n_graphs, *, n_candidates=15, seed=0):
    """What becomes of a trained Unrolling on larger graphs of its family: {method: GMSE per graph, at most 1,000}.

    The entry "recall" is the share of true edges among the candidates. The 15 nearest, symmetrised, are about 19 pairs
    per node, as many as a node has possible neighbours in training.
    """
    model = load_or_train(run)
    trained_nodes = run.n_nodes
    smaller = smaller_steps(model, n_nodes, trained_nodes=trained_nodes)
    alpha, beta = tune(run.family)
    pairs = all_pairs(n_nodes)
    errors = {}
    for w, child in zip(sample_graphs(run.family, n_graphs, n_nodes, seed=seed), spawn((seed, 1), n_graphs)):
        X = sample_signals(w, run.n_signals, run.sigma2, seed=child)
        y = distances(X)
        edges, near = candidate_edges(X, n_candidates)
        estimates = {
            "Unrolling (as trained)": (model.predict(y), pairs),
            "Unrolling (smaller steps)": (smaller.predict(y), pairs),
            "Unrolling (rule, all pairs)": (unroll(model, y, trained_nodes=trained_nodes), pairs),
            "Unrolling (rule, candidates)": (unroll(model, near, edges, n_nodes, trained_nodes=trained_nodes), edges),
            "PDS (candidates)": (exact(near, alpha, beta, edges=edges, n_nodes=n_nodes), edges),
        }
        truth = adjacency(w.double(), pairs, n_nodes)
        for name, (w_hat, where) in estimates.items():
            error = relative_error(adjacency(w_hat.double(), where, n_nodes), truth)
            errors.setdefault(name, []).append(min(error, WORST))
        recall = (truth[tuple(edges.numpy())] > 0).sum() / (w > 0).sum().item()
        errors.setdefault("recall", []).append(recall)
    return errors


def relative_error(W_hat, W):
    """GMSE ||w_hat - w||^2 / ||w||^2 of sparse symmetric matrices."""
    return (W_hat - W).power(2).sum() / W.power(2).sum()


def order_and_size(P, w):
    """What edge probabilities on a list are worth, sparse (m, m), where the graph w (E,) is known: a dictionary.

    "recall" is the share of true edges that are candidates. The rest is about candidates only: "auc" tells whether the
    order of their probabilities is right and "ece", see `metrics.calibration_error`, whether their size is; "sure" and
    "true" are the mean probability of those with at least 0.9 and the share of them that are edges.
    """
    P = P.tocoo()
    upper = P.row < P.col
    p = torch.from_numpy(P.data[upper])
    truth = torch.from_numpy(adjacency(w, all_pairs(P.shape[0]), P.shape[0])[P.row[upper], P.col[upper]])
    sure = p >= 0.9
    return {
        "recall": ((truth > 0).sum() / (w > 0).sum()).item(),
        "auc": auc(p, truth).item(),
        "ece": calibration_error(p, truth),
        "sure": p[sure].mean().item(),
        "true": (truth[sure] > 0).double().mean().item(),
    }


def label_spreading(W, labels, n_labels, *, n_draws=20, seed=0, alpha=0.99):
    """Accuracies (n_draws,) on the nodes without label, `n_labels` of each class drawn (Zhou et al.'s label spreading).

    F = (I - alpha D^-1/2 W D^-1/2)^-1 Y on the sparse graph W; the class of largest F wins.
    """
    rng = np.random.default_rng(seed)
    classes = np.unique(labels)
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
