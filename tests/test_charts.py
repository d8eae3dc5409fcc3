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


def drawn_ladder():
    steps = ["text", "slope", "ours"]
    means = tidy(text=[0.2], slope=[0.3], ours=[0.1], **{"Unrolling (ours)": [0.15], "other": [9.0]})
    means = pd.concat([means, means.assign(family="ER", value=2 * means.value)])
    trainings = tidy(text=[0.1, 0.3], ours=[0.09, 0.11], other=[5.0]).assign(ci=np.nan)
    return charts.ladder(means, trainings, steps, "Unrolling (ours)")


def drawn_limits():
    values = {"PDS": 0.4, "L2G": 0.1, "EquivariantL2G (mixed)": 0.004, "GLAD (newton_schulz)": 0.9}
    ours = pd.concat([tidy(**{model: [v] for model, v in values.items()}).assign(family=f) for f in ("BA", "WS")])
    ours.loc[ours.model == "PDS", "value"] = [1.0, 0.1]
    trainings = tidy(L2G=[0.08, 0.12]).assign(ci=np.nan)
    paper = pd.concat([tidy(PDS=[0.5], L2G=[0.06]), tidy(**{"GLAD (newton_schulz)": [1.1]}).assign(metric="nmse")])
    bounds = tidy(least=[0.002], middle=[0.003], constant=[0.005])
    return charts.limits(ours, trainings, paper, pd.concat([bounds, bounds.assign(family="WS", value=0.01)]))


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


def drawn_cost():
    search = pd.DataFrame({"metric": "search", "x": [10, 100, 1000, 10_000], "value": [0.1, 1.0, 5, 60]})
    return charts.cost(pd.concat([search, search.assign(metric="solve", value=search.value / 10)]), 100)


def drawn_reliability():
    curve = [0.1, 0.5, 0.9], [0.2, 0.4, 0.95], [999, 9, 99]
    return charts.reliability({"N = 30": {"BA": curve, "WS": (*curve[::-1][1:], curve[2])}, "N = 300": {"BA": curve}})


def drawn_curves():
    frame = tidy(few=[0.3, 0.5, 0.9], many=[0.6, 0.8, 1.0])
    return charts.curves(frame, {"t": {"xlabel": "samples", "ticks": (1, 3)}})


def drawn_comparison():
    frame = tidy(
        **{"GraphLearner": [0.01], 'GraphLearner (prior="mixed")': [0.02], "Eq. (4)": [0.3], "Correlations": [0.0]}
    )
    frame = pd.concat([frame, frame.assign(family="WS, rewired", value=frame.value / 2)])
    frame = pd.concat([frame.assign(metric="F1"), frame.assign(metric="wrong pairs", value=1 - frame.value)])
    published = {"BA": 0.1, "WS, rewired": 0.05}
    return charts.comparison(frame, ["F1", "wrong pairs"], "GraphLearner", published, log_from=1e-2, width=2)


def drawn_learning_curves():
    return charts.learning_curves({"first": [1.0, 0.5, 0.8, 0.4, 0.6, 0.3], "second": [3.0, 2.0, 1.0]}, window=2)


def drawn_agreement():
    exact = np.array([[[0.7, 0.3, 0.0], [0.0, 0.2, 0.8]]])
    return charts.agreement({"signed": (exact, exact[..., [0, 1, 2]]), "5 nodes": (np.eye(3)[None, :2], exact)})


DRAWN = {name[6:]: draw for name, draw in list(globals().items()) if name.startswith("drawn_")}


def test_each_panel_has_a_letter_and_names_its_measure():
    frame = pd.concat(
        [tidy(a=[0.5]).assign(table=t, metric=m, x=1.0, ci=0.1) for t, m in (("t", "F1"), ("u", "F1"), ("v", "share"))]
    )
    figure = charts.curves(frame, {t: {"xlabel": t, "ticks": (1,)} for t in "tuv"})
    assert [axis.get_ylabel() for axis in figure.axes] == ["F1", "F1", "share"]
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["a", "b", "c"]


@pytest.mark.parametrize("name", DRAWN)
def test_charts_look_as_they_did(name, compare_with_picture):
    compare_with_picture(DRAWN[name](), name)


def test_a_ladder_shows_its_steps_in_order_with_every_training():
    figure = drawn_ladder()
    ba, er = figure.axes
    assert [text.get_text() for text in ba.get_xticklabels()] == ["text", "slope", "ours"]
    assert (ba.get_title(), er.get_title(), ba.get_yscale()) == ("BA", "ER", "log")
    mean, single, level = ba.lines[0], ba.lines[-2], ba.lines[-1]
    assert mean.get_xydata().tolist() == [[0, 0.2], [1, 0.3], [2, 0.1]]
    assert single.get_xydata().tolist() == [[0, 0.1], [0, 0.3], [2, 0.09], [2, 0.11]]
    assert list(level.get_ydata()) == [0.15, 0.15]
    assert er.lines[0].get_ydata().tolist() == [0.4, 0.6, 0.2]
    assert not er.lines[-2].get_xydata().size  # trainings of another family
    bars = ba.containers[0][2][0].get_segments()
    assert [bar[1][1] - bar[0][1] for bar in bars] == pytest.approx([0.04, 0.06, 0.02])
    assert [t.get_text() for t in figure.legends[0].texts] == ["one training", "Unrolling (ours)", "mean"]


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


def test_limits_are_lines_and_methods_are_sorted_by_their_error():
    figure = drawn_limits()
    left, right = figure.axes
    rows = [text.get_text() for text in left.get_yticklabels()]
    assert rows == ["EquivariantL2G (mixed)", "L2G", "PDS", "GLAD (newton_schulz)"], "by the mean of the logarithm"
    bounds = {line.get_linestyle(): line.get_xdata()[0] for line in left.lines if len(set(line.get_xdata())) == 1}
    assert {"-": 0.002, "--": 0.003, ":": 0.005}.items() <= bounds.items()
    assert left.patches[0].get_x() + left.patches[0].get_width() == pytest.approx(0.002)
    assert right.patches[0].get_x() + right.patches[0].get_width() == pytest.approx(0.01)
    points = [(m[0].get_marker(), *m[0].get_xydata()[0]) for m in left.containers if m[0].get_xydata().size]
    assert ("x", 0.06, 1) in points and ("x", 0.5, 2) in points
    assert ("s", 1.1, 3) in points and ("x", 1.1, 3) not in points, "another measure, another mark"
    assert ("o", 0.004, 0) in points
    own = [m[0] for m in left.containers if m[0].get_xydata().tolist() == [[0.004, 0]]]
    assert own[0].get_mfc() == own[0].get_color() == plots.COLOURS["EquivariantL2G"]
    assert not any("x" == m[0].get_marker() and m[0].get_xydata().size for m in right.containers)
    legend = [text.get_text() for text in figure.legends[0].texts]
    ours = ["ours", "ours, one training"]
    assert legend == ["least", "middle", "constant", *ours, "the paper's", "the paper's, as NMSE"]


def test_cost_has_a_gap_where_the_search_changes_and_slopes_from_there_on():
    axis = drawn_cost().axes[0]
    lines = [(line.get_label(), list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines]
    assert lines[0] == ("neighbour search", [10, 100], [0.1, 1.0])
    assert lines[1] == ("neighbour search", [1000, 10_000], [5, 60])
    assert lines[2] == ("slope 1", [1000, 10_000], pytest.approx([5, 50]))
    assert lines[3] == ("slope 1.5", [1000, 10_000], pytest.approx([5, 5 * 10**1.5]))
    assert lines[4] == ("solution", [10, 100, 1000, 10_000], pytest.approx([0.01, 0.1, 0.5, 6]))
    assert lines[5] == ("slope 1", [1000, 10_000], pytest.approx([0.5, 5]))
    assert set(axis.lines[-1].get_xdata()) == {100}
    texts = [text.get_text() for text in axis.get_legend().texts]
    assert texts == ["neighbour search", "solution", "slope 1", "slope 1.5"]


def test_reliability_has_one_line_per_family():
    left, right = drawn_reliability().axes
    assert [line.get_label() for line in left.lines[1:]] == ["BA", "WS"]
    assert left.lines[1].get_xydata().tolist() == [[0.1, 0.2], [0.5, 0.4], [0.9, 0.95]]
    assert left.lines[1].get_color() == right.lines[1].get_color() != left.lines[2].get_color()
    assert left.collections[0].get_sizes().tolist() == pytest.approx([24, 8, 16])
    assert (left.get_title(), right.get_title()) == ("N = 30", "N = 300")


def test_agreement_shows_signs_that_there_are():
    left, right = drawn_agreement().axes
    positive, negative = left.collections
    assert positive.get_offsets().tolist() == [[0.3, 0.3], [0.2, 0.2]]
    assert negative.get_offsets().tolist() == [[0.0, 0.0], [0.8, 0.8]]
    (only,) = right.collections
    assert only.get_offsets().tolist() == [[0.0, 0.3], [1.0, 0.2]]
    assert (left.get_ylabel(), right.get_title()) == ("the network's probability", "5 nodes")
    legend = left.figure.legends[0]
    assert [text.get_text() for text in legend.texts] == ["positive edge", "negative edge"]
    colours = [tuple(dots.get_facecolor()[0, :3]) for dots in left.collections]
    assert [(tuple(line.get_color()), line.get_alpha()) for line in legend.get_lines()] == [(c, None) for c in colours]


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


def test_lines_of_a_sweep_can_stand_side_by_side():
    frame = tidy(PDS=[3.0, 2], L2G=[1.0, 1], ADMM=[0.5, 0.2])
    figure = charts.sweep(frame, "x", {"gmse": {}}, {"PDS": "s-", "L2G": "o-", "ADMM": "v-"}, dodge=1.1)
    places = [bars[0].get_xdata() for bars in figure.axes[0].containers]
    assert places == [pytest.approx([x, 2 * x]) for x in (1 / 1.1, 1, 1.1)]


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
