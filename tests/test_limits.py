"""The floors: closed forms, simulation, and the two posterior means against each other and against the prior."""

import numpy as np
import pytest
import torch

from helpers.graphs import laplacian, sample_graphs
from helpers.limits import LOG_SD, bayes_reference, best_constant, cramer_rao, fisher_information
from helpers.metrics import gmse
from helpers.signals import sample_distances


def graphs(n=4, m=8, family="WS"):
    return sample_graphs(family, n, m, seed=5, dtype=torch.float64)


def test_fisher_information_is_the_curvature_of_the_likelihood():
    w, y = graphs(1)[0], torch.rand(28, dtype=torch.float64)
    free = w > 0

    def negative_log_likelihood(x):
        full = torch.zeros_like(w).index_put((free.nonzero()[:, 0],), x)
        return 50 * (full @ y - torch.logdet(laplacian(full) + 1e-2 * torch.eye(8, dtype=x.dtype)))

    hessian = torch.autograd.functional.hessian(negative_log_likelihood, w[free])
    torch.testing.assert_close(fisher_information(w, 100, 1e-2), hessian)


def test_maximum_likelihood_on_the_support_of_a_tree_meets_the_bound():
    """On a tree the estimate is 1/y on each edge, unbiased up to 1/N: its error is the bound."""
    W = torch.diag(torch.linspace(0.5, 2, 5, dtype=torch.float64), 1)
    i, j = torch.triu_indices(6, 6, 1)
    w = (W + W.T)[i, j]
    y = sample_distances(w.expand(4000, -1), 1000, 1e-6, seed=0)
    error = gmse(torch.where(w > 0, 1 / y, 0), w.expand(4000, -1)).mean()
    torch.testing.assert_close(error, cramer_rao(w, 1000, 1e-6), rtol=0.05, atol=0)
    torch.testing.assert_close(cramer_rao(w, 1000, 1e-6), torch.tensor(2 / 1000, dtype=w.dtype), rtol=1e-3, atol=0)


def test_bound_falls_as_one_over_n_and_keeps_the_batch_shape():
    w = graphs(4).reshape(2, 2, -1)
    assert cramer_rao(w).shape == (2, 2)
    torch.testing.assert_close(cramer_rao(w, 100), 30 * cramer_rao(w, 3000))


def test_best_constant_is_the_best():
    w = graphs(1)
    constants = torch.linspace(0.05, 0.6, 2000, dtype=torch.float64)[:, None]
    errors = gmse(constants * (w > 0), w.expand(2000, -1))
    torch.testing.assert_close(best_constant(w)[0], errors.min(), rtol=1e-3, atol=0)


def test_laplace_and_importance_sampling_agree():
    w = graphs(4, 8)
    y = sample_distances(w, 1000, seed=1)
    mode, mean = (bayes_reference(y, w > 0, 1000, n_samples=n) for n in (0, 4000))
    assert (gmse(mode, mean) < 0.02 * gmse(mean, w)).all()
    assert ((mode > 0) == (w > 0)).all()


def test_posterior_mean_agrees_with_draws_from_the_generator_itself():
    """Weights drawn as the generator draws them, two lognormals averaged, each weighted by its likelihood."""
    w, n_signals = graphs(1, 5, "ER")[0], 60
    free, y = w > 0, sample_distances(w, n_signals, seed=2)
    rng = np.random.default_rng(0)
    v = torch.from_numpy(rng.lognormal(0, 0.1, (2, 100_000, int(free.sum()))).mean(0))
    draws = torch.zeros(len(v), len(w), dtype=w.dtype)
    draws[:, free] = 2.5 * v / v.sum(1, keepdim=True)
    logdet = torch.logdet(laplacian(draws) + 1e-4 * torch.eye(5, dtype=w.dtype))
    mean = (n_signals / 2 * (logdet - draws @ y)).softmax(0) @ draws
    prior = 2.5 / free.sum() * free  # without data
    sampled = bayes_reference(y, free, n_signals, n_samples=4000)
    assert gmse(sampled, mean) < 0.01 * gmse(prior, mean)
    assert gmse(bayes_reference(y, free, n_signals), mean) < 0.02 * gmse(prior, mean)


def test_posterior_mean_beats_both_of_what_it_combines():
    w = graphs(32, 20, "BA")
    error = gmse(bayes_reference(sample_distances(w, seed=3), w > 0), w).mean()
    assert error < 0.75 * min(best_constant(w).mean(), cramer_rao(w).mean())


def test_log_sd_is_that_of_the_generator():
    v = np.log(np.random.default_rng(0).lognormal(0, 0.1, (2, 200_000)).mean(0))
    assert LOG_SD == pytest.approx(v.std(), rel=0.01)


def test_an_empty_graph_stays_empty_and_a_wrong_support_is_named():
    y = torch.ones(2, 10)
    assert (bayes_reference(y, torch.zeros(2, 10, dtype=torch.bool)) == 0).all()
    with pytest.raises(ValueError, match="support"):
        bayes_reference(y, torch.ones(2, 10))
