"""Candidate edges: against brute force, with copies, in both precisions; the memory that is foretold."""

import sys
import types

import numpy as np
import pytest
import torch

from helpers import graphs
from helpers.beyond import candidates
from helpers.signals import DIFFERENCES_AT_ONCE, distances
from helpers.solvers import learn


def signals(m, n=32, seed=0, dtype=np.float64):
    """Smooth signals on random places in the unit square, (n, m)."""
    rng = np.random.default_rng(seed)
    place = rng.random((m, 2))
    waves = np.cos(place @ rng.normal(size=(2, n)) * 8 + rng.uniform(0, 6, n))
    return (waves + 0.05 * rng.normal(size=(m, n))).T.astype(dtype)


def nearest(X, k):
    """Brute force: the pairs of which one is among the k nearest of the other, (2, E)."""
    Y = graphs.to_matrix(distances(X)).fill_diagonal_(torch.inf)
    near = Y <= Y.sort(1).values[:, k - 1 : k]
    return torch.nonzero(torch.triu(near | near.T)).T


@pytest.mark.parametrize("m", [3, 30])
def test_all_pairs_as_candidates_are_the_complete_graph(m):
    X = signals(m)
    edges, y = candidates.candidate_edges(X, m - 1)
    assert torch.equal(edges, graphs.all_pairs(m))
    torch.testing.assert_close(y, distances(X), rtol=1e-10, atol=1e-12)


def test_ten_thousand_nodes_are_searched_exactly():
    assert candidates.EXACT_SEARCH == 10_000


@pytest.mark.parametrize("k", [1, 6])
def test_candidates_are_the_nearest_neighbours_symmetrised(k, monkeypatch):
    monkeypatch.setattr(candidates, "EXACT_SEARCH", 200)  # up to and including
    X = signals(200)
    edges, y = candidates.candidate_edges(X, k)
    assert edges.dtype == torch.int64
    Y = graphs.to_matrix(distances(X))
    torch.testing.assert_close(y, Y[edges[0], edges[1]], rtol=1e-10, atol=1e-12)
    assert torch.equal(edges, nearest(X, k))


def test_approximate_search_finds_nearly_all(monkeypatch):
    X = signals(3000, dtype=np.float32)
    exact, _ = candidates.candidate_edges(X, 10)
    monkeypatch.setattr(candidates, "EXACT_SEARCH", 100)
    edges, y = candidates.candidate_edges(X, 10)
    again, _ = candidates.candidate_edges(X, 10)
    assert torch.equal(edges, again)
    assert (edges[0] < edges[1]).all()
    keys = edges[0] * 3000 + edges[1]
    assert (keys.diff() > 0).all(), "sorted, each pair once"
    found = torch.isin(exact[0] * 3000 + exact[1], keys).double().mean()
    assert found > 0.98
    torch.testing.assert_close(y, torch.from_numpy(((X[:, edges[0]] - X[:, edges[1]]) ** 2).mean(0)).double())


def test_approximate_search_looks_at_few_cells_of_many(monkeypatch):
    """4 sqrt(m) cells, 64 points per cell to find their centres from, 8 cells or 8k points looked at per node."""
    seen = {}

    class Index:
        def __init__(self, quantiser, n, n_cells):
            seen.update(n=n, n_cells=n_cells)
            self.cp = types.SimpleNamespace()

        def train(self, points):
            seen.update(vars(self.cp), dtype=points.dtype, nprobe=self.nprobe)

        def add(self, points):
            self.points = points

        def search(self, points, k):
            return None, np.argsort(((points[:, None] - self.points) ** 2).sum(2), 1)[:, :k]

    threads = []
    faiss = types.SimpleNamespace(IndexIVFFlat=Index, IndexFlatL2=lambda n: n, omp_set_num_threads=threads.append)
    monkeypatch.setitem(sys.modules, "faiss", faiss)
    monkeypatch.setattr(candidates, "EXACT_SEARCH", 10)
    X = signals(100, n=7)
    edges, _ = candidates.candidate_edges(X, 5, seed=3, n_jobs=2)
    assert torch.equal(edges, nearest(X, 5))
    expected = dict(n=7, n_cells=40, seed=3, min_points_per_centroid=1, max_points_per_centroid=64, dtype=np.float32)
    assert seen == expected | {"nprobe": 16}
    assert threads == [2]
    candidates.candidate_edges(X, 2)
    assert seen["nprobe"] == 8
    assert seen["seed"] == 0


def test_fewer_found_than_asked_for_is_no_neighbour(monkeypatch):
    monkeypatch.setattr(candidates, "_search", lambda points, k, *_: np.array([[0, 1], [1, 2], [2, -1], [3, 0]]))
    edges, _ = candidates.candidate_edges(signals(4), 1)
    assert edges.T.tolist() == [[0, 1], [0, 3], [1, 2]]


def test_duplicate_nodes_are_neighbours_at_distance_zero(monkeypatch):
    X = np.repeat(signals(40), 5, axis=1)
    for limit in (10_000, 10):
        monkeypatch.setattr(candidates, "EXACT_SEARCH", limit)
        edges, y = candidates.candidate_edges(X, 8)
        same = edges[0] // 5 == edges[1] // 5
        assert same.sum() == 40 * 10
        assert (y[same] == 0).all()
        learned = learn(y, 5, tol=1e-6, edges=edges, n_nodes=200)
        assert learned.certificate.gap < 1e-6
        assert torch.isfinite(learned.w).all()
    edges, y = candidates.candidate_edges(X, 3)  # more copies than candidates
    assert (edges[0] // 5 == edges[1] // 5).all()
    assert torch.bincount(edges.flatten(), minlength=200).min() >= 3


def whole_numbers(m=300, n=12, seed=0):
    """Signals of few values, so that many distances are equal: (n, m)."""
    return np.random.default_rng(seed).poisson(0.8, size=(n, m)).astype(float)


def nearest_in_order(X, k):
    """Brute force in whole numbers: each node with its k nearest and, of equally near ones, with those that follow."""
    m = X.shape[1]
    squares = ((X.T[:, None] - X.T) ** 2).sum(2).astype(int)
    np.fill_diagonal(squares, squares.max() + 1)
    after = (np.arange(m) - np.arange(m)[:, None]) % m
    near = np.argsort(squares * m + after, 1)[:, :k]
    pairs = {(min(i, j), max(i, j)) for i, row in enumerate(near.tolist()) for j in row}
    return torch.tensor(sorted(pairs)).T


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [1, 7, 298])
def test_ties_go_to_the_nodes_that_follow(k, dtype, monkeypatch):
    monkeypatch.setattr(candidates, "DIFFERENCES_AT_ONCE", 5000)  # 16 nodes at once
    X = whole_numbers()
    assert torch.equal(candidates.candidate_edges(X.astype(dtype), k)[0], nearest_in_order(X, k))


def test_rounding_does_not_decide_between_ties():
    """Signals in another order, or turned as one, are the same points, whose products round otherwise."""
    X = whole_numbers()
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((12, 12)))[0]
    levels = 1000 * np.arange(12)[:, None]
    edges, _ = candidates.candidate_edges(X, 7)
    signed, _ = candidates.signed_candidate_edges(X, 6)
    for same in (X[::-1], Q @ X, X + levels, X / 3):
        assert torch.equal(candidates.candidate_edges(same, 7)[0], edges)
    for same in (X[::-1], Q @ X, X / 3):
        assert torch.equal(candidates.signed_candidate_edges(same, 6)[0], signed)
    turned = np.roll(X, 40, axis=1)  # the nodes: no one is preferred, not even the first
    keys = ((edges + 40) % 300).sort(0).values
    assert torch.equal(candidates.candidate_edges(turned, 7)[0], keys[:, (keys[0] * 300 + keys[1]).argsort()])


def test_copies_of_one_node_are_spread_evenly():
    X = np.hstack([np.ones((5, 60)), signals(40, 5)])
    edges, _ = candidates.candidate_edges(X, 4)
    copies = edges[:, edges[1] < 60]
    assert (torch.bincount(copies.flatten(), minlength=60) == 8).all(), "four that follow, four that come before"


def test_only_nodes_with_a_tie_are_looked_at_once_more(monkeypatch):
    seen = []
    plain = candidates._nearest_in_order
    monkeypatch.setattr(candidates, "_nearest_in_order", lambda *x: seen.extend(x[2]) or plain(*x))
    X = signals(200)
    expected = nearest(X, 6)
    assert torch.equal(candidates.candidate_edges(X, 6)[0], expected) and not seen
    assert torch.equal(candidates.candidate_edges(X.astype(np.float32), 6)[0], expected) and len(seen) < 3
    far = 1e2 * np.sign(np.arange(200) - 99.5)  # two clusters: distances within them are small beside the points
    del seen[:]
    candidates.candidate_edges(X + far, 6)
    assert not seen


def test_a_node_that_does_not_find_itself_loses_the_farthest(monkeypatch):
    near = np.array([[1, 2, 3], [1, 0, 2], [2, 1, 0], [3, 2, 1]])  # node 0 has three copies that came first
    monkeypatch.setattr(candidates, "_search", lambda points, k, *_: near)
    edges, _ = candidates.candidate_edges(signals(4), 2)
    assert edges.T.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]


@pytest.mark.parametrize("dtype, precision", [(np.float32, np.float32), (np.float64, np.float64), (int, np.float64)])
def test_points_keep_their_precision_and_levels_cancel(dtype, precision):
    X = (100 * signals(20)).astype(dtype)
    points = candidates._points(X)
    assert points.dtype == precision
    assert points.flags.c_contiguous
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-5)
    far = signals(50) + 1e9 * np.arange(32)[:, None]  # a level per signal, which differences do not see
    assert torch.equal(candidates.candidate_edges(far, 5)[0], candidates.candidate_edges(signals(50), 5)[0])


def test_bad_input_is_named(monkeypatch):
    X = signals(50)
    with pytest.raises(ValueError, match=r"n_candidates=50: between 1 and n_nodes - 1 = 49"):
        candidates.candidate_edges(X, 50)
    with pytest.raises(ValueError, match="n_candidates=0"):
        candidates.candidate_edges(X, 0)
    bad = X.copy()
    bad[3, [7, 11]] = np.nan
    with pytest.raises(ValueError, match=r"2 nodes, first \[7, 11\]"):
        candidates.candidate_edges(bad, 5)
    with pytest.raises(ValueError, match="constant"):
        candidates.candidate_edges(np.ones((4, 50)), 5)
    for wrong in (X[0], X[:, :2], X[None]):
        with pytest.raises(ValueError, match="shape"):
            candidates.candidate_edges(wrong, 1)
    monkeypatch.setattr(candidates, "EXACT_SEARCH", 10)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"among 50 nodes needs faiss: .*l2g-reproduction\[large\]"):
        candidates.candidate_edges(X, 5)


def signed_signals(m=200, seed=0):
    """`signals`, a third of the nodes upside down, each signal with a level."""
    rng = np.random.default_rng(seed)
    X = signals(m, seed=seed) + 0.3 * rng.normal(size=(32, 1))
    return X * np.where(rng.random(m) < 0.3, -1, 1)


@pytest.mark.parametrize("limit", [200, 199])
def test_signed_candidates_are_the_nearest_by_difference_or_by_sum(limit, monkeypatch):
    monkeypatch.setattr(candidates, "EXACT_SEARCH", limit)
    Z = signed_signals()
    edges, y = candidates.signed_candidate_edges(Z, 6)
    i, j = edges.numpy()
    squares = [((Z.T[:, None] - mirrored.T) ** 2).mean(2) for mirrored in (Z, -Z)]
    nearer = np.minimum(*squares)
    size = np.sqrt((Z**2).mean(0))
    correlation = abs(Z.T @ Z) / np.outer(size, size)
    np.fill_diagonal(nearer, np.inf)
    np.fill_diagonal(correlation, 0)
    near = np.hstack([nearer.argsort(1)[:, :4], (-correlation).argsort(1)[:, :9]])  # 3/4 and 3/2 of 6
    truth = {(min(a, b), max(a, b)) for a, row in enumerate(near.tolist()) for b in row}
    found = set(zip(i.tolist(), j.tolist()))
    assert len(found) == len(i) and (i < j).all() and (np.diff(i * 200 + j) > 0).all()
    if limit == 200:
        assert found <= truth and len(found) > 0.98 * len(truth)  # a node's mirror image may be one of its six
    else:
        assert len(found & truth) > 0.95 * len(truth)
    np.testing.assert_allclose(y, squares[0][i, j])


@pytest.mark.parametrize("given", [np.float64, np.float32])
def test_signed_search_keeps_the_precision_up_to_the_exact_limit(given, monkeypatch):
    """Beyond, single precision is enough for the approximate search, and half as large."""
    seen = []

    def search(points, k, *_, queries):
        seen.append((points.dtype, queries.dtype))
        return np.arange(len(queries))[:, None] + [[0, 1]]

    monkeypatch.setattr(candidates, "_search", search)
    Z = signals(50, dtype=given)
    for limit, precision in ((50, given), (49, np.float32)):
        monkeypatch.setattr(candidates, "EXACT_SEARCH", limit)
        seen.clear()
        candidates.signed_candidate_edges(Z, 2)
        assert seen == [(precision, precision)] * 2


def test_signed_candidates_of_opposite_columns():
    rng = np.random.default_rng(6)
    base = rng.standard_normal((300, 10))
    X = np.hstack([base, -base + 0.1 * rng.standard_normal(base.shape)])  # i and i + 10 are opposite
    edges, y = candidates.signed_candidate_edges(X, 1)
    assert set(map(tuple, edges.T.tolist())) == {(k, k + 10) for k in range(10)}
    np.testing.assert_allclose(y, ((X[:, :10] - X[:, 10:]) ** 2).mean(0))
    assert torch.equal(candidates.signed_candidate_edges(X, 19)[0], graphs.all_pairs(20))


def test_signed_candidates_that_were_not_found_are_left_out(monkeypatch):
    near = np.array([[0, 5, -1], [1, 4, -1], [2, 6, -1], [3, -1, -1]])  # of eight columns, 4 to 7 mirror images
    monkeypatch.setattr(candidates, "_search", lambda points, k, *_, **__: near)
    edges, _ = candidates.signed_candidate_edges(signals(4), 2)
    assert edges.T.tolist() == [[0, 1]]


def test_a_hub_is_found_by_its_distance_and_a_column_of_zeros_does_no_harm():
    """A column that varies little is near to all, and correlated with none."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((200, 40))
    Z[:, 0] *= 0.01
    Z[:, 1] = 0
    edges = candidates.signed_candidate_edges(Z, 4)[0]
    degree = torch.bincount(edges.flatten(), minlength=40)
    assert degree[0] == 39 and degree[1] == 39
    assert degree[2:].max() < 25


def test_bad_signed_signals_are_named():
    Z = signals(50)
    with pytest.raises(ValueError, match=r"n_candidates=50: between 1 and n_nodes - 1 = 49"):
        candidates.signed_candidate_edges(Z, 50)
    with pytest.raises(ValueError, match="shape"):
        candidates.signed_candidate_edges(Z[0], 2)
    Z[3, [7, 11]] = np.nan
    with pytest.raises(ValueError, match=r"2 nodes, first \[7, 11\]"):
        candidates.signed_candidate_edges(Z, 5)


def test_adjacency_is_symmetric_and_sparse():
    W = candidates.adjacency(torch.tensor([2.0, 0.0, 3.0]), torch.tensor([[0, 0, 2], [1, 3, 3]]), 4)
    assert W.nnz == 4
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 2
    expected[2, 3] = expected[3, 2] = 3
    np.testing.assert_array_equal(W.toarray(), expected)


def test_memory_estimate_counts_points_neighbours_and_edges():
    fixed = candidates.estimate_memory(0, 32, 10)
    assert fixed == 32 * DIFFERENCES_AT_ONCE, "what `pair_distances` works on at a time"
    points, neighbours, edges = 3 * 4 * 32, 12 * 11, 8 * 10 * 10
    assert candidates.estimate_memory(1000, 32, 10) == fixed + 1000 * (points + neighbours + edges)
    assert 1.4e9 < candidates.estimate_memory(10**6, 32, 10) < 8e9, "a million nodes were measured at 1.4 GB"
