import inspect
import json
import runpy
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from helpers import paths
from helpers.experiments import cli, runs, sweep
from helpers.experiments.runs import Run

TINY = Run("tiny", "unrolling", "BA", n_nodes=6, n_layers=3, n_train=64, n_val=16, epochs=2)
OTHER = replace(TINY, name="other", seed=1)
WILD = replace(TINY, name="wild", lr=1e4)  # diverges
VERBS = ("list", "status", "train", "data", "exact", "readme", "measure")


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """Three runs, and a folder for their checkpoints."""
    monkeypatch.setattr(runs, "RUNS", {run.name: run for run in (TINY, OTHER, WILD)})
    monkeypatch.setattr(paths, "CHECKPOINTS", tmp_path)
    return tmp_path


@pytest.fixture
def call(capsys):
    """Exit code, output and errors of a command line."""

    def run(*argv):
        code = cli.main([*argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def snapshot(folder):
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


# --- runs ----------------------------------------------------------------------------------------------------------


def test_list_prints_names(registered, call):
    assert call("list") == (0, "tiny\nother\nwild\n", "")
    assert call("list", "*i*") == (0, "tiny\nwild\n", "")


def test_a_pattern_without_match_is_one_clear_line(registered, call):
    for verb in ("list", "status", "train"):
        code, out, err = call(verb, "nothing-*")
        assert code == 2
        assert out == ""
        assert err == "l2g: pattern='nothing-*' matches none of the 3 runs: see `l2g list`\n"


def test_train_and_status(registered, call, monkeypatch):
    monkeypatch.setattr("helpers.training.expected_seconds", lambda *_: 1800.0)
    code, out, _ = call("status", "[to]*")
    assert code == 0
    assert out.splitlines() == [
        "missing      1800 s  tiny",
        "missing      1800 s  other",
        "1.00 hours on one core to train what is not trained",
    ]
    code, out, _ = call("train", "tiny")
    assert code == 0
    assert out == "1 of 1 runs to train\n"
    assert runs.state_of(TINY) == "trained"
    sidecar = registered / "tiny.json"
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | {"seconds": 12.0}))
    code, out, _ = call("status", "[to]*")
    assert out.splitlines() == [
        "trained        12 s  tiny",
        "missing      1800 s  other",
        "0.50 hours on one core to train what is not trained",
    ]
    before = snapshot(registered)
    assert call("train", "tiny")[:2] == (0, "0 of 1 runs to train\n")
    assert snapshot(registered) == before
    code, out, _ = call("train", "tiny", "--retrain")
    assert (code, out) == (0, "1 of 1 runs to train\n")
    assert snapshot(registered) != before


def test_a_failing_run_is_reported_and_the_others_are_trained(registered, call):
    code, out, err = call("train")
    assert code == 1
    assert out == "3 of 3 runs to train\n"
    assert err.splitlines()[-1] == "wild: diverged, and is recorded as such"
    assert [runs.state_of(run) for run in (TINY, OTHER, WILD)] == ["trained", "trained", "diverged"]


@pytest.mark.parametrize("content", [b"[]", b"", None])
def test_what_is_left_damaged_shows_in_the_exit_code(registered, call, content):
    """The advice that comes with it works."""
    runs.train_run(TINY, progress=False)
    if content is None:
        (registered / "tiny.json").unlink()
    else:
        (registered / "tiny.json").write_bytes(content)
    before = snapshot(registered)
    assert call("status", "tiny")[1].startswith("stale")
    code, out, err = call("train", "[to]*")
    assert code == 1
    assert out == "1 of 2 runs to train\n"
    assert "tiny: stale or damaged, and left alone: --retrain replaces it\n" in err
    assert runs.state_of(OTHER) == "trained"
    assert {name: snapshot(registered)[name] for name in before} == before
    assert call("train", "tiny", "--retrain")[0] == 0
    assert runs.state_of(TINY) == "trained"


def test_a_damaged_resume_file_shows_in_the_exit_code(registered, call):
    resume = registered / "tiny.resume.safetensors"
    resume.write_bytes(b"no tensors")
    code, _, err = call("train", "tiny")
    assert code == 1
    assert err.splitlines()[-1].startswith(f"tiny: CheckpointError: {resume} is truncated or corrupt")
    assert "`l2g train tiny --retrain`" in err
    assert call("train", "tiny", "--retrain")[0] == 0
    assert not resume.exists()


def test_options_reach_the_sweep(registered, call, monkeypatch):
    asked = []
    monkeypatch.setattr(sweep, "train", lambda chosen, **how: asked.append((chosen, how)) or ())
    assert call("train", "[to]*", "--jobs", "3", "--device", "meta")[0] == 0
    assert call("train", "tiny", "--scheduler", "tcp://x", "--device", "nonsense", "--retrain")[0] == 0
    assert call("train", "tiny")[0] == 0
    assert asked == [
        ([TINY, OTHER], {"n_jobs": 3, "scheduler": None, "device": "meta", "retrain": False}),
        ([TINY], {"n_jobs": 1, "scheduler": "tcp://x", "device": "nonsense", "retrain": True}),  # of the workers
        ([TINY], {"n_jobs": 1, "scheduler": None, "device": "cpu", "retrain": False}),
    ]


@pytest.mark.parametrize("device", ["nonsense", "cuda:9999"])
def test_a_device_that_is_not_there_is_refused(registered, call, device):
    code, out, err = call("train", "--device", device)
    assert code == 2
    assert out == ""
    assert err.startswith(f"l2g: device='{device}' cannot be used here (")
    assert err.count("\n") == 1
    assert [*registered.iterdir()] == []


def test_an_impossible_number_of_processes_is_refused(registered, call):
    code, _, err = call("train", "tiny", "--jobs", "0")
    assert code == 2
    assert err.splitlines()[-1] == "l2g: n_jobs=0: at least 1 process is needed"


def test_an_interruption_says_that_nothing_is_lost(registered, call, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "train", interrupt)
    code, _, err = call("train", "tiny")
    assert code == 130
    assert err.splitlines()[-1] == "l2g: stopped; the same command goes on where this one was cut off"


# --- other verbs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "differ, others, argv, code, told",
    [
        ([], (True, True, True), [], 0, "6 of 6 files in data/real agree with the raw data\n"),
        (["a", "b"], (True, True, True), [], 1, "these differ, --write replaces them: a, b\n"),
        ([], (False, True, False), [], 1, "these differ, --write replaces them: authors, lasso\n"),
        (
            ["a"], (True, False, True), ["--write"], 0,
            "5 of 7 files in data/real agree with the raw data\nreplaced: a, networks\n",
        ),
        (
            [], (None, True, None), ["--download", "--write"], 0,
            "authors is left out: the raw files behind it are not there\n"
            "lasso is left out: the raw files behind it are not there\n"
            "4 of 4 files in data/real agree with the raw data\n",
        ),
    ],
)  # fmt: skip
def test_data_compares(call, monkeypatch, differ, others, argv, code, told):
    asked = []

    def answer(value):
        return lambda **how: asked.append(how) or value

    modules = {
        "real.datasets": {"compare": answer((["x", "y", "z"], list(differ)))},
        "experiments.authors": {"compare": answer(others[0]), "ERRORS": "authors"},
        "real.networks": {"SHIPPED": "networks"},
        "experiments.benchmarks": {
            "compare_networks": answer(others[1]),
            "compare_lasso": answer(others[2]),
            "LASSO_SCORES": "lasso",
        },
    }
    for name, content in modules.items():
        monkeypatch.setitem(sys.modules, f"helpers.{name}", SimpleNamespace(**content))
    found, out, err = call("data", *argv)
    assert found == code
    assert told == (err if code else out)
    write = "--write" in argv
    assert asked == [{"download": "--download" in argv, "write": write}, *[{"write": write}] * 3]


@pytest.mark.parametrize(
    "argv, how",
    [
        (["readme"], {"check": False}),
        (["readme", "--check"], {"check": True}),
        (["measure"], {"million": False}),
        (["measure", "--million"], {"million": True}),
    ],
)
def test_verbs_are_passed_on_and_their_exit_code_comes_back(call, monkeypatch, argv, how):
    asked, codes = [], iter((None, 0, 1))
    module = SimpleNamespace(main=lambda **how: asked.append(how) or next(codes))
    monkeypatch.setitem(sys.modules, f"helpers.experiments.{argv[0]}", module)
    assert [call(*argv)[0] for _ in range(3)] == [0, 0, 1]
    assert asked == 3 * [how]


@pytest.mark.parametrize(
    "differ, argv, code, told",
    [
        ([], [], 0, "5 of 5 exact results agree with what was computed\n"),
        (["exact5"], ["exact5"], 1, "these differ, --write replaces them: exact5\n"),
        (["exact5"], ["exact5", "exact4", "--write"], 0, "1 of 2 exact results agree with what was computed\n"
         "replaced: exact5\n"),
        (["weights"], ["weights", "exact4"], 1, "these differ, --write replaces them: weights\n"),
        (["weights"], ["--write"], 0, "4 of 5 exact results agree with what was computed\nreplaced: weights\n"),
        ([], ["weights"], 0, "1 of 1 exact results agree with what was computed\n"),
    ],
)  # fmt: skip
def test_exact_results_are_compared(call, monkeypatch, differ, argv, code, told):
    asked = []
    module = SimpleNamespace(
        compare=lambda laws, **how: asked.append((laws, how)) or [law for law in differ if law != "weights"],
        compare_weights=lambda **how: asked.append(("weights", how)) or "weights" not in differ,
        WEIGHTS="weights",
    )
    monkeypatch.setitem(sys.modules, "helpers.experiments.exactness", module)
    found, out, err = call("exact", *argv)
    assert (found, err if code else out) == (code, told)
    chosen = [law for law in argv if law != "--write"] or ["exact4", "exact5", "exact10", "exact20", "weights"]
    how = {"write": "--write" in argv}
    laws = [law for law in chosen if law != "weights"]
    assert asked == [(laws, how)] + [("weights", how)] * ("weights" in chosen)


def test_a_law_that_is_none_is_named(call):
    code, _, err = call("exact", "exact6")
    assert code == 2
    assert err == "l2g: law='exact6': choose among exact4, exact5, exact10, exact20, exact_weights\n"


@pytest.mark.parametrize("error", [ValueError, ImportError, FileNotFoundError])
def test_errors_are_one_clear_line(call, monkeypatch, error):
    def fail(**_):
        raise error("what is wrong,\n  and the remedy")

    monkeypatch.setitem(sys.modules, "helpers.experiments.measure", SimpleNamespace(main=fail))
    assert call("measure") == (2, "", "l2g: what is wrong, and the remedy\n")


def test_the_modules_behind_the_verbs_take_what_they_are_given():
    from helpers.experiments import exactness, measure, readme
    from helpers.real import datasets

    inspect.signature(datasets.compare).bind(download=True, write=True)
    inspect.signature(readme.main).bind(check=True)
    inspect.signature(measure.main).bind(million=True)
    inspect.signature(exactness.compare).bind(["exact5"], write=True)
    inspect.signature(exactness.compare_weights).bind(write=True)
    assert datasets.Comparison._fields == ("agree", "differ")


# --- help and start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_help_changes_nothing(verb, monkeypatch, capsys):
    for name in (
        "list_runs",
        "show_status",
        "train_runs",
        "compare_data",
        "compare_exact",
        "renew_readme",
        "measure_times",
    ):
        monkeypatch.setattr(cli, name, lambda args: pytest.fail("--help was carried out"))
    with pytest.raises(SystemExit) as end:
        cli.main([verb, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: l2g {verb}")


@pytest.mark.parametrize("argv", [[], ["nothing"], ["train", "--jobs", "many"]])
def test_what_makes_no_sense_ends_with_the_usage(argv, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(argv)
    assert end.value.code == 2
    assert "usage: l2g" in capsys.readouterr().err


def test_python_m_helpers_is_the_same_command(registered, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["helpers", "list", "tiny"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("helpers", run_name="__main__")
    assert end.value.code == 0
    assert capsys.readouterr().out == "tiny\n"
    runpy.run_module("helpers.__main__", run_name="__mp_main__")  # as a process of a sweep does: nothing happens
    assert capsys.readouterr().out == ""


def test_help_loads_nothing_heavy():
    program = """
import contextlib, sys
from helpers.experiments.cli import main
with contextlib.suppress(SystemExit):
    main(["--help"])
print(sorted({"torch", "scipy", "pandas", "numpy"} & sys.modules.keys()))
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=paths.ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
