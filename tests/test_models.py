"""The unrolled networks against Algorithm 1, against the equations of Section 3, and against the released sizes."""

import copy

import pytest
import torch

from helpers.experiments import runs
from helpers.graphs import all_pairs, degrees, degrees_adjoint, renumber, sample_graphs, to_matrix
from helpers.metrics import gmse
from helpers.models import (
    L2G,
    TopoDiffVAE,
    Unrolling,
    batch_first,
    discounted_error,
    draw_code,
    edges_first_operators,
    kl_divergence,
    pds_layers,
)
from helpers.signals import in_order, sample_observations
from helpers.solvers import pds, pds_step, safe_step


def pairs(family="BA", n=4, m=6, dtype=torch.float64, **params):
    """Observations of n graphs, and the graphs (n, E)."""
    w = sample_graphs(family, n, m, seed=0, dtype=dtype, **params)
    return sample_observations(w, seed=1), w


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_theta(n_layers, seed=0):
    theta = 0.05 + 0.3 * torch.rand(n_layers, 3, generator=seeded(seed), dtype=torch.float64)
    theta[1, 0] *= -1  # training may turn alpha * gamma negative
    return theta


def loop_of_steps(y, theta, slope=0.0):
    """Algorithm 2 without enhancement, batches first: y (B, E) -> path (B, T, E)."""
    w = torch.zeros_like(y)
    v = y.new_zeros(*y.shape[:-1], to_matrix(y).shape[-1])
    path = []
    for parameters in theta:
        w, v = pds_step(w, v, y, *parameters, project=lambda x: torch.nn.functional.leaky_relu(x, slope))
        path.append(w)
    return torch.stack(path, -2)


# --- plain layers --------------------------------------------------------------------------------------------------


def test_edges_first_operators_are_the_degree_operator():
    _, w = pairs(m=9)
    v = torch.rand(4, 9, dtype=w.dtype, generator=seeded())
    D, D_adjoint = edges_first_operators(9, w.device)
    torch.testing.assert_close(D(w.T).T, degrees(w))
    torch.testing.assert_close(D_adjoint(v.T).T, degrees_adjoint(v))


@pytest.mark.parametrize("slope", [0.0, 0.01])
@pytest.mark.parametrize("m", [6, 34])
def test_the_plain_loop_equals_the_compiled_layers_with_gradients(m, slope):
    observations, _ = pairs(m=m)
    y = observations.distances.T.contiguous()
    inputs = [torch.rand(y.shape, generator=seeded(), dtype=y.dtype), -torch.rand(m, 4, generator=seeded(1)).double()]
    inputs += [y, random_theta(5)]
    results = []
    for compiled in (True, False):
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        path, v = pds_layers(*leaves, slope, compiled=compiled)
        loss = (path * torch.linspace(1, 2, 4, dtype=y.dtype)).sum() + v.square().sum()
        results.append((path, v, *torch.autograd.grad(loss, leaves)))
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-9)


def test_the_compiled_layers_are_the_default_on_the_cpu(monkeypatch):
    calls = []
    monkeypatch.setattr("helpers.models.PDSLayers.apply", lambda *arguments: calls.append(arguments) or (1, 2))
    y = torch.rand(15, 4)
    arguments = (y, torch.rand(6, 4), y, torch.rand(3, 3), 0.5)
    assert pds_layers(*arguments) == (1, 2)
    assert calls[0][:5] == arguments
    assert torch.equal(calls[0][5], all_pairs(6))
    path, _ = pds_layers(*arguments, compiled=False)
    assert path.shape == (3, 15, 4)
    assert len(calls) == 1


@pytest.mark.parametrize("m", [6, 34])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_frozen_unrolling_is_pds_iterate_for_iterate(m, dtype):
    observations, _ = pairs(m=m)
    model = Unrolling(30, n_nodes=m).to(dtype)
    alpha, beta, gamma = model.theta[0].tolist()
    assert (alpha, beta) == (1, 1)
    assert gamma == pytest.approx(0.4 * safe_step(m, 1.0))
    y = observations.distances.to(dtype)
    reference = pds(y, alpha, beta, gamma=gamma, n_iter=30, tol=0, path=True)
    path = model(observations)
    assert path.dtype == dtype
    torch.testing.assert_close(path, reference.to(dtype), rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("m", [6, 34])
def test_unrolling_is_a_loop_of_steps_with_its_gradient(m):
    observations, w = pairs(m=m)
    model = Unrolling(5, n_nodes=m, slope=0.01).double()
    model.theta.data = random_theta(5)
    theta = model.theta.detach().clone().requires_grad_()
    path = loop_of_steps(observations.distances, theta, 0.01)
    torch.testing.assert_close(model(observations), path)
    weight = 0.9 ** torch.arange(5, 0, -1, dtype=torch.float64)
    error = (path - w[:, None]).square().sum(-1) / w.square().sum(-1, keepdim=True)
    loss = (error @ weight).mean()
    torch.testing.assert_close(model.loss(model.prepare(observations), w), loss)
    expected = torch.autograd.grad(loss, theta)[0]
    torch.testing.assert_close(torch.autograd.grad(model.loss(observations.distances, w), model.theta)[0], expected)


def test_recurrent_unrolling_repeats_one_layer():
    observations, _ = pairs()
    shared = Unrolling(4, shared=True).double()
    shared.theta.data = random_theta(2)[:1]
    plain = Unrolling(4).double()
    plain.theta.data = shared.theta.data.repeat(4, 1)
    torch.testing.assert_close(shared(observations), plain(observations))
    assert not torch.allclose(shared(observations)[:, 1], shared(observations)[:, 3])


def test_discounted_error_by_hand():
    path = torch.tensor([[[1.0], [0.0]], [[2.0], [1.0]]])  # two layers, two edges, one graph
    w = torch.tensor([[2.0, 0.0]])
    # squared errors 1 and 1 over ||w||^2 = 4; the last layer weighs tau, the one before tau^2
    assert discounted_error(path, w, 0.5, 1) == pytest.approx((0.5 * 1 + 0.25 * 1) / 4)
    path[1] = torch.tensor([[2.0], [0.0]])
    assert discounted_error(path, w, 0.5, 1) == pytest.approx(0.25 / 4)
    both = discounted_error(
        path.repeat(1, 1, 2), torch.cat([w, 2 * w]), 0.5, 1
    )  # errors 1/4 and 9/16, 4/16; their mean
    assert both == pytest.approx((0.25 / 4 + (0.25 * 9 + 0.5 * 4) / 16) / 2)


def test_the_discount_of_the_text_starts_at_one():
    path = torch.tensor([[[1.0]], [[3.0]]])  # two layers, one edge, one graph
    w = torch.tensor([[2.0]])
    assert discounted_error(path, w, 0.5, 0) == pytest.approx((0.5 * 1 + 1) / 4)
    model = Unrolling(3, tau=0.5, tau_offset=0).double()
    observations, w = pairs()
    released = Unrolling(3, tau=0.5, tau_offset=1).double()
    y = observations.distances
    torch.testing.assert_close(released.loss(y, w), 0.5 * model.loss(y, w))


def test_the_first_step_may_be_given():
    assert Unrolling(3, gamma_start=0.01).theta.tolist() == [pytest.approx([1, 1, 0.01])] * 3
    assert L2G(6, 2, gamma_start=0.02).unrolling.theta[:, 2].tolist() == pytest.approx([0.02, 0.02])


def test_batch_first():
    path = torch.arange(2 * 3 * 4.0).reshape(2, 3, 4)
    assert torch.equal(batch_first(path, (4, 3))[1], path[:, :, 1])
    assert torch.equal(batch_first(path, (2, 2, 3)), batch_first(path, (4, 3)).reshape(2, 2, 2, 3))


# --- one contract --------------------------------------------------------------------------------------------------

MODELS = {
    "Unrolling": lambda: Unrolling(4),
    "Recurrent Unrolling": lambda: Unrolling(4, shared=True),
    "L2G": lambda: L2G(6, 4),
    "L2G, three decoders": lambda: L2G(6, 4, enhanced=(0, 2, -1)),
    "L2G, corrected": lambda: L2G(6, 4, correction=True),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_observations_or_distances(make):
    observations, _ = pairs()
    model = make()
    y = model.prepare(observations)
    assert y.shape == (4, 15)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), observations.distances)
    w = model.predict(observations)
    assert torch.equal(model.predict(y), w)
    assert torch.equal(model.predict(observations.distances), w)
    assert w.dtype == torch.float32
    assert model.double().predict(observations).dtype == torch.float64


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_graph_does_not_depend_on_its_batch(make):
    observations, _ = pairs()
    model = make().double()  # in single precision the size of a batch changes the order of summation
    together = model.predict(observations)
    apart = torch.stack([model.predict(observations[k]) for k in range(4)])
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)
    y = model.prepare(observations)
    assert torch.equal(model(y.reshape(2, 2, -1)), model(y).reshape(2, 2, 4, 15))
    assert not together.requires_grad
    path = model(y)
    assert (path[:, -1] < 0).any() or isinstance(model, Unrolling), "the decoder's graph has negative weights"
    torch.testing.assert_close(together, path[:, -1].clamp_min(0))


def test_unrolling_is_permutation_equivariant_and_l2g_is_not():
    observations, _ = pairs(m=8)
    order = torch.randperm(8, generator=seeded())
    for model, equivariant in ((Unrolling(10).double(), True), (L2G(8, 10).double(), False)):
        w = model.predict(observations)
        assert torch.allclose(in_order(model.predict, observations, order), w) == equivariant
    torch.testing.assert_close(
        Unrolling(3)(observations.renumber(order)), renumber(Unrolling(3)(observations), order), atol=1e-5, rtol=1e-4
    )


def test_unrolling_fits_any_size_and_l2g_one():
    observations, _ = pairs(m=9)
    assert Unrolling(3).predict(observations).shape == (4, 36)
    for method in (L2G(6, 3).predict, L2G(6, 3).prepare):
        with pytest.raises(ValueError, match=r"observations have 9 nodes.*n_nodes=6.*Unrolling"):
            method(observations)


def test_parameter_counts_of_the_released_code():
    def count(model):
        return sum(p.numel() for p in model.parameters())

    assert count(L2G(20, 20)) == 106_019
    assert count(Unrolling(20)) == 60
    assert count(Unrolling(20, shared=True)) == 3


def test_what_training_and_checkpoints_ask_for():
    for model in (Unrolling(2), L2G(6, 2)):
        assert model.stackable is True
        assert model.max_gradient == 1
    assert Unrolling(2, max_gradient=0.5).max_gradient == 0.5
    assert L2G(6, 2, max_gradient=0.5).max_gradient == 0.5
    assert not hasattr(Unrolling, "half_precision")
    names = set(L2G(6, 2).state_dict())
    half = {name for name in names if name.startswith(L2G.half_precision)}
    assert names - half == {"unrolling.theta"}


# --- TopoDiffVAE ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readout", ["sum", "mean"])
def test_encoder_follows_equation_6(readout):
    vae = TopoDiffVAE(5, n_hidden=3, readout=readout).double()
    A = to_matrix(pairs("ER", m=5, p=0.5)[1]).gt(0).double()[0]
    hidden = torch.relu(A @ (A.sum(1, keepdim=True) @ vae.h0) + vae.b0)
    hidden = torch.relu(A @ hidden @ vae.H1 + vae.b1)
    expected = vae.embedding(hidden.sum(0) if readout == "sum" else hidden.mean(0))
    torch.testing.assert_close(vae.f_emb(A[None])[0], expected)
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(vae.f_emb(A[order][:, order][None])[0], expected)


def test_encoder_of_the_text_is_equations_5_and_6_as_printed():
    """No biases, f_mean and f_cov with a hidden layer each, and f_cov is the standard deviation, whatever its sign."""
    vae = TopoDiffVAE(5, n_hidden=3, n_latent=2, readout="mean", encoder="text").double()
    vae.f_cov[2].bias.data -= 5  # whatever the start, some standard deviations come out negative
    assert {name.split(".")[0] for name in vae.state_dict()} == {"h0", "H1", "f_mean", "f_cov", "decoder"}
    _, w = pairs("ER", m=5, p=0.5)
    r1 = w.roll(1, 0)
    embedding = []
    for graphs in (w, r1):
        A = to_matrix(graphs).gt(0).double()
        hidden = torch.relu(A @ A.sum(-1, keepdim=True) @ vae.h0)
        embedding.append(torch.relu(A @ hidden @ vae.H1).mean(-2))
    delta = embedding[0] - embedding[1]
    mean, log_var = vae.encode(r1, w)
    for result, head in ((mean, vae.f_mean), ((log_var / 2).exp(), vae.f_cov)):
        expected = torch.relu(delta @ head[0].weight.T + head[0].bias) @ head[2].weight.T + head[2].bias
        torch.testing.assert_close(result, expected if head is vae.f_mean else expected.abs())
        assert head[0].weight.shape == (3, 6)
    assert (vae.f_cov(delta) < 0).any()


def test_a_variance_of_zero_stays_finite():
    vae = TopoDiffVAE(6, encoder="text")
    torch.nn.init.zeros_(vae.f_cov[2].weight)
    torch.nn.init.zeros_(vae.f_cov[2].bias)
    _, w = pairs()
    _, log_var = vae.encode(w.float(), w.float())
    torch.testing.assert_close(log_var.exp(), torch.full_like(log_var, 1e-12), rtol=1e-3, atol=0)


def test_encoder_follows_equation_5():
    """Weights from eta = 1e-4 on are edges; the difference is truth minus estimate; the log-variance is -|f_cov|."""
    vae = TopoDiffVAE(3).double()
    w = torch.tensor([[0.5, 1e-4, 0.0]], dtype=torch.float64)
    r1 = torch.tensor([[0.3, 0.9e-4, 0.7]], dtype=torch.float64, requires_grad=True)
    A_w = to_matrix(torch.tensor([[1.0, 1.0, 0.0]]).double())
    A_r = to_matrix(torch.tensor([[1.0, 0.0, 1.0]]).double())
    delta = vae.f_emb(A_w) - vae.f_emb(A_r)
    mean, log_var = vae.encode(r1, w)
    torch.testing.assert_close(mean, vae.f_mean(delta))
    torch.testing.assert_close(log_var, -vae.f_cov(delta).abs())
    (mean.sum() + log_var.sum()).backward()
    assert r1.grad is None, "no gradient passes the binarisation"


def test_encoder_sees_no_difference_between_equal_graphs():
    _, w = pairs()
    vae = TopoDiffVAE(6).double()
    mean, log_var = vae.encode(w, w)
    torch.testing.assert_close(mean, vae.f_mean.bias.expand_as(mean))
    assert (log_var <= 0).all()


def test_decoder_follows_equation_7():
    vae = TopoDiffVAE(4, n_latent=3).double()
    r1 = torch.rand(2, 6, dtype=torch.float64, generator=seeded())
    z = torch.rand(2, 3, dtype=torch.float64, generator=seeded(1))
    first, second = vae.decoder[0], vae.decoder[2]
    hidden = torch.tanh(r1 @ first.weight[:, :6].T + z @ first.weight[:, 6:].T + first.bias)
    torch.testing.assert_close(vae.decode(r1, z), hidden @ second.weight.T + second.bias)


def test_sizes_and_start_of_the_autoencoder():
    torch.manual_seed(0)
    vae = TopoDiffVAE(20)
    shapes = {name: tuple(p.shape) for name, p in vae.named_parameters()}
    assert shapes["h0"] == (1, 32)
    assert shapes["H1"] == (32, 64)
    assert shapes["decoder.0.weight"] == (253, 190 + 16)
    assert (vae.b0 == 1).all()
    assert (vae.b1 == 1).all()
    for layer in (vae.decoder[0], vae.decoder[2]):  # Glorot's bound times the gain of tanh, 5/3
        bound = 5 / 3 * (6 / sum(layer.weight.shape)) ** 0.5
        assert 0.98 * bound < layer.weight.abs().max() <= bound
    narrow = TopoDiffVAE(20, n_hidden=5, n_decoder=7, n_latent=3)
    assert narrow.decoder[0].weight.shape == (7, 193)
    assert narrow.f_cov.weight.shape == (3, 3)
    assert narrow.embedding[0].weight.shape == (5, 10)


def test_codes_have_the_law_of_the_posterior():
    mean = torch.tensor([1.0, -2.0]).expand(20_000, 2)
    log_var = torch.tensor([-1.0, -3.0]).expand(20_000, 2)
    z = draw_code(mean, log_var, seeded())
    torch.testing.assert_close(z.mean(0), mean[0], rtol=0, atol=0.02)
    torch.testing.assert_close(z.var(0), log_var[0].exp(), rtol=0.05, atol=0)
    assert torch.equal(z, draw_code(mean, log_var, seeded()))


def test_kl_divergence_is_torchs():
    mean = torch.randn(5, 3, generator=seeded()).double()
    log_var = torch.randn(5, 3, generator=seeded(1)).double()
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, (log_var / 2).exp()), normal(0.0, 1.0))
    torch.testing.assert_close(kl_divergence(mean, log_var), expected)


# --- L2G -----------------------------------------------------------------------------------------------------------


def test_l2g_without_enhancement_is_unrolling():
    observations, w = pairs()
    plain = L2G(6, 4, enhanced=()).double()
    unrolling = Unrolling(4, n_nodes=6).double()
    torch.testing.assert_close(plain(observations), unrolling(observations))
    torch.testing.assert_close(plain.loss(observations.distances, w), unrolling.loss(observations.distances, w))


def enhanced_by_hand(model, y, codes):
    """Algorithm 2 with the decoder of layer t fed codes[t], batches first: y (B, E) -> path (B, T, E)."""
    w = torch.zeros_like(y)
    v = y.new_zeros(len(y), model.n_nodes)
    path = []
    for t, (alpha, beta, gamma) in enumerate(model.unrolling.theta):
        if t in codes:
            vae = model.vaes[list(codes).index(t)]
            gamma = gamma if model.correction else 0.0

            def project(r1, vae=vae, z=codes[t]):
                return vae.decode(r1, z.expand(len(r1), -1))
        else:
            project = torch.relu
        w, v = pds_step(w, v, y, alpha, beta, gamma, project=project)
        path.append(w)
    return torch.stack(path, 1)


@pytest.mark.parametrize("correction", [False, True])
@pytest.mark.parametrize("enhanced", [(-1,), (1, 3), (0, 1, -1), (0,)])
def test_enhanced_layers_replace_step_5(enhanced, correction):
    observations, _ = pairs()
    torch.manual_seed(0)
    model = L2G(6, 5, enhanced=enhanced, correction=correction).double()
    model.unrolling.theta.data = random_theta(5)
    layers = sorted(t % 5 for t in enhanced)
    codes = torch.randn(len(layers), 16, generator=seeded(7)).double()  # what seed=7 must draw
    expected = enhanced_by_hand(model, observations.distances, dict(zip(layers, codes, strict=True)))
    torch.testing.assert_close(model(observations, seed=7), expected)


def test_without_correction_the_layer_returns_the_decoders_graph():
    observations, _ = pairs()
    model = L2G(6, 5).double()
    path = model(observations, seed=None)
    before = path[:, -2]  # with gamma = 0, r1 is the layer's input
    torch.testing.assert_close(path[:, -1], model.vaes[0].decode(before, before.new_zeros(4, 16)))


def test_l2g_is_deterministic_for_a_seed():
    observations, _ = pairs()
    model = L2G(6, 3)
    assert torch.equal(model.predict(observations), model.predict(observations, seed=0))
    assert not torch.equal(model.predict(observations, seed=4), model.predict(observations, seed=5))
    assert not torch.equal(model.predict(observations, seed=None), model.predict(observations, seed=0))


@pytest.mark.parametrize("kl_weight", [1.0, 0.3])
@pytest.mark.parametrize("reconstruction", [True, False])
def test_loss_is_equation_8(kl_weight, reconstruction):
    """Discounted errors, kl_weight times the divergence, and the released code's reconstruction error if asked for."""
    observations, w = pairs(n=3)
    y = observations.distances
    model = L2G(6, 4, kl_weight=kl_weight, reconstruction=reconstruction, tau=0.8, slope=0.01).double()
    path = loop_of_steps(y, model.unrolling.theta[:3], 0.01)
    mean, log_var = model.vaes[0].encode(path[:, -1], w)
    noise = torch.randn(3, 16, generator=seeded(), dtype=torch.float64)
    p1 = model.vaes[0].decode(path[:, -1], mean + (log_var / 2).exp() * noise)
    estimates = [*path.unbind(1), p1]
    errors = [((x - w).square().sum(1) / w.square().sum(1)).mean() for x in estimates]
    expected = sum(0.8 ** (4 - t) * error for t, error in enumerate(errors))
    expected = expected - kl_weight / 2 * (1 + log_var - mean**2 - log_var.exp()).mean()
    if reconstruction:
        expected = expected + (p1 - w).square().sum(1).mean()
    torch.testing.assert_close(model.loss(y, w, seeded()), expected)


def test_every_decoder_adds_its_terms_to_the_loss():
    observations, w = pairs()
    model = L2G(6, 4, enhanced=(1, -1), reconstruction=False).double()
    losses = []
    for kl_weight in (0.0, 1.0):
        model.kl_weight = kl_weight
        losses.append(model.loss(observations.distances, w, seeded()))
    divergence = losses[1] - losses[0]
    model.vaes[0].f_mean.bias.data += 1  # the codes of the first decoder move away from the prior
    moved = []
    for kl_weight in (0.0, 1.0):
        model.kl_weight = kl_weight
        moved.append(model.loss(observations.distances, w, seeded()))
    assert (moved[1] - moved[0] - divergence).abs() > 0.1


def test_detached_layers_learn_as_those_of_an_unrolling():
    observations, w = pairs()
    joint = L2G(6, 4).double()
    detached = L2G(6, 4, detached=True).double()
    plain = Unrolling(3, n_nodes=6).double()
    detached.load_state_dict(joint.state_dict())
    for model in (joint, detached, plain):
        model.loss(observations.distances, w, seeded()).backward()
    alone = plain.theta.grad * plain.tau  # three layers of four weigh one factor tau less
    torch.testing.assert_close(detached.unrolling.theta.grad[:3], alone)
    assert not torch.allclose(joint.unrolling.theta.grad[:3], alone)


def test_gradients_reach_every_l2g_parameter():
    observations, w = pairs(n=8)
    model = L2G(6, 4, enhanced=(1, -1)).double()
    model.loss(observations.distances, w, seeded()).backward()
    silent = {n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    # a bias added to both embeddings cancels in their difference
    assert all(name.endswith("embedding.2.bias") for name in silent)
    theta = model.unrolling.theta.grad
    assert (theta[[1, 3], 2] == 0).all(), "gamma of enhanced layers is fixed without correction"
    model.correction = True
    model.loss(observations.distances, w, seeded()).backward()
    assert (model.unrolling.theta.grad[[1, 3], 2] != 0).all()


def test_the_same_layer_is_enhanced_once():
    assert L2G(6, 4, enhanced=(-1, 3)).enhanced == (3,)
    assert L2G(6, 4, enhanced=(-1, 0)).enhanced == (0, 3)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Unrolling(0), "n_layers=0"),
        (lambda: L2G(6, 3, enhanced=(3,)), r"enhanced=\(3,\): layers count from -3 to 2"),
        (lambda: L2G(6, 3, enhanced=(-4,)), "enhanced="),
        (lambda: L2G(6, 3, readout="max"), "readout='max'"),
        (lambda: Unrolling(2)(torch.rand(4)), "4"),
        (lambda: Unrolling(2)(-torch.rand(3, 10)), "y"),
        (lambda: Unrolling(2)(torch.full((3, 10), torch.nan)), "y"),
    ],
)
def test_bad_input_names_the_argument(make, named):
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_cuda_equals_cpu(make):
    observations, w = pairs(dtype=torch.float32)
    model = make()
    on_cpu = model.predict(observations)
    loss = model.loss(model.prepare(observations), w, seeded())
    model, there = model.cuda(), observations.to("cuda")
    torch.testing.assert_close(model.predict(there).cpu(), on_cpu, rtol=0, atol=1e-5)
    torch.testing.assert_close(model.loss(model.prepare(there), w.cuda(), seeded()).cpu(), loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "error"), [("recurrent-ba", 0.2), ("unrolling-ba", 0.05), ("l2g-ba", 0.04)])
def test_shipped_networks_recover_graphs(name, error):
    run = runs.RUNS[name]
    observations, w = runs.sample(run, "test", 16)
    assert gmse(runs.load(run).predict(observations), w).mean() < error


# --- stacks --------------------------------------------------------------------------------------------------------


def stack(models):
    """One model with the parameters of all of them, as `training.fit_together` makes it."""
    together = copy.deepcopy(models[0])
    for name, parameter in together.named_parameters():
        parameter.data = torch.stack([model.get_parameter(name).detach() for model in models])
    return together


TEXT = {"encoder": "text", "readout": "mean", "kl": "sum", "correction": True, "reconstruction": False}
STACKS = {
    "unrolling": lambda: Unrolling(4, slope=0.01),
    "recurrent": lambda: Unrolling(4, shared=True),
    "l2g": lambda: L2G(6, 3),
    "text": lambda: L2G(6, 3, tau_offset=0, **TEXT),
    "first and last": lambda: L2G(6, 3, enhanced=(0, -1), correction=True),
}


@pytest.mark.parametrize("build", STACKS.values(), ids=STACKS)
def test_stacked_networks_compute_what_each_does_alone(build):
    """Losses, their gradients and predictions, with noise of its own for each."""
    torch.manual_seed(0)
    models = [build().double() for _ in range(3)]
    for model in models:
        for parameter in model.parameters():
            parameter.data += 0.02 * torch.rand_like(parameter)
    observations, w = pairs(n=12)
    y = observations.distances.reshape(3, 4, -1)
    w = w.reshape(3, 4, -1)
    together = stack(models)
    losses = together.loss(y, w, [seeded(seed) for seed in range(3)])
    losses.sum().backward()
    assert losses.shape == (3,)
    for k, model in enumerate(models):
        alone = model.loss(y[k], w[k], seeded(k))
        alone.backward()
        torch.testing.assert_close(losses[k], alone)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(together.get_parameter(name).grad[k], parameter.grad)
        torch.testing.assert_close(together.predict(y)[k], model.predict(y[k]))
        torch.testing.assert_close(together(y)[k], model(y[k]))
