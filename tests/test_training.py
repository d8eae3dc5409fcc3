import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from helpers import paths, training
from helpers.metrics import gmse
from helpers.signals import observe
from helpers.training import CheckpointError, Schedule

N_EDGES = 10  # of 5 nodes
SCHEDULE = Schedule(
    epochs=4, batch_size=8, lr=0.05, decay=0.5, n_train=20, n_val=6, stream=False, keep_best=False, seed=3
)  # fmt: skip
CONFIGURATION = {"lr": 0.05, "arguments": {"width": [3, 4]}}


class Toy(nn.Module):
    """A linear map of distances, with some noise in its loss; its parameters may be stacked."""

    half_precision = ("map.",)
    stackable = True

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.full((N_EDGES,), 1 / 3))
        self.map = nn.Linear(N_EDGES, N_EDGES)
        with torch.no_grad():
            self.map.weight.copy_(torch.eye(N_EDGES) / 3)
            self.map.bias.zero_()
        self.n_threads = None

    def prepare(self, observations):
        return observations.distances.float()

    def forward(self, y):
        return self.theta.unsqueeze(-2) * (y @ self.map.weight.mT + self.map.bias.unsqueeze(-2))

    def loss(self, prepared, w, generator=None):
        self.n_threads = torch.get_num_threads()
        generators = generator if isinstance(generator, list) else [generator]
        noise = torch.stack([torch.randn(w.shape[-2:], generator=g) for g in generators]).reshape(w.shape)
        return (self(prepared) + 0.1 * noise - w).square().sum(-1).mean(-1)

    def predict(self, observations):
        y = observations if isinstance(observations, torch.Tensor) else self.prepare(observations)
        with torch.no_grad():
            return self(y).clamp_min(0)


def data(split, n, epoch):
    """Observations of random signals; the graphs are some function of them."""
    seed = 1000 * training.SPLITS.index(split) + epoch
    observations = observe(torch.randn(n, 30, 5, generator=torch.Generator().manual_seed(seed)))
    return observations, observations.distances.float().sqrt()


def fit(folder, model=None, *, schedule=SCHEDULE, source=data, configuration=CONFIGURATION, **how):
    model = Toy() if model is None else model
    return training.fit(model, source, schedule, folder / "toy", configuration, progress=False, **how)


def stored(folder):
    weights, sidecar, _ = training.files(folder / "toy")
    return load_file(weights), json.loads(sidecar.read_text())


def assert_same_weights(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    return fit(folder), folder


@pytest.fixture
def copied(trained, tmp_path):
    for path in trained[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return training.files(tmp_path / "toy")


@pytest.fixture
def cut_off(tmp_path):
    """Trained for two epochs and a bit, then interrupted: the resume file."""
    model = Toy()
    loss = model.loss
    steps = iter(range(100))

    def interrupt(*args):
        if next(steps) == 7:  # the second batch of the third epoch
            raise KeyboardInterrupt
        return loss(*args)

    model.loss = interrupt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "SAVE_EVERY", -1)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path, model, retrain=True)
    return training.files(tmp_path / "toy")[2]


class Clock:
    """Stands in for the module `time`: each of its clocks shows what it is told to."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        clocks = {name: (lambda: self.now) for name in ("monotonic", "process_time", "perf_counter")}
        monkeypatch.setattr(training, "time", SimpleNamespace(**clocks))


# --- training ------------------------------------------------------------------------------------------------------


def test_checkpoint_holds_all_that_a_reader_may_ask(trained):
    model, folder = trained
    _, record = stored(folder)
    assert record["name"] == "toy"
    assert record["configuration"] == CONFIGURATION
    assert record["n_parameters"] == 10 + 110
    assert (record["diverged"], record["test"]) == (0, {})
    assert {len(values) for values in record["history"].values()} == {4}
    assert record["history"].keys() == {"loss", "val_gmse", "seconds"}
    assert record["seconds"] == round(sum(record["history"]["seconds"]), 2)
    assert record["seconds_per_epoch"] == round(sum(record["history"]["seconds"]) / 4, 4)
    assert record["versions"].keys() == {*training.LIBRARIES, "python"}
    assert record["versions"]["torch"] == torch.__version__
    assert record == training.read_record(folder / "toy", CONFIGURATION)
    assert sorted(path.name for path in folder.iterdir()) == ["toy.json", "toy.safetensors"]
    assert training.state_of(folder / "toy", CONFIGURATION) == "trained"
    assert not model.training


def test_the_model_has_exactly_the_stored_weights(trained):
    """Half precision where the model asks for it, in the file and in the model itself; single precision elsewhere."""
    model, folder = trained
    weights, _ = stored(folder)
    assert {name: t.dtype for name, t in weights.items()} == {
        "theta": torch.float32,
        "map.weight": torch.float16,
        "map.bias": torch.float16,
    }
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert_same_weights({name: t.float() for name, t in weights.items()}, model.state_dict())
    assert not torch.equal(weights["theta"].half().float(), weights["theta"])  # theta has digits that would be lost


def test_a_weight_beyond_half_precision_stays_in_single(tmp_path):
    model = Toy()
    model.map.weight.data[0, 0] = 1e5
    history = [{"loss": 1.0, "val_gmse": 1.0, "seconds": 1.0}]
    training.save(tmp_path / "toy", model, history, CONFIGURATION)
    weights, _ = stored(tmp_path)
    assert weights["map.weight"].dtype == torch.float32
    assert weights["map.weight"][0, 0] == 1e5
    assert weights["map.bias"].dtype == torch.float16


def test_a_loaded_model_is_the_trained_one(trained):
    model, folder = trained
    observations, _ = data("test", 5, 0)
    loaded = training.load(folder / "toy", Toy(), CONFIGURATION)
    assert not loaded.training
    assert torch.equal(loaded.predict(observations), model.predict(observations))
    again = fit(folder, source=None)  # loaded, not trained: there are no data
    assert_same_weights(again.state_dict(), model.state_dict())


def test_training_is_reproducible_and_learns(trained, tmp_path):
    fit(tmp_path)
    assert_same_weights(stored(tmp_path)[0], stored(trained[1])[0])
    here, there = (stored(folder)[1]["history"] for folder in (tmp_path, trained[1]))
    assert here["loss"] == there["loss"]
    assert here["val_gmse"] == there["val_gmse"]
    assert here["val_gmse"][-1] < 0.7 * here["val_gmse"][0]
    fit(tmp_path, schedule=replace(SCHEDULE, seed=4), retrain=True)
    assert stored(tmp_path)[1]["history"]["loss"] != there["loss"]


def test_the_best_epoch_is_kept_or_the_last(tmp_path):
    """With a growing rate the last epoch is not the best."""
    schedule = replace(SCHEDULE, epochs=6, lr=0.02, decay=2.5)
    observations, w = data("val", schedule.n_val, 0)
    for keep_best, pick in ((True, min), (False, lambda errors: errors[-1])):
        model = fit(tmp_path, schedule=replace(schedule, keep_best=keep_best), retrain=True)
        errors = stored(tmp_path)[1]["history"]["val_gmse"]
        assert errors[-1] > 1.1 * min(errors)
        assert gmse(model.predict(observations), w).mean().item() == pytest.approx(pick(errors), rel=5e-3)


def test_the_best_weights_survive_an_interruption(tmp_path, monkeypatch):
    """The best epoch lies before the interruption, so that its weights must be in the resume file."""
    monkeypatch.setattr(training, "SAVE_EVERY", -1)
    schedule = replace(SCHEDULE, epochs=6, lr=0.02, decay=2.5, keep_best=True)
    whole = fit(tmp_path, schedule=schedule)
    monkeypatch.setattr(training, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, schedule=schedule, retrain=True)
    monkeypatch.undo()
    training.files(tmp_path / "toy")[1].unlink()
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
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "diverged"
    record = training.read_record(tmp_path / "toy", CONFIGURATION)
    assert (record["diverged"], record["weights_sha256"], record["test"]) == (1, None, {})
    assert None in (record["history"]["loss"][0], record["history"]["val_gmse"][0])
    assert [path.name for path in tmp_path.iterdir()] == ["toy.json"]
    with pytest.raises(CheckpointError, match="diverged in epoch 1 and left no weights"):
        fit(tmp_path)
    fit(tmp_path, retrain=True)
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "trained"


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


def test_a_model_is_loaded_to_its_device(trained):
    _, folder = trained
    assert training.load(folder / "toy", Toy(), device="meta").theta.device.type == "meta"
    assert fit(folder, device="meta").theta.device.type == "meta"


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

    save = training._save_progress

    def count(progress):
        epochs.append(len(progress.history))
        save(progress)

    monkeypatch.setattr(training, "_save_progress", count)
    fit(tmp_path, Slow(), schedule=replace(SCHEDULE, epochs=8))
    assert epochs == [3, 6, 8]


# --- interruptions -------------------------------------------------------------------------------------------------


def test_a_killed_training_resumes_and_ends_bit_equal(trained, tmp_path):
    """A real SIGKILL in the middle of the third epoch."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_training as t
t.training.SAVE_EVERY = -1
model, steps = t.Toy(), iter(range(100))
loss = model.loss
def die(*args):
    if next(steps) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return loss(*args)
model.loss = die
t.fit(t.Path(sys.argv[1]), model)
"""
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=paths.ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "started"
    with safe_open(training.files(tmp_path / "toy")[2], "pt") as file:
        assert len(json.loads(file.metadata()["history"])) == 2
    fit(tmp_path)
    assert_same_weights(stored(tmp_path)[0], stored(trained[1])[0])
    for key in ("loss", "val_gmse"):
        assert stored(tmp_path)[1]["history"][key] == stored(trained[1])[1]["history"][key]
    assert not training.files(tmp_path / "toy")[2].exists()


def test_only_the_epochs_that_are_left_are_trained(cut_off, tmp_path):
    class Watch(Toy):
        steps = 0

        def loss(self, *args):
            self.steps += 1
            return super().loss(*args)

    model = fit(tmp_path, Watch())
    assert model.steps == 2 * 3
    assert len(stored(tmp_path)[1]["history"]["loss"]) == 4


def test_a_kill_between_weights_and_sidecar_loses_nothing(trained, tmp_path, monkeypatch):
    write = paths.write_atomically

    def dies_at_the_sidecar(path, content):
        if str(path).endswith(".json"):
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(paths, "write_atomically", dies_at_the_sidecar)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path)
    monkeypatch.undo()
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "started"
    fit(tmp_path)
    assert_same_weights(stored(tmp_path)[0], stored(trained[1])[0])


def test_a_training_again_that_was_cut_off_resumes(copied, tmp_path, cut_off):
    """`cut_off` lies beside a finished checkpoint here: without `retrain` that one counts, with it the rest is done."""
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "trained"
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


def test_a_missing_checkpoint_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"toy\.safetensors is missing: train it first"):
        training.load(tmp_path / "toy", Toy())
    assert training.state_of(tmp_path / "toy") == "missing"


@pytest.mark.parametrize("which", [0, 1])
def test_half_a_checkpoint_is_refused_with_advice_that_works(copied, tmp_path, which):
    copied[which].unlink()
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "stale"
    with pytest.raises(CheckpointError, match=rf"{copied[which].name} is missing.*retrain=True"):
        training.load(tmp_path / "toy", Toy())
    with pytest.raises(CheckpointError, match="retrain=True"):
        fit(tmp_path)
    fit(tmp_path, retrain=True)
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "trained"


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:100] + b"x" + b[101:], lambda b: b""])
def test_damaged_weights_are_refused(copied, tmp_path, damage):
    copied[0].write_bytes(damage(copied[0].read_bytes()))
    with pytest.raises(CheckpointError, match="truncated, corrupt"):
        training.load(tmp_path / "toy", Toy(), CONFIGURATION)
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "stale"
    with pytest.raises(CheckpointError, match="retrain=True"):
        fit(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"null", b'"text"', b"3"]
    + [
        json.dumps(
            {"configuration": {}, "weights_sha256": "", "diverged": 0, "history": {}, "seconds": 1} | change
        ).encode()
        for change in (
            {"configuration": []},
            {"weights_sha256": 1},
            {"diverged": None},
            {"history": []},
            {"seconds": "1"},
            {"seconds": -1},
        )
    ],
)
def test_damaged_sidecars_are_refused(copied, tmp_path, content):
    copied[1].write_bytes(content)
    for read in (training.read_sidecar, training.read_record):
        with pytest.raises(CheckpointError, match="not a readable sidecar"):
            read(tmp_path / "toy")
    assert training.state_of(tmp_path / "toy", CONFIGURATION) == "stale"


def test_a_checkpoint_of_another_configuration_is_refused(copied, tmp_path):
    other = {"lr": 0.1, "arguments": {"width": [3, 5], "new": None}, "empty": {}}
    text = (
        r"arguments\.new: nothing there, None here, arguments\.width: \[3, 4\] there, \[3, 5\] here, "
        r"empty: nothing there, \{\} here, lr: 0\.05 there, 0\.1 here"
    )
    with pytest.raises(CheckpointError, match=text):
        training.load(tmp_path / "toy", Toy(), other)
    assert training.state_of(tmp_path / "toy", other) == "stale"
    assert training.state_of(tmp_path / "toy") == "trained"  # whatever it was trained with
    assert training.state_of(tmp_path / "toy", CONFIGURATION | {"arguments": {"width": (3, 4)}}) == "trained"
    fit(tmp_path, configuration=other, retrain=True)
    assert training.state_of(tmp_path / "toy", other) == "trained"


def test_foreign_weights_with_a_matching_sidecar_are_refused(copied, tmp_path):
    weights, sidecar, _ = copied
    save_file({"theta": torch.zeros(3)}, weights)
    record = json.loads(sidecar.read_text())
    record["weights_sha256"] = sha256(weights.read_bytes()).hexdigest()
    sidecar.write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match="does not fit Toy"):
        training.load(tmp_path / "toy", Toy(), CONFIGURATION)
    weights.write_bytes(b"no tensors")
    record["weights_sha256"] = sha256(b"no tensors").hexdigest()
    sidecar.write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match="does not fit Toy"):
        training.load(tmp_path / "toy", Toy(), CONFIGURATION)


def assert_resume_file_refused(folder, resume, match):
    """Refused and left as it is; a training from the start may replace it."""
    content = resume.read_bytes()
    assert training.state_of(folder / "toy", CONFIGURATION) == "started"
    with pytest.raises(CheckpointError, match=match):
        fit(folder)
    assert resume.read_bytes() == content
    fit(folder, retrain=True)
    assert len(stored(folder)[1]["history"]["loss"]) == 4


@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_flipped_bit_in_a_resume_file_is_noticed(cut_off, tmp_path, place):
    content = bytearray(cut_off.read_bytes())
    content[int(place * (len(content) - 1))] ^= 4
    cut_off.write_bytes(content)
    assert_resume_file_refused(tmp_path, cut_off, "toy.resume.safetensors is truncated or corrupt.*delete it")


@pytest.mark.parametrize("content", [b"", b"0" * 200])
def test_a_file_that_is_no_resume_file_is_refused(tmp_path, content):
    resume = training.files(tmp_path / "toy")[2]
    resume.write_bytes(content)
    assert_resume_file_refused(tmp_path, resume, "truncated or corrupt.*delete it")


def rewrite(resume, change, signed):
    """Change a resume file's metadata; `signed` gives it a digest to match."""
    with safe_open(resume, "pt") as file:
        metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(metadata, tensors)
    if signed:
        metadata.pop("sha256")
        metadata["sha256"] = training._digest(tensors, metadata)
    save_file(tensors, resume, metadata)


@pytest.mark.parametrize("name", ["configuration", "history", "sha256", None])
def test_a_resume_file_without_its_metadata_is_refused(cut_off, tmp_path, name):
    if name is None:
        save_file(load_file(cut_off), cut_off)
    else:
        rewrite(cut_off, lambda metadata, _: metadata.pop(name), signed=name != "sha256")
    assert_resume_file_refused(tmp_path, cut_off, "truncated or corrupt.*delete it")


def test_every_part_of_a_resume_file_is_under_its_digest():
    tensors, metadata = {"a": torch.zeros(2), "b": torch.ones(2)}, {"history": "[]"}
    others = [
        ({"a": torch.zeros(2), "b": torch.tensor([1.0, 2.0])}, metadata),
        ({"a": torch.ones(2), "b": torch.zeros(2)}, metadata),
        ({"a": torch.zeros(2), "c": torch.ones(2)}, metadata),
        ({"a": torch.zeros(1, 2), "b": torch.ones(2)}, metadata),
        ({"a": torch.zeros(2, dtype=torch.int32), "b": torch.ones(2)}, metadata),
        (tensors, {"history": "[1]"}),
    ]
    digests = {training._digest(*pair) for pair in [(tensors, metadata), *others]}
    assert len(digests) == 1 + len(others)
    assert training._digest(dict(reversed(tensors.items())), metadata) == training._digest(tensors, metadata)


def test_a_resume_file_of_another_configuration_is_refused(cut_off, tmp_path):
    def change(metadata, _):
        metadata["configuration"] = json.dumps(CONFIGURATION | {"lr": 0.1})

    rewrite(cut_off, change, signed=True)
    assert_resume_file_refused(tmp_path, cut_off, "belongs to another configuration: delete it")


def test_a_resume_file_of_another_model_is_refused(cut_off, tmp_path):
    rewrite(cut_off, lambda _, tensors: tensors.pop("model.theta"), signed=True)
    with pytest.raises(CheckpointError, match=r"does not fit Toy .*: delete it"):
        fit(tmp_path)


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
        together = training.load(folder / f"toy{seed}", Toy(), CONFIGURATION)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(together.state_dict()[name], value, rtol=2e-3, atol=1e-5)  # half precision
        records = [training.read_record(path, CONFIGURATION) for path in (alone, folder / f"toy{seed}")]
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
    one, two = (training.load(tmp_path / f"toy{seed}", Toy()).theta for seed in (1, 2))
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
        training._resume(resumed, False)
    assert [len(resumed.history) for resumed in trainings] == [2, 3, 2]
    training.fit_together(several(tmp_path, (1, 2, 5), schedule), progress=False)
    assert_like_singles(tmp_path, (1, 2, 5), schedule)


def test_one_that_diverges_does_not_stop_the_others(tmp_path):
    trainings = several(tmp_path, (1, 2, 5))
    trainings[1].data = lambda split, n, epoch: tuple(
        1e30 * x if isinstance(x, torch.Tensor) else x for x in data(split, n, 0)
    )
    training.fit_together(trainings, progress=False)
    assert [training.state_of(tmp_path / f"toy{seed}") for seed in (1, 2, 5)] == ["trained", "diverged", "trained"]
    assert training.read_sidecar(tmp_path / "toy2")["diverged"] == 1
    assert_like_singles(tmp_path, (1, 5))


def test_only_what_can_be_stacked_is(tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "stackable", False)
    with pytest.raises(ValueError, match="Toy is trained one at a time, 2 were given"):
        training.fit_together(several(tmp_path, (1, 2)), progress=False)
    training.fit_together(several(tmp_path, (1,)), progress=False)


def test_results_without_weights(tmp_path):
    """The sidecar says what the model is worth, with weights as they would be stored; an old weights file goes."""

    def evaluate(model):
        assert not model.training
        assert torch.equal(model.map.weight, model.map.weight.half().float())
        return {"gmse": [float(model.theta.detach().sum())]}

    fit_with = {"evaluate": evaluate}
    training.fit_together(several(tmp_path, (1,), **fit_with), progress=False)
    weights, sidecar, _ = training.files(tmp_path / "toy1")
    total = training.load(tmp_path / "toy1", Toy()).theta.sum().item()
    assert training.read_record(tmp_path / "toy1")["test"] == {"gmse": [total]}
    training.fit_together(several(tmp_path, (1,), keep_weights=False, **fit_with), progress=False, retrain=True)
    assert sidecar.exists()
    assert not weights.exists()
    record = training.read_record(tmp_path / "toy1", CONFIGURATION)
    assert (record["weights_sha256"], record["test"]) == (None, {"gmse": [total]})
    assert training.state_of(tmp_path / "toy1", CONFIGURATION) == "trained"
    with pytest.raises(CheckpointError, match=r"weights were not kept: train it again with retrain=True"):
        training.load(tmp_path / "toy1", Toy(), CONFIGURATION)


def test_the_seconds_of_a_stack_are_shared(tmp_path, monkeypatch):
    Clock(monkeypatch)
    training.time.process_time = iter(range(0, 1000, 6)).__next__  # six seconds pass between two looks
    training.fit_together(several(tmp_path, (1, 2, 5)), progress=False)
    assert training.read_sidecar(tmp_path / "toy2")["history"]["seconds"] == 4 * [2.0]
