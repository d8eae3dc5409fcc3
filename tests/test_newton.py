"""Through the solvers that use it, `exact` and `learn`."""

import warnings

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from toys import random_distances

from helpers.engine import newton
from helpers.graphs import all_pairs, degrees
from helpers.signals import distances
from helpers.solvers import certificate, exact, learn, learn_path, pds


@pytest.mark.parametrize("theta", [1e-6, 1e-2, 1.0, 1e2, 1e4])
def test_exact_over_scales(ba, theta):
    y = theta * ba[1]
    assert certificate(exact(y), y).gap.max() <= 1e-10


@pytest.mark.parametrize("theta", [1.0, 1e2])
def test_exact_on_disconnected_graphs(disconnected, theta):
    """Between components y is about 1e4 and w about 1e-5: nine digits of y cancel in w."""
    _, y = disconnected
    assert y.max() > 1e4
    w_hat = exact(theta * y)
    assert certificate(w_hat, theta * y).gap.max() <= 1e-10
    assert (degrees(w_hat) > 0).all()


def test_exact_needs_a_handful_of_steps_at_300_nodes():
    """Newton's method: each step after the first few squares the error, so that 20 are plenty for any size."""
    y = torch.rand(44_850, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    path = exact(y, tol=1e-10, path=True)
    assert len(path) < 20
    assert torch.equal(path[-1], exact(y, tol=1e-10))
    assert certificate(path[-1], y).gap <= 1e-10
    assert 1e-5 < certificate(pds(y, n_iter=50, tol=0), y).gap


@pytest.mark.parametrize("theta", [1.0, 1e2])
def test_lists_of_disconnected_graphs_reach_the_dense_gap(disconnected, theta):
    """Without compensated sums the list stopped at gaps of 7e-5 and 4e4."""
    for y in theta * disconnected[1]:
        w = exact(y, edges=all_pairs(20), n_nodes=20)
        assert certificate(w, y).gap <= 1e-10


def test_hopeless_distances_end_early_with_the_gap(monkeypatch):
    """Beyond 32 digits nothing can be solved: a warning states the gap after few steps, not after thousands."""
    X = torch.randn(200, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X[3, 5] = 1e10
    steps = []
    step = newton._newton_step
    monkeypatch.setattr(newton, "_newton_step", lambda *a: steps.append(1) or step(*a))
    with pytest.warns(ConvergenceWarning, match="relative gap .* of the dual Newton method, above tol=1e-14"):
        exact(distances(X))
    assert len(steps) < 300


@pytest.mark.parametrize("degree", [3, 6.5, 15])
def test_learn_gives_the_wished_degree(ba, degree):
    y = ba[1]
    w, theta, proof = learn(y, degree)
    assert theta.shape == y.shape[:-1]
    assert (2 * (w > 0).sum(-1) / 20 - degree).abs().max() <= 0.02 * degree + 0.05
    assert certificate(w, theta[:, None] * y).gap.max() <= 1e-13
    torch.testing.assert_close(proof.gap, certificate(w, theta[:, None] * y).gap)
    assert torch.allclose(learn(1000 * y, degree).theta, theta / 1000)


def test_learn_says_when_a_degree_does_not_exist():
    y = torch.ones(2, 45)  # all edges or none
    with pytest.warns(ConvergenceWarning, match="average_degree=4"):
        w = learn(y, 4).w
    assert (w > 0).all() and w.dtype == torch.float32
    with pytest.raises(ValueError, match=r"average_degree=0\.5"):
        learn(y, 0.5)


def test_learn_on_disconnected_graphs(disconnected):
    w = learn(disconnected[1], 5).w
    assert (2 * (w > 0).sum(-1) / 20 - 5).abs().max() <= 0.15


@pytest.mark.parametrize("degree", [1.0, 1.2, 1.5])
@pytest.mark.parametrize("listed", [False, True])
def test_degrees_below_the_nearest_neighbour_graph_are_said(ba, degree, listed):
    options = {"edges": all_pairs(20), "n_nodes": 20} if listed else {}
    with pytest.warns(ConvergenceWarning, match=f"average_degree={degree} is not reached, the closest is") as said:
        w, _, proof = learn(ba[1][0], degree, **options)
    assert said[0].filename == __file__
    assert proof.gap < 1e-13
    assert 1 <= 2 * (w > 1e-6 * w.max()).sum() / 20 < 2.2


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("size", [1e5, 1e7])
def test_one_wild_value_does_not_stop_the_search(listed, size):
    """Distances to that node are 1e13 times the others: only doubled digits tell its weights."""
    X = torch.randn(200, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X[3, 5] = size
    y = distances(X)
    options = {"edges": all_pairs(20), "n_nodes": 20} if listed else {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        w, _, proof = learn(y, 4, **options)
    assert proof.gap < 1e-6
    assert all("relative gap" in str(one.message) for one in said)
    assert (2 * (w > 1e-6 * w.max()).sum() / 20 - 4).abs() <= 0.1
    assert (degrees(w) > 0).all()


@pytest.mark.parametrize("listed", [False, True])
def test_path_of_densities(listed):
    m = 80
    y = random_distances(m, 6, 3)
    options = {"edges": all_pairs(m), "n_nodes": m} if listed else {}
    wished = (2, 3, 5, 8, 12, 20, 40)
    found = learn_path(y, wished, **options)
    for degree, (w, theta, proof) in zip(wished, found, strict=True):
        assert 2 * (w > 1e-6 * w.max()).sum().item() / m == pytest.approx(degree, rel=0.021)
        assert proof.gap <= 1e-13
        torch.testing.assert_close(w, exact(theta * y, tol=1e-20), rtol=0, atol=1e-6)
    thetas = [step.theta.item() for step in found]
    assert thetas == sorted(thetas, reverse=True)


def test_a_search_takes_few_solves(ba, monkeypatch):
    solved = []
    solve = newton.dual_newton
    monkeypatch.setattr(newton, "dual_newton", lambda *a, **k: solved.append(1) or solve(*a, **k))
    learn(ba[1][0], 6)
    assert len(solved) <= 8


def test_a_search_for_a_degree_that_does_not_exist_ends_where_theta_stands_still(ba, monkeypatch):
    """At the largest theta, or where the thetas on both sides of a jump have met; there are 60 solves at most."""
    solved = []
    solve = newton.dual_newton
    monkeypatch.setattr(newton, "dual_newton", lambda *a, **k: solved.append(1) or solve(*a, **k))
    for y, degree in ((ba[1][0], 1.0), (torch.ones(2, 45).double(), 4)):
        solved.clear()
        with pytest.warns(ConvergenceWarning, match="is not reached"):
            learn(y, degree)
        assert len(solved) <= 20
