"""Reasons to distrust a graph, seen in the data: each a sentence that says what to do, or None.

`GraphLearner` warns of them and keeps them in `doubts_`. Data that follow the model should hardly ever raise one.
"""

import math

import numpy as np
from scipy import sparse, stats

from .broad_law import LAW
from .moments import (
    COPY,
    MIN_LAGS,
    MIN_VALUES,
    add_white_signal,
    autocorrelations,
    effective_share,
    fill_constant,
    lags_to_forget,
    some_columns,
)

NODES, SAMPLES = LAW["nodes"], LAW["n_signals"]  # what the broad network was trained on
DENSITY = 0.9  # edges per pair of nodes, of graphs that have
MIN_DENSE = 10  # nodes
UNITS = 100  # between the largest and the smallest standard deviation
ALIKE = 1e-4  # share of its variance that a copy of another column has for itself
NEGATIVE = -0.2  # partial correlation
MIN_OPPOSED = 5  # negative edges,
SHARE_OPPOSED = 0.25  # and of all of them
BY_CHANCE = 0.001
UNROLLING_NODES = 20  # of the graphs that method="unrolling" was trained on
WORTH = 0.8  # independent samples per row, below which it matters
PATTERN = 5  # standard errors of the autocorrelation that a pattern leaves, long after samples forget
AGAIN = 0.8  # of its maximum, is an autocorrelation that is high again
MAX_LAGS = 400  # rows within which a pattern comes again
N_NAMED = 3


def of_columns(y, edges, deviations, n_signals, names, *, scaled):
    """Different units, unless they were `scaled`, columns that never vary, and copies; y (E,), edges (2, E)."""
    if not scaled:
        yield of_units(deviations, names)
        yield of_constant_columns(deviations, names)
    yield of_copies(y, deviations, edges, n_signals, names)


def of_units(deviations, names):
    """Columns in different units; standard deviations (m,) before any scaling.

    A single column may vary so much more than others because it has hardly any neighbours; several do not.
    """
    positive = deviations > 0
    found = deviations[positive]
    low, high = np.quantile(found, [0.1, 0.9])
    ratio = found.max() / found.min()
    if not (ratio > UNITS**1.5 or (ratio > UNITS and high > UNITS**0.5 * low)):
        return None
    least, most = names[positive][[found.argmin(), found.argmax()]].tolist()
    fold = float(f"{ratio:.2g}")
    return (
        f"standard deviations of the columns differ {fold:,.0f}-fold, from {least!r} to {most!r}, as if they had "
        "different units: try standardise=True"
    )


def of_constant_columns(deviations, names):
    constant = [repr(name) for name in names[deviations == 0].tolist()]
    if not constant:
        return None
    return f"{_several(constant, 'column')} never varied: nothing is known of their edges; drop such columns"


def of_copies(y, deviations, edges, n_signals, names):
    """Columns that nearly are copies, up to sign, by the distances y (E,) of the pairs `edges` (2, E).

    n_signals : the samples behind all pairs, or (m, m) behind each; of two, every two columns look like copies
    """
    i, j = np.asarray(edges)
    n = n_signals[i, j] if np.ndim(n_signals) else n_signals
    a, b = deviations[i], deviations[j]
    varied = (a > 0) & (b > 0)
    product = np.where(varied, a * b, 1)
    gap = np.where(varied, (y - (a - b) ** 2) / product, 1).clip(0, 4)  # 2 (1 - r)
    unexplained = gap * (1 - gap / 4)  # 1 - r^2
    m = len(deviations)
    by_chance = m * (m - 1) / 2 * stats.beta.cdf(unexplained, np.maximum(n - 1, 0.01) / 2, 0.5)  # among all pairs
    limit = max(ALIKE * np.median(unexplained), COPY)
    alike = np.flatnonzero((unexplained <= limit) & (by_chance < 0.001) & (n >= 2))
    if not len(alike):
        return None
    pairs = [f"{a!r} and {b!r}" for a, b in zip(names[i[alike]].tolist(), names[j[alike]].tolist())]
    return (
        f"{_several(pairs, 'pair')} of columns are (nearly) copies of each other: their edge says nothing of the other "
        "columns, and which of the two has the other edges is chance; keep one of each"
    )


def of_negative_correlations(S, n_signals, names):
    """Strong negative partial correlations in second moments S (m, m), where the model has none."""
    m = len(S)
    freedom = n_signals - m
    if m < 3 or freedom < 10:
        return None
    S = fill_constant(S, n_signals)
    d = np.sqrt(np.diag(S))
    K = np.linalg.inv(add_white_signal(S / np.outer(d, d), n_signals))  # of correlations, whatever the units are
    d = np.sqrt(np.diag(K))
    i, j = np.triu_indices(m, 1)
    r = -(K / np.outer(d, d))[i, j]
    noise = (math.sqrt(2 * math.log(len(r))) + 2) / math.sqrt(freedom)
    strong = r < min(NEGATIVE, -noise)
    if not strong.any():
        return None
    worst = r.argmin()
    a, b = names[[i[worst], j[worst]]].tolist()
    return (
        f"{strong.sum()} of {len(r)} partial correlations are clearly negative, that of {a!r} and {b!r} about "
        f"{r[worst]:.2f}, and this model has positive ones only: take method='equivariant', prior='broad', "
        "signed=True, which also tells whether they look like a trace of smoothing"
    )


def of_time(Z):
    """Rows that follow each other in time; Z (n, m)."""
    rho = autocorrelations(Z[:, :: max(1, Z.shape[1] // 500)])[0]
    known = ~np.isnan(Z)
    n_pairs = (known[1:] & known[:-1]).sum(0).mean()
    if not math.sqrt((rho**2).mean() * n_pairs) > 3:
        return None
    share = effective_share(Z)
    if share > WORTH:
        return None
    return (
        f"rows resemble the rows before them, as in a time series: {len(Z):,} rows are worth about "
        f"{share * len(Z):,.0f} independent ones, and probabilities are too sure. Set time_series=True, or to keep "
        "the rows as they are n_independent='auto'; if their order means nothing, n_independent=n_samples silences this"
    )


def of_pattern(Z):
    """A pattern that comes again and again, or a level that changes, in rows Z (n, m) as they are, before any filter.

    Samples that forget leave autocorrelations of the size of 1 / sqrt(independent samples) long afterwards. What stays
    joins the columns that have it, however many rows there are. It matters if by all lags at which it is seen rows are
    worth much less; one lag is no pattern, but two outliers.
    """
    Z = some_columns(Z)
    size = np.nanmax(np.abs(Z), 0)
    Z = Z / np.where(size > 0, size, 1)  # so that squares are in range
    rho = autocorrelations(Z)[: min(len(Z) // 4, MAX_LAGS)]
    if not len(rho):
        return None
    shared, n_lags = lags_to_forget(rho)
    far = shared[2 * n_lags :]
    chance = 1 / (len(Z) * (~np.isnan(Z)).mean() ** 2)
    if not (far > PATTERN**2 * chance).any():  # even if rows were independent
        return None
    share = effective_share(Z)
    chance /= share
    seen = far[far > (PATTERN / 2) ** 2 * chance]
    if len(seen) < MIN_LAGS or not (seen > PATTERN**2 * chance).any() or 1 / (1 / share + 2 * seen.sum()) > WORTH:
        return None
    k = find_period(rho.mean(1), 2 * n_lags)
    if k:
        what, rest = (
            f"those {k:,} rows before them, as if a pattern came back every {k:,} rows",
            "the mean of each phase",
        )
    else:
        what, rest = "those long before them, as with a trend or a level that changes", "the trend or level"
    return (
        f"rows resemble {what}: columns that follow it look connected. If their order means something, subtract {rest} "
        "first, which neither n_independent='auto' nor time_series=True does; otherwise n_independent=n_samples "
        "silences this"
    )


def find_period(rho, start):
    """The first lag at which an autocorrelation rho (K,) is high again; None if it only falls before its maximum.

    start : lags that the maximum comes after
    """
    top = start + rho[start:].argmax()
    low = np.flatnonzero(rho[:top] < rho[top] / 2)
    if not len(low):
        return None
    high = low[0] + np.flatnonzero(rho[low[0] : top + 1] > AGAIN * rho[top])
    together = high[: 1 + np.flatnonzero(np.diff(high, append=top + 2) > 1)[0]]
    return int(together[rho[together].argmax()]) + 1


def of_size(probability, n_signals):
    """Numbers of nodes, of samples or of edges that the network hardly ever saw; probability (m, m)."""
    m = probability.shape[0]
    for name, value, (low, high) in (("nodes", m, NODES), ("independent samples", n_signals, SAMPLES)):
        if not low <= value <= high:
            yield (
                f"{value:,.6g} {name} are outside of {low} to {high:,}, which the network was trained on: check the "
                "graph on data that you know, or compare with method='mle'"
            )
    n_pairs = m * (m - 1) // 2
    n_edges = probability.sum() / 2  # as many as are expected
    if m >= MIN_DENSE and n_edges > DENSITY * n_pairs:
        yield (
            f"{n_edges:,.0f} of {n_pairs:,} pairs are edges, more than in the graphs that the network was trained on: "
            "look for a cause that all columns share and subtract it, or raise min_probability"
        )


def of_opposed_edges(adjacency, names):
    """Negative edges between nodes that have a positive edge to a third one, (m, m) signed weights, may be sparse.

    In a graph whose signs are drawn at random that is as frequent for negative edges as for positive ones.
    """
    A = sparse.csr_array(sparse.triu(adjacency, 1))
    n_negative = (A < 0).count_nonzero()
    if n_negative < MIN_OPPOSED:
        return None
    positive = ((A + A.T) > 0).astype(np.int64)
    thirds = positive @ positive  # how many nodes have a positive edge to both
    opposed = sparse.coo_array((A < 0) * thirds)
    n_opposed = opposed.count_nonzero()
    if n_opposed < max(MIN_OPPOSED, SHARE_OPPOSED * n_negative):
        return None
    n_bridged = ((A != 0) * thirds).count_nonzero()
    if stats.hypergeom.sf(n_opposed - 1, A.count_nonzero(), n_bridged, n_negative) > BY_CHANCE:
        return None
    a, b = (x[0] for x in opposed.coords)
    c = (positive[[a]] + positive[[b]]).toarray().argmax()
    a, b, c = (repr(name) for name in names[[a, b, c]].tolist())
    return (
        f"{n_opposed:,} of {n_negative:,} negative edges join two nodes that both have a positive edge to a third one, "
        f"such as {a} and {b} to {c}. This happens if signals were smoothed over the graph before they were observed, "
        "or if two nodes act on a third; such a partial correlation is negative, but hardly a link of its own. "
        "signed=False leaves these edges out"
    )


def of_transfer(n_nodes, degree):
    """Another number of nodes than an Unrolling was trained on; `degree` is what it found per node."""
    if n_nodes == UNROLLING_NODES:
        return None
    return (
        f"method='unrolling' was trained on graphs of {UNROLLING_NODES} nodes and X has {n_nodes}: do not rely on "
        f"this graph of {degree:.3g} edges per node. method='equivariant' was trained on many sizes, "
        "method='exact' needs no training"
    )


def of_repair(clipped):
    """Moments that no table has; `clipped` is the depth of the most negative eigenvalue of the correlations."""
    if clipped < 0.01:
        return None
    return (
        f"correlations put together pair by pair contradict each other (smallest eigenvalue {-clipped:.2g}); the "
        "nearest possible ones were taken. With many gaps, drop the columns that have most of them"
    )


def of_gaps(counts, names):
    """Pairs of columns that hardly any row has both of; counts (m, m)."""
    least = min(MIN_VALUES, counts.max())
    i, j = np.nonzero(np.triu(counts < least, 1))
    if not len(i):
        return None
    pairs = [f"{a!r} and {b!r}" for a, b in zip(names[i].tolist(), names[j].tolist())]
    return (
        f"{_several(pairs, 'pair')} of columns share fewer than {least:.0f} rows: their probability is a guess "
        "from the other columns; drop a column or find rows that have both"
    )


def _several(texts, noun):
    """ "5 columns ('a', 'b', 'c', ...)"."""
    named = ", ".join([*texts[:N_NAMED], *(["..."] if len(texts) > N_NAMED else [])])
    return f"{len(texts):,} {noun}{'s' if len(texts) > 1 else ''} ({named})"
