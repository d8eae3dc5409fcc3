"""A graph as a page to look at and to touch: one HTML file that needs no server and loads nothing.

The page is `helpers/viewer/`: a template, its style, the layout of the nodes and the viewer. Python only fills in the
graph. Names of nodes are data there, whatever signs they contain.
"""

import html
import json
from collections.abc import Mapping
from string import Template

import numpy as np

from .. import paths

FOLDER = paths.PACKAGE / "viewer"
SCRIPTS = ("layout.js", "viewer.js")
MAX_NODES = 2_000
MAX_EDGES = 100_000
DIGITS = 6  # of weights and probabilities


class Frame:
    """A page that Jupyter shows inline, in a frame of its own: nothing of it can reach the notebook."""

    def __init__(self, page, height):
        self.page = page
        self.height = height

    def _repr_html_(self):
        style = f"width: 100%; height: {self.height}px; border: 1px solid #d5dae1"
        rights = "allow-scripts allow-downloads"
        return f'<iframe title="Graph" sandbox="{rights}" style="{style}" srcdoc="{html.escape(self.page)}"></iframe>'


def page(graph, *, groups=None, title="Learned graph"):
    """The HTML of a page that shows a `networkx.Graph`, whose edges may have `weight` (else 1) and `probability`.

    groups : {node: name of its group}, or one name per node in the order of the nodes; None has no groups
    """
    script = "\n".join((FOLDER / name).read_text() for name in SCRIPTS)
    template = Template((FOLDER / "viewer.html").read_text())
    return template.substitute(
        title=html.escape(title),
        style=(FOLDER / "viewer.css").read_text(),
        script=script,
        graph=embed(describe(graph, groups, title)),
    )


def embed(data):
    """`data` as JSON that may stand in a script of a page: no sign in it ends the script."""
    return json.dumps(data, allow_nan=False).replace("<", r"\u003c")


def describe(graph, groups=None, title=""):
    """The graph as the page reads it: a dict of lists over nodes and over edges, see viewer.js."""
    _check_size(graph)
    number = {node: k for k, node in enumerate(graph)}
    edges = list(graph.edges(data=True))
    data = {
        "title": str(title),
        "names": [str(node) for node in graph],
        "group": None,
        "source": [number[a] for a, _, _ in edges],
        "target": [number[b] for _, b, _ in edges],
        "weight": _round([values.get("weight", 1) for *_, values in edges]),
        "probability": None,
    }
    if edges and all("probability" in values for *_, values in edges):
        data["probability"] = _round([values["probability"] for *_, values in edges])
    if groups is not None:
        member = _groups_of(graph, groups)
        data["groups"] = list(dict.fromkeys(member))
        data["group"] = [data["groups"].index(name) for name in member]
    return data


def _check_size(graph):
    for name, size, most in (("nodes", len(graph), MAX_NODES), ("edges", graph.number_of_edges(), MAX_EDGES)):
        if size > most:
            raise ValueError(
                f"graph has {size:,} {name}: a page holds up to {most:,}; show a part of it, such as "
                "viewer.page(learner.to_networkx().subgraph(nodes)), or raise min_probability"
            )
    if not len(graph):
        raise ValueError("graph has no nodes: there is nothing to show")


def _groups_of(graph, groups):
    """The name of each node's group, as text."""
    if isinstance(groups, Mapping):
        missing = [node for node in graph if node not in groups]
        if missing:
            raise ValueError(
                f"groups has no entry for {len(missing)} nodes, first {missing[:5]}: name a group for each"
            )
        groups = [groups[node] for node in graph]
    if isinstance(groups, str) or len(groups) != len(graph):
        raise ValueError(f"groups has {len(groups)} entries and the graph {len(graph)} nodes: one per node is needed")
    return [str(name) for name in groups]


def _round(values):
    values = [float(f"{value:.{DIGITS}g}") for value in values]
    if not np.isfinite(values).all():
        raise ValueError("graph has an infinite or missing weight or probability: finite ones are needed")
    return values
