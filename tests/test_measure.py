"""The command that measures: what it measures, and the one file it writes. How long things take is not tested."""

import json
import subprocess
import sys
from itertools import count, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from helpers import paths
from helpers.experiments import measure, tables
from helpers.experiments.runs import N_GRAPHS, RUNS, TRAINING_FIGURE

GIGABYTE = 10**9


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    monkeypatch.setattr(measure, "cpu_name", lambda: "some processor")
    return tmp_path / "measured_times.csv"


def row(value, x=1000, model="10 candidates", table="large graphs"):
    return tables.single_row(table, "plane", "solve", model, value, x=x)


# --- the file ------------------------------------------------------------------------------------------------------


def test_a_measurement_replaces_the_one_before_and_leaves_the_others(results):
    first = measure.store([row(1.0), row(2.0, x=10), row(3.0, model="20 candidates")])
    assert first.x.tolist() == [10, 1000, 1000]
    second = measure.store([row(4.000009), row(5.0, table="training")])
    assert second.value.tolist() == [2.0, 4.0, 3.0, 5.0], "sorted; rounded"
    pd.testing.assert_frame_equal(measure.read(), second, check_dtype=False)
    assert list(second) == [*tables.COLUMNS, "x", "machine"]


def test_the_file_names_the_machine_and_says_that_nothing_is_compared(results, monkeypatch):
    measure.store([row(1.0), row(2.0, x=10)])
    monkeypatch.setattr(measure, "cpu_name", lambda: "another")
    frame = measure.store([row(3.0)])
    assert frame.machine.str.startswith("some processor; ").tolist() == [True, False]
    assert frame.machine.str.startswith("another; ").tolist() == [False, True]
    assert results.read_text().count("never compared") == 2


def test_the_processor_has_a_name(monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.setattr(
        Path, "read_text", lambda path: "processor : 0\nmodel name\t: Some CPU @ 2: GHz\nmodel name : b"
    )
    assert measure.cpu_name() == "Some CPU @ 2: GHz"
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert measure.cpu_name()


def test_the_stored_measurements_are_complete():
    stored = measure.read().set_index(["table", "model", "x", "metric"]).value
    for m, k in (*measure.LARGE, *measure.MILLION):
        numbers = stored["large graphs", f"{k} candidates", m]
        assert set(numbers.index) == {"search", "solve", "gap", "memory", "peak"}
        assert numbers["gap"] <= 1e-6
        assert (numbers >= 0).all()
    for m, k in measure.NETWORK:
        numbers = stored["large graphs", f"network, {k} candidates", m]
        assert set(numbers.index) == {"search", "solve", "pairs per node", "edges per node", "memory", "peak"}
        assert numbers["pairs per node"] > numbers["edges per node"] > 0
    for name, n_graphs in product(TRAINING_FIGURE, N_GRAPHS):
        assert stored["training", name, n_graphs, "seconds per epoch"] > 0


# --- large graphs --------------------------------------------------------------------------------------------------


def test_large_graphs_are_measured_from_clocks_and_peaks(monkeypatch):
    clock, memory = iter([10.0, 13.0, 18.0]), iter([2 * GIGABYTE, 5 * GIGABYTE])
    monkeypatch.setattr(measure.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(measure, "_peak_memory", lambda: next(memory))
    numbers = measure.measure_large(300, 12)
    assert 0 < numbers.pop("gap") <= 1e-6
    assert numbers == {"search": 3.0, "solve": 5.0, "memory": 3.0, "peak": 5.0}


def test_the_network_is_measured_from_clocks_and_peaks(monkeypatch):
    clock, memory = iter([10.0, 13.0, 18.0]), iter([2 * GIGABYTE, 5 * GIGABYTE])
    monkeypatch.setattr(measure.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(measure, "_peak_memory", lambda: next(memory))
    numbers = measure.measure_network(60, 12)
    assert 0 <= numbers.pop("edges per node") < numbers.pop("pairs per node") < 60
    assert numbers == {"search": 3.0, "solve": 5.0, "memory": 3.0, "peak": 5.0}


def test_what_is_solved_is_the_case_of_the_notebook(monkeypatch):
    seen = {}

    def learn(y, average_degree, **options):
        seen.update(average_degree=average_degree, n_nodes=options["n_nodes"], tol=options["tol"])
        return SimpleNamespace(certificate=SimpleNamespace(gap=y.mean()))

    def candidate_edges(X, k):
        seen.update(shape=X.shape, k=k)
        return None, measure.np.ones(3)

    monkeypatch.setattr(measure, "learn", learn)
    monkeypatch.setattr(measure, "candidate_edges", candidate_edges)
    assert measure.measure_large(500, 7)["gap"] == 1.0
    assert seen == {"average_degree": 5, "n_nodes": 500, "tol": 1e-6, "shape": (32, 500), "k": 7}


def test_memory_is_counted_in_bytes(monkeypatch):
    usage = SimpleNamespace(ru_maxrss=3)
    monkeypatch.setattr(measure.resource, "getrusage", lambda who: usage)
    monkeypatch.setattr(sys, "platform", "linux")
    assert measure._peak_memory() == 3 * 1024
    monkeypatch.setattr(sys, "platform", "darwin")
    assert measure._peak_memory() == 3


def test_the_second_graph_of_a_process_counts(monkeypatch, capsys):
    calls = count()
    monkeypatch.setattr(measure, "measure_large", lambda m, k: {"nodes": m, "k": k, "call": next(calls)})
    measure.print_large(100, 7)
    assert json.loads(capsys.readouterr().out) == {"nodes": 100, "k": 7, "call": 1}


def test_the_network_is_measured_after_smaller_graphs_of_both_kinds(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(measure, "measure_large", lambda m, k: seen.append((m, k)))
    monkeypatch.setattr(measure, "measure_network", lambda m, k: seen.append((m, k)) or {"nodes": m})
    measure.print_network(100, 7)
    assert json.loads(capsys.readouterr().out) == {"nodes": 100}
    assert seen == [(2100, 7), (10_001, 7), (100, 7)]


def test_the_first_graph_is_large_enough_for_the_approximate_search(monkeypatch):
    seen = []
    monkeypatch.setattr(measure, "measure_large", lambda m, k: seen.append(m))
    measure.print_large(100, 7)
    assert seen == [10_001, 100]


def test_rows_come_from_a_fresh_process_on_one_thread(monkeypatch):
    def run(call, **options):
        assert options["env"]["OMP_NUM_THREADS"] == "1"
        assert (Path(options["env"]["PYTHONPATH"]) / "helpers" / "experiments" / "measure.py").exists()
        assert options["check"] and options["text"]
        code = call[-1].split(";")[-1].replace("print_large", "numbers")
        told = eval(code, {"numbers": lambda m, k: {"search": m, "gap": k}})
        return SimpleNamespace(stdout=json.dumps(told))

    monkeypatch.setattr(subprocess, "run", run)
    rows = pd.DataFrame(measure.large_rows(100, 7))
    assert rows.metric.tolist() == ["search", "gap"]
    assert rows.value.tolist() == [100, 7]
    assert (rows.table == "large graphs").all() and (rows.model == "7 candidates").all() and (rows.x == 100).all()
    monkeypatch.setattr(subprocess, "run", lambda call, **_: SimpleNamespace(stdout=json.dumps({call[-1]: 1})))
    (row,) = measure.large_rows(100, 7, network=True)
    assert row["metric"] == "from helpers.experiments.measure import print_network; print_network(100, 7)"
    assert row["model"] == "network, 7 candidates" and row["x"] == 100


def test_slope_of_a_power_law():
    frame = pd.DataFrame([row(3 * x**1.2, x) for x in (10, 100, 1000)] + [row(0.009, 1)])
    assert measure.slope(frame, "solve") == pytest.approx(1.2), "without what is too small to measure"
    with_others = pd.concat([frame, frame.assign(metric="search", value=frame.x)])
    assert measure.slope(with_others, "solve") == pytest.approx(1.2)


# --- training, and all of it ---------------------------------------------------------------------------------------


def test_an_epoch_has_all_of_its_steps_measured(monkeypatch):
    seen = []
    monkeypatch.setattr(measure, "step_seconds", lambda run, steps: (seen.append((run.name, steps)), 0.5)[1])
    found = measure.epoch_row("m = 50, T = 20", RUNS["l2g-ba-m50"], 250)
    assert seen == [("l2g-ba-m50", 8)], "7 batches of 32, and one of 26"
    expected = ("training", "BA", "seconds per epoch", "m = 50, T = 20", 4.0, 250)
    assert tuple(found[key] for key in ("table", "family", "metric", "model", "value", "x")) == expected


@pytest.mark.parametrize("million", [False, True])
def test_everything_is_measured_a_million_on_demand(monkeypatch, million, capsys):
    monkeypatch.setattr(measure, "large_rows", lambda *case, **network: [(*case, *network), "another metric"])
    monkeypatch.setattr(measure, "epoch_row", lambda network, run, n: (network, run.n_nodes, run.n_layers, n))
    monkeypatch.setattr(measure, "fit_rows", lambda: ["fits"])
    stored = []
    monkeypatch.setattr(measure, "store", stored.extend)
    assert not measure.main(million=million)
    cases = [(1000, 10), (3000, 10), (10_000, 10), (30_000, 10), (100_000, 10), (100_000, 20)]
    cases += [(300_000, 10), (1_000_000, 10)] * million
    cases += [(m, 20, "network") for m in (3000, 10_000, 30_000, 100_000)]
    assert stored[: 2 * len(cases) : 2] == cases
    assert stored[2 * len(cases)] == "fits"
    assert stored[2 * len(cases) + 1 :] == [(name, *sizes(name), n) for name, n in product(TRAINING_FIGURE, N_GRAPHS)]
    printed = capsys.readouterr().out
    assert "100,000 nodes, 20 candidates" in printed and "the network on 30,000 nodes, 20 candidates" in printed


def sizes(name):
    """m and T of "m = 20, T = 10"."""
    return tuple(int(part.split("=")[1]) for part in name.split(","))


def test_fits_are_timed_on_the_same_samples(monkeypatch):
    seen = {}
    monkeypatch.setattr(measure.benchmarks, "seconds", lambda calls: seen.update(calls) or dict.fromkeys(calls, 0.5))
    rows = measure.fit_rows(100)
    assert [row["model"] for row in rows] == ["GraphLearner", "GraphicalLassoCV", "Ledoit-Wolf, inverse"]
    assert {(row["table"], row["metric"], row["value"], row["x"]) for row in rows} == {("fit", "seconds", 0.5, 100)}
    found = seen["GraphLearner"]()
    precision = seen["Ledoit-Wolf, inverse"]()
    assert found.A.shape == precision.shape == (50, 50)
    scale = np.sqrt(np.diag(precision))
    edges = found.A != 0
    partial = np.abs(precision / scale / scale[:, None])
    np.fill_diagonal(partial, 0)
    assert partial[np.asarray(edges)].mean() > 2 * partial.mean()  # the same data
