"""The broad law: random precision matrices, and second moments of samples from them, as data nobody drew may be.

For every graph the family, the number of edges, the spread of the weights, the share of negative edges, the ground, the
number of samples and what is wrong with them are drawn anew. A quarter of the graphs follow the paper's law, so that
what is general stays exact there. `LAW` has all the numbers.
"""

from typing import NamedTuple

import numpy as np
import torch

from ..graphs import all_pairs, random_adjacency, spawn
from ..signals import bartlett
from .moments import pairwise_moments, second_moments

FAMILIES = ("BA", "ER", "SBM", "WS", "geometric", "grid", "tree", "star", "empty", "dense")
LAW = {
    "nodes": (3, 200),  # log-uniform, the same for all graphs of an epoch of training
    "shares": (0.13, 0.17, 0.11, 0.12, 0.11, 0.06, 0.07, 0.04, 0.12, 0.07),  # of the families
    "n_signals": (5, 10_000),  # log-uniform
    "paper": 0.25,  # share of graphs with the paper's weights, ground and samples
    "degree": (0.4, 8.0),  # mean number of edges per node of families without a parameter of their own, log-uniform
    "even": 0.0,  # share of the others whose log-weights have a standard deviation up to 0.2; the rest up to 2,
    "spread": 3.0,  # which is 2 u^spread with a uniform u: its order of magnitude is open, as for the ground
    "plain": 0.5,  # share of the others whose diagonal is dominant and whose samples have nothing wrong with them
    "heavy": 0.1,  # share with one or two edges 10 to 100,000 times heavier
    "negative": 0.5,  # share with negative edges: up to 60 % of them
    "reversed": 0.1,  # share with columns of reversed sign
    "ground": (1e-4, 3.0),  # in units of the mean degree, log-uniform
    "undominated": 0.15,  # share with a lesser diagonal, so that K is positive definite but not dominant
    "noise": 0.25,  # share with measurement noise, unequal, about up to 0.5 of the variance of a node given the others
    "tails": 0.1,  # share with samples from a multivariate t law of 3 to 10 degrees of freedom
    "gaps": 0.1,  # share with missing values, here and there or from the beginning of a column on,
    "missing": 0.9,  # up to so much of a column,
    "filled": True,  # which are filled as GraphLearner does, or left out of the pairs they belong to
    "overstated": 0.2,  # share whose number of independent samples is up to half of what is said
    "scaled": 0.1,  # share with columns in other units, a standard deviation of up to 0.7 of their logarithms
    "standardised": 0.4,  # share with standardised columns
    "unsigned": 0.25,  # share learned without sum atoms
    "ungrounded": 0.5,  # share learned without the ground where it is below 1e-3
}
EIGHTH = LAW | {"plain": 0.75}  # of the last two courses: more samples with nothing wrong
SIXTH = LAW | {"noise": 0.6}  # of the sixth: more measurement noise
# of the first four courses: fewer graphs without edges, before that more graphs of very unequal weights, and at first
# fewer hard cases
FOURTH = LAW | {"shares": (0.13, 0.17, 0.12, 0.13, 0.12, 0.06, 0.08, 0.04, 0.08, 0.07), "plain": 0.4}
THIRD = FOURTH | {"even": 0.3, "spread": 1.0}
SECOND = THIRD | {"missing": 0.5}
FIRST = SECOND | {"degree": (1.0, 8.0), "even": 0.4, "spread": 1.5, "plain": 0.3, "filled": False, "overstated": 0.1}
# one kind only: ER graphs with one pair in ten joined, positive weights, and 500 clean samples, the number rounded down
TOLD = LAW | {
    "nodes": (50, 50), "shares": (0, 1, 0, 0, 0, 0, 0, 0, 0, 0), "degree": (4.9, 4.9), "n_signals": (500.5, 500.5),
    "ground": (1e-4, 1e-4), "paper": 0.0, "even": 0.0, "spread": 1.0, "plain": 1.0, "heavy": 0.0, "negative": 0.0,
    "reversed": 0.0, "scaled": 0.0, "standardised": 0.0, "unsigned": 0.0, "ungrounded": 0.0,
}  # fmt: skip
MOST_ROWS = 1000  # of samples with tails or gaps, which are drawn one by one


class Draw(NamedTuple):
    """Graphs of the broad law and what is observed of them."""

    moments: torch.Tensor  # S (n, m, m) float64
    n_signals: torch.Tensor  # (n, m, m) float64, behind each moment, as they are said to be
    w: torch.Tensor  # (n, E) float32, signed: minus the off-diagonal of the precision matrix
    signed: torch.Tensor  # (n,) bool, whether they are learned with sum atoms
    self_loops: torch.Tensor  # (n,) bool, and with a ground
    family: list  # n names


def sample_broad(n_graphs, n_nodes, *, seed, n_parts=32, families=None, law=LAW):
    """Draw graphs of one size; a part has one family with one set of parameters. `families` replaces the shares."""
    n_parts = min(n_parts, n_graphs)
    sizes = np.full(n_parts, n_graphs // n_parts)
    sizes[: n_graphs % n_parts] += 1
    parts = [_sample_part(int(n), n_nodes, child, families, law) for n, child in zip(sizes, spawn(seed, n_parts))]
    *tensors, family = zip(*parts)
    return Draw(*(torch.cat(t) for t in tensors), [name for part in family for name in part])


def _sample_part(n, m, seed, families, law):
    rng = np.random.default_rng(seed)
    family = rng.choice(families) if families else rng.choice(FAMILIES, p=law["shares"])
    A = _adjacency(rng, str(family), n, m, law)
    paper = rng.random(n) < law["paper"]
    W, negative = _weights(rng, A, paper, law)
    c = _ground(rng, W, paper, law)
    plain = paper | (rng.random(n) < law["plain"])
    K = _precision(rng, W, c, plain, law)
    S, n_said, noise_free = _moments(rng, K, plain, law)
    scale = _scales(rng, S, paper, law)
    S = S / scale[:, :, None] / scale[:, None, :]
    W = W * scale[:, :, None] * scale[:, None, :]
    small = (c < 1e-3 * np.abs(W).sum(2).mean(1, keepdims=True)).all(1) & noise_free & (family != "empty")
    signed = rng.random(n) >= law["unsigned"]
    loops = ~(small & (scale == 1).all(1)) | (rng.random(n) >= law["ungrounded"])
    W = np.where((signed | ~negative)[:, None, None], W, W.clip(0))
    i, j = all_pairs(m).numpy()
    w = torch.from_numpy(W[:, i, j]).float()
    tensors = (torch.from_numpy(x) for x in (signed, loops))
    return torch.from_numpy(S), torch.from_numpy(n_said), w, *tensors, [str(family)] * n


# --- graphs ---------------------------------------------------------------------------------------------------------


def _adjacency(rng, family, n, m, law=LAW):
    """n graphs (n, m, m) bool of one family with random parameters, nodes in random order."""
    low, high = law["degree"]
    degree = np.exp(rng.uniform(np.log(low), np.log(min(m - 1, high)) if m > 3 else 0.5))
    p = min(1.0, degree / (m - 1))
    if m < 6 and family in ("BA", "SBM", "WS", "grid"):
        family = "ER"
    if family == "BA":
        A = random_adjacency(rng, "BA", n, m, n_attach=int(rng.integers(1, min(5, m - 1))))
    elif family == "ER":
        A = random_adjacency(rng, "ER", n, m, p=p)
    elif family == "dense":
        A = random_adjacency(rng, "ER", n, m, p=rng.uniform(0.3, 0.9))
    elif family == "SBM":
        k = int(rng.integers(2, max(3, min(6, m // 5 + 1))))
        sizes = np.diff([0, *np.sort(rng.choice(np.arange(1, m), k - 1, replace=False)), m])
        p_in = min(1.0, rng.uniform(1, 2) * degree * k / m)
        A = random_adjacency(rng, "SBM", n, m, sizes=tuple(sizes), p_in=p_in, p_out=p_in * rng.uniform(0, 0.2))
    elif family == "WS":
        A = random_adjacency(rng, "WS", n, m, k=int(rng.integers(2, min(8, m - 1))), p=rng.uniform(0, 0.5))
    elif family == "geometric":
        A = _geometric(rng, n, m, degree)
    elif family == "grid":
        rows = max(2, round(np.sqrt(m)))
        i, j = np.divmod(np.arange(m), rows)
        A = np.broadcast_to(np.abs(i[:, None] - i) + np.abs(j[:, None] - j) == 1, (n, m, m))
    elif family == "tree":
        A = _tree(rng, n, m)
    elif family == "star":
        A = np.zeros((n, m, m), bool)
        n_hubs = int(rng.integers(1, max(2, m // 8)))
        hub = rng.integers(0, n_hubs, (n, m))
        graphs, leaves = np.nonzero(hub != np.arange(m))
        A[graphs, leaves, hub[graphs, leaves]] = True
        A |= A.transpose(0, 2, 1)
    else:
        A = np.zeros((n, m, m), bool)
    order = rng.random((n, m)).argsort(1)
    return A[np.arange(n)[:, None, None], order[:, :, None], order[:, None, :]]


def _geometric(rng, n, m, degree):
    """Points in the unit square, joined up to the distance that gives the mean degree."""
    x = rng.random((n, m, 2))
    distance = np.square(x[:, :, None] - x[:, None]).sum(-1) + 9 * np.eye(m)
    k = max(1, min(round(degree * m / 2), m * (m - 1) // 2))
    i, j = np.triu_indices(m, 1)
    radius = np.sort(distance[:, i, j], 1)[:, k - 1]
    return distance <= radius[:, None, None]


def _tree(rng, n, m):
    """Each node joins one that is there already."""
    A = np.zeros((n, m, m), bool)
    for new in range(1, m):
        old = rng.integers(0, new, n)
        A[np.arange(n), new, old] = A[np.arange(n), old, new] = True
    return A


# --- weights --------------------------------------------------------------------------------------------------------


def _weights(rng, A, paper, law=LAW):
    """Signed weights (n, m, m) of mean degree 1, and which graphs have negative ones."""
    n, m, _ = A.shape
    sd = np.where(rng.random(n) < law["even"], rng.uniform(0, 0.2, n), 2 * rng.uniform(0, 1, n) ** law["spread"])
    sd = np.where(paper, 0.07, sd)[:, None, None]
    logarithm = _symmetric(rng.standard_normal((n, m, m)) * sd)
    heavy = (rng.random(n) < law["heavy"]) & ~paper
    chosen = _symmetric(rng.random((n, m, m)) < 2 / np.maximum(A.sum((1, 2)) / 2, 2)[:, None, None])
    factor = np.exp(rng.uniform(np.log(10), np.log(100_000), n))
    W = A * np.exp(logarithm) * np.where(chosen & heavy[:, None, None], factor[:, None, None], 1)
    usual = A * np.exp(logarithm)
    W = W * m / np.maximum(usual.sum((1, 2)), 1e-300)[:, None, None]
    negative = (rng.random(n) < law["negative"]) & ~paper
    share = np.where(negative, rng.uniform(0, 0.6, n), 0)[:, None, None]
    sign = np.where(_symmetric(rng.random((n, m, m))) < share, -1.0, 1.0)
    turned = (rng.random(n) < law["reversed"]) & ~paper
    turn = np.where(turned[:, None] & (rng.random((n, m)) < 0.5), -1.0, 1.0)
    W = W * sign * turn[:, :, None] * turn[:, None, :]
    return W, (W < 0).any((1, 2))


def _ground(rng, W, paper, law=LAW):
    """c (n, m) > 0: unequal; for the paper's law 1e-4 of the mean degree; all that there is without edges."""
    n, m, _ = W.shape
    low, high = np.log(law["ground"])
    size = np.where(paper | (rng.random(n) < 0.1), 1e-4, np.exp(rng.uniform(low, high, n)))
    unequal = rng.uniform(0, 1, n) * ~paper
    c = size[:, None] * np.exp(unequal[:, None] * rng.standard_normal((n, m)))
    empty = ~W.any((1, 2))
    return np.where(empty[:, None], c / size[:, None], c)


def _precision(rng, W, c, plain, law=LAW):
    """K (n, m, m) of weights and ground; some diagonals are so much less that K is nearer to being singular.

    With D the diagonal, K - t D is positive definite as long as t is below the least eigenvalue of D^-1/2 K D^-1/2.
    """
    n, m, _ = W.shape
    D = np.abs(W).sum(2) + c
    K = D[:, :, None] * np.eye(m) - W
    chosen = (rng.random(n) < law["undominated"]) & ~plain
    root = np.sqrt(D)
    least = np.linalg.eigvalsh(K / root[:, :, None] / root[:, None, :])[:, 0].clip(0)
    t = np.where(chosen, rng.uniform(0, 0.9, n) * least, 0)
    return K - (t[:, None] * D)[:, :, None] * np.eye(m)


def _symmetric(X):
    upper = np.triu(X, 1)
    return upper | upper.transpose(0, 2, 1) if X.dtype == bool else upper + upper.transpose(0, 2, 1)


# --- samples --------------------------------------------------------------------------------------------------------


def _moments(rng, K, plain, law=LAW):
    """S (n, m, m), the numbers of signals as they are said to be (n, m, m), and where there is no measurement noise."""
    n, m, _ = K.shape
    Sigma = np.linalg.inv(K)
    noisy = (rng.random(n) < law["noise"]) & ~plain
    noise = rng.uniform(0, 0.5, (n, 1)) * np.exp(0.5 * rng.standard_normal((n, m))) / np.einsum("nii->ni", K)
    F = np.linalg.cholesky(Sigma + (noisy[:, None] * noise)[:, :, None] * np.eye(m))
    low, high = np.log(law["n_signals"])
    n_true = np.exp(rng.uniform(low, high, n)).astype(int)
    few = ~plain & (n_true <= MOST_ROWS)
    tails = (rng.random(n) < law["tails"]) & few
    gaps = (rng.random(n) < law["gaps"]) & few
    S = np.empty_like(K)
    counts = np.empty_like(K)
    for k in range(n):
        counts[k] = n_true[k]
        if not (tails[k] or gaps[k] or n_true[k] < m):
            root = F[k] @ bartlett(rng, 1, m, n_true[k])[0]
            S[k] = root @ root.T / n_true[k]
            continue
        X = rng.standard_normal((n_true[k], m)) @ F[k].T
        if tails[k]:
            freedom = rng.uniform(3, 10)
            X *= np.sqrt((freedom - 2) / rng.chisquare(freedom, (n_true[k], 1)))
        if gaps[k]:
            X = np.where(_missing(rng, *X.shape, law["missing"]), np.nan, X)
            known = ~np.isnan(X)
            S[k] = second_moments(X)[0] if law["filled"] else pairwise_moments(X)[0]
            counts[k] = known.T.astype(float) @ known
        else:
            S[k] = X.T @ X / n_true[k]
    overstated = (rng.random(n) < law["overstated"]) & ~plain
    factor = np.where(overstated, rng.uniform(1, 2, n), 1)
    return S, counts.clip(1) * factor[:, None, None], ~noisy


def _missing(rng, n, m, most):
    """What is missing of a table, (n, m) bool: of each column up to `most`, here and there or from its beginning on."""
    share = rng.uniform(0, rng.uniform(0, most), m)
    here = rng.random((n, m)) if rng.random() < 0.5 else (np.arange(n)[:, None] + 0.5) / n
    missing = here < share
    missing[rng.choice(n, min(n, 3), replace=False)] = False  # what the learner asks for at least
    return missing


def _scales(rng, S, paper, law=LAW):
    """What the columns are divided by, (n, m): their standard deviations, other units, or 1."""
    n, m, _ = S.shape
    what = rng.random(n)
    units = np.exp(rng.uniform(0, 0.7, (n, 1)) * rng.standard_normal((n, m)))
    deviations = np.sqrt(np.einsum("nii->ni", S))
    usual = law["standardised"]
    scale = np.where((what < usual)[:, None], deviations, 1.0)
    scale = np.where(((what >= usual) & (what < usual + law["scaled"]))[:, None], units, scale)
    return np.where(paper[:, None] & (what >= 0.1)[:, None], 1.0, scale)
