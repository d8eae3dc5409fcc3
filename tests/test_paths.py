import os
import runpy
from pathlib import Path

import pytest

from helpers import paths

FOLDERS = {
    "PAPER_TABLES": "paper_tables.csv",
    "REAL": "real",
    "RAW": "raw",
    "CHECKPOINTS": "checkpoints",
    "RESULTS": "results",
}


@pytest.fixture
def evaluate(monkeypatch):
    """The module as it comes out with these variables, without touching the one that is imported."""

    def run(file=paths.__file__, **variables):
        for name in ("L2G_DATA", "L2G_CHECK"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return runpy.run_path(str(file))

    return run


@pytest.mark.parametrize("variables", [{}, {"L2G_DATA": ""}])
def test_everything_lives_in_the_repository(evaluate, variables):
    found = evaluate(**variables)
    root = Path(__file__).resolve().parent.parent
    assert found["ROOT"] == root
    assert found["DATA"] == root / "data"
    for name, part in FOLDERS.items():
        assert found[name] == root / "data" / part
    assert found["FIGURES"] == root / "figures"
    assert found["WEIGHTS"] == root / "helpers" / "weights"
    assert found["CHECK"] is False


def test_another_data_folder_holds_all_that_is_read_and_written(evaluate, tmp_path):
    found = evaluate(L2G_DATA=str(tmp_path), L2G_CHECK="1")
    assert found["DATA"] == tmp_path
    for name, part in FOLDERS.items():
        assert found[name] == tmp_path / part
    assert found["FIGURES"] == tmp_path / "figures"
    assert found["WEIGHTS"] == paths.WEIGHTS  # part of the package, wherever the data are
    assert found["CHECK"] is True


def test_the_data_folder_may_be_relative_or_start_at_home(evaluate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert evaluate(L2G_DATA="some/where")["DATA"] == tmp_path / "some" / "where"
    assert evaluate(L2G_DATA="~/l2g")["DATA"] == Path.home() / "l2g"


def test_an_installed_package_keeps_its_data_where_python_was_started(evaluate, tmp_path, monkeypatch):
    installed = tmp_path / "site-packages" / "helpers" / "paths.py"
    installed.parent.mkdir(parents=True)
    installed.write_bytes(Path(paths.__file__).read_bytes())
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    found = evaluate(installed)
    assert found["DATA"] == work / "data"
    assert found["FIGURES"] == work / "figures"
    assert found["WEIGHTS"] == installed.parent / "weights"


def test_a_file_is_written_whole_and_its_folder_made(tmp_path):
    target = tmp_path / "new" / "folder" / "file"
    paths.write_atomically(target, b"content")
    assert target.read_bytes() == b"content"
    paths.write_atomically(str(target), b"other")
    assert target.read_bytes() == b"other"
    assert [*target.parent.iterdir()] == [target]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interrupted_write_keeps_the_old_file(tmp_path, monkeypatch, step):
    target = tmp_path / "file"
    paths.write_atomically(target, b"old")

    def fail(*_):
        assert target.read_bytes() == b"old"  # nothing has touched it yet
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        paths.write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [target]


def test_the_content_is_on_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *names: (steps.append("replace"), replace(*names)))
    paths.write_atomically(tmp_path / "file", b"content")
    assert steps == ["fsync", "replace"]
