"""Partial correlations against regressions, tests against SciPy's and against white noise, and the edge cases."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.covariance import ledoit_wolf

from helpers.graphs import laplacian, to_vector
from helpers.rivals.partial_correlations import (
    correlation_graph,
    correlations,
    discoveries,
    partial,
    partial_graph,
    shrink,
)


def samples(n=200, m=5, seed=0):
    """A chain: each column adds noise to the one before; units differ."""
    X = np.random.default_rng(seed).standard_normal((n, m)).cumsum(1)
    return (X - X.mean(0)) * 10.0 ** np.arange(m)


def moments(X):
    return torch.from_numpy(X.T @ X / len(X))


def test_correlations_are_numpys():
    X = samples()
    np.testing.assert_allclose(correlations(moments(X)), np.corrcoef(X.T))
    with pytest.raises(ValueError, match="variance that is not positive: leave constant columns out"):
        correlations(torch.zeros(3, 3))


def test_partial_correlations_are_those_of_regression_residuals():
    X = samples()
    others = X[:, 2:]
    a, b = (x - others @ np.linalg.lstsq(others, x)[0] for x in X[:, :2].T)
    assert partial(moments(X))[0] == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_a_singular_matrix_has_the_partial_correlations_of_its_pseudo_inverse():
    """Of signals L^(+1/2) z the covariance is L^+, and its pseudo-inverse the Laplacian."""
    w = torch.tensor([1.0, 0, 2, 3, 0, 0.5]).double()
    L = laplacian(w)
    d = L.diagonal().rsqrt()
    expected = to_vector(-L * d[:, None] * d)
    torch.testing.assert_close(partial(torch.linalg.pinv(L)), expected, rtol=0, atol=1e-8)


def test_the_estimate_of_ledoit_and_wolf():
    X = samples()
    S, intensity = ledoit_wolf(X, assume_centered=True)
    np.testing.assert_allclose(shrink(moments(X), intensity), S)
    both = shrink(torch.stack([moments(X)] * 2), torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(both[0], moments(X))
    assert (both[1] == both[1].diagonal().diag()).all()
    with pytest.raises(ValueError, match=r"intensity=1.5: between 0 and 1"):
        shrink(moments(X), 1.5)


def test_one_pair_is_tested_as_scipy_tests_it():
    """With a single hypothesis the rate is the level, and the test that of Pearson's correlation."""
    x, y = np.random.default_rng(1).standard_normal((2, 30))
    r, p = stats.pearsonr(x, y)
    for sign in (-1, 1):
        assert discoveries([sign * r], 30, rate=p * 1.0001).item()
        assert not discoveries([sign * r], 30, rate=p * 0.9999).item()


def test_a_partial_correlation_is_tested_as_the_regression_coefficient():
    """t of a coefficient in the regression on all other columns, n - m degrees of freedom for centred columns."""
    X = samples(n=20)
    r = partial(moments(X))[0].item()
    _, rss, *_ = np.linalg.lstsq(X[:, 1:], X[:, 0])
    freedom = 20 - 5
    coefficient = np.linalg.lstsq(X[:, 1:], X[:, 0])[0][0]
    variance = np.linalg.inv(X[:, 1:].T @ X[:, 1:])[0, 0] * rss[0] / freedom
    p = 2 * stats.t.sf(abs(coefficient) / np.sqrt(variance), freedom)
    assert discoveries([r], 20, n_others=3, rate=p * 1.001).item()
    assert not discoveries([r], 20, n_others=3, rate=p * 0.999).item()


def test_benjamini_and_hochberg_by_hand():
    """The largest k with p_(k) <= k q / n counts, and all pairs before it."""
    p = np.array([0.01, 0.024, 0.03, 0.5])  # at 5 %: 0.0125, 0.025, 0.0375, 0.05
    t = stats.t.isf(p / 2, 98)
    r = t / np.sqrt(98 + t**2)
    assert discoveries(r, 100).tolist() == [True, True, True, False]
    assert discoveries(r, 100, rate=0.03).tolist() == [False] * 4  # 0.0075, 0.015, 0.0225


def test_few_discoveries_are_false():
    X = np.random.default_rng(2).standard_normal((200, 60, 8))
    S = torch.from_numpy(X.swapaxes(1, 2) @ X / 60)
    for graph in (correlation_graph, partial_graph):
        _, found = graph(S, torch.full((200,), 60.0))
        assert found.shape == (200, 28)
        assert found.any(-1).double().mean() < 0.1  # where nothing is there, 5 % of the graphs have an edge


def test_the_graph_of_a_chain():
    S = moments(samples(n=400))
    chain = torch.tensor([True, False, False, False, True, False, False, True, False, True])
    score, graph = partial_graph(S, 400)
    assert torch.equal(graph, chain)
    assert torch.equal(score, partial(S))
    score, graph = correlation_graph(S, 400)
    assert graph.all()  # everything is correlated
    torch.testing.assert_close(score, to_vector(correlations(S)))


def test_without_degrees_of_freedom_there_is_no_test():
    X = samples(n=5)
    score, graph = partial_graph(moments(X), 5)
    assert score.isfinite().all() and not graph.any()
    assert not discoveries([1.0], 2.5).any()
    assert discoveries([1.0], 3.0).all()
