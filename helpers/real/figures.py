"""Figures of real data. `source` says where the data came from, and stands under every figure."""

from itertools import groupby

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import seaborn as sns
import torch
from sklearn.isotonic import isotonic_regression

from ..graphs import to_matrix
from ..plots import COLOURS, heatmaps

GROUP_COLOURS = {"control": COLOURS["Unrolling"], "autism": COLOURS["L2G"]}


def block_heatmaps(graphs, labels, source, *, vmax=None, width=4.3, gap=3.4):
    """Adjacency matrices side by side, nodes in blocks of equal `labels` (m,), which are named on the left.

    gap : least distance between two names, in nodes
    """
    sizes = [len(list(members)) for _, members in groupby(labels)]
    names = [name for name, _ in groupby(labels)]
    starts = np.cumsum([0, *sizes])
    middles = starts[:-1] + np.array(sizes) / 2 - 0.5
    figure = heatmaps(graphs, vmax=vmax, boundaries=starts[1:-1], width=width)
    first = figure.axes[0]
    for name, middle, text_place in zip(names, middles, space_out(middles, gap)):
        first.annotate(
            name, (-0.5, middle), (-0.06 * len(labels), text_place), ha="right", va="center", size=8,
            arrowprops=dict(arrowstyle="-", color="0.6", lw=0.6, shrinkA=0, shrinkB=0), annotation_clip=False,
        )  # fmt: skip
    for axis in figure.axes[: len(graphs)]:
        plt.setp(axis.lines, lw=0.5, alpha=0.7)
    return _name_source(figure, source)


def space_out(places, gap):
    """Places (k,) in rising order, moved as little as needed to be `gap` apart."""
    shift = gap * np.arange(len(places))
    return isotonic_regression(np.asarray(places) - shift) + shift


def sector_graph(w, names, labels, source, *, n_edges=220):
    """The heaviest edges of one graph (E,), nodes coloured and listed by `labels` (m,), edges between groups red."""
    W = np.asarray(to_matrix(torch.as_tensor(w)))
    kept = np.where(_heaviest(W, n_edges) <= W, W, 0)
    graph = nx.from_numpy_array(kept)
    labels = np.asarray(labels)
    palette = sns.color_palette("tab20", len(set(labels)))
    colours = dict(zip(dict.fromkeys(labels), palette))
    layout = circle_of_circles(labels)
    figure, axis = plt.subplots(figsize=(11.5, 9))
    axis.set_aspect("equal")
    for within, colour in ((False, COLOURS["L2G"]), (True, "#555555")):
        part = [(i, j) for i, j in graph.edges if (labels[i] == labels[j]) == within]
        widths = [0.4 + 3 * kept[i, j] / kept.max() for i, j in part]
        nx.draw_networkx_edges(graph, layout, part, widths, colour, ax=axis, alpha=0.55)
    node_colours = [colours[label] for label in labels]
    nx.draw_networkx_nodes(graph, layout, ax=axis, node_size=300, node_color=node_colours, edgecolors="white")
    nx.draw_networkx_labels(graph, layout, dict(enumerate(names)), font_size=6, ax=axis)
    handles = [axis.scatter([], [], color=colour, label=label) for label, colour in colours.items()]
    axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5))
    axis.axis("off")
    return _name_source(figure, source)


def circle_of_circles(labels):
    """{node: (x, y)} with every group of equal `labels` (m,) on a small circle, and these around a large one."""
    groups = dict.fromkeys(labels)
    layout = {}
    angle = 0.0
    for label in groups:
        members = np.flatnonzero(labels == label)
        half_sector = np.pi * (len(members) + 4) / (len(labels) + 4 * len(groups))  # 4 nodes' room between groups
        angle += half_sector
        radius = 1.6 * 0.045 * np.sqrt(len(members) - 0.8)
        turns = 2 * np.pi * np.arange(len(members)) / len(members)
        places = np.exp(1j * angle) + radius * np.exp(1j * turns)
        layout |= {node: (place.real, place.imag) for node, place in zip(members, places)}
        angle += half_sector
    return layout


def connectomes(graphs, regions, source, *, n_edges=60, vmax=None):
    """The heaviest edges of graphs over brain regions on a glass brain, one row per graph; colours are networks."""
    from nilearn.plotting import plot_connectome  # here because it takes a second to load

    names = list(dict.fromkeys(regions.network))
    palette = dict(zip(names, sns.color_palette("husl", len(names))))
    colours = [palette[name] for name in regions.network]
    vmax = vmax or max(float(w.max()) for w in graphs.values())
    figure = plt.figure(figsize=(10, 3.1 * len(graphs)))
    height = 1 / len(graphs)
    for row, (title, w) in enumerate(graphs.items()):
        W = np.asarray(to_matrix(torch.as_tensor(w)))
        place = (0.02, 1 - (row + 1) * height + 0.02, 0.96, height - 0.06)  # left, bottom, width, height
        plot_connectome(
            W, regions[["x", "y", "z"]], colours, 25, edge_cmap="rocket_r", edge_vmin=0, edge_vmax=vmax,
            edge_threshold=_heaviest(W, n_edges), display_mode="lzr", figure=figure, axes=place, colorbar=True,
        )  # fmt: skip
        figure.text(0.02, place[1] + place[3], title, weight="bold")
    figure.set_layout_engine("none")
    figure.text(0.99, 0.005, f"Data: {source}", size=8, color="0.4", ha="right")
    return figure


def stability(panels, source):
    """Mean Spearman correlation between draws, with 95 % bars: one panel per {title: tidy frame}, one line per model.

    The column `marker` tells our numbers ("o") from the paper's ("x"), `family` is the group of subjects.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels) + 2, 4.4), sharey=True, squeeze=False)
    models = list(dict.fromkeys(model for frame in panels.values() for model in frame.model))[::-1]
    for axis, (title, frame) in zip(axes[0], panels.items()):
        for row in frame.itertuples():
            place = models.index(row.model) + (0.12 if row.family == "control" else -0.12)
            colour = GROUP_COLOURS[row.family]
            axis.errorbar(row.value, place, xerr=row.ci, fmt=row.marker, color=colour, ms=6, lw=1.4)
        axis.set(title=title, xlim=(-0.05, 1.02), xlabel="mean Spearman correlation between draws")
        axis.set_yticks(range(len(models)), models)
        axis.grid(lw=0.4, alpha=0.6)
    for label, marker, colour in (*((name, "o", c) for name, c in GROUP_COLOURS.items()), ("the paper's", "x", "0.3")):
        axes[0, 0].plot([], [], marker, color=colour, label=label)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return _name_source(figure, source)


def _heaviest(W, n_edges):
    """The weight of the `n_edges`-th heaviest edge of the adjacency matrix W."""
    return np.sort(W[np.triu_indices(len(W), 1)])[-n_edges]


def _name_source(figure, source):
    figure.supxlabel(f"Data: {source}", size=8, color="0.4", x=0.99, ha="right")
    return figure
