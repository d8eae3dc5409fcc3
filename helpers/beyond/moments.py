"""From a table to second moments: centring, scaling, missing values, outliers, samples that follow each other in time.

X (n_samples, m) may contain NaN. What is missing is filled by what the known values of its row say of it, see
`most_likely_moments`, and the number of rows that have both columns of a pair tells how sure one can be. Robust
correlations are put together pair by pair, and need not be those of any one table: negative eigenvalues are clipped.
NumPy, float64.
"""

import math
from collections import Counter
from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_toeplitz
from sklearn.utils import check_array

from ..engine.gaps import fill
from ..graphs import all_pairs
from ..signals import CUT, pair_distances, root_mean_square

MIN_VALUES = 3  # of a column with gaps, and of a pair of columns: two points always lie on a line
MIN_LAGS = 3
WINDOW = 3  # lags are summed up to so many times the time within which samples forget
ORDER = 10  # a filter looks back at most so many rows, times log10(n)
MAX_SERIES = 500  # columns among which pairs are averaged, and
MAX_VALUES = 2**24  # values that are transformed at once
MOST_SAMPLES = 1e15  # that data may be worth: whole numbers are exact up to there
LARGEST = 1e152  # of |X|, and 1 / LARGEST the least: weights are of the size of 1 / X^2
MAX_SPREAD = 1e70  # between the variances of two columns
N_STEPS = 20  # of the EM algorithm
WHITE = 0.1  # of a signal per column: what is added to second moments before they fill gaps
ROUNDING = 1e-15  # of the largest distance, is what may remain of that of two equal columns
COPY = 1e-9  # share of a variance that another column leaves unexplained: below, rounding is all there is


class Moments(NamedTuple):
    """Second moments of a table, its number of rows per pair, and what it took to get there.

    matrix : S (m, m), positive semidefinite
    counts : (m, m), rows that have both columns of a pair
    mean : (m,), of the columns, which is not 0 if gaps were filled and the mean was to be estimated
    clipped : the most negative eigenvalue that the correlations had, as a positive number; 0 if there was none
    """

    matrix: np.ndarray
    counts: np.ndarray
    mean: np.ndarray
    clipped: float = 0.0


# --- options, tables and names ----------------------------------------------------------------------------------------


def is_number(x, low, high):
    return isinstance(x, Real) and not isinstance(x, bool) and low <= x <= high


def unmask(X):
    """X with NaN where a masked array hides its values."""
    return X.astype(np.float64).filled(np.nan) if np.ma.isMaskedArray(X) else X


def name_columns(X):
    """X, whose column labels, if it is a frame of pandas, are text: scikit-learn forgets or refuses all others."""
    if not hasattr(X, "set_axis") or not hasattr(X, "columns"):
        return X
    names = check_names(X.columns, X.shape[1])
    return X if names is None or names == list(X.columns) else X.set_axis(names, axis=1)


def check_names(labels, m):
    """Names of m columns, a list of text; None if there are none or the numbers 0, 1, ..., as of a frame without."""
    if labels is None:
        return None
    if isinstance(labels, str | dict | set | frozenset) or not hasattr(labels, "__len__"):
        raise ValueError(f"names={labels!r}: a list with one name per column is needed")
    if len(labels) != m:
        raise ValueError(f"names has {len(labels)} entries and S {m} columns: one per column is needed")
    names = [str(label) for label in labels]
    often = Counter(names)
    unclear = [label for label, name in zip(labels, names) if label is None or often[name] > 1]
    if unclear:
        raise ValueError(f"column names {unclear[:5]} are missing or not the only ones: give each column its own name")
    is_text = any(isinstance(label, str) for label in labels)
    return None if names == [str(k) for k in range(m)] and not is_text else names


# --- centre and scale -------------------------------------------------------------------------------------------------


def location_and_scale(X, names, *, centre, standardise, robust):
    """What the columns of X are centred on and divided by, each (m,)."""
    gaps = np.isnan(X).any()
    median, mean = (np.nanmedian, np.nanmean) if gaps else (np.median, np.mean)
    middle = median if robust else mean
    location = middle(X, 0) if centre else np.zeros(X.shape[1])
    least = np.nanmin(X, 0)
    rests = centre & (least == np.nanmax(X, 0))  # at one value, from which a mean may differ by rounding
    location = np.where(rests, least, location)
    scale = np.ones(X.shape[1])
    if standardise:
        sizes = np.nanmax(np.abs(X - location), 0)
        size = np.where(
            (sizes > 0) & (sizes < 1e-100 * sizes.max()), sizes, sizes.max() or 1.0
        )  # squares stay in range
        scale = size * root_mean_square((X - location) / size, robust=robust)
        check_scale(scale, names)
    if robust and centre:  # again without what rows have in common, which blurs medians, not differences
        Z = (X - location) / scale
        location = location + ~rests * scale * median(Z - median(Z, 1, keepdims=True), 0)
    return location, scale


def check_scale(scale, names):
    """ValueError with the names of columns that have no scale (m,) to divide by."""
    if not scale.all():
        constant = names[scale == 0][:5].tolist()
        raise ValueError(f"X has constant columns, {constant}: drop them, or do not standardise")


def check_range(X):
    """ValueError if weights for X (n, m) would be out of range."""
    if (np.abs(X) > LARGEST).any():
        raise ValueError(f"X has values beyond {LARGEST:g}: weights go with 1 / X^2; divide X by a number of that size")


def scale_moments(S, names, *, standardise):
    """Second moments (m, m) in units of a scale (m,), as by `location_and_scale`, and of the median deviation."""
    scale = np.sqrt(np.diag(S)) if standardise else np.ones(len(S))
    check_scale(scale, names)
    S = S / scale / scale[:, None]
    unit = check_unit(math.sqrt(np.median(np.diag(S)[np.diag(S) > 0])))
    return S / unit / unit, scale, unit


def find_unit(Z, *, may_agree):
    """The median size of centred and scaled samples Z (n, m), in which distances are computed; or ValueError.

    may_agree : whether all columns may have the same values
    """
    if not np.nan_to_num(Z).any() or (is_constant(Z) and not may_agree):
        raise ValueError("X is constant: signals that do not vary say nothing about a graph")
    return check_unit(np.nanmedian(np.abs(Z[Z != 0])))


def check_unit(unit):
    """The unit as a float, or ValueError if weights in it would be out of range."""
    if not 1 / LARGEST <= unit <= LARGEST:
        raise ValueError(
            f"X varies by {unit:.0e}: weights go with 1 / X^2; divide X by a number of that size, or S by its square"
        )
    return float(unit)


def is_constant(Z):
    """Whether every sample (row) has one value at all nodes."""
    return (Z == Z[:, :1]).all()


def check_spread(variances, names):
    """ValueError if columns are of so different units that their products are out of range; variances (m,)."""
    positive = variances > 0
    found = variances[positive]
    if found.max() > MAX_SPREAD * found.min():
        least, most = names[positive][[found.argmin(), found.argmax()]].tolist()
        ratio = math.sqrt(found.max()) / math.sqrt(found.min())
        raise ValueError(f"column {most!r} of X varies {ratio:.0e} times as much as {least!r}: set standardise=True")


def bring_to_one_size(Z):
    """Rows of Z (n, m) divided by their robust size, in units of the median one; a row of one value stays."""
    median = np.nanmedian if np.isnan(Z).any() else np.median
    size = root_mean_square((Z - median(Z, 1, keepdims=True)).T, robust=True)
    if size.any():
        size = np.divide(np.median(size[size > 0]), size, where=size > 0, out=np.ones_like(size))
        Z = Z * size[:, None]
    return Z


def drop_empty_rows(X, names):
    """X without rows that are NaN throughout; ValueError with the names of columns that have too few values."""
    missing = np.isnan(X)
    few = missing.any(0) & ((~missing).sum(0) < MIN_VALUES)
    if few.any():
        raise ValueError(
            f"X has columns with fewer than {MIN_VALUES} values, {names[few][:5].tolist()}: drop these columns"
        )
    return known_rows(X)


def known_rows(X):
    """X without rows that are NaN throughout, or ValueError if all of them are."""
    X = X[~np.isnan(X).all(1)]
    if not len(X):
        raise ValueError(
            "X has no row with a value: rows that have some are needed, and with time_series=True several in turn"
        )
    return X


def check_distinct(y, edges, names, method):
    """ValueError with the names of two columns whose distance, among those of the pairs, y (E,), is 0 but for rounding.

    edges : (2, E), or None for all pairs
    """
    y = np.asarray(y)
    equal = np.flatnonzero(y <= ROUNDING * y.max())
    if len(equal):
        edges = np.asarray(all_pairs(len(names)) if edges is None else edges)
        same = names[edges[:, equal[0]]].tolist()
        raise ValueError(
            f"columns {same} of X are equal, infinitely connected for {method}: drop one of them"
            ", or if they only vary so much less than others set standardise=True"
        )


# --- second moments ---------------------------------------------------------------------------------------------------


def second_moments(Z, *, robust=False, ddof=0):
    """Moments of signals Z (n, m), already centred; ddof = 1 if their means were estimated.

    Without gaps and robustness S = Z'Z / (n - ddof), with gaps what `most_likely_moments` finds. Robust, S_ij is
    r_ij d_i d_j with correlations r over the rows that have both, which are 0 where there are too few, and standard
    deviations d. Always, what all columns have in common cancels from differences.
    """
    known = ~np.isnan(Z)
    counts = known.astype(np.float64).T @ known
    n = np.diag(counts)
    no_mean = np.zeros(Z.shape[1])
    if not robust and known.all():
        return Moments(Z.T @ Z / max(len(Z) - ddof, 1), counts, no_mean)
    S, clipped = pairwise_moments(Z, robust=robust)
    S, mean = (S, no_mean) if robust else most_likely_moments(Z, S, centre=ddof > 0)
    d = np.sqrt(n / np.maximum(n - ddof, 1))
    return Moments(S * np.outer(d, d), counts, mean, clipped if robust else 0.0)


def most_likely_moments(Z, S, *, centre, n_steps=N_STEPS):
    """Second moments (m, m) and mean (m,) of a normal law that make the known values of Z (n, m) likely.

    By the EM algorithm from S (m, m): fill the gaps by their expectations under the law so far, take the moments of
    the table, and add the covariances of what was filled. The law that fills has a little more noise than that, see
    `add_white_signal`: the more columns there are for each row, the less is to be learned from others. Pairs that are
    known in different rows would each have another part of what all columns share, a filled table has one. With
    centre=False the mean stays 0.
    """
    n, m = Z.shape
    Z = np.ascontiguousarray(Z)  # as `fill` was compiled for
    known = ~np.isnan(Z)
    d = np.sqrt(np.diag(fill_constant(S, n)))
    Z = np.nan_to_num(Z) / d
    S = S / np.outer(d, d)
    mean = np.zeros(m)
    for _ in range(n_steps):
        noisy = add_white_signal(fill_constant(S, n), n / (1 + WHITE * m))
        X = Z - mean
        covariance = fill(X, known, np.linalg.inv(noisy))
        if centre:
            step = X.mean(0)
            mean = mean + step
            X -= step
        S = (X.T @ X + covariance) / n
    return (S + S.T) / 2 * np.outer(d, d), mean * d


def pairwise_moments(Z, *, robust=False):
    """S (m, m) with the correlations of each pair over the rows that have both, and what was clipped of it."""
    known = (~np.isnan(Z)).astype(np.float64)
    often = known.T @ known >= min(MIN_VALUES, len(Z))
    d = root_mean_square(Z, robust=robust)
    if not known.all():
        d = _reconcile(np.nan_to_num(np.clip(Z, -CUT * d, CUT * d) if robust else Z), known, d, often)
    R = _robust_correlations(Z, d, often) if robust else _pairwise_correlations(np.nan_to_num(Z), known) * often
    np.fill_diagonal(R, 1)
    R, clipped = clip_eigenvalues(R)
    return R * np.outer(d, d), clipped


def _reconcile(Z, known, d, often):
    """Standard deviations d (m,) whose ratios are those over common rows: log d_i - log d_j, a mean over all j.

    Two columns that share a large part have nearly equal deviations over common rows, but not over different ones.
    """
    varied = d > 0
    log = np.log(np.where(varied, d, 1))
    squares = (Z * Z).T @ known  # of column i, over the rows that have j
    usable = often & (squares > 0) & (squares.T > 0)
    ratio = np.where(usable, np.log(np.where(usable, squares / squares.T.clip(1e-300), 1)) / 2, log[:, None] - log)
    return np.where(varied, np.exp(ratio[:, varied].mean(1) + log[varied].mean()), 0)


def _pairwise_correlations(Z, known):
    """Correlations about 0 over the rows that have both columns: Z (n, m) with zeros for what is not known."""
    squares = (Z * Z).T @ known  # of column i, over the rows that have j
    size = np.sqrt(squares * squares.T)
    return np.divide(Z.T @ Z, size, where=size > 0, out=np.zeros_like(size))


def common_moments(Z, S):
    """S (m, m) with the correlations over the rows of Z (n, m) that have both columns, about their means there.

    Copies of a column have a correlation of 1 then, whatever their gaps; in moments of a table that was filled they
    do not. It is for telling copies: what all columns share does not cancel.
    """
    known = (~np.isnan(Z)).astype(np.float64)
    if known.all():
        return S
    Z = np.nan_to_num(Z)
    n = np.maximum(known.T @ known, 1)
    sums = Z.T @ known  # of column i, over the rows that have j
    squares = ((Z * Z).T @ known - sums**2 / n).clip(0)
    size = np.sqrt(squares * squares.T)
    R = np.divide(Z.T @ Z - sums * sums.T / n, size, where=size > 0, out=np.zeros_like(size))
    d = np.sqrt(np.diag(S))
    return np.where(np.eye(len(S), dtype=bool), S, R * np.outer(d, d))


def _robust_correlations(Z, deviations, often):
    """(s - d) / (s + d), s and d the clipped mean squares of x_i + x_j and x_i - x_j, in units of each column.

    Of the pairs that are known `often` (m, m) enough; 0 for the others.
    """
    m = Z.shape[1]
    Z = np.divide(Z, deviations, where=deviations > 0, out=np.zeros_like(Z))
    edges = np.stack(np.nonzero(np.triu(often, 1)))
    d = pair_distances(Z, edges, robust=True).numpy()
    s = pair_sums(Z, edges, robust=True).numpy()
    R = np.zeros((m, m))
    R[tuple(edges)] = np.divide(s - d, s + d, where=s + d > 0, out=np.zeros_like(s))
    return R + R.T


def pair_sums(Z, edges, *, robust=False):
    """Mean squares of x_i + x_j: `pair_distances` of the signed double cover [Z, -Z], (2, E) -> (E,)."""
    i, j = np.asarray(edges)
    return pair_distances(np.hstack([Z, -Z]), np.stack([i, j + Z.shape[1]]), robust=robust)


def column_variances(Z, n_signals, *, robust=False):
    """Mean squares of the columns of Z (n, m), positive as in `fill_constant`: (m,)."""
    variances = root_mean_square(Z, robust=robust) ** 2
    constant = variances <= 0
    return np.where(constant, np.median(variances[~constant]) / n_signals, variances)


def clip_eigenvalues(R):
    """The positive semidefinite matrix nearest to R (m, m), with R's diagonal again; and the depth that was clipped.

    A correlation matrix that is positive semidefinite but for rounding comes back as it is, with a depth of 0.
    """
    values, vectors = np.linalg.eigh(R)
    if values[0] >= -1e-10 * values[-1]:
        return R, 0.0
    nearest = (vectors * values.clip(0)) @ vectors.T
    d = np.sqrt(np.diag(R) / np.diag(nearest))
    return nearest * np.outer(d, d), float(-values[0])


def repair(S):
    """`clip_eigenvalues` of second moments of any units: (m, m) -> (m, m) and the depth."""
    d = np.sqrt(np.diag(S))
    d = np.where(d > 0, d, 1)
    R, clipped = clip_eigenvalues(S / np.outer(d, d))
    return R * np.outer(d, d), clipped


def check_moments(S, n_samples):
    """S (m, m) as an array of float64 and n_samples as (m, m), or ValueError."""
    S = check_array(unmask(S), dtype=np.float64, ensure_min_samples=2, ensure_min_features=2, input_name="S")
    wish = "a symmetric matrix with variances on its diagonal is needed"
    if len(S) != S.shape[1]:
        raise ValueError(f"S has shape {S.shape}: {wish}")
    if (np.diag(S) < 0).any():
        k = np.diag(S).argmin()
        raise ValueError(f"S[{k}, {k}] is {S[k, k]:g}: {wish}")
    d = np.sqrt(np.diag(S))
    uneven = np.abs(S - S.T) - 1e-6 * np.outer(d, d)
    if (uneven > 0).any():
        i, j = np.unravel_index(uneven.argmax(), S.shape)
        raise ValueError(f"S[{i}, {j}] is {S[i, j]:g} and S[{j}, {i}] is {S[j, i]:g}: {wish}")
    if not d.any():
        raise ValueError("S is zero: signals that do not vary say nothing about a graph")
    return (S + S.T) / 2, check_counts(n_samples, len(S))


def check_counts(n_samples, m):
    """The rows behind each pair of m columns, (m, m) float64, from one number or one per pair; or ValueError."""
    counts = np.asarray(n_samples)
    fits = counts.dtype.kind in "iuf" and counts.shape in ((), (m, m)) and (counts == counts.T).all()
    if not (fits and ((counts >= 1) & (counts <= MOST_SAMPLES)).all()):
        raise ValueError(
            f"n_samples={n_samples!r}: finite numbers of rows, at least 1, are needed, one or symmetric ({m}, {m})"
        )
    return np.broadcast_to(counts.astype(np.float64), (m, m))


def fill_constant(S, n_signals):
    """S (m, m) in which a column that never varies has the N-th part of the median variance."""
    variances = np.diag(S)
    constant = variances <= 0
    return S + np.diag(constant * np.median(variances[~constant]) / n_signals)


def add_white_signal(S, n_signals):
    """S (m, m) as if each column had a little noise of its own: positive definite, with the variances of S.

    As much as one signal among N has of what the most similar column does not explain: column i gets c_i / N, c_i the
    least S_ii - S_ij^2 / S_jj. So neither a large part that all columns share, nor one heavy edge, nor other units make
    a difference. Copies of a column do not count. All variances are positive, see `fill_constant`.
    """
    variances = np.diag(S)
    R = S / np.sqrt(np.outer(variances, variances))
    unexplained = 1 - R**2
    share = np.where(unexplained > COPY, unexplained, 1).min(1)
    d = np.sqrt(1 + share / n_signals)
    R = R / np.outer(d, d)
    np.fill_diagonal(R, 1)
    return R * np.sqrt(np.outer(variances, variances))


def mean_log_likelihood(Z, K, *, unit=1.0, robust=False):
    """Mean log-density of the rows of X = unit Z (n, m) under N(0, unit^2 K^-1).

    Rows with gaps count by the values that they have; robust ones by the moments that `second_moments` finds.
    """
    known = ~np.isnan(Z)
    if robust or known.all():
        S = second_moments(Z, robust=robust).matrix
        constant = len(K) * math.log(2 * math.pi * unit**2)
        return float(np.linalg.slogdet(K)[1] - (S * K).sum() - constant) / 2
    Sigma = np.linalg.inv(K)
    patterns, which = np.unique(known, axis=0, return_inverse=True)
    total = 0.0
    for k, on in enumerate(patterns):
        if on.any():
            rows = Z[which.ravel() == k][:, on]
            total += len(rows) * mean_log_likelihood(rows, np.linalg.inv(Sigma[np.ix_(on, on)]), unit=unit)
    return total / len(Z)


# --- samples that follow each other in time ---------------------------------------------------------------------------


def autocorrelations(Z):
    """Autocorrelations of the columns of Z (n, m), about their means, at the lags 1, ..., n - 1: (n - 1, m), by FFT.

    Products over a gap are left out. Divided by n, not by n - k, so that long lags do not wander.
    """
    n = len(Z)
    known = ~np.isnan(Z)
    Z = Z - np.nanmean(Z, 0)
    products = _lagged_products(np.nan_to_num(Z))
    if not known.all():
        pairs = np.maximum(_lagged_products(known.astype(np.float64)), 0.5)
        products = products / pairs * (n - np.arange(n))[:, None]
    return np.divide(products[1:], products[0], where=products[0] > 0, out=np.zeros_like(products[1:]))


def _lagged_products(Z):
    """sum_t z_t z_(t+k) for k = 0, ..., n - 1: (n, m) -> (n, m)."""
    n = len(Z)
    spectrum = np.fft.rfft(Z, 2 * n, axis=0)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * n, axis=0)[:n]


def find_memory(X):
    """What of a row the rows before it foretell, alike in all columns: coefficients a (p,), z_t = sum_k a_k z_(t-k).

    Autoregression by the autocorrelations of X (n, m), a mean over columns (Yule and Walker), with the number of lags
    that has the least Akaike information criterion; none if that is best, or if there are hardly more rows.
    """
    n = len(X)
    n_lags = min(int(ORDER * math.log10(n)), n // 4)
    rho = np.append(1.0, autocorrelations(some_columns(X))[:n_lags].mean(1))
    best = np.zeros(0)
    least = 0.0
    for p in range(1, n_lags + 1):
        a = solve_toeplitz(rho[:p], rho[1 : p + 1])
        unforeseen = 1 - a @ rho[1 : p + 1]
        if not unforeseen > 0:  # gaps may leave autocorrelations that no series has
            break
        criterion = n * math.log(unforeseen) + 2 * p
        if criterion < least:
            best, least = a, criterion
    return best


def forget(X, memory):
    """Rows less what those before them foretell: X (n, m), memory (p,) -> (n - p, m), NaN where any of them is missing.

    One filter for all columns commutes with every linear relation between them: x = M x + noise stays so with the same
    M. With a filter for each column it would not.
    """
    p = len(memory)
    lagged = (a * X[p - k : len(X) - k] for k, a in enumerate(memory, 1))
    return X[p:] - sum(lagged)


def some_columns(Z):
    """Columns of Z (n, m), evenly spaced, if there are too many values to transform at once."""
    n_series = max(2, min(MAX_SERIES, MAX_VALUES // len(Z)))
    return Z[:, np.unique(np.linspace(0, Z.shape[1] - 1, n_series).astype(int))]


def effective_share(Z):
    """Independent samples per row: the mean over pairs of columns of 1 / (1 + 2 sum_k rho_i(k) rho_j(k)), at most 1.

    Bartlett: so many independent rows have a covariance as precise as that of these. The sum goes over three times as
    many lags as it says that samples take to forget, at least 3. Of very many columns or rows, some columns speak.
    """
    rho = autocorrelations(some_columns(Z))
    last = lags_to_forget(rho)[1]
    slowness = (1 + 2 * rho[:last].T @ rho[:last])[np.triu_indices(rho.shape[1], 1)]
    return float((1 / slowness.clip(1, len(Z))).mean())


def lags_to_forget(rho):
    """Means over pairs of columns of rho_i(k) rho_j(k), (n - 1,), and how many of them `effective_share` sums."""
    m = rho.shape[1]
    mean = (rho.sum(1) ** 2 - (rho**2).sum(1)) / (m * (m - 1))
    time = 1 + 2 * np.cumsum(mean)
    lags = np.arange(1, len(time) + 1)
    enough = np.flatnonzero((lags >= MIN_LAGS) & (lags >= WINDOW * time))
    return mean, enough[0] + 1 if len(enough) else len(rho)
