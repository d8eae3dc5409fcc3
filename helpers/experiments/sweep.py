"""Train many runs: one after the other, in parallel processes of this machine, or on a Dask cluster.

No run can stop the others. A run that fails is reported at the end; a run whose process was killed is tried again by
another one, which resumes from the last epoch. A process ends with the one that started it.
"""

import multiprocessing
import os
import threading
from collections import deque
from multiprocessing.connection import wait

from .. import paths, training
from .runs import checkpoint, train_run

ATTEMPTS = 3  # to train a run whose process is killed


class SweepError(RuntimeError):
    """Some runs could not be trained; `failures` says which and why, {name: reason}."""

    def __init__(self, failures):
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in failures.items()))
        self.failures = failures


def train(runs, *, n_jobs=1, scheduler=None, device="cpu", retrain=False, folder=None):
    """Train runs and yield their names as they finish; in the end SweepError if some could not be trained.

    Parameters
    ----------
    runs : of the registry or not
    n_jobs : processes to use; 1 trains here
    scheduler : address of a Dask scheduler to send the runs to instead. Checkpoints travel back with the answer, so the
        cluster need not share a disk with us; if it does, a run that lost its worker is resumed by another.
    device, retrain, folder : see `runs.train_run`
    """
    if n_jobs < 1:
        raise ValueError(f"n_jobs={n_jobs}: at least 1 process is needed")
    how = {"device": device, "retrain": retrain, "folder": folder}
    if scheduler is not None:
        outcomes = _on_cluster(runs, scheduler, how)
    elif n_jobs > 1:
        outcomes = _in_processes(runs, n_jobs, how)
    else:
        outcomes = ((run.name, _attempt(run, how, progress=True)) for run in runs)
    failures = {}
    for name, reason in outcomes:
        if reason:
            failures[name] = reason
        else:
            yield name
    if failures:
        raise SweepError(failures)


def _attempt(run, how, progress=False):
    """Train a run; returns why that failed, or nothing."""
    try:
        train_run(run, progress=progress, **how)
    except Exception as error:  # whatever it is, the other runs go on
        return f"{type(error).__name__}: {error}"
    return None


# --- processes -----------------------------------------------------------------------------------------------------


def _in_processes(runs, n_jobs, how):
    """One process per run, `n_jobs` at a time: yields (name, reason why it failed or None)."""
    context = multiprocessing.get_context("spawn")  # a forked PyTorch may hang
    waiting = deque((run, 1) for run in runs)
    busy = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < n_jobs:
                run, attempt = waiting.popleft()
                answer, reply = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(run, how, reply), daemon=True)
                process.start()
                reply.close()  # of the two ends that can write, only the worker's is left and dies with it
                busy[answer] = process, run, attempt
            for answer in wait(list(busy)):
                process, run, attempt = busy.pop(answer)
                try:
                    reason = answer.recv()
                    died = False
                except EOFError:
                    died = True
                process.join()
                if died and attempt < ATTEMPTS:
                    waiting.append((run, attempt + 1))
                    continue
                if died:
                    reason = f"its process died {attempt} times, at last with exit code {process.exitcode}"
                yield run.name, reason
    finally:
        for process, _, _ in busy.values():
            process.kill()
            process.join()


def _work(run, how, reply):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    reply.send(_attempt(run, how))


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)


# --- Dask ----------------------------------------------------------------------------------------------------------


def _on_cluster(runs, scheduler, how):
    """Yields (name, reason why it failed or None); Dask itself gives the run of a lost worker to another."""
    try:
        from distributed import Client, as_completed  # an extra: most readers have no cluster
    except ImportError:
        raise ImportError("scheduler needs Dask: pip install 'l2g-reproduction[dask]'") from None
    with Client(scheduler) as client:
        futures = {client.submit(_train_remotely, run, how, pure=False): run for run in runs}
        for future in as_completed(futures):
            run = futures[future]
            if error := future.exception():  # the workers that had this run were all lost
                yield run.name, f"{type(error).__name__}: {error}"
                continue
            reason, contents = future.result()
            for target, content in zip(training.files(checkpoint(run, how["folder"])), contents):
                if not target.exists() or target.read_bytes() != content:
                    paths.write_atomically(target, content)
            yield run.name, reason


def _train_remotely(run, how):
    """Reason for failure or None, and the content of weights and sidecar."""
    if reason := _attempt(run, how):
        return reason, []
    weights, sidecar, _ = training.files(checkpoint(run, how["folder"]))
    return None, [weights.read_bytes(), sidecar.read_bytes()]
