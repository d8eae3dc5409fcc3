"""Readings that do more than look a number up: iterations, layers, levelled curves, growth."""

import numpy as np
import pandas as pd
import pytest

from helpers.experiments import readings as r
from helpers.experiments.judging import Tables
from helpers.experiments.readings import OURS, UNROLLING


def tidy(table, curves, metric="gmse", xs=None):
    """Rows of curves {model: values}, at x = 1, 2, ... unless told."""
    return pd.DataFrame(
        [
            dict(table=table, family="BA", metric=metric, model=model, value=value, ci=np.nan, x=x)
            for model, values in curves.items()
            for x, value in zip(xs or range(1, len(values) + 1), values)
        ]
    )


def only(name, *frames):
    return Tables(read={name: pd.concat(frames)}.__getitem__)


def falling(n, length=60, end=1.0):
    """A curve that is within 10 % of `end` from iteration n on, and just not before."""
    return [end * (1.11 if k < n else 1.09 if k < length else 1) for k in range(1, length + 1)]


def test_iterations_to_the_error_of_pds():
    curves = {"PDS": falling(30), "ADMM": falling(20), UNROLLING: falling(6, 20), OURS: falling(4, 20, 0.1)}
    found = r.iterations(only("05_convergence", tidy("3a", curves | {"Never": [2.0] * 20})))
    assert found.drop("Never").to_dict() == {"PDS": 30, "ADMM": 20, UNROLLING: 6, OURS: 1}
    assert np.isnan(found["Never"])


def test_layers_of_the_shallowest_network_that_gets_there():
    ends = tidy("3b", {UNROLLING: [2, 1.11, 1.09, 0.5], OURS: [1.09, 1, 1, 1], "Never": [2] * 4}, xs=(2, 5, 10, 20))
    gaps = tidy("3b", {"difference": [0.0]}, metric="gmse difference")
    found = r.layers_needed(only("05_convergence", tidy("3a", {"PDS": [3.0, 1.0]}), ends, gaps))
    assert found.drop("Never").to_dict() == {UNROLLING: 10, OURS: 2}
    assert np.isnan(found["Never"])


def test_lower_at_each_layer():
    two = tidy("3b T=2", {OURS: [0.9, 0.4], UNROLLING: [1.0, 0.5]})
    three = tidy("3b T=3", {OURS: [0.9, 0.5, 0.1], UNROLLING: [1.0, 0.5, 0.2]})
    found = r.lower_at_each_layer(only("05_convergence", two, three, tidy("3b", {OURS: [9.0]})))
    assert found.to_dict() == {"T=2": True, "T=3": False}, "a tie is not lower"


def test_layers_until_the_last_error():
    layers = {"L2G": {"20 nodes": 3, "50 nodes": 10, "100 nodes": 20}}
    layers |= {"Unrolling": {"20 nodes": 4, "50 nodes": 4, "100 nodes": 5}}
    curves = {
        f"{model} (ours, m={m})": falling(n, 20, 0.3)
        for model, numbers in layers.items()
        for m, n in zip((20, 50, 100), numbers.values())
    }
    few = {name: curve for name, curve in curves.items() if "100" not in name}
    t = only("05_convergence", tidy("3d", curves), tidy("3c", few))
    assert {model: r.layers(t, model, "3d") for model in layers} == layers
    assert r.layers(t, "L2G", "3c") == {"20 nodes": 3, "50 nodes": 10}


def test_levelled_off_means_less_than_ten_per_cent_in_five_epochs():
    def judge(*last):
        return r.levelled_off(only("06_training", tidy("validation, 4000 graphs", {"s": [2.0, 1.0, *last]})), "s")

    assert judge(1, 1, 1, 1, 0.92) and judge(0.92, 1, 1, 1, 1)
    assert not judge(1, 1, 1, 1, 0.9) and not judge(0.9, 1, 1, 1, 1)
    assert judge(0.5, 0.5, 0.5, 0.5, 0.5, 0.5), "the sixth last epoch is not among the last five"


def test_a_shorter_curve_is_judged_by_its_own_end():
    curves = {"long": [1.0] * 9, "short": [1.0] * 6 + [0.5]}
    t = only("06_training", tidy("validation, 4000 graphs", curves))
    assert r.levelled_off(t, "long") and not r.levelled_off(t, "short")


def test_growth_is_that_of_sizes_with_the_same_search():
    growth = {"search": 1.2, "solve": 1.4}
    rows = [
        dict(metric=metric, model="10 candidates", x=x, value=1e-4 * x**exponent)
        for metric, exponent in growth.items()
        for x in (100_000, 1_000_000)
    ]
    ignored = [dict(metric="search", model="10 candidates", x=10_000, value=1e9)]
    ignored += [dict(metric="search", model="20 candidates", x=100_000, value=1e9)]
    assert r.exponents(only("measured_times", pd.DataFrame(rows + ignored))) == pytest.approx(growth)


def test_seconds_of_one_graph():
    epoch = dict(metric="seconds per epoch", model="m = 20, T = 20", value=80.0, x=4000)
    rows = pd.DataFrame([epoch, epoch | {"model": "m = 50, T = 20", "value": 9}, epoch | {"x": 125, "value": 9}])
    assert r.seconds_per_graph(only("measured_times", rows)) == pytest.approx(0.02)


def test_sizes_without_a_trained_network_are_judged_by_the_exact_optimum():
    rows = pd.concat(
        [
            tidy("transfer", {"Exact optimum of Eq. (4)": [9, 9, 9, 1.0]}, "GMSE", (20, 50, 100, 500)),
            tidy("transfer", {UNROLLING: [1.0, 1.0, 1.0]}, "GMSE", (20, 50, 100)),
            tidy("transfer", {"moved": [5, 1.9, 2.1, 1.9]}, "GMSE", (20, 50, 100, 500)),
        ]
    )
    found = r.carried_over(only("05_transfer", rows), "moved")
    assert found.to_dict() == {"50 nodes": True, "100 nodes": False, "500 nodes": True}


def test_names_of_power_law_tests():
    assert set(r.power_law(Tables()).index) == {"bootstrap", "bootstrap, alpha <= 3", "continuous", "powerlaw"}


def test_white_noise_per_number_of_samples_and_nodes():
    frame = pd.concat(
        [tidy("white noise", {r.LEARNER: [0.1, 0.2]}, xs=(100, 10_000)).assign(family=f"{m} nodes") for m in (20, 50)]
    )
    assert r.false_edges(only("15_targets", frame)) == {
        ("100 samples", "20 nodes"): 0.1, ("10,000 samples", "20 nodes"): 0.2,
        ("100 samples", "50 nodes"): 0.1, ("10,000 samples", "50 nodes"): 0.2,
    }  # fmt: skip


def test_the_best_graph_is_better_than_every_rivals_but_the_old_default():
    values = {r.LEARNER: 0.8, r.benchmarks.MIXED: 0.9, "Eq. (4)": 0.7, "Correlations": 0.75}
    frame = pd.concat([tidy("t", {m: [v] for m, v in values.items()}, "F1").assign(family=f) for f in r.NETSIM_F1])
    assert r.best_graph(only("13_networks", frame)).to_dict() == dict.fromkeys(r.NETSIM_F1, True)
    frame.loc[(frame.family == "NetSim 3") & (frame.model == "Eq. (4)"), "value"] = 0.81
    assert r.best_graph(only("13_networks", frame)).tolist() == [True, True, False, True]
