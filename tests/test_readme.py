"""The README's tables are those of data/results/ and the checkpoints; its links, figures and commands exist."""

import re
import tomllib

import pytest

from helpers import paths
from helpers.experiments import claims, cli, readme
from helpers.experiments.runs import RUNS, checkpoint

TEXT = (paths.ROOT / "README.md").read_text()


@pytest.fixture
def copy(monkeypatch, tmp_path):
    """A README of our own to write to."""
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    monkeypatch.setattr(readme, "README", path)
    return path


# --- renewing it ---------------------------------------------------------------------------------------------------


def test_the_tables_are_not_stale():
    assert readme.README == paths.ROOT / "README.md"
    assert readme.insert(TEXT) == TEXT, "renew them: `l2g readme`"


@pytest.mark.parametrize("pattern", [r"0\.\d{3}", r"\| partly \|", r"\| l2g \| \d+"])
def test_a_changed_cell_is_noticed_and_mended(copy, capsys, pattern):
    found = re.search(pattern, TEXT)
    copy.write_text(stale := TEXT[: found.start()] + "| changed" + TEXT[found.end() :])
    assert cli.main(["readme", "--check"]) == 1
    assert "README.md is stale: `l2g readme` renews its tables" in capsys.readouterr().out
    assert copy.read_text() == stale, "a check writes nothing"
    assert cli.main(["readme"]) == 0
    assert "is renewed" in capsys.readouterr().out
    assert copy.read_text() == TEXT
    assert cli.main(["readme", "--check"]) == cli.main(["readme"]) == 0
    assert capsys.readouterr().out == 2 * "README.md is up to date\n"


def test_asking_for_help_writes_nothing(copy, capsys):
    copy.write_text(stale := TEXT.replace("| partly |", "| perhaps |"))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["readme", "--help"])
    assert stopped.value.code == 0
    assert "--check" in capsys.readouterr().out
    assert copy.read_text() == stale


def test_an_up_to_date_readme_is_left_alone(copy, monkeypatch):
    monkeypatch.setattr(paths, "write_atomically", lambda *_: pytest.fail("nothing changed"))
    assert readme.main() == 0


def test_it_is_written_atomically(copy, monkeypatch):
    copy.write_text(TEXT.replace("| partly |", "| perhaps |"))
    written = {}
    monkeypatch.setattr(paths, "write_atomically", written.__setitem__)
    assert readme.main() == 0
    assert written == {copy: TEXT.encode()}


@pytest.mark.parametrize("name", ["claims", "costs"])
def test_missing_or_doubled_markers_are_named(name):
    block = re.search(rf"<!-- {name} -->\n.*?<!-- /{name} -->\n", TEXT, flags=re.DOTALL)[0]
    for text in (TEXT.replace(block, ""), TEXT + block):
        with pytest.raises(ValueError, match=f"README.md needs the markers <!-- {name} --> and <!-- /{name} --> once"):
            readme.insert(text)


# --- its tables ----------------------------------------------------------------------------------------------------


def test_markdown():
    assert readme.markdown(("a", "b"), [(1, "x"), (2, "y")]) == "| a | b |\n| --- | --- |\n| 1 | x |\n| 2 | y |\n"


def test_each_claim_links_to_its_notebook():
    lines = readme.found_table().splitlines()
    assert lines[0] == "| claim | paper | ours | verdict | notebook |"
    for line, claim in zip(lines[2:], claims.SELECTION, strict=True):
        assert line.startswith(f"| {claim.text} | ")
        verdict = claims.verdict(claim)
        assert line.endswith(f" | {verdict} | [{claim.notebook}](notebooks/{claim.notebook}.ipynb) |")


def test_costs_are_added_up(monkeypatch, tmp_path):
    runs = {name: RUNS[name] for name in ("unrolling-ba", "l2g-ba", "l2g-er", "l2g-ws")}
    sizes = {"unrolling-ba": 1_000, "l2g-ba": 1_500_000, "l2g-er": 2_500_000}
    for name, size in sizes.items():
        (tmp_path / f"{name}.safetensors").write_bytes(bytes(size))

    def read_record(run):
        if run.name not in sizes:
            raise FileNotFoundError(run.name)
        return {"seconds": 90 if run.name == "l2g-ba" else 150}

    monkeypatch.setattr(readme, "RUNS", runs)
    monkeypatch.setattr(readme, "checkpoint", lambda run: tmp_path / run.name)
    monkeypatch.setattr(readme, "read_record", read_record)
    expected = {"unrolling": (1, 2.5, 0.001), "l2g": (2, 4.0, 4.0), "all": (3, 6.5, 4.001)}
    assert readme.costs() == {model: pytest.approx(cost) for model, cost in expected.items()}
    assert readme.cost_table().splitlines()[2:] == [
        "| unrolling | 1 | 2 | 0.0 |", "| l2g | 2 | 4 | 4.0 |", "| all | 3 | 6 | 4.0 |"
    ]  # fmt: skip
    monkeypatch.setattr(readme, "RUNS", {"l2g-ws": RUNS["l2g-ws"]})
    assert readme.costs() == {"all": (0, 0, 0)}, "nothing is trained"


def test_costs_are_those_of_all_checkpoints():
    costs = readme.costs()
    assert costs["all"][0] == len(RUNS)
    weights = [checkpoint(run).with_name(f"{run.name}.safetensors") for run in RUNS.values() if run.keep_weights]
    assert costs["all"][2] == pytest.approx(sum(file.stat().st_size for file in weights) / 1e6)


# --- the text around them ------------------------------------------------------------------------------------------


def test_links_and_figures_exist():
    targets = [t for t in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in t]
    assert targets
    assert [t for t in targets if not (paths.ROOT / t).exists()] == []


def test_every_notebook_is_listed_in_order():
    names = sorted(path.name for path in (paths.ROOT / "notebooks").glob("*.ipynb"))
    section = TEXT.split("## Notebooks")[1].split("\n## ")[0]
    assert names == re.findall(r"notebooks/(\S+?\.ipynb)\)", section)


def test_every_file_of_the_package_has_its_owner():
    section = TEXT.split("## The package")[1]
    modules = [path.relative_to(paths.ROOT) for path in (paths.ROOT / "helpers").rglob("*.py")]
    rooms = ("rivals", "real")  # described as a whole
    wanted = [m for m in modules if not m.stem.startswith("__") and m.parent.name not in rooms]
    assert [m.as_posix() for m in wanted if f"{m.name}`" not in section] == []
    named = re.findall(r"`(helpers/[^`]+)`", section)
    assert [name for name in named if not (paths.ROOT / name).exists()] == []


def test_commands_exist(capsys):
    section = TEXT.split("## Commands")[1].split("\n## ")[0]
    verbs = list(dict.fromkeys(re.findall(r"^    l2g (\w+)", section, flags=re.MULTILINE)))
    assert verbs == ["list", "status", "train", "data", "readme", "measure"]
    for verb in verbs:
        with pytest.raises(SystemExit) as stopped:
            cli.main([verb, "--help"])
        assert stopped.value.code == 0
        options = re.findall(rf"^    l2g {verb}\b.*?(--\w+)", section, flags=re.MULTILINE)
        usage = capsys.readouterr().out
        assert [option for option in options if option not in usage] == []


def test_extras_are_those_of_the_package():
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    assert set(re.findall(r"pip install '\.\[(\w+)\]'", TEXT)) == set(project["optional-dependencies"])
