"""The arrows of the package: who may import whom, no cycles, no private names, one test file per module."""

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from helpers import paths

PACKAGE = paths.ROOT / "helpers"

# A module may import what stands in a row above its own. A room (a folder) may also import from itself.
ROWS = (
    ("paths", "graphs"),
    ("engine",),
    ("signals",),
    ("metrics", "solvers"),
    ("plots",),
    ("models", "training"),
    ("rivals", "beyond", "real"),
    ("learner",),
    (
        "experiments.tables",
        "experiments.scale_free",
        "experiments.charts",
        "experiments.diagrams",
        "experiments.notebooks",
        "experiments.compilation",
    ),
    ("experiments.runs",),
    ("experiments.sweep", "experiments.methods", "experiments.authors"),
    ("experiments.scaling", "experiments.benchmarks"),
    ("experiments.stress",),
    ("experiments.exactness",),
    ("experiments.measure", "experiments.judging"),
    ("experiments.readings",),
    ("experiments.claims",),
    ("experiments.readme",),
    ("experiments.cli",),
    ("__init__", "__main__"),
)
# Arrows that the rows would allow and that are wrong all the same; so `learner` may look into `beyond` only.
WRONG = (("learner", "rivals"), ("learner", "real"), ("experiments", "learner"), ("__main__", "learner"))


def name(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


FILES = {name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {module: ast.parse(path.read_text()) for module, path in FILES.items()}


def imports(module, tree):
    """(module, name) of every import from this package: `from .graphs import degrees` is ("graphs", "degrees"),
    `from . import graphs` is ("graphs", ""); those inside functions as well."""
    folder = ["helpers", *module.split(".")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            origin = [*base, *(node.module or "").split(".")] if node.module else base
            found = [(origin, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [(alias.name.split("."), "") for alias in node.names]
        else:
            continue
        for origin, imported in found:
            if origin[0] == "helpers":
                inside = ".".join([*origin[1:], imported])
                yield (inside, "") if inside in FILES else (".".join(origin[1:]) or "__init__", imported)


def entry(module):
    """The entry of ROWS that the module belongs to: its own name, or its room's."""
    found = [e for row in ROWS for e in row if module == e or module.startswith(f"{e}.")]
    assert found, f"{module} has no place in ROWS: which modules may it import, and which may import it?"
    return found[0]


def is_right(a, b):
    """Whether module `a` may import module `b`."""
    if any(a.startswith(start) and b.startswith(end) for start, end in WRONG):
        return False
    place = {e: k for k, row in enumerate(ROWS) for e in row}
    return entry(a) == entry(b) or place[entry(b)] < place[entry(a)]


ARROWS = {module: {b for b, _ in imports(module, tree)} for module, tree in TREES.items()}


@pytest.mark.parametrize("module", [m for m in FILES if not m.endswith(".__init__")])
def test_arrows_point_one_way(module):
    wrong = [b for b in ARROWS[module] if not is_right(module, b)]
    assert not wrong, f"{module} must not import {wrong}"


def test_there_is_no_cycle():
    try:
        TopologicalSorter(ARROWS).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("module", FILES)
def test_no_private_name_of_another_module_is_used(module):
    found = list(imports(module, TREES[module]))
    modules = {b.rpartition(".")[2] for b, imported in found if not imported}
    private = [f"{b}.{imported}" for b, imported in found if imported.startswith("_")]
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            private += [f"{node.value.id}.{node.attr}"] if node.attr.startswith("_") else []
    assert not private


def test_the_importer_reads_every_form():
    text = "import helpers.graphs\nfrom helpers import paths\nfrom ..signals import observe\nfrom .glad import _x"
    tree = ast.parse(f"{text}\ndef f():\n    from .. import solvers, GraphLearner\n    import torch")
    found = [("graphs", ""), ("paths", ""), ("signals", "observe"), ("rivals.glad", "_x"), ("solvers", "")]
    assert list(imports("rivals.graphical_lasso", tree)) == [*found, ("__init__", "GraphLearner")]


def test_the_rule_is_as_the_design_says():
    assert is_right("learner", "beyond.candidates")
    assert is_right("beyond.equivariant", "beyond.candidates")
    assert is_right("experiments.runs", "rivals.glad")
    assert not is_right("training", "models")
    assert is_right("solvers", "engine.newton")
    assert not is_right("engine.newton", "solvers")
    assert not is_right("rivals.glad", "real.datasets")
    assert not is_right("beyond.limits", "learner")
    assert not is_right("experiments.runs", "learner")
    assert not is_right("signals", "experiments.runs")
    assert not is_right("learner", "rivals.glad")


def test_every_module_has_a_test_file_of_its_name():
    stems = [path.stem for path in FILES.values() if not path.stem.startswith("__")]
    assert len(stems) == len(set(stems)), "two modules of one name cannot both have their test file"
    missing = [stem for stem in stems if not (paths.ROOT / "tests" / f"test_{stem}.py").exists()]
    assert not missing
