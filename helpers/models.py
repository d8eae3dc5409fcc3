"""The unrolled networks of the paper: Unrolling, Recurrent Unrolling, and L2G with its TopoDiffVAE (Algorithm 2).

Every network maps distances y (..., E) to its path of estimates (..., T, E); `predict` returns the last one, clamped
at zero. Inside, a batch is stored edges first, (E, B): gathers and sums over edges then move contiguous rows.
"""

from functools import partial

import torch
from torch import nn
from torch.nn.functional import leaky_relu

from .graphs import edges, n_nodes, to_matrix
from .kernels import PDSLayers
from .solvers import check_distances, pds_step, safe_step

ETA = 1e-4  # edges below count as absent when the encoder reads a graph (Section 3.2)


def edges_first_operators(m, device):
    """D: (E, B) -> (m, B) and its adjoint, for batches stored edges first."""
    i, j = edges(m, device)
    return (
        lambda w: w.new_zeros(m, w.shape[1]).index_add(0, i, w).index_add(0, j, w),
        lambda v: v.index_select(0, i) + v.index_select(0, j),
    )


def pds_layers(w, v, y, theta, slope):
    """Layers of Algorithm 2 without enhancement: w, y (E, B), v (m, B), theta (T, 3) -> path (T, E, B), last v."""
    if y.device.type == "cpu":
        return PDSLayers.apply(w, v, y, theta, slope, edges(len(v)))
    path, operators = [], edges_first_operators(len(v), y.device)
    for parameters in theta:
        w, v = pds_step(w, v, y, *parameters, project=partial(leaky_relu, negative_slope=slope), operators=operators)
        path.append(w)
    return torch.stack(path), v


class Unrolling(nn.Module):
    """Algorithm 2 without enhancement: PDS with trainable alpha, beta, gamma in each of `n_layers` layers.

    Parameters
    ----------
    n_layers : T
    shared : one (alpha, beta, gamma) for all layers, the paper's Recurrent Unrolling (3 parameters instead of 3T)
    n_nodes : the graph size the initial step size is safe for; the parameters themselves fit any size
    tau : discount of the loss (Eq. 7); layer t of T weighs tau^(T-t+1) as in the released code
    slope : of the rectifier in Step 5 for negative entries; 0 is the paper's max(0, .)
    max_gradient : bound on the norm of a parameter's gradient in training; 0 for none. In the first epochs single
        batches have gradients many orders of magnitude above the usual ones
    """

    keep_best = True

    def __init__(self, n_layers=20, *, shared=False, n_nodes=20, tau=0.9, slope=0.0, max_gradient=1.0):
        super().__init__()
        if n_layers < 1:
            raise ValueError(f"n_layers={n_layers}: at least 1 layer is needed")
        self.n_layers, self.shared, self.tau, self.slope = n_layers, shared, tau, slope
        self.max_gradient = max_gradient
        start = torch.tensor([1.0, 1.0, 0.4 * safe_step(n_nodes, beta=1.0)])
        self.theta = nn.Parameter(start.repeat(1 if shared else n_layers, 1))  # columns: alpha, beta, gamma

    def forward(self, y):
        """y (..., E) -> path (..., T, E), unclamped."""
        check_distances(y)
        flat = y.reshape(-1, y.shape[-1])
        path, _ = self._layers(flat.T.contiguous())
        return path.permute(2, 0, 1).reshape(*y.shape[:-1], self.n_layers, y.shape[-1])

    def predict(self, y):
        """y (..., E) -> w (..., E), non-negative."""
        with torch.no_grad():
            return self(y)[..., -1, :].clamp_min(0)

    def loss(self, y, w, generator=None):
        """Discounted normalised error of all layers, first term of Eq. (7); y, w (B, E)."""
        path, _ = self._layers(y.T.contiguous())
        return self._discounted_error(path, w)

    def _layers(self, y):
        v = y.new_zeros(n_nodes(len(y)), y.shape[1])
        return pds_layers(torch.zeros_like(y), v, y, self.theta.expand(self.n_layers, 3), self.slope)

    def _discounted_error(self, path, w):
        """Path (T, E, B) and truth (B, E) -> the discounted sum of Eq. (7), mean over the batch."""
        errors = (path - w.T.contiguous()).square().sum(1)
        weight = self.tau ** torch.arange(self.n_layers, 0, -1, device=w.device, dtype=w.dtype)
        return (weight @ errors / w.square().sum(1)).mean()


class TopoDiffVAE(nn.Module):
    """The conditional variational autoencoder that stands in for the proximal step (Section 3.2, Eqs. 5-6).

    Sizes, biases and activations follow the released code: 106,019 parameters with T = 20 layers around it at m = 20.
    `readout` "sum" is the released code's, "mean" the text's.
    """

    def __init__(self, n_nodes, *, n_hidden=32, n_decoder=None, n_latent=16, readout="sum"):
        super().__init__()
        if readout not in ("sum", "mean"):
            raise ValueError(f"readout={readout!r}: 'sum' (released code) or 'mean' (the text)")
        n_edges = n_nodes * (n_nodes - 1) // 2
        n_decoder = n_decoder or 4 * n_edges // 3
        self.readout, self.n_latent = readout, n_latent
        self.h0 = nn.Parameter(torch.empty(1, n_hidden))
        self.b0 = nn.Parameter(torch.ones(n_hidden))
        self.H1 = nn.Parameter(torch.empty(n_hidden, 2 * n_hidden))
        self.b1 = nn.Parameter(torch.ones(2 * n_hidden))
        nn.init.xavier_uniform_(self.h0)
        nn.init.xavier_uniform_(self.H1)
        self.embedding = nn.Sequential(nn.Linear(2 * n_hidden, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_latent))
        self.f_mean = nn.Linear(n_latent, n_latent)
        self.f_cov = nn.Linear(n_latent, n_latent)
        self.decoder = nn.Sequential(nn.Linear(n_edges + n_latent, n_decoder), nn.Tanh(), nn.Linear(n_decoder, n_edges))
        for layer in self.decoder[::2]:
            nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("tanh"))

    def f_emb(self, A):
        """Graph embedding of Eq. (6): binary adjacency matrices (..., m, m) -> (..., n_latent)."""
        d = A.sum(-1, keepdim=True)
        h = torch.relu((A @ d) * self.h0 + self.b0)
        h = torch.relu(A @ (h @ self.H1) + self.b1)
        return self.embedding(h.sum(-2) if self.readout == "sum" else h.mean(-2))

    def encode(self, r1, w):
        """Posterior of z given estimate r1 and truth w (B, E): mean and log-variance (B, n_latent), Eq. (5).

        The log-variance is never positive (released code), and no gradient passes the binarisation.
        """
        binary = torch.stack([w, r1]).detach() >= ETA
        emb_w, emb_r = self.f_emb(to_matrix(binary.to(r1)))
        delta = emb_w - emb_r
        return self.f_mean(delta), -self.f_cov(delta).abs()

    def decode(self, r1, z):
        """(B, E), (B, n_latent) -> p1 (B, E)."""
        return self.decoder(torch.cat([r1, z], -1))


class L2G(nn.Module):
    """Algorithm 2: an unrolled network whose `enhanced` layers use a TopoDiffVAE for Step 5.

    Parameters
    ----------
    n_nodes, n_layers : m and T; the decoder fixes the graph size
    enhanced : layers with a TopoDiffVAE, counted as in a list; the paper's experiments use the last only
    tau : discount of the loss
    slope : of the rectifier in the other layers; 0 is the text's, 0.01 the released code's. Two nodes in different
        components are 1e4 apart, and a hundredth of that still swamps the weights
    correction : True trains gamma in enhanced layers too, so that Step 7 follows the decoder, as the text has it. That
        step can return the layer's input and ignore the decoder, and training settles for it; False fixes gamma = 0,
        and the layer returns p1 (the released weights have gamma = -0.0016 there)
    detached : True trains the layers before a decoder by their own errors only; a decoder that is slow to learn, as on
        many nodes, otherwise spoils them
    reconstruction : add the decoder's squared error sum_j (p1 - w)_j^2 to the loss (released code; not in the text)
    kl_weight : beta_KL of Eq. (7)
    max_gradient : see Unrolling
    n_hidden, n_decoder, n_latent, readout : of the TopoDiffVAE
    """

    keep_best = True

    def __init__(
        self,
        n_nodes,
        n_layers=20,
        *,
        enhanced=(-1,),
        tau=0.9,
        slope=0.0,
        correction=False,
        detached=False,
        reconstruction=True,
        kl_weight=1.0,
        max_gradient=1.0,
        **vae,
    ):
        super().__init__()
        for t in enhanced:
            if not -n_layers <= t < n_layers:
                raise ValueError(f"enhanced={tuple(enhanced)}: layers count from {-n_layers} to {n_layers - 1}")
        self.unrolling = Unrolling(n_layers, n_nodes=n_nodes, tau=tau, slope=slope)
        self.n_nodes, self.n_layers = n_nodes, n_layers
        self.enhanced = tuple(sorted(t % n_layers for t in enhanced))
        self.vaes = nn.ModuleList(TopoDiffVAE(n_nodes, **vae) for _ in self.enhanced)
        self.correction, self.detached, self.max_gradient = correction, detached, max_gradient
        self.reconstruction, self.kl_weight = reconstruction, kl_weight

    def forward(self, y, seed=0):
        """y (..., E) -> path (..., T, E), unclamped. Latent codes are drawn from the prior, one for each `seed`.

        The truth is unknown here, so the encoder is idle. The same code serves all graphs: the result for a graph does
        not depend on the batch it comes in. `seed=None` uses the prior's mean, z = 0.
        """
        check_distances(y)
        if n_nodes(y.shape[-1]) != self.n_nodes:
            raise ValueError(
                f"y has {n_nodes(y.shape[-1])} nodes, this L2G was built for n_nodes={self.n_nodes}: "
                "its decoder fits one size; train another or use Unrolling, which fits any"
            )
        flat = y.reshape(-1, y.shape[-1])
        path, _ = self._layers(flat.T.contiguous(), latent=self._prior(seed, flat))
        return path.permute(2, 0, 1).reshape(*y.shape[:-1], self.n_layers, y.shape[-1])

    def predict(self, y, seed=0):
        """y (..., E) -> w (..., E), non-negative; deterministic for a given seed."""
        with torch.no_grad():
            return self(y, seed)[..., -1, :].clamp_min(0)

    def loss(self, y, w, generator=None):
        """Eq. (7) on a batch y, w (B, E); `generator` draws the latent noise."""
        path, terms = self._layers(y.T.contiguous(), truth=w, generator=generator)
        loss = self.unrolling._discounted_error(path, w)
        for p1, mean, log_var in terms:
            loss = loss + self.kl_weight * -0.5 * (1 + log_var - mean.square() - log_var.exp()).mean()
            if self.reconstruction:
                loss = loss + (p1 - w).square().sum(1).mean()
        return loss

    def _prior(self, seed, like):
        codes = torch.zeros(len(self.vaes), self.vaes[0].n_latent if self.vaes else 0)
        if seed is not None:
            codes = torch.randn(codes.shape, generator=torch.Generator().manual_seed(seed))
        return [code.to(like).expand(len(like), -1) for code in codes]

    def _layers(self, y, *, latent=None, truth=None, generator=None):
        """y (E, B) -> path (T, E, B), and (p1, mean, log-variance), each (B, .), of enhanced layers shown the truth."""
        theta, slope = self.unrolling.theta, self.unrolling.slope
        operators = edges_first_operators(self.n_nodes, y.device)
        w, v = torch.zeros_like(y), y.new_zeros(self.n_nodes, y.shape[1])
        pieces, terms, start = [], [], 0

        def enhance(k, r1):  # Step 5 with enhancement
            vae, r1 = self.vaes[k], r1.T.detach() if self.detached else r1.T
            if truth is None:
                return vae.decode(r1, latent[k]).T
            mean, log_var = vae.encode(r1, truth)
            noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
            p1 = vae.decode(r1, mean + (log_var / 2).exp() * noise)
            terms.append((p1, mean, log_var))
            return p1.T

        for k, t in enumerate((*self.enhanced, self.n_layers)):
            if start < t:
                path, v = pds_layers(w, v, y, theta[start:t], slope)
                w = path[-1]
                pieces.append(path)
            if t < self.n_layers:
                alpha, beta, gamma = theta[t]
                gamma = gamma if self.correction else 0 * gamma
                w, v = pds_step(w, v, y, alpha, beta, gamma, project=partial(enhance, k), operators=operators)
                pieces.append(w[None])
                start = t + 1
        return torch.cat(pieces), terms
