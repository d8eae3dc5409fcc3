"""GLAD: its closed-form step, the two numerics, and what happens when they fail."""

import copy

import pytest
import torch

from helpers import training
from helpers.metrics import diagonal_share, gmse, nmse
from helpers.rivals.glad import GLAD, NUMERICS, NewtonSchulzRoot, ThetaEigen
from helpers.runs import Run, glad

no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, no_cuda])]


def model(numerics="stable", sigma2=1e-4, seed=0, **options):
    torch.manual_seed(seed)
    return GLAD(sigma2, numerics=numerics, **options)


def data(sigma2=1e-4, n=6, m=20, split="test"):
    """S (n, m, m) float64 and w (n, E)."""
    return GLAD.sample_pairs(Run("glad", "BA", n_nodes=m, sigma2=sigma2), split, n)


def relative(A, B):
    """The largest relative difference of matrices (..., m, m) in the Frobenius norm."""
    A, B = A.double(), B.double()
    return (torch.linalg.matrix_norm(A - B) / torch.linalg.matrix_norm(B)).max()


# --- the closed-form step ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma2", [1e-4, 1, 1e4])
def test_theta_is_spd_and_optimal(sigma2):
    S, _ = data(sigma2)
    Z = torch.linalg.inv(S + 0.1 * torch.eye(20))
    for lam in (1e-3, 0.5, 1.0):
        Theta = model()._theta(S, Z, S.new_full((len(S),), lam))
        assert torch.equal(Theta, Theta.mT)
        assert (torch.linalg.eigvalsh(Theta) > 0).all()
        residual = Theta @ (S + lam * (Theta - Z)) - torch.eye(20)  # Theta times the condition: well scaled
        assert residual.abs().max() < 1e-7


def test_theta_keeps_float32_digits_where_the_difference_loses_them():
    b = torch.tensor([-3.0, 0.0, 1.0, 1e4], dtype=torch.float64)
    c = torch.full((1, 1), 4.0, dtype=torch.float64)
    exact = ThetaEigen.apply(torch.diag(b), c).diagonal()
    assert torch.allclose(exact, ((b.square() + 4).sqrt() - b) / 2, rtol=1e-7)
    rounded = ThetaEigen.apply(torch.diag(b).float(), c.float()).diagonal()
    assert torch.allclose(rounded.double(), exact, rtol=1e-6)
    b = b.float()
    assert ((b.square() + 4).sqrt() - b)[-1] == 0  # what the naive form makes of 1e-4


def random_symmetric(m=5, n=2, seed=0):
    A = torch.randn(n, m, m, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (A + A.mT) / 2


def test_gradient_of_theta():
    B = random_symmetric()
    B[1] = torch.eye(5)  # equal eigenvalues
    c = torch.tensor([0.7, 3.0], dtype=torch.float64).view(2, 1, 1)
    symmetric_in = lambda B, c: ThetaEigen.apply((B + B.mT) / 2, c)  # noqa: E731
    assert torch.autograd.gradcheck(symmetric_in, (B.requires_grad_(), c.requires_grad_()))


def test_gradient_of_the_root_where_newton_schulz_converges():
    B = random_symmetric()
    A = (B @ B + 3 * torch.eye(5)).requires_grad_()
    root = NewtonSchulzRoot.apply(A)
    assert torch.allclose(root @ root, A, atol=1e-6)
    assert torch.autograd.gradcheck(NewtonSchulzRoot.apply, (A,), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("numerics", NUMERICS)
def test_gradient_of_the_loss(numerics):
    # one layer: with more, the gradient that is not passed through lambda's inputs makes a difference
    net = model(numerics, sigma2=1.0, n_layers=1).double()
    S, w = data(sigma2=1.0, n=2, m=5)
    net.loss(S, w.double()).backward()
    with torch.no_grad():
        for p in (net.t, net.rho[0].bias, net.lambda_[0].bias):
            i, step, losses = (0,) * p.ndim, 1e-6, []
            for shift in (step, -2 * step):
                p[i] += shift
                losses.append(net.loss(S, w.double()).item())
            p[i] += step
            assert p.grad[i].item() == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-3)


# --- the two numerics --------------------------------------------------------------------------------------


def test_numerics_agree_at_sigma2_1_and_not_at_1e_4():
    for sigma2, agree in ((1.0, True), (1e-4, False)):
        S, _ = data(sigma2)
        nets = [model(numerics, sigma2) for numerics in NUMERICS]
        with torch.no_grad():
            nets[0].t.copy_(torch.tensor(0.1).expm1().log())  # the same shift .1
            nets[1].t.copy_(torch.tensor(0.1))
        difference = relative(nets[1](S), nets[0](S))
        assert (difference < 1e-4) if agree else (difference > 0.1)


@pytest.mark.parametrize("sigma2", [1e-4, 1, 1e4])
def test_float32_equals_float64(sigma2):
    S, _ = data(sigma2)
    net = model(sigma2=sigma2)
    assert net.precision(S).dtype == torch.float32
    assert relative(net.precision(S), copy.deepcopy(net).double().precision(S)) < 1e-4


# --- the network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", NUMERICS)
def test_number_of_parameters(numerics):
    assert sum(p.numel() for p in model(numerics).parameters()) == 42


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("numerics", NUMERICS)
def test_shapes_and_devices(numerics, device):
    S, w = data(sigma2=1.0)
    S, w = S.to(device), w.to(device)
    net = model(numerics, sigma2=1.0).to(device)
    assert net(S).shape == (6, 15, 20, 20)
    assert net.precision(S[0]).shape == (20, 20)
    w_hat = net.predict(S.view(2, 3, 20, 20))
    assert w_hat.shape == (2, 3, 190)
    assert w_hat.device == S.device
    assert (w_hat >= 0).all()
    assert net.loss(S, w).device == S.device


@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_graph_does_not_depend_on_its_batch(numerics):
    S, _ = data(sigma2=1.0)
    net = model(numerics, sigma2=1.0)
    assert torch.allclose(net(S), torch.stack([net(s) for s in S]), atol=1e-5)


def test_permutation_equivariance():
    S, _ = data()
    net = model().double()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    permuted = net.precision(S[:, order][:, :, order])
    assert relative(permuted, net.precision(S)[:, order][:, :, order]) < 1e-8


def test_target_is_laplacian_plus_sigma2():
    _, w = data()
    K = model(sigma2=0.5).target(w.double())
    assert torch.allclose(K.sum(-1), torch.full((6, 20), 0.5, dtype=torch.float64))
    assert torch.allclose(K[..., 0, 1], -w[..., 0].double())


@pytest.mark.parametrize("S", [torch.eye(4)[:3], torch.ones(5), torch.full((3, 3), torch.nan)])
def test_bad_covariances(S):
    with pytest.raises(ValueError, match=r"S (has shape|contains NaN)"):
        model().predict(S)


@pytest.mark.parametrize("options", [{"numerics": "exact"}, {"sigma2": 0.0}, {"n_layers": 0}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GLAD(**{"sigma2": 1.0, **options})


# --- training ----------------------------------------------------------------------------------------------


def test_all_models_are_tested_on_the_same_signals():
    run = glad("WS")
    S, w = GLAD.sample_pairs(run, "test", 4)
    y, w_distances = training.sample_pairs(Run("l2g", "WS"), "test", 4)
    d = S.diagonal(dim1=-2, dim2=-1)
    assert torch.equal(w, w_distances)
    assert torch.allclose((d[:, 0] + d[:, 1] - 2 * S[:, 0, 1]).float(), y[:, 0])


def test_non_finite_gradients_are_counted_and_change_nothing():
    S, w = data(n=2)
    net = model("newton_schulz")
    with torch.no_grad():
        net.t.copy_(torch.tensor(-S[0, 0, 0].item()))
        net.lambda_[-2].bias.fill_(-200)  # lambda = 0: B is infinite
    loss = net.loss(S, w)
    loss.backward()
    assert loss.isfinite()
    assert net.n_dropped == 1
    assert all((p.grad == 0).all() for p in net.parameters())
    assert net.predict(S).isfinite().all()


def test_a_few_epochs_of_the_stable_form_are_enough():
    run = Run("glad", "BA", n_layers=15, n_train=100, batch_size=5, lr=0.03, decay=1.0)
    net = training.build(run)
    optimiser = torch.optim.Adam(net.parameters(), lr=run.lr)
    train = net.sample_pairs(run, "train", run.n_train)
    for epoch in range(3):
        training._train_epoch(run, net, optimiser, train, epoch)
    S, w = data(n=16)
    Z, K = net.precision(S), net.target(w)
    assert nmse(Z, K).mean() < 0.006
    assert gmse(net.predict(S), w).mean() < 0.05
    share = diagonal_share(torch.zeros_like(K), K).mean()
    assert 0.8 < share < 0.95  # most of the norm is the diagonal
    assert net.n_dropped == 0
