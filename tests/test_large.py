import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from helpers import graphs, large, metrics, scaling, solvers, training
from helpers.models import Unrolling
from helpers.runs import RUNS
from helpers.signals import covariance_distances, distances, sample_distances, sample_split


def signals(m, n=32, seed=0, dtype=np.float64):
    """Smooth signals on random places in the unit square, (n, m)."""
    rng = np.random.default_rng(seed)
    place = rng.random((m, 2))
    waves = np.cos(place @ rng.normal(size=(2, n)) * 8 + rng.uniform(0, 6, n))
    return (waves + 0.05 * rng.normal(size=(m, n))).T.astype(dtype)


def half_vector(x, edges, m, fill):
    full = torch.full((m * (m - 1) // 2,), fill, dtype=torch.float64)
    full[graphs._positions(m, "cpu").reshape(m, m)[edges[0], edges[1]]] = x
    return full


# --- candidates ------------------------------------------------------------------------------------------------------


def test_all_pairs_as_candidates_are_the_complete_graph():
    X = signals(30)
    edges, y = large.candidate_edges(X, 29)
    assert torch.equal(edges, graphs.edges(30))
    torch.testing.assert_close(y, distances(X), rtol=1e-10, atol=1e-12)


def test_candidates_are_the_nearest_neighbours_symmetrised():
    X = signals(200)
    edges, y = large.candidate_edges(X, 6)
    Y = graphs.to_matrix(distances(X)).fill_diagonal_(torch.inf)
    near = Y <= Y.sort(1).values[:, 5:6]
    wanted = torch.nonzero(torch.triu(near | near.T)).T
    assert edges.dtype == torch.int64
    assert torch.equal(edges, wanted)
    torch.testing.assert_close(y, Y[edges[0], edges[1]], rtol=1e-10, atol=1e-12)


def test_approximate_search_finds_nearly_all(monkeypatch):
    X = signals(3000, dtype=np.float32)
    exact, _ = large.candidate_edges(X, 10)
    monkeypatch.setattr(large, "EXACT_SEARCH", 100)
    edges, y = large.candidate_edges(X, 10)
    again, _ = large.candidate_edges(X, 10)
    assert torch.equal(edges, again)
    assert (edges[0] < edges[1]).all()
    keys = edges[0] * 3000 + edges[1]
    assert (keys.diff() > 0).all(), "sorted, each pair once"
    found = torch.isin(exact[0] * 3000 + exact[1], keys).double().mean()
    assert found > 0.98
    torch.testing.assert_close(y, torch.from_numpy(((X[:, edges[0]] - X[:, edges[1]]) ** 2).mean(0)).double())


def test_duplicate_nodes_are_neighbours_at_distance_zero(monkeypatch):
    X = np.repeat(signals(40), 5, axis=1)
    for limit in (10_000, 10):
        monkeypatch.setattr(large, "EXACT_SEARCH", limit)
        edges, y = large.candidate_edges(X, 8)
        same = edges[0] // 5 == edges[1] // 5
        assert same.sum() == 40 * 10
        assert (y[same] == 0).all()
        w, _, cert = large.learn_edges(y, edges, 200, average_degree=5)
        assert cert.gap < 1e-6
        assert torch.isfinite(w).all()
    edges, y = large.candidate_edges(np.repeat(signals(40), 5, axis=1), 3)  # more copies than candidates
    assert (edges[0] // 5 == edges[1] // 5).all()


def test_bad_input_is_named(monkeypatch):
    X = signals(50)
    with pytest.raises(ValueError, match=r"n_candidates=50: between 1 and n_nodes - 1 = 49"):
        large.candidate_edges(X, 50)
    bad = X.copy()
    bad[3, [7, 11]] = np.nan
    with pytest.raises(ValueError, match=r"2 nodes, first \[7, 11\]"):
        large.candidate_edges(bad, 5)
    with pytest.raises(ValueError, match="constant"):
        large.candidate_edges(np.ones((4, 50)), 5)
    with pytest.raises(ValueError, match="shape"):
        large.candidate_edges(X[0], 5)
    edges, y = large.candidate_edges(X, 5)
    with pytest.raises(ValueError, match=r"1 nodes have no candidate, first \[50\]"):
        large.learn_edges(y, edges, 51)
    with pytest.raises(ValueError, match="take more candidates"):
        large.learn_edges(y, edges, 50, average_degree=12)
    with pytest.raises(ValueError, match="NaN"):
        large.learn_edges(y * torch.nan, edges, 50)
    with pytest.raises(ValueError, match=r"edges\[0\] < edges\[1\]"):
        large.learn_edges(y, edges.flip(0), 50)
    with pytest.raises(ValueError, match="shapes"):
        large.learn_edges(y[1:], edges, 50)
    monkeypatch.setattr(large, "EXACT_SEARCH", 10)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"l2g-reproduction\[large\]"):
        large.candidate_edges(X, 5)


# --- solvers ---------------------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(4, 40), st.floats(0.1, 100), st.floats(0.2, 5), st.integers(0, 99))
def test_complete_list_gives_the_dense_solution(m, theta, beta, seed):
    y = distances(signals(m, seed=seed))
    y = theta * y / y.mean()
    w = large.exact(y, graphs.edges(m), m, 1.5, beta)
    torch.testing.assert_close(w, solvers.exact(y, 1.5, beta, tol=1e-20), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_candidates", [4, 12])
def test_same_answer_as_dense_on_the_same_support(n_candidates):
    m, X = 150, signals(150)
    edges, y = large.candidate_edges(X, n_candidates)
    y = 3 * y / y.mean()
    w = large.exact(y, edges, m)
    dense = solvers.exact(half_vector(y, edges, m, 1e6), tol=1e-20)  # the others too far away for an edge
    torch.testing.assert_close(half_vector(w, edges, m, 0.0), dense, rtol=0, atol=1e-8)
    list_, full = (
        solvers.certificate(w, y, edges=edges, n_nodes=m),
        solvers.certificate(half_vector(w, edges, m, 0.0), half_vector(y, edges, m, 1e6)),
    )
    torch.testing.assert_close(torch.stack(list_[:2]), torch.stack(full[:2]))
    assert list_.gap < 1e-14
    assert solvers.certificate(w * 1.01, y, edges=edges, n_nodes=m).gap > 1e-6
    torch.testing.assert_close(large.pds(y, edges, m, tol=1e-10), w, rtol=0, atol=1e-6)


def test_restriction_is_free_once_the_support_is_inside():
    X = signals(120)
    theta = solvers.theta_for_degree(distances(X), 4)
    full = solvers.exact(theta * distances(X), tol=1e-20)
    edges, y = large.candidate_edges(X, 60)
    w = large.exact(theta * y, edges, 120)
    torch.testing.assert_close(half_vector(w, edges, 120, 0.0), full, rtol=0, atol=1e-8)


def test_wished_degree_and_path():
    m, X = 800, signals(800)
    edges, y = large.candidate_edges(X, 40)
    wished = (2, 3, 5, 8, 12, 20, 30)
    found = large.path(y, edges, m, degrees=wished, degree_tol=0.02)
    for degree, (w, theta, cert) in zip(wished, found, strict=True):
        assert 2 * (w > 1e-6 * w.max()).sum().item() / m == pytest.approx(degree, rel=0.021)
        assert cert.gap <= 1e-6
        torch.testing.assert_close(w, large.exact(theta * y, edges, m), rtol=0, atol=0.02)
    alone = large.learn_edges(y, edges, m, average_degree=5, tol=1e-20)
    torch.testing.assert_close(alone.w, large.exact(alone.theta * y, edges, m), rtol=0, atol=1e-8)
    dense = solvers.learn(distances(X), 5)[1]
    assert alone.theta == pytest.approx(dense.item(), rel=0.1)


def test_units_of_the_signals_do_not_matter():
    edges, y = large.candidate_edges(signals(100), 12)
    one, two = (large.learn_edges(c * y, edges, 100, tol=1e-14) for c in (1.0, 1e6))
    torch.testing.assert_close(one.w, two.w, rtol=0, atol=1e-6)


def test_unreachable_degree_is_said():
    with pytest.warns(ConvergenceWarning, match="not reached"):  # all or nothing: every pair is equally far
        large.learn_edges(torch.ones(15), graphs.edges(6), 6, average_degree=2)


def test_pds_says_when_it_has_not_converged():
    edges, y = large.candidate_edges(signals(60), 6)
    with pytest.warns(ConvergenceWarning, match="relative gap"):
        large.pds(y / y.mean(), edges, 60, n_iter=3)


def test_norm_bound_bounds_the_operator():
    edges, _ = large.candidate_edges(signals(80), 6)
    D = torch.zeros(80, edges.shape[1])
    D[edges, torch.arange(edges.shape[1])] = 1
    norm = torch.linalg.matrix_norm(D, 2).item()
    assert norm <= large.norm_bound(edges, 80) < 1.7 * norm
    assert large.norm_bound(graphs.edges(20), 20) == pytest.approx(38**0.5)


# --- Unrolling -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    """A trained model, and 50 graphs of the size and kind it was trained on."""
    run = RUNS["unrolling-ws-m20-t20"]
    S, _ = sample_split(run, "test", 50)
    y = covariance_distances(S)
    model = training.load(run)
    return model, y, model.double().predict(y)


@pytest.mark.parametrize("n_copies", [1, 5, 50])  # m = 20, 100, 1,000
def test_unrolling_of_graphs_side_by_side_is_that_of_each(trained, n_copies):
    model, y, w = trained
    edges = torch.cat([graphs.edges(20) + 20 * k for k in range(n_copies)], 1)
    out = large.unroll(model, y[:n_copies].flatten(), edges, 20 * n_copies)
    torch.testing.assert_close(out, w[:n_copies].flatten(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_copies", [1, 5, 50])  # m = 20, 100, 1,000
def test_unrolling_of_copied_nodes_shares_the_weight(trained, n_copies):
    model, y, w = trained
    m = 20 * n_copies
    i, j = graphs.edges(m)
    between = i % 20 != j % 20  # copies of one node are no candidates of each other
    Y, W = graphs.to_matrix(y[0]), graphs.to_matrix(w[0])
    i, j = i[between], j[between]
    out = large.unroll(model, Y[i % 20, j % 20], torch.stack([i, j]), m, degree_ratio=n_copies)
    torch.testing.assert_close(out, W[i % 20, j % 20] / n_copies, rtol=1e-8, atol=1e-8)


def test_scaled_layers_keep_the_fixed_point():
    edges, y = large.candidate_edges(signals(300), 60)
    y = 4 * y / y.mean()
    model = Unrolling(4000, shared=True)  # alpha = beta = 1, a step that is safe for 20 nodes
    assert large.norm_bound(edges, 300) > 1.5 * 38**0.5
    torch.testing.assert_close(large.unroll(model, y, edges, 300), large.exact(y, edges, 300), rtol=0, atol=1e-6)


def test_rule_keeps_unrolling_from_exploding_on_larger_graphs():
    errors = scaling.transfer(RUNS["unrolling-ws-m20-t20"], 500, 1)
    assert errors["Unrolling (as trained)"] == [1000.0]  # 1,000 or more
    assert errors["Unrolling (rule, all pairs)"][0] < 1.1
    assert errors["Unrolling (rule, candidates)"][0] < 0.5
    assert errors["recall"] == [1.0]


# --- effective resistances -------------------------------------------------------------------------------------------


def test_effective_resistances_approach_the_dense_ones():
    m = 300
    edges, y = large.candidate_edges(signals(m), 12)
    w = large.learn_edges(y, edges, m, average_degree=5).w
    L = torch.zeros(m, m, dtype=torch.float64)
    L[edges[0], edges[1]] = -w
    L = L + L.T
    S = torch.linalg.pinv(torch.diag(-L.sum(1)) + L)
    r = S.diagonal()[edges[0]] + S.diagonal()[edges[1]] - 2 * S[edges[0], edges[1]]
    errors = []
    for n_probes in (32, 512):
        sketch = large.effective_resistances(w, edges, m, n_probes=n_probes, seed=1, tol=1e-8)
        connected = sketch.isfinite()
        assert connected[w > 0].all()
        errors.append((sketch / r - 1)[connected].abs().mean().item())
    assert errors[0] < 0.13
    assert errors[1] < errors[0] / 3  # the root of 16 is 4


def test_effective_resistances_by_hand():
    edges = torch.tensor([[0, 0, 1, 3, 2], [1, 2, 2, 4, 3]])  # a triangle, one edge, and a candidate between them
    w = torch.tensor([1.0, 1.0, 1.0, 4.0, 0.0], dtype=torch.float64)
    r = large.effective_resistances(w, edges, 5, n_probes=4000)
    torch.testing.assert_close(r[:3], torch.full((3,), 2 / 3, dtype=torch.float64), rtol=0.05, atol=0)
    torch.testing.assert_close(r[3], torch.tensor(0.25, dtype=torch.float64))
    assert r[4].isinf()


def test_likelihood_approaches_the_dense_solution():
    w = graphs.sample_graphs("WS", 1, 30, seed=3, dtype=torch.float64)
    y = sample_distances(w, seed=4)
    dense = solvers.laplacian_mle(y)[0]
    close, r = large.likelihood(y[0], graphs.edges(30), 30, n_updates=200)
    assert metrics.gmse(close, dense) < 0.01
    on = dense > 0.05
    torch.testing.assert_close(r[on], y[0][on], rtol=0.2, atol=0)
    with pytest.raises(ValueError, match="y has a zero"):
        large.likelihood(y[0] * (y[0] > y[0].min()), graphs.edges(30), 30)


def test_memory_estimate_grows_linearly():
    one, ten = (large.estimate_memory(m, 32, 10) for m in (10**5, 10**6))
    assert ten == 10 * one
    assert 0.5e9 < ten < 8e9


# --- what the notebook measures --------------------------------------------------------------------------------------


def test_relative_error_is_gmse():
    w, w_hat = graphs.sample_graphs("WS", 2, 30, seed=0, dtype=torch.float64)
    edges = graphs.edges(30)
    error = scaling.relative_error(large.adjacency(w_hat, edges, 30), large.adjacency(w, edges, 30))
    assert error == pytest.approx(metrics.gmse(w_hat, w).item())


def test_label_spreading_follows_the_components():
    edges = torch.cat([graphs.edges(6), graphs.edges(6) + 6], 1)
    W = large.adjacency(torch.ones(30, dtype=torch.float64), edges, 12)
    labels = np.repeat([3, 7], 6)
    assert (scaling.label_spreading(W, labels, 1, n_draws=5) == 1).all()
    assert (scaling.label_spreading(W, np.tile([3, 7], 6), 1, n_draws=5) < 1).all()


def test_slope_of_a_power_law():
    frame = pd.DataFrame([scaling.number("solve", "a", 3 * x**1.2, x) for x in (10, 100, 1000)])
    assert scaling.slope(frame, "solve") == pytest.approx(1.2)
