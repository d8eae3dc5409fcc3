import time
from unittest.mock import patch

import pytest
import torch

from helpers.graphs import degrees, degrees_adjoint, edges, renumber, sample_graphs, to_matrix
from helpers.kernels import PDSLayers
from helpers.models import L2G, TopoDiffVAE, Unrolling, edges_first_operators, pds_layers
from helpers.signals import sample_distances
from helpers.solvers import pds, pds_step


def pairs(family="BA", n=4, m=6, dtype=torch.float64, **params):
    w = sample_graphs(family, n, m, seed=0, dtype=dtype, **params)
    return sample_distances(w, seed=1), w


def random_theta(n_layers, seed=0):
    theta = 0.05 + 0.3 * torch.rand(n_layers, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    theta[1, 0] *= -1  # training may turn alpha * gamma negative
    return theta


def slow_path(y, theta, slope=0.0):
    """Algorithm 2 written as a loop over `pds_step`, differentiated by autograd."""
    w, v, path = torch.zeros_like(y), y.new_zeros(*y.shape[:-1], to_matrix(y).shape[-1]), []
    for parameters in theta:
        w, v = pds_step(w, v, y, *parameters, project=lambda x: torch.nn.functional.leaky_relu(x, slope))
        path.append(w)
    return torch.stack(path, -2)


def test_edges_first_operators_are_the_degree_operator():
    _, w = pairs(m=9)
    v = torch.rand(4, 9, dtype=w.dtype)
    D, D_adjoint = edges_first_operators(9, w.device)
    torch.testing.assert_close(D(w.T).T, degrees(w))
    torch.testing.assert_close(D_adjoint(v.T).T, degrees_adjoint(v))


@pytest.mark.parametrize("m", [6, 34])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_frozen_unrolling_is_pds_iterate_for_iterate(m, dtype):
    y, _ = pairs(m=m, dtype=dtype)
    model = Unrolling(30, n_nodes=m).to(dtype)
    alpha, beta, gamma = model.theta[0].tolist()
    reference = pds(y, alpha, beta, gamma=gamma, n_iter=30, tol=0, path=True)
    torch.testing.assert_close(model(y), reference, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("slope", [0.0, 0.01])
@pytest.mark.parametrize("listed", [False, True])
def test_kernels_pass_gradcheck(slope, listed):
    y, w = pairs(m=6, n=2)
    edge_list = edges(6)[:, w[0] > 0] if listed else edges(6)
    y = (y[:, w[0] > 0] if listed else y).T.contiguous().requires_grad_()
    generator = torch.Generator().manual_seed(3)
    w0 = torch.rand(y.shape, generator=generator, dtype=y.dtype).requires_grad_()
    v0 = (-torch.rand(6, 2, generator=generator, dtype=y.dtype)).requires_grad_()
    inputs = (w0, v0, y, random_theta(3).requires_grad_())
    assert torch.autograd.gradcheck(lambda *x: PDSLayers.apply(*x, slope, edge_list), inputs)


@pytest.mark.parametrize("m", [6, 34])
def test_layers_equal_a_loop_of_steps_and_its_gradient(m):
    y, w = pairs(m=m)
    model = Unrolling(5, n_nodes=m, slope=0.01).double()
    model.theta.data = random_theta(5)
    theta = model.theta.detach().clone().requires_grad_()
    path = slow_path(y, theta, 0.01)
    torch.testing.assert_close(model(y), path)
    weight = 0.9 ** torch.arange(5, 0, -1, dtype=torch.float64)
    loss = ((path - w[:, None]).square().sum(-1) / w.square().sum(-1, keepdim=True) @ weight).mean()
    torch.testing.assert_close(model.loss(y, w), loss)
    expected = torch.autograd.grad(loss, theta)[0]
    torch.testing.assert_close(torch.autograd.grad(model.loss(y, w), model.theta)[0], expected)


@pytest.mark.parametrize("model", [Unrolling(4), Unrolling(4, shared=True), L2G(6, 4), L2G(6, 4, enhanced=(0, 2, -1))])
def test_batch_equals_loop(model):
    y, _ = pairs(dtype=torch.float32)
    together = model.predict(y)
    torch.testing.assert_close(together, torch.stack([model.predict(one) for one in y]), rtol=0, atol=1e-6)
    assert model(y.reshape(2, 2, -1)).shape == (2, 2, 4, 15)
    assert (together >= 0).all()


def test_unrolling_is_permutation_equivariant():
    y, _ = pairs(m=8)
    model = Unrolling(10).double()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(renumber(y, order)), renumber(model(y), order))


def test_unrolling_fits_any_size_and_l2g_one():
    y, _ = pairs(m=9, dtype=torch.float32)
    assert Unrolling(3).predict(y).shape == y.shape
    with pytest.raises(ValueError, match="n_nodes=6"):
        L2G(6, 3).predict(y)


def test_parameter_counts_of_the_released_code():
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    assert count(L2G(20, 20)) == 106_019
    assert count(Unrolling(20)) == 60
    assert count(Unrolling(20, shared=True)) == 3


def test_l2g_without_enhancement_is_unrolling():
    y, w = pairs()
    plain, unrolling = L2G(6, 4, enhanced=(), slope=0.0).double(), Unrolling(4, n_nodes=6).double()
    torch.testing.assert_close(plain(y), unrolling(y))
    torch.testing.assert_close(plain.loss(y, w), unrolling.loss(y, w))


def test_last_layer_returns_the_decoders_graph_or_corrects_it():
    y, _ = pairs()
    torch.manual_seed(0)
    model = L2G(6, 5).double()
    code = model._prior(0, y)[0]
    before = model(y)[:, -2]  # with gamma = 0, r1 is the layer's input
    torch.testing.assert_close(model(y)[:, -1], model.vaes[0].decode(before, code))
    model.correction = True
    alpha, beta, gamma = model.unrolling.theta[-1]
    w4, v4 = torch.zeros_like(y), y.new_zeros(4, 6)
    for parameters in model.unrolling.theta[:-1]:
        w4, v4 = pds_step(w4, v4, y, *parameters)
    last, _ = pds_step(w4, v4, y, alpha, beta, gamma, project=lambda r1: model.vaes[0].decode(r1, code))
    torch.testing.assert_close(model(y)[:, -1], last)


def test_detached_layers_learn_as_those_of_an_unrolling():
    y, w = pairs()
    joint, detached, plain = L2G(6, 4).double(), L2G(6, 4, detached=True).double(), Unrolling(3, n_nodes=6).double()
    detached.load_state_dict(joint.state_dict())
    for model in (joint, detached, plain):
        model.loss(y, w, torch.Generator().manual_seed(0)).backward()
    alone = plain.theta.grad * plain.tau  # three layers of four weigh one factor tau less
    torch.testing.assert_close(detached.unrolling.theta.grad[:3], alone)
    assert not torch.allclose(joint.unrolling.theta.grad[:3], alone)


def test_l2g_is_deterministic_for_a_seed():
    y, _ = pairs(dtype=torch.float32)
    model = L2G(6, 3)
    assert torch.equal(model.predict(y, seed=4), model.predict(y, seed=4))
    assert not torch.equal(model.predict(y, seed=4), model.predict(y, seed=5))
    assert torch.equal(model.predict(y, seed=None), model.predict(y, seed=None))


def test_l2g_loss_has_the_terms_of_the_paper_and_of_the_code():
    y, w = pairs()
    seeded = lambda: torch.Generator().manual_seed(0)  # noqa: E731
    model = L2G(6, 3).double()
    full = model.loss(y, w, seeded())
    model.reconstruction = False
    without_reconstruction = model.loss(y, w, seeded())
    model.kl_weight = 0.0
    error_only = model.loss(y, w, seeded())
    assert full > without_reconstruction > error_only > 0


def test_encoder_follows_equation_6():
    vae = TopoDiffVAE(5, n_hidden=3, readout="mean").double()
    A = to_matrix(pairs("ER", m=5, p=0.5)[1]).gt(0).double()[0]
    relu = torch.relu
    hidden = relu(A @ (A.sum(1, keepdim=True) @ vae.h0) + vae.b0)
    hidden = relu(A @ hidden @ vae.H1 + vae.b1)
    torch.testing.assert_close(vae.f_emb(A), vae.embedding(hidden.mean(0)))
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(vae.f_emb(A[order][:, order]), vae.f_emb(A))


def test_encoder_sees_no_difference_between_equal_graphs():
    _, w = pairs()
    vae = TopoDiffVAE(6).double()
    mean, log_var = vae.encode(w, w)
    torch.testing.assert_close(mean, vae.f_mean.bias.expand_as(mean))
    assert (log_var <= 0).all()


def test_gradients_reach_every_l2g_parameter():
    y, w = pairs(n=8)
    model = L2G(6, 4, enhanced=(1, -1)).double()
    model.loss(y, w, torch.Generator().manual_seed(0)).backward()
    silent = {n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    # a bias added to both embeddings cancels in their difference
    assert all(name.endswith("embedding.2.bias") for name in silent)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Unrolling(0), "n_layers=0"),
        (lambda: L2G(6, 3, enhanced=(3,)), "enhanced="),
        (lambda: L2G(6, 3, readout="max"), "readout='max'"),
        (lambda: Unrolling(2)(torch.rand(4)), "4"),
        (lambda: Unrolling(2)(-torch.rand(3, 10)), "y"),
        (lambda: Unrolling(2)(torch.full((3, 10), torch.nan)), "y"),
    ],
)
def test_bad_input_names_the_argument(make, named):
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("model", [Unrolling(4, n_nodes=6), L2G(6, 4)])
def test_cuda_equals_cpu(model):
    y, _ = pairs(dtype=torch.float32)
    on_cpu = model.predict(y)
    torch.testing.assert_close(model.cuda().predict(y.cuda()).cpu(), on_cpu, rtol=0, atol=1e-5)


def test_a_step_is_faster_than_the_vectorised_loop():
    """Forward and backward of L2G, interleaved with the same network as a loop of steps in dense matrix products."""
    y, w = pairs(n=32, m=20, dtype=torch.float32)
    model = L2G(20, 20)
    D = degrees(torch.eye(190))
    operators = (lambda x: D.T @ x, lambda x: D @ x)

    def layers(w, v, y, theta, slope):
        path = []
        for parameters in theta:
            w, v = pds_step(w, v, y, *parameters, operators=operators)
            path.append(w)
        return torch.stack(path), v

    def step(function):
        with patch("helpers.models.pds_layers", function):
            model.loss(y, w, torch.Generator().manual_seed(0)).backward()

    seconds = {layers: [], pds_layers: []}
    for _ in range(25):
        for function, times in seconds.items():
            start = time.perf_counter()
            step(function)
            times.append(time.perf_counter() - start)
    plain, ours = (sorted(times)[5] for times in seconds.values())
    print(f"{plain / ours:.1f} times faster")
    assert plain > 1.6 * ours
