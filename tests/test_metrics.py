"""Each metric against an independent computation, on batches, at its edges and with bad input."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.spatial.distance import squareform
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from helpers import metrics

E = 45  # ten nodes
FEW = 10  # pairs, where examples are searched for
# quarters: ties are frequent and sums exact
scores = arrays(np.float64, FEW, elements=st.integers(-4, 8).map(lambda k: k / 4))
labels = arrays(np.bool_, FEW).filter(lambda x: 0 < x.sum() < FEW)
positive = arrays(np.float64, FEW, elements=st.floats(0.01, 10))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_graphs(*shape, p=0.3):
    rng = np.random.default_rng(1)
    return torch.from_numpy((rng.random((*shape, E)) < p).astype(float))


def networks(a):
    return [nx.from_numpy_array(squareform(row)) for row in a.reshape(-1, a.shape[-1]).numpy()]


def weights(*shape):
    """Sparse truth and a noisy estimate of it, with exact zeros and negative values."""
    rng = np.random.default_rng(2)
    w = random_graphs(*shape) * torch.from_numpy(rng.uniform(0.5, 1.5, (*shape, E)))
    w_hat = w + 0.4 * torch.from_numpy(rng.standard_normal((*shape, E)))
    return torch.where(w_hat.abs() < 0.1, 0, w_hat), w


# --- weights -------------------------------------------------------------------------------------------------------


@given(positive, positive, st.floats(0.1, 10))
def test_gmse_is_scale_free_and_known_for_multiples_of_the_truth(w_hat, w, c):
    assert metrics.gmse(w_hat, w) == pytest.approx(np.sum((w_hat - w) ** 2) / np.sum(w**2))
    torch.testing.assert_close(metrics.gmse(c * w_hat, c * w), metrics.gmse(w_hat, w))
    assert metrics.gmse(c * w, w) == pytest.approx((c - 1) ** 2, abs=1e-12)


def test_nmse_of_zero_is_one_and_includes_the_diagonal(rng):
    theta, theta_hat = rng.standard_normal((2, 3, 4, 5, 5))
    assert torch.equal(metrics.nmse(np.zeros_like(theta), theta), torch.ones(3, 4, dtype=torch.float64))
    expected = np.linalg.norm(theta_hat - theta, axis=(-2, -1)) ** 2 / np.linalg.norm(theta, axis=(-2, -1)) ** 2
    np.testing.assert_allclose(metrics.nmse(theta_hat, theta), expected)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_mean_ci_is_scipys_t_interval(level, rng):
    values = rng.standard_normal(64)
    low, high = stats.t.interval(level, 63, loc=values.mean(), scale=stats.sem(values))
    mean, half_width = metrics.mean_ci(torch.from_numpy(values), level)
    assert (mean - half_width, mean + half_width) == pytest.approx((low, high))


def test_pairwise_spearman_is_scipys():
    w = weights(6)[0]
    rho = stats.spearmanr(w, axis=1).statistic
    np.testing.assert_allclose(metrics.pairwise_spearman(w), rho[np.triu_indices(6, 1)], atol=1e-12)
    assert metrics.pairwise_spearman(w[:2]).shape == (1,)


@given(arrays(np.float64, (3, FEW), elements=st.integers(1, 40).map(float)))
def test_spearman_sees_only_the_order(w):
    if (w == w[:, :1]).all(1).any():
        return
    rho = metrics.pairwise_spearman(w)
    torch.testing.assert_close(metrics.pairwise_spearman(np.log(w) * [[1], [2], [3]]), rho)
    torch.testing.assert_close(metrics.pairwise_spearman(w * [[1], [-1], [-1]]), rho * torch.tensor([-1, -1, 1]))


# --- which edges exist ---------------------------------------------------------------------------------------------


@given(scores, labels)
def test_auc_is_scikit_learns_with_ties(score, label):
    expected = roc_auc_score(label, np.maximum(score, 0))
    assert metrics.auc(score, label) == pytest.approx(expected, abs=1e-12)


@given(scores, labels)
def test_auc_sees_only_the_order(score, label):
    score = np.abs(score)
    assert torch.equal(metrics.auc(score, label), metrics.auc(np.expm1(2 * score), label))
    assert metrics.auc(8 - score, label) == pytest.approx(1 - metrics.auc(score, label))


@given(scores, labels)
def test_average_precision_is_scikit_learns_with_ties(score, label):
    expected = average_precision_score(label, np.maximum(score, 0))
    assert metrics.average_precision(score, label) == pytest.approx(expected, abs=1e-12)


def test_average_precision_of_a_batch_the_truth_and_a_constant():
    w_hat, w = weights(2, 3)
    each = [[metrics.average_precision(a, b) for a, b in zip(*rows)] for rows in zip(w_hat, w)]
    assert metrics.average_precision(w_hat, w).tolist() == each
    assert (metrics.average_precision(w, w) == 1).all()
    torch.testing.assert_close(metrics.average_precision(torch.ones_like(w), w), (w > 0).double().mean(-1))


def test_auc_of_the_truth_and_of_a_constant():
    w = weights(7)[1]
    assert torch.equal(metrics.auc(w, w), torch.ones(7, dtype=torch.float64))
    assert torch.equal(metrics.auc(torch.ones_like(w), w), torch.full((7,), 0.5, dtype=torch.float64))


@given(scores, labels)
def test_f1_is_scikit_learns(score, label):
    expected = f1_score(label, score > 0.3, zero_division=0)
    assert metrics.f1(score, label, 0.3) == pytest.approx(expected, abs=1e-12)


@given(scores, labels)
def test_best_threshold_beats_every_other_and_keeps_its_distance(score, label):
    t = metrics.best_threshold(score, label)
    others = np.r_[0, np.unique(np.maximum(score, 0))]
    assert metrics.f1(score, label, t) >= max(metrics.f1(score, label, other) for other in others) - 1e-12
    assert t >= 0
    if score.max() > 0:
        assert np.abs(score - t).min() >= 0.125  # half of the grid of scores


def test_best_threshold_pools_the_batch():
    w_hat, w = weights(8)
    assert metrics.best_threshold(w_hat, w) == metrics.best_threshold(w_hat.flatten(), w.flatten())
    assert metrics.best_threshold(torch.zeros_like(w), w) == 0


def test_binarise_is_strict():
    assert metrics.binarise(torch.tensor([0.0, 0.5, 0.6, -1]), 0.5).tolist() == [0, 0, 1, 0]


# --- structure -----------------------------------------------------------------------------------------------------


def test_clustering_is_networkxs():
    a = torch.cat([random_graphs(20, p=p) for p in (0.05, 0.3, 0.9)])
    np.testing.assert_allclose(metrics.clustering(a), [nx.average_clustering(g) for g in networks(a)], atol=1e-12)


def test_average_shortest_path_is_networkxs_on_the_largest_component():
    a = torch.cat([random_graphs(20, p=p) for p in (0.1, 0.3)])
    graphs = networks(a)
    assert metrics.n_disconnected(a) == sum(not nx.is_connected(g) for g in graphs) > 0
    for value, graph in zip(metrics.average_shortest_path(a), graphs, strict=True):
        pieces = list(nx.connected_components(graph))
        largest = [c for c in pieces if len(c) == max(map(len, pieces))]
        paths = [nx.average_shortest_path_length(graph.subgraph(c)) for c in largest]
        assert any(value == pytest.approx(p) for p in paths)


def test_modularity_of_known_blocks_is_networkxs(rng):
    a = random_graphs(5)
    blocks = rng.integers(0, 3, (5, 10))
    parts = [[set(np.flatnonzero(row == k)) for k in np.unique(row)] for row in blocks]
    expected = [nx.community.modularity(g, p) for g, p in zip(networks(a), parts, strict=True)]
    np.testing.assert_allclose(metrics.modularity(a, blocks), expected)
    np.testing.assert_allclose(metrics.modularity(a, blocks[0])[0], expected[0])


def test_greedy_communities_are_the_true_blocks():
    two_cliques = nx.to_numpy_array(nx.disjoint_union(nx.complete_graph(5), nx.complete_graph(5)))
    two_cliques[4, 5] = two_cliques[5, 4] = 1
    a = squareform(two_cliques)
    blocks = np.repeat([0, 1], 5)
    assert metrics.community_score(a) == pytest.approx(metrics.modularity(a, blocks).item())
    assert metrics.community_score(a) == pytest.approx(2 * (10 / 21 - 0.25))


def test_an_empty_graph_has_no_structure():
    empty = torch.zeros(2, E)
    assert metrics.community_score(empty).isnan().all()
    assert metrics.modularity(empty, np.arange(10)).isnan().all()
    assert metrics.average_shortest_path(empty).isnan().all()
    assert metrics.clustering(empty).tolist() == [0, 0]
    assert metrics.n_disconnected(empty) == 2


# --- batches and bad input -----------------------------------------------------------------------------------------

PAIRED = [metrics.gmse, metrics.auc, lambda w_hat, w: metrics.f1(w_hat, w, 0.3)]
STRUCTURAL = [metrics.community_score, metrics.average_shortest_path, metrics.clustering]


@pytest.mark.parametrize("metric", PAIRED)
def test_a_batch_is_a_loop_over_pairs(metric):
    w_hat, w = weights(2, 3)
    batch = metric(w_hat.float().requires_grad_(), w.float())
    loop = [[metric(w_hat[i, j].float(), w[i, j].float().numpy()) for j in range(3)] for i in range(2)]
    assert batch.dtype == torch.float64 and not batch.requires_grad
    torch.testing.assert_close(batch, torch.tensor(loop, dtype=torch.float64))


@pytest.mark.parametrize("metric", STRUCTURAL)
def test_a_batch_is_a_loop_over_graphs(metric):
    a = random_graphs(2, 3)
    loop = torch.stack([metric(row) for row in a.flatten(0, 1)]).reshape(2, 3)
    torch.testing.assert_close(metric(a), loop)
    torch.testing.assert_close(metric(a.bool().numpy()), loop)


@pytest.mark.parametrize("metric", PAIRED)
def test_pairs_must_agree_and_be_finite(metric):
    w_hat, w = weights(3)
    with pytest.raises(ValueError, match=r"w_hat has shape \(3, 44\) and w has shape \(3, 45\)"):
        metric(w_hat[:, 1:], w)
    with pytest.raises(ValueError, match="w_hat has 1 NaN"):
        metric(w_hat.index_fill(1, torch.tensor([0]), torch.nan)[:1], w[:1])
    with pytest.raises(ValueError, match="w has a graph"):
        metric(w_hat, torch.zeros_like(w))


@pytest.mark.parametrize("metric", [*STRUCTURAL, metrics.n_disconnected])
def test_structure_is_that_of_binary_half_vectors(metric):
    with pytest.raises(ValueError, match="only 0 and 1"):
        metric(weights(3)[1])
    with pytest.raises(ValueError, match="44"):
        metric(random_graphs(3)[:, 1:])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: metrics.gmse(1.0, 1.0), r"w_hat has shape \(\)"),
        (lambda: metrics.nmse(np.ones((2, 3)), np.ones((2, 3))), r"theta has shape \(2, 3\)"),
        (lambda: metrics.nmse(np.ones((3, 3)), np.zeros((3, 3))), "theta has a graph"),
        (lambda: metrics.auc(np.ones(E), np.ones(E)), "w has a graph with every edge"),
        (lambda: metrics.mean_ci([1.0]), "values has 1"),
        (lambda: metrics.mean_ci([1.0, np.nan]), "values has 1 NaN"),
        (lambda: metrics.mean_ci([1.0, 2.0], 95), "level=95"),
        (lambda: metrics.pairwise_spearman(np.ones(E)), "w has shape"),
        (lambda: metrics.pairwise_spearman(np.ones((2, E))), "w has a row"),
        (lambda: metrics.binarise(np.ones(E), -0.1), "threshold=-0.1"),
        (lambda: metrics.binarise(np.ones(E), np.nan), "threshold=nan"),
        (lambda: metrics.modularity(np.ones((2, E)), np.ones(9)), r"blocks has shape \(9,\)"),
        (
            lambda: metrics.within_share(np.ones((2, E)), np.ones((3, 10))),
            r"blocks has shape \(3, 10\): \(10,\) or \(2, 10\)",
        ),
        (lambda: metrics.modularity(np.full(E, np.nan), np.ones(10)), "w has 45 NaN"),
        (lambda: metrics.mean_ci([1.0, 2.0], 0), "level=0"),
        (lambda: metrics.diagonal_share(np.ones((3, 3)), np.ones((4, 4))), "theta_hat has shape"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_recall_counts_the_chosen_edges_only():
    w, w_hat = torch.tensor([1.0, 1, 1, 0, 1, 0]), torch.tensor([0.9, 0.1, 0.8, 0.9, 0, 0])
    chosen = torch.tensor([True, True, False, True, False, False])
    assert metrics.recall(w_hat, w, 0.5) == 0.5
    assert metrics.recall(w_hat, w, 0.5, among=chosen) == 0.5
    assert metrics.recall(w_hat, w, 0.05, among=chosen) == 1
    assert metrics.recall(w_hat, w, 0.5, among=w_hat < 0.05).item() == 0


# --- known groups of nodes -----------------------------------------------------------------------------------------


def test_modularity_of_weighted_graphs_is_networkx_s():
    w = torch.from_numpy(np.random.default_rng(0).random(45))
    blocks = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3]
    graph = nx.from_numpy_array(squareform(w.numpy()))
    groups = [{k for k in range(10) if blocks[k] == b} for b in range(4)]
    assert float(metrics.modularity(w, blocks)) == pytest.approx(nx.community.modularity(graph, groups))


def test_share_within_blocks():
    w = torch.tensor([4.0, 1, 0, 2, 0, 1])  # edges 01 02 03 12 13 23
    assert metrics.within_share(w, [0, 0, 1, 1]) == pytest.approx(5 / 8)
    assert metrics.within_share(torch.stack([w, 2 * w]), [0, 0, 0, 0]).tolist() == [1, 1]
    each = metrics.within_share(torch.stack([w, w]), [[0, 0, 1, 1], [0, 1, 0, 1]])
    assert each.tolist() == pytest.approx([5 / 8, 1 / 8])


# --- calibration ---------------------------------------------------------------------------------------------------


def test_calibration_error_of_known_probabilities():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(50, 2000, generator=generator, dtype=torch.float64)
    edge = (torch.rand(p.shape, generator=generator, dtype=p.dtype) < p).double()
    assert metrics.calibration_error(p, edge) < 0.01
    assert metrics.calibration_error(edge, edge) == 0
    assert metrics.calibration_error(p**2, edge) == pytest.approx(1 / 6, abs=0.01)  # mean of p - p^2
    mean, share, count = metrics.calibration(torch.tensor([[0.1, 0.1, 1.0]]), torch.tensor([[0.0, 1.0, 1.0]]))
    assert count.tolist() == [2, 1] and share.tolist() == [0.5, 1] and mean.tolist() == pytest.approx([0.1, 1])
    with pytest.raises(ValueError, match="probability"):
        metrics.calibration(2 * p, edge)


def test_calibration_has_ten_bins_by_default_and_leaves_out_empty_ones():
    p = torch.tensor([0.0, 0.05, 0.1, 0.19, 0.95, 1.0], dtype=torch.float64)
    edge = torch.tensor([0.0, 1, 0, 0, 1, 1])
    mean, share, count = metrics.calibration(p, edge)
    assert count.tolist() == [2, 2, 2]
    assert mean.tolist() == pytest.approx([0.025, 0.145, 0.975])
    assert share.tolist() == [0.5, 0, 1]
    expected = (2 * 0.475 + 2 * 0.145 + 2 * 0.025) / 6
    assert metrics.calibration_error(p, edge) == pytest.approx(expected)
    assert metrics.calibration(p, edge, n_bins=2)[2].tolist() == [4, 2]
    assert metrics.calibration_error(p, edge, n_bins=1) == pytest.approx(abs(p.mean().item() - 0.5))


def test_share_of_the_error_on_the_diagonal():
    theta = torch.eye(3).expand(2, 3, 3)
    off = theta.clone()
    off[:, 0, 0] += 2
    off[1, 0, 1] += 2
    off[1, 1, 0] -= 2
    assert metrics.diagonal_share(off, theta).tolist() == pytest.approx([1, 1 / 3])
