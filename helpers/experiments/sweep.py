"""Train many runs: one after the other, in parallel processes of this machine, or on a Dask cluster.

Runs that differ in their seeds only are trained together, as one stack. No stack can stop the others. A run that fails
is reported at the end; a stack whose process was killed is tried again by another one, which resumes from the last
epoch. A process ends with the one that started it. Runs that go on from others wait for them.
"""

import multiprocessing
import os
import threading
from collections import deque
from multiprocessing.connection import wait

from .. import paths
from ..engine.checkpoints import files
from .runs import checkpoint, stacks, state_of, train_together

ATTEMPTS = 3  # to train a stack whose process is killed


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
    device, retrain, folder : see `runs.train_together`
    """
    if n_jobs < 1:
        raise ValueError(f"n_jobs={n_jobs}: at least 1 process is needed")
    how = {"device": device, "retrain": retrain, "folder": folder}
    failures = {}
    for wave in ([run for run in runs if not run.start], [run for run in runs if run.start]):
        for reasons in _outcomes(stacks(wave), n_jobs, scheduler, how) if wave else ():
            failures |= {name: reason for name, reason in reasons.items() if reason}
            yield from (name for name, reason in reasons.items() if not reason)
    if failures:
        raise SweepError(failures)


def _outcomes(groups, n_jobs, scheduler, how):
    """Train stacks of runs; yields {name: reason why it failed or None} as they finish."""
    if scheduler is not None:
        return _on_cluster(groups, scheduler, how)
    if n_jobs > 1:
        return _in_processes(groups, n_jobs, how)
    return (_attempt(group, how, progress=True) for group in groups)


def _attempt(group, how, progress=False):
    """Train a stack of runs; returns for each of their names why that failed, or None."""
    try:
        train_together(group, progress=progress, **how)
    except Exception as error:  # whatever it is, the other stacks go on
        return dict.fromkeys((run.name for run in group), f"{type(error).__name__}: {error}")
    diverged = {run.name: state_of(run, how["folder"]) == "diverged" for run in group}
    return {name: "diverged, and is recorded as such" if bad else None for name, bad in diverged.items()}


# --- processes -----------------------------------------------------------------------------------------------------


def _in_processes(groups, n_jobs, how):
    """One process per stack, `n_jobs` at a time: yields {name: reason why it failed or None}."""
    context = multiprocessing.get_context("spawn")  # a forked PyTorch may hang
    waiting = deque((group, 1) for group in groups)
    busy = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < n_jobs:
                group, attempt = waiting.popleft()
                answer, reply = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(group, how, reply), daemon=True)
                process.start()
                reply.close()  # of the two ends that can write, only the worker's is left and dies with it
                busy[answer] = process, group, attempt
            for answer in wait(list(busy)):
                process, group, attempt = busy.pop(answer)
                try:
                    reasons = answer.recv()
                    died = False
                except EOFError:
                    died = True
                process.join()
                if died and attempt < ATTEMPTS:
                    waiting.append((group, attempt + 1))
                    continue
                if died:
                    reason = f"its process died {attempt} times, at last with exit code {process.exitcode}"
                    reasons = dict.fromkeys((run.name for run in group), reason)
                yield reasons
    finally:
        for process, _, _ in busy.values():
            process.kill()
            process.join()


def _work(group, how, reply):
    threading.Thread(target=_end_with_parent, daemon=True).start()
    reply.send(_attempt(group, how))


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)


# --- Dask ----------------------------------------------------------------------------------------------------------


def _on_cluster(groups, scheduler, how):
    """Yields {name: reason why it failed or None}; Dask itself gives the stack of a lost worker to another."""
    try:
        from distributed import Client, as_completed  # an extra: most readers have no cluster
    except ImportError:
        raise ImportError("scheduler needs Dask: pip install 'l2g-reproduction[dask]'") from None
    with Client(scheduler) as client:
        futures = {client.submit(_train_remotely, group, how, pure=False): group for group in groups}
        for future in as_completed(futures):
            if error := future.exception():  # the workers that had this stack were all lost
                names = (run.name for run in futures[future])
                yield dict.fromkeys(names, f"{type(error).__name__}: {error}")
                continue
            reasons, contents = future.result()
            for run in futures[future]:
                weights, sidecar, _ = files(checkpoint(run, how["folder"]))
                for target, content in zip((weights, sidecar), contents[run.name]):
                    if content and not (target.exists() and target.read_bytes() == content):
                        paths.write_atomically(target, content)
            yield reasons


def _train_remotely(group, how):
    """{name of a run: reason for failure or None}, and {name: content of its weights and sidecar}, empty if missing."""
    reasons = _attempt(group, how)
    contents = {}
    for run in group:
        weights, sidecar, _ = files(checkpoint(run, how["folder"]))
        contents[run.name] = [file.read_bytes() if file.exists() else b"" for file in (weights, sidecar)]
    return reasons, contents
