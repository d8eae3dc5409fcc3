"""Three kinds of atoms: the sum that they make up, its likelihood against the maximum, and what rounding may not do."""

import math

import pytest
import torch

from helpers.beyond import atoms
from helpers.beyond.atoms import (
    ALL,
    Atoms,
    Design,
    Kinds,
    approximate_mle,
    atoms_certificate,
    atoms_mle,
    resistances,
    white_signal,
)
from helpers.beyond.likelihood import laplacian_mle
from helpers.graphs import all_pairs, sample_graphs
from helpers.signals import sample_observations

KINDS = [Kinds(signed, loops) for signed in (True, False) for loops in (True, False)]


def moments(n=3, m=6, n_signals=60):
    """Second moments of signals with negative correlations and variances of their own."""
    generator = torch.Generator().manual_seed(1)
    mix = torch.randn(n, m, m, generator=generator, dtype=torch.float64) / 2 + torch.eye(m)
    X = torch.randn(n, n_signals, m, generator=generator, dtype=torch.float64) @ mix
    return X.mT @ X / n_signals


def vectors(m):
    """The atoms u one by one, in the order of a `Design` with all kinds: a list of (m,)."""
    eye = torch.eye(m, dtype=torch.float64)
    i, j = all_pairs(m)
    return [*(eye[i] - eye[j]), *(eye[i] + eye[j]), *eye]


def random_atoms(m=5):
    generator = torch.Generator().manual_seed(2)
    E = m * (m - 1) // 2
    return Atoms(*(torch.rand(2, size, generator=generator, dtype=torch.float64) for size in (E, E, m)))


# --- sums and moments ----------------------------------------------------------------------------------------------


def test_the_matrix_is_the_sum_of_its_atoms():
    w = random_atoms()
    by_hand = sum(x[:, None, None] * torch.outer(u, u) for x, u in zip(torch.cat(w, 1).T, vectors(5)))
    torch.testing.assert_close(w.matrix(), by_hand)


def test_moments_are_quadratic_forms():
    S = moments(2, 5)
    by_hand = torch.stack([u @ S @ u for u in vectors(5)], 1)
    torch.testing.assert_close(torch.cat(Atoms.of(S), 1), by_hand)
    torch.testing.assert_close(Atoms.of(S).total(), by_hand.sum(1))


def test_matrix_and_moments_are_adjoint():
    w, S = random_atoms(), moments(2, 5)
    torch.testing.assert_close(w.times(Atoms.of(S)).total(), (w.matrix() * S).sum((1, 2)))


@pytest.mark.parametrize("kinds", KINDS)
def test_a_design_keeps_the_kinds_that_there_are(kinds):
    design, w, S = Design(5, kinds), random_atoms(), moments(1, 5)[0]
    kept = design.atoms(design.rows(w))
    assert torch.equal(kept.difference, w.difference)
    assert torch.equal(kept.sum, w.sum if kinds.signed else torch.zeros_like(w.sum))
    assert torch.equal(kept.ground, w.ground if kinds.self_loops else torch.zeros_like(w.ground))
    U = design.rows(
        [torch.stack(vectors(5)[:10], 1), torch.stack(vectors(5)[10:20], 1), torch.stack(vectors(5)[20:], 1)]
    )
    torch.testing.assert_close(design.cross_moments(S), U.T @ S @ U)
    assert design.rank == (5 if kinds.signed or kinds.self_loops else 4)


def test_masks_are_per_graph():
    kinds = Kinds(torch.tensor([True, False, False]), torch.tensor([True, True, False]))
    signed, loops, constant = kinds.masks(torch.zeros(3, 4))
    assert signed.tolist() == [[1], [0], [0]]
    assert loops.tolist() == [[1], [1], [0]]
    assert constant.tolist() == [[0], [0], [1]]
    assert [x.shape for x in ALL.masks(torch.zeros(2, 3, 4))] == [(2, 3, 1)] * 3


# --- maximum likelihood --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", KINDS)
def test_maximum_likelihood_is_certified(kinds):
    S = moments()
    w = atoms_mle(S, kinds)
    certificate = atoms_certificate(w, S, kinds)
    assert (certificate.gap.abs() < 1e-7).all() and (certificate.kkt < 1e-7).all()
    rank = Design(6, kinds).rank
    torch.testing.assert_close(w.times(Atoms.of(S)).total(), torch.full((3,), float(rank), dtype=torch.float64))
    # the certificate is honest: it bounds what is lost elsewhere
    worse = Atoms(*(1.1 * x for x in w))
    bound = atoms_certificate(worse, S, kinds)
    loss = bound.primal - certificate.primal
    assert (loss > 1e-3).all() and (bound.gap * rank >= loss - 1e-6).all()
    assert (bound.kkt > 1e-3).all()
    torch.testing.assert_close(bound.primal - bound.dual, bound.gap * rank)


@pytest.mark.parametrize("kinds", KINDS)
def test_the_certificate_is_exact_for_weights_of_another_scale(kinds):
    """Weights c times the most likely ones lack rank (c - 1 - log c), which is their gap."""
    S = moments()
    w = atoms_mle(S, kinds)
    for factor in (0.5, 2.0):
        gap = atoms_certificate(Atoms(*(factor * x for x in w)), S, kinds).gap
        assert gap.tolist() == pytest.approx([factor - 1 - math.log(factor)] * 3, abs=1e-6)


def test_primal_value_is_minus_the_log_likelihood():
    S, w = moments(2, 5), random_atoms()
    by_hand = (w.matrix() * S).sum((1, 2)) - torch.linalg.slogdet(w.matrix())[1]
    torch.testing.assert_close(atoms_certificate(w, S).primal, by_hand)


def test_a_negative_weight_is_infeasible():
    w = random_atoms()
    w.difference[0, 0] = -0.01
    certificate = atoms_certificate(w, moments(2, 5))
    assert certificate.gap.isinf().tolist() == [True, False]


def test_differences_alone_are_the_laplacian_likelihood():
    S = moments()
    ours = atoms_mle(S, Kinds(False, False), tol=1e-10).difference
    torch.testing.assert_close(ours, laplacian_mle(Atoms.of(S).difference, tol=1e-10), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kinds", KINDS)
def test_updates_approach_the_maximum(kinds):
    S = moments(3, 8)
    best = atoms_certificate(atoms_mle(S, kinds), S, kinds).primal
    behind = [atoms_certificate(approximate_mle(S, kinds, k)[0], S, kinds).primal - best for k in (5, 40, 1500)]
    assert (behind[0] > behind[1]).all() and (behind[1] > behind[2]).all()
    assert (behind[1] < 0.25).all() and (behind[2] < 3e-3).all() and (behind[2] > -1e-6).all()


def test_over_relaxed_updates_need_half_as_many():
    S = moments(3, 8)
    value = {k: atoms_certificate(approximate_mle(S, ALL, k)[0], S).primal for k in (20, 40)}
    w, y = approximate_mle(S, ALL, 0)[0], Atoms.of(S)
    for _ in range(36):
        r = Atoms.of(torch.linalg.inv(w.matrix()))
        w = Atoms(*(x * a / b for x, a, b in zip(w, r, y)))
    plain = atoms_certificate(w, S).primal
    assert (value[40] < plain).all() and (value[20] < plain + 0.05).all()


@pytest.mark.parametrize("kinds", KINDS)
def test_resistances_are_those_of_the_weights_and_kinds_that_are_out_stay_out(kinds):
    S = moments()
    w, r = approximate_mle(S, kinds, 10)
    Sigma, _ = Design(6, kinds).covariance(Design(6, kinds).rows(w))
    torch.testing.assert_close(r.difference, Atoms.of(Sigma).difference, rtol=1e-6, atol=1e-9)
    if kinds.signed or kinds.self_loops:
        torch.testing.assert_close(r.ground, Atoms.of(Sigma).ground, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(r.sum, Atoms.of(Sigma).sum, rtol=1e-6, atol=1e-9)
    assert bool(w.sum.any()) == kinds.signed and bool(w.ground.any()) == kinds.self_loops
    if kinds.self_loops:
        assert not (w.difference * w.sum).any()


def test_kinds_may_differ_between_graphs():
    S = moments(4)
    together, _ = approximate_mle(
        S, Kinds(torch.tensor([k.signed for k in KINDS]), torch.tensor([k.self_loops for k in KINDS]))
    )
    for k, kinds in enumerate(KINDS):
        alone, _ = approximate_mle(S[k], kinds)
        for ours, theirs in zip(together, alone):
            torch.testing.assert_close(ours[k], theirs)


def test_units_go_with_one_over_s():
    S = moments()
    for ours, theirs in zip(approximate_mle(1e-8 * S)[0], approximate_mle(S)[0]):
        torch.testing.assert_close(1e-8 * ours, theirs)


def test_a_strong_common_mode_with_heavy_edges_stays_positive_definite():
    """Weights of 1e8 and a ground of 1e-1: asymmetric rounding of the inverse would be larger than the ground."""
    turn = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    small = 1e-8 * torch.tensor([[1.0, 0.3, 0.2], [0.3, 1.1, 0.4], [0.2, 0.4, 0.9]], dtype=torch.float64)
    S = torch.outer(turn, turn) + small
    w, r = approximate_mle(S, ALL, 40)
    assert all(x.isfinite().all() for x in (*w, *r))
    torch.testing.assert_close(w.times(Atoms.of(S)).total(), torch.tensor(3.0, dtype=torch.float64), rtol=1e-3, atol=0)


def test_the_start_shrinks_what_cannot_be_a_leverage():
    K = torch.tensor([[0.5, 4.0, -1.0]], dtype=torch.float64)
    start = atoms._start(K, torch.ones_like(K))
    torch.testing.assert_close(start, torch.tensor([[0.5, 4 / 64, 0.01 / 3]], dtype=torch.float64))


# --- the white signal ----------------------------------------------------------------------------------------------


def test_white_signal_is_the_size_of_near_distances_over_n():
    S = torch.eye(4, dtype=torch.float64)  # every sum and difference has 2
    by_hand = torch.tensor(0.1 / (1 + 2.5**2), dtype=torch.float64)
    torch.testing.assert_close(white_signal(Atoms.of(S), torch.tensor(10.0)), by_hand)
    S = sample_observations(sample_graphs("BA", 2, 12, seed=3, dtype=torch.float64), 500, seed=4).moments
    y = Atoms.of(S)
    near = torch.zeros(2, 12, 12, dtype=torch.float64)
    i, j = all_pairs(12)
    near[:, i, j] = near[:, j, i] = 1 / torch.minimum(y.difference, y.sum)
    harmonic = (11 / near.sum(-1)).sort(-1).values[:, 5]
    n = torch.tensor([500.0, 5.0], dtype=torch.float64)
    torch.testing.assert_close(white_signal(y, n), harmonic / (2 * n) / (1 + (n / 12) ** 2))


def test_a_copy_hardly_changes_the_white_signal():
    S = moments(1, 8)[0]
    before = white_signal(Atoms.of(S), torch.tensor(10.0))
    S[1] = S[0]
    S[:, 1] = S[:, 0]
    after = white_signal(Atoms.of(S), torch.tensor(10.0))
    assert 0.3 * before < after < 3 * before


@pytest.mark.parametrize("unit", [1.0, 1e4])
def test_columns_that_come_twice_leave_a_white_signal(unit):
    """Each node has a copy at distance 0, which counts as a thousandth of the usual distance, in whatever unit."""
    S = unit * torch.eye(4, dtype=torch.float64).repeat_interleave(2, 0).repeat_interleave(2, 1)
    usual = 2.0 * unit  # of all pairs but the copies
    by_hand = 7 / (1 / (1e-3 * usual) + 6 / usual) / (2 * 10) / (1 + (10 / 8) ** 2)
    assert white_signal(Atoms.of(S), torch.tensor(10.0)).item() == pytest.approx(by_hand)


# --- resistances ----------------------------------------------------------------------------------------------------


def test_resistances_are_those_of_the_inverse():
    generator = torch.Generator().manual_seed(4)
    w = Atoms(*(torch.rand(2, k, generator=generator).double() for k in (10, 10, 5)))
    r = resistances(w)
    for ours, theirs in zip(r, Atoms.of(torch.linalg.inv(w.matrix())), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(w.times(r).total(), torch.full((2,), 5.0).double())


def test_resistances_of_a_laplacian():
    """A path of three nodes: resistances are sums of 1 / w; sums and ground have whatever the constant vector has."""
    w = Atoms(torch.tensor([[0.5, 0, 0.25]]).double(), torch.zeros(1, 3).double(), torch.zeros(1, 3).double())
    r = resistances(w, torch.ones(1, 1))
    assert r.difference[0].tolist() == pytest.approx([2, 6, 4], rel=1e-6)
    both = Atoms(*(x.repeat(2, 1) for x in w))._replace(ground=torch.tensor([[0.0, 0, 0], [1, 1, 1]]).double())
    mixed = resistances(both, torch.tensor([[1.0], [0.0]]))
    torch.testing.assert_close(mixed.difference[:1], r.difference)
    torch.testing.assert_close(mixed.ground[1], torch.linalg.inv(both.matrix()[1]).diagonal())


def test_resistances_survive_weights_of_all_sizes():
    w = Atoms(
        torch.tensor([[1e9, 1e-6, 1.0]]).double(), torch.tensor([[1e-9, 0, 1e-9]]).double(), torch.zeros(1, 3).double()
    )
    r = resistances(w)
    assert all(x.isfinite().all() and (x >= 0).all() for x in r)
    assert r.difference[0, 0].item() == pytest.approx(1e-9, rel=1e-3)
