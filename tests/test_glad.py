"""GLAD: its closed-form step, the two numerics, and what happens when they fail."""

import copy

import pytest
import torch

from helpers import training
from helpers.experiments import runs
from helpers.graphs import laplacian, sample_graphs
from helpers.metrics import diagonal_share, gmse, nmse
from helpers.rivals.glad import GLAD, NUMERICS, AllOrNothing, NewtonSchulzRoot, ThetaEigen, identity, symmetric
from helpers.signals import Observations, sample_observations


def model(numerics="stable", sigma2=1e-4, seed=0, **options):
    torch.manual_seed(seed)
    return GLAD(sigma2, numerics=numerics, **options)


def data(sigma2=1e-4, n=6, m=20, seed=0):
    """Observations of n graphs and the graphs (n, E) float32."""
    w = sample_graphs("BA", n, m, seed=seed)
    return sample_observations(w, sigma2=sigma2, seed=seed + 1), w


def relative(A, B):
    """The largest relative difference of matrices (..., m, m) in the Frobenius norm."""
    A, B = A.double(), B.double()
    return (torch.linalg.matrix_norm(A - B) / torch.linalg.matrix_norm(B)).max()


# --- the closed-form step ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma2", [1e-4, 1, 1e4])
def test_theta_is_spd_and_optimal(sigma2):
    S = data(sigma2)[0].moments
    Z = torch.linalg.inv(S + 0.1 * torch.eye(20))
    for lam in (1e-3, 0.5, 1.0):
        Theta = model()._theta(S, Z, S.new_full((len(S),), lam))
        assert torch.equal(Theta, Theta.mT)
        assert (torch.linalg.eigvalsh(Theta) > 0).all()
        residual = Theta @ (S + lam * (Theta - Z)) - torch.eye(20)  # Theta times the condition: well scaled
        assert residual.abs().max() < 1e-7


@pytest.mark.parametrize("numerics", NUMERICS)
def test_theta_is_optimal_in_both_numerics_where_newton_schulz_converges(numerics):
    B = random_symmetric(n=3)
    S = B @ B / 10 + torch.eye(5)
    Z = torch.eye(5).expand_as(S).double()
    lam = torch.tensor([0.5, 1.0, 2.0]).double()
    Theta = model(numerics).double()._theta(S, Z, lam)
    residual = Theta @ (S + lam[:, None, None] * (Theta - Z)) - torch.eye(5)
    assert residual.abs().max() < 1e-6


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
    return symmetric(A)


def test_symmetric_and_identity():
    A = torch.tensor([[1.0, 2.0], [4.0, 3.0]])
    assert torch.equal(symmetric(A), torch.tensor([[1.0, 3.0], [3.0, 3.0]]))
    eye = identity(torch.zeros(3, 2, 2, dtype=torch.float64))
    assert torch.equal(eye, torch.eye(2, dtype=torch.float64))


def test_gradient_of_theta():
    B = random_symmetric()
    B[1] = torch.eye(5)  # equal eigenvalues
    B = B[:, None]  # any leading shape
    c = torch.tensor([0.7, 3.0], dtype=torch.float64).view(2, 1, 1, 1)

    def theta(B, c):
        return ThetaEigen.apply(symmetric(B), c)

    assert torch.autograd.gradcheck(theta, (B.requires_grad_(), c.requires_grad_()))


def test_gradient_of_the_root_where_newton_schulz_converges():
    B = random_symmetric()
    A = (B @ B + 3 * torch.eye(5)).requires_grad_()
    root = NewtonSchulzRoot.apply(A)
    assert torch.allclose(root @ root, A, atol=1e-6)
    assert torch.autograd.gradcheck(NewtonSchulzRoot.apply, (A,), atol=1e-5, rtol=1e-4)


def test_ten_newton_schulz_iterations():
    """Each multiplies a tiny eigenvalue's root by 1.5 at most: what ten of them reach is known in advance."""
    size = 1 + 1e-8  # the Frobenius norm of diag(1, 1e-8) but for 1e-17
    root = NewtonSchulzRoot.apply(torch.diag(torch.tensor([1.0, 1e-8], dtype=torch.float64)))
    assert root[0, 0] == pytest.approx(1, abs=1e-4)
    assert root[1, 1] == pytest.approx(1e-8 * 1.5**10 * size, rel=1e-4)


@pytest.mark.parametrize("numerics", NUMERICS)
def test_gradient_of_the_loss(numerics):
    # one layer: with more, the gradient that is not passed through lambda's inputs makes a difference
    net = model(numerics, sigma2=1.0, n_layers=1).double()
    observations, w = data(sigma2=1.0, n=2, m=5)
    S = net.prepare(observations)
    net.loss(S, w.double()).backward()
    with torch.no_grad():
        for p in (net.t, net.rho[0].bias, net.lambda_[0].bias):
            i = (0,) * p.ndim
            step = 1e-6
            losses = []
            for shift in (step, -2 * step):
                p[i] += shift
                losses.append(net.loss(S, w.double()).item())
            p[i] += step
            assert p.grad[i].item() == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-3)


# --- the two numerics ----------------------------------------------------------------------------------------------


def test_both_numerics_start_from_the_same_shift():
    S = data(sigma2=1.0)[0].moments.float()
    expected = torch.linalg.inv(S + 0.1 * torch.eye(20))
    for numerics in NUMERICS:
        torch.testing.assert_close(model(numerics)._initial(S), expected, rtol=1e-3, atol=1e-3)


def test_numerics_agree_at_sigma2_1_and_not_at_1e_4():
    for sigma2, agree in ((1.0, True), (1e-4, False)):
        observations, _ = data(sigma2)
        stable, newton_schulz = (model(numerics, sigma2)(observations) for numerics in NUMERICS)
        difference = relative(newton_schulz, stable)
        assert (difference < 1e-4) if agree else (difference > 0.1)


@pytest.mark.parametrize("sigma2", [1e-4, 1, 1e4])
def test_float32_equals_float64(sigma2):
    observations, _ = data(sigma2)
    net = model(sigma2=sigma2)
    assert net.precision(observations).dtype == torch.float32
    assert relative(net.precision(observations), copy.deepcopy(net).double().precision(observations)) < 1e-4


# --- the network ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numerics", NUMERICS)
def test_number_of_parameters(numerics):
    assert sum(p.numel() for p in model(numerics).parameters()) == 42


def test_layers_by_hand():
    """One graph, written out: rho from (Theta, S, Z_old), then lambda from (||Z - Theta||^2, lambda_old)."""
    net = model(sigma2=1.0, n_layers=3).double()
    S = data(sigma2=1.0, n=1, m=5)[0].moments[0]
    with torch.no_grad():
        Z = torch.linalg.inv(S + 0.1 * torch.eye(5))
        lam = net.lambda_(torch.tensor([1.0, 0.0]).double())
        path = []
        for _ in range(3):
            B = S / lam - Z
            b, U = torch.linalg.eigh(symmetric(B))
            Theta = (U * ((b**2 + 4 / lam).sqrt() - b) / 2) @ U.T
            rho = torch.stack(
                [net.rho(torch.stack([Theta[i, j], S[i, j], Z[i, j]])) for i in range(5) for j in range(5)]
            )
            Z = Theta.sign() * (Theta.abs() - rho.view(5, 5)).clamp_min(0)
            lam = net.lambda_(torch.stack([(Z - Theta).square().sum(), lam[0]]))
            path.append(Z)
        torch.testing.assert_close(net(S), torch.stack(path))
        assert (Z == 0).any()
        assert (Z != 0).any()


def test_lambda_passes_no_gradient_from_its_inputs():
    net = model()
    inputs = torch.rand(2, 3, requires_grad=True)
    net._lambda(*inputs).sum().backward()
    assert inputs.grad is None
    assert net.lambda_[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("numerics", NUMERICS)
def test_shapes(numerics):
    observations, w = data(sigma2=1.0)
    net = model(numerics, sigma2=1.0)
    assert net(observations).shape == (6, 15, 20, 20)
    assert net.precision(observations[0]).shape == (20, 20)
    w_hat = net.predict(Observations(observations.moments.view(2, 3, 20, 20), 3000.0))
    assert w_hat.shape == (2, 3, 190)
    assert net.loss(net.prepare(observations), w).shape == ()


def test_observations_or_moments():
    observations, _ = data()
    net = model()
    assert net.prepare(observations) is observations.moments
    for method in (net.predict, net.precision, net):
        assert torch.equal(method(observations), method(observations.moments))


def test_prediction_is_the_positive_part_of_minus_the_precision():
    observations, _ = data(n=2)
    net = model()
    net.rho[-2].bias.data -= 5  # small thresholds, so that something is left
    Z = net.precision(observations)
    w = net.predict(observations)
    torch.testing.assert_close(Z, net(observations)[:, -1])
    torch.testing.assert_close(w[:, 0], (-Z[:, 0, 1]).clamp_min(0))
    assert (w == 0).any()
    assert (w > 0).any()
    assert not w.requires_grad


@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_graph_does_not_depend_on_its_batch(numerics):
    observations, _ = data(sigma2=1.0)
    net = model(numerics, sigma2=1.0)
    apart = torch.stack([net(observations[k]) for k in range(6)])
    assert torch.allclose(net(observations), apart, atol=1e-5)


def test_permutation_equivariance():
    observations, _ = data()
    net = model().double()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    permuted = net.precision(observations.renumber(order))
    assert relative(permuted, net.precision(observations)[:, order][:, :, order]) < 1e-8


def test_target_is_laplacian_plus_sigma2():
    _, w = data()
    K = model(sigma2=0.5).target(w.double())
    torch.testing.assert_close(K, laplacian(w.double()) + 0.5 * torch.eye(20))


@pytest.mark.parametrize("S", [torch.eye(4)[:3], torch.ones(5), torch.full((3, 3), torch.nan)])
def test_bad_moments(S):
    for method in (model().predict, model().prepare):
        with pytest.raises(ValueError, match=r"S (has shape|contains NaN)"):
            method(S)


@pytest.mark.parametrize("options", [{"numerics": "exact"}, {"sigma2": 0.0}, {"n_layers": 0}])
def test_bad_options(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        GLAD(**{"sigma2": 1.0, **options})


# --- training ------------------------------------------------------------------------------------------------------


def test_loss_is_the_mean_over_layers_and_entries():
    observations, w = data(sigma2=1.0)
    net = model(sigma2=1.0)
    path = net(observations)
    expected = (path - net.target(w)[:, None]).square().mean()
    torch.testing.assert_close(net.loss(observations.moments, w), expected)


def test_loss_leaves_out_graphs_whose_path_is_not_finite():
    observations, w = data(sigma2=1.0, n=3)
    net = model("newton_schulz", sigma2=1.0)
    S = observations.moments.float()
    S[1] = -net.t.detach() * torch.eye(20)  # S + t I = 0 has no inverse
    assert not net(S)[1].isfinite().all()
    torch.testing.assert_close(net.loss(S, w), net.loss(S[[0, 2]], w[[0, 2]]))


def test_all_or_nothing():
    net = model()
    p = torch.zeros(2, requires_grad=True)
    q = torch.zeros(3, requires_grad=True)
    for bad in (False, True):
        p.grad = q.grad = None
        a, b = AllOrNothing.apply(net, p, q)
        (a.sum() + (b * (torch.inf if bad else 2.0)).sum()).backward()
        assert net.n_dropped == bad
        assert torch.equal(p.grad, torch.full((2,), 0.0 if bad else 1.0))
        assert torch.equal(q.grad, torch.full((3,), 0.0 if bad else 2.0))


def test_non_finite_gradients_are_counted_and_change_nothing():
    observations, w = data(n=2)
    S = observations.moments
    net = model("newton_schulz")
    with torch.no_grad():
        net.t.copy_(torch.tensor(-S[0, 0, 0].item()))
        net.lambda_[-2].bias.fill_(-200)  # lambda = 0: B is infinite
    loss = net.loss(S, w)
    loss.backward()
    assert loss == 0
    assert net.n_dropped == 1
    assert all((p.grad == 0).all() for p in net.parameters())
    assert (net.predict(S) == 0).all()
    assert (net.precision(S) == 0).all()


def test_a_few_epochs_of_the_stable_form_are_enough(tmp_path):
    def sets(split, n, epoch):
        return data(n=n, seed={"train": 2, "val": 4}[split])

    schedule = training.Schedule(
        2, batch_size=3, lr=0.03, decay=1.0, n_train=60, n_val=5, stream=False, keep_best=False, seed=0
    )
    net = training.fit(model(), sets, schedule, tmp_path / "glad", {}, progress=False)
    observations, w = data(n=16)
    Z = net.precision(observations)
    K = net.target(w)
    assert nmse(Z, K).mean() < 0.006
    assert gmse(net.predict(observations), w).mean() < 0.05
    share = diagonal_share(torch.zeros_like(K), K).mean()
    assert 0.8 < share < 0.95  # most of the norm is the diagonal
    assert net.n_dropped == 0


def test_shipped_networks_by_numerics():
    """The stable form recovers precisions, ten Newton-Schulz iterations at sigma2 = 1e-4 do not."""
    observations, w = runs.sample(runs.RUNS["glad-ba"], "test", 16)
    errors = {}
    for name in ("glad-ba", "glad-ba-newton_schulz"):
        net = runs.load(runs.RUNS[name])
        errors[name] = nmse(net.precision(observations), net.target(w)).mean()
    assert errors["glad-ba"] < 0.006
    assert errors["glad-ba-newton_schulz"] > 0.9
