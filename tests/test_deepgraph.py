"""Deep-graph: its blocks against torch's, its generator against scikit-learn's, the ensemble, the shipped networks."""

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.datasets import make_sparse_spd_matrix

from helpers import training
from helpers.experiments import runs
from helpers.graphs import renumber, sample_graphs, to_matrix, to_vector
from helpers.metrics import auc
from helpers.rivals.deepgraph import GRAPHS_AT_ONCE, PROTOCOLS, Block, DeepGraph, correlation, sample_sparse
from helpers.signals import Observations, bartlett, in_order, sample_observations

M = 9


def model(m=M, protocol="original", seed=0, **options):
    """Small, and with norms that have seen some data."""
    torch.manual_seed(seed)
    net = DeepGraph(m, protocol=protocol, **{"n_channels": 6, "dilation": 2, **options})
    observations, w = sample_sparse(16, m, 35, seed=seed)
    for _ in range(3):
        net.loss(net.prepare(observations), w)
    return net.eval()


def observed(n=5, m=M, seed=1):
    return sample_sparse(n, m, 35, seed=seed)[0]


def image(x):
    """Nodes first (m, m, B, C) -> images (B, C, m, m)."""
    return x.permute(2, 3, 0, 1)


# --- the network ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m, n_parameters", [(20, 181_651), (39, 181_841)])
def test_number_of_parameters_is_the_released_one(m, n_parameters):
    assert sum(p.numel() for p in DeepGraph(m, protocol="original").parameters()) == n_parameters


def test_block_is_sum_of_three_then_a_norm_for_each_column():
    torch.manual_seed(0)
    block = Block(8, 3, 4, 2)
    for layer in (block.everywhere, block.diagonal):
        torch.nn.init.normal_(layer.bias)
    plain = [torch.nn.Conv2d(3, 4, 3, padding=2, dilation=2) for _ in range(2)]
    plain[0].load_state_dict(block.everywhere.state_dict())
    plain[1].load_state_dict(block.diagonal.state_dict())
    x = torch.randn(8, 8, 5, 3)
    a = plain[0](image(x))
    b = plain[1](image(x)).diagonal(dim1=2, dim2=3)
    a = a + b[:, :, :, None] + b[:, :, None, :]
    norm = torch.nn.BatchNorm1d(8, momentum=0.01)  # rows of all channels of all graphs, features = columns
    expected = norm(a.reshape(-1, 8)).view(a.shape).relu()
    assert torch.allclose(image(block(x)), expected, atol=1e-5)
    assert torch.allclose(block.norm.running_mean, norm.running_mean, atol=1e-6)
    assert torch.allclose(block.norm.running_var, norm.running_var, atol=1e-6)


def test_network_is_blocks_and_a_head():
    net = model(n_blocks=3, n_channels=4)
    S = observed().moments
    x = correlation(S).float().permute(1, 2, 0)[..., None]
    for block in net.blocks:
        x = block(x)
    expected = (x @ net.head.weight.T + net.head.bias)[..., 0].permute(2, 0, 1)
    torch.testing.assert_close(net(S), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(net(S), net(S).mT), "nothing enforces symmetry"
    assert [block.everywhere.dilation[0] for block in net.blocks] == [1, 2, 2]
    assert [block.everywhere.in_channels for block in net.blocks] == [1, 4, 4]
    assert len(DeepGraph(M, protocol="fair").blocks) == 5
    assert DeepGraph(M, protocol="fair").blocks[-1].everywhere.dilation[0] == 5


def test_float64_agrees_with_float32():
    observations = observed(m=20)
    single = model(20, dilation=5).predict(observations)
    double = model(20, dilation=5).double().predict(observations)
    assert single.dtype == torch.float32
    assert double.dtype == torch.float64
    assert torch.allclose(double.float(), single, atol=1e-5)


# --- input and labels ----------------------------------------------------------------------------------------------


def test_correlation_is_numpys():
    X = np.random.default_rng(0).standard_normal((50, M)) @ np.diag(np.arange(1, M + 1))
    X -= X.mean(0)
    S = torch.from_numpy(X.T @ X / 50)
    assert np.allclose(correlation(S), np.corrcoef(X.T))
    assert correlation(S.float()).dtype == torch.float64
    centred = X - X.mean(1, keepdims=True)
    assert np.allclose(correlation(S, centre=True), np.corrcoef(centred.T))


def test_only_the_fair_protocol_is_blind_to_the_common_mode():
    S = observed().moments
    for protocol in PROTOCOLS:
        net = model(protocol=protocol)
        same = torch.allclose(net.predict(S), net.predict(S + 1e4), atol=1e-4)
        assert same == (protocol == "fair")


def test_fair_needs_distances_only():
    observations = sample_observations(sample_graphs("BA", 4, 20, seed=0), seed=1)
    net = model(20, "fair")
    from_distances = net.predict(to_matrix(observations.distances) / -2)
    assert torch.allclose(from_distances, net.predict(observations), atol=1e-4)


def test_units_of_the_nodes_do_not_matter():
    S = observed().moments
    scale = torch.arange(1.0, M + 1).double()
    net = model()
    assert torch.allclose(net.predict(S), net.predict(S * scale[:, None] * scale), atol=1e-5)


def test_labels_are_soft_for_the_original_protocol_only():
    w = torch.tensor([0.0, 0.3, 1.0])
    assert torch.equal(model(protocol="original").labels(w), w)
    assert torch.equal(model(protocol="fair").labels(w), torch.tensor([0.0, 1.0, 1.0]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_loss_is_cross_entropy_over_all_entries_with_ones_on_the_diagonal(protocol):
    net = model(protocol=protocol)
    observations, w = sample_sparse(4, M, 35, seed=2)
    S = net.prepare(observations)
    p = net(S).sigmoid()
    target = to_matrix(net.labels(w)) + torch.eye(M)
    expected = -(target * p.log() + (1 - target) * (1 - p).log()).mean()
    assert torch.allclose(net.loss(S, w), expected, rtol=1e-5)


def test_observations_or_moments():
    observations = observed()
    assert isinstance(observations, Observations)
    net = model()
    assert net.prepare(observations) is observations.moments
    assert torch.equal(net.predict(observations), net.predict(observations.moments))


# --- its own generator ---------------------------------------------------------------------------------------------


def describe(partial):
    """Share of edges, mean and spread of the non-zero |partial correlations|, spread of edges over graphs."""
    edge = partial > 1e-12
    return np.array([edge.mean(), partial[edge].mean(), partial[edge].std(), edge.mean(1).std()])


def test_precisions_follow_scikit_learns_law():
    m, n = 20, 300
    _, ours = sample_sparse(20 * n, m, 35, seed=0)
    theirs = np.empty((n, m * (m - 1) // 2))
    for k in range(n):
        with config_context(skip_parameter_validation=True):  # it has come to refuse negative coefficients
            P = make_sparse_spd_matrix(m, alpha=0.95, smallest_coef=-0.9, largest_coef=0.9, random_state=k)
        d = np.sqrt(P.diagonal())
        theirs[k] = np.abs(P / d[:, None] / d)[np.triu_indices(m, 1)]
    ours = ours.double().numpy()
    resampled = [describe(theirs[rows]) for rows in np.random.default_rng(0).integers(0, n, (100, n))]
    error = np.std(resampled, axis=0)
    # scikit-learn draws a fixed number of entries in the square, half of which count: less spread over graphs
    difference = (describe(ours) - describe(theirs)) / error
    assert (np.abs(difference[:3]) < 4).all(), difference
    assert 0.6 < describe(theirs)[3] / describe(ours)[3] < 0.95
    grid = np.linspace(0.02, 0.9, 30)  # distribution functions of the non-zero values
    cdf = [(values[values > 1e-12][:, None] <= grid).mean(0) for values in (ours[:n], theirs)]
    assert np.abs(cdf[0] - cdf[1]).max() < 0.04


def test_every_graph_has_an_edge():
    _, partial = sample_sparse(200, 4, 35, seed=0, density=0.02)
    assert (partial > 1e-9).any(1).all()


def test_node_order_of_precisions_carries_no_information():
    _, partial = sample_sparse(20000, 8, 35, seed=0)
    share = (partial > 1e-9).double().mean(0)
    assert (share - share.mean()).abs().max() < 5 * (share.mean() / 20000).sqrt()


@pytest.mark.parametrize("n_signals", [4, 35])  # fewer than nodes, and more
def test_second_moments_are_those_of_drawn_signals(n_signals):
    m, n = 6, 20000
    observations, _ = sample_sparse(n, m, n_signals, seed=0, density=0.5, largest=0.01)  # precision is close to I
    S = observations.moments
    assert observations.n_signals == n_signals
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, n_signals, m))
    reference = torch.from_numpy(X.transpose(0, 2, 1) @ X / n_signals)
    assert torch.linalg.matrix_rank(S[0]) == min(m, n_signals)
    for power in (1, 2):
        assert torch.allclose((S**power).mean(0), (reference**power).mean(0), atol=0.08)
    assert torch.allclose(torch.linalg.det(S).mean(), torch.linalg.det(reference).mean(), atol=0.03)


def test_moments_and_labels_share_a_law():
    observations, partial = sample_sparse(20, 6, 200_000, seed=0)
    P = torch.linalg.inv(observations.moments)
    assert torch.allclose(to_vector(correlation(P)).abs().float(), partial, atol=0.02)
    assert partial.dtype == torch.float32


def test_the_stream_of_random_numbers_is_that_of_the_shipped_networks():
    """Edges, entries, orders, then Bartlett's factor: another sequence would be another training set."""
    n, m, n_signals = 2, 5, 3
    rng = np.random.default_rng(3)
    present = np.tril(rng.random((n, m, m)) < 0.5, -1)
    assert present.any((1, 2)).all()
    C = present * rng.uniform(-0.9, 0.9, (n, m, m)) - np.eye(m)
    order = rng.random((n, m)).argsort(1)
    A = bartlett(rng, n, m, n_signals)
    observations, partial = sample_sparse(n, m, n_signals, seed=3, density=0.5)
    for k in range(n):
        P = (C[k].T @ C[k])[np.ix_(order[k], order[k])]
        d = np.sqrt(P.diagonal())
        expected = np.abs(P / d[:, None] / d)[np.triu_indices(m, 1)]
        assert np.allclose(partial[k], expected, atol=1e-6)
        B = np.linalg.inv(C[k])[order[k]] @ A[k]
        assert np.allclose(observations.moments[k], B @ B.T / n_signals)


# --- prediction ----------------------------------------------------------------------------------------------------


def test_shapes_range_and_batch_equals_loop():
    n = 2 * GRAPHS_AT_ONCE + 2  # more than one part
    net = model()
    observations = observed(n)
    w = net.predict(observations)
    assert w.shape == (n, M * (M - 1) // 2)
    assert w.dtype == torch.float32
    assert ((w > 0) & (w < 1)).all()
    loop = torch.stack([net.predict(observations[k]) for k in range(10)])
    assert torch.allclose(w[:10], loop, atol=1e-6)
    S = observations.moments[:12]
    assert torch.equal(net.predict(S.view(3, 4, M, M)).view(12, -1), net.predict(S))
    assert torch.equal(net.predict(observations), w)
    assert not w.requires_grad


def test_prediction_is_the_upper_triangle():
    net = model()
    S = observed().moments
    assert torch.allclose(net.predict(S), to_vector(net(S)).sigmoid(), atol=1e-6)


def test_ensemble_forgets_the_node_order_as_it_grows():
    net = model(n_channels=4, n_blocks=2)
    observations = observed(3)
    order = torch.randperm(M, generator=torch.Generator().manual_seed(0))

    def gap(R, seed):
        """Squared difference between the answers for the same graphs under two namings of the nodes."""
        w = renumber(net.predict(observations, permutations=R, seed=seed), order)
        return (w - net.predict(observations.renumber(order), permutations=R, seed=seed + 1)).square().mean()

    few, many = (torch.stack([gap(R, 2 * seed) for seed in range(8)]).mean() for R in (2, 16))
    assert few > 0
    assert 4 < few / many < 16  # the variance falls as 1/R: 8


def test_ensemble_of_one_order_and_seeds():
    net = model()
    observations = observed(3)
    generator = torch.Generator().manual_seed(3)
    orders = [torch.randperm(M, generator=generator) for _ in range(2)]
    one, other = (in_order(net.predict, observations, order) for order in orders)
    assert torch.allclose(net.predict(observations, permutations=1, seed=3), one)
    assert torch.allclose(net.predict(observations, permutations=2, seed=3), (one + other) / 2)
    four = net.predict(observations, permutations=4)
    assert torch.equal(four, net.predict(observations, permutations=4, seed=0))
    assert not torch.equal(four, net.predict(observations, permutations=4, seed=1))
    alone = net.predict(observations[:1], permutations=4)  # a graph's answer does not depend on its batch
    assert torch.allclose(alone, four[:1], atol=1e-6)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_equals_cpu():
    observations = observed()
    there = observations.to("cuda")
    net = model().cuda()
    w = net.predict(there, permutations=2)
    assert w.device.type == "cuda"
    net.train().loss(net.prepare(there), w).backward()
    assert torch.allclose(w.cpu(), model().predict(observations, permutations=2), atol=1e-4)


# --- bad input -----------------------------------------------------------------------------------------------------


def spoilt(value, at):
    S = observed().moments.clone()
    S[at] = value
    return S


@pytest.mark.parametrize(
    "S, message",
    [
        (observed(m=M + 1).moments, r"S has shape \(5, 10, 10\).*\(..., 9, 9\).*n_nodes"),
        (torch.ones(M), r"S has shape \(9,\)"),
        (spoilt(float("nan"), (0, 1, 1)), "S contains NaN.*impute"),
        (spoilt(float("inf"), (0, 1, 1)), "S contains NaN or infinite"),
        (spoilt(9.0, (2, 0, 1)), "S is not symmetric.*second moments"),
        (torch.zeros(2, M, M), "S has a node of zero variance.*leave out"),
    ],
)
def test_bad_moments(S, message):
    with pytest.raises(ValueError, match=message):
        model().predict(S)


def test_asymmetry_is_judged_relative_to_the_moments():
    S = observed(1).moments
    rounded = S.clone()
    rounded[0, 0, 1] += 1e-6 * float(S.max())
    for unit in (1e-6, 1e6):
        assert torch.equal(model().prepare(unit * rounded), unit * rounded)
        with pytest.raises(ValueError, match="not symmetric"):
            model().prepare(unit * spoilt(0.1 + S[0, 0, 1], (0, 0, 1)))


def test_unknown_protocol():
    with pytest.raises(ValueError, match="protocol='own': choose one of original, fair"):
        DeepGraph(M, protocol="own")


# --- runs ----------------------------------------------------------------------------------------------------------


def test_it_trains(tmp_path):
    def data(split, n, epoch):
        w = sample_graphs("ER", n, 8, seed=(epoch, split == "val"))
        return sample_observations(w, seed=(2, epoch, split == "val")), w

    torch.manual_seed(0)
    net = DeepGraph(8, 2, protocol="fair", n_channels=4, dilation=2)
    schedule = training.Schedule(
        3, batch_size=32, lr=1e-2, decay=0.95, n_train=64, n_val=16, stream=True, keep_best=False, seed=0
    )
    training.fit(net, data, schedule, tmp_path / "deepgraph", {}, progress=False)
    losses = training.read_record(tmp_path / "deepgraph")["history"]["loss"]
    assert losses[-1] < losses[0]


SHIPPED = {"deepgraph-ba-fair": 0.95, "deepgraph-ws-fair": 0.95, "deepgraph-original-m20": 0.7}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_networks_find_the_edges_they_were_trained_for(name):
    run = runs.RUNS[name]
    net = runs.load(run)
    observations, w = runs.sample(run, "test", 32)
    assert auc(net.predict(observations), (w > 0).float()).mean() > SHIPPED[name]


def test_every_original_run_saw_fifty_thousand_inputs_at_35_signals():
    original = [run for run in runs.RUNS.values() if run.family == "sparse"]
    assert {run.n_nodes for run in original} == {20, 39}
    for run in original:
        assert run.n_signals == 35
        assert run.n_train * run.epochs >= 50_000
