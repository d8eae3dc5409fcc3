"""`GraphLearner`: from a table of samples, one column per node, to a graph; a scikit-learn estimator.

X ──► centre, scale ──► moments or distances ──► method ──► most likely scale ──► adjacency_, precision_, ...

Everything runs on the CPU. This is the one file of the core that looks into `beyond`: it offers what is there.
"""

import math
import time
import warnings
from collections.abc import Sequence
from functools import cache
from numbers import Integral
from typing import Self

import numpy as np
import psutil
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import validate_data

from . import paths, solvers, training
from .beyond import doubts, moments
from .beyond.broad import BroadL2G
from .beyond.candidates import adjacency, candidate_edges, check_memory, signed_candidate_edges
from .beyond.completion import signed_laplacian
from .beyond.equivariant import EquivariantL2G
from .beyond.estimates import learn_from_moments, learn_on_list
from .beyond.learned import LearnedGraph
from .beyond.likelihood import is_edge, laplacian_log_likelihood, laplacian_mle, log_likelihood, most_likely, unit_scale
from .beyond.transfer import unroll
from .graphs import FAMILIES, all_pairs, differences, to_vector
from .models import Unrolling
from .signals import distances, pair_distances, root_mean_square

METHODS = ("equivariant", "pds", "exact", "mle", "unrolling")
CANDIDATE_METHODS = ("equivariant", "exact", "pds", "unrolling")  # those that work on a list of candidates
PRIORS = ("broad", "mixed", *FAMILIES)
NETWORKS = {"equivariant": EquivariantL2G, "broad": BroadL2G, "unrolling": Unrolling}
FLAG = bool | np.bool_
SIGMA2 = 1e-4  # of Eq. (9), for graphs of mean degree 1


class GraphLearner(LearnedGraph, BaseEstimator):
    """Learn a weighted graph between the columns of X, whose edges are the pairs that depend on each other directly.

    By default rows are independent draws of a normal law with a sparse precision matrix K: an edge is an entry
    K_ij = -w_ij that is not 0, positive if its nodes vary together, given all others, and negative if they vary in
    opposite ways. With every other method and prior the model is the paper's Eq. (9), K = L + sigma^2 I, sigma small, L
    the Laplacian of a graph with positive weights. Weights always have the most likely scale: c X in place of X divides
    them by c^2 and changes nothing else. Nor does the order of the columns matter.

    Missing values (NaN) are possible with prior="broad" and without `candidates`. They are filled by what the rest of
    their row says of them (the EM algorithm), and how sure one can be of a pair is told by the number of rows that have
    both. Robust correlations are put together pair by pair instead and may contradict each other; then negative
    eigenvalues of their matrix are clipped to 0, and `summary` says so.

    Parameters
    ----------
    method : "equivariant", a network trained on random graphs, the only one with edge probabilities; "mle", maximum
        likelihood; "exact" or "pds", the paper's convex problem, Eq. (4), solved exactly or by its Algorithm 1;
        "unrolling", the paper's Algorithm 2 without autoencoder, trained on 20 nodes: with another number it warns.
    prior : what a network was trained on. "broad", for data as they are: graphs of many kinds with very unequal weights
        of both signs, and nodes that vary on their own. Data of the paper's law: "BA" (hubs), "ER" (no structure),
        "SBM" (communities), "WS" (small world) or "mixed". For equivariant; and for unrolling, where broad and mixed
        are the most likely of the four.
    signed : whether edges may be negative. None is True with prior="broad", and False where it is not possible.
    self_loops : whether a node may have variance that it shares with no other. False is the model of Eq. (9), for
        signals that are smooth on the graph. None is as for `signed`.
    average_degree : edges per node that are wished, at least 1; None is 4, or all where there are fewer. For exact and
        pds.
    min_probability : edges less probable are left out of `adjacency_`, and the rest is given its most likely scale. 0
        keeps all pairs, each with its expected weight, which has the least squared error, above all if samples are few.
        For equivariant.
    centre : subtract each column's mean. False where columns are compared by their level, such as points in space.
    standardise : divide each column by its standard deviation. Needed where columns have different units; otherwise
        how much a column varies is information (a node with few neighbours varies more) and better kept.
    robust : keep outliers and heavy tails from dominating: medians replace means, samples are brought to one size, and
        values, sums and differences beyond 3 standard deviations are clipped. Not for columns that rest at one value
        most of the time.
    time_series : True if rows follow each other in time. Of each row is then subtracted what the rows before it
        foretell, by one filter for all columns, and `n_independent` is "auto" unless it is a number. Results are about
        what is left. Slow signals have few independent samples, filtered ones nearly as many as rows.
    n_independent : how many independent samples X is worth; None is all of them, "auto" an estimate from the
        autocorrelations (Bartlett). The probabilities are only as good as this number.
    candidates : None considers all pairs of nodes. A number, at least 2, considers each node's so many nearest ones
        only, for graphs beyond a thousand nodes; results are then SciPy sparse arrays. About 3 times the wished degree
        is enough, and with negative edges rather more: 20 at least. 100,000 nodes take equivariant minutes, exact
        seconds.
    random_state : seed of the approximate search for candidates.
    verbose : print what is done, its time and memory; None does where `candidates` is given.

    Attributes
    ----------
    adjacency_ : (m, m), weights, negative ones for negative edges; sparse with `candidates`, as all matrices here
    edge_probability_ : (m, m), how sure it is that there is an edge of either sign; with method="equivariant" only
    partial_correlation_ : (m, m), the correlations of two columns given all others, 1 on the diagonal
    precision_, covariance_ : (m, m), K and its inverse, of the columns as centred and divided by `scale_`
    laplacian_ : (m, m), D - A, D the row sums of the absolute weights
    location_, scale_ : (m,), what the columns were centred on and divided by
    doubts_ : list of str, the warnings of this fit: reasons to distrust it, and remedies
    n_samples_, n_effective_ : rows that were used, and the independent samples that they are worth, a mean over pairs
    memory_ : (p,), with `time_series` how much of each of the last p rows was subtracted
    n_features_in_, feature_names_in_ : m, and the column names of a data frame as texts, unless they are 0, 1, ...

    Examples
    --------
    >>> learner = helpers.GraphLearner().fit(X)  # X (n_samples, n_nodes), an array or a data frame
    >>> learner.adjacency_, learner.edge_probability_
    >>> print(learner.summary())
    >>> learner.plot()
    """

    adjacency_: np.ndarray | sparse.csr_array
    laplacian_: np.ndarray | sparse.csr_array
    precision_: np.ndarray | sparse.csr_array
    location_: np.ndarray
    scale_: np.ndarray
    doubts_: list[str]
    n_samples_: int
    n_effective_: float

    def __init__(
        self,
        method: str = "equivariant",
        *,
        prior: str = "broad",
        signed: bool | None = None,
        self_loops: bool | None = None,
        average_degree: float | None = None,
        min_probability: float = 0.5,
        centre: bool = True,
        standardise: bool = False,
        robust: bool = False,
        time_series: bool = False,
        n_independent: float | str | None = None,
        candidates: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | None = None,
    ) -> None:
        self.method = method
        self.prior = prior
        self.signed = signed
        self.self_loops = self_loops
        self.average_degree = average_degree
        self.min_probability = min_probability
        self.centre = centre
        self.standardise = standardise
        self.robust = robust
        self.time_series = time_series
        self.n_independent = n_independent
        self.candidates = candidates
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the graph of X (n_samples, n_nodes); y is ignored. If it fails, the learner stays as it was."""
        return self._attempt(self._fit, X)

    def fit_moments(self, S: ArrayLike, n_samples: float | ArrayLike, *, names: Sequence[str] | None = None) -> Self:
        """Learn the graph from second moments, for those who have no rows.

        `fit(X)` is `fit_moments(numpy.cov(X.T), len(X))`, but that `standardise` divides by n there and by n - 1 here.
        Needs all pairs, `candidates=None`, and not `robust`.

        Parameters
        ----------
        S : (m, m), symmetric; with centre=True a covariance matrix as `numpy.cov` gives it, otherwise X'X / n
        n_samples : the rows behind S, a number or (m, m) with one number per pair
        names : (m,), of the columns; None takes those of S, if it is a data frame
        """
        return self._attempt(self._fit_moments, S, n_samples, names)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean log-likelihood of the rows of X under the normal law with precision_; for comparing learners of the same
        scaling and model, as in `GridSearchCV`. Rows with gaps count by the values that they have.

        Without negative edges and self-loops the law is Eq. (9), of which the rows' constant parts are left out, with
        sigma^2 = 1e-4 of the mean degree. Then, and if robust, gaps are filled as by fit.
        """
        return self._as_fitted()._score(X)

    def _score(self, X):
        X = self._validate(X, reset=False)
        if sparse.issparse(self.laplacian_):
            raise ValueError("score needs all pairs of nodes, candidates=None")
        Z = self._in_unit(moments.known_rows(self._forget(X)), self._unit)
        if self._can_sign or self._can_loop:
            K = self.precision_ * self._unit**2
            return moments.mean_log_likelihood(Z, K, unit=self._unit, robust=self.robust)
        m = X.shape[1]
        L = torch.from_numpy(self.laplacian_ * self._unit**2)
        sigma2 = SIGMA2 * L.trace() / m if L.any() else self.precision_[0, 0] * self._unit**2
        per_signal = laplacian_log_likelihood(L, self._distances(Z), sigma2=sigma2)
        return float(per_signal) - (m - 1) * math.log(self._unit)  # from the unit back to that of X

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_gaps
        return tags

    # --- what the options mean --------------------------------------------------------------------------------------

    @property
    def _is_broad(self):
        return self.method == "equivariant" and self.prior == "broad"

    @property
    def _can_sign(self):
        return self._is_broad and (self.signed is None or bool(self.signed))

    @property
    def _can_loop(self):
        return self._is_broad and (self.self_loops is None or bool(self.self_loops))

    @property
    def _takes_gaps(self):
        return self._is_broad and self.candidates is None

    @property
    def _talks(self):
        return bool(self.candidates) if self.verbose is None else bool(self.verbose)

    def _say(self, text):
        if self._talks:
            print(text, flush=True)

    def _check_options(self, m):
        """ValueError for an option that is not possible, with what is."""
        several = f"n_nodes - 1 = {m - 1}, or None"
        self._require("method", self.method in METHODS, f"choose one of {', '.join(METHODS)}")
        self._require("prior", self.prior in PRIORS, f"choose one of {', '.join(PRIORS)}")
        for name in ("signed", "self_loops"):
            possible = isinstance(getattr(self, name), FLAG | None) and (self._is_broad or not getattr(self, name))
            self._require(name, possible, "None, False, or with method='equivariant', prior='broad' True")
        for name in ("centre", "standardise", "robust", "time_series"):
            self._require(name, isinstance(getattr(self, name), FLAG), "True or False")
        self._require("verbose", isinstance(self.verbose, FLAG | None), "True, False or None")
        self._require("min_probability", moments.is_number(self.min_probability, 0, 1), "between 0 and 1")
        if self.average_degree is not None:
            possible = moments.is_number(self.average_degree, 1, m - 1)
            self._require("average_degree", possible, f"between 1 and {several}")
        if self.n_independent is not None:
            possible = self.n_independent == "auto" or moments.is_number(self.n_independent, 1, moments.MOST_SAMPLES)
            self._require("n_independent", possible, "a number from 1 to 1e15, 'auto', or None for all samples")
        if self.candidates is not None:
            whole = isinstance(self.candidates, Integral) and 2 <= self.candidates <= m - 1
            self._require("candidates", whole, f"a whole number between 2 and {several}")
            able = self.method in CANDIDATE_METHODS
            self._require("method", able, f"candidates= needs one of {', '.join(CANDIDATE_METHODS)}")
            decided = self.method != "unrolling" or self.prior in FAMILIES
            self._require("prior", decided, f"unrolling with candidates= needs one of {', '.join(FAMILIES)}")

    def _require(self, name, holds, wish):
        if not holds:
            raise ValueError(f"{name}={getattr(self, name)!r}: {wish}")

    def _check_memory(self, n, m):
        """Say what memory is needed; if there is less, MemoryError with options that fit."""
        method = "broad" if self._is_broad else self.method
        self._say(check_memory(n, m, self.candidates, method, psutil.virtual_memory().available))

    # --- the steps of fit -------------------------------------------------------------------------------------------

    def _attempt(self, steps, *data):
        """Do the steps of a fit and warn of what is doubtful; if something fails, the learner stays as it was."""
        before = dict(vars(self))
        try:
            self.doubts_ = []
            vars(self).pop("memory_", None)
            steps(*data)
            self._assumed = self.get_params(deep=False)
            for doubt in self.doubts_:
                warnings.warn(doubt, stacklevel=3)  # names the line that called fit
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    def _fit(self, X):
        X = self._validate(X, ensure_min_samples=2, ensure_min_features=2)
        moments.check_range(X)
        self._check_options(X.shape[1])
        if self.time_series:
            self.memory_ = moments.find_memory(X)
        rows = X
        X = moments.drop_empty_rows(self._forget(X), self.node_names_)
        n, m = X.shape
        self._check_memory(n, m)
        options = {"centre": self.centre, "standardise": self.standardise, "robust": self.robust}
        self.location_, self.scale_ = moments.location_and_scale(X, self.node_names_, **options)
        self._unit = moments.find_unit((X - self.location_) / self.scale_, may_agree=self._is_broad)
        Z = self._in_unit(X, self._unit)
        mean_costs = n / (n - 1) if self.centre and n > 1 else 1.0  # a mean that was estimated costs a sample
        self._variances = mean_costs * root_mean_square(Z, robust=self.robust) ** 2
        self._clipped = 0.0
        if self._is_broad:
            moments.check_spread(self._variances, self.node_names_)
        counted = self.n_independent == "auto" or (self.time_series and self.n_independent is None)
        share = moments.effective_share(Z) if counted else 1.0
        if self._is_broad and self.candidates is None:
            options = {"robust": self.robust, "ddof": bool(self.centre)}
            S, counts, mean, self._clipped = moments.second_moments(Z, **options)
            self.location_ = self.location_ + mean * self.scale_ * self._unit
            self._variances = np.where(self._variances > 0, np.diag(S), 0)
            n_signals = self._count(n, counts, share)
            self._learn_broad(learn_from_moments, S, n_signals)
            self._doubt(doubts.of_gaps(counts, self.node_names_), doubts.of_repair(self._clipped))
            edges, y = None, differences(torch.from_numpy(S if self.robust else moments.common_moments(Z, S)))
        else:
            n_signals = self._count(n, n, share)
            edges, y = self._pairs(Z)
            y = y * mean_costs
            if self._is_broad:
                options = {"robust": self.robust, "progress": self._talks}
                self._learn_broad(learn_on_list, Z * math.sqrt(mean_costs), edges, n_signals, **options)
            else:
                self._learn_laplacian(y, edges, n_signals)
        self._doubt_pairs(y, edges, n_signals)
        if not self._can_sign and self.candidates is None:
            S = moments.second_moments(Z).matrix
            self._doubt(doubts.of_negative_correlations(S, self.n_effective_, self.node_names_))
        if self.method == "equivariant" and self.n_independent in (None, "auto"):
            self._doubt(doubts.of_pattern(rows) or (None if counted else doubts.of_time(Z)))

    def _fit_moments(self, S, n_samples, names):
        labels = getattr(S, "columns", None) if names is None else names
        S, counts = moments.check_moments(S, n_samples)
        m = len(S)
        self._check_options(m)
        self._require("candidates", self.candidates is None, "moments are of all pairs: take None")
        self._require("robust", not self.robust, "outliers show in rows only: take False")
        self._require("time_series", not self.time_series, "time shows in rows only: take False")
        self._require("n_independent", self.n_independent != "auto", "time shows in rows only: take a number or None")
        self.n_features_in_ = m
        vars(self).pop("feature_names_in_", None)
        names = moments.check_names(labels, m)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        self.location_ = np.zeros(m)
        S, self.scale_, self._unit = moments.scale_moments(S, self.node_names_, standardise=self.standardise)
        S, self._clipped = moments.repair(S)
        self._variances = np.diag(S)
        moments.check_spread(self._variances, self.node_names_)
        n_signals = self._count(counts.max(), counts, 1.0)
        y = differences(torch.from_numpy(S)).clamp_min(0)
        if self._is_broad:
            self._learn_broad(learn_from_moments, S, n_signals)
        else:
            self._learn_laplacian(y, None, self.n_effective_)
        self._doubt(doubts.of_gaps(counts, self.node_names_), doubts.of_repair(self._clipped))
        self._doubt_pairs(y, None, n_signals)
        if not self._can_sign:
            self._doubt(doubts.of_negative_correlations(S, self.n_effective_, self.node_names_))

    def _validate(self, X, **options):
        """X as a float64 array, with NaN only where they can be dealt with."""
        X = moments.name_columns(moments.unmask(X))
        X = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", **options)
        if np.isnan(X).any() and not self._takes_gaps:
            raise ValueError(
                "X contains NaN: method='equivariant', prior='broad' without candidates learns from what is there, "
                "others cannot; choose these, or impute"
            )
        return X

    def _forget(self, X):
        """X without what rows foretell of the next ones, if they follow each other in time."""
        if not self.time_series:
            return X
        if len(X) <= len(self.memory_):
            raise ValueError(f"X has {len(X)} rows: with time_series=True more than {len(self.memory_)} are needed")
        return moments.forget(X, self.memory_)

    def _in_unit(self, X, unit):
        """Samples centred, scaled and divided by `unit`; robust: each brought to the same size."""
        Z = (X - self.location_) / self.scale_ / unit
        return moments.bring_to_one_size(Z) if self.robust else Z

    def _count(self, n, counts, share):
        """Independent samples, a number or, where there are gaps, (m, m); `counts` are the rows behind each pair."""
        gaps = np.ndim(counts) > 0 and (counts != counts[0, 0]).any()
        counts = counts if gaps else np.max(counts)
        if self.n_independent in (None, "auto"):
            signals = np.maximum(counts * share - bool(self.centre), 1.0)
        else:
            signals = np.maximum(counts / n * float(self.n_independent), 1.0)
        self.n_samples_ = int(n)
        self._missing = 1 - np.diag(counts).mean() / n if gaps else 0.0
        self.n_effective_ = float(to_vector(torch.from_numpy(signals)).mean()) if gaps else float(signals)
        return signals if gaps else float(signals)

    def _doubt(self, *found):
        self.doubts_ += [doubt for doubt in found if doubt]

    def _doubt_pairs(self, y, edges, n_signals):
        """Doubts about columns, by their variances and distances y (E,), and about the size of the graph."""
        edges = all_pairs(self.n_features_in_) if edges is None else edges
        about = (np.sqrt(self._variances), n_signals, self.node_names_)
        self._doubt(*doubts.of_columns(y.numpy(), edges.numpy(), *about, scaled=self.standardise))
        if self._is_broad:
            self._doubt(*doubts.of_size(self._probability, self.n_effective_))
            self._doubt(doubts.of_opposed_edges(self.adjacency_, self.node_names_))

    def _learn_broad(self, learn, *data, **options):
        """The graph by the broad network, which `learn` asks about data: see `estimates`."""
        start = time.perf_counter()
        options |= {"signed": self._can_sign, "self_loops": self._can_loop, "min_probability": self.min_probability}
        self._store(*learn(_network("broad"), *data, **options))
        self._say(f"{self.method} in {time.perf_counter() - start:.1f} s")

    def _pairs(self, Z):
        """The list of pairs considered, (2, E), or None for all of them; and their distances, (E,)."""
        start = time.perf_counter()
        if self.candidates is None:
            edges, y = None, self._distances(Z)
        else:
            seed = check_random_state(self.random_state).randint(2**31)
            search = signed_candidate_edges if self._can_sign else candidate_edges
            edges, y = search(Z, self.candidates, seed=seed)
            if self.robust:
                y = pair_distances(Z, edges, robust=True)
        self._say(f"{len(y):,} pairs of nodes in {time.perf_counter() - start:.1f} s")
        return edges, y

    def _distances(self, Z):
        """Distances of all pairs, (E,)."""
        if np.isnan(Z).any():
            return differences(torch.from_numpy(moments.second_moments(Z, robust=self.robust).matrix)).clamp_min(0)
        if self.robust or Z.shape[1] == 2 or moments.is_constant(Z):
            return pair_distances(Z, all_pairs(Z.shape[1]), robust=self.robust)
        return distances(Z)

    def _learn_laplacian(self, y, edges, n_independent):
        """The graph of distances y (E,), by any method but the broad network."""
        start = time.perf_counter()
        probability = None
        if self.method in ("mle", "unrolling"):
            moments.check_distinct(y, edges, self.node_names_, self.method)
        if self.n_features_in_ == 2:  # one edge, whose weight is a matter of scale
            w = torch.ones_like(y)
            probability = torch.ones_like(y) if self.method == "equivariant" else None
        elif self.method == "equivariant":
            w, probability = self._equivariant(y, edges, n_independent)
        elif self.method == "unrolling":
            w = self._unrolling(y, edges)
        elif self.method == "mle":
            w = laplacian_mle(y)
        else:
            w = self._convex(y, edges, self.average_degree)
        self._say(f"{self.method} in {time.perf_counter() - start:.1f} s")
        self._keep(w, probability, y, edges)

    @torch.no_grad()
    def _equivariant(self, y, edges, n_independent):
        """Expected weights and probabilities, (E,)."""
        network = _network("equivariant", self.prior)
        probability, weight = network(y, n_independent, edges, self.n_features_in_, progress=self._talks)
        return probability * weight, probability

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
        families = [self.prior] if self.prior in FAMILIES else FAMILIES
        found = [unroll(_network("unrolling", family), y, edges, m) for family in families]
        found = [most_likely(w, y, edges, m) for w in found]
        w = found[0] if len(found) == 1 else max(found, key=lambda w: log_likelihood(w, y, sigma2=SIGMA2))
        self._doubt(doubts.of_transfer(m, 2 * is_edge(w).sum().item() / m))
        return w

    def _keep(self, w, probability, y, edges):
        """Drop what is no edge, give the rest its most likely scale, and store it all as matrices."""
        m = self.n_features_in_
        w = torch.where(is_edge(w), w.double(), 0)
        if probability is not None:
            w = torch.where(probability >= self.min_probability, w, 0)
            probability = self._matrix(probability.double(), edges)
        self._store(self._matrix(most_likely(w, y, edges, m), edges), None, probability)

    def _store(self, A, K, probability):
        """The results, from weights, a precision matrix, or None for that of Eq. (9), and probabilities or None."""
        self._probability = probability
        (A.data if sparse.issparse(A) else A)[...] /= self._unit**2
        self.adjacency_ = A
        self.laplacian_ = signed_laplacian(self.adjacency_)
        if K is not None:
            self.precision_ = K / self._unit**2
            return
        degree = self.laplacian_.trace() / len(self._variances)
        sigma2 = SIGMA2 * degree if degree > 0 else 1 / self._variances.mean() / self._unit**2  # without edges: white
        eye = sparse.eye_array(self.n_features_in_) if self.candidates else np.eye(self.n_features_in_)
        self.precision_ = self.laplacian_ + sigma2 * eye

    def _matrix(self, x, edges):
        """Values of the pairs, (E,), as a symmetric matrix (m, m): sparse if the user asked for candidates."""
        edges = all_pairs(self.n_features_in_) if edges is None else edges
        A = adjacency(x, edges, self.n_features_in_)
        return A if self.candidates else A.toarray()


# --- networks --------------------------------------------------------------------------------------------------------


@cache
def _network(model, family=None):
    """A trained network that comes with the package, built from the arguments that its record states."""
    path = paths.WEIGHTS / (f"{model}-{family.lower()}" if family else model)
    record = training.read_record(path)
    return training.load(path, NETWORKS[model](**record["configuration"]["arguments"]))
