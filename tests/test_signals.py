"""Distances against SciPy, drawn second moments against the signals themselves, Observations in any order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joblib import parallel_config
from scipy import stats
from scipy.spatial.distance import pdist

from helpers import signals
from helpers.graphs import all_pairs, laplacian, renumber, sample_graphs
from helpers.signals import (
    Observations,
    bartlett,
    check_signals,
    correlations,
    distances,
    in_order,
    observe,
    pair_distances,
    root_mean_square,
    sample_observations,
    sample_signals,
    standardise,
)

ORDER = torch.tensor([4, 2, 0, 1, 5, 3])


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((3, 50, 6)) @ np.triu(np.ones((6, 6)))


# --- what a method sees --------------------------------------------------------------------------------------------


def test_observations_of_signals_have_their_moments_and_distances(X):
    seen = observe(X)
    assert len(seen) == 3
    assert seen.n_signals == 50
    assert seen.moments.dtype == torch.float64
    np.testing.assert_allclose(seen.moments[1], X[1].T @ X[1] / 50)
    torch.testing.assert_close(seen.distances, distances(X))
    assert seen.distances is seen.distances, "computed once"


def test_distances_of_rounded_moments_are_not_negative():
    S = torch.eye(3) + 1e-3
    S[0, 1] = S[1, 0] = 1.5
    assert Observations(S, 10).distances.tolist() == pytest.approx([0, 2, 2])


def test_some_of_the_observations(X):
    seen = observe(X)
    assert torch.equal(seen[1:].moments, seen.moments[1:])
    assert seen[torch.tensor([True, False, True])].n_signals == 50
    each = Observations(seen.moments, torch.tensor([10.0, 20.0, 30.0]))
    assert each[[2, 0]].n_signals.tolist() == [30, 10]
    assert each[1].n_signals == 20
    assert each[1].moments.shape == (6, 6)


def test_observations_move_and_change_precision(X):
    each = Observations(observe(X).moments, torch.tensor([10.0, 20.0, 30.0], dtype=torch.float64))
    single = each.to(torch.float32)
    assert single.distances.dtype == torch.float32
    assert single.n_signals.dtype == torch.float64  # a number of signals, not a signal
    there = each.to("meta")
    assert there.moments.device.type == there.n_signals.device.type == "meta"
    assert observe(X).to("meta").n_signals == 50


def test_renumbered_observations_are_those_of_renumbered_signals(X):
    torch.testing.assert_close(observe(X).renumber(ORDER).moments, observe(X[..., ORDER]).moments)
    assert observe(X).renumber(ORDER).n_signals == 50


def test_a_method_in_another_order(X):
    seen = observe(X)
    torch.testing.assert_close(in_order(lambda o: o.distances, seen, ORDER), seen.distances)
    weight = torch.arange(15.0, dtype=torch.float64)  # depends on the order: weighs pairs by their place
    moved = in_order(lambda o: weight * o.distances, seen, ORDER)
    torch.testing.assert_close(renumber(moved, ORDER), weight * distances(X[..., ORDER]))
    assert not torch.allclose(moved, weight * seen.distances)


# --- distances -----------------------------------------------------------------------------------------------------


@given(st.integers(3, 8), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_distances_are_scipy_distances(m, n, seed):
    X = np.random.default_rng(seed).standard_normal((2, n, m)) + 1e3
    expected = [pdist(x.T, "sqeuclidean") / n for x in X]
    np.testing.assert_allclose(distances(torch.from_numpy(X)), expected, rtol=1e-9)
    np.testing.assert_allclose(observe(X - 1e3).distances, expected, rtol=1e-6, atol=1e-9)


def test_one_signal_is_enough_and_repeats_are_allowed():
    assert distances(torch.tensor([[0.0, 1.0, 3.0]])).tolist() == [1, 9, 4]
    assert distances(torch.tensor([[0.0, 1.0, 3.0]] * 5)).tolist() == [1, 9, 4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_have_the_precision_of_the_signals(X, dtype):
    assert distances(torch.from_numpy(X).to(dtype)).dtype == dtype
    assert distances(torch.tensor([[0, 1, 3]])).dtype == torch.float32


def test_single_precision_is_rounded_once(X):
    shifted = torch.from_numpy(X).float() + 100
    torch.testing.assert_close(distances(shifted), distances(shifted.double()).float(), rtol=1e-7, atol=0)


def test_distances_of_equal_nodes_are_zero_not_negative(X):
    X[..., 1] = X[..., 0]
    y = distances(X)
    assert (y[:, 0].abs() < 1e-12).all() and (y >= 0).all()


@pytest.mark.parametrize(
    ("X", "named"),
    [
        (torch.ones(5), r"X has shape \(5,\)"),
        (torch.rand(5, 2), r"X has shape \(5, 2\)"),
        (torch.rand(0, 5), r"X has shape \(0, 5\)"),
        (torch.tensor([[1.0, 2.0, float("nan")]] * 4), "X contains NaN"),
        (torch.tensor([[1.0, 2.0, float("inf")]] * 4), "X contains NaN"),
        (torch.ones(4, 5), "X is constant over the nodes:"),
        (torch.arange(4.0)[:, None].expand(4, 5), "X is constant over the nodes:"),
        (torch.stack([torch.eye(3), torch.ones(3, 3)]), "in item 1 of the batch"),
    ],
)
def test_bad_signals_are_refused(X, named):
    for function in (distances, observe, check_signals):
        with pytest.raises(ValueError, match=named):
            function(X)


@pytest.mark.parametrize("robust", [False, True])
def test_distances_of_some_pairs(X, robust, monkeypatch):
    edges = all_pairs(6)[:, [0, 3, 7, 14]]
    expected = [root_mean_square(X[0][:, [i]] - X[0][:, [j]], robust=robust)[0] ** 2 for i, j in edges.T.tolist()]
    np.testing.assert_allclose(pair_distances(X[0], edges, robust=robust), expected, rtol=1e-12)
    monkeypatch.setattr(signals, "DIFFERENCES_AT_ONCE", 50)  # one pair at a time
    np.testing.assert_allclose(pair_distances(X[0], edges, robust=robust), expected, rtol=1e-12)
    assert pair_distances(X[0].astype(np.float32), edges).dtype == torch.float64
    if not robust:
        torch.testing.assert_close(pair_distances(X[0], all_pairs(6)), distances(X[0]))


def test_pairs_are_taken_in_blocks_of_bounded_size(X, monkeypatch):
    sizes = []
    monkeypatch.setattr(signals, "DIFFERENCES_AT_ONCE", 100)
    monkeypatch.setattr(signals, "root_mean_square", lambda D, robust: sizes.append(D.shape) or D.mean(0))
    pair_distances(X[0], all_pairs(6))  # 50 signals x 15 pairs = 750 differences
    assert sizes == [(50, 2)] * 7 + [(50, 1)]


def test_both_root_mean_squares_estimate_the_standard_deviation():
    D = np.random.default_rng(0).standard_normal((200_000, 2)) * [1, 7]
    np.testing.assert_allclose(root_mean_square(D), [1, 7], rtol=0.01)
    np.testing.assert_allclose(root_mean_square(D, robust=True), [1, 7], rtol=0.01)


def test_the_robust_one_bears_outliers():
    rng = np.random.default_rng(1)
    D = rng.standard_normal((2000, 1))
    D[:20] = 1e6
    assert root_mean_square(D) > 1e4
    assert root_mean_square(D, robust=True) == pytest.approx(1.05, abs=0.05)  # 1 % of the entries at 3 deviations
    mostly_zero = np.where(np.arange(100)[:, None] < 60, 0, 2.0)
    assert root_mean_square(mostly_zero, robust=True) == pytest.approx(np.sqrt(0.4 * 4))


def test_standardised_signals_have_their_correlations_in_y(X):
    Z = standardise(X)
    np.testing.assert_allclose(Z.mean(-2), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(-2), 1)
    S = correlations(distances(Z))
    np.testing.assert_allclose(S[2], np.corrcoef(X[2].T), atol=1e-12)
    torch.testing.assert_close(Observations(S, 50).distances, distances(Z))


def test_constant_signals_are_counted():
    X = np.random.default_rng(0).random((7, 4))
    X[:, 1:3] = 0.1  # whose computed standard deviation is not exactly 0
    with pytest.raises(ValueError, match="X has 2 constant"):
        standardise(X)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        standardise(X)


# --- the law of Section 5 ------------------------------------------------------------------------------------------


def test_signals_have_the_paper_covariance():
    w = sample_graphs("ER", 1, 8, seed=0, dtype=torch.float64, p=0.5)[0]
    X = sample_signals(w, 200_000, sigma2=0.5, seed=1)
    precision = laplacian(w) + 0.5 * torch.eye(8)
    torch.testing.assert_close(X.T @ X / len(X) @ precision, torch.eye(8, dtype=torch.float64), atol=0.02, rtol=0)


def test_defaults_are_the_papers():
    w = sample_graphs("BA", 2, 6, seed=0)
    X = sample_signals(w, seed=1)
    assert X.shape == (2, 3000, 6) and X.dtype == torch.float64
    assert torch.equal(X, sample_signals(w, 3000, 1e-4, seed=1))
    assert torch.equal(sample_observations(w, seed=1).moments, sample_observations(w, 3000, 1e-4, seed=1).moments)


@pytest.mark.parametrize("n_signals", [3, 6, 40])  # fewer than the 6 nodes, as many, more
def test_bartletts_factor_has_the_law_of_normal_signals(n_signals):
    n, m = 4000, 6
    rng = np.random.default_rng(0)
    A = bartlett(rng, n, m, n_signals)
    assert A.shape == (n, m, min(m, n_signals))
    assert (np.triu(A, 1) == 0).all()
    Z = rng.standard_normal((n, n_signals, m))
    ours, direct = A @ A.swapaxes(1, 2), Z.swapaxes(1, 2) @ Z
    for i, j in ((0, 0), (m - 1, m - 1), (1, 0), (m - 1, m - 2)):
        assert stats.ks_2samp(ours[:, i, j], direct[:, i, j]).pvalue > 1e-3
    leading = np.linalg.det(ours[:, :3, :3]), np.linalg.det(direct[:, :3, :3])
    assert stats.ks_2samp(*leading).pvalue > 1e-3


@pytest.mark.parametrize("n_signals", [4, 6, 40])  # 4 < m = 6: the signals themselves are drawn
def test_drawn_observations_follow_the_direct_law(n_signals):
    w = sample_graphs("ER", 1, 6, seed=3, dtype=torch.float64, p=0.6)
    n = 4000
    seen = sample_observations(w.expand(n, -1), n_signals, 0.1, seed=4)
    assert seen.n_signals == n_signals
    ours = seen.distances
    X = sample_signals(w.expand(n, -1), n_signals, 0.1, seed=5)
    direct = distances(X)
    torch.testing.assert_close(ours.mean(0), direct.mean(0), rtol=0.06, atol=0)
    torch.testing.assert_close(torch.cov(ours.T).diagonal(), torch.cov(direct.T).diagonal(), rtol=0.2, atol=0)
    correlation = (torch.corrcoef(ours.T) - torch.corrcoef(direct.T)).abs().max()
    assert correlation < 0.1
    for edge in range(ours.shape[1]):
        assert stats.ks_2samp(ours[:, edge].numpy(), direct[:, edge].numpy()).pvalue > 1e-4
    common = [S.sum((-2, -1)) for S in (seen.moments, observe(X).moments)]  # what distances do not see
    assert stats.ks_2samp(*common).pvalue > 1e-4


def test_the_mean_of_drawn_moments_is_the_covariance():
    w = sample_graphs("BA", 1, 10, seed=0, dtype=torch.float64)
    S = sample_observations(w.expand(2000, -1), 50, 0.1, seed=1).moments.mean(0)
    precision = laplacian(w[0]) + 0.1 * torch.eye(10)
    torch.testing.assert_close(S @ precision, torch.eye(10, dtype=torch.float64), atol=0.05, rtol=0)


def test_observations_need_no_signals(monkeypatch):
    """From m signals on, m x m numbers per graph are drawn, however many signals there are."""
    drawn = []
    monkeypatch.setattr(signals, "bartlett", lambda *a, f=bartlett: drawn.append(f(*a).shape) or f(*a))
    monkeypatch.setattr(signals, "sample_signals", lambda *a, **k: pytest.fail("signals were drawn"))
    sample_observations(sample_graphs("BA", 300, 10, seed=0), 10, seed=1)
    sample_observations(sample_graphs("BA", 3, 10, seed=0), 10**9, seed=1)
    assert drawn == [(256, 10, 10), (44, 10, 10), (3, 10, 10)]


@pytest.mark.parametrize("n_signals, distance", [(5, 2.699121569), (10, 1.636035575), (3000, 3.232301704)])
def test_random_numbers_are_those_the_checkpoints_were_trained_on(n_signals, distance):
    w = sample_graphs("BA", 300, 10, seed=7, dtype=torch.float64)
    last = sample_observations(w, n_signals, seed=8).distances[-1]
    assert last[0].item() == pytest.approx(distance, rel=1e-7)


def test_number_of_workers_and_place_in_the_batch_do_not_matter():
    w = sample_graphs("BA", 600, 10, seed=0)
    alone = sample_observations(w, seed=1).moments
    with parallel_config("threading"):  # which start at once
        assert torch.equal(alone, sample_observations(w, seed=1, n_jobs=2).moments)
    assert torch.equal(alone[:256], sample_observations(w[:256], seed=1).moments)
    assert torch.equal(alone.reshape(2, 300, 10, 10), sample_observations(w.reshape(2, 300, 45), seed=1).moments)
    assert not torch.equal(alone, sample_observations(w, seed=2).moments)


def test_disconnected_graphs_have_signals():
    w = sample_graphs("SBM", 3, 10, seed=0, n_inter=0)
    y = sample_observations(w, seed=1).distances
    assert torch.isfinite(y).all()
    assert (y > 0).all()


@pytest.mark.parametrize("n_signals", [1, 2])
def test_a_signal_or_two_are_enough(n_signals):
    seen = sample_observations(sample_graphs("BA", 2, 6, seed=0), n_signals, seed=1)
    assert seen.n_signals == n_signals
    assert torch.linalg.matrix_rank(seen.moments).tolist() == [n_signals] * 2


def test_a_heavier_edge_joins_closer_nodes():
    w = torch.full((15,), 0.1)
    w[4] = 10
    assert sample_observations(w, 100_000, seed=0).distances.argmin() == 4


def test_bad_parameters_are_refused():
    w = sample_graphs("BA", 2, 10, seed=0)
    with pytest.raises(ValueError, match="sigma2=0"):
        sample_observations(w, sigma2=0, seed=0)
    with pytest.raises(ValueError, match="n_signals=0"):
        sample_observations(w, 0, seed=0)
    with pytest.raises(ValueError, match="w must hold"):
        sample_observations(-w, seed=0)
    with pytest.raises(ValueError, match="w must hold"):
        sample_observations(torch.full((2, 45), torch.inf), seed=0)
    with pytest.raises(ValueError, match="n_edges=4"):
        sample_observations(torch.ones(2, 4), seed=0)
