import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import pdist

from helpers.graphs import laplacian, sample_graphs
from helpers.signals import (
    covariance_distances,
    distances,
    sample_covariances,
    sample_distances,
    sample_signals,
)


@given(st.integers(3, 8), st.integers(2, 6), st.integers(0, 2**32 - 1))
def test_distances_are_scipy_distances(m, n, seed):
    X = np.random.default_rng(seed).standard_normal((2, n, m)) + 1e3
    expected = [pdist(x.T, "sqeuclidean") / n for x in X]
    np.testing.assert_allclose(distances(torch.from_numpy(X)), expected, rtol=1e-9)


def test_signals_have_the_paper_covariance():
    w = sample_graphs("ER", 1, 8, seed=0, dtype=torch.float64, p=0.5)[0]
    X = sample_signals(w, 200_000, sigma2=0.5, seed=1)
    precision = laplacian(w) + 0.5 * torch.eye(8)
    torch.testing.assert_close(X.T @ X / len(X) @ precision, torch.eye(8, dtype=torch.float64), atol=0.02, rtol=0)


@pytest.mark.parametrize("n_signals", [4, 6, 40])  # 4 < m = 6: the signals themselves are drawn
def test_wishart_draws_follow_the_direct_law(n_signals):
    w = sample_graphs("ER", 1, 6, seed=3, dtype=torch.float64, p=0.6)
    n = 4000
    ours = sample_distances(w.expand(n, -1), n_signals, 0.1, seed=4)
    direct = torch.stack([distances(sample_signals(w[0], n_signals, 0.1, seed=(5, k))) for k in range(n)])
    torch.testing.assert_close(ours.mean(0), direct.mean(0), rtol=0.06, atol=0)
    torch.testing.assert_close(torch.cov(ours.T).diagonal(), torch.cov(direct.T).diagonal(), rtol=0.2, atol=0)
    correlation = (torch.corrcoef(ours.T) - torch.corrcoef(direct.T)).abs().max()
    assert correlation < 0.1
    for edge in range(ours.shape[1]):
        assert stats.ks_2samp(ours[:, edge].numpy(), direct[:, edge].numpy()).pvalue > 1e-4


def test_wishart_mean_is_the_covariance():
    w = sample_graphs("BA", 1, 10, seed=0, dtype=torch.float64)
    S = sample_covariances(w.expand(2000, -1), 50, 0.1, seed=1).mean(0)
    precision = laplacian(w[0]) + 0.1 * torch.eye(10)
    torch.testing.assert_close(S @ precision, torch.eye(10, dtype=torch.float64), atol=0.05, rtol=0)


def test_number_of_workers_does_not_matter():
    w = sample_graphs("BA", 600, 10, seed=0)
    assert torch.equal(sample_distances(w, seed=1), sample_distances(w, seed=1, n_jobs=2))
    assert not torch.equal(sample_distances(w, seed=1), sample_distances(w, seed=2))


def test_distances_and_covariances_of_one_seed_are_the_same_signals():
    w = sample_graphs("WS", 5, 10, seed=0, dtype=torch.float64)
    y = covariance_distances(sample_covariances(w, seed=7))
    assert torch.equal(y, sample_distances(w, seed=7))


def test_disconnected_graphs_have_signals():
    w = sample_graphs("SBM", 3, 10, seed=0, n_inter=0)
    y = sample_distances(w, seed=1)
    assert torch.isfinite(y).all()
    assert (y > 0).all()


def test_drawing_a_training_set_is_ten_times_faster_than_simulating_it():
    """8,064 BA graphs; the simulation is timed on 60 of them and scaled."""
    start = time.perf_counter()
    w = sample_graphs("BA", 8064, 20, seed=0)
    sample_distances(w, seed=1)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    for k in range(60):
        one = sample_graphs("BA", 1, 20, seed=k)
        distances(sample_signals(one[0], 3000, seed=k))
    simulated = (time.perf_counter() - start) * 8064 / 60
    print(f"{simulated / ours:.0f} times faster")
    assert simulated > 10 * ours


@pytest.mark.parametrize(
    ("X", "named"),
    [
        (torch.ones(5), "X has shape"),
        (torch.rand(5, 2), "X has shape"),
        (torch.tensor([[1.0, 2.0, float("nan")]] * 4), "X contains NaN"),
        (torch.tensor([[1.0, 2.0, float("inf")]] * 4), "X contains NaN"),
        (torch.ones(4, 5), "X is constant"),
    ],
)
def test_bad_signals_are_refused(X, named):
    with pytest.raises(ValueError, match=named):
        distances(X)


def test_bad_parameters_are_refused():
    w = sample_graphs("BA", 2, 10, seed=0)
    with pytest.raises(ValueError, match="sigma2=0"):
        sample_distances(w, sigma2=0, seed=0)
    with pytest.raises(ValueError, match="n_signals=0"):
        sample_distances(w, 0, seed=0)
    with pytest.raises(ValueError, match="w must hold"):
        sample_distances(-w, seed=0)
    with pytest.raises(ValueError, match="n_edges=4"):
        sample_distances(torch.ones(2, 4), seed=0)
