"""Figures of real data: graphs between companies, and between regions of the brain."""

from itertools import groupby

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from sklearn.isotonic import isotonic_regression

from ..graphs import to_matrix
from ..plots import heatmaps

GROUP_COLOURS = {"control": "#1b1b1b", "autism": "#b5179e"}  # no method has these
FREE_PLACES = 2  # between two groups of nodes on the circle
THINNEST, WIDEST = 0.4, 4.0  # lines of edges of weight zero and of the heaviest, in points


# --- matrices --------------------------------------------------------------------------------------------------------


def block_heatmaps(graphs, labels, *, vmax=None, width=4.3, gap=4.6):
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
            name, (-0.5, middle), (-0.06 * len(labels), text_place), ha="right", va="center", size=10,
            arrowprops=dict(arrowstyle="-", color="0.6", lw=0.6, shrinkA=0, shrinkB=0), annotation_clip=False,
        )  # fmt: skip
    for axis in figure.axes[: len(graphs)]:
        plt.setp(axis.lines, lw=0.5, alpha=0.7)
    return figure


def space_out(places, gap):
    """Places (k,) in rising order, moved as little as needed to be `gap` apart."""
    shift = gap * np.arange(len(places))
    return isotonic_regression(np.asarray(places) - shift) + shift


# --- a graph on a circle ---------------------------------------------------------------------------------------------


def sector_graph(w, names, labels, *, n_edges=220, named=()):
    """The heaviest edges of one graph (E,), its nodes on a circle in groups of equal `labels` (m,).

    Edges within a group have the group's colour, edges between groups are black, and width is weight.

    named : pairs of names whose edge is labelled
    """
    W = np.asarray(to_matrix(torch.as_tensor(w)))
    labels = np.asarray(labels)
    groups = list(dict.fromkeys(labels))
    colours = dict(zip(groups, sns.color_palette("husl", len(groups), desat=0.8)))
    angles = angles_on_circle(labels)
    places = np.stack([np.cos(angles), np.sin(angles)], 1)

    figure, axis = plt.subplots(figsize=(9.5, 8.2))
    axis.set(aspect="equal", xlim=(-1.72, 1.72), ylim=(-1.5, 1.3))
    axis.axis("off")
    edges = np.argwhere(np.triu(W >= _heaviest(W, n_edges), 1))
    between = labels[edges[:, 0]] != labels[edges[:, 1]]
    for i, j in (*edges[~between], *edges[between]):  # those between groups on top
        colour = colours[labels[i]] if labels[i] == labels[j] else "black"
        axis.add_patch(PathPatch(chord(places[i], places[j]), fc="none", ec=colour, lw=_line_width(W[i, j] / W.max())))
    for k, name in enumerate(names):
        axis.plot(*places[k], "o", ms=6, color=colours[labels[k]])
        _write_outwards(axis, name, angles[k])
    for group, colour in colours.items():
        x, y = places[labels == group].mean(0) / np.linalg.norm(places[labels == group].mean(0))
        side = "left" if x > 0 else "right"
        axis.text(1.25 * x, 1.29 * y, group, color=colour, ha=side, va="center", size=11, weight="bold")
    for a, b in named:
        curve = chord(places[names.index(a)], places[names.index(b)])
        frame = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": "black"}
        axis.text(*middle(curve), f"{a} and {b}", ha="center", va="center", size=10, bbox=frame)
    keys = {"within a sector (its colour)": (colours[groups[0]], 0.5), "across sectors": ("black", 0.5)}
    keys |= {f"weight {share * W.max():.1f}": ("0.5", share) for share in (0.1, 0.5, 1)}
    handles = [Line2D([], [], color=c, lw=_line_width(share), label=label) for label, (c, share) in keys.items()]
    axis.legend(handles=handles, loc="lower center", ncols=len(keys))
    return figure


def angles_on_circle(labels):
    """Angles (m,) of nodes around a circle, groups of equal `labels` (m,) together and apart from each other."""
    groups = list(dict.fromkeys(labels))
    group = np.array([groups.index(label) for label in labels])
    rank = np.empty(len(labels), int)
    rank[np.argsort(group, kind="stable")] = np.arange(len(labels))
    n_places = len(labels) + FREE_PLACES * len(groups)
    return 2 * np.pi * (rank + FREE_PLACES * (group + 0.5)) / n_places


def chord(a, b):
    """A curve between two points (2,) of the unit circle, the deeper inside the further they are apart."""
    depth = min(1.0, 0.2 + 0.9 * np.linalg.norm(a - b))
    return Path([a, (1 - depth) * (a + b) / 2, b], [Path.MOVETO, Path.CURVE3, Path.CURVE3])


def middle(curve):
    """The point half-way along a quadratic curve."""
    return np.array([0.25, 0.5, 0.25]) @ curve.vertices


def _line_width(share):
    """Width in points of the line of an edge, from its share of the largest weight."""
    return THINNEST + (WIDEST - THINNEST) * share


def _write_outwards(axis, text, angle):
    """Write along the radius, outside of the unit circle, never upside down."""
    left = np.cos(angle) < 0
    axis.text(
        1.04 * np.cos(angle), 1.04 * np.sin(angle), text, rotation=np.degrees(angle) + 180 * left, size=9,
        rotation_mode="anchor", ha="right" if left else "left", va="center",
    )  # fmt: skip


# --- brains ----------------------------------------------------------------------------------------------------------


def connectomes(graphs, differences, regions, *, n_edges=60):
    """Graphs over the regions of the brain, and below them differences of such graphs, both {title: (E,)}.

    A brain is seen from the side and from above, with its `n_edges` heaviest edges, or half as many that differ most.
    Graphs share one colour scale, differences another. Regions have the colour of their network.
    """
    networks = list(dict.fromkeys(regions.network))
    palette = dict(zip(networks, sns.color_palette("tab20", len(networks))))
    figure = plt.figure(figsize=(9.5, 6.3))
    heaviest = max(float(w.max()) for w in graphs.values())
    furthest = max(float(w.abs().max()) for w in differences.values())
    _brains(figure, graphs, regions, palette, 0.57, ("rocket_r", 0, heaviest, "edge weight"), n_edges)
    _brains(figure, differences, regions, palette, 0.17, ("vlag", -furthest, furthest, "difference"), n_edges // 2)
    dots = [Line2D([], [], ls="", marker="o", color=colour, label=name) for name, colour in palette.items()]
    figure.legend(handles=dots, loc="lower center", ncols=6, fontsize=10, handletextpad=0, title="networks")
    figure.set_layout_engine("none")  # everything has its place
    return figure


def _brains(figure, graphs, regions, palette, bottom, scale, n_edges):
    """One row of `connectomes`; `scale` is colour map, least and largest value, and what they are."""
    from nilearn.plotting import plot_connectome  # here because it takes a second to load

    colour_map, least, largest, label = scale
    colours = [palette[name] for name in regions.network]
    width = 0.88 / len(graphs)
    for column, (title, w) in enumerate(graphs.items()):
        W = np.asarray(to_matrix(torch.as_tensor(w)))
        place = (column * width, bottom, width, 0.35)  # left, bottom, width, height
        plot_connectome(
            W, regions[["x", "y", "z"]], colours, 22, edge_cmap=colour_map, edge_vmin=least, edge_vmax=largest,
            edge_threshold=_heaviest(np.abs(W), n_edges), display_mode="xz", figure=figure, axes=place, colorbar=False,
            edge_kwargs={"linewidth": 2},
        )  # fmt: skip
        figure.text(place[0] + width / 2, bottom + 0.36, title, ha="center", size=12)
    bar = figure.add_axes((0.9, bottom + 0.02, 0.015, 0.31))
    figure.colorbar(ScalarMappable(Normalize(least, largest), colour_map), bar, label=label)


def stability(panels):
    """Mean Spearman correlation between draws, with 95 % bars: one panel per {title: tidy frame}, one line per model.

    The column `marker` tells our numbers ("o") from the paper's ("x"), `family` is the group of subjects.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels) + 2.4, 4.6), sharey=True, squeeze=False)
    models = list(dict.fromkeys(model for frame in panels.values() for model in frame.model))[::-1]
    for axis, (title, frame) in zip(axes[0], panels.items()):
        for row in frame.itertuples():
            place = models.index(row.model) + (0.12 if row.family == "control" else -0.12)
            colour = GROUP_COLOURS[row.family]
            axis.errorbar(row.value, place, xerr=row.ci, fmt=row.marker, color=colour, ms=6, lw=1.4)
        axis.set(title=title, xlim=(-0.03, 1.03), xlabel="mean Spearman correlation between draws")
        axis.set_yticks(range(len(models)), models)
        axis.grid(lw=0.4, alpha=0.6)
    handles = [
        Line2D([], [], ls="", marker=marker, color=colour, label=f"{group}, {whose}")
        for whose, marker in (("ours", "o"), ("the paper's", "x"))
        for group, colour in GROUP_COLOURS.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _heaviest(W, n_edges):
    """The weight of the `n_edges`-th heaviest edge of the adjacency matrix W."""
    return np.sort(W[np.triu_indices(len(W), 1)])[-n_edges]
