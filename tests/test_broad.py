"""The broad network: symmetries, features by hand, weights by hand, loss by hand, and what it must never answer."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from toys import known_of, look_of

from helpers.beyond import broad
from helpers.beyond.atoms import Atoms, Kinds, approximate_mle, resistances, white_signal
from helpers.beyond.broad import (
    EARLIER,
    N_NODE_FEATURES,
    N_NODE_ROWS,
    N_PAIR_FEATURES,
    N_PAIR_ROWS,
    BroadL2G,
    Estimate,
    KindObservations,
    Round,
    describe,
    fill_missing_direction,
)
from helpers.beyond.broad_law import sample_broad
from helpers.beyond.looks import N_FITTED, N_SETTLED, N_WEIGHED, Look, Rest, explain_away, settle
from helpers.graphs import all_pairs, renumber, to_vector
from helpers.signals import Observations

M = 8
E = M * (M - 1) // 2


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return BroadL2G(3, width=16, n_looks=2).eval()


@pytest.fixture(scope="module")
def draw():
    return sample_broad(6, M, seed=3, families=["ER", "dense"])


def close(ours, theirs, tol=2e-4):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tol, atol=tol)


# --- symmetries ----------------------------------------------------------------------------------------------------


def test_renumbered_nodes_give_the_renumbered_answer(model, draw):
    order = torch.randperm(M, generator=torch.Generator().manual_seed(1))
    S, n = (x[:, order[:, None], order] for x in (draw.moments, draw.n_signals))
    ours, theirs = model(S, n), model(draw.moments, draw.n_signals)
    close(ours[:2], [renumber(x, order) for x in theirs[:2]])
    close([ours.weight.log()], [renumber(theirs.weight.log(), order)], 2e-3)


@pytest.mark.parametrize("unit", [1e-30, 1e3])
def test_units_go_with_one_over_s(model, draw, unit):
    ours, theirs = model(unit * draw.moments, 50.0), model(draw.moments, 50.0)
    close(ours[:2], theirs[:2])
    close([(unit * ours.weight).log()], [theirs.weight.log()], 2e-3)


def test_any_batch_shape(model, draw, monkeypatch):
    flags = {"signed": draw.signed, "self_loops": draw.self_loops}
    together = model(draw.moments, draw.n_signals, **flags)
    boxed = model(
        draw.moments.unflatten(0, (2, 3)), draw.n_signals.unflatten(0, (2, 3)),
        **{name: x.unflatten(0, (2, 3)) for name, x in flags.items()},
    )  # fmt: skip
    close([x.flatten(0, 1) for x in boxed], together, 1e-5)
    alone = model(draw.moments[2], draw.n_signals[2], signed=draw.signed[2], self_loops=draw.self_loops[2])
    assert alone.weight.shape == (E,)
    close(alone, [x[2] for x in together], 1e-4)
    monkeypatch.setattr(broad, "PAIRS_AT_ONCE", 1)
    close(model(draw.moments, draw.n_signals, **flags), together, 1e-4)


def test_numbers_of_samples_per_entry(model, draw):
    n = torch.full((6, M, M), 40.0, dtype=torch.float64)
    close(model(draw.moments, n), model(draw.moments, 40.0), 1e-5)
    n[:, 0, 1] = n[:, 1, 0] = 5
    assert (model(draw.moments, n).positive != model(draw.moments, 40.0).positive).any()
    pairs, _ = describe(draw.moments, n, Kinds())
    assert pairs[:, 19, 0] == pytest.approx(math.log(5) / 6, rel=1e-6)
    assert pairs[:, 19, 1:] == pytest.approx(math.log(40) / 6, rel=1e-6)


def test_kinds_that_are_left_out(model, draw):
    unsigned = model(draw.moments, 50.0, signed=False)
    assert (unsigned.negative < 1e-9).all() and (model(draw.moments, 50.0).negative > 1e-9).any()
    assert (model(draw.moments, 50.0, self_loops=False).positive != model(draw.moments, 50.0).positive).any()


def test_probabilities_and_weights(model, draw):
    estimate = model(draw.moments, draw.n_signals)
    assert (estimate.positive >= 0).all() and (estimate.negative >= 0).all()
    assert (estimate.positive + estimate.negative <= 1).all() and (estimate.weight > 0).all()
    torch.testing.assert_close(estimate.expected, (estimate.positive - estimate.negative) * estimate.weight)
    observations = KindObservations(draw.moments, draw.n_signals, draw.signed, draw.self_loops)
    expected = model(draw.moments, draw.n_signals, signed=draw.signed, self_loops=draw.self_loops).expected
    torch.testing.assert_close(model.predict(observations), expected)
    torch.testing.assert_close(model.predict(Observations(draw.moments, 50.0)), model(draw.moments, 50.0).expected)


# --- features ------------------------------------------------------------------------------------------------------


def test_features_by_hand(draw):
    """One graph, computed once more from its most likely weights."""
    S, n = draw.moments[:1], 50.0
    S = S / S.diagonal(dim1=-2, dim2=-1).mean()
    pairs, nodes = describe(draw.moments[:1], n, Kinds())
    assert pairs.shape == (1, N_PAIR_ROWS, E) and nodes.shape == (1, N_NODE_ROWS, M)
    S = S + (white_signal(Atoms.of(S), n) + 1e-10)[:, None, None] * torch.eye(M)
    w, r = approximate_mle(S, Kinds(), broad.N_UPDATES)
    y = Atoms.of(S)
    K = w.matrix()[0]
    precision = torch.linalg.inv(S[0])
    i, j = all_pairs(M)
    g = (K[i, i] * K[j, j]).sqrt()
    v = (w.difference - w.sum)[0]
    z = math.sqrt(n) * v / (g**2 + v**2).sqrt()
    s = z**2 / (z**2 + 9)
    larger = torch.maximum(w.difference, w.sum)[0]
    typical = (s * (larger + 1e-9).log()).sum() / s.sum()
    partial = -to_vector(precision) / (precision[i, i] * precision[j, j]).sqrt()
    correlation = to_vector(S[0]) / (S[0, i, i] * S[0, j, j]).sqrt()
    root = math.sqrt(n)
    rows = {}
    for start, weight, seen, resistance in ((0, w.difference, y.difference, r.difference), (7, w.sum, y.sum, r.sum)):
        a, b, c = weight[0], seen[0], resistance[0]
        log = (a.clamp_min(1e-12).log()).clamp(-12, 12) / 3
        rows[start] = (log - typical / 3).clamp(-4, 4)
        rows[start + 1] = ((a / g).clamp_min(1e-12).log().clamp(-12, 12) / 3).clamp_min(-4)
        rows[start + 2] = ((b.log().clamp(-12, 12) + typical) / 3).clamp(-4, 4)
        rows[start + 3] = a * c
        rows[start + 4] = 1 - c / b
        rows[start + 5] = (root * a * c / 2).asinh()
        rows[start + 6] = (root * (1 - c / b) / 2).asinh()
    rows |= {
        14: z.asinh(),
        15: (root * partial).asinh(),
        16: partial,
        17: (root * correlation).asinh(),
        18: correlation,
    }
    one = torch.ones(E).double()
    rows |= {20: one * math.log(M) / 4, 21: one * math.log(n / M) / 4}
    rows |= {24: w.difference[0], 25: w.sum[0], 26: y.difference[0], 27: y.sum[0], 28: s, 29: one * n}
    for row, expected in rows.items():
        torch.testing.assert_close(pairs[0, row], expected, rtol=1e-9, atol=1e-9, msg=f"row {row}")
    assert (pairs[0, 22:24] == 1).all()
    ground = w.ground[0] * y.ground[0]
    count = torch.zeros(M, dtype=torch.float64).index_add(0, i, s).index_add(0, j, s)
    slack = (1 - r.ground[0] / y.ground[0]).clamp(-3, 1)
    of_node = [
        (K.diagonal() / typical.exp()).log() / 3, w.ground[0] / K.diagonal(), w.ground[0] * r.ground[0],
        (math.sqrt(n / 2) * slack).asinh(), (y.ground[0] * precision.diagonal()).log().clamp(0, 12) / 3,
        (y.ground[0] * K.diagonal()).log().clamp(-3, 12) / 3, (count + 0.1).log() / 2, 1 - ground,
    ]  # fmt: skip
    of_node += [w.ground[0], y.ground[0]]
    torch.testing.assert_close(nodes[0, :-1], torch.stack(of_node), rtol=1e-9, atol=1e-9)
    assert nodes[0, -1, 0] == pytest.approx(draw.moments[0].diagonal().mean().item(), rel=1e-12)


def test_features_of_kinds_that_are_left_out(draw):
    pairs, nodes = describe(draw.moments, 50.0, Kinds(False, False))
    assert not pairs[:, 7:14].any() and not pairs[:, 22:24].any() and not pairs[:, 25].any()
    torch.testing.assert_close(nodes[:, N_NODE_FEATURES - 1], torch.full((6, M), 1 - 1 / M).double())
    assert not nodes[:, 1:4].any()


@pytest.mark.parametrize("n_signals", [2.0, 1e4])
def test_hard_moments_give_finite_answers(model, n_signals):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(2, M, generator=generator, dtype=torch.float64)
    twice = X.repeat_interleave(2, 1)[:, :M]
    constant = X.clone()
    constant[:, 3] = 0
    for Z in (X, twice, constant, X * torch.logspace(-6, 6, M), torch.ones_like(X)):
        estimate = model(Z.mT @ Z / 2, n_signals)
        assert all(x.isfinite().all() for x in estimate)


# --- the network ---------------------------------------------------------------------------------------------------


def test_a_round_by_hand():
    torch.manual_seed(1)
    layer = Round(4).double()
    edges = all_pairs(3)
    h, at_nodes = torch.randn(3, 2, 4).double(), torch.randn(3, 2, 4).double()
    s = torch.rand(3, 2).double()
    count = torch.stack([s[0] + s[1], s[0] + s[2], s[1] + s[2]])
    told = layer.tell(h).clamp_min(0) * s[..., None]
    node = torch.stack([told[0] + told[1], told[0] + told[2], told[1] + told[2]]) / (count + 0.1)[..., None]
    graph = node.mean(0).expand(3, 2, 4)
    node = layer.node(torch.cat([node, graph], -1)) + at_nodes
    new = layer.own(h) + node[edges[0]] + node[edges[1]]
    torch.testing.assert_close(layer(h, at_nodes, s, count, edges), h + layer.out(new.clamp_min(0)))


@pytest.mark.parametrize("fitted, n_steps", [(False, 0), (True, 0), (True, 3)])
def test_weights_by_hand(fitted, n_steps):
    """Drawn towards the mean logarithm, then so scaled that leverages add up to what ground and sums leave."""
    model = BroadL2G(3, width=16, n_looks=2, n_steps=n_steps).eval()
    torch.manual_seed(2)
    h = torch.randn(3, 1, 16)
    log_p = torch.log_softmax(torch.randn(3, 1, 3), -1)
    a, b, y, y_sum = torch.rand(4, 3, 1) + 0.1
    b = b / 10
    y[0] = y_sum[2] = 20  # of these two pairs leverages are cut off at 2
    alone, weighed = torch.rand(2, 2, 3, 1) + 0.1
    left = torch.rand(3, 1)
    positive, negative = log_p.exp()[..., 1], log_p.exp()[..., 2]
    p = positive + negative
    log = ((positive * a + negative * b) / p).log()
    log_alone, log_weighed = (((positive * x[0] + negative * x[1]) / p).log() for x in (alone, weighed))
    mean = (p * log).sum() / p.sum()
    spread = ((p * (log - mean) ** 2).sum() / p.sum() + 1e-6).sqrt()
    law = (torch.tensor([-0.4]).double(), torch.tensor([0.7]).double()) if fitted else None
    mean, spread = (x.float() for x in law or (mean, spread))
    rest = Rest(weighed[0].double(), None, law, None) if n_steps else None
    rank = left.sum() - ((1 - negative) * b * y_sum).sum()
    assert rank > 0.1 and (20 * log.exp()[[0, 2]] > 2).all()

    def scale(weight):
        seen = positive * (weight * y).clamp_max(2) + negative * (weight * y_sum).clamp_max(2)
        return (rank / seen.sum()).log().expand(3, 1)

    ratio = log - mean
    told = [ratio / 3, ratio / (spread + 0.1) / 3, spread.log().expand(3, 1) / 3, scale(log.exp())]
    told.append((log_alone - mean) / 3)
    if rest:
        log_weighed = weighed[0].log()
        told.append((log_weighed - mean) / 3)
    told = torch.stack(told, -1)
    pull, add, trust, give = model.size(torch.cat([h, told], -1)).unbind(-1)
    weight = (mean + ratio * torch.sigmoid(3 - pull)).exp()
    own = weight.log() + torch.sigmoid(trust) * scale(weight) + 0.3 * add
    expected = own + torch.sigmoid(give) * (log_weighed - own)
    known = known_of(a, b, y, y_sum, left)
    look = Look(None, alone, None, *((None, None) if rest else (tuple(weighed), law)))
    torch.testing.assert_close(model._weights(h, log_p, known, look, rest), expected.exp())
    wild = copy.deepcopy(model)
    wild.size[-1].bias.data[1] += 1000
    torch.testing.assert_close(
        wild._weights(h, log_p, known, look, rest).log(),
        expected + (1 - torch.sigmoid(give)) * (3 - 0.3 * add),
    )  # no correction is larger
    if rest:
        return
    before_any_look = model._weights(h, log_p, known, look._replace(weighed=None), None)
    torch.testing.assert_close(before_any_look, own.exp())
    plain = BroadL2G(3, width=16, n_looks=2, weighs=False, fits=False, n_steps=0)
    plain.load_state_dict({name: x[:3] if name.startswith("size.2") else x for name, x in model.state_dict().items()
                           if "looks" not in name}, strict=False)  # fmt: skip
    torch.testing.assert_close(plain._weights(h, log_p, known, look, None), own.exp())


def test_looks_change_what_is_thought(model, draw):
    """Every look is followed by a round, and the last estimate counts."""
    found = model._estimates(*describe(draw.moments, 50.0, Kinds()), all_pairs(M))
    assert len(found) == 3 and found[0][0].shape == (E, 6, 3) and found[0][1].shape == (E, 6)
    assert all((a[0] != b[0]).any() for a, b in pairwise(found))
    torch.testing.assert_close(model(draw.moments, 50.0).positive.float(), found[-1][0].exp()[..., 1].T)
    torch.manual_seed(0)
    plain = BroadL2G(3, width=16, n_looks=0)
    assert len(plain._estimates(*describe(draw.moments, 50.0, Kinds()), all_pairs(M))) == 1
    for n_looks in (-1, 3):
        with pytest.raises(ValueError, match=f"n_looks={n_looks}"):
            BroadL2G(3, n_looks=n_looks)
    with pytest.raises(ValueError, match=r"fits=True: .* take weighs=True"):
        BroadL2G(weighs=False)
    with pytest.raises(ValueError, match=r"n_steps=3: .* take fits=True"):
        BroadL2G(fits=False)


@pytest.mark.parametrize("n_steps", [0, 3])
def test_a_look_goes_on_from_the_one_before(draw, monkeypatch, n_steps):
    """From its law, or from weights and ground at rest, which the judgement after it has settled with its own."""
    torch.manual_seed(0)
    model = BroadL2G(3, width=16, n_looks=2, n_steps=n_steps).eval()
    thoughts, given, found, settled = [], [], [], []

    def spy(thought, known, before, *data, **options):
        thoughts.append(thought)
        given.append(before)
        found.append(explain_away(thought, known, before, *data, **options))
        return found[-1]

    monkeypatch.setattr(broad, "explain_away", spy)
    monkeypatch.setattr(broad, "settle", lambda *data: settled.append((*data, settle(*data))) or settled[-1][-1])
    estimates = model._estimates(*describe(draw.moments, 50.0, Kinds()), all_pairs(M))
    assert len(found) == 2 and given[0].law is None is given[0].rest and given[1] is found[0]
    most_likely = describe(draw.moments, 50.0, Kinds())[1][:, N_NODE_FEATURES].T
    torch.testing.assert_close(given[0].ground, most_likely)
    if not n_steps:
        assert found[0].law[0].isfinite().all() and not settled
        return
    assert [x[2] for x in settled] == [given[0], *found] and all(x[4] == n_steps for x in settled)
    assert all(estimate.rest is x[-1] for estimate, x in zip(estimates, settled, strict=True))
    assert [look.rest for look in found] == [thought.rest for thought in thoughts] == [x[-1] for x in settled[:2]]
    for estimate, x in zip(estimates, settled):
        torch.testing.assert_close(x[0], estimate.log_p.double().exp())
    goes_on = settle(settled[1][0], settled[1][1], look_of(None, rest=settled[0][-1]), resistances, n_steps)
    torch.testing.assert_close(goes_on.weight, settled[1][-1].weight)


def test_single_precision_is_hardly_less_precise(model, draw):
    """Features are rounded, but not what weights are made from."""
    single, double = (network(draw.moments, 50.0) for network in (model, copy.deepcopy(model).double()))
    for a, b in zip(single, double):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-6)


def estimates_of(draw, *networks):
    """What each of them thinks before every look and at the end."""
    data = describe(draw.moments, 50.0, Kinds())
    return [network._estimates(*data, all_pairs(M)) for network in networks]


def test_a_network_grows_without_forgetting(model, draw, monkeypatch):
    """All that the smaller one thinks is thought as well, and then, at first, what it thought in the end once more."""
    torch.manual_seed(1)
    larger = BroadL2G(5, width=16, n_looks=4).eval()
    larger.grow_from(model)
    ours, theirs = estimates_of(draw, larger, model)
    assert len(ours) == 5
    for new, old in zip(ours, theirs):
        assert torch.equal(new.log_p, old.log_p) and torch.equal(new.weight, old.weight)
    assert all(torch.equal(x.log_p, theirs[-1].log_p) for x in ours[3:])
    larger.loss(larger.prepare(Observations(draw.moments, 50.0)), draw.w).backward()
    assert larger.rounds[-1].out.weight.grad.any()  # and learns
    for other in (BroadL2G(3, width=16, n_looks=1), BroadL2G(2, width=16, n_looks=0)):
        with pytest.raises(ValueError, match="smaller: a network with as many rounds before its first look"):
            larger.grow_from(other)
    torch.manual_seed(1)
    blind = BroadL2G(3, width=16, n_looks=2, weighs=False, fits=False, n_steps=0).double().eval()
    seeing = BroadL2G(5, width=16, n_looks=4, fits=False, n_steps=0).double().eval()
    seeing.grow_from(blind)
    looks = []
    monkeypatch.setattr(broad, "explain_away", lambda *x, **y: looks.append(explain_away(*x, **y)) or looks[-1])
    ours, theirs = estimates_of(draw, seeing, blind)
    close(ours[0][:2], theirs[0][:2], 1e-12)  # before any look
    for new, old in zip(ours, theirs):
        assert (new.log_p - old.log_p).abs().max() < 0.1
    # after the first one, weights go most of the way to what the evidence makes of them
    _, positive, negative = ours[1][0].exp().unbind(-1)
    weighed = (positive * looks[0].weighed[0] + negative * looks[0].weighed[1]) / (positive + negative)
    most = torch.sigmoid(torch.tensor(1.0).double())
    expected = theirs[1][1] ** (1 - most) * weighed**most
    torch.testing.assert_close(ours[1][1], expected, rtol=1e-9, atol=0)
    assert not seeing.looks[0].weight[:, -N_WEIGHED:].any() and seeing.looks[0].weight[:, :-N_WEIGHED].any()
    fitting = BroadL2G(5, width=16, n_looks=4, n_steps=0).double().eval()
    fitting.grow_from(seeing)
    torch.testing.assert_close(fitting(draw.moments, 50.0), seeing(draw.moments, 50.0), rtol=0.3, atol=0.05)
    larger.double().grow_from(fitting)
    for n_new, network, smaller in ((N_FITTED, fitting, seeing), (N_SETTLED, larger, fitting)):
        for new, old in zip(network.looks, smaller.looks):
            assert torch.equal(new.weight[:, :-n_new], old.weight) and not new.weight[:, -n_new:].any()
    assert torch.equal(larger.size[0].weight[:, :-1], fitting.size[0].weight) and not larger.size[0].weight[:, -1].any()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    model.grow_from(model)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_a_network_grows_wider_without_forgetting(model, draw):
    """Old parts listen to old ones only, whatever the new ones say; the new ones learn as soon as they are heard."""
    torch.manual_seed(2)
    wider = BroadL2G(4, width=24, n_looks=3).eval()
    wider.grow_from(model)
    ours, theirs = estimates_of(draw, wider, model)
    assert len(ours) == 4
    for new, old in zip(ours, theirs):
        torch.testing.assert_close(new.log_p, old.log_p, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(new.weight, old.weight, rtol=1e-4, atol=0)
    node, narrow = wider.rounds[1].node.weight, model.rounds[1].node.weight  # of nodes, then of the graph
    assert torch.equal(node[:16, :16], narrow[:, :16]) and torch.equal(node[:16, 24:40], narrow[:, 16:])
    assert not node[:16, 16:24].any() and not node[:16, 40:].any() and node[16:].all()
    size, narrow = wider.size[0].weight, model.size[0].weight  # of a pair, and six numbers
    assert torch.equal(size[:16, :16], narrow[:, :16]) and torch.equal(size[:16, 24:], narrow[:, 16:])
    assert not size[:16, 16:24].any()
    wider.loss(wider.prepare(Observations(draw.moments, 50.0)), draw.w).backward()
    assert wider.edge[0].weight.grad[:16, 16:].any()


def test_learning_in_bfloat16_is_learning_nearly_the_same(model, draw):
    """Products of matrices are rounded to 8 bits; the loss and what is not made of them is not."""
    network = copy.deepcopy(model)
    prepared = network.prepare(Observations(draw.moments, 50.0))
    losses, gradients = [], []
    for network.learns_in_bfloat16 in (False, True):
        network.zero_grad()
        loss = network.loss(prepared, draw.w)
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([p.grad.flatten() for p in network.parameters()]))
    assert loss.dtype == gradients[1].dtype == torch.float32
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=1e-2)
    assert torch.cosine_similarity(*gradients, dim=0) > 0.99
    answers = [x(draw.moments, 50.0) for x in (model, network)]  # in use, nothing is rounded
    assert all(torch.equal(a, b) for a, b in zip(*answers))


def test_loss_by_hand(model, draw):
    flags = (draw.signed, draw.self_loops)
    prepared = model.prepare(KindObservations(draw.moments, draw.n_signals, *flags))
    w = draw.w.clone()
    w[1] = 0  # an empty graph has no relative error, but entropy
    pairs, nodes = describe(draw.moments, draw.n_signals, Kinds(*flags))
    *earlier, last = (
        sum(graph_error(log_p[:, k], weight[:, k] / nodes[k, -1, 0], w[k]) for k in range(6)) / 6
        for log_p, weight, _ in model._estimates(pairs, nodes, all_pairs(M))
    )
    expected = last + EARLIER * sum(earlier)
    torch.testing.assert_close(model.loss(prepared, w), expected.float(), rtol=1e-4, atol=1e-4)


def graph_error(log_p, weight, w):
    """Log GMSE of one graph, 0 if it is empty, and cross-entropy per node."""
    none, up, down = log_p.exp().unbind(-1)
    squares = (up * weight - w.clamp_min(0)) ** 2 + (down * weight - (-w).clamp_min(0)) ** 2
    error = (squares.sum() / w.square().sum() + 1e-5).log() if w.any() else 0.0
    p = torch.where(w > 0, up, torch.where(w < 0, down, none))
    return error - p.log().sum() / M


def test_gradients_reach_every_parameter(draw):
    torch.manual_seed(0)
    model = BroadL2G(3, width=8, n_looks=1)
    model.loss(model.prepare(Observations(draw.moments, 50.0)), draw.w).backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


def test_plain_observations_may_be_of_any_kind(model, draw):
    kinds = KindObservations(draw.moments, 50.0, torch.ones(6, dtype=torch.bool), torch.ones(6, dtype=torch.bool))
    assert torch.equal(model.prepare(Observations(draw.moments, 50.0)), model.prepare(kinds))


def test_graphs_per_step(model):
    assert [model.graphs_per_step(n) for n in (3, 190, 4950, 19_900)] == [256, 63, 2, 1]


def test_training_counts_pairs_not_graphs(draw):
    from helpers import training

    class Counting(BroadL2G):
        def loss(self, prepared, w, generator=None):
            sizes.append(len(w))
            return super().loss(prepared, w)

        def graphs_per_step(self, n_pairs):
            return 4

    sizes = []
    model = Counting(1, width=4, n_looks=0)
    schedule = training.Schedule(1, 1, 1e-3, 1.0, 6, 6, False, False, 0)
    observations = Observations(draw.moments, 50.0)
    training.step_seconds(model, lambda split, n, epoch: (observations, draw.w), schedule)
    assert sizes == [4, 4, 2]


def test_at_first_most_pairs_are_no_edges(model, draw):
    found = model(draw.moments, 50.0)
    assert (found.positive + found.negative < 0.5).all()


# --- observations and faults ---------------------------------------------------------------------------------------


def test_kind_observations_are_indexed_and_moved(draw):
    observations = KindObservations(draw.moments, draw.n_signals, draw.signed, True)
    some = observations[2:4]
    assert torch.equal(some.moments, draw.moments[2:4]) and torch.equal(some.signed, draw.signed[2:4])
    assert some.self_loops is True and torch.equal(some.n_signals, draw.n_signals[2:4])
    single = observations.to(torch.float32)
    assert single.moments.dtype == torch.float32 and torch.equal(single.signed, draw.signed)
    assert single.self_loops is True and isinstance(single, KindObservations)


@pytest.mark.parametrize(
    "S, n, told",
    [
        (torch.zeros(3), 5, "moments has shape"),
        (torch.zeros(2, 2), 5, "moments has shape"),
        (torch.zeros(3, 4), 5, "moments has shape"),
        (torch.full((3, 3), math.nan), 5, "moments contains NaN"),
        (torch.eye(3), 0, "n_signals=0"),
        (torch.eye(3), math.inf, "n_signals=inf"),
    ],
)
def test_bad_input_is_named(model, S, n, told):
    with pytest.raises(ValueError, match=told):
        model(S, n)


def test_estimates_have_names():
    assert Estimate._fields == ("positive", "negative", "weight")
    assert (N_PAIR_FEATURES, N_PAIR_ROWS, N_NODE_ROWS) == (24, 30, 11)


# --- moments without an inverse -------------------------------------------------------------------------------------


def zero_sums(n=1, v=None):
    """Second moments of rows that are orthogonal to v, constant unless told: (n, M, M)."""
    X = torch.randn(n, 60, M, generator=torch.Generator().manual_seed(2)).double()
    v = torch.ones(M).double() if v is None else v
    X = X - (X @ v)[..., None] * v / (v @ v)
    return X.mT @ X / 60


def test_a_direction_that_all_rows_lack_gets_a_large_variance():
    S = zero_sums(2)
    filled = fill_missing_direction(S, torch.tensor([60.0, 60.0]))
    one = torch.ones(M).double()
    largest = torch.linalg.eigvalsh(S)[:, -1]
    torch.testing.assert_close(filled @ one, 1e4 * largest[:, None] * one)
    torch.testing.assert_close(Atoms.of(filled).difference, Atoms.of(S).difference, rtol=1e-6, atol=1e-6)
    few = torch.tensor([60.0, float(M)])  # with so few rows, directions are missing by chance
    assert torch.equal(fill_missing_direction(S, few)[1], S[1])


def test_other_gaps_are_left_alone():
    """Two equal columns are an infinitely heavy edge; and where all is there, nothing changes."""
    equal = torch.zeros(M).double()
    equal[0], equal[1] = 1.0, -1.0
    full = torch.eye(M).double()[None]
    two = zero_sums(v=equal)
    one = torch.ones(M).double()
    centre = torch.eye(M).double() - one[:, None] * one / M
    for S in (full, two, centre @ two @ centre):
        assert torch.equal(fill_missing_direction(S, torch.tensor([60.0])), S)


def test_the_network_sees_what_was_filled(model):
    S = zero_sums()
    close(model(S, 60.0)[:2], model(fill_missing_direction(S, torch.tensor([60.0])), 60.0)[:2])
    per_entry = torch.full((1, M, M), 60.0)
    close(model(S, per_entry)[:2], model(S, 60.0)[:2])
