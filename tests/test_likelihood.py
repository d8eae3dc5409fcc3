import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from helpers.beyond import atom_lists
from helpers.beyond.likelihood import (
    approximate_mle,
    effective_resistances,
    laplacian_mle,
    likely_scale,
    log_likelihood,
    mle_certificate,
    multiplicative_updates,
    unit_scale,
)
from helpers.graphs import all_pairs, laplacian, renumber, sample_graphs, to_matrix
from helpers.signals import distances, sample_observations, sample_signals
from helpers.solvers import exact, learn


def random_distances(m, n, seed):
    return distances(torch.randn(n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


# --- likelihood and scale ----------------------------------------------------------------------------------


def test_log_likelihood_is_that_of_the_signals():
    w = sample_graphs("WS", 2, 12, seed=0, dtype=torch.float64)
    X = sample_signals(w, 40, 1e-2, seed=1)
    basis = torch.linalg.svd(torch.ones(1, 12, dtype=torch.float64))[2][1:]  # of what is orthogonal to constants
    for sigma2 in (1e-2, torch.tensor([0.3, 0.7], dtype=torch.float64)):
        K = laplacian(w) + torch.as_tensor(sigma2).expand(2)[:, None, None] * torch.eye(12)
        law = torch.distributions.MultivariateNormal(torch.zeros(11).double(), precision_matrix=basis @ K @ basis.T)
        expected = law.log_prob((X @ basis.T).transpose(0, 1)).mean(0)
        torch.testing.assert_close(log_likelihood(w, distances(X), sigma2=sigma2), expected)


def test_likely_scale_has_the_highest_likelihood(ba):
    w, y = ba
    c = likely_scale(w, y, 19)
    torch.testing.assert_close((c[:, None] * w * y).sum(-1), torch.full((12,), 19.0, dtype=torch.float64))
    best = log_likelihood(c[:, None] * w, y)
    for factor in (0.98, 1.02):
        assert (log_likelihood(factor * c[:, None] * w, y) < best).all()


def test_unit_scale_gives_mean_degree_one(ba):
    _, y = ba
    c = unit_scale(7 * y)
    torch.testing.assert_close(2 * laplacian_mle(c[:, None] * 7 * y).sum(-1) / 20, torch.ones(12).double())
    assert (7 * c - 1).abs().max() < 0.1, "the true graphs have mean degree 1"
    other = learn(y, 4).w
    torch.testing.assert_close(unit_scale(y, 3 * other), unit_scale(y, other))
    torch.testing.assert_close(unit_scale(y, laplacian_mle(y)), unit_scale(y))
    torch.testing.assert_close(unit_scale(y[0], other[0], n_nodes=20), unit_scale(y, other)[0])


# --- effective resistances ---------------------------------------------------------------------------------


def test_effective_resistances_are_those_of_the_pseudo_inverse():
    w = torch.rand(3, 45, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.01
    S = torch.linalg.pinv(laplacian(w))
    i, j = all_pairs(10)
    r = S[:, i, i] + S[:, j, j] - 2 * S[:, i, j]
    torch.testing.assert_close(effective_resistances(w), r)
    torch.testing.assert_close((w * r).sum(-1), torch.full((3,), 9.0, dtype=torch.float64))  # Foster's theorem
    torch.testing.assert_close(effective_resistances(w[0], all_pairs(10), 10), r[0])
    assert effective_resistances(w.float()).dtype == torch.float32


TRIANGLE = torch.tensor([[0, 0, 1, 3, 2], [1, 2, 2, 4, 3]])  # a triangle, one edge, and a candidate between them


@pytest.mark.parametrize("n_probes", [None, 4000])
def test_effective_resistances_by_hand(n_probes):
    w = torch.tensor([1.0, 1.0, 1.0, 4.0, 0.0], dtype=torch.float64)
    r = effective_resistances(w, TRIANGLE, 5, n_probes=n_probes)
    torch.testing.assert_close(r[:3], torch.full((3,), 2 / 3, dtype=torch.float64), rtol=0.05, atol=0)
    torch.testing.assert_close(r[3], torch.tensor(0.25, dtype=torch.float64))
    assert r[4].isinf()


def test_sketches_approach_the_exact_resistances(monkeypatch):
    m = 120
    Y = to_matrix(random_distances(m, 6, 0)).fill_diagonal_(torch.inf)
    near = Y <= Y.sort(1).values[:, 11:12]
    edges = torch.nonzero(torch.triu(near | near.T)).T.contiguous()
    w = learn(Y[edges[0], edges[1]], 5, edges=edges, n_nodes=m).w
    r = effective_resistances(w, edges, m)
    inside = r.isfinite()
    errors = []
    for n_probes in (32, 512):
        sketch = effective_resistances(w, edges, m, n_probes=n_probes, seed=1, tol=1e-8)
        assert torch.equal(sketch.isfinite(), inside)
        errors.append((sketch / r - 1)[inside].abs().mean().item())
    assert errors[0] < 0.13
    assert errors[1] < errors[0] / 3  # the root of 16 is 4
    assert not torch.equal(sketch, effective_resistances(w, edges, m, n_probes=512, seed=2, tol=1e-8))
    monkeypatch.setattr(atom_lists, "DENSE_NODES", 100)
    torch.testing.assert_close(
        effective_resistances(w, edges, m), effective_resistances(w, edges, m, n_probes=256), rtol=0, atol=0
    )


# --- approximate maximum likelihood ------------------------------------------------------------------------


def test_updates_increase_the_likelihood_and_keep_the_scale(ba):
    _, y = ba
    w = 19 / (190 * y)
    last = log_likelihood(w, y)
    for _ in range(5):
        new, r = multiplicative_updates(w, y, 1)
        torch.testing.assert_close(new, w * effective_resistances(w) / y)
        torch.testing.assert_close(r, effective_resistances(new))
        torch.testing.assert_close((new * y).sum(-1), torch.full((12,), 19.0, dtype=torch.float64))
        value = log_likelihood(new, y)
        assert (value > last).all()
        w, last = new, value


def test_approximate_mle_approaches_the_exact_one(ba):
    _, y = ba
    w = laplacian_mle(y)
    errors = []
    for n_updates in (3, 30, 300):
        w_hat, r = approximate_mle(y, n_updates)
        torch.testing.assert_close(r, effective_resistances(w_hat))
        errors.append(((w_hat - w) ** 2).sum() / (w**2).sum())
    assert errors[0] < 0.05
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 3
    start, _ = approximate_mle(y, 0)
    i, j = all_pairs(20)
    P = torch.eye(20, dtype=torch.float64) - 1 / 20
    S = torch.linalg.pinv(-P @ to_matrix(y[0]) @ P / 2)
    torch.testing.assert_close(start[0], torch.maximum(-S[i, j], 0.01 / (20 * y[0])))
    scaled, r = approximate_mle(1e6 * y, 3)
    torch.testing.assert_close(1e6 * scaled, approximate_mle(y, 3)[0])
    torch.testing.assert_close(1e-6 * r, approximate_mle(y, 3)[1])


def test_approximate_mle_of_columns_that_are_infinitely_connected():
    """Moments in exact numbers have no inverse; a graph beside is as it was."""
    copies = torch.tensor([2, 1e-17, 2, 2, 1e-17, 2], dtype=torch.float64)
    other = torch.tensor([1.0, 2, 3, 4, 5, 6], dtype=torch.float64)
    w, r = approximate_mle(torch.stack([copies, other]))
    assert w.isfinite().all() and r.isfinite().all()
    assert w[0, [1, 4]].min() > 1e6 * w[0, [0, 2, 3, 5]].max()
    torch.testing.assert_close(w[1], approximate_mle(other)[0], rtol=0, atol=0)


@pytest.mark.parametrize("n_probes", [None, 64])
def test_approximate_mle_on_a_list(n_probes):
    w = sample_graphs("WS", 1, 30, seed=3, dtype=torch.float64)[0]
    y = sample_observations(w, seed=4).distances
    dense = laplacian_mle(y)
    close, r = approximate_mle(y, 150, edges=all_pairs(30), n_nodes=30, n_probes=n_probes)
    assert ((close - dense) ** 2).sum() / (dense**2).sum() < 0.01
    on = dense > 0.05
    torch.testing.assert_close(r[on], y[on], rtol=0.2, atol=0)
    assert (close > 0).all()
    first, _ = approximate_mle(y, 0, edges=all_pairs(30), n_nodes=30)
    assert (first >= 0.01 / (30 * y)).all()
    assert 28 < (first * y).sum() < 40


def test_zero_distances_are_refused():
    y = torch.tensor([0.0, 1, 1])
    for solve in (laplacian_mle, approximate_mle):
        with pytest.raises(ValueError, match="y has a zero"):
            solve(y)
    with pytest.raises(ValueError, match="y has a zero"):
        approximate_mle(y, edges=all_pairs(3), n_nodes=3)


# --- maximum likelihood -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma2", [0.0, 0.1])
@pytest.mark.parametrize("n_signals", [2, 50])
def test_mle_agrees_with_lbfgsb(sigma2, n_signals):
    y = random_distances(5, n_signals, 0)
    P = np.eye(5) - 1 / 5

    def objective(x):
        L = laplacian(torch.from_numpy(x)).numpy()
        K = L + sigma2 * P + 1 / 5
        S = np.linalg.inv(K)
        i, j = np.triu_indices(5, 1)
        return x @ y.numpy() - np.linalg.slogdet(K)[1], y.numpy() - (S[i, i] + S[j, j] - 2 * S[i, j])

    found = minimize(
        objective, 0.4 / y.numpy(), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 10,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000},
    )  # fmt: skip
    w = laplacian_mle(y, sigma2=sigma2)
    c = mle_certificate(w, y, sigma2=sigma2)
    assert c.primal == pytest.approx(objective(w.numpy())[0], rel=1e-10)
    assert -1e-12 < c.gap < 1e-8
    assert c.primal <= found.fun + 1e-9
    assert np.allclose(w, found.x, atol=1e-4 * found.x.max())


@pytest.mark.parametrize("n_signals", [1, 5, 19, 100, 3000])
def test_mle_kkt(n_signals):
    w = sample_graphs("WS", 8, 20, seed=0, dtype=torch.float64)
    y = sample_observations(w, n_signals, seed=1).distances
    w_hat = laplacian_mle(y)
    c = mle_certificate(w_hat, y)
    assert c.kkt.max() < 1e-8 and c.gap.max() < 1e-8
    assert torch.allclose((w_hat * y).sum(-1), torch.tensor(19.0).double())  # w'y = m - 1
    assert (w_hat == 0).any(-1).all()
    for one, y_one in zip(w_hat[:2], y):
        assert torch.allclose(laplacian_mle(y_one), one, rtol=1e-5, atol=1e-7 * one.max())
    path = laplacian_mle(y, path=True)
    assert path.shape[0] == 8 and path.shape[2] == 190
    assert torch.allclose(path[:, -1], w_hat, rtol=1e-5, atol=1e-7 * w_hat.max())
    torch.testing.assert_close(path[:, 0], 2 / (20 * y))
    assert (mle_certificate(path[:, 0], y).gap > 0.01).all()


def test_mle_beats_the_convex_problem(ba):
    w, y = ba
    error = ((laplacian_mle(y) - w) ** 2).sum(-1) / (w**2).sum(-1)
    assert error.mean() < 0.02  # tuned PDS: .13


def test_mle_of_100_nodes():
    w = sample_graphs("BA", 1, 100, seed=0, dtype=torch.float64)
    y = sample_observations(w, 3000, seed=1).distances
    assert mle_certificate(laplacian_mle(y), y).kkt < 1e-8


@pytest.mark.parametrize("sigma2", [0.0, 1e-4])
def test_mle_on_disconnected_graphs(disconnected, sigma2):
    w, y = disconnected
    w_hat = laplacian_mle(y, sigma2=sigma2)
    assert mle_certificate(w_hat, y, sigma2=sigma2).kkt.max() < 1e-8
    i, j = all_pairs(20)
    reachable = torch.matrix_power(to_matrix(w).bool().double() + torch.eye(20), 20)[:, i, j] > 0
    assert w_hat[~reachable].max() < 1e-3
    assert (((w_hat - w) ** 2).sum(-1) / (w**2).sum(-1)).max() < 0.02


@pytest.mark.parametrize("sigma2", [0.0, 0.1])
def test_mle_certificate_by_hand(sigma2):
    y = random_distances(5, 9, 0)
    w = torch.rand(10, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    constant = torch.full((5, 5), 1 / 5, dtype=torch.float64)
    K = laplacian(w) + sigma2 * (torch.eye(5) - constant) + constant
    S = torch.linalg.inv(K)
    i, j = all_pairs(5)
    r = S[i, i] + S[j, j] - 2 * S[i, j]
    X = (y / r).min() * (S - constant)
    primal = w @ y - torch.logdet(K)
    dual = 4 + torch.linalg.eigvalsh(X)[1:].log().sum() - sigma2 * X.trace()
    expected = torch.stack([primal, dual, (primal - dual) / 4, torch.minimum(w * y, 1 - r / y).abs().max()])
    torch.testing.assert_close(torch.stack([*mle_certificate(w, y, sigma2=sigma2)]), expected)


def test_mle_certificate_of_infeasible_points():
    y = random_distances(4, 5, 0)
    c = mle_certificate(torch.tensor([[1.0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, -0.1]]), y)
    assert torch.isinf(c.gap).all() and torch.isinf(c.primal).all()


def test_order_precision_and_observations(ba):
    w, y = ba
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    w_hat = laplacian_mle(y)
    torch.testing.assert_close(laplacian_mle(renumber(y, order)), renumber(w_hat, order), rtol=0, atol=1e-8)
    single = laplacian_mle(y.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), w_hat, rtol=0, atol=2e-4)
    torch.testing.assert_close(laplacian_mle(sample_observations(w, 3000, seed=1)), w_hat)


def test_convergence_and_bad_noise_are_said(ba):
    with pytest.warns(ConvergenceWarning, match="KKT residual") as said:
        laplacian_mle(ba[1], n_iter=2)
    assert said[0].filename == __file__
    assert "scale signals to equal deviations" in str(said[0].message)
    for sigma2 in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="sigma2="):
            laplacian_mle(ba[1], sigma2=sigma2)


@given(st.integers(3, 9), st.integers(1, 30), st.integers(0, 10**6))
def test_mle_is_certified_on_random_distances(m, n, seed):
    y = random_distances(m, n, seed)
    c = mle_certificate(laplacian_mle(y), y)
    assert c.kkt < 1e-8
    assert -1e-9 < c.gap < 1e-7
    worse = mle_certificate(exact(y), y)
    assert worse.dual <= c.primal + 1e-9 * abs(c.primal)
    assert worse.primal >= c.primal - 1e-9 * abs(c.primal)
