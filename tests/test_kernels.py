"""The compiled layers against Algorithm 2 written out with a dense degree matrix, and against numerical derivatives."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from helpers.engine.kernels import PDSLayers, add_signless_laplacian, list_active, list_residuals, list_slack, two_sum
from helpers.graphs import all_pairs

LISTS = {
    "complete": all_pairs(6),
    "candidates": torch.tensor([[0, 0, 1, 2, 3, 3, 4], [1, 5, 2, 3, 4, 5, 5]]),
}


def degree_matrix(edges, m):
    """D of Eq. (2), dense: (m, E)."""
    D = torch.zeros(m, edges.shape[1], dtype=torch.float64)
    D[edges, torch.arange(edges.shape[1])] = 1
    return D


def algorithm_2(w, v, y, theta, slope, edges):
    """Steps 3 to 10 as the paper prints them: what `PDSLayers` returns, and the arguments of the roots in Step 6."""
    D = degree_matrix(edges, len(v))
    path = []
    under_root = []
    for alpha, beta, gamma in theta:
        r1 = w - gamma * (2 * beta * w + 2 * y + D.T @ v)
        r2 = v + gamma * D @ w
        p1 = torch.where(r1 > 0, r1, slope * r1)
        under_root.append(r2**2 + 4 * alpha * gamma)
        p2 = (r2 - under_root[-1].clamp_min(1e-8).sqrt()) / 2
        q1 = p1 - gamma * (2 * beta * p1 + 2 * y + D.T @ p2)
        q2 = p2 + gamma * D @ p1
        w = w - r1 + q1
        v = v - r2 + q2
        path.append(w)
    return torch.stack(path), v, torch.stack(under_root)


def inputs(edges, n=3, m=6, n_layers=4, seed=0):
    """w, v, y and theta in float64. The second alpha is negative: some roots of that layer are at their floor."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    theta = 0.1 + 0.3 * draw(n_layers, 3)
    theta[1, 0] *= -0.2
    return draw(edges.shape[1], n), -draw(m, n), draw(edges.shape[1], n), theta


@pytest.mark.parametrize("slope", [0.0, 0.01])
@pytest.mark.parametrize("edges", LISTS.values(), ids=LISTS)
def test_forward_is_algorithm_2(edges, slope):
    arguments = (*inputs(edges), slope, edges)
    path, v = PDSLayers.apply(*arguments)
    expected_path, expected_v, under_root = algorithm_2(*arguments)
    below = (under_root < 1e-8).double().mean((1, 2))
    assert 0 < below[1] < 1, "a layer in which some roots are at their floor is needed"
    torch.testing.assert_close(path, expected_path, rtol=0, atol=1e-13)
    torch.testing.assert_close(v, expected_v, rtol=0, atol=1e-13)


@pytest.mark.parametrize("slope", [0.0, 0.01])
@pytest.mark.parametrize("edges", LISTS.values(), ids=LISTS)
def test_backward_is_the_adjoint(edges, slope):
    arguments = [x.requires_grad_() for x in inputs(edges)]
    assert torch.autograd.gradcheck(lambda *x: PDSLayers.apply(*x, slope, edges), arguments)


@pytest.mark.parametrize("edges", LISTS.values(), ids=LISTS)
def test_a_stack_has_parameters_of_its_own_for_each_network(edges):
    sets = [inputs(edges, seed=seed) for seed in range(3)]
    together = [torch.stack(parts).requires_grad_() for parts in zip(*sets)]
    path, v = PDSLayers.apply(*together, 0.01, edges)
    assert path.shape == (3, 4, edges.shape[1], 3)
    (path.sin().sum() + v.sin().sum()).backward()
    for k, parts in enumerate(sets):
        alone = [x.requires_grad_() for x in parts]
        path_k, v_k = PDSLayers.apply(*alone, 0.01, edges)
        (path_k.sin().sum() + v_k.sin().sum()).backward()
        assert torch.equal(path[k], path_k)
        assert torch.equal(v[k], v_k)
        for part, whole in zip(alone, together):
            torch.testing.assert_close(whole.grad[k], part.grad, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("edges", LISTS.values(), ids=LISTS)
def test_gradients_equal_those_of_autograd(edges, output):
    """For each of the two outputs alone, so that the other's gradient is missing."""
    generator = torch.Generator().manual_seed(1)
    probe = torch.rand(3, generator=generator, dtype=torch.float64)
    gradients = []
    for function in (PDSLayers.apply, algorithm_2):
        arguments = [x.requires_grad_() for x in inputs(edges)]
        loss = (function(*arguments, 0.01, edges)[output] * probe).sum()
        gradients.append(torch.autograd.grad(loss, arguments))
    for ours, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_no_gradient_passes_the_floor_of_the_root():
    """One node pair, r2 = 0: at its floor the root is constant, and so neither alpha nor v's root passes a gradient."""
    edges = torch.tensor([[0], [1]])
    w = torch.zeros(1, 1, dtype=torch.float64)
    v = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    y = torch.ones(1, 1, dtype=torch.float64)
    theta = torch.tensor([[-1.0, 1.0, 0.1]], dtype=torch.float64, requires_grad=True)
    _, last = PDSLayers.apply(w, v, y, theta, 0.0, edges)
    torch.testing.assert_close(last, torch.full_like(v, -0.5e-4), rtol=0, atol=1e-15)  # (r2 - sqrt(1e-8)) / 2
    by_v, by_theta = torch.autograd.grad(last.sum(), (v, theta))
    torch.testing.assert_close(by_v, torch.full_like(v, 0.5), rtol=0, atol=1e-15)
    assert by_theta[0, 0] == 0


def test_single_precision_follows_double():
    edges = LISTS["complete"]
    arguments = inputs(edges)
    single = [x.float().requires_grad_() for x in arguments]
    double = [x.requires_grad_() for x in arguments]
    path, v = PDSLayers.apply(*single, 0.01, edges)
    expected_path, expected_v = PDSLayers.apply(*double, 0.01, edges)
    assert path.dtype == v.dtype == torch.float32
    torch.testing.assert_close(path.double(), expected_path, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(v.double(), expected_v, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(path.square().sum(), single)
    expected = torch.autograd.grad(expected_path.square().sum(), double)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)


def test_inputs_are_left_alone_and_may_have_any_layout():
    edges = LISTS["complete"]
    w, v, y, theta = inputs(edges)
    expected, _ = PDSLayers.apply(w, v, y, theta, 0.0, edges)
    before = [x.clone() for x in (w, v, y, theta)]
    path, last = PDSLayers.apply(w.T.contiguous().T, v.T.contiguous().T, y.T.contiguous().T, theta, 0.0, edges)
    assert torch.equal(path, expected)
    last += 1  # a result of its own, not a view of what the adjoint needs
    assert all(torch.equal(x, old) for x, old in zip((w, v, y, theta), before, strict=True))


def test_adjoint_can_be_applied_twice():
    edges = LISTS["complete"]
    arguments = [x.requires_grad_() for x in inputs(edges)]
    path, v = PDSLayers.apply(*arguments, 0.0, edges)
    loss = path.sum() + v.sum()
    first = torch.autograd.grad(loss, arguments, retain_graph=True)
    second = torch.autograd.grad(loss, arguments)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# --- candidate edge lists ------------------------------------------------------------------------------------------


def test_two_sum_keeps_what_rounding_loses():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(100) * 10.0 ** rng.integers(-8, 8, 100)
    b = rng.standard_normal(100) * 10.0 ** rng.integers(-8, 8, 100)
    total, lost = two_sum(a, b)
    assert (total == a + b).all()
    assert (lost != 0).any()
    for numbers in zip(a, b, total, lost, strict=True):
        x, y, s, rest = map(Fraction, numbers)
        assert x + y == s + rest
    total, lost = two_sum(*torch.tensor([1.0, 1e-20], dtype=torch.float64))
    assert total == 1
    assert lost == 1e-20


def test_residuals_and_degrees_of_a_list():
    edges = LISTS["candidates"]
    heads, tails = edges.numpy()
    rng = np.random.default_rng(0)
    y = rng.random((2, len(heads)))
    lam = rng.random((2, 6)) + 0.5
    low = 1e-18 * rng.random((2, 6))
    R = np.empty_like(y)
    d = np.full((2, 6), np.nan)
    squares = np.full(2, np.nan)
    list_residuals(heads, tails, y, lam, low, R, d, squares)
    expected = np.maximum(lam[:, heads] + lam[:, tails] - 2 * y, 0)
    assert (expected == 0).any()
    assert (expected > 0).any()
    assert np.allclose(R, expected, rtol=1e-14, atol=0)
    assert np.allclose(squares, (expected**2).sum(1))
    assert np.allclose(d, expected / 2 @ degree_matrix(edges, 6).numpy().T)


def test_residuals_see_the_digits_below_the_sum():
    """l_i + l_j - 2y = 3e-20, which is lost in the rounding of 1 unless the low parts are carried along."""
    heads, tails = np.array([[0], [1]])
    R = np.empty((1, 1))
    rest = (np.empty((1, 2)), np.empty(1))
    list_residuals(heads, tails, np.array([[0.5]]), np.array([[1.0, 2e-20]]), np.array([[1e-20, 0.0]]), R, *rest)
    assert R[0, 0] == pytest.approx(3e-20, rel=1e-12)
    list_residuals(heads, tails, np.array([[0.5]]), np.array([[1.0, 2e-20]]), np.array([[0.0, 1e-20]]), R, *rest)
    assert R[0, 0] == pytest.approx(3e-20, rel=1e-12)


def test_slack_of_a_list():
    edges = LISTS["candidates"]
    heads, tails = edges.numpy()
    rng = np.random.default_rng(0)
    y = rng.random((2, len(heads)))
    lam = rng.random((2, 6))
    slack = np.full((2, 6), np.nan)
    list_slack(heads, tails, y, lam, slack)
    value = 2 * y - lam[:, heads] - lam[:, tails]
    at_node = degree_matrix(edges, 6).numpy() > 0
    expected = np.where(at_node, value[:, None], np.inf).min(-1)
    assert np.allclose(slack, expected)


def test_active_edges_of_a_list():
    edges = LISTS["candidates"]
    R = np.where(np.arange(edges.shape[1]) % 2, 0.5, 0.0)
    count = np.full(6, np.nan)
    active = np.stack(list_active(*edges.numpy(), R, count))
    assert np.array_equal(active, edges.numpy()[:, R > 0])
    assert np.array_equal(count, degree_matrix(edges, 6).numpy() @ (R > 0))


def test_signless_laplacian_of_a_list():
    edges = LISTS["candidates"]
    D = degree_matrix(edges, 6).numpy()
    rng = np.random.default_rng(0)
    x = rng.random(6)
    start = rng.random(6)
    out = start.copy()
    add_signless_laplacian(*edges.numpy(), 0.3, x, out)
    assert np.allclose(out, start + 0.3 * D @ (D.T @ x))
