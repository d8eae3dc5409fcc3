"""Train a model, or load it. The only place that reads and writes checkpoints; it knows no model by name.

A trained model is two files: `<name>.safetensors`, the weights, and `<name>.json`, everything else that a reader may
ask for. During training `<name>.resume.safetensors` holds weights, optimiser state and history after the last epoch, in
one file that is replaced atomically. Every random number of an epoch derives from the seed and the epoch's index, so a
training that was killed continues as if nothing had happened.

A model offers `prepare(observations)` (one tensor, graphs along dimension 0), `loss(prepared, w, generator)` and
`predict(observations)`. It may have `labels(w)` (what it predicts instead of w), `max_gradient` (bound on the norm of
each parameter's gradient), `half_precision` (prefixes of the weights that are stored as float16) and `stackable` (it
can hold the parameters of several networks, stacked along a first dimension: see `fit_together`).
"""

import contextlib
import copy
import hashlib
import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from tqdm.auto import tqdm

from . import paths
from .metrics import gmse

SPLITS = ("train", "val", "test")
SAVE_EVERY = 2  # seconds between two resume files
LIBRARIES = ("torch", "numpy", "scipy", "networkx", "safetensors")
REMEDY = "train it again with retrain=True"
DONE = ("trained", "stale", "diverged")  # states that a training leaves alone unless told to retrain


class CheckpointError(ValueError):
    """A checkpoint is corrupt or belongs to another configuration."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a model learns, and from how many graphs.

    epochs, batch_size : passes over the training graphs, and graphs per step
    lr, decay : step size of Adam in the first epoch, and its factor from each epoch to the next
    n_train, n_val : number of graphs
    stream : draw new training graphs for each epoch
    keep_best : end with the weights of the epoch that validated best, not with the last ones
    seed : of the order of the graphs and of the noise in the loss
    """

    epochs: int
    batch_size: int
    lr: float
    decay: float
    n_train: int
    n_val: int
    stream: bool
    keep_best: bool
    seed: int

    def __post_init__(self):
        for name in ("epochs", "batch_size", "n_train", "n_val"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: at least 1 is needed")


# --- training ------------------------------------------------------------------------------------------------------


def fit(model, data, schedule, path, configuration, *, device="cpu", progress=True, retrain=False, **more):
    """Train a model to its last epoch, continuing where an earlier call was cut off.

    Parameters
    ----------
    model, data, schedule, path, configuration, more : see `Training`
    device : where the model learns; random numbers are drawn on the CPU, wherever that is
    progress : show a bar
    retrain : train what is already trained, and replace what is stale or damaged

    Returns
    -------
    The model with exactly the weights that are stored, on `device`, in evaluation mode. A training that diverges is
    recorded as such and raises FloatingPointError.
    """
    if not retrain and state_of(path, configuration) in DONE:
        return load(path, model, configuration, device)
    training = Training(model, data, schedule, path, configuration, **more)
    fit_together([training], device=device, progress=progress, retrain=retrain)
    if training.diverged:
        raise FloatingPointError(f"diverged in epoch {len(training.history)}: lower lr={schedule.lr}")
    return model


@dataclass
class Training:
    """One training: what it is given, and how far it has come.

    model : untrained, see the top of this file
    data : callable (split, n, epoch) -> Observations and graphs w (n, E), always the same for the same arguments
    schedule : Schedule
    path : folder and name of the checkpoint, without suffix
    configuration : all that decides what is learned, as JSON can hold it; a checkpoint of another one is refused
    evaluate : callable model -> dict of what the sidecar says under "test"
    keep_weights : False stores the sidecar without weights
    history, state, best, adam : of each epoch loss, error and seconds; weights after the last one and after the best
        one; what Adam remembers of every parameter
    """

    model: torch.nn.Module
    data: Callable
    schedule: Schedule
    path: Path
    configuration: dict
    evaluate: Callable | None = None
    keep_weights: bool = True
    history: list = field(default_factory=list)
    state: dict = field(default_factory=dict)
    best: dict = field(default_factory=dict)
    adam: dict = field(default_factory=dict)

    @property
    def diverged(self):
        """Whether the last epoch ended with a loss or predictions that are not finite."""
        return any(not math.isfinite(self.history[-1][key]) for key in ("loss", "val_gmse"))

    def take(self, epoch, state, adam):
        """Move on by an epoch; the best weights are those of the least error so far."""
        self.history.append(epoch)
        self.state = state
        self.adam = adam
        if epoch["val_gmse"] <= min(x["val_gmse"] for x in self.history):
            self.best = {name: tensor.clone() for name, tensor in state.items()}


def fit_together(trainings, *, device="cpu", progress=True, retrain=False):
    """Train networks of one architecture side by side, each as `fit` would, in fewer and larger operations.

    Parameters
    ----------
    trainings : of models that are `stackable`, unless there is only one; their schedules differ in the seed only. A
        network that was cut off is resumed beside those that were cut off after the same epoch. Each has files of its
        own, so that it may also be resumed alone
    device, progress, retrain : see `fit`; everything given is trained

    A network whose loss or predictions are no longer finite is recorded as diverged, and the others go on without it.
    """
    by_epoch = {}
    for training in trainings:
        _resume(training, retrain)
        by_epoch.setdefault(len(training.history), []).append(training)
    for group in by_epoch.values():
        while group := _fit_group(group, device, progress):
            pass  # without those that diverged
    for training in trainings:
        _finish(training, device)


def _finish(training, device):
    """Store what came out of a training."""
    model = training.model
    if training.diverged:
        save_diverged(training.path, model, training.history, training.configuration)
        return
    model.load_state_dict(training.best if training.schedule.keep_best else training.state)
    model.to(device).eval()
    save(
        training.path, model, training.history, training.configuration, training.evaluate, training.keep_weights
    )  # fmt: skip


def _fit_group(group, device, progress):
    """Train networks that have the same epochs behind them to the end, or until one diverges: returns the others."""
    data = [training.data for training in group]
    schedule = group[0].schedule
    first = len(group[0].history)
    saved = time.monotonic()
    with _one_thread():
        model = _stack_models([training.model for training in group]).to(device)
        optimiser = _adam(model, schedule)
        _restore_adam(optimiser, [training.adam for training in group])
        train = _prepare(model, data, "train", schedule.n_train, 0, device)
        validation = _prepare_validation(model, data, schedule.n_val, device)
        label = Path(group[0].path).name + (f" and {len(group) - 1} more" if len(group) > 1 else "")
        epochs = range(first, schedule.epochs)
        with tqdm(epochs, label, schedule.epochs, initial=first, disable=not progress, leave=False) as bar:
            for epoch in bar:
                start = time.process_time()  # of this process: what else the machine does must not count
                if schedule.stream and epoch > 0:
                    train = _prepare(model, data, "train", schedule.n_train, epoch, device)
                losses = _train_epoch(model, optimiser, [training.schedule for training in group], *train, epoch)
                errors = _validate(model, *validation)
                seconds = round((time.process_time() - start) / len(group), 4)
                states = zip(_unstack_states(model, len(group)), _unstack_adam(optimiser, len(group)))
                for training, loss, error, (state, adam) in zip(group, losses, errors, states):
                    training.take({"loss": loss, "val_gmse": error, "seconds": seconds}, state, adam)
                bar.set_postfix(loss=f"{losses[0]:.4f}", gmse=f"{errors[0]:.4f}")
                left = [training for training in group if not training.diverged]
                if len(left) < len(group) or time.monotonic() - saved > SAVE_EVERY or epoch == schedule.epochs - 1:
                    for training in left:
                        _save_progress(training)
                    saved = time.monotonic()
                if len(left) < len(group):
                    for training in left:
                        training.model.load_state_dict(training.state)
                    return left
    return []


def _adam(model, schedule):
    return torch.optim.Adam(model.parameters(), lr=schedule.lr, fused=True)  # fused: one call for all parameters


def _prepare(model, data, split, n, epoch, device):
    """What the model computes once per graph, and the graphs, stacked if there are several sets of data."""
    sets = [source(split, n, epoch) for source in data]
    return _stack([model.prepare(x) for x, _ in sets]).to(device), _stack([w for _, w in sets]).to(device)


def _prepare_validation(model, data, n, device):
    """Observations, or stacked distances, and the graphs."""
    if len(data) > 1:
        return _prepare(model, data, "val", n, 0, device)
    observations, w = data[0]("val", n, 0)
    return observations.to(device), w


def _train_epoch(model, optimiser, schedules, prepared, w, epoch):
    """One pass over the training graphs; returns the mean loss of each network."""
    schedule = schedules[0]
    generators = [torch.Generator().manual_seed(_epoch_seed(s.seed, epoch)) for s in schedules]
    for group in optimiser.param_groups:
        group["lr"] = schedule.lr * schedule.decay**epoch
    bound = getattr(model, "max_gradient", 0)
    stacked = len(schedules) > 1
    noise = generators if stacked else generators[0]
    n = w.shape[-2]
    order = _stack([torch.randperm(n, generator=generator) for generator in generators]).to(w.device)
    model.train()
    total = 0.0
    for batch in order.split(schedule.batch_size, -1):
        loss = model.loss(_take(prepared, batch), _take(w, batch), noise)
        optimiser.zero_grad()
        loss.sum().backward()
        if bound:
            for parameter in model.parameters():
                _bound(parameter.grad if stacked else parameter.grad[None], bound)
        optimiser.step()
        total += loss.detach() * batch.shape[-1]
    model.eval()
    return (total / n).reshape(-1).tolist()


def _take(x, batch):
    """Rows `batch` (B,) of x (n, ...), or rows `batch` (S, B) of x (S, n, ...)."""
    return x[batch] if batch.dim() == 1 else x[torch.arange(len(batch), device=x.device)[:, None], batch]


def _bound(gradients, bound):
    """Scale each of the gradients (S, ...) down to a norm of at most `bound`, in place."""
    norms = gradients.flatten(1).norm(dim=1)
    factors = (bound / (norms + 1e-6)).clamp(max=1.0)
    gradients.mul_(factors.reshape(-1, *[1] * (gradients.dim() - 1)))


def _validate(model, observations, w):
    """Mean GMSE of each network's predictions, NaN if one of them is not finite."""
    w_hat = model.predict(observations)
    if hasattr(model, "labels"):
        w = model.labels(w)
    finite = w_hat.isfinite().flatten(-2).all(-1)
    errors = gmse(w_hat.nan_to_num(0, 0, 0), w).mean(-1)
    return errors.where(finite, torch.nan).reshape(-1).tolist()


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


# --- stacks of networks ------------------------------------------------------------------------------------------


def _stack(tensors):
    """One tensor as it is, several along a new first dimension."""
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors))


def _unstack(tensor, n):
    return [tensor] if n == 1 else list(tensor.unbind())


def _stack_models(models):
    """The model that computes what all of them compute."""
    if len(models) == 1:
        return models[0]
    if not all(getattr(model, "stackable", False) for model in models):
        raise ValueError(f"trainings: {type(models[0]).__name__} is trained one at a time, {len(models)} were given")
    together = copy.deepcopy(models[0])
    for name, parameter in together.named_parameters():
        parameter.data = torch.stack([model.get_parameter(name).detach() for model in models])
    return together


def _unstack_states(model, n):
    """State dicts of the n networks in a model, on the CPU."""
    tensors = {name: _unstack(t, n) for name, t in _on_cpu(model.state_dict()).items()}
    return [{name: parts[k] for name, parts in tensors.items()} for k in range(n)]


def _unstack_adam(optimiser, n):
    """For each of n networks {"0.exp_avg": tensor, ...}: what Adam remembers of every parameter."""
    states = [{} for _ in range(n)]
    for index, memory in optimiser.state_dict()["state"].items():
        for name, tensor in _on_cpu(memory).items():
            parts = [tensor] * n if tensor.dim() == 0 else _unstack(tensor, n)  # the step count is common to all
            for state, part in zip(states, parts):
                state[f"{index}.{name}"] = part
    return states


def _restore_adam(optimiser, states):
    """The inverse of `_unstack_adam`."""
    memory = {}
    for key, tensor in states[0].items():
        index, name = key.split(".")
        parts = [state[key] for state in states]
        memory.setdefault(int(index), {})[name] = tensor if tensor.dim() == 0 else _stack(parts)
    optimiser.load_state_dict({"state": memory, "param_groups": optimiser.state_dict()["param_groups"]})


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
        prepared, w = _prepare(model, [data], "train", n, 0, next(model.parameters()).device)
        size = schedule.batch_size
        _train_epoch(model, optimiser, [schedule], prepared[:size], w[:size], 0)  # warm up
        start = time.perf_counter()
        _train_epoch(model, optimiser, [schedule], prepared, w, 0)
        return time.perf_counter() - start, -(-len(w) // size)


# --- checkpoints ---------------------------------------------------------------------------------------------------


def files(path):
    """Paths of the weights, the sidecar and the resume file of a checkpoint `path`, folder and name."""
    return tuple(Path(f"{path}{suffix}") for suffix in (".safetensors", ".json", ".resume.safetensors"))


def state_of(path, configuration=None):
    """'trained', 'diverged', 'stale' (another configuration, or damaged), 'started' or 'missing'."""
    weights, sidecar, resume = files(path)
    try:
        return "diverged" if read_record(path, configuration)["diverged"] else "trained"
    except (CheckpointError, FileNotFoundError):
        if resume.exists():
            return "started"
        return "stale" if weights.exists() or sidecar.exists() else "missing"


def read_record(path, configuration=None):
    """Configuration, history and costs of a trained model, after checking that its files are undamaged.

    With `configuration`, also that it is the one it was trained with. A record whose "weights_sha256" is None stands
    for a training whose weights were not kept, or that diverged.
    """
    weights, sidecar, _ = files(path)
    if not sidecar.exists() and not weights.exists():
        raise FileNotFoundError(f"{weights} is missing: train it first")
    if not sidecar.exists():
        raise CheckpointError(f"{sidecar} is missing, the other half of the checkpoint is there: {REMEDY}")
    record = read_sidecar(path)
    if configuration is not None:
        _compare(record["configuration"], _as_json(configuration), sidecar)
    if record["weights_sha256"] is None:
        return record
    if not weights.exists():
        raise CheckpointError(f"{weights} is missing, the other half of the checkpoint is there: {REMEDY}")
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
            and isinstance(record["weights_sha256"], str | None)
            and isinstance(record["diverged"], int)
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
    record = read_record(path, configuration)
    weights, sidecar, _ = files(path)
    if record["diverged"]:
        raise CheckpointError(f"{sidecar}: the training diverged in epoch {record['diverged']} and left no weights")
    if record["weights_sha256"] is None:
        raise CheckpointError(f"{sidecar} has the results of a training whose weights were not kept: {REMEDY}")
    try:
        model.load_state_dict(tensors_from_bytes(weights.read_bytes()))
    except (SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"{weights} does not fit {type(model).__name__} ({_one_line(error)}): {REMEDY}") from None
    return model.to(device).eval()


def save(path, model, history, configuration, evaluate=None, keep_weights=True):
    """Weights, then the sidecar that vouches for them, then the resume file goes: a kill between loses nothing.

    The model itself takes the weights as they are stored: where it asks for half precision, they are rounded. What
    `evaluate` says of that model is stored as well. Without `keep_weights` the sidecar stands alone.
    """
    weights, _, _ = files(path)
    tensors = _to_store(model)
    content = tensors_to_bytes(tensors)
    model.load_state_dict(tensors)
    test = evaluate(model) if evaluate else {}
    if keep_weights:
        paths.write_atomically(weights, content)
    digest = hashlib.sha256(content).hexdigest() if keep_weights else None
    _write_sidecar(path, model, history, configuration, weights_sha256=digest, diverged=0, test=test)
    if not keep_weights:
        weights.unlink(missing_ok=True)


def save_diverged(path, model, history, configuration):
    """The sidecar of a training that diverged in the last epoch of its history; there are no weights."""
    weights, _, _ = files(path)
    _write_sidecar(path, model, history, configuration, weights_sha256=None, diverged=len(history), test={})
    weights.unlink(missing_ok=True)


def _write_sidecar(path, model, history, configuration, **outcome):
    weights, sidecar, resume = files(path)
    seconds = sum(epoch["seconds"] for epoch in history)
    record = {
        "name": weights.stem,
        "configuration": _as_json(configuration),
        **outcome,
        "n_parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 2),
        "seconds_per_epoch": round(seconds / len(history), 4),
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        "history": {key: [_finite(epoch[key]) for epoch in history] for key in history[0]},
    }
    paths.write_atomically(sidecar, json.dumps(record, indent=1).encode())
    resume.unlink(missing_ok=True)


def _finite(x):
    """A number that JSON can hold."""
    return x if math.isfinite(x) else None


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


def _save_progress(training):
    parts = {"model": training.state, "best": training.best, "adam": training.adam}
    tensors = {f"{part}.{name}": t.contiguous() for part, content in parts.items() for name, t in content.items()}
    metadata = {"configuration": json.dumps(training.configuration), "history": json.dumps(training.history)}
    metadata["sha256"] = _digest(tensors, metadata)
    paths.write_atomically(files(training.path)[2], tensors_to_bytes(tensors, metadata))


def _resume(training, retrain):
    """Bring a training to where its resume file was written, if there is one.

    With `retrain`, a file that is damaged or of another configuration counts as none.
    """
    resume = files(training.path)[2]
    if not resume.exists():
        return
    try:
        tensors, history = _read_resume_file(resume, training.configuration)
    except CheckpointError:
        if retrain:
            return
        raise
    parts = {"model": {}, "best": {}, "adam": {}}
    for key, tensor in tensors.items():
        part, name = key.split(".", 1)
        parts[part][name] = tensor
    try:
        training.model.load_state_dict(parts["model"])
    except RuntimeError as error:
        model = type(training.model).__name__
        raise CheckpointError(f"{resume} does not fit {model} ({_one_line(error)}): delete it") from None
    training.history = history
    training.state = parts["model"]
    training.best = parts["best"]
    training.adam = parts["adam"]


def _read_resume_file(resume, configuration):
    """Tensors and history, or CheckpointError."""
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
