"""Deep-graph (Belilovsky et al., ICML 2017): a convolutional network from correlations to edge probabilities.

Five blocks of dilated 3x3 convolutions over the m x m correlation matrix; in each, entry (i, j) also sees
what a second convolution finds at (i, i) and (j, j). A protocol says what it learns from and what it sees:

    "original"   sparse random precisions of its own, soft labels |partial correlation|; correlations
    "in_family"  the graphs of a run, labels 0/1 for edge or none; correlations
    "fair"       the same, but correlations of the signals minus their mean over the nodes

At sigma2 = 1e-4 that mean, the common mode, has 1e4 times the variance of the rest: all correlations are near
1. Distances, which the other methods see, have no common mode: hence "fair".
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..graphs import to_matrix, to_vector
from ..signals import SPLITS, sample_split

PROTOCOLS = ("original", "in_family", "fair")
CHUNK = 64  # matrices predicted at once: what a block computes then stays in cache


def sample_sparse(n, m, n_signals, *, seed, density=0.05, largest=0.9):
    """Second moments (n, m, m) of Gaussian signals and the |partial correlations| (n, E) of their law.

    The law is make_sparse_spd_matrix's of scikit-learn, given that there is an edge: precision P = C'C, C = a
    strictly lower triangle, entries uniform in +-largest where present, minus I; nodes in random order.
    """
    rng = np.random.default_rng(seed)
    present = np.zeros((n, m, m), dtype=bool)
    while (empty := ~present.any((1, 2))).any():  # relative errors need an edge
        present[empty] = np.tril(rng.random((empty.sum(), m, m)) < density, -1)
    C = present * rng.uniform(-largest, largest, (n, m, m)) - np.eye(m)
    rows = rng.random((n, m)).argsort(1)[:, :, None]
    P = np.take_along_axis(C.transpose(0, 2, 1) @ C, rows, 1)
    P = np.take_along_axis(P, rows.transpose(0, 2, 1), 2)
    F = np.take_along_axis(np.linalg.inv(C), rows, 1)  # F F' = P^-1
    # X = Z F' with Z'Z = A A', A Bartlett's lower trapezium: n_signals x m normals need not be drawn
    k = min(m, n_signals)
    A = np.tril(rng.standard_normal((n, m, k)), -1)
    A[:, np.arange(k), np.arange(k)] = np.sqrt(rng.chisquare(n_signals - np.arange(k), (n, k)))
    S = torch.from_numpy(F @ A)
    return S @ S.mT / n_signals, to_vector(correlation(torch.from_numpy(P))).abs().float()


def correlation(S, *, centre=False):
    """Correlations (..., m, m) from second moments; `centre`: of the signals minus their mean over the nodes.

    With `centre`, adding v_i + v_j to S_ij changes nothing: -Y/2 of the distances y may stand in for S.
    """
    S = S.double()
    if centre:
        S = S - S.mean(-1, keepdim=True)
        S = S - S.mean(-2, keepdim=True)
    d = S.diagonal(dim1=-2, dim2=-1)
    if not (d > 0).all():
        raise ValueError("S has a node of zero variance: leave out nodes whose signals do not vary")
    return S / (d[..., :, None] * d[..., None, :]).sqrt()


def fast_convolution(n, tile=4):
    """A (p, n), K (p, 3), B (n, p) with B (A x * K k) = the convolution of x (n,), zeros beyond, with k (3,).

    Toom and Cook: `tile` values of x and k are polynomials; the tile + 2 coefficients of their product follow
    from its values at as many points. So 36 products do the work of 144 in two dimensions. Tiles add up.
    """
    V = torch.tensor([0, 1, -1, 0.5, -0.5, 2], dtype=torch.float64)[:, None] ** torch.arange(tile + 2)
    n_tiles = -(-n // tile)
    B = torch.zeros(n_tiles * tile + 2, n_tiles, tile + 2, dtype=torch.float64)
    for t in range(n_tiles):
        B[t * tile :, t][: tile + 2] = torch.linalg.inv(V)
    A = torch.block_diag(*[V[:, :tile]] * n_tiles)[:, :n]
    return A, V[:, :3].flip(1).repeat(n_tiles, 1), B.flatten(1)[1 : n + 1]


def _glorot(layer):
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Block(nn.Module):
    """out_ij = relu(norm(a_ij + b_ii + b_jj)), a and b dilated convolutions: (m, m, B, C_in) -> (m, m, B, C).

    The norm is for each column j over all rows, graphs and channels: as released, and why m is fixed. Nodes
    come first in memory: columns, and rows in steps of the dilation, are then slices.
    """

    def __init__(self, m, n_in, n_out, dilation):
        super().__init__()
        self.d = dilation
        self.everywhere = _glorot(nn.Conv2d(n_in, n_out, 3, padding=dilation, dilation=dilation))
        self.diagonal = _glorot(nn.Conv2d(n_in, n_out, 3, padding=dilation, dilation=dilation))
        self.norm = nn.BatchNorm1d(m, momentum=0.01)
        i = torch.arange(m)[:, None] + dilation * torch.arange(-1, 2)
        tap, inside = i.clamp(0, m - 1), (i >= 0) & (i < m)
        taps = (tap[:, :, None] * m + tap[:, None, :]).flatten()
        inside = (inside[:, :, None] & inside[:, None, :]).float().view(-1, 1, 1)
        constants = (*(x.float() for x in fast_convolution(-(-m // dilation))), taps, inside)
        for name, constant in zip(("A", "K", "B", "taps", "inside"), constants, strict=True):
            self.register_buffer(name, constant, persistent=False)

    def forward(self, x):
        b = self.on_diagonal(x)
        a = self.convolve(x) + (b + self.everywhere.bias) + b[:, None]
        return functional.relu(self.norm(a.flatten(2)), inplace=True).view(a.shape)

    def on_diagonal(self, x):
        """The second convolution at (i, i) only, from its 9 taps: (m, m, B, C_in) -> (m, B, C)."""
        m, _, batch, n_in = x.shape
        taps = x.reshape(m * m, batch, n_in).index_select(0, self.taps) * self.inside
        taps = taps.view(m, 9, batch, n_in).transpose(1, 2).reshape(m, batch, 9 * n_in)
        return taps @ self.diagonal.weight.permute(2, 3, 1, 0).reshape(9 * n_in, -1) + self.diagonal.bias

    def convolve(self, x):
        """The first convolution, without its bias: (m, m, B, C_in) -> (m, m, B, C)."""
        (m, _, batch, n_in), d, (p, g), weight = x.shape, self.d, self.A.shape, self.everywhere.weight
        if n_in == 1:  # nothing to save
            return functional.conv2d(x.permute(2, 3, 0, 1), weight, padding=d, dilation=d).permute(2, 3, 0, 1)
        # rows r, r + d, r + 2d, ... have an undilated convolution to themselves; so have the columns
        x = functional.pad(x, (0, 0, 0, 0, 0, g * d - m, 0, g * d - m))
        x = self.A @ x.reshape(g, -1)
        x = self.A @ x.view(p * d, g, -1)
        x = x.view(p, d, p, -1, n_in) @ torch.einsum("pa,qb,oiab->pqio", self.K, self.K, weight)[:, None]
        x = self.B @ x.view(p * d, p, -1)
        x = self.B @ x.view(p, -1)
        return x.view(g * d, g * d, batch, -1)[:m, :m]


class DeepGraph(nn.Module):
    """Second moments S (..., m, m) -> edge probabilities (..., E), for one m.

    Parameters
    ----------
    n_nodes, n_blocks, n_channels : 181,451 + 10 m parameters with 5 blocks of 50 channels, as released
    dilation : of all blocks but the first; with 5, an output sees inputs up to 1 + 4 * 5 rows or columns away
    protocol : "original", "in_family" or "fair", see the top of this file
    standardise : False trains on S, as the released script, not on correlations; predictions use them
    """

    def __init__(self, n_nodes, n_blocks=5, *, protocol, standardise=True, n_channels=50, dilation=5):
        super().__init__()
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol={protocol!r}: choose one of {', '.join(PROTOCOLS)}")
        self.n_nodes, self.protocol, self.standardise = n_nodes, protocol, standardise
        rest = (Block(n_nodes, n_channels, n_channels, dilation) for _ in range(n_blocks - 1))
        self.blocks = nn.Sequential(Block(n_nodes, 1, n_channels, 1), *rest)
        self.head = _glorot(nn.Linear(n_channels, 1))

    @staticmethod
    def sample_pairs(run, split, n, *, epoch=0, n_jobs=1):
        """Second moments (n, m, m), labels (n, E); in-family, of the very signals the other models see."""
        if dict(run.options)["protocol"] != "original":
            S, w = sample_split(run, split, n, epoch=epoch, n_jobs=n_jobs)
            return S, (w > 0).to(w)
        seed = np.random.SeedSequence((0 if split == "test" else run.seed, SPLITS.index(split), epoch))
        return sample_sparse(n, run.n_nodes, run.n_signals, seed=seed)

    def forward(self, S):
        """S (B, m, m) -> logits (B, m, m), which are not symmetric."""
        if self.standardise or not self.training:
            S = correlation(S, centre=self.protocol == "fair")
        x = S.to(self.head.weight.dtype).permute(1, 2, 0)[..., None].contiguous()
        return self.head(self.blocks(x)).squeeze(-1).permute(2, 0, 1)

    def loss(self, S, labels, generator=None):
        """Cross-entropy over all m^2 outputs, the diagonal's label being 1; S (B, m, m), labels (B, E)."""
        target = to_matrix(labels) + torch.eye(self.n_nodes).to(labels)
        return functional.binary_cross_entropy_with_logits(self(S), target)

    def predict(self, S, permutations=0, seed=0):
        """S (..., m, m) -> probabilities (..., E), the outputs above the diagonal.

        `permutations` > 0 is Deep-graph+P, their mean over so many random node orders, common to all graphs.
        """
        self._check(S)
        generator, m = torch.Generator().manual_seed(seed), self.n_nodes
        orders = [torch.randperm(m, generator=generator) for _ in range(permutations)] or [torch.arange(m)]
        parts = S.reshape(-1, m, m).split(CHUNK)
        with torch.no_grad():
            w = sum(torch.cat([self._reordered(part, order) for part in parts]) for order in orders)
        return (w / len(orders)).reshape(*S.shape[:-2], -1)

    def _reordered(self, S, order):
        """Probabilities (B, E) when the network is shown the nodes in another order, put back in theirs."""
        back = order.argsort()
        w = to_vector(self(S[:, order[:, None], order])).sigmoid()
        return to_vector(to_matrix(w)[:, back[:, None], back])

    def _check(self, S):
        m = self.n_nodes
        if S.shape[-2:] != (m, m):
            raise ValueError(f"S has shape {tuple(S.shape)}: (..., {m}, {m}), or another n_nodes, is needed")
        if not S.isfinite().all():
            raise ValueError("S contains NaN or infinite values: remove or impute them in the signals first")
        if not torch.allclose(S, S.mT, rtol=1e-4, atol=1e-5 * float(S.abs().max())):
            raise ValueError("S is not symmetric: second moments X'X / N are needed, not signals")
