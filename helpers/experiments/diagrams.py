"""The pictures of 01_method: diagrams of the networks, and figures that take the method apart on one graph.

A diagram asks a model for the shapes that it shows, so that it is true of that model.
"""

from itertools import pairwise
from typing import NamedTuple

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import seaborn as sns
import torch

from ..graphs import laplacian, to_matrix
from ..metrics import gmse
from ..plots import COLOURS

EDGE = COLOURS["L2G"]  # the colour of a true edge
NO_EDGE = "#b0b0b0"
FACES = {"data": "#f2f2f2", "step": "#d6e6f2", "trained": "#f7d9dd"}  # of the boxes: what is fixed, what is learned


# --- boxes and arrows ----------------------------------------------------------------------------------------------


class Box(NamedTuple):
    """One box of a diagram: what it says, its centre, and its kind, a key of FACES."""

    text: str
    x: float
    y: float
    kind: str = "data"


def draw(boxes, arrows, *, size, limits):
    """A diagram: `boxes` {name: Box}, `arrows` {(name, name): label}; `limits` are the ends of both axes.

    Texts carry the name of their box and arrows those of their ends ("y->layer 1") as `gid`.
    """
    figure, axis = plt.subplots(figsize=size)
    axis.set(xlim=(0, limits[0]), ylim=(0, limits[1]))
    axis.axis("off")
    frames = {}
    for name, box in boxes.items():
        look = {"boxstyle": "round,pad=0.45", "facecolor": FACES[box.kind], "edgecolor": "#555555", "linewidth": 0.8}
        text = axis.text(box.x, box.y, box.text, ha="center", va="center", fontsize=9, bbox=look, gid=name)
        frames[name] = text.get_bbox_patch()
    for (start, end), label in arrows.items():
        a, b = boxes[start], boxes[end]
        ends = {"patchA": frames[start], "patchB": frames[end], "shrinkA": 2, "shrinkB": 2}
        line = {"arrowstyle": "-|>", "color": "#555555", "linewidth": 1.1} | ends
        arrow = axis.annotate("", (b.x, b.y), (a.x, a.y), arrowprops=line)
        arrow.arrow_patch.set_gid(f"{start}->{end}")
        axis.text((a.x + b.x) / 2, (a.y + b.y) / 2 + 0.1, label, ha="center", va="bottom", fontsize=8, color="#333333")
    return figure


def write_shape(x):
    """A shape for people: (20, 20) is "20 × 20", (190,) is "190"."""
    return " × ".join(map(str, x))


# --- TopoDiffVAE ---------------------------------------------------------------------------------------------------


def vae_shapes(vae, n_nodes):
    """Shapes of everything that passes through a TopoDiffVAE for one graph of `n_nodes` nodes: {name: shape}."""
    r1 = torch.zeros(1, n_nodes * (n_nodes - 1) // 2)
    A = to_matrix(r1)[0]
    with torch.no_grad():
        mean, spread = vae.encode(r1, r1)
        p1 = vae.decode(r1, mean)
        delta = vae.f_emb(A[None])[0]
    hidden = vae.decoder[0].out_features
    return {
        "r1": r1[0].shape, "A": A.shape, "h0": vae.h0.shape, "H1": vae.H1.shape, "delta": delta.shape,
        "mean": mean[0].shape, "spread": spread[0].shape, "z": mean[0].shape, "hidden": (hidden,), "p1": p1[0].shape,
        "joined": (r1.shape[1] + mean.shape[1],),
    }  # fmt: skip


def vae_boxes(vae, n_nodes):
    """The boxes of `topodiffvae`."""
    s = {name: write_shape(shape) for name, shape in vae_shapes(vae, n_nodes).items()}
    convolutions = f"$\\mathbf{{h}}_0$: {s['h0']}\n$\\mathbf{{H}}_1$: {s['H1']}\n{vae.readout} over nodes"
    return {
        "w": Box(f"$\\mathbf{{w}}$ (truth)\n{s['r1']}", 0.7, 5),
        "r1": Box(f"$\\mathbf{{r}}_1$\n{s['r1']}", 0.7, 1),
        "A_w": Box(f"$\\mathbf{{A}}_w$\n{s['A']}", 2.2, 5),
        "A_r": Box(f"$\\mathbf{{A}}_r$\n{s['A']}", 2.2, 3),
        "f_emb": Box(f"$f_{{emb}}$, for both\n{convolutions}", 4.0, 4, "trained"),
        "delta": Box(f"$\\boldsymbol{{\\delta}}$\n{s['delta']}", 5.6, 4),
        "mean": Box(f"$f_{{mean}}$: $\\boldsymbol{{\\mu}}$\n{s['mean']}", 7.0, 5, "trained"),
        "spread": Box(f"$f_{{cov}}$: $\\boldsymbol{{\\sigma}}$\n{s['spread']}", 7.0, 3, "trained"),
        "z": Box(f"$\\mathbf{{z}}=\\boldsymbol{{\\mu}}+\\boldsymbol{{\\sigma}}\\odot\\epsilon$\n{s['z']}", 8.6, 4),
        "prior": Box("without the truth:\n$\\mathbf{z}\\sim N(0, I)$", 10.6, 4),
        "joined": Box(f"$[\\mathbf{{r}}_1, \\mathbf{{z}}]$\n{s['joined']}", 8.6, 1),
        "decoder": Box(f"$f_{{dec}}$\nhidden: {s['hidden']}, tanh", 10.4, 1, "trained"),
        "p1": Box(f"$\\mathbf{{p}}_1$\n{s['p1']}", 12.1, 1),
    }


def topodiffvae(vae, n_nodes):
    """The conditional autoencoder of Section 3.2, with the shapes of `vae` for one graph."""
    arrows = {
        ("w", "A_w"): r"$\geq\eta$", ("r1", "A_r"): "", ("A_w", "f_emb"): "", ("A_r", "f_emb"): "",
        ("f_emb", "delta"): "", ("delta", "mean"): "", ("delta", "spread"): "", ("mean", "z"): "", ("spread", "z"): "",
        ("prior", "z"): "", ("z", "joined"): "", ("r1", "joined"): "", ("joined", "decoder"): "", ("decoder", "p1"): "",
    }  # fmt: skip
    figure = draw(vae_boxes(vae, n_nodes), arrows, size=(9.6, 4), limits=(12.8, 6.2))
    (axis,) = figure.axes
    axis.text(0.1, 6.1, "encoder: in training only, because it reads the truth", va="top", style="italic", fontsize=9)
    axis.text(0.1, 0.15, "decoder", style="italic", fontsize=9)
    axis.text(1.15, 2.1, r"$\geq\eta$", fontsize=8, ha="right", color="#333333")
    return figure


# --- the whole network ---------------------------------------------------------------------------------------------

PLACES = (3.9, 5.7, 8.3, 10.2)  # of the layers that `overview` shows: the first two and the last two
TRUTH = 12.0
LOSS = """The loss compares every
layer with the truth, the
later ones with more
weight, and keeps the
code near $N(0, I)$."""


def overview_boxes(model, n_signals):
    """The boxes of `overview`, from left to right."""
    m, T = model.n_nodes, model.n_layers
    E = write_shape([m * (m - 1) // 2])
    boxes = {
        "X": Box(f"signals\n$\\mathbf{{X}}$\n{write_shape((n_signals, m))}", 0.8, 3.7),
        "y": Box(f"distances\n$\\mathbf{{y}}$\n{E}", 2.3, 3.7),
    }
    for x, t in zip(PLACES, (1, 2, T - 1)):
        if t == T - 1:
            boxes["between"] = Box("$\\cdots$", (PLACES[1] + PLACES[2]) / 2, 3.7, "step")
        alpha, beta, gamma = model.unrolling.theta[t - 1].tolist()
        trained = f"$\\alpha$ = {alpha:.2f}\n$\\beta$ = {beta:.2f}\n$\\gamma$ = {gamma:.3f}"
        boxes[f"layer {t}"] = Box(f"layer {t}\n{trained}", x, 3.7, "step")
    boxes[f"layer {T}"] = Box(f"layer {T}\nTopoDiffVAE\nin Step 5", PLACES[3], 3.7, "trained")
    boxes["w_hat"] = Box(f"graph\n$\\hat{{\\mathbf{{w}}}}$\n{E}", TRUTH, 3.7)
    return boxes


def overview(model, path, w, n_signals):
    """The counterpart of the paper's Figure 1, for an L2G whose last layer is enhanced.

    path : (T, E), the estimates of all layers for one graph; w : (E,), its truth
    """
    boxes = overview_boxes(model, n_signals)
    figure = draw(boxes, dict.fromkeys(pairwise(boxes), ""), size=(9.6, 3.35), limits=(12.8, 4.45))
    (axis,) = figure.axes
    T = len(path)
    errors = gmse(path, w.expand_as(path))
    for x, t in zip(PLACES, (1, 2, T - 1, T)):
        below = f"error {errors[t - 1]:.3f}\nweight $\\tau^{{{T - t}}}$"
        _thumbnail(axis, path[t - 1], w.max(), x, f"$\\mathbf{{w}}^{{({t})}}$", below)
    _thumbnail(axis, w, w.max(), TRUTH, "truth $\\mathbf{w}$", "")
    axis.text(0.1, 1.55, LOSS, va="center", fontsize=9, style="italic")
    return figure


def _thumbnail(axis, w, largest, x, title, below, y=1.55, side=1.5):
    """A small adjacency matrix under a box."""
    place = axis.inset_axes((x - side / 2, y - side / 2, side, side), transform=axis.transData)
    place.imshow(to_matrix(w).numpy(), cmap="rocket_r", vmin=0, vmax=float(largest), interpolation="nearest")
    place.set(xticks=[], yticks=[])
    sns.despine(ax=place, left=True, bottom=True)
    place.set_title(title, fontsize=9, pad=3)
    place.set_xlabel(below, fontsize=8)


# --- one graph -----------------------------------------------------------------------------------------------------


def signals_on_graph(w, X, y):
    """The smoothest of the signals on its graph, the roughness x'Lx of all of them, and the distances of all pairs.

    w : (E,) weights; X : (N, m) signals; y : (E,) distances
    """
    figure, axes = plt.subplots(1, 3, figsize=(9.4, 3.2), width_ratios=(1.15, 1, 1))
    X = X - X.mean(1, keepdim=True)
    rough = roughness(w, X)
    _draw_signal(axes[0], w, X[(rough / X.square().sum(1)).argmin()])
    axes[0].set_title(f"the smoothest of {len(X):,} signals")
    order = torch.randperm(X.shape[1], generator=torch.Generator().manual_seed(0))
    _histogram(axes[1], {"on shuffled nodes": roughness(w, X[:, order]), "on their graph": rough})
    axes[1].set(title="roughness of the signals", xlabel=r"$\mathbf{x}^T L \mathbf{x}$", ylabel="signals")
    _histogram(axes[2], {"no edge": y[w == 0], "edge": y[w > 0]})
    axes[2].set(title="distances of the pairs", xlabel="$y_{ij}$", ylabel="pairs of nodes")
    return figure


def roughness(w, X):
    """x'Lx of every signal: w (E,), X (N, m) -> (N,)."""
    return ((X @ laplacian(w)) * X).sum(1)


def _draw_signal(axis, w, x):
    """A graph with the values of a signal (m,) as the colours of its nodes."""
    graph = nx.from_numpy_array(to_matrix(w).numpy())
    places = nx.spring_layout(graph, seed=2, weight=None, iterations=200)
    most = float(x.abs().max())
    look = {"node_size": 90, "cmap": "vlag", "edgecolors": "#555555", "vmin": -most, "vmax": most}
    nx.draw_networkx_edges(graph, places, ax=axis, edge_color="#999999")
    nodes = nx.draw_networkx_nodes(graph, places, ax=axis, node_color=x, **look)
    axis.axis("off")
    axis.figure.colorbar(nodes, ax=axis, shrink=0.8, pad=0.01, label="signal minus its mean")


def _histogram(axis, values):
    """Two overlapping histograms, {label: values}, on the same bins."""
    both = torch.cat(list(values.values()))
    bins = np.linspace(float(both.min()), float(both.max()), 31)
    for (label, x), colour in zip(values.items(), (NO_EDGE, EDGE), strict=True):
        axis.hist(x, bins, color=colour, alpha=0.75, linewidth=0, label=label)
    axis.legend(fontsize=8)


def weight_paths(theta, weights, w):
    """Solutions of Eq. (4) along theta: each weight as a share of the largest; number of edges and best error.

    theta : (n,); weights : (n, E), the solutions for theta y and alpha = beta = 1; w : (E,), the truth
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.5))
    relative = weights / weights.amax(1, keepdim=True)
    _draw_weights(left, theta, relative, w)
    left.set(xscale="log", xlabel=r"$\theta = 1/\sqrt{\alpha\beta}$", ylabel="weight / largest weight")
    scale = (weights @ w) / weights.square().sum(1)  # of least squares
    error = gmse(scale[:, None] * weights, w.expand_as(weights))
    right.plot(theta, error, color="black", lw=1.6)
    right.set(xscale="log", xlabel=left.get_xlabel(), ylabel="GMSE at the best scale", ylim=(0, None))
    count = right.twinx()
    count.plot(theta, (relative > 1e-6).sum(1), color=COLOURS["Unrolling"], lw=1.6)
    count.axhline(int((w > 0).sum()), color=COLOURS["Unrolling"], lw=1, ls=":")
    count.set_ylabel("edges (dotted: the truth)", color=COLOURS["Unrolling"])
    count.spines["right"].set_visible(True)
    return figure


def _draw_weights(axis, x, weights, w):
    """One line per pair of nodes, those of true edges in colour: x (n,), weights (n, E)."""
    for present, colour, label in ((False, NO_EDGE, "no edge"), (True, EDGE, "edge")):
        lines = axis.plot(x, weights[:, (w > 0) == present], color=colour, lw=0.8, alpha=0.8)
        lines[0].set_label(label)
    axis.set_ylim(top=1.15 * float(weights.max()))  # room for the legend
    axis.legend(loc="upper right", ncols=2)


def approach(path, solution, proof, primal, w):
    """Iterates on their way: the bound that the certificate gives, the true gap of the objective, and the weights.

    path : (T, E); solution : (E,), the minimiser; proof : the Certificate of `path`; primal : its least value;
    w : (E,), the truth
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.5))
    t = np.arange(1, len(path) + 1)
    left.plot(t, proof.primal - proof.dual, color=COLOURS["Unrolling"], lw=1.6, label="duality gap: the certificate")
    left.plot(t, (proof.primal - primal).clamp_min(1e-12), color="black", lw=1.6, label="true gap of the objective")
    left.set(yscale="log", ylim=(1e-10, None), xlabel="iteration", ylabel="distance from the optimum")
    left.legend()
    _draw_weights(right, t, path, w)
    right.plot(np.full(len(solution), t[-1] * 1.02), solution, "_", color="black", ms=5)
    right.set(xlabel="iteration (bars at the end: exact solution)", ylabel="weight")
    return figure


def layer_strip(path, w, shown, *, columns=5):
    """Adjacency matrices after some layers and the true one, on one colour scale, with the error below each.

    path : (T, E); w : (E,), the truth; shown : layers, counted from 1
    """
    graphs = {f"layer {t}": path[t - 1] for t in shown} | {"truth": w}
    rows = -(-len(graphs) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(9.4, 2.05 * rows + 0.1), squeeze=False)
    for axis, (title, graph) in zip(axes.flat, graphs.items(), strict=True):
        picture = axis.imshow(to_matrix(graph).numpy(), cmap="rocket_r", vmin=0, vmax=float(1.2 * w.max()))
        below = "" if title == "truth" else f"GMSE {gmse(graph, w):.3f}"
        axis.set(title=title, xlabel=below, xticks=[], yticks=[])
        sns.despine(ax=axis, left=True, bottom=True)
    figure.colorbar(picture, ax=axes, shrink=0.7, pad=0.01, extend="max", label="edge weight")
    return figure


def parameters(thetas, bound):
    """Trained alpha, beta and gamma of each layer: `thetas` {model: (T, 3)}; `bound` is the step that is safe."""
    figure, axes = plt.subplots(1, 3, figsize=(9.4, 3.1))
    for axis, column, symbol in zip(axes, range(3), (r"$\alpha$", r"$\beta$", r"$\gamma$")):
        for name, theta in thetas.items():
            t = np.arange(1, len(theta) + 1)
            colour = COLOURS[name.split(" (")[0]]
            axis.plot(t, theta[:, column].numpy(), "o-", ms=3.5, lw=1.2, color=colour, label=name)
        axis.set(xlabel="layer", ylabel=symbol, xticks=(1, 5, 10, 15, 20))
    axes[2].axhline(bound, color="black", lw=1, ls="--", label=r"largest safe step of PDS at $\beta$ = 1")
    axes[2].set_yscale("symlog", linthresh=0.1)
    axes[2].margins(y=0.1)
    figure.legend(*axes[2].get_legend_handles_labels(), loc="outside lower center", ncols=len(thetas) + 1)
    return figure


def fixed_points(paths, solution):
    """ADMM's distance from the solution, ||w - w*||^2 / ||w*||^2: `paths` {(panel, gamma): (T, E)}."""
    panels = list(dict.fromkeys(panel for panel, _ in paths))
    figure, axes = plt.subplots(1, len(panels), figsize=(9.4, 3.3), sharey=True, squeeze=False)
    shades = sns.color_palette("flare", len(paths) // len(panels))
    for axis, panel in zip(axes[0], panels):
        for shade, (gamma, path) in zip(shades, ((g, x) for (name, g), x in paths.items() if name == panel)):
            error = gmse(path.relu(), solution.expand_as(path))
            axis.plot(np.arange(1, len(path) + 1), error, color=shade, lw=1.6, label=rf"$\gamma$ = {gamma}")
        axis.set(title=panel, xlabel="iteration", yscale="log", ylim=(1e-12, 3))
        axis.legend()
    axes[0, 0].set_ylabel("distance from the solution")
    return figure
