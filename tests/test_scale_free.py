"""Power-law fits against numerical maximisation, their draws against the law, their tests against known samples."""

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import optimize, stats
from scipy.spatial.distance import squareform
from scipy.special import zeta

from helpers.experiments import scale_free
from helpers.experiments.scale_free import PowerLaws, draw_power_law, fit_power_laws, ks_pvalue, ks_score
from helpers.graphs import degrees

RANGE = (1.001, 100)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_graphs(*shape):
    return torch.from_numpy((np.random.default_rng(1).random((*shape, 45)) < 0.3).astype(float))


# --- fits ----------------------------------------------------------------------------------------------------------


def slow_fit(x, low=1.001, high=100):
    """Discrete fit by numerical maximisation and by the distance over all integers up to the maximum."""
    fits = []
    for xmin in np.unique(x)[:-1]:
        tail = x[x >= xmin]

        def loss(alpha, tail=tail, xmin=xmin):
            return len(tail) * np.log(zeta(alpha, xmin)) + alpha * np.log(tail).sum()

        alpha = optimize.minimize_scalar(loss, bounds=(low, high), options={"xatol": 1e-9}).x
        k = np.arange(xmin, x.max() + 1)
        below = 1 - zeta(alpha, k + 1) / zeta(alpha, xmin)
        fits.append((np.abs(below - (tail <= k[:, None]).mean(1)).max(), xmin, alpha, len(tail)))
    return min(fits)


@pytest.mark.parametrize("high", [100, 3])
def test_discrete_fit_is_the_one_by_numerical_maximisation(high, rng):
    x = np.stack([rng.zipf(a, 40).clip(max=90) for a in (1.8, 2.5, 3.5)] + [rng.binomial(19, 0.3, 40) + 1])
    fits = np.stack(fit_power_laws(x.astype(float), (1.001, high)), 1)
    np.testing.assert_allclose(fits, [slow_fit(row, high=high) for row in x], rtol=1e-4)


def test_continuous_fit_is_that_of_exact_ks(rng):
    x = rng.integers(3, 12, 20).astype(float)
    (D,), (xmin,), (alpha,), (n_tail,) = fit_power_laws(x[None], RANGE, discrete=False)
    tail = x[x >= xmin]
    test = stats.ks_1samp(tail, stats.pareto(alpha - 1, scale=xmin).cdf, method="exact")
    assert alpha == pytest.approx(1 + n_tail / np.log(tail / xmin).sum())
    assert (D, n_tail) == pytest.approx((test.statistic, len(tail)))
    assert ks_pvalue(x, seed=0, method="continuous") == pytest.approx(test.pvalue)


def test_samples_do_not_see_each_other(rng):
    x = rng.zipf(2.2, (30, 25)).astype(float)
    together = np.stack(fit_power_laws(x, RANGE), 1)
    alone = [np.concatenate(fit_power_laws(row[None], RANGE)) for row in x]
    np.testing.assert_array_equal(together, alone)


def test_one_value_repeated_has_no_tail():
    fits = fit_power_laws(np.array([[3.0, 3, 3, 3], [1, 2, 2, 5]]), RANGE)
    assert fits.D[0] == 0 < fits.D[1]
    assert np.isnan([fits.xmin[0], fits.alpha[0], fits.n_tail[0]]).all()
    assert fits.n_tail[1] in (3, 4)
    assert fit_power_laws(np.full((2, 3), 7.0), RANGE).D.tolist() == [0, 0]


def test_a_large_xmin_has_the_rounded_continuous_law():
    """Beyond 100 the closed form stands in for the zeta function; at 99 and 101 the two nearly agree."""
    x = np.round(101 * (1 - np.random.default_rng(0).random(3000)) ** (-1 / 1.5))
    far = fit_power_laws(x[None], RANGE)
    assert far.xmin[0] >= 100
    near = fit_power_laws(np.round(x[None] * 99 / far.xmin[0]), RANGE)
    assert far.alpha[0] == pytest.approx(2.5, abs=0.15)
    assert near.alpha[0] == pytest.approx(far.alpha[0], rel=0.03)
    tail = x[x >= far.xmin[0]]
    closed = 1 + 1 / np.log(tail / (far.xmin[0] - 0.5)).mean()  # Clauset et al., Eq. (3.7)
    assert far.alpha[0] == pytest.approx(closed)
    k = np.unique(tail)
    survival = ((k - 0.5) / (far.xmin[0] - 0.5)) ** (1 - closed)
    after = ((k + 0.5) / (far.xmin[0] - 0.5)) ** (1 - closed)
    at = (tail >= k[:, None]).mean(1)
    beyond = (tail > k[:, None]).mean(1)
    assert far.D[0] == pytest.approx(max(np.abs(at - survival).max(), np.abs(beyond - after).max()))


def test_alpha_stays_within_its_range():
    steep = np.array([[200.0] * 50 + [201]])
    assert fit_power_laws(steep, (1.001, 20)).alpha == 20
    flat = np.array([[1.0, 1e6]])
    assert fit_power_laws(flat, (1.5, 3)).alpha == pytest.approx(1.5)


@pytest.mark.parametrize("xmin, alpha", [(1, 1.5), (3, 2.5), (7, 20), (150, 2.5)])
def test_draws_have_the_power_laws_survival_function(xmin, alpha):
    x = draw_power_law(np.random.default_rng(1), 100_000, xmin, alpha)
    k = np.unique(np.geomspace(xmin, 10_000 * xmin, 60).astype(int)).astype(float)
    expected = zeta(alpha, k) / zeta(alpha, xmin)
    np.testing.assert_allclose((x >= k[:, None]).mean(1), expected, atol=5e-3)
    assert (x == np.floor(x)).all() and x.min() == xmin


def test_draws_beyond_the_table_have_the_same_law():
    x = draw_power_law(np.random.default_rng(1), 100_000, 2, 1.5, n_table=20)
    k = np.array([21.0, 25, 40, 100, 1000, 1e5])
    np.testing.assert_allclose((x >= k[:, None]).mean(1), zeta(1.5, k) / zeta(1.5, 2), rtol=0.03)
    assert draw_power_law(np.random.default_rng(1), 1000, 1, 1.001).max() == 1e15  # as far as integers are exact


# --- tests ---------------------------------------------------------------------------------------------------------


def test_bootstrap_p_is_uniform_for_a_power_law(rng):
    x = rng.zipf(2.5, (150, 150))
    p = ks_pvalue(x, seed=1, n_resamples=40)
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert 0.87 < (p > 0.05).double().mean() < 1  # 0.95, or 0.93 with 40 resamples


@pytest.mark.parametrize("method", scale_free.METHODS)
def test_ks_rejects_poisson_degrees_when_alpha_is_bounded(method, rng):
    options = {"seed": 0, "method": method, "alpha_range": (1, 3), "n_resamples": 100}
    assert ks_pvalue(rng.poisson(10, 500), **options) < 0.01


def test_bootstrap_rejects_uniform_degrees_but_lets_poisson_pass_when_alpha_is_free(rng):
    assert ks_pvalue(rng.integers(1, 31, 1000), seed=0, n_resamples=100) < 0.01
    assert ks_pvalue(rng.poisson(10, 1000), seed=0, n_resamples=100) > 0.05  # the far tail: a warning, not a virtue
    assert ks_pvalue(rng.zipf(2.5, 300), seed=0, alpha_range=(1, 3)) > 0.05


def test_resamples_keep_the_degrees_below_xmin():
    """Degrees of 1 and 2 in turn, and a true power law from 20 on: a law, but not from 1 on."""
    x = np.r_[np.tile([1, 2], 100), draw_power_law(np.random.default_rng(0), 100, 20, 2.5)]
    assert fit_power_laws(x[None].astype(float), RANGE).xmin == pytest.approx(20, abs=3)
    assert ks_pvalue(x, seed=0, n_resamples=50) > 0.05


@pytest.mark.parametrize("method", scale_free.METHODS)
def test_ks_is_reproducible_quiet_and_a_share(method, capfd, recwarn):
    a = random_graphs(2, 3)
    options = {"seed": 3, "method": method, "n_resamples": 50}
    d = degrees(a)
    p = ks_pvalue(d, **options)
    assert p.shape == (2, 3)
    torch.testing.assert_close(ks_pvalue(d, **options), p, equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(ks_pvalue(d[1, 2], **options), p[1, 2], equal_nan=True)
    torch.testing.assert_close(ks_pvalue(d.flip(-1), **options), p, equal_nan=True)
    padded = torch.cat([d, torch.zeros(2, 3, 4)], -1)  # isolated nodes take no part
    torch.testing.assert_close(ks_pvalue(padded, **options), p, equal_nan=True)
    assert ks_score(a, **options) == (p > 0.05).double().mean()
    assert not recwarn.list and capfd.readouterr() == ("", "")


def test_a_resample_of_the_same_distance_is_a_tie_whatever_the_rounding(monkeypatch):
    one = np.ones(1)
    resampled = 0.25 + np.array([-1e-14, 1e-14, -1e-9, 0.1])
    fits = iter([PowerLaws(0.25 * one, one, 2 * one, 4 * one), PowerLaws(resampled, *[np.ones(4)] * 3)])
    monkeypatch.setattr(scale_free, "fit_power_laws", lambda x, alpha_range: next(fits))
    assert ks_pvalue([1, 1, 2, 3], seed=0, n_resamples=4) == 0.75


def test_seed_and_number_of_resamples_are_used():
    d = [1, 1, 2, 3, 3, 4, 7, 8]
    assert ks_pvalue(d, seed=0) != ks_pvalue(d, seed=1)
    assert ks_pvalue(d, seed=0, n_resamples=1) in (0, 1)
    assert (ks_pvalue(d, seed=0) * 200) % 1 == pytest.approx(0, abs=1e-9)


def test_ks_needs_distinct_degrees():
    regular = squareform(nx.to_numpy_array(nx.cycle_graph(10)))
    star = squareform(nx.to_numpy_array(nx.star_graph(9)))
    assert ks_score(regular, seed=0) == 0
    assert ks_score(torch.zeros(2, 45), seed=0) == 0
    assert ks_pvalue([2, 2, 2, 0], seed=0).isnan()
    assert ks_score(star, seed=0) == 1  # two distinct degrees suffice
    assert ks_pvalue([1, 1, 2, 2, 3], seed=0, method="powerlaw").isnan()  # the package wants four


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ks_pvalue([1, 2], seed=0, method="igraph"), "method='igraph'"),
        (lambda: ks_pvalue([1, 2], seed=0, n_resamples=0), "n_resamples=0"),
        (lambda: ks_pvalue([1, 2], seed=0, alpha_range=(0, 3)), r"alpha_range=\(0, 3\)"),
        (lambda: ks_pvalue([1, 2], seed=0, alpha_range=(3, 3)), r"alpha_range=\(3, 3\)"),
        (lambda: ks_pvalue([1, 2], seed=0, alpha_range=(1, 1.001)), r"alpha_range=\(1, 1.001\)"),
        (lambda: ks_pvalue([1, 2], seed=0, alpha_range=(1, 151)), r"alpha_range=\(1, 151\).* 150"),
        (lambda: ks_pvalue([1, 2.5], seed=0), "degrees has"),
        (lambda: ks_pvalue([1, -2], seed=0), "degrees has"),
        (lambda: ks_score(np.full(45, 0.5), seed=0), "only 0 and 1"),
        (lambda: ks_score(random_graphs(3)[:, 1:], seed=0), "44"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_widest_range_is_allowed():
    assert 0 <= ks_pvalue([1, 2, 3, 5], seed=0, n_resamples=9, alpha_range=(1, 150)) <= 1
