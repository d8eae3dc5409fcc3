import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn
from toys import CONFIGURATION, N_EDGES, SCHEDULE, Toy, assert_same_weights, data, fit, stored

from helpers import paths, training
from helpers.engine import checkpoints
from helpers.engine.checkpoints import CheckpointError
from helpers.metrics import gmse


class Clock:
    """Stands in for the module `time`: each of its clocks shows what it is told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        clocks = {name: (lambda: self.now) for name in ("monotonic", "process_time", "perf_counter")}
        monkeypatch.setattr(training, "time", SimpleNamespace(**clocks))


# --- training ------------------------------------------------------------------------------------------------------


def test_training_is_reproducible_and_learns(trained, tmp_path):
    fit(tmp_path)
    assert_same_weights(stored(tmp_path)[0], stored(trained[1])[0])
    here, there = (stored(folder)[1]["history"] for folder in (tmp_path, trained[1]))
    assert here["loss"] == there["loss"]
    assert here["val_gmse"] == there["val_gmse"]
    assert here["val_gmse"][-1] < 0.7 * here["val_gmse"][0]
    fit(tmp_path, schedule=replace(SCHEDULE, seed=4), retrain=True)
    assert stored(tmp_path)[1]["history"]["loss"] != there["loss"]


def test_a_training_begins_where_it_is_told_to_and_only_once(tmp_path, monkeypatch):
    """The first weights are those that `begin` sets; a training that is resumed has weights of its own."""
    monkeypatch.setattr(training, "SAVE_EVERY", -1)
    told = []

    def begin(model):
        told.append(1)
        with torch.no_grad():
            model.theta += 0.05

    plain = fit(tmp_path / "plain")
    model = fit(tmp_path / "told", begin=begin)
    assert told == [1] and not torch.equal(model.theta, plain.theta)
    monkeypatch.setattr(training, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "cut", begin=begin)
    monkeypatch.undo()
    resumed = fit(tmp_path / "cut", begin=begin)
    assert len(told) == 2
    assert_same_weights(model.state_dict(), resumed.state_dict())
    checkpoints.files(tmp_path / "cut" / "toy")[2].write_bytes(b"damaged")
    again = fit(tmp_path / "cut", begin=begin, retrain=True)
    assert len(told) == 3
    assert_same_weights(model.state_dict(), again.state_dict())


def test_the_best_epoch_is_kept_or_the_last(tmp_path):
    """With a growing rate the last epoch is not the best."""
    schedule = replace(SCHEDULE, epochs=6, lr=0.02, decay=2.5)
    observations, w = data("val", schedule.n_val, 0)
    for keep_best, pick in ((True, min), (False, lambda errors: errors[-1])):
        model = fit(tmp_path, schedule=replace(schedule, keep_best=keep_best), retrain=True)
        errors = stored(tmp_path)[1]["history"]["val_gmse"]
        assert errors[-1] > 1.1 * min(errors)
        assert gmse(model.predict(observations), w).mean().item() == pytest.approx(pick(errors), rel=5e-3)


@pytest.mark.parametrize("keep_best", [False, True])
def test_the_last_epochs_are_averaged(tmp_path, monkeypatch, keep_best):
    """Also if the training is cut off between the first and the last of them."""
    monkeypatch.setattr(training, "SAVE_EVERY", -1)
    schedule = replace(SCHEDULE, epochs=6, keep_best=keep_best)
    states = []
    take = training.Training.take

    def watch(self, epoch, state, adam):
        states.append({name: tensor.clone() for name, tensor in state.items()})
        take(self, epoch, state, adam)

    monkeypatch.setattr(training.Training, "take", watch)
    fit(tmp_path / "plain", schedule=schedule)
    model = fit(tmp_path / "mean", schedule=replace(schedule, average=3))
    assert_same_weights(states[5], states[11])  # training itself is the same
    assert not torch.equal(states[4]["theta"], states[5]["theta"])
    assert model.theta.tolist() == pytest.approx(sum(state["theta"] for state in states[3:6]).div(3).tolist(), rel=1e-3)
    monkeypatch.setattr(training.Training, "take", take)
    saves = iter(range(1000))
    save_once_more = training.Training.save

    def killed(self):
        save_once_more(self)
        if next(saves) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(training.Training, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "cut", schedule=replace(schedule, average=3))
    resumed = fit(tmp_path / "cut", schedule=replace(schedule, average=3))
    assert_same_weights(resumed.state_dict(), model.state_dict())


def test_the_best_weights_survive_an_interruption(tmp_path, monkeypatch):
    """The best epoch lies before the interruption, so that its weights must be in the resume file."""
    monkeypatch.setattr(training, "SAVE_EVERY", -1)
    schedule = replace(SCHEDULE, epochs=6, lr=0.02, decay=2.5, keep_best=True)
    whole = fit(tmp_path, schedule=schedule)
    monkeypatch.setattr(training, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, schedule=schedule, retrain=True)
    monkeypatch.undo()
    checkpoints.files(tmp_path / "toy")[1].unlink()
    resumed = fit(tmp_path, schedule=schedule)
    assert_same_weights(whole.state_dict(), resumed.state_dict())


def test_validation_compares_with_the_labels_of_a_model(tmp_path):
    class Signs(Toy):
        def labels(self, w):
            return (w > 1).to(w)

    model = Signs()
    fit(tmp_path, model)
    observations, w = data("val", SCHEDULE.n_val, 0)
    error = gmse(model.predict(observations), (w > 1).to(w)).mean().item()
    assert stored(tmp_path)[1]["history"]["val_gmse"][-1] == pytest.approx(error, rel=5e-3)


def test_validation_by_the_geometric_mean(tmp_path):
    class Uneven(Toy):
        geometric_error = True

    model = Uneven()
    fit(tmp_path, model)
    observations, w = data("val", SCHEDULE.n_val, 0)
    errors = gmse(model.predict(observations), w)
    assert stored(tmp_path)[1]["history"]["val_gmse"][-1] == pytest.approx(errors.log().mean().exp().item(), rel=1e-3)
    assert errors.log().mean().exp() < 0.99 * errors.mean()


@pytest.mark.parametrize("stream", [False, True])
def test_a_stream_has_new_graphs_in_each_epoch(tmp_path, stream):
    calls = []

    def source(split, n, epoch):
        calls.append((split, n, epoch))
        return data(split, n, epoch)

    fit(tmp_path, schedule=replace(SCHEDULE, stream=stream), source=source)
    assert [call for call in calls if call[0] == "val"] == [("val", 6, 0)]
    assert [call for call in calls if call[0] == "train"] == [("train", 20, k) for k in range(4 if stream else 1)]


def test_an_epoch_takes_every_graph_once_in_an_order_of_its_own():
    """Also: the rate decays, and the mean loss is over graphs, not over batches of unequal size."""
    seen = []

    class Watch(Toy):
        def loss(self, prepared, w, generator=None):
            seen.append(w[:, 0].tolist())
            assert torch.equal(prepared[:, 0], 2 * w[:, 0])
            assert self.training
            return 0 * self.theta.sum() + w[:, 0].mean()

    w = torch.arange(20.0)[:, None].expand(20, N_EDGES)
    model = Watch()
    optimiser = torch.optim.SGD(model.parameters())
    for epoch in (0, 2):
        loss = training._train_epoch(model, optimiser, [SCHEDULE], 2 * w, w, epoch)
        assert loss == pytest.approx([9.5])
        assert optimiser.param_groups[0]["lr"] == 0.05 * 0.5**epoch
        assert not model.training
    assert [len(batch) for batch in seen] == 2 * [8, 8, 4]
    first, second = (np.concatenate(batches) for batches in (seen[:3], seen[3:]))
    assert sorted(first) == sorted(second) == list(range(20))
    assert list(first) != list(second)
    assert list(first) != list(range(20))


def test_random_numbers_are_those_the_checkpoints_were_trained_with():
    assert training.SPLITS == ("train", "val", "test")
    assert training._epoch_seed(0, 0) == 3291213472928352369
    assert training._epoch_seed(0, 1) == 2122545592250308646
    assert training._epoch_seed(3, 7) == 2532036506714696957


def test_the_optimiser_is_the_one_the_checkpoints_were_trained_with():
    """Another of Adam's implementations adds up in another order."""
    model = Toy()
    optimiser = training._adam(model, SCHEDULE)
    assert type(optimiser) is torch.optim.Adam
    assert optimiser.defaults["fused"]
    assert optimiser.defaults["lr"] == 0.05
    assert sum(p.numel() for p in optimiser.param_groups[0]["params"]) == 120


def test_one_thread_trains_and_the_others_are_given_back(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        model = fit(tmp_path)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert model.n_threads == 1


@pytest.mark.parametrize("bound", [0.0, 1.5])
def test_one_wild_gradient_does_not_spoil_a_step(bound):
    """Each parameter's gradient is cut to the bound, by its own norm."""

    class Wild(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
            self.max_gradient = bound

        def loss(self, prepared, w, generator=None):
            return (1e6 * self.a + 0.1 * self.b).sum()

    model = Wild()
    optimiser = torch.optim.SGD(model.parameters())
    training._train_epoch(model, optimiser, [replace(SCHEDULE, lr=1.0)], torch.zeros(8, 1), torch.zeros(8, 1), 0)
    length = 2**0.5 * 1e6
    assert model.a.norm().item() == pytest.approx(bound or length, rel=1e-4)
    assert model.b.norm().item() == pytest.approx(0.1 * 2**0.5, rel=1e-4)  # short enough as it is


@pytest.mark.parametrize("part, one", [("loss", ()), ("predict", (1, 2))])
def test_divergence_is_said(tmp_path, part, one):
    """One entry of the predictions is enough. It is recorded, and not tried again unless somebody asks for it."""
    model = Toy()
    answer = getattr(model, part)

    def spoil(*args):
        result = answer(*args).clone()
        result[one] = torch.nan
        return result

    setattr(model, part, spoil)
    with pytest.raises(FloatingPointError, match=r"epoch 1: lower lr=0\.05"):
        fit(tmp_path, model)
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "diverged"
    record = checkpoints.read_record(tmp_path / "toy", CONFIGURATION)
    assert (record["diverged"], record["weights_sha256"], record["test"]) == (1, None, {})
    assert None in (record["history"]["loss"][0], record["history"]["val_gmse"][0])
    assert [path.name for path in tmp_path.iterdir()] == ["toy.json"]
    with pytest.raises(CheckpointError, match="diverged in epoch 1 and left no weights"):
        fit(tmp_path)
    fit(tmp_path, retrain=True)
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "trained"


@pytest.mark.parametrize("name", ["epochs", "batch_size", "n_train", "n_val"])
def test_a_schedule_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=f"{name}=0"):
        replace(SCHEDULE, **{name: 0})
    assert replace(SCHEDULE, **{name: 1})


def test_everything_moves_to_the_device_but_random_numbers(tmp_path):
    """No GPU is needed: tensors of the device "meta" have shapes only, and tell where they are."""

    class Somewhere(Toy):
        def prepare(self, observations):
            return super().prepare(observations).cpu()

        def loss(self, prepared, w, generator=None):
            assert {prepared.device.type, w.device.type, self.theta.device.type} == {"meta"}
            assert generator.device.type == "cpu"
            assert len(prepared) == len(w) == SCHEDULE.batch_size
            raise ConnectionAbortedError("seen")

    with pytest.raises(ConnectionAbortedError, match="seen"):
        fit(tmp_path, Somewhere(), device="meta")


def test_validation_happens_on_the_device(tmp_path, monkeypatch):
    class Somewhere(Toy):
        def predict(self, observations):
            assert observations.moments.device.type == "meta"
            raise ConnectionAbortedError("seen")

    monkeypatch.setattr(training, "_train_epoch", lambda *_: [0.0])
    with pytest.raises(ConnectionAbortedError, match="seen"):
        fit(tmp_path, Somewhere(), device="meta")


# --- what training costs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [1, 0.5, 2])
def test_seconds_are_per_step_really_taken(monkeypatch, share):
    """The data may answer with fewer or more graphs than asked for; a step takes 3 seconds by this clock."""
    clock = Clock(monkeypatch)

    class Slow(Toy):
        def loss(self, *args):
            clock.now += 3
            return super().loss(*args)

    model = Slow()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    asked = []

    def source(split, n, epoch):
        asked.append((split, n, epoch))
        return data(split, int(share * n), epoch)

    assert training.step_seconds(model, source, SCHEDULE, steps=5) == 3
    assert asked == [("train", 40, 0)]
    assert training.expected_seconds(model, source, SCHEDULE, steps=4) == pytest.approx(3 * share * 4 * 20 / 8)
    assert asked[1:] == [("train", 32, 0)]
    assert_same_weights(model.state_dict(), before)


def test_seconds_of_a_last_smaller_step_count(monkeypatch):
    clock = Clock(monkeypatch)

    class Slow(Toy):
        def loss(self, *args):
            clock.now += 3
            return super().loss(*args)

    assert training.step_seconds(Slow(), lambda split, n, epoch: data(split, n + 1, epoch), SCHEDULE, steps=2) == 3


def test_the_history_has_the_seconds_of_each_epoch(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)

    class Slow(Toy):
        def predict(self, observations):
            clock.now += 1.25004
            return super().predict(observations)

    fit(tmp_path, Slow())
    record = stored(tmp_path)[1]
    assert record["history"]["seconds"] == [1.25] * 4  # to four digits
    assert record["seconds"] == 5.0
    assert record["seconds_per_epoch"] == 1.25


def test_progress_is_saved_every_few_seconds_and_in_the_end(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    epochs = []

    class Slow(Toy):
        def predict(self, observations):
            clock.now += 0.8
            return super().predict(observations)

    save = training.save_progress

    def count(path, configuration, history, parts):
        epochs.append(len(history))
        save(path, configuration, history, parts)

    monkeypatch.setattr(training, "save_progress", count)
    fit(tmp_path / "small", Slow(), schedule=replace(SCHEDULE, epochs=8))
    assert epochs == [3, 6, 8]

    def count_slowly(path, configuration, history, parts):
        clock.now += 0.12
        count(path, configuration, history, parts)

    epochs.clear()
    monkeypatch.setattr(training, "save_progress", count_slowly)
    fit(tmp_path / "large", Slow(), schedule=replace(SCHEDULE, epochs=13))
    assert epochs == [3, 9, 13]  # after 2 s, then after 4.4 s


# --- interruptions -------------------------------------------------------------------------------------------------


def test_a_killed_training_resumes_and_ends_bit_equal(trained, tmp_path):
    """A real SIGKILL in the middle of the third epoch."""
    program = f"""
import os, pathlib, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import toys
toys.training.SAVE_EVERY = -1
model, steps = toys.Toy(), iter(range(100))
loss = model.loss
def die(*args):
    if next(steps) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return loss(*args)
model.loss = die
toys.fit(pathlib.Path(sys.argv[1]), model)
"""
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=paths.ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "started"
    with safe_open(checkpoints.files(tmp_path / "toy")[2], "pt") as file:
        assert len(json.loads(file.metadata()["history"])) == 2
    fit(tmp_path)
    assert_same_weights(stored(tmp_path)[0], stored(trained[1])[0])
    for key in ("loss", "val_gmse"):
        assert stored(tmp_path)[1]["history"][key] == stored(trained[1])[1]["history"][key]
    assert not checkpoints.files(tmp_path / "toy")[2].exists()


def test_only_the_epochs_that_are_left_are_trained(cut_off, tmp_path):
    class Watch(Toy):
        steps = 0

        def loss(self, *args):
            self.steps += 1
            return super().loss(*args)

    model = fit(tmp_path, Watch())
    assert model.steps == 2 * 3
    assert len(stored(tmp_path)[1]["history"]["loss"]) == 4


def test_a_training_again_that_was_cut_off_resumes(copied, tmp_path, cut_off):
    """`cut_off` lies beside a finished checkpoint here: without `retrain` that one counts, with it the rest is done."""
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "trained"
    steps = []

    class Watch(Toy):
        def loss(self, *args):
            steps.append(1)
            return super().loss(*args)

    fit(tmp_path, Watch())
    assert steps == []
    fit(tmp_path, Watch(), retrain=True)
    assert len(steps) == 2 * 3


# --- damage --------------------------------------------------------------------------------------------------------


def test_two_trainings_at_once_do_not_disturb_each_other(trained, tmp_path, monkeypatch):
    """The second starts and ends while the first is in its first epoch; both write the same files."""
    model = Toy()
    predict = model.predict
    nested = []

    def train_another_first(observations):
        if not nested:
            nested.append(True)
            fit(tmp_path)
        return predict(observations)

    model.predict = train_another_first
    monkeypatch.setattr(training, "SAVE_EVERY", -1)
    fit(tmp_path, model)
    assert_same_weights(stored(tmp_path)[0], stored(trained[1])[0])
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


# --- stacks ------------------------------------------------------------------------------------------------------


def source(seed):
    """Data of a seed of its own."""
    return lambda split, n, epoch: data(split, n, epoch + 100 * seed)


def start(seed):
    """A toy with a start of its own."""
    model = Toy()
    with torch.no_grad():
        model.theta += 0.01 * seed
    return model


def several(folder, seeds, schedule=SCHEDULE, **more):
    return [
        training.Training(
            start(seed), source(seed), replace(schedule, seed=seed), folder / f"toy{seed}", CONFIGURATION, **more
        )
        for seed in seeds
    ]


def assert_like_singles(folder, seeds, schedule=SCHEDULE):
    for seed in seeds:
        alone = folder / f"alone{seed}"
        model = training.fit(
            start(seed), source(seed), replace(schedule, seed=seed), alone, CONFIGURATION, progress=False
        )
        together = checkpoints.load(folder / f"toy{seed}", Toy(), CONFIGURATION)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(together.state_dict()[name], value, rtol=2e-3, atol=1e-5)  # half precision
        records = [checkpoints.read_record(path, CONFIGURATION) for path in (alone, folder / f"toy{seed}")]
        for key in ("loss", "val_gmse"):
            assert records[0]["history"][key] == pytest.approx(records[1]["history"][key], rel=1e-5)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("bound", [0.0, 0.3])
@pytest.mark.parametrize("keep_best", [False, True])
def test_a_stack_trains_each_network_as_if_it_were_alone(tmp_path, monkeypatch, stream, bound, keep_best):
    """Weights, losses and errors; each has its own start, data, order, noise, bound on gradients and best epoch."""
    monkeypatch.setattr(Toy, "max_gradient", bound, raising=False)
    schedule = replace(SCHEDULE, stream=stream, keep_best=keep_best, decay=1.3)
    training.fit_together(several(tmp_path, (1, 2, 5), schedule), progress=False)
    assert_like_singles(tmp_path, (1, 2, 5), schedule)
    one, two = (checkpoints.load(tmp_path / f"toy{seed}", Toy()).theta for seed in (1, 2))
    assert not torch.equal(one, two)


def interrupt(monkeypatch, step):
    """Raise KeyboardInterrupt in a step of the optimiser, and save after each epoch."""
    steps = iter(range(1000))
    adam = training._adam

    def build(*arguments):
        optimiser = adam(*arguments)
        take = optimiser.step

        def stop():
            if next(steps) == step:
                raise KeyboardInterrupt
            take()

        optimiser.step = stop
        return optimiser

    monkeypatch.setattr(training, "_adam", build)
    monkeypatch.setattr(training, "SAVE_EVERY", -1)


def test_a_stack_is_resumed_together_or_alone(tmp_path, monkeypatch):
    """After two epochs; one of them is then trained an epoch further alone, and the stack takes it up where it is."""
    schedule = replace(SCHEDULE, keep_best=True)
    for seeds, step in (((1, 2, 5), 7), ((2,), 4)):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            interrupt(patch, step)
            training.fit_together(several(tmp_path, seeds, schedule), progress=False)
    trainings = several(tmp_path, (1, 2, 5), schedule)
    for resumed in trainings:
        resumed.resume(retrain=False)
    assert [len(resumed.history) for resumed in trainings] == [2, 3, 2]
    training.fit_together(several(tmp_path, (1, 2, 5), schedule), progress=False)
    assert_like_singles(tmp_path, (1, 2, 5), schedule)


def test_one_that_diverges_does_not_stop_the_others(tmp_path):
    trainings = several(tmp_path, (1, 2, 5))
    trainings[1].data = lambda split, n, epoch: tuple(
        1e30 * x if isinstance(x, torch.Tensor) else x for x in data(split, n, 0)
    )
    training.fit_together(trainings, progress=False)
    assert [checkpoints.state_of(tmp_path / f"toy{seed}") for seed in (1, 2, 5)] == ["trained", "diverged", "trained"]
    assert checkpoints.read_sidecar(tmp_path / "toy2")["diverged"] == 1
    assert_like_singles(tmp_path, (1, 5))


def test_only_what_can_be_stacked_is(tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "stackable", False)
    with pytest.raises(ValueError, match="Toy is trained one at a time, 2 were given"):
        training.fit_together(several(tmp_path, (1, 2)), progress=False)
    training.fit_together(several(tmp_path, (1,)), progress=False)


def test_the_seconds_of_a_stack_are_shared(tmp_path, monkeypatch):
    Clock(monkeypatch)
    training.time.process_time = iter(range(0, 1000, 6)).__next__  # six seconds pass between two looks
    training.fit_together(several(tmp_path, (1, 2, 5)), progress=False)
    assert checkpoints.read_sidecar(tmp_path / "toy2")["history"]["seconds"] == 4 * [2.0]
