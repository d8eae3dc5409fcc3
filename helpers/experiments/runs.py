"""Every trained model behind a table or figure, by name: what it is, what it learns from, and how.

`RUNS["l2g-ba"]` is our run of a model on a family. What differs from it is told in the name: `T10` layers, `m50` nodes,
`n250` training graphs, `signals100`, `sigma1e-3`, an option of the model, `seed1`. `text` is the paper's model exactly
as its text has it, `released` what the authors' code does. `l2g train NAME` trains it.
"""

import contextlib
import inspect
import math
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import product

import numpy as np
import torch

from .. import paths, training
from ..beyond import broad_law
from ..beyond.broad import BroadL2G, KindObservations
from ..beyond.equivariant import EquivariantL2G
from ..beyond.likelihood import unit_scale
from ..beyond.posterior import LAWS, sample_law
from ..engine import checkpoints
from ..engine.checkpoints import CheckpointError
from ..graphs import FAMILIES, count_nodes, family_parameters, sample_graphs
from ..metrics import auc, gmse
from ..models import L2G, Unrolling
from ..real import datasets
from ..rivals.deepgraph import DeepGraph, sample_sparse
from ..rivals.glad import GLAD, NUMERICS
from ..signals import Observations, sample_observations
from ..training import SPLITS, Schedule

SIGMA2 = tuple(float(f"1e{k}") for k in range(-4, 5))  # of Figure 2
N_LAYERS = (2, 5, 10, 15, 20, 30)  # of Figure 3b
N_SIGNALS = (10, 30, 100, 300, 1000, 3000, 10_000)  # of the notebook on limits
N_GRAPHS = (125, 250, 500, 1000, 2000, 4000)  # of the appendix figure on training
FEW_GRAPHS = (250, 1000, 4000)  # of the same figure, for more than 20 nodes: there a training takes minutes
SECTORS = (("sizes", (9, 10, 11, 6, 15, 15, 12, 15, 1, 2, 4)), ("p_out", 0.05))  # SBM like the S&P 100's sectors
SPARSE_ER = (("p", 0.1),)  # ER as sparse as the text says, for brains
# On 50 and 100 nodes a small file takes a narrow decoder. It cannot carry the graph, which `correction` lets pass by.
NARROW = (("n_decoder", 50), ("correction", True))

# What the text states; the start of gamma, which it leaves open, is that of the released code
TEXT_LOSS = (("tau_offset", 0), ("gamma_start", 0.01), ("max_gradient", 0.0))
TEXT = (
    *TEXT_LOSS, ("slope", 0.0), ("readout", "mean"), ("encoder", "text"), ("correction", True),
    ("reconstruction", False), ("kl", "sum"), ("n_hidden", 64), ("n_decoder", 256), ("n_latent", 16),
)  # fmt: skip
RELEASED_LOSS = (("tau_offset", 1), ("gamma_start", 0.01), ("max_gradient", 0.0))
RELEASED = (
    *RELEASED_LOSS, ("slope", 0.01), ("readout", "sum"), ("encoder", "released"), ("correction", True),
    ("reconstruction", True), ("kl", "mean"), ("n_hidden", 32), ("n_decoder", None), ("n_latent", 16),
)  # fmt: skip
N_TEST = 64  # graphs in every test set
N_SEEDS = 5  # trainings behind a row of Table 1
FEW_SEEDS = 3  # trainings behind a point of the ladder and of the control
LADDER = {  # from the text's L2G to ours: each step adds a change to those before it
    "encoder": {"encoder": "released", "n_hidden": 32, "n_decoder": None},
    "readout": {"readout": "sum"},
    "reconstruction": {"reconstruction": True, "kl": "mean", "tau_offset": 1},
    "slope": {"slope": 0.01},  # now as released
    "clipping": {"max_gradient": 1.0},
    "gamma": {"correction": False, "gamma_start": None},
}
REPAIRS = {  # single changes of the text's L2G, each on its own
    "clipping": {"max_gradient": 1.0},
    "gamma": {"correction": False},
    "reconstruction": {"reconstruction": True},
}
HARDER = {"WS": (("p", 0.5),), "SBM": (("n_inter", 8),)}  # graphs of the heatmaps with less structure
WIDE = (("n_decoder", None), ("correction", True))  # the released decoder, of 4E/3 hidden units
BUDGETS = (250, 1000, 4000, 16_000, 64_000)  # different training graphs
BUDGETED = {"unrolling": BUDGETS, "l2g": BUDGETS, "equivariant": BUDGETS}
BUDGETED |= {"deepgraph": BUDGETS[:4], "glad": BUDGETS[::2]}  # slow ones; GLAD has 42 parameters

# What EquivariantL2G learns from
N_PARTS = 16  # numbers of signals per epoch
MIXED_NODES = (10, 100)  # of the family "mixed", log-uniform, and
MIXED_SIGNALS = (10, 10_000)
BROAD_EPOCHS = 1500  # of its last course of training
STEPS_PER_EPOCH = 8  # of BroadL2G
UNSETTLED = (("n_steps", 0),)  # what its looks did not do in earlier courses
UNFITTED = (("fits", False), *UNSETTLED)
BLIND = (("weighs", False), *UNFITTED)
EXACT_SIGNALS = (10, 100)  # of the families in `posterior.LAWS`, log-uniform: so few that edges are in doubt
EXACT_EPOCHS = {"exact4": 500, "exact5": 400, "exact10": 150, "exact20": 120}  # about four minutes each
ABLATIONS = {  # options of "mixed"
    "full model": (),
    "without likelihood": (("likelihood", False),),
    "without messages": (("messages", False),),
    "without N": (("signals", False),),
}


@dataclass(frozen=True)
class Run:
    """One trained model. The defaults are the paper's protocol.

    `params` and `options` are (name, value) pairs for the graph generator and the model; `stream` draws a fresh
    training set for each epoch. `family` is one of the paper's, "mixed" (all of them, for EquivariantL2G), "sparse"
    (the random precision matrices of Deep-graph's authors), "broad" or one of `posterior.LAWS`. A run that does not
    `keep_weights` leaves its results only; one with a `start` goes on from the weights of the run of that name;
    `average` is that of `training.Schedule`. `bfloat16` is for BroadL2G, see there.
    """

    name: str
    model: str
    family: str
    n_nodes: int = 20
    n_layers: int = 20
    n_train: int = 4000
    n_val: int = 1000
    n_signals: int = 3000
    sigma2: float = 1e-4
    weighted: bool = True
    shuffle: bool = False
    params: tuple = ()
    epochs: int = 100
    batch_size: int = 32
    lr: float = 1e-2
    decay: float = 0.95
    stream: bool = False
    keep_best: bool = True
    options: tuple = ()
    seed: int = 0
    keep_weights: bool = True
    start: str = ""
    average: int = 0
    bfloat16: bool = False

    @property
    def schedule(self):
        return Schedule(**{field.name: getattr(self, field.name) for field in fields(Schedule)})


# --- the registry --------------------------------------------------------------------------------------------------


def network(model, family, *told, **changes):
    """The paper's "l2g", "unrolling" or "recurrent" on a family; `told` are the parts of its name after these."""
    return Run("-".join([model, family.lower(), *told]), model, family, **changes)


def recurrent(family):
    return network("recurrent", family, epochs=20)


def text(model, family):
    """The paper's model as its text has it."""
    options = TEXT if model == "l2g" else TEXT_LOSS
    return network(model, family, "text", options=options, keep_best=False)


def released(model, family):
    """What the authors' code does: 6,400 training graphs, and for Unrolling a learning rate that stays at 1e-4."""
    rate = {} if model == "l2g" else {"lr": 1e-4, "decay": 1.0}
    options = RELEASED if model == "l2g" else RELEASED_LOSS
    return network(
        model, family, "released", n_train=6400, n_val=1600, options=options, keep_best=False, **rate
    )  # fmt: skip


def with_seed(run, seed):
    """A run from other training graphs, another start and another order; only those of seed 0 keep their weights."""
    return run if seed == 0 else replace(run, name=f"{run.name}-seed{seed}", seed=seed, keep_weights=False)


def repeated(run, n=N_SEEDS):
    """The trainings behind one row of a table."""
    return [with_seed(run, seed) for seed in range(n)]


def ladder(step, family):
    """L2G on the way from the text's to ours: a step of LADDER with all those before it, "text" or "ours"."""
    if step == "text":
        return text("l2g", family)
    if step == "ours":
        return network("l2g", family)
    names = list(LADDER)
    options = dict(TEXT)
    for name in names[: names.index(step) + 1]:
        options |= LADDER[name]
    run = network("l2g", family, f"ladder_{step}", options=tuple(options.items()), keep_best=False)
    return replace(run, keep_weights=False)


def repaired(change, family):
    """The text's L2G with one of REPAIRS."""
    options = tuple((dict(TEXT) | REPAIRS[change]).items())
    return replace(text("l2g", family), name=f"l2g-{family.lower()}-text_{change}", options=options, keep_weights=False)


def control(family):
    """L2G trained on nodes that are numbered at random: what does its decoder add if numbers mean nothing?"""
    return network("l2g", family, "shuffled", shuffle=True, keep_weights=False)


def harder(run):
    """A run of Table 1 on graphs with less structure, see HARDER."""
    return replace(run, name=f"{run.name}-harder", params=HARDER[run.family])


def budget(model, n_train):
    """A network that sees n_train different graphs of BA, in as many steps whatever n_train is.

    EquivariantL2G and GLAD take 2,000 steps, the number of a single pass over 64,000 graphs, Deep-graph 1,000, and
    L2G and Unrolling the 12,500 of Table 1.
    """
    rivals = {"glad": glad, "equivariant": equivariant, "deepgraph": deepgraph_fair}
    base = rivals.get(model, partial(network, model))("BA")
    steps = {"glad": 2000, "equivariant": 2000, "deepgraph": 1000}.get(model, 12_500)
    epochs = round(32 * steps / n_train)
    once = epochs == 1  # every graph is seen once: in parts, because the rate falls from epoch to epoch only
    if once:
        epochs = 16
    # the rate falls by as much from the first step to the last as in the run of the table
    decay = base.decay ** (base.epochs / epochs)
    return replace(
        base, name=f"{base.name}-budget{n_train}", n_train=n_train // epochs if once else n_train, n_val=64,
        epochs=epochs, batch_size=32, decay=round(decay, 6), stream=once, keep_best=False, keep_weights=False,
    )  # fmt: skip


def with_layers(model, n_layers):
    """Figure 3b: on BA; with 20 layers the plain run."""
    if n_layers == 20:
        return network(model, "BA")
    return network(model, "BA", f"T{n_layers}", n_layers=n_layers, epochs=60)


def with_nodes(model, n_nodes):
    """Figure 3c: on BA; with 20 nodes the plain run."""
    if n_nodes == 20:
        return network(model, "BA")
    options = NARROW if model == "l2g" else ()
    return network(model, "BA", f"m{n_nodes}", n_nodes=n_nodes, epochs=30, options=options)


def with_decoder(n_nodes, width):
    """Figure 3c without confounding: L2G on BA with a "narrow" (50 units) or a "wide" decoder, else alike."""
    if (n_nodes, width) == (50, "narrow"):
        return with_nodes("l2g", 50)
    told = [f"m{n_nodes}"] if n_nodes != 20 else []
    options = {"narrow": NARROW, "wide": WIDE}[width]
    return network(
        "l2g", "BA", *told, width, n_nodes=n_nodes, epochs=30, options=options, keep_weights=n_nodes == 20
    )  # fmt: skip


def unrolling_as_long():
    """Unrolling on 20 nodes, trained for as many epochs as the networks of `with_decoder`."""
    return network("unrolling", "BA", "short", epochs=30)


def with_graphs(run, n_train):
    """The appendix figure on training: a run that learns from fewer graphs, in as many epochs; with 4,000 itself."""
    if n_train == run.n_train:
        return run
    return replace(run, name=f"{run.name}-n{n_train}", n_train=n_train, keep_weights=False)


def graph_numbers(run):
    """Numbers of training graphs that the appendix figure shows for a run."""
    return N_GRAPHS if run.n_nodes == 20 else FEW_GRAPHS


def with_signals(model, n_signals):
    """The notebook on limits: on BA; with 3,000 signals the plain run."""
    if n_signals == 3000:
        return network(model, "BA")
    return network(model, "BA", f"signals{n_signals}", n_signals=n_signals, epochs=30)


def with_noise(sigma2):
    """Figure 2: L2G on BA."""
    return network("l2g", "BA", f"sigma{_power(sigma2)}", sigma2=sigma2, epochs=60)


def binary(family):
    """The appendix table: L2G on graphs without weights."""
    return network("l2g", family, "binary", weighted=False)


def glad(family, sigma2=1e-4, numerics="stable", seed=0):
    """GLAD as in the notebook of its authors, but on batches of 10 out of 200 graphs."""
    told = [
        *([f"sigma{_power(sigma2)}"] if sigma2 != 1e-4 else []),
        *([numerics] if numerics != "stable" else []),
        *([f"seed{seed}"] if seed else []),
    ]
    return network(
        "glad", family, *told, n_layers=15, n_train=200, n_val=200, sigma2=sigma2, epochs=40, batch_size=10, lr=0.03,
        decay=1.0, keep_best=False, options=(("numerics", numerics),), seed=seed,
    )  # fmt: skip


def deepgraph_fair(family):
    """Deep-graph on 8 x 4,000 graphs of the family, all different."""
    return network(
        "deepgraph", family, "fair", n_layers=5, n_val=256, epochs=8, lr=1e-3, decay=0.75, stream=True,
        keep_best=False, options=(("protocol", "fair"),),
    )  # fmt: skip


def deepgraph_original(n_nodes):
    """Deep-graph on 13 x 4,000 inputs of its authors' law, all different, with 35 signals each as in theirs."""
    return Run(
        f"deepgraph-original-m{n_nodes}", "deepgraph", "sparse", n_nodes, n_layers=5, n_val=256, n_signals=35,
        epochs=13, batch_size=32 if n_nodes == 20 else 16, lr=1e-3, decay=0.85, stream=True,
        keep_best=False, options=(("protocol", "original"),),
    )  # fmt: skip


def real_world(model, data):
    """The network that sees "sp100" or "abide", trained on random graphs of that size and kind.

    On 100 nodes 200 hidden units, all that 10 MB allow, cannot carry the graph: `correction` lets it pass beside them.
    On 39 the decoder learns so slowly that it spoils the layers before it, unless they are `detached`.
    """
    sp100 = Run(f"{model}-sp100", model, "SBM", n_nodes=100, params=SECTORS, n_train=2000, epochs=30)
    abide = Run(f"{model}-abide", model, "ER", n_nodes=39, params=SPARSE_ER, epochs=40)
    return {
        ("unrolling", "sp100"): sp100,
        ("l2g-wide", "sp100"): replace(sp100, model="l2g", name="l2g-sp100-wide", options=WIDE, keep_weights=False),
        ("l2g", "sp100"): replace(sp100, options=(("n_decoder", 200), ("correction", True))),
        ("unrolling", "abide"): abide,
        ("l2g", "abide"): replace(abide, epochs=60, stream=True, options=(("detached", True),)),
    }[model, data]


def equivariant(family, n_nodes=20, options=()):
    """EquivariantL2G on fresh graphs with shuffled ids; "mixed" has all families, many sizes, N of any order."""
    epochs = 70 if family == "mixed" else 50 if n_nodes == 20 else 30
    n_train, batch_size = (1024, 32) if n_nodes == 20 else (64, 8)
    told = ([] if n_nodes == 20 else [f"m{n_nodes}"]) + [f"no_{option}" for option, _ in options]
    return network(
        "equivariant", family, *told, n_nodes=n_nodes, n_layers=3, n_train=n_train, n_val=64, shuffle=True,
        epochs=epochs, batch_size=batch_size, lr=3e-3, decay=round(0.02 ** (1 / epochs), 3), stream=True,
        keep_best=False, options=options,
    )  # fmt: skip


def _decay(epochs, to=0.01):
    """By how much the step size falls from epoch to epoch, so that in the end it is that share of the first."""
    return round(to ** (1 / epochs), 6)


def broad_first(n_rounds=5, width=64, n_looks=2, epochs=2000):
    """BroadL2G on fresh graphs of the broad law as it is learned first; an epoch has graphs of one size."""
    return Run(
        f"broad-{n_rounds}x{width}-looks{n_looks}", "broad", "broad", n_nodes=30, n_layers=n_rounds, n_train=1,
        n_val=48, params=_departures(broad_law.FIRST), epochs=epochs, batch_size=1, lr=2e-3,
        decay=_decay(epochs), stream=True, keep_best=False,
        options=(("width", width), ("n_looks", n_looks), *BLIND),
    )  # fmt: skip


def broad_second(epochs=1800):
    """It goes on where `broad_first` ends, with a round and a look more, on a wider law."""
    start = broad_first()
    return replace(
        start, name="broad-6x64-looks3", start=start.name, n_layers=6, params=_departures(broad_law.SECOND),
        epochs=epochs, lr=1e-3, decay=_decay(epochs, to=0.02),
        options=(("width", 64), ("n_looks", 3), *BLIND), seed=1, average=100,
    )  # fmt: skip


def broad_third(epochs=1500):
    """It goes on where `broad_second` ends, with one look more; all looks weigh evidence."""
    start = broad_second()
    return replace(
        start, name="broad-7x64-looks4", start=start.name, n_layers=7, params=_departures(broad_law.THIRD),
        epochs=epochs, lr=4e-4, decay=_decay(epochs), options=(("width", 64), ("n_looks", 4), *UNFITTED), seed=2,
    )  # fmt: skip


def broad_fourth(epochs=1400):
    """The same network after a course with fewer graphs of very unequal weights."""
    start = broad_third()
    return replace(
        start, name="broad-7x64-fourth", start=start.name, params=_departures(broad_law.FOURTH), epochs=epochs,
        lr=3e-4, decay=_decay(epochs), seed=3,
    )  # fmt: skip


def broad_fifth(epochs=1500):
    """The same network after a course with more clean samples and more graphs without edges."""
    start = broad_fourth()
    return replace(
        start, name="broad-7x64-fifth", start=start.name, params=(), epochs=epochs, decay=_decay(epochs), seed=4
    )  # fmt: skip


def broad_sixth(epochs=2600):
    """It goes on where `broad_fifth` ends, wider and on a law with more measurement noise."""
    start = broad_fifth()
    return replace(
        start, name="broad-7x96-sixth", start=start.name, params=_departures(broad_law.SIXTH), n_val=16, epochs=epochs,
        lr=8e-4, decay=_decay(epochs), options=(("width", 96), ("n_looks", 4), *UNFITTED), seed=6, bfloat16=True,
    )  # fmt: skip


def broad_seventh(epochs=750):
    """The same network after a course on the law of the fifth."""
    start = broad_sixth()
    return replace(
        start, name="broad-7x96-seventh", start=start.name, params=(), epochs=epochs, lr=3e-4, decay=_decay(epochs),
        seed=7,
    )  # fmt: skip


def broad_eighth(epochs=1500):
    """The same network after a course with more clean samples; its looks fit the law of weights."""
    start = broad_seventh()
    return replace(
        start, name="broad-7x96-eighth", start=start.name, params=_departures(broad_law.EIGHTH), epochs=epochs, lr=6e-4,
        decay=_decay(epochs), options=(("width", 96), ("n_looks", 4), *UNSETTLED), seed=8,
    )  # fmt: skip


def broad(epochs=BROAD_EPOCHS):
    """GraphLearner's network: the same after one more course, in which weights and ground settle before each look."""
    start = broad_eighth()
    return replace(
        start, name="broad", start=start.name, epochs=epochs, lr=5e-4, decay=_decay(epochs),
        options=(("width", 96), ("n_looks", 4)), seed=9,
    )  # fmt: skip


def broad_told(epochs=300):
    """The fifth course's network after one with one kind of graphs and signals only: what is such knowledge worth?"""
    start = broad_fifth()
    return replace(
        start, name="broad-told", start=start.name, n_nodes=50, params=_departures(broad_law.TOLD), epochs=epochs,
        decay=_decay(epochs), seed=5, average=50,
    )  # fmt: skip


def _departures(law):
    """What another law has in place of `broad_law.LAW`, as `params` of a run."""
    return tuple((name, value) for name, value in law.items() if value != broad_law.LAW[name])


def exact(law):
    """BroadL2G on fresh graphs of one of `posterior.LAWS`, whose exact edge probabilities are known."""
    narrow = broad_fifth()  # wide enough for a single law
    base = broad_first(narrow.n_layers, epochs=EXACT_EPOCHS[law])
    return replace(
        base, name=f"broad-{law}", family=law, n_nodes=LAWS[law].n_nodes, params=(), options=narrow.options
    )  # fmt: skip


def _power(x):
    """1e-4 of 0.0001."""
    return f"1e{round(math.log10(x))}"


TRAINING_FIGURE = {  # the curves of the appendix figure on training
    "m = 20, T = 10": with_layers("l2g", 10),
    "m = 20, T = 20": with_layers("l2g", 20),
    "m = 50, T = 20": with_nodes("l2g", 50),
    "m = 100, T = 20": with_nodes("l2g", 100),
}


def _registry():
    runs = []
    for family in FAMILIES:  # Table 1
        for model in ("recurrent", "unrolling", "l2g"):
            runs += repeated(text(model, family))
            runs += repeated(recurrent(family) if model == "recurrent" else network(model, family))
        runs += repeated(released("unrolling", family)) + repeated(released("l2g", family))
        runs += repeated(control(family), FEW_SEEDS)
        runs += [glad(family), *(glad(family, numerics="newton_schulz", seed=seed) for seed in range(3))]
        runs += [deepgraph_fair(family)]
    for family, step in product(("BA", "ER"), LADDER):
        runs += repeated(ladder(step, family), FEW_SEEDS)
    for change in REPAIRS:
        runs += repeated(repaired(change, "ER"), FEW_SEEDS)
    for family in HARDER:
        runs += [harder(run) for run in (text("l2g", family), network("l2g", family), network("unrolling", family))]
    for model, numbers in BUDGETED.items():
        runs += [budget(model, n_train) for n_train in numbers]
    runs += [deepgraph_original(n_nodes) for n_nodes in (20, 39)]
    for sigma2 in SIGMA2:  # Figure 2
        runs += [with_noise(sigma2), *(glad("BA", sigma2, numerics) for numerics in NUMERICS)]
    for model in ("unrolling", "l2g"):  # Figures 3b and 3c, limits
        runs += [with_layers(model, n_layers) for n_layers in N_LAYERS]
        runs += [with_nodes(model, n_nodes) for n_nodes in (50, 100)]
        runs += [with_signals(model, n_signals) for n_signals in N_SIGNALS]
    runs += [with_decoder(n_nodes, width) for n_nodes in (20, 50) for width in ("narrow", "wide")]
    runs += [unrolling_as_long()]
    for base in TRAINING_FIGURE.values():
        runs += [with_graphs(base, n_train) for n_train in graph_numbers(base)]
    runs += [binary(family) for family in ("BA", "SBM", "WS")]
    runs += [real_world(model, data) for model in ("unrolling", "l2g") for data in ("sp100", "abide")]
    runs += [real_world("l2g-wide", "sp100")]
    runs += [equivariant(family) for family in FAMILIES] + [equivariant("BA", n_nodes=100)]
    runs += [equivariant("mixed", options=options) for options in ABLATIONS.values()]
    runs += [broad_told(), broad(), broad_eighth(), broad_seventh(), broad_sixth(), broad_fifth(), broad_fourth()]
    runs += [broad_third(), broad_second(), broad_first(), broad_first(4, 64, 0)]
    runs += [exact(law) for law in LAWS]
    return {run.name: run for run in runs}


RUNS = _registry()
SHIPPED = frozenset(f"{model}-{family.lower()}" for model in ("equivariant", "unrolling") for family in FAMILIES)
SHIPPED |= {"equivariant-mixed", "broad"}  # the networks of GraphLearner, part of the package


def select(pattern="*"):
    """Registered runs whose name matches a shell pattern."""
    chosen = [run for name, run in RUNS.items() if fnmatchcase(name, pattern)]
    if not chosen:
        raise ValueError(f"pattern={pattern!r} matches none of the {len(RUNS)} runs: see `l2g list`")
    return chosen


# --- what a run is made of -----------------------------------------------------------------------------------------

MODELS = {
    "unrolling": (Unrolling, lambda run: {"n_layers": run.n_layers, "n_nodes": run.n_nodes}),
    "recurrent": (Unrolling, lambda run: {"n_layers": run.n_layers, "n_nodes": run.n_nodes, "shared": True}),
    "l2g": (L2G, lambda run: {"n_layers": run.n_layers, "n_nodes": run.n_nodes}),
    "glad": (GLAD, lambda run: {"n_layers": run.n_layers, "sigma2": run.sigma2}),
    "deepgraph": (DeepGraph, lambda run: {"n_blocks": run.n_layers, "n_nodes": run.n_nodes}),
    "equivariant": (EquivariantL2G, lambda run: {"n_rounds": run.n_layers}),
    "broad": (BroadL2G, lambda run: {"n_rounds": run.n_layers}),
}


def build(run):
    """The untrained model of a run, initialised from its seed."""
    model, _ = _model_of(run)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        return model(**arguments(run))


def arguments(run):
    """All arguments of the model's constructor, defaults included."""
    model, given = _model_of(run)
    bound = inspect.signature(model).bind(**given(run), **dict(run.options))
    bound.apply_defaults()
    return dict(bound.arguments)


def law_of(run):
    """The broad law that a run of the family "broad" learns from."""
    return broad_law.LAW | dict(run.params)


def graph_parameters(run):
    """All parameters of the law that a run's graphs and numbers of signals follow, defaults included."""
    if run.family == "sparse":
        parameters = inspect.signature(sample_sparse).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    if run.family in LAWS:
        return {"law": asdict(LAWS[run.family]), "n_signals": EXACT_SIGNALS, "steps": STEPS_PER_EPOCH}
    if run.family == "broad":
        law = law_of(run)
        shares = dict(zip(broad_law.FAMILIES, law.pop("shares")))
        return {"n_nodes": law.pop("nodes"), "law": law, "shares": shares, "steps": STEPS_PER_EPOCH}
    parameters = {family: family_parameters(family, **dict(run.params)) for family in families(run)}
    if run.model == "equivariant":
        parameters["varied"] = {"n_parts": N_PARTS, "n_nodes": node_range(run), "n_signals": signal_range(run)}
    return parameters


UNTOLD = ("name", "keep_weights", "params", "options")  # the last two are part of the graphs and arguments
TOLD_IF_SET = ("start", "average", "bfloat16")


def configuration(run):
    """All that decides what a run learns, as JSON can hold it."""
    stated = {f.name: getattr(run, f.name) for f in fields(run) if f.name not in UNTOLD}
    stated = {name: value for name, value in stated.items() if value or name not in TOLD_IF_SET}
    return stated | {"arguments": arguments(run), "graphs": graph_parameters(run)}


def _model_of(run):
    if run.model not in MODELS:
        raise ValueError(f"model={run.model!r}: choose one of {', '.join(MODELS)}")
    return MODELS[run.model]


# --- what a run learns from ----------------------------------------------------------------------------------------


def sample(run, split, n, *, epoch=0, n_jobs=1):
    """Observations and graphs w (n, E) float32 of the "train", "val" or "test" set of a run.

    The test set depends on neither the run's seed nor its model, and all models see the same sets; EquivariantL2G,
    whose number of signals varies, has its own (see `varied`).
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: choose one of {', '.join(SPLITS)}")
    if run.family in LAWS:
        return _sample_law(run, split, n, epoch)
    if run.model == "broad":
        return _sample_broad(run, split, n, epoch)
    if run.model == "equivariant":
        return _sample_parts(run, split, n, epoch, n_jobs)
    return _sample_one(run, split, n, epoch, n_jobs)


def _sample_one(run, split, n, epoch, n_jobs):
    seed = np.random.SeedSequence((0 if split == "test" else run.seed, SPLITS.index(split), epoch))
    if run.family == "sparse":
        return sample_sparse(n, run.n_nodes, run.n_signals, seed=seed)
    graphs, signals = seed.spawn(2)
    w = sample_graphs(
        run.family, n, run.n_nodes, seed=graphs, weighted=run.weighted, shuffle=run.shuffle, n_jobs=n_jobs,
        **dict(run.params),
    )  # fmt: skip
    return sample_observations(w, run.n_signals, run.sigma2, seed=signals, n_jobs=n_jobs), w


def _sample_parts(run, split, n, epoch, n_jobs):
    """About n graphs, in equal parts; fewer in an epoch whose graphs are larger than the run's, for equal work.

    Graphs without edges are left out: no error is relative to them.
    """
    parts = varied(run, epoch) if split == "train" else [replace(run, family=family) for family in families(run)]
    share = min(1, (run.n_nodes / parts[0].n_nodes) ** 2) / len(parts)
    moments, signals, graphs = [], [], []
    for part in parts:
        observations, w = _sample_one(part, split, max(1, int(n * share)), epoch, n_jobs)
        kept = w.any(-1)
        moments.append(observations.moments[kept])
        signals.append(torch.full((int(kept.sum()),), observations.n_signals, dtype=torch.float64))
        graphs.append(w[kept])
    return Observations(torch.cat(moments), torch.cat(signals)), torch.cat(graphs)


def _sample_broad(run, split, n, epoch):
    """Graphs of the broad law: for training so many that they make up the steps of an epoch, all of one size."""
    seed = np.random.SeedSequence((0 if split == "test" else run.seed, SPLITS.index(split), epoch))
    chosen = None
    n_nodes = run.n_nodes
    if split == "train":
        n_nodes = round(log_uniform(np.random.default_rng(seed), *law_of(run)["nodes"]))
        n = STEPS_PER_EPOCH * build(run).graphs_per_step(n_nodes * (n_nodes - 1) // 2)
    else:  # errors are relative to the edges that there are
        shares = zip(broad_law.FAMILIES, law_of(run)["shares"])
        chosen = [family for family, share in shares if share and family != "empty"]
    draw = broad_law.sample_broad(n, n_nodes, seed=seed, families=chosen, law=law_of(run))
    kept = torch.ones(n, dtype=torch.bool) if split == "train" else draw.w.any(-1)
    observations = KindObservations(draw.moments, draw.n_signals, draw.signed, draw.self_loops)
    return observations[kept], draw.w[kept]


def _sample_law(run, split, n, epoch):
    """Graphs of one of `posterior.LAWS`: for training so many that they make up the steps of an epoch."""
    law = LAWS[run.family]
    numbers, graphs = np.random.SeedSequence((0 if split == "test" else run.seed, SPLITS.index(split), epoch)).spawn(2)
    if split == "train":
        n = STEPS_PER_EPOCH * build(run).graphs_per_step(law.n_pairs)
    n_signals = log_uniform(np.random.default_rng(numbers), *EXACT_SIGNALS, n).round()
    observations, w = sample_law(law, n, n_signals, seed=graphs)
    kept = w.any(-1) if split == "val" else torch.ones(n, dtype=torch.bool)  # errors are relative to the edges
    observations = KindObservations(observations.moments, observations.n_signals, law.signed, law.signed)
    return observations[kept], w[kept].float()


def families(run):
    return FAMILIES if run.family == "mixed" else (run.family,)


def varied(run, epoch):
    """The runs that make up one epoch of training EquivariantL2G, each with another number of signals.

    Only with doubtful edges among the clear ones are probabilities learned that hold on larger graphs, too. The family
    "mixed" has all families in turn, and another number of nodes in each epoch.
    """
    rng = np.random.default_rng((run.seed, epoch))
    n_nodes = int(log_uniform(rng, *MIXED_NODES)) if run.family == "mixed" else run.n_nodes
    signals = log_uniform(rng, *signal_range(run), N_PARTS)
    names = families(run) * N_PARTS
    return [
        replace(run, family=names[k], n_nodes=n_nodes, n_signals=int(n_signals), seed=N_PARTS * run.seed + k)
        for k, n_signals in enumerate(signals)
    ]


def node_range(run):
    return MIXED_NODES if run.family == "mixed" else (run.n_nodes, run.n_nodes)


def signal_range(run):
    return MIXED_SIGNALS if run.family == "mixed" else (run.n_signals / 10, 3 * run.n_signals)


def log_uniform(rng, low, high, size=None):
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


def graphs_seen(run):
    """How many different graphs a run learns from; those of EquivariantL2G are fewer where they are large."""
    return run.n_train * (run.epochs if run.stream else 1)


# --- trained runs --------------------------------------------------------------------------------------------------


def checkpoint(run, folder=None):
    """Folder and name of a run's checkpoint: in `folder`, or where it belongs."""
    if folder is None:
        folder = paths.WEIGHTS if run.name in SHIPPED else paths.CHECKPOINTS
    return folder / run.name


def state_of(run, folder=None):
    """'trained', 'diverged', 'stale' (another configuration, or damaged), 'started' or 'missing'."""
    return checkpoints.state_of(checkpoint(run, folder), configuration(run))


def read_record(run, folder=None):
    """Configuration, history and costs of a trained run, after checking that it is this run's and undamaged."""
    with _advice(run):
        return checkpoints.read_record(checkpoint(run, folder), configuration(run))


def load(run, *, folder=None, device="cpu"):
    """The trained model of a run."""
    with _advice(run):
        return checkpoints.load(checkpoint(run, folder), build(run), configuration(run), device)


def train_run(run, *, folder=None, device="cpu", progress=True, retrain=False):
    """The trained model of a run, trained now unless it is already; see `training.fit`."""
    with _advice(run):
        return training.fit(**_task(run, folder), device=device, progress=progress, retrain=retrain)


def train_together(runs, *, folder=None, device="cpu", progress=True, retrain=False):
    """Train runs that can be stacked side by side, see `training.fit_together`; trained ones only with `retrain`."""
    if not retrain:
        runs = [run for run in runs if state_of(run, folder) not in checkpoints.DONE]
    tasks = [training.Training(**_task(run, folder)) for run in runs]
    with _advice(*runs):
        training.fit_together(tasks, device=device, progress=progress, retrain=retrain)


def stacks(runs, n=N_SEEDS):
    """Runs in lists of at most n, in which they differ in their seeds only and can be trained together."""
    together = {}
    for run in runs:
        model, _ = MODELS.get(run.model, (None, None))
        stackable = getattr(model, "stackable", False)
        together.setdefault(replace(run, name="", seed=0, keep_weights=True) if stackable else run, []).append(run)
    return [group[k : k + n] for group in together.values() for k in range(0, len(group), n)]


def _task(run, folder):
    """The arguments of `training.Training`."""
    model = build(run)
    if run.bfloat16:
        model.learns_in_bfloat16 = True
    return {
        "model": model,
        "data": _data(run),
        "schedule": run.schedule,
        "path": checkpoint(run, folder),
        "configuration": configuration(run),
        "evaluate": partial(evaluate, run),
        "keep_weights": run.keep_weights,
        "begin": partial(_continue, run.start, folder) if run.start else None,
    }


def _continue(start, folder, model):
    """Give a model the weights of the run `start`, which may be smaller."""
    model.grow_from(load(look_up(start), folder=folder))


def evaluate(run, model):
    """What the sidecar of a network says under "test": its errors and AUC on each of the test graphs.

    "shuffled" is the same for nodes that are numbered at random. A large network that leaves no weights also tells what
    notebooks show of it: its error after each layer, and the graph of the S&P 100 if it was trained for that.
    """
    if run.keep_weights and run.model not in ("unrolling", "recurrent", "l2g"):
        return {}
    device = next(model.parameters()).device
    test = {}
    for suffix, shuffle in {"": run.shuffle, "_shuffled": True}.items():
        observations, w = _sample_one(replace(run, shuffle=shuffle), "test", N_TEST, 0, 1)
        w_hat = model.predict(observations.to(device)).cpu()
        if run.model == "deepgraph":
            w_hat = rescale(w_hat)
        for name, metric in (("gmse", gmse), ("auc", auc)):
            test[name + suffix] = _rounded(metric(w_hat, w))
    if not run.keep_weights and run.n_nodes > 20:
        observations, w = sample(run, "test", N_TEST)
        path = model(observations.to(device)).detach().cpu().clamp_min(0)
        test["gmse_layers"] = [_rounded(gmse(path[:, t], w)) for t in range(run.n_layers)]
        if run.params == SECTORS:
            y = datasets.sp100().y["all"].double()
            test["sp100"] = _rounded(model.predict((unit_scale(y) * y).to(device)).cpu())
    return test


def rescale(w):
    """Weights (..., E) with a mean degree of 1, for what has no scale, such as Deep-graph's probabilities."""
    return w * count_nodes(w.shape[-1]) / (2 * w.sum(-1, keepdim=True))


def _rounded(values):
    return [float(f"{x:.6g}") for x in values]


def test_errors(run, metric="gmse", folder=None):
    """A metric on each test graph, (64,), from the sidecar of a run or of its name; None if its training diverged."""
    run = look_up(run)
    record = read_record(run, folder)
    return None if record["diverged"] else np.array(record["test"][metric])


def load_or_train(run, *, folder=None, device="cpu"):
    """The trained model of a run or of its name; if there is none, says how long training should take, and trains."""
    run = look_up(run)
    if state_of(run, folder) in ("missing", "started"):
        seconds = expected_seconds(run, folder)
        print(f"{run.name} has no checkpoint; training takes about {seconds / 60:.1f} minutes on one core")
    return train_run(run, folder=folder, device=device)


def look_up(run):
    """A run, or the registered run of that name."""
    if isinstance(run, Run):
        return run
    if run not in RUNS:
        raise ValueError(f"run={run!r}: `l2g list` shows the names of all runs")
    return RUNS[run]


def expected_seconds(run, folder=None):
    """What training costs: the recorded time of an earlier training, or a measurement of a few steps."""
    with contextlib.suppress(CheckpointError, KeyError, TypeError, ZeroDivisionError):
        record = checkpoints.read_sidecar(checkpoint(run, folder))
        stored = record["configuration"]
        work = math.prod(getattr(run, name) / stored[name] for name in ("epochs", "n_train", "n_layers"))
        return record["seconds"] * work
    return training.expected_seconds(build(run), _data(run), run.schedule)


def step_seconds(run, steps=4):
    """Seconds that one training step of a run takes here, on one thread, measured."""
    return training.step_seconds(build(run), _data(run), run.schedule, steps)


def _data(run):
    return lambda split, n, epoch: sample(run, split, n, epoch=epoch)


@contextlib.contextmanager
def _advice(*chosen):
    """Adds to what is wrong with the checkpoint of a run, or of one of several, the command that mends it."""
    try:
        yield
    except (CheckpointError, FileNotFoundError) as error:
        if any(RUNS.get(run.name) != run for run in chosen):
            raise
        names = [run.name for run in chosen]
        pattern = names[0] if len(names) == 1 else f"'{min(names, key=len)}*'"
        retrain = " --retrain" if isinstance(error, CheckpointError) else ""
        raise type(error)(f"{error} (`l2g train {pattern}{retrain}`)") from None
