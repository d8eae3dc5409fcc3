"""Each type of chart, drawn from made-up numbers and compared with its picture in tests/pictures/ (see conftest.py)."""

import numpy as np
import pandas as pd
import pytest

from helpers import plots
from helpers.experiments import charts

pytestmark = pytest.mark.usefixtures("drawing")
PANELS = {"t": {"title": "a panel", "xlabel": "iterations", "ylabel": "GMSE"}}


def tidy(**columns):
    """A tidy frame of one metric with an interval of 10 %, from {model: values}."""
    lines = [pd.DataFrame({"model": model, "value": v, "x": np.arange(1, len(v) + 1)}) for model, v in columns.items()]
    frame = pd.concat(lines, ignore_index=True)
    return frame.assign(table="t", family="BA", metric="gmse", ci=0.1 * frame.value)


def drawn_recovery():
    ours = pd.concat([tidy(PDS=[0.4], L2G=[0.1], **{"L2G (ours)": [0.02]}).assign(family=f) for f in ("BA", "WS")])
    trainings = tidy(**{"L2G": [0.08, 0.12], "L2G (ours)": [0.018, 0.022]}).assign(ci=np.nan)
    paper = tidy(PDS=[0.5], L2G=[0.06], GLAD=[3.0])
    return charts.recovery(ours, trainings, paper)


def drawn_sweep():
    frame = tidy(PDS=[3.0, 2, 1], reference=[1.0, 1, 1], **{"L2G (shuffled ids)": [2.0, 1, 0.5]})
    panels = {"gmse": {"title": "Error", "yscale": "log", "xlabel": "sigma"}, "auc": {"title": "AUC"}}
    frame = pd.concat([frame, frame.assign(metric="auc", value=frame.value / 4)])
    return charts.sweep(frame, "x", panels, {"PDS": "s-", "L2G (shuffled ids)": "o:", "reference": "-."})


def drawn_convergence():
    many = list(np.geomspace(2, 0.1, 12))
    frame = tidy(PDS=many, **{"PDS (tuned)": many[::2], "PDS (slow)": [2.0, 1], "L2G": [1.0, 0.5, 0.2]})
    return charts.convergence(pd.concat([frame, frame.assign(table="u")]), PANELS | {"u": {}}, rows=2)


def drawn_training():
    frame = tidy(small=[3.0, 2, 1], large=list(np.linspace(9, 4, 12)))
    panels = PANELS | {"u": {"yscale": "log"}}
    return charts.training(pd.concat([frame, frame.assign(table="u")]), panels, ["small", "large"])


def drawn_curves():
    frame = tidy(few=[0.3, 0.5, 0.9], many=[0.6, 0.8, 1.0])
    return charts.curves(frame, {"t": {"xlabel": "samples", "ticks": (1, 3)}})


DRAWN = {name[6:]: draw for name, draw in list(globals().items()) if name.startswith("drawn_")}


@pytest.mark.parametrize("name", DRAWN)
def test_charts_look_as_they_did(name, compare_with_picture):
    compare_with_picture(DRAWN[name](), name)


def test_recovery_shows_means_single_trainings_and_the_papers_numbers():
    """Numbers of the paper for methods that we do not have are left out."""
    figure = drawn_recovery()
    axis = figure.axes[0]
    assert [text.get_text() for text in axis.get_yticklabels()] == ["L2G (ours)", "L2G", "PDS"]
    assert axis.get_xscale() == "log"
    marks = {container.get_label(): container[0] for container in axis.containers}
    points = {label: sorted(map(tuple, line.get_xydata().tolist())) for label, line in marks.items()}
    assert points == {
        "ours, mean": [(0.02, 0), (0.1, 1), (0.4, 2)],
        "ours, one training": [(0.018, 0), (0.022, 0), (0.08, 1), (0.12, 1)],
        "the paper's": [(0.06, 1), (0.5, 2)],
    }
    assert [line.get_marker() for line in marks.values()] == ["o", "o", "x"]
    assert [line.get_mfc() for line in marks.values()][1] == "none"
    assert [text.get_text() for text in figure.legends[0].texts] == list(points)
    bars = axis.containers[0][2][0].get_segments()
    assert sorted(bar[1][0] - bar[0][0] for bar in bars) == pytest.approx([0.004, 0.02, 0.08])
    assert not figure.axes[1].containers[1][0].get_xydata().size  # trainings of another family


def test_a_sweep_tells_models_variants_and_references_apart():
    figure = drawn_sweep()
    pds, variant, reference = figure.axes[0].containers
    assert pds[0].get_color() == pds[0].get_mfc() == plots.COLOURS["PDS"]
    assert (variant[0].get_color(), variant[0].get_mfc()) == (plots.COLOURS["L2G"], "white")
    assert reference[0].get_color() == "#555555"
    ours = charts.sweep(tidy(**{"L2G (ours)": [1.0, 2]}), "x", {"gmse": {}}, {"L2G (ours)": "o-"}).axes[0].containers[0]
    assert ours[0].get_mfc() == plots.COLOURS["L2G"]
    assert [text.get_text() for text in figure.legends[0].texts] == ["PDS", "L2G (shuffled ids)", "reference"]
    assert figure.axes[1].containers[0][0].get_ydata().tolist() == [0.75, 0.5, 0.25]


def test_variants_of_a_model_differ_in_dashes():
    axis = drawn_convergence().axes[0]
    assert [line.get_linestyle() for line in axis.lines] == ["-", "--", ":", "-"]
    assert [line.get_marker() for line in axis.lines] == ["", "o", "o", "o"]
    assert axis.lines[0].get_color() == axis.lines[2].get_color() != axis.lines[3].get_color()
    assert axis.get_yscale() == "log" and axis.get_title() == "a panel"


def test_convergence_shows_the_error_only():
    frame = tidy(L2G=[1.0, 0.5])
    other = frame.assign(metric="gmse difference")
    assert len(charts.convergence(pd.concat([frame, other]), PANELS).axes[0].lines[0].get_xdata()) == 2


def test_a_curve_of_ten_points_has_no_markers():
    axis = charts.convergence(tidy(PDS=[1.0] * 9, L2G=[1.0] * 10), PANELS).axes[0]
    assert [line.get_marker() for line in axis.lines] == ["o", ""]


@pytest.mark.parametrize(
    "draw, shared",
    [
        (lambda frame: charts.convergence(frame, {"t": {}, "u": {}}), True),
        (lambda frame: charts.curves(frame, {table: {"xlabel": "x", "ticks": (1, 2)} for table in "tu"}), True),
        (lambda frame: charts.training(frame, {"t": {}, "u": {}}, ["L2G"]), False),
    ],
)
def test_each_panel_shows_its_own_table(draw, shared):
    left, right = draw(pd.concat([tidy(L2G=[1.0, 0.5]), tidy(L2G=[9.0, 4.0]).assign(table="u")])).axes
    assert left.lines[0].get_ydata().tolist() == [1.0, 0.5]
    assert right.lines[0].get_ydata().tolist() == [9.0, 4.0]
    assert left.get_shared_y_axes().joined(left, right) == shared
