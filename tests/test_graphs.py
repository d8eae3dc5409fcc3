import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import squareform

from helpers.graphs import (
    FAMILIES,
    degrees,
    degrees_adjoint,
    edges,
    laplacian,
    n_nodes,
    renumber,
    sample_graphs,
    to_matrix,
    to_vector,
)

shapes = st.tuples(st.integers(3, 9), st.integers(0, 2), st.integers(0, 2**32 - 1))


def random_vector(m, n_batch, seed):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((*rng.integers(1, 4, n_batch), m * (m - 1) // 2)))


@given(shapes)
def test_squareform_round_trip(shape):
    w = random_vector(*shape)
    W = to_matrix(w)
    assert torch.equal(to_vector(W), w)
    one = w.reshape(-1, w.shape[-1])[0]
    np.testing.assert_array_equal(to_matrix(one).numpy(), squareform(one.numpy()))


@given(shapes)
def test_degree_operator_and_adjoint(shape):
    w = random_vector(*shape)
    v = torch.from_numpy(np.random.default_rng(shape[2]).standard_normal((*w.shape[:-1], shape[0])))
    torch.testing.assert_close((degrees(w) * v).sum(-1), (w * degrees_adjoint(v)).sum(-1))
    torch.testing.assert_close(degrees(w), to_matrix(w).sum(-1))


@given(st.integers(3, 9), st.integers(0, 2**32 - 1))
def test_candidate_edges_restrict_the_complete_graph(m, seed):
    keep = torch.from_numpy(np.random.default_rng(seed).random(m * (m - 1) // 2) < 0.5)
    listed = edges(m)[:, keep]
    w = random_vector(m, 1, seed) * keep
    v = random_vector(m + 1, 1, seed)[:, :m]
    torch.testing.assert_close(degrees(w[:, keep], listed, m), degrees(w))
    torch.testing.assert_close(degrees_adjoint(v, listed), degrees_adjoint(v)[:, keep])


def test_laplacian_is_networkx_laplacian():
    w = sample_graphs("ER", 1, 12, seed=3, dtype=torch.float64)[0]
    graph = nx.from_numpy_array(to_matrix(w).numpy())
    np.testing.assert_allclose(laplacian(w).numpy(), nx.laplacian_matrix(graph).toarray(), atol=1e-14)


@pytest.mark.parametrize("n_edges", [0, 1, 2, 4, 189, 191])
def test_wrong_length_is_refused(n_edges):
    with pytest.raises(ValueError, match=f"n_edges={n_edges}"):
        n_nodes(n_edges)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_follow_the_protocol(family):
    w = sample_graphs(family, 300, 20, seed=0, dtype=torch.float64)
    torch.testing.assert_close(degrees(w).mean(-1), torch.ones(300, dtype=torch.float64))
    logs = w[w > 0].log()
    # the mean of two lognormal(0, 0.1) has a relative spread of 0.1 / sqrt(2); rescaling adds little
    relative = (w / (w.sum(1) / (w > 0).sum(1))[:, None])[w > 0]
    assert abs(relative.std() - 0.0709) < 0.002
    assert torch.isfinite(logs).all()
    binary = sample_graphs(family, 300, 20, seed=0, weighted=False)
    assert set(binary.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(binary > 0, w > 0)


def test_families_have_their_edges():
    assert ((sample_graphs("BA", 50, 20, seed=0) > 0).sum(1) == 3 + 3 * 16).all()
    assert ((sample_graphs("WS", 50, 20, seed=0) > 0).sum(1) == 40).all()
    assert abs((sample_graphs("ER", 500, 20, seed=0) > 0).float().mean() - 0.2) < 0.005
    inter = to_matrix(sample_graphs("SBM", 50, 20, seed=0))[:, :10, 10:]
    assert ((inter > 0).sum((1, 2)) == 2).all()


def test_block_model_takes_sizes_and_probabilities():
    w = sample_graphs("SBM", 200, 12, seed=0, sizes=(2, 4, 6), p_in=1.0, p_out=0.1)
    W = to_matrix(w) > 0
    assert W[:, 2:6, 2:6].sum((1, 2)).eq(12).all()
    assert abs(W[:, :2, 2:].float().mean() - 0.1) < 0.02


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


def test_watts_strogatz_law():
    oracle = [nx.watts_strogatz_graph(20, 4, 0.2, seed=s) for s in range(400)]
    ours = [nx.from_numpy_array((W > 0).numpy().astype(int)) for W in to_matrix(sample_graphs("WS", 400, 20, seed=1))]
    for statistic in (nx.average_clustering, nx.global_efficiency):
        a, b = ([statistic(g) for g in graphs] for graphs in (oracle, ours))
        assert stats.ks_2samp(a, b).pvalue > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_number_of_workers_does_not_matter(family):
    alone = sample_graphs(family, 600, 12, seed=5, shuffle=True)
    assert torch.equal(alone, sample_graphs(family, 600, 12, seed=5, shuffle=True, n_jobs=2))
    assert not torch.equal(alone, sample_graphs(family, 600, 12, seed=6, shuffle=True))


def test_shuffled_ids_are_the_same_graphs_renumbered():
    kept, shuffled = (sample_graphs("BA", 400, 10, seed=2, shuffle=s) for s in (False, True))
    assert ((kept > 0).sum(1) == (shuffled > 0).sum(1)).all()
    by_node = (to_matrix(shuffled) > 0).float().sum(-1).mean(0)
    assert by_node.std() < 0.15  # in generator order the first hub stands out
    assert (to_matrix(kept) > 0).float().sum(-1).mean(0).std() > 0.8


def test_renumbering_is_isomorphism_and_can_be_undone():
    w = sample_graphs("BA", 3, 9, seed=0)
    order = torch.tensor([4, 2, 8, 0, 1, 7, 3, 6, 5])
    assert torch.equal(renumber(renumber(w, order), order.argsort()), w)
    assert torch.equal(to_matrix(renumber(w, order))[:, 0, 2], to_matrix(w)[:, 4, 8])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"family": "XX"}, "family='XX'"),
        ({"n_nodes": 2}, "n_nodes=2"),
        ({"n_graphs": 0}, "n_graphs=0"),
        ({"family": "ER", "p": 1.5}, "p=1.5"),
        ({"family": "BA", "n_attach": 10}, "n_attach=10"),
        ({"family": "WS", "k": 1}, "k=1"),
        ({"family": "SBM", "sizes": (3, 3)}, "sizes="),
        ({"family": "SBM", "n_inter": 26}, "n_inter=26"),
    ],
)
def test_bad_input_names_the_argument(arguments, named):
    with pytest.raises(ValueError, match=named):
        sample_graphs(**{"family": "BA", "n_graphs": 2, "n_nodes": 10, "seed": 0} | arguments)
