"""The graphical lasso: optimality conditions, scikit-learn as the oracle, and the choice of the penalty."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gglasso.problem import glasso_problem
from sklearn.covariance import graphical_lasso as scikit_learns

from helpers.graphs import to_matrix, to_vector
from helpers.rivals.glad import ThetaEigen
from helpers.rivals.graphical_lasso import (
    best_penalty,
    by_extended_bic,
    extended_bic,
    from_moments,
    graphical_lasso,
    partial_correlations,
    precision,
)
from helpers.signals import Observations


def chain(m=6):
    """The precision of a chain of m nodes."""
    return np.eye(m) + 0.4 * (np.eye(m, k=1) + np.eye(m, k=-1))


def signals(n=500, m=6, seed=0):
    return np.random.default_rng(seed).multivariate_normal(np.zeros(m), np.linalg.inv(chain(m)), n)


def moments(n_graphs=3, n=500, m=6, seed=0):
    """Second moments (n_graphs, m, m) of signals on chains, in different units."""
    X = np.stack([10.0**k * signals(n, m, seed + k) for k in range(n_graphs)])
    return torch.from_numpy(X.transpose(0, 2, 1) @ X / n)


def test_scikit_learns_finds_a_chain():
    X = signals()
    score = graphical_lasso(X)
    edge = to_vector(torch.from_numpy(chain()).double()) > 0
    assert score.shape == (15,)
    assert (score >= 0).all()
    assert (score <= 1).all()
    assert score[edge].min() > score[~edge].max()
    coarse = graphical_lasso(X, alphas=[0.3, 0.4])
    assert coarse.sum() < score.sum(), "options reach scikit-learn"


@pytest.mark.parametrize(
    "X, message",
    [
        (np.where(signals() > 2, np.nan, signals()), "X contains NaN or infinite values: remove or impute"),
        (signals()[0], r"X has shape \(6,\)"),
        (signals()[:, :2], r"X has shape \(500, 2\).*at least 3 nodes"),
    ],
)
def test_bad_signals(X, message):
    with pytest.raises(ValueError, match=message):
        graphical_lasso(X)


def test_three_nodes_are_enough():
    assert graphical_lasso(signals()[:, :3]).shape == (3,)


def test_partial_correlations_are_those_of_regression_residuals():
    X = signals(50, 5)
    P = torch.from_numpy(np.linalg.inv(X.T @ X / 50))
    rest = np.delete(X, [1, 3], axis=1)
    residual = [x - rest @ np.linalg.lstsq(rest, x, rcond=None)[0] for x in (X[:, 1], X[:, 3])]
    expected = residual[0] @ residual[1] / np.sqrt((residual[0] @ residual[0]) * (residual[1] @ residual[1]))
    assert to_matrix(partial_correlations(P))[1, 3].item() == pytest.approx(expected)


def optimality(S, Z, alpha):
    """Violation of S - Z^-1 + alpha sign(Z) = 0, |S - Z^-1| <= alpha where Z = 0, no penalty on the diagonal."""
    gradient = S - torch.linalg.inv(Z)
    off = ~torch.eye(S.shape[-1], dtype=torch.bool)
    active = (gradient + alpha * Z.sign()).abs() * (Z != 0)
    inactive = (gradient.abs() - alpha).clamp_min(0) * (Z == 0)
    return torch.where(off, active + inactive, gradient.abs()).amax((-2, -1))


@pytest.mark.parametrize("alpha", [0.02, 0.2])
def test_precision_is_optimal_with_exact_zeros(alpha):
    S = moments()[:1]
    Z = precision(S, alpha, tol=1e-9)
    assert Z.shape == S.shape
    assert Z.dtype == torch.float64
    assert (Z == 0).any()
    assert optimality(S, Z, alpha).max() < 1e-7


def test_precision_is_scikit_learns():
    S = moments(1)[0]
    _, expected = scikit_learns(S.numpy(), alpha=0.1, tol=1e-8, enet_tol=1e-8, max_iter=500)
    torch.testing.assert_close(precision(S, 0.1, tol=1e-8), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)


def test_graphs_in_different_units_are_solved_together():
    S = moments()
    together = precision(S, 0.1, tol=1e-9)
    apart = torch.stack([precision(one, 0.1, tol=1e-9) for one in S])
    torch.testing.assert_close(together, apart, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_does_not_matter(unit):
    """In another unit the same iterations are made, and so as many of them."""
    S = moments(1)
    expected = precision(S, 0.1, n_iter=18)
    torch.testing.assert_close(unit * precision(unit * S, unit * 0.1, n_iter=18), expected, rtol=1e-8, atol=1e-10)


def near_copies(n=50, noise=0.01):
    """Correlations of six nodes and of two more that almost repeat the first ones."""
    X = signals(n)
    X = np.hstack([X, X[:, :2] + noise * np.random.default_rng(1).standard_normal((n, 2))])
    X /= np.sqrt((X**2).mean(0))
    return torch.from_numpy(X.T @ X / n)


def test_near_copies_are_solved_because_the_residuals_are_kept_in_balance():
    S = near_copies()
    Z = precision(S, 0.01, n_iter=1100)  # several times as many without balance
    assert Z[0, 6] < -10, "a node is tied to its near copy"
    gap = (S * Z).sum() + 0.01 * (Z.abs().sum() - Z.diagonal().abs().sum()) - len(S)  # 0 at the optimum
    assert gap.abs() < 0.01 * len(S)


def test_rho_is_doubled_or_halved_after_every_tenth_iteration(monkeypatch):
    seen = []
    theta = ThetaEigen.apply
    spy = SimpleNamespace(apply=lambda B, c: seen.append(4 / c) or theta(B, c))
    monkeypatch.setattr("helpers.rivals.graphical_lasso.ThetaEigen", spy)
    monkeypatch.setattr("helpers.rivals.graphical_lasso.IMBALANCE", 1.0)  # the larger residual counts, however close
    with pytest.raises(FloatingPointError):
        precision(moments(1), 0.1, tol=0, n_iter=60)
    factor = torch.cat(seen)[1:].flatten() / torch.cat(seen)[:-1].flatten()
    assert (factor != 1).nonzero().flatten().tolist() == [9, 19, 29, 39, 49]
    assert set(factor[9::10].tolist()) == {0.5, 2.0}


def test_tolerance_bounds_the_error():
    S = moments(1)
    exact = precision(S, 0.05, tol=1e-11)
    for tol in (1e-3, 1e-6):
        error = torch.linalg.matrix_norm(precision(S, 0.05, tol=tol) - exact) / torch.linalg.matrix_norm(exact)
        assert error < 10 * tol


def test_too_few_iterations_are_an_error_that_says_what_was_reached():
    with pytest.raises(FloatingPointError, match=r"relative residual .* above tol=1e-12 after 3 iterations.*alpha=0.1"):
        precision(moments(), 0.1, tol=1e-12, n_iter=3)


@pytest.mark.parametrize("alpha", [0.0, -1.0])
def test_penalty_must_be_positive(alpha):
    with pytest.raises(ValueError, match=f"alpha={alpha}"):
        precision(moments(), alpha)


def test_observations_or_moments():
    S = moments()
    w = from_moments(Observations(S, 500.0), 0.1)
    assert w.shape == (3, 15)
    assert torch.equal(w, from_moments(S, 0.1))
    assert torch.equal(w, partial_correlations(precision(S, 0.1)).abs())


def test_best_penalty_has_the_highest_likelihood_on_held_out_moments():
    S = torch.cat([moments(1, 20, seed=seed) for seed in (0, 1)])
    held_out = torch.cat([moments(1, 20, seed=seed) for seed in (2, 3)])

    def likelihood(alpha):
        P = precision(S, alpha)
        return (torch.logdet(P) - (P * held_out).sum((-2, -1))).mean()

    alphas = (0.001, 0.01, 0.1, 1.0)
    values = [likelihood(alpha) for alpha in alphas]
    best = alphas[values.index(max(values))]
    assert best not in (alphas[0], alphas[-1]), "an example with a best penalty in between is needed"
    assert best_penalty(Observations(S, 20.0), Observations(held_out, 20.0), alphas) == best
    assert best_penalty(S, held_out, alphas[::-1]) == best


def test_the_extended_criterion_by_hand():
    P = torch.tensor([[2.0, -1, 0], [-1, 2, 0], [0, 0, 1]]).double()
    S = torch.eye(3).double() * 3
    expected = 50 * (15 - np.log(3)) + np.log(50) + 4 * 0.3 * np.log(3)
    assert extended_bic(P, S, 50, gamma=0.3).item() == pytest.approx(expected)


def test_each_graph_has_the_penalty_of_least_criterion():
    """Of two graphs with the same moments the one with fewer signals has the larger penalty."""
    S = moments(1, n=500)[[0, 0]]
    alphas = (0.02, 0.1, 0.4)
    n = torch.tensor([20.0, 5000.0])
    found = by_extended_bic(Observations(S, n), alphas)
    values = torch.stack([extended_bic(precision(S, a), S, n) for a in alphas])
    chosen = [alphas[k] for k in values.argmin(0)]
    assert chosen[0] > chosen[1]
    for k in range(2):
        expected = partial_correlations(precision(S[k], chosen[k]))
        torch.testing.assert_close(found[k], expected, rtol=0, atol=1e-3)
    assert torch.equal(by_extended_bic(Observations(S[0], 20.0), alphas), found[0])


def test_the_criterion_chooses_as_gglasso_does(capsys):
    """The same penalties, moments and gamma: the same graph, and partial correlations up to the tolerance of ADMM."""
    alphas = (0.02, 0.06, 0.12, 0.3)
    S = torch.cat([moments(1, n=60, seed=seed) for seed in (0, 1)])
    found = by_extended_bic(Observations(S, 60.0), alphas, gamma=0.2)
    for k in range(2):
        problem = glasso_problem(S[k].numpy(), 60.0, reg=None, latent=False, do_scaling=False)
        problem.model_selection({"lambda1_range": np.array(alphas[::-1])}, method="eBIC", gamma=0.2)
        expected = partial_correlations(torch.from_numpy(problem.solution.precision_))
        assert torch.equal(found[k] != 0, expected != 0)
        torch.testing.assert_close(found[k], expected, rtol=0, atol=5e-4)
    assert 0 < (found != 0).double().mean() < 1
    capsys.readouterr()  # gglasso reports every solution
