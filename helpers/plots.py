"""One style, one function a figure type. Every figure is saved as PNG for reading and PDF for papers."""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import seaborn as sns
import torch

from . import paths
from .graphs import to_matrix

COLOURS = {  # one colour a method, in every figure
    "PDS": "#8c8c8c",
    "ADMM": "#c4a35a",
    "GLAD": "#7b5ea7",
    "GLAD (stable)": "#7b5ea7",
    "GLAD (newton_schulz)": "#c79fef",
    "Deep-graph": "#9c5a3c",
    "Recurrent Unrolling": "#5fa8a0",
    "Unrolling": "#2a78b5",
    "L2G": "#d1495b",
    "Inverse covariance": "#b5b56b",
    "Laplacian maximum likelihood": "#3a7d44",
    "EquivariantL2G": "#e08214",
}


def style():
    """Set the look of all figures; call once at the top of a notebook."""
    sns.set_theme(context="notebook", style="ticks", font_scale=0.9)
    plt.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 160,
            "savefig.bbox": "tight",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
            "pdf.fonttype": 42,
        }
    )


def save(figure, name):
    """Write figures/<name>.png and .pdf; without dates, so that the same figure is the same file."""
    if paths.CHECK:
        return
    paths.FIGURES.mkdir(exist_ok=True)
    figure.savefig(paths.FIGURES / f"{name}.png", metadata={"Software": None})
    figure.savefig(paths.FIGURES / f"{name}.pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})


def heatmaps(graphs, *, vmax=None, boundaries=(), width=2.6):
    """Adjacency matrices side by side on one colour scale; `graphs` maps titles to half-vectors (E,)."""
    matrices = {title: np.asarray(to_matrix(torch.as_tensor(w))) for title, w in graphs.items()}
    vmax = vmax or max(W.max() for W in matrices.values())
    figure, axes = plt.subplots(1, len(matrices), figsize=(width * len(matrices) + 0.6, width + 0.2), squeeze=False)
    for axis, (title, W) in zip(axes[0], matrices.items(), strict=True):
        image = axis.imshow(W, cmap="rocket_r", vmin=0, vmax=vmax, interpolation="nearest")
        for edge in boundaries:
            axis.axhline(edge - 0.5, color="#2a78b5", lw=0.8)
            axis.axvline(edge - 0.5, color="#2a78b5", lw=0.8)
        axis.set(title=title, xticks=[], yticks=[])
        sns.despine(ax=axis, left=True, bottom=True)
    figure.colorbar(image, ax=axes[0], shrink=0.8, label="edge weight", pad=0.01)
    return figure


def drawings(graphs, *, seed=0, width=2.8, threshold=0.05):
    """The same graphs as node-link drawings in one layout, that of the first; line width follows weight."""
    matrices = {title: np.asarray(to_matrix(torch.as_tensor(w))) for title, w in graphs.items()}
    first = next(iter(matrices.values()))
    layout = nx.spring_layout(nx.from_numpy_array(first > 0), seed=seed, k=1.4 / len(first) ** 0.5)
    truth = first > 0
    figure, axes = plt.subplots(1, len(matrices), figsize=(width * len(matrices), width), squeeze=False)
    for axis, (title, W) in zip(axes[0], matrices.items(), strict=True):
        graph = nx.from_numpy_array(np.where(threshold * first.max() < W, W, 0))
        widths = [6 * d["weight"] / first.max() * 0.4 for *_, d in graph.edges(data=True)]
        colours = ["#444444" if truth[i, j] else COLOURS["L2G"] for i, j in graph.edges]
        nx.draw_networkx_edges(graph, layout, ax=axis, width=widths, edge_color=colours)
        nx.draw_networkx_nodes(graph, layout, ax=axis, node_size=45, node_color="white", edgecolors="#222222")
        axis.set_title(title)
        axis.axis("off")
    return figure


def recovery(ours, paper):
    """Table 1 as a figure: one panel a family, one line a method, ours (dots) and the paper's (crosses), log scale."""
    families, models = ours.family.unique(), ours.model.unique()[::-1]
    place = {model: k for k, model in enumerate(models)}
    figure, axes = plt.subplots(
        1, len(families), figsize=(3 * len(families) + 1.5, 0.27 * len(models) + 1), sharex=True, sharey=True
    )
    for axis, family in zip(axes, families, strict=True):
        for frame, marker, colour in ((ours, "o", COLOURS["Unrolling"]), (paper, "x", COLOURS["L2G"])):
            for row in frame[frame.family == family].itertuples():
                if row.model in place:
                    face = "white" if "(" in row.model and marker == "o" else colour
                    axis.errorbar(row.value, place[row.model], xerr=row.ci, fmt=marker, color=colour, mfc=face, ms=5)
        axis.set(title=family, xscale="log", xlabel="GMSE", yticks=range(len(models)), yticklabels=models)
        axis.grid(axis="both", lw=0.4, alpha=0.6)
    return figure


def sweep(frame, x, panels, looks, *, width=4.4, height=4.3, ncols=None):
    """Curves with 95 % bars over `x`: one panel a metric, {metric: axis settings}, one line a model, {model: format}.

    A variant in brackets has the colour of its model and open markers; what is no model, a reference, is grey.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(width * len(panels), height), squeeze=False)
    for axis, (metric, settings) in zip(axes[0], panels.items(), strict=True):
        for model, look in looks.items():
            part = frame[(frame.metric == metric) & (frame.model == model)]
            colour = COLOURS.get(model, COLOURS.get(model.split(" (")[0], "#555555"))
            face = colour if model in COLOURS else "white"
            axis.errorbar(part[x], part.value, part.ci, fmt=look, color=colour, mfc=face, ms=5, lw=1.4, label=model)
        axis.set(xscale="log", **settings)
        axis.minorticks_off()
        axis.grid(lw=0.4, alpha=0.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=ncols or len(looks))
    return figure


def convergence(frame, panels, *, width=4.4, height=3.7, rows=1):
    """Error against iterations, 95 % bands, log y: one panel a table, {table: axis settings}, one line a model.

    Variants of a model, in brackets, share its colour and differ in dashes.
    """
    columns = -(-len(panels) // rows)
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False, sharey=True)
    for axis, (table, settings) in zip(axes.flat, panels.items(), strict=True):
        part, seen = frame[(frame.table == table) & (frame.metric == "gmse")], []
        for model, line in part.groupby("model", sort=False):
            base = model.split(" (")[0]
            dashes, marker = ("-", "--", ":")[seen.count(base)], "o" if len(line) < 10 else ""
            seen.append(base)
            axis.plot(line.x, line.value, dashes, marker=marker, ms=4, lw=1.6, color=COLOURS[base], label=model)
            axis.fill_between(line.x, line.value - line.ci, line.value + line.ci, color=COLOURS[base], alpha=0.2, lw=0)
        axis.set(yscale="log", **settings)
        axis.grid(lw=0.4, alpha=0.5)
    return figure


def network(graph, *, axis=None, positions=None, labels=None, seed=0):
    """A `networkx.Graph`: width is weight, and an edge is the fainter the less probable it is.

    positions : {node: (x, y)}; None puts connected nodes close to each other, starting from `seed`
    labels : write the nodes' names; None does for up to 50 nodes
    """
    axis = plt.subplots(figsize=(6, 5))[1] if axis is None else axis
    if positions is None:
        positions = nx.spring_layout(graph, seed=seed, k=1.6 / len(graph) ** 0.5, weight=None)
    data = [d for *_, d in graph.edges(data=True)]
    widths = np.array([d["weight"] for d in data])
    alpha = [d.get("probability", 1.0) for d in data]
    if data:
        widths = 0.5 + 2.5 * widths / widths.max()
        nx.draw_networkx_edges(graph, positions, ax=axis, width=widths, alpha=alpha, edge_color="#444444")
    nx.draw_networkx_nodes(graph, positions, ax=axis, node_size=35, node_color=COLOURS["L2G"], edgecolors="white")
    if len(graph) <= 50 if labels is None else labels:
        for node, place in positions.items():
            axis.annotate(node, place, (0, 5), textcoords="offset points", ha="center", fontsize=8)
    axis.margins(0.08)
    axis.axis("off")
    return axis.figure


def calibration(curves, *, width=4.2):
    """Reliability diagrams: share of true edges against mean probability of a bin, {title: (mean, share, count)}.

    The area of a dot grows with the logarithm of the number of edges behind it.
    """
    figure, axes = plt.subplots(1, len(curves), figsize=(width * len(curves), width), squeeze=False, sharey=True)
    for axis, (title, (mean, share, count)) in zip(axes[0], curves.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="0.7", lw=1)
        axis.plot(mean, share, color=COLOURS["EquivariantL2G"], lw=1.4)
        axis.scatter(mean, share, 12 * np.log10(count + 1), color=COLOURS["EquivariantL2G"], zorder=3)
        axis.set(title=title, xlabel="edge probability", aspect="equal", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("share that are edges")
    return figure


def training(frame, panels, sizes):
    """What training costs and brings: one panel a table, {table: axis settings}, one line a size, 95 % bars."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.1 * len(panels), 3.9))
    for axis, (table, settings) in zip(axes, panels.items(), strict=True):
        for size, colour in zip(sizes, sns.color_palette("crest", len(sizes)), strict=True):
            line = frame[(frame.table == table) & (frame.model == size)]
            marker = "o" if len(line) < 10 else ""
            axis.errorbar(line.x, line.value, line.ci, color=colour, marker=marker, ms=4, lw=1.6, label=size)
        axis.set(**settings)
        axis.minorticks_off()
        axis.grid(lw=0.4, alpha=0.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(sizes))
    return figure


def curves(frame, panels, *, width=4.4):
    """Shares against x, on a log scale: one panel a table, {table: {"xlabel", "ticks"}}, one line a model."""
    figure, axes = plt.subplots(1, len(panels), figsize=(width * len(panels), 3.4), squeeze=False, sharey=True)
    for axis, (table, settings) in zip(axes[0], panels.items(), strict=True):
        for model, line in frame[frame.table == table].groupby("model", sort=False):
            (drawn,) = axis.plot(line.x, line.value, marker="o", ms=4, lw=1.6, label=model)
            axis.fill_between(line.x, line.value - line.ci, line.value + line.ci, color=drawn.get_color(), alpha=0.15)
        axis.set(xscale="log", ylim=(0, 1.03), xlabel=settings["xlabel"])
        axis.set_xticks(settings["ticks"], settings["ticks"])
        axis.minorticks_off()
        axis.legend(fontsize=9)
        axis.grid(lw=0.4, alpha=0.5)
    axes[0, 0].set_ylabel(frame.metric.iloc[0])
    return figure
