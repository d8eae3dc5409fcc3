"""Ranks, random relabellings and the permutation test, against counts by hand and an ordinary regression."""

import itertools

import numpy as np
import pytest
import torch

from helpers.metrics import within_share
from helpers.real.statistics import permutation_test, rank_of, relabellings

W = torch.tensor([4.0, 1, 0, 2, 0, 1])  # edges 01 02 03 12 13 23


def test_ranks_start_at_one_and_ties_share_the_better():
    assert [rank_of(W, k).item() for k in range(6)] == [1, 3, 5, 2, 5, 3]
    assert rank_of(torch.stack([W, -W]), 0).tolist() == [1, 6]


def test_relabellings_keep_the_sizes_of_the_blocks():
    null = relabellings(within_share, W, [0, 0, 1, 1], seed=0, n=300)
    assert null.shape == (300,)
    values, counts = np.unique(np.round(null.numpy(), 6), return_counts=True)
    assert values.tolist() == [0.125, 0.25, 0.625]  # the three ways to pair four nodes
    assert (np.abs(counts - 100) < 30).all()
    assert torch.equal(null, relabellings(within_share, W, [0, 0, 1, 1], seed=0, n=300))
    assert not torch.equal(null, relabellings(within_share, W, [0, 0, 1, 1], seed=1, n=300))
    assert len(relabellings(within_share, W, [0, 0, 1, 1], seed=0)) == 999


def made_up(n=180, seed=1):
    rng = np.random.default_rng(seed)
    strata = rng.integers(0, 3, n)
    group = rng.random(n) < np.array([0.2, 0.5, 0.8])[strata]
    noise = rng.normal(size=(n, 3)) + 10 * strata[:, None]  # strata differ, and in their share of the group too
    return noise, group, strata


def test_effect_sizes_are_those_of_a_regression():
    values, group, strata = made_up()
    names = np.array(["Leuven", "NYU", "Caltech"])[strata]
    test = permutation_test(values, group, names, seed=0, n=9)
    design = np.c_[group, np.eye(3)[strata]]
    coefficients, residuals, _, _ = np.linalg.lstsq(design, values)
    np.testing.assert_allclose(test.d, coefficients[0] / np.sqrt(residuals / (180 - 4)))


def test_a_shift_is_found_and_strata_are_no_shift():
    noise, group, strata = made_up()
    test = permutation_test(noise + group[:, None] * [1, 0, 0], group, strata, seed=0, n=999)
    assert test.p[0] == test.p_corrected[0] == 1 / 1000
    assert 0.6 < test.d[0] < 1.4
    assert (test.p[1:] > 0.01).all()
    assert (test.p_corrected >= test.p).all()
    swapped = permutation_test(noise, ~group, strata, seed=0, n=99)
    np.testing.assert_allclose(swapped.d, -permutation_test(noise, group, strata, seed=0, n=99).d)


def test_p_is_the_share_of_all_exchanges_within_strata():
    """Six subjects in two strata: 3 x 3 exchanges, each as likely."""
    values = np.array([[1.0, 5], [2, 1], [4, 2], [3, 3], [9, 4], [5, 0]])
    strata = np.repeat([0, 1], 3)
    group = np.array([False, False, True, False, True, False])
    test = permutation_test(values, group, strata, seed=0, n=9999)
    d = []
    for first, second in itertools.product(range(3), range(3)):
        labels = np.zeros(6, dtype=bool)
        labels[[first, 3 + second]] = True
        d.append(np.abs(permutation_test(values, labels, strata, seed=0, n=1).d))
    d = np.array(d) + 1e-9
    np.testing.assert_allclose(test.p, (d >= np.abs(test.d)).mean(0), atol=0.02)
    np.testing.assert_allclose(test.p_corrected, (d.max(1, keepdims=True) >= np.abs(test.d)).mean(0), atol=0.02)


def test_the_level_is_kept():
    rng = np.random.default_rng(1)
    p = [
        permutation_test(rng.normal(size=(30, 1)), rng.random(30) < 0.5, np.zeros(30), seed=k, n=99).p[0]
        for k in range(200)
    ]
    assert abs(np.mean(np.array(p) <= 0.2) - 0.2) < 0.09  # three standard errors


def test_the_number_of_permutations_and_the_seed_are_used():
    values, group, strata = made_up()
    first = permutation_test(values, group, strata, seed=0, n=99)
    assert (first.p * 100).tolist() == pytest.approx(np.round(first.p * 100).tolist())
    assert (first.p != permutation_test(values, group, strata, seed=1, n=99).p).any()
    by_default = permutation_test(values, group, strata, seed=0).p
    assert (by_default * 5000).tolist() == pytest.approx(np.round(by_default * 5000).tolist())
