"""What the broad network makes of data: signed weights, a precision matrix and probabilities.

    S or atoms on a list, N ──► network ──► probable pairs W ──► most likely scale and diagonal ──► A, K, probabilities

The network says of each pair how probable a positive edge is, how probable a negative one, and how heavy either would
be. Float64, on the CPU, in whatever unit the data have.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy import linalg, sparse

from ..graphs import all_pairs
from ..signals import pair_distances
from .candidates import adjacency
from .completion import complete, complete_on_list, laplacian_rank, signed_laplacian
from .moments import add_white_signal, column_variances, fill_constant, pair_sums


class Found(NamedTuple):
    """Weights A (m, m), negative for negative edges; a precision matrix K, or None where K is A's Laplacian; and the
    probabilities of edges of either sign. Arrays, or sparse from a list."""

    A: np.ndarray | sparse.csr_array
    K: np.ndarray | sparse.csr_array | None
    probability: np.ndarray | sparse.csr_array


@torch.no_grad()
def learn_from_moments(network, S, n_signals, *, signed, self_loops, min_probability):
    """All pairs: second moments S (m, m) and the samples behind them, a number or (m, m) -> Found."""
    typical = float(np.mean(n_signals))
    S = fill_constant(S, typical)
    ask = {"signed": signed, "self_loops": self_loops}
    if len(S) > 2:
        estimate = network(torch.from_numpy(S), torch.as_tensor(n_signals), **ask)
    else:  # with a third node that shares nothing with them
        three = torch.from_numpy(linalg.block_diag(S, np.diag(S).mean()))
        estimate = (value[:1] for value in network(three, torch.as_tensor(typical), **ask))
    W, probability = (A.toarray() for A in _weigh(estimate, all_pairs(len(S)), len(S), min_probability))
    if not self_loops:
        return Found(_likely_laplacian(W, (S * signed_laplacian(W)).sum()), None, probability)
    K = complete(add_white_signal(S, typical), W).precision
    return Found(np.where(W != 0, -K, 0), K, probability)


@torch.no_grad()
def learn_on_list(network, Z, edges, n_signals, *, signed, self_loops, min_probability, robust=False, progress=False):
    """A list of pairs `edges` (2, E): signals Z (n, m), whose mean squares are without bias -> Found, sparse."""
    m = Z.shape[1]
    difference = pair_distances(Z, edges, robust=robust)
    total = pair_sums(Z, edges, robust=robust) if signed else None
    variances = column_variances(Z, n_signals, robust=robust)
    seen = difference, total, torch.from_numpy(variances)
    estimate = network.on_list(*seen, n_signals, edges, m, self_loops=self_loops, progress=progress)
    W, probability = _weigh(estimate, edges, m, min_probability)
    if not self_loops:
        energy = ((signed_laplacian(W) @ Z.T).T * Z).sum() / len(Z)
        return Found(_likely_laplacian(W, energy), None, probability)
    K, scale = complete_on_list(Z, W, variances)
    return Found(scale * W, K, probability)


def _weigh(estimate, edges, m, min_probability):
    """Expected weights of the pairs that are probable enough, signed, and probabilities: sparse (m, m)."""
    positive, negative, weight = (value.double() for value in estimate)
    probability = (positive + negative).clamp(0, 1)
    w = torch.where(probability >= min_probability, (positive - negative) * weight, 0)
    return adjacency(w, edges, m), adjacency(probability, edges, m)


def _likely_laplacian(W, energy):
    """W with its most likely scale, tr(S L) = rank of L; `energy` is tr(S L) without it."""
    return W * (laplacian_rank(W) / energy) if energy > 0 else W
