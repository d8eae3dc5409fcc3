"""The equivariant estimator: symmetries exactly, likelihood against the exact solver, shapes, faults."""

from itertools import pairwise

import pytest
import torch

from helpers import benchmark
from helpers.equivariant import EquivariantL2G, likelihood, resistances, shrink
from helpers.graphs import FAMILIES, edges, renumber, sample_graphs
from helpers.metrics import auc, calibration_error, gmse
from helpers.runs import Run, equivariant
from helpers.signals import covariance_distances, sample_distances, sample_split
from helpers.solvers import laplacian_mle, mle_certificate
from helpers.training import load

SIZED = equivariant("BA", n_nodes=100), equivariant("BA")


@pytest.fixture
def model():
    """An untrained model in float64; random output layers, so that nothing is symmetric by being constant."""
    torch.manual_seed(0)
    return EquivariantL2G().double().eval()


def distances(m=12, n=3, n_signals=100, family="ER"):
    return sample_distances(sample_graphs(family, n, m, seed=1, dtype=torch.float64), n_signals, seed=2)


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
def test_any_size_any_batch_shape(model, m):
    y = distances(m, 6).reshape(2, 3, -1)
    p, w = model(y, 100)
    assert p.shape == w.shape == y.shape
    assert ((p >= 0) & (p <= 1)).all() and (w >= 0).all()
    torch.testing.assert_close(model.predict(y, 100), p * w)
    alone = torch.stack([model.predict(row, 100) for row in y.flatten(0, 1)]).reshape(y.shape)
    torch.testing.assert_close(alone, p * w, rtol=1e-9, atol=1e-12)


def test_each_graph_may_have_its_own_number_of_signals(model):
    y, n = distances(), torch.tensor([10, 100, 1000])
    alone = torch.stack([model.predict(row, int(k)) for row, k in zip(y, n, strict=True)])
    torch.testing.assert_close(model.predict(y, n), alone)
    assert not torch.allclose(model.predict(y, 10), model.predict(y, 1000))


def test_float32_in_float32_out():
    y = distances().float()
    w = EquivariantL2G().predict(y)
    assert w.dtype == torch.float32 and w.isfinite().all() and (w >= 0).all()


def test_likelihood_updates_keep_the_budget_and_approach_the_maximum():
    y = distances(n_signals=400)
    best = mle_certificate(laplacian_mle(y), y).primal
    values = [mle_certificate(likelihood(y, k)[0], y).primal - best for k in (1, 5, 25, 400)]
    assert all((later < earlier).all() for earlier, later in pairwise(values))
    assert (values[-1] < 1e-3).all()
    torch.testing.assert_close((likelihood(y, 3)[0] * y).sum(-1), torch.full((3,), 11.0, dtype=y.dtype))


def test_resistances_of_a_path_add_up():
    w = torch.tensor([2.0, 1e-14, 4.0], dtype=torch.float64)  # 0-1, 0-2, 1-2
    torch.testing.assert_close(resistances(w), torch.tensor([0.5, 0.75, 0.25], dtype=torch.float64))


def test_few_signals_and_equal_nodes_are_shrunk_not_infinite(model):
    y = distances(n_signals=2)
    y[0, 0] = 0.0  # two nodes that always agree
    assert (shrink(y, 2) > 0).all()
    assert all(t.isfinite().all() for t in model(y, 2))


def test_bad_input_is_named(model):
    y = distances()
    with pytest.raises(ValueError, match="n_signals"):
        model.predict(y, 0)
    with pytest.raises(ValueError, match="y "):
        model.predict(torch.full_like(y, torch.nan), 100)


def estimate(m=12, n=3, n_signals=100):
    y = shrink(distances(m, n, n_signals), torch.full((n,), float(n_signals), dtype=torch.float64))
    return *likelihood(y), y, torch.full((n,), float(n_signals), dtype=torch.float64)


def test_edges_may_come_in_any_order(model):
    w, r, y, n = estimate()
    order = torch.randperm(66, generator=torch.Generator().manual_seed(4))
    listed = model.refine(w[:, order], y[:, order], r[:, order], n, edges(12)[:, order], 12)
    for ours, theirs in zip(listed, model.refine(w, y, r, n, edges(12), 12), strict=True):
        torch.testing.assert_close(ours, theirs[:, order])


def test_two_copies_on_an_edge_list_are_answered_as_one(model):
    """Nothing grows with the number of nodes; pairs that are no candidates do not exist.."""
    w, r, y, n = estimate()
    twice = torch.cat([edges(12), edges(12) + 12], 1)
    p2, w2 = model.refine(*(t.repeat(1, 2) for t in (w, y, r)), n, twice, 24)
    p1, w1 = model.refine(w, y, r, n, edges(12), 12)
    torch.testing.assert_close(p2, p1.repeat(1, 2))
    torch.testing.assert_close(w2 / w1.repeat(1, 2), torch.full_like(w2, 23 / 22), rtol=1e-3, atol=0)


def test_a_node_without_candidates_and_weights_of_zero_do_no_harm(model):
    w, r, y, n = estimate()
    w = torch.where(w < w.median(), 0, w)
    assert all(t.isfinite().all() for t in model.refine(w, y, r, n, edges(12), 13))


def test_without_signals_n_is_not_seen():
    torch.manual_seed(0)
    w, r, y, n = estimate()
    blind = EquivariantL2G(signals=False).double()
    torch.testing.assert_close(blind.refine(w, y, r, n, edges(12), 12), blind.refine(w, y, r, 9 * n, edges(12), 12))
    assert not torch.allclose(*(EquivariantL2G().double().refine(w, y, r, k * n, edges(12), 12)[0] for k in (1, 9)))


def test_mixed_pairs_have_one_size_an_epoch_and_many_numbers_of_signals():
    run, model = Run("equivariant", "mixed", shuffle=True, stream=True), EquivariantL2G()
    sizes = set()
    for epoch in range(3):
        x, w = model.sample_pairs(run, "train", 64, epoch=epoch)
        assert x.shape == (len(w), 4, w.shape[-1]) and x.isfinite().all() and w.any(-1).all()
        assert len(x[:, 3, 0].unique()) > 8
        sizes.add(w.shape[-1])
        torch.testing.assert_close(model.sample_pairs(run, "train", 64, epoch=epoch)[0], x)
    assert len(sizes) > 1


def test_what_it_trains_on_is_what_it_predicts_from():
    run, model = Run("equivariant", "WS", n_signals=200, stream=True), EquivariantL2G()
    x, w = model.sample_pairs(run, "test", 8)
    S, truth = sample_split(run, "test", 8)
    torch.testing.assert_close(w, truth)
    torch.testing.assert_close(
        model.predict_pairs(x), model.predict(covariance_distances(S).float(), 200), rtol=1e-3, atol=1e-4
    )
    model.loss(x, w).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name, bound", [("family", 0.0035), ("mixed", 0.006)])
def test_shipped_models_reach_their_targets(family, name, bound):
    S, w = benchmark.test_set(family, shuffle=True)
    model = load(equivariant(family if name == "family" else name))
    probability, weight = model(covariance_distances(S), 3000)
    assert gmse(probability * weight, w).mean() <= bound
    assert auc(probability * weight, w).mean() > 0.9995
    assert calibration_error(probability, w) <= 0.02


def test_shipped_model_for_20_nodes_serves_100():
    S, w = benchmark.test_set("BA", 16, shuffle=True, n_nodes=100)
    there, here = (gmse(load(run).predict(covariance_distances(S)), w).mean() for run in SIZED)
    assert here <= 1.5 * there
