"""What is done with the network's answer: thresholds, signs, scale, and every kind of graph."""

import numpy as np
import pytest
import torch
from scipy import sparse
from test_completion import draw
from toys import Estimate, ShrunkInverse

from helpers.beyond.completion import completion_gap, signed_laplacian
from helpers.beyond.estimates import learn_from_moments, learn_on_list
from helpers.beyond.moments import add_white_signal
from helpers.graphs import all_pairs, to_vector

X, W, K = draw(10, 2000)
S = X.T @ X / len(X)
OPTIONS = {"signed": True, "self_loops": True, "min_probability": 0.5}


class Fixed(torch.nn.Module):
    """Always the same answer; remembers what it was asked."""

    def __init__(self, *values):
        super().__init__()
        self.values = values

    def forward(self, *asked, **options):
        self.asked = (*asked, options)
        return Estimate(*map(torch.tensor, self.values))

    def on_list(self, *asked, **options):
        self.asked = (*asked, options)
        return Estimate(*map(torch.tensor, self.values))


def test_the_truth_is_found():
    found = learn_from_moments(ShrunkInverse(), S, 2000, **OPTIONS)
    on = found.A != 0
    np.testing.assert_array_equal(np.sign(found.A[on]), np.sign(W[on]))
    np.testing.assert_allclose(found.K, K, atol=0.15 * K.max())
    np.testing.assert_array_equal(found.K[on], -found.A[on])
    assert (found.probability[on] >= 0.5).all() and (found.probability[~on] < 0.5).all()
    assert completion_gap(found.K, add_white_signal(S, 2000), found.A) < 1e-8


def test_expected_weights_of_what_is_probable():
    positive, negative, weight = [0.9, 0.1, 0.3], [0.0, 0.6, 0.3], [2.0, 3.0, 4.0]
    three = np.eye(3) + np.array([[0, 0.5, -0.3], [0.5, 0, 0], [-0.3, 0, 0]])
    network = Fixed(positive, negative, weight)
    found = learn_from_moments(network, three, 50, signed=True, self_loops=True, min_probability=0.65)
    np.testing.assert_allclose(to_vector(torch.tensor(found.probability)), [0.9, 0.7, 0.6])
    w = to_vector(torch.tensor(found.A))
    assert w[0] / w[1] == pytest.approx(0.9 * 2 / (-0.5 * 3)), "(positive - negative) * weight, one scale for all"
    assert w[2] == 0
    assert network.asked[-1] == {"signed": True, "self_loops": True}
    np.testing.assert_allclose(network.asked[0], three)


def test_one_number_of_samples_or_one_per_pair_is_passed_on():
    network = Fixed([0.9] * 45, [0.0] * 45, [1.0] * 45)
    learn_from_moments(network, S, 77.0, **OPTIONS)
    assert network.asked[1] == 77
    counts = np.arange(100.0).reshape(10, 10) + 1
    learn_from_moments(network, S, counts, **OPTIONS)
    np.testing.assert_array_equal(network.asked[1], counts)


def test_two_nodes_are_shown_with_a_third():
    network = Fixed([0.9, 0.2, 0.3], [0.0] * 3, [1.0] * 3)
    pair = np.array([[2.0, 1], [1, 4]])
    found = learn_from_moments(network, pair, 50, **OPTIONS)
    np.testing.assert_allclose(network.asked[0], [[2, 1, 0], [1, 4, 0], [0, 0, 3]])
    np.testing.assert_allclose(found.probability, [[0, 0.9], [0.9, 0]], rtol=1e-6)
    np.testing.assert_allclose(np.linalg.inv(found.K), add_white_signal(pair, 50), rtol=1e-4)


def test_without_self_loops_it_is_a_laplacian_of_the_likeliest_scale():
    for signed in (True, False):
        found = learn_from_moments(ShrunkInverse(), S, 2000, signed=signed, self_loops=False, min_probability=0.5)
        assert found.K is None
        L = signed_laplacian(found.A)
        assert (S * L).sum() == pytest.approx(np.linalg.matrix_rank(L))
        assert (found.A < 0).any() == signed


def test_a_column_that_never_varies_is_filled_in():
    silent = S.copy()
    silent[3] = silent[:, 3] = 0
    network = Fixed([0.0] * 45, [0.0] * 45, [1.0] * 45)
    found = learn_from_moments(network, silent, 10, **OPTIONS)
    assert network.asked[0][3, 3] == pytest.approx(np.median(np.delete(np.diag(S), 3)) / 10)
    assert np.isfinite(found.K).all()


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("self_loops", [True, False])
def test_a_list_has_the_moments_of_its_atoms(signed, self_loops):
    edges = all_pairs(10)[:, ::2]
    E = edges.shape[1]
    network = Fixed([0.9] * E, [0.0] * E, [1.0] * E)
    options = {"signed": signed, "self_loops": self_loops, "min_probability": 0.5}
    found = learn_on_list(network, X, edges, 99, **options)
    difference, total, ground, n, asked, m, given = network.asked
    i, j = edges
    S_ = torch.from_numpy(S)
    torch.testing.assert_close(difference, S_[i, i] + S_[j, j] - 2 * S_[i, j])
    if signed:
        torch.testing.assert_close(total, S_[i, i] + S_[j, j] + 2 * S_[i, j])
    torch.testing.assert_close(ground, S_.diagonal())
    if self_loops:
        assert np.linalg.eigvalsh(found.K.toarray())[0] > 0
        off = found.K - sparse.diags_array(found.K.diagonal())
        np.testing.assert_allclose(off.toarray(), -found.A.toarray(), rtol=1e-12)
    else:
        L = signed_laplacian(found.A).toarray()
        assert (S * L).sum() == pytest.approx(np.linalg.matrix_rank(L))
    assert (total is None, given["self_loops"]) == (not signed, self_loops)
    assert (n, m) == (99, 10) and asked is edges
    assert found.A.nnz == found.probability.nnz == 2 * E
