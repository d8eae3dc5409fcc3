import numpy as np
import pandas as pd
import pytest

from helpers import paths, results
from helpers.metrics import mean_ci

ROWS = [
    results.row("1", family, "gmse", model, np.random.default_rng(k).random(9))
    for k, (family, model) in enumerate([("BA", "PDS"), ("WS", "PDS"), ("BA", "L2G"), ("WS", "L2G")])
]


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    monkeypatch.setattr(paths, "CHECK", False)


def test_tables_round_trip_and_spread():
    frame = results.write("table", ROWS)
    pd.testing.assert_frame_equal(results.read("table"), frame, rtol=1e-5)
    wide = results.spread(frame)
    assert list(wide.index) == ["PDS", "L2G"]
    assert list(wide.columns) == ["BA", "WS"]
    assert wide.loc["L2G", "BA"] == "{:.3f} ± {:.3f}".format(*mean_ci(np.random.default_rng(2).random(9)))
    assert results.lookup(frame, family="BA", model="L2G") == ROWS[2]["value"]
    with pytest.raises(ValueError, match="2 rows"):
        results.lookup(frame, family="BA")


def test_paper_numbers_have_our_columns():
    paper = results.paper("1")
    assert list(paper) == results.COLUMNS
    assert results.lookup(paper, family="BA", model="L2G") == 0.0594


def test_check_mode_compares_and_does_not_write(monkeypatch):
    results.write("table", ROWS)
    monkeypatch.setattr(paths, "CHECK", True)
    results.write("table", [row | {"value": row["value"] * 1.001} for row in ROWS])
    assert results.lookup(results.read("table"), family="BA", model="L2G") == pytest.approx(ROWS[2]["value"], rel=1e-5)
    with pytest.raises(AssertionError, match="differs from this run"):
        results.write("table", [row | {"value": row["value"] * 1.1} for row in ROWS])
    with pytest.raises(AssertionError, match="other rows"):
        results.write("table", ROWS[1:])
