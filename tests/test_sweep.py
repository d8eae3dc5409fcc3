import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file

from helpers import paths
from helpers.engine.checkpoints import files
from helpers.experiments import runs, sweep
from helpers.experiments.runs import Run
from helpers.experiments.sweep import SweepError

TINY = Run("tiny", "unrolling", "BA", n_nodes=6, n_layers=3, n_train=64, n_val=16, epochs=2)
GOOD = [replace(TINY, name=f"good{k}", n_val=16 + k) for k in range(3)]  # no two of them can be stacked
SEEDS = [replace(TINY, name=f"seed{seed}", seed=seed) for seed in range(3)]  # these can
WILD = replace(TINY, name="wild", lr=1e4)  # diverges
LIMIT = 200  # seconds to wait for what must come; it comes within a few


class Telling(tuple):
    """Options of a model: the first process but ours that reads them leaves a mark, and is killed if asked."""

    def __new__(cls, options, mark, ours, kill):
        self = super().__new__(cls, options)
        self.mark, self.ours, self.kill = mark, ours, kill
        return self

    def __reduce__(self):
        return Telling, (self[:], self.mark, self.ours, self.kill)

    def __iter__(self):
        if os.getpid() != self.ours and not self.mark.exists():
            self.mark.touch()
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__iter__()


def telling(run, folder, *, kill):
    """A run whose first process leaves a mark in the folder, and is killed if asked."""
    return replace(run, options=Telling((("tau", 0.9),), folder / "mark", os.getpid(), kill))


def collect(names):
    """The names that are yielded, and the failures at the end."""
    finished = []
    try:
        finished.extend(names)
    except SweepError as error:
        return finished, error.failures
    return finished, {}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A folder with the checkpoint of GOOD[0], trained here."""
    folder = tmp_path_factory.mktemp("alone")
    runs.train_run(GOOD[0], folder=folder, progress=False)
    return folder


def assert_as_if_trained_alone(run, folder, alone):
    a, b = (load_file(files(runs.checkpoint(run, where))[0]) for where in (alone, folder))
    assert a.keys() == b.keys()
    assert all(torch.equal(a[key], b[key]) for key in a)


def wait_until(condition):
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


# --- here ----------------------------------------------------------------------------------------------------------


def test_a_failing_run_does_not_stop_the_others(tmp_path):
    broken = replace(TINY, name="broken", model="unheard-of")
    finished, failures = collect(sweep.train([WILD, GOOD[0], broken, GOOD[1]], folder=tmp_path))
    assert finished == ["good0", "good1"]
    assert failures.keys() == {"wild", "broken"}
    assert failures["wild"] == "diverged, and is recorded as such"
    assert failures["broken"].startswith("ValueError: model='unheard-of'")
    assert runs.state_of(WILD, tmp_path) == "diverged"


def test_seeds_are_trained_as_one_stack_unless_it_is_done(tmp_path, monkeypatch):
    """A stack that fails fails as a whole, and a stack that is trained is left alone."""
    groups = []

    def watch(group, **how):
        groups.append([run.name for run in group])
        runs.train_together(group, **how)

    monkeypatch.setattr(sweep, "train_together", watch)
    finished, failures = collect(sweep.train([*SEEDS, GOOD[1]], folder=tmp_path))
    assert groups == [["seed0", "seed1", "seed2"], ["good1"]]
    assert (finished, failures) == (["seed0", "seed1", "seed2", "good1"], {})
    assert {runs.state_of(run, tmp_path) for run in SEEDS} == {"trained"}
    (tmp_path / "seed3.resume.safetensors").write_bytes(b"damaged")
    more = [replace(TINY, name=f"seed{seed}", seed=seed) for seed in (3, 4)]
    finished, failures = collect(sweep.train([*more, *SEEDS], folder=tmp_path))
    assert finished == []
    assert failures.keys() == {f"seed{k}" for k in range(5)}
    assert all("seed3.resume.safetensors is truncated or corrupt" in reason for reason in failures.values())


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_runs_that_go_on_from_others_wait_for_them(monkeypatch, n_jobs):
    first, other = GOOD[:2]
    later = replace(GOOD[2], start=first.name)
    waves = []

    def outcomes(groups, *_):
        waves.append([run.name for group in groups for run in group])
        yield {name: "bad luck" if name == other.name else None for name in waves[-1]}

    monkeypatch.setattr(sweep, "_outcomes", outcomes)
    finished, failures = collect(sweep.train([later, first, other], n_jobs=n_jobs))
    assert waves == [[first.name, other.name], [later.name]]
    assert finished == [first.name, later.name] and failures == {other.name: "bad luck"}


def test_the_error_says_all_that_failed():
    error = SweepError({"a": "reason 1", "b": "reason 2"})
    assert str(error) == "a: reason 1; b: reason 2"
    assert error.failures == {"a": "reason 1", "b": "reason 2"}


def test_options_reach_the_training(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(sweep, "train_together", lambda group, **how: asked.append((group, how)))
    assert list(sweep.train(GOOD[:1], folder=tmp_path, device="meta", retrain=True)) == ["good0"]
    assert list(sweep.train(GOOD[:1])) == ["good0"]
    assert asked == [
        (GOOD[:1], {"progress": True, "device": "meta", "retrain": True, "folder": tmp_path}),
        (GOOD[:1], {"progress": True, "device": "cpu", "retrain": False, "folder": None}),
    ]


def test_interruptions_are_no_failures(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "train_together", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(sweep.train(GOOD, folder=tmp_path))


def test_no_process_is_too_few():
    with pytest.raises(ValueError, match="n_jobs=0: at least 1"):
        list(sweep.train(GOOD, n_jobs=0))


# --- processes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def staged(monkeypatch):
    """Processes that are none: a run's name decides how each of its processes ends. Returns what happened."""
    log = SimpleNamespace(started=[], ended=[], busy=[])

    class Process:
        exitcode = -9

        def __init__(self, target, args, daemon):
            assert target is sweep._work
            assert daemon  # the interpreter must not wait for it
            group, self.how, self.reply = args
            self.name = " ".join(run.name for run in group)
            log.started.append(self.name)

        def start(self):
            ending = self.name.split("-")[0]
            self.reply = self.reply if ending == "dies" else os.dup(self.reply.fileno())
            if ending != "dies":
                self.reply = multiprocessing.connection.Connection(self.reply, readable=False)
            if ending == "good":
                self.reply.send({self.name: None})
            if ending == "fails":
                self.reply.send({self.name: "a reason"})

        def kill(self):
            log.ended.append((self.name, "kill"))

        def join(self):
            log.ended.append((self.name, "join"))

    def wait_and_count(answers):
        log.busy.append(len(answers))
        return wait(answers)

    def pipe(duplex):
        assert not duplex  # the parent has nothing to say
        return multiprocessing.Pipe(duplex=False)

    context = SimpleNamespace(Pipe=pipe, Process=Process)
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: {"spawn": context}[method])
    monkeypatch.setattr(sweep, "wait", wait_and_count)
    return log


def named(*names):
    """Runs that cannot be stacked."""
    return [replace(TINY, name=name, n_val=16 + k) for k, name in enumerate(names)]


def test_a_run_that_kills_every_process_is_given_up(staged):
    finished, failures = collect(sweep.train(named("dies", "good-1", "fails", "good-2", "good-3"), n_jobs=2))
    assert sorted(finished) == ["good-1", "good-2", "good-3"]
    assert failures == {"dies": "its process died 3 times, at last with exit code -9", "fails": "a reason"}
    assert sorted(staged.started) == ["dies", "dies", "dies", "fails", "good-1", "good-2", "good-3"]
    assert sorted(staged.ended) == [(name, "join") for name in sorted(staged.started)]
    assert max(staged.busy) == 2


def test_a_stack_is_given_up_as_a_whole(staged):
    runs_of_a_stack = [replace(TINY, name=f"dies-{seed}", seed=seed) for seed in range(2)]
    finished, failures = collect(sweep.train(runs_of_a_stack, n_jobs=2))
    assert finished == []
    assert failures == dict.fromkeys(("dies-0", "dies-1"), "its process died 3 times, at last with exit code -9")
    assert staged.started == 3 * ["dies-0 dies-1"]


def test_a_sweep_that_is_given_up_leaves_no_process(staged):
    names = sweep.train(named("endless-1", "good", "endless-2", "good-2"), n_jobs=3)
    assert next(names) == "good"
    assert staged.busy == [3]
    names.close()
    assert staged.ended == [
        ("good", "join"),
        ("endless-1", "kill"), ("endless-1", "join"),
        ("endless-2", "kill"), ("endless-2", "join"),
    ]  # fmt: skip


@pytest.mark.parametrize("run, reason", [(TINY, None), (WILD, "diverged, and is recorded as such")])
def test_a_worker_watches_its_parent_and_answers_with_its_reason(tmp_path, monkeypatch, run, reason):
    watching = threading.Event()
    threads = []

    class Thread(threading.Thread):
        def __init__(self, **options):
            threads.append(options)
            super().__init__(**options)

    monkeypatch.setattr(sweep, "_end_with_parent", watching.set)
    monkeypatch.setattr(sweep.threading, "Thread", Thread)
    answer, reply = multiprocessing.Pipe(duplex=False)
    sweep._work([run], {"folder": tmp_path}, reply)
    assert answer.recv() == {run.name: reason}
    assert watching.wait(LIMIT)
    watchers = [thread for thread in threads if thread["target"] == watching.set]
    assert watchers == [{"target": watching.set, "daemon": True}]  # it must not keep a worker alive that is done


def test_a_worker_shows_no_bar(monkeypatch):
    asked = []
    monkeypatch.setattr(sweep, "train_together", lambda group, **how: asked.append(how))
    monkeypatch.setattr(sweep, "_end_with_parent", lambda: None)
    _, reply = multiprocessing.Pipe(duplex=False)
    how = {"device": "cpu", "folder": None}
    sweep._work([TINY], how, reply)
    assert asked == [{"progress": False} | how]


def test_a_worker_ends_after_its_parent(monkeypatch):
    steps = []
    parent = SimpleNamespace(join=lambda: steps.append("the parent is gone"))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: parent)
    monkeypatch.setattr(sweep.os, "_exit", steps.append)
    sweep._end_with_parent()
    assert steps == ["the parent is gone", 1]


# --- Dask ----------------------------------------------------------------------------------------------------------


def test_checkpoints_come_back_from_a_cluster_without_our_disk(tmp_path, monkeypatch):
    """A client that trains elsewhere; an unchanged file is not written again."""
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    distributed = pytest.importorskip("distributed")

    class Future:
        def __init__(self, answer=None, error=None):
            self.answer, self.error = answer, error

        def exception(self):
            return self.error

        def result(self):
            return self.answer

    class Client:
        def __init__(self, address):
            assert address == "tcp://somewhere"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def submit(self, function, group, how, pure):
            assert not pure  # the same run may be trained twice
            if group[0].name == "good1":
                return Future(error=RuntimeError("all workers lost"))
            return Future(function(group, how | {"folder": elsewhere}))

    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(distributed, "as_completed", list)
    finished, failures = collect(sweep.train([*GOOD[:2], WILD], scheduler="tcp://somewhere", folder=here))
    assert finished == ["good0"]
    assert failures["good1"] == "RuntimeError: all workers lost"
    assert "diverged" in failures["wild"]
    assert runs.state_of(GOOD[0], here) == "trained"
    assert sorted(path.name for path in here.iterdir()) == ["good0.json", "good0.safetensors", "wild.json"]
    written = []
    monkeypatch.setattr(paths, "write_atomically", lambda path, content: written.append(path.name))
    (here / "good0.json").write_bytes(b"another")
    assert list(sweep.train(GOOD[:1], scheduler="tcp://somewhere", folder=here)) == ["good0"]
    assert written == ["good0.json"]


def test_a_cluster_needs_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"l2g-reproduction\[dask\]"):
        list(sweep.train(GOOD, scheduler="tcp://somewhere"))


# --- processes that are really killed ---------------------------------------------------------------------------------


def test_a_killed_process_is_replaced(tmp_path, alone):
    folder = tmp_path / "there"
    finished, failures = collect(sweep.train([telling(GOOD[0], tmp_path, kill=True)], n_jobs=2, folder=folder))
    assert (finished, failures) == (["good0"], {})
    assert (tmp_path / "mark").exists()
    assert_as_if_trained_alone(GOOD[0], folder, alone)
    assert multiprocessing.active_children() == []


def test_a_killed_parent_leaves_no_process(tmp_path):
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_sweep import Path, replace, sweep, telling, TINY
folder = Path(sys.argv[1])
list(sweep.train([telling(replace(TINY, epochs=10**7), folder, kill=False)], n_jobs=2, folder=folder))
"""
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=paths.ROOT)
    workers = []
    try:
        wait_until((tmp_path / "mark").exists)  # it is at work
        children = psutil.Process(parent.pid).children()
        workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        assert len(workers) == 1
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(alive(worker) for worker in workers))
    finally:
        for process in [psutil.Process(parent.pid)] if parent.poll() is None else []:
            process.kill()
        for worker in workers:
            if alive(worker):
                worker.kill()


def alive(process):
    """Not even a zombie, which is what is left where nobody collects the dead."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_dask_cluster_survives_the_loss_of_a_worker(tmp_path, alone):
    """A real scheduler and a worker process, which is killed while it has a run and replaced."""
    distributed = pytest.importorskip("distributed")
    there = tmp_path / "there"
    chosen = [telling(GOOD[0], tmp_path, kill=True), WILD]
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        finished, failures = collect(sweep.train(chosen, scheduler=cluster.scheduler_address, folder=there))
    assert (tmp_path / "mark").exists()
    assert finished == ["good0"]
    assert failures.keys() == {"wild"}
    assert "diverged" in failures["wild"]
    assert_as_if_trained_alone(GOOD[0], there, alone)
