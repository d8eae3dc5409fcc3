"""The README's tables are those of data/results/ and the checkpoints; its links, figures and commands exist."""

import json
import re
import tomllib

import pytest

from helpers import paths
from helpers.experiments import claims, cli, readme, tables
from helpers.experiments.judging import VERDICTS, Tables
from helpers.experiments.runs import RUNS, checkpoint

TEXT = (paths.ROOT / "README.md").read_text()

pytestmark = pytest.mark.xdist_group("readme")  # one worker judges the claims, once


@pytest.fixture(scope="module")
def found():
    return claims.judgements()


@pytest.fixture(scope="module")
def parts(found):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "judgements", lambda t: found)
        return readme.parts()


@pytest.fixture
def computed_once(monkeypatch, parts):
    monkeypatch.setattr(readme, "parts", lambda: parts)


@pytest.fixture
def copy(monkeypatch, tmp_path, computed_once):
    """A README of our own to write to."""
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    monkeypatch.setattr(readme, "README", path)
    return path


# --- renewing it ---------------------------------------------------------------------------------------------------


def test_the_tables_are_not_stale(computed_once):
    assert readme.README == paths.ROOT / "README.md"
    assert readme.insert(TEXT) == TEXT, "renew them: `l2g readme`"


@pytest.mark.parametrize(
    "pattern", [r"0\.\d{3}", r"\*\*holds only if\*\*", r"\| l2g \| \d+", r"\| does not hold \| \d+", r"\d+ hold,"]
)
def test_a_changed_cell_is_noticed_and_mended(copy, capsys, pattern):
    found = re.search(pattern, TEXT)
    copy.write_text(stale := TEXT[: found.start()] + "| changed" + TEXT[found.end() :])
    assert cli.main(["readme", "--check"]) == 1
    assert "README.md is stale: `l2g readme` renews its numbers" in capsys.readouterr().out
    assert copy.read_text() == stale, "a check writes nothing"
    assert cli.main(["readme"]) == 0
    assert "is renewed" in capsys.readouterr().out
    assert copy.read_text() == TEXT
    assert cli.main(["readme", "--check"]) == cli.main(["readme"]) == 0
    assert capsys.readouterr().out == 2 * "README.md is up to date\n"


def test_asking_for_help_writes_nothing(copy, capsys):
    copy.write_text(stale := TEXT.replace("| holds |", "| perhaps |"))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["readme", "--help"])
    assert stopped.value.code == 0
    assert "--check" in capsys.readouterr().out
    assert copy.read_text() == stale


def test_an_up_to_date_readme_is_left_alone(copy, monkeypatch):
    monkeypatch.setattr(paths, "write_atomically", lambda *_: pytest.fail("nothing changed"))
    assert readme.main() == 0


def test_it_is_written_atomically(copy, monkeypatch):
    copy.write_text(TEXT.replace("| holds |", "| perhaps |"))
    written = {}
    monkeypatch.setattr(paths, "write_atomically", written.__setitem__)
    assert readme.main() == 0
    assert written == {copy: TEXT.encode()}


@pytest.mark.parametrize("name", ["summary", "counts", "claims", "costs"])
def test_missing_or_doubled_markers_are_named(name, computed_once):
    block = re.search(rf"<!-- {name} -->\n.*?<!-- /{name} -->\n", TEXT, flags=re.DOTALL)[0]
    for text in (TEXT.replace(block, ""), TEXT + block):
        with pytest.raises(ValueError, match=f"README.md needs the markers <!-- {name} --> and <!-- /{name} --> once"):
            readme.insert(text)


# --- its tables ----------------------------------------------------------------------------------------------------


def test_markdown():
    assert readme.markdown(("a", "b"), [(1, "x"), (2, "y")]) == "| a | b |\n| --- | --- |\n| 1 | x |\n| 2 | y |\n"


def test_each_claim_has_its_verdict_and_links_to_its_notebook(found):
    """The same verdict, word by word, as the notebook printed."""
    lines = readme.found_table(Tables(), found).splitlines()
    assert lines[0] == "| claim | paper | found | verdict | notebook |"
    records = {claim.key: claim for claim in claims.CLAIMS}
    for line, key in zip(lines[2:], readme.SELECTION, strict=True):
        claim = records[key]
        judgement = found[key]
        text, _, _, verdict, link = line.strip("| ").replace(r"\|", "/").split(" | ")
        assert claim.text in text
        assert claim.where in text if not claim.ours else text.startswith("*Ours:*")
        assert verdict == (f"**{judgement.verdict}**: {judgement.why}" if judgement.why else f"**{judgement.verdict}**")
        assert link == f"[{claim.notebook}](notebooks/{claim.notebook}.ipynb)"
        assert " ".join(f"{judgement.verdict} {claim.text} {judgement.why}".split()) in printed(claim.notebook), key


def printed(notebook):
    """What the last cell of a notebook printed, without the breaks between lines."""
    cells = json.loads((paths.ROOT / "notebooks" / f"{notebook}.ipynb").read_text())["cells"]
    last = [cell for cell in cells if cell["cell_type"] == "code"][-1]
    return " ".join("".join(last["outputs"][0]["text"]).split())


def test_the_selection_shows_every_verdict_and_both_sides(found):
    records = {claim.key: claim for claim in claims.CLAIMS}
    chosen = [records[key] for key in readme.SELECTION]
    assert {found[key].verdict for key in readme.SELECTION} == set(VERDICTS) - {"cannot be tested"}
    assert {claim.ours for claim in chosen} == {True, False}
    for key in ("underconnected", "community-l2g", "power-law-fail", "new-edges-l2g"):
        assert key in readme.SELECTION, "what does not flatter is shown, too"


def test_counts_add_up(found):
    rows = [line.strip("| ").split(" | ") for line in readme.count_table(found).splitlines()[2:]]
    assert [row[0] for row in rows] == [*VERDICTS, "all"]
    numbers = [list(map(int, row[1:])) for row in rows]
    assert [sum(column) for column in zip(*numbers[:-1])] == numbers[-1]
    assert sum(numbers[-1]) == len(claims.CLAIMS)
    paper = dict(zip(VERDICTS, (row[0] for row in numbers)))
    assert readme.counted(paper) in readme.summary(Tables(), found)
    assert readme.counted({"holds": 1}) == "1 hold"
    assert readme.counted({"holds": 2, "does not hold": 3, "cannot be tested": 1}) == (
        "2 hold, 3 do not hold and 1 cannot be tested"
    )


def test_the_summary_reads_its_numbers(found):
    text = readme.summary(Tables(), found)
    for title in ("Scope", "Method", "Results", "What was easy", "What was difficult"):
        assert f"**{title}.**" in text
    assert "AMD EPYC" in text and "AMD EPYC" in readme.cost_table(Tables())
    frame = tables.read("02_graph_recovery")
    frame.loc[frame.model == "L2G", "value"] = 0.123
    changed = Tables(read=lambda name: frame if name == "02_graph_recovery" else tables.read(name))
    assert "0.123 / 0.123 / 0.123 / 0.123 as the text has it" in readme.summary(changed, found)


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
    assert readme.cost_table(Tables()).splitlines()[2:] == [
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
    assert verbs == ["list", "status", "train", "data", "exact", "readme", "measure"]
    for verb in verbs:
        with pytest.raises(SystemExit) as stopped:
            cli.main([verb, "--help"])
        assert stopped.value.code == 0
        options = re.findall(rf"^    l2g {verb}\b.*?(--\w+)", section, flags=re.MULTILINE)
        usage = capsys.readouterr().out
        assert [option for option in options if option not in usage] == []


def test_badges_are_true_and_need_no_account():
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r"!\[([^]]+)\]\(https://img\.shields\.io/badge/([^)]+)\)", TEXT)
    assert dict(badges) == {
        "Python 3.11 or newer": "python-3.11%20or%20newer-blue", "Licence: MIT": "licence-MIT-blue"
    }  # fmt: skip
    assert project["requires-python"] == ">=3.11" and project["license"] == "MIT"


def test_extras_are_those_of_the_package():
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    assert set(re.findall(r"pip install '\.\[(\w+)\]'", TEXT)) == set(project["optional-dependencies"])
