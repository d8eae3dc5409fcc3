"""Measure what large graphs and training steps cost on this machine: `l2g measure`, or `make measure`.

All times and sizes of memory that a table or figure shows stand in one file, data/results/measured_times.csv, and come
from here: a notebook that runs beside others cannot time anything. They are those of one machine, which the file names,
and nothing ever compares them with another run. Each large graph is learned in a fresh process on one thread, whose CPU
seconds count.
"""

import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.covariance import GraphicalLassoCV, ledoit_wolf

from .. import paths
from ..beyond.candidates import EXACT_SEARCH, candidate_edges, signed_candidate_edges
from ..beyond.estimates import learn_from_moments, learn_on_list
from ..solvers import learn
from . import benchmarks, tables
from .runs import N_GRAPHS, TRAINING_FIGURE, load_or_train, step_seconds
from .scaling import plane_signals

NAME = "measured_times"
COLUMNS = [*tables.COLUMNS, "x", "machine"]
KEYS = ["table", "family", "metric", "model", "x"]  # of a row: a new measurement replaces the old one
GB = 1e9

# Nodes and candidates per node, of notebook 12; the search changes at EXACT_SEARCH = 10,000 nodes
LARGE = ((1_000, 10), (3_000, 10), (10_000, 10), (30_000, 10), (100_000, 10), (100_000, 20))
MILLION = ((300_000, 10), (1_000_000, 10))
NETWORK = ((3_000, 20), (10_000, 20), (30_000, 20), (100_000, 20))  # minutes for the largest


def main(million=False):
    """Measure everything, more than 100,000 nodes only on demand (minutes, 2 GB), and renew the file."""
    rows = []
    for n_nodes, n_candidates in (*LARGE, *(MILLION if million else ())):
        print(f"{n_nodes:,} nodes, {n_candidates} candidates per node", flush=True)
        rows += large_rows(n_nodes, n_candidates)
    for n_nodes, n_candidates in NETWORK:
        print(f"the network on {n_nodes:,} nodes, {n_candidates} candidates per node", flush=True)
        rows += large_rows(n_nodes, n_candidates, network=True)
    print("one fit by several methods", flush=True)
    rows += fit_rows()
    for network, run in TRAINING_FIGURE.items():
        print(f"epochs of {run.name}", flush=True)
        rows += [epoch_row(network, run, n_graphs) for n_graphs in N_GRAPHS]
    store(rows)


def read():
    """All measurements: a frame in the columns of a table, and x and machine."""
    return tables.read(NAME)


def store(rows):
    """Put rows into the file, in place of those that measured the same thing before; returns all of it."""
    machine = f"{cpu_name()}; times of this machine only, never compared"
    new = tables.round_off(pd.DataFrame(rows).assign(machine=machine))[COLUMNS]
    old = read() if (paths.RESULTS / f"{NAME}.csv").exists() else new[:0]
    frame = pd.concat([old, new]).drop_duplicates(KEYS, keep="last")
    frame = frame.sort_values(["table", "model", "x"], kind="stable", ignore_index=True)
    content = frame.to_csv(index=False, float_format="%.6g").encode()
    paths.write_atomically(paths.RESULTS / f"{NAME}.csv", content)
    return frame


def cpu_name():
    """What the processor calls itself."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


# --- large graphs --------------------------------------------------------------------------------------------------


def large_rows(n_nodes, n_candidates, network=False):
    """Rows of `measure_large` or `measure_network`, from a fresh process: memory used before must not count."""
    function = "print_network" if network else "print_large"
    call = f"from helpers.experiments.measure import {function}; {function}({n_nodes}, {n_candidates})"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(paths.PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", call], stdout=subprocess.PIPE, text=True, check=True, env=environment)
    numbers = json.loads(done.stdout)
    model = f"{'network, ' * network}{n_candidates} candidates"
    row = partial(tables.single_row, "large graphs", "plane", model=model, x=n_nodes)
    return [row(metric=metric, value=value) for metric, value in numbers.items()]


def print_large(n_nodes, n_candidates):
    """`measure_large` as JSON, after a small graph that compiles the kernels and loads the libraries."""
    measure_large(EXACT_SEARCH + 1, n_candidates)
    print(json.dumps(measure_large(n_nodes, n_candidates)))


def print_network(n_nodes, n_candidates):
    """`measure_network` as JSON, after smaller graphs that do the same: one for each of the two searches."""
    measure_network(2_100, n_candidates)
    measure_large(EXACT_SEARCH + 1, n_candidates)
    print(json.dumps(measure_network(n_nodes, n_candidates)))


def measure_network(n_nodes, n_candidates):
    """What `GraphLearner(candidates=...)` does by default: CPU seconds of search and of the rest, gigabytes, edges per
    node."""
    network = load_or_train("broad")
    before = _peak_memory()
    X = plane_signals(n_nodes).astype(np.float64)
    X -= X.mean(0)
    start = time.process_time()
    edges, _ = signed_candidate_edges(X, n_candidates)
    found = time.process_time()
    ask = {"signed": True, "self_loops": True, "min_probability": 0.5}
    graph = learn_on_list(network, X, edges, len(X) - 1, **ask).A
    solved = time.process_time()
    peak = _peak_memory()
    return {
        "search": found - start,
        "solve": solved - found,
        "pairs per node": 2 * edges.shape[1] / n_nodes,
        "edges per node": graph.nnz / n_nodes,
        "memory": (peak - before) / GB,
        "peak": peak / GB,
    }


def measure_large(n_nodes, n_candidates, average_degree=5):
    """CPU seconds of search and solution, relative gap, and gigabytes: `memory` beyond those in use, `peak` in all."""
    before = _peak_memory()
    X = plane_signals(n_nodes)
    start = time.process_time()
    edges, y = candidate_edges(X, n_candidates)
    found = time.process_time()
    learned = learn(y, average_degree, tol=1e-6, edges=edges, n_nodes=n_nodes)
    solved = time.process_time()
    peak = _peak_memory()
    return {
        "search": found - start,
        "solve": solved - found,
        "gap": learned.certificate.gap.item(),
        "memory": (peak - before) / GB,
        "peak": peak / GB,
    }


def _peak_memory():
    """Bytes that this process held at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def slope(frame, metric):
    """Exponent of the power law in x that fits one metric, without values too small to measure."""
    part = frame[(frame.metric == metric) & (frame.value > 0.01)]
    return np.polyfit(np.log(part.x), np.log(part.value), 1)[0]


# --- one fit -------------------------------------------------------------------------------------------------------


def fit_rows(n_samples=200):
    """CPU seconds of what `GraphLearner` does with second moments, and of two rivals, on samples of 50 nodes."""
    X = benchmarks.rows_like(benchmarks.real_cases()["NetSim 4"], n_samples, seed=0)
    S = X.T @ X / n_samples
    network = load_or_train("broad")
    ask = {"signed": True, "self_loops": True, "min_probability": 0.5}
    calls = {
        "GraphLearner": lambda: learn_from_moments(network, S, n_samples, **ask),
        "GraphicalLassoCV": lambda: GraphicalLassoCV().fit(X),
        "Ledoit-Wolf, inverse": lambda: np.linalg.inv(ledoit_wolf(X)[0]),
    }
    taken = benchmarks.seconds(calls)
    return [tables.single_row("fit", "NetSim 4", "seconds", name, t, x=n_samples) for name, t in taken.items()]


# --- training ------------------------------------------------------------------------------------------------------


def epoch_row(network, run, n_graphs):
    """Seconds that a run takes for one pass over `n_graphs` training graphs, all of its steps measured."""
    steps = math.ceil(n_graphs / run.batch_size)
    seconds = steps * step_seconds(run, steps)
    return tables.single_row("training", run.family, "seconds per epoch", network, seconds, x=n_graphs)
