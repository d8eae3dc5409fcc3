"""Every number in a table: one value per graph, and its mean with a 95 % interval.

Arguments are tensors or arrays, `w` (..., E) of weights or `a` (..., E) of zeros and ones (see `binarise`).
Results are float64 tensors of the leading shape, on the CPU. What is undefined for an empty graph is NaN.
"""

import networkx as nx
import numpy as np
import torch
from scipy import stats
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial.distance import squareform
from sklearn.metrics import precision_recall_curve

from .graphs import count_nodes, degrees, to_matrix

# --- weights -------------------------------------------------------------------------------------------------------


def gmse(w_hat, w):
    """Graph mean squared error ||w_hat - w||^2 / ||w||^2: two (..., E) -> (...)."""
    w_hat, w = check_finite(w_hat=w_hat, w=w)
    return _squared_ratio(w_hat, w, "w")


def nmse(theta_hat, theta):
    """||Theta_hat - Theta||_F^2 / ||Theta||_F^2, diagonal included, not in dB: two (..., m, m) -> (...)."""
    theta_hat, theta = check_finite(theta_hat=theta_hat, theta=theta)
    if theta.ndim < 2 or theta.shape[-1] != theta.shape[-2]:
        raise ValueError(f"theta has shape {tuple(theta.shape)}: square matrices (..., m, m) are needed")
    return _squared_ratio(theta_hat.flatten(-2), theta.flatten(-2), "theta")


def diagonal_share(theta_hat, theta):
    """Share of ||Theta_hat - Theta||_F^2 that lies on the diagonal: two (..., m, m) -> (...)."""
    theta_hat, theta = check_finite(theta_hat=theta_hat, theta=theta)
    error = (theta_hat - theta).square()
    return error.diagonal(dim1=-2, dim2=-1).sum(-1) / error.sum((-2, -1))


def mean_ci(values, level=0.95):
    """Mean and half width of its Student interval, t((1+level)/2, n-1) x standard error: two floats."""
    (values,) = check_finite(values=values)
    values = values.flatten().numpy()
    if values.size < 2:
        raise ValueError(f"values has {values.size} entries: an interval needs at least 2")
    if not 0 < level < 1:
        raise ValueError(f"level={level}: between 0 and 1, both excluded")
    half_width = stats.t.ppf((1 + level) / 2, values.size - 1) * stats.sem(values)
    return float(values.mean()), float(half_width)


def pairwise_spearman(w):
    """Spearman correlation between all pairs of the n graphs `w` (n, E): (n(n-1)/2,)."""
    (w,) = check_finite(w=w)
    if w.ndim != 2 or len(w) < 2:
        raise ValueError(f"w has shape {tuple(w.shape)}: at least two graphs as rows (n, E) are needed")
    if (w == w[:, :1]).all(1).any():
        raise ValueError("w has a row of equal weights: its ranks correlate with nothing")
    rho = np.corrcoef(stats.rankdata(w.numpy(), axis=1))
    return torch.from_numpy(rho[np.triu_indices(len(rho), 1)])


# --- which edges exist ---------------------------------------------------------------------------------------------


def auc(w_hat, w):
    """Area under the ROC curve for the edges w > 0, scored by max(w_hat, 0): two (..., E) -> (...).

    The share of (edge, non-edge) pairs in the right order, ties counting half, from the ranks (Mann-Whitney).
    """
    score, edge = _score_and_label(w_hat, w)
    rank = torch.from_numpy(stats.rankdata(score.numpy(), axis=-1))
    n_edge = edge.sum(-1)
    n_none = (~edge).sum(-1)
    if (n_none == 0).any():
        raise ValueError("w has a graph with every edge present: AUC needs edges and non-edges in each graph")
    return ((rank * edge).sum(-1) - n_edge * (n_edge + 1) / 2) / (n_edge * n_none)


def average_precision(w_hat, w):
    """Area under the precision-recall curve, as a sum over its steps, as for `auc`: two (..., E) -> (...).

    The mean over the edges w > 0 of the precision among the pairs that score at least as high.
    """
    score, edge = _score_and_label(w_hat, w)
    above, edges_above = (
        torch.from_numpy(stats.rankdata(-x.numpy(), "max", axis=-1)).double()
        for x in (score, torch.where(edge, score, -torch.inf))
    )
    return torch.where(edge, edges_above / above, 0).sum(-1) / edge.sum(-1)


def binarise(w_hat, threshold):
    """Ones where w_hat > threshold >= 0, else zeros: (..., E) -> (..., E)."""
    (w_hat,) = check_finite(w_hat=w_hat)
    if not threshold >= 0:
        raise ValueError(f"threshold={threshold}: at least 0, an absent edge is none")
    return (w_hat > threshold).double()


def best_threshold(w_hat, w):
    """The threshold of `binarise` with the highest F1, all edges of all graphs pooled: a float.

    It lies half-way between two neighbouring scores, so it does not hang on one edge of the validation set.
    """
    score, edge = _score_and_label(w_hat, w)
    precision, recall, cut = precision_recall_curve(edge.flatten().numpy(), score.flatten().numpy())
    harmonic = 2 * precision * recall / np.maximum(precision + recall, 1e-300)
    harmonic = harmonic[:-1][cut > 0]  # the last entry is the end of the curve, without a threshold
    cut = cut[cut > 0]
    if not cut.size:
        return 0.0  # nothing is ever predicted
    best = harmonic.argmax()
    return float(np.r_[0, cut][best : best + 2].mean())


def f1(w_hat, w, threshold):
    """F1 score of the edges w_hat > threshold: two (..., E) -> (...)."""
    _, edge = _score_and_label(w_hat, w)
    found = binarise(w_hat, threshold).bool()
    return 2 * (found & edge).sum(-1).double() / (found.sum(-1) + edge.sum(-1))


def recall(w_hat, w, threshold, among=True):
    """Share of the edges w > 0 with w_hat > threshold, of those in the mask `among` (E,): two (..., E) -> (...)."""
    _, edge = _score_and_label(w_hat, w)
    edge = edge & torch.as_tensor(among)
    return (binarise(w_hat, threshold).bool() & edge).sum(-1).double() / edge.sum(-1)


def calibration(probability, w, n_bins=10):
    """Reliability of edge probabilities, all edges of all graphs pooled in equal bins: two (..., E) -> three (k,).

    Mean probability, share of edges w > 0, and number of entries in each bin that is not empty.
    """
    probability, edge = _score_and_label(probability, w)
    if (probability > 1).any():
        raise ValueError("probability has entries above 1: weights are no probabilities")
    place = (probability.flatten() * n_bins).long().clamp_max(n_bins - 1)
    count = torch.bincount(place, minlength=n_bins)
    total_probability = torch.bincount(place, probability.flatten(), minlength=n_bins)
    n_edges = torch.bincount(place, edge.flatten().double(), minlength=n_bins)
    full = count > 0
    return total_probability[full] / count[full], n_edges[full] / count[full], count[full].double()


def calibration_error(probability, w, n_bins=10):
    """Expected calibration error: mean over all entries of |mean probability - share of edges| of their bin."""
    mean, share, count = calibration(probability, w, n_bins)
    return float(count @ (mean - share).abs() / count.sum())


# --- structure -----------------------------------------------------------------------------------------------------


def community_score(a):
    """Modularity of the communities that networkx's greedy search finds: (..., E) -> (...), NaN for an empty graph."""

    def greedy_modularity(row):
        if not row.any():
            return np.nan
        graph = nx.from_numpy_array(squareform(row))
        return nx.community.modularity(graph, nx.community.greedy_modularity_communities(graph))

    return per_graph(greedy_modularity, check_binary(a))


def average_shortest_path(a):
    """Mean hops between the nodes of the largest component: (..., E) -> (...), NaN for an empty graph.

    Count with `n_disconnected` how often the largest component is not the whole graph.
    """

    def mean_hops(row):
        hops = shortest_path(squareform(row), unweighted=True, directed=False)
        reached = np.isfinite(hops)
        component = reached[reached.sum(1).argmax()]
        k = component.sum()
        return hops[np.ix_(component, component)].sum() / (k * (k - 1)) if k > 1 else np.nan

    return per_graph(mean_hops, check_binary(a))


def n_disconnected(a):
    """How many of the graphs (..., E) are not connected: an int."""
    pieces = per_graph(lambda row: connected_components(squareform(row), directed=False)[0], check_binary(a))
    return int((pieces > 1).sum())


def clustering(a):
    """Mean over the nodes of 2 x triangles / d(d-1), 0 where d < 2: (..., E) -> (...)."""
    A = to_matrix(check_binary(a))
    d = A.sum(-1)
    closed = ((A @ A) * A).sum(-1)
    return (closed / (d * (d - 1)).clamp(min=1)).mean(-1)


# --- known groups of nodes -----------------------------------------------------------------------------------------


def modularity(w, blocks):
    """Newman's modularity of the partition `blocks` (m,) or (..., m) of weighted graphs: (..., E) -> (...)."""
    (w,) = check_finite(w=w)
    d = degrees(w)
    total = d.sum(-1)  # twice the weight of all edges; 0 gives a NaN
    surplus = to_matrix(w) - d[..., :, None] * d[..., None, :] / total[..., None, None]
    return (surplus * _same_block(blocks, w)).sum((-2, -1)) / total


def within_share(w, blocks):
    """Share of the weight on edges within the blocks (m,) or (..., m): (..., E) -> (...)."""
    (w,) = check_finite(w=w)
    return (to_matrix(w) * _same_block(blocks, w)).sum((-2, -1)) / (2 * w.sum(-1))


def _same_block(blocks, w):
    """Whether two nodes are in the same block: (..., m, m)."""
    blocks = torch.as_tensor(blocks)
    m = count_nodes(w.shape[-1])
    if blocks.shape not in ((m,), (*w.shape[:-1], m)):
        raise ValueError(f"blocks has shape {tuple(blocks.shape)}: ({m},) or {(*w.shape[:-1], m)} is needed")
    return blocks[..., :, None] == blocks[..., None, :]


# --- input ---------------------------------------------------------------------------------------------------------


def check_finite(**named):
    """Float64 CPU tensors of the arguments, or ValueError: finite and of one shape."""
    tensors = {name: torch.as_tensor(x).detach().to("cpu", torch.float64) for name, x in named.items()}
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    if () in shapes.values() or len(set(shapes.values())) > 1:
        text = " and ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"{text}: equal shapes of at least one dimension are needed")
    for name, t in tensors.items():
        if n_bad := int((~t.isfinite()).sum()):
            raise ValueError(f"{name} has {n_bad} NaN or infinite entries of {t.numel()}: finite ones are needed")
    return tuple(tensors.values())


def check_binary(a):
    """Half-vectors (..., E) of zeros and ones as a float64 CPU tensor, or ValueError."""
    (a,) = check_finite(a=a)
    count_nodes(a.shape[-1])  # raises where there is no such m
    if not ((a == 0) | (a == 1)).all():
        raise ValueError(f"a has values in [{a.min():.3g}, {a.max():.3g}]: only 0 and 1, see binarise")
    return a


def per_graph(f, *batches):
    """The number f(row, ...) of every row of CPU tensors (..., k): (...) float64."""
    rows = zip(*(b.reshape(-1, b.shape[-1]).numpy() for b in batches))
    return torch.tensor([f(*r) for r in rows], dtype=torch.float64).reshape(batches[0].shape[:-1])


def _score_and_label(w_hat, w):
    w_hat, w = check_finite(w_hat=w_hat, w=w)
    if not (w > 0).any(-1).all():
        raise ValueError("w has a graph without edges: each graph needs at least one")
    return w_hat.clamp(min=0), w > 0


def _squared_ratio(x_hat, x, name):
    size = x.square().sum(-1)
    if (size == 0).any():
        raise ValueError(f"{name} has a graph of zeros only: the error relative to it is undefined")
    return (x_hat - x).square().sum(-1) / size
