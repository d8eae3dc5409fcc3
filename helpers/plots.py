"""One style, one function a figure type. Every figure is saved as PNG for reading and PDF for papers."""

from itertools import groupby

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import seaborn as sns
import torch
from sklearn.isotonic import isotonic_regression

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
    "k-NN": "#8c8c8c",
    "learned": "#d1495b",
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
        for size, colour in zip(sizes, sns.color_palette("colorblind", len(sizes)), strict=True):
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


# --- real data: `source` is where the data came from, and stands under every figure --------------------------------


def _signed(figure, source):
    figure.supxlabel(f"Data: {source}", size=8, color="0.4", x=0.99, ha="right")
    return figure


def _spaced(places, gap):
    """Places in rising order moved as little as needed to be `gap` apart."""
    shift = gap * np.arange(len(places))
    return isotonic_regression(np.asarray(places) - shift) + shift


def block_heatmaps(graphs, labels, source, *, vmax=None, width=4.3, gap=3.4):
    """Adjacency matrices side by side, nodes in blocks of equal `labels` (m,), which are named on the left."""
    sizes = [len(list(run)) for _, run in groupby(labels)]
    edges = np.cumsum([0, *sizes])
    figure = heatmaps(graphs, vmax=vmax, boundaries=edges[1:-1], width=width)
    first, middle = figure.axes[0], edges[:-1] + np.array(sizes) / 2 - 0.5
    for (name, _), place, text_place in zip(groupby(labels), middle, _spaced(middle, gap), strict=True):
        line = dict(arrowstyle="-", color="0.6", lw=0.6, shrinkA=0, shrinkB=0)
        first.annotate(
            name, (-0.5, place), (-0.06 * len(labels), text_place), ha="right", va="center", size=8, arrowprops=line,
            annotation_clip=False,
        )  # fmt: skip
    for line in (line for axis in figure.axes[: len(graphs)] for line in axis.lines):
        line.set(lw=0.5, alpha=0.7)
    return _signed(figure, source)


def sector_graph(w, names, labels, source, *, n_edges=220, seed=0):
    """The heaviest edges of one graph (E,) drawn, nodes coloured and listed by `labels`; edges between groups red."""
    W = np.asarray(to_matrix(torch.as_tensor(w)))
    kept = np.where(np.sort(W[np.triu_indices(len(W), 1)])[-n_edges] <= W, W, 0)
    graph, labels = nx.from_numpy_array(kept), np.asarray(labels)
    colours = dict(zip(dict.fromkeys(labels), sns.color_palette("tab20", len(set(labels)))))
    angle, layout = 0.0, {}
    for label in colours:  # every group on a circle of its own, those on a large one
        members = np.flatnonzero(labels == label)
        radius, angle = (
            0.045 * np.sqrt(len(members) - 0.8),
            angle + np.pi * (len(members) + 4) / (len(W) + 4 * len(colours)),
        )
        turn = 2 * np.pi * np.arange(len(members)) / len(members)
        places = np.exp(1j * angle) + 1.6 * radius * np.exp(1j * turn)
        layout |= {k: (z.real, z.imag) for k, z in zip(members, places)}
        angle += np.pi * (len(members) + 4) / (len(W) + 4 * len(colours))
    figure, axis = plt.subplots(figsize=(11.5, 9))
    axis.set_aspect("equal")
    for within, colour in ((False, COLOURS["L2G"]), (True, "#555555")):
        part = [(i, j) for i, j in graph.edges if (labels[i] == labels[j]) == within]
        widths = [0.4 + 3 * kept[i, j] / kept.max() for i, j in part]
        nx.draw_networkx_edges(graph, layout, part, widths, colour, ax=axis, alpha=0.55)
    nodes = [colours[label] for label in labels]
    nx.draw_networkx_nodes(graph, layout, ax=axis, node_size=300, node_color=nodes, edgecolors="white")
    nx.draw_networkx_labels(graph, layout, dict(enumerate(names)), font_size=6, ax=axis)
    handles = [axis.scatter([], [], color=colour, label=label) for label, colour in colours.items()]
    axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5))
    axis.axis("off")
    return _signed(figure, source)


def connectomes(graphs, regions, source, *, n_edges=60, vmax=None):
    """The heaviest edges of graphs over the 39 regions on a glass brain, one row a graph; nodes coloured by network."""
    from nilearn.plotting import plot_connectome  # here because it takes a second

    names = list(dict.fromkeys(regions.network))
    nodes = [sns.color_palette("husl", len(names))[names.index(n)] for n in regions.network]
    vmax = vmax or max(float(w.max()) for w in graphs.values())
    figure = plt.figure(figsize=(10, 3.1 * len(graphs)))
    for row, (title, w) in enumerate(graphs.items()):
        W = np.asarray(to_matrix(torch.as_tensor(w)))
        cut = np.sort(W[np.triu_indices(len(W), 1)])[-n_edges]
        place = (0.02, 1 - (row + 1) / len(graphs) + 0.02, 0.96, 1 / len(graphs) - 0.06)
        plot_connectome(
            W, regions[["x", "y", "z"]], nodes, 25, edge_cmap="rocket_r", edge_vmin=0, edge_vmax=vmax,
            edge_threshold=cut * (1 - 1e-9), display_mode="lzr", figure=figure, axes=place, colorbar=True,
        )  # fmt: skip
        figure.text(0.02, place[1] + place[3], title, weight="bold")
    figure.set_layout_engine("none")
    figure.text(0.99, 0.005, f"Data: {source}", size=8, color="0.4", ha="right")
    return figure


def stability(panels, source):
    """Mean Spearman correlation between draws, {title: tidy frame}: ours (dots) and the paper's (crosses)."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels) + 2, 4.4), sharey=True, squeeze=False)
    models = list(dict.fromkeys(m for frame in panels.values() for m in frame.model))[::-1]
    for axis, (title, frame) in zip(axes[0], panels.items(), strict=True):
        for row in frame.itertuples():
            colour = COLOURS["Unrolling" if row.family == "control" else "L2G"]
            place, marker = models.index(row.model) + (0.12 if row.family == "control" else -0.12), row.marker
            axis.errorbar(row.value, place, xerr=row.ci, fmt=marker, color=colour, ms=6, lw=1.4)
        axis.set(title=title, xlim=(-0.05, 1.02), xlabel="mean Spearman correlation between draws")
        axis.set_yticks(range(len(models)), models)
        axis.grid(lw=0.4, alpha=0.6)
    for label, marker, colour in (
        ("control", "o", "Unrolling"), ("autism", "o", "L2G"), ("the paper's", "x", None)
    ):  # fmt: skip
        axes[0, 0].plot([], [], marker, color=COLOURS.get(colour, "0.3"), label=label)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return _signed(figure, source)
