"""What is asked of graphs learned from real data: do known groups of nodes show, do groups of subjects differ?"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

TIES = 1 - 1e-12  # the same statistic computed in another order of summation counts as equal


def relabellings(statistic, w, blocks, *, seed, n=999):
    """`statistic(w, blocks)` of one graph w (E,) for n random relabellings of its nodes, blocks (m,): (n,)."""
    rng = np.random.default_rng(seed)
    blocks = np.asarray(blocks)
    return torch.stack([statistic(w, rng.permutation(blocks)) for _ in range(n)])


def rank_of(w, k):
    """The rank, 1 for the heaviest, of edge k in each graph (..., E): (...)."""
    return (w > w[..., k : k + 1]).sum(-1) + 1


class GroupTest(NamedTuple):
    """Effect size (d, group True minus False), p of a permutation test, p corrected for all columns: each (k,)."""

    d: np.ndarray
    p: np.ndarray
    p_corrected: np.ndarray


def permutation_test(values, group, strata, *, seed, n=4999):
    """Do two groups differ in the mean of each column of `values` (n_subjects, k)? Two-sided.

    A regression on group and `strata` (n_subjects,), such as sites; d is the group's coefficient over the residual
    standard deviation. Labels are exchanged within strata. The correction compares each column with the largest |d|
    of any column (Westfall and Young).
    """
    group = np.asarray(group, dtype=bool)
    names, stratum = np.unique(strata, return_inverse=True)
    averages = np.eye(len(names))[stratum]
    averages /= averages.sum(0)  # averages.T @ x are the means of the strata

    x = np.asarray(values, dtype=np.float64)
    x = x - (averages.T @ x)[stratum]
    labels = np.concatenate([group[None], _exchange_within(tuple(stratum), tuple(group), n, seed)])
    g = labels - (averages.T @ group)[stratum]  # (1 + n, n_subjects); an exchange keeps the means of the strata

    size = (g**2).sum(1, keepdims=True)
    coefficient = g @ x / size
    residual = (x**2).sum(0) - coefficient**2 * size
    d = coefficient / np.sqrt(residual / (len(x) - len(names) - 1))  # (1 + n, k), the observed labels first

    observed = np.abs(d[0]) * TIES
    exceeds = np.abs(d) >= observed
    any_exceeds = np.abs(d).max(1, keepdims=True) >= observed
    return GroupTest(d[0], exceeds.mean(0), any_exceeds.mean(0))


@lru_cache(maxsize=1)  # methods are compared on the same subjects, one after the other
def _exchange_within(stratum, group, n, seed):
    """n random exchanges of the labels `group` (n_subjects,) within strata, both tuples: (n, n_subjects)."""
    shape = n, len(group)
    by_stratum = np.argsort(stratum, kind="stable")
    random = np.random.default_rng(seed).random(shape)
    in_random_order = np.lexsort((random, np.tile(stratum, (n, 1))))  # by stratum, then at random
    exchanged = np.empty(shape, dtype=bool)
    exchanged[:, by_stratum] = np.array(group)[in_random_order]
    return exchanged
