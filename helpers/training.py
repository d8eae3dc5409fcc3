"""Train a model, or several of one architecture side by side. Nothing here knows a model by name.

A model offers `prepare(observations)` (one tensor, graphs along dimension 0), `loss(prepared, w, generator)` and
`predict(observations)`. It may have `labels(w)` (what it predicts instead of w), `max_gradient` (bound on the norm of
each parameter's gradient), `graphs_per_step(n_pairs)` (in place of the schedule's batch size), `half_precision`
(prefixes of the weights that are stored as float16), `geometric_error` (it is validated by the geometric mean of the
errors) and `stackable` (it can hold the parameters of several networks, stacked along a first dimension: see
`fit_together`).

Every random number of an epoch derives from the seed and the epoch's index, and `engine.checkpoints` stores what is
needed to go on: a training that was killed continues as if nothing had happened.
"""

import contextlib
import copy
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tqdm.auto import tqdm

from .engine import checkpoints, stacks
from .engine.checkpoints import CheckpointError, load, save, save_progress
from .engine.checkpoints import read_record as read_record  # for whoever loads what was trained
from .metrics import gmse

SPLITS = ("train", "val", "test")
SAVE_EVERY = 2  # seconds between two resume files, and more where writing takes long, see `_pause`


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a model learns, and from how many graphs.

    epochs, batch_size : passes over the training graphs, and graphs per step
    lr, decay : step size of Adam in the first epoch, and its factor from each epoch to the next
    n_train, n_val : number of graphs
    stream : draw new training graphs for each epoch
    keep_best : end with the weights of the epoch that validated best, not with the last ones
    seed : of the order of the graphs and of the noise in the loss
    average : end with the mean of the weights after so many of the last epochs
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
    average: int = 0

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
    if not retrain and checkpoints.state_of(path, configuration) in checkpoints.DONE:
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
    begin : callable model -> None that gives it its first weights; by default they are those it was built with
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
    begin: Callable | None = None
    history: list = field(default_factory=list)
    state: dict = field(default_factory=dict)
    best: dict = field(default_factory=dict)
    adam: dict = field(default_factory=dict)

    @property
    def diverged(self):
        """Whether the last epoch ended with a loss or predictions that are not finite."""
        return any(not math.isfinite(self.history[-1][key]) for key in ("loss", "val_gmse"))

    def take(self, epoch, state, adam):
        """Move on by an epoch; the best weights are those of the least error so far, or in the end the mean."""
        self.history.append(epoch)
        self.state = state
        self.adam = adam
        n = len(self.history) - self.schedule.epochs + self.schedule.average  # epochs in the mean
        if n > 0:
            self.best = {name: x.lerp(self.best[name] if n > 1 else x, 1 - 1 / n) for name, x in state.items()}
        elif epoch["val_gmse"] <= min(x["val_gmse"] for x in self.history):
            self.best = {name: tensor.clone() for name, tensor in state.items()}

    def resume(self, retrain):
        """Continue from the resume file, if there is one; with `retrain`, a damaged one counts as none."""
        try:
            self.history, parts = checkpoints.read_progress(self.path, self.configuration)
        except (FileNotFoundError, CheckpointError) as error:
            if isinstance(error, CheckpointError) and not retrain:
                raise
            if self.begin:
                self.begin(self.model)
            return
        checkpoints.load_progress(self.path, self.model, parts)
        self.state = parts["model"]
        self.best = parts["best"]
        self.adam = parts["adam"]

    def save(self):
        """Write the resume file."""
        parts = {"model": self.state, "best": self.best, "adam": self.adam}
        save_progress(self.path, self.configuration, self.history, parts)

    def finish(self, device):
        """Store what came out, and give the model its final weights."""
        if self.diverged:
            checkpoints.save_diverged(self.path, self.model, self.history, self.configuration)
            return
        chosen = self.best if self.schedule.keep_best or self.schedule.average else self.state
        self.model.load_state_dict(chosen)
        self.model.to(device).eval()
        save(self.path, self.model, self.history, self.configuration, self.evaluate, self.keep_weights)


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
        training.resume(retrain)
        by_epoch.setdefault(len(training.history), []).append(training)
    for group in by_epoch.values():
        while group := _fit_group(group, device, progress):
            pass  # without those that diverged
    for training in trainings:
        training.finish(device)


@contextlib.contextmanager
def _one_thread():
    """Small kernels gain nothing from threads, and one thread adds up in the same order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def _fit_group(group, device, progress):
    """Train networks that have the same epochs behind them to the end, or until one diverges: returns the others."""
    data = [training.data for training in group]
    schedules = [training.schedule for training in group]
    schedule = schedules[0]
    model = stacks.stack_models([training.model for training in group]).to(device)
    optimiser = _adam(model, schedule)
    stacks.restore_adam(optimiser, [training.adam for training in group])

    def training_graphs(epoch):
        return _prepare(model, data, "train", schedule.n_train, epoch if schedule.stream else 0, device)

    validation = _prepare_validation(model, data, schedule.n_val, device)
    first = len(group[0].history)
    label = Path(group[0].path).name + (f" and {len(group) - 1} more" if len(group) > 1 else "")
    due = time.monotonic() + _pause(0)
    epochs = range(first, schedule.epochs)
    with (
        tqdm(epochs, label, schedule.epochs, initial=first, disable=not progress, leave=False) as bar,
        ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as ahead,
    ):
        upcoming = ahead.submit(training_graphs, first)
        for epoch in bar:
            start = time.process_time()  # of this process: what else the machine does must not count
            train = upcoming.result()
            if schedule.stream and epoch + 1 < schedule.epochs:  # a second core draws while this one learns
                upcoming = ahead.submit(training_graphs, epoch + 1)
            losses = _train_epoch(model, optimiser, schedules, *train, epoch)
            errors = _validate(model, *validation)
            seconds = round((time.process_time() - start) / len(group), 4)
            bar.set_postfix(loss=f"{losses[0]:.4f}", gmse=f"{errors[0]:.4f}")
            states = zip(stacks.unstack_states(model, len(group)), stacks.unstack_adam(optimiser, len(group)))
            for training, loss, error, (state, adam) in zip(group, losses, errors, states):
                training.take({"loss": loss, "val_gmse": error, "seconds": seconds}, state, adam)
            left = [training for training in group if not training.diverged]
            if len(left) < len(group) or time.monotonic() > due or epoch == schedule.epochs - 1:
                begun = time.monotonic()
                for training in left:
                    training.save()
                now = time.monotonic()
                due = now + _pause(now - begun)
            if len(left) < len(group):
                for training in left:
                    training.model.load_state_dict(training.state)
                return left
    return []


def _pause(seconds):
    """Time until the next resume files if the last ones took so long: of a large network they weigh a gigabyte."""
    return SAVE_EVERY * (1 + 10 * seconds)


def _adam(model, schedule):
    return torch.optim.Adam(model.parameters(), lr=schedule.lr, fused=True)  # fused: one call for all parameters


def _prepare(model, data, split, n, epoch, device):
    """What the model computes once per graph, and the graphs, stacked if there are several sets of data."""
    observations, w = zip(*(source(split, n, epoch) for source in data))
    return stacks.stack([model.prepare(x) for x in observations]).to(device), stacks.stack(w).to(device)


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
    order = stacks.stack([torch.randperm(n, generator=generator) for generator in generators]).to(w.device)
    model.train()
    total = 0.0
    for batch in order.split(_batch_size(model, schedule, w), -1):
        loss = model.loss(stacks.take_rows(prepared, batch), stacks.take_rows(w, batch), noise)
        optimiser.zero_grad()
        loss.sum().backward()
        if bound:
            stacks.bound_gradients(model, bound, stacked)
        optimiser.step()
        total += loss.detach() * batch.shape[-1]
    model.eval()
    return (total / n).reshape(-1).tolist()


def _batch_size(model, schedule, w):
    """Graphs per step, which a model may make depend on their size."""
    return model.graphs_per_step(w.shape[-1]) if hasattr(model, "graphs_per_step") else schedule.batch_size


def _validate(model, observations, w):
    """Mean GMSE of each network's predictions, NaN if one of them is not finite; of some models the geometric mean."""
    w_hat = model.predict(observations)
    if hasattr(model, "labels"):
        w = model.labels(w)
    finite = w_hat.isfinite().flatten(-2).all(-1)
    errors = gmse(w_hat.nan_to_num(0, 0, 0), w)
    geometric = getattr(model, "geometric_error", False)
    mean = errors.log().mean(-1).exp() if geometric else errors.mean(-1)
    return mean.where(finite, torch.nan).reshape(-1).tolist()


def _epoch_seed(seed, epoch):
    """Of an epoch's order and noise; the second number keeps it apart from the seeds of the splits."""
    return int(np.random.SeedSequence((seed, len(SPLITS), epoch)).generate_state(1, np.uint64)[0] >> 1)


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


@_one_thread()
def _time_steps(model, data, schedule, n):
    """Seconds and number of the steps over `n` training graphs; `data` may answer with more or fewer."""
    model = copy.deepcopy(model)
    optimiser = _adam(model, schedule)
    prepared, w = _prepare(model, [data], "train", n, 0, next(model.parameters()).device)
    size = _batch_size(model, schedule, w)
    _train_epoch(model, optimiser, [schedule], prepared[:size], w[:size], 0)  # warm up
    start = time.perf_counter()
    _train_epoch(model, optimiser, [schedule], prepared, w, 0)
    return time.perf_counter() - start, -(-len(w) // size)
