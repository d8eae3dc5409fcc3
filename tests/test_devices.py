"""Every model learns and predicts where its input lives, checked without a GPU.

Fake tensors know shapes, types and devices, and hold no numbers. Here all of them are on a device other than the CPU,
so that an operation that meets a tensor of the CPU fails, as it would on a GPU. PyTorch without CUDA cannot index or
differentiate fake tensors of "cuda"; the device "meta" takes its place.
"""

import ast
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch._functorch import config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import graphs, models, solvers
from helpers.beyond import likelihood
from helpers.beyond.broad import BroadL2G
from helpers.beyond.equivariant import EquivariantL2G
from helpers.models import L2G, Unrolling
from helpers.rivals import graphical_lasso
from helpers.rivals.deepgraph import DeepGraph
from helpers.rivals.glad import GLAD
from helpers.signals import Observations

THERE = torch.device("meta")
N_NODES = 6

MODELS = {
    "Unrolling": lambda: Unrolling(3),
    "Recurrent Unrolling": lambda: Unrolling(3, shared=True),
    "L2G": lambda: L2G(N_NODES, 3),
    "L2G, corrected": lambda: L2G(N_NODES, 3, enhanced=(0, -1), correction=True, detached=True),
    "GLAD": lambda: GLAD(1e-4, n_layers=2),
    "GLAD, newton_schulz": lambda: GLAD(1e-4, n_layers=2, numerics="newton_schulz"),
    "DeepGraph": lambda: DeepGraph(N_NODES, 3, protocol="original", n_channels=4, dilation=2),
    "DeepGraph, fair": lambda: DeepGraph(N_NODES, 3, protocol="fair", n_channels=4, dilation=2),
    "BroadL2G": lambda: BroadL2G(2, width=4, n_looks=1),
    "EquivariantL2G": lambda: EquivariantL2G(2, width=4),
    "EquivariantL2G, ablated": lambda: EquivariantL2G(2, width=4, likelihood=False, messages=False, signals=False),
}


class OneDevice(TorchDispatchMode):
    """Fails where a tensor is created on the CPU without need, or is drawn elsewhere by a generator of the CPU.

    Questions about numbers, which fake tensors cannot answer, are answered so that checks of the input pass.
    """

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = operation.overloadpacket.__name__
        if name == "_local_scalar_dense":
            return getattr(args[0], "answer", 1.0)
        if name in ("allclose", "equal"):
            return True
        result = operation(*args, **kwargs)
        if name in ("all", "any"):
            result.answer = name == "all"
        if not any(isinstance(x, (torch.Tensor, list, tuple)) and _has_tensor(x) for x in args):
            self._check_new(name, result, kwargs.get("generator"))
        return result

    def _check_new(self, name, result, generator):
        if generator is not None:
            assert result.device == generator.device, f"{name}: a generator of the CPU cannot draw on {result.device}"
        else:
            assert result.device == THERE or result.ndim == 0, f"{name}: creates a tensor on {result.device}"


def _has_tensor(x):
    return isinstance(x, torch.Tensor) or any(isinstance(y, torch.Tensor) for y in x)


@pytest.fixture
def fakes():
    """Fake tensors, also on "meta"; index tensors that other tests have cached are forgotten before and after."""
    cached = [function for function in vars(graphs).values() if hasattr(function, "cache_clear")]
    assert cached
    for function in cached:
        function.cache_clear()
    with patch.object(config, "fake_tensor_allow_meta", True), FakeTensorMode(allow_non_fake_inputs=True):
        yield
    for function in cached:
        function.cache_clear()


def move(model):
    """What `model.to(THERE)` does, which fake tensors do not support."""
    for module in model.modules():
        for name, p in module.named_parameters(recurse=False):
            module.register_parameter(name, torch.nn.Parameter(torch.empty_like(p, device=THERE)))
        for name, b in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty_like(b, device=THERE))
    return model


def observed_there(n=4, m=N_NODES):
    """Fake Observations of n graphs, and the graphs."""
    S = torch.empty(n, m, m, dtype=torch.float64, device=THERE)
    return Observations(S, 3000.0), torch.empty(n, m * (m - 1) // 2, device=THERE)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_models_learn_and_predict_where_their_input_lives(fakes, make):
    model = move(make())
    observations, w = observed_there()
    with OneDevice():
        prepared = model.prepare(observations)
        loss = model.loss(prepared, w, torch.Generator().manual_seed(0))
        loss.backward()
        w_hat = model.predict(observations)
    assert prepared.device == THERE
    assert loss.device == THERE
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(g.device == THERE for g in gradients)
    assert w_hat.device == THERE
    assert w_hat.shape == w.shape


OTHER_WAYS = {
    "L2G at the prior's mean": ("L2G", lambda model, observations: model.predict(observations, seed=None)),
    "Deep-graph+P": ("DeepGraph", lambda model, observations: model.predict(observations, permutations=2)),
    "GLAD's precision": ("GLAD", lambda model, observations: model.precision(observations)),
    "a graphical lasso": ("GLAD", lambda _, observations: graphical_lasso.from_moments(observations, 0.1)),
}


@pytest.mark.parametrize(("name", "predict"), OTHER_WAYS.values(), ids=OTHER_WAYS)
def test_other_ways_to_predict(fakes, name, predict):
    model = move(MODELS[name]())
    observations, _ = observed_there()
    with OneDevice():
        assert predict(model, observations).device == THERE


SOLVERS = {
    "PDS": lambda observations: solvers.pds(observations, n_iter=2, tol=0),
    "ADMM": lambda observations: solvers.admm(observations, n_iter=2, tol=0),
    "exact": solvers.exact,
    "inverse covariance": solvers.inverse_covariance,
    "maximum likelihood": lambda observations: likelihood.laplacian_mle(observations, n_iter=1),
}


@pytest.mark.filterwarnings("ignore:KKT residual")  # fake numbers do not converge
@pytest.mark.parametrize("method", SOLVERS.values(), ids=SOLVERS)
def test_solvers_work_where_their_input_lives(fakes, method):
    observations, _ = observed_there()
    with OneDevice():
        assert method(observations).device == THERE


def test_a_number_of_signals_per_graph_may_stay_on_the_cpu(fakes):
    observations, _ = observed_there()
    model = move(MODELS["EquivariantL2G"]())
    observations = Observations(observations.moments, torch.empty(4, dtype=torch.float64))
    with OneDevice():
        assert model.predict(observations).device == THERE
        assert model.prepare(observations).device == THERE


# --- the checks themselves -----------------------------------------------------------------------------------------


def test_mixed_devices_are_noticed(fakes):
    there = torch.empty(3, 3, device=THERE)
    here = torch.empty(3, 3)
    for mix in (torch.add, torch.matmul, lambda a, b: torch.cat([a, b]), lambda a, b: torch.where(a > 0, a, b)):
        with pytest.raises(RuntimeError, match="device"):
            mix(there, here)


def test_noise_drawn_elsewhere_by_a_generator_of_the_cpu_is_noticed(fakes):
    """As L2G once did, which is why it could not be trained on a GPU."""

    def draw_there(mean, log_var, generator):
        return torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)

    model = move(MODELS["L2G"]())
    observations, w = observed_there()
    with (
        patch.object(models, "draw_code", draw_there),
        OneDevice(),
        pytest.raises(AssertionError, match="a generator of the CPU cannot draw on meta"),
    ):
        model.loss(model.prepare(observations), w, torch.Generator())


def test_needless_tensors_of_the_cpu_are_noticed(fakes):
    with OneDevice():
        torch.zeros(3, device=THERE)
        torch.randn(3, generator=torch.Generator())  # drawn on the CPU, as it must be
        with pytest.raises(AssertionError, match="creates a tensor on cpu"):
            torch.arange(3)


# --- by reading the code -------------------------------------------------------------------------------------------

HELPERS = Path(graphs.__file__).parent
FILES = (
    "graphs.py", "signals.py", "solvers.py", "models.py",
    "engine/problem.py", "engine/layouts.py", "engine/newton.py", "engine/linear_systems.py",
    "rivals/glad.py", "rivals/deepgraph.py", "rivals/convolution.py", "beyond/equivariant.py", "beyond/likelihood.py",
    "beyond/atoms.py", "beyond/broad.py",
)  # fmt: skip
CREATORS = {
    "zeros", "ones", "full", "empty", "eye", "tensor", "arange", "linspace",
    "rand", "randn", "randint", "randperm", "normal", "triu_indices", "tril_indices",
}  # fmt: skip


def reachable(trees, start):
    """The functions of the modules that `start` may call, directly or not: by name, and so rather too many."""
    found = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
    reached, waiting = [], list(start)
    while waiting:
        for function in found.pop(waiting.pop(), []):
            reached.append(function)
            for node in ast.walk(function):
                name = getattr(node, "id", None) or getattr(node, "attr", None)
                if name in found:
                    waiting.append(name)
    return reached


def without_device(function):
    """Lines of a function that create a tensor neither on a stated device nor to be moved at once."""
    moved = {
        id(node.func.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to"
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CREATORS:
            of_torch = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
            if of_torch and id(node) not in moved and "device" not in {k.arg for k in node.keywords}:
                yield f"{function.name}, line {node.lineno}: {ast.unparse(node)}"


def test_no_tensor_is_created_without_a_device():
    trees = [ast.parse((HELPERS / name).read_text()) for name in FILES]
    functions = reachable(trees, ("prepare", "loss", "predict", "forward", "backward"))
    names = {function.name for function in functions}
    assert names >= {"check_distances", "differences", "discounted_error", "pds_step", "correlation", "identity"}
    assert not [line for function in functions for line in without_device(function)]


def test_the_reader_of_code_notices():
    tree = ast.parse(
        "class Model:\n"
        "    def predict(self, S):\n"
        "        return helper(S)\n"
        "def helper(S):\n"
        "    a = torch.eye(3)\n"
        "    b = torch.eye(3, device=S.device) + torch.randn(3, generator=g).to(S) + S.new_zeros(3) + np.zeros(3)\n"
        "    return a + b\n"
        "def elsewhere():\n"
        "    return torch.ones(3)\n"
    )
    functions = reachable([tree], ("predict",))
    assert [function.name for function in functions] == ["predict", "helper"]
    found = [line for function in functions for line in without_device(function)]
    assert found == ["helper, line 5: torch.eye(3)"]


@pytest.mark.parametrize(
    "needs_the_cpu", [models.pds_layers, models.draw_code, graphical_lasso.graphical_lasso, models.PDSLayers]
)
def test_what_stays_on_the_cpu_says_so(needs_the_cpu):
    assert "CPU" in needs_the_cpu.__doc__
