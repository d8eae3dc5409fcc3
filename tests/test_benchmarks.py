"""The benchmark of other people's data: its data, its methods as their users call them, its measures by hand."""

import os
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from helpers import GraphLearner, metrics, paths
from helpers.beyond.broad import BroadL2G
from helpers.beyond.moments import forget
from helpers.experiments import benchmarks as b
from helpers.graphs import differences, to_matrix, to_vector
from helpers.real import networks
from helpers.rivals.graphical_lasso import graphical_lasso


@pytest.fixture(scope="module")
def case():
    """Three grids of 6 nodes, 300 Tikhonov-filtered signals."""
    edges = b.connected_graphs(lambda seed: nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 3)), 3, seed=0)
    return b.filtered_case(edges, b.RESPONSES["Tikhonov"], 300, seed=1)


@pytest.fixture
def certain(monkeypatch):
    """Networks that give all pairs the probability 0.6, 0.95 or whatever `certain.p` is, and weights of 1."""
    answer = SimpleNamespace(p=0.6)

    def estimate(model, moments, n_signals, **kinds):
        p = torch.full((len(moments), moments.shape[-1] * (moments.shape[-1] - 1) // 2), answer.p).double()
        return p, torch.ones_like(p)

    monkeypatch.setattr(b, "estimate", estimate)
    return answer


# --- data -----------------------------------------------------------------------------------------------------------


def test_graphs_are_connected_and_repeat():
    draw = b.LAWS["geometric, radius 0.32"]
    edges = b.connected_graphs(draw, 5, seed=0)
    assert edges.shape == (5, 190) and edges.dtype == torch.bool
    assert all(nx.is_connected(nx.from_numpy_array(A.numpy())) for A in to_matrix(edges.double()))
    assert torch.equal(edges, b.connected_graphs(draw, 5, seed=0))
    assert not torch.equal(edges, b.connected_graphs(draw, 5, seed=1))
    assert len({tuple(row.tolist()) for row in edges}) == 5


def test_the_laws_are_those_that_were_published():
    count = {law: b.connected_graphs(draw, 20, seed=0).sum(-1).double() for law, draw in b.LAWS.items()}
    assert (count["BA trees"] == 19).all()
    assert abs(count["ER, p = 0.5"].mean() - 95) < 6
    assert count["geometric, radius 0.32"].mean() < count["geometric, radius 0.5"].mean() < 95
    assert list(b.PUBLISHED) == list(b.LAWS)
    percent = [100 * share for share in b.PUBLISHED.values()]
    assert percent == pytest.approx([1.57, 1.90, 0.51, 2.22]), "of the pairs are wrong"


def test_responses_by_hand():
    """At no variation over the graph, at a quarter of the largest eigenvalue, and there."""
    x = torch.tensor([0.0, 0.25, 1.0]).double()
    expected = {"generative": [0, 2, 1], "Tikhonov": [1, 1 / 3.5, 1 / 11], "heat": np.exp([0, -1.25, -5]).tolist()}
    for kind, response in b.RESPONSES.items():
        assert response(x).tolist() == pytest.approx(expected[kind]), kind


@pytest.mark.parametrize("kind", b.RESPONSES)
def test_filtered_signals_have_the_covariance_of_their_filter(kind):
    edges = torch.ones(1, 6, dtype=torch.bool)  # the complete graph: eigenvalues 0 and, three times, the largest
    case = b.filtered_case(edges, b.RESPONSES[kind], 40_000, seed=0)
    at_zero = {"generative": 0.0, "Tikhonov": 1.0, "heat": 1.0}[kind]
    elsewhere = {"generative": 1.0, "Tikhonov": 1 / 11, "heat": np.exp(-5)}[kind]
    expected = np.full((4, 4), (at_zero**2 - elsewhere**2) / 4) + elsewhere**2 * np.eye(4)
    np.testing.assert_allclose(case.moments[0], expected, atol=0.03 * expected.max())
    assert case.n_signals.tolist() == [40_000]


def test_a_case_has_the_moments_and_the_shrinkage_of_its_rows():
    X = np.random.default_rng(0).standard_normal((2, 30, 4)).cumsum(2)
    case = b.case_of_signals(lambda k, rng: X[k], torch.ones(2, 6, dtype=torch.bool), seed=0)
    for k in range(2):
        np.testing.assert_allclose(case.moments[k], X[k].T @ X[k] / 30)
        assert case.shrinkage[k] == ledoit_wolf_shrinkage(X[k], assume_centered=True)


def test_real_data_count_as_many_samples_as_they_are_worth():
    plain, filtered = b.real_cases(), b.real_cases(filtered=True)
    assert list(plain) == [name for name in networks.FILES if not name.endswith("filtered")]
    assert list(filtered) == [f"NetSim {k}, filtered" for k in (1, 2, 3, 4)]
    cases = plain | filtered
    for name, recordings in (networks.netsim(b.effective_share, b.whiten) | networks.sachs()).items():
        assert torch.equal(cases[name].n_signals, recordings.n_effective)
        assert torch.equal(cases[name].edges[-1], recordings.edges)
        assert cases[name].edges.shape == recordings.correlations.shape
        assert cases[name].lasso is None if name in filtered else cases[name].lasso.shape == cases[name].edges.shape


def test_series_are_filtered_as_graph_learner_filters_them():
    X = np.random.default_rng(0).standard_normal((300, 4)).cumsum(0)
    found = GraphLearner(prior="mixed", time_series=True).fit(X)
    np.testing.assert_array_equal(b.whiten(X), forget(X, found.memory_))
    assert len(found.memory_) > 0


def test_a_teacher_helps_where_pairs_can_be_told_apart_and_not_where_they_cannot():
    """Pairs of a path; in the second case the truth has nothing to do with the signals."""
    m = 6
    edges = torch.zeros(m, m, dtype=torch.bool)
    edges[range(m - 1), range(1, m)] = True
    truth = to_vector(edges | edges.T).expand(10, -1)
    K = torch.diag(torch.full((m,), 2.0).double()) - (edges | edges.T).double()
    F = np.linalg.cholesky(np.linalg.inv(K.numpy()))
    case = b.case_of_signals(lambda k, rng: rng.standard_normal((300, m)) @ F.T, truth, seed=0)
    assert b.f1_told_the_truth(case).mean() > 0.95
    chance = torch.from_numpy(np.random.default_rng(0).random(truth.shape) < truth.double().mean().item())
    assert b.f1_told_the_truth(case._replace(edges=chance)).mean() < 0.6


@pytest.mark.skipif("L2G_RAW" not in os.environ, reason="L2G_RAW names no folder of raw data")
def test_the_raw_files_agree():
    assert b.compare_networks() is not False


def test_a_series_is_worth_what_graph_learner_says(monkeypatch, tmp_path):
    X = np.random.default_rng(0).standard_normal((2, 100, 4)).cumsum(1)
    monkeypatch.setattr(networks, "rows", lambda name, folder: (X, np.ones((4, 4), bool)))
    monkeypatch.setattr(networks, "find", lambda name, download: (tmp_path, "raw files"))
    monkeypatch.setattr(b, "lasso_scores", lambda: dict.fromkeys(networks.FILES))
    found = b.real_cases()["NetSim 1"].n_signals
    learners = [GraphLearner(prior="mixed", n_independent="auto").fit(x) for x in X]
    assert found.tolist() == pytest.approx([1 + learner.n_effective_ for learner in learners])  # a mean costs one
    assert b.real_cases()["Sachs"].n_signals.tolist() == [100, 100]


def test_rows_like_a_case(case):
    X = b.rows_like(case, 50_000, seed=0)
    np.testing.assert_allclose(X.T @ X / 50_000, case.moments[0], atol=0.03)


def test_scores_of_the_graphical_lasso_are_compared_with_raw_files(monkeypatch, tmp_path):
    X = np.random.default_rng(0).standard_normal((2, 30, 3))
    monkeypatch.setattr(paths, "REAL", tmp_path)
    monkeypatch.setattr(networks, "rows", lambda name, folder: (X, None))
    monkeypatch.setattr(b, "cross_validate", lambda X, name: torch.from_numpy(X.mean(1)).float())
    monkeypatch.setattr(b.datasets, "find", lambda name, download: (tmp_path, "raw files"))
    assert b.compare_lasso() is False
    assert b.compare_lasso(write=True) is False
    assert b.compare_lasso() is True
    assert list(b.lasso_scores()) == [name for name in networks.FILES if not name.endswith("filtered")]
    torch.testing.assert_close(b.lasso_scores()["Sachs"], torch.from_numpy(X.mean(1)).float())
    X += 0.0005  # within the tolerance of coordinate descent
    assert b.compare_lasso() is True
    X += 0.001
    assert b.compare_lasso() is False
    monkeypatch.setattr(b.datasets, "find", lambda name, download: (None, "shipped statistics"))
    assert b.compare_lasso() is None


def test_cross_validation_is_scikit_learns():
    X = np.random.default_rng(0).standard_normal((1, 40, 3))
    X[..., 1] += X[..., 0]
    torch.testing.assert_close(b.cross_validate(X)[0].double(), graphical_lasso(X[0], assume_centered=True))


# --- methods --------------------------------------------------------------------------------------------------------


def test_the_network_is_what_graph_learner_uses():
    X = np.random.default_rng(0).standard_normal((80, 7)).cumsum(1) * 10.0 ** np.arange(7)
    learner = GraphLearner(prior="mixed", standardise=True, n_independent=50).fit(X)
    S = torch.from_numpy(np.corrcoef(X.T))[None]
    probability, _ = b.estimate(b.MIXED, S, 50.0)
    torch.testing.assert_close(
        probability[0], to_vector(torch.from_numpy(learner.edge_probability_)), rtol=0, atol=1e-5
    )


def test_a_network_with_signs_is_asked_for_both(monkeypatch, case):
    torch.manual_seed(0)
    model = BroadL2G(2, width=8, n_looks=1).eval()
    monkeypatch.setattr(b, "network", lambda name: model)
    found = model(case.moments, case.n_signals)
    probability, weight = b.estimate(b.LEARNER, case.moments, case.n_signals)
    torch.testing.assert_close(probability, (found.positive + found.negative).detach())
    torch.testing.assert_close(weight, ((found.positive - found.negative) * found.weight).detach())
    unsigned, _ = b.estimate(b.LEARNER, case.moments, case.n_signals, signed=False)
    torch.testing.assert_close(unsigned, model(case.moments, case.n_signals, signed=False).positive.detach())


def test_no_probability_is_above_one(monkeypatch):
    sure = torch.tensor([[0.9999999, 0.5]]).double()
    rounded = SimpleNamespace(positive=sure, negative=torch.full_like(sure, 2e-7), expected=sure)
    monkeypatch.setattr(b, "network", lambda name: lambda moments, n_signals: rounded)
    assert b.estimate(b.LEARNER, None, None)[0].tolist() == [[1.0, pytest.approx(0.5)]]


def test_every_method_answers(case):
    found = b.answers(case)
    assert next(iter(found)) == b.LEARNER and b.LASSO not in found
    for model, answer in found.items():
        assert answer.score.shape == answer.graph.shape == case.edges.shape
        assert answer.graph.dtype == torch.bool
        assert (answer.probability is not None) == (model in b.NETWORKS)
        least = answer.score.masked_fill(~answer.graph, torch.inf).amin(-1)
        most = answer.score.masked_fill(answer.graph, -torch.inf).amax(-1)
        assert (least >= most).all(), f"{model} returns the pairs of highest score"
    assert torch.equal(found[b.LEARNER].graph, found[b.LEARNER].probability >= 0.5)
    lasso = torch.rand(3, 15, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    with_lasso = b.answers(case._replace(lasso=lasso))
    assert torch.equal(with_lasso[b.LASSO].score, lasso)
    assert torch.equal(with_lasso[b.LASSO].graph, lasso > 0)


def test_methods_with_signs_can_be_asked_for_positive_edges(monkeypatch):
    """Three columns a, b, c: a and b vary together, c against both of them."""
    K = torch.tensor([[2.0, -0.6, 0.5], [-0.6, 2.0, 0.5], [0.5, 0.5, 2.0]]).double()
    F = np.linalg.cholesky(np.linalg.inv(K.numpy()))
    edges = torch.tensor([[True, False, False]])
    case = b.case_of_signals(lambda k, rng: rng.standard_normal((5000, 3)) @ F.T, edges, seed=0)
    torch.manual_seed(0)
    model = BroadL2G(2, width=8, n_looks=1).eval()
    monkeypatch.setattr(b, "network", lambda name: model)
    both, positive = b.answers(case), b.answers(case, positive=True)
    assert list(both) == list(positive)
    for name in ("Graphical lasso (extended BIC)", b.LEDOIT_WOLF, "Partial correlations", "Correlations"):
        assert both[name].graph.all() and (both[name].score > 0).all(), name
        assert torch.equal(positive[name].graph, edges), name
        assert torch.equal(positive[name].score, both[name].score * edges), name
    expected = model(case.moments, case.n_signals).positive.detach()
    assert torch.equal(positive[b.LEARNER].probability, expected)
    assert not torch.equal(both[b.LEARNER].probability, expected)
    assert b.LASSO not in b.answers(case._replace(lasso=torch.ones(1, 3)), positive=True)
    f1 = {
        asked: pd.DataFrame(b.rows("t", "signs", case, positive=asked)).set_index(["model", "metric"]).value
        for asked in (False, True)
    }
    assert f1[True][b.LEDOIT_WOLF, "F1"] == 1
    assert f1[False][b.LEDOIT_WOLF, "F1"] == pytest.approx(0.5)


def test_signs_of_filtered_signals_by_hand(monkeypatch):
    """On a path of three nodes h(L)^-2 = (I + 10 L / 3)^2 has its ends at -100/9 of each other's diagonal."""
    edges = torch.tensor([[True, False, True]])
    L = torch.tensor([[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]]).double()
    K = torch.linalg.matrix_power(torch.eye(3).double() + 10 * L / 3, 2)
    near = -(K[0, 1] / (K[0, 0] * K[1, 1]).sqrt()).item()
    far = -(K[0, 2] / K[0, 0]).item()
    assert near > 0 > far
    told = SimpleNamespace(
        positive=torch.tensor([[0.95, 0.0, 0.91]]).double(), negative=torch.tensor([[0.0, 0.99, 0.0]]).double()
    )
    monkeypatch.setattr(b, "network", lambda name: lambda moments, n_signals: told)
    frame = pd.DataFrame(b.signs_by_steps("path", edges, b.RESPONSES["Tikhonov"], 50, seed=0))
    assert (frame.family == "path").all()
    value = frame.set_index(["x", "metric"]).value
    assert value[1, "partial correlation"] == pytest.approx(near)
    assert value[2, "partial correlation"] == pytest.approx(far)
    assert value[1, "positive"] == value[1, "found positive"] == value[2, "found negative"] == 1
    assert value[2, "positive"] == value[1, "found negative"] == value[2, "found positive"] == 0
    assert frame.value.iloc[-1] == 1
    told.positive, told.negative = told.negative, told.positive
    frame = pd.DataFrame(b.signs_by_steps("path", edges, b.RESPONSES["Tikhonov"], 50, seed=0))
    assert frame.value.iloc[-1] == 0
    told.positive[:] = 0.9
    told.negative[0, :2] = torch.tensor([0.0, 0.95]).double()
    frame = pd.DataFrame(b.signs_by_steps("path", edges, b.RESPONSES["Tikhonov"], 50, seed=0))
    assert frame.value.iloc[-1] == 0.5


def test_ledoit_wolf_is_that_of_scikit_learn(case):
    from sklearn.covariance import shrunk_covariance

    S = shrunk_covariance(case.moments[1].numpy(), case.shrinkage[1].item())
    P = np.linalg.inv(S)
    expected = np.abs(P / np.sqrt(np.outer(P.diagonal(), P.diagonal())))[np.triu_indices(6, 1)]
    np.testing.assert_allclose(b.answers(case)[b.LEDOIT_WOLF].score[1], expected)


def test_the_convex_problem_is_told_the_density(case):
    graph = b.smooth(case).graph
    assert graph.sum(-1).double().mean() == pytest.approx(case.edges.sum(-1).double().mean().item(), abs=1)


# --- measures -------------------------------------------------------------------------------------------------------


def test_rows_are_the_means_over_data_sets(case):
    frame = pd.DataFrame(b.rows("t", "grid", case, x=300)).set_index(["model", "metric"])
    assert (frame.x == 300).all() and (frame.family == "grid").all() and (frame.table == "t").all()
    for model, answer in b.answers(case).items():
        each = list(zip(case.edges.numpy(), answer.score.numpy(), answer.graph.numpy()))
        expected = {
            "AUPRC": [average_precision_score(e, s) for e, s, _ in each],
            "AUROC": [roc_auc_score(e, s) for e, s, _ in each],
            "F1": [f1_score(e, g) for e, _, g in each],
            "wrong pairs": [(e != g).mean() for e, _, g in each],
        }
        for metric, values in expected.items():
            assert frame.value[model, metric] == pytest.approx(np.mean(values)), (model, metric)
    gain = frame.loc[(f"{b.LEARNER} - {b.LEDOIT_WOLF}", "AUPRC gain")]
    assert gain.value == pytest.approx(frame.value[b.LEARNER, "AUPRC"] - frame.value[b.LEDOIT_WOLF, "AUPRC"])
    assert gain.ci > 0 or gain.value == 0


def test_one_data_set_has_no_interval(case):
    one = b.Case(*(x[:1] for x in case[:4]))
    assert pd.DataFrame(b.rows("t", "grid", one)).ci.isna().all()


def test_calibration_by_hand():
    probability = torch.tensor([[0.95, 0.99, 0.91, 0.9], [0.92, 0.1, 0.2, 0.3]])
    edges = torch.tensor([[True, True, False, False], [True, False, False, True]])
    found = b.calibration_numbers(probability, edges)
    assert found["true of the sure"] == 0.75 and found["sure pairs"] == 4
    assert found["ece"] == metrics.calibration_error(probability, edges.double())
    assert np.isnan(b.calibration_numbers(probability * 0.9, edges)["true of the sure"])


def test_reliability_is_that_of_each_network(case):
    found = b.reliability({"grid": case})
    assert list(found) == list(b.NETWORKS)
    _, share, count = found[b.LEARNER]["grid"]
    assert count.sum() == 45
    assert share @ count == case.edges.sum()


def table(**values):
    """Rows of one family per keyword: {model: (value, ci)}."""
    return pd.DataFrame(
        [
            dict(table="t", family=family, metric="F1", model=model, value=value, ci=ci)
            for family, models in values.items()
            for model, (value, ci) in models.items()
        ]
    )


def test_where_it_stands():
    frame = table(
        ahead={b.LEARNER: (0.9, 0.01), b.MIXED: (0.99, 0.0), "Eq. (4)": (0.8, 0.05), "Correlations": (0.1, 0.5)},
        level={b.LEARNER: (0.9, 0.04), "Eq. (4)": (0.95, 0.02), "Correlations": (0.1, 0.1)},
        behind={b.LEARNER: (0.5, np.nan), "Eq. (4)": (0.6, np.nan), "Correlations": (0.7, np.nan)},
    )
    found = b.standing(frame, "F1")
    assert found[""].tolist() == ["ahead of", "level with", "behind"]
    assert found["rank"].tolist() == ["1 of 3", "2 of 3", "3 of 3"]
    assert found["the best rival"].tolist() == ["Eq. (4)", "Eq. (4)", "Correlations"]
    assert found["its value"].tolist() == [0.8, 0.95, 0.7]
    least = b.standing(frame, "F1", least=True)
    assert least[""].tolist() == ["behind", "behind", "ahead of"]
    assert least["rank"].tolist() == ["3 of 3", "2 of 3", "1 of 3"]


def test_seconds_are_those_of_the_quickest_call(monkeypatch):
    clock = iter([0, 5, 10, 12, 20, 23, 30, 31, 40, 44, 50, 52])
    monkeypatch.setattr(b.time, "process_time", lambda: next(clock))
    calls = []
    assert b.seconds({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, n_calls=3) == {"a": 2, "b": 1}
    assert calls == list("aaabbb")


def test_rounding_below_zero_is_no_distance():
    S = torch.eye(4).double()[None]
    S[0, 0, 1] = S[0, 1, 0] = 1 + 1e-15
    assert differences(S).min() < 0
    probability, _ = b.estimate(b.MIXED, S, 10.0)
    assert probability.isfinite().all()


def test_f1_in_hindsight_takes_one_threshold_for_all():
    w = torch.tensor([[1.0, 1, 0, 0], [1, 0, 0, 0]])
    score = torch.tensor([[0.9, 0.4, 0.3, 0.1], [0.8, 0.6, 0.2, 0.1]])
    found = b.f1_in_hindsight(score, w)
    # at 0.4: 1 and 2/3; at 0.8: 2/3 and 1; at 0.9 or 0.6 less
    assert found.mean() == pytest.approx(5 / 6, abs=1e-6)
    perfect = torch.tensor([[0.9, 0.7, 0.3, 0.1], [0.8, 0.6, 0.2, 0.1]])
    assert b.f1_in_hindsight(perfect, w).tolist() == pytest.approx([1, 1])
