import warnings
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pygsp2.graph_learning import graph_log_degree
from sklearn.exceptions import ConvergenceWarning
from toys import nearest_pairs, random_distances

from helpers import solvers
from helpers.graphs import all_pairs, degrees, degrees_adjoint, laplacian, sample_graphs, to_matrix, to_vector
from helpers.signals import sample_observations
from helpers.solvers import (
    admm,
    admm_step,
    certificate,
    exact,
    inverse_covariance,
    learn,
    learn_path,
    operator_norm,
    pds,
    pds_step,
    prox_log_barrier,
    safe_step,
)

SOLVERS = [exact, pds, admm]
TIGHT = {exact: partial(exact, tol=1e-20), pds: partial(pds, tol=1e-19), admm: partial(admm, tol=1e-19)}
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def on_all_pairs(x, edges, m, fill):
    full = torch.full((m, m), fill, dtype=torch.float64)
    full[edges[0], edges[1]] = x
    return to_vector(full)


# --- operators and certificate ----------------------------------------------------------------------------


@given(st.integers(3, 12), st.integers(0, 10**6), st.booleans())
def test_degrees_and_adjoint(m, seed, as_list):
    rng = torch.Generator().manual_seed(seed)
    pairs = all_pairs(m)
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
    gradient = 2 * y + 2 * beta * other - degrees_adjoint(alpha / degrees(other))
    assert worse.kkt == pytest.approx(torch.minimum(other, gradient).abs().max().item())
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
    assert (admm(y, gamma=gamma, tol=1e-18) - w).abs().max() < 1e-7
    wrong = admm(y, gamma=gamma, tol=0, n_iter=1500, listing=True)
    assert certificate(wrong, y).gap.min() > 1e-3
    other = admm(y, gamma=gamma / 2, tol=0, n_iter=1500, listing=True)
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
    assert solver is exact or path.shape[1] % 20 == 0  # where the gap is looked at
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
    w = pds(y, 2.0, 0.5, tol=1e-18)
    assert torch.allclose(2 * pds(y, 1.0, 1.0, tol=1e-18), w, atol=1e-8)  # sqrt(alpha beta) = 1, ratio 4


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


@pytest.mark.parametrize("solver", SOLVERS)
def test_permutation_equivariance(ba, solver):
    y = ba[1][:4]
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))

    def permute(x):
        return to_vector(to_matrix(x)[:, order][:, :, order])

    solve = TIGHT[solver]
    assert torch.allclose(solve(permute(y)), permute(solve(y)), atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_single_precision(ba, solver):
    y = ba[1][:4]
    w = solver(y.float())
    assert w.dtype == torch.float32
    assert torch.allclose(w.double(), solver(y), atol=2e-4)


@cuda
@pytest.mark.cuda
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cuda_is_cpu(ba, solver, dtype):
    y = ba[1].to(dtype)
    w = solver(y.cuda())
    assert w.is_cuda and w.dtype == dtype
    assert torch.allclose(w.cpu(), solver(y), atol=1e-8 if dtype == torch.float64 else 2e-4)


def test_pds_warns_with_the_gap(ba):
    with pytest.warns(ConvergenceWarning, match="relative gap") as record:
        pds(ba[1], n_iter=5, tol=1e-6)
    assert record[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match="relative gap") as record:
        exact(ba[1], n_iter=2)
    assert record[0].filename == __file__
    assert "scale signals to equal deviations" in str(record[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pds(ba[1], n_iter=5, tol=0)


# --- choice of alpha and beta -----------------------------------------------------------------------------


def mean_degrees(w):
    return 2 * (w > 1e-6 * w.amax(-1, keepdim=True)).sum(-1) / 20


def test_learned_graphs_have_the_wished_degree_in_any_unit(ba):
    y = ba[1][:2]
    path = learn_path(y, (3, 8))
    for degree, (w, theta, proof) in zip((3, 8), path, strict=True):
        assert (mean_degrees(w) - degree).abs().max() <= max(0.02 * degree, 0.05) + 1e-6
        torch.testing.assert_close(w, exact(theta[:, None] * y), rtol=0, atol=1e-8)
        torch.testing.assert_close(torch.stack(proof[:2]), torch.stack(certificate(w, theta[:, None] * y)[:2]))
        assert proof.gap.max() <= 1e-13
    torch.testing.assert_close(1000 * learn(1000 * y, 3).theta, learn(y, 3).theta)
    assert learn(y[0].float(), 3).theta.dtype == torch.float32


def test_a_search_starts_at_a_mean_distance_of_one_and_the_next_where_it_ended(ba, monkeypatch):
    y = ba[1][:2]
    starts, ends = [], []
    search = solvers.search_theta

    def watch(layout, Y, degree, theta, lam, *more):
        starts.append((theta, lam))
        best, last = search(layout, Y, degree, theta, lam, *more)
        ends.append((last.theta, last.lam))
        return best, last

    monkeypatch.setattr(solvers, "search_theta", watch)
    learn_path(y, (8, 3))
    torch.testing.assert_close(starts[0][0] * y.mean(-1), torch.ones(2, dtype=torch.float64))
    assert starts[0][1] is None
    assert starts[1] == ends[0]


def test_the_error_of_a_degree_is_relative_or_half_an_edge(ba):
    equal = torch.ones(45)  # of 10 nodes: all edges or none
    with pytest.warns(ConvergenceWarning, match="average_degree=4 is not reached, the closest is 5 off"):
        learn(equal, 4)
    with pytest.warns(ConvergenceWarning, match="average_degree=4 is not reached"):
        learn(equal, 4, degree_tol=1.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learn(equal, 4, degree_tol=1.3)
        assert (learn(equal, 9).w > 0).all()
        assert mean_degrees(learn(ba[1][0], 6.06, degree_tol=0).w) == pytest.approx(6.1)


def test_degrees_that_no_graph_has():
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
    for degree in (0.9, 9.1):
        with pytest.raises(ValueError, match=rf"average_degree={degree}: between 1 and 2E/m = 9$"):
            learn(torch.ones(45), degree)
    with pytest.raises(ValueError, match=r"average_degree=2\.1: between 1 and 2E/m = 2; take more candidates"):
        learn(torch.ones(4), 2.1, edges=edges, n_nodes=4)
    with pytest.warns(ConvergenceWarning, match="average_degree=1 is not reached"):
        learn(torch.ones(45), 1)


# --- certificates that must not be missed -----------------------------------------------------------------


def test_pds_and_admm_are_judged_by_the_gap(disconnected):
    """Between components the iterates hardly move while the gap is still above 1: that is not convergence."""
    _, y = disconnected
    for solver in (pds, admm):
        with pytest.warns(ConvergenceWarning, match="relative gap"):
            w = solver(y, n_iter=2000)
        assert certificate(w, y).gap.max() > 1e-6


@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(0.1, 10))
def test_pds_that_does_not_warn_is_solved(seed, alpha, beta):
    y = random_distances(7, 6, seed)
    for solver in (pds, admm):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            w = solver(y, alpha, beta, n_iter=3000)
        assert bool(said) == (certificate(w, y, alpha, beta).gap > 1e-6).item()


def test_graphs_that_are_done_wait_for_the_others(ba, disconnected):
    """A batch of easy and hard graphs gives each what it gets alone, and the easy ones stop early."""
    y = torch.stack([ba[1][0], disconnected[1][0]])
    easy = pds(y[0])
    with pytest.warns(ConvergenceWarning):
        both = pds(y, n_iter=3000)
    assert torch.equal(both[0], easy)


# --- lists of candidate edges ------------------------------------------------------------------------------


@given(st.integers(4, 30), st.floats(0.1, 100), st.floats(0.2, 5), st.integers(0, 99))
def test_the_list_of_all_pairs_gives_the_dense_solution(m, theta, beta, seed):
    y = random_distances(m, 8, seed)
    y = theta * y / y.mean()
    listed = exact(y, 1.5, beta, tol=1e-20, edges=all_pairs(m), n_nodes=m)
    torch.testing.assert_close(listed, exact(y, 1.5, beta, tol=1e-20), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("k", [3, 10])
def test_a_list_is_the_dense_problem_with_the_others_far_away(k):
    m = 60
    edges, y = nearest_pairs(to_matrix(random_distances(m, 5, 1)), k)
    y = 3 * y / y.mean()
    options = {"edges": edges, "n_nodes": m}
    w = exact(y, tol=1e-20, **options)
    far = on_all_pairs(y, edges, m, 1e6)
    torch.testing.assert_close(on_all_pairs(w, edges, m, 0.0), exact(far, tol=1e-20), rtol=0, atol=1e-8)
    short = certificate(w, y, **options)
    full = certificate(on_all_pairs(w, edges, m, 0.0), far)
    torch.testing.assert_close(torch.stack(short[:2]), torch.stack(full[:2]))
    assert short.gap < 1e-14
    assert certificate(w * 1.01, y, **options).gap > 1e-6
    for solver in (pds, admm):
        torch.testing.assert_close(solver(y, tol=1e-16, **options), w, rtol=0, atol=1e-6)


def test_lists_have_batches_parameters_and_duals():
    edges = torch.tensor([[0, 0, 1, 2, 3, 0], [1, 2, 2, 3, 4, 4]])
    y = torch.rand(2, 3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    alpha = torch.tensor([[0.5], [2.0]], dtype=torch.float64)
    options = {"edges": edges, "n_nodes": 5}
    for solver in SOLVERS:
        w = TIGHT[solver](y, alpha, **options)
        assert w.shape == (2, 3, 6)
        one = TIGHT[solver](y[1, 2], 2.0, **options)
        torch.testing.assert_close(w[1, 2], one, rtol=1e-6, atol=1e-8)
        assert certificate(w, y, alpha, **options).gap.max() < 1e-14
    dual = torch.tensor([1.0, 2, 3, 4, 5], dtype=torch.float64)
    c = certificate(w, y, alpha, dual=dual, **options)
    s = dual[edges[0]] + dual[edges[1]] - 2 * y
    lower = (alpha[..., None] * (1 + (dual / alpha[..., None]).log())).sum(-1) - (s.relu() ** 2 / 4).sum(-1)
    torch.testing.assert_close(c.dual, lower)


def test_operator_norm_bounds_the_operator():
    edges, _ = nearest_pairs(to_matrix(random_distances(40, 5, 0)), 4)
    D = torch.zeros(40, edges.shape[1])
    D[edges, torch.arange(edges.shape[1])] = 1
    norm = torch.linalg.matrix_norm(D, 2).item()
    assert norm <= operator_norm(40, edges) < 1.7 * norm
    assert operator_norm(20, all_pairs(20)) == pytest.approx(operator_norm(20)) == pytest.approx(38**0.5)
    assert safe_step(40, 2.0, edges) == pytest.approx(1 / (4 + operator_norm(40, edges)))


def test_automatic_steps_are_nine_tenths_of_the_bounds(ba):
    y = ba[1][:2]
    by_hand = pds(y, 1.0, 0.7, gamma=0.9 * safe_step(20, 0.7), n_iter=7, tol=0)
    assert torch.equal(pds(y, 1.0, 0.7, n_iter=7, tol=0), by_hand)
    k, norm2 = 0.7 / (2 - 1.2), 38
    root = 2 / (k + (k * k + 4 * norm2) ** 0.5)
    assert 1 / root - root * norm2 == pytest.approx(k)
    by_hand = admm(y, 1.0, 0.7, gamma=0.9 * root, relaxation=1.2, n_iter=7, tol=0)
    torch.testing.assert_close(admm(y, 1.0, 0.7, relaxation=1.2, n_iter=7, tol=0), by_hand)


def test_prox_log_barrier():
    r = torch.linspace(-3, 3, 13, dtype=torch.float64)
    p = prox_log_barrier(r, 0.7)
    torch.testing.assert_close(p - 0.7 / p, r)  # v + alpha gamma d/dv(-log(-v)) = r
    assert (p < 0).all()
    assert prox_log_barrier(torch.tensor(2.0), -5.0, floor=1e-8) == pytest.approx((2 - 1e-4) / 2)


def test_inverse_covariance():
    w = sample_graphs("WS", 6, 20, seed=0, dtype=torch.float64)
    K = laplacian(w) + 0.01 * torch.eye(20)
    assert torch.allclose(inverse_covariance(torch.linalg.inv(K)), w, atol=1e-9)
    w_hat = inverse_covariance(sample_observations(w, 3000, seed=1))
    assert (((w_hat - w) ** 2).sum(-1) / (w**2).sum(-1)).mean() < 0.03
    with pytest.raises(ValueError, match="S is singular"):
        inverse_covariance(sample_observations(w, 15, seed=1))
    for shape in ((3, 4), (2, 2), (9,)):
        with pytest.raises(ValueError, match="S has shape"):
            inverse_covariance(torch.ones(shape))
    assert inverse_covariance(torch.eye(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrices_that_rounding_may_have_made_regular_are_singular(dtype):
    """Up to m eps of the largest eigenvalue, in any unit, and one of a batch is enough."""
    S = torch.eye(20, dtype=dtype)
    for share, unit in ((30, 1e6), (30, 1e-6), (10, 1e6), (10, 1e-6)):
        S[3, 3] = share * torch.finfo(dtype).eps
        if share > 20:
            assert inverse_covariance(unit * S).dtype == dtype
        else:
            with pytest.raises(ValueError, match="S is singular"):
                inverse_covariance(unit * torch.stack([S, torch.eye(20, dtype=dtype)]))


# --- bad input --------------------------------------------------------------------------------------------


def test_other_bad_input():
    y = torch.ones(2, 3)
    with pytest.raises(ValueError, match="must broadcast"):
        exact(y, torch.ones(3))
    with pytest.raises(ValueError, match=r"gamma=-0\.1"):
        pds(y, gamma=-0.1)
    with pytest.raises(ValueError, match="n_iter=0"):
        pds(y, n_iter=0)
    assert pds(y, n_iter=1, tol=0, path=True).shape == (2, 1, 3)
    with pytest.raises(ValueError, match="relaxation=2"):
        admm(y, relaxation=2)


def test_the_solution_is_that_of_pygsp2():
    """Its `graph_log_degree` iterates PDS on distances that it divides by the largest one."""
    y = sample_observations(sample_graphs("WS", 1, 12, seed=0, dtype=torch.float64), 100, seed=1).distances[0]
    options = {"tol": 1e-12, "maxiter": 50_000, "gamma": 0.04, "verbose": False}
    expected = to_vector(torch.from_numpy(graph_log_degree(to_matrix(y).numpy(), 0.3, 0.2, **options)))
    torch.testing.assert_close(exact(y / y.max(), 0.3, 0.2), expected, rtol=0, atol=1e-9)
    assert 0 < (expected > 1e-6).double().mean() < 1
