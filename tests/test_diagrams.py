"""Diagrams say what is true of the model that they are given; the figures of one graph show its numbers."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from helpers import plots
from helpers.experiments import diagrams
from helpers.experiments.diagrams import Box
from helpers.models import L2G, TopoDiffVAE
from helpers.solvers import Certificate

pytestmark = pytest.mark.usefixtures("drawing")
W = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.0, 3.0], dtype=torch.float64)  # 4 nodes, 3 edges


def boxes(figure):
    """{name: what it says} of all boxes of a diagram."""
    return {text.get_gid(): text.get_text() for text in figure.axes[0].texts if text.get_gid()}


def arrows(figure):
    """The arrows of a diagram as "start->end"."""
    patches = (getattr(text, "arrow_patch", None) for text in figure.axes[0].texts)
    return {patch.get_gid() for patch in patches if patch is not None}


def shapes(said):
    """The last line of each box, where shapes stand."""
    return {name: text.splitlines()[-1] for name, text in said.items()}


# --- boxes and arrows ----------------------------------------------------------------------------------------------


def test_an_arrow_goes_from_one_box_to_the_other():
    figure = diagrams.draw(
        {"a": Box("A", 1, 1), "b": Box("B", 3, 2, "trained")}, {("a", "b"): "ab"}, size=(4, 3), limits=(4, 3)
    )
    (axis,) = figure.axes
    assert boxes(figure) == {"a": "A", "b": "B"} and arrows(figure) == {"a->b"}
    (arrow,) = [text for text in axis.texts if getattr(text, "arrow_patch", None)]
    assert (arrow.xyann, arrow.xy) == ((1, 1), (3, 2)), "from a to b"
    assert "ab" in [text.get_text() for text in axis.texts]
    frames = [text.get_bbox_patch() for text in axis.texts[:2]]
    assert (arrow.arrow_patch.patchA, arrow.arrow_patch.patchB) == tuple(frames), "it ends at the frames"
    assert plt.matplotlib.colors.to_hex(frames[1].get_facecolor()) == diagrams.FACES["trained"]
    assert axis.get_xlim() == (0, 4) and axis.get_ylim() == (0, 3)


@pytest.mark.parametrize("shape, text", [((190,), "190"), ((20, 32), "20 × 32"), ((), "")])
def test_shapes_are_written_for_people(shape, text):
    assert diagrams.write_shape(shape) == text


# --- TopoDiffVAE ---------------------------------------------------------------------------------------------------


@pytest.fixture
def vae():
    """Every size occurs once: 7 nodes are 21 pairs."""
    return TopoDiffVAE(7, n_hidden=3, n_decoder=11, n_latent=5, readout="mean")


def test_shapes_are_those_of_the_autoencoder(vae):
    found = {name: tuple(shape) for name, shape in diagrams.vae_shapes(vae, 7).items()}
    assert found == {
        "r1": (21,), "A": (7, 7), "h0": (1, 3), "H1": (3, 6), "delta": (5,), "mean": (5,), "spread": (5,), "z": (5,),
        "joined": (26,), "hidden": (11,), "p1": (21,),
    }  # fmt: skip


def test_the_diagram_of_the_autoencoder_has_its_shapes(vae):
    said = boxes(diagrams.topodiffvae(vae, 7))
    assert shapes(said) == {
        "w": "21", "r1": "21", "A_w": "7 × 7", "A_r": "7 × 7", "f_emb": "mean over nodes", "delta": "5", "mean": "5",
        "spread": "5", "z": "5", "prior": r"$\mathbf{z}\sim N(0, I)$", "joined": "26", "decoder": "hidden: 11, tanh",
        "p1": "21",
    }  # fmt: skip
    assert "1 × 3" in said["f_emb"] and "3 × 6" in said["f_emb"]


def test_what_the_decoder_sees_comes_from_the_estimate_and_the_code(vae):
    """And the truth reaches it through the encoder only."""
    found = arrows(diagrams.topodiffvae(vae, 7))
    assert {arrow for arrow in found if arrow.endswith(("->joined", "->decoder", "->p1"))} == {
        "r1->joined", "z->joined", "joined->decoder", "decoder->p1"
    }  # fmt: skip
    assert {arrow for arrow in found if arrow.endswith("->z")} == {"mean->z", "spread->z", "prior->z"}
    assert {arrow for arrow in found if arrow.startswith(("w->", "A_", "f_emb->", "delta->"))} == {
        "w->A_w", "A_w->f_emb", "A_r->f_emb", "f_emb->delta", "delta->mean", "delta->spread"
    }  # fmt: skip
    assert "r1->A_r" in found and len(found) == 14


def test_what_is_trained_is_marked(vae):
    kinds = {name: box.kind for name, box in diagrams.vae_boxes(vae, 7).items()}
    assert {name for name, kind in kinds.items() if kind == "trained"} == {"f_emb", "mean", "spread", "decoder"}


# --- the whole network ---------------------------------------------------------------------------------------------


@pytest.fixture
def model():
    model = L2G(4, n_layers=6)
    with torch.no_grad():
        model.unrolling.theta.copy_(torch.arange(18.0).reshape(6, 3))
    return model


def test_the_overview_shows_the_layers_of_the_model(model):
    path = W * torch.tensor([0.0, 0.5, 9, 9, 0.9, 1.0], dtype=torch.float64)[:, None]
    figure = diagrams.overview(model, path, W, 321)
    said = boxes(figure)
    assert list(said) == ["X", "y", "layer 1", "layer 2", "between", "layer 5", "layer 6", "w_hat"]
    assert shapes(said)["X"] == "321 × 4" and shapes(said)["y"] == shapes(said)["w_hat"] == "6"
    assert said["layer 2"].splitlines() == ["layer 2", r"$\alpha$ = 3.00", r"$\beta$ = 4.00", r"$\gamma$ = 5.000"]
    assert said["layer 5"].splitlines()[1:] == [r"$\alpha$ = 12.00", r"$\beta$ = 13.00", r"$\gamma$ = 14.000"]
    assert "TopoDiffVAE" in said["layer 6"]
    names = list(said)
    assert arrows(figure) == {f"{a}->{b}" for a, b in zip(names, names[1:])}  # noqa: RUF007


def test_the_overview_shows_estimates_with_their_errors(model):
    path = W * torch.tensor([0.0, 0.5, 9, 9, 0.9, 1.0], dtype=torch.float64)[:, None]
    pictures = diagrams.overview(model, path, W, 321).axes[0].child_axes
    below = [axis.get_xlabel().splitlines() for axis in pictures]
    errors = [["error 1.000", "5"], ["error 0.250", "4"], ["error 0.010", "1"], ["error 0.000", "0"]]
    assert below == [[error, rf"weight $\tau^{{{power}}}$"] for error, power in errors] + [[]]
    shown = [axis.images[0].get_array()[0].tolist() for axis in pictures]
    assert shown == [[0, x, 0, 2 * x] for x in (0, 0.5, 0.9, 1, 1)]
    assert {axis.images[0].get_clim() for axis in pictures} == {(0, 3)}, "one colour scale"


# --- one graph -----------------------------------------------------------------------------------------------------


def test_roughness_is_the_sum_over_edges():
    X = torch.tensor([[1.0, 2, 4, 8], [5, 5, 5, 5]], dtype=torch.float64)
    assert diagrams.roughness(W, X).tolist() == [1 * 1 + 2 * 49 + 3 * 16, 0]


def test_signals_on_a_graph():
    X = torch.tensor([[1.0, 1, 0, 0], [0, 9, 1, 1], [3, 0, 3, 0]], dtype=torch.float64)
    y = torch.arange(1.0, 7)
    graph, roughness, distances, _ = diagrams.signals_on_graph(W, X, y).axes
    nodes = graph.collections[-1].get_array()
    rough = diagrams.roughness(W, X) / (X - X.mean(1, keepdim=True)).square().sum(1)
    smoothest = X[rough.argmin()]
    assert nodes.tolist() == pytest.approx((smoothest - smoothest.mean()).tolist())
    assert graph.get_title() == "the smoothest of 3 signals"
    heights = [sum(bar.get_height() for bar in bars) for axis in (roughness, distances) for bars in axis.containers]
    assert heights == [3, 3, 3, 3], "three signals, and three pairs with and without an edge"
    first_edge = next(bar for bar in distances.containers[1] if bar.get_height())
    assert first_edge.get_x() == 1 and distances.get_legend_handles_labels()[1] == ["no edge", "edge"]


def test_weights_along_theta_are_relative_and_rescaled():
    theta = torch.tensor([0.1, 1.0, 10])
    weights = torch.stack([W / 2 + 0.5, 2 * W, W.clamp_min(1) * 0 + torch.tensor([0, 0, 0, 0, 0, 5.0])])
    left, right, count = diagrams.weight_paths(theta, weights, W).axes
    assert [line.get_color() for line in left.lines] == 3 * [diagrams.NO_EDGE] + 3 * [diagrams.EDGE]
    assert left.lines[3].get_ydata() == pytest.approx([0.5, 1 / 3, 0]), "the first edge, weight 1 of at most 3"
    assert right.lines[0].get_ydata()[1:] == pytest.approx([0, 5 / 14]), "a factor is no error"
    assert count.lines[0].get_ydata().tolist() == [6, 3, 1]
    assert count.lines[1].get_ydata() == [3, 3]


def test_approach_shows_the_certificate_above_the_true_gap():
    path = torch.stack([W, W + 1])
    proof = Certificate(torch.tensor([9.0, 5]), torch.tensor([1.0, 3]), torch.zeros(2), torch.zeros(2))
    left, right = diagrams.approach(path, W, proof, 4.0, W).axes
    assert [line.get_ydata().tolist() for line in left.lines] == [[8, 2], [5, 1]]
    assert left.get_yscale() == "log"
    assert right.lines[-1].get_ydata().tolist() == W.tolist()
    assert right.lines[0].get_ydata().tolist() == [0, 1] and right.lines[0].get_color() == diagrams.NO_EDGE


def test_the_strip_has_one_scale_and_the_error_below_each_layer():
    path = W * torch.tensor([0.0, 0.5, 0.9, 1.0])[:, None]
    *axes, _ = diagrams.layer_strip(path, W, (1, 2, 4), columns=2).axes
    assert [axis.get_title() for axis in axes] == ["layer 1", "layer 2", "layer 4", "truth"]
    assert [axis.get_xlabel() for axis in axes] == ["GMSE 1.000", "GMSE 0.250", "GMSE 0.000", ""]
    assert [axis.images[0].get_array()[0, 1] for axis in axes] == [0, 0.5, 1, 1]
    assert all(axis.images[0].get_clim() == (0, pytest.approx(3.6)) for axis in axes)


def test_parameters_of_each_layer():
    theta = torch.tensor([[1.0, 2, 3], [4, 5, -6]])
    figure = diagrams.parameters({"Unrolling": theta, "L2G (ours)": theta[:1]}, 0.12)
    for column, axis in enumerate(figure.axes):
        assert axis.lines[0].get_ydata().tolist() == theta[:, column].tolist()
        assert axis.lines[0].get_xdata().tolist() == [1, 2]
        assert axis.lines[1].get_color() == plots.COLOURS["L2G"]
    assert figure.axes[2].lines[2].get_ydata() == [0.12, 0.12] and len(figure.axes[0].lines) == 2
    assert [text.get_text() for text in figure.legends[0].texts][:2] == ["Unrolling", "L2G (ours)"]


def test_fixed_points_are_distances_from_the_solution():
    paths = {(name, gamma): W * x for name, x in (("a", torch.tensor([[0.0], [0.5]])), ("b", torch.ones(2, 1)))
             for gamma in (0.1, 0.2)}  # fmt: skip
    left, right = diagrams.fixed_points(paths, W).axes
    assert (left.get_title(), right.get_title()) == ("a", "b")
    assert [line.get_ydata().tolist() for line in left.lines] == [[1, 0.25], [1, 0.25]]
    assert np.all([line.get_ydata() for line in right.lines] == np.zeros((2, 2)))
    assert [line.get_label() for line in left.lines] == [r"$\gamma$ = 0.1", r"$\gamma$ = 0.2"]
