"""One style, one function per type of figure. `save` keeps every figure as PNG for reading and as PDF for papers."""

import io

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import seaborn as sns
import torch
from matplotlib.lines import Line2D

from . import paths
from .engine.pictures import looks_alike, pass_behind
from .graphs import to_matrix

COLOURS = {  # one colour per method, in every figure
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
    "GraphLearner": "#0b2f6b",
    "Graphical lasso (cross-validation)": "#4d7f17",
    "Graphical lasso (extended BIC)": "#a5cf6b",
    "Partial correlations": "#e6ab02",
    "Partial correlations (Ledoit-Wolf)": "#d95f9a",
    "Correlations": "#1b9e77",
    "Eq. (4)": "#8c8c8c",
    "k-NN": "#8c8c8c",
    "learned": "#d1495b",
}
POSITIVE, NEGATIVE = "#2f5f9e", "#c2410c"  # edges: blue and orange, as in the viewer, differ for colour-blind eyes, too
NODE = "#222222"  # the colour of neither kind of edge
DPI = 160  # of the files
ARCS = {"arrows": True, "arrowstyle": "-", "connectionstyle": "arc3,rad=0.2", "node_size": 0}  # of bent edges


# --- style and files -----------------------------------------------------------------------------------------------


def style():
    """Set the look of all figures; call once at the top of a notebook."""
    sns.set_theme(context="notebook", style="ticks", font_scale=0.9)
    plt.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": DPI,
            "savefig.bbox": "tight",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
            "pdf.fonttype": 42,
        }
    )


def save(figure, name):
    """Write figures/<name>.png and .pdf, unless the stored picture shows the same (see `engine.pictures`).

    The files hold no dates. With L2G_CHECK set, as in `make test`, nothing is written.
    """
    _settle_layout(figure)
    if paths.CHECK:
        return
    png = paths.FIGURES / f"{name}.png"
    pdf = paths.FIGURES / f"{name}.pdf"
    picture = _render(figure, format="png", metadata={"Software": None})
    if png.exists() and pdf.exists() and looks_alike(png.read_bytes(), picture):
        return
    no_dates = {"CreationDate": None, "Creator": None, "Producer": None}
    paths.write_atomically(pdf, _render(figure, format="pdf", metadata=no_dates))
    paths.write_atomically(png, picture)  # the last one, because it stands for both when they are compared


def _settle_layout(figure):
    """Place the parts of a figure for good: otherwise each drawing, several per figure, would do so again."""
    engine = figure.get_layout_engine()
    if engine is not None:
        shown_at = figure.dpi
        figure.dpi = DPI
        engine.execute(figure)
        figure.set_layout_engine("none")
        figure.dpi = shown_at


def _render(figure, **options):
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI, bbox_inches="tight", **options)
    return buffer.getvalue()


# --- graphs --------------------------------------------------------------------------------------------------------


def heatmaps(graphs, *, vmax=None, boundaries=(), width=2.6, captions=None, marked=None, n_columns=None):
    """Adjacency matrices side by side on one colour scale; `graphs` maps titles to half-vectors (E,).

    captions : {title: what stands below its matrix}
    marked : (E,) bool, pairs of nodes that are ringed in every matrix
    n_columns : matrices per row; None puts all into one
    """
    matrices = {title: np.asarray(to_matrix(torch.as_tensor(w))) for title, w in graphs.items()}
    vmax = vmax or max(W.max() for W in matrices.values())
    n_columns = n_columns or len(matrices)
    n_rows = -(-len(matrices) // n_columns)
    size = (width * n_columns + 0.6, (width + (0.5 if captions else 0.2)) * n_rows)
    figure, axes = plt.subplots(n_rows, n_columns, figsize=size, squeeze=False)
    for axis in axes.flat[len(matrices) :]:
        axis.remove()
    for axis, (title, W) in zip(axes.flat, matrices.items()):
        image = axis.imshow(W, cmap="rocket_r", vmin=0, vmax=vmax, interpolation="nearest")
        for node in boundaries:
            axis.axhline(node - 0.5, color="#2a78b5", lw=0.8)
            axis.axvline(node - 0.5, color="#2a78b5", lw=0.8)
        if marked is not None:
            i, j = np.nonzero(np.asarray(to_matrix(torch.as_tensor(marked).double())))
            axis.scatter(j, i, s=(90 * width / len(W)) ** 2, fc="none", ec="#2a78b5", lw=1.2)
        axis.set(title=title, xticks=[], yticks=[], xlabel=(captions or {}).get(title, ""))
        sns.despine(ax=axis, left=True, bottom=True)
    figure.colorbar(image, ax=figure.axes, shrink=0.8, label="edge weight", pad=0.01)
    return figure


def network(graph, *, axis=None, positions=None, labels=None, seed=0):
    """A `networkx.Graph`: width is weight, and an edge is the fainter the less probable it is.

    An edge that would pass behind a third node is an arc, as it would look like two edges to that node otherwise.
    Positive edges are blue, negative ones orange and dashed; a legend says so if there are negative ones.

    positions : {node: (x, y)}; None puts connected nodes close to each other, starting from `seed`
    labels : write the nodes' names, dollar signs as they are; None does for up to 50 nodes
    """
    axis = plt.subplots(figsize=(6, 5))[1] if axis is None else axis
    if positions is None:
        positions = nx.spring_layout(graph, seed=seed, k=1.6 / len(graph) ** 0.5, weight=None)
    edges = list(graph.edges)
    if edges:
        signed = np.array([weight for *_, weight in graph.edges(data="weight")])
        looks = {
            "width": 0.5 + 2.5 * np.abs(signed) / np.abs(signed).max(),
            "edge_color": np.where(signed < 0, NEGATIVE, POSITIVE),
            "style": np.where(signed < 0, "--", "-"),
            "alpha": np.array([probability for *_, probability in graph.edges(data="probability", default=1.0)]),
        }
        hidden = pass_behind(positions, edges)
        for chosen, how in ((~hidden, {}), (hidden, ARCS)):
            some = [edge for edge, is_drawn in zip(edges, chosen) if is_drawn]
            own = {name: values[chosen].tolist() for name, values in looks.items()}
            nx.draw_networkx_edges(graph, positions, some, ax=axis, **own, **how)
        if (signed < 0).any():
            kinds = (("positive weight", POSITIVE, "-"), ("negative weight", NEGATIVE, "--"))
            handles = [Line2D([], [], color=colour, ls=dashes, label=text) for text, colour, dashes in kinds]
            axis.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2)
    nx.draw_networkx_nodes(graph, positions, ax=axis, node_size=35, node_color=NODE, edgecolors="white")
    if len(graph) <= 50 if labels is None else labels:
        for node, place in positions.items():
            axis.annotate(node, place, (0, 5), textcoords="offset points", ha="center", fontsize=8, parse_math=False)
    axis.margins(0.08)
    axis.axis("off")
    return axis.figure


def calibration(curves, *, width=4.2):
    """Reliability diagrams: share of true edges against the mean probability of each bin.

    curves : {title: (mean, share, count)}, see `metrics.calibration`. The area of a dot grows with the logarithm of the
        number of edges behind it.
    """
    figure, axes = plt.subplots(1, len(curves), figsize=(width * len(curves), width), squeeze=False, sharey=True)
    for axis, (title, (mean, share, count)) in zip(axes[0], curves.items()):
        axis.plot([0, 1], [0, 1], color="0.7", lw=1)
        axis.plot(mean, share, color=COLOURS["EquivariantL2G"], lw=1.4)
        axis.scatter(mean, share, 12 * np.log10(np.asarray(count) + 1), color=COLOURS["EquivariantL2G"], zorder=3)
        axis.set(title=title, xlabel="edge probability", aspect="equal", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("share that are edges")
    return figure
