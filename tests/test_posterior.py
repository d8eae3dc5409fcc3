import re
from itertools import product

import numpy as np
import pytest
from scipy import stats

from helpers.beyond import posterior
from helpers.beyond.posterior import (
    LAWS,
    Law,
    State,
    Target,
    all_supports,
    draw_spread,
    draw_state,
    enumerate_supports,
    find_modes,
    mean_weights,
    run_chains,
    sample_law,
    walk,
)

PATH = Law(3, b=2.0, sigma2=0.2)  # three nodes, differences only
SIGNED = Law(3, signed=True, a=2.0)
COUPLE = Law(2, signed=True)  # one pair and the ground of two nodes


def first(law, n_signals, seed):
    observations, w = sample_law(law, 1, n_signals, seed=seed)
    return observations.moments[0].numpy(), w[0].numpy()


def by_quadrature(law, S, n_signals, n_points=22):
    """Probabilities of positive and negative edges, on a product grid of Gauss and Hermite's points, pair by pair."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_points)
    mass = {}
    for signs in product((0, 1, -1) if law.signed else (0, 1), repeat=law.n_pairs):
        k = np.count_nonzero(signs)
        if k < (not law.signed):
            continue
        ground = law.n_nodes if law.signed else 0
        grid = np.stack(np.meshgrid(*[nodes] * (k + ground + 1), indexing="ij"), -1).reshape(-1, k + ground + 1)
        measure = np.prod(np.stack(np.meshgrid(*[weights] * (k + ground + 1), indexing="ij"), -1), -1).ravel()
        w = np.exp(law.spread * grid[:, :-1] + law.unit * grid[:, -1:])
        K = np.zeros((len(grid), law.n_nodes, law.n_nodes)) + (0 if law.signed else law.sigma2) * np.eye(law.n_nodes)
        edges = [(i, j, s) for (i, j), s in zip(np.transpose(np.triu_indices(law.n_nodes, 1)), signs) if s]
        for column, (i, j, s) in zip(w.T, edges, strict=False):
            K[:, i, i] += column
            K[:, j, j] += column
            K[:, i, j] -= s * column
            K[:, j, i] -= s * column
        for i, column in enumerate(w.T[k:]):
            K[:, i, i] += column
        log_likelihood = n_signals / 2 * (np.linalg.slogdet(K)[1] - np.einsum("nij,ij->n", K, S))
        p = stats.beta(law.a, law.b)
        prior = p.expect(lambda x, k=k: x**k * (1 - x) ** (law.n_pairs - k)) / (2**k if law.signed else 1)
        mass[signs] = prior * (measure * np.exp(log_likelihood)).sum() / measure.sum()
    total = sum(mass.values())
    return [sum(z * (np.array(signs) == sign) for signs, z in mass.items()) / total for sign in (1, -1)]


# --- the law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_signals_have_the_precision_matrix_that_the_weights_say(law):
    law = Law(**vars(law) | {"sigma2": 0.5})
    S, w = first(law, 10_000_000, 4)
    K = np.linalg.inv(S)
    assert np.abs(K[np.triu_indices(law.n_nodes, 1)] + w).max() < 0.02 * np.abs(w).max()
    rest = K.sum(1) + 2 * np.bincount(law.ends.ravel(), np.tile(np.minimum(w, 0), 2), law.n_nodes)  # no edge's share
    if law.signed:
        assert rest.min() > 0.05
    else:
        assert rest == pytest.approx(0.5, abs=0.02 * np.abs(w).max())


def test_number_of_edges_signs_and_weights_follow_the_prior():
    law = Law(4, signed=True, a=2.0, b=3.0, spread=0.3, unit=0.8)
    w = sample_law(law, 4000, 1, seed=0)[1].numpy()
    counts = np.bincount((w != 0).sum(1), minlength=7)
    assert stats.chisquare(counts, 4000 * stats.betabinom(6, 2, 3).pmf(np.arange(7))).pvalue > 0.001
    assert stats.binomtest(int((w > 0).sum()), int((w != 0).sum())).pvalue > 0.001
    x = np.log(np.abs(w[:, 0][w[:, 0] != 0]))
    assert stats.kstest(x, stats.norm(0, np.hypot(0.3, 0.8)).cdf).pvalue > 0.001
    both = (w[:, 0] != 0) & (w[:, 1] != 0)
    apart = np.log(np.abs(w[both, 0] / w[both, 1]))
    assert stats.kstest(apart, stats.norm(0, 0.3 * np.sqrt(2)).cdf).pvalue > 0.001


def test_a_graph_without_ground_has_an_edge():
    assert (sample_law(Law(3, b=5.0), 300, 4, seed=0)[1] > 0).any(-1).all()
    assert not (sample_law(Law(3, signed=True, b=5.0), 300, 4, seed=0)[1] != 0).any(-1).all()


def test_log_prior_adds_up_to_the_beta_binomial():
    law = Law(4, signed=True, a=2.0, b=3.0)
    k = np.abs(all_supports(law)).sum(-1)
    prior = np.exp(law.log_prior(k))
    shares = np.bincount(k, prior / prior.sum())
    assert shares == pytest.approx(stats.betabinom(6, 2, 3).pmf(np.arange(7)))
    assert len(k) == 3**6
    assert len(all_supports(Law(5))) == 2**10 - 1
    assert Law(5).log_prior(0) == -np.inf


def test_every_graph_has_its_own_number_of_signals():
    observations, _ = sample_law(PATH, 3, [1, 2, 50], seed=0)
    assert observations.n_signals.tolist() == [1, 2, 50]
    assert np.linalg.matrix_rank(observations.moments.numpy()).tolist() == [1, 2, 3]


# --- all supports --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "n_signals"), [(PATH, 6), (COUPLE, 4)])
def test_enumeration_is_the_quadrature(law, n_signals):
    S = first(law, n_signals, 3)[0] if law is PATH else np.array([[0.7, 0.2], [0.2, 0.4]])
    exact = by_quadrature(law, S, n_signals)
    assert exact[0] == pytest.approx(by_quadrature(law, S, n_signals, 14)[0], abs=1e-3)  # it has converged
    found = enumerate_supports(law, S, n_signals, tolerance=0.001, seed=1)
    assert found.error.max() <= 0.001
    assert np.abs(found.positive - exact[0]).max() < 0.004
    assert np.abs(found.negative - exact[1]).max() < 0.004


def test_integrals_that_make_nine_tenths_of_the_variance_are_drawn_for_again(monkeypatch):
    """Seven equal integrals, hence p = 4/7 for every pair. The error of a graph that lacks a pair counts 16 parts,
    (4/7)^2, that of the full graph 9, (3/7)^2: of 105 parts six times 16 are more than nine tenths, five times not."""
    rounds = []

    def equal(target, mode, curvature, n_draws, rng):
        rounds.append((n_draws, target.signs.tolist()))
        return np.zeros(len(mode)), np.ones(len(mode))

    monkeypatch.setattr(posterior, "integrate", equal)
    found = enumerate_supports(PATH, np.eye(3), 10, tolerance=0.02, seed=0)
    supports = all_supports(PATH).tolist()
    assert rounds[0] == (64, supports)
    n_draws, again = rounds[1]
    assert n_draws == 256
    assert sorted(again) == [signs for signs in supports if signs != [1, 1, 1]]
    assert found.positive == pytest.approx(4 / 7)
    assert found.diagnostics == {"supports": 7, "effective": 0.5}


def test_modes_are_modes_and_curvature_is_minus_the_hessian():
    S, _ = first(SIGNED, 40, 2)
    target = Target(SIGNED, S, 40.0, all_supports(SIGNED))
    mode, curvature = find_modes(target)
    step = 1e-4 * np.eye(mode.shape[-1])
    around = mode[:, None, None] + np.stack([step, -step], 1)[None]
    values = target(around.reshape(len(mode), -1, mode.shape[-1])).reshape(len(mode), -1, 2)
    there = target(mode[:, None])
    assert np.abs(values[..., 0] - values[..., 1]).max() / 2e-4 < 1e-3  # slope
    second = -(values.sum(-1) - 2 * there) / 1e-8
    diagonal = np.diagonal(curvature, 0, -2, -1)
    assert (diagonal > second - 1e-3).all()  # where it differs it is the larger
    assert np.median(np.abs(diagonal - second)) < 0.05


def test_probabilities_hold_on_average():
    """Over draws from the law, the mean of the probabilities is the share of edges, and so in a bin of them."""
    observations, w = sample_law(PATH, 150, 10, seed=5)
    found = [enumerate_supports(PATH, S, 10, tolerance=0.01, seed=1).positive for S in observations.moments]
    p, edge = np.concatenate(found), (w.numpy() > 0).ravel()
    for part in (p < 0.4, (p >= 0.4) & (p < 0.8), p >= 0.8):
        assert part.sum() > 30
        z = (edge[part] - p[part]).sum() / np.sqrt((p * (1 - p))[part].sum())
        assert abs(z) < 3.5


def test_without_signals_the_posterior_is_the_prior():
    found = enumerate_supports(PATH, np.eye(3), 0, tolerance=0.001, seed=0)
    k = np.arange(1, 4)
    law_of_k = stats.betabinom(3, 1, 2).pmf(k)
    assert found.positive == pytest.approx((law_of_k @ k) / law_of_k.sum() / 3, abs=0.004)


def test_renumbered_nodes_have_renumbered_probabilities():
    S, _ = first(PATH, 20, 1)
    order = [2, 0, 1]
    there = enumerate_supports(PATH, S, 20, tolerance=0.001, seed=0).positive
    here = enumerate_supports(PATH, S[np.ix_(order, order)], 20, tolerance=0.001, seed=1).positive
    # pairs (2, 0), (2, 1), (0, 1) of the old numbers
    assert here == pytest.approx(there[[1, 2, 0]], abs=0.006)
    assert np.ptp(there) > 0.05


# --- chains --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "n_signals"), [(SIGNED, 25), (Law(4), 25)])
def test_chains_agree_with_the_enumeration(law, n_signals):
    S, _ = first(law, n_signals, 7)
    chain = run_chains(law, S, n_signals, n_sweeps=10_000, seed=0)
    exact = enumerate_supports(law, S, n_signals, tolerance=0.002, seed=0)
    error = np.hypot(chain.error, exact.error)
    off = np.abs(np.stack([chain.positive - exact.positive, chain.negative - exact.negative]))
    assert (off <= 4 * error + 1e-3).all()
    assert off.max() < 0.03
    assert chain.diagnostics["r_hat"] < 1.01
    assert chain.diagnostics["effective"] > 1000
    assert np.ptp(exact.positive) > 0.1  # so that there is something to agree on
    assert bool(law.signed) == (exact.negative.max() > 0.1)


def test_chains_without_signals_have_the_prior():
    law = Law(4, signed=True, a=2.0, b=3.0)
    found = run_chains(law, np.eye(4), 0, n_sweeps=5000, seed=3)
    for p, error in zip((found.positive, found.negative), found.error):
        assert (np.abs(p - 0.2) < 4 * error).all()
    assert found.error.max() < 0.01
    few = Law(3, b=2.0)
    k = np.arange(1, 4)
    law_of_k = stats.betabinom(3, 1, 2).pmf(k)
    found = run_chains(few, np.eye(3), 0, n_sweeps=5000, seed=3)
    assert (np.abs(found.positive - law_of_k @ k / law_of_k.sum() / 3) < 4 * found.error[0]).all()
    assert not found.negative.any()


@pytest.mark.parametrize("law", [Law(4), Law(4, signed=True)], ids=["differences", "signed"])
def test_chains_start_far_apart_and_forget_it(law, monkeypatch):
    walks = []

    def watch(law, moments, n_signals, state, n_sweeps, n_batches, rng):
        walks.append((state.signs.tolist(), n_sweeps, n_batches))
        return np.zeros((n_batches, 2, law.n_pairs))

    monkeypatch.setattr(posterior, "walk", watch)
    run_chains(law, np.eye(4), 10, n_sweeps=1000, seed=0)
    from_prior = [
        draw_state(law, np.random.default_rng(child)).signs.tolist() for child in np.random.SeedSequence(0).spawn(4)
    ]
    starts = [[0 if law.signed else 1, 0, 0, 0, 0, 0], [1] * 6, *from_prior[2:]]
    assert [signs for signs, _, _ in walks[::2]] == starts
    assert [how for _, *how in walks] == 4 * [[200, 1], [1000, 25]]


def test_standard_errors_are_those_of_repeated_chains():
    S, _ = first(PATH, 10, 1)
    found = [run_chains(PATH, S, 10, n_sweeps=5000, n_chains=2, seed=k) for k in range(40)]
    spread = np.std([f.positive for f in found], axis=0, ddof=1)
    claimed = np.mean([f.error[0] for f in found], axis=0)
    assert ((spread / claimed > 0.6) & (spread / claimed < 1.6)).all()


def test_moves_can_be_left_out():
    S, _ = first(PATH, 10, 1)
    rng = np.random.default_rng(0)
    state = draw_state(PATH, rng)
    state.signs[:] = (1, 0, 0)
    stuck = walk(PATH, S, 10, state, 100, 1, rng, moves=(False, True, False, True))
    assert stuck[0, 0].tolist() == pytest.approx([1, 0, 0])


def test_chains_that_disagree_are_found_out(monkeypatch):
    """Without births and deaths every chain keeps the number of edges that it started with."""
    S, _ = first(PATH, 10, 1)
    assert run_chains(PATH, S, 10, n_sweeps=2000, seed=0).diagnostics["r_hat"] < 1.02
    monkeypatch.setattr(walk, "__defaults__", ((False, True, True, True),))
    assert run_chains(PATH, S, 10, n_sweeps=2000, seed=0).diagnostics["r_hat"] > 1.2


def test_a_chain_goes_on_from_its_state():
    S, _ = first(SIGNED, 10, 1)
    rng = np.random.default_rng(0)
    state = draw_state(SIGNED, rng)
    before = State(*(a.copy() for a in state))
    shares = walk(SIGNED, S, 10, state, 50, 5, rng)
    assert shares.shape == (5, 2, 3)
    assert ((shares.sum(1) >= 0) & (shares.sum(1) <= 1 + 1e-9)).all()
    assert not np.array_equal(before.x, state.x)
    assert not np.array_equal(before.log_unit, state.log_unit)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"moments has shape \(4, 4\): .* 3 nodes"):
        enumerate_supports(PATH, np.eye(4), 10, seed=0)
    with pytest.raises(ValueError, match=r"moments .* finite"):
        run_chains(PATH, np.full((3, 3), np.nan), 10, n_sweeps=1000, seed=0)
    for size in (1e100, 1e308):
        with pytest.raises(ValueError, match=re.escape(f"moments up to {size:.0e}")):
            enumerate_supports(PATH, size * np.eye(3), 10, seed=0)
    with pytest.raises(ValueError, match="n_sweeps=20: 2 chains of 125 sweeps"):
        run_chains(PATH, np.eye(3), 10, n_sweeps=20, seed=0)


def test_mean_weights_are_those_of_all_supports():
    """Three nodes: the mean over supports of the importance-sampled means of their weights."""
    law = Law(3, sigma2=0.2)
    observations, _ = sample_law(law, 1, 30, seed=3)
    S = observations.moments[0].numpy()
    target = Target(law, S, 30.0, all_supports(law))
    theta = np.random.default_rng(0).standard_normal((1, 200_000, 4))
    draws = np.repeat(theta, len(target.signs), 0)
    values = target(draws) + (draws**2).sum(-1) / 2  # draws are from the prior of theta
    mass = np.exp(values - values.max())
    expected = (target.weights(draws) * mass[..., None]).sum((0, 1)) / mass.sum()
    found = mean_weights(law, S, 30.0, np.ones(3), n_sweeps=20_000, seed=1)
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.mean(0), expected, rtol=0.05, atol=0.02)
    np.testing.assert_allclose(found[0], found[1], rtol=0.1, atol=0.03)
    again = mean_weights(law, S, 30.0, np.ones(3), n_sweeps=20_000, seed=1)
    np.testing.assert_array_equal(found, again)
    other = Law(3, sigma2=0.2, spread=3.0)  # but there is one value only that it may have
    one = mean_weights(other, S, 30.0, np.ones(3), n_sweeps=20_000, spreads=np.array([law.spread]), seed=2)
    np.testing.assert_allclose(one.mean(0), expected, rtol=0.05, atol=0.02)


def test_the_first_sweeps_do_not_count(monkeypatch):
    """A chain whose weight is its number of strides so far: those before the first that counts leave no trace."""
    strides = []

    def walk(law, S, n_signals, state, n_sweeps, n_batches, rng):
        strides.append(n_sweeps)
        state.signs[:] = 1
        state.x[:] = np.log(len(strides))

    monkeypatch.setattr(posterior, "walk", walk)
    found = mean_weights(Law(3), np.eye(3), 30.0, np.ones(3), n_sweeps=80, stride=4, seed=0)
    assert strides == [4] * 2 * (5 + 20)
    np.testing.assert_allclose(found[0], np.mean(range(6, 26)))


def test_a_spread_is_drawn_as_often_as_it_is_probable():
    """Given 3 of 5 weights, whose logarithms are normal around the unit; the others are absent and say nothing."""
    spreads = np.array([0.3, 0.6, 1.5])
    state = State(np.array([1, 0, 1, 0, -1]), np.array([0.2, 9.0, -0.5, -9.0, 1.0]), np.array([0.1]))
    likelihood = np.prod([stats.norm.pdf(x, 0.1, spreads) for x in (0.2, -0.5, 1.0)], axis=0)
    rng = np.random.default_rng(0)
    drawn = [draw_spread(state, spreads, rng) for _ in range(4000)]
    shares = [np.mean(np.equal(drawn, s)) for s in spreads]
    np.testing.assert_allclose(shares, likelihood / likelihood.sum(), atol=0.03)
