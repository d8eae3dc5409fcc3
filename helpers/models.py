"""The unrolled networks of the paper: Unrolling, Recurrent Unrolling, and L2G with its TopoDiffVAE (Algorithm 2).

A network maps Observations, or their distances y (..., E), to its path of estimates w^(1), ..., w^(T), one per layer:
(..., T, E). `predict` returns the last one, clamped at zero. The device is that of the input, the precision that of
the parameters. Inside, a batch is stored edges first, (E, B): sums over edges then run over contiguous rows.

Several trainings of one network can share every operation (see `training.fit_together`): their parameters are then
stacked along a first dimension S, and so is everything computed from them. Where a shape below begins with "...", the
dots are (S,) for such a stack and nothing for a single network.
"""

from functools import partial

import torch
from torch import nn
from torch.nn.functional import leaky_relu

from .engine.kernels import PDSLayers
from .engine.problem import check_distances
from .graphs import all_pairs, count_nodes, to_matrix
from .solvers import pds_step, safe_step

ETA = 1e-4  # eta of Section 3.2: the encoder takes weights below it for absent edges
LEAST_VARIANCE = 1e-12  # of the text's encoder, whose f_cov may cross zero, where the divergence is infinite


# --- Algorithm 2 without enhancement -------------------------------------------------------------------------------


def edges_first_operators(m, device):
    """D: (..., E, B) -> (..., m, B) and its adjoint D', for batches stored edges first."""
    i, j = all_pairs(m, device)

    def D(w):
        return w.new_zeros(*w.shape[:-2], m, w.shape[-1]).index_add(-2, i, w).index_add(-2, j, w)

    def D_adjoint(v):
        return v.index_select(-2, i) + v.index_select(-2, j)

    return D, D_adjoint


def pds_layers(w, v, y, theta, slope, compiled=True):
    """Plain layers of Algorithm 2, one after the other.

    Parameters
    ----------
    w, v : (..., E, B) and (..., m, B), what enters the first layer
    y : (..., E, B), distances
    theta : (..., T, 3), a row (alpha, beta, gamma) per layer
    slope : of the rectifier in Step 5 for negative entries
    compiled : use the layers of `engine.kernels`, which are for the CPU only; the loop below is what they compute

    Returns
    -------
    path : (..., T, E, B), the w of every layer
    v : (..., m, B), of the last layer
    """
    m = v.shape[-2]
    if compiled and y.device.type == "cpu":
        return PDSLayers.apply(w, v, y, theta, slope, all_pairs(m))
    rectify = partial(leaky_relu, negative_slope=slope)  # Step 5
    operators = edges_first_operators(m, y.device)
    path = []
    for t in range(theta.shape[-2]):
        w, v = pds_step(w, v, y, *of_layer(theta, t), rectify, operators=operators)
        path.append(w)
    return torch.stack(path, -3), v


def of_layer(theta, t):
    """alpha, beta, gamma of layer t, each (..., 1, 1), out of theta (..., T, 3)."""
    return theta[..., t, :, None, None].unbind(-3)


def discounted_error(path, w, tau, offset):
    """First term of Eq. (8), mean over the batch: path (..., T, E, B), truth w (..., B, E) -> (...).

    Layer t of T weighs tau^(T-t+offset): the text has an offset of 0, the released code of 1.
    """
    errors = (path - w.mT.contiguous().unsqueeze(-3)).square().sum(-2)
    from_last = torch.arange(path.shape[-3] - 1, -1, -1, device=w.device, dtype=w.dtype)  # T - t
    weights = tau ** (from_last + offset)
    return (weights @ errors / w.square().sum(-1)).mean(-1)


def batch_first(path, shape):
    """Path (..., T, E, B) -> (..., B, T, E), where `shape` is that of y and may split B into several dimensions."""
    return path.movedim(-1, -3).reshape(*shape[:-1], *path.shape[-3:-1])


class Unrolling(nn.Module):
    """Algorithm 2 without enhancement: PDS with trainable alpha, beta, gamma in each of `n_layers` layers.

    Parameters
    ----------
    n_layers : T
    shared : one (alpha, beta, gamma) for all layers, the paper's Recurrent Unrolling (3 parameters instead of 3T)
    n_nodes : the graph size for which the initial step size is safe; the parameters themselves fit any size
    tau, tau_offset : discount of the loss, see `discounted_error`
    slope : of the rectifier in Step 5 for negative entries; 0 is the paper's max(0, .)
    gamma_start : initial step size of every layer; the released code has 0.01, None takes 0.4 of the largest step for
        which Algorithm 1 converges
    max_gradient : bound on the norm of each parameter's gradient in training; 0 for none. In the first epochs single
        batches have gradients many orders of magnitude above the usual ones
    """

    stackable = True

    def __init__(
        self,
        n_layers=20,
        *,
        shared=False,
        n_nodes=20,
        tau=0.9,
        tau_offset=1,
        slope=0.0,
        gamma_start=None,
        max_gradient=1.0,
    ):
        super().__init__()
        if n_layers < 1:
            raise ValueError(f"n_layers={n_layers}: at least 1 layer is needed")
        self.n_layers = n_layers
        self.shared = shared
        self.tau = tau
        self.tau_offset = tau_offset
        self.slope = slope
        self.max_gradient = max_gradient
        gamma = 0.4 * safe_step(n_nodes, beta=1.0) if gamma_start is None else gamma_start
        start = torch.tensor([1.0, 1.0, gamma])
        self.theta = nn.Parameter(start.repeat(1 if shared else n_layers, 1))  # columns: alpha, beta, gamma

    def prepare(self, observations):
        """Observations, or distances, -> distances y (..., E) in the precision of the parameters."""
        return check_distances(observations).to(self.theta.dtype)

    def forward(self, observations):
        """Observations, or distances y (..., E), -> path (..., T, E), not clamped."""
        y = self.prepare(observations)
        return batch_first(self._path(self.as_batch(y)), y.shape)

    def predict(self, observations):
        """Observations, or distances y (..., E), -> w (..., E), non-negative."""
        with torch.no_grad():
            return self(observations)[..., -1, :].clamp_min(0)

    def loss(self, prepared, w, generator=None):
        """First term of Eq. (8) on distances and graphs, each (..., B, E), -> (...); nothing here is random."""
        return self.error(self._path(prepared), w)

    def error(self, path, w):
        """First term of Eq. (8): path (..., T, E, B), truth w (..., B, E) -> (...)."""
        return discounted_error(path, w, self.tau, self.tau_offset)

    def as_batch(self, y):
        """y with any leading shape -> (..., B, E)."""
        return y.reshape(*self.theta.shape[:-2], -1, y.shape[-1])

    def start(self, y):
        """y (..., B, E) -> w^(0) = 0, v^(0) = 0 (Step 1) and y, edges first: (..., E, B), (..., m, B), (..., E, B)."""
        y = y.mT.contiguous()
        v = y.new_zeros(*y.shape[:-2], count_nodes(y.shape[-2]), y.shape[-1])
        return torch.zeros_like(y), v, y

    def _path(self, y):
        """y (..., B, E) -> path (..., T, E, B)."""
        theta = self.theta.expand(*self.theta.shape[:-2], self.n_layers, 3)
        path, _ = pds_layers(*self.start(y), theta, self.slope)
        return path


# --- Algorithm 2 with enhancement ----------------------------------------------------------------------------------


class Linear(nn.Linear):
    """x (..., B, n_in) -> (..., B, n_out), also with stacked weights (S, n_out, n_in)."""

    def forward(self, x):
        if self.weight.dim() == 2:
            return super().forward(x)
        return torch.baddbmm(self.bias[:, None], x, self.weight.mT)


def mlp(n_in, n_hidden, n_out, activation=nn.ReLU):
    return nn.Sequential(Linear(n_in, n_hidden), activation(), Linear(n_hidden, n_out))


class TopoDiffVAE(nn.Module):
    """The conditional variational autoencoder that replaces the proximal operator of Step 5 (Section 3.2, Eqs. 5-7).

    Parameters
    ----------
    n_nodes : m
    n_hidden, n_latent : widths of the encoder and of the code z
    n_decoder : hidden units of the decoder; None is the released code's 2m(m-1)/3
    readout : "sum" over the nodes is the released code's, "mean" the text's
    encoder : "released" has biases in Eq. (6) and two linear layers behind its readout; f_mean and f_cov are linear,
        and -|f_cov| is the logarithm of the variance. "text" is Eqs. (5) and (6) as printed: no biases, f_mean and
        f_cov with one hidden layer each, and f_cov is the standard deviation itself. The text does not give the width
        of the second graph convolution: both have 2 n_hidden
    """

    def __init__(self, n_nodes, *, n_hidden=32, n_decoder=None, n_latent=16, readout="sum", encoder="released"):
        super().__init__()
        if readout not in ("sum", "mean"):
            raise ValueError(f"readout={readout!r}: 'sum' (released code) or 'mean' (the text)")
        if encoder not in ("released", "text"):
            raise ValueError(f"encoder={encoder!r}: 'released' or 'text'")
        n_edges = n_nodes * (n_nodes - 1) // 2
        self.readout = readout
        self.encoder = encoder
        self.h0 = nn.Parameter(torch.empty(1, n_hidden))
        self.H1 = nn.Parameter(torch.empty(n_hidden, 2 * n_hidden))
        nn.init.xavier_uniform_(self.h0)
        nn.init.xavier_uniform_(self.H1)
        if encoder == "released":
            self.b0 = nn.Parameter(torch.ones(n_hidden))
            self.b1 = nn.Parameter(torch.ones(2 * n_hidden))
            self.embedding = mlp(2 * n_hidden, n_hidden, n_latent)
            self.f_mean = Linear(n_latent, n_latent)
            self.f_cov = Linear(n_latent, n_latent)
        else:
            self.f_mean = mlp(2 * n_hidden, n_hidden, n_latent)
            self.f_cov = mlp(2 * n_hidden, n_hidden, n_latent)
        self.decoder = mlp(n_edges + n_latent, n_decoder or 4 * n_edges // 3, n_edges, nn.Tanh)
        for layer in self.decoder[::2]:
            nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("tanh"))

    def f_emb(self, A):
        """Graph embedding of Eq. (6): binary adjacency matrices (..., B, m, m) -> (..., B, n_embedding)."""
        released = self.encoder == "released"
        d = A.sum(-1, keepdim=True)
        h = (A @ d) * self.h0.unsqueeze(-3)
        h = torch.relu(h + per_column(self.b0) if released else h)
        h = ((A @ h).flatten(-3, -2) @ self.H1).unflatten(-2, A.shape[-3:-1])
        h = torch.relu(h + per_column(self.b1) if released else h)
        h = h.sum(-2) if self.readout == "sum" else h.mean(-2)
        return self.embedding(h) if released else h

    def encode(self, r1, w):
        """Eq. (5): estimate r1 and truth w (..., B, E) -> mean and log-variance of the code z, each (..., B, n_latent).

        As in the released code no gradient passes the binarisation.
        """
        binary = torch.cat([w, r1], -2).detach() >= ETA
        embedding_w, embedding_r = self.f_emb(to_matrix(binary.to(r1))).chunk(2, -2)
        delta = embedding_w - embedding_r
        if self.encoder == "released":
            return self.f_mean(delta), -self.f_cov(delta).abs()
        return self.f_mean(delta), (self.f_cov(delta).square() + LEAST_VARIANCE).log()

    def decode(self, r1, z):
        """Eq. (7): estimate r1 (..., B, E) and code z (..., B, n_latent) -> p1 (..., B, E)."""
        return self.decoder(torch.cat([r1, z], -1))


def per_column(b):
    """Biases (..., n) for batches of matrices (..., B, m, n)."""
    return b[..., None, None, :]


def draw_code(mean, log_var, generator=None):
    """z = mean + standard deviation * noise, (..., B, n_latent). The noise is drawn on the CPU, then moved.

    `generator` is a list of generators, one for each of S networks, if the networks are stacked.
    """
    if isinstance(generator, list):
        shape = mean.shape[1:]
        noise = torch.stack([torch.randn(shape, generator=g, dtype=mean.dtype).to(mean.device) for g in generator])
    else:
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
    return mean + (log_var / 2).exp() * noise


def kl_divergence(mean, log_var):
    """KL(N(mean, exp(log_var)) || N(0, 1)) of every entry of the code, (..., B, n_latent): see Eq. (8)."""
    return -0.5 * (1 + log_var - mean.square() - log_var.exp())


class L2G(nn.Module):
    """Algorithm 2: an unrolled network whose `enhanced` layers have a TopoDiffVAE for Step 5.

    Parameters
    ----------
    n_nodes, n_layers : m and T; the decoder fixes the graph size
    enhanced : layers with a TopoDiffVAE, counted like the entries of a list; the paper's experiments use the last only
    tau, tau_offset : discount of the loss, see `discounted_error`
    slope : of the rectifier in the other layers; 0 is the text's, 0.01 the released code's. Two nodes in different
        components are 1e4 apart, and a hundredth of that still swamps the weights
    correction : what an enhanced layer returns. True is the text's w - r1 + q1 (Step 9) with a trained gamma; training
        then finds steps that cancel the decoder's output and pass the layer's input on. False fixes gamma = 0 there,
        for which w - r1 + q1 = p1, the decoder's graph (the released weights have gamma = -0.0016)
    detached : True trains the layers before a decoder by their own errors only. On many nodes a decoder is slow to
        learn, and until it has learned its gradients spoil the layers before it
    reconstruction : add the decoder's squared error sum_j (p1 - w)_j^2 to the loss (released code; not in the text)
    kl_weight : beta_KL of Eq. (8)
    kl : the divergence of a code is the "sum" over its entries (Eq. (8)) or, as released, their "mean"
    gamma_start, max_gradient : see Unrolling
    n_hidden, n_decoder, n_latent, readout, encoder : see TopoDiffVAE
    """

    stackable = True
    half_precision = ("vaes.",)  # parameters that a checkpoint stores as float16; theta needs all of its digits

    def __init__(
        self,
        n_nodes,
        n_layers=20,
        *,
        enhanced=(-1,),
        tau=0.9,
        tau_offset=1,
        slope=0.0,
        correction=False,
        detached=False,
        reconstruction=True,
        kl_weight=1.0,
        kl="mean",
        gamma_start=None,
        max_gradient=1.0,
        n_hidden=32,
        n_decoder=None,
        n_latent=16,
        readout="sum",
        encoder="released",
    ):
        super().__init__()
        if kl not in ("sum", "mean"):
            raise ValueError(f"kl={kl!r}: 'sum' (the text) or 'mean' (released code)")
        for t in enhanced:
            if not -n_layers <= t < n_layers:
                raise ValueError(f"enhanced={tuple(enhanced)}: layers count from {-n_layers} to {n_layers - 1}")
        self.n_nodes = n_nodes
        self.n_layers = n_layers
        self.enhanced = tuple(sorted({t % n_layers for t in enhanced}))
        self.correction = correction
        self.detached = detached
        self.reconstruction = reconstruction
        self.kl_weight = kl_weight
        self.kl = kl
        self.max_gradient = max_gradient
        self.n_latent = n_latent
        self.unrolling = Unrolling(
            n_layers, n_nodes=n_nodes, tau=tau, tau_offset=tau_offset, slope=slope, gamma_start=gamma_start
        )
        sizes = {"n_hidden": n_hidden, "n_decoder": n_decoder, "n_latent": n_latent}
        self.vaes = nn.ModuleList(
            TopoDiffVAE(n_nodes, **sizes, readout=readout, encoder=encoder) for _ in self.enhanced
        )

    def prepare(self, observations):
        """Observations, or distances, of graphs of the right size -> distances y (..., E), as for Unrolling."""
        y = self.unrolling.prepare(observations)
        m = count_nodes(y.shape[-1])
        if m != self.n_nodes:
            raise ValueError(
                f"the observations have {m} nodes, this L2G was built for n_nodes={self.n_nodes}: "
                "its decoder fits one size; train another or use Unrolling, which fits any"
            )
        return y

    def forward(self, observations, seed=0):
        """Observations, or distances y (..., E), -> path (..., T, E), not clamped.

        The truth is unknown here, so the encoder is idle, and `seed` draws the codes z from the prior N(0, I). All
        graphs are given the same code, so that the result for a graph does not depend on the batch it comes in.
        `seed=None` uses the prior's mean, z = 0.
        """
        y = self.prepare(observations)
        codes = self._prior(seed, y)

        def step_5(k, r1):
            return self.vaes[k].decode(r1, codes[k].expand(*r1.shape[:-1], -1))

        return batch_first(self._path(self.unrolling.as_batch(y), step_5), y.shape)

    def predict(self, observations, seed=0):
        """Observations, or distances y (..., E), -> w (..., E), non-negative; deterministic for a given seed."""
        with torch.no_grad():
            return self(observations, seed)[..., -1, :].clamp_min(0)

    def loss(self, prepared, w, generator=None):
        """Eq. (8) on distances and graphs, each (..., B, E), -> (...); `generator` (CPU) draws the codes' noise."""
        outputs = []  # (p1, mean, log_var) of every enhanced layer

        def step_5(k, r1):
            mean, log_var = self.vaes[k].encode(r1, w)
            p1 = self.vaes[k].decode(r1, draw_code(mean, log_var, generator))
            outputs.append((p1, mean, log_var))
            return p1

        loss = self.unrolling.error(self._path(prepared, step_5), w)
        for p1, mean, log_var in outputs:
            divergence = kl_divergence(mean, log_var)
            divergence = divergence.sum(-1) if self.kl == "sum" else divergence.mean(-1)
            loss = loss + self.kl_weight * divergence.mean(-1)
            if self.reconstruction:
                loss = loss + (p1 - w).square().sum(-1).mean(-1)
        return loss

    def _prior(self, seed, like):
        """One code per enhanced layer, (n_enhanced, n_latent), of the device and precision of `like`."""
        shape = (len(self.vaes), self.n_latent)
        if seed is None:
            return like.new_zeros(shape)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(like)

    def _path(self, y, step_5):
        """y (..., B, E) -> path (..., T, E, B).

        `step_5(k, r1)` is Step 5 of the k-th enhanced layer, r1 (..., B, E) -> p1 (..., B, E).
        """
        w, v, y = self.unrolling.start(y)
        theta = self.unrolling.theta
        operators = edges_first_operators(self.n_nodes, y.device)
        pieces = []
        first = 0  # of the plain layers before the next enhanced one
        for k, t in enumerate((*self.enhanced, self.n_layers)):
            if first < t:
                piece, v = pds_layers(w, v, y, theta[..., first:t, :], self.unrolling.slope)
                w = piece[..., -1, :, :]
                pieces.append(piece)
            if t < self.n_layers:
                w, v = self._enhanced_layer(w, v, y, of_layer(theta, t), partial(step_5, k), operators)
                pieces.append(w.unsqueeze(-3))
            first = t + 1
        return torch.cat(pieces, -3)

    def _enhanced_layer(self, w, v, y, parameters, step_5, operators):
        """One layer whose Step 5 is a TopoDiffVAE: w (..., E, B), v (..., m, B) -> the next w and v."""
        alpha, beta, gamma = parameters
        if not self.correction:
            gamma = torch.zeros_like(gamma)

        def project(r1):
            r1 = r1.mT.detach() if self.detached else r1.mT
            return step_5(r1).mT

        return pds_step(w, v, y, alpha, beta, gamma, project, operators=operators)
