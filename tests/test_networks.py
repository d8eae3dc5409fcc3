"""NetSim and Sachs: what is shipped, and what is made of raw files, from files that we made ourselves."""

import gzip

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.covariance import ledoit_wolf

from helpers import paths
from helpers.real import networks
from helpers.real.datasets import DatasetError
from helpers.signals import standardise


def share(X):
    """Of independent samples, made up: depends on the samples."""
    return 1 / (1 + abs(X[0, 0]))


def whiten(X):
    """A filter, made up: it looks back two rows."""
    return X[2:] - X[:-2]


SIMULATIONS = {"NetSim 1": 5, "NetSim 2": 10, "NetSim 3": 15, "NetSim 4": 50}
NODES = (
    SIMULATIONS | {f"{name}, filtered": m for name, m in SIMULATIONS.items()} | {"Sachs": 11, "Sachs, logarithms": 11}
)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No raw data."""
    monkeypatch.delenv("L2G_RAW", raising=False)
    monkeypatch.setattr(paths, "RAW", tmp_path / "raw")


@pytest.fixture
def raw(monkeypatch, tmp_path):
    """A folder of raw files with 3 subjects and 40 frames, and with 60 cells."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "raw"
    for part in ("netsim", "sachs"):
        (folder / part).mkdir(parents=True)
    for k in range(1, 5):
        m = 3 + k
        truth = np.triu(rng.random((m, m)) < 0.5, 1)
        X = rng.standard_normal((3, 40, m)).cumsum(2)
        np.savez(folder / "netsim" / f"sim{k}.npz", X=X, truth=truth | truth.T)
    cells = pd.DataFrame(np.exp(rng.standard_normal((60, 4)).cumsum(1)), columns=list("abcd"))
    cells.to_csv(folder / networks.CELLS, index=False)
    truth = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    pd.DataFrame(truth, list("abcd"), list("abcd")).to_csv(folder / networks.CONSENSUS)
    return folder


# --- what is shipped ------------------------------------------------------------------------------------------------


def test_shipped_networks():
    found = networks.netsim(share, whiten) | networks.sachs()
    assert list(found) == list(networks.FILES) == list(NODES)
    for name, recordings in found.items():
        m = NODES[name]
        n = 50 if name.startswith("NetSim") else 1
        assert recordings.source == "shipped statistics"
        assert recordings.correlations.shape == (n, m * (m - 1) // 2)
        assert recordings.edges.shape == (m * (m - 1) // 2,) and recordings.edges.dtype == torch.bool
        assert (0 < recordings.shrinkage).all() and (recordings.shrinkage < 1).all()
        assert (torch.linalg.eigvalsh(recordings.moments) > 0).all()
    assert [r.edges.sum().item() for r in found.values()] == [5, 11, 18, 61, 5, 11, 18, 61, 20, 20]


def test_frames_are_worth_less_than_independent_samples_and_cells_are_not():
    for name, recordings in networks.netsim(share, whiten).items():
        if name.endswith("filtered"):
            assert (recordings.n_samples < 200).all() and (recordings.n_samples >= 180).all()
            assert (recordings.n_effective > 0.9 * recordings.n_samples).all()
            continue
        assert (recordings.n_samples == 200).all()
        assert (recordings.n_effective < 200).all() and (recordings.n_effective > 100).all()
    for recordings in networks.sachs().values():
        assert recordings.n_samples.item() == recordings.n_effective.item() == 7466


def test_moments_are_those_of_standardised_samples(raw):
    recordings = networks.netsim(share, whiten)["NetSim 2"]
    X, _ = networks.rows("NetSim 2", raw)
    torch.testing.assert_close(recordings.moments, torch.from_numpy(X.swapaxes(1, 2) @ X / 40), rtol=0, atol=1e-6)
    assert recordings.moments.dtype == torch.float64


# --- raw files ------------------------------------------------------------------------------------------------------


def test_a_simulation_out_of_its_file(raw):
    recordings = networks.netsim(share, whiten)["NetSim 3"]
    with np.load(raw / "netsim/sim3.npz") as file:
        X, truth = file["X"], file["truth"]
    assert recordings.source == "raw files, downloaded"
    i, j = np.triu_indices(6, 1)
    for k, x in enumerate(X):
        np.testing.assert_allclose(recordings.correlations[k], np.corrcoef(x.T)[i, j], atol=1e-6)
        assert recordings.n_effective[k].item() == pytest.approx(40 * share(standardise(x)))
        assert recordings.shrinkage[k].item() == pytest.approx(ledoit_wolf(standardise(x), assume_centered=True)[1])
    assert recordings.edges.tolist() == truth[i, j].tolist()


def test_a_filtered_simulation_is_standardised_again(raw):
    recordings = networks.netsim(share, whiten)["NetSim 3, filtered"]
    i, j = np.triu_indices(6, 1)
    for k, x in enumerate(networks.rows("NetSim 3", raw)[0]):
        rest = standardise(whiten(x))
        np.testing.assert_allclose(recordings.correlations[k], np.corrcoef(rest.T)[i, j], atol=1e-6)
        assert recordings.n_samples[k] == len(rest) == 38
        assert recordings.n_effective[k].item() == pytest.approx(38 * share(rest))


def test_the_folder_that_is_named_comes_first(raw, monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(raw))
    assert networks.sachs()["Sachs"].source == "raw files"


def test_proteins_as_measured_and_as_logarithms(raw):
    cells = pd.read_csv(raw / networks.CELLS)
    i, j = np.triu_indices(4, 1)
    for name, amounts in (("Sachs", cells), ("Sachs, logarithms", np.log(cells))):
        recordings = networks.sachs()[name]
        np.testing.assert_allclose(recordings.correlations[0], np.corrcoef(amounts.T)[i, j], atol=1e-6)
        assert recordings.edges.tolist() == [True, False, False, True, False, True]
        assert recordings.n_effective.tolist() == [60.0]


@pytest.mark.parametrize(
    "change",
    [lambda X, truth: (X[0], truth), lambda X, truth: (X, truth[:-1]), lambda X, truth: (X, np.triu(truth | True))],
)
def test_a_simulation_that_does_not_fit_is_named(raw, change):
    path = raw / "netsim/sim2.npz"
    with np.load(path) as file:
        X, truth = change(file["X"], file["truth"])
    np.savez(path, X=X, truth=truth)
    with pytest.raises(DatasetError, match=r"sim2.npz is damaged .*\(subjects, frames, nodes\) and a symmetric truth"):
        networks.netsim(share, whiten)


def test_proteins_that_do_not_fit_are_named(raw):
    cells = pd.read_csv(raw / networks.CELLS)
    for wrong in (cells.rename(columns={"a": "z"}), cells - cells.min()):
        (raw / networks.CELLS).write_bytes(gzip.compress(wrong.to_csv(index=False).encode()))
        with pytest.raises(DatasetError, match="the same proteins, in positive amounts"):
            networks.sachs()


# --- comparison -----------------------------------------------------------------------------------------------------


def test_what_is_shipped_is_compared_with_raw_files(raw, monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "REAL", tmp_path / "real")
    assert networks.compare(share, whiten) is False
    assert networks.compare(share, whiten, write=True) is False
    assert networks.compare(share, whiten) is True
    cells = pd.read_csv(raw / networks.CELLS)
    cells.iloc[0] *= 3
    cells.to_csv(raw / networks.CELLS, index=False)
    assert networks.compare(share, whiten) is False


def test_without_raw_files_nothing_is_compared():
    assert networks.compare(share, whiten) is None
