"""`GraphLearner`: from a table of samples, one column a node, to a graph; a scikit-learn estimator.

    X ──► centre, scale ──► distances y ──► method ──► one scale for all methods ──► adjacency_, edge_probability_
"""

import time
from functools import cache, partial

import networkx as nx
import numpy as np
import psutil
import torch
from scipy import sparse
from scipy.sparse import csgraph
from scipy.special import erf
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from . import solvers
from .graphs import FAMILIES, edges
from .signals import distances

METHODS = ("equivariant", "pds", "exact", "mle", "unrolling")
LEARNED = ("equivariant", "unrolling")  # have a prior
SPARSE = ("equivariant", "pds", "exact", "unrolling")  # know candidates
CUT = 3.0  # robust standard deviations beyond which a difference is clipped
SIGMA2 = 1e-4  # of Eq. (8), where the mean degree is 1
BLOCK = 2**22  # differences held at a time
GB = 2**30


class GraphLearner(BaseEstimator):
    """Learn a weighted graph between the columns of X, on which the rows are smooth signals.

    The model is the paper's Eq. (8): rows are independent draws of N(0, (L + sigma^2 I)^-1), sigma small, L the graph's
    Laplacian, so that `laplacian_` estimates the precision matrix. Whatever the method, weights have the most likely
    scale: c X instead of X divides them by c^2 and changes nothing else. The order of columns does not matter either.

    Parameters
    ----------
    method : "equivariant", a network trained on random graphs, the only one with edge probabilities; "mle", maximum
        likelihood; "exact" or "pds", the paper's convex problem, Eq. (4), solved exactly or by its Algorithm 1;
        "unrolling", the paper's Algorithm 2 without autoencoder.
    prior : the family of graphs a network was trained on, "BA" (hubs), "ER" (no structure), "SBM" (communities),
        "WS" (small world), or "mixed". Mixed unrolling is the mean over the four. For equivariant and unrolling.
    average_degree : edges a node should have, at least 1; None is 4, or all where there are fewer. For exact and pds.
    min_probability : edges less probable are left out of `adjacency_`; 0 keeps all, weighted by what is to be expected,
        which has the least squared error. For equivariant.
    centre : subtract each column's mean. False where columns are compared by their level, such as points in space.
    standardise : divide each column by its standard deviation. Needed where columns have different units; otherwise
        the spread of a column is information (a node with few neighbours varies more), and better kept.
    robust : distances that outliers and heavy tails cannot dominate. Medians and winsorised deviations replace means and
        standard deviations, samples are brought to one size, and differences beyond 3 standard deviations are clipped.
    n_independent : how many independent samples X is worth; None is all. Fewer if rows follow each other in time;
        probabilities are only as good as this number.
    candidates : None considers all pairs of nodes. A number considers the pairs of each node with so many nearest ones,
        for graphs beyond a few thousand nodes; results are then SciPy sparse arrays. About 3 times the wished degree.
    random_state : seed of the approximate search for candidates.
    verbose : print what is done, its time and memory; None does where `candidates` is given.

    Attributes
    ----------
    adjacency_, laplacian_ : (m, m) arrays, sparse with `candidates`
    edge_probability_ : (m, m), how sure it is that there is an edge; method="equivariant" only
    location_, scale_ : (m,), what columns were centred on and divided by
    n_features_in_, feature_names_in_ : m, and the column names of a data frame

    Examples
    --------
    >>> from helpers import GraphLearner
    >>> learner = GraphLearner().fit(X)  # X (n_samples, n_nodes), array or data frame
    >>> learner.adjacency_, learner.edge_probability_
    >>> learner.plot()
    """

    def __init__(
        self,
        method="equivariant",
        *,
        prior="mixed",
        average_degree=None,
        min_probability=0.5,
        centre=True,
        standardise=False,
        robust=False,
        n_independent=None,
        candidates=None,
        random_state=0,
        verbose=None,
    ):
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
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2, ensure_min_features=3)
        self._check_options(*X.shape)
        self._check_memory(*X.shape)
        self.location_ = (np.median if self.robust else np.mean)(X, 0) if self.centre else np.zeros(X.shape[1])
        self.scale_ = _spread(X - self.location_, self.robust) if self.standardise else np.ones(X.shape[1])
        if not self.scale_.all():
            names = self.node_names_[self.scale_ == 0][:5].tolist()
            raise ValueError(f"X has constant columns, {names}: drop them, or do not standardise")
        X, unit = self._signals(X)
        pairs, y = self._pairs(X)
        w, probability = self._learn(y, pairs, len(X))
        self._keep(w, probability, y, pairs, unit)
        return self

    def score(self, X, y=None):
        """Mean log-likelihood of the rows of X, without their constant parts, under Eq. (8) with this graph.

        sigma^2 is 1e-4 of the mean degree. For comparing learners with the same scaling, as in `GridSearchCV`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if sparse.issparse(self.laplacian_):
            raise ValueError("score needs all pairs of nodes: candidates=None")
        X, unit = self._signals(X)
        y = self._distances(X, edges(X.shape[1])).numpy() * unit**2
        m, L = X.shape[1], self.laplacian_
        sigma2 = SIGMA2 * np.trace(L) / m
        _, logdet = np.linalg.slogdet(L + sigma2 * np.eye(m) + (1 - sigma2) / m)  # the constant part counts log 1 = 0
        energy = -(L[np.triu_indices(m, 1)] @ y) + sigma2 * y.sum() / m
        return float(logdet - energy - (m - 1) * np.log(2 * np.pi)) / 2

    @property
    def edge_probability_(self):
        check_is_fitted(self)
        if self._probability is None:
            raise AttributeError(f"method={self.method!r} has no edge probabilities: method='equivariant' has")
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

    def plot(self, *, axis=None, positions=None, labels=None, seed=0):
        """Draw the graph; width is weight, and the fainter an edge the less probable it is. Returns the figure.

        positions : {node name: (x, y)}; None places connected nodes close to each other, starting from `seed`.
        labels : write node names; None does for up to 50 nodes.
        """
        import matplotlib.pyplot as plt

        graph = self.to_networkx()
        axis = plt.subplots(figsize=(6, 5))[1] if axis is None else axis
        if positions is None:
            positions = nx.spring_layout(graph, seed=seed, k=1.6 / len(graph) ** 0.5, weight=None)
        data = [d for *_, d in graph.edges(data=True)]
        top = max((d["weight"] for d in data), default=1.0)
        nx.draw_networkx_edges(
            graph, positions, ax=axis, edge_color="#444444", width=[0.3 + 3 * d["weight"] / top for d in data],
            alpha=[d.get("probability", 1.0) for d in data],
        )  # fmt: skip
        nx.draw_networkx_nodes(graph, positions, ax=axis, node_size=40, node_color="#d1495b", edgecolors="white")
        if labels or (labels is None and len(graph) <= 50):
            above = {name: (x, y + 0.05) for name, (x, y) in positions.items()}
            nx.draw_networkx_labels(graph, above, ax=axis, font_size=8)
        axis.axis("off")
        return axis.figure

    # --- the steps of fit ---------------------------------------------------------------------------------------

    def _check_options(self, n, m):
        def check(name, good, wish):
            if not good(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)!r}: {wish}")

        check("method", lambda x: x in METHODS, f"choose one of {', '.join(METHODS)}")
        check("prior", lambda x: x in (*FAMILIES, "mixed"), f"choose one of {', '.join(FAMILIES)}, mixed")
        check("average_degree", lambda x: x is None or 1 <= x <= m - 1, f"between 1 and n_nodes - 1 = {m - 1}, or None")
        check("min_probability", lambda x: 0 <= x <= 1, "between 0 and 1")
        check("n_independent", lambda x: x is None or x >= 1, "at least 1, or None for all samples")
        check("candidates", lambda x: x is None or 1 <= x <= m - 1, f"between 1 and n_nodes - 1 = {m - 1}, or None")
        if self.candidates is not None and self.method not in SPARSE:
            raise ValueError(f"method={self.method!r} needs all pairs of nodes: candidates=None, or one of {SPARSE}")

    def _check_memory(self, n, m):
        """Say what memory is needed; MemoryError, and what would fit, if there is not as much."""

        def needed(candidates):
            return _memory(n, m, candidates) / GB

        free, wanted = psutil.virtual_memory().available / GB, needed(self.candidates)
        self._say(f"{m:,} nodes, {n:,} samples: about {wanted:.2g} GB of memory, {free:.2g} GB are free")
        if wanted <= free:
            return
        fits = [k for k in (5, 10, 20, 30, 50, 100) if k < m and needed(k) <= free and k < (self.candidates or m)]
        remedy = f"candidates={fits[-1]} would need {needed(fits[-1]):.2g} GB" if fits else "take fewer samples or nodes"
        if fits and self.method not in SPARSE:
            remedy += ", with method='exact'"
        raise MemoryError(f"{m:,} nodes need about {wanted:.2g} GB of memory, {free:.2g} GB are free: {remedy}")

    def _say(self, text):
        if self.verbose or (self.verbose is None and self.candidates is not None):
            print(text, flush=True)

    def _signals(self, X):
        """X centred, scaled, and divided by its largest entry, which is the second answer."""
        X = (X - self.location_) / self.scale_
        unit = np.abs(X).max()
        if unit == 0 or (X == X[:, :1]).all():
            raise ValueError("X is constant: signals that do not vary say nothing about a graph")
        X = X / unit
        if self.robust:
            size = _spread((X - np.median(X, 1, keepdims=True)).T, True)
            X = X * np.divide(np.median(size[size > 0]), size, where=size > 0, out=np.zeros_like(size))[:, None]
        return X, unit

    def _pairs(self, X):
        """The pairs of nodes considered, (2, E), and their distances, (E,)."""
        if self.candidates is None:
            pairs = edges(X.shape[1])
            return pairs, self._distances(X, pairs)
        from .large import candidate_edges

        start, seed = time.perf_counter(), int(check_random_state(self.random_state).randint(2**31))
        pairs, _ = candidate_edges(X, self.candidates, seed=seed)
        y = self._distances(X, pairs)
        self._say(f"{pairs.shape[1]:,} candidate edges found in {time.perf_counter() - start:.1f} s")
        return pairs, y

    def _distances(self, X, pairs):
        """y_ij = mean over samples of (x_i - x_j)^2, or its robust kin, of the pairs (2, E): (E,)."""
        unbiased = len(X) / (len(X) - 1) if self.centre and len(X) > 1 else 1.0
        if not self.robust and self.candidates is None:
            return distances(X) * unbiased
        X, spread = np.ascontiguousarray(X.T), partial(_spread, robust=self.robust)
        blocks = torch.as_tensor(pairs).split(max(1, BLOCK // X.shape[1]), dim=1)
        y = np.concatenate([spread((X[i] - X[j]).T) ** 2 for i, j in (block.numpy() for block in blocks)])
        return torch.from_numpy(y * unbiased)

    def _learn(self, y, pairs, n):
        """Expected weights of the pairs, (E,), up to a factor, and the probabilities of edges, (E,) or None."""
        m, start, p = self.n_features_in_, time.perf_counter(), None
        if self.method == "equivariant":
            n = self.n_independent or n - bool(self.centre)
            p, w = _equivariant(self.prior)(y, n)
            w = p * w
        elif self.method == "unrolling":
            w = np.mean([_unroll(y, m, f) for f in (FAMILIES if self.prior == "mixed" else [self.prior])], 0)
        elif self.method == "mle":
            if len(zero := pairs[:, y == 0].T):
                same = self.node_names_[zero[0]].tolist()
                raise ValueError(f"columns {same} of X are equal, infinitely connected for mle: drop one of them")
            w = solvers.laplacian_mle(y)
        else:
            w = self._convex(y, pairs, min(self.average_degree or 4, m - 1))
        self._say(f"{self.method} took {time.perf_counter() - start:.1f} s")
        return np.asarray(w), None if p is None else np.asarray(p)

    def _convex(self, y, pairs, degree):
        if self.candidates is None:
            w, theta = solvers.learn(y, degree)
            return solvers.pds(theta * y) if self.method == "pds" else w
        from . import large

        w, theta, certificate = large.learn_edges(y, pairs, self.n_features_in_, average_degree=degree)
        self._say(f"relative duality gap {certificate.gap.item():.1e}, among the candidates")
        return large.pds(theta * y, pairs, self.n_features_in_) if self.method == "pds" else w

    def _keep(self, w, probability, y, pairs, unit):
        """Give w its most likely scale, w'y = m - number of components, and store it all as matrices."""
        m, (i, j) = self.n_features_in_, np.asarray(pairs)

        def matrix(x):
            A = sparse.coo_array((x[x > 0], (i[x > 0], j[x > 0])), shape=(m, m)).tocsr()
            A = A + A.T
            return A if self.candidates is not None else A.toarray()

        w = np.where(w > 1e-6 * w.max(), w, 0.0)
        n_components = csgraph.connected_components(matrix(w), directed=False)[0]
        w = w * ((m - n_components) / (w @ y.numpy())) / unit**2
        self._probability = None if probability is None else matrix(probability)
        self.adjacency_ = matrix(w if probability is None else np.where(probability >= self.min_probability, w, 0.0))
        self.laplacian_ = csgraph.laplacian(self.adjacency_)


def _spread(D, robust):
    """Root mean square of each column; robust: of its entries clipped at 3 times what the median says it is."""
    squares = D * D
    if robust:
        bound = CUT**2 * np.median(squares, 0) / 0.6744897501960817**2  # the median of |z| for a normal z
        inside = erf(CUT / 2**0.5) - CUT * (2 / np.pi) ** 0.5 * np.exp(-(CUT**2) / 2)
        expected = inside + CUT**2 * (1 - erf(CUT / 2**0.5))  # E min(z^2, CUT^2)
        squares = np.where(bound > 0, np.minimum(squares, bound) / expected, squares)
    return np.sqrt(squares.mean(0))


def _memory(n, m, candidates):
    """Bytes that fit needs at its peak, beside X."""
    if candidates is None:
        return 8 * (3 * n * m + 12 * m * m)
    from .large import estimate_memory

    return estimate_memory(m, n, candidates)


@cache
def _network(name):
    from .runs import RUNS
    from .training import load

    return load(RUNS[name])


def _unroll(y, m, family):
    """Unrolling knows graphs of mean degree 1 only: y in the unit in which it finds one, by bisection."""
    network, y = _network(f"unrolling-{family.lower()}-m20-t20"), y.float()
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        w = network.predict(y * (2.0**middle / y.mean()))
        low, high = (middle, high) if 2 * w.sum() > m else (low, middle)
    return w.double().numpy()
