"""Are degrees scale-free? Power laws fitted to the tails of degree sequences, and how well they fit (the KS score).

The paper reports the share of graphs that pass a Kolmogorov-Smirnov test, and does not name its procedure. Here are
three: see `ks_pvalue`.
"""

import warnings
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import zeta

from ..graphs import degrees
from ..metrics import check_binary, check_finite, per_graph

METHODS = ("bootstrap", "powerlaw", "continuous")
LEAST_ALPHA = 1.001  # the zeta function has its pole at 1
MOST_ALPHA = 150  # beyond, zeta(alpha, 99) underflows
LARGE_XMIN = 100  # from here on a rounded continuous power law stands in for the zeta function
LARGEST_DRAW = 1e15  # integers up to here are exact in float64


class PowerLaws(NamedTuple):
    """Fits to n samples, each (n,): of the degrees >= xmin, `n_tail` in number, P(x) is proportional to x^-alpha.

    D is the Kolmogorov-Smirnov distance, the largest one between the tail's survival function and the fitted one.
    """

    D: np.ndarray
    xmin: np.ndarray
    alpha: np.ndarray
    n_tail: np.ndarray


# --- tests ---------------------------------------------------------------------------------------------------------


def ks_score(a, *, seed, method="bootstrap", **options):
    """Share of the graphs `a` (..., E) whose degrees may come from a power law, p > .05 in `ks_pvalue`: a float.

    A graph to which no power law can be fitted (p is NaN) counts as a failure.
    """
    p = ks_pvalue(degrees(check_binary(a)), seed=seed, method=method, **options)
    return float((p > 0.05).double().mean())


def ks_pvalue(d, *, seed, method="bootstrap", n_resamples=200, alpha_range=(1, 100)):
    """Goodness of fit of a power law to degree sequences.

    Each procedure fits the exponent alpha by maximum likelihood to the degrees >= xmin, with the xmin of the
    smallest Kolmogorov-Smirnov distance D, and asks how rare such a D is.

    Parameters
    ----------
    d : (..., m) degrees, non-negative integers; isolated nodes (degree 0) take no part.
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
    (d,) = check_finite(degrees=d)
    if (d < 0).any() or (d != d.round()).any():
        raise ValueError("degrees has negative or fractional values: numbers of neighbours are needed")
    if method not in METHODS:
        raise ValueError(f"method={method!r}: choose one of {', '.join(METHODS)}")
    if n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples}: at least 1")
    low, high = alpha_range
    if not (1 <= low < high and LEAST_ALPHA < high <= MOST_ALPHA):
        raise ValueError(f"alpha_range={alpha_range}: 1 <= low < high <= {MOST_ALPHA} is needed")
    alpha_range = max(low, LEAST_ALPHA), high

    def pvalue(row):
        return _pvalue(tuple(np.sort(row[row > 0]).astype(int).tolist()), seed, method, n_resamples, alpha_range)

    return per_graph(pvalue, d)


@lru_cache(maxsize=10_000)  # good methods find the same graphs, and so the same degrees
def _pvalue(d, seed, method, n_resamples, alpha_range):
    """The p-value of one graph; `d` is the tuple of its positive degrees in rising order."""
    x = np.array(d, float)
    if len(set(d)) < 2:
        return np.nan
    if method == "bootstrap":
        return _bootstrap_pvalue(x, alpha_range, n_resamples, np.random.default_rng([seed, *d]))
    if method == "continuous":
        fit = fit_power_laws(x[None], alpha_range, discrete=False)
        return stats.kstwo.sf(fit.D[0], fit.n_tail[0])
    return _powerlaw_pvalue(x, alpha_range)


def _bootstrap_pvalue(x, alpha_range, n_resamples, rng):
    """Resamples take the degrees below xmin from the data and those above from the fitted law."""
    (D,), (xmin,), (alpha,), (n_tail,) = fit_power_laws(x[None], alpha_range)
    shape = n_resamples, len(x)
    below = rng.choice(x[x < xmin] if n_tail < len(x) else x, shape)
    tail = draw_power_law(rng, shape, xmin, alpha)
    resamples = np.where(rng.random(shape) < n_tail / len(x), tail, below)
    D_resampled = fit_power_laws(resamples, alpha_range).D
    return (D_resampled >= D - 1e-12).mean()  # equal samples are ties, whatever the rounding


def _powerlaw_pvalue(x, alpha_range):
    import powerlaw  # here because it loads pyplot, which costs a second

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = powerlaw.Fit(x, discrete=True, parameter_ranges={"alpha": list(alpha_range)}, verbose=0)
    return np.nan if np.isnan(fit.D) else stats.kstwo.sf(fit.D, fit.n_tail)


# --- fits ----------------------------------------------------------------------------------------------------------


def fit_power_laws(x, alpha_range, discrete=True):
    """The power law of the best tail of each sample: x (n, k) -> PowerLaws of (n,).

    Each value of a sample except its largest may be the xmin where a tail starts. Each of these tails has an
    exponent of maximum likelihood and, with it, a distance D; the tail of least D is the sample's fit. A sample of
    one value repeated, as may occur among resamples, has no tail: D = 0, and the rest is NaN.

    All tails of all samples are fitted at once. Arrays marked (t,) have one entry per tail.
    """
    values, counts = _count_values(x)
    n_from = _sums_from(counts)
    logs_from = _sums_from(counts * np.log(values))

    sample, start = np.nonzero((counts > 0) & (n_from > counts))  # (t,): whose tail, and which value is its xmin
    xmin = values[start]
    n_tail = n_from[sample, start]
    mean_log = logs_from[sample, start] / n_tail - np.log(xmin)
    alpha = _fit_alpha(mean_log, xmin, alpha_range, discrete)
    D = _ks_distances(values, counts, sample, start, alpha, discrete)

    with_tail, best = _least_of_each(D, sample)
    fits = np.full((4, len(x)), np.nan)
    fits[0] = 0
    fits[:, with_tail] = np.stack([D, xmin, alpha, n_tail])[:, best]
    return PowerLaws(*fits)


def _count_values(x):
    """The distinct values of all samples x (n, k), (v,) in rising order, and how often each sample has them, (n, v)."""
    values, column = np.unique(x, return_inverse=True)
    n, v = len(x), len(values)
    cell = np.arange(n)[:, None] * v + column.reshape(x.shape)
    return values, np.bincount(cell.ravel(), minlength=n * v).reshape(n, v)


def _sums_from(table):
    """The sum of each row from a column on, that column included: (n, v) -> (n, v)."""
    return table[:, ::-1].cumsum(1)[:, ::-1]


def _ks_distances(values, counts, sample, start, alpha, discrete):
    """Largest distance between the tails' survival functions and the fitted ones: (t,).

    A tail's survival function is flat between the values that occur in it, so that only these matter. It jumps at
    each of them, from the share of entries >= the value to the share > the value: both sides of the jump count.
    """
    # (p,): one entry per value that occurs in a tail, ordered by tail
    tail, point = np.nonzero((counts[sample] > 0) & (np.arange(len(values)) >= start[:, None]))
    of_sample = sample[tail]
    n_from = _sums_from(counts)
    n_here = n_from[of_sample, point]
    n_above = n_here - counts[of_sample, point]
    n_tail = n_from[of_sample, start[tail]]
    x = values[point]
    total = _normaliser(values[start], alpha)[tail] if discrete else None  # once per tail: the zeta function is slow
    law = values[start[tail]], alpha[tail], discrete, total
    before = np.abs(n_here / n_tail - _survival(x, *law))
    after = np.abs(n_above / n_tail - _survival(x + 1 if discrete else x, *law))
    first_point = np.searchsorted(tail, np.arange(len(sample)))
    return np.maximum.reduceat(np.maximum(before, after), first_point)


def _least_of_each(distance, sample):
    """The samples that occur in `sample` (t,), and for each of them the index of its smallest distance."""
    order = np.lexsort((distance, sample))
    samples, first = np.unique(sample[order], return_index=True)
    return samples, order[first]


def _fit_alpha(mean_log, xmin, alpha_range, discrete):
    """Exponents of maximum likelihood, within the range, of tails with mean log(x / xmin) = `mean_log`: all (t,)."""
    shift = np.log(xmin / (xmin - 0.5)) if discrete else 0  # Clauset et al., Eq. (3.7)
    alpha = np.clip(1 + 1 / (mean_log + shift), *alpha_range)
    if discrete:  # small xmin: the likelihood's maximum is where E log(x / xmin) is the tail's mean
        for q in np.unique(xmin[xmin < LARGE_XMIN]):
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


def _normaliser(xmin, alpha):
    """Sum of k^-alpha from `xmin` on, where xmin is small enough for it to be used: both (t,) -> (t,)."""
    total = np.ones(len(alpha))
    small = xmin < LARGE_XMIN
    total[small] = zeta(alpha[small], xmin[small])
    return total


def _survival(x, xmin, alpha, discrete=True, total=None):
    """P(X >= x) of the power law from `xmin` on, all of one shape; `total` is the `_normaliser`, if it is known."""
    if not discrete:
        return (x / xmin) ** (1 - alpha)
    s = ((x - 0.5) / (xmin - 0.5)) ** (1 - alpha)
    small = xmin < LARGE_XMIN
    total = _normaliser(xmin, alpha) if total is None else total
    s[small] = zeta(alpha[small], x[small]) / total[small]
    return s


def draw_power_law(rng, shape, xmin, alpha, n_table=1000):
    """Discrete power-law draws: the inverse survival function by table, far out by its asymptote."""
    table = xmin + np.arange(n_table)
    s = _survival(table, np.full(n_table, xmin), np.full(n_table, alpha))
    u = 1 - rng.random(shape)
    x = table[np.searchsorted(-s, -u, side="right") - 1]
    far = u < s[-1]
    with np.errstate(over="ignore"):
        beyond = (table[-1] - 0.5) * (s[-1] / u[far]) ** (1 / (alpha - 1)) + 0.5
    x[far] = np.floor(np.minimum(beyond, LARGEST_DRAW))
    return x
