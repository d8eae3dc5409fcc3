"""Deep-graph: convolutions against torch's, its generator against scikit-learn's, the ensemble, the runs."""

import copy

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.datasets import make_sparse_spd_matrix
from torch.nn import functional

from helpers import training
from helpers.graphs import to_matrix, to_vector
from helpers.metrics import auc
from helpers.rivals.deepgraph import PROTOCOLS, Block, DeepGraph, correlation, fast_convolution, sample_sparse
from helpers.rivals.graphical_lasso import graphical_lasso
from helpers.runs import RUNS, Run, deepgraph
from helpers.signals import sample_split

no_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, no_cuda])]
M = 9


def model(m=M, protocol="original", seed=0, **options):
    """Small, and with norms that have seen some data."""
    torch.manual_seed(seed)
    net = DeepGraph(m, protocol=protocol, **{"n_channels": 6, "dilation": 2, **options})
    for _ in range(3):
        net.loss(*sample_sparse(16, m, 35, seed=seed))
    return net.eval()


def moments(n=5, m=M, seed=1):
    return sample_sparse(n, m, 35, seed=seed)[0]


def image(x):
    """Nodes-first (m, m, B, C) -> images (B, C, m, m)."""
    return x.permute(2, 3, 0, 1)


# --- the network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m, n_parameters", [(20, 181_651), (39, 181_841)])
def test_number_of_parameters_is_the_released_one(m, n_parameters):
    assert sum(p.numel() for p in DeepGraph(m, protocol="original").parameters()) == n_parameters


@pytest.mark.parametrize("n", [1, 2, 4, 5, 8, 11])
def test_fast_convolution_is_a_convolution(n):
    x, k = torch.randn(n, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    A, K, B = fast_convolution(n)
    assert torch.allclose(B @ ((A @ x) * (K @ k)), functional.conv1d(x[None], k[None, None], padding=1)[0])


@pytest.mark.parametrize("m, dilation", [(20, 5), (39, 5), (7, 2), (11, 5), (6, 1)])
def test_both_branches_equal_torchs_convolution_with_gradients(m, dilation):
    torch.manual_seed(0)
    block = Block(m, 4, 5, dilation)
    reference = copy.deepcopy(block)
    x = torch.randn(m, m, 3, 4, requires_grad=True)
    x_reference = x.detach().clone().requires_grad_()

    ours = block.convolve(x) + block.everywhere.bias + block.on_diagonal(x)
    a, b = (image(x_reference) for _ in range(2))
    a, b = reference.everywhere(a), reference.diagonal(b).diagonal(dim1=2, dim2=3)
    naive = (a + b[:, :, None, :]).permute(2, 3, 0, 1)
    assert torch.allclose(ours, naive, atol=2e-5)

    probe = torch.randn(ours.shape)
    (ours * probe).sum().backward()
    (naive * probe).sum().backward()
    assert torch.allclose(x.grad, x_reference.grad, atol=1e-4)
    for p, q in zip(block.parameters(), reference.parameters()):
        assert (p.grad is None) == (q.grad is None)  # the norm takes no part
        assert p.grad is None or torch.allclose(p.grad, q.grad, rtol=1e-4, atol=1e-3)


def test_block_is_sum_of_three_then_a_norm_for_each_column():
    block = Block(8, 3, 4, 2)
    x = torch.randn(8, 8, 5, 3)
    a = block.everywhere(image(x))
    b = block.diagonal(image(x)).diagonal(dim1=2, dim2=3)
    a = a + b[:, :, :, None] + b[:, :, None, :]
    norm = torch.nn.BatchNorm1d(8, momentum=0.01)  # rows of all channels of all graphs, features = columns
    expected = norm(a.reshape(-1, 8)).view(a.shape).relu()
    assert torch.allclose(image(block(x)), expected, atol=1e-5)
    assert torch.allclose(block.norm.running_mean, norm.running_mean, atol=1e-6)
    assert torch.allclose(block.norm.running_var, norm.running_var, atol=1e-6)


def test_float64_agrees_with_float32():
    net, S = model(20, dilation=5), moments(m=20)
    assert torch.allclose(net.double().predict(S).float(), model(20, dilation=5).predict(S), atol=1e-5)


# --- input and labels --------------------------------------------------------------------------------------


def test_correlation_is_numpys():
    X = np.random.default_rng(0).standard_normal((50, M)) @ np.diag(np.arange(1, M + 1))
    X -= X.mean(0)
    assert np.allclose(correlation(torch.from_numpy(X.T @ X / 50)), np.corrcoef(X.T))
    centred = X - X.mean(1, keepdims=True)
    assert np.allclose(correlation(torch.from_numpy(X.T @ X / 50), centre=True), np.corrcoef(centred.T))


def test_only_the_fair_protocol_is_blind_to_the_common_mode():
    S = moments()
    louder = S + 1e4
    for protocol in PROTOCOLS:
        net = model(protocol=protocol)
        same = torch.allclose(net.predict(S), net.predict(louder), atol=1e-4)
        assert same == (protocol == "fair")


def test_fair_needs_distances_only():
    run = deepgraph("BA", "fair", 1)
    S, _ = sample_split(run, "test", 4)
    y, _ = training.sample_pairs(run, "test", 4)
    net = model(20, "fair")
    assert torch.allclose(net.predict(to_matrix(y) / -2), net.predict(S), atol=1e-4)


def test_released_script_trains_on_second_moments_and_predicts_from_correlations():
    S = moments()
    scale = torch.arange(1.0, M + 1).double()
    scaled = S * scale[:, None] * scale
    for standardise in (True, False):
        net = model(standardise=standardise)
        assert torch.allclose(net.predict(S), net.predict(scaled), atol=1e-5)
        net.train()
        assert torch.allclose(net(S), net(scaled), atol=1e-4) == standardise


def test_loss_is_cross_entropy_over_all_entries_with_ones_on_the_diagonal():
    net, (S, labels) = model(), sample_sparse(4, M, 35, seed=2)
    p = net(S).sigmoid()
    target = to_matrix(labels) + torch.eye(M)
    expected = -(target * p.log() + (1 - target) * (1 - p).log()).mean()
    assert torch.allclose(net.loss(S, labels), expected, rtol=1e-5)


def test_in_family_pairs_are_the_signals_of_the_other_models():
    run, other = deepgraph("WS", "fair", 1), Run("unrolling", "WS")
    S, labels = DeepGraph.sample_pairs(run, "test", 5)
    y, w = training.sample_pairs(other, "test", 5)
    assert torch.equal(labels, (w > 0).float())
    d = S.diagonal(dim1=1, dim2=2)
    assert torch.allclose(to_vector(d[:, :, None] + d[:, None, :] - 2 * S).float(), y)


def test_epochs_and_splits_differ_and_repeat():
    for run in (deepgraph("BA", "fair", 1), RUNS[next(name for name in RUNS if "protocoloriginal" in name)]):
        keys = [("train", 0), ("train", 1), ("val", 0), ("test", 0)]
        sets = [DeepGraph.sample_pairs(run, split, 2, epoch=epoch)[0] for split, epoch in keys]
        again = [DeepGraph.sample_pairs(run, split, 2, epoch=epoch)[0] for split, epoch in keys]
        for i in range(4):
            assert [torch.equal(sets[i], x) for x in again] == [i == j for j in range(4)]


# --- its own generator -------------------------------------------------------------------------------------


def describe(partial):
    """Share of edges, mean and spread of the non-zero |partial correlations|, spread of edges over graphs."""
    edge = partial > 1e-12
    return np.array([edge.mean(), partial[edge].mean(), partial[edge].std(), edge.mean(1).std()])


def test_precisions_follow_scikit_learns_law():
    m, n = 20, 800
    _, ours = sample_sparse(20 * n, m, 35, seed=0)
    theirs = np.empty((n, m * (m - 1) // 2))
    for k in range(n):
        with config_context(skip_parameter_validation=True):  # it has come to refuse negative coefficients
            P = make_sparse_spd_matrix(m, alpha=0.95, smallest_coef=-0.9, largest_coef=0.9, random_state=k)
        d = np.sqrt(P.diagonal())
        theirs[k] = np.abs(P / d[:, None] / d)[np.triu_indices(m, 1)]
    ours = ours.double().numpy()
    resampled = [describe(theirs[rows]) for rows in np.random.default_rng(0).integers(0, n, (200, n))]
    error = np.std(resampled, axis=0)
    # scikit-learn draws a fixed number of entries in the square, half of which count: less spread over graphs
    difference = (describe(ours) - describe(theirs)) / error
    assert (np.abs(difference[:3]) < 4).all(), difference
    assert 0.7 < describe(theirs)[3] / describe(ours)[3] < 1.02
    grid = np.linspace(0.02, 0.9, 30)  # distribution functions of the non-zero values
    cdf = [(values[values > 1e-12][:, None] <= grid).mean(0) for values in (ours[:n], theirs)]
    assert np.abs(cdf[0] - cdf[1]).max() < 0.025


def test_node_order_of_precisions_carries_no_information():
    _, partial = sample_sparse(20000, 8, 35, seed=0)
    share = (partial > 1e-9).double().mean(0)
    assert (share - share.mean()).abs().max() < 5 * (share.mean() / 20000).sqrt()


@pytest.mark.parametrize("n_signals", [4, 35])  # fewer than nodes, and more
def test_second_moments_are_those_of_drawn_signals(n_signals):
    m, n = 6, 20000
    S, _ = sample_sparse(n, m, n_signals, seed=0, density=0.5, largest=0.01)  # precision is close to I
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, n_signals, m))
    reference = torch.from_numpy(X.transpose(0, 2, 1) @ X / n_signals)
    assert torch.linalg.matrix_rank(S[0]) == min(m, n_signals)
    for power in (1, 2):
        assert torch.allclose((S**power).mean(0), (reference**power).mean(0), atol=0.08)
    assert torch.allclose(torch.linalg.det(S).mean(), torch.linalg.det(reference).mean(), atol=0.03)


def test_moments_and_labels_share_a_law():
    S, partial = sample_sparse(20, 6, 200_000, seed=0)
    P = torch.linalg.inv(S)
    assert torch.allclose(to_vector(correlation(P)).abs().float(), partial, atol=0.02)


# --- prediction --------------------------------------------------------------------------------------------


def test_shapes_range_and_batch_equals_loop():
    net, S = model(), moments(n=130)  # more than one chunk
    w = net.predict(S)
    assert w.shape == (130, M * (M - 1) // 2) and w.dtype == torch.float32
    assert ((w > 0) & (w < 1)).all()
    loop = torch.stack([net.predict(x) for x in S[:10]])
    assert torch.allclose(w[:10], loop, atol=1e-6)
    assert torch.equal(net.predict(S[:12].view(3, 4, M, M)).view(12, -1), net.predict(S[:12]))
    assert torch.equal(net.predict(S), w) and not w.requires_grad


def test_prediction_is_the_upper_triangle():
    net, S = model(), moments()
    assert torch.allclose(net.predict(S), to_vector(net(S)).sigmoid(), atol=1e-6)


def test_ensemble_forgets_the_node_order_as_it_grows():
    torch.manual_seed(0)
    net, S = model(n_channels=4, n_blocks=2), moments(3)
    order = torch.randperm(M)
    moved = S[:, order[:, None], order]

    def gap(R, seed):
        """Squared difference between the answers for the same graphs under two namings of the nodes."""
        w = to_matrix(net.predict(S, permutations=R, seed=seed))[:, order[:, None], order]
        return (to_vector(w) - net.predict(moved, permutations=R, seed=seed + 1)).square().mean()

    few, many = (torch.stack([gap(R, 2 * seed) for seed in range(12)]).mean() for R in (2, 32))
    assert few > 0
    assert 6 < few / many < 40  # the variance falls as 1/R: 16


def test_ensemble_of_one_order_and_seeds():
    net, S = model(), moments(3)
    order = torch.randperm(M, generator=torch.Generator().manual_seed(3))
    w = to_matrix(net.predict(S[:, order[:, None], order]))
    expected = torch.zeros_like(w)
    expected[:, order[:, None], order] = w
    assert torch.allclose(net.predict(S, permutations=1, seed=3), to_vector(expected))
    assert torch.equal(net.predict(S, permutations=4), net.predict(S, permutations=4, seed=0))
    assert not torch.equal(net.predict(S, permutations=4), net.predict(S, permutations=4, seed=1))
    alone = net.predict(S[:1], permutations=4)  # a graph's answer does not depend on its batch
    assert torch.allclose(alone, net.predict(S, permutations=4)[:1], atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_devices(device):
    net, S = model().to(device), moments().to(device)
    w = net.predict(S, permutations=2)
    assert w.device.type == device
    net.train().loss(S, w).backward()
    assert torch.allclose(w.cpu(), model().predict(S.cpu(), permutations=2), atol=1e-4)


# --- bad input ---------------------------------------------------------------------------------------------


def spoilt(value, at):
    S = moments()
    S[at] = value
    return S


@pytest.mark.parametrize(
    "S, message",
    [
        (moments(m=M + 1), r"S has shape \(5, 10, 10\).*\(..., 9, 9\).*n_nodes"),
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


def test_unknown_protocol():
    with pytest.raises(ValueError, match="protocol='own': choose one of original, in_family, fair"):
        DeepGraph(M, protocol="own")


# --- runs --------------------------------------------------------------------------------------------------


def test_a_run_trains_and_loads(tmp_path):
    run = Run(
        "deepgraph", "ER", n_nodes=8, n_layers=2, n_train=64, n_val=16, epochs=3, lr=1e-2, stream=True,
        options=(("protocol", "fair"), ("n_channels", 4), ("dilation", 2)),
    )  # fmt: skip
    net = training.fit(run, folder=tmp_path, progress=False)
    S, _ = DeepGraph.sample_pairs(run, "test", 4)
    assert torch.equal(training.load(run, folder=tmp_path).predict(S), net.predict(S))
    losses = training.read_sidecar(run, tmp_path)["history"]["loss"]
    assert losses[-1] < losses[0]


SHIPPED = [run for run in RUNS.values() if run.model == "deepgraph" and training.state_of(run) == "trained"]


@pytest.mark.parametrize("run", SHIPPED, ids=lambda run: run.name)
def test_shipped_runs_find_the_edges_they_were_trained_for(run):
    net = training.load(run)
    S, labels = DeepGraph.sample_pairs(run, "test", 64)
    score = auc(net.predict(S), (labels > 0).float()).mean()
    protocol = dict(run.options)["protocol"]
    if (run.family, protocol) == ("ER", "in_family"):
        pytest.xfail(f"AUC {score:.3f}: near chance, its loss was still falling when training stopped")
    assert score > {"fair": 0.95, "in_family": 0.55, "original": 0.7}[protocol]


def test_every_original_run_saw_fifty_thousand_inputs_at_35_signals():
    runs = [run for run in RUNS.values() if run.family == "sparse" and run.n_signals == 35]
    inputs = {run.n_nodes: run.n_train * run.epochs for run in runs}
    assert set(inputs) == {20, 39} and min(inputs.values()) >= 50_000


# --- graphical lasso ---------------------------------------------------------------------------------------


def test_graphical_lasso_finds_a_chain():
    m = 6
    P = np.eye(m) + 0.4 * (np.eye(m, k=1) + np.eye(m, k=-1))
    X = np.random.default_rng(0).multivariate_normal(np.zeros(m), np.linalg.inv(P), 500)
    score = graphical_lasso(X)
    edge = to_vector(torch.from_numpy(P)) > 0
    assert score.shape == (15,) and (score >= 0).all() and (score <= 1).all()
    assert score[edge].min() > score[~edge].max()
    with pytest.raises(ValueError, match="X contains NaN"):
        graphical_lasso(np.where(X > 2, np.nan, X))
    with pytest.raises(ValueError, match=r"X has shape \(6,\)"):
        graphical_lasso(X[0])
