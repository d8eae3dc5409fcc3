"""Experiments on large graphs: the signals, the transfer of Unrolling, probabilities, label spreading."""

import numpy as np
import pytest
import torch

from helpers import graphs, metrics
from helpers.beyond.candidates import adjacency, candidate_edges
from helpers.experiments import methods, scaling
from helpers.experiments.runs import RUNS, load
from helpers.signals import distances, sample_signals
from helpers.solvers import exact


def test_plane_signals_are_waves_with_a_tenth_of_noise():
    X = scaling.plane_signals(2000, 40)
    assert X.shape == (40, 2000)
    assert X.dtype == np.float32
    assert scaling.plane_signals(10).shape == (32, 10)
    np.testing.assert_array_equal(scaling.plane_signals(2000, 40, seed=0), X)
    assert (scaling.plane_signals(2000, 40, seed=1) != X).mean() > 0.9
    # the same draws again, one by one
    rng = np.random.default_rng(0)
    place = rng.random((2000, 2))
    wave = rng.normal(size=(2, 40))
    phase = rng.uniform(0, 2 * np.pi, 40)
    noise = rng.standard_normal((40, 2000), dtype=np.float32)
    clean = np.sqrt(2) * np.cos(12 * place @ wave + phase).T
    np.testing.assert_allclose(X, clean + 0.1 * noise, atol=1e-5)
    assert np.mean(clean**2) == pytest.approx(1, abs=0.1), "waves have variance 1"


@pytest.fixture(scope="module")
def errors():
    return scaling.transfer_errors(RUNS["unrolling-ws"], 100, 2)


def test_the_rule_keeps_unrolling_from_exploding_on_larger_graphs(errors):
    """An empty graph has the error 1, and the exact solution about 0.08."""
    assert errors["Unrolling (as trained)"] == [1000.0, 1000.0]  # 1,000 or more
    assert max(errors["Unrolling (smaller steps)"]) < 1
    assert max(errors["Unrolling (rule, all pairs)"]) < 0.35
    assert max(errors["Unrolling (rule, candidates)"]) < 0.15
    assert max(errors["PDS (candidates)"]) < 0.1
    assert errors["recall"] == [1.0, 1.0]


def test_transfer_errors_are_those_of_the_graphs_they_name(errors):
    w = graphs.sample_graphs("WS", 2, 100, seed=0)[1]
    X = sample_signals(w, seed=graphs.spawn((0, 1), 2)[1])
    edges, y = candidate_edges(X, 15)
    alpha, beta = methods.tune("WS")
    w_hat = exact(y, alpha, beta, edges=edges, n_nodes=100)
    truth = graphs.to_matrix(w)[edges[0], edges[1]]
    assert errors["PDS (candidates)"][1] == pytest.approx(metrics.gmse(w_hat, truth).item())  # all of it is found
    smaller = methods.at_nodes(100, "WS")["Unrolling (ours, m=20, smaller steps)"](distances(X))
    assert errors["Unrolling (smaller steps)"][1] == pytest.approx(metrics.gmse(smaller, w).item(), rel=1e-3)


def test_order_and_size_of_probabilities():
    w = torch.tensor([1.0, 0, 0, 1, 1, 1])  # (0, 1), (1, 2), (1, 3), (2, 3)
    P = adjacency([0.95, 0.9, 0.2], torch.tensor([[0, 0, 2], [1, 2, 3]]), 4)
    found = scaling.order_and_size(P, w)
    assert found["recall"] == 0.5
    assert found["auc"] == 0.5, "0.95 is before 0.9, which is no edge, and 0.2 behind it"
    assert found["ece"] == pytest.approx((2 * abs(0.925 - 0.5) + 0.8) / 3)
    assert found["sure"] == pytest.approx(0.925)
    assert found["true"] == 0.5


def test_at_home_nothing_is_lost():
    """On 20 nodes with all 19 candidates, the network is what it is; with 3, some edges are missed."""
    errors = scaling.transfer_errors(RUNS["unrolling-ws"], 20, 1, n_candidates=19, seed=3)
    w = graphs.sample_graphs("WS", 1, 20, seed=3)
    X = sample_signals(w[0], seed=graphs.spawn((3, 1), 1)[0])
    plain = metrics.gmse(load(RUNS["unrolling-ws"]).predict(distances(X)), w[0]).item()
    for name in ("as trained", "smaller steps", "rule, all pairs", "rule, candidates"):
        assert errors[f"Unrolling ({name})"] == [pytest.approx(plain, rel=1e-3)]
    few = scaling.transfer_errors(RUNS["unrolling-ws"], 20, 1, n_candidates=2, seed=3)
    edges, _ = candidate_edges(X, 2)
    found = (graphs.to_matrix(w[0])[edges[0], edges[1]] > 0).sum() / (w > 0).sum()
    assert few["recall"] == [pytest.approx(found.item())]
    assert 0.2 < few["recall"][0] < 1


def test_relative_error_is_gmse():
    w, w_hat = graphs.sample_graphs("WS", 2, 30, seed=0, dtype=torch.float64)
    edges = graphs.all_pairs(30)
    error = scaling.relative_error(adjacency(w_hat, edges, 30), adjacency(w, edges, 30))
    assert error == pytest.approx(metrics.gmse(w_hat, w).item())


# --- label spreading -----------------------------------------------------------------------------------------------


def test_label_spreading_follows_the_components():
    edges = torch.cat([graphs.all_pairs(6), graphs.all_pairs(6) + 6], 1)
    W = adjacency(torch.ones(30, dtype=torch.float64), edges, 12)
    labels = np.repeat([3, 7], 6)
    assert (scaling.label_spreading(W, labels, 1, n_draws=5) == 1).all()
    assert (scaling.label_spreading(W, np.tile([3, 7], 6), 1, n_draws=5) < 1).all()
    assert len(scaling.label_spreading(W, labels, 1)) == 20


def test_label_spreading_is_zhous():
    """F = (I - alpha S)^-1 Y, dense and by hand; the labels that are given do not count."""
    rng = np.random.default_rng(1)
    w = torch.from_numpy(rng.random(190) * (rng.random(190) < 0.3))
    W = adjacency(w, graphs.all_pairs(20), 20)
    labels = rng.integers(0, 3, 20)
    draws = np.random.default_rng(5)
    expected = []
    for _ in range(4):
        known = np.concatenate([draws.choice(np.flatnonzero(labels == c), 2, replace=False) for c in range(3)])
        d = W.toarray().sum(1)
        S = W.toarray() / np.sqrt(np.maximum(np.outer(d, d), 1e-300))
        Y = np.zeros((20, 3))
        Y[known, labels[known]] = 1
        guess = np.linalg.solve(np.eye(20) - 0.5 * S, Y).argmax(1)
        others = np.setdiff1d(np.arange(20), known)
        expected.append((guess == labels)[others].mean())
    found = scaling.label_spreading(W, labels, 2, n_draws=4, seed=5, alpha=0.5)
    np.testing.assert_allclose(found, expected)
    usual = scaling.label_spreading(W, labels, 2, n_draws=4)
    np.testing.assert_allclose(usual, scaling.label_spreading(W, labels, 2, n_draws=4, seed=0, alpha=0.99))
