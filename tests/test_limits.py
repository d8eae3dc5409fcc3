"""The floors: closed forms, simulation, and the two posterior means against each other and against the prior."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.beyond.limits import (
    LOG_SD,
    bayes_reference,
    best_constant,
    cramer_rao,
    cross_resistances,
    fisher_information,
)
from helpers.graphs import _positions, all_pairs, laplacian, sample_graphs
from helpers.metrics import gmse
from helpers.signals import sample_observations


def graphs(n=4, m=8, family="WS"):
    return sample_graphs(family, n, m, seed=5, dtype=torch.float64)


def distances(w, n_signals=3000, sigma2=1e-4, *, seed):
    return sample_observations(w, n_signals, sigma2, seed=seed).distances


# --- information ---------------------------------------------------------------------------------------------------


def test_cross_resistances_are_those_of_all_pairs_of_edges():
    w = graphs(1)[0]
    K = laplacian(w) + 1e-2 * torch.eye(8, dtype=w.dtype)
    i, j = all_pairs(8)
    B = torch.zeros(28, 8, dtype=w.dtype)
    B[torch.arange(28), i] = 1
    B[torch.arange(28), j] = -1
    torch.testing.assert_close(cross_resistances(w, w >= 0, 1e-2), B @ torch.linalg.inv(K) @ B.T)
    on = w > 0
    torch.testing.assert_close(cross_resistances(w, on, 1e-2), (B @ torch.linalg.inv(K) @ B.T)[on][:, on])


def test_fisher_information_is_the_curvature_of_the_likelihood():
    w, y = graphs(1)[0], torch.rand(28, dtype=torch.float64)
    free = w > 0

    def negative_log_likelihood(x):
        full = torch.zeros_like(w).index_put((free.nonzero()[:, 0],), x)
        return 50 * (full @ y - torch.logdet(laplacian(full) + 1e-2 * torch.eye(8, dtype=x.dtype)))

    hessian = torch.autograd.functional.hessian(negative_log_likelihood, w[free])
    torch.testing.assert_close(fisher_information(w, 100, 1e-2), hessian)
    some = free.clone()
    some[free.nonzero()[0]] = False
    torch.testing.assert_close(fisher_information(w, 100, 1e-2, support=some), hessian[1:, 1:])
    assert fisher_information(w.float()).dtype == torch.float64


def test_maximum_likelihood_on_the_support_of_a_tree_meets_the_bound():
    """On a tree the estimate is 1/y on each edge, unbiased up to 1/N: its error is the bound."""
    W = torch.diag(torch.linspace(0.5, 2, 5, dtype=torch.float64), 1)
    i, j = torch.triu_indices(6, 6, 1)
    w = (W + W.T)[i, j]
    y = distances(w.expand(4000, -1), 1000, 1e-6, seed=0)
    error = gmse(torch.where(w > 0, 1 / y, 0), w.expand(4000, -1)).mean()
    torch.testing.assert_close(error, cramer_rao(w, 1000, 1e-6), rtol=0.05, atol=0)
    torch.testing.assert_close(cramer_rao(w, 1000, 1e-6), torch.tensor(2 / 1000, dtype=w.dtype), rtol=1e-3, atol=0)


def test_bound_falls_as_one_over_n_and_keeps_the_batch_shape():
    w = graphs(4).reshape(2, 2, -1)
    assert cramer_rao(w).shape == (2, 2)
    torch.testing.assert_close(cramer_rao(w, 100), 30 * cramer_rao(w, 3000))
    torch.testing.assert_close(cramer_rao(w), cramer_rao(w, 3000, 1e-4), rtol=0, atol=0)


def test_best_constant_is_the_best():
    w = graphs(1)
    constants = torch.linspace(0.05, 0.6, 2000, dtype=torch.float64)[:, None]
    errors = gmse(constants * (w > 0), w.expand(2000, -1))
    torch.testing.assert_close(best_constant(w)[0], errors.min(), rtol=1e-3, atol=0)


# --- posterior -----------------------------------------------------------------------------------------------------


def test_laplace_and_importance_sampling_agree():
    w = graphs(4, 8)
    y = distances(w, 1000, seed=1)
    mode, mean = (bayes_reference(y, w > 0, 1000, n_samples=n) for n in (0, 4000))
    assert (gmse(mode, mean) < 0.02 * gmse(mean, w)).all()
    assert ((mode > 0) == (w > 0)).all()
    torch.testing.assert_close(mode.sum(-1), torch.full((4,), 4.0, dtype=w.dtype), msg="a mean degree of 1")


def test_the_mode_is_one():
    """No step along any coordinate of u = log v increases the posterior, here written out from its definition."""
    w = graphs(1, 8)[0]
    free, n_signals = w > 0, 50
    y = distances(w, n_signals, seed=1)

    def log_posterior(u):
        full = torch.zeros_like(w).index_put((free.nonzero()[:, 0],), 4 * u.softmax(0))
        logdet = torch.logdet(laplacian(full) + 1e-4 * torch.eye(8, dtype=w.dtype))
        return n_signals / 2 * (logdet - full @ y) - u.square().sum() / (2 * LOG_SD**2)

    u = bayes_reference(y, free, n_signals)[free].log()
    u = (u - u.mean()).requires_grad_()  # the weights leave a common factor open, the prior sets it to 1
    (gradient,) = torch.autograd.grad(log_posterior(u), u)
    assert gradient.abs().max() < 1e-3 / LOG_SD


def test_posterior_mean_agrees_with_draws_from_the_generator_itself():
    """Weights drawn as the generator draws them, two lognormals averaged, each weighted by its likelihood."""
    w, n_signals = graphs(1, 5, "ER")[0], 60
    free, y = w > 0, distances(w, n_signals, seed=2)
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


def test_draws_are_weighted_where_the_posterior_is_not_gaussian(monkeypatch):
    """With a wide prior and few signals the mode is off; weighted draws find the mean, known from the prior."""
    monkeypatch.setattr("helpers.beyond.limits.LOG_SD", 0.5)
    w, n_signals = graphs(1, 5, "ER")[0], 10
    free, y = w > 0, distances(w, n_signals, seed=2)
    u = 0.5 * torch.from_numpy(np.random.default_rng(0).standard_normal((200_000, int(free.sum()))))
    draws = torch.zeros(len(u), len(w), dtype=w.dtype)
    draws[:, free] = 2.5 * u.softmax(1)
    logdet = torch.logdet(laplacian(draws) + 1e-4 * torch.eye(5, dtype=w.dtype))
    mean = (n_signals / 2 * (logdet - draws @ y)).softmax(0) @ draws
    mode, sampled = (bayes_reference(y, free, n_signals, n_samples=n) for n in (0, 100_000))
    assert gmse(sampled, mean) < 0.1 * gmse(mode, mean)


def test_posterior_mean_beats_both_of_what_it_combines():
    w = graphs(32, 20, "BA")
    error = gmse(bayes_reference(distances(w, seed=3), w > 0), w).mean()
    assert error < 0.75 * min(best_constant(w).mean(), cramer_rao(w).mean())


def test_draws_depend_on_the_seed_only():
    w = graphs(2, 8)
    observations = sample_observations(w, 30, seed=1)
    one, other, again = (bayes_reference(observations, w > 0, 30, n_samples=5, seed=seed) for seed in (0, 1, 0))
    torch.testing.assert_close(again, one, rtol=0, atol=0)
    assert (gmse(other, one) > 1e-6).all()
    of_distances = bayes_reference(observations.distances.float(), w > 0, 30, n_samples=5)
    torch.testing.assert_close(of_distances, one, rtol=1e-4, atol=1e-5)
    assert of_distances.dtype == torch.float64


def test_the_usual_setting_is_the_protocols():
    w = graphs(1, 8)
    y = distances(w, seed=1)
    torch.testing.assert_close(bayes_reference(y, w > 0), bayes_reference(y, w > 0, 3000, 1e-4, n_samples=0))
    assert (bayes_reference(y, w > 0) - bayes_reference(y, w > 0, 1000)).abs().max() > 1e-4
    assert (bayes_reference(y, w > 0) - bayes_reference(y, w > 0, 3000, 1e-1)).abs().max() > 1e-4


def test_log_sd_is_that_of_the_generator():
    v = np.log(np.random.default_rng(0).lognormal(0, 0.1, (2, 200_000)).mean(0))
    assert LOG_SD == pytest.approx(v.std(), rel=0.01)


def test_an_empty_graph_stays_empty_and_a_wrong_support_is_named():
    y = torch.ones(2, 10)
    assert (bayes_reference(y, torch.zeros(2, 10, dtype=torch.bool)) == 0).all()
    for support in (torch.ones(2, 10), torch.ones(10, dtype=torch.bool)):
        with pytest.raises(ValueError, match="support"):
            bayes_reference(y, support)


def test_everything_is_on_the_device_of_the_input():
    """Fake tensors report mixed devices where there is no second device; a mask would need values."""
    every = slice(None)
    with FakeTensorMode():
        w = torch.ones(28, device="meta", dtype=torch.float64)
        assert cross_resistances(w, every, 1e-4).device.type == "meta"
        assert fisher_information(w, support=every).device.type == "meta"
        assert best_constant(w).device.type == "meta"
    all_pairs.cache_clear()
    _positions.cache_clear()
