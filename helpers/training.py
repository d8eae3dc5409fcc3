"""Train a run, or load it. The only place that reads and writes checkpoints.

A trained run is two files: `<name>.safetensors`, the weights, and `<name>.json`, everything else a reader may ask for.
During training `<name>.resume.safetensors` holds weights, optimiser state and history after the last epoch, in one
file replaced atomically. Every random number of an epoch derives from the run's seed and the epoch's index, so a
killed run continues as if nothing had happened.
"""

import contextlib
import hashlib
import json
import platform
import time
from dataclasses import asdict, fields
from importlib.metadata import version

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch.nn.utils import clip_grad_norm_
from tqdm.auto import tqdm

from . import paths
from .equivariant import EquivariantL2G
from .metrics import gmse
from .models import L2G, Unrolling
from .rivals.deepgraph import DeepGraph
from .rivals.glad import GLAD
from .signals import SPLITS, covariance_distances, sample_split

SAVE_EVERY = 2  # seconds between two resume files
LIBRARIES = ("torch", "numpy", "scipy", "networkx", "safetensors")


class CheckpointError(ValueError):
    """A checkpoint is corrupt or belongs to another configuration."""


# --- what a run is made of -----------------------------------------------------------------------------------------


def _unrolling(run, **options):
    return Unrolling(run.n_layers, n_nodes=run.n_nodes, **options)


def _recurrent(run, **options):
    return Unrolling(run.n_layers, n_nodes=run.n_nodes, shared=True, **options)


def _l2g(run, **options):
    return L2G(run.n_nodes, run.n_layers, **options)


def _glad(run, **options):
    return GLAD(run.sigma2, run.n_layers, **options)


def _deepgraph(run, **options):
    return DeepGraph(run.n_nodes, run.n_layers, **options)


def _equivariant(run, **options):
    return EquivariantL2G(run.n_layers, **options)


MODELS = {"unrolling": _unrolling, "recurrent": _recurrent, "l2g": _l2g, "glad": _glad, "deepgraph": _deepgraph}
MODELS |= {"equivariant": _equivariant}


def build(run):
    """The untrained model of a run, initialised from its seed."""
    if run.model not in MODELS:
        raise ValueError(f"model={run.model!r}: choose one of {', '.join(MODELS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        return MODELS[run.model](run, **dict(run.options))


def sample_pairs(run, split, n, *, epoch=0, n_jobs=1):
    """(distances, graphs) of a run's family, each (n, E) float32. The same split is the same set for every model."""
    S, w = sample_split(run, split, n, epoch=epoch, n_jobs=n_jobs)
    return covariance_distances(S).to(w), w


def pairs_of(model):
    """What a model learns from: its own `sample_pairs(run, split, n, *, epoch)` if it has one, else the above."""
    return getattr(model, "sample_pairs", sample_pairs)


def configuration(run):
    """What differs from the protocol, as JSON sees it: a new option with a default leaves old checkpoints valid."""
    chosen = {f.name: getattr(run, f.name) for f in fields(run) if getattr(run, f.name) != f.default}
    return json.loads(json.dumps(chosen))


def configuration_hash(run):
    return hashlib.sha256(json.dumps(configuration(run), sort_keys=True).encode()).hexdigest()[:16]


# --- training ------------------------------------------------------------------------------------------------------


def fit(run, *, folder=None, device="cpu", progress=True, retrain=False):
    """Train a run to its last epoch, continuing where an earlier call was cut off; returns the model.

    A model with `keep_best` ends with the weights of the epoch that validated best, any other with the last ones. A run
    that is already trained is loaded, and a checkpoint that is not this run's is refused, unless `retrain`.
    """
    if not retrain and state_of(run, folder) in ("trained", "stale"):
        return load(run, folder=folder, device=device)
    with _one_thread():
        model = build(run).to(device)
        optimiser = torch.optim.Adam(model.parameters(), lr=run.lr, fused=True)
        history, best = _restore(run, folder, model, optimiser)
        sample = pairs_of(model)
        train = _to(device, sample(run, "train", run.n_train))
        val = _to(device, sample(run, "val", run.n_val))
        saved = time.monotonic()
        epochs = range(len(history), run.epochs)
        with tqdm(epochs, run.name, run.epochs, initial=len(history), disable=not progress, leave=False) as bar:
            for epoch in bar:
                start = time.process_time()  # of this process: what else the machine does must not count
                if run.stream and epoch > 0:
                    train = _to(device, sample(run, "train", run.n_train, epoch=epoch))
                loss = _train_epoch(run, model, optimiser, train, epoch)
                error = gmse(getattr(model, "predict_pairs", model.predict)(val[0]), val[1]).mean().item()
                history.append({"loss": loss, "val_gmse": error, "seconds": round(time.process_time() - start, 4)})
                if error <= min(x["val_gmse"] for x in history):
                    best = {name: t.clone() for name, t in model.state_dict().items()}
                bar.set_postfix(loss=f"{loss:.4f}", gmse=f"{error:.4f}")
                if time.monotonic() - saved > SAVE_EVERY or epoch == run.epochs - 1:
                    _save_progress(run, folder, model, optimiser, history, best)
                    saved = time.monotonic()
        if getattr(model, "keep_best", False):
            model.load_state_dict(best)
        _save(run, folder, model, history)
    return model.eval()


def _train_epoch(run, model, optimiser, pairs, epoch):
    """One pass over the training pairs; returns the mean loss."""
    generator = torch.Generator().manual_seed(_epoch_seed(run, epoch))
    for group in optimiser.param_groups:
        group["lr"] = run.lr * run.decay**epoch
    model.train()
    x, w = pairs
    total = 0.0
    for batch in torch.randperm(len(w), generator=generator).split(run.batch_size):
        loss = model.loss(x[batch], w[batch], generator)
        optimiser.zero_grad()
        loss.backward()
        if bound := getattr(model, "max_gradient", 0):
            for parameter in model.parameters():
                clip_grad_norm_(parameter, bound)
        optimiser.step()
        total += loss.detach() * len(batch)
    model.eval()
    mean = float(total) / len(w)
    if not np.isfinite(mean):
        raise FloatingPointError(f"{run.name}: the loss is {mean} in epoch {epoch + 1}; lower lr={run.lr}")
    return mean


def _epoch_seed(run, epoch):
    return int(np.random.SeedSequence((run.seed, len(SPLITS), epoch)).generate_state(1, np.uint64)[0] >> 1)


def _to(device, tensors):
    return tuple(t.to(device) for t in tensors)


@contextlib.contextmanager
def _one_thread():
    """Small kernels gain nothing from threads, and one thread adds up in the same order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# --- checkpoints ---------------------------------------------------------------------------------------------------


def files(run, folder=None):
    """Paths of a run's weights, sidecar and resume file."""
    folder = paths.CHECKPOINTS if folder is None else folder
    return tuple(folder / f"{run.name}{suffix}" for suffix in (".safetensors", ".json", ".resume.safetensors"))


def state_of(run, folder=None):
    """'trained', 'stale' (another configuration, or damaged), 'started' or 'missing'."""
    weights, sidecar, resume = files(run, folder)
    try:
        read_sidecar(run, folder)
        return "trained"
    except (CheckpointError, FileNotFoundError):
        if resume.exists():
            return "started"
        return "stale" if weights.exists() or sidecar.exists() else "missing"


def read_sidecar(run, folder=None):
    """Configuration, history and costs of a trained run, after checking that it is this run's and undamaged."""
    weights, sidecar, _ = files(run, folder)
    for path in (weights, sidecar):
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: train it with `python -m helpers.runs train {run.name}`")
    remedy = f"delete it or retrain with `python -m helpers.runs train {run.name} --retrain`"
    try:
        record = json.loads(sidecar.read_text())
        stored, digest = dict(record["configuration"]), record["weights_sha256"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{sidecar} is not a readable sidecar ({error!r}): {remedy}") from None
    ours = configuration(run)
    if stored != ours:
        keys = sorted(k for k in {*stored, *ours} if stored.get(k) != ours.get(k))
        say = lambda chosen, key: repr(chosen[key]) if key in chosen else "the default"  # noqa: E731
        differences = ", ".join(f"{k}: {say(stored, k)} there, {say(ours, k)} here" for k in keys)
        raise CheckpointError(f"{sidecar} belongs to another configuration ({differences}): {remedy}")
    if hashlib.sha256(weights.read_bytes()).hexdigest() != digest:
        raise CheckpointError(f"{weights} is truncated, corrupt or not the file its sidecar describes: {remedy}")
    return record


def load(run, *, folder=None, device="cpu"):
    """The trained model of a run."""
    read_sidecar(run, folder)
    weights, _, _ = files(run, folder)
    model = build(run)
    try:
        model.load_state_dict(tensors_from_bytes(weights.read_bytes()))
    except (SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"{weights} does not fit {run.name}: {error}") from None
    return model.to(device).eval()


def load_or_train(run, *, folder=None, device="cpu"):
    """The trained model of a run; if there is none, says how long training should take, and trains."""
    if state_of(run, folder) != "trained":
        seconds = expected_seconds(run, folder)
        print(f"{run.name} has no checkpoint; training takes about {seconds / 60:.1f} minutes on one core")
    return fit(run, folder=folder, device=device)


def expected_seconds(run, folder=None):
    """What training costs: the recorded time of an earlier training, or a measurement of a few steps."""
    _, sidecar, _ = files(run, folder)
    with contextlib.suppress(OSError, ValueError, KeyError):
        record = json.loads(sidecar.read_text())
        stored = record["run"]
        scale = run.epochs * run.n_train * run.n_layers / (stored["epochs"] * stored["n_train"] * stored["n_layers"])
        return record["seconds"] * scale
    return step_seconds(run) * run.epochs * run.n_train / run.batch_size


def step_seconds(run, steps=4):
    """Seconds that one training step of a run takes here, on one thread, measured; nothing is trained."""
    with _one_thread():
        model = build(run)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.0, fused=True)
        pairs = pairs_of(model)(run, "train", steps * run.batch_size)
        _train_epoch(run, model, optimiser, [x[: run.batch_size] for x in pairs], 0)  # warm up
        start = time.perf_counter()
        _train_epoch(run, model, optimiser, pairs, 0)
        return (time.perf_counter() - start) / steps


def _save(run, folder, model, history):
    """Weights, then the sidecar that vouches for them, then the resume file goes: a kill between loses nothing."""
    weights, sidecar, resume = files(run, folder)
    content = tensors_to_bytes({name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()})
    seconds = sum(epoch["seconds"] for epoch in history)
    record = {
        "name": run.name,
        "run": asdict(run),
        "configuration": configuration(run),
        "configuration_hash": configuration_hash(run),
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        "n_parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 2),
        "seconds_per_epoch": round(seconds / len(history), 4),
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        "history": {key: [epoch[key] for epoch in history] for key in history[0]},
    }
    paths.write_atomically(weights, content)
    paths.write_atomically(sidecar, json.dumps(record, indent=1).encode())
    resume.unlink(missing_ok=True)


def _save_progress(run, folder, model, optimiser, history, best):
    tensors = {f"model.{name}": t.cpu().contiguous() for name, t in model.state_dict().items()}
    tensors |= {f"best.{name}": t.cpu().contiguous() for name, t in best.items()}
    for index, state in optimiser.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{key}": t.cpu().contiguous() for key, t in state.items()}
    metadata = {"configuration_hash": configuration_hash(run), "history": json.dumps(history)}
    paths.write_atomically(files(run, folder)[2], tensors_to_bytes(tensors, metadata))


def _restore(run, folder, model, optimiser):
    """Fill model and optimiser from the resume file, if there is one; returns the history and the best weights."""
    resume = files(run, folder)[2]
    if not resume.exists():
        return [], {}
    try:
        with safe_open(resume, "pt") as file:
            metadata = file.metadata()
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise CheckpointError(f"{resume} is truncated or corrupt ({error}): delete it to start afresh") from None
    if metadata.get("configuration_hash") != configuration_hash(run):
        raise CheckpointError(f"{resume} belongs to another configuration: delete it to start {run.name} afresh")
    current, best, moments = {}, {}, {}
    for key, tensor in tensors.items():
        kind, name = key.split(".", 1)
        if kind == "adam":
            index, name = name.split(".")
            moments.setdefault(int(index), {})[name] = tensor
        else:
            {"model": current, "best": best}[kind][name] = tensor
    model.load_state_dict(current)
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    return json.loads(metadata["history"]), best
