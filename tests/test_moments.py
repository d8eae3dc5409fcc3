"""From a table to second moments: gaps, outliers, time, and what must not change when there are none of them."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal

from helpers.beyond import moments
from helpers.beyond.moments import (
    add_white_signal,
    autocorrelations,
    bring_to_one_size,
    check_moments,
    check_scale,
    clip_eigenvalues,
    column_variances,
    drop_empty_rows,
    effective_share,
    fill_constant,
    find_memory,
    forget,
    location_and_scale,
    mean_log_likelihood,
    most_likely_moments,
    pair_sums,
    repair,
    second_moments,
)
from helpers.graphs import all_pairs, differences, sample_graphs
from helpers.signals import sample_signals

RNG = np.random.default_rng(0)
MIX = RNG.standard_normal((6, 6))
Z = RNG.standard_normal((400, 6)) @ MIX
NAMES = np.array(list("abcdef"))


def with_gaps(X, share, seed=1):
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def smallest_eigenvalue(S):
    return np.linalg.eigvalsh(S)[0]


# --- centre and scale -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("robust", [False, True])
def test_location_and_scale_leave_gaps_out(robust):
    gaps = with_gaps(Z + 5, 0.3)
    location, scale = location_and_scale(gaps, NAMES, centre=True, standardise=True, robust=robust)
    if not robust:
        np.testing.assert_allclose(location, pd.DataFrame(gaps).mean())
        np.testing.assert_allclose(scale, pd.DataFrame(gaps).std(ddof=0))
    full, full_scale = location_and_scale(Z + 5, NAMES, centre=True, standardise=True, robust=robust)
    np.testing.assert_allclose(location, full, atol=0.5 * Z.std(0).max())
    np.testing.assert_allclose(scale, full_scale, rtol=0.2)


@pytest.mark.parametrize("robust", [False, True])
def test_a_scale_is_found_in_any_unit(robust):
    """1e-200 squared would be zero, and the column constant."""
    c = np.array([1e-200, 1e-120, 1, 1e3, 1e-7, 1])
    how = {"centre": False, "standardise": True, "robust": robust}
    scale = location_and_scale(Z, NAMES, **how)[1]
    np.testing.assert_allclose(location_and_scale(Z * c, NAMES, **how)[1], scale * c)


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("value", [0.1, 2.7, 100.1, 5.0])
def test_a_column_that_rests_is_centred_on_its_value(value, robust):
    """Its mean may differ from it by rounding, and medians are taken twice."""
    table = Z[:100].copy()
    table[:, 3] = value
    for rows in (table, np.where(RNG.random(table.shape) < 0.2, np.nan, table)):
        location, _ = location_and_scale(rows, NAMES, centre=True, standardise=False, robust=robust)
        assert location[3] == value
        with pytest.raises(ValueError, match=r"constant columns, \['d'\]"):
            location_and_scale(rows, NAMES, centre=True, standardise=True, robust=robust)
    location, scale = location_and_scale(table, NAMES, centre=False, standardise=True, robust=robust)
    assert location[3] == 0 and scale[3] == pytest.approx(value, rel=0.1)


def test_masked_values_are_missing():
    whole = np.ma.array(np.arange(6).reshape(2, 3), mask=np.eye(2, 3))
    np.testing.assert_array_equal(moments.unmask(whole), [[np.nan, 1, 2], [3, np.nan, 5]])
    assert moments.unmask(Z) is Z


def test_names_of_columns_are_texts_of_their_own():
    assert moments.check_names(None, 3) is None
    assert moments.check_names([5, 3, "x"], 3) == ["5", "3", "x"]
    assert moments.check_names([("a", 1), ("a", 2)], 2) == ["('a', 1)", "('a', 2)"]
    assert moments.check_names(range(3), 3) is None and moments.check_names(list("012"), 3) == ["0", "1", "2"]
    with pytest.raises(ValueError, match=r"names \['a', 'a'\] are missing or not the only ones: give each"):
        moments.check_names(["a", "a", "b"], 3)
    with pytest.raises(ValueError, match=r"names \[None\] are missing"):
        moments.check_names(["a", None, "b"], 3)
    with pytest.raises(ValueError, match="names has 2 entries and S 3 columns"):
        moments.check_names(["a", "b"], 3)
    for wrong in ("abc", {"a": 1, "b": 2, "c": 3}, {"a", "b", "c"}, 5):
        with pytest.raises(ValueError, match=r"names=.*: a list with one name per column is needed"):
            moments.check_names(wrong, 3)


def test_the_first_five_bad_columns_are_named():
    names = np.array(list("abcdefg"))
    few = r"\['b', 'c', 'd', 'e', 'f'\]: drop"
    with pytest.raises(ValueError, match="constant columns, " + few):
        check_scale(np.array([1.0, 0, 0, 0, 0, 0, 0]), names)
    gaps = np.full((4, 7), np.nan)
    gaps[:, 0] = 1
    with pytest.raises(ValueError, match="fewer than 3 values, " + few):
        drop_empty_rows(gaps, names)


def test_rows_without_values_are_dropped_and_columns_with_few_are_named():
    gaps = Z.copy()
    gaps[5] = np.nan
    assert len(drop_empty_rows(gaps, NAMES)) == len(Z) - 1
    gaps[2:, 3] = np.nan
    with pytest.raises(ValueError, match=r"fewer than 3 values, \['d'\]: drop"):
        drop_empty_rows(gaps, NAMES)
    gaps[2, 3] = 1.0
    drop_empty_rows(gaps, NAMES)
    with pytest.raises(ValueError, match="X has no row with a value"):
        moments.known_rows(gaps * np.nan)
    assert len(drop_empty_rows(Z[:2], NAMES)) == 2, "two rows without gaps are enough"


def test_rows_are_brought_to_one_size_whatever_they_lack():
    factor = np.random.default_rng(2).lognormal(0, 1, (400, 1))
    gaps = with_gaps(Z, 0.2)[:, :5]
    gaps = gaps[(~np.isnan(gaps)).sum(1) > 2]
    one, other = bring_to_one_size(gaps), bring_to_one_size(factor[: len(gaps)] * gaps)
    ratio = other / one
    np.testing.assert_allclose(ratio[~np.isnan(ratio)], np.nanmedian(ratio), rtol=1e-9)
    silent = bring_to_one_size(np.vstack([Z, np.full(6, 7.0)]))
    np.testing.assert_array_equal(silent[-1], 7), "a row of one value has no size"


# --- second moments ---------------------------------------------------------------------------------------------------


def test_without_gaps_they_are_the_plain_ones():
    S, counts, mean, clipped = second_moments(Z, ddof=1)
    np.testing.assert_allclose(S, Z.T @ Z / 399)
    assert (counts == 400).all() and clipped == 0 and not mean.any()
    np.testing.assert_allclose(second_moments(Z).matrix, Z.T @ Z / 400)


def test_robust_pairs_are_judged_by_the_rows_that_have_both():
    gaps = with_gaps(Z, 0.3)
    S, counts, mean, _ = second_moments(gaps, robust=True)
    known = ~np.isnan(gaps)
    np.testing.assert_array_equal(counts, known.T.astype(int) @ known)
    assert not mean.any()
    both = gaps[known[:, 0] & known[:, 1], :2]
    alone = second_moments(both, robust=True).matrix
    r = S[0, 1] / np.sqrt(S[0, 0] * S[1, 1])
    assert r == pytest.approx(alone[0, 1] / np.sqrt(alone[0, 0] * alone[1, 1]), abs=0.03)
    n = known.sum(0)
    more = second_moments(gaps, robust=True, ddof=1).matrix
    np.testing.assert_allclose(np.diag(more), np.diag(S) * n / (n - 1))


def test_two_columns_of_which_one_ends_early_have_andersons_estimate():
    """Most likely moments in closed form: regress the short column on the long one, whose moments are of all rows."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal(3000) + 2
    X = np.column_stack([x, 0.8 * x + 0.5 * rng.standard_normal(3000)])
    X[1000:, 1] = np.nan
    a, b = X[:1000].T
    slope = np.cov(a, b, ddof=0)[0, 1] / a.var()
    rest = np.var(b - slope * a)
    mean = np.array([x.mean(), b.mean() + slope * (x.mean() - a.mean())])
    expected = np.array([[x.var(), slope * x.var()], [slope * x.var(), slope**2 * x.var() + rest]])
    S, found = most_likely_moments(X, np.diag(np.nanvar(X, 0)), centre=True, n_steps=200)
    np.testing.assert_allclose(found, mean, atol=1e-3)
    np.testing.assert_allclose(S, expected, rtol=3e-3)
    about_zero, no_mean = most_likely_moments(X, np.diag(np.nanvar(X, 0)), centre=False, n_steps=200)
    assert not no_mean.any()
    assert about_zero[0, 0] == pytest.approx(np.mean(x**2)), "about 0"
    full, counts, moved, clipped = second_moments(X - np.nanmean(X, 0), ddof=1)
    np.testing.assert_allclose(moved, mean - np.nanmean(X, 0), atol=2e-3)
    np.testing.assert_allclose(full, expected, rtol=1e-2)
    np.testing.assert_array_equal(counts, [[3000, 1000], [1000, 1000]])
    assert clipped == 0


def test_every_step_makes_the_known_values_likelier():
    gaps = with_gaps(Z, 0.3)
    values = []
    for n_steps in (0, 1, 2, 4, 8, 16):
        S, _ = most_likely_moments(gaps, np.eye(6), centre=False, n_steps=n_steps)
        values.append(mean_log_likelihood(gaps[~np.isnan(gaps).all(1)], np.linalg.inv(S)))
    assert (np.diff(values) > 0).all()
    full = mean_log_likelihood(gaps[~np.isnan(gaps).all(1)], np.linalg.inv(Z.T @ Z / 400))
    assert values[-1] > full - 0.02, "as likely as under the moments of the full table"


def test_gaps_are_filled_alike_in_any_unit():
    gaps = with_gaps(Z[:50], 0.3)
    c = 10.0 ** np.arange(-60, 60, 20)
    S = second_moments(gaps).matrix
    np.testing.assert_allclose(second_moments(gaps * c).matrix / np.outer(c, c), S, rtol=1e-8, atol=1e-8)


def test_the_more_columns_the_less_is_learned_from_chance_correlations(monkeypatch):
    """Moments of white noise with gaps are nearer to those of the full table if the law that fills has more noise."""
    X = np.random.default_rng(6).standard_normal((40, 40))
    gaps = with_gaps(X, 0.2)
    off = []
    for white in (0.0, moments.WHITE):
        monkeypatch.setattr(moments, "WHITE", white)
        off.append(np.linalg.norm(second_moments(gaps).matrix - X.T @ X / 40))
    assert off[1] < 0.95 * off[0]


@pytest.mark.parametrize("robust", [False, True])
def test_what_all_columns_share_cancels_in_spite_of_gaps(robust):
    """Distances are as if the shared part were absent, or nearly: it is 30 times as large as the rest."""
    rng = np.random.default_rng(3)
    own = rng.standard_normal((600, 8))
    X = own + 30 * rng.standard_normal((600, 1))
    S = second_moments(with_gaps(X, 0.2), robust=robust).matrix
    y = differences(torch.from_numpy(S)).numpy()
    np.testing.assert_allclose(y, 2, rtol=0.3 if robust else 0.2)
    gaps = np.nan_to_num(with_gaps(X, 0.2))
    naive = gaps.T @ gaps / ((gaps != 0).T.astype(int) @ (gaps != 0))
    assert np.abs(differences(torch.from_numpy(naive)).numpy() - 2).max() > 20, "products pair by pair do not cancel"


def test_pairs_that_no_row_has_are_uncorrelated_given_the_others():
    gaps = Z.copy()
    gaps[:200, 0] = np.nan
    gaps[198:, 1] = np.nan  # no common row
    for robust in (False, True):
        S, counts, _, _ = second_moments(gaps, robust=robust)
        assert counts[0, 1] == 0
        assert np.isfinite(S).all()
        r = S / np.sqrt(np.outer(np.diag(S), np.diag(S)))
        partial = np.linalg.inv(S)
        partial = partial[0, 1] / np.sqrt(partial[0, 0] * partial[1, 1])
        assert abs(r[0, 1]) < 0.5 * np.abs(r[0, 2:]).max() + 0.2 if robust else abs(partial) < 0.2


def test_moments_of_few_rows_with_gaps_are_repaired():
    few = with_gaps(Z[:8], 0.4, seed=4)
    S, _, _, clipped = second_moments(few, robust=True)
    assert clipped > 0.01
    assert smallest_eigenvalue(S) > -1e-9
    S, _, _, clipped = second_moments(few)
    assert clipped == 0, "a table that was filled is a table"
    assert smallest_eigenvalue(S) > -1e-9


def test_robust_moments_are_those_of_the_bulk():
    plain = second_moments(Z).matrix
    wild = Z.copy()
    wild[:4] *= 300
    robust = second_moments(wild, robust=True).matrix
    r, s = (S / np.sqrt(np.outer(np.diag(S), np.diag(S))) for S in (robust, plain))
    np.testing.assert_allclose(r, s, atol=0.15)
    np.testing.assert_allclose(np.diag(robust), np.diag(plain), rtol=0.3)
    assert smallest_eigenvalue(robust) > -1e-9
    np.testing.assert_allclose(second_moments(-wild, robust=True).matrix, robust)
    c = np.array([1, -2, 3, 1e-3, 5, 7.0])
    np.testing.assert_allclose(second_moments(wild * c, robust=True).matrix, robust * np.outer(c, c), rtol=1e-9)


def test_sums_are_distances_to_the_mirror_image():
    edges = all_pairs(6)
    i, j = edges.numpy()
    np.testing.assert_allclose(pair_sums(Z, edges), ((Z[:, i] + Z[:, j]) ** 2).mean(0))


def test_robust_sums_and_variances_are_clipped():
    X = np.random.default_rng(0).normal(size=(4000, 3))
    X[0] = 1e3
    edges = np.array([[0, 1], [1, 2]])
    np.testing.assert_allclose(pair_sums(X, edges, robust=True), 2, rtol=0.1)
    np.testing.assert_allclose(column_variances(X, 4000, robust=True), 1, rtol=0.1)
    assert (pair_sums(X, edges) > 100).all() and (column_variances(X, 4000) > 100).all()


def test_clipping_gives_the_nearest_matrix_with_its_diagonal():
    R = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    fixed, depth = clip_eigenvalues(R)
    assert depth == pytest.approx(-smallest_eigenvalue(R)) == pytest.approx(0.8)
    assert smallest_eigenvalue(fixed) > -1e-12
    np.testing.assert_allclose(np.diag(fixed), 1)
    assert fixed[0, 1] == pytest.approx(0.5) and fixed[0, 2] == pytest.approx(-0.5)
    good = np.corrcoef(Z.T)
    assert clip_eigenvalues(good)[0] is good
    for m in (2, 50):  # copies of one column: all eigenvalues but one are 0, and some of them below it by rounding
        copies = np.ones((m, m))
        assert clip_eigenvalues(copies)[0] is copies
    c = np.array([1e-50, 1, 1e50])
    np.testing.assert_allclose(repair(R * np.outer(c, c))[0], fixed * np.outer(c, c))
    assert repair(np.diag([1.0, 0, 2]))[1] == 0


# --- a white signal ---------------------------------------------------------------------------------------------------


def test_a_white_signal_makes_moments_invertible_and_keeps_variances():
    few = Z[:3]
    S = few.T @ few / 3
    better = add_white_signal(S, 3)
    assert smallest_eigenvalue(better) > 1e-4
    np.testing.assert_allclose(np.diag(better), np.diag(S))
    c = np.random.default_rng(5).lognormal(0, 5, 6)
    np.testing.assert_allclose(add_white_signal(S * np.outer(c, c), 3), better * np.outer(c, c))


def test_a_white_signal_is_as_small_as_what_two_columns_do_not_share():
    """A part that all columns share does not make it larger, and it fades with the number of signals."""
    S = np.eye(5) + 1e4
    white = 1 - add_white_signal(S, 100)[0, 1] / S[0, 1]
    own = 1 - (1e4 / (1e4 + 1)) ** 2  # share of a variance that another column does not explain
    assert white == pytest.approx(own / 100, rel=0.01)
    assert 1 - add_white_signal(S, 1000)[0, 1] / S[0, 1] == pytest.approx(own / 1000, rel=0.01)


def test_a_white_signal_spares_a_heavy_edge():
    """What two columns nearly share stays as precise as it is, however many other columns there are."""
    S = np.eye(50)
    S[0, 1] = S[1, 0] = 1 - 1e-5
    better = add_white_signal(S, 500)
    assert 1 - better[0, 1] == pytest.approx(1e-5, rel=0.01)


def test_copies_do_not_count_and_columns_that_never_vary_get_a_variance():
    twice = np.hstack([Z, Z])
    S = twice.T @ twice / len(twice)
    assert smallest_eigenvalue(add_white_signal(S, 400) / S.max()) > 1e-9
    same = np.ones((4, 4))
    assert smallest_eigenvalue(add_white_signal(same, 10)) > 0.01
    S = np.diag([4.0, 0, 2])
    np.testing.assert_allclose(fill_constant(S, 10), np.diag([4, 0.3, 2]))
    np.testing.assert_allclose(column_variances(np.array([[2.0, 0, 1], [-2, 0, 1]]), 10), [4, 0.25, 1])


def test_bad_moments_are_refused():
    S = np.eye(3)
    with pytest.raises(ValueError, match=r"S has shape \(2, 3\): a symmetric"):
        check_moments(S[:2], 10)
    for wrong in (S + np.triu(S, 1) + np.eye(3, k=1), np.diag([1, -1, 1.0])):
        with pytest.raises(ValueError, match="a symmetric matrix with variances"):
            check_moments(wrong, 10)
    with pytest.raises(ValueError, match="S is zero"):
        check_moments(np.zeros((3, 3)), 10)
    with pytest.raises(ValueError, match="NaN"):
        check_moments(np.full((3, 3), np.nan), 10)
    uneven = 10 + np.triu(np.ones((3, 3)))
    for n in (0, np.inf, np.array([1, 2, 0]), np.array([9, 9, 9]), uneven, 2j, True, 10**400, 1e300, None, "9", [[9]]):
        with pytest.raises(ValueError, match="n_samples="):
            check_moments(S, n)
    np.testing.assert_array_equal(check_moments(S, uneven + uneven.T)[1], uneven + uneven.T)


def test_symmetry_is_judged_in_units_of_the_columns():
    """Rounding of an entry that happens to be near 0 is no asymmetry."""
    S = np.diag([1.0, 4, 1e-8])
    S[0, 1] = 1e-9
    S[0, 2] = 1e-11
    S, _ = check_moments(S, 10)
    np.testing.assert_array_equal(S, S.T)
    S[0, 2] += 1e-9
    with pytest.raises(ValueError, match=r"S\[0, 2\] is 1.\d*e-09 and S\[2, 0\] is 5e-12: a symmetric matrix"):
        check_moments(S, 10)
    with pytest.raises(ValueError, match=r"S\[1, 1\] is -4: a symmetric matrix with variances"):
        check_moments(np.diag([1.0, -4, 1]), 10)


def test_copies_are_perfectly_correlated_over_common_rows():
    gaps = with_gaps(np.column_stack([Z + 3, 7 - 2 * Z[:, 0]]), 0.3)
    S, *_ = second_moments(gaps - np.nanmean(gaps, 0), ddof=1)
    found = moments.common_moments(gaps, S)
    np.testing.assert_allclose(np.diag(found), np.diag(S))
    assert found[0, 6] == pytest.approx(-np.sqrt(S[0, 0] * S[6, 6]), rel=1e-12)
    np.testing.assert_allclose(
        found, np.diag(np.sqrt(np.diag(S))) @ pd.DataFrame(gaps).corr() @ np.diag(np.sqrt(np.diag(S)))
    )
    assert moments.common_moments(Z, found) is found


def test_two_columns_are_equal_but_for_rounding():
    names = np.array(list("abc"))
    for y in (torch.tensor([3.0, 0, 2]), torch.tensor([3, 1e-16, 2], dtype=torch.float64)):
        with pytest.raises(
            ValueError, match=r"columns \['a', 'c'\] of X are equal, infinitely connected for mle: drop"
        ):
            moments.check_distinct(y, None, names, "mle")
        with pytest.raises(ValueError, match=r"columns \['b', 'a'\]"):
            moments.check_distinct(y, torch.tensor([[0, 1, 2], [1, 0, 0]]), names, "mle")
    with pytest.raises(ValueError, match="vary so much less than others set standardise=True"):
        moments.check_distinct(torch.tensor([1e-30, 1, 1], dtype=torch.float64), None, names, "mle")
    moments.check_distinct(torch.tensor([3, 1e-12, 2], dtype=torch.float64), None, names, "mle")


# --- likelihood -------------------------------------------------------------------------------------------------------


def test_likelihood_is_scipys_and_rows_with_gaps_count_by_what_they_have():
    K = np.linalg.inv(MIX.T @ MIX + np.eye(6))
    Sigma = np.linalg.inv(K)
    assert mean_log_likelihood(Z, K) == pytest.approx(multivariate_normal(cov=Sigma).logpdf(Z).mean())
    gaps = with_gaps(Z[:30], 0.3)
    gaps = gaps[~np.isnan(gaps).all(1)]
    expected = []
    for row in gaps:
        on = ~np.isnan(row)
        expected.append(multivariate_normal(cov=Sigma[np.ix_(on, on)]).logpdf(row[on]))
    assert mean_log_likelihood(gaps, K) == pytest.approx(np.mean(expected))
    for rows in (gaps, Z):
        in_metres = mean_log_likelihood(rows / 1000, K * 1000**2)
        assert mean_log_likelihood(rows, K, unit=1e-3) == pytest.approx(in_metres), "a density of what is known"


# --- time -------------------------------------------------------------------------------------------------------------


def series(phi, n=2000, m=8, seed=7):
    """AR(1), independent columns of variance 1 / (1 - phi^2)."""
    rng = np.random.default_rng(seed)
    X = np.empty((n, m))
    X[0] = rng.standard_normal(m) / np.sqrt(1 - phi**2)
    for t in range(1, n):
        X[t] = phi * X[t - 1] + rng.standard_normal(m)
    return X


def test_autocorrelations_are_the_textbooks():
    X = series(0.5, 60, 3) + 10
    C = X - X.mean(0)
    expected = np.array([(C[k:] * C[: len(C) - k]).sum(0) / (C**2).sum(0) for k in range(1, 60)])
    np.testing.assert_allclose(autocorrelations(X), expected, atol=1e-12)
    found = autocorrelations(with_gaps(series(0.9), 0.2))
    np.testing.assert_allclose(found[:5].mean(1), 0.9 ** np.arange(1, 6), atol=0.07)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_rows_are_worth_what_bartlett_says(phi, gaps):
    expected = (1 - phi**2) / (1 + phi**2)
    assert effective_share(with_gaps(series(phi), gaps)) == pytest.approx(expected, rel=0.1)


def test_a_covariance_of_a_series_is_as_precise_as_of_so_many_rows():
    phi, n = 0.8, 400
    products = [np.mean(np.prod(series(phi, n, 2, seed) * np.sqrt(1 - phi**2), 1)) for seed in range(300)]
    worth = 1 / np.var(products)
    assert n * effective_share(series(phi, n, 8)) == pytest.approx(worth, rel=0.25)


def test_the_memory_of_a_series_is_found_and_subtracted():
    assert len(find_memory(series(0.0))) == 0
    memory = find_memory(series(0.9))
    assert memory[0] == pytest.approx(0.9, abs=0.03) and np.abs(memory[1:]).sum() < 0.1
    X = series(0.9)
    rest = forget(X, memory)
    expected = [X[t] - sum(a * X[t - k] for k, a in enumerate(memory, 1)) for t in range(len(memory), len(X))]
    np.testing.assert_allclose(rest, expected)
    assert effective_share(X) < 0.15 and effective_share(rest) > 0.98
    np.testing.assert_array_equal(forget(X, np.zeros(0)), X)


def test_a_series_of_second_order_needs_two_lags():
    """x_t = 1.2 x_(t-1) - 0.7 x_(t-2) + noise, also with gaps and in columns of other units."""
    rng = np.random.default_rng(9)
    X = np.zeros((3000, 4))
    noise = rng.standard_normal(X.shape)
    for t in range(2, len(X)):
        X[t] = 1.2 * X[t - 1] - 0.7 * X[t - 2] + noise[t]
    for table in (X, X * 10.0 ** np.arange(4) + 5, with_gaps(X, 0.05)):
        memory = find_memory(table)
        np.testing.assert_allclose(memory[:2], [1.2, -0.7], atol=0.12)
    np.testing.assert_allclose(find_memory(X), find_memory(X * 10.0 ** np.arange(4) + 5))
    gaps = with_gaps(X, 0.05)
    missing = np.isnan(gaps)
    np.testing.assert_array_equal(np.isnan(forget(gaps, np.ones(2))), missing[2:] | missing[1:-1] | missing[:-2])


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 30])
def test_few_rows_have_little_to_remember(n):
    X = np.random.default_rng(n).standard_normal((n, 3)).cumsum(0)
    memory = find_memory(X)
    assert len(memory) <= n // 4 and np.isfinite(memory).all()
    assert len(forget(X, memory)) == n - len(memory)


def test_a_filter_for_all_columns_keeps_relations_between_them():
    X = series(0.9, m=3)
    X = np.column_stack([X, X @ [0.5, -1.0, 2.0]])
    rest = forget(X, find_memory(X))
    np.testing.assert_allclose(rest[:, 3], rest[:, :3] @ [0.5, -1.0, 2.0])


def test_opposite_or_few_rows_are_never_worth_more_than_there_are():
    alternating = np.cumsum(np.ones((50, 3)), 0) % 2 * np.array([1, -1, 1])
    assert 1 / 50 <= effective_share(alternating + 0.01 * np.random.default_rng(0).standard_normal((50, 3))) <= 1
    rng = np.random.default_rng(8)
    for n in (2, 3, 4, 5):
        assert 1 / n <= effective_share(rng.standard_normal((n, 3))) <= 1
    assert effective_share(np.ones((5, 3))) == 1


def test_lags_beyond_the_time_to_forget_do_not_count():
    """A series that comes again after 2,000 rows, where its autocorrelation is 1/2."""
    X = series(0.5)
    again = np.vstack([X, X])
    np.testing.assert_allclose(autocorrelations(again)[1999], 0.5, atol=0.1)
    assert effective_share(again) == pytest.approx(0.6, rel=0.1), "with all lags it would be 0.4"


@pytest.mark.parametrize("lags, worth", [({}, 2), ({7: 0.5}, 2), ({5: 0.1}, 2.2), ({5: 0.1, 7: 0.1}, 2.4)])
def test_lags_are_summed_up_to_three_times_the_time_to_forget(monkeypatch, lags, worth):
    """Two columns whose products of autocorrelations are 1/2 at lag 1, so that six lags count, and little elsewhere."""
    rho = np.zeros((40, 2))
    rho[0] = np.sqrt(0.5)
    for lag, product in lags.items():
        rho[lag - 1] = np.sqrt(product)
    monkeypatch.setattr(moments, "autocorrelations", lambda Z: rho)
    assert effective_share(np.ones((41, 2))) == pytest.approx(1 / worth)


def test_of_very_many_columns_some_speak(monkeypatch):
    X = series(0.8, m=40)
    every = effective_share(X)
    monkeypatch.setattr(moments, "MAX_SERIES", 10)
    assert effective_share(X) == pytest.approx(every, rel=0.1)
    assert effective_share(X) != every
    monkeypatch.setattr(moments, "MAX_VALUES", 1)
    assert effective_share(X) == pytest.approx(every, rel=0.3)


def test_gaps_cost_little_on_the_papers_law():
    """A table of signals with a large shared part, once filled, has distances near those of the full one."""
    w = sample_graphs("WS", 1, 20, seed=7, dtype=torch.float64)[0]
    X = sample_signals(w, 2000, seed=8).numpy()
    full = differences(torch.from_numpy(second_moments(X).matrix))
    some = differences(torch.from_numpy(second_moments(with_gaps(X, 0.1)).matrix))
    np.testing.assert_allclose(some, full, rtol=0.06)
