"""Where the paper's law ends: graphs and signals as they are said to be, and measures by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.experiments import benchmarks as b
from helpers.experiments import stress
from helpers.graphs import all_pairs, degrees, laplacian, to_vector


@pytest.fixture
def certain(monkeypatch):
    """Networks that give all pairs the probability `certain.p` and weights of 1, and remember what they were told."""
    answer = SimpleNamespace(p=0.6, told=[])

    def estimate(model, moments, n_signals, **kinds):
        answer.told.append(n_signals)
        p = torch.full((len(moments), moments.shape[-1] * (moments.shape[-1] - 1) // 2), answer.p).double()
        return p, torch.ones_like(p)

    monkeypatch.setattr(b, "estimate", estimate)
    return answer


def test_precision_matrices_have_the_signed_weights():
    w = torch.tensor([[1.0, -2, 0.5]]).double()
    K = stress.precision_matrix(w, ground=0.1)[0]
    torch.testing.assert_close(to_vector(K), -w[0])
    assert K.diagonal().tolist() == pytest.approx([3.1, 1.6, 2.6])
    torch.testing.assert_close(stress.precision_matrix(w.abs(), 0.0)[0], laplacian(w.abs())[0])


def test_gaussian_signals_have_that_precision():
    w = torch.tensor([[1.0, -2, 0.5, 1, 0, 1]]).double()
    case = stress.gaussian_case(w, 200_000, seed=0)
    K = stress.precision_matrix(w)[0]
    torch.testing.assert_close(case.moments[0] @ K, torch.eye(4).double(), rtol=0, atol=0.05)
    assert case.edges.tolist() == [[True, True, True, True, False, True]]


def test_er_graphs_have_mean_degree_one_and_the_spread():
    for spread in (0.0, 1.0):
        w = stress.er_graphs(20, spread, seed=0)
        torch.testing.assert_close(degrees(w).mean(-1), torch.ones(20).double())
        assert abs((w > 0).double().mean() - 0.1) < 0.01
        logs = [row[row > 0].log() for row in w]
        assert np.mean([x.std() for x in logs]) == pytest.approx(spread, abs=0.05)
    assert torch.equal(w > 0, stress.er_graphs(20, 0.0, seed=0) > 0)


def test_errors_are_those_of_the_expected_weights(certain):
    rows = pd.DataFrame(stress.errors_on_the_papers_law(((20, 2),)))
    assert rows.family.unique().tolist() == [f"{family}, 20 nodes" for family in ("BA", "ER", "SBM", "WS")]
    assert rows.model.unique().tolist() == [*b.NETWORKS, stress.MLE]
    errors = rows.set_index(["model", "family"]).value
    assert errors[b.LEARNER, "BA, 20 nodes"] > 10 > 0.1 > errors[stress.MLE, "BA, 20 nodes"]


def test_errors_by_spread_have_the_truth_of_their_spread(certain, monkeypatch):
    monkeypatch.setattr(stress, "laplacian_mle", lambda y, **options: torch.zeros_like(y))
    told = []

    def predict(observations):
        told.append(observations.n_signals)
        return torch.full((2, 1225), 1e-9)

    monkeypatch.setattr(stress, "load_or_train", {"broad-told": SimpleNamespace(predict=predict)}.get)
    rows = pd.DataFrame(stress.errors_by_spread(n=2))
    assert [n.tolist() for n in told] == [[500, 500]] * 4
    assert rows[rows.model == stress.THIS_LAW].value.tolist() == pytest.approx([1] * 4, abs=1e-6)
    assert rows.family.unique().tolist() == ["log-sd 0", "log-sd 0.5", "log-sd 1", "log-sd 2"]
    assert (rows[rows.model == stress.MLE].value == 1).all()


def test_all_pairs_of_white_noise_are_false(certain):
    rows = pd.DataFrame(stress.false_edges_in_white_noise(((5, 2), (6, 2)), (10, 20)))
    assert (rows.value == 1).all() and len(rows) == 8
    certain.p = 0.5
    assert (pd.DataFrame(stress.false_edges_in_white_noise(((5, 2),), (10,))).value == 0).all()


def test_ranks_see_edges_of_either_sign(certain):
    rows = pd.DataFrame(stress.ranks_by_sign(n=2, shares=(0.0, 1.0))).set_index(["model", "family"]).value
    for family in ("0% negative", "100% negative"):
        assert rows[b.LEARNER, family] == pytest.approx(0.1, abs=0.02)  # ties: the share of edges
        assert rows[b.LEDOIT_WOLF, family] > 0.8


def test_the_heavy_edge_itself_does_not_count(certain):
    rows = pd.DataFrame(stress.graphs_beside_a_heavy_edge(n=2, numbers=(3000,)))
    rows = rows[rows.metric == "F1"].set_index("model").value
    w = stress.er_graphs(2, seed=30)
    k = (w > 0).sum(-1).double() - 1
    assert rows[b.LEARNER] == pytest.approx((2 * k / (1224 + k)).mean().item(), abs=1e-5)
    assert rows["Partial correlations"] > 0.8


def test_one_edge_per_graph_is_a_thousand_times_as_heavy(certain, monkeypatch):
    drawn = []
    plain = stress.gaussian_case
    monkeypatch.setattr(stress, "gaussian_case", lambda w, *rest, **more: drawn.append(w) or plain(w, *rest, **more))
    stress.graphs_beside_a_heavy_edge(n=2, numbers=(500,))
    heavy, light = drawn
    assert torch.equal(light, stress.er_graphs(2, seed=30))
    for ratio in (heavy / light).nan_to_num(1):
        assert ratio.max() == pytest.approx(1000) and ((ratio - 1).abs() > 1e-9).sum() == 1


def test_the_broad_law_is_judged_in_all_families(certain):
    certain.p = 0.95
    rows = pd.DataFrame(stress.judge_on_the_broad_law(n=3, n_nodes=6)).query("model == @b.LEARNER")
    sure = rows[rows.metric == "sure pairs"].set_index("family").value
    by_number = sure.filter(like="N = ")
    assert len(by_number) == 3 and by_number.sum() == 9 * 3 * 15 == sure.drop(by_number.index).sum()
    share = rows[rows.metric == "true of the sure"].set_index("family").value
    assert share["tree"] == pytest.approx(5 / 15)
    ratio = rows[rows.metric == "log GMSE over likelihood"].set_index("family").value
    families = [family for family in stress.broad_law.FAMILIES if family != "empty"]
    seed = stress.spawn(40, 9)[families.index("tree")]
    draw = stress.broad_law.sample_broad(3, 6, seed=seed, families=["tree"])
    ones, likely = (stress.metrics.gmse(x, draw.w.double()) for x in (torch.ones(3, 15), stress.likely_on_atoms(draw)))
    assert ratio["tree"] == pytest.approx((ones / likely).log().mean().item(), rel=1e-3)


def test_likely_weights_are_those_of_all_atoms():
    """With very many samples they are the truth."""
    w = torch.tensor([[1.0, -2, 0.5, 0, 1, 1]]).double()
    S = torch.linalg.inv(stress.precision_matrix(w, 0.5))
    told = {"moments": S, "n_signals": torch.full_like(S, 1e9), "signed": torch.ones(1).bool()}
    draw = SimpleNamespace(**told, self_loops=torch.ones(1).bool())
    torch.testing.assert_close(stress.likely_on_atoms(draw), w, atol=0.02, rtol=0)


def test_pairs_at_the_ends_of_an_edge():
    i, j = all_pairs(5)
    for e in (0, 4, 9):
        edge = torch.zeros(1, 10, dtype=torch.bool)
        edge[0, e] = True
        ends = {i[e].item(), j[e].item()}
        expected = [bool({a, c} & ends) for a, c in zip(i.tolist(), j.tolist())]
        assert stress.touches(edge)[0].tolist() == expected


def test_away_from_the_heavy_edge_its_ends_do_not_count(certain):
    rows = pd.DataFrame(stress.graphs_beside_a_heavy_edge(n=2, numbers=(500,))).query("model == @b.LEARNER")
    rows = rows.set_index("metric").value
    w = stress.er_graphs(2, seed=30)
    heavy = torch.zeros_like(w, dtype=torch.bool).scatter(1, w.argmax(1, keepdim=True), True)
    far = ~stress.touches(heavy)
    assert (far.sum(-1) == 48 * 47 / 2).all()
    k = ((w > 0) & far).sum(-1).double()
    assert rows["F1 away from it"] == pytest.approx((2 * k / (1128 + k)).mean().item(), abs=1e-5)
    assert rows["F1 if it is not heavy"] == rows["F1"]  # whoever joins all pairs does so in both cases


def test_divergence_is_the_mean_log_likelihood_ratio():
    w = torch.tensor([[1.0, 0, 0.5, 0.7, 0, 1]]).double()  # pairs 01, 02, 03, 12, 13, 23
    moved = torch.tensor([[0.0, 1, 0.5, 0.7, 0, 1]]).double()  # 01 has become 02
    K, other = (stress.precision_matrix(x, ground=0.3)[0] for x in (w, moved))
    other = other + torch.diag(K.diagonal() - stress.precision_matrix(w, ground=0.3)[0].diagonal())
    law, rival = (
        torch.distributions.MultivariateNormal(torch.zeros(4).double(), precision_matrix=x) for x in (K, other)
    )
    expected = torch.distributions.kl_divergence(law, rival).item()
    found = stress.divergence(K, stress.to_matrix(w[0]), 1, 0, 2)
    assert found == pytest.approx(expected, rel=1e-6)


def test_the_end_of_a_heavy_edge_cannot_be_told():
    rows = pd.DataFrame(stress.evidence_of_an_end(n=3, numbers=(100, 300)))
    evidence = rows.set_index(["family", "metric"]).value
    for name in ("evidence at the heavy edge", "evidence elsewhere"):
        assert 3 * evidence["N = 100", name] == pytest.approx(evidence["N = 300", name])
    assert evidence["N = 300", "evidence at the heavy edge"] < 0.1 * evidence["N = 300", "evidence elsewhere"]


def test_gaps_are_as_many_as_stated_and_counted_per_pair(certain):
    certain.p = 0.95
    rows = pd.DataFrame(stress.missing_values(n=2, shares=(0.0, 0.3), n_rows=400))
    full, full_mean, _, some, some_mean, some_apart, *strong = certain.told
    assert len(strong) == 6 and torch.equal(strong[3], some)  # the same gaps, whatever the ground
    assert torch.equal(some_apart, some)
    assert (full == 400).all() and (full_mean == 400).all()
    present = some.diagonal(dim1=-2, dim2=-1) / 400
    assert present.mean() == pytest.approx(0.7, abs=0.05) and present.std() > 0.1
    torch.testing.assert_close(some_mean, some.mean((-2, -1)))
    sure = rows[rows.metric == "sure pairs"]
    names = {f"{share}% missing{part}" for share in (0, 30) for part in ("", " with a strong common part")}
    assert (sure.value == 2 * 1225).all() and set(rows.family) == names


def test_pairs_that_hardly_any_row_has_count_as_many_rows_and_at_least_one(certain, monkeypatch):
    few = stress._rows_with_gaps
    seen = []
    monkeypatch.setattr(stress, "_rows_with_gaps", lambda *given: seen.append(few(*given)) or seen[-1])
    stress.missing_values(n=2, shares=(0.3,), n_rows=12)
    known = ~np.isnan(seen[0])
    counts = known.T.astype(int) @ known
    assert {0, 1, 2} <= set(counts.flatten().tolist())
    np.testing.assert_array_equal(certain.told[0][0], np.maximum(counts, 1))


def test_moments_with_gaps_are_those_of_the_law():
    w = torch.tensor([[1.0, -2, 0.5]]).double()
    K = stress.precision_matrix(w, ground=0.5)[0]
    L = torch.linalg.cholesky(K).mT.numpy()
    X = stress._rows_with_gaps(L, 0.2, 40_000, 0)
    np.testing.assert_allclose(stress.second_moments(X).matrix @ K.numpy(), np.eye(3), atol=0.05)
    np.testing.assert_allclose(stress.pairwise_moments(X)[0] @ K.numpy(), np.eye(3), atol=0.05)
    assert 0.1 < np.isnan(X).mean() < 0.3
    assert not np.isnan(stress._rows_with_gaps(L, 0.0, 100, 0)).any()


def test_at_either_end_of_the_heavy_edge():
    """0-1 is heavy, 2 is joined to 0, 3 to 1, 2 to 3: all four pairs of 2 and 3 with 0 and 1, and not 2-3."""
    pairs = [tuple(pair) for pair in stress.all_pairs(5).T.tolist()]
    edges = torch.tensor([[pair in {(0, 1), (0, 2), (1, 3), (2, 3)} for pair in pairs]])
    heavy = torch.tensor([[pair == (0, 1) for pair in pairs]])
    found = {pair for pair, on in zip(pairs, stress.at_either_end(edges, heavy)[0]) if on}
    assert found - {(0, 1)} == {(0, 2), (0, 3), (1, 2), (1, 3)}


def test_series_remember_and_are_worth_fewer_rows(certain):
    w = torch.tensor([[1.0, -2, 0.5]]).double()
    K = stress.precision_matrix(w, ground=0.5)[0]
    X = stress._series(torch.linalg.cholesky(K).mT.numpy(), 0.5, 40_000, 0)
    np.testing.assert_allclose(X.T @ X / len(X) @ K.numpy(), np.eye(3), atol=0.05)
    assert np.corrcoef(X[1:, 0], X[:-1, 0])[0, 1] == pytest.approx(0.5, abs=0.02)
    stress.series(n=2, memories=(0.0, 0.9), n_rows=300)
    *fresh, every, filtered, old, every_again = certain.told
    assert every == every_again == 300
    for told in (*fresh, filtered):
        assert (told > 250).all()
    assert (old < 100).all()


def test_sizes_are_judged_on_the_same_graphs(monkeypatch):
    """A network that knows nothing but the share of edges has the entropy of that share."""

    def network(moments, n_signals, **kinds):
        p = torch.full((len(moments), 15), 0.25).double()
        return SimpleNamespace(positive=p, negative=p, expected=torch.zeros_like(p))

    monkeypatch.setattr(stress, "load_or_train", lambda name: network)
    monkeypatch.setattr(stress, "read_record", lambda run: {"n_parameters": 7, "seconds": 120})
    rows = pd.DataFrame(stress.compare_sizes(n=2, n_nodes=6)).set_index(["family", "metric"]).value
    assert list(dict.fromkeys(rows.index.get_level_values(0))) == list(stress.SIZES)
    draw = stress.broad_law.sample_broad(20, 6, seed=70, n_parts=40)
    share = (draw.w != 0).double().mean().item()
    expected = -share * np.log(0.25) - (1 - share) * np.log(0.5)
    minutes = dict(zip(stress.SIZES, (2, 2, 4, 6, 8, 10, 12, 14, 16, 18)))  # with the trainings that it goes on from
    for name in stress.SIZES:
        assert rows[name, "log-loss"] == pytest.approx(expected)
        assert rows[name, "log GMSE"] == pytest.approx(0, abs=1e-6)
        assert rows[name, "parameters"] == 7
        assert rows[name, "CPU minutes"] == minutes[name]
