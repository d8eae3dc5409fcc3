import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from helpers import paths, runs, training
from helpers.metrics import gmse
from helpers.models import Unrolling
from helpers.runs import RUNS, Run

TINY = Run("l2g", "BA", n_nodes=6, n_layers=3, n_train=64, n_val=16, epochs=3)


def stored(run, folder):
    weights, sidecar, _ = training.files(run, folder)
    return load_file(weights), json.loads(sidecar.read_text())


def assert_same_weights(a, b):
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    return training.fit(TINY, folder=folder, progress=False), folder


def copy(folder, target):
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return training.files(TINY, target)


def test_checkpoint_holds_all_that_a_reader_may_ask(trained):
    model, folder = trained
    weights, record = stored(TINY, folder)
    assert_same_weights(weights, model.state_dict())
    assert Run(**{k: tuple(v) if isinstance(v, list) else v for k, v in record["run"].items()}) == TINY
    assert record["configuration_hash"] == training.configuration_hash(TINY)
    assert len(record["history"]["loss"]) == len(record["history"]["val_gmse"]) == 3
    assert record["seconds_per_epoch"] > 0
    assert record["versions"]["torch"].startswith("2.")
    assert not training.files(TINY, folder)[2].exists()
    assert training.state_of(TINY, folder) == "trained"


def test_loaded_model_is_the_trained_one(trained):
    model, folder = trained
    y, _ = training.sample_pairs(TINY, "test", 5)
    assert torch.equal(training.load(TINY, folder=folder).predict(y), model.predict(y))


def test_training_is_reproducible_and_learns(trained, tmp_path):
    training.fit(TINY, folder=tmp_path, progress=False)
    assert_same_weights(stored(TINY, tmp_path)[0], stored(TINY, trained[1])[0])
    run = replace(TINY, model="unrolling", n_train=640, n_layers=10, epochs=8)
    model = training.fit(run, folder=tmp_path, progress=False)
    errors = stored(run, tmp_path)[1]["history"]["val_gmse"]
    assert min(errors) < 0.6 * errors[0]
    y, w = training.sample_pairs(run, "val", run.n_val)
    assert gmse(model.predict(y), w).mean().item() == min(errors)  # the epoch that validated best is kept


def test_splits_and_seeds_are_distinct_and_shared_between_models():
    draw = lambda run, *args, **kw: training.sample_pairs(run, *args, **kw)[0]  # noqa: E731
    sets = [draw(TINY, split, 4, epoch=e) for split in training.SPLITS for e in (0, 1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(sets) for b in sets[:i])
    other = replace(TINY, model="unrolling", seed=1)
    assert torch.equal(draw(TINY, "test", 4), draw(other, "test", 4))
    assert not torch.equal(draw(TINY, "train", 4), draw(other, "train", 4))


def test_a_killed_run_resumes_and_ends_bit_equal(tmp_path):
    """A real SIGKILL at three moments, then the same command again."""
    run = Run("l2g", "BA", n_nodes=8, n_layers=3, n_train=64, n_val=16, epochs=60)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    training.fit(run, folder=whole, progress=False)
    program = (
        "import sys; from pathlib import Path; from helpers import training; from helpers.runs import Run;"
        f"training.SAVE_EVERY = 0; training.fit({run!r}, folder=Path(sys.argv[1]), progress=False)"
    )
    command = [sys.executable, "-c", program, str(killed)]
    resume = training.files(run, killed)[2]
    seen = 0
    for _ in range(3):
        process = subprocess.Popen(command, cwd=paths.ROOT)
        before = resume.stat().st_mtime_ns if resume.exists() else 0
        while process.poll() is None and not (resume.exists() and resume.stat().st_mtime_ns != before):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen += resume.exists()
    assert seen >= 1
    assert training.state_of(run, killed) in ("started", "trained")
    subprocess.run(command, cwd=paths.ROOT, check=True)
    a, record_a = stored(run, whole)
    b, record_b = stored(run, killed)
    assert_same_weights(a, b)
    for key in ("loss", "val_gmse"):
        assert record_a["history"][key] == record_b["history"][key]


def test_a_kill_between_weights_and_sidecar_loses_nothing(trained, tmp_path, monkeypatch):
    write = paths.write_atomically

    def dies_at_the_sidecar(path, content):
        if str(path).endswith(".json"):
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(paths, "write_atomically", dies_at_the_sidecar)
    with pytest.raises(KeyboardInterrupt):
        training.fit(TINY, folder=tmp_path, progress=False)
    monkeypatch.undo()
    assert training.state_of(TINY, tmp_path) == "started"
    training.fit(TINY, folder=tmp_path, progress=False)
    assert_same_weights(stored(TINY, tmp_path)[0], stored(TINY, trained[1])[0])


def test_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "file"
    paths.write_atomically(target, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        paths.write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [target]


def test_missing_checkpoint_says_how_to_train(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"helpers.runs train {TINY.name}"):
        training.load(TINY, folder=tmp_path)
    assert training.state_of(TINY, tmp_path) == "missing"


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:100] + b"x" + b[101:], lambda b: b""])
def test_damaged_weights_are_refused(trained, tmp_path, damage):
    weights, _, _ = copy(trained[1], tmp_path)
    weights.write_bytes(damage(weights.read_bytes()))
    with pytest.raises(training.CheckpointError, match="truncated, corrupt"):
        training.load(TINY, folder=tmp_path)
    assert training.state_of(TINY, tmp_path) == "stale"
    with pytest.raises(training.CheckpointError, match="--retrain"):
        training.fit(TINY, folder=tmp_path, progress=False)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff\xfe"])
def test_damaged_sidecars_are_refused(trained, tmp_path, content):
    _, sidecar, _ = copy(trained[1], tmp_path)
    sidecar.write_bytes(content)
    with pytest.raises(training.CheckpointError, match="not a readable sidecar"):
        training.load(TINY, folder=tmp_path)


def test_checkpoint_of_another_configuration_is_refused(trained, tmp_path):
    _, sidecar, _ = copy(trained[1], tmp_path)
    record = json.loads(sidecar.read_text())
    record["configuration"]["lr"] = 0.5
    sidecar.write_text(json.dumps(record))
    with pytest.raises(training.CheckpointError, match=r"lr: 0\.5 there, the default here"):
        training.load(TINY, folder=tmp_path)
    training.fit(TINY, folder=tmp_path, progress=False, retrain=True)
    assert training.state_of(TINY, tmp_path) == "trained"


def test_foreign_weights_with_a_matching_sidecar_are_refused(trained, tmp_path):
    import hashlib

    weights, sidecar, _ = copy(trained[1], tmp_path)
    other = replace(TINY, model="unrolling")
    training.fit(other, folder=tmp_path / "other", progress=False)
    weights.write_bytes(training.files(other, tmp_path / "other")[0].read_bytes())
    record = json.loads(sidecar.read_text())
    record["weights_sha256"] = hashlib.sha256(weights.read_bytes()).hexdigest()
    sidecar.write_text(json.dumps(record))
    with pytest.raises(training.CheckpointError, match="does not fit"):
        training.load(TINY, folder=tmp_path)


@pytest.mark.parametrize("content", [b"", b"0" * 200])
def test_damaged_resume_file_is_refused(tmp_path, content):
    resume = training.files(TINY, tmp_path)[2]
    resume.write_bytes(content)
    with pytest.raises(training.CheckpointError, match="delete it"):
        training.fit(TINY, folder=tmp_path, progress=False)
    assert resume.read_bytes() == content


def test_resume_file_of_another_configuration_is_refused(tmp_path):
    model = training.build(TINY)
    training._save_progress(TINY, tmp_path, model, torch.optim.Adam(model.parameters()), [], {})
    other = replace(TINY, lr=0.5)
    training.files(TINY, tmp_path)[2].rename(training.files(other, tmp_path)[2])
    with pytest.raises(training.CheckpointError, match="another configuration"):
        training.fit(other, folder=tmp_path, progress=False)


def test_divergence_is_said(tmp_path):
    with pytest.raises(FloatingPointError, match="lower lr=10000"):
        training.fit(replace(TINY, model="unrolling", lr=1e4), folder=tmp_path, progress=False)


def test_one_wild_gradient_does_not_spoil_a_step():
    run = Run("unrolling", "BA", n_nodes=6, n_layers=3, n_train=8, batch_size=8)
    y, w = training.sample_pairs(run, "train", 8)
    steps = {}
    for bound in (1.0, 0.0):
        model = Unrolling(3, n_nodes=6, max_gradient=bound)
        before = model.theta.detach().clone()
        training._train_epoch(run, model, torch.optim.SGD(model.parameters(), lr=run.lr), (y, 1e-3 * w), 0)
        steps[bound] = (model.theta.detach() - before).norm().item()
    assert steps[1.0] == pytest.approx(run.lr, rel=1e-4)  # the gradient was longer, and cut to length 1
    assert steps[0.0] > 100 * run.lr


def test_step_seconds_measures_and_trains_nothing():
    run = Run("unrolling", "BA", n_nodes=6, n_layers=2, n_train=64)
    assert 0 < training.step_seconds(run, steps=2) < 5


def test_unknown_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="model='x'"):
        training.fit(replace(TINY, model="x"), folder=tmp_path)


def test_load_or_train_says_the_price_first(tmp_path, capsys):
    training.load_or_train(TINY, folder=tmp_path)
    assert "training takes about" in capsys.readouterr().out
    training.load_or_train(TINY, folder=tmp_path)
    assert capsys.readouterr().out == ""


# --- names, registry, command line ---------------------------------------------------------------------------------


def test_names_are_readable_unique_and_say_what_differs():
    assert Run("l2g", "BA").name == "l2g-ba-m20-t20"
    named = Run("unrolling", "SBM", lr=1e-4, decay=1.0, shuffle=True, params=(("p_in", 0.9),))
    assert named.name == "unrolling-sbm-m20-t20-shuffle-p_in0.9-lr0.0001-decay1"
    assert all(name == run.name for name, run in RUNS.items())
    assert hash(named) == hash(replace(named))


def test_pattern_without_match_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        runs.main(["status", "nothing-*"])
    assert end.value.code == 2
    assert "nothing-*" in capsys.readouterr().err


@pytest.fixture
def sweep(monkeypatch, tmp_path):
    chosen = {run.name: run for run in (replace(TINY, seed=s, model="unrolling") for s in range(4))}
    monkeypatch.setattr(runs, "RUNS", chosen)
    monkeypatch.setattr(paths, "CHECKPOINTS", tmp_path)
    return [*chosen.values()]


def test_train_command_trains_what_is_missing_in_parallel(sweep, tmp_path, capsys):
    assert sorted(runs.train(sweep[:2], n_jobs=2, folder=tmp_path)) == sorted(run.name for run in sweep[:2])
    runs.main(["status"])
    out = capsys.readouterr().out
    assert out.count("trained  ") == 2
    assert out.count("missing  ") == 2
    runs.main(["train", "*seed3"])
    assert "1 of 1 runs to train" in capsys.readouterr().out
    assert training.state_of(sweep[3]) == "trained"
    runs.main(["list"])
    assert capsys.readouterr().out.split() == [run.name for run in sweep]


def test_a_dask_cluster_survives_the_loss_of_a_worker(tmp_path):
    """A real scheduler and two worker processes; one is killed while it trains."""
    distributed = pytest.importorskip("distributed")
    slow = [Run("unrolling", "BA", n_nodes=8, n_layers=3, n_train=64, n_val=16, epochs=60, seed=s) for s in range(4)]
    there, here = tmp_path / "there", tmp_path / "here"
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        names = runs.train(slow, scheduler=cluster.scheduler_address, folder=there)
        finished = [next(names)]  # the sweep is under way
        victim = next(iter(cluster.workers.values())).process.pid
        os.kill(victim, signal.SIGKILL)
        finished += names
    assert sorted(finished) == sorted(run.name for run in slow)
    for run in slow:
        training.fit(run, folder=here, progress=False)
        assert_same_weights(stored(run, here)[0], stored(run, there)[0])
