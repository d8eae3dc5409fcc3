"""The equivariant estimator: symmetries exactly, each step by hand, answers of the shipped networks, faults."""

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import graphs
from helpers.beyond import equivariant
from helpers.beyond.equivariant import (
    EquivariantL2G,
    Round,
    add_white_signal,
    edge_features,
    foster_scale,
    standard_scores,
    sum_at_nodes,
)
from helpers.beyond.likelihood import approximate_mle
from helpers.experiments.methods import test_set as sample_test_set
from helpers.experiments.runs import RUNS, load
from helpers.graphs import FAMILIES, all_pairs, renumber, sample_graphs
from helpers.metrics import auc, calibration_error, gmse
from helpers.signals import Observations, correlations, sample_observations

RING = torch.tensor([1.1, 2.3, 2.2, 0.9, 1.2, 1.9, 1.8, 1.0, 2.1, 1.3], dtype=torch.float64)  # nearly, on 5 nodes


@pytest.fixture
def model():
    """An untrained model in float64; random output layers, so that nothing is symmetric by being constant."""
    torch.manual_seed(0)
    return EquivariantL2G().double().eval()


def observations(m=12, n=3, n_signals=100, family="ER"):
    w = sample_graphs(family, n, m, seed=1, dtype=torch.float64)
    return sample_observations(w, n_signals, seed=2)


def distances(m=12, n=3, n_signals=100):
    return observations(m, n, n_signals).distances


# --- symmetries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_signals", [5, 3000])
def test_renumbered_nodes_give_the_renumbered_answer(model, n_signals):
    y, order = distances(n_signals=n_signals), torch.randperm(12, generator=torch.Generator().manual_seed(3))
    for ours, theirs in zip(model(renumber(y, order), n_signals), model(y, n_signals), strict=True):
        torch.testing.assert_close(ours, renumber(theirs, order), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e3])
def test_units_do_not_matter(model, unit):
    y = distances()
    (p, w), (p_unit, w_unit) = model(y, 100), model(unit * y, 100)
    torch.testing.assert_close(p_unit, p, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(unit * w_unit, w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("m", [3, 10, 33])
def test_any_size_any_batch_shape(model, m, monkeypatch):
    given = observations(m, 6)
    given = Observations(given.moments.unflatten(0, (2, 3)), 100)
    y = given.distances
    p, w = model(y, 100)
    assert p.shape == w.shape == y.shape
    assert ((p >= 0) & (p <= 1)).all() and (w >= 0).all()
    torch.testing.assert_close(model.predict(given), p * w)
    alone = torch.stack([model.predict(given[k]) for k in range(2)])
    torch.testing.assert_close(alone, p * w, rtol=1e-9, atol=1e-12)
    monkeypatch.setattr(equivariant, "STATE_ENTRIES", 1)  # one graph at a time
    torch.testing.assert_close(model.predict(given), p * w, rtol=1e-9, atol=1e-12)


def test_memory_is_bounded_by_few_graphs_at_once_unless_gradients_are_wanted(model, monkeypatch):
    sizes = []
    passed = model._pass_messages
    monkeypatch.setattr(model, "_pass_messages", lambda w, *rest: (sizes.append(len(w)), passed(w, *rest))[1])
    monkeypatch.setattr(equivariant, "STATE_ENTRIES", 2 * 32 * 66)
    model.predict(observations(n=5))
    assert sizes == [2, 2, 1]
    model(distances(n=5), 100)
    assert sizes == [2, 2, 1, 5]


def test_each_graph_may_have_its_own_number_of_signals(model):
    given, n = observations(), torch.tensor([10, 100, 1000])
    each = Observations(given.moments, n)
    alone = torch.stack([model.predict(Observations(S, int(k))) for S, k in zip(given.moments, n, strict=True)])
    torch.testing.assert_close(model.predict(each), alone)
    assert not torch.allclose(alone[0], model.predict(given)[0])
    torch.testing.assert_close(model.prepare(each)[:, 3, 0], n.float())


def test_float32_in_float32_out():
    p, w = EquivariantL2G()(distances().float(), 100)
    assert p.dtype == w.dtype == torch.float32
    assert w.isfinite().all() and (w >= 0).all()


# --- lists of candidates -------------------------------------------------------------------------------------------


def estimate(m=12, n=3, n_signals=100):
    """What message passing starts from: w, y, r (n, E), and N (n,)."""
    signals = torch.full((n,), float(n_signals), dtype=torch.float64)
    y = add_white_signal(distances(m, n, n_signals), signals)
    w, r = approximate_mle(y)
    return w, y, r, signals


def test_edges_may_come_in_any_order(model):
    w, y, r, n = estimate()
    order = torch.randperm(66, generator=torch.Generator().manual_seed(4))
    listed = model._pass_messages(w[:, order], y[:, order], r[:, order], n, all_pairs(12)[:, order], 12)
    for ours, theirs in zip(listed, model._pass_messages(w, y, r, n, all_pairs(12), 12), strict=True):
        torch.testing.assert_close(ours, theirs[:, order])


def test_two_copies_on_a_list_are_answered_as_one(model):
    """Nothing grows with the number of nodes; pairs that are no candidates do not exist."""
    w, y, r, n = estimate()
    twice = torch.cat([all_pairs(12), all_pairs(12) + 12], 1)
    p2, w2 = model._pass_messages(*(t.repeat(1, 2) for t in (w, y, r)), n, twice, 24)
    p1, w1 = model._pass_messages(w, y, r, n, all_pairs(12), 12)
    torch.testing.assert_close(p2, p1.repeat(1, 2))
    torch.testing.assert_close(w2 / w1.repeat(1, 2), torch.full_like(w2, 23 / 22), rtol=1e-3, atol=0)


def test_a_node_without_candidates_and_weights_of_zero_do_no_harm(model):
    w, y, r, n = estimate()
    w = torch.where(w < w.median(), 0, w)
    assert all(t.isfinite().all() for t in model._pass_messages(w, y, r, n, all_pairs(12), 13))


def test_a_list_of_all_pairs_is_the_complete_graph(monkeypatch):
    """Up to the likelihood, which starts elsewhere and takes more updates: here as many as it takes."""
    monkeypatch.setattr(equivariant, "N_UPDATES", 150)
    monkeypatch.setattr(equivariant, "N_UPDATES_ON_A_LIST", 150)
    network = load(RUNS["equivariant-mixed"]).double()
    y = distances(n=2, n_signals=3000)
    with torch.no_grad():
        dense = network(y, 3000)
        listed = network(y, 3000, all_pairs(12), 12)
        one = network(y[0], 3000, all_pairs(12), 12)
    for ours, theirs, alone in zip(listed, dense, one, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.01)
        torch.testing.assert_close(alone, ours[0])


@pytest.mark.parametrize("likelihood", [True, False])
def test_a_list_is_the_likelihoods_too(likelihood):
    """Two graphs side by side: what is between them is no candidate and has no influence."""
    torch.manual_seed(0)
    network = EquivariantL2G(likelihood=likelihood).double()
    twice = torch.cat([all_pairs(12), all_pairs(12) + 12], 1)
    y = distances(n=1)
    with torch.no_grad():
        p2, _ = network(y.repeat(1, 2), 100, twice, 24)
        p1, _ = network(y, 100, all_pairs(12), 12)
    torch.testing.assert_close(p2, p1.repeat(1, 2), rtol=0, atol=2e-3 if likelihood else 1e-9)


def test_a_list_takes_more_updates_and_shows_a_bar_if_told(model, monkeypatch):
    calls = []

    def mle(y, n_updates, **options):
        calls.append((n_updates, options))
        return approximate_mle(y, n_updates, **options)

    monkeypatch.setattr(equivariant, "approximate_mle", mle)
    y, edges = distances(n=1), all_pairs(12)
    model(y, 100)
    model(y, 100, edges, 12)
    model(y, 100, edges, 12, progress=True)
    assert [n for n, _ in calls] == [10, 30, 30]
    assert [options.get("progress") for _, options in calls] == [None, False, True]


# --- the steps, by hand --------------------------------------------------------------------------------------------


def test_one_white_signal_is_added():
    y = torch.tensor([[1.0, 2.0, 4.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    harmonic = torch.tensor([[12 / 7], [1.0]], dtype=torch.float64)  # of those that are not zero
    torch.testing.assert_close(add_white_signal(y, torch.tensor([6, 2])), y + harmonic / torch.tensor([[6], [2]]))
    torch.testing.assert_close(add_white_signal(y[0], 3), y[0] + 4 / 7)
    S = torch.eye(3, dtype=torch.float64)
    more = Observations(correlations(y[0]) + 2 / 7 * S, 3).distances  # half of it, on the diagonal
    torch.testing.assert_close(more, add_white_signal(y[0], 3))


def test_few_signals_and_equal_nodes_are_not_infinite(model):
    y = distances(n_signals=2)
    y[0, 0] = 0.0  # two nodes that always agree
    assert (add_white_signal(y, torch.tensor(2)) > 0).all()
    assert all(t.isfinite().all() for t in model(y, 2))


def test_standard_scores_are_those_of_an_inverse_covariance():
    """Var K_ij = (K_ii K_jj + K_ij^2) / N for the inverse K of a sample covariance, here a path 0 - 1 - 2."""
    w = torch.tensor([[2.0, 0.0, 3.0]], dtype=torch.float64)
    z = standard_scores(w, torch.tensor([[50.0]], dtype=torch.float64), all_pairs(3), 3)
    expected = [2 / math.sqrt((2 * 5 + 4) / 50), 0, 3 / math.sqrt((5 * 3 + 9) / 50)]
    torch.testing.assert_close(z, torch.tensor([expected], dtype=torch.float64))


def test_edge_features_by_hand():
    w, y, ratio, z, n = (torch.full((1, 1), x, dtype=torch.float64) for x in (0.5, 2.0, 0.9, 1.5, 200.0))
    leverage, slack = 0.9, 0.1
    expected = [
        math.log(0.5 + 1e-5) / 3, math.log(2) / 3, leverage, slack,
        math.asinh(10 * leverage), math.asinh(10 * slack), math.asinh(1.5), math.log(200) / 6,
    ]  # fmt: skip
    torch.testing.assert_close(edge_features(w, y, ratio, z, n)[0, 0].tolist(), expected)
    bounds = edge_features(0 * w + 9, 0 * y + 1e9, 0 * ratio + 5, z, n)[0, 0]
    torch.testing.assert_close(bounds[1:4].tolist(), [5 / 3, 2.0, -3.0])
    assert edge_features(w, 1e-9 * y, ratio, z, n)[0, 0, 1] == -5 / 3
    x = edge_features(w.expand(4, 7), y.expand(4, 7), ratio.expand(4, 7), z.expand(4, 7), n.expand(4, 1))
    assert x.shape == (7, 4, 8), "edges first"


def test_sums_at_nodes():
    x = torch.arange(6.0).reshape(3, 1, 2)
    total = sum_at_nodes(x, torch.tensor([[0, 0, 1], [1, 2, 2]]), 4)
    assert total[:, 0].tolist() == [[2, 4], [4, 6], [6, 8], [0, 0]]


def test_foster_scale_counts_the_rank_that_is_expected():
    """Certain edges 0-1 and 1-2, node 3 alone: the rank is 2; leverages are counted up to 2 each."""
    edges = all_pairs(4)
    sure = torch.tensor([1.0, -1, -1, 1, -1, -1], dtype=torch.float64)[:, None] * 40
    wy = torch.tensor([0.5, 7, 7, 0.25, 7, 7], dtype=torch.float64)[:, None]
    torch.testing.assert_close(foster_scale(sure, wy, edges, 4).item(), 2 / 0.75)
    wy[0] = 5.0
    torch.testing.assert_close(foster_scale(sure, wy, edges, 4).item(), 2 / 2.25)
    torch.testing.assert_close(foster_scale(-sure.abs(), wy, edges, 4).item(), 1 / 1e-6)  # nothing at all
    doubtful = torch.zeros_like(sure)  # each edge with probability 1/2: a node is alone with 1/8
    torch.testing.assert_close(foster_scale(doubtful, 0 * wy + 1, edges, 4).item(), (3 - 4 / 8) / 3)


def test_a_round_by_hand():
    """Two edges 0-1 and 1-2 of width 1, all linear maps the identity or a sum."""
    layer = Round(1)
    for linear in (layer.tell, layer.own, layer.out, layer.node):
        torch.nn.init.constant_(linear.weight, 1.0)
        torch.nn.init.zeros_(linear.bias)
    h = torch.tensor([1.0, 3.0]).reshape(2, 1, 1)
    a = torch.tensor([[0.5], [0.25]])
    d = torch.tensor([[0.5], [0.75], [0.25]])
    node = torch.tensor([1.0, (0.5 * 1 + 0.25 * 3) / 0.75, 3.0])  # means of what the edges tell
    node = node + node.mean() + d[:, 0].log()
    expected = h[:, 0, 0] + torch.relu(h[:, 0, 0] + node[:2] + node[1:])
    torch.testing.assert_close(layer(h, a, d, torch.tensor([[0, 1], [1, 2]]))[:, 0, 0], expected)
    silent = Round(1, messages=False)
    silent.load_state_dict(layer.state_dict())
    torch.testing.assert_close(silent(h, a, d, None), h + h)


def test_a_weight_is_within_a_factor_of_e_to_the_5_of_the_typical_one():
    network = EquivariantL2G(messages=False).double()
    torch.nn.init.zeros_(network.size[-1].weight)

    def weights(bias):
        torch.nn.init.constant_(network.size[-1].bias, bias)
        with torch.no_grad():
            return network._pass_messages(*estimate(), all_pairs(12), 12)[1]

    usual = weights(0)
    torch.testing.assert_close(weights(100), math.exp(5) * usual)
    torch.testing.assert_close(weights(-100), math.exp(-5) * usual)
    torch.testing.assert_close(weights(4), math.exp(4) * usual)


# --- parts that can be taken away ----------------------------------------------------------------------------------


def test_without_signals_n_is_not_seen():
    torch.manual_seed(0)
    start = estimate()
    blind, told = EquivariantL2G(signals=False).double(), EquivariantL2G().double()

    def answers(network):
        w, y, r, n = start
        return [network._pass_messages(w, y, r, k * n, all_pairs(12), 12)[0] for k in (1, 10)]

    torch.testing.assert_close(*answers(blind))
    assert not torch.allclose(*answers(told))
    torch.manual_seed(0)
    told = EquivariantL2G().double()
    torch.testing.assert_close(answers(told)[1], answers(blind)[0], msg="blind, it assumes 1,000")


def test_without_messages_edges_do_not_see_each_other():
    torch.manual_seed(0)
    w, y, r, n = estimate(n=1)
    alone = EquivariantL2G(messages=False).double()
    changed = r.clone()
    changed[0, 0] *= 1.3
    (p, weight), (p2, weight2) = (alone._pass_messages(w, y, x, n, all_pairs(12), 12) for x in (r, changed))
    assert (p2 != p).flatten().tolist() == [True] + [False] * 65
    assert (weight2 != weight).flatten().tolist() == [True] + [False] * 65


def test_without_likelihood_one_over_y_stands_in_for_it():
    y = distances(n=1)
    w, shrunk, r = EquivariantL2G(likelihood=False)._estimate(y, torch.tensor([100.0]))
    torch.testing.assert_close(shrunk, add_white_signal(y, 100))
    torch.testing.assert_close(w, 1 / shrunk)
    inverse = torch.linalg.pinv(graphs.laplacian(w))
    torch.testing.assert_close(r, graphs.differences(inverse))


# --- training ------------------------------------------------------------------------------------------------------


def test_what_it_trains_on_is_what_it_predicts_from(model):
    given = observations(n_signals=200)
    w = sample_graphs("ER", 3, 12, seed=1)
    prepared = model.prepare(given)
    assert prepared.shape == (3, 4, 66) and prepared.dtype == torch.float32
    logit, weight = model._pass_messages(*prepared.double()[:, :3].unbind(1), prepared[:, 3, 0], all_pairs(12), 12)
    w_hat = logit.sigmoid() * weight
    torch.testing.assert_close(w_hat, model.predict(given), rtol=1e-3, atol=1e-5)
    edges = (w > 0).double()
    entropy = -(edges * logit.sigmoid().log() + (1 - edges) * (-logit).sigmoid().log()).mean()
    expected = gmse(w_hat, w).log().mean() + 10 * entropy
    torch.testing.assert_close(model.loss(prepared.double(), w).double(), expected.double(), rtol=1e-5, atol=0)
    model.loss(prepared.double(), w).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_bad_input_is_named(model):
    y = distances()
    for n_signals in (0, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"n_signals={n_signals}"):
            model(y, n_signals)
    with pytest.raises(ValueError, match="y contains NaN"):
        model(torch.full_like(y, torch.nan), 100)


def test_everything_is_on_the_device_of_the_input(monkeypatch):
    """Fake tensors report mixed devices where there is no second device; they have no values to check."""
    monkeypatch.setattr(equivariant, "check_distances", lambda y, edges=None: getattr(y, "distances", y))
    monkeypatch.setattr(EquivariantL2G, "_check_signals", lambda self, n, y: y.new_full(y.shape[:-1], n))
    monkeypatch.setattr(equivariant, "approximate_mle", lambda y, n_updates: (1 / y, y))
    with FakeTensorMode():
        with torch.device("meta"):
            model = EquivariantL2G()
        given = Observations(torch.ones(2, 12, 12, dtype=torch.float64, device="meta"), 100.0)
        prepared = model.prepare(given)
        loss = model.loss(prepared, torch.ones(2, 66, device="meta"))
        loss.backward()
        assert {t.device.type for t in (prepared, loss, model.predict(given))} == {"meta"}
    all_pairs.cache_clear()
    graphs._positions.cache_clear()


# --- shipped networks ----------------------------------------------------------------------------------------------

ANSWERS = {  # on RING with 40 signals: probabilities and weights of the edges and of the others
    "equivariant-mixed": (
        [0.99481, 2e-05, 3e-05, 0.99733, 0.99269, 0.00017, 0.00024, 0.99626, 5e-05, 0.99023],
        [0.70913, 0.02479, 0.02806, 0.71333, 0.70637, 0.05178, 0.05811, 0.70816, 0.03591, 0.7084],
    ),
    "equivariant-mixed-no_likelihood": (
        [0.97614, 0.03275, 0.03802, 0.99179, 0.97024, 0.12201, 0.14324, 0.99221, 0.04477, 0.9209],
        [0.6939, 0.06084, 0.09057, 0.68806, 0.69249, 0.31266, 0.34245, 0.68205, 0.13351, 0.70832],
    ),
    "equivariant-mixed-no_messages": (
        [0.97564, 0.00018, 0.00027, 0.98432, 0.97172, 0.00223, 0.00291, 0.98386, 0.0006, 0.96019],
        [0.73355, 0.04443, 0.05107, 0.77117, 0.70308, 0.10077, 0.11059, 0.7277, 0.06514, 0.69502],
    ),
    "equivariant-mixed-no_signals": (
        [0.99813, 0.00022, 0.00023, 0.99854, 0.99779, 0.00014, 0.00026, 0.99868, 0.00025, 0.995],
        [0.71282, 0.0043, 0.0043, 0.75228, 0.66821, 0.0043, 0.0043, 0.73082, 0.0043, 0.68507],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_shipped_models_answer_as_ever(name):
    with torch.no_grad():
        answer = load(RUNS[name])(RING, 40)
    for ours, stored in zip(answer, ANSWERS[name], strict=True):
        torch.testing.assert_close(ours, torch.tensor(stored, dtype=torch.float64), rtol=1e-3, atol=1e-5)


def test_the_loss_is_the_one_it_was_trained_with():
    network = load(RUNS["equivariant-mixed"])
    prepared = network.prepare(Observations(correlations(RING)[None], 40))
    truth = torch.tensor([[1.0, 0, 0, 1, 1, 0, 0, 1, 0, 1]]) / 2
    assert network.loss(prepared, truth).item() == pytest.approx(-1.753432, rel=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name, bound", [("family", 0.0035), ("mixed", 0.006)])
def test_shipped_models_reach_their_targets(family, name, bound):
    given, w = sample_test_set(family, shuffle=True)
    model = load(RUNS[f"equivariant-{family.lower() if name == 'family' else name}"])
    with torch.no_grad():
        probability, weight = model(given.distances, 3000)
    assert gmse(probability * weight, w).mean() <= bound
    assert auc(probability * weight, w).mean() > 0.9995
    assert calibration_error(probability, w) <= 0.02


def test_shipped_model_for_20_nodes_serves_100():
    given, w = sample_test_set("BA", 4, shuffle=True, n_nodes=100)
    there, here = (
        gmse(load(RUNS[name]).predict(given), w).mean() for name in ("equivariant-ba-m100", "equivariant-ba")
    )
    assert here <= 1.5 * there
