import numpy as np
import pytest
import torch

from helpers.engine import layouts
from helpers.engine.layouts import CandidateEdges, CompleteGraph, advance, sum_nodes
from helpers.graphs import all_pairs, degrees, degrees_adjoint, to_matrix
from helpers.signals import pair_distances
from helpers.solvers import exact


def test_layouts_agree_on_everything():
    m = 9
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(2, 36, generator=generator, dtype=torch.float64)
    v = torch.rand(2, m, generator=generator, dtype=torch.float64) + 1
    low = 1e-17 * torch.rand(2, m, generator=generator, dtype=torch.float64)
    answers = []
    for layout in (CompleteGraph(m), CandidateEdges(all_pairs(m), m)):
        X = layout.enter(x)
        V = layout.enter_nodes(v)
        R, d, squares = layout.residuals(V, layout.enter_nodes(low), X)
        step = layout.newton_direction(R, V, d - 1 / V, torch.full((2,), 1e-14, dtype=torch.float64))
        on_edges = [layout.leave(z) for z in (X, layout.adjoint(V), R)]
        order = layout.enter_nodes(torch.arange(m)).flatten().argsort()
        on_nodes = [z.flatten(1)[:, order] for z in (V, layout.degrees(X), d, layout.slack(V, X), step)]
        per_graph = (layout.sum_edges(X), squares, layout.per_graph(v[:, 0]).flatten())
        answers.append([*on_edges, *on_nodes, *per_graph])
    for a, b in zip(*answers, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(answers[0][0], x)
    torch.testing.assert_close(answers[0][2], (degrees_adjoint(v) - 2 * x).relu())
    torch.testing.assert_close(answers[0][5], degrees(answers[0][2]) / 2)
    slack = to_matrix(2 * x - degrees_adjoint(v)).masked_fill(torch.eye(m).bool(), 9.0)
    torch.testing.assert_close(answers[0][6], slack.amin(-1))
    torch.testing.assert_close(answers[0][8], x.sum(-1))
    torch.testing.assert_close(answers[0][9], (answers[0][2] ** 2).sum(-1))


def test_newton_direction_solves_its_system():
    layout = CompleteGraph(6)
    generator = torch.Generator().manual_seed(0)
    R = to_matrix((torch.rand(1, 15, generator=generator, dtype=torch.float64) - 0.4).relu())
    lam = torch.rand(1, 6, 1, generator=generator, dtype=torch.float64) + 0.5
    gradient = torch.randn(1, 6, 1, generator=generator, dtype=torch.float64)
    active = (R[0] > 0).double()
    H = (active + torch.diag(active.sum(1))) / 2 + torch.diag(lam[0, :, 0] ** -2)
    torch.testing.assert_close(H @ layout.newton_direction(R, lam, gradient, None)[0], -gradient[0])


@pytest.mark.parametrize("lam", [2.0, 1e4])  # conjugate gradients; and a sparse LU factor, since they do not converge
def test_newton_direction_on_a_long_path(lam):
    m = 1200
    edges = torch.stack([torch.arange(m - 1), torch.arange(1, m)])
    layout = CandidateEdges(edges, m)
    R = torch.ones(1, m - 1, dtype=torch.float64)
    lam = torch.full((1, m), lam, dtype=torch.float64)
    gradient = torch.randn(1, m, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = layout.newton_direction(R, lam, gradient, torch.tensor([1e-10]))
    left = layout.degrees(layout.adjoint(x)) / 2 + x / lam**2 + gradient
    assert left.abs().max() < 1e-7


def test_exact_steps_are_fewer_where_some_values_are_very_large(monkeypatch):
    """Why few nodes have a sparse factor, although conjugate gradients are faster on smooth data."""
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((32, 300)), axis=1)
    X[:, rng.choice(300, 15)] *= 50
    edges = torch.stack([torch.arange(300).repeat(6), (torch.arange(300) + torch.arange(1, 7)[:, None]).flatten()])
    edges = edges[:, edges[1] < 300]
    n_steps = {}
    for limit in (300, 299):
        monkeypatch.setattr(layouts, "DIRECT_NODES", limit)
        n_steps[limit] = len(exact(pair_distances(X, edges), tol=1e-6, path=True, edges=edges, n_nodes=300))
    assert 3 * n_steps[300] < n_steps[299]


def test_only_the_graphs_that_are_left_advance():
    state = (torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0], [20.0], [30.0]]))
    given = (torch.tensor([[100.0], [200.0], [300.0]]),)
    rows = []

    def step(w, v, y):
        rows.append(len(w))
        return w + y, -v

    w, v = advance(step, torch.tensor([0, 2]), state, given)
    assert (w.flatten().tolist(), v.flatten().tolist()) == ([101, 2, 303], [-10, 20, -30])
    w, v = advance(step, torch.arange(3), state, given)
    assert (w.flatten().tolist(), v.flatten().tolist()) == ([101, 202, 303], [-10, -20, -30])
    assert rows == [2, 3]
    assert state[0].flatten().tolist() == [1, 2, 3]


def test_sums_over_the_nodes_are_the_same_in_both_layouts():
    v = torch.tensor([[1.0, 2.0, 4.0], [3.0, 0.0, 1.0]])
    assert sum_nodes(v).tolist() == sum_nodes(v[..., None]).tolist() == [7, 4]
