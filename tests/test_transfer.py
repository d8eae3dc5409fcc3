"""Unrolling on larger graphs: the rule is exact for copies, keeps the problem, and gives smaller graphs their due."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import graphs
from helpers.beyond.transfer import smaller_steps, unroll
from helpers.experiments.methods import test_set as sample_test_set
from helpers.experiments.runs import RUNS, load
from helpers.models import Unrolling
from helpers.signals import sample_observations
from helpers.solvers import exact, operator_norm, safe_step


@pytest.fixture(scope="module")
def trained():
    """A trained model, and 50 graphs of the size and kind it was trained on."""
    observations, _ = sample_test_set("WS", 50)
    model = load(RUNS["unrolling-ws"]).double()
    return model, observations.distances, model.predict(observations)


def test_where_it_was_trained_the_rule_changes_nothing(trained):
    model, y, w = trained
    out = unroll(model, y.reshape(5, 10, -1))
    assert out.shape == (5, 10, 190)
    torch.testing.assert_close(out.flatten(0, 1), w, rtol=1e-8, atol=1e-8)
    assert unroll(model, y[0].float()).dtype == torch.float32
    observations = sample_observations(w[:2], 100, seed=0)
    torch.testing.assert_close(unroll(model, observations), unroll(model, observations.distances))


@pytest.mark.parametrize("n_copies", [1, 5, 50])  # m = 20, 100, 1,000
def test_graphs_side_by_side_are_answered_one_by_one(trained, n_copies):
    model, y, w = trained
    edges = torch.cat([graphs.all_pairs(20) + 20 * k for k in range(n_copies)], 1)
    out = unroll(model, y[:n_copies].flatten(), edges, 20 * n_copies)
    torch.testing.assert_close(out, w[:n_copies].flatten(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_copies", [1, 5, 50])  # m = 20, 100, 1,000
def test_copied_nodes_share_the_weight(trained, n_copies):
    model, y, w = trained
    m = 20 * n_copies
    i, j = graphs.all_pairs(m)
    between = i % 20 != j % 20  # copies of one node are no candidates of each other
    Y, W = graphs.to_matrix(y[0]), graphs.to_matrix(w[0])
    i, j = i[between], j[between]
    out = unroll(model, Y[i % 20, j % 20], torch.stack([i, j]), m, degree_ratio=n_copies)
    torch.testing.assert_close(out, W[i % 20, j % 20] / n_copies, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_the_rectifier_keeps_its_slope(slope):
    model = Unrolling(5, slope=slope)
    y = sample_observations(graphs.sample_graphs("ER", 1, 20, seed=0), 50, seed=1).distances
    torch.testing.assert_close(unroll(model, y), model.double().predict(y), rtol=1e-8, atol=1e-8)


def test_scaled_layers_keep_the_fixed_point():
    """Steps that are safe on 20 nodes stay so on 80 with more than three times as many candidates per node."""
    generator = torch.Generator().manual_seed(0)
    chosen = torch.rand(3160, generator=generator) < 0.8
    edges = graphs.all_pairs(80)[:, chosen]
    y = 4 * torch.rand(len(edges[0]), generator=generator, dtype=torch.float64)
    assert operator_norm(80, edges) > 1.7 * operator_norm(20)
    w = exact(y, edges=edges, n_nodes=80)
    for trained_nodes in (10, 20):
        model = Unrolling(1000, shared=True, n_nodes=trained_nodes)  # alpha = beta = 1, a safe step
        out = unroll(model, y, edges, 80, trained_nodes=trained_nodes)
        torch.testing.assert_close(out, w, rtol=0, atol=1e-6)


def test_steps_shrink_like_the_safe_ones():
    model = Unrolling(3)
    smaller = smaller_steps(model, 100)
    torch.testing.assert_close(smaller.theta[:, :2], model.theta[:, :2])
    torch.testing.assert_close(smaller.theta[:, 2], model.theta[:, 2] * safe_step(100) / safe_step(20))
    assert (smaller.theta[:, 2] < 0.7 * model.theta[:, 2]).all()
    there = smaller_steps(model, 100, trained_nodes=100)
    torch.testing.assert_close(there.theta, model.theta)


def test_a_list_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="1 nodes have no candidate"):
        unroll(Unrolling(2), torch.ones(3), torch.tensor([[0, 0, 1], [1, 2, 2]]), 4)
    with pytest.raises(ValueError, match="n_edges=4"):
        unroll(Unrolling(2), torch.ones(4))


def test_everything_is_on_the_device_of_y(monkeypatch):
    """Fake tensors report mixed devices where there is no second device; they have no values to check."""
    monkeypatch.setattr("helpers.beyond.transfer.check_distances", lambda y, edges: y)
    monkeypatch.setattr("helpers.beyond.transfer.check_edges", lambda edges, *_: edges)
    monkeypatch.setattr(torch, "bincount", lambda x, minlength: x.new_ones(minlength))
    with FakeTensorMode():
        w = unroll(Unrolling(2), torch.ones(2, 190, device="meta"))
        assert w.device.type == "meta"
        assert w.shape == (2, 190)
    graphs.all_pairs.cache_clear()
