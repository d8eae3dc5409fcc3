"""Files that change only with what they show, and figures that show their data and look as they did.

Each type of figure is drawn from made-up numbers and compared with its picture in tests/pictures/, see conftest.py.
"""

import io

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from PIL import Image

from helpers import paths, plots
from helpers.engine import pictures


@pytest.fixture(autouse=True)
def folder(drawing, monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(paths, "CHECK", False)


# --- style and files -----------------------------------------------------------------------------------------------


def line(y=1.0):
    """A figure without text, which would take most of the time."""
    figure, axis = plt.subplots(figsize=(3, 2))
    axis.plot([0, 1, 2], [0, y, 1])
    axis.set(ylim=(0, 2), xticks=[], yticks=[])
    return figure


def stored(name="figure"):
    files = [paths.FIGURES / f"{name}.{suffix}" for suffix in ("png", "pdf")]
    return [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]


def test_every_figure_has_our_style():
    figure, axis = plt.subplots()
    axis.plot([0, 1], label="line")
    assert not axis.legend().get_frame_on()
    assert [side for side, spine in axis.spines.items() if spine.get_visible()] == ["left", "bottom"]
    assert figure.dpi == 110
    assert figure.get_layout_engine() is not None
    assert plt.rcParams["savefig.dpi"] == 160
    assert plt.rcParams["savefig.bbox"] == "tight"
    assert plt.rcParams["pdf.fonttype"] == 42, "letters of a PDF stay letters"


def test_figures_are_stored_as_png_and_pdf_without_dates():
    figure = line()
    figure.suptitle("Title")
    plots.save(figure, "figure")
    (picture, _), (document, _) = stored()
    assert Image.open(io.BytesIO(picture)).info.keys() <= {"dpi"}
    assert Image.open(io.BytesIO(picture)).size[0] == pytest.approx(3 * 160, rel=0.1)
    assert document.startswith(b"%PDF")
    for word in (b"CreationDate", b"Creator", b"Producer", b"/ID"):
        assert word not in document


def test_the_same_figure_is_the_same_file():
    plots.save(line(), "one")
    plots.save(line(), "two")
    assert [content for content, _ in stored("one")] == [content for content, _ in stored("two")]


def test_a_figure_that_shows_the_same_is_drawn_once_and_not_written(monkeypatch):
    plots.save(line(), "figure")
    before = stored()
    formats = []
    savefig = plt.Figure.savefig
    monkeypatch.setattr(plt.Figure, "savefig", lambda f, *a, **k: formats.append(k["format"]) or savefig(f, *a, **k))
    plots.save(line(1.001), "figure")  # a fifth of a pixel
    assert stored() == before
    assert formats == ["png"]


def test_a_figure_that_shows_something_else_is_written():
    plots.save(line(), "figure")
    before = stored()
    plots.save(line(1.05), "figure")
    assert all(new != old for (new, _), (old, _) in zip(stored(), before, strict=True))


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_a_missing_file_is_written(suffix):
    plots.save(line(), "figure")
    before = stored()
    (paths.FIGURES / f"figure.{suffix}").unlink()
    plots.save(line(), "figure")
    assert [content for content, _ in stored()] == [content for content, _ in before]


def test_a_damaged_file_is_replaced():
    plots.save(line(), "figure")
    before = stored()
    (paths.FIGURES / "figure.png").write_bytes(b"no picture")
    plots.save(line(), "figure")
    assert stored()[0][0] == before[0][0]


def test_an_interrupted_save_is_made_up_for(monkeypatch):
    plots.save(line(), "figure")
    plots.save(line(1.5), "other")

    def interrupted(path, content, write=paths.write_atomically):
        write(path, content)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(paths, "write_atomically", interrupted)
        plots.save(line(1.5), "figure")
    plots.save(line(1.5), "figure")
    assert [content for content, _ in stored()] == [content for content, _ in stored("other")]


def test_nothing_is_written_in_a_check(monkeypatch):
    monkeypatch.setattr(paths, "CHECK", True)
    plots.save(line(), "figure")
    assert not paths.FIGURES.exists()


def test_the_layout_is_settled_once():
    figure = line()
    plots.save(figure, "figure")
    assert figure.dpi == plt.rcParams["figure.dpi"]
    place = figure.axes[0].get_position().bounds
    figure.axes[0].set_title("two\nlines")
    figure.draw_without_rendering()
    assert figure.axes[0].get_position().bounds == place


def test_a_figure_without_layout_is_stored_as_it_is():
    plt.rcParams["figure.constrained_layout.use"] = False
    figure = plt.figure(figsize=(3, 2))
    figure.add_axes((0.2, 0.2, 0.5, 0.5))
    plots.save(figure, "figure")
    assert figure.axes[0].get_position().bounds == pytest.approx((0.2, 0.2, 0.5, 0.5))


# --- figures -------------------------------------------------------------------------------------------------------

GRAPHS = {"truth": torch.tensor([1.0, 0, 0.5, 0, 0, 0.25]), "found": torch.tensor([0.8, 0, 0.5, 0.1, 0, 0])}


def drawn_heatmaps():
    return plots.heatmaps(GRAPHS, boundaries=(1, 3))


def drawn_marked_heatmaps():
    graphs = GRAPHS | {"another": GRAPHS["found"]}
    marked = torch.tensor([False, False, True, False, False, False])
    return plots.heatmaps(graphs, marked=marked, captions={"found": "F1 0.9"}, n_columns=2, width=1.5)


def drawn_network():
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=2.0, probability=0.9)
    graph.add_edge("b", "c", weight=0.5, probability=0.3)
    graph.add_edge("c", "d", weight=-1.0)
    graph.add_node("e")
    return plots.network(graph)


def drawn_calibration():
    mean = torch.tensor([0.05, 0.5, 0.95])
    return plots.calibration({"one": (mean, mean**2, torch.tensor([1000.0, 10, 100])), "two": (mean, mean, mean)})


DRAWN = {name[6:]: draw for name, draw in list(globals().items()) if name.startswith("drawn_")}


@pytest.mark.parametrize("name", DRAWN)
def test_figures_look_as_they_did(name, compare_with_picture):
    compare_with_picture(DRAWN[name](), name)


def test_heatmaps_share_a_colour_scale():
    figure = plots.heatmaps(GRAPHS)
    images = [axis.images[0] for axis in figure.axes[:2]]
    assert [image.get_clim() for image in images] == [(0, 1)] * 2
    assert images[1].get_array()[0, 3] == 0.5 == images[1].get_array()[3, 0]
    assert plots.heatmaps(GRAPHS, vmax=0.3).axes[0].images[0].get_clim() == (0, 0.3)


def test_heatmaps_can_ring_edges_and_stand_in_rows():
    figure = drawn_marked_heatmaps()
    panels = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in panels] == [*GRAPHS, "another"]
    assert [axis.get_xlabel() for axis in panels] == ["", "F1 0.9", ""]
    assert panels[0].collections[0].get_offsets().tolist() == [[3, 0], [0, 3]]
    (top, bottom), left = (panels[0], panels[2]), panels[0].get_position()
    assert bottom.get_position().x0 == pytest.approx(left.x0, abs=0.02)
    assert bottom.get_position().y1 < top.get_position().y0
    assert len(figure.axes) == 4  # the colour bar is the last one, the free place is empty
    assert not plots.heatmaps(GRAPHS).axes[0].collections


def test_networks_take_an_axis_positions_and_labels():
    graph = nx.path_graph(51)
    nx.set_edge_attributes(graph, 1.0, "weight")
    positions = {node: (node, 0) for node in graph}
    axis = plt.subplots()[1]
    figure = plots.network(graph, axis=axis, positions=positions)
    assert figure is axis.figure
    assert not axis.texts
    assert axis.collections[-1].get_offsets()[:, 0].tolist() == list(range(51))
    assert len(plots.network(graph, positions=positions, labels=True).axes[0].texts) == 51
    assert len(plots.network(nx.empty_graph(50)).axes[0].texts) == 50
    dollars = plots.network(nx.relabel_nodes(nx.empty_graph(2), {0: "price in $", 1: r"$\cost$"}), labels=True)
    dollars.canvas.draw()
    assert [text.get_text() for text in dollars.axes[0].texts] == ["price in $", r"$\cost$"]
    assert not plots.network(nx.empty_graph(3), labels=False).axes[0].texts


def test_signs_and_nodes_can_be_told_apart_by_colour_by_lightness_and_without_colour():
    """Red and green are one colour to many readers: signs differ in the blue channel, and in their dashes."""
    figure = drawn_network()
    edges, nodes = figure.axes[0].collections
    positive, faint, negative = edges.get_edgecolor()
    assert positive[:3].tolist() == faint[:3].tolist() == list(to_rgb(plots.POSITIVE))
    assert negative[:3].tolist() == list(to_rgb(plots.NEGATIVE))
    assert abs(positive[2] - negative[2]) > 0.4
    assert max(nodes.get_facecolor()[0, :3]) < 0.2 < min(max(positive[:3]), max(negative[:3])) - 0.2
    dashes = [dash for _, dash in edges.get_linestyle()]
    assert dashes[0] is dashes[1] is None and dashes[2]


def test_a_network_has_a_legend_where_weights_are_negative():
    legend = drawn_network().axes[0].get_legend()
    assert [text.get_text() for text in legend.texts] == ["positive weight", "negative weight"]
    assert [line.get_color() for line in legend.get_lines()] == [plots.POSITIVE, plots.NEGATIVE]
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=1.0)
    assert plots.network(graph).axes[0].get_legend() is None


def test_an_edge_that_would_pass_behind_a_node_is_an_arc(monkeypatch):
    graph = nx.Graph()
    graph.add_weighted_edges_from([("a", "b", 1.0), ("b", "c", 1.0), ("a", "c", -4.0), ("a", "d", 1.0)])
    graph.edges["a", "c"]["probability"] = 0.7
    positions = {"a": (0, 0), "b": (0, 1), "c": (0.001, 2), "d": (5, 2)}
    axis = plots.network(graph, positions=positions).axes[0]
    straight, _ = axis.collections
    assert len(straight.get_segments()) == 3
    (arc,) = axis.patches
    assert (arc.get_linewidth(), arc.get_linestyle()) == (3.0, "--")
    assert arc.get_edgecolor() == (*to_rgb(plots.NEGATIVE), 0.7)
    bends = arc.get_path().vertices
    assert np.ptp(bends[:, 0]) > 0.05 and np.ptp(bends[:, 1]) == pytest.approx(2, abs=0.1)
    positions["b"] = 0.2, 1
    assert not plots.network(graph, positions=positions).axes[0].patches
    positions["b"] = 0, 3  # on the line, but beyond its ends
    assert [patch.get_linewidth() for patch in plots.network(graph, positions=positions).axes[0].patches] == [
        pytest.approx(0.5 + 2.5 / 4)
    ]
    monkeypatch.setattr(pictures, "MANY_NODES", 3)
    assert not plots.network(graph, positions=positions).axes[0].patches


def test_layouts_repeat_and_follow_the_seed():
    graph = nx.Graph()
    graph.add_weighted_edges_from([(0, 1, 1.0), (1, 2, 2.0), (3, 1, 1.0)])
    figures = [plots.network(graph, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (figure.axes[0].collections[-1].get_offsets() for figure in figures)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
