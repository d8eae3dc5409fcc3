"""Exact edge probabilities on small graphs: what any estimator, be it a network, should say of the same data.

The law. Every pair of nodes is an edge with probability p, and p itself is random; a signed law turns an edge negative
with probability 1/2. With standard normal z, and independent signals x_1 ... x_N,

    p ~ Beta(a, b)        log w_u = T t + s z_u        K = sum_u w_u u u' + sigma2 I        x ~ N(0, K^-1)

where u = e_i - e_j for a positive edge and e_i + e_j for a negative one (see `atoms`). A signed law also grounds every
node, u = e_i, and needs no sigma2. T t is the logarithm of the unit of the weights, s the spread of theirs about it.
Without ground the graph has at least one edge: that all nodes are alone cannot be told from a complete graph in
another unit.

The posterior. With k edges among E pairs, S = X'X / N, y_u = u'S u and theta = (z, t), up to a constant,

    log P(support, theta | X) = log B(a + k, b + E - k) - |theta|^2 / 2 + N/2 (logdet K - sum_u w_u y_u)

and k log 2 less if the law is signed, B being Euler's beta function.
`enumerate_supports` integrates over theta for each support, by importance sampling around the mode. An absent edge has
a z, too, which only its prior knows: it integrates to 1, and all supports are arrays of one shape. `run_chains` walks
over supports and weights by reversible jumps, for graphs that have too many supports. Both give a `Posterior`.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import betaln, logsumexp

from ..engine import jumps
from ..graphs import degrees, to_matrix
from ..signals import Observations, bartlett

MODES = 40  # Newton steps towards the modes
HALVINGS = 30  # of a step that leads down
DEGREES = 5  # of freedom of the t law that importance sampling draws from
PILOT = 64  # draws for every support to begin with
MOST = 0.9  # of the variance of a probability: the integrals behind it are drawn for again
DRAWS = 2**17  # that are held at once
LARGEST = 1e50  # of second moments, under laws whose unit is about 1
CERTAIN = 0.005  # a chain is judged by pairs whose probability is at least so far from 0 and 1


@dataclass(frozen=True)
class Law:
    """ER graphs with random density p ~ Beta(a, b) and lognormal weights; see the top of this file."""

    n_nodes: int
    signed: bool = False
    a: float = 1.0
    b: float = 1.0
    spread: float = 0.5  # s
    unit: float = 1.0  # T
    sigma2: float = 1e-4

    @property
    def ends(self):
        """Both ends of every pair, (2, E)."""
        return np.stack(np.triu_indices(self.n_nodes, 1))

    @property
    def n_pairs(self):
        return self.n_nodes * (self.n_nodes - 1) // 2

    @property
    def least(self):
        """The least number of edges."""
        return 0 if self.signed else 1

    @property
    def noise(self):
        """What is added to the diagonal of K."""
        return 0.0 if self.signed else self.sigma2

    def log_prior(self, n_edges):
        """Logarithm of the prior probability of one support with so many edges, up to a constant."""
        n_edges = np.asarray(n_edges)
        value = betaln(self.a + n_edges, self.b + self.n_pairs - n_edges) - self.signed * n_edges * np.log(2)
        return np.where(n_edges >= self.least, value, -np.inf)

    def atoms(self, signs):
        """u of every pair, e_i - sign e_j, and of the ground: signs (..., E) in {1, 0, -1} -> (..., U, m)."""
        eye = np.eye(self.n_nodes)
        pairs = eye[self.ends[0]] - np.asarray(signs)[..., None] * eye[self.ends[1]]
        if not self.signed:
            return pairs
        return np.concatenate([pairs, np.broadcast_to(eye, (*pairs.shape[:-2], *eye.shape))], -2)

    def present(self, signs):
        """Which atoms are in: (..., E) -> (..., U), 0 or 1; the ground always is."""
        here = np.abs(signs).astype(float)
        return np.concatenate([here, np.ones((*here.shape[:-1], self.n_nodes))], -1) if self.signed else here


LAWS = {
    "exact4": Law(4, signed=True),
    "exact5": Law(5),
    "exact10": Law(10, b=3.0),
    "exact20": Law(20, b=3.0),
}


class Posterior(NamedTuple):
    """Probabilities of a positive and of a negative edge, (E,), the standard error of the Monte-Carlo estimate of each,
    (2, E), and what tells whether it can be believed: {name: number}."""

    positive: np.ndarray
    negative: np.ndarray
    error: np.ndarray
    diagnostics: dict


# --- draws from the law --------------------------------------------------------------------------------------------


def sample_law(law, n, n_signals, *, seed):
    """Observations of n graphs and their signed weights w (n, E) float64; `n_signals` is a number or (n,)."""
    rng = np.random.default_rng(seed)
    signs, x, _ = draw_graphs(law, n, rng)
    numbers = np.broadcast_to(np.asarray(n_signals, dtype=int), n)
    w = torch.from_numpy(signs * np.exp(x[:, : law.n_pairs]))
    ground = torch.from_numpy(np.exp(x[:, law.n_pairs :])) if law.signed else torch.tensor(law.sigma2)
    K = torch.diag_embed(degrees(w.abs()) + ground) - to_matrix(w)
    F = torch.linalg.inv(torch.linalg.cholesky(K)).mT.numpy()
    B = [f @ bartlett(rng, 1, law.n_nodes, int(number))[0] for f, number in zip(F, numbers, strict=True)]
    moments = np.stack([b @ b.T / number for b, number in zip(B, numbers, strict=True)])
    return Observations(torch.from_numpy(moments), torch.from_numpy(numbers.astype(float))), w


def draw_graphs(law, n, rng):
    """From the prior: signs (n, E), log-weights (n, U), also of absent atoms, and logarithms of the units (n, 1)."""
    signs = np.zeros((n, law.n_pairs), dtype=np.int64)
    todo = np.ones(n, dtype=bool)
    while todo.any():  # graphs with too few edges are drawn again, with their p
        p = rng.beta(law.a, law.b, (todo.sum(), 1))
        signs[todo] = rng.random((todo.sum(), law.n_pairs)) < p
        todo = signs.sum(-1) < law.least
    if law.signed:
        signs *= rng.choice((-1, 1), signs.shape)
    log_unit = law.unit * rng.standard_normal((n, 1))
    n_atoms = law.n_pairs + law.signed * law.n_nodes
    return signs, log_unit + law.spread * rng.standard_normal((n, n_atoms)), log_unit


def _precision(atoms, w, noise):
    """K: atoms (..., U, m), w (..., n, U) -> (..., n, m, m)."""
    m = atoms.shape[-1]
    outer = (atoms[..., None] * atoms[..., None, :]).reshape(*atoms.shape[:-1], m * m)
    return (w @ outer).reshape(*w.shape[:-1], m, m) + noise * np.eye(m)


# --- all supports --------------------------------------------------------------------------------------------------


def enumerate_supports(law, moments, n_signals, *, tolerance=0.0025, seed):
    """The posterior of signals with second moments S (m, m), by an integral for each of the supports.

    Those integrals that matter most are drawn for again, four times as long, until no standard error of a probability
    is above the tolerance. Diagnostics: "supports", their number; "effective", the least share of effective draws among
    supports with a probability of at least 1 %.
    """
    target = Target(law, _check_moments(law, moments), float(n_signals), all_supports(law))
    mode, curvature = find_modes(target)
    rng = np.random.default_rng(seed)
    n_draws = np.full(len(mode), PILOT)
    log_z, variation = integrate(target, mode, curvature, PILOT, rng)
    kinds = np.stack([target.signs > 0, target.signs < 0])  # (2, A, E)
    while True:
        mass = np.exp(log_z - logsumexp(log_z))
        p = np.einsum("a,kae->ke", mass, kinds)
        # delta method: an error of one integral moves all probabilities, which are ratios of sums of integrals
        variance = ((mass * variation) ** 2 / n_draws)[:, None, None] * (kinds - p[:, None]).swapaxes(0, 1) ** 2
        error = np.sqrt(variance.sum(0))
        if error.max() <= tolerance:
            break
        part = variance.max((1, 2))
        order = part.argsort()[::-1]
        chosen = order[: 1 + np.searchsorted(part[order].cumsum(), MOST * part.sum())]
        n_draws[chosen] *= 4
        for n in np.unique(n_draws[chosen]):
            rows = chosen[n_draws[chosen] == n]
            log_z[rows], variation[rows] = integrate(target[rows], mode[rows], curvature[rows], n, rng)
    effective = 1 / (1 + variation[mass > 0.01] ** 2)
    return Posterior(*p, error, {"supports": len(mass), "effective": float(effective.min(initial=1))})


def all_supports(law):
    """Signs of the pairs, (A, E), in every graph that the law allows."""
    signs = np.array(list(product((0, 1, -1) if law.signed else (0, 1), repeat=law.n_pairs)))
    return signs[np.abs(signs).sum(-1) >= law.least]


def _check_moments(law, moments):
    S = np.asarray(moments, dtype=np.float64)
    if S.shape != (law.n_nodes, law.n_nodes) or not np.isfinite(S).all():
        raise ValueError(f"moments has shape {S.shape}: finite second moments of {law.n_nodes} nodes are needed")
    if np.abs(S).max() > LARGEST:
        raise ValueError(f"moments up to {np.abs(S).max():.0e} are out of range: divide the signals by their size")
    return S


class Target:
    """log P(support, theta | X) up to a constant, for A supports at once: theta (A, n, U + 1), the last of them t."""

    def __init__(self, law, S, n_signals, signs):
        self.law, self.S, self.n_signals, self.signs = law, S, n_signals, signs
        self.atoms = law.atoms(signs)
        self.present = law.present(signs)[:, None]
        self.y = np.einsum("aui,ij,auj->au", self.atoms, S, self.atoms)[:, None]
        self.log_prior = law.log_prior(np.abs(signs).sum(-1))[:, None]

    def __getitem__(self, rows):
        """The same for some of the supports."""
        return Target(self.law, self.S, self.n_signals, self.signs[rows])

    def __call__(self, theta):
        """(A, n, U + 1) -> (A, n)."""
        w = self.weights(theta)
        logdet = np.linalg.slogdet(_precision(self.atoms, w, self.law.noise))[1]
        fit = self.n_signals / 2 * (logdet - (w * self.y).sum(-1))
        return self.log_prior + fit - (theta**2).sum(-1) / 2

    def weights(self, theta):
        """(A, n, U + 1) -> w (A, n, U)."""
        return self.present * np.exp(self.law.spread * theta[..., :-1] + self.law.unit * theta[..., -1:])

    def slope_and_curvature(self, theta):
        """Gradient (A, U + 1), and a positive definite (A, U + 1, U + 1) near minus the Hessian, at theta (A, U + 1).

        By log w these are N/2 w (r - y), r = u'K^-1 u, and N/2 w_u w_v (u'K^-1 v)^2 - diag(N/2 w (r - y)), of whose
        diagonal only the positive part is taken.
        """
        w = self.weights(theta[:, None])
        K = _precision(self.atoms, w, self.law.noise)[:, 0]
        G = self.atoms @ np.linalg.solve(K, self.atoms.swapaxes(-1, -2))
        first = self.n_signals / 2 * (w * (np.diagonal(G, 0, -2, -1)[:, None] - self.y))[:, 0]
        second = self.n_signals / 2 * w.swapaxes(-1, -2) * w * G**2
        eye = np.eye(w.shape[-1])
        second += np.maximum(-first, 0)[..., None] * eye
        to_logs = np.hstack([self.law.spread * eye, np.full((len(eye), 1), self.law.unit)])
        return first @ to_logs - theta, to_logs.T @ second @ to_logs + np.eye(len(eye) + 1)


def find_modes(target):
    """The mode of every support, (A, U + 1), and the curvature there, by Newton's method with steps halved at need."""
    theta = np.zeros((len(target.signs), target.present.shape[-1] + 1))
    value = target(theta[:, None])[:, 0]
    for _ in range(MODES):
        slope, curvature = target.slope_and_curvature(theta)
        step = np.linalg.solve(curvature, slope[..., None])[..., 0]
        for _ in range(HALVINGS):
            new = target((theta + step)[:, None])[:, 0]
            worse = ~(new >= value)
            if not worse.any():
                break
            step[worse] /= 2
        theta = np.where(worse[:, None], theta, theta + step)
        value = np.where(worse, value, new)
        if np.abs(step).max() < 1e-6:
            break
    return theta, target.slope_and_curvature(theta)[1]


def integrate(target, mode, curvature, n_draws, rng):
    """Logarithm of the integral over theta, up to a constant, and the coefficient of variation of its draws: (A,) each.

    Draws follow a t law around the mode: theta = mode + C'^-1 z sqrt(nu / chi2), with C C' the curvature.
    """
    n, d = mode.shape
    C = np.linalg.cholesky(curvature)
    inverse = np.linalg.inv(C)
    log_scale = np.log(np.diagonal(C, 0, -2, -1)).sum(-1)[:, None]
    log_ratio = np.empty((n, n_draws))
    for k in range(0, n_draws, at_once := max(1, DRAWS // n)):
        part = log_ratio[:, k : k + at_once]
        z = rng.standard_normal((*part.shape, d))
        stretch = np.sqrt(DEGREES / rng.chisquare(DEGREES, part.shape))
        theta = mode[:, None] + stretch[..., None] * (z @ inverse)
        squares = stretch**2 * (z**2).sum(-1)
        part[:] = target(theta) + (DEGREES + d) / 2 * np.log1p(squares / DEGREES) - log_scale
    largest = log_ratio.max(-1, keepdims=True)
    ratio = np.exp(log_ratio - largest)
    return largest[:, 0] + np.log(ratio.mean(-1)), ratio.std(-1, ddof=1) / ratio.mean(-1)


# --- a chain over supports and weights -----------------------------------------------------------------------------


def run_chains(law, moments, n_signals, *, n_sweeps, n_chains=4, n_batches=25, seed):
    """The posterior of signals with second moments S (m, m), by reversible jumps over supports and weights.

    The chains start from as few edges as can be, from all of them, and from the prior. Each takes n_sweeps / 5 sweeps
    before it counts, and standard errors are those of the means of batches of sweeps. Diagnostics, the worst over the
    pairs that are in doubt: "r_hat", the root of the variance of all chains over that within one, which is 1 if they
    agree, and "effective", the number of independent draws that would have these standard errors.
    """
    if n_chains < 2 or n_sweeps < 5 * n_batches:
        least = f"2 chains of {5 * n_batches} sweeps are the least that can be judged"
        raise ValueError(f"n_chains={n_chains}, n_sweeps={n_sweeps}: {least}")
    S = _check_moments(law, moments)
    p = np.empty((n_chains, n_batches, 2, law.n_pairs))
    for k, child in enumerate(np.random.SeedSequence(seed).spawn(n_chains)):
        rng = np.random.default_rng(child)
        state = draw_state(law, rng)
        if k < 2:
            state.signs[:] = k
            state.signs[: law.least] = 1
        walk(law, S, n_signals, state, n_sweeps // 5, 1, rng)
        p[k] = walk(law, S, n_signals, state, n_sweeps, n_batches, rng)
    mean = p.mean((0, 1))
    error = p.std((0, 1), ddof=1) / np.sqrt(n_chains * n_batches)
    doubtful = (mean > CERTAIN) & (mean < 1 - CERTAIN)
    within = (p.mean(1) * (1 - p.mean(1))).mean(0)[doubtful]
    r_hat = np.sqrt(1 + p.mean(1).var(0, ddof=1)[doubtful] / within).max(initial=1)
    effective = ((mean * (1 - mean))[doubtful] / error[doubtful] ** 2).min(initial=n_chains * n_sweeps)
    return Posterior(*mean, error, {"r_hat": float(r_hat), "effective": float(effective)})


def mean_weights(law, moments, n_signals, start, *, n_sweeps, stride=4, spreads=None, seed):
    """The posterior means of positive weights, an absent edge counting as 0, by each of two chains: (2, E).

    No estimate has less expected squared error under the law. Many edges of nearly equal weights hardly change their
    unit together, so that the chains start from weights `start` (E,) of the right size: those above a tenth and above a
    third of their mean. They take n_sweeps / 4 sweeps before they count. With `spreads`, values that are equally
    probable without data, the spread of the law is unknown, and is drawn anew after each `stride` of sweeps.
    """
    S = _check_moments(law, moments)
    total = np.zeros((2, law.n_pairs))
    for mean, part, child in zip(total, (0.1, 1 / 3), np.random.SeedSequence(seed).spawn(2)):
        rng = np.random.default_rng(child)
        present = start > part * start[start > 0].mean()
        logs = np.log(np.maximum(start, start[present].min()))
        state = State(present.astype(np.int64), logs, logs[present].mean(keepdims=True))
        n_strides = n_sweeps // stride
        for k in range(-(n_strides // 4), n_strides):
            walk(law, S, n_signals, state, stride, 1, rng)
            if spreads is not None:
                law = replace(law, spread=draw_spread(state, spreads, rng))
            if k >= 0:
                mean += state.signs * np.exp(state.x) / n_strides
    return total


def draw_spread(state, spreads, rng):
    """One of the values `spreads` (n,) that the standard deviation of log-weights may have, given the weights."""
    off = state.x[state.signs != 0] - state.log_unit
    log_p = -len(off) * np.log(spreads) - np.square(off).sum() / (2 * spreads**2)
    p = np.exp(log_p - log_p.max())
    return float(rng.choice(spreads, p=p / p.sum()))


class State(NamedTuple):
    """Where a chain is: signs of the pairs (E,), log-weights of all atoms (U,), of which those of absent ones mean
    nothing, and the logarithm of the unit (1,). The chain changes them in place."""

    signs: np.ndarray
    x: np.ndarray
    log_unit: np.ndarray


def draw_state(law, rng):
    """A state from the prior."""
    signs, x, log_unit = draw_graphs(law, 1, rng)
    return State(signs[0], x[0], log_unit[0])


def walk(law, moments, n_signals, state, n_sweeps, n_batches, rng, moves=(True, True, True, True)):
    """Shares of sweeps in which a pair was a positive and a negative edge, (n_batches, 2, E); moves the state on.

    `moves` leaves out some kinds of moves: births and deaths, weights, edges that move to another pair, the unit.
    """
    index = np.zeros((law.n_nodes, law.n_nodes), dtype=np.int64)
    index[*law.ends] = index[*law.ends[::-1]] = np.arange(law.n_pairs)
    constants = (law.spread, law.unit, law.a, law.b, law.noise, law.least, law.signed)
    shares = np.zeros((n_batches, 2, law.n_pairs))
    each = n_sweeps // n_batches
    jumps.walk(np.asarray(moments), n_signals / 2, constants, law.ends, index, *state, moves, rng, each, shares)
    return shares
