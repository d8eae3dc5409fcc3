"""The README's tables are those of data/results/, and its links and figures exist."""

import re

import pytest

from helpers import paths, summary

TEXT = summary.README.read_text()


def test_the_tables_are_not_stale():
    assert summary.insert(TEXT) == TEXT, "renew them: python -m helpers.summary"


def test_a_changed_number_is_noticed():
    number = re.search(r"0\.\d{3}", TEXT)
    changed = TEXT[: number.start()] + "0.999" + TEXT[number.end() :]
    assert summary.insert(changed) != changed


def test_missing_markers_are_named():
    with pytest.raises(ValueError, match="markers <!-- claims -->"):
        summary.insert("no table here")


def test_verdicts():
    assert summary.verdict([True, True]) == "reproduced"
    assert summary.verdict([True, False]) == "partly"
    assert summary.verdict([False, False]) == "not reproduced"


def test_links_and_figures_exist():
    targets = [t for t in re.findall(r"\]\(([^)]+)\)", TEXT) if "://" not in t]
    assert targets
    assert [t for t in targets if not (paths.ROOT / t).exists()] == []


def test_every_notebook_is_listed():
    names = {path.name for path in (paths.ROOT / "notebooks").glob("*.ipynb")}
    assert names == set(re.findall(r"notebooks/(\S+?\.ipynb)\)", TEXT.split("## Notebooks")[1]))
