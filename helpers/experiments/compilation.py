"""Compile every kernel once, so that neither a test nor a notebook has to: python -m helpers.experiments.compilation

`make setup` calls it. The compiled code stays in `__pycache__`, beside `kernels.py`, `jumps.py` and `gaps.py` in
helpers/engine, until these change.
"""

import numpy as np
import torch

from .. import models, solvers
from ..beyond import posterior
from ..engine import gaps
from ..engine.layouts import DIRECT_NODES


def compile_kernels() -> None:
    """Call whatever is compiled with every type of number that the package uses, on the least graphs that use it."""
    path = torch.arange(DIRECT_NODES + 2)  # more nodes than are solved without conjugate gradients
    y = torch.ones(len(path) - 1, dtype=torch.float64)
    solvers.exact(y, edges=torch.stack([path[:-1], path[1:]]), n_nodes=len(path))
    for dtype in (torch.float32, torch.float64):
        y = torch.ones(3, 1, dtype=dtype)
        theta = torch.full((1, 3), 0.1, dtype=dtype, requires_grad=True)
        path, _ = models.pds_layers(torch.zeros_like(y), torch.zeros_like(y), y, theta, 0.0)
        path.sum().backward()
    law = posterior.Law(3)
    rng = np.random.default_rng(0)
    posterior.walk(law, np.eye(3), 2, posterior.draw_state(law, rng), 1, 1, rng)
    gaps.fill(np.zeros((2, 3)), np.eye(2, 3) > 0, np.eye(3))


if __name__ == "__main__":
    compile_kernels()
