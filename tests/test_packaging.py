"""The files that describe the environment agree, and the commands that build it behave."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
LOCK_LINES = [s for s in (ROOT / "requirements.lock").read_text().splitlines() if not s.startswith("#")]
LOCK = {canonicalize_name(name): version for name, _, version in (s.partition("==") for s in LOCK_LINES)}

PROJECT = PYPROJECT["project"]
CORE = [Requirement(r) for r in PROJECT["dependencies"]]
EXTRAS = {extra: [Requirement(r) for r in lines] for extra, lines in PROJECT["optional-dependencies"].items()}
DIRECT = {str(r): r for r in sum(EXTRAS.values(), CORE)}.values()  # some are in several extras
BUILD = [Requirement(r) for r in PYPROJECT["build-system"]["requires"]]

# Which extras each part of the package may use beside the core dependencies.
MAY_USE = {
    "engine": [],
    "rivals": [],
    "beyond": ["large", "notebooks"],  # pandas, for `to_pandas`
    "real": ["real"],
    "experiments": ["notebooks", "real", "dask"],
}
PROVIDED_BY = metadata.packages_distributions()  # {import name: names of packages}
USED_BY_NAME = {"jupyter", "dask"}  # never imported: the command that opens the notebooks, a back end of joblib

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


# --- lock, environment.yml, pyproject.toml, what is installed ----------------------------------------------


def test_lock_is_exact_pins_only():
    wrong = [line for line in LOCK_LINES if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)]
    assert not wrong, f"not of the form name==version, without host, path or local version: {wrong}"
    assert len(LOCK) == len(LOCK_LINES), "a package is pinned twice"


@pytest.mark.parametrize("requirement", [*DIRECT, *BUILD], ids=lambda r: r.name)
def test_lock_satisfies_pyproject(requirement):
    locked = LOCK.get(canonicalize_name(requirement.name))
    assert locked is not None, f"{requirement.name} of pyproject.toml is not in requirements.lock"
    assert requirement.specifier.contains(locked), f"locked {locked}, pyproject.toml {requirement}"


def test_environment_has_the_direct_dependencies_at_their_locked_versions():
    (pip_lines,) = (entry["pip"] for entry in ENVIRONMENT if isinstance(entry, dict))
    pins = dict(line.split("==") for line in pip_lines if not line.startswith("-"))
    assert pins == {r.name: LOCK[canonicalize_name(r.name)] for r in DIRECT}
    assert {s for s in pip_lines if s.startswith("-")} == {"--constraint requirements.lock", "--editable ."}


def test_environment_python_is_accepted_by_pyproject():
    (python,) = (e for e in ENVIRONMENT if isinstance(e, str) and e.startswith("python="))
    lowest = python.removeprefix("python=")
    assert PROJECT["requires-python"] == f">={lowest}"


def test_installed_versions_are_the_locked_ones():
    wrong = {}
    for name, locked in LOCK.items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = "missing"
        # the CPU and the CUDA builds of torch differ in their local version only
        if installed == "missing" or Version(installed).public != Version(locked).public:
            wrong[name] = f"{installed}, locked {locked}"
    assert not wrong, f"run make setup; installed differently: {wrong}"


def reachable(requirements):
    """Names of all packages that these requirements bring along, themselves included, as installed here."""
    reached = set()
    queue = [(r.name, r.extras) for r in requirements]
    while queue:
        name, extras = queue.pop()
        if (canonicalize_name(name), *sorted(extras)) in reached:
            continue
        reached.add((canonicalize_name(name), *sorted(extras)))
        for child in map(Requirement, metadata.requires(name) or []):
            wanted = not child.marker or any(child.marker.evaluate({"extra": e}) for e in ["", *extras])
            # what torch needs depends on its build, CUDA or not
            build_dependent = name == "torch" and canonicalize_name(child.name) not in LOCK
            if wanted and not build_dependent:
                queue.append((child.name, child.extras))
    return {entry[0] for entry in reached}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems need other indirect dependencies")
def test_lock_is_complete_and_has_nothing_unused():
    names = reachable([*DIRECT, *BUILD])
    assert not names - LOCK.keys(), "needed, but not in requirements.lock"
    if sys.version_info[:2] == (3, 11):  # newer Pythons do without some backports
        assert not LOCK.keys() - names, "in requirements.lock, but nothing needs it"


def test_torch_is_a_range_in_pyproject_and_exact_in_the_lock():
    (torch,) = (r for r in CORE if r.name == "torch")
    assert {s.operator for s in torch.specifier} == {">=", "<"}
    assert metadata.version("torch").split("+")[0] == LOCK["torch"]


def third_party(folder):
    """Names of the packages that the files of one folder import, {import name: file}; the standard library apart."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0]: path.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found[node.module.split(".")[0]] = path.name
    return {name: file for name, file in found.items() if name not in sys.stdlib_module_names | {"helpers"}}


def packages_of(folder):
    """The same by the names under which packages are installed, {package: file}."""
    return {canonicalize_name(PROVIDED_BY[name][0]): file for name, file in third_party(folder).items()}


@pytest.mark.parametrize("room", ["", *MAY_USE])
def test_every_import_is_a_declared_dependency_of_its_room(room):
    declared = sum((EXTRAS[extra] for extra in MAY_USE.get(room, [])), CORE)
    undeclared = packages_of(ROOT / "helpers" / room).keys() - {canonicalize_name(r.name) for r in declared}
    assert not undeclared, f"helpers/{room} imports {undeclared}, which are not among its dependencies"


def test_every_declared_dependency_is_used():
    used = set().union(*(packages_of(ROOT / "helpers" / room) for room in ("", *MAY_USE))) | USED_BY_NAME
    unused = {r.name for r in sum((EXTRAS[e] for e in EXTRAS.keys() - {"dev", "book"}), CORE)} - used
    assert not unused, "in pyproject.toml, but nothing imports it"


def test_every_package_of_the_book_is_named_in_its_settings():
    settings = re.sub("[-_.]+", "-", (ROOT / "book/conf.py").read_text())
    unused = {r.name for r in EXTRAS["book"]} - set(re.findall(r"[a-z0-9-]+", settings))
    assert unused <= {"sphinx"}, "in pyproject.toml, but book/conf.py does not name it"


def test_the_command_exists():
    module, _, function = PROJECT["scripts"]["l2g"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_one_version_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    latest = re.search(r"^## \[(\d\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.M).group(1)
    assert PROJECT["version"] == cited == latest


def test_helpers_is_imported_from_this_tree():
    import helpers

    assert Path(helpers.__file__).resolve().parent == ROOT / "helpers"
    assert metadata.version(PROJECT["name"]) == PROJECT["version"]


# --- what runs elsewhere -----------------------------------------------------------------------------------


def test_lint_comes_before_the_tests_wherever_they_run():
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    steps = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert steps == ["make setup", "make lint", "make test"]
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert [line for line in lines if line.startswith("make")] == ["make lint", "make test"]


def test_pre_commit_checks_what_lint_checks():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"].removeprefix(".venv/bin/python ") for hook in local["hooks"]]
    lint = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0].splitlines()[1:]
    commands = [line.strip().removeprefix("$(VENV) ").removesuffix(" .") for line in lint]
    assert [entry.removesuffix(" --force-exclude") for entry in entries] == commands


# --- Makefile ----------------------------------------------------------------------------------------------


def make(*arguments, cwd=ROOT):
    """Run make as from a terminal, not as a child of the make that may be running these tests."""
    inherited = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PYTHON"}
    environment = {k: v for k, v in os.environ.items() if k not in inherited}
    return subprocess.run(["make", *arguments], cwd=cwd, env=environment, capture_output=True, text=True)


@needs_make
def test_help_is_the_default_and_lists_every_public_target():
    makefile = (ROOT / "Makefile").read_text()
    public = {name for line in re.findall(r"^\.PHONY:(.*)$", makefile, re.M) for name in line.split()}
    listed = dict(re.findall(r"^  make (\S+) +(\S.*)$", make("help").stdout, re.M))
    assert set(listed) == public
    assert public >= {"reproduce", "test", "train", "lint", "format", "help", "clean"}
    assert make().stdout == make("help").stdout


# A stand-in for Python: `-m venv` puts a copy of it in .venv, every call is logged, `-m pip` fails on demand.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
    -c*) echo "$(cat "{folder}/version")" ;;
    *) echo "$*" >> "{folder}/log" ;;
esac
case "$*" in
    *venv*) rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *editable*) [ ! -e "{folder}/broken" ] ;;
esac
"""


UPDATE = ["pip", "pip", "helpers.experiments.compilation"]
NEW = ["venv", *UPDATE]


@pytest.fixture
def sandbox(tmp_path):
    """A folder with a space in its name and a set-up of no cost; setup() returns its calls of Python."""
    tree = tmp_path / "a tree"
    (tree / "helpers/engine").mkdir(parents=True)
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "helpers/engine/kernels.py"):
        shutil.copy(ROOT / name, tree / name)
    (tmp_path / "version").write_text("3.11.0")
    (tmp_path / "python").write_text(FAKE_PYTHON.format(folder=tmp_path))
    (tmp_path / "python").chmod(0o755)

    def setup():
        (tmp_path / "log").write_text("")
        done = make("setup", f"PYTHON={tmp_path / 'python'}", cwd=tree)
        calls = [line.split()[1] for line in (tmp_path / "log").read_text().splitlines()]
        return done, calls

    return tmp_path, tree, setup


@needs_make
def test_setup_is_done_once(sandbox):
    _, tree, setup = sandbox
    done, calls = setup()
    assert done.returncode == 0, done.stderr
    assert calls == NEW
    assert setup()[1] == []
    with (tree / "requirements.lock").open("a") as lock:
        lock.write("another==1.0\n")
    assert setup()[1] == UPDATE, "a changed lock is an update"
    assert setup()[1] == []
    with (tree / "helpers/engine/kernels.py").open("a") as kernels:
        kernels.write("# changed")
    assert setup()[1] == UPDATE, "changed kernels are compiled again"
    assert setup()[1] == []


@needs_make
def test_setup_starts_afresh_after_an_interruption(sandbox):
    folder, tree, setup = sandbox
    (folder / "broken").touch()
    assert setup()[0].returncode != 0
    assert setup()[1] == NEW[:-1]
    (folder / "broken").unlink()
    assert setup()[1] == NEW
    assert setup()[1] == []
    (folder / "broken").touch()
    (tree / "pyproject.toml").write_text("")
    assert setup()[1] == UPDATE[:-1]  # an update, which fails half-way
    assert setup()[1] == NEW[:-1]


@needs_make
def test_setup_starts_afresh_for_another_python_or_folder(sandbox):
    folder, tree, setup = sandbox
    setup()
    (folder / "version").write_text("3.12.1")
    assert setup()[1] == NEW
    (folder / "version").write_text("3.12.2")
    assert setup()[1] == []
    stamp = tree / ".venv" / ".stamp"
    stamp.write_text(stamp.read_text().replace("a tree", "moved"))
    assert setup()[1] == NEW


@needs_make
@pytest.mark.parametrize("version", ["2.7.18", "3.6.0", "3.9.25", "3.10.12"])
def test_setup_names_a_python_that_is_too_old(sandbox, version):
    folder, _, setup = sandbox
    (folder / "version").write_text(version)
    done, calls = setup()
    assert done.returncode != 0
    assert calls == []
    assert f"is {version}" in done.stderr
    assert "3.11" in done.stderr


@needs_make
def test_setup_says_so_when_python_is_missing(sandbox):
    _, tree, _ = sandbox
    done = make("setup", "PYTHON=no-such-python", cwd=tree)
    assert done.returncode != 0
    assert '"no-such-python" does not run' in done.stderr


@needs_make
@pytest.mark.parametrize(
    "target, commands",
    [
        ("reproduce", ["-m helpers.experiments.notebooks run --jobs 3", "-m helpers readme"]),
        (
            "test",
            [
                "-m pytest -p no:nbval -n 3 --dist loadgroup tests",
                "-m helpers.experiments.notebooks test --jobs 3",
            ],
        ),
        ("book", ["-m sphinx -q -W --keep-going -c book -d book/_build/doctrees . book/_build/html"]),
    ],
)
def test_commands_after_the_set_up(sandbox, target, commands):
    folder, tree, setup = sandbox
    setup()
    (folder / "log").write_text("")
    done = make(target, "JOBS=3", f"PYTHON={folder / 'python'}", cwd=tree)
    assert done.returncode == 0, done.stderr
    assert (folder / "log").read_text().splitlines() == commands


@needs_make
def test_as_many_jobs_as_cores(sandbox):
    folder, tree, setup = sandbox
    setup()
    (folder / "log").write_text("")
    make("train", f"PYTHON={folder / 'python'}", cwd=tree)
    assert (folder / "log").read_text().split()[-2:] == ["--jobs", str(os.cpu_count())]
