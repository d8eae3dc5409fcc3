"""GraphLearner: what must not matter, what is learned, lists of candidates, and every way to go wrong."""

import re
import subprocess
import sys
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import psutil
import pytest
import torch
import toys
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial.distance import squareform
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_score
from test_completion import draw

from helpers import GraphLearner, learner, paths, plots
from helpers.beyond import atom_lists, moments
from helpers.beyond.broad import BroadL2G
from helpers.beyond.candidates import estimate_memory, fit_memory, fitting_options
from helpers.beyond.equivariant import EquivariantL2G
from helpers.beyond.likelihood import laplacian_mle
from helpers.graphs import FAMILIES, sample_graphs
from helpers.learner import CANDIDATE_METHODS, METHODS
from helpers.metrics import auc, gmse
from helpers.models import Unrolling
from helpers.signals import distances, root_mean_square, sample_signals
from helpers.solvers import learn, pds
from helpers.training import load

TRUTH = sample_graphs("WS", 1, 20, seed=7, dtype=torch.float64)[0]
X = sample_signals(TRUTH, 500, seed=8).numpy()
BASIS = np.linalg.svd(np.ones((1, 12)))[2][1:]  # of what is orthogonal to constants


# What a user can choose between: the default, the same network's narrow sister, and the other methods
LEARNERS = {"broad": {}, "equivariant": {"prior": "mixed"}} | {name: {"method": name} for name in METHODS[1:]}


def make(name, **options):
    return GraphLearner(**LEARNERS[name] | options)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """A simple estimate in place of the broad network: here it is about what is done with its answer."""
    real = learner._network
    fake = toys.ShrunkInverse()
    monkeypatch.setattr(learner, "_network", lambda model, *family: fake if model == "broad" else real(model, *family))


def vector(fitted):
    """Half-vector of what was learned."""
    A = fitted.adjacency_
    return torch.from_numpy(squareform(A.toarray() if sparse.issparse(A) else A))


def centred_distances(X):
    """What the learner sees: distances of X without its mean, which costs a sample."""
    return distances(X - X.mean(0)) * len(X) / (len(X) - 1)


# --- scikit-learn and pandas ---------------------------------------------------------------------------------------


def test_importing_helpers_is_quick():
    code = "import sys, helpers; assert 'torch' not in sys.modules; print(helpers.__all__); helpers.GraphLeaner"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "GraphLearner" in done.stdout
    assert "has no attribute 'GraphLeaner'" in done.stderr


def test_columns_of_a_frame_become_nodes():
    names = [f"sensor {k}" for k in range(20)]
    fitted = GraphLearner("exact").fit(pd.DataFrame(X, columns=names))
    graph = fitted.to_networkx()
    assert list(graph) == list(fitted.feature_names_in_) == names
    i, j = np.argwhere(fitted.adjacency_)[0]
    assert graph.edges[names[i], names[j]]["weight"] == fitted.adjacency_[i, j]
    assert "probability" not in graph.edges[names[i], names[j]]
    assert graph.number_of_edges() == np.count_nonzero(fitted.adjacency_) / 2
    assert list(GraphLearner("exact").fit(X).to_networkx()) == list(range(20))
    assert fitted.score(pd.DataFrame(X, columns=names)) == pytest.approx(GraphLearner("exact").fit(X).score(X))
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.score(pd.DataFrame(X, columns=names[::-1]))


def test_a_degree_can_be_chosen_by_cross_validation():
    search = GridSearchCV(GraphLearner("exact"), {"average_degree": [2, 4, 8, 15]}, cv=3).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["average_degree"] in (4, 8), "the truth has 4"
    assert search.score(X) > GraphLearner("exact", average_degree=15).fit(X).score(X)


def test_plot_draws_every_edge_and_name():
    fitted = GraphLearner("exact").fit(pd.DataFrame(X).add_prefix("x"))
    figure = fitted.plot(seed=1)
    (axis,) = figure.axes
    assert {text.get_text() for text in axis.texts} == set(fitted.feature_names_in_)
    n_drawn = len(axis.collections[0].get_segments()) + len(axis.patches)  # straight and bent
    assert n_drawn == fitted.to_networkx().number_of_edges()
    assert not GraphLearner("exact").fit(X).plot(labels=False).axes[0].texts
    plots.plt.close("all")


# --- what must not matter ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("factor", [1e-150, 12.3, 1e150])
def test_units_scale_the_weights_and_nothing_else(name, factor):
    one, other = make(name).fit(X), make(name).fit(factor * X)
    A, B = one.adjacency_, other.adjacency_ * factor**2
    np.testing.assert_allclose(B, A, rtol=1e-4, atol=1e-6 * A.max())
    np.testing.assert_array_equal(B > 1e-5 * A.max(), A > 1e-5 * A.max())
    freedom = 20 if name == "broad" else 19  # a Laplacian does not see constants
    expected = one.score(X) - freedom * np.log(factor)  # a density has the inverse unit
    for results in ("precision_", "partial_correlation_", "covariance_"):
        power = {"precision_": 2, "partial_correlation_": 0, "covariance_": -2}[results]
        A, B = getattr(one, results), getattr(other, results) * factor**power
        np.testing.assert_allclose(B, A, rtol=1e-4, atol=1e-6 * A.max())
    assert other.score(factor * X) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", LEARNERS)
def test_order_of_nodes_and_samples_does_not_matter(name):
    rng = np.random.default_rng(0)
    order = rng.permutation(20)
    one, other = make(name).fit(X), make(name).fit(rng.permutation(X)[:, order])
    probability = ("edge_probability_",) if one.method == "equivariant" else ()
    for result in ("adjacency_", "laplacian_", "precision_", *probability):
        A = getattr(one, result)
        np.testing.assert_allclose(getattr(other, result), A[order[:, None], order], rtol=1e-3, atol=1e-4 * A.max())


@pytest.mark.parametrize("robust", [False, True])
def test_levels_and_column_units_do_not_matter_if_told(robust):
    rng = np.random.default_rng(1)
    shift, factor = 30 * rng.standard_normal(20), rng.lognormal(0, 2, 20)
    one = GraphLearner("exact", robust=robust).fit(X)
    moved = GraphLearner("exact", robust=robust).fit(X + shift)
    np.testing.assert_allclose(moved.adjacency_, one.adjacency_, rtol=1e-6)
    np.testing.assert_allclose(moved.location_ - one.location_, shift, rtol=1e-6)
    assert (GraphLearner("exact", robust=robust, centre=False).fit(X + shift).adjacency_ != one.adjacency_).any()
    standard = GraphLearner("exact", robust=robust, standardise=True)
    one, other = standard.fit(X).adjacency_, standard.fit(X * factor + shift).adjacency_
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-9)


def test_what_columns_are_centred_on_and_divided_by():
    plain = GraphLearner("exact", standardise=True).fit(X)
    np.testing.assert_allclose(plain.location_, X.mean(0))
    np.testing.assert_allclose(plain.scale_, X.std(0))
    by_itself = GraphLearner("exact").fit((X - X.mean(0)) / X.std(0)).adjacency_
    np.testing.assert_allclose(plain.adjacency_, by_itself, rtol=1e-6)
    level = GraphLearner("exact", centre=False).fit(X)
    assert (level.location_ == 0).all() and (level.scale_ == 1).all()
    robust = GraphLearner("exact", standardise=True, robust=True).fit(X)
    first = np.median(X, 0)
    scale = root_mean_square(X - first, robust=True)
    np.testing.assert_allclose(robust.scale_, scale)
    Z = (X - first) / scale
    again = first + scale * np.median(Z - np.median(Z, 1, keepdims=True), 0)
    np.testing.assert_allclose(robust.location_, again)


# --- what is learned -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_graphs_are_recovered(method):
    fitted = make(method).fit(X)
    assert auc(vector(fitted), TRUTH) > 0.9
    np.testing.assert_array_equal(fitted.adjacency_, fitted.adjacency_.T)
    np.testing.assert_allclose(fitted.laplacian_.sum(1), 0, atol=1e-12)
    np.testing.assert_array_equal(np.diag(fitted.laplacian_.diagonal()) - fitted.laplacian_, fitted.adjacency_)
    assert 0.6 < fitted.adjacency_.sum() / 20 < 1.4, "mean degree, which is 1 in truth"
    assert hasattr(fitted, "edge_probability_") == (method == "equivariant")
    white = 1e-4 * fitted.adjacency_.sum() / 20
    np.testing.assert_allclose(fitted.precision_, fitted.laplacian_ + white * np.eye(20))
    np.testing.assert_allclose(fitted.covariance_ @ fitted.precision_, np.eye(20), atol=1e-7)


def test_mle_exact_and_pds_are_the_solvers_answers():
    y = centred_distances(X)
    np.testing.assert_allclose(vector(GraphLearner("mle").fit(X)), laplacian_mle(y), rtol=1e-5, atol=1e-7)
    w = learn(y, 6).w
    w_hat = vector(GraphLearner("exact", average_degree=6).fit(X))
    np.testing.assert_allclose(w_hat / w_hat.sum(), w / w.sum(), atol=1e-8)
    w = pds(learn(y, 4).theta * y)
    w_hat = vector(GraphLearner("pds").fit(X))
    np.testing.assert_allclose(w_hat / w_hat.sum(), w / w.sum(), atol=1e-6)
    level = distances(X)
    w_hat = vector(GraphLearner("mle", centre=False).fit(X))
    np.testing.assert_allclose(w_hat, laplacian_mle(level), rtol=1e-5, atol=1e-7)


def test_four_edges_per_node_or_all_there_are():
    assert np.count_nonzero(GraphLearner("exact").fit(X).adjacency_) / 20 == pytest.approx(4, rel=0.03)
    three = GraphLearner("exact").fit(X[:, :3]).adjacency_
    assert np.count_nonzero(three) == 6


@pytest.mark.parametrize("c", [1.0, 6.0])
def test_unrolling_sees_distances_as_graphs_of_mean_degree_one_have_them(c):
    """The network on distances in the unit of the convex solution, whatever the mean degree c of the truth."""
    data = X / np.sqrt(c)  # as on the graph c w
    y = centred_distances(data)
    w = learn(y, 4).w
    w = w * 19 / (w @ y)  # Foster
    y = y * (2 * w.sum() / 20)
    network = load(paths.WEIGHTS / "unrolling-ws", Unrolling())
    expected = network.double().predict(y)
    found = vector(GraphLearner("unrolling", prior="WS").fit(data))
    assert torch.equal(found > 0, expected > 1e-6 * expected.max())
    torch.testing.assert_close(found / found.sum(), expected / expected.sum())
    assert 2 * found.sum() / 20 == pytest.approx(c, rel=0.1)
    assert gmse(found / c, TRUTH) < 0.1
    other_unit = network.predict(1.5 * y)
    assert gmse(other_unit / other_unit.sum(), expected / expected.sum()) > 0.01, "the unit matters to it"


def test_unrolling_without_prior_is_the_most_likely_of_four():
    found = {family: GraphLearner("unrolling", prior=family).fit(X) for family in FAMILIES}
    best = max(found.values(), key=lambda fitted: fitted.score(X))
    np.testing.assert_array_equal(GraphLearner("unrolling").fit(X).adjacency_, best.adjacency_)
    assert len({fitted.score(X) for fitted in found.values()}) == 4


def test_probabilities_decide_and_fewer_samples_are_less_sure():
    fitted = GraphLearner(prior="mixed").fit(X)
    p, A = fitted.edge_probability_, fitted.adjacency_
    assert 0 <= p.min() and p.max() <= 1 and (p.diagonal() == 0).all()
    np.testing.assert_array_equal(A > 0, p >= 0.5)
    np.testing.assert_array_equal(GraphLearner(prior="mixed", min_probability=0.9).fit(X).adjacency_ > 0, p >= 0.9)
    doubt = [(q * (1 - q)).mean() for q in (p, GraphLearner(prior="mixed", n_independent=50).fit(X).edge_probability_)]
    assert doubt[1] > 1.5 * doubt[0]
    edge = next(iter(fitted.to_networkx().edges(data=True)))
    assert edge[2]["probability"] == p[edge[0], edge[1]]


def test_the_network_is_told_how_many_samples_there_are():
    network = load(paths.WEIGHTS / "equivariant-sbm", EquivariantL2G())
    for options, N in (({}, 499), ({"n_independent": 77}, 77), ({"centre": False}, 500)):
        y = distances(X) if "centre" in options else centred_distances(X)
        p = network(y, N)[0].detach()
        fitted = GraphLearner(prior="SBM", **options).fit(X)
        np.testing.assert_allclose(squareform(fitted.edge_probability_), p, rtol=1e-4, atol=1e-6)


# --- scale ---------------------------------------------------------------------------------------------------------


def n_components(fitted):
    return csgraph.connected_components(fitted.adjacency_, directed=False)[0]


@pytest.mark.parametrize("method", METHODS)
def test_the_scale_is_the_most_likely_one(method):
    fitted = GraphLearner(method, average_degree=8, prior="WS").fit(X)
    best, L = fitted.score(X), fitted.laplacian_
    for factor in (0.97, 1.03):
        fitted.laplacian_ = factor * L
        assert fitted.score(X) < best


@pytest.mark.parametrize("min_probability", [0, 0.5, 0.99])
def test_the_scale_is_that_of_the_edges_that_are_kept(min_probability):
    """w'y = m - number of components, whatever was dropped."""
    few = X[:40]
    fitted = GraphLearner(prior="mixed", min_probability=min_probability).fit(few)
    w = vector(fitted)
    assert (w @ centred_distances(few)).item() == pytest.approx(20 - n_components(fitted))
    expected = GraphLearner(prior="mixed", min_probability=0).fit(few)
    kept = squareform(fitted.edge_probability_) >= min_probability
    ratio = w[kept] / vector(expected)[kept]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio)), "one factor for all"
    assert gmse(vector(expected), TRUTH) < 0.6, "the expected weights have the least error"


def test_nothing_kept_is_an_empty_graph():
    for options in ({"prior": "mixed"}, {"prior": "broad", "self_loops": False}, {"prior": "broad"}):
        fitted = GraphLearner(min_probability=1, **options).fit(X[:6])
        assert not fitted.adjacency_.any()
        assert not fitted.laplacian_.any()
        assert fitted.edge_probability_.max() > 0
        assert fitted.to_networkx().number_of_edges() == 0
        assert len(fitted.to_pandas()) == 0
        variances = X[:6].var(0, ddof=1)
        expected = 1 / (variances if fitted._can_loop else variances.mean())
        np.testing.assert_allclose(fitted.precision_, expected * np.eye(20))
        assert np.isfinite(fitted.score(X))


def test_negligible_weights_are_no_edges(monkeypatch):
    w = torch.full((190,), 1e-7, dtype=torch.float64)
    w[:30] = 1.0
    w[30] = 1.1e-6
    monkeypatch.setattr(learner, "laplacian_mle", lambda y: w)
    fitted = GraphLearner("mle").fit(X)
    assert np.count_nonzero(squareform(fitted.adjacency_)) == 31


# --- score ---------------------------------------------------------------------------------------------------------


def test_score_is_the_gaussian_log_likelihood():
    fitted = GraphLearner("mle").fit(X[:300])
    L, fresh = fitted.laplacian_, X[300:] - X[:300].mean(0)
    basis = np.linalg.svd(np.ones((1, 20)))[2][1:]  # of what is orthogonal to constants
    K = basis @ (L + 1e-4 * np.trace(L) / 20 * np.eye(20)) @ basis.T
    law = multivariate_normal(cov=np.linalg.inv(K))
    assert fitted.score(X[300:]) == pytest.approx(law.logpdf(fresh @ basis.T).mean(), rel=1e-9)


@pytest.mark.parametrize("robust", [False, True])
def test_one_row_has_a_score(robust):
    fitted = GraphLearner("exact", robust=robust).fit(X)
    rows = [fitted.score(X[k : k + 1]) for k in range(10)]
    assert np.isfinite(rows).all()
    if not robust:  # else rows are brought to the size of the others
        assert np.mean(rows) == pytest.approx(fitted.score(X[:10]))
    middle = fitted.score(fitted.location_[None])  # the mean itself: the mode of the law
    assert max(rows) < middle < np.inf


def test_leaving_one_out_gives_finite_scores():
    scores = cross_val_score(GraphLearner("exact"), X[:12], cv=LeaveOneOut())
    assert np.isfinite(scores).all()
    assert scores.std() > 0


def test_two_nodes_are_one_edge():
    rng = np.random.default_rng(0)
    pair = rng.standard_normal((200, 2)) * 3
    for method in METHODS:
        fitted = make(method).fit(pair)
        D = np.diff(pair - pair.mean(0))[:, 0]
        assert fitted.adjacency_[0, 1] == pytest.approx(1 / (D**2).mean() * 199 / 200)
        L = fitted.laplacian_
        sd = np.sqrt(1 / (2 * L[0, 0] + 1e-4 * L[0, 0]))  # of the difference over sqrt(2)
        expected = multivariate_normal(cov=sd**2).logpdf(D / np.sqrt(2)).mean()
        assert fitted.score(pair) == pytest.approx(expected)
    assert GraphLearner(prior="mixed").fit(pair).edge_probability_.tolist() == [[0, 1], [1, 0]]
    with pytest.raises(AttributeError):
        _ = GraphLearner("exact").fit(pair).edge_probability_


# --- data as they are: signs, self-loops, gaps, time, moments --------------------------------------------------------


SIGNED, W, K = draw(12, 3000, seed=5)  # half of the variance is of the nodes' own


def test_signs_and_self_loops_are_learned():
    fitted = GraphLearner().fit(SIGNED)
    A = fitted.adjacency_
    on = A != 0
    np.testing.assert_array_equal(np.sign(A[on]), np.sign(W[on]))
    assert (A < 0).any()
    np.testing.assert_allclose(fitted.precision_, K, atol=0.15 * K.max())
    S = np.cov(SIGNED.T)
    np.testing.assert_allclose(np.diag(fitted.covariance_), np.diag(S), rtol=1e-4)
    np.testing.assert_allclose((A * fitted.covariance_).sum(), (A * S).sum(), rtol=1e-2)
    law = multivariate_normal(cov=fitted.covariance_)
    assert fitted.score(SIGNED[:50]) == pytest.approx(law.logpdf(SIGNED[:50] - SIGNED.mean(0)).mean())
    assert fitted.score(SIGNED) > GraphLearner(signed=False).fit(SIGNED).score(SIGNED)
    assert (GraphLearner(signed=False).fit(SIGNED).adjacency_ >= 0).all()


def test_the_default_is_broad_and_none_means_what_is_possible():
    default = GraphLearner().get_params()
    assert (default["method"], default["prior"], default["signed"], default["self_loops"]) == (
        "equivariant", "broad", None, None,
    )  # fmt: skip
    one, other = GraphLearner().fit(SIGNED), GraphLearner(signed=True, self_loops=True).fit(SIGNED)
    np.testing.assert_array_equal(one.adjacency_, other.adjacency_)
    for name in list(LEARNERS)[1:]:
        one, other = make(name).fit(X), make(name, signed=False, self_loops=False).fit(X)
        np.testing.assert_array_equal(one.adjacency_, other.adjacency_)


def test_without_self_loops_the_model_is_a_laplacian():
    for signed in (True, False):
        fitted = GraphLearner(signed=signed, self_loops=False).fit(SIGNED)
        white = 1e-4 * np.abs(fitted.adjacency_).sum() / 12
        np.testing.assert_allclose(fitted.precision_, fitted.laplacian_ + white * np.eye(12))
        assert (fitted.adjacency_ < 0).any() == signed
        assert np.isfinite(fitted.score(SIGNED))
        gaps = np.where(np.random.default_rng(0).random(SIGNED.shape) < 0.05, np.nan, SIGNED)
        assert fitted.score(gaps) != fitted.score(SIGNED)
    L = fitted.laplacian_
    law = multivariate_normal(cov=np.linalg.inv(BASIS[:11, :12] @ fitted.precision_ @ BASIS[:11, :12].T))
    centred = SIGNED - SIGNED.mean(0)
    assert fitted.score(SIGNED) == pytest.approx(law.logpdf(centred @ BASIS[:11, :12].T).mean())
    assert np.linalg.matrix_rank(L) < 12


def test_white_noise_is_an_empty_graph():
    noise = np.random.default_rng(0).standard_normal((500, 15)) * np.arange(1, 16)
    fitted = GraphLearner().fit(noise)
    assert not fitted.adjacency_.any()
    np.testing.assert_allclose(fitted.precision_, np.diag(1 / noise.var(0, ddof=1)))


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("options", [{}, {"standardise": True}, {"centre": False}, {"n_independent": 99}])
def test_moments_are_enough(name, options):
    data = X[:, :8] if name != "unrolling" else X
    S = data.T @ data / 500 if "centre" in options else np.cov(data.T)
    names = [f"x{k}" for k in range(data.shape[1])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = make(name, **options).fit(pd.DataFrame(data, columns=names))
        fitted = make(name, **options).fit_moments(S, 500, names=names)
    c = rows.scale_ / fitted.scale_  # divided by n, not by n - 1
    np.testing.assert_allclose(fitted.adjacency_, rows.adjacency_ / np.outer(c, c), rtol=1e-4, atol=1e-6 * S.max())
    assert list(fitted.feature_names_in_) == names and list(fitted.to_networkx()) == names
    assert vars(fitted).keys() == vars(rows).keys()
    assert (fitted.n_samples_, fitted.n_effective_) == (rows.n_samples_, rows.n_effective_)


@pytest.mark.parametrize("n", [2, 3])
def test_a_mean_costs_one_of_few_rows(n):
    few = X[:n, :8]
    rows = GraphLearner("exact").fit(few)
    fitted = GraphLearner("exact").fit_moments(np.cov(few.T), n)
    np.testing.assert_allclose(rows.adjacency_, fitted.adjacency_, rtol=1e-6, atol=1e-9)


def test_moments_that_cannot_be():
    S = np.cov(SIGNED.T)
    for options, name in (({"candidates": 5}, "candidates"), ({"robust": True}, "robust")):
        with pytest.raises(ValueError, match=f"{name}="):
            GraphLearner(**options).fit_moments(S, 100)
    with pytest.raises(ValueError, match="n_independent='auto': time shows in rows only"):
        GraphLearner(n_independent="auto").fit_moments(S, 100)
    with pytest.raises(ValueError, match="time_series=True: time shows in rows only"):
        GraphLearner(time_series=True).fit_moments(S, 100)
    with pytest.raises(ValueError, match="names has 3 entries and S 12 columns"):
        GraphLearner().fit_moments(S, 100, names=["a", "b", "c"])
    with pytest.raises(ValueError, match=r"column names \['a', 'a'"):
        GraphLearner().fit_moments(S, 100, names=["a"] * 12)
    for factor in (1e-320, 1e306):
        with pytest.raises(ValueError, match=r"X varies by .* or S by its square"):
            GraphLearner().fit_moments(factor * np.eye(3), 100)
    fitted = GraphLearner(time_series=True).fit(slow_series())
    assert not hasattr(fitted.set_params(time_series=False).fit_moments(S, 100), "memory_")
    fitted = GraphLearner().fit(pd.DataFrame(X).add_prefix("x"))
    with pytest.raises(ValueError, match="symmetric"):
        fitted.fit_moments(X[:3], 10)
    assert fitted.node_names_[0] == "x0", "as it was"
    assert fitted.fit_moments(S, 100).node_names_.tolist() == list(range(12))
    wrong = np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
    with pytest.warns(UserWarning, match="contradict each other"):
        repaired = GraphLearner().fit_moments(wrong, 100)
    assert "clipped to 0" in repaired.summary()
    assert np.linalg.eigvalsh(repaired.precision_)[0] > 0


def test_gaps_cost_samples_and_nothing_else(monkeypatch):
    asked = {}
    network = toys.ShrunkInverse()

    def answer(S, n, **kinds):
        asked.update(S=S.numpy(), n=n.numpy())
        return network(S, n, **kinds)

    monkeypatch.setattr(learner, "_network", lambda *_: answer)
    gaps = np.where(np.random.default_rng(0).random(SIGNED.shape) < 0.2, np.nan, SIGNED)
    gaps[7] = np.nan
    fitted = GraphLearner().fit(gaps)
    known = ~np.isnan(gaps)
    np.testing.assert_array_equal(asked["n"], known.T.astype(float) @ known - 1)
    np.testing.assert_allclose(asked["S"] * fitted._unit**2, np.cov(SIGNED.T), atol=0.1 * np.cov(SIGNED.T).max())
    np.testing.assert_allclose(fitted.precision_, K, atol=0.2 * K.max())
    off = ~np.eye(12, dtype=bool)
    assert fitted.n_samples_ == 2999 and fitted.n_effective_ == pytest.approx(asked["n"][off].mean())
    assert fitted._missing == pytest.approx(np.isnan(np.delete(gaps, 7, 0)).mean())
    GraphLearner(n_independent=300).fit(gaps)
    np.testing.assert_allclose(asked["n"], (known.T.astype(float) @ known) * 300 / 2999)
    rows = [fitted.score(gaps[k : k + 1]) for k in range(5)]
    assert fitted.score(gaps[:5]) == pytest.approx(np.mean(rows))
    for options in ({"method": "exact"}, {"prior": "mixed"}, {"candidates": 5}):
        with pytest.raises(ValueError, match=r"X contains NaN: .*or impute"):
            GraphLearner(**options).fit(gaps)


def test_copies_are_told_in_spite_of_gaps_and_noise_is_none():
    rng = np.random.default_rng(0)
    for n, m in ((10, 15), (60, 8)):
        noise = rng.standard_normal((n, m))
        for data, told in ((noise, False), (np.hstack([noise, 3 - noise[:, :1]]), True)):
            gaps = np.where(rng.random(data.shape) < 0.15, np.nan, data)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                doubts = GraphLearner().fit(gaps).doubts_
            assert any(f"1 pair (0 and {m}) of columns are (nearly) copies" in doubt for doubt in doubts) == told
            assert any("copies" in doubt for doubt in doubts) == told


def test_a_score_of_gaps_is_a_density_of_what_is_known():
    gaps = np.where(np.random.default_rng(1).random(SIGNED.shape) < 0.2, np.nan, SIGNED)
    known = (~np.isnan(gaps)).sum(1).mean()
    for factor in (1e-3, 1e100):
        scaled = GraphLearner().fit(factor * gaps).score(factor * gaps)
        assert scaled == pytest.approx(GraphLearner().fit(gaps).score(gaps) - known * np.log(factor), rel=1e-9)
    law = multivariate_normal(cov=(fitted := GraphLearner().fit(SIGNED)).covariance_[:5, :5])
    row = np.r_[SIGNED[0, :5], np.full(7, np.nan)]
    assert fitted.score(row[None]) == pytest.approx(law.logpdf(row[:5] - fitted.location_[:5]))


def test_tables_without_values_are_refused():
    empty = np.full((20, 12), np.nan)
    every_other = np.where(np.arange(3000)[:, None] % 2, np.nan, slow_series())
    for wrong, options in ((empty, {}), (every_other, {"time_series": True})):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            if not options:
                with pytest.raises(ValueError, match="fewer than 3 values"):
                    GraphLearner(**options).fit(wrong)
            with pytest.raises(ValueError, match="X has no row with a value"):
                GraphLearner(**options).fit(slow_series()).score(wrong)


def test_masked_values_count_as_missing():
    gaps = np.random.default_rng(0).random(SIGNED.shape) < 0.1
    masked, nan = np.ma.array(SIGNED, mask=gaps), np.where(gaps, np.nan, SIGNED)
    fitted, expected = GraphLearner().fit(masked), GraphLearner().fit(nan)
    np.testing.assert_array_equal(fitted.adjacency_, expected.adjacency_)
    assert fitted.score(masked) == expected.score(nan)
    with pytest.raises(ValueError, match="contains NaN"):
        GraphLearner("exact").fit(masked)
    with pytest.raises(ValueError, match="S contains NaN"):
        GraphLearner().fit_moments(np.ma.array(np.eye(3), mask=np.eye(3)), 9)


def test_labels_that_are_no_texts_become_texts():
    frame = pd.DataFrame(SIGNED)
    for labels in (
        range(5, 17),
        [*range(11), "last"],
        [("a", k) for k in range(12)],
        pd.date_range("2020", periods=12),
    ):
        frame.columns = labels
        fitted = GraphLearner().fit(frame)
        assert fitted.node_names_.tolist() == [str(label) for label in frame.columns]
        assert np.isfinite(fitted.score(frame))
        of_moments = GraphLearner().fit_moments(frame.cov(), len(frame))
        assert of_moments.node_names_.tolist() == fitted.node_names_.tolist()
    frame.columns = range(12)
    assert GraphLearner().fit(frame).node_names_.tolist() == list(range(12))
    frame.columns = [0, 0, *range(10)]
    with pytest.raises(ValueError, match=r"column names \[0, 0, 0\] are missing or not the only ones"):
        GraphLearner().fit(frame)


def test_patterns_are_told_however_rows_are_counted():
    """The weekends of two years."""
    rng = np.random.default_rng(0)
    weeks = 3 * (np.arange(730) % 7 >= 5)[:, None] * rng.standard_normal(10) + rng.standard_normal((730, 10))
    for options in ({}, {"n_independent": "auto"}, {"time_series": True}):
        with pytest.warns(UserWarning, match="as if a pattern came back every 7 rows"):
            GraphLearner(**options).fit(weeks)
    assert not any("rows" in doubt for doubt in GraphLearner(n_independent=730).fit(weeks).doubts_)


def test_a_column_with_too_few_values_is_named():
    frame = pd.DataFrame(SIGNED[:50]).add_prefix("x")
    frame.loc[2:, "x4"] = np.nan
    with pytest.raises(ValueError, match=r"fewer than 3 values, \['x4'\]: drop these columns"):
        GraphLearner().fit(frame)


@pytest.mark.parametrize("name", ["broad", "equivariant"])
def test_time_series_are_worth_less(name):
    slow = SIGNED.copy()
    for t in range(1, len(slow)):
        slow[t] += 0.8 * slow[t - 1]
    with pytest.warns(UserWarning, match="Set time_series=True, .*n_independent='auto'") as told:
        plain = make(name).fit(slow)
    assert told[0].filename == __file__
    assert any("as in a time series" in doubt for doubt in plain.doubts_)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        GraphLearner().fit(SIGNED)
        fitted = make(name, n_independent="auto", signed=False if name == "equivariant" else None)
        if name == "broad":
            fitted.fit(slow)
            assert fitted.n_effective_ == pytest.approx(3000 * (1 - 0.64) / (1 + 0.64), rel=0.1)
            assert not any("time series" in doubt for doubt in fitted.doubts_)


def slow_series(memory=0.9):
    slow = SIGNED.copy()
    for t in range(1, len(slow)):
        slow[t] += memory * slow[t - 1]
    return slow + 5


@pytest.mark.parametrize("name", ["broad", "exact"])
def test_time_series_are_filtered(name):
    slow = slow_series()
    with warnings.catch_warnings():
        warnings.simplefilter("error" if name == "broad" else "ignore", UserWarning)
        fitted = make(name, time_series=True).fit(slow)
        memory = moments.find_memory(slow)
        by_hand = make(name, n_independent="auto").fit(moments.forget(slow, memory))
    np.testing.assert_array_equal(fitted.memory_, memory)
    assert memory[0] == pytest.approx(0.9, abs=0.05)
    np.testing.assert_array_equal(fitted.adjacency_, by_hand.adjacency_)
    np.testing.assert_array_equal(fitted.location_, by_hand.location_)
    assert fitted.n_effective_ == by_hand.n_effective_ > 0.95 * len(slow)
    assert fitted.score(slow[:200]) == by_hand.score(moments.forget(slow[:200], memory))
    assert f"less what the last {len(memory)} rows foretell" in fitted.summary()
    with pytest.raises(ValueError, match=f"X has {len(memory)} rows: with time_series=True more than {len(memory)}"):
        fitted.score(slow[: len(memory)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        told = make(name, time_series=True, n_independent=77).fit(slow)
        assert told.n_effective_ == 77
        assert not hasattr(told.set_params(time_series=False).fit(slow), "memory_")


def test_gaps_of_time_series_grow_and_are_filled():
    slow = slow_series()
    slow[np.random.default_rng(3).random(slow.shape) < 0.05] = np.nan
    fitted = GraphLearner(time_series=True).fit(slow)
    full = GraphLearner().fit(SIGNED)
    near = np.abs(fitted.partial_correlation_ - full.partial_correlation_).max()
    assert near < 0.15
    assert fitted._missing > 0.05


def test_the_mean_of_filled_columns_is_not_that_of_what_is_known():
    """Both columns follow one large signal; the second one is known only where that is high."""
    rng = np.random.default_rng(0)
    common = 10 * rng.standard_normal((2000, 1))
    data = common + rng.standard_normal((2000, 4))
    data[common[:, 0] < 0, 1] = np.nan
    fitted = GraphLearner().fit(data)
    assert np.nanmean(data[:, 1]) > 7
    assert abs(fitted.location_[1]) < 1
    np.testing.assert_allclose(fitted.location_[[0, 2, 3]], data[:, [0, 2, 3]].mean(0), atol=1e-6)
    assert "filled by what the rest of their rows says" in fitted.summary()


def test_signals_that_were_smoothed_are_doubted():
    """White noise diffused over a grid: nodes two steps apart have negative partial correlations."""
    grid = nx.grid_2d_graph(4, 5)
    values, V = np.linalg.eigh(nx.laplacian_matrix(grid).toarray())
    X = np.random.default_rng(0).standard_normal((1000, 20)) @ (V * np.exp(-5 * values / values[-1]) @ V.T)
    with pytest.warns(UserWarning, match=r"negative edges join two nodes .* signed=False leaves these edges out"):
        smoothed = GraphLearner().fit(X)
    assert any("negative edges join" in doubt for doubt in smoothed.doubts_)
    with pytest.warns(UserWarning, match="clearly negative"):
        unsigned = GraphLearner(signed=False).fit(X)
    assert not any("negative edges join" in doubt for doubt in unsigned.doubts_)
    assert (unsigned.adjacency_ > 0)[nx.to_numpy_array(grid) > 0].mean() > 0.9
    white = GraphLearner().fit(np.random.default_rng(1).standard_normal((1000, 20)))
    assert white.doubts_ == []


def test_doubts_are_kept_and_told_once():
    data = SIGNED * 10.0 ** np.linspace(0, 4, 12)
    data[:, 3] = data[:, 2]
    with pytest.warns(UserWarning) as told:
        fitted = GraphLearner().fit(data)
    assert [str(w.message) for w in told] == fitted.doubts_
    assert len(fitted.doubts_) == len(set(fitted.doubts_)) == 2
    assert {w.filename for w in told} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        clean = GraphLearner().fit(SIGNED)
        with pytest.raises(UserWarning):
            clean.fit(data)
    assert clean.doubts_ == [], "a warning that is an error leaves the learner as it was"
    with pytest.warns(UserWarning, match="clearly negative"):
        GraphLearner(signed=False).fit(SIGNED)
    with pytest.warns(UserWarning, match="clearly negative"):
        GraphLearner("exact").fit(SIGNED)
    with pytest.warns(UserWarning, match="4 independent samples are outside of 5 to 10,000"):
        GraphLearner().fit(SIGNED[:5])


HARD = {
    "every column twice": np.hstack([SIGNED[:60], SIGNED[:60]]),
    "opposite columns": np.hstack([SIGNED[:60], -SIGNED[:60]]),
    "one signal everywhere": SIGNED[:60, :1] * np.ones(5),
    "a constant column": np.hstack([SIGNED[:60], np.full((60, 1), 5.0)]),
    "a column of zeros": np.hstack([SIGNED[:60], np.zeros((60, 1))]),
    "one column varies": np.hstack([SIGNED[:60, :1], np.ones((60, 3))]),
    "two samples": SIGNED[:2],
    "two nodes": SIGNED[:60, :2],
    "two copies": SIGNED[:60, [0, 0]],
    "small": 1e-100 * SIGNED[:60],
    "large": 1e100 * SIGNED[:60],
    "units": SIGNED[:60] * 10.0 ** np.linspace(-15, 15, 12),
    "an outlier": np.vstack([SIGNED[:60], 1e6 * SIGNED[60]]),
    "half of it missing": np.where(np.random.default_rng(0).random((60, 12)) < 0.5, np.nan, SIGNED[:60]),
}


LAPLACIAN = {"signed": False, "self_loops": False}
COMBINATIONS = [(toys.ShrunkInverse, options) for options in ({}, {"robust": True}, {"self_loops": False}, LAPLACIAN)]
COMBINATIONS += [(toys.ShrunkInverse, {"min_probability": 0}), (BroadL2G, {}), (BroadL2G, LAPLACIAN)]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("network, options", COMBINATIONS)
def test_nothing_is_ever_infinite(case, options, network, monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = network()
    monkeypatch.setattr(learner, "_network", lambda *_: model)
    fitted = GraphLearner(**options).fit(HARD[case])
    for result in ("adjacency", "laplacian", "edge_probability", "precision", "covariance", "partial_correlation"):
        assert np.isfinite(getattr(fitted, f"{result}_")).all(), result
    m = HARD[case].shape[1]
    scaled = 2 * np.eye(m) - fitted.partial_correlation_
    assert np.linalg.eigvalsh(scaled)[0] > 0, "positive definite"
    assert fitted.score(HARD[case]) < np.inf
    assert fitted.summary()


def test_units_that_cannot_be_multiplied_are_refused():
    with pytest.raises(ValueError, match=r"column 11 of X varies 1e\+200 times as much as 0: set standardise=True"):
        GraphLearner().fit(SIGNED * 10.0 ** np.linspace(-100, 100, 12) / SIGNED.std(0))
    one, other = (
        GraphLearner(standardise=True).fit(data) for data in (SIGNED, SIGNED * 1e90 ** np.linspace(-1, 1, 12))
    )
    np.testing.assert_allclose(other.precision_, one.precision_)


@pytest.mark.parametrize("options", [{}, {"signed": False}, {"self_loops": False}, {"robust": True}])
def test_candidates_work_with_both_signs(options):
    fitted = GraphLearner(candidates=4, verbose=False, **options).fit(SIGNED)
    assert all(
        map(sparse.issparse, (fitted.adjacency_, fitted.precision_, fitted.laplacian_, fitted.edge_probability_))
    )
    assert fitted.adjacency_.nnz <= 2 * 4 * 12
    assert (fitted.adjacency_.data < 0).any() == ("signed" not in options)
    assert np.linalg.eigvalsh(fitted.precision_.toarray())[0] > 0
    assert "Graph of 12 nodes" in fitted.summary()


def test_robust_finds_the_graph_under_heavy_tails_with_signs():
    rng = np.random.default_rng(3)
    wild = SIGNED + 30 * rng.standard_normal(SIGNED.shape) * (rng.random(SIGNED.shape) < 0.01)
    error = [np.abs(GraphLearner(robust=robust).fit(wild).precision_ - K).max() for robust in (False, True)]
    assert error[1] < 0.5 * error[0]
    assert error[1] < 0.35 * K.max()


# --- outliers ------------------------------------------------------------------------------------------------------


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
    wild[0, 0] = 1e4
    plain, robust = (
        gmse(vector(GraphLearner("exact", robust=r).fit(wild)), vector(GraphLearner("exact", robust=r).fit(X)))
        for r in (False, True)
    )
    assert robust < 0.001 < 0.05 < plain


def test_robust_samples_are_brought_to_one_size():
    """A factor per sample changes nothing, and a sample of zeros counts as one."""
    factor = np.random.default_rng(4).lognormal(0, 1, (500, 1))
    options = {"method": "mle", "robust": True, "centre": False}
    one, other = (GraphLearner(**options).fit(data) for data in (X, X * factor))
    A, B = one.adjacency_ / one.adjacency_.sum(), other.adjacency_ / other.adjacency_.sum()
    np.testing.assert_allclose(B, A, rtol=1e-6, atol=1e-9)
    silent = np.vstack([X, np.zeros((1, 20))])
    assert np.isfinite(GraphLearner(**options).fit(silent).adjacency_).all()


# --- candidates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CANDIDATE_METHODS)
@pytest.mark.parametrize("robust", [False, True])
def test_all_candidates_are_the_dense_answer(method, robust, capsys):
    frame = pd.DataFrame(X).add_prefix("x")
    options = {"method": method, "robust": robust, "prior": "BA"}
    dense = GraphLearner(**options).fit(frame)
    assert capsys.readouterr().out == ""
    fitted = GraphLearner(candidates=19, **options).fit(frame)
    told = capsys.readouterr().out
    assert "20 nodes, 500 samples: about " in told and "190 pairs" in told and f"{method} in " in told
    assert sparse.issparse(fitted.adjacency_) and sparse.issparse(fitted.laplacian_)
    A = dense.adjacency_
    np.testing.assert_allclose(fitted.adjacency_.toarray(), A, atol=0.1 * A.max())
    np.testing.assert_allclose(fitted.laplacian_.toarray().sum(1), 0, atol=1e-9)
    assert list(fitted.to_networkx()) == list(frame)
    GraphLearner(candidates=3, verbose=False, **options).fit(X)
    assert capsys.readouterr().out == ""
    GraphLearner(verbose=True, **options).fit(X)
    assert "190 pairs" in capsys.readouterr().out


def test_the_network_on_candidates_is_near_the_one_on_all_pairs(monkeypatch):
    truth = sample_graphs("WS", 1, 60, seed=3, dtype=torch.float64)[0]
    data = sample_signals(truth, 600, seed=4).numpy()
    dense, near = make("equivariant").fit(data), make("equivariant", candidates=15, verbose=False)
    probability = near.fit(data).edge_probability_
    assert sparse.issparse(probability) and probability.nnz < 60 * 30
    assert np.abs(probability.toarray() - dense.edge_probability_).mean() < 0.005
    monkeypatch.setattr(atom_lists, "DENSE_NODES", 0)
    sketched = near.fit(data)
    assert gmse(vector(dense), truth) < 0.05 and gmse(vector(sketched), truth) < 0.1


@pytest.mark.parametrize("method", CANDIDATE_METHODS)
def test_candidates_never_list_all_pairs(method, monkeypatch):
    def forbidden(*_):
        raise AssertionError("all pairs of nodes were listed")

    monkeypatch.setattr("helpers.learner.all_pairs", forbidden)
    monkeypatch.setattr("helpers.learner.distances", forbidden)
    fitted = GraphLearner(method, prior="BA", candidates=5, verbose=False, robust=True).fit(X)
    assert fitted.adjacency_.nnz <= 2 * 5 * 20
    with pytest.raises(ValueError, match="candidates=None"):
        fitted.score(X)


def test_two_candidates_per_node_are_enough_to_learn_from():
    for method in CANDIDATE_METHODS:
        fitted = GraphLearner(method, prior="WS", candidates=2, verbose=False).fit(X)
        assert fitted.adjacency_.nnz > 0
        assert np.isfinite(fitted.adjacency_.data).all()


def test_the_seed_of_the_search_is_passed_on(monkeypatch):
    seeds = []

    def search(Z, k, *, seed):
        seeds.append((k, seed))
        return learner.all_pairs(20), distances(Z)

    monkeypatch.setattr(learner, "candidate_edges", search)
    for random_state in (0, 0, 1, np.random.RandomState(0)):
        GraphLearner("exact", candidates=7, random_state=random_state, verbose=False).fit(X)
    assert seeds[0] == seeds[1] == seeds[3] != seeds[2]
    assert seeds[0][0] == 7


# --- memory --------------------------------------------------------------------------------------------------------


class Memory:
    available = 0


@pytest.fixture
def free(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    return Memory


@pytest.mark.parametrize("name", LEARNERS)
def test_what_cannot_fit_is_refused_with_what_would(name, free):
    """The advice is followed to the letter, and works."""
    free.available = 3 * 10**8
    data = np.random.default_rng(0).standard_normal((5, 1500))
    with pytest.raises(MemoryError, match=r"1,500 nodes need about \d(\.\d)? GB, 0.28 GB are free: method=") as error:
        make(name).fit(data)
    advice, candidates = re.search(r"method='(\w+)', candidates=(\d+) needs 0\.\d+ GB", str(error.value)).groups()
    assert advice == {"broad": "equivariant", "equivariant": "equivariant", "pds": "pds"}.get(name, "exact")
    following = make(name, method=advice, candidates=int(candidates), verbose=False)
    following._check_options(1500)
    following._check_memory(*data.shape)
    if advice == "exact":
        assert following.fit(data).adjacency_.shape == (1500, 1500)
    more = {"broad": 30, "equivariant": 50}.get(name, 100)
    assert int(candidates) == more, "as many as fit"


def test_if_nothing_fits_there_must_be_less(free):
    free.available = 1000
    data = np.random.default_rng(0).standard_normal((5, 300))
    with pytest.raises(MemoryError, match="fewer samples or nodes"):
        GraphLearner("exact", candidates=5, verbose=False).fit(data)


def test_memory_that_is_just_enough_is_enough(free):
    free.available = fit_memory(500, 20, None, "exact")
    GraphLearner("exact").fit(X)
    free.available -= 1
    with pytest.raises(MemoryError):
        GraphLearner("exact").fit(X)


def test_memory_grows_with_samples_pairs_and_messages():
    assert fit_memory(100, 50, None, "mle") == 8 * (3 * 100 * 50 + 60 * 50**2)
    assert fit_memory(100, 50, None, "broad") == 8 * (3 * 100 * 50 + 190 * 50**2)
    assert fit_memory(100, 500, 10, "broad") - fit_memory(100, 500, 10, "pds") == 11e6 + 6e6
    search = estimate_memory(5000, 100, 10) + 8 * 3 * 100 * 5000
    assert fit_memory(100, 5000, 10, "exact") == search
    assert fit_memory(100, 5000, 10, "equivariant") == search + 800 * 5000 * 10 + 24 * 2000**2
    assert fit_memory(100, 500, 10, "equivariant") - fit_memory(100, 500, 10, "pds") == 4e6 + 6e6


def test_no_more_candidates_are_advised_than_there_are_nodes():
    assert "candidates=10 " in fitting_options(5, 11, "exact", 10**12)
    assert "candidates=100 " in fitting_options(5, 101, "exact", 10**12)
    assert fitting_options(5, 5, "exact", 10**12) == "take fewer samples or nodes"


# --- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"method": "l2g"}, {"prior": "ba"}, {"average_degree": 0.5}, {"average_degree": 20}, {"min_probability": 2},
        {"min_probability": -0.1}, {"min_probability": None}, {"n_independent": 0}, {"n_independent": np.inf},
        {"n_independent": np.nan}, {"n_independent": "all"}, {"average_degree": 0}, {"average_degree": np.inf},
        {"candidates": 0}, {"candidates": 1}, {"candidates": 2.5}, {"candidates": 20}, {"candidates": "5"},
        {"method": "mle", "candidates": 5}, {"prior": "mixed", "method": "unrolling", "candidates": 5},
        {"signed": True}, {"self_loops": True}, {"signed": 2}, {"self_loops": "no"}, {"n_independent": "automatic"},
        {"signed": True, "method": "equivariant", "prior": "mixed"}, {"time_series": 1}, {"time_series": "yes"},
        {"signed": 0, "method": "equivariant"}, {"self_loops": 0, "method": "equivariant"}, {"self_loops": np.True_},
        {"average_degree": True}, {"n_independent": True}, {"n_independent": 1e300}, {"n_independent": 10**400},
        {"centre": "no"}, {"standardise": np.nan}, {"robust": 1}, {"robust": None}, {"verbose": "no"}, {"verbose": 0},
    ],
)  # fmt: skip
def test_bad_options_are_named(options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}: ")):
        GraphLearner(**{"method": "exact"} | options).fit(X)


@pytest.mark.parametrize(
    "options",
    [
        {"average_degree": 1.5}, {"average_degree": 19}, {"min_probability": 0}, {"min_probability": 1},
        {"n_independent": 1}, {"candidates": 2}, {"candidates": 19}, {"candidates": np.int64(5)},
    ],
)  # fmt: skip
def test_the_limits_of_options_are_possible(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        GraphLearner(**{"method": "exact", "verbose": False} | options).fit(X)


@pytest.mark.parametrize("name", ["signed", "self_loops"])
def test_flags_of_numpy_mean_what_they_say(name):
    for flag in (False, True):
        one, other = (GraphLearner(**{name: value}).fit(SIGNED) for value in (flag, np.bool_(flag)))
        np.testing.assert_array_equal(one.adjacency_, other.adjacency_)
        assert one.summary() == other.summary()
    flags = {name: np.False_ for name in ("centre", "standardise", "robust", "time_series", "verbose")}
    GraphLearner("exact", **flags).fit(X)


def test_a_degree_that_the_candidates_do_not_have_is_refused():
    with pytest.raises(ValueError, match=r"average_degree=19: .*take more candidates"):
        GraphLearner("exact", average_degree=19, candidates=3, verbose=False).fit(X)


@pytest.mark.parametrize("average_degree", [1, 1.2, 1.5, 1.8])
def test_very_sparse_graphs_are_learned_or_the_nearest_is_and_says_so(average_degree):
    for seed in range(3):
        data = np.random.default_rng(seed).standard_normal((30, 20)) @ np.diag(np.linspace(1, 9, 20))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            A = GraphLearner("exact", average_degree=average_degree).fit(data).adjacency_
        degree = np.count_nonzero(A) / 20
        assert np.isfinite(A).all() and A.any(1).all()
        reached = abs(degree - average_degree) <= max(0.02 * average_degree, 1 / 20)
        said = any(issubclass(w.category, ConvergenceWarning) and "not reached" in str(w.message) for w in told)
        assert reached != said
        assert degree < 3.5


def test_bad_columns_are_named():
    frame = pd.DataFrame(X).add_prefix("x").assign(copy=X[:, 3])
    with pytest.raises(ValueError, match=r"\['x3', 'copy'\] of X are equal"):
        GraphLearner("mle").fit(frame)
    assert GraphLearner("exact").fit(frame).adjacency_[3, 20] > 0
    with pytest.raises(ValueError, match=r"\['x3', 'copy'\] of X are equal, infinitely connected for unrolling: drop"):
        GraphLearner("unrolling").fit(frame)
    with pytest.raises(ValueError, match=r"constant columns, \['copy'\]"):
        GraphLearner(standardise=True).fit(frame.assign(copy=0.1))
    with pytest.raises(ValueError, match=r"constant columns, \['copy'\]"):
        GraphLearner(standardise=True).fit(frame.assign(copy=1.0))
    with pytest.raises(ValueError, match="X is constant"):
        GraphLearner("exact").fit(np.ones((5, 4)))
    with pytest.raises(ValueError, match="X has constant columns"):
        GraphLearner("exact", standardise=True).fit(np.ones((5, 4)))
    with pytest.raises(ValueError, match="X is constant"):
        GraphLearner("exact").fit(X[:, :1] * np.ones(20))  # the same signal everywhere
    with pytest.raises(AttributeError, match="method='exact' has no edge probabilities"):
        _ = GraphLearner("exact").fit(X).edge_probability_


def test_columns_that_always_agree_are_an_edge_and_nothing_is_infinite():
    data = np.random.default_rng(0).standard_normal((60, 10))
    data[:, 1] = data[:, 0]
    for options in ({}, {"prior": "mixed"}, {"prior": "mixed", "min_probability": 0.9}, {"method": "exact"}):
        fitted = GraphLearner(**options).fit(data)
        assert fitted.adjacency_[0, 1] > 0
        assert np.isfinite(fitted.adjacency_).all()


@pytest.mark.parametrize("factor", [1e155, 1e200, 1e306, 1e-155, 1e-200])
def test_units_beyond_floating_point_are_refused(factor):
    with pytest.raises(ValueError, match=r"X (varies by|has values beyond) .*; divide X by"):
        GraphLearner("exact").fit(factor * X)


@pytest.mark.parametrize("factor", [1e-200, 1e-155, 1e140])
def test_standardised_columns_may_have_any_small_unit(factor):
    one, other = (GraphLearner("exact", standardise=True).fit(c * X) for c in (1.0, factor))
    np.testing.assert_allclose(other.adjacency_, one.adjacency_, rtol=1e-6)
    np.testing.assert_allclose(other.scale_ / factor, one.scale_, rtol=1e-6)


@pytest.mark.parametrize("m, family", [(8, "WS"), (60, "BA")])
def test_unrolling_warns_where_it_was_not_trained(m, family):
    data = sample_signals(sample_graphs(family, 1, m, seed=1), 200, seed=2)[0].numpy()
    with pytest.warns(UserWarning, match=f"trained on graphs of 20 nodes and X has {m}: .*='equivariant'") as told:
        fitted = GraphLearner("unrolling", prior=family).fit(data)
    degree = np.count_nonzero(fitted.adjacency_) / m
    assert f"this graph of {degree:.3g} edges per node" in str(told[-1].message)
    assert told[-1].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        GraphLearner("unrolling").fit(X)
        GraphLearner("exact").fit(data)


def test_a_fit_that_fails_leaves_the_learner_as_it_was():
    fitted = GraphLearner("mle").fit(pd.DataFrame(X).add_prefix("x"))
    before = dict(vars(fitted))
    for wrong in (np.ones((4, 3)), np.hstack([X, X]), np.full((3, 5), np.nan)):
        with pytest.raises(ValueError):
            fitted.fit(wrong)
        assert vars(fitted).keys() == before.keys()
        assert all(vars(fitted)[name] is value for name, value in before.items())
    assert fitted.score(pd.DataFrame(X).add_prefix("x")) < 0
    fresh = GraphLearner("mle")
    with pytest.raises(ValueError):
        fresh.fit(np.ones((4, 3)))
    with pytest.raises(NotFittedError):
        fresh.score(X)
    assert not hasattr(fresh, "n_features_in_")


def test_a_second_fit_leaves_nothing_of_the_first():
    twice = GraphLearner().fit(pd.DataFrame(X).add_prefix("x"))
    twice.set_params(method="exact").fit(X[:, :7])
    once = GraphLearner("exact").fit(X[:, :7])
    assert vars(twice).keys() == vars(once).keys()
    np.testing.assert_array_equal(twice.adjacency_, once.adjacency_)
