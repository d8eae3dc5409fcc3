import subprocess
import sys

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from scipy import sparse
from scipy.spatial.distance import squareform
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import GraphLearner, large, plots
from helpers.graphs import sample_graphs
from helpers.learner import METHODS, SPARSE
from helpers.metrics import auc, gmse
from helpers.signals import distances, sample_signals, spread
from helpers.solvers import laplacian_mle, learn

TRUTH = sample_graphs("WS", 1, 20, seed=7, dtype=torch.float64)[0]
X = sample_signals(TRUTH, 500, seed=8).numpy()


def vector(learner):
    """Half-vector of what was learned."""
    A = learner.adjacency_
    return torch.from_numpy(squareform(A.toarray() if sparse.issparse(A) else A))


# --- scikit-learn ----------------------------------------------------------------------------------------------------


@parametrize_with_checks([*map(GraphLearner, METHODS), GraphLearner("exact", standardise=True, robust=True)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_importing_helpers_is_quick():
    code = "import sys, helpers; assert 'torch' not in sys.modules; print(helpers.__all__); helpers.GraphLeaner"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "GraphLearner" in done.stdout
    assert "has no attribute 'GraphLeaner'" in done.stderr


def test_columns_of_a_frame_become_nodes():
    names = [f"sensor {k}" for k in range(20)]
    learner = GraphLearner("exact").fit(pd.DataFrame(X, columns=names))
    graph = learner.to_networkx()
    assert list(graph) == list(learner.feature_names_in_) == names
    i, j = np.argwhere(learner.adjacency_)[0]
    assert graph.edges[names[i], names[j]]["weight"] == learner.adjacency_[i, j]
    assert graph.number_of_edges() == np.count_nonzero(learner.adjacency_) / 2
    assert list(GraphLearner("exact").fit(X).to_networkx()) == list(range(20))
    assert learner.score(pd.DataFrame(X, columns=names)) == pytest.approx(GraphLearner("exact").fit(X).score(X))
    with pytest.raises(ValueError, match="feature names should match"):
        learner.score(pd.DataFrame(X, columns=names[::-1]))


def test_a_degree_can_be_chosen_by_cross_validation():
    search = GridSearchCV(GraphLearner("exact"), {"average_degree": [2, 4, 8, 15]}, cv=3).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["average_degree"] in (4, 8), "the truth has 4"
    assert search.score(X) > GraphLearner("exact", average_degree=15).fit(X).score(X)


# --- what must not matter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [1e-9, 12.3, 1e150])
def test_units_scale_the_weights_and_nothing_else(method, factor):
    one, other = (GraphLearner(method).fit(c * X).adjacency_ * c * c for c in (1.0, factor))
    np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6 * one.max())
    np.testing.assert_array_equal(other > 1e-5 * one.max(), one > 1e-5 * one.max())


@pytest.mark.parametrize("method", METHODS)
def test_order_of_nodes_and_samples_does_not_matter(method):
    rng = np.random.default_rng(0)
    order = rng.permutation(20)
    one, other = GraphLearner(method).fit(X), GraphLearner(method).fit(rng.permutation(X)[:, order])
    for name in ("adjacency_", "laplacian_") + (("edge_probability_",) if method == "equivariant" else ()):
        A = getattr(one, name)
        np.testing.assert_allclose(getattr(other, name), A[order[:, None], order], rtol=1e-3, atol=1e-4 * A.max())


@pytest.mark.parametrize("robust", [False, True])
def test_levels_and_column_units_do_not_matter_if_told(robust):
    rng = np.random.default_rng(1)
    shift, factor = 30 * rng.standard_normal(20), rng.lognormal(0, 2, 20)
    one = GraphLearner("exact", robust=robust).fit(X)
    np.testing.assert_allclose(
        GraphLearner("exact", robust=robust).fit(X + shift).adjacency_, one.adjacency_, rtol=1e-6
    )
    assert (GraphLearner("exact", robust=robust, centre=False).fit(X + shift).adjacency_ != one.adjacency_).any()
    standard = GraphLearner("exact", robust=robust, standardise=True)
    one, other = standard.fit(X).adjacency_, standard.fit(X * factor + shift).adjacency_
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-9)


# --- what is learned -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_graphs_are_recovered(method):
    learner = GraphLearner(method).fit(X)
    assert auc(vector(learner), TRUTH) > 0.9
    np.testing.assert_array_equal(learner.adjacency_, learner.adjacency_.T)
    np.testing.assert_allclose(learner.laplacian_.sum(1), 0, atol=1e-12)
    assert 0.6 < learner.adjacency_.sum() / 20 < 1.4, "mean degree, which is 1 in truth"
    assert hasattr(learner, "edge_probability_") == (method == "equivariant")


def test_mle_and_exact_are_the_solvers_answers():
    y = distances(X - X.mean(0)) * 500 / 499
    np.testing.assert_allclose(vector(GraphLearner("mle").fit(X)), laplacian_mle(y), rtol=1e-5, atol=1e-7)
    w, _ = learn(y, 6)
    w_hat = vector(GraphLearner("exact", average_degree=6).fit(X))
    np.testing.assert_allclose(w_hat / w_hat.sum(), w / w.sum(), atol=1e-8)


@pytest.mark.parametrize("method", ["exact", "pds", "unrolling"])
def test_the_scale_is_the_most_likely_one(method):
    learner = GraphLearner(method, average_degree=8, prior="WS").fit(X)
    best, L = learner.score(X), learner.laplacian_
    for factor in (0.97, 1.03):
        learner.laplacian_ = factor * L
        assert learner.score(X) < best


def test_score_is_the_gaussian_log_likelihood():
    learner = GraphLearner("mle").fit(X[:300])
    L, fresh = learner.laplacian_, X[300:] - X[:300].mean(0)
    basis = np.linalg.svd(np.ones((1, 20)))[2][1:]  # of what is orthogonal to constants
    K = basis @ (L + 1e-4 * np.trace(L) / 20 * np.eye(20)) @ basis.T
    z = fresh @ basis.T
    expected = (np.linalg.slogdet(K)[1] - np.einsum("ni,ij,nj->n", z, K, z).mean() - 19 * np.log(2 * np.pi)) / 2
    assert learner.score(X[300:]) == pytest.approx(expected, rel=1e-9)


def test_probabilities_decide_and_fewer_samples_are_less_sure():
    learner = GraphLearner().fit(X)
    p, A = learner.edge_probability_, learner.adjacency_
    assert 0 <= p.min() and p.max() <= 1 and (p.diagonal() == 0).all()
    np.testing.assert_array_equal(A > 0, p >= 0.5)
    everything = GraphLearner(min_probability=0).fit(X)
    np.testing.assert_array_equal(everything.edge_probability_, p)
    np.testing.assert_array_equal(everything.adjacency_[p >= 0.5], A[p >= 0.5])
    assert gmse(vector(everything), TRUTH) < 0.2
    doubt = [(q * (1 - q)).mean() for q in (p, GraphLearner(n_independent=50).fit(X).edge_probability_)]
    assert doubt[1] > 1.5 * doubt[0]
    edge = next(iter(learner.to_networkx().edges(data=True)))
    assert edge[2]["probability"] == p[edge[0], edge[1]]


# --- outliers --------------------------------------------------------------------------------------------------------


def test_spread_is_the_standard_deviation_of_normal_columns():
    D = 5 * np.random.default_rng(2).standard_normal((100_000, 3))
    np.testing.assert_allclose(spread(D, robust=True), 5, rtol=0.01)
    np.testing.assert_allclose(spread(D), np.sqrt((D**2).mean(0)), rtol=1e-12)
    np.testing.assert_allclose(spread(np.array([[0.0, 0, 0, 2]]).T, robust=True), 1)  # no median to clip by


def test_robust_distances_stand_heavy_tails_and_spikes():
    rng = np.random.default_rng(3)
    heavy = X / np.sqrt(rng.chisquare(2.5, (500, 1)) / 2.5)
    spiky = X + 30 * rng.standard_normal(X.shape) * (rng.random(X.shape) < 0.01)
    error = {
        (name, robust): gmse(vector(GraphLearner("mle", robust=robust).fit(data)), TRUTH).item()
        for name, data in {"normal": X, "heavy": heavy, "spiky": spiky}.items()
        for robust in (False, True)
    }
    assert error["normal", True] < 2 * error["normal", False]
    assert error["heavy", True] < 0.5 * error["heavy", False]
    assert error["spiky", True] < 0.2 * error["spiky", False]


def test_one_wild_value_changes_little():
    wild = X.copy()
    wild[0, 0] = 1e9
    plain, robust = (gmse(vector(GraphLearner("mle", robust=r).fit(wild)), TRUTH) for r in (False, True))
    assert robust < 0.07 < 0.1 < plain


# --- candidates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", SPARSE)
@pytest.mark.parametrize("robust", [False, True])
def test_all_candidates_are_the_dense_answer(method, robust, capsys):
    frame = pd.DataFrame(X).add_prefix("x")
    options = {"method": method, "robust": robust, "prior": "BA"}
    dense = GraphLearner(**options).fit(frame)
    assert capsys.readouterr().out == ""
    learner = GraphLearner(candidates=19, **options).fit(frame)
    told = capsys.readouterr().out
    assert "GB of memory" in told and "190 pairs" in told
    assert sparse.issparse(learner.adjacency_) and sparse.issparse(learner.laplacian_)
    A = dense.adjacency_  # theta may differ within the tolerance of the degree
    np.testing.assert_allclose(learner.adjacency_.toarray(), A, atol=0.1 * A.max())
    assert list(learner.to_networkx()) == list(frame)
    GraphLearner(candidates=3, verbose=False, **options).fit(X)
    assert capsys.readouterr().out == ""


def test_the_network_on_candidates_is_near_the_one_on_all_pairs():
    truth = sample_graphs("WS", 1, 60, seed=3, dtype=torch.float64)[0]
    data = sample_signals(truth, 600, seed=4).numpy()
    dense, near = GraphLearner().fit(data), GraphLearner(candidates=15, verbose=False)
    probability = near.fit(data).edge_probability_
    assert sparse.issparse(probability) and probability.nnz < 60 * 30
    assert np.abs(probability.toarray() - dense.edge_probability_).mean() < 0.005
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large, "DENSE", 0)
        sketched = near.fit(data)
    assert gmse(vector(dense), truth) < 0.05 and gmse(vector(sketched), truth) < 0.1


@pytest.mark.parametrize("method", SPARSE)
def test_candidates_never_list_all_pairs(method, monkeypatch):
    def forbidden(*_):
        raise AssertionError("all pairs of nodes were listed")

    monkeypatch.setattr("helpers.learner.edges", forbidden)
    monkeypatch.setattr("helpers.learner.distances", forbidden)
    learner = GraphLearner(method, prior="BA", candidates=5, verbose=False, robust=True).fit(X)
    assert learner.adjacency_.nnz <= 2 * 5 * 20
    with pytest.raises(ValueError, match="candidates=None"):
        learner.score(X)


def test_what_cannot_fit_is_refused_with_what_would(monkeypatch):
    class Memory:
        available = 2**27

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    data = np.random.default_rng(0).standard_normal((5, 3000))
    with pytest.raises(MemoryError, match=r"3,000 nodes need .*: method='equivariant', candidates=\d+ needs"):
        GraphLearner("mle").fit(data)
    with pytest.raises(MemoryError, match="fewer samples or nodes"):
        Memory.available = 1000
        GraphLearner("exact", candidates=5, verbose=False).fit(data)


# --- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"method": "l2g"}, {"prior": "ba"}, {"average_degree": 0.5}, {"average_degree": 20}, {"min_probability": 2},
        {"n_independent": 0}, {"average_degree": 0}, {"candidates": 0}, {"candidates": 20},
        {"method": "mle", "candidates": 5}, {"prior": "mixed", "method": "unrolling", "candidates": 5},
    ],
)  # fmt: skip
def test_bad_options_are_named(options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"{name}={value!r}: "):
        GraphLearner(**{"method": "exact"} | options).fit(X)


def test_bad_columns_are_named():
    frame = pd.DataFrame(X).add_prefix("x").assign(copy=X[:, 3])
    with pytest.raises(ValueError, match=r"\['x3', 'copy'\] of X are equal"):
        GraphLearner("mle").fit(frame)
    assert GraphLearner("exact").fit(frame).adjacency_[3, 20] > 0
    with pytest.raises(ValueError, match=r"constant columns, \['copy'\]"):
        GraphLearner(standardise=True).fit(frame.assign(copy=1.0))
    with pytest.raises(ValueError, match="X is constant"):
        GraphLearner("exact").fit(np.ones((5, 4)))
    with pytest.raises(AttributeError, match="method='exact' has no edge probabilities"):
        _ = GraphLearner("exact").fit(X).edge_probability_


def test_plot_draws_every_edge_and_name():
    learner = GraphLearner("exact").fit(pd.DataFrame(X).add_prefix("x"))
    figure = learner.plot(seed=1)
    (axis,) = figure.axes
    assert {text.get_text() for text in axis.texts} == set(learner.feature_names_in_)
    assert len(axis.collections[0].get_segments()) == learner.to_networkx().number_of_edges()
    assert not GraphLearner("exact").fit(X).plot(labels=False).axes[0].texts
    plots.plt.close("all")
