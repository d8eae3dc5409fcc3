"""`GraphLearner`: from a table of samples, one column per node, to a graph; a scikit-learn estimator.

X ──► centre, scale ──► distances y ──► method ──► most likely scale ──► adjacency_, edge_probability_

Everything runs on the CPU. This is the one file of the core that looks into `beyond`: it offers what is there.
"""

import math
import os
import time
import warnings
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Self

import networkx as nx
import numpy as np
import psutil
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import paths, solvers, training
from .beyond import viewer
from .beyond.candidates import GB, candidate_edges, fit_memory, fitting_options
from .beyond.equivariant import EquivariantL2G
from .beyond.likelihood import laplacian_mle, likely_scale, log_likelihood, unit_scale
from .beyond.transfer import unroll
from .graphs import FAMILIES, all_pairs, to_vector
from .models import Unrolling
from .signals import distances, pair_distances, root_mean_square

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("equivariant", "pds", "exact", "mle", "unrolling")
CANDIDATE_METHODS = ("equivariant", "exact", "pds", "unrolling")  # those that work on a list of candidates
PRIORS = (*FAMILIES, "mixed")
NETWORKS = {"equivariant": EquivariantL2G, "unrolling": Unrolling}
UNROLLING_NODES = 20  # of the graphs that `unrolling` was trained on
NEGLIGIBLE = 1e-6  # of the largest weight: what is smaller counts as no edge
SIGMA2 = 1e-4  # of Eq. (9), for graphs of mean degree 1
LARGEST = 1e152  # of |X|, and 1 / LARGEST the least: weights are of the size of 1 / X^2


class GraphLearner(BaseEstimator):
    """Learn a weighted graph between the columns of X, on which the rows are smooth signals.

    The model is the paper's Eq. (9): rows are independent draws of N(0, (L + sigma^2 I)^-1), sigma small, L the graph's
    Laplacian, so that `laplacian_` estimates a precision matrix. With every method the weights have the most likely
    scale: c X in place of X divides them by c^2 and changes nothing else. Nor does the order of the columns matter.

    Parameters
    ----------
    method : "equivariant", a network trained on random graphs, the only one with edge probabilities; "mle", maximum
        likelihood; "exact" or "pds", the paper's convex problem, Eq. (4), solved exactly or by its Algorithm 1;
        "unrolling", the paper's Algorithm 2 without autoencoder, trained on 20 nodes: with another number it warns.
    prior : the family of graphs a network was trained on: "BA" (hubs), "ER" (no structure), "SBM" (communities),
        "WS" (small world) or "mixed". For equivariant; and for unrolling, where mixed is the most likely of the four.
    average_degree : edges per node that are wished, at least 1; None is 4, or all where there are fewer. For exact and
        pds.
    min_probability : edges less probable are left out of `adjacency_`, and the rest is given its most likely scale. 0
        keeps all pairs, each with its expected weight, which has the least squared error, above all if samples are few.
        For equivariant.
    centre : subtract each column's mean. False where columns are compared by their level, such as points in space.
    standardise : divide each column by its standard deviation. Needed where columns have different units; otherwise
        how much a column varies is information (a node with few neighbours varies more) and better kept.
    robust : keep outliers and heavy tails from dominating: medians replace means, samples are brought to one size, and
        differences beyond 3 standard deviations are clipped. Not for columns that rest at one value most of the time.
    n_independent : how many independent samples X is worth; None is all of them. Fewer if rows follow each other in
        time: the probabilities are only as good as this number.
    candidates : None considers all pairs of nodes. A number, at least 2, considers each node's so many nearest ones
        only, for graphs beyond a thousand nodes; results are then SciPy sparse arrays. About 3 times the wished degree
        is enough. Beyond 2,000 nodes equivariant takes minutes, exact still seconds.
    random_state : seed of the approximate search for candidates.
    verbose : print what is done, its time and memory; None does where `candidates` is given.

    Attributes
    ----------
    adjacency_, laplacian_ : (m, m) arrays, sparse with `candidates`
    edge_probability_ : (m, m), how sure it is that there is an edge; with method="equivariant" only
    location_, scale_ : (m,), what the columns were centred on and divided by
    n_features_in_, feature_names_in_ : m, and the column names of a data frame

    Examples
    --------
    >>> learner = helpers.GraphLearner().fit(X)  # X (n_samples, n_nodes), an array or a data frame
    >>> learner.adjacency_, learner.edge_probability_
    >>> learner.plot()
    """

    adjacency_: np.ndarray | sparse.csr_array
    laplacian_: np.ndarray | sparse.csr_array
    location_: np.ndarray
    scale_: np.ndarray

    def __init__(
        self,
        method: str = "equivariant",
        *,
        prior: str = "mixed",
        average_degree: float | None = None,
        min_probability: float = 0.5,
        centre: bool = True,
        standardise: bool = False,
        robust: bool = False,
        n_independent: float | None = None,
        candidates: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | None = None,
    ) -> None:
        self.method = method
        self.prior = prior
        self.average_degree = average_degree
        self.min_probability = min_probability
        self.centre = centre
        self.standardise = standardise
        self.robust = robust
        self.n_independent = n_independent
        self.candidates = candidates
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the graph of X (n_samples, n_nodes); y is ignored. If it fails, the learner stays as it was."""
        before = dict(vars(self))
        try:
            self._fit(X)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean log-likelihood of the rows of X, without their constant parts, under Eq. (9) with this graph.

        sigma^2 is 1e-4 of the mean degree. For comparing learners of the same scaling, as in `GridSearchCV`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if sparse.issparse(self.laplacian_):
            raise ValueError("score needs all pairs of nodes, candidates=None")
        m = X.shape[1]
        y = self._distances(self._in_unit(X, self._unit))
        L = torch.from_numpy(self.laplacian_ * self._unit**2)
        per_signal = _mean_log_likelihood(L, y, sigma2=SIGMA2 * L.trace() / m)
        return float(per_signal) - (m - 1) * math.log(self._unit)  # from the unit back to that of X

    @property
    def edge_probability_(self) -> np.ndarray | sparse.csr_array:
        check_is_fitted(self)
        if self._probability is None:
            raise AttributeError(f"method={self.method!r} has no edge probabilities: use method='equivariant'")
        return self._probability

    @property
    def node_names_(self) -> np.ndarray:
        """(m,) column names of the data frame, or 0, 1, ..."""
        return getattr(self, "feature_names_in_", np.arange(self.n_features_in_))

    def to_networkx(self) -> nx.Graph:
        """The graph as a `networkx.Graph`: nodes by name; edges with `weight` and, if there is one, `probability`."""
        check_is_fitted(self)
        graph = nx.Graph()
        names = self.node_names_.tolist()
        graph.add_nodes_from(names)
        A = sparse.coo_array(sparse.triu(self.adjacency_))
        for i, j, weight in zip(*A.coords, A.data.tolist()):
            graph.add_edge(names[i], names[j], weight=weight)
            if self._probability is not None:
                graph.edges[names[i], names[j]]["probability"] = float(self._probability[i, j])
        return graph

    def plot(self, **options: object) -> "Figure":
        """Draw the graph, see `plots.network`; returns the figure."""
        from . import plots  # on first use: matplotlib takes a second to load, and learning does not need it

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

    def _page(self, options):
        return viewer.page(self.to_networkx(), **options)

    # --- the steps of fit -------------------------------------------------------------------------------------------

    def _fit(self, X):
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2, ensure_min_features=2)
        if np.abs(X).max() > LARGEST:
            raise ValueError(
                f"X has values beyond {LARGEST:g}: weights go with 1 / X^2; divide X by a number of that size"
            )
        n, m = X.shape
        self._check_options(m)
        self._check_memory(n, m)
        self.location_, self.scale_ = self._location_and_scale(X)
        self._unit = self._find_unit((X - self.location_) / self.scale_)
        edges, y = self._pairs(self._in_unit(X, self._unit))
        if self.centre:
            y = y * (n / (n - 1))  # a mean that was estimated costs a sample
        n_independent = n - bool(self.centre) if self.n_independent is None else self.n_independent
        w, probability = self._learn(y, edges, n_independent)
        self._keep(w, probability, y, edges)

    def _check_options(self, m):
        """ValueError for an option that is not possible, with what is."""
        several = f"n_nodes - 1 = {m - 1}, or None"
        self._require("method", self.method in METHODS, f"choose one of {', '.join(METHODS)}")
        self._require("prior", self.prior in PRIORS, f"choose one of {', '.join(PRIORS)}")
        self._require("min_probability", _is_number(self.min_probability, 0, 1), "between 0 and 1")
        if self.average_degree is not None:
            self._require("average_degree", _is_number(self.average_degree, 1, m - 1), f"between 1 and {several}")
        if self.n_independent is not None:
            finite = _is_number(self.n_independent, 1, np.finfo(float).max)
            self._require("n_independent", finite, "a finite number, at least 1, or None for all samples")
        if self.candidates is not None:
            whole = isinstance(self.candidates, Integral) and 2 <= self.candidates <= m - 1
            self._require("candidates", whole, f"a whole number between 2 and {several}")
            able = self.method in CANDIDATE_METHODS
            self._require("method", able, f"candidates= needs one of {', '.join(CANDIDATE_METHODS)}")
            decided = self.method != "unrolling" or self.prior != "mixed"
            self._require("prior", decided, f"unrolling with candidates= needs one of {', '.join(FAMILIES)}")

    def _require(self, name, holds, wish):
        if not holds:
            raise ValueError(f"{name}={getattr(self, name)!r}: {wish}")

    def _check_memory(self, n, m):
        """Say what memory is needed; if there is less, MemoryError with options that fit."""
        needed = fit_memory(n, m, self.candidates, self.method)
        free = psutil.virtual_memory().available
        self._say(f"{m:,} nodes, {n:,} samples: about {needed / GB:.2g} GB of memory, {free / GB:.2g} GB are free")
        if needed > free:
            need = f"{m:,} nodes need about {needed / GB:.2g} GB, {free / GB:.2g} GB are free"
            raise MemoryError(f"{need}: {fitting_options(n, m, self.method, free)}")

    @property
    def _talks(self):
        return bool(self.candidates) if self.verbose is None else bool(self.verbose)

    def _say(self, text):
        if self._talks:
            print(text, flush=True)

    def _location_and_scale(self, X):
        """What the columns of X are centred on and divided by, each (m,)."""
        middle = np.median if self.robust else np.mean
        location = middle(X, 0) if self.centre else np.zeros(X.shape[1])
        scale = np.ones(X.shape[1])
        if self.standardise:
            size = np.abs(X - location).max() or 1.0  # squares of what is divided by it stay in range
            scale = size * root_mean_square((X - location) / size, robust=self.robust)
            if not scale.all():
                names = self.node_names_[scale == 0][:5].tolist()
                raise ValueError(f"X has constant columns, {names}: drop them, or do not standardise")
        if self.robust and self.centre:  # again without what rows have in common, which blurs medians, not differences
            Z = (X - location) / scale
            location = location + scale * np.median(Z - np.median(Z, 1, keepdims=True), 0)
        return location, scale

    def _find_unit(self, Z):
        """The median size of centred and scaled samples: distances are computed in this unit."""
        if _is_constant(Z):
            raise ValueError("X is constant: signals that do not vary say nothing about a graph")
        unit = float(np.median(np.abs(Z[Z != 0])))
        if not 1 / LARGEST <= unit <= LARGEST:
            raise ValueError(f"X varies by {unit:.0e}: weights go with 1 / X^2; divide X by a number of that size")
        return unit

    def _in_unit(self, X, unit):
        """Samples centred, scaled and divided by `unit`; robust: each brought to the same size."""
        Z = (X - self.location_) / self.scale_ / unit
        if self.robust:
            size = root_mean_square((Z - np.median(Z, 1, keepdims=True)).T, robust=True)
            if size.any():
                size = np.divide(np.median(size[size > 0]), size, where=size > 0, out=np.zeros_like(size))
            Z = Z * size[:, None]
        return Z

    def _pairs(self, Z):
        """The list of pairs considered, (2, E), or None for all of them; and their distances, (E,)."""
        start = time.perf_counter()
        if self.candidates is None:
            edges, y = None, self._distances(Z)
        else:
            seed = check_random_state(self.random_state).randint(2**31)
            edges, y = candidate_edges(Z, self.candidates, seed=seed)
            if self.robust:
                y = pair_distances(Z, edges, robust=True)
        self._say(f"{len(y):,} pairs of nodes in {time.perf_counter() - start:.1f} s")
        return edges, y

    def _distances(self, Z):
        """Distances of all pairs, (E,)."""
        if self.robust or Z.shape[1] == 2 or _is_constant(Z):
            return pair_distances(Z, all_pairs(Z.shape[1]), robust=self.robust)
        return distances(Z)

    def _learn(self, y, edges, n_independent):
        """Weights of the pairs (E,), up to a factor, and the probabilities of edges, (E,) or None."""
        start = time.perf_counter()
        probability = None
        if self.n_features_in_ == 2:  # one edge, whose weight is a matter of scale
            w = torch.ones_like(y)
            probability = torch.ones_like(y) if self.method == "equivariant" else None
        elif self.method == "equivariant":
            w, probability = self._equivariant(y, edges, n_independent)
        elif self.method == "unrolling":
            w = self._unrolling(y, edges)
        elif self.method == "mle":
            w = self._mle(y)
        else:
            w = self._convex(y, edges, self.average_degree)
        self._say(f"{self.method} in {time.perf_counter() - start:.1f} s")
        return w, probability

    @torch.no_grad()
    def _equivariant(self, y, edges, n_independent):
        """Expected weights and probabilities, (E,)."""
        network = _network("equivariant", self.prior)
        probability, weight = network(y, n_independent, edges, self.n_features_in_, progress=self._talks)
        return probability * weight, probability

    def _mle(self, y):
        zero = torch.nonzero(y == 0)[:, 0]
        if len(zero):
            same = self.node_names_[all_pairs(self.n_features_in_)[:, zero[0]]].tolist()
            raise ValueError(f"columns {same} of X are equal, infinitely connected for mle: drop one of them")
        return laplacian_mle(y)

    def _convex(self, y, edges, average_degree):
        """Solution of Eq. (4) of the wished degree."""
        m = self.n_features_in_
        degree = min(4, 2 * len(y) / m) if average_degree is None else average_degree
        tol = 1e-14 if edges is None else 1e-6
        learned = solvers.learn(y, degree, tol=tol, edges=edges, n_nodes=m)
        self._say(f"relative duality gap {learned.certificate.gap.item():.1e}")
        if self.method == "pds":
            return solvers.pds(learned.theta * y, edges=edges, n_nodes=m)
        return learned.w

    def _unrolling(self, y, edges):
        """Unrolled weights, for distances as signals on a graph of mean degree 1 have them."""
        m = self.n_features_in_
        y = y * unit_scale(y, self._convex(y, edges, None), m)
        families = FAMILIES if self.prior == "mixed" else [self.prior]
        found = [unroll(_network("unrolling", family), y, edges, m) for family in families]
        found = [_most_likely(w, y, edges, m) for w in found]
        w = found[0] if len(found) == 1 else max(found, key=lambda w: log_likelihood(w, y, sigma2=SIGMA2))
        if m != UNROLLING_NODES:
            degree = 2 * _is_edge(w).sum().item() / m
            warnings.warn(
                f"method='unrolling' was trained on graphs of {UNROLLING_NODES} nodes and X has {m}: do not rely on "
                f"this graph of {degree:.3g} edges per node. method='equivariant' was trained on many sizes, "
                "method='exact' needs no training",
                stacklevel=5,  # names the line that called fit
            )
        return w

    def _keep(self, w, probability, y, edges):
        """Drop what is no edge, give the rest its most likely scale, and store it all as matrices."""
        m = self.n_features_in_
        w = torch.where(_is_edge(w), w.double(), 0)
        self._probability = None
        if probability is not None:
            w = torch.where(probability >= self.min_probability, w, 0)
            self._probability = self._matrix(probability.double(), edges)
        w = _most_likely(w, y, edges, m) / self._unit**2
        self.adjacency_ = self._matrix(w, edges)
        self.laplacian_ = csgraph.laplacian(self.adjacency_, form="array")
        if sparse.issparse(self.laplacian_):
            self.laplacian_ = self.laplacian_.tocsr()

    def _matrix(self, x, edges):
        """Values of the pairs, (E,), as a symmetric matrix (m, m): sparse if the user asked for candidates."""
        A = _sparse_matrix(x, edges, self.n_features_in_)
        return A if self.candidates else A.toarray()


def _is_number(x, low, high):
    return isinstance(x, Real) and low <= x <= high


def _is_constant(Z):
    """Whether every sample (row) has one value at all nodes."""
    return (Z == Z[:, :1]).all()


# --- graphs as half-vectors (E,) on all pairs, `edges` = None, or on a list ------------------------------------------


def _is_edge(w):
    """Where weights (E,) are not negligible."""
    return w > NEGLIGIBLE * w.max()


def _sparse_matrix(x, edges, m):
    """The positive values x (E,) as a symmetric sparse matrix (m, m)."""
    on = x > 0
    i, j = (all_pairs(m) if edges is None else edges)[:, on].numpy()
    A = sparse.coo_array((x[on].numpy(), (i, j)), shape=(m, m)).tocsr()
    return A + A.T


def _most_likely(w, y, edges, m):
    """w with its most likely scale, w'y = m - number of components; a graph that does not tell (w'y = 0) stays."""
    n_components, _ = csgraph.connected_components(_sparse_matrix(w, edges, m), directed=False)
    return w * likely_scale(w, y, m - n_components) if w @ y > 0 else w


def _mean_log_likelihood(L, y, sigma2):
    """`likelihood.log_likelihood`, from a Laplacian (m, m), and for two nodes, too."""
    w = -to_vector(L)
    if len(w) > 1:
        return log_likelihood(w, y, sigma2=sigma2)
    (edge,), (distance,) = w, y
    precision = 2 * edge + sigma2  # of (x_0 - x_1) / sqrt(2), whose mean square is distance / 2
    return (precision.log() - precision * distance / 2 - math.log(2 * math.pi)) / 2


# --- networks --------------------------------------------------------------------------------------------------------


@cache
def _network(model, family):
    """A trained network that comes with the package, built from the arguments that its record states."""
    path = paths.WEIGHTS / f"{model}-{family.lower()}"
    record = training.read_record(path)
    return training.load(path, NETWORKS[model](**record["configuration"]["arguments"]))
