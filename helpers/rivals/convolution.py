"""Dilated 3x3 convolutions of small matrices, several times faster than torch's on a CPU.

A reader may skip this file: `FastConvolution` and `DiagonalConvolution` compute what `nn.Conv2d` with zero padding
computes, the second one on the diagonal only, and have its parameters. They store nodes first, (m, m, B, C), so that
columns, and rows in steps of the dilation, are slices.
"""

import torch
from torch import nn
from torch.nn import functional

POINTS = (0, 1, -1, 0.5, -0.5, 2)  # where polynomials are evaluated: small numbers keep the rounding errors small
TILE = len(POINTS) - 2  # values of x per polynomial


def toom_cook(n):
    """A (p, n), K (p, 3), B (n, p) with B (A x * K k) = the convolution of x (n,), zeros beyond, with k (3,).

    Toom and Cook: read `TILE` values of x as the coefficients of one polynomial and k as those of another. The TILE + 2
    coefficients of their product follow from its values at as many points, and each value is one multiplication. In
    two dimensions 36 products then do the work of 144. The convolution of a longer x is the sum over its tiles.
    """
    V = torch.tensor(POINTS, dtype=torch.float64)[:, None] ** torch.arange(TILE + 2)  # values from coefficients
    n_tiles = -(-n // TILE)
    B = torch.zeros(n_tiles * TILE + 2, n_tiles, TILE + 2, dtype=torch.float64)
    for t in range(n_tiles):
        B[t * TILE :, t][: TILE + 2] = torch.linalg.inv(V)
    A = torch.block_diag(*[V[:, :TILE]] * n_tiles)[:, :n]
    K = V[:, :3].flip(1).repeat(n_tiles, 1)  # torch's convolution is a correlation: k is reversed
    return A, K, B.flatten(1)[1 : n + 1]


def glorot(layer):
    """The layer with Glorot's uniform weights and zero bias, Keras' default."""
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class FastConvolution(nn.Conv2d):
    """x (m, m, B, C_in) -> (m, m, B, C), without the bias: it is cheaper to add where the matrix is a vector."""

    def __init__(self, m, n_in, n_out, dilation):
        super().__init__(n_in, n_out, 3, padding=dilation, dilation=dilation)
        glorot(self)
        A, K, B = toom_cook(-(-m // dilation))
        self.register_buffer("A", A.float(), persistent=False)
        self.register_buffer("K", K.float(), persistent=False)
        self.register_buffer("B", B.float(), persistent=False)

    def forward(self, x):
        m, _, batch, n_in = x.shape
        d = self.dilation[0]
        p, g = self.A.shape
        if n_in == 1:  # nothing to save
            images = functional.conv2d(x.permute(2, 3, 0, 1), self.weight, padding=d, dilation=d)
            return images.permute(2, 3, 0, 1)
        # rows r, r + d, r + 2d, ... have an undilated convolution to themselves; so have the columns
        x = functional.pad(x, (0, 0, 0, 0, 0, g * d - m, 0, g * d - m))
        x = self.A @ x.reshape(g, -1)
        x = self.A @ x.view(p * d, g, -1)
        x = x.view(p, d, p, -1, n_in) @ torch.einsum("pa,qb,oiab->pqio", self.K, self.K, self.weight)[:, None]
        x = self.B @ x.view(p * d, p, -1)
        x = self.B @ x.view(p, -1)
        return x.view(g * d, g * d, batch, -1)[:m, :m]


class DiagonalConvolution(nn.Conv2d):
    """x (m, m, B, C_in) -> (m, B, C), the entries (i, i) of the convolution, from the 9 taps that each of them sees."""

    def __init__(self, m, n_in, n_out, dilation):
        super().__init__(n_in, n_out, 3, padding=dilation, dilation=dilation)
        glorot(self)
        i = torch.arange(m)[:, None] + dilation * torch.arange(-1, 2)  # (m, 3) rows, and columns, of the taps
        tap = i.clamp(0, m - 1)
        inside = (i >= 0) & (i < m)
        taps = (tap[:, :, None] * m + tap[:, None, :]).flatten()
        inside = (inside[:, :, None] & inside[:, None, :]).float().view(-1, 1, 1)
        self.register_buffer("taps", taps, persistent=False)
        self.register_buffer("inside", inside, persistent=False)

    def forward(self, x):
        m, _, batch, n_in = x.shape
        taps = x.reshape(m * m, batch, n_in).index_select(0, self.taps) * self.inside
        taps = taps.view(m, 9, batch, n_in).transpose(1, 2).reshape(m, batch, 9 * n_in)
        return taps @ self.weight.permute(2, 3, 1, 0).reshape(9 * n_in, -1) + self.bias
