"""The weights that the paper's authors released, for BA graphs with 20 nodes and 20 layers, in our classes.

If our code is their method, their weights must work in it. The files are not ours to ship. data/real/authors.csv has
their error on each of our test graphs; whoever has the files, as release/*.safetensors in the folder named by L2G_RAW,
can convert them with `load`, and `l2g data` computes the errors again.
"""

import os
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from safetensors.torch import load_file

from .. import paths
from ..metrics import auc, gmse
from .runs import N_TEST, RUNS, build, released, sample

FILES = {
    "Unrolling": "release/Unrolling_BA20_unroll20.safetensors",
    "L2G": "release/L2G_BA20_unroll20.safetensors",
}
ERRORS = "authors.csv"
RTOL = 1e-3  # by which the errors of another machine may differ
# Our name of every parameter of the autoencoder, and theirs. Their f_var, the logarithm of the variance up to its sign,
# is the text's f_cov.
NAMES = {
    "h0": "enc.conv1.weight",
    "b0": "enc.conv1.bias",
    "H1": "enc.conv2.weight",
    "b1": "enc.conv2.bias",
    "embedding.0.weight": "enc.fc1.weight",
    "embedding.0.bias": "enc.fc1.bias",
    "embedding.2.weight": "enc.fc2.weight",
    "embedding.2.bias": "enc.fc2.bias",
    "f_mean.weight": "f_mean.0.weight",
    "f_mean.bias": "f_mean.0.bias",
    "f_cov.weight": "f_var.0.weight",
    "f_cov.bias": "f_var.0.bias",
    "decoder.0.weight": "dec.0.weight",
    "decoder.0.bias": "dec.0.bias",
    "decoder.2.weight": "dec.2.weight",
    "decoder.2.bias": "dec.2.bias",
}


def load(name, folder):
    """Their "Unrolling" or "L2G" as one of our networks, from the files under `folder`."""
    theirs = load_file(Path(folder) / FILES[name])
    theta = torch.cat([theirs["alpha"], theirs["beta"], theirs["gn"]], 1)
    model = build(released(name.lower(), "BA"))
    if name == "Unrolling":
        model.load_state_dict({"theta": theta})
        return model.eval()
    shapes = {ours: tensor.shape for ours, tensor in model.vaes[0].state_dict().items()}
    state = {f"vaes.0.{ours}": theirs[f"vae.{name}"].reshape(shapes[ours]) for ours, name in NAMES.items()}
    model.load_state_dict({"unrolling.theta": theta} | state)
    return model.eval()


def errors(folder):
    """One row per network and test graph: its error in the generator's node order and in a random one, and its AUC."""
    rows = []
    for name in FILES:
        model = load(name, folder)
        columns = {}
        for suffix, shuffle in (("", False), ("_shuffled", True)):
            observations, w = sample(replace(RUNS["l2g-ba"], shuffle=shuffle), "test", N_TEST)
            w_hat = model.predict(observations)
            columns |= {f"gmse{suffix}": gmse(w_hat, w), f"auc{suffix}": auc(w_hat, w)}
        rows.append(pd.DataFrame(columns).assign(model=f"{name} (authors' weights)", graph=range(N_TEST)))
    frame = pd.concat(rows, ignore_index=True)
    return frame[["model", "graph", "gmse", "auc", "gmse_shuffled", "auc_shuffled"]]


def read():
    """The shipped errors."""
    return pd.read_csv(paths.REAL / ERRORS)


def compare(*, write=False):
    """Whether the shipped errors are those of the released weights; None without these. `write` replaces them."""
    folder = Path(os.environ.get("L2G_RAW", paths.RAW))
    if not all((folder / file).exists() for file in FILES.values()):
        return None
    here = errors(folder)
    agree = (paths.REAL / ERRORS).exists() and _agree(read(), here)
    if write and not agree:
        paths.write_atomically(paths.REAL / ERRORS, here.to_csv(index=False, float_format="%.6g").encode())
    return agree


def _agree(there, here):
    try:
        pd.testing.assert_frame_equal(there, here, check_dtype=False, rtol=RTOL, atol=1e-6)
    except AssertionError:
        return False
    return True
