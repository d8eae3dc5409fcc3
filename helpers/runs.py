"""Every trained model behind a table or figure, by name, and the command that trains them.

python -m helpers.runs list [PATTERN]
python -m helpers.runs status [PATTERN]
python -m helpers.runs train [PATTERN] [--jobs N] [--scheduler ADDRESS] [--retrain]
"""

import argparse
import contextlib
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatch

from joblib import Parallel, delayed, parallel_config
from tqdm.auto import tqdm

from . import paths, training
from .graphs import FAMILIES
from .rivals.glad import NUMERICS

N_LAYERS = (2, 5, 10, 15, 20, 30)  # of Figure 3b
# On 50 and 100 nodes a small file takes a narrow decoder, which the graph must pass beside.
WIDTH = (("n_decoder", 50), ("correction", True))
SECTORS = (("sizes", (9, 10, 11, 6, 15, 15, 12, 15, 1, 2, 4)), ("p_out", 0.05))  # SBM like the S&P 100's sectors
SPARSE = (("p", 0.1),)  # ER as sparse as the text says, for brains
SIGMA2 = tuple(float(f"1e{k}") for k in range(-4, 5))  # of Figure 2
N_SIGNALS = (10, 30, 100, 300, 1000, 3000, 10_000)  # of notebook 09


@dataclass(frozen=True)
class Run:
    """One trained model: what it is, what it learns from, and how. The defaults are the paper's protocol.

    `params` and `options` are (name, value) pairs for the graph generator and the model; `stream` draws a fresh
    training set each epoch. `name` is derived, and spells out whatever differs from the defaults.
    """

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
    options: tuple = ()
    seed: int = 0

    @property
    def name(self):
        parts = [f"{self.model}-{self.family.lower()}-m{self.n_nodes}-t{self.n_layers}"]
        for field in fields(self)[4:]:
            value = getattr(self, field.name)
            if value != field.default:
                parts += [_spell(*pair) for pair in value] if isinstance(value, tuple) else [_spell(field.name, value)]
        return "-".join(parts)


def _spell(name, value):
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    if isinstance(value, tuple):
        value = "_".join(map(str, value))
    return f"{name}{value:g}" if isinstance(value, float) else f"{name}{value}"


def unrolling_slow(family):
    """Unrolling at the released script's rate, which the paper's numbers come from."""
    return Run("unrolling", family, lr=1e-4, decay=1.0, options=(("max_gradient", 0.0),))


def glad(family, sigma2=1e-4, numerics="stable", seed=0):
    """GLAD as in the notebook of its authors, but on batches of 10 out of 200 graphs."""
    return Run(
        "glad", family, n_layers=15, n_train=200, n_val=200, sigma2=sigma2, epochs=40, batch_size=10, lr=0.03,
        decay=1.0, options=(("numerics", numerics),), seed=seed,
    )  # fmt: skip


def deepgraph(family, protocol, epochs, decay=0.75, **options):
    """Deep-graph on epochs x 4000 inputs, all different; its own generator (`original`) is the family "sparse"."""
    return Run(
        "deepgraph", family, n_layers=5, n_val=256, epochs=epochs, lr=1e-3, decay=decay, stream=True,
        options=(("protocol", protocol),), **options,
    )  # fmt: skip


def real_world(model, data):
    """The network that sees the S&P 100 or ABIDE, trained on random graphs of that size and kind.

    On 100 nodes 200 hidden units, all that 10 MB allow, cannot carry the graph: `correction` lets it pass beside them.
    On 39 the decoder learns so slowly that it spoils the layers before it, unless they are `detached`.
    """
    sp100 = Run("unrolling", "SBM", n_nodes=100, params=SECTORS, n_train=2000, epochs=30)
    abide = Run("unrolling", "ER", n_nodes=39, params=SPARSE, epochs=40)
    return {
        ("unrolling", "sp100"): sp100,
        ("l2g", "sp100"): replace(sp100, model="l2g", options=(("n_decoder", 200), ("correction", True))),
        ("unrolling", "abide"): abide,
        ("l2g", "abide"): replace(abide, model="l2g", epochs=60, stream=True, options=(("detached", True),)),
    }[model, data]


ABLATIONS = {"full model": ()} | {  # of EquivariantL2G (mixed)
    f"without {part}": ((option, False),)
    for part, option in (("likelihood", "likelihood"), ("messages", "messages"), ("N", "signals"))
}


def equivariant(family, n_nodes=20, options=()):
    """EquivariantL2G on fresh graphs with shuffled ids; "mixed" has all families, many sizes, N of any order."""
    epochs = 70 if family == "mixed" else 50 if n_nodes == 20 else 30
    n_train, batch_size = (1024, 32) if n_nodes == 20 else (64, 8)
    return Run(
        "equivariant", family, n_nodes, n_layers=3, n_train=n_train, n_val=64, shuffle=True, epochs=epochs,
        batch_size=batch_size, lr=3e-3, decay=round(0.02 ** (1 / epochs), 3), stream=True, options=options,
    )  # fmt: skip


def _registry():
    runs = []
    for family in FAMILIES:
        runs += [Run("recurrent", family, epochs=20), Run("unrolling", family), Run("l2g", family)]
        runs += [unrolling_slow(family)]
        runs += [glad(family)] + [glad(family, numerics="newton_schulz", seed=seed) for seed in range(3)]
    for model in ("unrolling", "l2g"):
        runs += [Run(model, "BA", n_layers=n, epochs=60) for n in N_LAYERS if n != 20]  # Figure 3b
        runs += [Run(model, "BA", n_nodes=m, epochs=30, options=WIDTH if model == "l2g" else ()) for m in (50, 100)]
    for n in (250, 1000):  # the appendix figure on training
        runs += [Run("l2g", "BA", n_layers=10, n_train=n, epochs=60), Run("l2g", "BA", n_train=n)]
        runs += [Run("l2g", "BA", n_nodes=m, n_train=n, epochs=30, options=WIDTH) for m in (50, 100)]
    runs += [Run("l2g", family, weighted=False) for family in ("BA", "SBM", "WS")]  # the appendix table
    for sigma2 in SIGMA2:
        runs += [Run("l2g", "BA", sigma2=sigma2, epochs=60)] + [glad("BA", sigma2, numerics) for numerics in NUMERICS]
    runs += [deepgraph(family, "fair", 8) for family in FAMILIES]
    runs += [deepgraph(family, "in_family", 4) for family in FAMILIES]
    runs += [deepgraph("sparse", "original", 13, 0.85, n_signals=35)]
    runs += [deepgraph("sparse", "original", 6)]
    runs += [deepgraph("sparse", "original", 13, 0.85, n_signals=35, n_nodes=39, batch_size=16)]
    runs += [real_world(model, data) for model in ("unrolling", "l2g") for data in ("sp100", "abide")]
    for n_signals in (n for n in N_SIGNALS if n != 3000):
        runs += [Run(model, "BA", n_signals=n_signals, epochs=30) for model in ("unrolling", "l2g")]
    runs += [equivariant(family) for family in FAMILIES] + [equivariant("BA", n_nodes=100)]
    runs += [equivariant("mixed", options=options) for options in ABLATIONS.values()]
    return {run.name: run for run in runs}


RUNS = _registry()


def train(runs, *, n_jobs=1, scheduler=None, retrain=False, folder=None):
    """Train runs in parallel processes, here or on the Dask cluster at `scheduler`; yields names as they finish.

    A worker that dies loses nothing: its task is given to another, which resumes from the last epoch if it sees the
    same disk. Checkpoints travel back with the answer, so the cluster need not share a disk with us.
    """
    with contextlib.ExitStack() as stack:
        backend = {"backend": "loky", "n_jobs": n_jobs, "inner_max_num_threads": 1}
        if scheduler is not None:
            backend = {"backend": "dask", "client": stack.enter_context(_dask_client(scheduler))}
        stack.enter_context(parallel_config(**backend))
        tasks = (delayed(_train_one)(run, retrain, folder, scheduler is None) for run in runs)
        for name, contents in Parallel(return_as="generator_unordered")(tasks):
            for file_name, content in contents.items():
                target = (paths.CHECKPOINTS if folder is None else folder) / file_name
                if not target.exists() or target.read_bytes() != content:
                    paths.write_atomically(target, content)
            yield name


def _dask_client(address):
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--scheduler needs Dask: pip install 'l2g-reproduction[dask]'") from None
    return Client(address)


def _train_one(run, retrain, folder, local):
    training.fit(run, folder=folder, progress=False, retrain=retrain)
    weights, sidecar, _ = training.files(run, folder)
    return run.name, {} if local else {path.name: path.read_bytes() for path in (weights, sidecar)}


def select(pattern="*"):
    """Registered runs whose name matches a shell pattern."""
    chosen = [run for name, run in RUNS.items() if fnmatch(name, pattern)]
    if not chosen:
        raise ValueError(f"pattern={pattern!r} matches none of the {len(RUNS)} runs: see `python -m helpers.runs list`")
    return chosen


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m helpers.runs", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for command, text in (
        ("list", "names of all runs"),
        ("status", "what is trained, stale or missing, and what it costs"),
        ("train", "train what is missing"),
    ):
        sub = commands.add_parser(command, help=text, description=text)
        sub.add_argument("pattern", nargs="?", default="*", help="shell pattern on the names, such as 'l2g-ba-*'")
    sub.add_argument("--jobs", type=int, default=1, help="processes to use")
    sub.add_argument("--scheduler", help="address of a Dask scheduler to send the runs to")
    sub.add_argument("--retrain", action="store_true", help="train again what is already trained")
    args = parser.parse_args(argv)
    try:
        runs = select(args.pattern)
        {"list": _list, "status": _status, "train": _train}[args.command](runs, args)
    except (ValueError, ImportError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _list(runs, args):
    for run in runs:
        print(run.name)


def _status(runs, args):
    total = 0.0
    for run in runs:
        state = training.state_of(run)
        seconds = training.expected_seconds(run)
        total += seconds * (state != "trained")
        print(f"{state:8}  {seconds:7.0f} s  {run.name}")
    print(f"{total / 3600:.2f} hours on one core to train what is not trained")


def _train(runs, args):
    states = {run: training.state_of(run) for run in runs}
    for run, state in states.items():
        if state == "stale" and not args.retrain:
            print(f"{run.name} is stale and left alone: --retrain replaces it")
    todo = [run for run, state in states.items() if args.retrain or state in ("missing", "started")]
    print(f"{len(todo)} of {len(runs)} runs to train")
    names = train(todo, n_jobs=args.jobs, scheduler=args.scheduler, retrain=args.retrain)
    for name in (bar := tqdm(names, "runs", len(todo))):
        bar.set_postfix_str(name)


if __name__ == "__main__":
    from helpers.runs import main  # not __main__'s own: worker processes must find the same Run

    main()
