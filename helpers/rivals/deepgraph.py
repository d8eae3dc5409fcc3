"""Deep-graph (Belilovsky et al., ICML 2017): a convolutional network from correlations to edge probabilities.

Five blocks of dilated 3x3 convolutions over the m x m correlation matrix; in each, entry (i, j) also sees what a second
convolution finds at (i, i) and (j, j). A protocol says what the network learns from and what it sees:

    "original"  its authors': sparse random precisions (`sample_sparse`) with soft labels |partial correlation|;
                it sees correlations
    "fair"      the graphs that the other methods learn from, with labels 0 or 1 for no edge or an edge;
                it sees correlations of the signals minus their mean over the nodes

At sigma2 = 1e-4 that mean, the common mode, has 1e4 times the variance of the rest, and all correlations are near 1.
The other methods see distances, which have no common mode: hence "fair".
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ..graphs import renumber, to_matrix, to_vector
from ..signals import Observations, bartlett
from .convolution import DiagonalConvolution, FastConvolution, glorot

PROTOCOLS = ("original", "fair")
GRAPHS_AT_ONCE = 64  # predicted together: what a block computes then stays in the cache


# --- data ----------------------------------------------------------------------------------------------------------


def sample_sparse(n, m, n_signals, *, seed, density=0.05, largest=0.9):
    """Observations of `n_signals` Gaussian signals and |partial correlations| (n, E) of their law, for n graphs.

    The law is that of scikit-learn's make_sparse_spd_matrix, given that there is an edge: precision P = C'C, where C is
    a strictly lower triangle, with entries uniform in +-largest where present, minus I; nodes in random order.
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
    B = torch.from_numpy(F @ bartlett(rng, n, m, n_signals))
    labels = to_vector(correlation(torch.from_numpy(P))).abs().float()
    return Observations(B @ B.mT / n_signals, float(n_signals)), labels


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


# --- network -------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """out_ij = relu(norm(a_ij + b_ii + b_jj)), a and b dilated convolutions: (m, m, B, C_in) -> (m, m, B, C).

    The norm takes mean and variance of each column j over all rows, graphs and channels, as in the released code. It
    has parameters per column, which is why m is fixed.
    """

    def __init__(self, m, n_in, n_out, dilation):
        super().__init__()
        self.everywhere = FastConvolution(m, n_in, n_out, dilation)
        self.diagonal = DiagonalConvolution(m, n_in, n_out, dilation)
        self.norm = nn.BatchNorm1d(m, momentum=0.01)

    def forward(self, x):
        b = self.diagonal(x)
        a = self.everywhere(x) + (b + self.everywhere.bias) + b[:, None]
        return functional.relu(self.norm(a.flatten(2)), inplace=True).view(a.shape)


class DeepGraph(nn.Module):
    """Observations, or second moments S (..., m, m), -> edge probabilities (..., E), for one m.

    Parameters
    ----------
    n_nodes, n_blocks, n_channels : 181,451 + 10 m parameters with 5 blocks of 50 channels, as released
    dilation : of all blocks but the first; with 5, an output sees inputs up to 1 + 4 * 5 rows or columns away
    protocol : "original" or "fair", see the top of this file
    """

    def __init__(self, n_nodes, n_blocks=5, *, protocol, n_channels=50, dilation=5):
        super().__init__()
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol={protocol!r}: choose one of {', '.join(PROTOCOLS)}")
        self.n_nodes = n_nodes
        self.protocol = protocol
        rest = (Block(n_nodes, n_channels, n_channels, dilation) for _ in range(n_blocks - 1))
        self.blocks = nn.Sequential(Block(n_nodes, 1, n_channels, 1), *rest)
        self.head = glorot(nn.Linear(n_channels, 1))

    def prepare(self, observations):
        """Observations, or second moments, -> checked second moments S (..., m, m)."""
        S = torch.as_tensor(getattr(observations, "moments", observations))
        m = self.n_nodes
        if S.shape[-2:] != (m, m):
            raise ValueError(f"S has shape {tuple(S.shape)}: (..., {m}, {m}), or another n_nodes, is needed")
        if not S.isfinite().all():
            raise ValueError("S contains NaN or infinite values: remove or impute them in the signals first")
        if not torch.allclose(S, S.mT, rtol=1e-4, atol=1e-5 * float(S.abs().max())):
            raise ValueError("S is not symmetric: second moments X'X / N are needed, not signals")
        return S

    def forward(self, S):
        """S (B, m, m) -> logits (B, m, m), which are not symmetric."""
        R = correlation(S, centre=self.protocol == "fair").to(self.head.weight.dtype)
        x = R.permute(1, 2, 0)[..., None].contiguous()
        return self.head(self.blocks(x)).squeeze(-1).permute(2, 0, 1)

    def labels(self, w):
        """What the outputs (..., E) should be: w itself for the protocol "original", else 1 where w has an edge."""
        return w if self.protocol == "original" else (w > 0).to(w)

    def loss(self, prepared, w, generator=None):
        """Cross-entropy over all m^2 outputs, the diagonal's label being 1; nothing here is random.

        prepared : second moments S (B, m, m)
        w : (B, E), |partial correlations| for the protocol "original", else weights
        """
        target = to_matrix(self.labels(w)) + torch.eye(self.n_nodes, dtype=w.dtype, device=w.device)
        return functional.binary_cross_entropy_with_logits(self(prepared), target)

    def predict(self, observations, permutations=0, seed=0):
        """Observations, or S (..., m, m), -> probabilities (..., E), the outputs above the diagonal.

        `permutations` > 0 is Deep-graph+P, their mean over so many random node orders, common to all graphs.
        """
        S = self.prepare(observations)
        orders = self._orders(permutations, seed, S.device)
        parts = S.reshape(-1, *S.shape[-2:]).split(GRAPHS_AT_ONCE)
        with torch.no_grad():
            w = sum(torch.cat([self._in_order(part, order) for part in parts]) for order in orders)
        return (w / len(orders)).reshape(*S.shape[:-2], -1)

    def _orders(self, permutations, seed, device):
        """So many random node orders, each (m,), drawn on the CPU; only the given order if there are none."""
        if permutations == 0:
            return [torch.arange(self.n_nodes, device=device)]
        generator = torch.Generator().manual_seed(seed)
        return [torch.randperm(self.n_nodes, generator=generator).to(device) for _ in range(permutations)]

    def _in_order(self, S, order):
        """Probabilities (B, E) when the network is shown the nodes in another order, put back in theirs."""
        w = to_vector(self(S[:, order[:, None], order])).sigmoid()
        return renumber(w, order.argsort())
