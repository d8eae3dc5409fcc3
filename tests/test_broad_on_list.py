"""BroadL2G on a list of pairs: against the network on all pairs, part by part, in other units and numberings."""

import numpy as np
import pytest
import torch

from helpers.beyond import looks
from helpers.beyond.atom_lists import ListAtoms
from helpers.beyond.atoms import Kinds
from helpers.beyond.broad import BroadL2G, describe, describe_list
from helpers.beyond.candidates import signed_candidate_edges
from helpers.beyond.moments import column_variances, pair_sums
from helpers.graphs import all_pairs
from helpers.signals import pair_distances

M, N = 20, 2000


@pytest.fixture(scope="module")
def X():
    """Signals on a signed ring with ground."""
    K = 2.5 * np.eye(M)
    for i in range(M):
        K[i, (i + 1) % M] = K[(i + 1) % M, i] = -1 if i % 4 else 1
    return np.random.default_rng(0).normal(size=(N, M)) @ np.linalg.inv(np.linalg.cholesky(K))


def see(X, edges):
    """What the atoms of all three kinds see."""
    return ListAtoms(pair_distances(X, edges), pair_sums(X, edges), torch.from_numpy(column_variances(X, N)))


def candidates(X):
    edges = signed_candidate_edges(X, 6)[0]
    return edges, see(X, edges)


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BroadL2G(3, width=16, n_looks=1)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_features_on_all_pairs_are_those_of_the_dense_network(X, signed, self_loops):
    """With many signals the most likely K is nearly the inverse of S, of which a list knows nothing."""
    y = see(X, all_pairs(M))
    y = y if signed else y._replace(sum=None)
    pairs, nodes = describe_list(y, N, Kinds(signed, self_loops), all_pairs(M), M)
    S = torch.from_numpy(X.T @ X / N)[None]
    truth, truth_nodes = describe(S, torch.tensor([float(N)]), Kinds(signed, self_loops))
    assert pairs.shape == truth.shape and nodes.shape == truth_nodes.shape
    assert pairs.dtype == nodes.dtype == torch.float64
    known = [17, 18, 19, 20, 21, 22, 23, 26, 27]  # correlations, numbers of signals and pairs, kinds, y
    torch.testing.assert_close(pairs[:, known], truth[:, known], rtol=1e-5, atol=1e-5)
    edge = truth[0, 3] > 0.3  # by the leverage of its difference atom, whose features are the first seven
    assert 5 < edge.sum() < 30
    for row in (*range(7), 14, 15, 16):
        torch.testing.assert_close(pairs[0, row, edge], truth[0, row, edge], rtol=0.1, atol=0.1)
    nodes[:, 3] /= 10  # the slack of the ground over its standard error, as exact as there are updates
    truth_nodes[:, 3] /= 10
    torch.testing.assert_close(nodes, truth_nodes, rtol=0.1, atol=0.1)


def test_with_few_signals_atoms_see_white_noise_as_well(X):
    """As much as in the dense network: rows 26 and 27 of a pair are what its atoms see, the last but one of a node."""
    few = X[:8]
    y = ListAtoms(pair_distances(few, all_pairs(M)), pair_sums(few, all_pairs(M)), torch.from_numpy((few**2).mean(0)))
    pairs, nodes = describe_list(y, 8, Kinds(), all_pairs(M), M)
    S = torch.from_numpy(few.T @ few / 8)[None]
    truth, truth_nodes = describe(S, torch.tensor([8.0]), Kinds())
    torch.testing.assert_close(pairs[:, 26:28], truth[:, 26:28], rtol=1e-9, atol=0)
    torch.testing.assert_close(nodes[:, -2:], truth_nodes[:, -2:], rtol=1e-9, atol=0)
    assert (truth_nodes[0, -2] > 1.01 * y.ground / y.ground.mean()).all()  # it is not too little to be seen


def test_estimates_do_not_depend_on_parts_units_and_numbers(X, network, monkeypatch):
    edges, y = candidates(X)
    found = network.on_list(*y, N, edges, M)
    assert all(x.shape == (edges.shape[1],) and x.dtype == torch.float64 for x in found)
    assert ((found.positive + found.negative) < 1).all() and (found.weight > 0).all()
    monkeypatch.setattr(looks, "PAIRS_IN_PART", 7)
    for a, b in zip(network.on_list(*y, N, edges, M), found):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    scaled = network.on_list(*(1e6 * x for x in y), N, edges, M)
    torch.testing.assert_close(scaled.weight, 1e-6 * found.weight, rtol=1e-4, atol=0)
    torch.testing.assert_close(scaled.positive, found.positive, rtol=1e-4, atol=1e-6)
    order = np.random.default_rng(1).permutation(M)
    renumbered, y_renumbered = candidates(X[:, order])
    other = network.on_list(*y_renumbered, N, renumbered, M)
    ends = np.sort(order[renumbered.numpy()], 0)
    places = {pair: k for k, pair in enumerate(zip(*edges.tolist()))}
    back = torch.tensor([places[pair] for pair in zip(*ends.tolist())])
    torch.testing.assert_close(other.negative, found.negative[back], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(other.weight, found.weight[back], rtol=1e-3, atol=0)


def test_sums_are_computed_where_they_are_missing_and_unsigned_is_never_negative(X, network):
    edges, y = candidates(X)
    pairs, nodes = describe_list(y, N, Kinds(False, True), edges, M)
    missing, nodes_missing = describe_list(y._replace(sum=None), N, Kinds(False, True), edges, M)
    torch.testing.assert_close(pairs, missing)
    torch.testing.assert_close(nodes, nodes_missing)
    assert network.on_list(y.difference, None, y.ground, N, edges, M).negative.max() < 1e-9
    assert network.on_list(*y, N, edges, M).negative.max() > 1e-3


def test_sketches_stand_in_for_inverses(X, network, monkeypatch):
    edges, y = candidates(X)
    found = network.on_list(*y, N, edges, M)
    monkeypatch.setattr("helpers.beyond.atom_lists.DENSE_NODES", 0)
    sketched = network.on_list(*y, N, edges, M)
    assert not torch.equal(sketched.positive, found.positive)
    torch.testing.assert_close(sketched.positive, found.positive, rtol=0, atol=0.1)
    assert not torch.equal(sketched.positive, network.on_list(*y, N, edges, M, seed=1).positive)


def test_bad_arguments_are_named(X, network):
    edges, y = candidates(X)
    for n in (0, np.inf, [1, 2]):
        with pytest.raises(ValueError, match="n_signals="):
            network.on_list(*y, n, edges, M)
    with pytest.raises(ValueError, match="edges has shape"):
        network.on_list(*y, N, edges[:, 1:], M)
