"""Doubts: raised where there is reason, with a name and a remedy, and not on data that follow the model."""

import numpy as np
import pytest
import torch
from scipy import sparse

from helpers.beyond import broad_law, doubts
from helpers.graphs import all_pairs, differences, sample_graphs
from helpers.signals import sample_signals

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 6))
NAMES = np.array(list("abcdef"))


def about(X):
    """What `of_columns` sees: distances, pairs, deviations, number of samples."""
    S = X.T @ X / len(X)
    edges = all_pairs(X.shape[1]).numpy()
    return differences(torch.from_numpy(S)).numpy(), edges, np.sqrt(np.diag(S)), len(X)


def of_columns(X, names=NAMES, *, scaled=False):
    return [doubt for doubt in doubts.of_columns(*about(X), names, scaled=scaled) if doubt]


def test_columns_that_follow_the_model_raise_none():
    assert of_columns(X) == []
    smooth = sample_signals(sample_graphs("BA", 1, 40, seed=0, dtype=torch.float64)[0], 300, seed=1).numpy()
    assert of_columns(smooth, np.arange(40)) == []
    assert doubts.of_negative_correlations(smooth.T @ smooth / 300, 300, np.arange(40)) is None
    assert doubts.of_time(smooth) is None
    assert list(doubts.of_size(np.zeros((40, 40)), 300)) == []


@pytest.mark.parametrize("m", [5, 40])
def test_the_training_law_hardly_raises_any(m):
    draw = broad_law.sample_broad(100, m, seed=m)
    raised = []
    for S, n in zip(draw.moments.numpy(), draw.n_signals.mean((-2, -1)).tolist()):
        y = differences(torch.from_numpy(S)).numpy()
        deviations = np.sqrt(np.diag(S))
        found = [*doubts.of_columns(y, all_pairs(m).numpy(), deviations, n, np.arange(m), scaled=False)]
        raised.append(any(found))
    assert np.mean(raised) <= 0.05


def test_units_are_told_by_several_columns_or_by_a_very_large_factor():
    (told,) = of_columns(X * 10.0 ** np.array([0, 0, 0, 1, 2, 3]))
    assert "1e+03-fold" in told or "9e+02-fold" in told or "-fold, from 'a'" in told or "from 'b'" in told
    assert "to 'f'" in told and "standardise=True" in told
    assert of_columns(X * 10.0 ** np.array([0, 0, 0, 1, 2, 3]), scaled=True) == []
    many = np.random.default_rng(1).standard_normal((100, 30))
    names = np.arange(30)
    assert of_columns(many * np.where(names == 7, 300, 1), names) == [], "one node may vary much more"
    assert "to 7" in of_columns(many * np.where(names == 7, 5000, 1), names)[0]


def test_constant_columns_are_named():
    (told,) = of_columns(X * np.array([1, 0, 1, 1, 0, 1]))
    assert told.startswith("2 columns ('b', 'e') never varied") and "drop" in told


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("noise", [0, 1e-4])
def test_copies_are_named(sign, noise):
    data = X.copy()
    data[:, 4] = 5 * sign * data[:, 2] + noise * X[:, 4]
    (told,) = of_columns(data)
    assert "1 pair ('c' and 'e')" in told and "keep one of each" in told
    data[:, 4] += 0.5 * X[:, 4]
    assert of_columns(data) == []


@pytest.mark.parametrize("seed", range(5))
def test_multiples_of_one_column_are_all_copies(seed):
    """Then what a pair usually leaves unexplained is rounding, by which none is to be judged."""
    factor = np.random.default_rng(seed).lognormal(0, 1, 4)
    (told,) = of_columns(X[:, :1] * factor, np.arange(4))
    assert told.startswith("6 pairs ")
    most = np.hstack([X[:, :1] * factor, X[:, 1:2]])
    (told,) = of_columns(most, np.arange(5))
    assert told.startswith("6 pairs ")


def test_a_large_common_part_makes_no_copies():
    common = 1e4 * np.random.default_rng(1).standard_normal((300, 1))
    assert of_columns(common + X) == []


def test_every_column_twice_names_the_first_pairs():
    (told,) = of_columns(np.hstack([X, X]), np.arange(12))
    assert "6 pairs (0 and 6, 1 and 7, 2 and 8, ...)" in told
    (told,) = of_columns(np.repeat(X[:, :1], 4, 1), np.arange(4))
    assert "6 pairs" in told


def test_two_samples_make_no_copies():
    """Once centred, every two columns of two rows are equal or opposite."""
    y, edges, deviations, _ = about(X[:2] - X[:2].mean(0))
    assert doubts.of_copies(y, deviations, edges, 1.0, NAMES) is None
    assert "15 pairs" in doubts.of_copies(y, deviations, edges, 10.0, NAMES)
    n = np.where(np.eye(6), 10.0, 1.0)
    n[0, 1] = n[1, 0] = 10
    assert doubts.of_copies(y, deviations, edges, n, NAMES).startswith("1 pair ('a' and 'b')"), "each pair by its own"


def test_copies_are_named_where_most_pairs_are_copies():
    many = np.hstack([X[:, [0]] * np.arange(1, 10), X[:, 1:3]])
    many += 1e-9 * np.random.default_rng(3).standard_normal(many.shape)
    (told,) = of_columns(many, np.arange(11))
    assert told.startswith("36 pairs")


def test_columns_that_agree_by_chance_are_no_copies():
    few = np.random.default_rng(2).standard_normal((3, 400))
    y, edges, deviations, n = about(few)
    r = 1 - ((y - (deviations[edges[0]] - deviations[edges[1]]) ** 2) / (2 * deviations[edges].prod(0)))
    assert (1 - r**2).min() < 1e-4 * np.median(1 - r**2)
    assert doubts.of_copies(y, deviations, edges, n, np.arange(400)) is None


@pytest.mark.parametrize("angle, is_told", [(5.0e-4, True), (5.5e-4, False)])
def test_copies_by_chance_are_counted_among_all_pairs(angle, is_told):
    """Two rows make a column an arrow in the plane: 3 pairs are within an angle a with a chance of 3 (2 a / pi)."""
    arrows = np.array([0, angle, np.pi / 2])
    y, edges, deviations, n = about(np.stack([np.cos(arrows), np.sin(arrows)]))
    assert (3 * 2 * angle / np.pi < 0.001) == is_told
    assert (doubts.of_copies(y, deviations, edges, n, NAMES) is not None) == is_told


def test_one_sample_makes_no_copies():
    """All columns are multiples of each other then, and rounding must not single out some of them."""
    y, edges, deviations, n = about(X[:1])
    assert n == 1
    assert doubts.of_copies(y, deviations, edges, n, NAMES) is None
    y, edges, deviations, n = about(X[:5, [0, 1, 2, 2]])
    assert "(2 and 3)" in doubts.of_copies(y, deviations, edges, n, np.arange(4)), "five are enough for exact copies"


def test_negative_partial_correlations_are_told_where_the_model_has_none():
    K = np.eye(6) * 2.0
    K[0, 1] = K[1, 0] = 1.0
    data = RNG.standard_normal((300, 6)) @ np.linalg.cholesky(np.linalg.inv(K)).T
    S = data.T @ data / 300
    told = doubts.of_negative_correlations(S, 300, NAMES)
    assert told.startswith("1 of 15 ") and "'a' and 'b'" in told and "about -0.5" in told and "signed=True" in told
    assert doubts.of_negative_correlations(S, 15, NAMES) is None, "too few samples to tell"
    assert doubts.of_negative_correlations(X.T @ X / 300, 300, NAMES) is None
    told = doubts.of_negative_correlations(S * np.outer(c := 10.0 ** np.arange(0, -60, -10), c), 300, NAMES)
    assert "'a' and 'b' about -0.5" in told, "in any units"
    S[5] = S[:, 5] = 0
    assert doubts.of_negative_correlations(S, 300, NAMES) is not None, "a constant column is no hindrance"


def test_time_is_told_if_it_matters():
    series = np.cumsum(RNG.standard_normal((400, 5)), 0)
    told = doubts.of_time(series)
    assert "400 rows are worth about" in told and "time_series=True" in told and "n_independent='auto'" in told
    assert doubts.of_time(RNG.permutation(series)) is None
    weak = X[1:] + 0.2 * X[:-1]
    assert doubts.of_time(weak) is None, "worth 93 % of the rows"
    assert doubts.of_time(X[:3]) is None
    assert doubts.of_time(series[:30]) is not None, "thirty rows are enough to see it"
    assert doubts.of_time(np.where(RNG.random(series.shape) < 0.1, np.nan, series)) is not None
    assert doubts.of_time(1000 + X) is None, "a level is no autocorrelation"


def test_time_is_judged_by_the_rows_that_have_a_neighbour():
    """Of 2,000 rows 20 are followed by one that is known: a correlation of 0.4 between them is chance."""
    raised = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((2000, 1)) + 0.1 * rng.standard_normal((2000, 5))
        rows[np.arange(2000) % 100 > 1] = np.nan
        raised.append(doubts.of_time(rows) is not None)
    assert np.mean(raised) <= 0.02


DAYS = np.arange(2000)
PATTERNS = {
    "every 7 rows": DAYS % 7 >= 5,
    "every 12 rows": 0.4 * np.sin(2 * np.pi * DAYS / 12),
    "a trend or a level": (DAYS > 1200) * 0.5,
}


@pytest.mark.parametrize("what", PATTERNS)
def test_patterns_that_come_again_and_levels_are_told(what):
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2000, 10))
    table = 3 * PATTERNS[what][:, None] * rng.standard_normal(10) + noise
    for rows in (table, np.where(rng.random(table.shape) < 0.1, np.nan, table)):
        told = doubts.of_pattern(rows)
        assert told == doubts.of_pattern(1e150 * rows), "in any unit"
        assert what in told and "subtract" in told and "n_independent=n_samples silences this" in told
    assert doubts.of_pattern(noise) is None
    assert doubts.of_pattern(rng.permutation(table)) is None


def test_samples_that_forget_have_no_pattern():
    rng = np.random.default_rng(5)
    noise = rng.standard_normal((1000, 8)) + 3 * rng.standard_normal((1000, 1))
    for memory in (0.2, 0.9, 0.99, 1.0):
        slow = noise.copy()
        for t in range(1, len(slow)):
            slow[t] += memory * slow[t - 1]
        assert doubts.of_pattern(slow) is None
    spikes = noise + 300 * (np.isin(np.arange(1000), (100, 310)))[:, None]
    assert doubts.of_pattern(spikes) is None, "two outliers are no pattern"
    for n in range(1, 10):
        assert doubts.of_pattern(noise[:n]) is None


@pytest.mark.parametrize("period", [5, 12, 50])
def test_a_period_is_the_first_lag_of_a_maximum(period):
    rho = np.cos(2 * np.pi * np.arange(1, 200) / period) * np.linspace(0.5, 0.4, 199)
    assert doubts.find_period(rho, 8) == period
    rho[3 * period - 1] = 0.52  # by chance
    assert doubts.find_period(rho, 8) == period
    assert doubts.find_period(np.linspace(0.5, 0.1, 100), 8) is None, "only falls"


def test_sizes_and_densities_outside_of_training_are_told():
    p = np.zeros((201, 201))
    (told,) = doubts.of_size(p, 100)
    assert told.startswith("201 nodes are outside of 3 to 200")
    assert list(doubts.of_size(p[:200, :200], 10_000)) == []
    (told,) = doubts.of_size(p[:3, :3], 4.9)
    assert told.startswith("4.9 independent samples are outside of 5 to 10,000")
    (told,) = doubts.of_size(np.ones((20, 20)) - np.eye(20), 100)
    assert told.startswith("190 of 190 pairs are edges")
    assert list(doubts.of_size(0.8 * (np.ones((20, 20)) - np.eye(20)), 100)) == []
    assert list(doubts.of_size(np.ones((5, 5)) - np.eye(5), 100)) == []


def test_gaps_and_contradictions_are_told():
    counts = np.full((6, 6), 50)
    assert doubts.of_gaps(counts, NAMES) is None
    counts[1, 3] = counts[3, 1] = 2
    assert "1 pair ('b' and 'd') of columns share fewer than 3 rows" in doubts.of_gaps(counts, NAMES)
    assert doubts.of_gaps(np.full((6, 6), 2), NAMES) is None, "two rows without gaps"
    assert doubts.of_repair(0.0) is None
    assert "smallest eigenvalue -0.3" in doubts.of_repair(0.3)


def test_partial_correlations_of_few_samples_are_not_doubted():
    """With hardly more samples than columns some are strongly negative by chance."""
    Z = np.random.default_rng(4).standard_normal((80, 20))
    Z[:, 1] -= 2 * Z[:, 0]
    for n, is_raised in ((29, False), (80, True)):
        S = Z[:n].T @ Z[:n] / n
        assert (doubts.of_negative_correlations(S, n, np.arange(20)) is not None) == is_raised


def test_the_least_of_many_partial_correlations_is_not_doubted():
    """Among nearly 5,000 pairs of white noise some are four standard deviations below zero."""
    Z = np.random.default_rng(5).standard_normal((150, 100))
    S = Z.T @ Z / 150
    K = np.linalg.inv(S)
    least = -(K / np.sqrt(np.outer(np.diag(K), np.diag(K)))).max(where=~np.eye(100, dtype=bool), initial=0)
    assert least < -3 / np.sqrt(150 - 100)
    assert doubts.of_negative_correlations(S, 150, np.arange(100)) is None


def test_negative_edges_around_a_third_node():
    """A star whose centre is f: its leaves oppose each other, as after smoothing."""
    star = -np.ones((6, 6)) + np.eye(6)
    star[5, :5] = star[:5, 5] = 1
    told = doubts.of_opposed_edges(star, NAMES)
    assert told.startswith("10 of 10 negative edges join two nodes") and "such as 'a' and 'b' to 'f'" in told
    assert "signed=False" in told
    assert told == doubts.of_opposed_edges(sparse.csr_array(star), NAMES)
    assert doubts.of_opposed_edges(star.clip(0), NAMES) is None
    assert doubts.of_opposed_edges(-star, NAMES) is None, "balanced: two negative edges and a positive one"
    five = np.where(np.add.outer(range(6), range(6)) % 2, star, star.clip(0))  # 6 negative edges, 5 positive ones
    assert doubts.of_opposed_edges(five, NAMES) is None, "one chance in 462"
    many = np.zeros((60, 60))
    a = np.arange(12, 60, 2)
    many[a, a + 1] = 1  # positive edges by themselves
    many[:6, :6] = np.triu(five)
    assert "6 of 6" in doubts.of_opposed_edges(many + many.T, np.arange(60)), "one chance in millions"
    many[0, 1] = many[0, 3] = 0
    assert doubts.of_opposed_edges(many + many.T, np.arange(60)) is None, "four negative edges are few"


def test_a_quarter_of_the_negative_edges_must_be_around_a_third_node():
    """Twenty triangles of two positive edges and a negative one, and other negative edges by themselves."""

    def graph(n_alone):
        A = np.zeros((60 + 2 * n_alone,) * 2)
        a = np.arange(0, 60, 3)
        A[a, a + 1] = A[a + 1, a + 2] = 1
        A[a, a + 2] = -1
        b = np.arange(60, len(A), 2)
        A[b, b + 1] = -1
        return A + A.T

    names = np.arange(200)
    assert doubts.of_opposed_edges(graph(60), names).startswith("20 of 80 negative edges")
    assert doubts.of_opposed_edges(graph(61), names) is None


def test_random_signs_hardly_ever_look_opposed():
    """Neither in sparse graphs nor in dense ones, where every pair has a third node."""
    rng = np.random.default_rng(3)
    raised = []
    for density in (0.1, 0.5) * 50:
        present = np.triu(rng.random((40, 40)) < density, 1)
        A = present * np.where(rng.random((40, 40)) < rng.uniform(0.1, 0.6), -1, 1)
        raised.append(doubts.of_opposed_edges(A + A.T, np.arange(40)) is not None)
    assert np.mean(raised) <= 0.01
