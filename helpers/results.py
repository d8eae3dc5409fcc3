"""Tables: one tidy CSV each under data/results/, in the columns of the paper's own numbers, data/paper_tables.csv."""

import numpy as np
import pandas as pd

from . import paths
from .metrics import mean_ci

COLUMNS = ["table", "family", "metric", "model", "value", "ci"]


def paper(table):
    """The paper's numbers for one table."""
    numbers = pd.read_csv(paths.ROOT / "data" / "paper_tables.csv", dtype={"table": str})
    return numbers[numbers.table == table].reset_index(drop=True)


def row(table, family, metric, model, values):
    """One number of a table: the mean of one value a graph, with its 95 % interval."""
    value, ci = mean_ci(values)
    return dict(zip(COLUMNS, (table, family, metric, model, value, ci), strict=True))


def single(table, family, metric, model, value):
    """One number of a table that is no mean."""
    return dict(zip(COLUMNS, (table, family, metric, model, value, float("nan")), strict=True))


def write(name, rows):
    """Write data/results/<name>.csv, six significant digits; returns the table as a frame.

    With L2G_CHECK set, as in `make test`, nothing is written: the table must agree with the stored one.
    """
    frame = pd.DataFrame(rows)
    if paths.CHECK:
        check(frame, read(name), name)
    else:
        paths.write_atomically(paths.RESULTS / f"{name}.csv", frame.to_csv(index=False, float_format="%.6g").encode())
    return frame


def check(frame, stored, name, rtol=0.02, atol=1e-4):
    """Raise unless two tables have the same rows and their numbers agree within the tolerances."""
    number = [c for c in frame if pd.api.types.is_float_dtype(frame[c])]
    labels = [c for c in frame if c not in number]
    if list(frame) != list(stored) or not frame[labels].astype(str).equals(stored[labels].astype(str)):
        raise AssertionError(f"data/results/{name}.csv has other rows or columns than this run: `make reproduce`")
    close = np.isclose(frame[number], stored[number], rtol=rtol, atol=atol, equal_nan=True).all(1)
    if not close.all():
        both = frame[~close].merge(stored, on=labels, suffixes=("", " stored"))
        raise AssertionError(f"data/results/{name}.csv differs from this run:\n{both.to_string()}")


def read(name):
    """A table of ours."""
    return pd.read_csv(paths.RESULTS / f"{name}.csv", dtype={"table": str})


def lookup(frame, **where):
    """The one value that matches, e.g. lookup(frame, family="BA", model="PDS")."""
    chosen = frame.loc[(frame[list(where)] == pd.Series(where)).all(axis=1), "value"]
    if len(chosen) != 1:
        raise ValueError(f"{where} matches {len(chosen)} rows of the table, not one")
    return chosen.item()


def spread(frame, digits=3):
    """Tidy rows -> models down, families across, 'mean ± half width' in the cells, in order of appearance."""
    text = frame.value.map(f"{{:.{digits}f}}".format)
    text = text.where(frame.ci.isna(), text + frame.ci.map(f" ± {{:.{digits}f}}".format))
    wide = frame.assign(text=text).pivot(index="model", columns="family", values="text")
    return wide.loc[frame.model.unique(), frame.family.unique()].fillna("")
