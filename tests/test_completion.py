"""The most likely diagonal and scale of a precision matrix: its conditions, its certificate, and every hard input."""

import numpy as np
import pytest
from scipy import optimize, sparse

from helpers.beyond import completion
from helpers.beyond.completion import (
    complete,
    complete_on_list,
    completion_gap,
    laplacian_rank,
    partial_correlations,
    signed_laplacian,
)


def draw(m=12, n=400, *, ground=0.5, negative=0.3, spread=1.0, p=0.3, seed=0):
    """Signals (n, m), their signed weights and their precision matrix."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((m, m)) < p, 1) * rng.lognormal(0, spread, (m, m))
    upper *= np.where(rng.random((m, m)) < negative, -1, 1)
    W = upper + upper.T
    K = signed_laplacian(W) + ground * np.eye(m)
    return rng.standard_normal((n, m)) @ np.linalg.cholesky(np.linalg.inv(K)).T, W, K


def moments(X):
    return X.T @ X / len(X)


def value(K, S):
    return np.linalg.slogdet(K)[1] - (S * K).sum()


@pytest.mark.parametrize("ground", [1e-4, 0.5])
@pytest.mark.parametrize("negative", [0, 0.3])
@pytest.mark.parametrize("m, n", [(12, 400), (60, 200)])
def test_conditions_of_the_maximum(ground, negative, m, n):
    X, W, K = draw(m, n, ground=ground, negative=negative)
    S = moments(X)
    found = complete(S, 3 * W)
    Sigma = np.linalg.inv(found.precision)
    np.testing.assert_allclose(np.diag(Sigma), np.diag(S), rtol=1e-4)
    assert (W * Sigma).sum() == pytest.approx((W * S).sum(), rel=1e-4)
    off = ~np.eye(m, dtype=bool)
    np.testing.assert_allclose(found.precision[off], -found.scale * 3 * W[off], rtol=1e-12, atol=1e-12)
    assert found.gap < 1e-9
    assert found.scale == pytest.approx(1 / 3, rel=0.2), "the truth, with three times its weights"
    assert value(found.precision, S) > value(K, S)


def test_it_is_the_maximum_that_another_solver_finds():
    X, W, K = draw(5, 50, seed=3)
    S = moments(X)

    def loss(x):
        K = np.diag(x[:-1]) - x[-1] * W
        logdet = np.linalg.slogdet(K)[1]
        positive = np.linalg.eigvalsh(K)[0] > 0
        return -(logdet - (S * K).sum()) if positive else 1e9

    start = np.append(np.diag(K), 1.0)
    best = optimize.minimize(
        loss, start, method="Nelder-Mead", options={"maxiter": 20000, "fatol": 1e-12, "xatol": 1e-9}
    )
    found = complete(S, W)
    np.testing.assert_allclose(np.append(np.diag(found.precision), found.scale), best.x, rtol=1e-4)


def test_the_gap_is_a_bound_of_what_is_missing():
    X, W, _ = draw()
    S = moments(X)
    best = complete(S, W)
    for shift in (1e-3, 1e-2, 0.05):
        K = best.precision + shift * np.diag(np.diag(best.precision))
        missing = value(best.precision, S) - value(K, S)
        assert missing <= completion_gap(K, S, W) < 2.5 * missing
    assert completion_gap(best.precision, S, W) < 1e-9
    assert completion_gap(3 * best.precision, S, W) == np.inf, "too far away for a bound"


def test_a_matrix_that_is_nearly_singular_takes_few_steps(monkeypatch):
    """From a start near the border of the cone there are about 20; from the identity 200 are not enough."""
    X, W, _ = draw(60, 200, ground=1e-6, negative=0)
    steps = []
    take = completion._newton_step
    monkeypatch.setattr(completion, "_newton_step", lambda *given: steps.append(1) or take(*given))
    assert complete(moments(X), W).gap < 1e-9
    assert len(steps) < 50


def test_a_hessian_that_has_no_cholesky_factor_leaves_the_gradient():
    """In units of the curvatures: g_i / H_ii, which goes uphill. Such a Sigma stands for what rounding may do."""
    Sigma = np.array([[1.0, 2.5], [2.5, 4]])
    A = np.array([[0, 1.0], [1, 0]])
    step, squared = completion._newton_step(Sigma, A, np.array([-0.5, -1, 0]), free=False)
    np.testing.assert_allclose(step, [0.5 / 1, 3 / 16, 0])
    assert squared == pytest.approx(0.5**2 / 1 + 3**2 / 16)


def test_units_of_the_columns_do_not_matter():
    X, W, _ = draw()
    c = np.random.default_rng(1).lognormal(0, 8, 12)
    one = complete(moments(X), W)
    other = complete(moments(X * c), W / np.outer(c, c))
    np.testing.assert_allclose(other.precision * np.outer(c, c), one.precision, rtol=1e-6, atol=1e-12)


def test_without_edges_it_is_the_inverse_of_the_variances():
    S = moments(draw()[0])
    found = complete(S, np.zeros_like(S))
    np.testing.assert_allclose(found.precision, np.diag(1 / np.diag(S)))
    assert found.gap == 0


def test_edges_that_contradict_the_moments_keep_their_weight():
    S = np.array([[1.0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]])
    W = np.zeros((3, 3))
    W[0, 1] = W[1, 0] = -0.7
    found = complete(S, W)
    assert found.scale == pytest.approx(1)
    assert found.precision[0, 1] == pytest.approx(0.7)
    np.testing.assert_allclose(np.diag(np.linalg.inv(found.precision)), 1, rtol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_precision_is_positive_definite_for_any_input(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 15))
    X = rng.standard_normal((int(rng.integers(1, 20)), m)) * rng.lognormal(0, 3, m)
    S = moments(X) + 1e-8 * np.diag(np.diag(moments(X)))
    W = rng.standard_normal((m, m)) * (rng.random((m, m)) < 0.5) * 10.0 ** rng.integers(-8, 8)
    W = np.triu(W, 1) + np.triu(W, 1).T
    found = complete(S, W)
    d = np.sqrt(np.diag(S))
    assert np.linalg.eigvalsh(found.precision * np.outer(d, d))[0] > 0
    assert found.gap < 1e-6


def test_what_has_no_answer_is_refused():
    for wrong in (np.diag([1.0, 0.0]), np.full((2, 2), np.nan)):
        with pytest.raises(ValueError, match=r"S has .*add_white_signal"):
            complete(wrong, np.zeros((2, 2)))


# --- lists ----------------------------------------------------------------------------------------------------------


def test_pseudo_likelihood_is_near_the_likelihood():
    X, W, K = draw(30, 20_000, p=0.1)
    found, scale = complete_on_list(X, sparse.csr_array(2 * W), moments(X).diagonal())
    assert sparse.issparse(found)
    assert scale == pytest.approx(0.5, rel=0.05)
    np.testing.assert_allclose(found.diagonal(), np.diag(K), rtol=0.1)
    np.testing.assert_allclose((found - sparse.diags_array(found.diagonal())).toarray(), -scale * 2 * W, rtol=1e-9)


def test_heavy_edges_between_independent_columns_are_held_by_the_diagonal():
    X = np.sqrt(20) * np.eye(20)  # moments of 1 and 0
    found, scale = complete_on_list(X, sparse.csr_array(100 * (np.ones((20, 20)) - np.eye(20))), np.ones(20))
    assert scale == 1, "nothing speaks for another one"
    assert np.linalg.eigvalsh(found.toarray())[0] > 0


def test_on_a_list_too_it_is_positive_definite():
    rng = np.random.default_rng(0)
    for sign in (-1, 1):
        X = rng.standard_normal((3, 1)) * np.ones(20) + 1e-3 * rng.standard_normal((3, 20))
        W = sparse.csr_array(sign * (np.ones((20, 20)) - np.eye(20)))
        found, scale = complete_on_list(X, W, moments(X).diagonal())
        assert np.linalg.eigvalsh(found.toarray())[0] > 0
        assert np.isfinite(scale)


# --- Laplacians -----------------------------------------------------------------------------------------------------


def test_the_signed_laplacian_adds_up_atoms():
    W = np.array([[0, 2.0, 0], [2, 0, -3], [0, -3, 0]])
    a, b = np.array([[1, -1, 0]]), np.array([[0, 1, 1]])
    np.testing.assert_array_equal(signed_laplacian(W), 2 * a.T @ a + 3 * b.T @ b)
    np.testing.assert_array_equal(signed_laplacian(sparse.csr_array(W)).toarray(), signed_laplacian(W))


@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, -1, 1), (-1, 1, 1), (-1, -1, -1)])
def test_rank_counts_balanced_components(signs):
    """A triangle of given signs beside one positive edge and one node alone."""
    W = np.zeros((6, 6))
    W[0, 1], W[1, 2], W[0, 2] = signs
    W[3, 4] = 1
    W = W + W.T
    assert laplacian_rank(W) == np.linalg.matrix_rank(signed_laplacian(W))


def test_partial_correlations():
    X, _, K = draw(4, 100_000)
    r = partial_correlations(K)
    others = X[:, 2:]
    left, right = (X[:, k] - others @ np.linalg.lstsq(others, X[:, k])[0] for k in (0, 1))
    assert r[0, 1] == pytest.approx(np.corrcoef(left, right)[0, 1], abs=0.01)
    np.testing.assert_array_equal(np.diag(r), 1)
    np.testing.assert_allclose(partial_correlations(sparse.csr_array(K)).toarray(), r)
