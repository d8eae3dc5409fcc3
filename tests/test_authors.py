"""The converter on weights in the authors' names that we made ourselves, and the shipped errors of the true ones."""

import pytest
import torch
from safetensors.torch import save_file

from helpers import paths
from helpers.experiments import authors, runs
from helpers.experiments.tables import paper


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A release of random networks, which our own classes can compute as well."""
    (tmp_path / "release").mkdir()
    for name, file in authors.FILES.items():
        model = runs.build(runs.released(name.lower(), "BA"))
        state = model.state_dict()
        theta = state["theta" if name == "Unrolling" else "unrolling.theta"]
        theta += torch.linspace(0, 0.003, 60).reshape(20, 3)
        tensors = {key: theta[:, [k]].contiguous() for k, key in enumerate(("alpha", "beta", "gn"))}
        if name == "L2G":
            tensors |= {f"vae.{theirs}": state[f"vaes.0.{ours}"] for ours, theirs in authors.NAMES.items()}
            for bias in ("vae.enc.conv1.bias", "vae.enc.conv2.bias"):  # theirs are rows
                tensors[bias] = tensors[bias][None]
        save_file(tensors, tmp_path / file)
        model.load_state_dict(state)
        torch.save(model, tmp_path / f"{name}.pt")
    monkeypatch.setenv("L2G_RAW", str(tmp_path))
    monkeypatch.setattr(paths, "REAL", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", authors.FILES)
def test_a_converted_network_computes_what_it_did(folder, name):
    observations, w = runs.sample(runs.RUNS["l2g-ba"], "test", 4)
    ours = torch.load(folder / f"{name}.pt", weights_only=False)
    theirs = authors.load(name, folder)
    assert torch.equal(theirs.predict(observations), ours.predict(observations))
    if name == "L2G":  # the encoder is idle in predictions
        y = observations.distances.float()
        losses = [model.loss(y, w, torch.Generator().manual_seed(0)) for model in (theirs, ours)]
        assert losses[0] == losses[1]
        assert (theirs.unrolling.slope, theirs.correction, theirs.vaes[0].readout) == (0.01, True, "sum")
    else:
        assert theirs.slope == 0


def test_errors_are_written_and_compared(folder):
    assert authors.compare() is False
    assert authors.compare(write=True) is False
    assert authors.compare() is True
    stored = authors.read()
    assert list(stored) == ["model", "graph", "gmse", "auc", "gmse_shuffled", "auc_shuffled"]
    assert len(stored) == 2 * 64
    stored.gmse *= 1.01
    stored.to_csv(folder / authors.ERRORS, index=False)
    assert authors.compare() is False


def test_without_the_files_nothing_is_compared(folder):
    (folder / authors.FILES["L2G"]).unlink()
    assert authors.compare() is None


def test_the_shipped_errors_are_those_that_the_release_has_here():
    """.0406 and .1015 were measured with an independent program."""
    means = authors.read().groupby("model").mean()
    assert means.gmse["L2G (authors' weights)"] == pytest.approx(0.0406, abs=5e-5)
    assert means.gmse["Unrolling (authors' weights)"] == pytest.approx(0.1015, abs=5e-5)
    unrolling = paper("1").query("family == 'BA' and model == 'Unrolling'").iloc[0]
    assert abs(means.gmse["Unrolling (authors' weights)"] - unrolling.value) < 2 * unrolling.ci
    assert means.gmse_shuffled["L2G (authors' weights)"] > 0.7
