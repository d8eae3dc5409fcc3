"""Every kind of move must leave the posterior as it is. Graphs and signals that are drawn from the law and moved then
still follow it, jointly: each statistic of both has the same mean as before."""

import numpy as np
import pytest

from helpers.beyond.posterior import Law, State, draw_graphs, walk
from helpers.engine import jumps

LAWS = {
    "signed": Law(4, signed=True, a=2.0, b=3.0, spread=0.6),
    "differences": Law(4, a=1.0, b=1.5, sigma2=0.1, unit=0.7),
}
MOVES = {
    "births and deaths": (True, False, False, False),
    "weights": (False, True, False, False),
    "edges that move": (False, False, True, False),
    "the unit": (False, False, False, True),
    "all": (True, True, True, True),
}
N_SIGNALS = 3
N_REPEATS = 1500


def precision(law, signs, x):
    """K of many graphs, (n, m, m)."""
    u = np.eye(law.n_nodes)[law.ends[0]] - signs[..., None] * np.eye(law.n_nodes)[law.ends[1]]
    K = np.einsum("ne,nei,nej->nij", np.exp(x[:, : law.n_pairs]) * (signs != 0), u, u)
    diagonal = np.exp(x[:, law.n_pairs :]) if law.signed else np.full((len(K), law.n_nodes), law.sigma2)
    return K + diagonal[..., None] * np.eye(law.n_nodes)


def statistics(law, signs, x, log_unit, S):
    """Of graphs and signals, (n, 12): edges, fit, log-determinant, log-weights, unit, signs, distances, degrees."""
    K = precision(law, signs, x)
    here = np.hstack([signs != 0, np.ones((len(x), x.shape[1] - law.n_pairs))])
    mean = (here * x).sum(1) / here.sum(1)
    diagonal = np.diagonal(S, 0, 1, 2)
    between = S[:, *law.ends]
    apart = diagonal[:, law.ends[0]] + diagonal[:, law.ends[1]] - 2 * between
    at = (np.eye(law.n_nodes)[law.ends[0]] + np.eye(law.n_nodes)[law.ends[1]]).T
    columns = [
        np.abs(signs).sum(1),
        np.log(np.einsum("nij,nij->n", K, S)),
        np.linalg.slogdet(K)[1],
        mean,
        (here * (x - mean[:, None]) ** 2).sum(1),
        log_unit[:, 0],
        log_unit[:, 0] ** 2,
        (here * (x - log_unit) ** 2).sum(1),
        signs.sum(1),
        (np.abs(signs) * np.log(apart)).sum(1),
        (signs * between).sum(1) / diagonal.sum(1),
        (np.abs(signs) @ at.T).var(1),
    ]
    return np.stack(columns, 1)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_a_move_keeps_the_joint_law_of_graphs_and_signals(law, moves):
    rng = np.random.default_rng(11)
    state = draw_graphs(law, N_REPEATS, rng)
    F = np.linalg.cholesky(np.linalg.inv(precision(law, *state[:2])))
    X = rng.standard_normal((N_REPEATS, N_SIGNALS, law.n_nodes)) @ F.swapaxes(1, 2)
    S = X.swapaxes(1, 2) @ X / N_SIGNALS
    before = statistics(law, *state, S)
    for single, moments in zip(map(State, *state), S, strict=True):
        walk(law, moments, N_SIGNALS, single, 2, 1, rng, moves)
    change = statistics(law, *state, S) - before
    spread = change.std(0, ddof=1)
    changed = spread > 1e-9
    assert changed.sum() >= 3
    z = change.mean(0)[changed] / spread[changed] * np.sqrt(N_REPEATS)
    assert np.abs(z).max() < 4


def test_updates_are_those_of_the_inverse():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((5, 5))
    K = A @ A.T + np.eye(5)
    S = A.T @ A
    for i, j, sign in ((0, 3, 1), (1, 2, -1), (4, 4, 0)):
        u = np.eye(5)[i] - sign * np.eye(5)[j]
        C = np.linalg.inv(K)
        new = K + 0.7 * np.outer(u, u)
        gain = 6 * (np.linalg.slogdet(new)[1] - np.linalg.slogdet(K)[1] - np.trace((new - K) @ S))
        assert jumps._gain(S, C, 6.0, i, j, sign, 0.7) == pytest.approx(gain)
        jumps._update(C, i, j, sign, 0.7)
        assert C == pytest.approx(np.linalg.inv(new))
