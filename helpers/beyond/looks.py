"""Looks: what an estimate of a graph leaves unexplained of each pair, and what the data say of weights if it is right.

With all other atoms as they are thought to be, the likelihood of the data depends on the weight of one atom through two
numbers: its resistance in the graph without it, and what it sees. From these follow the evidence for an edge and the
weight to be expected (`weigh_evidence`), weights and ground that agree with each other (`settle`), and what the network
of `broad` is told about each pair before its last rounds (`explain_away`). A batch is stored pairs first, (E, B, ...).
"""

import math
from typing import NamedTuple

import torch
from numpy.polynomial.hermite import hermgauss

from ..graphs import degrees_adjoint
from .atoms import FASTEST, Atoms, resistances

N_AFTERTHOUGHTS = 21  # features of a pair from an estimate of all others, see `explain_away`;
N_WEIGHED = 4  # of them come from `weigh_evidence`,
N_FITTED = 3  # from the law of weights of the graph,
N_SETTLED = 3  # and the last from the ground, see `settle`
NODES, NODE_WEIGHTS = hermgauss(7)  # of integrals over a normal law
N_NEWTON = 6  # steps to where such an integrand is largest,
N_AGAIN = 2  # and if one starts from where it was largest before
SPREADS = (0.05, 3.0)  # least and largest standard deviation of log-weights that evidence is weighed with,
GROUND_SPREADS = (0.05, 4.0)  # and of the logarithm of the ground,
LEAST_GROUND = 1e-12  # with which a node begins to settle, beside the inverse of the mean variance
RELAXATION = 1.5  # of steps that all atoms take at once; those below 2 are stable
LEAST = 1e-3  # leverage of an improbable pair, times m: there is always a way from node to node
PAIRS_IN_PART = 100_000  # of one graph


class Known(NamedTuple):
    """What estimates are made from besides features, pairs (E, B) or nodes (m, B) first."""

    difference: torch.Tensor  # the most likely weights of a pair's two atoms,
    sum: torch.Tensor
    y_difference: torch.Tensor  # what they see,
    y_sum: torch.Tensor
    s: torch.Tensor  # how much the pair stands out of the noise,
    n_signals: torch.Tensor  # and the samples behind it
    y_ground: torch.Tensor  # the variance of a node,
    left: torch.Tensor  # and what its most likely ground leaves of its leverage
    signed: torch.Tensor  # (B,) bool
    loops: torch.Tensor  # (B,) bool, whether there is ground
    constant: torch.Tensor  # (B,) 1 where K lacks the constant vector, else 0


class Rest(NamedTuple):
    """Weights and ground that agree with the data, with each other and with their laws, see `settle`; float64."""

    weight: torch.Tensor  # (E, B)
    ground: torch.Tensor  # (m, B)
    law: tuple  # mean and standard deviation of log-weights, each (B,),
    ground_law: tuple  # and of the logarithm of the ground


class Thought(NamedTuple):
    """An estimate on the way, see `BroadL2G._judge`."""

    log_p: torch.Tensor  # log-probabilities of no, a positive and a negative edge, (E, B, 3)
    weight: torch.Tensor  # (E, B)
    rest: Rest | None = None  # if the network lets weights settle


class Look(NamedTuple):
    """What an estimate tells of each pair, see `explain_away`; pairs (E, B) or nodes (m, B) first."""

    told: torch.Tensor | None  # (E, B, N_AFTERTHOUGHTS), features
    alone: tuple  # the likeliest weights of a pair's two atoms,
    ground: torch.Tensor  # as it is thought to be
    weighed: tuple | None = None  # weights on the way to the expected ones, if these are not at rest
    law: tuple | None = None  # mean and standard deviation of log-weights, (B,), if they were fitted
    rest: Rest | None = None


# --- a look ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def explain_away(thought, known, before, edges, explain=resistances, *, fits=True):
    """What an estimate of all other pairs leaves unexplained of each pair: Thought, Look -> Look.

    Let K be made of the expected weights, w for an atom u. Without it, u has the resistance r = c / (1 - w c) where
    c = u'K^-1 u, and with another weight d the log-likelihood of N signals is N/2 (log(1 + d r) - d y) above that
    without it, most so for d = 1/y - 1/r. The mean of that likelihood ratio over a law of d is the evidence for the
    pair. The law is lognormal, with the mean and the spread of the log-weights of the estimate; if the network `fits`
    it, it is one step of expectation and maximisation away from these, or from the law of the look `before`. How many
    edges the estimate has tells how probable one is without the evidence. From the weight that was estimated to the
    expected one a pair goes as far as its leverage d u'K^-1 u, in logarithms. If all went the whole way at once,
    neighbouring pairs would explain the same thing twice; steps of that length, such as those of w <- w r / y, can be
    taken together. If the estimate has weights and ground at rest, K is made of these, with the law that they have.

    The features: for differences and for sums the gain of the likeliest d, as a standard score, of the weight that was
    estimated and of a typical one, and the likeliest d; the estimate itself; then, as in the estimate, the logits of
    both signs by the evidence, and for both the expected d; the spread, and the logits of both signs without evidence;
    how much of the variance of its nodes is ground, the spread of the ground, and its typical size beside a weight's.
    """
    log_p, weight, rest = thought
    weight = weight.double()
    _, *probable = log_p.double().exp().unbind(-1)
    n = known.n_signals.double()
    sees = known.y_difference.double(), known.y_sum.double()
    in_graph, ground = (rest.weight, rest.ground) if rest else (weight, before.ground.double())
    r, apart = resist(probable, in_graph, ground, known, explain)
    if rest:
        law = rest.law
    else:
        law = before.law or mean_and_spread(sum(probable), weight.log())
        law = law[0], law[1].clamp(*SPREADS)
        if fits:
            law = fit_law(probable, apart, sees, n, *law)
    mean, spread = law
    typical = mean.exp()
    usual = [(q.sum(0) + 0.5) / (len(q) + 1.5) for q in probable]  # probability of each sign
    none = 1 - usual[0] - usual[1]

    def weigh(*x):
        return torch.stack(weigh_evidence(*x, mean, spread), -1)

    told, alone, weighed, logits = [], [], [], []
    for without_it, y, resistance, on, q in zip(apart, sees, r[:2], (True, known.signed), usual):
        log_ratio = (without_it / y).clamp_min(1e-30).log().clamp(-5, 30)
        best = (1 / y - 1 / without_it).clamp_min(1e-12)
        score = log_ratio.sign() * (n * (log_ratio.neg().exp() - 1 + log_ratio).clamp_min(0)).sqrt()
        gains = [n / 2 * (torch.log1p(d * without_it) - d * y) for d in (weight, typical)]
        evidence, likely = in_parts(weigh, without_it, y, n).unbind(-1)
        told += [x * on for x in (score.asinh(), *(x.asinh() for x in gains), _ratio(best, typical))]
        logits += [((q / none).log() + evidence).clamp(-12, 12) / 3 * on, _ratio(likely, typical) * on]
        alone.append(best.to(known.s))
        leverage = (in_graph * resistance).clamp(0, 1)
        weighed.append((in_graph * (likely / in_graph) ** leverage).to(known.s))
    logit = (log_p[..., 1:] - log_p[..., :1]).clamp(-12, 12) / 3
    told += [logit[..., 0], logit[..., 1], _ratio(weight, typical), *logits]
    told += [x.expand_as(weight) for x in (spread.log() / 2, *((q / none).log() / 3 for q in usual))]
    if rest:
        share = (ground * r[2]).clamp(0, 1)
        typical_ground, ground_spread = rest.ground_law
        told += [degrees_adjoint(share.T, edges).T / 2, (ground_spread.log() / 2).expand_as(weight)]
        told.append(((typical_ground - mean) / 3).clamp(-4, 4).expand_as(weight))
    else:
        ground = ground * (r[2] / known.y_ground).clamp_max(FASTEST)
    told = torch.stack([x.to(log_p) for x in told], -1)
    if rest:
        return Look(told, alone, ground, rest=rest)
    return Look(told, alone, ground, weighed, law if fits else None)


def positive_share(positive, negative):
    """The probability that an edge, if there is one, is positive."""
    return positive / (positive + negative).clamp_min(1e-12)


def resist(probable, weight, ground, known, explain):
    """Resistances of all atoms, (E, B), (E, B) and (m, B), and those of pairs without them: weights (E, B) -> r, apart.

    K is made of the expected weights, `probable` being the probabilities of both signs, and of the ground (m, B).
    """
    m = len(ground)
    sees = known.y_difference.double(), known.y_sum.double()
    expected = [torch.maximum(q * weight, LEAST / (m * y)) for q, y in zip(probable, sees)]
    expected[1] = expected[1] * known.signed
    r = explain(Atoms(*(x.T for x in (*expected, ground))), known.constant[:, None].double())
    r = [x.T for x in r]
    return r, [without(w, x) for w, x in zip(expected, r)]


def without(w, r):
    """The resistance of an atom of weight w in K less this atom, from the one in K."""
    return r / (1 - (w * r).clamp_max(1 - 1e-6))


# --- weights and ground at rest -------------------------------------------------------------------------------------


@torch.no_grad()
def settle(p, known, look, explain, n_steps):
    """Weights and ground that agree with the data and with each other, if the probabilities of edges are right.

    In each step every atom moves towards the mean of its law given the data and all others as they are, see
    `expect_alone`, and then the laws of log-weights and of the logarithm of the ground are fitted by expectation and
    maximisation.

    Parameters
    ----------
    p : of no, a positive and a negative edge, (E, B, 3) float64
    look : before it there was a Rest from which weights and ground go on, or there was no look: then they go from the
        most likely ones, and from little ground of unknown size

    Returns
    -------
    Rest
    """
    n = known.n_signals.double()
    _, *probable = p.unbind(-1)
    q = torch.stack(probable)
    y = torch.stack([known.y_difference, known.y_sum]).double()
    y_ground = known.y_ground.double()
    share = positive_share(*probable)
    share = torch.stack([share, 1 - share])
    weight, ground, law, ground_law = look.rest or first_rest(probable, share, known, look.ground.double())
    x = x_ground = None
    for _ in range(n_steps):
        r, apart = resist(probable, weight, ground, known, explain)
        x, variance, moved = expect_alone(weight, torch.stack(r[:2]), torch.stack(apart), y, n, *law, x)
        weight = (share * moved).sum(0)
        law = moments_of_law(q.flatten(0, 1), x.flatten(0, 1), variance.flatten(0, 1), SPREADS)
        of_ground = without(ground, r[2]), y_ground, n.mean(0), *ground_law
        x_ground, variance, moved = expect_alone(ground, r[2], *of_ground, x_ground)
        ground = torch.where(known.loops, moved, ground)
        ground_law = moments_of_law(torch.ones_like(ground), x_ground, variance, GROUND_SPREADS)
    return Rest(weight, ground, law, ground_law)


def first_rest(probable, share, known, ground):
    """Where weights and ground begin to settle: Rest."""
    weight = (share * torch.stack([known.difference, known.sum])).sum(0).double().clamp_min(1e-9)
    mean, spread = mean_and_spread(sum(probable), weight.log())
    little = -known.y_ground.double().log().mean(0) - 2, torch.full_like(mean, 2.0)
    ground = torch.where(known.loops, ground.clamp_min(LEAST_GROUND), ground)
    return Rest(weight, ground, (mean, spread.clamp(*SPREADS)), little)


# --- one atom alone, and laws of many --------------------------------------------------------------------------------


def expect_alone(w, r, apart, y, n, mean, spread, x=None):
    """Where the logarithms of weights w are likeliest, their variance there, and w after a step to their means.

    All are those of the law of one atom given all others: resistance r in K, `apart` in K less the atom, moments y. The
    mean is by Laplace's method up to the third derivative, which is exact for a gamma law and for a lognormal one. If
    all went the whole way at once, they would explain the same thing many times. As far as the data decide, an atom
    goes its leverage w r of the way, times 1.5, and as far as the law does, all of it.
    """
    half = n / 2
    precision = spread**-2
    x, curvature = most_probable(apart, y, half, mean, precision, x)
    leverage, seen, _ = _at(x, apart, y, half, precision)
    third = half * (leverage * (1 - leverage) * (1 - 2 * leverage) - seen)
    log_mean = x + ((1 + third / curvature) / (2 * curvature)).clamp(-1, 1)
    leverage = (w * r).clamp(0, 1)
    way = RELAXATION * (half * leverage.square() + precision) / (half * leverage + precision)
    return x, 1 / curvature, w * (log_mean.exp() / w) ** way.clamp_max(1)


def mean_and_spread(p, x):
    """Mean and standard deviation, each (B,), of x (E, B), of which each value counts p (E, B)."""
    total = p.sum(0).clamp_min(1e-6)
    mean = (p * x).sum(0) / total
    return mean, ((p * (x - mean).square()).sum(0) / total + 1e-6).sqrt()


def fit_law(q, r, y, n, mean, spread):
    """A likelier mean and standard deviation of log-weights, each (B,): one step of expectation and maximisation.

    q, r, y : of differences and of sums, each (E, B): the probability of an edge, its resistance without it, and what
        it sees
    n : signals behind each pair, (E, B); mean, spread : (B,), from which the step goes

    The logarithm of a weight, given the data, is taken as normal around its most probable value. Of a pair that shows
    nothing this is the law as it was, so that the many improbable pairs do not widen it.
    """

    def expect(r, y, n):
        x, curvature = most_probable(r, y, n / 2, mean, spread**-2)
        return torch.stack([x, 1 / curvature], -1)

    x, variance = torch.cat([in_parts(expect, *of_sign, n) for of_sign in zip(r, y)]).unbind(-1)
    return moments_of_law(torch.cat(q), x, variance, SPREADS)


def moments_of_law(p, x, variance, bounds):
    """Mean and standard deviation, each (B,), of numbers that are known up to a variance, each counting p: (E, B)."""
    mean, between = mean_and_spread(p, x)
    within, _ = mean_and_spread(p, variance)
    return mean, (within + between.square()).sqrt().clamp(*bounds)


def weigh_evidence(r, y, n, mean, spread):
    """Log-evidence for an atom of unknown weight d, and the posterior mean of d, each of the shape of r.

    The likelihood ratio is (1 + d r)^(N/2) exp(-N/2 d y), and log d is normal with that mean and standard deviation.
    The integral over x = log d is by Gauss and Hermite, around the x where the integrand is largest and as wide as its
    curvature there.
    """
    half = n / 2
    precision = spread**-2
    x, curvature = most_probable(r, y, half, mean, precision)
    width = (2 / curvature).sqrt()
    values, d = [], []
    for t, weight in zip(NODES.tolist(), NODE_WEIGHTS.tolist()):
        z = x + width * t
        d.append(z.exp())
        prior = precision * (z - mean).square() / 2
        values.append(half * (torch.log1p(d[-1] * r) - d[-1] * y) - prior + t**2 + math.log(weight))
    values = torch.stack(values)
    whole = values.logsumexp(0)
    posterior_mean = ((values - whole).exp() * torch.stack(d)).sum(0)
    return whole + (width / spread).log() - math.log(2 * math.pi) / 2, posterior_mean


def most_probable(r, y, half, mean, precision, x=None):
    """The x = log d where likelihood ratio times prior is largest, and minus the second derivative of its logarithm.

    If x is given, the search starts there and is short.
    """
    n_newton = N_NEWTON if x is None else N_AGAIN
    x = _likely_start(r, y, half, mean, precision) if x is None else x
    for _ in range(n_newton):
        leverage, seen, curvature = _at(x, r, y, half, precision)
        x = x + ((half * (leverage - seen) - precision * (x - mean)) / curvature).clamp(-1, 1)
    return x, _at(x, r, y, half, precision)[2]


def _likely_start(r, y, half, mean, precision):
    """Between the largest values of likelihood ratio and prior."""
    sharpness = half * (1 - y / r).clamp_min(0).square()  # curvature of the likelihood where it is largest
    best = (1 / y - 1 / r).clamp_min(1e-12).log()
    return torch.minimum((sharpness * best + precision * mean) / (sharpness + precision), -y.log())


def _at(x, r, y, half, precision):
    """Of d = exp(x): d r / (1 + d r), d y, and minus the second derivative of the log-integrand, if it is concave."""
    d = x.exp()
    leverage = d * r / (1 + d * r)
    return leverage, d * y, (half * (d * y - leverage * (1 - leverage))).clamp_min(0) + precision


def _ratio(x, typical):
    return (x / typical).log().clamp(-6, 6) / 3


def split(x):
    """Parts of x (E, ...), one where there are gradients: what a layer makes of all pairs may not fit into memory."""
    return [x] if torch.is_grad_enabled() else x.split(PAIRS_IN_PART)


def in_parts(function, *x):
    """function(*x) for tensors (E, ...), part by part."""
    parts = [function(*part) for part in zip(*map(split, x))]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
