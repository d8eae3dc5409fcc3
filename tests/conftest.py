import io
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from helpers.graphs import laplacian, sample_graphs
from helpers.signals import sample_observations

# Timings differ between machines; the same examples on every one make a red test reproducible.
settings.register_profile("repository", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("repository")

NO_BROWSER = "no Chromium on the path: `apt-get install chromium`, or the installer of Chromium or Chrome"
PATIENCE = 120_000  # milliseconds

sys.modules.setdefault("rfc3987_syntax", None)  # takes seconds to load; see helpers/experiments/notebooks.py
torch.set_num_threads(1)  # the arrays are small, and another worker has the other core


def pytest_collection_modifyitems(items):
    """What one worker must do alone starts first, so that no worker is left with it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


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

    from helpers import paths
    from helpers.engine.pictures import looks_alike

    if f"matplotlib=={matplotlib.__version__}\n" not in (paths.ROOT / "requirements.lock").read_text():
        pytest.skip("another version of matplotlib draws differently")

    def compare(figure, name):
        figure.savefig(buffer := io.BytesIO(), format="png", dpi=60, metadata={"Software": None})
        path = Path(__file__).parent / "pictures" / f"{name}.png"
        if not path.exists():
            paths.write_atomically(path, buffer.getvalue())
            pytest.fail(f"{path} was missing and has been written: look at it, then run this again")
        assert looks_alike(path.read_bytes(), buffer.getvalue()), f"delete {path} if it should look otherwise"

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


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The toy network after its training, and the folder with its checkpoint."""
    import toys  # here because most tests train nothing

    folder = tmp_path_factory.mktemp("checkpoints")
    return toys.fit(folder), folder


@pytest.fixture
def copied(trained, tmp_path):
    """The files of that checkpoint, copied: free to be damaged."""
    from helpers.engine.checkpoints import files

    for path in trained[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return files(tmp_path / "toy")


@pytest.fixture
def cut_off(tmp_path):
    """Trained for two epochs and a bit, then interrupted: the resume file."""
    import toys

    from helpers import training
    from helpers.engine.checkpoints import files

    model = toys.Toy()
    loss = model.loss
    steps = iter(range(100))

    def interrupt(*args):
        if next(steps) == 7:  # the second batch of the third epoch
            raise KeyboardInterrupt
        return loss(*args)

    model.loss = interrupt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "SAVE_EVERY", -1)
        with pytest.raises(KeyboardInterrupt):
            toys.fit(tmp_path, model, retrain=True)
    return files(tmp_path / "toy")[2]


def find_chromium():
    """The path of Chromium or Chrome. Without one the test is skipped, but where CI is set it fails."""
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    if path := next(found, None):
        return path
    return pytest.fail(NO_BROWSER) if os.environ.get("CI") else pytest.skip(NO_BROWSER)


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests that need one; they belong to the xdist group "browser", hence to one worker."""
    from playwright.sync_api import sync_playwright  # here because most tests need no browser

    path = find_chromium()
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=sandbox, timeout=PATIENCE)
        yield browser
        browser.close()


class Window:
    """A page of the browser that remembers the errors and the requests that a page caused."""

    def __init__(self, browser, width, height):
        self.page = browser.new_page(viewport={"width": width, "height": height})
        self.page.set_default_timeout(PATIENCE)
        self.errors = []
        self.requests = []
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def goto(self, url):
        self.errors.clear()
        self.requests.clear()
        self.page.goto(url)
        return self.page


@pytest.fixture(scope="session")
def open_window(chromium):
    """A function from width and height in pixels to a Window of that size, always the same one."""
    opened = {}

    def window(width, height=844):
        if (width, height) not in opened:
            opened[width, height] = Window(chromium, width, height)
        return opened[width, height]

    return window
