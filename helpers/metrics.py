"""Every number in a table: one value per graph, and its mean with a 95 % interval.

Arguments are tensors or arrays, `w` (..., E) of weights or `a` (..., E) of zeros and ones (see `binarise`).
Results are float64 tensors of the leading shape, on the CPU. What is undefined for an empty graph is NaN.
"""

import warnings
from functools import lru_cache
from typing import NamedTuple

import networkx as nx
import numpy as np
import torch
from scipy import stats
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial.distance import squareform
from scipy.special import zeta
from sklearn.metrics import average_precision_score, precision_recall_curve

from .graphs import degrees, n_nodes, to_matrix

KS_METHODS = ("bootstrap", "powerlaw", "continuous")
LARGE_XMIN = 100  # from here on a rounded continuous power law stands in for the zeta function


# --- weights ------------------------------------------------------------------------------------------------


def gmse(w_hat, w):
    """Graph mean squared error ||w_hat - w||^2 / ||w||^2: two (..., E) -> (...)."""
    return _squared_ratio(*_checked(w_hat=w_hat, w=w), "w")


def nmse(theta_hat, theta):
    """||Theta_hat - Theta||_F^2 / ||Theta||_F^2, diagonal included, not in dB: two (..., m, m) -> (...)."""
    theta_hat, theta = _checked(theta_hat=theta_hat, theta=theta)
    if theta.ndim < 2 or theta.shape[-1] != theta.shape[-2]:
        raise ValueError(f"theta has shape {tuple(theta.shape)}: square matrices (..., m, m) are needed")
    return _squared_ratio(theta_hat.flatten(-2), theta.flatten(-2), "theta")


def diagonal_share(theta_hat, theta):
    """Share of ||Theta_hat - Theta||_F^2 that lies on the diagonal: two (..., m, m) -> (...)."""
    theta_hat, theta = _checked(theta_hat=theta_hat, theta=theta)
    error = (theta_hat - theta).square()
    return error.diagonal(dim1=-2, dim2=-1).sum(-1) / error.sum((-2, -1))


def mean_ci(values, level=0.95):
    """Mean and half width of its Student interval, t((1+level)/2, n-1) x standard error: two floats."""
    values = _checked(values=values)[0].flatten().numpy()
    if values.size < 2:
        raise ValueError(f"values has {values.size} entries: an interval needs at least 2")
    if not 0 < level < 1:
        raise ValueError(f"level={level}: between 0 and 1, both excluded")
    half_width = stats.t.ppf((1 + level) / 2, values.size - 1) * stats.sem(values)
    return float(values.mean()), float(half_width)


def pairwise_spearman(w):
    """Spearman correlation between all pairs of the n graphs `w` (n, E): (n(n-1)/2,)."""
    (w,) = _checked(w=w)
    if w.ndim != 2 or len(w) < 2:
        raise ValueError(f"w has shape {tuple(w.shape)}: at least two graphs as rows (n, E) are needed")
    if (w == w[:, :1]).all(1).any():
        raise ValueError("w has a row of equal weights: its ranks correlate with nothing")
    rho = np.corrcoef(stats.rankdata(w.numpy(), axis=1))
    return torch.from_numpy(rho[np.triu_indices(len(rho), 1)])


# --- which edges exist --------------------------------------------------------------------------------------


def auc(w_hat, w):
    """Area under the ROC curve for the edges w > 0, scored by max(w_hat, 0): two (..., E) -> (...).

    The share of (edge, non-edge) pairs in the right order, ties counting half, from the ranks (Mann-Whitney).
    """
    score, edge = _score_and_label(w_hat, w)
    rank = torch.from_numpy(stats.rankdata(score.numpy(), axis=-1))
    n_edge, n_none = edge.sum(-1), (~edge).sum(-1)
    if (n_none == 0).any():
        raise ValueError("w has a graph with every edge present: AUC needs edges and non-edges in each graph")
    return ((rank * edge).sum(-1) - n_edge * (n_edge + 1) / 2) / (n_edge * n_none)


def average_precision(w_hat, w):
    """Average precision for the edges w > 0, scored by max(w_hat, 0): two (..., E) -> (...)."""
    score, edge = _score_and_label(w_hat, w)
    return _each_graph(lambda s, e: average_precision_score(e, s), score, edge)


def binarise(w_hat, threshold):
    """Ones where w_hat > threshold >= 0, else zeros: (..., E) -> (..., E)."""
    (w_hat,) = _checked(w_hat=w_hat)
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
    harmonic, cut = harmonic[:-1][cut > 0], cut[cut > 0]
    if not cut.size:
        return 0.0  # nothing is ever predicted
    return float(np.r_[0, cut][harmonic.argmax() :][:2].mean())


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
    count, mean, share = (
        torch.bincount(place, x.flatten().double(), minlength=n_bins)
        for x in (torch.ones_like(probability), probability, edge)
    )
    full = count > 0
    return mean[full] / count[full], share[full] / count[full], count[full]


def calibration_error(probability, w, n_bins=10):
    """Expected calibration error: mean over all entries of |mean probability - share of edges| of their bin."""
    mean, share, count = calibration(probability, w, n_bins)
    return float(count @ (mean - share).abs() / count.sum())


# --- structure ----------------------------------------------------------------------------------------------


def community_score(a, *, blocks=None):
    """Modularity of each graph: (..., E) -> (...), NaN for an empty graph.

    blocks : (m,) or (..., m) labels of a known partition; None finds one by networkx's greedy modularity.
    """
    a = _binary(a)
    if blocks is None:
        return _each_graph(_greedy_modularity, a)
    blocks, m = torch.as_tensor(blocks), n_nodes(a.shape[-1])
    if blocks.ndim < 1 or blocks.shape[-1] != m or blocks.shape[:-1] not in ((), a.shape[:-1]):
        raise ValueError(f"blocks has shape {tuple(blocks.shape)}: ({m},) or {(*a.shape[:-1], m)} is needed")
    return modularity(a, blocks)


def _greedy_modularity(row):
    graph = nx.from_numpy_array(squareform(row))
    if not row.any():
        return np.nan
    return nx.community.modularity(graph, nx.community.greedy_modularity_communities(graph))


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

    return _each_graph(mean_hops, _binary(a))


def n_disconnected(a):
    """How many of the graphs (..., E) are not connected: an int."""
    pieces = _each_graph(lambda row: connected_components(squareform(row), directed=False)[0], _binary(a))
    return int((pieces > 1).sum())


def clustering(a):
    """Mean over the nodes of 2 x triangles / d(d-1), 0 where d < 2: (..., E) -> (...)."""
    A = to_matrix(_binary(a))
    d = A.sum(-1)
    closed = ((A @ A) * A).sum(-1)
    return (closed / (d * (d - 1)).clamp(min=1)).mean(-1)


# --- scale-freeness -----------------------------------------------------------------------------------------


def ks_score(a, *, seed, method="bootstrap", **options):
    """Share of the graphs (..., E) whose degrees may come from a power law, p > .05 in `ks_pvalue`: a float.

    A graph to which no power law can be fitted (p is NaN) counts as a failure.
    """
    p = ks_pvalue(degrees(_binary(a)), seed=seed, method=method, **options)
    return float((p > 0.05).double().mean())


def ks_pvalue(degrees, *, seed, method="bootstrap", n_resamples=200, alpha_range=(1, 100)):
    """Goodness of fit of a power law to degree sequences.

    Each procedure fits the exponent alpha by maximum likelihood to the degrees >= xmin, with the xmin of the
    smallest Kolmogorov-Smirnov distance D, and asks how rare such a D is. The paper does not name its own.

    Parameters
    ----------
    degrees : (..., m) non-negative integers; isolated nodes (degree 0) take no part.
    seed : int >= 0. Each graph has a stream of its own, given by the seed and its sorted degrees: p does
        not depend on node order or place in the batch, and its Monte Carlo error averages out over graphs.
    method : "bootstrap" fits a discrete law, p = share of `n_resamples` semi-parametric resamples, refitted,
        with at least this D (Clauset, Shalizi & Newman 2009, sec. 4.1); "powerlaw" is the discrete fit of the
        powerlaw package, "continuous" a continuous law with two-sided D, both with p from the exact KS
        distribution on the tail, which ignores that alpha and xmin were fitted.
    alpha_range : bounds of alpha, 1 being excluded; powerlaw 2.0 would by default stop at 3. A wide range has
        little power: a steep law fits the far tail of nearly anything, 1000 Poisson degrees included.

    Returns
    -------
    p : (...), NaN where nothing can be fitted: below 2 distinct positive degrees (powerlaw 2.0: below 4).
    """
    (degrees,) = _checked(degrees=degrees)
    if (degrees < 0).any() or (degrees != degrees.round()).any():
        raise ValueError("degrees has negative or fractional values: numbers of neighbours are needed")
    if method not in KS_METHODS:
        raise ValueError(f"method={method!r}: choose one of {', '.join(KS_METHODS)}")
    if n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples}: at least 1")
    low, high = alpha_range
    if not (1 <= low < high and 1.001 < high <= 150):  # zeta(alpha, 99) underflows beyond
        raise ValueError(f"alpha_range={alpha_range}: 1 <= low < high <= 150 is needed")
    alpha_range = max(low, 1.001), high  # the zeta function has its pole at 1

    def pvalue(row):
        x = np.sort(row[row > 0])
        if len(np.unique(x)) < 2:
            return np.nan
        if method == "bootstrap":
            rng = np.random.default_rng([seed, *x.astype(int)])
            return _bootstrap_pvalue(x, alpha_range, n_resamples, rng)
        return _exact_ks_pvalue(x, alpha_range, method)

    return _each_graph(pvalue, degrees)


def _exact_ks_pvalue(x, alpha_range, method):
    if method == "continuous":
        D, _, _, n_tail = _fit_power_law(x[None], alpha_range, discrete=False)
        return stats.kstwo.sf(D[0], n_tail[0])
    import powerlaw  # here because it loads pyplot, which costs a second

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = powerlaw.Fit(x, discrete=True, parameter_ranges={"alpha": list(alpha_range)}, verbose=0)
    return np.nan if np.isnan(fit.D) else stats.kstwo.sf(fit.D, fit.n_tail)


def _bootstrap_pvalue(x, alpha_range, n_resamples, rng):
    """Resamples take the degrees below xmin from the data and those above from the fitted law."""
    (D,), (xmin,), (alpha,), (n_tail,) = _fit_power_law(x[None], alpha_range)
    shape = n_resamples, len(x)
    below = rng.choice(x[x < xmin] if n_tail < len(x) else x, shape)
    tail = _draw_power_law(rng, shape, xmin, alpha)
    resamples = np.where(rng.random(shape) < n_tail / len(x), tail, below)
    D_resampled = _fit_power_law(resamples, alpha_range)[0]
    return (D_resampled >= D - 1e-12).mean()  # equal samples are ties, whatever the rounding


def _fit_power_law(x, alpha_range, discrete=True):
    """D, xmin, alpha and n_tail, each (n,), of the best tails of the samples `x` (n, k).

    A tail holds at least two distinct values. Samples of one value repeated, as may occur among resamples,
    have D = 0 and no entry in the other three.
    """
    values, column = np.unique(x, return_inverse=True)
    n, n_values = len(x), len(values)
    cell = np.arange(n)[:, None] * n_values + column.reshape(x.shape)
    counts = np.bincount(cell.ravel(), minlength=n * n_values).reshape(n, n_values)
    from_here = counts[:, ::-1].cumsum(1)[:, ::-1]  # how many are >= each value
    log_sums = (counts * np.log(values))[:, ::-1].cumsum(1)[:, ::-1]
    present = counts > 0

    sample, start = np.nonzero(present & (from_here > counts))  # the candidate tails, all samples at once
    xmin, n_tail = values[start], from_here[sample, start]
    alpha = _fit_alpha(log_sums[sample, start] / n_tail - np.log(xmin), xmin, alpha_range, discrete)

    tail, point = np.nonzero(present[sample] & (np.arange(n_values) >= start[:, None]))
    n_from = from_here[sample[tail], point]
    n_above = n_from - counts[sample[tail], point]
    x, q, a = values[point], xmin[tail], alpha[tail]
    # the empirical survival function jumps at x: the largest distance is on one of the two sides
    gap = np.maximum(
        np.abs(n_from / n_tail[tail] - _survival(x, q, a, discrete)),
        np.abs(n_above / n_tail[tail] - _survival(x + discrete, q, a, discrete)),
    )
    distance = np.maximum.reduceat(gap, np.searchsorted(tail, np.arange(len(sample)))) if len(sample) else gap

    order = np.lexsort((distance, sample))
    rows, first = np.unique(sample[order], return_index=True)
    best = order[first]
    D = np.zeros(n)
    D[rows] = distance[best]
    return D, xmin[best], alpha[best], n_tail[best]


def _fit_alpha(mean_log, xmin, alpha_range, discrete):
    """Exponents of maximum likelihood, within the range, of tails with mean log(x / xmin) = `mean_log`."""
    shift = np.log(xmin / (xmin - 0.5)) if discrete else 0  # Clauset et al., Eq. (3.7)
    alpha = np.clip(1 + 1 / (mean_log + shift), *alpha_range)
    for q in np.unique(xmin[xmin < LARGE_XMIN]) if discrete else ():
        grid, expected = _expected_log(q, *alpha_range)
        here = xmin == q
        alpha[here] = np.interp(-mean_log[here], -expected, grid)
    return alpha


@lru_cache(maxsize=LARGE_XMIN)
def _expected_log(xmin, low, high, n_grid=2000):
    """A grid of alpha and E log(x / xmin) = -d/dalpha log zeta(alpha, xmin) - log xmin, decreasing, on it."""
    grid = 1 + np.geomspace(low - 1, high - 1, n_grid)
    h = 1e-3 * (grid - 1)
    slope = np.log(zeta(grid + h, xmin) / zeta(grid - h, xmin)) / (2 * h)
    return grid, -slope - np.log(xmin)


def _survival(x, xmin, alpha, discrete=True):
    """P(X >= x) of the power law from `xmin` on."""
    if not discrete:
        return (x / xmin) ** (1 - alpha)
    s = ((x - 0.5) / (xmin - 0.5)) ** (1 - alpha)
    small = xmin < LARGE_XMIN
    s[small] = zeta(alpha[small], x[small]) / zeta(alpha[small], xmin[small])
    return s


def _draw_power_law(rng, shape, xmin, alpha, n_table=1000):
    """Discrete power-law draws: inverse survival function by table, far out by its asymptote."""
    table = xmin + np.arange(n_table)
    s = _survival(table, np.full(n_table, xmin), np.full(n_table, alpha))
    u = 1 - rng.random(shape)
    x = table[np.searchsorted(-s, -u, side="right") - 1]
    far = u < s[-1]
    with np.errstate(over="ignore"):
        beyond = (table[-1] - 0.5) * (s[-1] / u[far]) ** (1 / (alpha - 1)) + 0.5
    x[far] = np.floor(np.minimum(beyond, 1e15))  # integers stay exact
    return x


# --- input --------------------------------------------------------------------------------------------------


def _checked(**named):
    """Float64 CPU tensors of the arguments, finite and of one shape."""
    tensors = {name: torch.as_tensor(x).detach().to("cpu", torch.float64) for name, x in named.items()}
    shapes = {name: tuple(t.shape) for name, t in tensors.items()}
    if () in shapes.values() or len(set(shapes.values())) > 1:
        text = " and ".join(f"{name} has shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"{text}: equal shapes of at least one dimension are needed")
    for name, t in tensors.items():
        if n_bad := int((~t.isfinite()).sum()):
            raise ValueError(f"{name} has {n_bad} NaN or infinite entries of {t.numel()}: finite ones are needed")
    return tuple(tensors.values())


def _binary(a):
    (a,) = _checked(a=a)
    n_nodes(a.shape[-1])  # raises where there is no such m
    if not ((a == 0) | (a == 1)).all():
        raise ValueError(f"a has values in [{a.min():.3g}, {a.max():.3g}]: only 0 and 1, see binarise")
    return a


def _score_and_label(w_hat, w):
    w_hat, w = _checked(w_hat=w_hat, w=w)
    if not (w > 0).any(-1).all():
        raise ValueError("w has a graph without edges: each graph needs at least one")
    return w_hat.clamp(min=0), w > 0


def _squared_ratio(x_hat, x, name):
    size = x.square().sum(-1)
    if (size == 0).any():
        raise ValueError(f"{name} has a graph of zeros only: the error relative to it is undefined")
    return (x_hat - x).square().sum(-1) / size


def _each_graph(f, *batches):
    """The number f(row, ...) of every row of (..., k) tensors: (...)."""
    rows = zip(*(b.reshape(-1, b.shape[-1]).numpy() for b in batches), strict=True)
    return torch.tensor([f(*r) for r in rows], dtype=torch.float64).reshape(batches[0].shape[:-1])


# --- known groups of nodes, known groups of graphs ----------------------------------------------------------


def modularity(w, blocks):
    """Newman's modularity of the partition `blocks` (m,) or (..., m) of weighted graphs: (..., E) -> (...)."""
    d, blocks = degrees(w), torch.as_tensor(blocks)
    total = d.sum(-1)  # twice the weight of all edges; 0 gives a NaN
    surplus = to_matrix(w) - d[..., :, None] * d[..., None, :] / total[..., None, None]
    return (surplus * (blocks[..., :, None] == blocks[..., None, :])).sum((-2, -1)) / total


def within_share(w, blocks):
    """Share of the weight on edges within the blocks (m,): (..., E) -> (...)."""
    blocks = torch.as_tensor(blocks)
    return (to_matrix(w) * (blocks[:, None] == blocks)).sum((-2, -1)) / (2 * w.sum(-1))


def relabelled(statistic, w, blocks, *, seed, n=999):
    """`statistic(w, blocks)` for n random relabellings of the nodes of one graph: (n,)."""
    rng, blocks = np.random.default_rng(seed), np.asarray(blocks)
    return torch.stack([statistic(w, rng.permutation(blocks)) for _ in range(n)])


def rank_of(w, k):
    """The rank, 1 for the heaviest, of edge k in each graph (..., E): (...)."""
    return (w > w[..., k : k + 1]).sum(-1) + 1


class GroupTest(NamedTuple):
    """Effect size (d, group True minus False), p of a permutation test, p corrected for all columns."""

    d: np.ndarray
    p: np.ndarray
    p_corrected: np.ndarray


def permutation_test(values, group, strata, *, seed, n=4999):
    """Do two groups differ in the mean of each column of `values` (n_subjects, k)? Two-sided.

    A regression on group and `strata` (n_subjects,), such as sites; d is the group's coefficient over the residual
    standard deviation. Labels are exchanged within strata. The correction compares each column with the largest |d|
    of any column (Westfall and Young).
    """
    group, (_, strata) = np.asarray(group, dtype=bool), np.unique(strata, return_inverse=True)
    share = np.eye(strata.max() + 1)[strata]
    share /= share.sum(0)  # strata' means are share.T @ x
    x = np.asarray(values, dtype=np.float64)
    x = x - (share.T @ x)[strata]
    rng, shape = np.random.default_rng(seed), (n, len(x))
    shuffled = np.empty(shape, dtype=bool)
    shuffled[:, np.argsort(strata, kind="stable")] = group[np.lexsort((rng.random(shape), np.tile(strata, (n, 1))))]
    g = np.concatenate([group[None], shuffled]) - (share.T @ group)[strata]
    size = (g**2).sum(1, keepdims=True)
    b = g @ x / size
    d = b / np.sqrt(((x**2).sum(0) - b**2 * size) / (len(x) - share.shape[1] - 1))
    exceeds = np.abs(d) >= np.abs(d[0]) * (1 - 1e-12)  # the observed labels are one of the permutations
    largest = np.abs(d).max(1, keepdims=True) >= np.abs(d[0]) * (1 - 1e-12)
    return GroupTest(d[0], exceeds.mean(0), largest.mean(0))
