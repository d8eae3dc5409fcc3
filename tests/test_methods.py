"""The methods of the tables: which network and which parameters stand behind each name, and on one footing."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from helpers.beyond.likelihood import laplacian_mle
from helpers.experiments import methods, runs
from helpers.experiments.methods import ALPHAS, BETAS, grid_search
from helpers.experiments.runs import RUNS, look_up, sample
from helpers.graphs import FAMILIES
from helpers.metrics import gmse
from helpers.signals import sample_observations
from helpers.solvers import admm, exact, inverse_covariance, pds


@pytest.fixture
def loaded(monkeypatch):
    """Networks that answer with their name, and the (alpha, beta) that a grid search would find."""
    monkeypatch.setattr(methods, "load_or_train", lambda run: SimpleNamespace(predict=lambda _: look_up(run).name))
    monkeypatch.setattr(methods, "tune", lambda family, **changes: (family, changes.get("n_signals")))


def answers(table):
    return {method: estimate(None) for method, estimate in table.items()}


# --- data ----------------------------------------------------------------------------------------------------------


def test_the_test_set_is_the_protocols():
    observations, w = methods.test_set("WS")
    expected, truth = sample(RUNS["l2g-ws"], "test", 64)
    torch.testing.assert_close(w, truth, rtol=0, atol=0)
    torch.testing.assert_close(observations.moments, expected.moments, rtol=0, atol=0)
    assert len(w) == methods.N_TEST == 64
    few, w_few = methods.test_set("WS", 3, n_signals=50, n_nodes=30, shuffle=True)
    assert few.n_signals == 50
    assert w_few.shape == (3, 435)


def test_alpha_and_beta_are_tuned_on_training_graphs():
    observations, w = sample(RUNS["l2g-ba"], "train", 64)
    grid = grid_search(observations, w.double())
    assert methods.tune("BA") == (grid.alpha, grid.beta)
    assert grid.alpha in ALPHAS
    assert grid.beta in BETAS
    assert methods.N_TUNE == 64
    observations, w = sample(RUNS["l2g-ba"], "train", 8)
    noisy = sample_observations(w, 30, seed=0)
    assert methods.tune("BA", 8, n_signals=30) != (grid.alpha, grid.beta)
    assert (grid_search(noisy, w.double()).gmse > grid_search(observations, w.double()).gmse).all()


def test_grid_search(ba, monkeypatch):
    w, y = ba
    grid = grid_search(y, w)
    assert grid.gmse.shape == (len(ALPHAS), len(BETAS))
    assert grid.gmse.min() == pytest.approx(0.128, abs=0.02)
    i, j = ALPHAS.index(grid.alpha), BETAS.index(grid.beta)
    w_hat = exact(y, grid.alpha, grid.beta)
    error = ((w_hat - w) ** 2).sum(-1) / (w**2).sum(-1)
    assert grid.gmse[i, j] == grid.gmse.min() and grid.gmse[i, j] == pytest.approx(error.mean().item())
    monkeypatch.setattr(methods, "SOLUTIONS_AT_ONCE", 150)  # many small pieces
    assert torch.allclose(grid_search(y, w).gmse, grid.gmse)
    by_pds = grid_search(y, w, (grid.alpha, 1.0), (grid.beta,), partial(pds, n_iter=800, tol=0))
    assert (by_pds.alpha, by_pds.beta) == (grid.alpha, grid.beta)
    assert by_pds.gmse[0, 0] == pytest.approx(grid.gmse[i, j].item(), rel=1e-2)
    with pytest.raises(ValueError, match="w has shape"):
        grid_search(y, w[0])
    with pytest.raises(ValueError, match="w has shape"):
        grid_search(y, 0 * w)


# --- names ---------------------------------------------------------------------------------------------------------


def test_solvers_are_tuned_and_at_one():
    given, w = methods.test_set("BA", 8)
    alpha, beta = methods.tune("BA")
    found = {name: solve(given) for name, solve in methods.paper_solvers("BA").items()}
    expected = {
        "ADMM": admm(given, alpha, beta, n_iter=1000, tol=0),
        "ADMM (alpha=beta=1)": admm(given, 1, 1, n_iter=1000, tol=0),
        "PDS": pds(given, alpha, beta, n_iter=1000, tol=0),
        "PDS (alpha=beta=1)": pds(given, 1, 1, n_iter=1000, tol=0),
    }
    assert list(found) == list(expected)
    for name, w_hat in found.items():
        settled = expected[name] > 1e-6 * expected[name].amax(-1, keepdim=True)
        torch.testing.assert_close(w_hat, torch.where(settled, expected[name], 0))
        assert (w_hat[~settled] == 0).all() and (~settled).any() and settled.any()
    assert gmse(found["PDS"], w).mean() < gmse(found["PDS (alpha=beta=1)"], w).mean()


@pytest.mark.parametrize("family", FAMILIES)
def test_networks_are_those_of_the_family(loaded, family):
    name = family.lower()
    first = {
        "Recurrent Unrolling": f"recurrent-{name}-text",
        "Recurrent Unrolling (ours)": f"recurrent-{name}",
        "Unrolling": f"unrolling-{name}-text",
        "Unrolling (released code)": f"unrolling-{name}-released",
        "Unrolling (ours)": f"unrolling-{name}",
        "L2G": f"l2g-{name}-text",
        "L2G (released code)": f"l2g-{name}-released",
        "L2G (ours)": f"l2g-{name}",
    }
    assert answers(methods.networks(family)) == first
    names = {row: [run.name for run in seeds] for row, seeds in methods.trainings(family).items()}
    assert names == {row: [run, *(f"{run}-seed{k}" for k in range(1, 5))] for row, run in first.items()}
    assert methods.equivariant_l2g(family)(None) == f"equivariant-{name}"


def test_methods_for_harder_graphs_were_tuned_and_trained_on_them(loaded, monkeypatch):
    monkeypatch.setattr(methods, "tune", lambda family, params: (family, params))
    monkeypatch.setattr(methods, "settle", lambda solver, alpha, beta: lambda observations: (solver, alpha, beta))
    assert answers(methods.prepared_for_harder("SBM")) == {
        "PDS (on these graphs)": (pds, "SBM", (("n_inter", 8),)),
        "Unrolling (ours, on these graphs)": "unrolling-sbm-harder",
        "L2G (on these graphs)": "l2g-sbm-text-harder",
        "L2G (ours, on these graphs)": "l2g-sbm-harder",
    }


def test_errors_after_each_layer_are_computed_or_read():
    found = methods.layer_errors(RUNS["unrolling-ba"])
    assert found.shape == (20, 64)
    np.testing.assert_allclose(found[-1], runs.test_errors("unrolling-ba"), rtol=1e-3)
    assert found[0].mean() > 5 * found[-1].mean()
    stored = RUNS["l2g-ba-m50-wide"]
    np.testing.assert_allclose(methods.layer_errors(stored)[-1], runs.test_errors(stored), rtol=1e-4)


def test_rivals_are_those_of_the_paper_and_sound_ones(loaded, monkeypatch):
    monkeypatch.setattr(methods, "rescale", lambda w: f"rescaled {w}")
    assert answers(methods.paper_rivals("SBM")) == {
        "GLAD (newton_schulz)": "glad-sbm-newton_schulz",
        "GLAD (stable)": "glad-sbm",
        "Deep-graph": "deepgraph-original-m20",
        "Deep-graph (rescaled)": "rescaled deepgraph-original-m20",
        "Deep-graph (fair)": "rescaled deepgraph-sbm-fair",
    }


def test_how_many_graphs_a_method_saw():
    assert methods.graphs_seen("BA") == {
        "ADMM": 64, "PDS": 64, "GLAD (newton_schulz)": 200, "GLAD (stable)": 200, "Deep-graph": 52_000,
        "Deep-graph (rescaled)": 52_000, "Deep-graph (fair)": 32_000, "Recurrent Unrolling": 4000,
        "Recurrent Unrolling (ours)": 4000, "Unrolling": 4000, "Unrolling (released code)": 6400,
        "Unrolling (ours)": 4000, "L2G": 4000, "L2G (released code)": 6400, "L2G (ours)": 4000,
    }  # fmt: skip


def test_names_of_rows_with_shuffled_ids():
    assert methods.shuffled("L2G") == "L2G (shuffled ids)"
    assert methods.shuffled("L2G (ours)") == "L2G (ours, shuffled ids)"


def test_binary_graphs_are_not_rescaled(loaded):
    table = methods.binary("WS")
    networks = {name: table[name](None) for name in ("Deep-graph", "Deep-graph (fair)", "L2G (ours)")}
    expected = {"Deep-graph": "deepgraph-original-m20", "Deep-graph (fair)": "deepgraph-ws-fair"}
    assert networks == expected | {"L2G (ours)": "l2g-ws-binary"}
    assert list(table) == [*networks, "Inverse covariance", "Laplacian maximum likelihood"]


def test_references_are_the_two_that_need_nothing():
    given, _ = methods.test_set("WS", 4)
    found = {name: estimate(given) for name, estimate in methods.references().items()}
    torch.testing.assert_close(found.pop("Inverse covariance"), inverse_covariance(given.moments))
    torch.testing.assert_close(found.pop("Laplacian maximum likelihood"), laplacian_mle(given.distances))
    assert not found


@pytest.mark.parametrize("n_signals, suffix", [(30, "-signals30"), (3000, "")])
def test_networks_for_few_signals_are_trained_on_such(loaded, monkeypatch, n_signals, suffix):
    monkeypatch.setattr(methods, "exact", lambda observations, alpha, beta: ("exact", alpha, beta))
    monkeypatch.setattr(methods, "laplacian_mle", lambda observations: "mle")
    assert answers(methods.at_signals(n_signals)) == {
        "PDS": ("exact", "BA", n_signals),
        "Laplacian maximum likelihood": "mle",
        "Unrolling (ours, trained at 3,000)": "unrolling-ba",
        "L2G (ours, trained at 3,000)": "l2g-ba",
        "Unrolling (ours)": f"unrolling-ba{suffix}",
        "L2G (ours)": f"l2g-ba{suffix}",
        "EquivariantL2G": "equivariant-mixed",
    }
    assert methods.at_signals(3000, "WS")["L2G (ours)"](None) == "l2g-ws"


# --- answers -------------------------------------------------------------------------------------------------------


def test_every_name_is_a_run_and_every_method_answers():
    given, w = methods.test_set("BA", 4)
    table = methods.binary("BA") | methods.at_signals(3000) | methods.networks("BA") | methods.paper_rivals("BA")
    found = {name: estimate(given) for name, estimate in table.items()}
    for name, w_hat in found.items():
        assert w_hat.shape == w.shape, name
        assert w_hat.isfinite().all() and (w_hat >= 0).all(), name
    error = {name: gmse(w_hat, w).mean() for name, w_hat in found.items()}
    assert error["EquivariantL2G"] < error["Unrolling"] < error["PDS"]
    assert error["Deep-graph (fair)"] < 1 < error["Deep-graph"], "rescaled, and as it is"


def test_rescaled_graphs_have_a_mean_degree_of_one():
    w = torch.rand(3, 45, dtype=torch.float64)
    once = methods.rescale(w)
    torch.testing.assert_close(2 * once.sum(-1) / 10, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(methods.rescale(7 * w), once)


def test_rules_for_larger_graphs_change_nothing_at_home_and_help_elsewhere():
    given, _ = methods.test_set("BA", 4)
    same = [estimate(given) for estimate in methods.at_nodes(20).values()]
    torch.testing.assert_close(same[1], same[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(same[2], same[0], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        same[0], methods.networks("BA")["Unrolling (ours)"](given).double(), rtol=1e-3, atol=1e-4
    )
    given, w = methods.test_set("WS", 2, n_nodes=60)
    error = {name: gmse(estimate(given), w).mean() for name, estimate in methods.at_nodes(60, "WS").items()}
    assert list(error) == [
        "Unrolling (ours, m=20)",
        "Unrolling (ours, m=20, smaller steps)",
        "Unrolling (ours, m=20, scaled degrees)",
    ]
    assert error["Unrolling (ours, m=20)"] > 10
    assert error["Unrolling (ours, m=20, smaller steps)"] < 0.5
    assert error["Unrolling (ours, m=20, scaled degrees)"] < 0.5


def test_pds_at_few_signals_is_the_exact_optimum():
    given, _ = methods.test_set("BA", 2, n_signals=100)
    alpha, beta = methods.tune("BA", n_signals=100)
    torch.testing.assert_close(methods.at_signals(100)["PDS"](given), exact(given, alpha, beta))
