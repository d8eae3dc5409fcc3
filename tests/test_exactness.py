"""The comparison with exact probabilities on tiny laws, and the shipped ones."""

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import metrics, paths
from helpers.beyond.broad import Estimate
from helpers.beyond.posterior import LAWS, Law
from helpers.experiments import exactness
from helpers.experiments.runs import RUNS


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Two laws of 3 nodes with two test graphs each, one of them enumerated."""
    laws = {"exact5": Law(3, sigma2=0.2), "exact10": Law(3, b=2.0, sigma2=0.2)}
    usual = dict(LAWS)
    LAWS.clear()
    LAWS.update(laws)
    monkeypatch.setattr(exactness, "TITLES", {"exact5": "five", "exact10": "ten"})
    monkeypatch.setattr(exactness, "N_GRAPHS", dict.fromkeys(laws, 3))
    monkeypatch.setattr(exactness, "N_SWEEPS", dict.fromkeys(laws, 2000))
    monkeypatch.setattr(exactness, "N_BOTH", 2)
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    yield list(laws)
    LAWS.clear()  # others rely on the order, too
    LAWS.update(usual)


def test_what_is_written_agrees_with_another_computation(tiny):
    assert exactness.compare(tiny) == tiny
    assert not (paths.RESULTS / "exact_posteriors.csv").exists()
    assert exactness.compare(tiny[1:], write=True) == tiny[1:]
    assert exactness.compare(tiny, write=True) == tiny[:1]
    assert exactness.compare(tiny) == []
    stored = exactness.read()
    assert list(stored.law.unique()) == tiny
    assert [len(exactness.read("exact5", m)) for m in ("enumeration", "chain")] == [9, 6]
    assert set(exactness.read("exact10").method) == {"chain"}
    stored.loc[stored.law == "exact10", "positive"] += 0.2
    stored.to_csv(paths.RESULTS / "exact_posteriors.csv", index=False)
    assert exactness.compare(tiny) == ["exact10"]


def test_rows_say_how_accurate_and_how_far(tiny):
    exactness.compare(tiny, write=True)
    rows = pd.DataFrame(exactness.accuracy_rows()).set_index(["table", "family", "metric"]).value
    assert rows["accuracy", "five", "largest error"] <= 0.0025
    assert rows["accuracy", "five", "mean error"] < rows["accuracy", "five", "largest error"]
    stored = exactness.read("exact10")
    assert rows["accuracy", "ten", "largest error"] == stored.error_positive.max()
    assert rows["accuracy", "ten", "r_hat"] == stored.r_hat.max()
    assert rows["accuracy", "ten", "effective draws"] == stored.effective.min()
    full, chain = (exactness.read("exact5", method) for method in ("enumeration", "chain"))
    off = np.abs(full.positive[:6] - chain.positive)
    assert rows["check", "five", "largest difference"] == off.max() > 0
    z = off / np.sqrt(full.error_positive[:6] ** 2 + chain.error_positive**2 + exactness.LEAST_ERROR**2)
    assert rows["check", "five", "largest difference in errors"] == pytest.approx(z.max())
    assert ("check", "ten", "r_hat") not in rows


def test_agreement_of_a_known_difference(monkeypatch):
    p = np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [[0.2, 0.4, 0.4], [0.9, 0.1, 0.0]]])
    q = np.array([[[0.25, 0.5, 0.25], [1.0, 0.0, 0.0]], [[0.2, 0.4, 0.4], [0.7, 0.3, 0.0]]])
    monkeypatch.setattr(exactness, "exact_probabilities", lambda law: p)
    rows = pd.DataFrame(exactness.agreement_rows("exact4", {"itself": p, "other": q}))
    rows = rows.set_index(["model", "metric"]).value
    assert rows["itself", "difference"] == rows["itself", "excess"] == 0
    assert rows["itself", "correlation"] == pytest.approx(1)
    assert rows["other", "difference"] == pytest.approx((0.25 + 0 + 0 + 0.2) / 4)
    excess = 0.5 * np.log(0.5 / 0.25) + 0.9 * np.log(0.9 / 0.7) + 0.1 * np.log(0.1 / 0.3)
    assert rows["other", "excess"] == pytest.approx(excess / 4)
    assert rows["other", "log-loss"] == pytest.approx(rows["exact", "log-loss"] + excess / 4)
    entropies = [-np.dot(row[row > 0], np.log(row[row > 0])) for row in p.reshape(-1, 3)]
    assert rows["exact", "log-loss"] == pytest.approx(np.mean(entropies))
    assert rows["other", "correlation"] == pytest.approx(np.corrcoef([0.5, 0, 0.8, 0.1], [0.75, 0, 0.8, 0.3])[0, 1])


@pytest.mark.parametrize("law", ["exact4", "exact5"])
def test_a_network_is_asked_about_the_kinds_of_the_law(law, monkeypatch):
    def network(moments, n_signals, **kinds):
        assert kinds == {"signed": law == "exact4", "self_loops": law == "exact4"}
        assert moments.shape == (exactness.N_GRAPHS[law], LAWS[law].n_nodes, LAWS[law].n_nodes)
        assert ((n_signals >= 10) & (n_signals <= 100)).all()
        p = torch.full((len(moments), LAWS[law].n_pairs), 0.2, requires_grad=True)
        return Estimate(p, p / 2, p)

    found = exactness.ask(network, law)
    assert found == pytest.approx(np.broadcast_to([0.7, 0.2, 0.1], found.shape))


@pytest.mark.parametrize("law", LAWS)
def test_shipped_probabilities_are_those_of_the_test_graphs(law):
    p = exactness.exact_probabilities(law)
    _, w = exactness.test_set(law)
    assert p.shape == (*w.shape, 3)
    assert p.sum(-1) == pytest.approx(1, abs=2e-5)
    assert p[..., 2].any() == LAWS[law].signed
    # true edges are those that the posterior expects, within what chance allows
    edge = (w != 0).numpy()
    expected = 1 - p[..., 0]
    z = (edge - expected).sum() / np.sqrt((expected * (1 - expected)).sum())
    assert abs(z) < 4
    assert expected[edge].mean() > expected[~edge].mean() + 0.2


def test_first_enumerated_graph_again():
    """The shortest way to the shipped numbers."""
    observations, _ = exactness.test_set("exact5")
    again = exactness.enumerate_supports(
        LAWS["exact5"], observations.moments[0].numpy(), float(observations.n_signals[0]), tolerance=0.01, seed=9
    )
    shipped = exactness.read("exact5", "enumeration").query("graph == 0")
    error = np.hypot(shipped.error_positive, again.error[0])
    assert (np.abs(shipped.positive - again.positive) < 5 * error + 1e-4).all()


def test_every_law_has_its_run():
    for law in LAWS:
        run = RUNS[f"broad-{law}"]
        assert (run.family, run.n_nodes, run.model) == (law, LAWS[law].n_nodes, "broad")


# --- the least error of weights -------------------------------------------------------------------------------------


@pytest.fixture
def few_nodes(tmp_path, monkeypatch):
    """Two spreads, 20 nodes and short chains."""
    monkeypatch.setattr(exactness.stress, "N_NODES", 20)
    monkeypatch.setattr(exactness.stress, "SPREADS", (0.0, 0.5))
    monkeypatch.setattr(exactness, "WEIGHT_SWEEPS", 400)
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    compute = exactness.compute_weights
    monkeypatch.setattr(exactness, "compute_weights", lambda: compute(3))


def test_errors_of_the_posterior_mean_are_stored_and_compared(few_nodes):
    file = paths.RESULTS / "exact_weights.csv"
    assert not exactness.compare_weights() and not file.exists()
    assert not exactness.compare_weights(write=True)
    assert exactness.compare_weights()
    stored = pd.read_csv(file)
    assert stored.columns.tolist() == ["told", "spread", "graph", "gmse", "chance"] and len(stored) == 12
    assert (stored.chance < 0.2 * stored.gmse).mean() > 0.5
    rows = pd.DataFrame(exactness.weight_rows()).set_index(["model", "family"]).value
    for told, model in ((True, exactness.TOLD), (False, exactness.TOLD_LESS)):
        chosen = stored[(stored.spread == 0.5) & (stored.told == told)]
        assert rows[model, "log-sd 0.5"] == pytest.approx(chosen.gmse.mean())
    stored.loc[stored.told, "gmse"] *= 1.2
    stored.to_csv(file, index=False)
    assert not exactness.compare_weights()


def test_what_the_posterior_mean_is_told(few_nodes, monkeypatch):
    asked = []

    def spy(law, moments, n_signals, start, *, spreads, **options):
        asked.append((law.a, law.b, law.spread, spreads is None))
        return np.ones((2, law.n_pairs))

    monkeypatch.setattr(exactness, "mean_weights", spy)
    found = exactness.compute_weights()
    assert found.told.tolist() == [*[True] * 3, *[False] * 3] * 2
    assert asked[::3] == [(100, 900, 0.05, True), (1, 1, 0.05, False), (100, 900, 0.5, True), (1, 1, 0.5, False)]
    assert found.graph.tolist() == [0, 1, 2] * 4 and found.spread.tolist() == [*[0.0] * 6, *[0.5] * 6]


def test_the_posterior_mean_is_better_than_maximum_likelihood(few_nodes):
    found = exactness.compute_weights()
    for (_, spread), rows in found.groupby(["told", "spread"]):
        w, case = exactness.stress.spread_case(3, spread)
        assert rows.gmse.mean() < metrics.gmse(exactness.stress.likely_weights(case), w).mean()
