from functools import partial

import numpy as np
import pytest
import torch

from helpers.engine.problem import Problem
from helpers.graphs import all_pairs, to_matrix
from helpers.signals import Observations, sample_observations
from helpers.solvers import admm, exact, learn, pds

SOLVERS = [exact, pds, admm]


def test_bad_lists():
    edges, y = all_pairs(5), torch.ones(10)
    for solve in (exact, pds, partial(learn, average_degree=2)):
        with pytest.raises(ValueError, match=r"1 nodes have no candidate, first \[5\]"):
            solve(y, edges=edges, n_nodes=6)
        with pytest.raises(ValueError, match=r"edges\[0\] < edges\[1\] < n_nodes = 5"):
            solve(y, edges=edges.flip(0), n_nodes=5)
        with pytest.raises(ValueError, match="n_nodes = 4"):
            solve(y, edges=edges, n_nodes=4)
        with pytest.raises(ValueError, match=r"edges has shape \(2, 10\): \(2, 9\)"):
            solve(y[1:], edges=edges, n_nodes=5)
        with pytest.raises(ValueError, match="n_nodes=None"):
            solve(y, edges=edges)
    with pytest.raises(ValueError, match=r"average_degree=4\.5: .*take more candidates"):
        learn(y, 4.5, edges=edges, n_nodes=5)
    with pytest.raises(ValueError, match=r"average_degree=9: between 1 and 2E/m = 4$"):
        learn(y, 9)


def test_observations_stand_for_their_distances(ba):
    w, _ = ba
    seen = sample_observations(w, 3000, seed=1)
    assert isinstance(seen, Observations)
    for solver in (exact, pds, partial(learn, average_degree=4)):
        a, b = solver(seen[:2]), solver(seen.distances[:2])
        assert torch.equal(a[0], b[0])


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([1.0, torch.nan, 1]), "y contains NaN"),
        (torch.tensor([1.0, torch.inf, 1]), "y contains NaN or infinite"),
        (torch.tensor([1.0, -0.5, 1]), "y has a negative entry, -0.5"),
        (torch.ones(4), "n_edges=4"),
        (torch.ones(1), "n_edges=1"),
        (torch.ones(2, 0), "n_edges=0"),
        (torch.tensor(1.0), "y=1.0"),
        (torch.tensor([[1.0, 2, 3], [0, 0, 0]]), "y is 0 for all pairs"),
    ],
)
@pytest.mark.parametrize("solver", [exact, pds, admm, partial(learn, average_degree=1.5)])
def test_bad_distances(solver, y, words):
    with pytest.raises(ValueError, match=words):
        solver(y)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf"), torch.tensor([1.0, 0.0])])
@pytest.mark.parametrize("solver", SOLVERS)
def test_bad_parameters(solver, name, value):
    with pytest.raises(ValueError, match=f"{name}="):
        solver(torch.ones(2, 3), **{name: value})


def test_integers_arrays_and_lists_are_taken():
    problem = Problem([1, 2, 3], 1, [[2.0], [3.0]], None, None)
    assert problem.lead == (2, 1)
    assert problem.Y.dtype == torch.float64
    torch.testing.assert_close(problem.Y, to_matrix(torch.tensor([[1.0, 2, 3]] * 2, dtype=torch.float64)))
    assert problem.alpha.tolist() == [1, 1]
    assert problem.beta.tolist() == [2, 3]
    assert exact(np.array([1.0, 2, 3])).dtype == torch.float64
