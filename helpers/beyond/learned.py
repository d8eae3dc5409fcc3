"""What one can do with a graph that was learned: look at it as matrices, as a list, as text, as a drawing.

`LearnedGraph` is the half of `GraphLearner` that comes after `fit`. It reads the matrices `adjacency_` and
`precision_`, the probabilities, and what was written down about the data.
"""

import copy
import os
import textwrap
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from .. import paths
from . import viewer
from .completion import partial_correlations

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

N_STRONGEST = 10  # edges that a summary names
SURE = 0.9
WIDTH = 100  # characters of a line of doubt


class LearnedGraph:
    """Results of a learner, a mixin."""

    @property
    def edge_probability_(self) -> np.ndarray | sparse.csr_array:
        check_is_fitted(self)
        if self._probability is None:
            raise AttributeError(
                f"method={self._assumed['method']!r} has no edge probabilities: use method='equivariant'"
            )
        return self._probability

    @property
    def partial_correlation_(self) -> np.ndarray | sparse.csr_array:
        check_is_fitted(self)
        return partial_correlations(self.precision_)

    @property
    def covariance_(self) -> np.ndarray:
        check_is_fitted(self)
        if sparse.issparse(self.precision_):
            raise AttributeError("the inverse of a sparse matrix is dense: solve with precision_, or candidates=None")
        unit = self._unit**2  # in which no entry is out of range
        return np.linalg.inv(self.precision_ * unit) * unit

    @property
    def node_names_(self) -> np.ndarray:
        """(m,) column names of the data frame, or 0, 1, ..."""
        return getattr(self, "feature_names_in_", np.arange(self.n_features_in_))

    def summary(self) -> str:
        """What was assumed, how much data there was, which edges there are, and what to distrust; as text."""
        learner = self._as_fitted()
        return "\n".join([*_data(learner), *_assumptions(learner), *_found(learner), *_distrust(learner)])

    def to_networkx(self) -> nx.Graph:
        """The graph as a `networkx.Graph`: nodes by name; edges with `weight`, below 0 for a negative one,
        `partial_correlation` and, if there is one, `probability`."""
        check_is_fitted(self)
        graph = nx.Graph()
        names = self.node_names_.tolist()
        graph.add_nodes_from(names)
        for i, j, values in _edges(self):
            graph.add_edge(names[i], names[j], **values)
        return graph

    def to_pandas(self) -> "pd.DataFrame":
        """The edges as a data frame, the most probable and then the strongest first: `source`, `target`, `weight`,
        `partial_correlation` and, if there is one, `probability`."""
        check_is_fitted(self)
        try:
            import pandas as pd  # learning does not need it
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        columns = ["source", "target", "weight", "partial_correlation"]
        columns += [] if self._probability is None else ["probability"]
        names = self.node_names_
        rows = [(names[i], names[j], *values.values()) for i, j, values in _ranked(self)]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, **options: object) -> "Figure":
        """Draw the graph, see `plots.network`; returns the figure."""
        from .. import plots  # on first use: matplotlib takes a second to load, and learning does not need it

        return plots.network(self.to_networkx(), **options)

    def to_html(self, path: str | os.PathLike, **options: object) -> None:
        """Write the graph as one HTML file to look at and to touch, which needs no server and loads nothing.

        Options are those of `viewer.page`: `groups`, a name per column or {column: name}, which colours the nodes, and
        `title`.
        """
        paths.write_atomically(path, self._page(options).encode())

    def explore(self, *, height: int = 640, **options: object) -> viewer.Frame:
        """The page of `to_html` within Jupyter, `height` pixels tall."""
        return viewer.Frame(self._page(options), height)

    def _as_fitted(self):
        """This learner with the options that it was fitted with, whatever `set_params` did since."""
        check_is_fitted(self)
        learner = copy.copy(self)
        vars(learner).update(self._assumed)
        return learner

    def _page(self, options):
        return viewer.page(self.to_networkx(), **options)


# --- lists of edges ---------------------------------------------------------------------------------------------------


def _edges(learner):
    """(i, j, {weight, partial_correlation, probability}) of every edge, by row and column."""
    A = sparse.coo_array(sparse.triu(learner.adjacency_))
    i, j = A.coords
    d = np.sqrt(learner.precision_.diagonal())
    columns = {"weight": A.data, "partial_correlation": A.data / d[i] / d[j]}
    if learner._probability is not None:
        columns["probability"] = np.asarray(learner._probability[i, j]).ravel()
    rows = zip(*(values.tolist() for values in columns.values()))
    return [(a, b, dict(zip(columns, row))) for a, b, row in zip(i.tolist(), j.tolist(), rows)]


def _ranked(learner):
    """The edges, the most probable and then the strongest first."""
    return sorted(_edges(learner), key=lambda edge: (-edge[2].get("probability", 1), -abs(edge[2]["weight"])))


# --- a summary --------------------------------------------------------------------------------------------------------


def _data(learner):
    m, n = learner.n_features_in_, learner.n_samples_
    yield f"Graph of {m:,} nodes from {n:,} samples, worth {learner.n_effective_:,.4g} independent ones"
    if learner._missing:
        how = "each pair by the rows that have both" if learner.robust else "filled by what the rest of their rows says"
        yield f"  {100 * learner._missing:.3g} % of the values are missing: {how}"
    if learner._clipped:
        yield f"  correlations had a smallest eigenvalue of {-learner._clipped:.2g}: clipped to 0"


def _assumptions(learner):
    yield f"Assumed: method={learner.method!r}, prior={learner.prior!r}"
    yield "  edges may be negative" if learner._can_sign else "  all edges are positive"
    yield f"  nodes {'may vary' if learner._can_loop else 'do not vary'} on their own"
    options = [name for name in ("centre", "standardise", "robust") if getattr(learner, name)]
    rows = "independent draws of a normal law"
    if learner.time_series:
        rows = f"a time series, less what the last {len(learner.memory_)} rows foretell"
    yield f"  columns: {', '.join(options) or 'as they are'}; rows: {rows}"


def _found(learner):
    ranked = _ranked(learner)
    m = learner.n_features_in_
    negative = sum(values["weight"] < 0 for *_, values in ranked)
    yield f"Found: {len(ranked):,} edges among {m * (m - 1) // 2:,} pairs, {negative:,} of them negative"
    if learner._probability is not None and ranked:
        sure = sum(values["probability"] >= SURE for *_, values in ranked)
        wrong = sum(1 - values["probability"] for *_, values in ranked)
        yield f"  {sure:,} with a probability of at least {SURE}; by the probabilities {wrong:.1f} of all are wrong"
    names = learner.node_names_
    for i, j, values in ranked[:N_STRONGEST]:
        numbers = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in values.items())
        yield f"  {names[i]} - {names[j]}: {numbers}"
    if len(ranked) > N_STRONGEST:
        yield f"  and {len(ranked) - N_STRONGEST:,} more: to_pandas() has them all"


def _distrust(learner):
    if not learner.doubts_:
        yield "To distrust: nothing was noticed; what the assumptions leave out cannot be"
        return
    yield "To distrust:"
    for doubt in learner.doubts_:
        yield textwrap.fill(doubt, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_long_words=False)
