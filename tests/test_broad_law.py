"""The broad law: every family is what its name says, shares are as stated, samples have the moments of their law."""

import numpy as np
import pytest
import torch

from helpers.beyond import broad_law
from helpers.beyond.broad_law import FAMILIES, FIRST, LAW, THIRD, sample_broad
from helpers.beyond.moments import pairwise_moments, second_moments
from helpers.graphs import to_matrix

M = 16


def adjacency(family, n=20, m=M, seed=0, law=LAW):
    return broad_law._adjacency(np.random.default_rng(seed), family, n, m, law)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("m", [3, M, 40])
def test_graphs_are_simple(family, m):
    for seed in range(5):
        A = adjacency(family, 6, m, seed)
        assert A.shape == (6, m, m) and A.dtype == bool
        assert (A == A.transpose(0, 2, 1)).all() and not A[:, np.arange(m), np.arange(m)].any()


def test_trees_stars_grids_and_empty_graphs():
    tree = adjacency("tree")
    assert (tree.sum((1, 2)) == 2 * (M - 1)).all()
    L = np.stack([np.diag(d) for d in tree.sum(2).astype(float)]) - tree
    assert (np.sort(np.linalg.eigvalsh(L), 1)[:, 1] > 1e-9).all()  # connected
    degrees = np.sort(adjacency("star", m=10).sum(2), 1)
    assert (degrees[:, :-1] == 1).all() and (degrees[:, -1] == 9).all()
    assert (adjacency("grid").sum((1, 2)) == 2 * 24).all()  # 4 x 4
    assert not adjacency("empty").any()


def test_geometric_graphs_join_the_nearest_pairs():
    rng = np.random.default_rng(3)
    A = broad_law._geometric(rng, 4, M, degree=3.0)
    assert (A.sum((1, 2)) == 2 * 24).all()
    x = np.random.default_rng(3).random((4, M, 2))
    distance = np.square(x[:, :, None] - x[:, None]).sum(-1)
    i, j = np.triu_indices(M, 1)
    for k in range(4):
        on, off = distance[k, i, j][A[k, i, j]], distance[k, i, j][~A[k, i, j]]
        assert on.max() < off.min()


def test_nodes_are_numbered_at_random():
    hubs = adjacency("star", n=200, m=10).sum(2).argmax(1)
    assert len(np.unique(hubs)) == 10


@pytest.mark.parametrize("law", [LAW, FIRST])
def test_mean_degrees_are_log_uniform(law):
    low, high = law["degree"]
    degrees = np.log([adjacency("geometric", 1, 60, seed, law).sum() / 60 for seed in range(400)])
    assert degrees.min() == pytest.approx(np.log(low), abs=0.1)
    assert degrees.max() == pytest.approx(np.log(high), abs=0.1)
    assert degrees.mean() == pytest.approx(np.log(low * high) / 2, abs=0.15)
    joined = [adjacency("ER", 50, 60, seed, law).sum() / 3000 for seed in range(100)]
    assert np.log(joined).mean() == pytest.approx(np.log(low * high) / 2, abs=0.2)


@pytest.mark.parametrize(
    # a share up to 0.2; of the others, 2 u^1.5, a quarter is below 0.25 and half below 0.71; or 2 u; or all are 2 u^3
    "law, below",
    [
        (FIRST, {0.25: 0.4 + 0.6 / 4, 0.71: 0.4 + 0.6 / 2}),
        (THIRD, {0.25: 0.3 + 0.7 / 8, 1.0: 0.3 + 0.7 / 2}),
        (LAW, {0.25: 1 / 2, 2 * 0.75**3: 3 / 4}),
    ],
)
def test_spreads_have_the_stated_law(law, below):
    A = adjacency("dense", 1500)
    W, _ = broad_law._weights(np.random.default_rng(0), A, np.zeros(1500, bool), law | {"heavy": 0})
    spread = np.array([np.log(np.abs(w[w != 0])).std() for w in W])
    assert 1.8 < spread.max() < 2.6
    for value, share in below.items():
        assert (spread < value).mean() == pytest.approx(share, abs=0.04)


def test_weights_have_mean_degree_1():
    rng = np.random.default_rng(0)
    A = adjacency("dense", 400)
    paper = np.zeros(400, bool)
    paper[:100] = True
    W, negative = broad_law._weights(rng, A, paper)
    size = np.abs(W)
    assert ((size > 0) == A).all()
    np.testing.assert_allclose(size[paper].sum((1, 2)), M)
    spread = np.array([np.log(w[w > 0]).std() for w in size])
    assert (np.abs(spread[paper] - 0.07) < 0.03).all()
    assert not negative[paper].any() and (negative == (W < 0).any((1, 2))).all()
    assert 0.4 < negative[~paper].mean() < 0.7
    heavy = size[~paper].sum((1, 2)) > M * 1.001
    assert 0.04 < heavy.mean() < 0.2
    assert np.log10(size[~paper][heavy].max((1, 2)) / np.median(size[size > 0])).max() > 3


def test_the_ground_is_the_papers_or_unequal():
    rng = np.random.default_rng(0)
    paper = np.arange(600) < 200
    W, _ = broad_law._weights(rng, adjacency("ER", 600), paper)
    W[-50:] = 0
    c = broad_law._ground(rng, W, paper)
    assert (c[:200] == 1e-4).all()
    middle = np.median(c[200:-50], 1)
    assert middle.min() < 3e-4 and middle.max() > 1
    assert (c[200:-50].std(1) > 0).all()
    assert (np.median(c[-50:], 1) > 0.2).all()  # nothing but ground: any size would do


def test_some_diagonals_are_lesser_but_positive_definite():
    rng = np.random.default_rng(0)
    W, _ = broad_law._weights(rng, adjacency("ER", 600), np.zeros(600, bool))
    c = np.ones((600, M))
    plain = np.arange(600) < 200
    K = broad_law._precision(np.random.default_rng(1), W, c, plain)
    off = 1 - np.eye(M)
    np.testing.assert_array_equal(K * off, -W)
    left = np.einsum("nii->ni", K) / (np.abs(W).sum(2) + c)
    np.testing.assert_allclose(left, left[:, :1].repeat(M, 1))  # one factor for all nodes of a graph
    lesser = left[:, 0] < 1 - 1e-12
    assert not lesser[plain].any() and abs(lesser[~plain].mean() - LAW["undominated"]) < 0.05
    assert (np.linalg.eigvalsh(K)[:, 0] > 0).all()
    undominated = (np.einsum("nii->ni", K) < np.abs(W).sum(2)).any(1)
    assert undominated.any() and not undominated[~lesser].any()


def test_moments_are_those_of_the_law():
    K = np.broadcast_to(2 * np.eye(4) - 0.5 * np.ones((4, 4)) + 0.5 * np.eye(4), (3000, 4, 4)).copy()
    S, counts, clean = broad_law._moments(np.random.default_rng(1), K, np.ones(3000, bool))
    n = counts[:, 0, 0]
    assert (counts == n[:, None, None]).all()
    assert clean.all() and (n == n.astype(int)).all()
    assert n.min() == 5 and 9000 < n.max() <= 10_000
    many = n > 300
    np.testing.assert_allclose(S[many].mean(0), np.linalg.inv(K[0]), atol=0.01)
    # a Wishart matrix: the variance of a diagonal entry is 2 Sigma_ii^2 / N, also where samples are drawn one by one
    for group in (many, n < 20):
        z = (S[group, 0, 0] / np.linalg.inv(K[0])[0, 0] - 1) * np.sqrt(n[group] / 2)
        assert abs(z.std() - 1) < 0.1
    assert 0.05 < (np.log(n) < np.log(5) + 0.1 * np.log(2000)).mean() < 0.15  # log-uniform


def test_noise_tails_and_overstated_numbers():
    K = np.broadcast_to(np.eye(5), (4000, 5, 5)).copy()
    S, counts, clean = broad_law._moments(np.random.default_rng(1), K, np.zeros(4000, bool))
    n = counts.max((1, 2))
    assert abs((~clean).mean() - LAW["noise"]) < 0.03
    variances = np.einsum("nii->ni", S)
    several = n > 200
    # half of 0.5 on average, times the mean of a lognormal
    noise = variances[several & ~clean].mean() - 1
    assert noise == pytest.approx(0.25 * np.exp(0.125), abs=0.03)
    assert variances[several & clean].mean() == pytest.approx(1.0, abs=0.02)
    many = n > 3000  # unequal noise
    assert variances[many & ~clean].std(1).mean() > 3 * variances[many & clean].std(1).mean()
    assert abs((n != n.astype(int)).mean() - LAW["overstated"]) < 0.03 and n.max() > 10_000


def test_gaps_are_counted_pair_by_pair():
    K = np.broadcast_to(np.eye(5), (3000, 5, 5)).copy()
    S, counts, _ = broad_law._moments(np.random.default_rng(2), K, np.arange(3000) < 1000)
    own = np.einsum("nii->ni", counts)
    gaps = (own != own[:, :1]).any(1)
    assert not gaps[:1000].any()
    few = counts.max((1, 2)) <= 2 * broad_law.MOST_ROWS  # numbers may be overstated
    assert abs(gaps[1000:][few[1000:]].mean() - LAW["gaps"]) < 0.03
    assert not gaps[~few].any()
    assert (counts[gaps] <= own[gaps][:, :, None]).all() and (counts >= 1).all()
    assert (np.linalg.eigvalsh(S) > -1e-9).all()
    several = gaps & (counts.min((1, 2)) > 100)
    assert np.einsum("nii->ni", S[several]).mean() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("law, moments", [(FIRST, pairwise_moments), (LAW, second_moments)])
def test_gaps_are_filled_or_left_out(law, moments, monkeypatch):
    """The moments of rows that the law draws one by one, with the gaps it draws after them."""
    law = law | {"n_signals": (60, 60), "noise": 0, "tails": 0, "gaps": 1, "overstated": 0}
    K = np.broadcast_to(np.eye(4) + 0.5, (2, 4, 4)).copy()
    tables = []
    missing = broad_law._missing
    monkeypatch.setattr(broad_law, "_missing", lambda *a: tables.append(missing(*a)) or tables[-1])
    seen = []
    for name in ("pairwise_moments", "second_moments"):
        used = getattr(broad_law, name)
        monkeypatch.setattr(broad_law, name, lambda X, used=used: seen.append((used, X)) or used(X))
    S, counts, _ = broad_law._moments(np.random.default_rng(0), K, np.zeros(2, bool), law)
    assert len(tables) == len(seen) == 2
    for k, (used, X) in enumerate(seen):
        assert used is moments and (np.isnan(X) == tables[k]).all() and tables[k].any()
        np.testing.assert_array_equal(S[k], moments(X)[0])
        np.testing.assert_array_equal(counts[k], (~tables[k]).T.astype(float) @ ~tables[k])


def test_plain_graphs_have_nothing_wrong_with_them():
    """Without noise, and without gaps as their columns have one number of samples."""
    law = LAW | {"plain": 1.0, "gaps": 1.0, "overstated": 1.0, "paper": 0.0}
    n = sample_broad(60, 5, seed=0, law=law).n_signals
    assert (n == n[:, :1, :1]).all() and (n == n.round()).all()
    n = sample_broad(60, 5, seed=0, law=law | {"plain": 0.0}).n_signals
    assert (n != n.round()).flatten(1).any(1).double().mean() > 0.9


def test_missing_values_are_anywhere_or_at_the_beginning():
    kinds = set()
    most = 0.0
    for seed in range(40):
        missing = broad_law._missing(np.random.default_rng(seed), 200, 6, 0.8)
        most = max(most, missing.mean(0).max())
        assert (missing.mean(0) <= 0.82).all() and ((~missing).sum(0) >= 3).all()
        if missing.sum() > 60:
            first = [column[: int(column.sum())].mean() for column in missing.T if column.sum() > 10]
            kinds.add("beginning" if np.mean(first) > 0.9 else "anywhere")
    assert kinds == {"beginning", "anywhere"} and most > 0.7


def test_draws_are_consistent():
    draw = sample_broad(300, M, seed=5, n_parts=60)
    again = sample_broad(300, M, seed=5, n_parts=60)
    assert torch.equal(draw.moments, again.moments) and torch.equal(draw.w, again.w) and draw.family == again.family
    other = sample_broad(300, M, seed=6, n_parts=60)
    assert not torch.equal(draw.moments, other.moments)
    assert draw.moments.shape == (300, M, M) and draw.moments.dtype == torch.float64
    assert draw.w.shape == (300, M * (M - 1) // 2) and draw.w.dtype == torch.float32
    assert draw.n_signals.shape == (300, M, M) and draw.n_signals.dtype == torch.float64
    assert len(draw.signed) == len(draw.self_loops) == len(draw.family) == 300
    empty = torch.tensor([name == "empty" for name in draw.family])
    assert not draw.w[empty].any() and empty.any()
    assert draw.self_loops[empty].all()  # without a ground, white noise is the complete graph
    assert not (draw.w[~draw.signed] < 0).any() and (draw.w[draw.signed] < 0).any()
    deviations = draw.moments.diagonal(dim1=-2, dim2=-1)
    standardised = ((deviations - 1).abs() < 1e-9).all(-1)
    assert 0.2 < standardised.double().mean() < 0.5
    assert 0.05 < (~draw.self_loops).double().mean() < 0.4


def test_targets_follow_the_units_of_the_columns():
    """The off-diagonal of the inverse of very many samples' moments is minus the target, whatever the scaling."""
    law = LAW | {"n_signals": (3e6, 4e6), "ground": (0.1, 1), "undominated": 0.5}
    law |= dict.fromkeys(("noise", "tails", "gaps", "overstated", "unsigned", "heavy", "paper"), 0)
    draw = sample_broad(40, 6, seed=1, families=["ER", "dense"], law=law)
    K = torch.linalg.inv(draw.moments)
    found = -K * (1 - torch.eye(6))
    scale = K.diagonal(dim1=-2, dim2=-1).sqrt()
    error = (found - to_matrix(draw.w.double())) / scale[:, :, None] / scale[:, None, :]
    assert error.abs().max() < 0.01


def test_shares_add_up_and_families_can_be_chosen():
    for law in (LAW, FIRST):
        assert sum(law["shares"]) == pytest.approx(1) and len(law["shares"]) == len(FAMILIES)
    assert set(sample_broad(12, 5, seed=0, families=["tree"]).family) == {"tree"}
    for law in (LAW, LAW | {"shares": (0, 0, 0, 0, 0, 0, 0.5, 0.2, 0.3, 0)}):
        names = sample_broad(600, 3, seed=0, n_parts=600, law=law).family
        shares = [names.count(family) / 600 for family in FAMILIES]
        np.testing.assert_allclose(shares, law["shares"], atol=0.04)


def test_parts_of_unequal_size():
    assert len(sample_broad(7, 4, seed=0, n_parts=3).w) == 7
