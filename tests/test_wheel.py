"""What is built from this tree: a complete source distribution, and from it a wheel that works on its own."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from test_packaging import CORE, LOCK, PROJECT, PROVIDED_BY, ROOT, reachable

# One worker builds once, for all tests of this file.
pytestmark = pytest.mark.xdist_group("wheel")

# One process does both, the learning first: loading the package takes longer than either.
LEARN_THEN_IMPORT_ALL = """
import importlib, json, pkgutil, sys
class Blocked:
    def find_spec(self, name, *_):
        if name.split(".")[0] in blocked:
            raise ModuleNotFoundError(name)
blocked = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Blocked())
import matplotlib
import numpy as np
matplotlib.use("Agg")
import helpers
from helpers import GraphLearner
rng = np.random.default_rng(0)
A = np.triu(rng.random((20, 20)) < 0.2, 1)
L = np.diag((A + A.T).sum(0)) - A - A.T
X = rng.multivariate_normal(np.zeros(20), np.linalg.inv(L + 0.01 * np.eye(20)), 500)
learner = GraphLearner().fit(X)
learner.plot()
assert "</iframe>" in learner.explore()._repr_html_()
found = learner.adjacency_ > 0
for options in ({"method": "mle"}, {"method": "exact"}, {"method": "pds"}, {"method": "unrolling"}, {"candidates": 8}):
    GraphLearner(**options, verbose=False).fit(X)
counts = [int((found & (A + A.T)).sum()), int(found.sum()), int((A + A.T).sum())]

sys.meta_path.pop(0)
names = [m.name for m in pkgutil.walk_packages(helpers.__path__, "helpers.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(json.dumps([helpers.__file__, counts, names]))
"""


def python(*arguments, cwd, **environment):
    """Run this Python in a folder; returns the last line that it prints."""
    inherited = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "L2G_DATA"}}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=inherited | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().rpartition("\n")[2]


def tracked_files():
    """Paths of this tree that git has or would add, relative to its root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return {name for name in names if (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the source distribution of a copy of this tree, the wheel that is built from it, and `target`,
    where that wheel is installed without its dependencies; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("built")
    unwanted = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "build", "_build", "dist", "*.egg-info", ".*_cache", "raw"
    )
    tree = shutil.copytree(ROOT, folder / "tree", ignore=unwanted)
    python("-c", f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})", cwd=tree)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    python("-c", f"from setuptools import build_meta; build_meta.build_wheel({str(folder)!r})", cwd=source)
    (wheel,) = folder.glob("*.whl")
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index", "--no-compile")
    python(*pip, "--target", str(folder / "target"), str(wheel), cwd=folder)
    return folder


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git repository to compare with")
def test_the_source_distribution_is_the_repository(built):
    source = built / f"l2g_reproduction-{PROJECT['version']}"
    packed = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert tracked_files() - packed == set()
    made = {name for name in packed if name.startswith(("l2g_reproduction.egg-info/", "build/"))}
    assert packed - tracked_files() - made == {"PKG-INFO", "setup.cfg"}


def test_the_wheel_has_the_package_and_its_weights_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name for name in names if ".dist-info/" not in name}
    tree = {path.relative_to(ROOT).as_posix() for path in (ROOT / "helpers").rglob("*") if path.is_file()}
    assert package == {name for name in tree if "__pycache__" not in name and ".resume." not in name}
    assert "helpers/py.typed" in package
    assert any(name.startswith("helpers/weights/") and name.endswith(".safetensors") for name in package)
    network = zipfile.ZipFile(wheel).getinfo("helpers/weights/broad.safetensors")
    assert network.file_size < 2_000_000  # GraphLearner's default may weigh so much, and
    assert wheel.stat().st_size - network.compress_size < 700_000  # everything else no more than ever
    entry_points = zipfile.ZipFile(wheel).read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    assert f"l2g = {PROJECT['scripts']['l2g']}" in entry_points


@pytest.fixture(scope="module")
def used(built, tmp_path_factory):
    """What becomes of the installed wheel in an empty folder, with the core dependencies only and then with all.

    Where the package is, [right edges found, edges found, true edges], names of the modules that were imported.
    """
    foreign = LOCK.keys() - reachable(CORE)
    blocked = [name for name, packages in PROVIDED_BY.items() if {canonicalize_name(p) for p in packages} <= foreign]
    assert {"nilearn", "faiss", "nbformat"} <= set(blocked)
    empty = tmp_path_factory.mktemp("empty")
    # compiling the kernels for this folder would take longer than running them uncompiled
    setting = {"PYTHONPATH": str(built / "target"), "NUMBA_DISABLE_JIT": "1"}
    printed = python("-c", LEARN_THEN_IMPORT_ALL, json.dumps(blocked), cwd=empty, **setting)
    assert list(empty.iterdir()) == [], "it left files behind"
    return json.loads(printed)


def test_graph_learner_works_in_an_empty_folder_with_its_core_dependencies_only(built, used):
    file, (n_right, n_found, n_true), _ = used
    assert Path(file).is_relative_to(built / "target")
    assert n_right >= 0.8 * n_true
    assert n_right >= 0.8 * n_found


def test_every_module_of_the_wheel_can_be_imported(used):
    _, _, names = used
    assert {"helpers.rivals.glad", "helpers.beyond.equivariant", "helpers.experiments.runs"} <= set(names)
    files = {path.relative_to(ROOT) for path in (ROOT / "helpers").rglob("*.py") if path.stem != "__main__"}
    assert len(names) == len(files) - 1  # helpers itself
