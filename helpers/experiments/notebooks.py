"""The notebooks: run them, compare them with what they stored, check their form.

    python -m helpers.experiments.notebooks run      # run them and store their outputs, as `make reproduce` does
    python -m helpers.experiments.notebooks test     # run them without writing; each must come to the stored verdicts
    python -m helpers.experiments.notebooks check    # look at their form only; nothing is run

Each command takes the notebooks as arguments, all of them by default. As many run at once as there are cores.
"""

import argparse
import ast
import base64
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from .. import paths
from ..engine.pictures import looks_alike

# jsonschema, which nbformat loads, would compile a grammar of web addresses first, which takes seconds. It does without
# where the package is missing, and a notebook has no address that would be checked.
sys.modules.setdefault("rfc3987_syntax", None)

import nbformat  # noqa: E402
from nbclient import NotebookClient  # noqa: E402
from nbformat import NotebookNode  # noqa: E402

FOLDER = paths.ROOT / "notebooks"
MARK = "# NBVAL_CHECK_OUTPUT"  # the name that nbval knows: a cell whose output must come out as it is stored
MAX_LINES = 15
CELL_TIMEOUT = 900  # seconds
PYTEST = "import sys; sys.modules['rfc3987_syntax'] = None; import pytest; sys.exit(pytest.main())"  # see above
NBVAL = (
    sys.executable, "-c", PYTEST, "-p", "nbval.plugin", "--nbval-lax", "--nbval-current-env",
    f"--nbval-cell-timeout={CELL_TIMEOUT}", "--quiet", "-p", "no:cacheprovider",
    "-W", "ignore::pytest.PytestConfigWarning",
)  # fmt: skip
# The other plugins of the unit tests take two seconds to load and would do nothing here; nor do their settings.
NBVAL_ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "L2G_CHECK": "1"}
# The longest start first.
SLOWEST = (
    "15_beyond_the_law",
    "13_other_benchmarks",
    "09_abide",
    "12_large_graphs",
    "03_structure",
    "10_limits",
    "11_equivariant",
    "05_convergence",
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal, in IPython's tracebacks
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}


class Outcome(NamedTuple):
    """What became of one notebook: how long it took and, if it failed, where and why."""

    name: str
    seconds: float
    failure: str = ""


# --- form -------------------------------------------------------------------------------------------------------------


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def check(text: str) -> list[str]:
    """Everything about the form of a stored notebook that is not as it should be; nothing is run.

    Parameters
    ----------
    text : the content of the file

    Returns
    -------
    One sentence per fault, with the number of its cell as Jupyter shows it, [1], [2], ...
    """
    notebook = nbformat.reads(text, as_version=4)
    cells = code_cells(notebook)
    faults = [f"[{k}] {fault}" for k, cell in enumerate(cells, 1) for fault in _cell_faults(cell)]
    if [cell.execution_count for cell in cells] != list(range(1, len(cells) + 1)):
        faults.append("was not run from top to bottom in one go")
    title = notebook.cells[0] if notebook.cells else None
    if not title or title.cell_type != "markdown" or not title.source.startswith("# "):
        faults.append("does not begin with a title")
    last = notebook.cells[-1] if notebook.cells else None
    if not last or last.cell_type != "code" or not last.source.startswith(MARK) or not last.outputs:
        faults.append(f"does not end with its verdicts, a cell that begins with {MARK} and has an output")
    if not faults and to_text(notebook) != text:
        faults.append("is not stored in the form that the command `run` writes")
    return faults


def _cell_faults(cell):
    n_lines = len(cell.source.splitlines())
    if n_lines > MAX_LINES:
        yield f"has {n_lines} lines, more than {MAX_LINES}"
    try:
        nodes = list(ast.walk(ast.parse(cell.source)))
    except SyntaxError:
        nodes = []
        yield "is not plain Python"
    if any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in nodes):
        yield "defines a function or a class, which belongs in the package"
    if any(output.output_type == "error" for output in cell.outputs):
        yield "ends with an error"
    if any(output.get("name") == "stderr" for output in cell.outputs):
        yield "writes to stderr: a warning or a log"


# --- what is stored ---------------------------------------------------------------------------------------------------


def to_text(notebook: NotebookNode) -> str:
    """A notebook as it is stored: nothing in it tells when, where or with which version it was run.

    `notebook` is brought into that form in place.
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat_minor = 5  # the first minor version whose cells have ids
    for number, cell in enumerate(notebook.cells):
        cell.setdefault("id", f"cell-{number:02}")
        cell.metadata.pop("execution", None)  # times
    return nbformat.writes(notebook) + "\n"


def keep_pictures(notebook: NotebookNode, stored: NotebookNode) -> None:
    """Give `notebook` the stored picture wherever its own looks the same: the bytes depend on the machine."""
    for new_cell, old_cell in zip(code_cells(notebook), code_cells(stored)):
        for new, old in zip(new_cell.outputs, old_cell.outputs):
            pictures = [output.get("data", {}).get("image/png") for output in (new, old)]
            if all(pictures) and looks_alike(*map(base64.b64decode, pictures)):
                new.data["image/png"] = old.data["image/png"]


# --- running ----------------------------------------------------------------------------------------------------------


def run(path: Path | str) -> Outcome:
    """Run one notebook in a fresh kernel, in its own folder, and store it if anything in it changed."""
    path = Path(path)
    start = time.perf_counter()
    text = path.read_text()
    notebook = nbformat.reads(text, as_version=4)
    failure = _execute(notebook, path.parent)
    if not failure:
        keep_pictures(notebook, nbformat.reads(text, as_version=4))
        if (new_text := to_text(notebook)) != text:
            paths.write_atomically(path, new_text.encode())
    return Outcome(path.stem, time.perf_counter() - start, failure)


def test(path: Path | str) -> Outcome:
    """Let nbval run one notebook: its marked cells must print what is stored.

    Nothing is written, neither by nbval nor, since L2G_CHECK is set, by the notebook.
    """
    start = time.perf_counter()
    done = subprocess.run([*NBVAL, str(path)], env=os.environ | NBVAL_ENVIRONMENT, capture_output=True, text=True)
    failure = COLOURS.sub("", done.stdout + done.stderr) if done.returncode else ""
    return Outcome(Path(path).stem, time.perf_counter() - start, failure)


def _execute(notebook, folder):
    """Run all cells, outputs into `notebook`; returns what went wrong and in which cell, "" if nothing did."""
    reached = []
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_TIMEOUT,
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,  # into one output, however the text happened to arrive
        on_cell_start=lambda cell, cell_index: reached.append(cell),
    )
    client.create_kernel_manager().transport_encryption = "auto"  # otherwise the kernel warns that it has none
    try:
        client.execute()
    except Exception as error:  # whatever it is, notebook and cell are named and the other notebooks go on
        number = sum(cell.cell_type == "code" for cell in reached)
        return COLOURS.sub("", f"In [{number}]: {type(error).__name__}: {error}")
    return ""


def in_order(files: list[Path]) -> list[Path]:
    """The longest first, so that none is left to run alone at the end."""
    return sorted(files, key=lambda path: (*SLOWEST, path.stem).index(path.stem))


def run_all(files: list[Path], *, jobs: int, job: Callable[[Path], Outcome] = run) -> list[Outcome]:
    """Do a job, `run` or `test`, for notebooks, `jobs` at once, with one line for each as it ends, and a summary."""
    start = time.perf_counter()
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:  # threads will do: the work is done in the kernels, which are processes
        futures = [pool.submit(job, path) for path in in_order(files)]
        try:
            for future in as_completed(futures):
                outcomes.append(future.result())
                _report(outcomes[-1])
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            os._exit(130)  # threads cannot be stopped otherwise; a kernel ends when it sees that this process is gone
    failed = sorted(outcome.name for outcome in outcomes if outcome.failure)
    work = sum(outcome.seconds for outcome in outcomes)
    print(f"{len(outcomes)} notebooks in {time.perf_counter() - start:.0f} s, {work:.0f} s one by one")
    if failed:
        print("failed:", ", ".join(failed))
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed", flush=True)
    return outcomes


def _report(outcome):
    print(f"{'FAILED' if outcome.failure else 'ok':6} {outcome.name:24} {outcome.seconds:4.0f} s", flush=True)
    if outcome.failure:
        print(f"{outcome.name}, {outcome.failure}", flush=True)


# --- command line -----------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.experiments.notebooks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("run", "test", "check"))
    parser.add_argument("files", nargs="*", type=Path, help="notebooks; all of notebooks/ by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many run at once (%(default)s)")
    options = parser.parse_intermixed_args(arguments)
    files = options.files or sorted(FOLDER.glob("*.ipynb"))
    if missing := [str(path) for path in files if not path.is_file()]:
        parser.error(f"no such notebook: {', '.join(missing)}")
    if not files:
        parser.error(f"there is no notebook in {FOLDER}")
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, and is {options.jobs}")
    if options.command == "check":
        faults = [f"{path.name}: {fault}" for path in files for fault in check(path.read_text())]
        print(*faults or ["notebooks are well-formed"], sep="\n")
        return bool(faults)
    job = {"run": run, "test": test}[options.command]
    return any(outcome.failure for outcome in run_all(files, jobs=options.jobs, job=job))


if __name__ == "__main__":
    sys.exit(main())
