"""Dominant matrices: factor and solutions against dense ones, signs, ground, components, and how few iterations."""

import numpy as np
import pytest

from helpers.engine import elimination
from helpers.engine.elimination import BLOCK, DominantSystem, approximate_cholesky


def random_list(m, n_edges, seed):
    """A connected list (2, E): a path and random pairs."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, m, (2, n_edges))
    keys = np.minimum(i, j)[i != j] * m + np.maximum(i, j)[i != j]
    path = np.arange(m - 1) * m + np.arange(1, m)
    return np.stack(np.divmod(np.unique(np.concatenate([keys, path])), m)).astype(np.int32)  # as compiled for use


def matrix(edges, w, ground):
    """K as the module's docstring has it, atom by atom."""
    m = len(ground)
    K = np.diag(ground.astype(float))
    for i, j, x in zip(*edges, w):
        u = np.eye(m)[i] - np.sign(x) * np.eye(m)[j]
        K += abs(x) * np.outer(u, u)
    return K


def factored(factor):
    """The matrix that a factor stands for, (I - V) D (I - V)' with the columns of V in the order of elimination."""
    order, starts, rows, values, inverse = factor
    m = len(order)
    C = np.eye(m)
    for t, v in enumerate(order):
        part = slice(starts[t], starts[t + 1])
        np.add.at(C[:, v], rows[part], -values[part])
    D = np.divide(1, inverse, out=np.zeros(m), where=inverse > 0)
    return C @ np.diag(D) @ C.T


def test_elimination_of_a_tree_is_exact():
    """Leaves have one neighbour: there is nothing to draw."""
    rng = np.random.default_rng(0)
    edges = np.stack([rng.integers(0, np.arange(1, 30)), np.arange(1, 30)]).astype(np.int32)
    w = rng.normal(size=29)
    ground = rng.random(30)
    factor = approximate_cholesky(*edges, w, ground, rng)
    np.testing.assert_allclose(factored(factor), matrix(edges, w, ground), atol=1e-12)
    assert len(factor[2]) == 29


@pytest.mark.parametrize("signed", [False, True])
def test_the_factor_has_the_right_mean(signed):
    edges = random_list(8, 40, 0)
    rng = np.random.default_rng(1)
    w = rng.uniform(0.1, 2, edges.shape[1])
    if signed:
        w *= rng.choice([-1, 1], len(w))
    ground = rng.random(8)
    K = matrix(edges, w, ground)
    draws = np.stack([factored(approximate_cholesky(*edges, w, ground, rng)) for _ in range(4000)])
    error = draws.std(0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - K) < 4.5 * error + 1e-12).all()
    assert error.max() > 1e-3, "it is random"


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("tol", [1e-2, 1e-10])
def test_solutions_are_those_of_the_dense_matrix(signed, tol):
    edges = random_list(60, 300, 2)
    rng = np.random.default_rng(3)
    w = np.exp(2 * rng.normal(size=edges.shape[1]))
    if signed:
        w *= rng.choice([-1, 1], len(w))
    w[::7] = 0  # pairs without weight
    ground = 1e-3 * rng.random(60)
    K = matrix(edges, w, ground)
    U = rng.normal(size=(60, BLOCK))
    U[:, 3] = 0
    system = DominantSystem(edges, w, ground)
    np.testing.assert_allclose(system.diagonal, np.diag(K))
    X = system.solve(U, tol=tol)
    truth = np.linalg.solve(K, U)
    error = np.sqrt(np.einsum("ib,ij,jb->b", X - truth, K, X - truth))  # in the norm of K
    size = np.sqrt(np.einsum("ib,ij,jb->b", truth, K, truth))
    assert (error <= 3 * tol * size).all()
    assert (error[:3] > 1e-3 * tol * size[:3]).all(), "as accurate as asked for, no more"
    assert (X[:, 3] == 0).all()


def test_laplacians_of_several_components_are_solved():
    left = random_list(20, 60, 4)
    edges = np.concatenate([left, left + 20], 1)
    w = np.random.default_rng(5).uniform(0.1, 1, edges.shape[1])
    ground = np.zeros(41)  # and one node on its own
    L = matrix(edges, w, ground)
    U = L @ np.random.default_rng(6).normal(size=(41, BLOCK))
    X = DominantSystem(edges, w, ground).solve(U, tol=1e-9)
    np.testing.assert_allclose(L @ X, U, atol=1e-7)
    assert np.isfinite(X).all() and (X[40] == 0).all()


def test_nodes_without_edges_have_their_ground_alone():
    ground = np.array([1.0, 2, 4, 0.5])
    U = np.random.default_rng(0).normal(size=(4, BLOCK))
    X = DominantSystem(np.empty((2, 0), np.int64), np.empty(0), ground).solve(U, tol=1e-9)
    np.testing.assert_allclose(X, U / ground[:, None])


def test_a_factor_that_needs_more_room_than_expected_is_whole():
    edges = random_list(300, 1500, 0)
    w = np.random.default_rng(1).uniform(0.1, 1, edges.shape[1])
    ground = np.full(300, 0.01)
    system = DominantSystem(edges, w, ground)
    assert len(system._factor[2]) > 2 * len(w) + 300
    U = np.random.default_rng(2).normal(size=(300, BLOCK))
    X = system.solve(U, tol=1e-10)
    np.testing.assert_allclose(X, np.linalg.solve(matrix(edges, w, ground), U), atol=1e-6)


def test_a_grid_takes_few_iterations_and_a_small_factor(monkeypatch):
    side = 60
    number = np.arange(side**2).reshape(side, side)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()])
    down = np.stack([number[:-1].ravel(), number[1:].ravel()])
    edges = np.concatenate([across, down], 1)
    w = np.ones(edges.shape[1])
    system = DominantSystem(edges, w, np.zeros(side**2))
    calls = []
    multiply = elimination._multiply
    monkeypatch.setattr(elimination, "_multiply", lambda *a: calls.append(1) or multiply(*a))
    U = np.random.default_rng(0).normal(size=(side**2, BLOCK))
    U -= U.mean(0)
    X = system.solve(U, tol=1e-6)
    assert len(calls) < 60, "with the diagonal alone there are about 300"
    KX = np.empty_like(X)
    multiply(*system._matrix, X, KX)
    np.testing.assert_allclose(KX, U, atol=1e-3)
    assert len(system._factor[2]) < 3 * edges.shape[1]
    calls.clear()
    system.solve(U, tol=1e-6, n_iter=5)
    assert len(calls) == 5


def test_the_seed_decides():
    edges = random_list(50, 300, 0)
    w = np.ones(edges.shape[1])
    a, b, c = (DominantSystem(edges, w, np.ones(50), seed=s)._factor[3] for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
