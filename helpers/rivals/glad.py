"""GLAD (Shrivastava et al., ICLR 2020): an unrolled graphical lasso that learns precision matrices.

A layer lowers -logdet Theta + tr(S Theta) + ||rho o Z||_1 + lambda/2 ||Z - Theta||_F^2 in turns: Theta in closed form,
Z by shrinking Theta entry by entry. The thresholds rho come from one small network and lambda from another. All
layers share both networks; with the shift t of the start they have 42 parameters. The paper under study trains GLAD on
signals of precision K = L + sigma2 I. At its sigma2 = 1e-4 their covariance has a condition number of 1e4 or more.
"""

import math

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ..graphs import laplacian, to_vector

NUMERICS = ("stable", "newton_schulz")
N_ITERATIONS = 10  # of Newton-Schulz, as in the notebook of GLAD's authors
SHIFT = 0.1  # initial shift of S


def symmetric(A):
    """The symmetric part of matrices (..., m, m)."""
    return (A + A.mT) / 2


def identity(A):
    """The identity (m, m) that goes with matrices A (..., m, m)."""
    return torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)


class ThetaEigen(torch.autograd.Function):
    """Theta = (-B + (B^2 + c I)^(1/2))/2 of symmetric B (..., m, m) and c (..., 1, 1), by eigendecomposition.

    An eigenvalue b becomes (r - b)/2, r = sqrt(b^2 + c). For b > 0 this difference cancels (b is about 1e4 where
    sigma2 = 1e-4), and its equal f(b) = c / (2(b + r)) does not. The derivative consists of divided differences, which
    do not cancel either if written as (f(b_i) - f(b_j))/(b_i - b_j) = -(f(b_i) + f(b_j))/(r_i + r_j); this also holds
    for b_i = b_j.
    """

    @staticmethod
    def forward(ctx, B, c):
        b, U = torch.linalg.eigh(B)
        c = c.squeeze(-1)
        r = (b.square() + c).sqrt()
        f = torch.where(b > 0, c / (2 * (b + r)), (r - b) / 2)
        ctx.save_for_backward(f, r, U)
        return symmetric(U * f[..., None, :] @ U.mT)

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        f, r, U = ctx.saved_tensors
        G = U.mT @ symmetric(G) @ U
        f_sum = f[..., :, None] + f[..., None, :]
        r_sum = r[..., :, None] + r[..., None, :]
        g_c = (G.diagonal(dim1=-2, dim2=-1) / (4 * r)).sum(-1)[..., None, None]
        return symmetric(U @ (-G * f_sum / r_sum) @ U.mT), g_c


class NewtonSchulzRoot(torch.autograd.Function):
    """A^(1/2) of SPD matrices (..., m, m) by `N_ITERATIONS` Newton-Schulz iterations, converged or not.

    An eigenvalue at 1e-8 of the largest needs to grow 1e4-fold; ten iterations give at most 1.5^10 = 57-fold.
    The gradient X solves R X + X R = G, R the root, by the same iteration x <- x (3I - x^2)/2 on the matrix
    [[R, G], [0, -R]], whose sign is [[I, 2X], [0, -I]].
    """

    @staticmethod
    def forward(ctx, A):
        size = torch.linalg.matrix_norm(A, keepdim=True)
        eye = identity(A)
        Y = A / size
        Z = eye.expand_as(A)
        for _ in range(N_ITERATIONS):
            T = (3 * eye - Z @ Y) / 2
            Y, Z = Y @ T, T @ Z
        R = Y * size.sqrt()
        ctx.save_for_backward(R)
        return R

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        (R,) = ctx.saved_tensors
        size = torch.linalg.matrix_norm(R, keepdim=True)
        a = R / size
        q = G / size
        for _ in range(N_ITERATIONS):
            rest = 3 * identity(R) - a @ a
            a, q = a @ rest / 2, (q @ rest - a @ (a @ q - q @ a)) / 2
        return q / 2


class AllOrNothing(torch.autograd.Function):
    """The parameters, unchanged; their gradients if all are finite, else zeros, counted in `model.n_dropped`.

    A single non-finite gradient would make Adam's moments, and with them the weights, non-finite for ever.
    """

    @staticmethod
    def forward(ctx, model, *parameters):
        ctx.model = model
        return tuple(p.view_as(p) for p in parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        finite = all(g.isfinite().all() for g in gradients)
        ctx.model.n_dropped += not finite
        return None, *(g if finite else torch.zeros_like(g) for g in gradients)


class GLAD(nn.Module):
    """Observations, or second moments S (..., m, m), -> precision matrices Z (..., m, m), for any m.

    Parameters
    ----------
    sigma2 : of the target precision L + sigma2 I: GLAD is told what L2G is not
    n_layers : L
    numerics : "stable", or "newton_schulz" as in the notebook of GLAD's authors, which is sound for large sigma2 only
    n_hidden : units of each hidden layer

    Attributes
    ----------
    n_dropped : training steps that had no effect because a gradient was not finite
    """

    def __init__(self, sigma2, n_layers=15, *, numerics="stable", n_hidden=3):
        super().__init__()
        if numerics not in NUMERICS:
            raise ValueError(f"numerics={numerics!r}: choose one of {', '.join(NUMERICS)}")
        if not sigma2 > 0:
            raise ValueError(f"sigma2={sigma2}: must be positive, a Laplacian alone is no precision matrix")
        if n_layers < 1:
            raise ValueError(f"n_layers={n_layers}: at least 1 layer is needed")
        self.sigma2 = sigma2
        self.n_layers = n_layers
        self.numerics = numerics
        self.n_dropped = 0
        h = n_hidden
        tanh = nn.Tanh()
        self.rho = nn.Sequential(nn.Linear(3, h), tanh, nn.Linear(h, h), tanh, nn.Linear(h, 1), nn.Sigmoid())
        self.lambda_ = nn.Sequential(nn.Linear(2, h), tanh, nn.Linear(h, 1), nn.Sigmoid())
        # the stable form applies softplus to t, see `_initial`
        self.t = nn.Parameter(torch.tensor(math.log(math.expm1(SHIFT)) if numerics == "stable" else SHIFT))

    def prepare(self, observations):
        """Observations, or second moments, -> checked second moments S (..., m, m)."""
        S = torch.as_tensor(getattr(observations, "moments", observations))
        if S.ndim < 2 or S.shape[-1] != S.shape[-2]:
            raise ValueError(f"S has shape {tuple(S.shape)}: square matrices (..., m, m) are needed")
        if not S.isfinite().all():
            raise ValueError("S contains NaN or infinite values: remove or impute them in the signals first")
        return S

    def target(self, w):
        """The true precision K = L + sigma2 I: (..., E) -> (..., m, m)."""
        L = laplacian(w)
        return L + self.sigma2 * identity(L)

    def forward(self, observations):
        """Observations, or S (..., m, m), -> path (..., L, m, m) of the estimates Z."""
        # at sigma2 = 1e-4 the entries of B are near 1e3: their float32 rounding changes Z in the third digit
        S = self.prepare(observations).to(torch.float64 if self.numerics == "stable" else self.t.dtype)
        one = torch.ones_like(S[..., 0, 0])
        Z = self._initial(S)
        lam = self._lambda(one, 0 * one)
        path = []
        for _ in range(self.n_layers):
            Theta = self._theta(S, Z, lam)
            Z = self._shrink(Theta, S, Z)
            lam = self._lambda((Z - Theta).square().sum((-2, -1)), lam)
            path.append(Z)
        return torch.stack(path, -3).to(self.t.dtype)

    def precision(self, observations):
        """Observations, or S (..., m, m), -> Z (..., m, m) of the last layer; 0 where newton_schulz overflowed."""
        with torch.no_grad():
            return self(observations)[..., -1, :, :].nan_to_num(0.0, 0.0, 0.0)

    def predict(self, observations):
        """Observations, or S (..., m, m), -> w (..., E): the off-diagonal part of -Z, where positive."""
        return (-to_vector(self.precision(observations))).clamp_min(0)

    def loss(self, prepared, w, generator=None):
        """Mean of (Z - K)^2 over layers, entries and those graphs of the batch where it is finite.

        prepared : second moments S (B, m, m); w : true graphs (B, E); nothing here is random.
        """
        names, parameters = zip(*self.named_parameters(), strict=True)
        guarded = dict(zip(names, AllOrNothing.apply(self, *parameters), strict=True))
        path = torch.func.functional_call(self, guarded, prepared)
        error = (path - self.target(w).unsqueeze(-3)).square().mean((-3, -2, -1))
        finite = error.isfinite()
        return torch.where(finite, error, 0).sum() / finite.sum().clamp_min(1)

    def _initial(self, S):
        """Z_0 = (S + t I)^-1. Training can turn t negative; the stable form keeps the shift positive by a softplus."""
        shift = nn.functional.softplus(self.t) if self.numerics == "stable" else self.t
        return torch.linalg.inv_ex(S + shift * identity(S)).inverse

    def _theta(self, S, Z, lam):
        """The minimiser in Theta, where -Theta^-1 + S + lambda (Theta - Z) = 0."""
        lam = lam[..., None, None]
        B = S / lam - Z
        c = 4 / lam
        if self.numerics == "stable":
            return ThetaEigen.apply(symmetric(B), c)
        return (NewtonSchulzRoot.apply(B.mT @ B + c * identity(S)) - B) / 2

    def _shrink(self, Theta, S, Z):
        """The next Z: Theta_ij moved towards 0 by rho(Theta_ij, S_ij, Z_ij), on the diagonal too."""
        features = torch.stack([Theta, S, Z], -1).to(self.t.dtype)
        return Theta.sign() * (Theta.abs() - self.rho(features).squeeze(-1)).clamp_min(0)

    def _lambda(self, distance, previous):
        """The next lambda (...), one per graph; its inputs pass no gradient, as in GLAD's own code."""
        features = torch.stack([distance, previous], -1).detach().to(self.t.dtype)
        return self.lambda_(features).squeeze(-1).to(distance.dtype)
