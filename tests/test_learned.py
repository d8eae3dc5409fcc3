"""What comes after fit: matrices, lists, frames, drawings and the summary."""

import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import toys
from matplotlib.colors import to_hex
from scipy import sparse
from sklearn.exceptions import NotFittedError
from test_completion import draw

from helpers import GraphLearner, learner, plots

X, W, K = draw(10, 3000, p=0.5)
FRAME = pd.DataFrame(X, columns=[f"sensor {k}" for k in range(10)])


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    real = learner._network
    fake = toys.ShrunkInverse()
    monkeypatch.setattr(learner, "_network", lambda model, *family: fake if model == "broad" else real(model, *family))


@pytest.fixture
def fitted():
    return GraphLearner().fit(FRAME)


def test_matrices_agree_with_each_other(fitted):
    A, P = fitted.adjacency_, fitted.precision_
    off = ~np.eye(10, dtype=bool)
    np.testing.assert_array_equal(P[off], -A[off])
    np.testing.assert_allclose(fitted.covariance_ @ P, np.eye(10), atol=1e-9)
    d = np.sqrt(np.diag(P))
    np.testing.assert_allclose(fitted.partial_correlation_[off], (A / np.outer(d, d))[off])
    np.testing.assert_array_equal(np.diag(fitted.partial_correlation_), 1)
    np.testing.assert_allclose(fitted.laplacian_, np.diag(np.abs(A).sum(1)) - A)
    assert (A < 0).any() and (A > 0).any()


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_covariances_are_found_in_any_unit(fitted, unit):
    other = GraphLearner().fit(unit * FRAME)
    np.testing.assert_allclose(other.covariance_ / unit**2, fitted.covariance_, rtol=1e-6)


def test_edges_carry_their_sign_and_probability(fitted):
    graph = fitted.to_networkx()
    assert list(graph) == list(FRAME)
    frame = fitted.to_pandas()
    assert len(frame) == graph.number_of_edges() == np.count_nonzero(fitted.adjacency_) / 2
    assert list(frame) == ["source", "target", "weight", "partial_correlation", "probability"]
    number = {name: k for k, name in enumerate(FRAME)}
    for row in frame.itertuples():
        i, j = number[row.source], number[row.target]
        assert row.weight == graph.edges[row.source, row.target]["weight"] == fitted.adjacency_[i, j]
        assert row.probability == graph.edges[row.source, row.target]["probability"] == fitted.edge_probability_[i, j]
        assert row.partial_correlation == pytest.approx(fitted.partial_correlation_[i, j])
    assert (frame.weight < 0).any()
    order = sorted(zip(-frame.probability, -frame.weight.abs()))
    assert order == list(zip(-frame.probability, -frame.weight.abs())), "the most probable, then the strongest first"


def test_without_probabilities_there_is_no_such_column():
    frame = GraphLearner("exact").fit(FRAME).to_pandas()
    assert list(frame) == ["source", "target", "weight", "partial_correlation"]
    assert frame.weight.is_monotonic_decreasing


def test_candidates_give_the_same_views():
    fitted = GraphLearner(candidates=4, verbose=False).fit(FRAME)
    assert sparse.issparse(fitted.precision_) and sparse.issparse(fitted.partial_correlation_)
    assert fitted.to_networkx().number_of_edges() == len(fitted.to_pandas()) == fitted.adjacency_.nnz / 2
    with pytest.raises(AttributeError, match="solve with precision_, or candidates=None"):
        _ = fitted.covariance_
    assert "Graph of 10 nodes" in fitted.summary()


def test_nothing_can_be_seen_before_fit():
    for view in ("summary", "to_networkx", "to_pandas", "plot"):
        with pytest.raises(NotFittedError):
            getattr(GraphLearner(), view)()
    for name in ("covariance_", "partial_correlation_", "edge_probability_"):
        with pytest.raises(NotFittedError):
            getattr(GraphLearner(), name)


def test_pandas_is_asked_for_where_it_is_missing(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        fitted.to_pandas()


def test_negative_edges_are_drawn_in_another_colour(fitted):
    (lines,) = fitted.plot().axes[0].collections[:1]
    colours = [to_hex(colour) for colour in lines.get_edgecolor()]
    assert colours.count(plots.NEGATIVE) == (fitted.adjacency_ < 0).sum() / 2
    assert colours.count(plots.POSITIVE) == (fitted.adjacency_ > 0).sum() / 2
    assert (np.array(lines.get_linewidths()) >= 0.5).all()
    plt.close("all")


def test_the_summary_tells_what_was_done(fitted):
    text = fitted.summary()
    assert "Graph of 10 nodes from 3,000 samples, worth 2,999 independent ones" in text
    assert "edges may be negative" in text and "nodes may vary on their own" in text
    n_edges = np.count_nonzero(fitted.adjacency_) // 2
    negative = (fitted.adjacency_ < 0).sum() // 2
    assert f"{n_edges} edges among 45 pairs, {negative} of them negative" in text
    first = fitted.to_pandas().iloc[0]
    assert f"  {first.source} - {first.target}: weight {first.weight:.3g}, partial correlation" in text
    assert "nothing was noticed" in text
    assert f"and {n_edges - 10} more" in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_summary_counts_what_is_sure_and_what_is_wrong():
    fitted = GraphLearner(min_probability=0.2).fit(FRAME.iloc[:150])
    p = fitted.to_pandas().probability
    sure = p >= 0.9
    assert sure.any() and (p[~sure] > 0.85).any()
    wrong = f"by the probabilities {(1 - p).sum():.1f} of all are wrong"
    assert f"  {sure.sum()} with a probability of at least 0.9; {wrong}" in fitted.summary()


def test_a_long_name_in_a_doubt_stays_whole(fitted):
    name = "sensor_" * 20
    fitted.doubts_ = [f"the column {name!r} never varied"]
    assert repr(name) in fitted.summary()


def test_what_was_assumed_is_what_the_fit_assumed(fitted):
    text, score = fitted.summary(), fitted.score(FRAME)
    fitted.set_params(method="exact", signed=False, self_loops=False, robust=True, time_series=True, centre=False)
    assert fitted.summary() == text
    assert fitted.score(FRAME) == score
    assert fitted.edge_probability_.any()
    assert "method='exact'" in fitted.fit(FRAME).summary()
    with pytest.raises(AttributeError, match="method='exact' has no edge probabilities"):
        _ = fitted.set_params(method="equivariant").edge_probability_


def test_the_summary_tells_what_is_missing_and_what_to_distrust():
    gaps = FRAME.mask(np.random.default_rng(0).random(FRAME.shape) < 0.6).iloc[:25].assign(copy=lambda d: d["sensor 0"])
    with pytest.warns(UserWarning, match="copies"):
        fitted = GraphLearner(standardise=True).fit(gaps)
    text = fitted.summary()
    share = 100 * gaps.isna().to_numpy()[~gaps.isna().all(axis=1)].mean()
    assert f"{share:.3g} % of the values are missing" in text
    assert "filled by what the rest of their rows says" in text and "eigenvalue" not in text
    for doubt in fitted.doubts_:
        assert f" - {doubt}" in " ".join(text.split()), "in lines that fit on a page:"
    assert max(map(len, text.splitlines())) <= 100
    assert "\n  - " in text and "\n    " in text[text.index("\n  - ") + 1 :]
    assert "columns: centre, standardise" in text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        robust = GraphLearner(standardise=True, robust=True).fit(gaps).summary()
    assert "smallest eigenvalue of -" in robust and "each pair by the rows that have both" in robust
    plain = GraphLearner("exact", centre=False).fit(X).summary()
    assert "all edges are positive" in plain and "nodes do not vary on their own" in plain
    assert "columns: as they are" in plain and "probability" not in plain
