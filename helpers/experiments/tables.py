"""Tables: one tidy CSV each under data/results/, in the columns of the paper's own numbers, data/paper_tables.csv.

A row is made by `mean_row` (one value per graph, with an interval), `seeds_row` (the same for several trainings, with
the spread between them) or `single_row` (one number). Numbers are stored to
the digits that another machine reproduces. A number that agrees with the stored one within a unit of its last digit
leaves the stored one as it is, so that a changed file means a changed result.
"""

import numpy as np
import pandas as pd

from .. import paths
from ..metrics import mean_ci

COLUMNS = ["table", "family", "metric", "model", "value", "ci"]
DIGITS = {"value": 5, "ci": 3, "sd": 3}  # significant ones, of the columns that hold results
FLOOR = 1e-6  # numbers this close to each other are equal: below, rounding decides
RTOL = 0.01  # by which a check lets a number differ


# --- rows ----------------------------------------------------------------------------------------------------------


def mean_row(table, family, metric, model, values, **more):
    """One row: the mean of one value per graph, with its 95 % interval; `more` are further columns, such as x=20."""
    value, ci = mean_ci(values)
    return _row(table, family, metric, model, value, ci, more)


def seeds_row(table, family, metric, model, trainings, **more):
    """One row: a network trained several times, each with one value per graph, or None if that training diverged.

    `value` is the mean over trainings and graphs, `ci` its 95 % interval over graphs, and `sd` the standard deviation
    of a training's mean. `seeds` counts the trainings, `diverged` those that the numbers leave out.
    """
    finished = [np.asarray(values) for values in trainings if values is not None]
    counts = {"seeds": len(trainings), "diverged": len(trainings) - len(finished)}
    if not finished:
        return single_row(table, family, metric, model, np.nan, sd=np.nan, **counts, **more)
    sd = np.std([values.mean() for values in finished], ddof=1) if len(finished) > 1 else np.nan
    return mean_row(table, family, metric, model, np.mean(finished, 0), sd=sd, **counts, **more)


def single_row(table, family, metric, model, value, **more):
    """One row: a number that is no mean and has no interval; `more` are further columns, such as x=20."""
    return _row(table, family, metric, model, float(value), float("nan"), more)


def _row(table, family, metric, model, value, ci, more):
    return dict(zip(COLUMNS, (table, family, metric, model, value, ci))) | more


# --- files ---------------------------------------------------------------------------------------------------------


def write(name, rows, *, floor=FLOOR, rtol=RTOL):
    """Store a table as data/results/<name>.csv.

    With L2G_CHECK set, as in `make test`, nothing is written: the table must agree with the stored one, see `check`.

    Parameters
    ----------
    rows : list of rows, or a frame
    floor : absolute difference below which numbers are equal; 0 for tables whose tiny numbers matter
    rtol : relative difference that a check permits; a table that needs more says why where it is written

    Returns
    -------
    frame : the table as stored, rounded
    """
    frame = round_off(pd.DataFrame(rows).reset_index(drop=True))
    path = paths.RESULTS / f"{name}.csv"
    stored = read(name) if path.exists() else None
    if paths.CHECK:
        check(frame, stored, name, floor=floor, rtol=rtol)
    if stored is not None:
        frame = _keep_equal(frame, stored, floor)
    content = _as_text(frame).encode()
    if not paths.CHECK and not (path.exists() and path.read_bytes() == content):
        paths.write_atomically(path, content)
    return frame


def check(frame, stored, name, *, floor=FLOOR, rtol=RTOL):
    """Raise AssertionError unless two tables have the same rows and their numbers agree.

    They may differ by `rtol`, by a unit of the last stored digit or by `floor`, whichever is largest.
    """
    if stored is None:
        raise AssertionError(f"data/results/{name}.csv is missing: `make reproduce` writes it")
    if not _same_rows(frame, stored):
        raise AssertionError(f"data/results/{name}.csv has other rows or columns than this run: `make reproduce`")
    stored = round_off(stored)
    wrong = pd.Series(False, frame.index)
    for column in _results(frame):
        wrong |= ~_close(frame[column], stored[column], DIGITS[column], floor, rtol)
    if wrong.any():
        both = frame[wrong].join(stored[_results(frame)].add_suffix(" stored"))
        raise AssertionError(f"data/results/{name}.csv differs from this run:\n{both.to_string()}")


def read(name):
    """A table of ours."""
    return pd.read_csv(paths.RESULTS / f"{name}.csv", dtype={"table": str})


def paper(table):
    """The paper's numbers for one table."""
    numbers = pd.read_csv(paths.PAPER_TABLES, dtype={"table": str})
    return numbers[numbers.table == table].reset_index(drop=True)


# --- use -----------------------------------------------------------------------------------------------------------


def lookup(frame, **where):
    """The one value that matches, e.g. lookup(frame, family="BA", model="PDS")."""
    chosen = frame.loc[(frame[list(where)] == pd.Series(where)).all(axis=1), "value"]
    if len(chosen) != 1:
        raise ValueError(f"{where} matches {len(chosen)} rows of the table, not one")
    return chosen.item()


def wide(frame, digits=3):
    """Tidy rows -> models down, families across, 'mean ± half width' in the cells, in order of appearance.

    Cells have `digits` decimals, fewer for large numbers: no more are stored. In brackets stands the standard deviation
    over trainings, where there are several, and how many of them diverged.
    """
    text = [_cell(value, ci, digits) for value, ci in zip(frame.value, frame.ci)]
    if "sd" in frame:
        text = [cell + _spread(row, digits) for cell, row in zip(text, frame.itertuples())]
    table = frame.assign(text=text).pivot(index="model", columns="family", values="text")
    return table.loc[frame.model.unique(), frame.family.unique()].fillna("")


def _cell(value, ci, digits):
    stored = DIGITS["value"] - 1 - np.floor(np.log10(abs(value))) if value and np.isfinite(value) else digits
    decimals = int(np.clip(stored, 0, digits))
    return f"{value:.{decimals}f}" if np.isnan(ci) else f"{value:.{decimals}f} ± {ci:.{decimals}f}"


def _spread(row, digits):
    parts = [] if np.isnan(row.sd) else [f"sd {row.sd:.{digits}f}"]
    if row.diverged > 0:
        parts.append(f"{row.diverged:.0f} of {row.seeds:.0f} diverged")
    return f" ({', '.join(parts)})" if parts else ""


# --- rounding and comparison ---------------------------------------------------------------------------------------


def round_off(frame):
    """A copy with the columns that hold results rounded to their significant digits."""
    columns = {c: [float(f"{x:.{DIGITS[c]}g}") for x in frame[c].astype(float)] for c in _results(frame)}
    return frame.assign(**columns)


def _results(frame):
    return [column for column in frame if column in DIGITS]


def _as_text(frame):
    return frame.to_csv(index=False, float_format="%.6g")


def _same_rows(frame, stored):
    """Whether everything but the results is the same, as it stands in the files."""
    labels = [column for column in frame if column not in DIGITS]
    return list(frame) == list(stored) and _as_text(frame[labels]) == _as_text(stored[labels])


def _keep_equal(frame, stored, floor):
    """The stored number wherever the new one equals it up to rounding."""
    if not _same_rows(frame, stored):
        return frame
    stored = round_off(stored)
    equal = {c: _close(frame[c], stored[c], DIGITS[c], floor, 0) for c in _results(frame)}
    return frame.assign(**{c: frame[c].where(~equal[c], stored[c]) for c in equal})


def _close(new, stored, digits, floor, rtol):
    """Whether numbers agree up to `rtol`, a unit of the last of the stored `digits`, or `floor`."""
    size = stored.abs().where(np.isfinite(stored), 0)
    with np.errstate(divide="ignore"):
        unit = 10 ** (np.floor(np.log10(size)) + 1 - digits)  # 0 where the stored number is 0
    tolerance = np.maximum.reduce([1.001 * unit, rtol * size, np.full(len(size), floor)])  # the unit itself is rounded
    return ((new - stored).abs() <= tolerance) | (new.isna() & stored.isna()) | (new == stored)
