"""Train a model, or load it. The only place that reads and writes checkpoints; it knows no model by name.

A trained model is two files: `<name>.safetensors`, the weights, and `<name>.json`, everything else that a reader may
ask for. During training `<name>.resume.safetensors` holds weights, optimiser state and history after the last epoch, in
one file that is replaced atomically. Every random number of an epoch derives from the seed and the epoch's index, so a
training that was killed continues as if nothing had happened.

A model offers `prepare(observations)` (one tensor, graphs along dimension 0), `loss(prepared, w, generator)` and
`predict(observations)`. It may have `labels(w)` (what it predicts instead of w), `keep_best` (end with the weights that
validated best), `max_gradient` (bound on the norm of each parameter's gradient) and `half_precision` (prefixes of the
weights that are stored as float16).
"""

import contextlib
import copy
import hashlib
import json
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch.nn.utils import clip_grad_norm_
from tqdm.auto import tqdm

from . import paths
from .metrics import gmse

SPLITS = ("train", "val", "test")
SAVE_EVERY = 2  # seconds between two resume files
LIBRARIES = ("torch", "numpy", "scipy", "networkx", "safetensors")
REMEDY = "train it again with retrain=True"


class CheckpointError(ValueError):
    """A checkpoint is corrupt or belongs to another configuration."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a model learns, and from how many graphs.

    epochs, batch_size : passes over the training graphs, and graphs per step
    lr, decay : step size of Adam in the first epoch, and its factor from each epoch to the next
    n_train, n_val : number of graphs
    stream : draw new training graphs for each epoch
    seed : of the order of the graphs and of the noise in the loss
    """

    epochs: int
    batch_size: int
    lr: float
    decay: float
    n_train: int
    n_val: int
    stream: bool
    seed: int

    def __post_init__(self):
        for name in ("epochs", "batch_size", "n_train", "n_val"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")


# --- training ------------------------------------------------------------------------------------------------------


def fit(model, data, schedule, path, configuration, *, device="cpu", progress=True, retrain=False):
    """Train a model to its last epoch, continuing where an earlier call was cut off.

    Parameters
    ----------
    model : untrained, see the top of this file
    data : callable (split, n, epoch) -> Observations and graphs w (n, E), always the same for the same arguments
    schedule : Schedule
    path : folder and name of the checkpoint, without suffix
    configuration : all that decides what is learned, as JSON can hold it; a checkpoint of another one is refused
    device : where the model learns; random numbers are drawn on the CPU, wherever that is
    progress : show a bar
    retrain : train what is already trained, and replace what is stale or damaged

    Returns
    -------
    The model with exactly the weights that are stored, on `device`, in evaluation mode.
    """
    path = Path(path)
    if not retrain and state_of(path, configuration) in ("trained", "stale"):
        return load(path, model, configuration, device)
    with _one_thread():
        model.to(device)
        optimiser = _adam(model, schedule)
        history, best = _restore(path, configuration, model, optimiser, retrain)
        train = _prepare(model, data, "train", schedule.n_train, 0, device)
        observations, w_val = data("val", schedule.n_val, 0)
        observations = observations.to(device)
        saved = time.monotonic()
        epochs = range(len(history), schedule.epochs)
        with tqdm(epochs, path.name, schedule.epochs, initial=len(history), disable=not progress, leave=False) as bar:
            for epoch in bar:
                start = time.process_time()  # of this process: what else the machine does must not count
                if schedule.stream and epoch > 0:
                    train = _prepare(model, data, "train", schedule.n_train, epoch, device)
                loss = _train_epoch(model, optimiser, schedule, *train, epoch)
                error = _validate(model, observations, w_val, schedule, epoch)
                history.append({"loss": loss, "val_gmse": error, "seconds": round(time.process_time() - start, 4)})
                if error <= min(x["val_gmse"] for x in history):
                    best = {name: t.clone() for name, t in model.state_dict().items()}
                bar.set_postfix(loss=f"{loss:.4f}", gmse=f"{error:.4f}")
                if time.monotonic() - saved > SAVE_EVERY or epoch == schedule.epochs - 1:
                    _save_progress(path, configuration, model, optimiser, history, best)
                    saved = time.monotonic()
        if getattr(model, "keep_best", False):
            model.load_state_dict(best)
        save(path, model, history, configuration)
    return model.eval()


def _adam(model, schedule):
    return torch.optim.Adam(model.parameters(), lr=schedule.lr, fused=True)  # fused: one call for all parameters


def _prepare(model, data, split, n, epoch, device):
    observations, w = data(split, n, epoch)
    return model.prepare(observations).to(device), w.to(device)


def _train_epoch(model, optimiser, schedule, prepared, w, epoch):
    """One pass over the training graphs; returns the mean loss."""
    generator = torch.Generator().manual_seed(_epoch_seed(schedule.seed, epoch))
    for group in optimiser.param_groups:
        group["lr"] = schedule.lr * schedule.decay**epoch
    bound = getattr(model, "max_gradient", 0)
    model.train()
    total = 0.0
    for batch in torch.randperm(len(w), generator=generator).split(schedule.batch_size):
        batch = batch.to(w.device)
        loss = model.loss(prepared[batch], w[batch], generator)
        optimiser.zero_grad()
        loss.backward()
        if bound:
            for parameter in model.parameters():
                clip_grad_norm_(parameter, bound)
        optimiser.step()
        total += loss.detach() * len(batch)
    model.eval()
    mean = float(total) / len(w)
    if not np.isfinite(mean):
        raise FloatingPointError(f"the loss is {mean} in epoch {epoch + 1}: lower lr={schedule.lr}")
    return mean


def _validate(model, observations, w, schedule, epoch):
    """Mean GMSE of the predictions."""
    w_hat = model.predict(observations)
    if hasattr(model, "labels"):
        w = model.labels(w)
    if not w_hat.isfinite().all():
        raise FloatingPointError(f"predictions are not finite after epoch {epoch + 1}: lower lr={schedule.lr}")
    return gmse(w_hat, w).mean().item()


def _epoch_seed(seed, epoch):
    """Of an epoch's order and noise; the second number keeps it apart from the seeds of the splits."""
    return int(np.random.SeedSequence((seed, len(SPLITS), epoch)).generate_state(1, np.uint64)[0] >> 1)


@contextlib.contextmanager
def _one_thread():
    """Small kernels gain nothing from threads, and one thread adds up in the same order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# --- what training costs -------------------------------------------------------------------------------------------


def step_seconds(model, data, schedule, steps=4):
    """Seconds that one training step takes here, on one thread, measured; the model is left as it is."""
    seconds, taken = _time_steps(model, data, schedule, steps * schedule.batch_size)
    return seconds / taken


def expected_seconds(model, data, schedule, steps=4):
    """Seconds that all of the training takes here, from a measurement of a few steps."""
    n = steps * schedule.batch_size
    seconds, _ = _time_steps(model, data, schedule, n)
    return seconds * schedule.epochs * schedule.n_train / n


def _time_steps(model, data, schedule, n):
    """Seconds and number of the steps over `n` training graphs; `data` may answer with more or fewer."""
    with _one_thread():
        model = copy.deepcopy(model)
        optimiser = _adam(model, schedule)
        prepared, w = _prepare(model, data, "train", n, 0, next(model.parameters()).device)
        size = schedule.batch_size
        _train_epoch(model, optimiser, schedule, prepared[:size], w[:size], 0)  # warm up
        start = time.perf_counter()
        _train_epoch(model, optimiser, schedule, prepared, w, 0)
        return time.perf_counter() - start, -(-len(w) // size)


# --- checkpoints ---------------------------------------------------------------------------------------------------


def files(path):
    """Paths of the weights, the sidecar and the resume file of a checkpoint `path`, folder and name."""
    return tuple(Path(f"{path}{suffix}") for suffix in (".safetensors", ".json", ".resume.safetensors"))


def state_of(path, configuration=None):
    """'trained', 'stale' (another configuration, or damaged), 'started' or 'missing'."""
    weights, sidecar, resume = files(path)
    try:
        read_record(path, configuration)
        return "trained"
    except (CheckpointError, FileNotFoundError):
        if resume.exists():
            return "started"
        return "stale" if weights.exists() or sidecar.exists() else "missing"


def read_record(path, configuration=None):
    """Configuration, history and costs of a trained model, after checking that its files are undamaged.

    With `configuration`, also that it is the one it was trained with.
    """
    weights, sidecar, _ = files(path)
    missing = [file for file in (weights, sidecar) if not file.exists()]
    if len(missing) == 2:
        raise FileNotFoundError(f"{weights} is missing: train it first")
    if missing:
        raise CheckpointError(f"{missing[0]} is missing, the other half of the checkpoint is there: {REMEDY}")
    record = read_sidecar(path)
    if configuration is not None:
        _compare(record["configuration"], _as_json(configuration), sidecar)
    if hashlib.sha256(weights.read_bytes()).hexdigest() != record["weights_sha256"]:
        raise CheckpointError(f"{weights} is truncated, corrupt or not the file its sidecar describes: {REMEDY}")
    return record


def read_sidecar(path):
    """What a sidecar says, whether or not it is true of the weights; CheckpointError if it is not a sidecar at all."""
    _, sidecar, _ = files(path)
    try:
        record = json.loads(sidecar.read_text())
        whole = (
            isinstance(record["configuration"], dict)
            and isinstance(record["weights_sha256"], str)
            and isinstance(record["history"], dict)
            and record["seconds"] >= 0
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{sidecar} is not a readable sidecar ({error!r}): {REMEDY}") from None
    if not whole:
        raise CheckpointError(f"{sidecar} is not a readable sidecar (an entry has the wrong type): {REMEDY}")
    return record


def load(path, model, configuration=None, device="cpu"):
    """`model` with the weights of a checkpoint, on `device`, in evaluation mode."""
    read_record(path, configuration)
    weights, _, _ = files(path)
    try:
        model.load_state_dict(tensors_from_bytes(weights.read_bytes()))
    except (SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"{weights} does not fit {type(model).__name__} ({_one_line(error)}): {REMEDY}") from None
    return model.to(device).eval()


def save(path, model, history, configuration):
    """Weights, then the sidecar that vouches for them, then the resume file goes: a kill between loses nothing.

    The model itself takes the weights as they are stored: where it asks for half precision, they are rounded.
    """
    weights, sidecar, resume = files(path)
    tensors = _to_store(model)
    content = tensors_to_bytes(tensors)
    seconds = sum(epoch["seconds"] for epoch in history)
    record = {
        "name": weights.stem,
        "configuration": _as_json(configuration),
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
    model.load_state_dict(tensors)


def _to_store(model):
    """State dict on the CPU, float16 under the prefixes that the model names unless a value is beyond its range."""
    prefixes = tuple(getattr(model, "half_precision", ()))
    tensors = _on_cpu(model.state_dict())
    halves = {name: t.half() for name, t in tensors.items() if name.startswith(prefixes)}
    return tensors | {name: t for name, t in halves.items() if t.isfinite().all()}


def _on_cpu(tensors, prefix=""):
    return {f"{prefix}{name}": t.detach().cpu().contiguous() for name, t in tensors.items()}


def _one_line(error):
    return " ".join(str(error).split())


def _as_json(configuration):
    return json.loads(json.dumps(configuration))


def _compare(stored, ours, file):
    """Nothing if two configurations are equal, else CheckpointError with what differs."""
    if stored != ours:
        stored, ours = _flatten(stored), _flatten(ours)
        keys = sorted(key for key in {*stored, *ours} if stored.get(key) != ours.get(key))
        text = ", ".join(f"{key}: {stored.get(key, 'nothing')} there, {ours.get(key, 'nothing')} here" for key in keys)
        raise CheckpointError(f"{file} belongs to another configuration ({text}): {REMEDY}")


def _flatten(configuration, prefix=""):
    """{"a": {"b": 1}} -> {"a.b": "1"}."""
    flat = {}
    for key, value in configuration.items():
        if isinstance(value, dict) and value:
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = repr(value)
    return flat


# --- resume files --------------------------------------------------------------------------------------------------


def _save_progress(path, configuration, model, optimiser, history, best):
    tensors = _on_cpu(model.state_dict(), "model.") | _on_cpu(best, "best.")
    for index, state in optimiser.state_dict()["state"].items():
        tensors |= _on_cpu(state, f"adam.{index}.")
    metadata = {"configuration": json.dumps(configuration), "history": json.dumps(history)}
    metadata["sha256"] = _digest(tensors, metadata)
    paths.write_atomically(files(path)[2], tensors_to_bytes(tensors, metadata))


def _restore(path, configuration, model, optimiser, retrain):
    """Fill model and optimiser from the resume file, if there is one; returns the history and the best weights.

    With `retrain`, a file that is damaged or of another configuration counts as none.
    """
    resume = files(path)[2]
    if not resume.exists():
        return [], {}
    try:
        tensors, history = _read_progress(resume, configuration)
    except CheckpointError:
        if retrain:
            return [], {}
        raise
    parts = {"model": {}, "best": {}, "adam": {}}
    for key, tensor in tensors.items():
        kind, name = key.split(".", 1)
        parts[kind][name] = tensor
    moments = {}
    for key, tensor in parts["adam"].items():
        index, name = key.split(".")
        moments.setdefault(int(index), {})[name] = tensor
    try:
        model.load_state_dict(parts["model"])
    except RuntimeError as error:
        raise CheckpointError(f"{resume} does not fit {type(model).__name__} ({_one_line(error)}): delete it") from None
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    return history, parts["best"]


def _read_progress(resume, configuration):
    """Tensors and history of a resume file, or CheckpointError."""
    remedy = f"delete it to start afresh, or {REMEDY}"
    try:
        with safe_open(resume, "pt") as file:
            metadata = dict(file.metadata())
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if metadata.pop("sha256") != _digest(tensors, metadata):
            raise ValueError("its digest is another")
        stored = json.loads(metadata["configuration"])
        history = json.loads(metadata["history"])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{resume} is truncated or corrupt ({error}): {remedy}") from None
    if stored != _as_json(configuration):
        raise CheckpointError(f"{resume} belongs to another configuration: {remedy}")
    return tensors, history


def _digest(tensors, metadata):
    """SHA-256 of names, types, shapes and values of the tensors, and of the metadata."""
    sha = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name].numpy()
        sha.update(f"{name} {array.dtype} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
