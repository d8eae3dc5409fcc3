"""Half-vectors and their operators against SciPy and networkx; the random families against their laws."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joblib import parallel_config
from scipy import stats
from scipy.spatial.distance import squareform

from helpers.graphs import (
    FAMILIES,
    GRAPHS_PER_SEED,
    all_pairs,
    count_nodes,
    degrees,
    degrees_adjoint,
    differences,
    family_parameters,
    laplacian,
    renumber,
    sample_graphs,
    spawn,
    to_matrix,
    to_vector,
)

shapes = st.tuples(st.integers(3, 9), st.integers(0, 2), st.integers(0, 2**32 - 1))


def random_vector(m, n_batch, seed):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((*rng.integers(1, 4, n_batch), m * (m - 1) // 2)))


# --- half-vectors and matrices -------------------------------------------------------------------------------------


@given(shapes)
def test_squareform_round_trip(shape):
    w = random_vector(*shape)
    W = to_matrix(w)
    assert torch.equal(to_vector(W), w)
    one = w.reshape(-1, w.shape[-1])[0]
    np.testing.assert_array_equal(to_matrix(one).numpy(), squareform(one.numpy()))


def test_pairs_are_in_squareform_order():
    assert all_pairs(4).tolist() == [[0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]]


@given(shapes)
def test_degree_operator_and_adjoint(shape):
    w = random_vector(*shape)
    v = torch.from_numpy(np.random.default_rng(shape[2]).standard_normal((*w.shape[:-1], shape[0])))
    torch.testing.assert_close((degrees(w) * v).sum(-1), (w * degrees_adjoint(v)).sum(-1))
    torch.testing.assert_close(degrees(w), to_matrix(w).sum(-1))


@given(st.integers(3, 9), st.integers(0, 2**32 - 1))
def test_candidate_edges_restrict_the_complete_graph(m, seed):
    keep = torch.from_numpy(np.random.default_rng(seed).random(m * (m - 1) // 2) < 0.5)
    edges = all_pairs(m)[:, keep]
    w = random_vector(m, 1, seed) * keep
    v = random_vector(m + 1, 1, seed)[:, :m]
    S = to_matrix(random_vector(m, 1, seed)) + torch.diag_embed(v[:1])
    torch.testing.assert_close(degrees(w[:, keep], edges, m), degrees(w))
    torch.testing.assert_close(degrees_adjoint(v, edges), degrees_adjoint(v)[:, keep])
    torch.testing.assert_close(laplacian(w[:, keep], edges, m), laplacian(w))
    torch.testing.assert_close(differences(S, edges), differences(S)[:, keep])


def test_laplacian_is_networkx_laplacian():
    w = sample_graphs("ER", 1, 12, seed=3, dtype=torch.float64)[0]
    graph = nx.from_numpy_array(to_matrix(w).numpy())
    np.testing.assert_allclose(laplacian(w).numpy(), nx.laplacian_matrix(graph).toarray(), atol=1e-14)


def test_differences_of_the_inverse_laplacian_are_resistances():
    graph = nx.cycle_graph(5)  # between neighbours 1 and 4 resistors in parallel, otherwise 2 and 3
    L = torch.from_numpy(nx.laplacian_matrix(graph).toarray().astype(float))
    i, j = all_pairs(5)
    hops = torch.minimum(j - i, 5 - (j - i))
    torch.testing.assert_close(differences(torch.linalg.pinv(L)), hops * (5 - hops) / 5.0, check_dtype=False)


@pytest.mark.parametrize("n_edges", [0, 1, 2, 4, 189, 191])
def test_wrong_length_is_refused(n_edges):
    with pytest.raises(ValueError, match=f"n_edges={n_edges}"):
        count_nodes(n_edges)


def test_nodes_are_counted():
    assert [count_nodes(m * (m - 1) // 2) for m in (3, 4, 20, 1_000_003)] == [3, 4, 20, 1_000_003]


def test_renumbering_is_isomorphism_and_can_be_undone():
    w = sample_graphs("BA", 3, 9, seed=0)
    order = torch.tensor([4, 2, 8, 0, 1, 7, 3, 6, 5])
    assert torch.equal(renumber(renumber(w, order), order.argsort()), w)
    assert torch.equal(to_matrix(renumber(w, order))[:, 0, 2], to_matrix(w)[:, 4, 8])


# --- random families -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_follow_the_protocol(family):
    w = sample_graphs(family, 300, 20, seed=0, dtype=torch.float64)
    torch.testing.assert_close(degrees(w).mean(-1), torch.ones(300, dtype=torch.float64))
    # the mean of two lognormal(0, 0.1) has a relative spread of 0.1 / sqrt(2); rescaling adds little
    relative = (w / (w.sum(1) / (w > 0).sum(1))[:, None])[w > 0]
    assert abs(relative.std() - 0.0709) < 0.002
    assert torch.isfinite(relative).all()
    binary = sample_graphs(family, 300, 20, seed=0, weighted=False)
    assert binary.dtype == torch.float32
    assert set(binary.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(binary > 0, w > 0)


def test_an_empty_graph_stays_empty():
    w = sample_graphs("ER", 3, 5, seed=0, p=0)
    assert torch.equal(w, torch.zeros(3, 10))


def test_families_have_their_edges():
    assert ((sample_graphs("BA", 50, 20, seed=0) > 0).sum(1) == 3 + 3 * 16).all()
    assert ((sample_graphs("WS", 50, 20, seed=0) > 0).sum(1) == 40).all()
    assert abs((sample_graphs("ER", 500, 20, seed=0) > 0).float().mean() - 0.2) < 0.005
    blocks = to_matrix(sample_graphs("SBM", 300, 20, seed=0)) > 0
    assert (blocks[:, :10, 10:].sum((1, 2)) == 2).all()
    assert abs(blocks[:, :10, :10].float().sum((1, 2)).mean() / 90 - 0.6) < 0.01
    assert (
        (to_matrix(sample_graphs("SBM", 5, 31, seed=0)) > 0)[:, :16, 16:].sum((1, 2)) == 3
    ).all()  # the odd node first


def test_the_oldest_nodes_of_a_scale_free_graph_come_first():
    W = to_matrix(sample_graphs("BA", 5, 8, seed=0, n_attach=2)) > 0
    assert W[:, 2, :2].all() and not W[:, 0, 1].any()  # node 2 joins the seeds, which are not joined to each other


def test_block_model_takes_sizes_and_probabilities():
    w = sample_graphs("SBM", 200, 12, seed=0, sizes=(2, 4, 6), p_in=1.0, p_out=0.1)
    W = to_matrix(w) > 0
    assert W[:, 2:6, 2:6].sum((1, 2)).eq(12).all()
    assert abs(W[:, :2, 2:].float().mean() - 0.1) < 0.02
    chosen = to_matrix(sample_graphs("SBM", 500, 8, seed=0, n_inter=1)) > 0
    assert (chosen[:, :4, 4:].float().mean(0) - 1 / 16).abs().max() < 0.04  # every pair is as likely


def emulated_barabasi_albert(m, n_attach, rng):
    """Preferential attachment as networkx before 2.6 wrote it, one graph at a time: the oracle for ours."""
    graph = nx.empty_graph(n_attach)
    targets, repeated = list(range(n_attach)), []
    for source in range(n_attach, m):
        graph.add_edges_from((source, t) for t in targets)
        repeated += targets + [source] * n_attach
        targets = set()
        while len(targets) < n_attach:
            targets.add(int(rng.choice(repeated)))
        targets = list(targets)
    return graph


def test_barabasi_albert_law():
    rng = np.random.default_rng(0)
    oracle = np.array([[d for _, d in emulated_barabasi_albert(12, 2, rng).degree()] for _ in range(1000)])
    ours = (to_matrix(sample_graphs("BA", 1000, 12, seed=1, n_attach=2)) > 0).sum(-1).numpy()
    for node in range(12):
        assert stats.ks_2samp(oracle[:, node], ours[:, node]).pvalue > 1e-3


def test_large_scale_free_graphs_have_hubs():
    d = (to_matrix(sample_graphs("BA", 8, 400, seed=0)) > 0).sum(-1).double().mean(0)
    assert d[200:].mean() == pytest.approx(3.515, abs=0.1)  # node i has about 3 sqrt(m / i) neighbours
    assert d[50:70].mean() == pytest.approx(3 * (400 / 60) ** 0.5, rel=0.2)


def test_watts_strogatz_law():
    oracle = [nx.watts_strogatz_graph(20, 4, 0.2, seed=s) for s in range(400)]
    ours = [nx.from_numpy_array((W > 0).numpy().astype(int)) for W in to_matrix(sample_graphs("WS", 400, 20, seed=1))]
    for statistic in (nx.average_clustering, nx.global_efficiency):
        a, b = ([statistic(g) for g in graphs] for graphs in (oracle, ours))
        assert stats.ks_2samp(a, b).pvalue > 1e-3


def test_rewiring_takes_any_new_node_but_no_loop_and_no_double_edge():
    lattice = sample_graphs("WS", 2, 12, seed=0, p=0, k=4) > 0
    i, j = all_pairs(12)
    assert (lattice == (torch.minimum(j - i, 12 - (j - i)) <= 2)).all()
    complete = sample_graphs("WS", 20, 5, seed=0, p=1, k=4) > 0  # nowhere to go
    assert complete.all()
    rewired = to_matrix(sample_graphs("WS", 4000, 9, seed=0, p=1, k=2)) > 0
    assert (rewired.sum((1, 2)) == 18).all()
    first_move = rewired[:, 0].float().mean(0)  # edge (0, 1) goes anywhere but to 0, 1 and 8
    assert first_move[2:8].std() < 0.03


# --- seeds and parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_number_of_workers_does_not_matter(family):
    n = 2 * GRAPHS_PER_SEED + 88
    alone = sample_graphs(family, n, 12, seed=5, shuffle=True)
    assert len(alone) == n
    with parallel_config("threading"):  # which start at once
        assert torch.equal(alone, sample_graphs(family, n, 12, seed=5, shuffle=True, n_jobs=2))
    assert not torch.equal(alone, sample_graphs(family, n, 12, seed=6, shuffle=True))
    assert torch.equal(alone[:GRAPHS_PER_SEED], sample_graphs(family, GRAPHS_PER_SEED, 12, seed=5, shuffle=True))


@pytest.mark.parametrize(
    "family, heaviest, weight", [("BA", 19, 0.26277), ("ER", 16, 0.553195), ("SBM", 4, 0.417314), ("WS", 40, 0.273014)]
)
def test_random_numbers_are_those_the_checkpoints_were_trained_on(family, heaviest, weight):
    last = sample_graphs(family, 300, 10, seed=7, shuffle=True, dtype=torch.float64)[-1]
    assert (last.argmax().item(), last.max().item()) == (heaviest, pytest.approx(weight, abs=1e-6))


def test_spawned_seeds_repeat():
    parent = np.random.SeedSequence((1, 2)).spawn(3)[1]
    first, second = spawn(parent, 2), spawn(parent, 2)
    assert [s.generate_state(2).tolist() for s in first] == [s.generate_state(2).tolist() for s in second]
    assert first[0].generate_state(1) != first[1].generate_state(1) != spawn(7, 2)[1].generate_state(1)
    states = [np.random.SeedSequence(7).spawn(1)[0].generate_state(2), spawn(7, 1)[0].generate_state(2)]
    np.testing.assert_array_equal(*states)


def test_shuffled_ids_are_the_same_graphs_renumbered():
    kept, shuffled = (sample_graphs("BA", 400, 10, seed=2, shuffle=s) for s in (False, True))
    assert ((kept > 0).sum(1) == (shuffled > 0).sum(1)).all()
    by_node = (to_matrix(shuffled) > 0).float().sum(-1).mean(0)
    assert by_node.std() < 0.15  # in generator order the first hub stands out
    assert (to_matrix(kept) > 0).float().sum(-1).mean(0).std() > 0.8
    degree_sequences = [(to_matrix(w) > 0).sum(-1).sort(-1).values for w in (kept, shuffled)]
    assert torch.equal(*degree_sequences)


def test_parameters_are_told_with_their_defaults():
    assert family_parameters("BA") == {"n_attach": 3}
    assert family_parameters("ER", p=0.4) == {"p": 0.4}
    assert family_parameters("SBM", p_in=0.7) == {"sizes": None, "p_in": 0.7, "p_out": None, "n_inter": None}
    assert family_parameters("WS") == {"k": 4, "p": 0.2}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"family": "XX"}, "family='XX'"),
        ({"family": "BA", "p": 0.1}, "p: the family BA has the parameters n_attach"),
        ({"n_nodes": 2}, "n_nodes=2"),
        ({"n_graphs": 0}, "n_graphs=0"),
        ({"family": "ER", "p": 1.5}, "p=1.5"),
        ({"family": "ER", "p": -0.1}, "p=-0.1"),
        ({"family": "BA", "n_attach": 10}, "n_attach=10"),
        ({"family": "BA", "n_attach": 0}, "n_attach=0"),
        ({"family": "WS", "k": 1}, "k=1"),
        ({"family": "WS", "k": 10}, "k=10"),
        ({"family": "WS", "p": 2}, "p=2"),
        ({"family": "SBM", "sizes": (3, 3)}, "sizes="),
        ({"family": "SBM", "p_out": 1.1}, "p_out=1.1"),
        ({"family": "SBM", "n_inter": 26}, "n_inter=26"),
        ({"family": "SBM", "n_inter": -1}, "n_inter=-1"),
    ],
)
def test_bad_input_names_the_argument(arguments, named):
    with pytest.raises(ValueError, match=named):
        sample_graphs(**{"family": "BA", "n_graphs": 2, "n_nodes": 10, "seed": 0} | arguments)


def test_the_smallest_and_fullest_graphs_are_allowed():
    assert sample_graphs("ER", 1, 3, seed=0, p=1.0).shape == (1, 3)
    assert (sample_graphs("BA", 1, 5, seed=0, n_attach=4)[0] > 0).sum() == 4  # a star
    assert (sample_graphs("BA", 1, 5, seed=0, n_attach=1)[0] > 0).sum() == 4  # a tree
    assert (sample_graphs("SBM", 1, 4, seed=0, p_in=1.0, n_inter=4)[0] > 0).all()
