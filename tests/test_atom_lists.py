"""Three kinds of atoms on a list: resistances and likelihood against dense computations on the same atoms."""

import math

import numpy as np
import pytest
import torch

from helpers.beyond import atom_lists
from helpers.beyond.atom_lists import ListAtoms, dominant_matrix, even_start, likely_atoms, relaxed_update, resistances
from helpers.graphs import all_pairs

M = 24
EDGES = all_pairs(M)[:, ::2].contiguous()


def vectors(edges=EDGES, m=M):
    """The atoms as rows: differences (E, m), sums (E, m), ground (m, m)."""
    eye = torch.eye(m, dtype=torch.float64)
    return eye[edges[0]] - eye[edges[1]], eye[edges[0]] + eye[edges[1]], eye


def matrix(w, edges=EDGES):
    """K, atom by atom."""
    return sum(u.T @ (x[:, None] * u) for u, x in zip(vectors(edges, len(w.ground)), w))


def dense(w, edges=EDGES):
    """r_u = u'K^-1 u, by the pseudo-inverse."""
    Sigma = torch.linalg.pinv(matrix(w, edges), hermitian=True)
    return ListAtoms(*((u @ Sigma * u).sum(1) for u in vectors(edges, len(w.ground))))


def objective(w, y, edges=EDGES):
    return sum(x @ s for x, s in zip(w, y)) - torch.linalg.slogdet(matrix(w, edges))[1]


@pytest.fixture(scope="module")
def w():
    generator = torch.Generator().manual_seed(0)
    n = EDGES.shape[1]
    return ListAtoms(*(torch.rand(k, generator=generator, dtype=torch.float64) for k in (n, n, M)))


@pytest.fixture(scope="module")
def y():
    """Moments of signals from a signed path with some ground, white signal included."""
    generator = torch.Generator().manual_seed(1)
    K = 2.3 * torch.eye(M, dtype=torch.float64)
    i = torch.arange(M - 1)
    K[i, i + 1] = K[i + 1, i] = torch.where(i % 3 > 0, -1.0, 1.0).double()
    X = torch.randn(100, M, generator=generator, dtype=torch.float64) @ torch.linalg.inv(torch.linalg.cholesky(K))
    S = X.T @ X / 100 + 0.01 * torch.eye(M)
    return ListAtoms(*((u @ S * u).sum(1) for u in vectors()))


def keep(w, kinds):
    return ListAtoms(*(x if kind in kinds else torch.zeros_like(x) for kind, x in zip(ListAtoms._fields, w)))


KINDS = [("difference", "sum", "ground"), ("difference", "ground"), ("difference", "sum"), ("difference",)]


def test_two_atoms_of_a_pair_are_one_and_ground(w):
    v, c = dominant_matrix(w, EDGES)
    K = matrix(w)
    torch.testing.assert_close(v, -K[EDGES[0], EDGES[1]])
    off = (K - torch.diag(K.diagonal())).abs().sum(1)
    torch.testing.assert_close(c, K.diagonal() - off)


@pytest.mark.parametrize("kinds", KINDS)
def test_resistances_are_those_of_the_inverse(w, kinds):
    w = keep(w, kinds)
    torch.testing.assert_close(resistances(w, EDGES), dense(w))


@pytest.mark.parametrize("kinds", KINDS)
def test_sketches_approach_them(w, kinds):
    w = keep(w, kinds)
    truth = dense(w)
    errors = []
    for n_probes in (16, 1600):
        r = resistances(w, EDGES, n_probes=n_probes, seed=1, tol=1e-8)
        parts = zip(r, truth) if kinds != ("difference",) else [(r.difference, truth.difference)]
        errors.append(torch.stack([((a / b - 1) ** 2).mean() for a, b in parts]).sqrt())
    assert (errors[0] < math.sqrt(2 / 16)).all(), "the first terms are exact"
    assert (errors[1] < errors[0] / 4).all(), "a hundred times as many probes, a tenth of the error"


def test_pairs_without_weight_have_resistances_too(w):
    half = ListAtoms(w.difference.clone(), torch.zeros_like(w.sum), w.ground)
    half.difference[::2] = 0
    truth = dense(half)
    torch.testing.assert_close(resistances(half, EDGES), truth)
    rough = resistances(half, EDGES, n_probes=3200, tol=1e-6)
    for a, b in zip(rough, truth):
        torch.testing.assert_close(a, b, rtol=0.1, atol=0)


def test_probes_seeds_and_the_number_of_nodes_from_which_there_are_probes(w, monkeypatch):
    some = resistances(w, EDGES, n_probes=256)
    assert not torch.equal(some.sum, resistances(w, EDGES, n_probes=256, seed=1).sum)
    monkeypatch.setattr(atom_lists, "DENSE_NODES", M)
    torch.testing.assert_close(resistances(w, EDGES), dense(w))
    monkeypatch.setattr(atom_lists, "DENSE_NODES", M - 1)
    assert all(torch.equal(a, b) for a, b in zip(resistances(w, EDGES), some))
    for n_probes in (0, 8, 24):
        with pytest.raises(ValueError, match=f"n_probes={n_probes}: a positive multiple of 16"):
            resistances(w, EDGES, n_probes=n_probes)


def test_two_components_one_grounded():
    edges = torch.tensor([[0, 0, 1, 3], [1, 2, 2, 4]])
    w = ListAtoms(
        torch.tensor([1.0, 1, 1, 2]).double(), torch.zeros(4).double(), torch.tensor([0.0, 0, 0, 1, 0]).double()
    )
    for n_probes, rtol in ((None, 1e-9), (6400, 0.05)):
        r = resistances(w, edges, n_probes=n_probes, tol=1e-8)
        torch.testing.assert_close(
            r.difference, torch.tensor([2 / 3, 2 / 3, 2 / 3, 0.5], dtype=torch.float64), rtol=rtol, atol=0
        )
        torch.testing.assert_close(r.ground[3:], torch.tensor([1, 1.5]).double(), rtol=rtol, atol=0)


def test_the_start_spreads_leverage_evenly(y):
    w = even_start(y, M)
    share = M / EDGES.shape[1]
    nearer = y.difference <= y.sum
    assert nearer.any() and not nearer.all()
    torch.testing.assert_close((w.difference * y.difference)[nearer], torch.full((int(nearer.sum()),), share).double())
    torch.testing.assert_close((w.sum * y.sum)[nearer], torch.full((int(nearer.sum()),), share / 20).double())
    torch.testing.assert_close((w.sum * y.sum)[~nearer], torch.full((int((~nearer).sum()),), share).double())
    torch.testing.assert_close(w.ground * y.ground, torch.full((M,), 0.2).double())
    plain = even_start(ListAtoms(y.difference, None, None), M)
    torch.testing.assert_close(plain.difference * y.difference, torch.full_like(y.difference, share))
    assert not plain.sum.any() and not plain.ground.any() and len(plain.ground) == M


def test_relaxed_updates():
    w, y, r = torch.tensor([[0.5, 1e-9], [1.0, 1.0], [2.0, 3.0]]).double()
    torch.testing.assert_close(relaxed_update(w, y, r), w * r / y)
    new = relaxed_update(w, y, r, 1.9)
    torch.testing.assert_close(new[0], w[0] * r[0] / y[0])  # leverage 1
    torch.testing.assert_close(new[1], w[1] * (r[1] / y[1]) ** 1.9)  # leverage 0
    assert torch.equal(relaxed_update(w, y, y, 1.5), w)
    torch.testing.assert_close(relaxed_update(2 * w[:1], y[:1], r[:1], 1.9), 2 * w[:1] * r[:1] / y[:1])  # by a sketch


@pytest.fixture(scope="module", params=KINDS[:3], ids="-".join)
def problem(request, y):
    """What atoms of some kinds see, which kinds these are, and the least objective, found by many dense updates."""
    kinds = request.param
    seen = ListAtoms(*(x if kind in kinds else None for kind, x in zip(ListAtoms._fields, y)))
    w = even_start(seen, M)
    i, j = EDGES
    for _ in range(600):
        Sigma = torch.linalg.inv(matrix(w))
        d = Sigma.diagonal()
        r = ListAtoms(d[i] + d[j] - 2 * Sigma[i, j], d[i] + d[j] + 2 * Sigma[i, j], d)
        w = ListAtoms(*(relaxed_update(x, s, rx, 1.9) for x, s, rx in zip(w, y, r)))
    return seen, keep(ListAtoms(*map(torch.ones_like, y)), kinds), objective(w, y)


@pytest.mark.parametrize("n_probes", [None, 256])
def test_likely_atoms_come_near_the_maximum(y, problem, n_probes):
    seen, mask, best = problem
    gaps = []
    for n_updates in (5, 40):
        w, r = likely_atoms(seen, EDGES, M, n_updates, n_probes=n_probes)
        gaps.append((objective(w, y) - best) / M)
    assert gaps[0] > 3 * gaps[1]
    assert -1e-6 < gaps[1] < 0.004
    assert sum(x @ s for x, s in zip(w, y)).item() == pytest.approx(M, rel=0.02 if n_probes else 1e-9)
    for x, rx, truth, on in zip(w, r, dense(w), mask):
        assert ((x > 0) == (on > 0)).all()
        torch.testing.assert_close(rx, truth * on, rtol=0.5 if n_probes else 1e-9, atol=1e-9)


def test_relaxation_stays_below_two_and_falls(y, monkeypatch):
    seen = []

    def update(w, y, r, relaxation):
        seen.append(relaxation)
        return relaxed_update(w, y, r, relaxation)

    monkeypatch.setattr(atom_lists, "relaxed_update", update)
    likely_atoms(y, EDGES, M, 10)
    falling = [1.9, 1.9, 1.9, 1.9, 1.8, 1.5, 1.2, 0.9, 0.6, 0.3]
    assert seen == pytest.approx(np.repeat(falling, 3).tolist()), "one per kind of atoms"


def test_units_cancel_and_the_seed_decides(y):
    w, r = likely_atoms(y, EDGES, M, 10, n_probes=16, seed=3)
    scaled, r_scaled = likely_atoms(ListAtoms(*(1e6 * x for x in y)), EDGES, M, 10, n_probes=16, seed=3)
    for a, b in zip(w, scaled):
        torch.testing.assert_close(a, 1e6 * b, rtol=1e-4, atol=0)
    torch.testing.assert_close(r.sum, 1e-6 * r_scaled.sum, rtol=1e-4, atol=0)
    other, _ = likely_atoms(y, EDGES, M, 10, n_probes=16, seed=4)
    assert not torch.equal(w.difference, other.difference)


def test_neighbours_are_brought_close_and_pairs_keep_their_values():
    path = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    edges = torch.stack([path[:-1], path[1:]]).sort(0).values
    nodes, pairs, close = atom_lists._close_in_memory(edges, 40)
    assert torch.equal(close, torch.stack([torch.arange(39), torch.arange(1, 40)]))
    assert torch.equal(nodes[close].sort(0).values, edges[:, pairs])


def test_bad_moments_are_named(y):
    with pytest.raises(ValueError, match=r"y\.sum has a value of 0: .* white signal"):
        likely_atoms(y._replace(sum=torch.zeros_like(y.sum)), EDGES, M)
    with pytest.raises(ValueError, match=r"y\.ground has a value of nan"):
        likely_atoms(y._replace(ground=torch.full((M,), np.nan)), EDGES, M)
    with pytest.raises(ValueError, match="n_nodes"):
        likely_atoms(y, EDGES, None)
