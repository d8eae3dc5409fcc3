"""The unrolled networks of the paper: Unrolling, Recurrent Unrolling, and L2G with its TopoDiffVAE (Algorithm 2).

Every network maps distances y (..., E) to its path of estimates (..., T, E); `predict` returns the last one, clamped
at zero. Inside, a batch is stored edges first, (E, B): gathers and sums over edges then move contiguous rows.
"""

from functools import lru_cache, partial

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .graphs import edges, n_nodes, to_matrix
from .solvers import check_distances, pds_step, safe_step

ETA = 1e-4  # edges below count as absent when the encoder reads a graph (Section 3.2)
ROOT_FLOOR = 1e-8  # the released code's floor under the root of Step 6: trained alpha * gamma may turn negative


class Incidence:
    """D and its adjoint on edges-first batches, `up`: (E, B) -> (m, B) and `down`: (m, B) -> (E, B)."""

    def __init__(self, m, *, dtype, device, edge_list=None):
        self.m = m
        self.i, self.j = edges(m, device) if edge_list is None else edge_list
        self.dense = None
        if m <= 32:  # one small dense product costs less than gathers and scatters
            self.dense = torch.zeros(m, len(self.i), dtype=dtype, device=device)
            self.dense[self.i, torch.arange(len(self.i))] = 1
            self.dense[self.j, torch.arange(len(self.i))] = 1
            self.adjoint = self.dense.T.contiguous()

    def up(self, w):
        if self.dense is not None:
            return self.dense @ w
        return w.new_zeros(self.m, w.shape[1]).index_add(0, self.i, w).index_add(0, self.j, w)

    def down(self, v):
        if self.dense is not None:
            return self.adjoint @ v
        return v.index_select(0, self.i).add_(v.index_select(0, self.j))

    def plus_down(self, w, v, scale, factor=1.0):
        """factor * w + scale * D'v, as a new tensor."""
        if self.dense is not None:
            return torch.addmm(w, self.adjoint, v, beta=factor, alpha=scale)
        return torch.mul(w, factor).add_(self.down(v), alpha=scale)

    def add_down_(self, w, v, scale):
        """w += scale * D'v."""
        if self.dense is not None:
            return w.addmm_(self.adjoint, v, alpha=scale)
        return w.add_(self.down(v), alpha=scale)


@lru_cache(maxsize=16)
def incidence(m, dtype, device):
    """The `Incidence` of the complete graph."""
    return Incidence(m, dtype=dtype, device=device)


class _PDSLayers(torch.autograd.Function):
    """T layers of Algorithm 2 without enhancement, differentiated by hand.

    A layer is a dozen small kernels; recording each for autograd costs more than running it. Here the backward pass is
    the adjoint recursion of

        r1 = (1 - c) w - 2 gamma y - gamma D'v        r2 = v + gamma D w
        p1 = relu(r1)                                 p2 = (r2 - root) / 2,  root = sqrt(r2^2 + 4 alpha gamma)
        w <- p1 + c e + gamma D'f                     v <- p2 - gamma D e

    with c = 2 beta gamma, e = w - p1, f = v - p2 (the 2y of Steps 3 and 7 cancels in Step 9). It returns either the
    path (T, E, B) or, given the `target` (E, B), only the squared errors of the layers (T, B), which spares training
    the large arrays; then the last w (E, B) and v (m, B).
    """

    @staticmethod
    def forward(ctx, w, v, y, theta, slope, D, target):
        w, y2 = w.contiguous(), 2 * y
        layers, outputs = [], []
        for alpha, beta, gamma in theta.tolist():
            c = 2 * beta * gamma
            p1 = D.plus_down(w, v, -gamma, 1 - c).add_(y2, alpha=-gamma)
            p1 = nn.functional.leaky_relu_(p1, slope) if slope else p1.clamp_min_(0)
            d = D.up(w)
            r2 = v.add(d, alpha=gamma)
            root = (r2 * r2).add_(4 * alpha * gamma).clamp_min_(ROOT_FLOOR).sqrt_()
            e, f = w - p1, v.sub(r2 - root, alpha=0.5)
            De = D.up(e)
            layers.append((w, p1, e, v, d, r2, root, f, De))
            w = D.add_down_(torch.add(p1, e, alpha=c), f, gamma)
            v = torch.sub(v, f).sub_(De, alpha=gamma)
            outputs.append(w if target is None else w - target)
        ctx.save_for_backward(theta, y2)
        ctx.layers, ctx.slope, ctx.D = layers, slope, D
        ctx.errors = None if target is None else outputs
        if target is not None:
            outputs = [torch.linalg.vecdot(x, x, dim=0) for x in outputs]
        return torch.stack(outputs), w.clone(), v

    @staticmethod
    @once_differentiable
    def backward(ctx, g_outputs, g_w, g_v):
        theta, y2 = ctx.saved_tensors
        D = ctx.D
        *edgewise, v, d, r2, root, f, De = zip(*ctx.layers, strict=True)
        v, d, r2, root, f, De = map(torch.stack, (v, d, r2, root, f, De))
        inverse = torch.where(root > ROOT_FLOOR**0.5 * (1 + 1e-6), 1 / root, 0)  # the root is flat at its floor
        half = 0.5 * (1 - r2 * inverse)  # derivative of p2 by r2
        g_y = torch.zeros_like(y2) if ctx.needs_input_grad[2] else None
        g_w, nodes, products = g_w.contiguous(), [], []
        if ctx.errors is not None:
            g_outputs = 2 * g_outputs
        for t, (_, beta, gamma) in reversed([*enumerate(theta.tolist())]):
            w, p1, e = (x[t] for x in edgewise)
            c = 2 * beta * gamma
            g_w = g_w + g_outputs[t] if ctx.errors is None else torch.addcmul(g_w, ctx.errors[t], g_outputs[t])
            Dg = D.up(g_w)
            g_e = D.plus_down(g_w, g_v, -gamma, c)
            # p1 has the sign of r1, which is all that the derivative of the rectifier needs
            g_r1 = torch.ops.aten.leaky_relu_backward(g_w - g_e, p1, ctx.slope, False)
            g_p2 = g_v.sub(Dg, alpha=gamma)
            g_r2 = g_p2 * half[t]
            Dg_r1 = D.up(g_r1)
            nodes.append((g_v, Dg, Dg_r1, g_p2, g_r2))
            products += [torch.dot(a.view(-1), b.view(-1)) for a, b in ((g_r1, y2), (g_r1, w), (g_w, e))]
            if g_y is not None:
                g_y.sub_(g_r1, alpha=2 * gamma)
            g_v = torch.add(g_r2, Dg - Dg_r1, alpha=gamma)
            g_w = D.add_down_(g_e.add_(g_r1, alpha=1 - c), g_r2, gamma)

        g_v_all, Dg, Dg_r1, g_p2, g_r2 = (torch.stack(x[::-1]) for x in zip(*nodes, strict=True))
        with_e, with_w, with_y = torch.stack(products[::-1]).view(-1, 3).T
        alpha, beta, gamma = theta.unbind(1)
        g_root = (g_p2 * inverse).sum((1, 2))
        through_nodes = (Dg * f - g_v_all * De - Dg_r1 * v + g_r2 * d).sum((1, 2))
        g_gamma = 2 * beta * (with_e - with_w) - with_y + through_nodes - alpha * g_root
        g_theta = torch.stack([-gamma * g_root, 2 * gamma * (with_e - with_w), g_gamma], 1)
        return g_w, g_v, g_y, g_theta, None, None, None


class Unrolling(nn.Module):
    """Algorithm 2 without enhancement: PDS with trainable alpha, beta, gamma in each of `n_layers` layers.

    Parameters
    ----------
    n_layers : T
    shared : one (alpha, beta, gamma) for all layers, the paper's Recurrent Unrolling (3 parameters instead of 3T)
    n_nodes : the graph size the initial step size is safe for; the parameters themselves fit any size
    tau : discount of the loss (Eq. 7); layer t of T weighs tau^(T-t+1) as in the released code
    slope : of the rectifier in Step 5 for negative entries; 0 is the paper's max(0, .)
    """

    keep_best = True

    def __init__(self, n_layers=20, *, shared=False, n_nodes=20, tau=0.9, slope=0.0):
        super().__init__()
        if n_layers < 1:
            raise ValueError(f"n_layers={n_layers}: at least 1 layer is needed")
        self.n_layers, self.shared, self.tau, self.slope = n_layers, shared, tau, slope
        start = torch.tensor([1.0, 1.0, 0.8 * safe_step(n_nodes, beta=1.0)])
        self.theta = nn.Parameter(start.repeat(1 if shared else n_layers, 1))  # columns: alpha, beta, gamma

    def forward(self, y):
        """y (..., E) -> path (..., T, E), unclamped."""
        check_distances(y)
        flat = y.reshape(-1, y.shape[-1])
        path, _, _ = self._layers(flat.T.contiguous())
        return path.permute(2, 0, 1).reshape(*y.shape[:-1], self.n_layers, y.shape[-1])

    def predict(self, y):
        """y (..., E) -> w (..., E), non-negative."""
        with torch.no_grad():
            return self(y)[..., -1, :].clamp_min(0)

    def loss(self, y, w, generator=None):
        """Discounted normalised error of all layers, first term of Eq. (7); y, w (B, E)."""
        errors, _, _ = self._layers(y.T.contiguous(), w.T.contiguous())
        return self._discount(errors, w)

    def _layers(self, y, target=None):
        D = incidence(n_nodes(len(y)), y.dtype, y.device)
        theta = self.theta.expand(self.n_layers, 3)
        return _PDSLayers.apply(torch.zeros_like(y), y.new_zeros(D.m, y.shape[1]), y, theta, self.slope, D, target)

    def _discount(self, errors, w):
        """Squared errors (T, B) -> the discounted sum of Eq. (7), mean over the batch."""
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
    slope : of the rectifier in the other layers; 0.01 is the released code's, 0 the text's
    reconstruction : add the decoder's squared error sum_j (p1 - w)_j^2 to the loss (released code; not in the text)
    kl_weight : beta_KL of Eq. (7)
    n_hidden, n_decoder, n_latent, readout : of the TopoDiffVAE
    """

    keep_best = True

    def __init__(
        self, n_nodes, n_layers=20, *, enhanced=(-1,), tau=0.9, slope=0.01, reconstruction=True, kl_weight=1.0, **vae
    ):
        super().__init__()
        for t in enhanced:
            if not -n_layers <= t < n_layers:
                raise ValueError(f"enhanced={tuple(enhanced)}: layers count from {-n_layers} to {n_layers - 1}")
        self.unrolling = Unrolling(n_layers, n_nodes=n_nodes, tau=tau, slope=slope)
        self.n_nodes, self.n_layers = n_nodes, n_layers
        self.enhanced = tuple(sorted(t % n_layers for t in enhanced))
        self.vaes = nn.ModuleList(TopoDiffVAE(n_nodes, **vae) for _ in self.enhanced)
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
        errors, terms = self._layers(y.T.contiguous(), truth=w, generator=generator)
        loss = self.unrolling._discount(errors, w)
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
        """y (E, B) -> path (T, E, B); given the truth (B, E), squared errors (T, B) instead.

        The second result lists (p1, mean, log-variance), each (B, .), of the enhanced layers that saw the truth.
        """
        D = incidence(self.n_nodes, y.dtype, y.device)
        w, v = torch.zeros_like(y), y.new_zeros(D.m, y.shape[1])
        target = None if truth is None else truth.T.contiguous()
        theta, slope = self.unrolling.theta, self.unrolling.slope
        pieces, terms, start = [], [], 0

        def enhance(k, r1):  # Step 5 with enhancement
            vae, r1 = self.vaes[k], r1.T
            if truth is None:
                return vae.decode(r1, latent[k]).T
            mean, log_var = vae.encode(r1, truth)
            noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
            p1 = vae.decode(r1, mean + (log_var / 2).exp() * noise)
            terms.append((p1, mean, log_var))
            return p1.T

        for k, t in enumerate((*self.enhanced, self.n_layers)):
            if start < t:
                piece, w, v = _PDSLayers.apply(w, v, y, theta[start:t], slope, D, target)
                pieces.append(piece)
            if t < self.n_layers:
                w, v = pds_step(w, v, y, *theta[t], project=partial(enhance, k), operators=(D.up, D.down))
                pieces.append(w[None] if target is None else (w - target).square().sum(0, keepdim=True))
                start = t + 1
        return torch.cat(pieces), terms
