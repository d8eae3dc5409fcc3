"""Data of others with a network that is known: simulated brain signals (NetSim) and protein signalling (Sachs).

`netsim()` and `sachs()` read raw files, in the folder that `L2G_RAW` names or in data/raw/, or else the statistics of
data/real/, which come with the repository: correlations, and what the methods need to know of the rows behind them.
`share` is a function from samples X (n_samples, m) to how many independent samples each row is worth, `whiten` one to
rows that no longer resemble those before them, of which there may be fewer.

* NetSim, netsim/sim1.npz to sim4.npz: realistic fMRI signals of 50 subjects, 200 frames each, on networks of 5, 10, 15
  and 50 regions. Cite S. M. Smith et al., Network modelling methods for FMRI, NeuroImage 54 (2011) 875-891.
* Sachs, sachs/sachs.csv.gz and sachs/truth.csv: amounts of 11 proteins in 7,466 single cells, all interventions pooled.
  Cite K. Sachs et al., Causal protein-signaling networks derived from multiparameter single-cell data, Science 308
  (2005) 523-529.

Both true networks are directed; here an edge is a pair that is joined in either direction.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save as tensors_to_bytes
from sklearn.covariance import ledoit_wolf_shrinkage

from .. import paths
from ..graphs import to_matrix, to_vector
from ..signals import standardise
from .datasets import DatasetError, agrees, find, read, shipped_tensors

FILES = {  # names in tables, and in files
    "NetSim 1": "sim1",
    "NetSim 2": "sim2",
    "NetSim 3": "sim3",
    "NetSim 4": "sim4",
    "NetSim 1, filtered": "sim1_filtered",
    "NetSim 2, filtered": "sim2_filtered",
    "NetSim 3, filtered": "sim3_filtered",
    "NetSim 4, filtered": "sim4_filtered",
    "Sachs": "sachs",
    "Sachs, logarithms": "sachs_logarithms",
}
CELLS = "sachs/sachs.csv.gz"
CONSENSUS = "sachs/truth.csv"
SHIPPED = "networks.safetensors"
FIELDS = ("correlations", "n_samples", "n_effective", "shrinkage", "edges")


class Recordings(NamedTuple):
    """Standardised samples of n subjects on one network, as statistics."""

    correlations: torch.Tensor  # (n, E) float32
    n_samples: torch.Tensor  # (n,) frames or cells, float64
    n_effective: torch.Tensor  # (n,) independent samples that they are worth, float64
    shrinkage: torch.Tensor  # (n,) of Ledoit and Wolf's estimate, which takes rows to compute, float64
    edges: torch.Tensor  # (E,) bool, the true network
    source: str

    @property
    def moments(self):
        """Second moments of the standardised samples: (n, m, m) float64."""
        S = to_matrix(self.correlations.double())
        return S + torch.eye(S.shape[-1], dtype=S.dtype)


# --- what notebooks use ---------------------------------------------------------------------------------------------


def netsim(share, whiten):
    """{name: Recordings} of the four simulations, 50 subjects each: as they are, and filtered."""
    return {name: _recordings(name, share, whiten) for name in FILES if name.startswith("NetSim")}


def sachs():
    """{name: Recordings} of the proteins, all cells as one subject: amounts as they were measured, and logarithms."""
    return {name: _recordings(name, lambda X: 1.0) for name in FILES if name.startswith("Sachs")}


def _recordings(name, share, whiten=None):
    folder, source = find(raw_file(name), None)
    if folder is not None:
        X, truth = rows(name, folder)
        if name.endswith("filtered"):
            X = [standardise(whiten(x)) for x in X]
        return summarise(X, truth, share, source)
    tensors = shipped_tensors("networks", [f"{FILES[name]}.{field}" for field in FIELDS])
    return Recordings(*tensors.values(), source)


# --- raw files ------------------------------------------------------------------------------------------------------


def raw_file(name):
    """The raw file behind one of FILES."""
    return f"netsim/{FILES[name].removesuffix('_filtered')}.npz" if name.startswith("NetSim") else CELLS


def rows(name, folder):
    """Standardised samples X (n, n_samples, m) and the true network (m, m) bool, out of raw files."""
    if name.startswith("NetSim"):
        data = read(_load_simulation, folder / raw_file(name))
        return standardise(data["X"]), data["truth"]
    cells = read(pd.read_csv, folder / CELLS)
    truth = read(pd.read_csv, folder / CONSENSUS, index_col=0)
    if not list(cells) == list(truth) == list(truth.index) or not (cells > 0).all(axis=None):
        raise DatasetError(f"{CELLS} and {CONSENSUS} must have the same proteins, in positive amounts: get them again")
    amounts = np.log(cells) if "logarithms" in name else cells
    return standardise(amounts)[None], truth.to_numpy(bool)


def _load_simulation(path):
    """The arrays of a file, or ValueError: they must fit each other."""
    with np.load(path, allow_pickle=False) as file:
        data = dict(file)
    m = data["X"].shape[-1]
    if data["X"].ndim != 3 or data["truth"].shape != (m, m) or (data["truth"] != data["truth"].T).any():
        raise ValueError("X (subjects, frames, nodes) and a symmetric truth (nodes, nodes) are needed")
    return data


def summarise(X, truth, share, source="raw files"):
    """Recordings of standardised samples X, n tables (n_samples, m), on the network `truth` (m, m) bool."""
    S = torch.from_numpy(np.stack([x.T @ x / len(x) for x in X]))
    effective = [len(x) * share(x) for x in X]
    shrinkage = [ledoit_wolf_shrinkage(x, assume_centered=True) for x in X]
    numbers = (torch.tensor(x, dtype=torch.float64) for x in ([len(x) for x in X], effective, shrinkage))
    return Recordings(to_vector(S).float(), *numbers, to_vector(torch.from_numpy(truth)), source)


# --- what is shipped ------------------------------------------------------------------------------------------------


def compare(share, whiten, *, write=False):
    """Whether what is shipped is what the raw files say; None without these. `write` replaces it."""
    found = netsim(share, whiten) | sachs()
    if "shipped statistics" in {recordings.source for recordings in found.values()}:
        return None
    content = statistics(found)
    same = agrees(paths.REAL / SHIPPED, content)
    if write and not same:
        paths.write_atomically(paths.REAL / SHIPPED, content)
    return same


def statistics(found):
    """The content of the shipped file, of {name: Recordings}."""
    return tensors_to_bytes(
        {f"{FILES[name]}.{field}": getattr(r, field) for name, r in found.items() for field in FIELDS}
    )
