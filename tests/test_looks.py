"""Looks: gains and evidence by hand on three nodes, integrals beside fine grids, and weights that come to rest."""

import math

import numpy as np
import pytest
import torch
from toys import known_of, look_of

from helpers.beyond import looks
from helpers.beyond.atoms import Atoms, Kinds, approximate_mle, resistances
from helpers.beyond.broad import N_UPDATES
from helpers.beyond.looks import (
    N_AFTERTHOUGHTS,
    N_FITTED,
    N_SETTLED,
    Known,
    Rest,
    Thought,
    expect_alone,
    explain_away,
    fit_law,
    settle,
    weigh_evidence,
)
from helpers.graphs import all_pairs, to_matrix


def close(ours, theirs, tol=2e-4):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tol, atol=tol)


def log_likelihood(K, S, n):
    return n / 2 * (torch.logdet(K) - (K * S).sum())


LAW = torch.tensor([-0.3]).double(), torch.tensor([0.6]).double()  # of the look before


@pytest.mark.parametrize("fits, law, settled", [(False, None, 0), (True, None, 0), (True, LAW, 0), (True, LAW, 1)])
@pytest.mark.parametrize("signed", [True, False])
def test_a_look_by_hand(signed, fits, law, settled):
    """Gains are differences of the log-likelihood of signals on 3 nodes, with and without the pair."""
    torch.manual_seed(3)
    X = torch.randn(9, 3).double()
    S = X.T @ X / 9
    y = Atoms.of(S)
    n = 40.0
    log_p = torch.log_softmax(torch.randn(3, 1, 3).double() + torch.tensor([0.0, 1, -30 * (not signed)]), -1)
    weight = torch.rand(3, 1).double() + 0.3
    ground = torch.rand(3, 1).double() + 0.5
    columns = (y.difference[:, None], y.sum[:, None], ground)
    known = known_of(weight, weight, *columns, signed=signed, n_signals=n)._replace(y_ground=y.ground[:, None])
    in_graph = weight
    rest = None
    if settled:  # K is made of what is at rest, but the gains are those of the weight that was estimated
        in_graph = torch.rand(3, 1).double() + 0.3
        ground_law = torch.tensor([0.2]).double(), torch.tensor([1.6]).double()
        rest = Rest(in_graph, ground, law, ground_law)
    before = look_of(ground + settled, None if settled else law)
    look = explain_away(Thought(log_p, weight, rest), known, before, all_pairs(3), fits=fits)
    told, alone, new_ground, weighed, new_law, _ = look
    assert told.shape == (3, 1, N_AFTERTHOUGHTS if rest else N_AFTERTHOUGHTS - N_SETTLED)
    assert look.rest is rest
    _, positive, negative = log_p.exp().unbind(-1)
    expected = Atoms((positive * in_graph)[:, 0], (negative * in_graph)[:, 0], ground[:, 0])
    K = expected.matrix()
    p = (positive + negative)[:, 0]
    mean = (p * weight[:, 0].log()).sum() / p.sum()
    spread = ((p * (weight[:, 0].log() - mean) ** 2).sum() / p.sum()).sqrt()
    if rest:
        assert new_law is None is weighed and new_ground is ground
        mean, spread = (x[0] for x in law)
    elif fits:
        by_hand = law_by_hand(K, S, n, expected[:2], (positive[:, 0], negative[:, 0]), *(law or (mean, spread)))
        mean, spread = (x[0] for x in new_law)
        assert [mean.item(), spread.item()] == pytest.approx([x.item() for x in by_hand], abs=3e-4)
    else:
        assert new_law is None
    typical = mean.exp()
    usual = [(q.sum() + 0.5) / (3 + 1.5) for q in (positive, negative)]
    for e, (i, j) in enumerate(all_pairs(3).T):
        for kind, sign in enumerate((1, -1) if signed else (1,)):
            u = torch.zeros(3).double()
            u[i], u[j] = 1, -sign
            without = K - expected[kind][e] * torch.outer(u, u)
            seen = u @ S @ u

            def gain(d, without=without, u=u):
                return log_likelihood(without + d * torch.outer(u, u), S, n) - log_likelihood(without, S, n)

            r = u @ torch.linalg.inv(without) @ u
            best = 1 / seen - 1 / r
            row = told[e, 0, 4 * kind : 4 * kind + 4].double()
            score = torch.sign(best) * (2 * gain(best)).sqrt()
            by_hand = torch.stack([score, gain(weight[e, 0]), gain(typical)]).asinh()
            torch.testing.assert_close(row[:3], by_hand, rtol=1e-4, atol=1e-5)
            x = torch.linspace(-8, 8, 801).double() * spread + mean
            likelihood = torch.stack([gain(d) for d in x.exp()]).exp()
            normal = torch.distributions.Normal(mean, spread).log_prob(x).exp()
            evidence = torch.trapezoid(likelihood * normal, x)
            likely = torch.trapezoid(likelihood * normal * x.exp(), x) / evidence
            logit = (usual[kind] / (1 - sum(usual)) * evidence).log().clamp(-12, 12) / 3
            by_hand = torch.stack([logit, (likely / typical).log() / 3])
            row_of_evidence = told[e, 0, 11 + 2 * kind : 13 + 2 * kind].double()
            torch.testing.assert_close(row_of_evidence, by_hand, rtol=1e-3, atol=1e-3)
            leverage = (weight[e, 0] * (u @ torch.linalg.inv(K) @ u)).clamp_max(1)
            moved = weight[e, 0] ** (1 - leverage) * likely**leverage
            assert rest or weighed[kind][e, 0].item() == pytest.approx(moved.item(), rel=1e-3)
            if best > 0:
                assert alone[kind][e, 0].item() == pytest.approx(best.item(), rel=1e-5)
                assert row[3].item() == pytest.approx((best / typical).log().clamp(-6, 6).item() / 3, rel=1e-4)
            else:
                assert alone[kind][e, 0] < 1e-11 and row[3] == -2
    logit = (log_p[:, 0, 1:] - log_p[:, 0, :1]).clamp(-12, 12) / 3
    torch.testing.assert_close(told[:, 0, 8:10], logit, check_dtype=False)
    torch.testing.assert_close(told[:, 0, 10], (weight[:, 0] / typical).log() / 3, check_dtype=False)
    of_graph = torch.stack([spread.log() / 2, *((q / (1 - sum(usual))).log() / 3 for q in usual)])
    torch.testing.assert_close(told[:, 0, 15:18], of_graph.expand(3, N_FITTED), rtol=1e-3, atol=1e-4)
    if not signed:
        assert not told[:, 0, 4:8].any() and not told[:, 0, 13:15].any()
    variance = torch.linalg.inv(K).diagonal()
    if rest:
        i, j = all_pairs(3)
        share = ground[:, 0] * variance
        typical_ground, ground_spread = (x.expand(3) for x in ground_law)
        of_ground = [(share[i] + share[j]) / 2, ground_spread.log() / 2, (typical_ground - mean) / 3]
        torch.testing.assert_close(told[:, 0, 18:].double(), torch.stack(of_ground, 1), rtol=1e-6, atol=1e-6)
    else:
        updated = ground[:, 0] * variance / y.ground
        torch.testing.assert_close(new_ground[:, 0], updated, rtol=1e-4, atol=1e-5)


def law_by_hand(K, S, n, expected, probabilities, mean, spread):
    """Mean and spread of log-weights, each normal around where prior times likelihood is largest on a fine grid."""
    x = torch.linspace(-6, 4, 20_001).double()
    values = []
    for e, (i, j) in enumerate(all_pairs(3).T):
        for kind, sign in enumerate((1, -1)):
            u = torch.zeros(3).double()
            u[i], u[j] = 1, -sign
            r = u @ torch.linalg.inv(K - expected[kind][e] * torch.outer(u, u)) @ u
            posterior = n / 2 * (torch.log1p(x.exp() * r) - x.exp() * (u @ S @ u)) - ((x - mean) / spread) ** 2 / 2
            k = posterior.argmax()
            second = (posterior[k - 1] - 2 * posterior[k] + posterior[k + 1]) / (x[1] - x[0]) ** 2
            values.append(torch.stack([probabilities[kind][e], x[k], -1 / second]))
    p, x, variance = torch.stack(values).T
    middle = (p * x).sum() / p.sum()
    return middle, ((p * (variance + (x - middle) ** 2)).sum() / p.sum()).sqrt()


def test_a_law_is_that_of_the_data_or_stays_as_it_was():
    """With many signals the spread of the likeliest weights, by probability; with hardly any, what it was before."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 40, 3, generator=generator).double().mul(0.8).exp()
    r = torch.rand(2, 40, 3, generator=generator).double() + 0.5
    q = torch.rand(2, 40, 3, generator=generator).double()
    y = 1 / (weight + 1 / r)  # so that 1 / y - 1 / r is the weight
    mean, spread = torch.tensor([-1.0, 0, 1]).double(), torch.tensor([0.3, 1, 2]).double()
    many, few = (torch.full((40, 3), n).double() for n in (1e9, 1e-9))
    found = fit_law(tuple(q), r, y, many, mean, spread)
    x, p = weight.log().reshape(80, 3), q.reshape(80, 3)
    middle = (p * x).sum(0) / p.sum(0)
    deviation = ((p * (x - middle) ** 2).sum(0) / p.sum(0)).sqrt()
    close(found, (middle, deviation), 1e-5)
    close(fit_law(tuple(q), r, y, few, mean, spread), (mean, spread), 1e-5)
    assert fit_law(tuple(0 * q), r, y, many, mean, spread)[1].tolist() == pytest.approx([looks.SPREADS[0]] * 3)


# --- what settles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n, spread", [(300.0, 0.2), (100.0, 0.5), (1e-9, 0.7)])
def test_an_atom_alone_goes_to_its_mean(n, spread):
    """Beside fine grids; the way to it is as long as data or law have a say, and no longer than the whole way."""
    r = torch.tensor([0.5, 2.0, 100.0]).double()
    y = torch.tensor([0.3, 0.4, 0.9]).double()
    w = torch.tensor([0.7, 1.0, 0.2]).double()
    with_it = r / (1 + w * r)
    mean, spread = torch.tensor([-0.5, spread], dtype=torch.float64)
    x, variance, moved = expect_alone(w, with_it, r, y, torch.tensor(n, dtype=torch.float64), mean, spread)
    grid = torch.linspace(-8, 6, 140_001, dtype=torch.float64)[:, None]
    value = n / 2 * (torch.log1p(grid.exp() * r) - grid.exp() * y) - ((grid - mean) / spread) ** 2 / 2
    k = value.argmax(0)
    torch.testing.assert_close(x, grid[k, 0], rtol=0, atol=2e-4)
    slope = value.gather(0, torch.stack([k - 1, k, k + 1]))
    second = (slope[0] - 2 * slope[1] + slope[2]) / (grid[1] - grid[0]) ** 2
    torch.testing.assert_close(variance, -1 / second, rtol=1e-3, atol=0)
    p = (value - value.amax(0)).exp()
    expected = (p * grid.exp()).sum(0) / p.sum(0)
    leverage = w * with_it
    data, prior = n / 2 * leverage, 1 / spread**2
    way = (1.5 * (data * leverage + prior) / (data + prior)).clamp_max(1)
    torch.testing.assert_close((moved / w).log(), way * (expected / w).log(), rtol=0.05, atol=5e-3)
    again = expect_alone(w, with_it, r, y, torch.tensor(n, dtype=torch.float64), mean, spread, x)
    close(again, (x, variance, moved), 1e-6)


def test_a_gamma_and_a_lognormal_mean_are_exact():
    """A ground that nothing else explains, and a pair without data."""
    y = torch.tensor([0.3, 4.0]).double()
    wide = torch.tensor([0.0, 1e4]).double()
    _, variance, moved = expect_alone(1 / y, y * (1 - 1e-9), 1e9 * y, y, torch.tensor(40.0), *wide)
    close([moved, variance], [1 / y, torch.full_like(y, 1 / 20)], 1e-6)
    law = torch.tensor([-1.0, 0.8], dtype=torch.float64)
    _, variance, moved = expect_alone(1 / y, y / 2, y, y, torch.tensor(0.0), *law)
    close([moved, variance], [torch.full_like(y, math.exp(-1 + 0.32)), torch.full_like(y, 0.64)], 1e-9)
    law[1] = 2.0
    _, _, moved = expect_alone(1 / y, y / 2, y, y, torch.tensor(0.0), *law)
    close([moved], [torch.full_like(y, math.exp(-1 + 1))], 1e-9)  # the mean is no further from the mode than a factor e
    # nor below it, where the data say little and the prior less: the largest likelihood is at d = 1/9, y d = 1/10
    few = torch.tensor(20.0), torch.tensor(-math.log(9)).double(), torch.tensor(30.0).double()
    _, _, moved = expect_alone(*torch.tensor([9.0, 1 / 9, 1, 0.9]).double(), *few)
    assert moved.item() == pytest.approx(math.exp(-1) / 9, rel=1e-6)


def graphs_with_ground(size, n_signals=4000.0, n=8, m=20):
    """ER graphs, lognormal weights, some of them negative, and ground: what is known of them, and the truth."""
    generator = torch.Generator().manual_seed(5)
    pairs = m * (m - 1) // 2
    there = torch.rand(n, pairs, generator=generator) < 0.15
    weight = torch.randn(n, pairs, generator=generator).double().mul(0.5).exp()
    ground = size * torch.randn(n, m, generator=generator).double().mul(0.8).exp()
    plus = torch.rand(n, pairs, generator=generator) < 0.7
    K = Atoms(weight * (there & plus), weight * (there & ~plus), ground).matrix()
    F = torch.linalg.inv(torch.linalg.cholesky(K))
    X = torch.randn(n, int(n_signals), m, generator=generator).double() @ F
    y = Atoms.of(X.mT @ X / n_signals)
    one = torch.ones(pairs, n).double()
    flag = torch.ones(n, dtype=torch.bool)
    seen = (y.difference.T, y.sum.T, one, n_signals * one, y.ground.T, y.ground.T)
    known = Known(one, one, *seen, flag, flag, torch.zeros(n).double())
    return known, ((there & plus).T.double(), (there & ~plus).T.double()), weight.T, ground.T


def settle_graphs(known, edges, n_steps, rest=None):
    """What settles, from a Rest or from the beginning: who is joined is known."""
    p = torch.stack([1 - edges[0] - edges[1], *edges], -1)
    return settle(p, known, look_of(torch.zeros_like(known.y_ground), rest=rest), resistances, n_steps)


@pytest.mark.parametrize("size", [0.1, 0.3, 1.0])
def test_weights_and_ground_settle_where_the_data_put_them(size):
    """From weights that are all alike and next to no ground, if it is known who is joined."""
    known, edges, weight, ground = graphs_with_ground(size)
    there = (edges[0] + edges[1]) > 0
    rest = settle_graphs(known, edges, 60)
    off = (rest.weight / weight).log()[there]
    assert abs(off.mean()) < 0.02 and off.std() < 0.12
    truth = ground.log()
    off = rest.ground.log() - truth
    assert abs(off.mean()) < 0.15 and off.std() < 0.55
    mean, spread = (x.mean().item() for x in rest.law)
    assert (mean, spread) == (pytest.approx(0, abs=0.08), pytest.approx(0.5, abs=0.08))
    mean, spread = (x.mean().item() for x in rest.ground_law)
    assert (mean, spread) == (pytest.approx(truth.mean().item(), abs=0.2), pytest.approx(truth.std().item(), abs=0.2))
    again = settle_graphs(known, edges, 1, rest)
    close([x.log() for x in again[:2]], [x.log() for x in rest[:2]], 0.01)  # they rest


@pytest.mark.parametrize("size", [0.1, 1.0])
def test_the_most_likely_ground_is_too_small(size):
    """Half of the true one at most, in the geometric mean, where what settles is right: it is why anything settles."""
    known, edges, _, ground = graphs_with_ground(size)
    S = to_matrix((known.y_sum - known.y_difference).T / 4) + torch.diag_embed(known.y_ground.T)
    likely = approximate_mle(S, Kinds(), N_UPDATES)[0].ground.T
    off = [(x.clamp_min(1e-12).log() - ground.log()).mean() for x in (likely, settle_graphs(known, edges, 60).ground)]
    assert off[0] < math.log(0.5) and abs(off[1]) < 0.15


def test_steps_go_on_from_each_other():
    """Four steps are two and two, but for a search that starts anew."""
    known, edges, *_ = graphs_with_ground(0.1)
    begun = settle_graphs(known, edges, 6)
    half = settle_graphs(known, edges, 2, begun)
    ours, theirs = settle_graphs(known, edges, 2, half), settle_graphs(known, edges, 4, begun)
    close([x.log() for x in ours[:2]], [x.log() for x in theirs[:2]], 0.02)
    close([*ours.law, *ours.ground_law], [*theirs.law, *theirs.ground_law], 0.05)


def test_where_it_begins_to_settle():
    """At the most likely weights and their law, with next to no ground of which little is known."""
    known, edges, weight, ground = graphs_with_ground(0.1)
    weight = torch.where(edges[0] + edges[1] > 0, weight, 0)
    known = known._replace(difference=weight, sum=2 * weight)
    p = torch.stack([1 - edges[0] - edges[1], *edges], -1)
    begun = settle(p, known, look_of(torch.where(ground < 0.1, 0, ground)), resistances, 0)
    n_edges = (edges[0] + edges[1]).sum(0)
    by_sign = torch.where(edges[0] > 0, weight, 2 * weight).clamp_min(1e-9)
    torch.testing.assert_close(begun.weight, by_sign)
    mean = ((edges[0] + edges[1]) * by_sign.log()).sum(0) / n_edges
    spread = ((edges[0] + edges[1]) * (by_sign.log() - mean) ** 2).sum(0) / n_edges
    close(begun.law, (mean, spread.sqrt()), 1e-5)
    torch.testing.assert_close(begun.ground, torch.where(ground < 0.1, 1e-12, ground))
    close(begun.ground_law, (-known.y_ground.log().mean(0) - 2, torch.full((8,), 2.0).double()), 1e-12)


def test_the_resistance_without_an_atom():
    """Two resistors in parallel; an atom that has all the leverage leaves a large number, not an infinite one."""
    w, r = torch.tensor([[2.0, 0.9999, 1.0], [1 / 3, 1.0, 1.0]], dtype=torch.float64)
    close([looks.without(w, r)], [torch.tensor([1.0, 1e4, 1e6], dtype=torch.float64)], 1e-6)


def test_spreads_are_bounded():
    """Without data they stay what they were, but for that."""
    known, edges, weight, ground = graphs_with_ground(0.1)
    known = known._replace(n_signals=1e-9 * known.n_signals)
    wide = torch.zeros(8).double(), torch.full((8,), 10.0).double()
    *_, law, ground_law = settle_graphs(known, edges, 1, Rest(weight, ground, wide, wide))
    assert (law[1] == 3).all() and (ground_law[1] == 4).all()  # as when the network learned


def test_only_kinds_that_there_are_settle():
    known, edges, weight, ground = graphs_with_ground(0.1)
    flag = torch.arange(8) < 4
    law = torch.zeros(8).double(), torch.ones(8).double()
    start = Rest(torch.ones_like(weight), torch.where(flag, ground, 0), law, law)
    moved = settle_graphs(known._replace(loops=flag), edges, 3, start).ground
    assert (moved[:, flag] > 0).all() and (moved[:, flag] != ground[:, flag]).all() and not moved[:, ~flag].any()
    none = edges[0] + edges[1], 0 * edges[1]
    start = start._replace(ground=ground)
    unsigned = settle_graphs(known._replace(signed=torch.zeros_like(flag)), none, 3, start).weight
    assert unsigned.isfinite().all() and (unsigned != settle_graphs(known, none, 3, start).weight).any()


def test_improbable_pairs_keep_nodes_connected():
    """A graph of which nothing is thought to exist has finite resistances, also without ground and sums."""
    log_p = torch.tensor([0.0, -30.0, -30.0]).expand(3, 1, 3)
    one = torch.ones(3, 1)
    known = known_of(one, one, one, one, one, signed=False, loops=False)._replace(constant=torch.ones(1))
    before = look_of(0 * one)
    for rest in (None, settle(log_p.double().exp(), known, before, resistances, 3)):
        look = explain_away(Thought(log_p, one, rest), known, before, all_pairs(3))
        finite = (look.told, *look.alone, *(look.weighed or ()), *(look.law or ()), *(rest or ())[:2])
        assert all(x.isfinite().all() for x in finite) and not look.ground.any()
    look = explain_away(Thought(log_p, one), known, before, all_pairs(3), fits=False)
    assert look.told[:, 0, -N_FITTED].tolist() == pytest.approx([math.log(looks.SPREADS[0]) / 2] * 3)  # equal weights


@pytest.mark.parametrize("spread", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("n", [5.0, 500.0])
@pytest.mark.parametrize("ratio", [0.2, 0.95, 1.0, 1.3, 20.0])
def test_evidence_is_an_integral(ratio, n, spread):
    """Beside a fine grid of weights, for pairs that the data speak against, that they leave open and that they show."""
    r, y, mean = 3.0, 3.0 / ratio, -1.0
    x = np.linspace(mean - 12 * spread - 6, mean + 12 * spread, 200_001)
    d = np.exp(x)
    value = n / 2 * (np.log1p(d * r) - d * y) - ((x - mean) / spread) ** 2 / 2
    peak = value.max()
    density = np.exp(value - peak)
    area = density.sum() * (x[1] - x[0])
    given = [torch.tensor(v).double() for v in (r, y, n, mean, spread)]
    evidence, likely = weigh_evidence(*given)
    assert evidence.item() == pytest.approx(peak + np.log(area / spread / np.sqrt(2 * np.pi)), abs=0.05)
    assert likely.item() == pytest.approx((density * d).sum() / density.sum(), rel=0.1)


def test_one_newton_step_is_enough_where_the_data_show_an_edge(monkeypatch):
    """The integral begins where likelihood and prior would meet if both were normal."""
    given = [torch.tensor(v).double() for v in (3.0, 0.15, 500.0, -1.0, 0.05)]
    exact = weigh_evidence(*given)
    monkeypatch.setattr(looks, "N_NEWTON", 1)
    torch.testing.assert_close(weigh_evidence(*given), exact, rtol=0.02, atol=0)


def test_newton_steps_are_bounded():
    """From a start that is far too small the gradient foretells a step of many units: each goes one at most."""
    r, y, half, mean, precision = (torch.tensor(v).double() for v in (1.0, 0.5, 50.0, -10.0, 1.0))
    start = torch.tensor(-20.0).double()
    x, _ = looks.most_probable(r, y, half, mean, precision, start)
    assert x.item() == pytest.approx(start.item() + looks.N_AGAIN)


def test_evidence_finds_a_heavy_edge_far_from_all_others():
    """Ten times as heavy as seven standard deviations allow: the data decide, and nothing overflows."""
    y = torch.tensor([1e-6, 1.0]).double()
    r = torch.tensor([1.0, 1e6]).double()
    evidence, likely = weigh_evidence(r, y, torch.tensor(1000.0).double(), torch.tensor(0.0), torch.tensor(0.5))
    assert (evidence > 1000).all() and likely[0].item() == pytest.approx(1e6, rel=0.3)
    assert evidence.isfinite().all() and likely[1].item() == pytest.approx(1, rel=0.1)
