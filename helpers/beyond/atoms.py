"""Precision matrices made of three kinds of atoms, and their maximum likelihood on all pairs of nodes.

    K = sum a_ij (e_i - e_j)(e_i - e_j)'  +  sum b_ij (e_i + e_j)(e_i + e_j)'  +  sum c_i e_i e_i',    a, b, c >= 0,

"difference" atoms for positive partial correlations, "sum" atoms for negative ones, and the "ground" for what a node
shares with nobody. Every symmetric diagonally dominant matrix is such a sum; the paper's Laplacians have differences
only. An atom u sees y_u = u'S u of the second moments S. The likelihood, up to constants and the sign,

    f(w) = sum w_u y_u - logdet K,

has its minimum where r_u = u'K^-1 u <= y_u for all atoms, with equality where w_u > 0, and w <- w r / y never increases
it. The leverages w_u r_u add up to the rank of K, m, or m - 1 for a Laplacian, whose constant vector is left out.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..graphs import all_pairs, degrees, degrees_adjoint, differences, to_matrix, to_vector
from ..solvers import Certificate, bounds_if
from .likelihood import interior_point, warn_if_above

FASTEST = 1e3  # factor by which a weight may grow in one update


class Atoms(NamedTuple):
    """One number per atom: differences (..., E), sums (..., E), ground (..., m); zeros for a kind that is left out."""

    difference: torch.Tensor
    sum: torch.Tensor
    ground: torch.Tensor

    @classmethod
    def of(cls, S):
        """u'S u for every atom u: S (..., m, m)."""
        d = S.diagonal(dim1=-2, dim2=-1)
        return cls(differences(S), degrees_adjoint(d) + 2 * to_vector(S), d)

    def matrix(self):
        """K (..., m, m) for atoms with these weights."""
        diagonal = degrees(self.difference + self.sum) + self.ground
        return torch.diag_embed(diagonal) - to_matrix(self.difference - self.sum)

    def total(self):
        """The sum over all atoms, (...)."""
        return sum(x.sum(-1) for x in self)

    def times(self, other):
        """Atom by atom."""
        return Atoms(*(x * y for x, y in zip(self, other)))


@dataclass(frozen=True)
class Kinds:
    """Which kinds of atoms a precision matrix may have: differences always, the others per graph or for all.

    signed : bool or (...) bool, sum atoms; self_loops : bool or (...) bool, the ground
    """

    signed: bool | torch.Tensor = True
    self_loops: bool | torch.Tensor = True

    def masks(self, like):
        """1 where there are sum atoms, ground, and where K lacks the constant vector, each (..., 1)."""
        shape = (*like.shape[:-1], 1)
        signed, loops = (
            torch.as_tensor(x, dtype=torch.bool, device=like.device).reshape(*torch.as_tensor(x).shape, 1).expand(shape)
            for x in (self.signed, self.self_loops)
        )
        return signed.to(like), loops.to(like), (~signed & ~loops).to(like)


ALL = Kinds()


@torch.no_grad()
def resistances(w, constant=0.0):
    """u'K^-1 u for every atom u, K made of weights w: Atoms -> Atoms, float64.

    Where K is a Laplacian `constant` is 1, else 0, (..., 1): it then has the constant vector added. Rounding cannot
    make K indefinite: its diagonal is larger by a factor of 1 + 1e-10.
    """
    K = w.matrix()
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    common = torch.as_tensor(constant) * diagonal.mean(-1, keepdim=True) / K.shape[-1]
    K = K + torch.diag_embed(1e-10 * diagonal) + common[..., None]
    r = Atoms.of(torch.cholesky_inverse(torch.linalg.cholesky(K)))
    return r._replace(difference=r.difference.clamp_min(0))


def white_signal(y, n_signals, edges=None):
    """The variance (...) of one more signal, white and of the size of the near distances, divided by N.

    Added to S it keeps the likelihood bounded for N < m and for nodes that always agree. It is half of the median over
    the nodes of the harmonic mean of the y of a node's pairs, so that few copies do not matter. With more signals than
    nodes it is not needed and fades by a further 1 / (1 + (N/m)^2): heavy edges, with small y, would be biased by it. y
    is of all pairs or of those on the list `edges` (2, E), where the pairs of a node stand in for m.
    """
    near = torch.minimum(y.difference, y.sum)
    floor = 1e-3 * near.median(-1, keepdim=True).values
    inverse = 1 / torch.maximum(near, floor).clamp_min(torch.finfo(near.dtype).tiny)
    m = y.ground.shape[-1]
    n_pairs = degrees(torch.ones_like(near), edges, m)
    near = (n_pairs / degrees(inverse, edges, m)).median(-1).values
    return near / (2 * n_signals) / (1 + (n_signals / (1 + n_pairs.mean(-1))) ** 2)


# --- maximum likelihood ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Design:
    """The linear maps between weights (..., A), all atoms in one row, and matrices, for `likelihood.interior_point`."""

    n_nodes: int
    kinds: Kinds

    def rows(self, atoms):
        """The atoms that there are, one kind after the other: (..., A)."""
        there = (True, self.kinds.signed, self.kinds.self_loops)
        return torch.cat([x for x, is_there in zip(atoms, there) if is_there], -1)

    def atoms(self, w):
        """The inverse of `rows`, with zeros for kinds that are left out."""
        m = self.n_nodes
        E = m * (m - 1) // 2
        there = (True, self.kinds.signed, self.kinds.self_loops)
        sizes = [size for size, is_there in zip((E, E, m), there) if is_there]
        parts = iter(w.split(sizes, -1))
        return Atoms(*(next(parts) if there[k] else w.new_zeros(*w.shape[:-1], (E, E, m)[k]) for k in range(3)))

    def matrix(self, w):
        return self.atoms(w).matrix()

    def moments(self, S):
        return self.rows(Atoms.of(S))

    def covariance(self, w):
        """K^-1, and logdet K; without sums and ground, on the complement of the constants."""
        K = self.matrix(w)
        if self.rank < self.n_nodes:
            K = K + 1 / self.n_nodes
        C = torch.linalg.cholesky(K)
        return torch.cholesky_inverse(C), 2 * C.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def cross_moments(self, S):
        """u_a'S u_c for every two atoms: (m, m) -> (A, A)."""
        i, j = all_pairs(self.n_nodes, S.device)
        eye = torch.eye(self.n_nodes, dtype=S.dtype, device=S.device)
        U = self.rows([x.mT for x in (eye[i] - eye[j], eye[i] + eye[j], eye)])
        return U.mT @ S @ U

    @property
    def rank(self):
        return self.n_nodes - (not self.kinds.signed and not self.kinds.self_loops)


@torch.no_grad()
def atoms_mle(S, kinds=ALL, *, tol=1e-8, n_iter=100):
    """The most likely weights: S (..., m, m) of full rank -> Atoms, by the interior-point method of `likelihood`.

    `kinds` are the same for all graphs. A ConvergenceWarning if the KKT residual is above `tol` after `n_iter`.
    """
    m = S.shape[-1]
    design = Design(m, kinds)
    flat = S.double().reshape(-1, m, m)
    w, kkt = interior_point(design.moments(flat), design, tol, n_iter)
    warn_if_above(tol, kkt, n_iter)
    return design.atoms(w.reshape(*S.shape[:-2], -1))


@torch.no_grad()
def atoms_certificate(w, S, kinds=ALL):
    """Primal and dual value, gap relative to the rank, and KKT residual of Atoms w as the most likely ones for S.

    With c = min(y / r), c K^-1 is feasible for the dual problem, the maximum of rank + logdet X over u'X u <= y_u. The
    residual is max |min(w y, 1 - r / y)|. A negative weight is infeasible: primal, gap and residual are infinite.
    """
    design = Design(S.shape[-1], kinds)
    y = design.moments(S.double())
    x = design.rows([part.double() for part in w])
    Sigma, logdet = design.covariance(x)
    r = design.moments(Sigma)
    c = (y / r).amin(-1)
    wy = (x * y).sum(-1)
    gap = wy - design.rank * (1 + c.log())
    kkt = torch.minimum(x * y, 1 - r / y).abs().amax(-1)
    return Certificate(*bounds_if((x >= 0).all(-1), wy - logdet, wy - logdet - gap, gap / design.rank, kkt))


@torch.no_grad()
def approximate_mle(S, kinds=ALL, n_updates=25):
    """Weights near the most likely ones, and their resistances: S (..., m, m), of full rank -> two Atoms.

    `n_updates` of w <- w r / y from the entries of the inverse of S, clipped to what atoms can represent. All but the
    first and the last are over-relaxed, w (r / y)^1.8, which halves their number; powers below 2 are stable near the
    maximum. On matrices inside, because gathers cost more than the second triangle. Where there is a ground, no pair
    has both a difference and a sum.
    """
    signed, loops, constant = (x[..., None] for x in kinds.masks(S[..., 0]))
    m = S.shape[-1]
    unit = S.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    S = (S + S.mT) / (2 * unit)
    d = S.diagonal(dim1=-2, dim2=-1)
    both = d[..., :, None] + d[..., None, :]
    eye = torch.eye(m, dtype=S.dtype, device=S.device)
    Y_difference = both - 2 * S + eye  # the diagonals are not used
    Y_sum = both + 2 * S + eye
    K = torch.linalg.inv(S)
    K = (K + K.mT) / 2  # rounding must not disturb the row sums, which are small where there is a strong common mode
    off = 1 - eye
    A = _start(-K, Y_difference) * off
    B = _start(K, Y_sum) * off * signed
    rest = K.diagonal(dim1=-2, dim2=-1) - (A + B).sum(-1)
    c = torch.maximum(rest, 0.05 / d) * loops[..., 0]
    for step in range(n_updates + 1):
        K = torch.diag_embed(((A + B).sum(-1) + c) * (1 + 1e-12)) - A + B  # positive definite in spite of rounding
        scale = K.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        C = torch.linalg.cholesky(K + constant * scale / m)
        Sigma = torch.cholesky_inverse(C)
        v = Sigma.diagonal(dim1=-2, dim2=-1)
        ends = v[..., :, None] + v[..., None, :]
        R_difference = (ends - 2 * Sigma).clamp_min(0)
        R_sum = ends + 2 * Sigma
        if step < n_updates:
            power = 1.8 if 2 < step < n_updates - 2 else 1.0
            A = A * (R_difference / Y_difference).clamp_max(FASTEST) ** power
            B = B * (R_sum / Y_sum).clamp_max(FASTEST) ** power
            c = c * (v / d).clamp_max(FASTEST) ** power
    both = torch.minimum(A, B) * loops  # the two atoms of a pair are as good as ground at its ends: K stays the same
    w = Atoms(to_vector(A - both), to_vector(B - both), c + 2 * both.sum(-1))
    unit = unit[..., 0]
    r = Atoms(to_vector(R_difference), to_vector(R_sum), v)
    return Atoms(*(x / unit for x in w)), Atoms(*(x * unit for x in r))


def _start(K, Y):
    """Weights to start from, matrices: entries of an inverse covariance where they are positive, else little.

    No leverage is above 1. Where K Y is, as for sums under a strong common mode, the entry is noise and shrunk.
    """
    leverage = (K * Y).clamp_min(1)
    return torch.maximum(K / leverage**3, 0.01 / (K.shape[-1] * Y))
