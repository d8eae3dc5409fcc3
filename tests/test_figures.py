"""Figures of real data: they show what they are given, say where it came from, and look as they did.

Pictures are compared with those in tests/pictures/, see conftest.py.
"""

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

from helpers import plots
from helpers.real import figures

pytestmark = pytest.mark.usefixtures("drawing")
LABELS = ["a", "a", "b", "c", "c", "c"]
W = torch.tensor([5.0, 1, 0.5, 0.1, 0.2, 2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 4, 3, 2.5])  # 15 pairs of 6 nodes
REGIONS = pd.DataFrame({"network": LABELS, "x": [-40.0, 40, 0, -20, 20, 0], "y": 9.0 * np.arange(6), "z": 5.0})


def drawn_block_heatmaps():
    return figures.block_heatmaps({"one": W, "two": W / 2}, LABELS, "somewhere", gap=1.4)


def drawn_sector_graph():
    return figures.sector_graph(W, list("uvwxyz"), LABELS, "somewhere", n_edges=7)


def drawn_connectomes():
    return figures.connectomes({"one": W, "two": W.flip(0)}, REGIONS, "somewhere", n_edges=4)


def drawn_stability():
    rows = [("PDS", "control", 0.5, "o"), ("PDS", "autism", 0.4, "o"), ("L2G", "control", 0.8, "x")]
    frame = pd.DataFrame(rows, columns=["model", "family", "value", "marker"]).assign(ci=0.1)
    return figures.stability({"35 subjects": frame, "35 frames": frame[1:]}, "somewhere")


DRAWN = {name[6:]: draw for name, draw in list(globals().items()) if name.startswith("drawn_")}


@pytest.mark.parametrize("name", DRAWN)
def test_figures_look_as_they_did_and_say_where_their_data_came_from(name, compare_with_picture):
    figure = DRAWN[name]()
    assert "Data: somewhere" in [text.get_text() for text in figure.findobj(Text)]
    compare_with_picture(figure, name)


def test_blocks_are_named_in_their_middle_and_divided():
    axis = drawn_block_heatmaps().axes[0]
    assert [(text.get_text(), text.xy[1]) for text in axis.texts] == [("a", 0.5), ("b", 2), ("c", 4)]
    assert sorted({line.get_ydata()[0] for line in axis.lines if len(set(line.get_ydata())) == 1}) == [1.5, 2.5]
    assert figures.block_heatmaps({"one": W}, LABELS, "x", vmax=7).axes[0].images[0].get_clim() == (0, 7)


def test_names_of_small_blocks_are_a_gap_apart():
    axis = figures.block_heatmaps({"one": W}, list("uvwxyz"), "somewhere").axes[0]
    np.testing.assert_allclose(np.diff([text.get_position()[1] for text in axis.texts]), 3.4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12).map(sorted), st.floats(0.5, 5))
def test_names_are_spaced_in_order_and_moved_only_if_needed(places, gap):
    spaced = figures.space_out(places, gap)
    assert (np.diff(spaced) >= gap - 1e-9).all()
    assert np.mean(spaced) == pytest.approx(np.mean(places))  # as many up as down
    if (np.diff(places) >= gap).all():
        np.testing.assert_allclose(spaced, places, atol=1e-9)


def test_the_heaviest_edges_are_drawn_those_between_groups_in_red():
    axis = drawn_sector_graph().axes[0]
    between, within = axis.collections[:2]
    assert (len(between.get_segments()), len(within.get_segments())) == (3, 4)
    np.testing.assert_allclose(between.get_colors()[0][:3], matplotlib.colors.to_rgb(plots.COLOURS["L2G"]))
    assert max(within.get_linewidths()) == pytest.approx(3.4)
    assert [text.get_text() for text in axis.get_legend().texts] == ["a", "b", "c"]
    assert {text.get_text() for text in axis.texts} == set("uvwxyz")


def test_so_many_edges_are_drawn_by_default(monkeypatch):
    labels = np.repeat(["a", "b"], [10, 12])
    w = torch.arange(1.0, 232)  # 22 nodes
    edges = figures.sector_graph(w, range(22), labels, "somewhere").axes[0].collections[:2]
    assert sum(len(part.get_segments()) for part in edges) == 220
    thresholds = []
    monkeypatch.setattr(
        "nilearn.plotting.plot_connectome", lambda *args, edge_threshold, **options: thresholds.append(edge_threshold)
    )
    regions = pd.DataFrame({"network": labels, "x": 0.0, "y": 0.0, "z": 0.0})
    figures.connectomes({"one": w}, regions, "somewhere")
    assert (w >= thresholds[0]).sum() == 60


def test_groups_are_circles_on_a_circle():
    labels = np.repeat(list("abcd"), [3, 5, 1, 9])
    layout = figures.circle_of_circles(labels)
    assert list(layout) == list(range(18))
    places = np.array(list(layout.values()))
    centres = np.array([places[labels == name].mean(0) for name in "abcd"])
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 1, atol=0.04)  # a single node is a little off
    turns = np.diff(np.unwrap(np.arctan2(centres[:, 1], centres[:, 0])))
    assert (turns > 0).all() and turns.sum() < 2 * np.pi  # one after the other, once around
    spread = [np.linalg.norm(places[labels == name] - centre, axis=1) for name, centre in zip("abcd", centres)]
    assert all(np.ptp(radius) < 1e-9 for radius in spread)
    assert spread[2].item() == pytest.approx(0, abs=0.04)
    radii = [radius.mean() for radius in spread]
    assert radii[0] < radii[1] < radii[3]
    distance = np.linalg.norm(centres - np.roll(centres, 1, 0), axis=1)
    assert (distance > np.array(radii) + np.roll(radii, 1)).all()  # and they do not touch


def test_stability_tells_groups_and_sources_apart():
    figure = drawn_stability()
    axis = figure.axes[0]
    marks = [
        (line.get_marker(), line.get_color(), *line.get_xydata()[0]) for line in axis.lines if len(line.get_xdata())
    ]
    marks = [mark for mark in marks if mark[0] in ("o", "x")]
    blue, red = figures.GROUP_COLOURS.values()
    assert marks == [("o", blue, 0.5, 1.12), ("o", red, 0.4, 0.88), ("x", blue, 0.8, 0.12)]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["L2G", "PDS"]
    assert [text.get_text() for text in figure.legends[0].texts] == ["control", "autism", "the paper's"]
    assert len(figure.axes[1].containers) == 2


def test_connectomes_share_a_colour_scale_and_keep_the_heaviest_edges(monkeypatch):
    seen = []
    monkeypatch.setattr("nilearn.plotting.plot_connectome", lambda *args, **options: seen.append((args, options)))
    figures.connectomes({"one": W, "two": W / 10}, REGIONS, "somewhere", n_edges=4)
    matrices = [args[0] for args, _ in seen]
    assert [options["edge_vmax"] for _, options in seen] == [5, 5]
    assert [(W >= o["edge_threshold"]).sum() / 2 for W, (_, o) in zip(matrices, seen, strict=True)] == [4, 4]
    colours = seen[0][0][2]
    assert colours[0] == colours[1] and len(set(colours)) == 3
    tops = [options["axes"][1] + options["axes"][3] for _, options in seen]
    assert tops[0] > seen[0][1]["axes"][1] > tops[1] > seen[1][1]["axes"][1] > 0
    seen.clear()
    figures.connectomes({"one": W}, REGIONS, "somewhere", n_edges=4, vmax=2)
    assert seen[0][1]["edge_vmax"] == 2
