import io
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from helpers.graphs import laplacian, sample_graphs
from helpers.signals import sample_observations

# Timings differ between machines; the same examples on every one make a red test reproducible.
settings.register_profile("repository", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("repository")

torch.set_num_threads(1)  # the arrays are small, and another worker has the other core


@pytest.fixture
def drawing():
    """The style of our figures, without a window; all figures are closed afterwards."""
    import matplotlib.pyplot as plt  # here because most tests draw nothing

    from helpers import plots

    plt.switch_backend("agg")
    with plt.rc_context():
        plots.style()
        yield
    plt.close("all")


@pytest.fixture
def compare_with_picture(drawing):
    """A function that asserts that a figure looks like its picture in tests/pictures/.

    To accept a new look, delete the picture and run the tests twice.
    """
    import matplotlib

    from helpers import paths, plots

    if f"matplotlib=={matplotlib.__version__}\n" not in (paths.ROOT / "requirements.lock").read_text():
        pytest.skip("another version of matplotlib draws differently")

    def compare(figure, name):
        figure.savefig(buffer := io.BytesIO(), format="png", dpi=60, metadata={"Software": None})
        path = Path(__file__).parent / "pictures" / f"{name}.png"
        if not path.exists():
            paths.write_atomically(path, buffer.getvalue())
            pytest.fail(f"{path} was missing and has been written: look at it, then run this again")
        assert plots.looks_alike(path.read_bytes(), buffer.getvalue()), f"delete {path} if it should look otherwise"

    return compare


@pytest.fixture(scope="session")
def ba():
    """12 BA graphs of 20 nodes, and their distances."""
    w = sample_graphs("BA", 12, 20, seed=0, dtype=torch.float64)
    return w, sample_observations(w, 3000, seed=1).distances


@pytest.fixture(scope="session")
def disconnected():
    """8 graphs of several components, and their distances: between components about 1e4."""
    w = sample_graphs("ER", 8, 20, seed=0, p=0.08, dtype=torch.float64)
    n_components = (torch.linalg.eigvalsh(laplacian(w)) < 1e-9).sum(-1)
    assert (n_components > 1).all()
    return w, sample_observations(w, 3000, seed=1).distances
