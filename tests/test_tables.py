"""Rows, files that change only with their numbers, and what a check lets pass."""

import numpy as np
import pandas as pd
import pytest

from helpers import paths
from helpers.experiments import tables
from helpers.experiments.tables import lookup, mean_row, single_row, wide, write
from helpers.metrics import mean_ci

MODELS = [("BA", "PDS"), ("WS", "PDS"), ("BA", "L2G"), ("WS", "L2G")]


STORED_DIGITS = dict(tables.DIGITS)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    monkeypatch.setattr(paths, "CHECK", False)
    monkeypatch.setattr(tables, "DIGITS", {"value": 4, "ci": 2, "sd": 2})  # fewer than in use: easier to read here
    return tmp_path


def table(*values, ci=0.012):
    """Rows with these numbers."""
    values = values or (0.4, 0.3, 0.2, 0.1)
    return [
        dict(table="1", family=family, metric="gmse", model=model, value=value, ci=ci)
        for value, (family, model) in zip(values, MODELS, strict=False)
    ]


# --- rows ----------------------------------------------------------------------------------------------------------


def test_rows_have_the_papers_columns_and_more():
    values = np.random.default_rng(0).random(9)
    row = mean_row("1", "BA", "gmse", "L2G", values, x=20)
    assert list(row) == [*tables.COLUMNS, "x"]
    assert (row["value"], row["ci"]) == mean_ci(values)
    assert row["x"] == 20
    single = single_row("2", "WS", "threshold", "PDS", np.float32(0.5), sigma2=1e-4)
    assert single | {"ci": None} == {
        "table": "2", "family": "WS", "metric": "threshold", "model": "PDS", "value": 0.5, "ci": None, "sigma2": 1e-4
    }  # fmt: skip
    assert np.isnan(single["ci"]) and type(single["value"]) is float


def test_paper_numbers_have_our_columns():
    paper = tables.paper("1")
    assert list(paper) == tables.COLUMNS
    assert set(paper.table) == {"1"}
    assert list(paper.index) == list(range(len(paper)))
    assert lookup(paper, family="BA", model="L2G") == 0.0594


# --- files ---------------------------------------------------------------------------------------------------------


def test_tables_are_rounded_and_returned_as_stored(folder):
    rows = [
        single_row("1", "BA", "gmse", "PDS", 0.123456, x=20),
        single_row("1", "BA", "gmse", "L2G", 123456.7, x=1_000_000),
        {**single_row("1", "BA", "gmse", "GLAD", 2.40631e-09, x=3), "ci": 1.16101e-10},
    ]
    frame = write("table", rows)
    assert frame.value.tolist() == [0.1235, 123500, 2.406e-09]
    assert frame.ci.tolist()[2] == 1.2e-10
    assert (folder / "table.csv").read_text() == (
        "table,family,metric,model,value,ci,x\n1,BA,gmse,PDS,0.1235,,20\n1,BA,gmse,L2G,123500,,1000000\n"
        "1,BA,gmse,GLAD,2.406e-09,1.2e-10,3\n"
    )
    pd.testing.assert_frame_equal(tables.read("table"), frame)


def test_a_frame_may_be_written_and_its_index_does_not_matter():
    frame = pd.DataFrame(table())[lambda f: f.model == "L2G"]
    assert write("table", frame).value.tolist() == [0.2, 0.1]
    assert write("table", frame * 1).index.tolist() == [0, 1]


def test_numbers_that_agree_leave_the_file_and_the_frame_as_they_are(folder):
    write(
        "table",
        table(0.1234, 0.02, 10.0, 0),
    )
    before = (folder / "table.csv").read_bytes(), (folder / "table.csv").stat().st_mtime_ns
    frame = write("table", table(0.1235, 0.01999, 9.999, 1e-7, ci=0.013))  # one unit of the last digit each
    assert before == ((folder / "table.csv").read_bytes(), (folder / "table.csv").stat().st_mtime_ns)
    assert frame.value.tolist() == [0.1234, 0.02, 10.0, 0]
    assert frame.ci.tolist() == [0.012] * 4


def test_only_numbers_that_moved_change(folder):
    write("table", table(0.1234, 0.02, 0.3, 0.4))
    frame = write("table", table(0.1235, 0.02003, 0.3, 0.4, ci=0.014))
    assert frame.value.tolist() == [0.1234, 0.02003, 0.3, 0.4]
    assert tables.read("table").value.tolist() == frame.value.tolist()
    assert frame.ci.tolist() == [0.014] * 4


def test_tiny_numbers_matter_only_where_they_are_said_to(folder):
    write("table", table(2.4e-9, 1e-15, 0, 1))
    assert write("table", table(4e-9, 7e-16, 3e-16, 1)).value.tolist() == [2.4e-9, 1e-15, 0, 1]
    assert write("table", table(4e-9, 1e-15, 0, 1), floor=0).value.tolist() == [4e-9, 1e-15, 0, 1]
    assert write("table", table(4e-9, 1e-15, 3e-16, 1), floor=0).value.tolist() == [4e-9, 1e-15, 3e-16, 1]


def test_files_of_more_digits_are_rounded(folder):
    (folder / "table.csv").write_text("table,family,metric,model,value,ci\n1,BA,gmse,PDS,0.123444,0.0123456\n")
    write("table", table(0.123449, ci=0.0123))
    assert (folder / "table.csv").read_text().endswith("PDS,0.1234,0.012\n")


def test_other_rows_replace_the_file():
    write("table", table())
    assert write("table", table()[1:]).value.tolist() == [0.3, 0.2, 0.1]
    assert write("table", [row | {"x": 1} for row in table()[1:]]).columns[-1] == "x"
    assert write("table", [row | {"x": 2} for row in table(7, 8, 9)]).x.tolist() == [2, 2, 2]
    assert len(tables.read("table")) == 3


def test_labels_are_compared_as_they_are_stored():
    rows = [row | {"x": k / 3, "family": None} for k, row in enumerate(table())]
    write("table", rows)
    assert write("table", [row | {"value": row["value"] * 1.0002} for row in rows]).value.tolist() == [
        0.4,
        0.3,
        0.2,
        0.1,
    ]


# --- checks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def checking(monkeypatch):
    def store(rows):
        write("table", rows)
        monkeypatch.setattr(paths, "CHECK", True)

    return store


def test_a_check_compares_and_does_not_write(checking, folder):
    checking(table(0.0033, 0.3, 0.2, 0.1))
    before = (folder / "table.csv").stat().st_mtime_ns
    assert write("table", table(0.00332, 0.3, 0.2, 0.1)).value[0] == 0.00332
    assert (folder / "table.csv").stat().st_mtime_ns == before
    assert tables.read("table").value[0] == 0.0033


@pytest.mark.parametrize("factor", [0.95, 0.985, 1.015, 1.05])
def test_small_numbers_may_not_drift(checking, factor):
    checking(table(0.0033, 0.3, 0.2, 0.1))
    with pytest.raises(AssertionError, match=r"table\.csv differs from this run:(.|\n)*0\.0033"):
        write("table", table(0.0033 * factor, 0.3, 0.2, 0.1))


def test_the_error_shows_the_rows_that_differ_and_both_numbers(checking):
    checking(table())
    with pytest.raises(AssertionError) as error:
        write("table", table(0.4, 0.35, 0.2, 0.1))
    assert "value stored" in str(error.value) and "0.35" in str(error.value) and "0.3 " in str(error.value)
    assert "WS" in str(error.value) and "L2G" not in str(error.value)


def test_an_interval_may_differ_by_its_last_digit(checking):
    checking(table(ci=0.012))
    write("table", table(ci=0.0134))
    with pytest.raises(AssertionError, match="differs"):
        write("table", table(ci=0.0136))


def test_the_floor_and_the_tolerance_can_be_set(checking):
    checking(table(2.4e-9, 0.3, 0.2, 0.1))
    write("table", table(3e-9, 0.3, 0.2, 0.1))
    write("table", table(0.9e-6, 0.302, 0.2, 0.1))
    with pytest.raises(AssertionError, match="differs"):
        write("table", table(3e-9, 0.3, 0.2, 0.1), floor=0)
    with pytest.raises(AssertionError, match="differs"):
        write("table", table(1.1e-6, 0.3, 0.2, 0.1))
    write("table", table(2.4e-9, 0.33, 0.2, 0.1), rtol=0.11)


def test_missing_numbers_must_be_missing_in_both(checking):
    checking([single_row(*"abcd", 1.0)])
    write("table", [single_row(*"abcd", 1.0)])
    with pytest.raises(AssertionError, match="differs"):
        write("table", [single_row(*"abcd", 1.0) | {"ci": 0.1}])
    with pytest.raises(AssertionError, match="differs"):
        write("table", [single_row(*"abcd", np.nan)])


def test_infinite_numbers_agree_with_themselves(checking):
    checking([single_row(*"abcd", np.inf)])
    write("table", [single_row(*"abcd", np.inf)])
    with pytest.raises(AssertionError, match="differs"):
        write("table", [single_row(*"abcd", -np.inf)])


def test_other_rows_and_missing_files_are_told(checking):
    checking(table())
    with pytest.raises(AssertionError, match="other rows"):
        write("table", table()[1:])
    with pytest.raises(AssertionError, match="other rows"):
        write("table", [row | {"model": "PDS"} for row in table()])
    with pytest.raises(AssertionError, match="other rows"):
        write("table", [row | {"x": 1} for row in table()])
    with pytest.raises(AssertionError, match=r"other\.csv is missing"):
        write("other", table())


# --- use -----------------------------------------------------------------------------------------------------------


def test_the_one_value_that_matches():
    frame = pd.DataFrame(table())
    assert lookup(frame, family="BA", model="L2G") == 0.2
    with pytest.raises(ValueError, match="2 rows"):
        lookup(frame, family="BA")
    with pytest.raises(ValueError, match="0 rows"):
        lookup(frame, family="ER", model="L2G")


def test_wide_tables_are_in_order_of_appearance():
    frame = pd.DataFrame(table(0.41239, 0.3, 0.2, 0.1)[:3])
    shown = wide(frame)
    assert list(shown.index) == ["PDS", "L2G"]
    assert list(shown.columns) == ["BA", "WS"]
    assert shown.loc["PDS"].tolist() == ["0.412 ± 0.012", "0.300 ± 0.012"]
    assert shown.loc["L2G"].tolist() == ["0.200 ± 0.012", ""]
    assert wide(frame, digits=2).loc["PDS", "BA"] == "0.41 ± 0.01"


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0.000"), (0.0004, "0.000"), (0.05, "0.050"), (-1.234, "-1.234"), (9.999, "9.999"), (10, "10.00"),
        (12.35, "12.35"), (123.5, "123.5"), (1235.0, "1235"), (123500, "123500"), (np.nan, "nan"), (np.inf, "inf"),
    ],
)  # fmt: skip
def test_cells_show_no_more_digits_than_are_stored(value, text):
    assert wide(pd.DataFrame([single_row("1", "BA", "gmse", "PDS", value)])).loc["PDS", "BA"] == text


def test_digits_that_are_stored():
    assert STORED_DIGITS == {"value": 5, "ci": 3, "sd": 3}


def test_a_row_of_several_trainings():
    """Mean over trainings and graphs; the interval is over graphs, the standard deviation over trainings."""
    a = np.array([1.0, 2.0, 3.0, 6.0])
    row = tables.seeds_row("1", "BA", "gmse", "L2G", [a, None, a + 1, a + 5], n=3)
    expected = tables.mean_row("1", "BA", "gmse", "L2G", a + 2)
    assert {key: row[key] for key in expected} == pytest.approx(expected)
    assert row["sd"] == pytest.approx(np.std([0, 1, 5], ddof=1))
    assert (row["seeds"], row["diverged"], row["n"]) == (4, 1, 3)
    assert np.isnan(tables.seeds_row("1", "BA", "gmse", "L2G", [a])["sd"])
    lost = tables.seeds_row("1", "BA", "gmse", "L2G", [None, None])
    assert np.isnan([lost["value"], lost["ci"], lost["sd"]]).all()
    assert (lost["seeds"], lost["diverged"]) == (2, 2)


def test_cells_tell_the_spread_of_trainings():
    a = np.array([1.0, 2.0, 3.0, 6.0])
    rows = [
        tables.seeds_row("1", family, "gmse", "L2G", trainings)
        for family, trainings in {"BA": [a, a + 1], "ER": [a, a + 1, None], "WS": [a], "SBM": [None]}.items()
    ]
    cells = tables.wide(tables.round_off(pd.DataFrame(rows)), 2).loc["L2G"]
    assert cells["BA"] == "3.50 ± 3.40 (sd 0.71)"
    assert cells["ER"] == "3.50 ± 3.40 (sd 0.71, 1 of 3 diverged)"
    assert cells["WS"] == "3.00 ± 3.40"
    assert cells["SBM"] == "nan (1 of 1 diverged)"
