"""The stored notebooks have the form that the package asks for; the runner runs, compares and stores as it says."""

import base64
import io
import signal
import subprocess
import sys
import time

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers import paths
from helpers.experiments import notebooks

STORED = sorted(notebooks.FOLDER.glob("*.ipynb"))
VERDICT = f"{notebooks.MARK}\nprint('holds')"


def png(pixels, level=6):
    file = io.BytesIO()
    plt.imsave(file, pixels, pil_kwargs={"compress_level": level})
    return file.getvalue()


def picture(content):
    return new_output("display_data", {"image/png": base64.b64encode(content).decode()})


def build(*sources, outputs=None):
    """A notebook with a title and the given code cells, the last of which has printed `holds`, as if just run."""
    cells = [new_code_cell(source, execution_count=k) for k, source in enumerate(sources, 1)]
    cells[-1].outputs = [new_output("stream", name="stdout", text="holds\n")]
    for k, output in (outputs or {}).items():
        cells[k - 1].outputs = [output]
    return new_notebook(cells=[new_markdown_cell("# Does it?"), *cells])


def store(path, *sources):
    path.write_text(notebooks.to_text(build(*sources)))
    return path


# --- form -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_notebooks_are_well_formed(path):
    assert notebooks.check(path.read_text()) == []


def test_a_good_notebook_has_no_fault():
    source = "\n".join(f"x = {k}" for k in range(15))
    assert notebooks.check(notebooks.to_text(build(source, VERDICT))) == []


STDERR = new_output("stream", name="stderr", text="a warning")
ERROR = new_output("error", ename="ValueError", evalue="", traceback=[])


@pytest.mark.parametrize(
    "notebook, fault",
    [
        (build("\n".join("x" * 16), VERDICT), "[1] has 16 lines, more than 15"),
        (build("x = 1", "if x:\n    def f(): pass", VERDICT), "[2] defines a function or a class"),
        (build("async def f(): pass", VERDICT), "[1] defines a function or a class"),
        (build("class A: pass", VERDICT), "[1] defines a function or a class"),
        (build("%matplotlib inline", VERDICT), "[1] is not plain Python"),
        (build("x = 1", VERDICT, outputs={1: ERROR}), "[1] ends with an error"),
        (build("x = 1", VERDICT, outputs={1: STDERR}), "[1] writes to stderr"),
        (build("x = 1", "print('holds')"), "does not end with its verdicts"),
        (build(VERDICT, "x = 1"), "does not end with its verdicts"),
        (new_notebook(cells=[]), "does not end with its verdicts"),
        (new_notebook(cells=build(VERDICT).cells[1:]), "does not begin with a title"),
        (new_notebook(cells=[new_markdown_cell("Text"), *build(VERDICT).cells[1:]]), "does not begin with a title"),
        (new_notebook(cells=[new_code_cell("# x", execution_count=1), new_code_cell(VERDICT)]), "with a title"),
        (new_notebook(cells=[*build(VERDICT).cells, new_markdown_cell("The end")]), "does not end with its verdicts"),
        (new_notebook(cells=[*build("x").cells, new_code_cell(VERDICT, execution_count=2)]), "its verdicts"),
        (new_notebook(cells=[*build("x").cells, *build(VERDICT).cells[1:]]), "was not run from top to bottom"),
    ],
)
def test_faults_are_named(notebook, fault):
    faults = notebooks.check(notebooks.to_text(notebook))
    assert any(fault in found for found in faults), faults


def test_another_form_of_storing_is_a_fault():
    text = notebooks.to_text(build("x = 1", VERDICT))
    assert notebooks.check(text + "\n") == ["is not stored in the form that the command `run` writes"]


def test_what_is_stored_tells_neither_time_nor_version():
    notebook = build("x = 1", VERDICT)
    notebook.metadata.language_info = {"name": "python", "version": "3.11.7"}
    notebook.cells[1].metadata = nbformat.from_dict({"tags": ["kept"], "execution": {"iopub.status.busy": "2021"}})
    del notebook.cells[1]["id"]
    text = notebooks.to_text(notebook)
    again = nbformat.reads(text, as_version=4)
    assert "2021" not in text
    assert "3.11.7" not in text
    assert again.cells[1].id == "cell-01"
    assert again.cells[2].id == notebook.cells[2].id
    assert again.cells[1].metadata == {"tags": ["kept"]}
    assert (again.nbformat, again.nbformat_minor) == (4, 5)
    assert again.metadata.kernelspec.name == "python3"
    assert notebooks.to_text(again) == text
    assert text.endswith("}\n")


# --- pictures and verdicts --------------------------------------------------------------------------------------------


def test_pictures_that_look_the_same_keep_their_bytes():
    grey = np.full((8, 9, 3), 0.5)
    stored = build("draw", "draw", VERDICT, outputs={1: picture(png(grey)), 2: picture(png(grey))})
    fresh = build("draw", "draw", VERDICT, outputs={1: picture(png(grey, level=0)), 2: picture(png(grey / 2))})
    notebooks.keep_pictures(fresh, stored)
    shown = [cell.outputs[0].data["image/png"] for cell in fresh.cells[1:3]]
    assert shown == [stored.cells[1].outputs[0].data["image/png"], base64.b64encode(png(grey / 2)).decode()]
    fresh.cells[2].outputs = [new_output("stream", text="no picture"), *fresh.cells[2].outputs]
    notebooks.keep_pictures(fresh, stored)  # other outputs than the stored ones are left alone
    assert [output.output_type for output in fresh.cells[2].outputs] == ["stream", "display_data"]


# --- running ----------------------------------------------------------------------------------------------------------

WHERE = "import os, time\nprint(os.getcwd(), flush=True)\ntime.sleep(0.3)\nprint(os.environ.get('L2G_CHECK'))"


def test_outputs_are_stored_and_failures_name_notebook_and_cell(tmp_path, capsys, monkeypatch):
    broken = store(tmp_path / "broken.ipynb", "x = 1", "print(x)\n1 / 0", VERDICT)
    good = store(tmp_path / "good.ipynb", WHERE, VERDICT)
    before = broken.read_bytes()
    outcomes = {}

    def run_all(*files, **options):
        outcomes.update((outcome.name, outcome) for outcome in original(*files, **options))
        return outcomes.values()

    original = notebooks.run_all
    monkeypatch.setattr(notebooks, "run_all", run_all)
    assert notebooks.main(["run", "--jobs", "2", str(broken), str(good)]) == 1
    assert outcomes["good"].failure == ""
    assert 0 < outcomes["good"].seconds < 300
    assert outcomes["broken"].failure.startswith("In [2]: ")
    assert "ZeroDivisionError: division by zero" in outcomes["broken"].failure
    assert "\x1b" not in outcomes["broken"].failure
    assert broken.read_bytes() == before, "a notebook that fails stays as it was"
    printed = capsys.readouterr().out
    assert printed.splitlines()[-2:] == ["failed: broken", "1 passed, 1 failed"]
    assert "2 notebooks in " in printed
    assert "\nFAILED broken " in f"\n{printed}"
    assert "\nok     good " in f"\n{printed}"
    text = good.read_text()
    notebook = nbformat.reads(text, as_version=4)
    assert [output.text for output in notebook.cells[1].outputs] == [f"{tmp_path}\nNone\n"]
    assert notebooks.check(text) == []
    first = good.stat()
    assert not notebooks.run(good).failure
    second = good.stat()
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns), "nothing new, nothing written"


def test_testing_compares_marked_cells_only_and_writes_nothing(tmp_path):
    checked = f"{notebooks.MARK}\nimport os\nprint(os.environ['L2G_CHECK'])"
    files = [
        store(tmp_path / "bad.ipynb", "x = 1", "print(x)\n1 / 0", checked),
        store(tmp_path / "good.ipynb", "import time\nprint(time.time())", VERDICT),
    ]
    before = [path.read_bytes() for path in files]
    failures = {o.name: o.failure for o in notebooks.run_all(files, jobs=2, job=notebooks.test)}
    assert [path.read_bytes() for path in files] == before
    assert failures["good"] == ""
    assert "Cell 1" in failures["bad"] and "division by zero" in failures["bad"]
    assert "holds" in failures["bad"] and "mismatch" in failures["bad"].lower()
    assert "\x1b" not in failures["bad"]


def test_a_dead_kernel_is_a_failure_of_its_cell(tmp_path):
    outcome = notebooks.run(store(tmp_path / "a.ipynb", "x = 1", "import os\nos._exit(1)", VERDICT))
    assert outcome.failure == "In [2]: DeadKernelError: Kernel died"


def test_an_interruption_ends_all(tmp_path):
    path = store(
        tmp_path / "a.ipynb", "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)", VERDICT
    )
    command = [sys.executable, "-m", "helpers.experiments.notebooks", "run", str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=paths.ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what runs in the background ignores it
    )  # fmt: skip
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "interrupted\n"
    assert process.returncode == 130
    kernel = int((tmp_path / "pid").read_text())
    wait_until(lambda: not psutil.pid_exists(kernel))


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_longest_start_first():
    assert set(notebooks.SLOWEST) <= {path.stem for path in STORED}
    names = [path.stem for path in notebooks.in_order(STORED)]
    assert names[: len(notebooks.SLOWEST)] == list(notebooks.SLOWEST)
    assert sorted(names) == [path.stem for path in STORED]


# --- command line -----------------------------------------------------------------------------------------------------


def test_check_prints_every_fault(tmp_path, capsys):
    good = store(tmp_path / "good.ipynb", VERDICT)
    bad = store(tmp_path / "bad.ipynb", "class A: pass", "x = 1")
    assert notebooks.main(["check", str(good)]) == 0
    assert notebooks.main(["check", str(good), str(bad)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "notebooks are well-formed"
    assert [line.split(":")[0] for line in lines[1:]] == ["bad.ipynb", "bad.ipynb"]


@pytest.mark.parametrize(
    "arguments, message", [(["no.ipynb"], "no such notebook: no.ipynb"), (["--jobs", "0"], "is 0")]
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit):
        notebooks.main(["run", *arguments])
    assert message in capsys.readouterr().err


def test_an_empty_folder_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    with pytest.raises(SystemExit):
        notebooks.main(["test"])
    assert f"no notebook in {tmp_path}" in capsys.readouterr().err


def test_all_notebooks_are_the_default(tmp_path, monkeypatch):
    called = []
    store(tmp_path / "b.ipynb", VERDICT)
    store(tmp_path / "a.ipynb", VERDICT)
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    monkeypatch.setattr(notebooks, "run_all", lambda files, **options: called.append((files, options)) or [])
    assert notebooks.main(["test", "--jobs", "1"]) == 0
    files = [tmp_path / "a.ipynb", tmp_path / "b.ipynb"]
    assert notebooks.main(["run", "--jobs", "3", str(files[1])]) == 0
    assert called == [
        (files, {"jobs": 1, "job": notebooks.test}),
        (files[1:], {"jobs": 3, "job": notebooks.run}),
    ]
