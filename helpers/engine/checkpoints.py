"""The files of a training: a checkpoint when it has ended, a resume file while it runs. They know no model by name.

A trained model is two files: `<name>.safetensors`, the weights, and `<name>.json`, the sidecar, with all else that a
reader may ask for. During training `<name>.resume.safetensors` holds weights, optimiser state and history after the
last epoch, in one file that is replaced atomically. All of them carry digests, so that damage is noticed.
"""

import contextlib
import hashlib
import json
import math
import platform
import re
from importlib.metadata import version
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes

from .. import paths

LIBRARIES = ("torch", "numpy", "scipy", "networkx", "safetensors")
REMEDY = "train it again with retrain=True"
DONE = ("trained", "stale", "diverged")  # states that a training leaves alone unless told to retrain


class CheckpointError(ValueError):
    """A checkpoint is corrupt or belongs to another configuration."""


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


# --- checkpoints ---------------------------------------------------------------------------------------------------


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
    with _fitting(weights, model, REMEDY):
        model.load_state_dict(tensors_from_bytes(weights.read_bytes()))
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
    paths.write_atomically(sidecar, _as_text(record).encode())
    resume.unlink(missing_ok=True)


def _as_text(record):
    """JSON with a line per entry, but a curve, which has a number per epoch, on one line."""
    return re.sub(r"\[\n[^][{}]*\]", lambda found: json.dumps(json.loads(found[0])), json.dumps(record, indent=1))


def _finite(x):
    """A number that JSON can hold, to the six digits that a curve shows."""
    return float(f"{x:.6g}") if math.isfinite(x) else None


def _to_store(model):
    """State dict on the CPU, float16 under the prefixes that the model names unless a value is beyond its range."""
    prefixes = tuple(getattr(model, "half_precision", ()))
    tensors = on_cpu(model.state_dict())
    halves = {name: t.half() for name, t in tensors.items() if name.startswith(prefixes)}
    return tensors | {name: t for name, t in halves.items() if t.isfinite().all()}


def on_cpu(tensors):
    """A dictionary of tensors, moved."""
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


@contextlib.contextmanager
def _fitting(file, model, remedy):
    """CheckpointError if the tensors of a file turn out not to be those of the model."""
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{file} does not fit {type(model).__name__} ({reason}): {remedy}") from None


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


def save_progress(path, configuration, history, parts):
    """Replace the resume file; `parts` are named dictionaries of tensors, such as the weights."""
    tensors = {f"{part}.{name}": t.contiguous() for part, content in parts.items() for name, t in content.items()}
    metadata = {"configuration": json.dumps(configuration), "history": json.dumps(history)}
    metadata["sha256"] = _digest(tensors, metadata)
    paths.write_atomically(files(path)[2], tensors_to_bytes(tensors, metadata))


def read_progress(path, configuration):
    """History and parts of the resume file; CheckpointError if it is damaged or belongs to another configuration."""
    resume = files(path)[2]
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
    parts = {}
    for key, tensor in tensors.items():
        part, name = key.split(".", 1)
        parts.setdefault(part, {})[name] = tensor
    return history, parts


def load_progress(path, model, parts):
    """Give the model the weights of a resume file, parts["model"]; CheckpointError if they are another model's."""
    with _fitting(files(path)[2], model, "delete it"):
        model.load_state_dict(parts["model"])


def _digest(tensors, metadata):
    """SHA-256 of names, types, shapes and values of the tensors, and of the metadata."""
    sha = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        array = tensors[name].numpy()
        sha.update(f"{name} {array.dtype} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
