"""`GraphLearner`: from a table of samples, one column a node, to a graph; a scikit-learn estimator.

X ──► centre, scale ──► distances y ──► method ──► most likely scale ──► adjacency_, edge_probability_
"""

import time
from functools import cache

import networkx as nx
import numpy as np
import psutil
import torch
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import large, solvers
from .graphs import FAMILIES, edges, laplacian
from .signals import distances, pair_distances, spread

METHODS = ("equivariant", "pds", "exact", "mle", "unrolling")
SPARSE = ("equivariant", "exact", "pds", "unrolling")  # know candidates
SIGMA2 = 1e-4  # of Eq. (8), for graphs of mean degree 1
GB = 2**30


class GraphLearner(BaseEstimator):
    """Learn a weighted graph between the columns of X, on which the rows are smooth signals.

    The model is the paper's Eq. (8): rows are independent draws of N(0, (L + sigma^2 I)^-1), sigma small, L the graph's
    Laplacian, so that `laplacian_` estimates a precision matrix. With every method the weights have the most likely
    scale: c X in place of X divides them by c^2 and changes nothing else. Nor does the order of the columns matter.

    Parameters
    ----------
    method : "equivariant", a network trained on random graphs, the only one with edge probabilities; "mle", maximum
        likelihood; "exact" or "pds", the paper's convex problem, Eq. (4), solved exactly or by its Algorithm 1;
        "unrolling", the paper's Algorithm 2 without autoencoder.
    prior : the family of graphs a network was trained on: "BA" (hubs), "ER" (no structure), "SBM" (communities),
        "WS" (small world) or "mixed". For equivariant; and for unrolling, where mixed is the most likely of the four.
    average_degree : edges a node should have, at least 1; None is 4, or all where there are fewer. For exact and pds.
    min_probability : edges less probable are left out of `adjacency_`; 0 keeps all, each with its expected weight,
        which has the least squared error. For equivariant.
    centre : subtract each column's mean. False where columns are compared by their level, such as points in space.
    standardise : divide each column by its standard deviation. Needed where columns have different units; otherwise
        the spread of a column is information (a node with few neighbours varies more) and better kept.
    robust : keep outliers and heavy tails from dominating: medians replace means, samples are brought to one size, and
        differences beyond 3 standard deviations are clipped. Not for columns that rest at one value most of the time.
    n_independent : how many independent samples X is worth; None is all of them. Fewer if rows follow each other in
        time: the probabilities are only as good as this number.
    candidates : None considers all pairs of nodes. A number considers each node's so many nearest ones only, for graphs
        beyond a thousand nodes; results are then SciPy sparse arrays. About 3 times the wished degree is enough. Beyond
        2,000 nodes equivariant takes minutes, exact still seconds.
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

    def __init__(
        self, method="equivariant", *, prior="mixed", average_degree=None, min_probability=0.5, centre=True,
        standardise=False, robust=False, n_independent=None, candidates=None, random_state=0, verbose=None,
    ):  # fmt: skip
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

    def fit(self, X, y=None):
        """Learn the graph of X (n_samples, n_nodes); y is ignored."""
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2, ensure_min_features=2)
        n, m = X.shape
        self._check_options(m)
        self._check_memory(n, m)
        self.location_ = (np.median if self.robust else np.mean)(X, 0) if self.centre else np.zeros(m)
        self.scale_ = spread(X - self.location_, robust=self.robust) if self.standardise else np.ones(m)
        if not self.scale_.all():
            names = self.node_names_[self.scale_ == 0][:5].tolist()
            raise ValueError(f"X has constant columns, {names}: drop them, or do not standardise")
        if self.robust and self.centre:  # again without what rows have in common, which blurs medians, not differences
            Z = (X - self.location_) / self.scale_
            self.location_ += self.scale_ * np.median(Z - np.median(Z, 1, keepdims=True), 0)
        X, unit = self._signals(X)
        pairs, y = self._pairs(X)
        w, probability = self._learn(y, pairs, self.n_independent or n - bool(self.centre))
        self._keep(w, probability, y, pairs, unit)
        return self

    def score(self, X, y=None):
        """Mean log-likelihood of the rows of X, without their constant parts, under Eq. (8) with this graph.

        sigma^2 is 1e-4 of the mean degree. For comparing learners of the same scaling, as in `GridSearchCV`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if sparse.issparse(self.laplacian_):
            raise ValueError("score needs all pairs of nodes, candidates=None")
        X, unit = self._signals(X)
        y = self._distances(X, edges(X.shape[1])).numpy() * unit**2
        return _log_likelihood(self.laplacian_, y) - (X.shape[1] - 1) * np.log(2 * np.pi) / 2

    @property
    def edge_probability_(self):
        check_is_fitted(self)
        if self._probability is None:
            raise AttributeError(f"method={self.method!r} has no edge probabilities: use method='equivariant'")
        return self._probability

    @property
    def node_names_(self):
        """(m,) column names of the data frame, or 0, 1, ..."""
        return getattr(self, "feature_names_in_", np.arange(self.n_features_in_))

    def to_networkx(self):
        """The graph as a `networkx.Graph`: nodes by name; edges with `weight` and, if there is one, `probability`."""
        check_is_fitted(self)
        graph, names = nx.Graph(), self.node_names_.tolist()
        graph.add_nodes_from(names)
        A = sparse.coo_array(sparse.triu(self.adjacency_))
        for i, j, weight in zip(*A.coords, A.data.tolist()):
            graph.add_edge(names[i], names[j], weight=weight)
            if self._probability is not None:
                graph.edges[names[i], names[j]]["probability"] = float(self._probability[i, j])
        return graph

    def plot(self, **options):
        """Draw the graph, see `plots.network`; returns the figure."""
        from . import plots

        return plots.network(self.to_networkx(), **options)

    # --- the steps of fit ---------------------------------------------------------------------------------------

    def _check_options(self, m):
        degree, k, n = self.average_degree, self.candidates, self.n_independent
        family, several = ", ".join(FAMILIES), f"between 1 and n_nodes - 1 = {m - 1}, or None"
        for name, good, wish in (
            ("method", self.method in METHODS, f"choose one of {', '.join(METHODS)}"),
            ("prior", self.prior in (*FAMILIES, "mixed"), f"choose one of {family}, mixed"),
            ("average_degree", degree is None or 1 <= degree <= m - 1, several),
            ("min_probability", 0 <= self.min_probability <= 1, "between 0 and 1"),
            ("n_independent", n is None or n >= 1, "at least 1, or None for all samples"),
            ("candidates", k is None or 1 <= k <= m - 1, several),
            ("method", not k or self.method in SPARSE, f"candidates= needs one of {', '.join(SPARSE)}"),
            ("prior", not k or (self.method, self.prior) != ("unrolling", "mixed"), f"with candidates= {family}"),
        ):
            if not good:
                raise ValueError(f"{name}={getattr(self, name)!r}: {wish}")

    def _check_memory(self, n, m):
        """Say what memory is needed; if there is less, MemoryError and what would fit."""
        method = self.method if self.method in SPARSE else "equivariant"
        need = {k: _memory(n, m, k, method) / GB for k in (self.candidates, 100, 50, 30, 20, 10, 5)}
        free, needed = psutil.virtual_memory().available / GB, need.pop(self.candidates)
        self._say(f"{m:,} nodes, {n:,} samples: about {needed:.2g} GB of memory, {free:.2g} GB are free")
        if needed > free:
            k = next((k for k, x in need.items() if k < m and x <= free), None)
            remedy = f"method={method!r}, candidates={k} needs {need[k]:.2g} GB" if k else "take fewer samples or nodes"
            raise MemoryError(f"{m:,} nodes need about {needed:.2g} GB, {free:.2g} GB are free: {remedy}")

    @property
    def _talks(self):
        return bool(self.candidates) if self.verbose is None else bool(self.verbose)

    def _say(self, text):
        if self._talks:
            print(text, flush=True)

    def _signals(self, X):
        """X centred, scaled, and divided by its median size, which is the second answer."""
        X = (X - self.location_) / self.scale_
        if (X == X[:, :1]).all():
            raise ValueError("X is constant: signals that do not vary say nothing about a graph")
        unit = np.median(np.abs(X[X != 0]))
        X = X / unit
        if self.robust:
            size = spread((X - np.median(X, 1, keepdims=True)).T, robust=True)
            X = X * np.divide(np.median(size[size > 0]), size, where=size > 0, out=np.zeros_like(size))[:, None]
        return X, unit

    def _pairs(self, X):
        """The pairs of nodes considered, (2, E), and their distances, (E,)."""
        start = time.perf_counter()
        if self.candidates:
            seed = check_random_state(self.random_state).randint(2**31)
            pairs, y = large.candidate_edges(X, self.candidates, seed=seed)
        else:
            pairs, y = edges(X.shape[1]), None
        y = self._distances(X, pairs) if y is None or self.robust else y
        self._say(f"{len(y):,} pairs of nodes in {time.perf_counter() - start:.1f} s")
        return pairs, y * (len(X) / (len(X) - bool(self.centre)))  # a mean that was estimated costs a sample

    def _distances(self, X, pairs):
        plain = not self.robust and X.shape[1] > 2
        return distances(X) if plain else pair_distances(X, pairs, robust=self.robust)

    def _learn(self, y, pairs, n):
        """Expected weights of the pairs, (E,), up to a factor, and the probabilities of edges, (E,) or None."""
        m, start, p = self.n_features_in_, time.perf_counter(), None
        if m == 2:  # one edge, whose weight is a matter of scale
            w, p = np.ones(1), np.ones(1) if self.method == "equivariant" else None
        elif self.method == "equivariant":
            p, w = self._equivariant(y, pairs, n)
        elif self.method == "unrolling":
            w = self._unrolling(y, pairs)
        elif self.method == "mle":
            if len(zero := pairs[:, y == 0].T):
                same = self.node_names_[zero[0]].tolist()
                raise ValueError(f"columns {same} of X are equal, infinitely connected for mle: drop one of them")
            w = solvers.laplacian_mle(y)
        else:
            w = self._convex(y, pairs, min(self.average_degree or 4, self.candidates or m - 1))
        self._say(f"{self.method} in {time.perf_counter() - start:.1f} s")
        return np.asarray(w), None if p is None else np.asarray(p)

    @torch.no_grad()
    def _equivariant(self, y, pairs, n):
        network, m = _network("equivariant", self.prior), self.n_features_in_
        p, w = large.refine(network, y, pairs, m, n, progress=self._talks) if self.candidates else network(y, n)
        return p, p * w

    def _convex(self, y, pairs, degree):
        """Solution of Eq. (4) of the wished degree."""
        if not self.candidates:
            w, theta = solvers.learn(y, degree)
            return solvers.pds(theta * y) if self.method == "pds" else w
        w, theta, certificate = large.learn_edges(y, pairs, self.n_features_in_, average_degree=degree)
        self._say(f"relative duality gap among the candidates {certificate.gap.item():.1e}")
        return large.pds(theta * y, pairs, self.n_features_in_) if self.method == "pds" else w

    def _unrolling(self, y, pairs):
        """Unrolled weights, for distances in the unit in which the solution of Eq. (4) has a mean degree of 1."""
        m = self.n_features_in_
        w = self._convex(y, pairs, min(4, self.candidates or m - 1))
        y = y * (2 * w.sum() * (m - 1) / m / (w @ y))
        families = FAMILIES if self.prior == "mixed" else [self.prior]
        found = [large.unroll(_network("unrolling", family), y, pairs, m) for family in families]
        found = [w * ((m - 1) / (w @ y)) for w in found]
        return max(found, key=lambda w: _log_likelihood(laplacian(w).numpy(), y.numpy())) if found[1:] else found[0]

    def _keep(self, w, probability, y, pairs, unit):
        """Give w its most likely scale, w'y = m - number of components, and store it all as matrices."""
        m, (i, j) = self.n_features_in_, np.asarray(pairs)

        def matrix(x):
            A = sparse.coo_array((x[x > 0], (i[x > 0], j[x > 0])), shape=(m, m)).tocsr()
            return A + A.T if self.candidates else (A + A.T).toarray()

        w = np.where(w > 1e-6 * w.max(), w, 0.0)
        n_components = csgraph.connected_components(matrix(w), directed=False)[0]
        w = w * ((m - n_components) / (w @ y.numpy())) / unit**2
        self._probability = None if probability is None else matrix(probability)
        self.adjacency_ = matrix(w if probability is None else np.where(probability >= self.min_probability, w, 0.0))
        self.laplacian_ = csgraph.laplacian(self.adjacency_, form="array")
        if self.candidates:
            self.laplacian_ = self.laplacian_.tocsr()


def _memory(n, m, candidates, method):
    """Bytes that fit needs at its peak, beside X."""
    if not candidates:
        return 8 * (3 * n * m + 60 * m * m)  # measured with m = 150 to 600: 24 to 58
    network = 800 * m * candidates + 24 * min(m, 2000) ** 2 if method == "equivariant" else 0
    return large.estimate_memory(m, n, candidates) + 8 * 3 * n * m + network


@cache
def _network(model, family):
    from . import runs, training

    return training.load(runs.equivariant(family) if model == "equivariant" else runs.Run(model, family))


def _log_likelihood(L, y):
    """Of one signal, on average, without its constant part and up to a constant: Eq. (8), from distances y (E,)."""
    m = len(L)
    sigma2 = SIGMA2 * np.trace(L) / m
    _, logdet = np.linalg.slogdet(L + sigma2 * np.eye(m) + (1 - sigma2) / m)  # the constant part counts log 1 = 0
    return float(logdet + L[np.triu_indices(m, 1)] @ y - sigma2 * y.sum() / m) / 2
