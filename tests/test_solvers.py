import time
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from helpers.graphs import degrees, degrees_adjoint, edges, laplacian, sample_graphs, to_matrix, to_vector
from helpers.signals import distances, sample_covariances, sample_distances
from helpers.solvers import (
    ALPHAS,
    BETAS,
    admm,
    admm_step,
    certificate,
    check_problem,
    exact,
    grid_search,
    inverse_covariance,
    laplacian_mle,
    learn,
    mle_certificate,
    pds,
    pds_step,
    safe_step,
    theta_for_degree,
)

SOLVERS = [exact, pds, admm]
TIGHT = {exact: partial(exact, tol=1e-20), pds: partial(pds, tol=1e-13), admm: partial(admm, tol=1e-13)}
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.fixture(scope="module")
def ba():
    w = sample_graphs("BA", 12, 20, seed=0, dtype=torch.float64)
    return w, sample_distances(w, 3000, seed=1)


@pytest.fixture(scope="module")
def disconnected():
    w = sample_graphs("ER", 8, 20, seed=0, p=0.08, dtype=torch.float64)
    n_components = (torch.linalg.eigvalsh(laplacian(w)) < 1e-9).sum(-1)
    assert (n_components > 1).all()
    return w, sample_distances(w, 3000, seed=1)


def random_distances(m, n, seed, lead=()):
    generator = torch.Generator().manual_seed(seed)
    return distances(torch.randn(*lead, n, m, generator=generator, dtype=torch.float64))


# --- operators and certificate ----------------------------------------------------------------------------


@given(st.integers(3, 12), st.integers(0, 10**6), st.booleans())
def test_degrees_and_adjoint(m, seed, as_list):
    rng = torch.Generator().manual_seed(seed)
    pairs = edges(m)
    if as_list:
        pairs = pairs[:, torch.randperm(pairs.shape[1], generator=rng)[: m + 1]]
    w = torch.randn(2, pairs.shape[1], generator=rng, dtype=torch.float64)
    v = torch.randn(2, m, generator=rng, dtype=torch.float64)
    options = {"edges": pairs} if as_list else {}
    Dw = degrees(w, **options, **({"n_nodes": m} if as_list else {}))
    assert torch.allclose((Dw * v).sum(-1), (w * degrees_adjoint(v, **options)).sum(-1))


@given(st.integers(3, 12), st.integers(0, 10**6), st.floats(0.05, 20), st.floats(0.05, 20))
def test_certificate_is_a_bound(m, seed, alpha, beta):
    y = random_distances(m, 5, seed)
    w = exact(y, alpha, beta)
    best = certificate(w, y, alpha, beta)
    assert 0 <= best.gap <= 1e-13
    assert best.kkt <= 1e-5 * w.max() * max(1, beta)
    assert (2 * w * y + 2 * beta * w * w).sum() == pytest.approx(alpha * m, rel=1e-6)  # the unit of the gap
    other = w + 0.1 * w.max() * torch.rand(w.shape, generator=torch.Generator().manual_seed(seed)).double()
    worse = certificate(other, y, alpha, beta)
    assert worse.gap > 1e-6
    assert worse.dual <= best.primal <= worse.primal
    # the stable sum equals the plain difference, for the standard and for any other dual point
    dual = torch.rand(m, generator=torch.Generator().manual_seed(seed)).double() + 0.1
    for c in (worse, certificate(other, y, alpha, beta, dual=dual)):
        assert c.gap * alpha * m == pytest.approx((c.primal - c.dual).item(), rel=1e-9, abs=1e-10)
        assert c.dual <= best.primal + 1e-9 * abs(best.primal)


def test_certificate_of_infeasible_points():
    y = random_distances(4, 5, 0)
    isolated, negative = torch.tensor([1.0, 0, 0, 0, 0, 0]), torch.tensor([1.0, 1, 1, 1, 1, -1e-9])
    c = certificate(torch.stack([isolated, negative]), y)
    assert all(torch.isinf(x).all() for x in c)
    assert (c.gap > 0).all() and (c.dual < 0).all()


# --- the three solvers of Eq. (4) -------------------------------------------------------------------------


def test_solvers_agree(ba):
    _, y = ba
    alpha = torch.tensor([[0.5], [2.0]], dtype=torch.float64)
    w, v, u = (TIGHT[solver](y, alpha, 1.5) for solver in SOLVERS)
    assert w.shape == (2, *y.shape)
    assert (w - v).abs().max() < 1e-8 and (w - u).abs().max() < 1e-8
    assert certificate(w, y, alpha, 1.5).gap.max() < 1e-19


@pytest.mark.parametrize("gamma", [0.02, 0.05])
def test_listing_of_admm_is_wrong(ba, gamma):
    y = ba[1][:2]
    w = exact(y)
    assert (admm(y, gamma=gamma, tol=1e-12) - w).abs().max() < 1e-7
    wrong = admm(y, gamma=gamma, tol=1e-9, listing=True)
    assert certificate(wrong, y).gap.min() > 1e-3
    other = admm(y, gamma=gamma / 2, tol=1e-9, listing=True)
    assert (wrong - other).abs().max() > 0.05


def test_steps_in_half_vector_form(ba):
    """`pds` and `admm` iterate matrices; the same steps on half-vectors give the same iterates."""
    y = ba[1][:3]
    for solver, step, extra in ((pds, pds_step, ()), (admm, admm_step, (1.5,))):
        w, v = torch.zeros_like(y), y.new_zeros(3, 20)
        path = solver(y, 2.0, 0.7, gamma=0.05, n_iter=15, tol=0, path=True)
        assert path.shape == (3, 15, 190)
        for t in range(15):
            w, v = step(w, v, y, 2.0, 0.7, 0.05, *extra)
            assert torch.allclose(path[:, t], w, rtol=0, atol=1e-13)


def test_pds_step_is_algorithm_1(ba):
    """Steps 3-10 written out, with the 2y that the implementation lets cancel."""
    y = ba[1][0]
    gen = torch.Generator().manual_seed(0)
    w, v = (
        torch.rand(190, generator=gen, dtype=torch.float64),
        -torch.rand(20, generator=gen, dtype=torch.float64),
    )
    alpha, beta, gamma = 1.3, 0.6, 0.07
    r1 = w - gamma * (2 * beta * w + 2 * y + degrees_adjoint(v))
    r2 = v + gamma * degrees(w)
    p1, p2 = r1.clamp_min(0), (r2 - (r2**2 + 4 * alpha * gamma).sqrt()) / 2
    q1 = p1 - gamma * (2 * beta * p1 + 2 * y + degrees_adjoint(p2))
    q2 = p2 + gamma * degrees(p1)
    new_w, new_v = pds_step(w, v, y, alpha, beta, gamma)
    assert torch.allclose(new_w, w - r1 + q1) and torch.allclose(new_v, v - r2 + q2)


def test_pds_step_has_gradients():
    y = random_distances(4, 5, 0)
    w, v = torch.rand(6).double().requires_grad_(), (-torch.rand(4).double()).requires_grad_()
    parameters = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (1.2, 0.8, 0.1)]
    assert torch.autograd.gradcheck(lambda *a: pds_step(a[0], a[1], y, *a[2:]), (w, v, *parameters))


def test_safe_step_uses_the_norm_of_the_degree_operator():
    D = degrees(torch.eye(45, dtype=torch.float64)).T
    assert safe_step(10, 0.3) == pytest.approx(1 / (0.6 + torch.linalg.matrix_norm(D, 2).item()))


@pytest.mark.parametrize("solver", SOLVERS)
def test_paths(ba, solver):
    y = ba[1][:4]
    path = solver(y, 2.0, path=True)
    assert path.shape[0] == 4 and path.shape[2] == 190
    assert torch.equal(path[:, -1].clamp_min(0), solver(y, 2.0))
    gaps = certificate(path.clamp_min(0), y[:, None], 2.0).gap
    assert (gaps[:, -1] < 1e-5).all() and (gaps[:, -1] < gaps[:, 1]).all()


@given(st.integers(3, 8), st.integers(0, 10**6), st.floats(0.05, 20), st.floats(0.05, 20))
def test_scale_law(m, seed, alpha, beta):
    y = random_distances(m, 5, seed)
    w = exact(y, alpha, beta, tol=1e-20)
    c = certificate((alpha / beta) ** 0.5 * exact(y / (alpha * beta) ** 0.5, tol=1e-20), y, alpha, beta)
    assert c.gap < 1e-16
    assert torch.allclose(exact(3 * y, 3 * alpha, 3 * beta, tol=1e-20), w, rtol=1e-7, atol=1e-9 * w.max())


def test_scale_law_of_pds(ba):
    y = ba[1][:3]
    w = pds(y, 2.0, 0.5, tol=1e-12)
    assert torch.allclose(2 * pds(y, 1.0, 1.0, tol=1e-12), w, atol=1e-8)  # sqrt(alpha beta) = 1, ratio 4


@pytest.mark.parametrize("solver", SOLVERS)
def test_batch_is_loop_and_parameters_broadcast(solver):
    solve = TIGHT[solver]
    y = random_distances(6, 8, 0, (3, 2))
    alpha, beta = torch.tensor([0.5, 1.0, 3.0])[:, None], torch.tensor([2.0, 0.7])
    w = solve(y, alpha, beta)
    assert w.shape == y.shape
    for i in range(3):
        for j in range(2):
            assert torch.allclose(w[i, j], solve(y[i, j], alpha[i, 0], beta[j]), atol=1e-9)
    grid = solve(y[0], alpha[..., None], beta[:, None])  # (3, 2, 2): two grid dimensions before the batch
    assert grid.shape == (3, 2, 2, 15)
    assert torch.allclose(grid[2, 1], solve(y[0], 3.0, 0.7), atol=1e-9)


@pytest.mark.parametrize("solver", [*SOLVERS, laplacian_mle])
def test_permutation_equivariance(ba, solver):
    y = ba[1][:4]
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))

    def permute(x):
        return to_vector(to_matrix(x)[:, order][:, :, order])

    solve = TIGHT.get(solver, solver)
    assert torch.allclose(solve(permute(y)), permute(solve(y)), atol=1e-8)


@pytest.mark.parametrize("solver", [*SOLVERS, laplacian_mle])
def test_single_precision(ba, solver):
    y = ba[1][:4]
    w = solver(y.float())
    assert w.dtype == torch.float32
    assert torch.allclose(w.double(), solver(y), atol=2e-4)


@cuda
@pytest.mark.cuda
@pytest.mark.parametrize("solver", [*SOLVERS, laplacian_mle])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cuda_is_cpu(ba, solver, dtype):
    y = ba[1].to(dtype)
    w = solver(y.cuda())
    assert w.is_cuda and w.dtype == dtype
    assert torch.allclose(w.cpu(), solver(y), atol=1e-8 if dtype == torch.float64 else 2e-4)


@pytest.mark.parametrize("theta", [1e-6, 1e-2, 1.0, 1e2, 1e4])
def test_exact_over_scales(ba, theta):
    y = theta * ba[1]
    assert certificate(exact(y), y).gap.max() <= 1e-10


@pytest.mark.parametrize("theta", [1.0, 1e2])
def test_exact_on_disconnected_graphs(disconnected, theta):
    """Between components y is about 1e4 and w about 1e-5: nine digits of y cancel in w."""
    _, y = disconnected
    assert y.max() > 1e4
    w_hat = exact(theta * y)
    assert certificate(w_hat, theta * y).gap.max() <= 1e-10
    assert (degrees(w_hat) > 0).all()


def test_pds_warns_with_the_gap(ba):
    with pytest.warns(ConvergenceWarning, match="relative gap") as record:
        pds(ba[1], n_iter=5, tol=1e-6)
    assert record[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match="relative gap") as record:
        exact(ba[1], n_iter=2)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pds(ba[1], n_iter=5, tol=0)


def test_exact_beats_pds_at_1000_nodes():
    """Even where PDS is at its best (y uniform) `exact` is done while PDS is still far from a gap of 1e-6."""
    y = torch.rand(499_500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = time.process_time()
    w = exact(y, tol=1e-10)
    exact_seconds = time.process_time() - start
    assert certificate(w, y).gap <= 1e-10
    start = time.process_time()
    w = pds(y, n_iter=100, tol=0)
    pds_seconds = time.process_time() - start
    assert 1e-5 < certificate(w, y).gap < 1e-3  # 155 iterations would do
    assert exact_seconds < pds_seconds


# --- choice of alpha and beta -----------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [3, 6.5, 15])
def test_learn_gives_the_wished_degree(ba, degree):
    y = ba[1]
    w, theta = learn(y, degree)
    assert theta.shape == y.shape[:-1]
    assert (2 * (w > 0).sum(-1) / 20 - degree).abs().max() <= 0.02 * degree + 0.05
    assert certificate(w, theta[:, None] * y).gap.max() <= 1e-13
    assert torch.equal(theta_for_degree(y, degree), theta)
    assert torch.allclose(theta_for_degree(1000 * y, degree), theta / 1000)


def test_learn_says_when_a_degree_does_not_exist():
    y = torch.ones(2, 45)  # all edges or none
    with pytest.warns(ConvergenceWarning, match="average_degree=4"):
        w, _ = learn(y, 4)
    assert (w > 0).all() and w.dtype == torch.float32
    with pytest.raises(ValueError, match=r"average_degree=0\.5"):
        learn(y, 0.5)


def test_learn_on_disconnected_graphs(disconnected):
    w, _ = learn(disconnected[1], 5)
    assert (2 * (w > 0).sum(-1) / 20 - 5).abs().max() <= 0.15


def test_grid_search(ba, monkeypatch):
    w, y = ba
    grid = grid_search(y, w)
    assert grid.gmse.shape == (len(ALPHAS), len(BETAS))
    assert grid.gmse.min() == pytest.approx(0.128, abs=0.02)  # facts.md: about .13 on BA
    i, j = ALPHAS.index(grid.alpha), BETAS.index(grid.beta)
    w_hat = exact(y, grid.alpha, grid.beta)
    error = ((w_hat - w) ** 2).sum(-1) / (w**2).sum(-1)
    assert grid.gmse[i, j] == grid.gmse.min() and grid.gmse[i, j] == pytest.approx(error.mean().item())
    monkeypatch.setattr("helpers.solvers.BLOCK", 2**12)  # many small pieces
    assert torch.allclose(grid_search(y, w).gmse, grid.gmse)
    by_pds = grid_search(y, w, (grid.alpha, 1.0), (grid.beta,), partial(pds, n_iter=800, tol=0))
    assert (by_pds.alpha, by_pds.beta) == (grid.alpha, grid.beta)
    assert by_pds.gmse[0, 0] == pytest.approx(grid.gmse[i, j].item(), rel=1e-2)


# --- maximum likelihood -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma2", [0.0, 0.1])
@pytest.mark.parametrize("n_signals", [2, 50])
def test_mle_agrees_with_lbfgsb(sigma2, n_signals):
    y = random_distances(5, n_signals, 0)
    P = np.eye(5) - 1 / 5

    def objective(x):
        L = laplacian(torch.from_numpy(x)).numpy()
        K = L + sigma2 * P + 1 / 5
        S = np.linalg.inv(K)
        i, j = np.triu_indices(5, 1)
        return x @ y.numpy() - np.linalg.slogdet(K)[1], y.numpy() - (S[i, i] + S[j, j] - 2 * S[i, j])

    found = minimize(
        objective, 0.4 / y.numpy(), jac=True, method="L-BFGS-B", bounds=[(0, None)] * 10,
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000},
    )  # fmt: skip
    w = laplacian_mle(y, sigma2=sigma2)
    c = mle_certificate(w, y, sigma2=sigma2)
    assert c.primal == pytest.approx(objective(w.numpy())[0], rel=1e-10)
    assert -1e-12 < c.gap < 1e-8
    assert c.primal <= found.fun + 1e-9
    assert np.allclose(w, found.x, atol=1e-4 * found.x.max())


@pytest.mark.parametrize("n_signals", [1, 5, 19, 100, 3000])
def test_mle_kkt(n_signals):
    w = sample_graphs("WS", 8, 20, seed=0, dtype=torch.float64)
    y = sample_distances(w, n_signals, seed=1)
    w_hat = laplacian_mle(y)
    c = mle_certificate(w_hat, y)
    assert c.kkt.max() < 1e-8 and c.gap.max() < 1e-8
    assert torch.allclose((w_hat * y).sum(-1), torch.tensor(19.0).double())  # w'y = m - 1
    assert (w_hat == 0).any(-1).all()
    for one, y_one in zip(w_hat[:2], y):
        assert torch.allclose(laplacian_mle(y_one), one, rtol=1e-5, atol=1e-7 * one.max())
    path = laplacian_mle(y, path=True)
    assert path.shape[0] == 8 and path.shape[2] == 190
    assert torch.allclose(path[:, -1], w_hat, rtol=1e-5, atol=1e-7 * w_hat.max())
    assert (mle_certificate(path[:, 0], y).gap > 0.01).all()


def test_mle_beats_the_convex_problem(ba):
    w, y = ba
    error = ((laplacian_mle(y) - w) ** 2).sum(-1) / (w**2).sum(-1)
    assert error.mean() < 0.02  # tuned PDS: .13


def test_mle_of_100_nodes():
    w = sample_graphs("BA", 1, 100, seed=0, dtype=torch.float64)
    y = sample_distances(w, 3000, seed=1)
    assert mle_certificate(laplacian_mle(y), y).kkt < 1e-8


@pytest.mark.parametrize("sigma2", [0.0, 1e-4])
def test_mle_on_disconnected_graphs(disconnected, sigma2):
    w, y = disconnected
    w_hat = laplacian_mle(y, sigma2=sigma2)
    assert mle_certificate(w_hat, y, sigma2=sigma2).kkt.max() < 1e-8
    i, j = edges(20)
    reachable = torch.matrix_power(to_matrix(w).bool().double() + torch.eye(20), 20)[:, i, j] > 0
    assert w_hat[~reachable].max() < 1e-3
    assert (((w_hat - w) ** 2).sum(-1) / (w**2).sum(-1)).max() < 0.02


def test_mle_certificate_of_infeasible_points():
    y = random_distances(4, 5, 0)
    c = mle_certificate(torch.tensor([[1.0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, -0.1]]), y)
    assert torch.isinf(c.gap).all() and torch.isinf(c.primal).all()


def test_inverse_covariance():
    w = sample_graphs("WS", 6, 20, seed=0, dtype=torch.float64)
    K = laplacian(w) + 0.01 * torch.eye(20)
    assert torch.allclose(inverse_covariance(torch.linalg.inv(K)), w, atol=1e-9)
    w_hat = inverse_covariance(sample_covariances(w, 3000, seed=1))
    assert (((w_hat - w) ** 2).sum(-1) / (w**2).sum(-1)).mean() < 0.03
    with pytest.raises(ValueError, match="S is singular"):
        inverse_covariance(sample_covariances(w, 15, seed=1))
    with pytest.raises(ValueError, match="S has shape"):
        inverse_covariance(torch.ones(3, 4))


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([1.0, torch.nan, 1]), "y contains NaN"),
        (torch.tensor([1.0, torch.inf, 1]), "y contains NaN or infinite"),
        (torch.tensor([1.0, -0.5, 1]), "y has a negative entry, -0.5"),
        (torch.ones(4), "n_edges=4"),
        (torch.ones(1), "n_edges=1"),
        (torch.ones(2, 0), "n_edges=0"),
        (torch.tensor(1.0), "y=1.0"),
        (torch.tensor([[1.0, 2, 3], [0, 0, 0]]), "y is 0 for all pairs"),
    ],
)
@pytest.mark.parametrize("solver", [exact, pds, admm, laplacian_mle, partial(learn, average_degree=1.5)])
def test_bad_distances(solver, y, words):
    with pytest.raises(ValueError, match=words):
        solver(y)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [0, -1.5, float("nan"), float("inf"), torch.tensor([1.0, 0.0])])
@pytest.mark.parametrize("solver", SOLVERS)
def test_bad_parameters(solver, name, value):
    with pytest.raises(ValueError, match=f"{name}="):
        solver(torch.ones(2, 3), **{name: value})


def test_other_bad_input():
    y = torch.ones(2, 3)
    with pytest.raises(ValueError, match="must broadcast"):
        exact(y, torch.ones(3))
    with pytest.raises(ValueError, match=r"gamma=-0\.1"):
        pds(y, gamma=-0.1)
    with pytest.raises(ValueError, match="n_iter=0"):
        pds(y, n_iter=0)
    with pytest.raises(ValueError, match="relaxation=2"):
        admm(y, relaxation=2)
    with pytest.raises(ValueError, match="y has a zero"):
        laplacian_mle(torch.tensor([0.0, 1, 1]))
    with pytest.raises(ValueError, match="sigma2=-1"):
        laplacian_mle(y, sigma2=-1)
    with pytest.raises(ValueError, match="w has shape"):
        grid_search(y, torch.ones(3))


def test_integers_arrays_and_lists_are_taken():
    y, alpha, _ = check_problem([1, 2, 3], 1, [[2.0], [3.0]])
    assert y.shape == (2, 1, 3) and y.dtype == torch.get_default_dtype() and alpha.shape == (2, 1)
    assert exact(np.array([1.0, 2, 3])).dtype == torch.float64
