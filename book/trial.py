"""What the page "Try it" needs: the default network of GraphLearner and three examples, as JSON."""

import base64

import numpy as np
from safetensors.torch import load_file
from sklearn.datasets import load_digits

from helpers import paths
from helpers.beyond.broad import N_UPDATES
from helpers.beyond.viewer import FOLDER, SCRIPTS, embed
from helpers.engine.checkpoints import read_sidecar
from helpers.graphs import sample_graphs, to_matrix
from helpers.real import datasets
from helpers.signals import sample_signals

STATIC = paths.ROOT / "book" / "static"
# the scripts of the worker beside the page
WORKER = ("matrices.js", "moments.js", "estimate.js", "completion.js", "doubts.js", "table.js", "worker.js")
NETWORK = paths.WEIGHTS / "broad.safetensors"
N_DAYS = 1635  # of the prices behind the S&P 100's distances
SYNTHETIC = dict(family="WS", n_graphs=1, n_nodes=30, seed=4)
N_SIGNALS = 200


def script() -> str:
    """One file of JavaScript with all of it. The worker comes as text, since browsers start none from a local file."""
    source = "\n".join((STATIC / name).read_text() for name in WORKER)
    data = {"worker": source, "network": network(), "examples": [digits(), stocks(), synthetic()]}
    viewer = "\n".join((FOLDER / name).read_text() for name in SCRIPTS)
    return f"{viewer}\nconst TRIAL = {embed(data)};\n"


def network() -> dict:
    """Parameters by name, float32, and the numbers of updates of the likelihood and of steps before each look."""
    weights = load_file(NETWORK)
    options = read_sidecar(NETWORK.with_suffix(""))["configuration"]["arguments"]
    parameters = {name: pack(tensor.numpy(), np.float32) for name, tensor in weights.items()}
    return {"nUpdates": N_UPDATES, "nSteps": options["n_steps"], "parameters": parameters}


def pack(array, dtype):
    """The bytes of an array as text, little end first."""
    return base64.b64encode(np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


# --- examples: a table X (n, m), or distances y (E,) between n standardised signals -----------------------------------
#
# In the lines of Python, OPTIONS stands for the options that the reader chooses.


def digits() -> dict:
    pixels = load_digits(as_frame=True).data
    pixels = pixels.loc[:, pixels.std() > 0.5]
    return {
        "title": "Pixels of handwritten digits",
        "note": "1,797 images of 8 x 8 pixels; the nodes are the pixels that vary, pixel_2_5 in row 2 and column 5.",
        "names": list(pixels),
        "groups": [f"row {name[-3]}" for name in pixels],
        "n": len(pixels),
        "X": {"uint8": pack(pixels, np.uint8)},
        "options": {"standardise": True},
        "python": [
            "from helpers import GraphLearner",
            "from sklearn.datasets import load_digits",
            "X = load_digits(as_frame=True).data",
            "learner = GraphLearner(OPTIONS).fit(X.loc[:, X.std() > 0.5])",
            'learner.to_html("graph.html")',
        ],
    }


def stocks() -> dict:
    data = datasets.sp100()
    return {
        "title": "Companies of the S&P 100",
        "note": f"{N_DAYS:,} daily returns, 2015 to 2021, of which only the correlations are shipped.",
        "names": data.companies["ticker"].tolist(),
        "groups": data.companies["sector"].tolist(),
        "n": N_DAYS,
        "y": {"float32": pack(data.y["all"], np.float32)},
        "python": [
            "from helpers import GraphLearner; from helpers.real import datasets",
            "stocks = datasets.sp100()",
            f'S = datasets.observations(stocks.y["all"], {N_DAYS}).moments  # correlations',
            f'learner = GraphLearner(OPTIONS).fit_moments(S, {N_DAYS}, names=stocks.companies["ticker"])',
            'learner.to_html("graph.html", groups=stocks.companies["sector"].tolist())',
        ],
    }


def synthetic() -> dict:
    w = sample_graphs(**SYNTHETIC)
    X = sample_signals(w, N_SIGNALS, seed=5)[0]
    drawn = ", ".join(f"{name}={value!r}" for name, value in SYNTHETIC.items())
    return {
        "title": "A small world whose graph is known",
        "note": f"{N_SIGNALS} signals drawn on a random graph of {X.shape[1]} nodes.",
        "names": [f"node {k}" for k in range(X.shape[1])],
        "groups": None,
        "n": N_SIGNALS,
        "X": {"float32": pack(X, np.float32)},
        "truth": {"float32": pack(to_matrix(w[0]), np.float32)},
        "python": [
            "from helpers import GraphLearner, graphs, signals",
            f"w = graphs.sample_graphs({drawn})",
            f"X = signals.sample_signals(w, {N_SIGNALS}, seed=5)[0]",
            "learner = GraphLearner(OPTIONS).fit(X)",
            'learner.to_html("graph.html")',
        ],
    }
