"""Figures of real data: they show what they are given, and look as they did.

Pictures are compared with those in tests/pictures/, see conftest.py.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from helpers.plots import COLOURS
from helpers.real import figures

pytestmark = pytest.mark.usefixtures("drawing")
LABELS = ["a", "a", "b", "c", "c", "c"]
W = torch.tensor([5.0, 1, 0.5, 0.1, 0.2, 2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 4, 3, 2.5])  # 15 pairs of 6 nodes
REGIONS = pd.DataFrame({"network": LABELS, "x": [-40.0, 40, 0, -20, 20, 0], "y": 9.0 * np.arange(6), "z": 5.0})


def drawn_block_heatmaps():
    return figures.block_heatmaps({"one": W, "two": W / 2}, LABELS, gap=1.4)


def drawn_sector_graph():
    return figures.sector_graph(W, list("uvwxyz"), LABELS, n_edges=7, named=[("w", "z")])


def drawn_connectomes():
    return figures.connectomes({"one": W, "two": W.flip(0)}, {"change": W.flip(0) - W}, REGIONS, n_edges=8)


def drawn_stability():
    rows = [("PDS", "control", 0.5, "o"), ("PDS", "autism", 0.4, "x"), ("L2G", "control", 0.8, "x")]
    frame = pd.DataFrame(rows, columns=["model", "family", "value", "marker"]).assign(ci=0.1)
    return figures.stability({"35 subjects": frame, "35 frames": frame[1:]})


DRAWN = {name[6:]: draw for name, draw in list(globals().items()) if name.startswith("drawn_")}


@pytest.mark.parametrize("name", DRAWN)
def test_figures_look_as_they_did(name, compare_with_picture):
    compare_with_picture(DRAWN[name](), name)


def test_blocks_are_named_in_their_middle_and_divided():
    axis = drawn_block_heatmaps().axes[0]
    assert [(text.get_text(), text.xy[1]) for text in axis.texts] == [("a", 0.5), ("b", 2), ("c", 4)]
    assert sorted({line.get_ydata()[0] for line in axis.lines if len(set(line.get_ydata())) == 1}) == [1.5, 2.5]
    assert figures.block_heatmaps({"one": W}, LABELS, vmax=7).axes[0].images[0].get_clim() == (0, 7)


def test_names_of_small_blocks_are_a_gap_apart():
    axis = figures.block_heatmaps({"one": W}, list("uvwxyz")).axes[0]
    np.testing.assert_allclose(np.diff([text.get_position()[1] for text in axis.texts]), 4.6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12).map(sorted), st.floats(0.5, 5))
def test_names_are_spaced_in_order_and_moved_only_if_needed(places, gap):
    spaced = figures.space_out(places, gap)
    assert (np.diff(spaced) >= gap - 1e-9).all()
    assert np.mean(spaced) == pytest.approx(np.mean(places))  # as many up as down
    if (np.diff(places) >= gap).all():
        np.testing.assert_allclose(spaced, places, atol=1e-9)


def test_the_heaviest_edges_are_drawn_those_between_groups_in_black_and_on_top():
    axis = drawn_sector_graph().axes[0]
    dots = [line for line in axis.lines if line.get_marker() == "o"]
    colours = [patch.get_edgecolor()[:3] for patch in axis.patches]
    own = {label: to_rgb(dot.get_color()) for label, dot in zip(LABELS, dots, strict=True)}
    assert len(set(own.values())) == 3
    assert colours == [own["a"], own["c"], own["c"], own["c"], *3 * [to_rgb("black")]]
    widths = [patch.get_linewidth() for patch in axis.patches]
    np.testing.assert_allclose(widths, 0.4 + 3.6 * np.array([5, 4, 3, 2.5, 1, 2, 0.9]) / 5)
    places = [dot.get_xydata()[0] for dot in dots]
    for patch, (i, j) in zip(axis.patches, [(0, 1), (3, 4), (3, 5), (4, 5), (0, 2), (1, 2), (2, 5)], strict=True):
        np.testing.assert_allclose(patch.get_path().vertices[[0, 2]], [places[i], places[j]])


def test_nodes_groups_edges_and_one_link_are_named():
    axis = drawn_sector_graph().axes[0]
    where = {text.get_text(): np.array(text.get_position()) for text in axis.texts}
    assert list(where) == [*"uvwxyz", "a", "b", "c", "w and z"]
    assert all(np.linalg.norm(where[name]) > 1 for name in "uvwxyzabc")
    link = axis.patches[-1].get_path()  # from w to z
    np.testing.assert_allclose(where["w and z"], link.vertices.T @ [0.25, 0.5, 0.25])
    keys = axis.get_legend()
    assert [text.get_text() for text in keys.texts][2:] == ["weight 0.5", "weight 2.5", "weight 5.0"]
    np.testing.assert_allclose([line.get_linewidth() for line in keys.get_lines()][2:], [0.76, 2.2, 4])
    assert [line.get_color() for line in keys.get_lines()][1] == "black"


def test_names_of_nodes_are_never_upside_down():
    axis = drawn_sector_graph().axes[0]
    for text in axis.texts[:6]:
        x, y = text.get_position()
        radius = np.degrees(np.arctan2(y, x))
        assert (text.get_rotation() - radius) % 180 == pytest.approx(0, abs=1e-6)
        assert text.get_ha() == ("left" if x > 0 else "right")
        assert np.cos(np.radians(text.get_rotation())) > 0


def test_so_many_edges_are_drawn_by_default(brains):
    labels = np.repeat(["a", "b"], [10, 12])
    w = torch.arange(1.0, 232)  # 22 nodes
    assert len(figures.sector_graph(w, range(22), labels).axes[0].patches) == 220
    regions = pd.DataFrame({"network": labels, "x": 0.0, "y": 0.0, "z": 0.0})
    figures.connectomes({"one": w}, {"change": w}, regions)
    assert [(w >= options["edge_threshold"]).sum() for _, options in brains] == [60, 30]


def test_groups_are_together_on_a_circle_and_apart():
    labels = np.array(list("babacb"))  # in any order
    turns = figures.angles_on_circle(labels) / (2 * np.pi)
    assert [labels[k] for k in np.argsort(turns)] == list("bbbaac")
    steps = np.diff(np.sort(turns), append=1 + turns.min())
    np.testing.assert_allclose(steps * 12, [1, 1, 3, 1, 3, 3])  # 6 nodes and 2 free places after each of 3 groups


def test_chords_go_deeper_the_longer_they_are():
    angles = np.array([0.1, 1, 2, np.pi])
    curves = [figures.chord(np.array([1.0, 0]), np.array([np.cos(a), np.sin(a)])) for a in angles]
    depths = [1 - np.linalg.norm(figures.middle(curve)) for curve in curves]
    assert depths == sorted(depths) and depths[0] < 0.2 and depths[-1] == pytest.approx(1)


def test_stability_tells_groups_and_sources_apart():
    figure = drawn_stability()
    axis = figure.axes[0]
    marks = [(line.get_marker(), line.get_color(), *line.get_xydata()[0]) for line in axis.lines]
    marks = [mark for mark in marks if mark[0] in ("o", "x")]
    control, autism = figures.GROUP_COLOURS.values()
    assert marks == [("o", control, 0.5, 1.12), ("x", autism, 0.4, 0.88), ("x", control, 0.8, 0.12)]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["L2G", "PDS"]
    (legend,) = figure.legends
    keys = zip(legend.texts, legend.get_lines(), strict=True)
    assert [(text.get_text(), line.get_marker(), line.get_color()) for text, line in keys] == [
        ("control, ours", "o", control), ("autism, ours", "o", autism),
        ("control, the paper's", "x", control), ("autism, the paper's", "x", autism),
    ]  # fmt: skip
    assert len(figure.axes[1].containers) == 2


def test_groups_of_subjects_have_the_colour_of_no_method():
    assert not set(figures.GROUP_COLOURS.values()) & set(COLOURS.values())


@pytest.fixture
def brains(monkeypatch):
    """What nilearn is asked to draw: (arguments, options) of each brain."""
    asked = []
    monkeypatch.setattr("nilearn.plotting.plot_connectome", lambda *args, **options: asked.append((args, options)))
    return asked


def test_connectomes_share_a_colour_scale_and_keep_the_heaviest_edges(brains):
    change = W.flip(0) - W
    figure = figures.connectomes({"one": W, "two": W / 10}, {"change": change, "half": change / 2}, REGIONS, n_edges=4)
    limits = [(options["edge_vmin"], options["edge_vmax"]) for _, options in brains]
    np.testing.assert_allclose(limits, [(0, 5), (0, 5), (-3.5, 3.5), (-3.5, 3.5)])
    bars = figure.axes[-2:]
    np.testing.assert_allclose([bar.get_ylim() for bar in bars], [(0, 5), (-3.5, 3.5)])
    assert [bar.get_ylabel() for bar in bars] == ["edge weight", "difference"]
    kept = [(np.abs(np.triu(args[0])) >= options["edge_threshold"]).sum() for args, options in brains]
    assert kept[:2] == [4, 4]
    assert kept[2:] == [2, 2]


def test_connectomes_name_graphs_and_networks_and_do_not_overlap(brains):
    figure = figures.connectomes({"one": W, "two": W}, {"change": W, "other": W}, REGIONS, n_edges=4)
    colours = brains[0][0][2]
    assert colours[0] == colours[1] and len(set(colours)) == 3
    legend = figure.legends[0]
    assert [text.get_text() for text in legend.texts] == ["a", "b", "c"]
    assert [line.get_color() for line in legend.get_lines()] == [colours[0], colours[2], colours[3]]
    assert [text.get_text() for text in figure.texts] == ["one", "two", "change", "other"]
    boxes = [options["axes"] for _, options in brains]
    assert boxes[0][0] + boxes[0][2] <= boxes[1][0] and boxes[0][1] == boxes[1][1]
    assert boxes[2][1] + boxes[2][3] < boxes[0][1] and boxes[2][1] > 0
