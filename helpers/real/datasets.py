"""The two real-world inputs, S&P 100 and ABIDE, as distances y between nodes, like those of the synthetic signals.

`sp100()` and `abide()` take the first of these that is there, and say in `source` which it was:

1. raw files in the folder that the environment variable `L2G_RAW` names,
2. raw files of an earlier download, in data/raw/,
3. a download, only with `download=True`: minutes for the prices, some 70 GB and a day for ABIDE,
4. the statistics in data/real/, which come with the repository.

Raw files are `sp100/sp100_prices.csv.gz` (adjusted closes, days x tickers), optionally `sp100/sp100_sectors.csv`, and
`abide/abide_msdl.npz` (region series). `compare` recomputes the statistics from them (`l2g data`).

All signals are standardised, so that y = 2 - 2 x correlation; `observations` gives what a method sees.
"""

import gzip
import io
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from tqdm.auto import tqdm

from .. import paths
from ..signals import Observations, correlations, distances, standardise

PRICES = "sp100/sp100_prices.csv.gz"  # raw files
SECTORS = "sp100/sp100_sectors.csv"
RECORDINGS = "abide/abide_msdl.npz"
COMPANIES = "sp100.csv"  # the shipped list of companies
PERIOD = ("2015-07-07", "2021-12-31")  # of the prices: the 100 tickers are complete
N_RETURNS = 1635  # daily returns in it, of each company
YEARS = range(2015, 2022)
WINDOWS = ("all", "first half", "second half", *map(str, YEARS))
RENAMED = {"FB": "META"}  # tickers that Yahoo now knows by another name
N_DRAWS = 50  # of the paper's stability table
N_SUBJECTS = 35
GROUPS = ("control", "autism")
AUTISM = 1  # ABIDE's codes of the groups
CONTROL = 2


class DatasetError(ValueError):
    """Data that are incomplete, damaged or not to be had; the message names what and the remedy."""


class Stocks(NamedTuple):
    """S&P 100: y maps each of WINDOWS to distances (E,)."""

    y: dict
    companies: pd.DataFrame  # ticker, name, sector; in the order of the nodes, by sector
    source: str


class Brains(NamedTuple):
    """ABIDE: distances y (n_subjects, E), and y35 (2 groups, 50 draws, E) of 35 subjects with one frame each."""

    y: torch.Tensor
    y35: torch.Tensor
    subjects: pd.DataFrame  # frames, group, site
    regions: pd.DataFrame  # region, network, x, y, z; in the order of the nodes
    source: str


# --- what notebooks use --------------------------------------------------------------------------------------------


def sp100(*, download=False):
    """Distances between the daily log-returns of 100 companies, 2015 to 2021, whole period and parts of it."""
    folder, source = find(PRICES, download_sp100 if download else None)
    if folder is not None:
        return read_raw_sp100(folder, source)
    return Stocks(shipped_tensors("sp100", WINDOWS), read(pd.read_csv, paths.REAL / COMPANIES), source)


def abide(*, download=False):
    """Distances between the BOLD signals of 39 regions, one set for each of 884 subjects."""
    folder, source = find(RECORDINGS, download_abide if download else None)
    if folder is not None:
        return read_raw_abide(folder, source)
    tensors = shipped_tensors("abide", ("y", "y35"))
    subjects = read(pd.read_csv, paths.REAL / "abide_subjects.csv")
    regions = read(pd.read_csv, paths.REAL / "abide_regions.csv")
    return Brains(tensors["y"], tensors["y35"], subjects, regions, source)


def observations(y, n_signals, scale=1.0):
    """Observations of standardised signals with distances y (..., E), whose distances are scale * y; float64.

    n_signals : a number or (...), how many independent signals y stands for
    scale : a number or (...), such as `likelihood.unit_scale(y)`
    """
    S = correlations(torch.as_tensor(y).double())
    return Observations(torch.as_tensor(scale, dtype=S.dtype)[..., None, None] * S, n_signals)


def pool(y, frames):
    """Distances of several recordings taken as one, the mean weighted by frames: (..., n, E), (..., n) -> (..., E)."""
    frames = torch.as_tensor(frames).to(y)
    return (frames[..., None] * y).sum(-2) / frames.sum(-1, keepdim=True)


def draws(group, *, n_draws=N_DRAWS, size=N_SUBJECTS, seed=0):
    """Random sets of subjects of each group (n_subjects,), without replacement: {name: (n_draws, size) indices}."""
    rng = np.random.default_rng(seed)
    group = np.asarray(group)
    chosen = {}
    for name in GROUPS:
        members = np.flatnonzero(group == name)
        if len(members) < size:
            raise DatasetError(f"the group {name} has {len(members)} subjects: at least {size} are needed for a draw")
        chosen[name] = np.stack([rng.choice(members, size, replace=False) for _ in range(n_draws)])
    return chosen


def one_frame_each(series, group, *, seed=1):
    """Distances (2 groups, 50 draws, E) of 35 signals, a random frame of each subject drawn by `draws`."""
    rng = np.random.default_rng(seed)
    chosen = draws(group)
    frames = [[[series[k][rng.integers(len(series[k]))] for k in draw] for draw in chosen[name]] for name in GROUPS]
    return distances(standardise(frames))


# --- raw files of the S&P 100 --------------------------------------------------------------------------------------


def read_raw_sp100(folder, source="raw files"):
    """Stocks from adjusted closes."""
    prices = read(_load_prices, folder / PRICES)
    own_list = folder / SECTORS
    companies = read(_load_companies, own_list if own_list.exists() else paths.REAL / COMPANIES)
    r = log_returns(prices, companies.ticker)
    half = len(r) // 2
    parts = [r, r[:half], r[half:], *(r[r.index.year == year] for year in YEARS)]
    y = {name: _return_distances(part, name) for name, part in zip(WINDOWS, parts)}
    return Stocks(y, companies, source)


def _load_prices(path):
    prices = pd.read_csv(path, index_col=0, parse_dates=True)
    if not isinstance(prices.index, pd.DatetimeIndex) or prices.index.has_duplicates:
        raise ValueError("the first column must hold dates, each once")
    return prices


def _load_companies(path):
    """Members of the index in 2020, by sector, without DOW, which did not exist in 2015."""
    table = pd.read_csv(path)
    if "in_sp100_2020" in table:
        table = table[table.in_sp100_2020 & (table.ticker != "DOW")]
    return table[["ticker", "name", "sector"]].sort_values(["sector", "ticker"], ignore_index=True)


def log_returns(prices, tickers):
    """Daily log-returns of `tickers` within PERIOD, days x tickers, or DatasetError that names every bad ticker."""
    prices = prices.reindex(columns=list(tickers)).sort_index().loc[slice(*PERIOD)]
    prices = prices.apply(pd.to_numeric, errors="coerce")  # words are gaps
    gaps = prices.isna().sum()
    if len(prices) < 3 or gaps.any():
        listed = ", ".join(f"{ticker} {n} days" for ticker, n in gaps[gaps > 0].items())
        raise DatasetError(f"prices of {len(prices)} days in {PERIOD[0]} to {PERIOD[1]}, missing: {listed or 'all'}")
    wrong = (prices <= 0) | np.isinf(prices)
    if wrong.any(axis=None):
        listed = ", ".join(f"{ticker} on {wrong[ticker].idxmax():%Y-%m-%d}" for ticker in wrong.columns[wrong.any()])
        raise DatasetError(f"prices must be positive and finite, which these are not: {listed}; get the file again")
    return np.log(prices).diff().iloc[1:]


def _return_distances(r, window):
    if len(r) < 2:
        raise DatasetError(f"{len(r)} days of prices in the window {window!r}: get the file again")
    still = r.columns[(r == r.iloc[0]).all()]
    if len(still):
        raise DatasetError(f"prices do not move in the window {window!r}: {', '.join(still)}; get the file again")
    return distances(standardise(r)).float()


# --- raw files of ABIDE --------------------------------------------------------------------------------------------


def read_raw_abide(folder, source="raw files"):
    """Brains from the signals of all subjects, one after the other."""
    data = read(_load_recordings, folder / RECORDINGS)
    series = [standardise(X) for X in _split_subjects(data)]
    group = np.where(data["dx_group"] == AUTISM, "autism", "control")
    subjects = pd.DataFrame({"frames": data["n_timepoints"], "group": group, "site": data["site"]})
    regions = pd.DataFrame({"region": data["region"], "network": data["network"]})
    regions[["x", "y", "z"]] = data["coords"]
    y = torch.stack([distances(X) for X in series]).float()
    return Brains(y, one_frame_each(series, group).float(), subjects, regions, source)


def _load_recordings(path):
    """The arrays of a file, or ValueError: they must fit each other."""
    with np.load(path, allow_pickle=False) as file:
        data = dict(file)
    n_subjects = len(data["n_timepoints"])
    n_regions = len(data["region"])
    shapes = {"X": (int(data["n_timepoints"].sum()), n_regions), "dx_group": (n_subjects,), "site": (n_subjects,)}
    shapes |= {"network": (n_regions,), "coords": (n_regions, 3)}
    for name, shape in shapes.items():
        if data[name].shape != shape:
            raise ValueError(f"{name} has shape {data[name].shape}, n_timepoints and region add up to {shape}")
    if not np.isfinite(data["X"]).all():
        raise ValueError("X has NaN or infinite entries")
    if not np.isin(data["dx_group"], (AUTISM, CONTROL)).all():
        raise ValueError(f"dx_group must be {AUTISM} or {CONTROL}")
    for k, X in enumerate(_split_subjects(data)):
        if len(X) < 2 or (X == X[0]).all(0).any():
            raise ValueError(f"subject {k} has a constant signal")
    return data


def _split_subjects(data):
    """Signals (n_frames, n_regions) of each subject."""
    return np.split(data["X"], np.cumsum(data["n_timepoints"])[:-1])


# --- downloads -----------------------------------------------------------------------------------------------------


def download_sp100(folder):
    """Prices from Yahoo Finance, all or none."""
    tickers = list(read(pd.read_csv, paths.REAL / COMPANIES).ticker)
    prices, problems = download_prices(tickers)
    if problems:
        raise DatasetError("Yahoo Finance: " + "; ".join(f"{ticker}: {why}" for ticker, why in problems.items()))
    paths.write_atomically(folder / PRICES, gzip.compress(prices.to_csv().encode(), mtime=0))


def download_prices(tickers, *, batch=25, retries=5, wait=2.0):
    """Adjusted closes from Yahoo Finance in PERIOD, days x tickers, and {ticker: what is wrong with it}.

    Batches that fail, and tickers that come back empty (which is also how a rate limit shows), are asked for again
    after `wait`, 2 `wait`, 4 `wait`, ... seconds.
    """
    found = {}
    why = {}
    for attempt in range(retries):
        todo = [t for t in tickers if t not in found]
        if todo and attempt:
            time.sleep(wait * 2 ** (attempt - 1))
        for k in range(0, len(todo), batch):
            asked = todo[k : k + batch]
            close, reason = _ask_yahoo([RENAMED.get(t, t) for t in asked])
            found |= {t: close[name] for t in asked if (name := RENAMED.get(t, t)) in close}
            why |= {t: reason for t in asked if t not in found}
    prices = pd.DataFrame({t: found[t] for t in tickers if t in found}).sort_index()
    short = prices.isna().sum()
    why |= {t: f"{n} of {len(prices)} days missing" for t, n in short[short > 0].items()}
    return prices, {t: why[t] for t in tickers if t not in found or short[t]}


def _ask_yahoo(names):
    """{name: adjusted closes} of those that have any, and the reason why the others have none."""
    import yfinance  # here because it opens a cache folder in the user's home

    after_the_end = pd.Timestamp(PERIOD[1]) + pd.Timedelta(days=1)  # the end is left out
    try:
        answer = yfinance.download(names, start=PERIOD[0], end=after_the_end, auto_adjust=True, progress=False)
    except Exception as error:  # whatever a network may raise
        return {}, repr(error)
    close = {} if answer is None or "Close" not in answer else answer["Close"]
    return {name: close[name] for name in names if name in close and close[name].notna().any()}, "no prices"


def download_abide(folder):
    """The recordings, subject by subject; a second call goes on where the first one stopped.

    DPARSF pipeline, band-pass filtered, no global signal regression, mean framewise displacement up to 0.2. An image
    is deleted once its 39 signals are stored. Subjects that fail are listed in the error.
    """
    from nilearn import datasets  # here because it takes a second to load

    store = folder / "abide" / "series"
    options = dict(data_dir=str(store), pipeline="dparsf", band_pass_filtering=True, quality_checked=False, verbose=0)
    atlas = datasets.fetch_atlas_msdl(data_dir=str(store), verbose=0)
    fetch = partial(datasets.fetch_abide_pcp, **options)
    table = fetch(derivatives=[], func_mean_fd=(0, 0.2)).phenotypic
    failed = {}
    for row in tqdm(list(table.itertuples()), "ABIDE"):
        target = store / f"{row.FILE_ID}.npy"
        if target.exists():
            continue
        try:
            image = Path(fetch(derivatives=["func_preproc"], SUB_ID=row.SUB_ID).func_preproc[0])
            np.save(buffer := io.BytesIO(), region_series(image, atlas.maps).astype(np.float32))
            paths.write_atomically(target, buffer.getvalue())
            image.unlink()
        except Exception as error:  # whatever a network and nilearn may raise
            failed[row.FILE_ID] = repr(error)
    if failed:
        raise DatasetError(f"{len(failed)} of {len(table)} subjects failed, call again to go on: {failed}")
    series = [read(np.load, store / f"{name}.npy") for name in table.FILE_ID]
    np.savez_compressed(
        buffer := io.BytesIO(), X=np.concatenate(series), n_timepoints=[len(X) for X in series],
        dx_group=table.DX_GROUP.to_numpy(int), site=table.SITE_ID.to_numpy(str), region=np.array(atlas.labels, str),
        network=np.array(atlas.networks, str), coords=np.array(atlas.region_coords, float),
    )  # fmt: skip
    paths.write_atomically(folder / RECORDINGS, buffer.getvalue())


def region_series(image, maps):
    """Standardised signals (n_frames, n_regions) of a 4-D image on the probabilistic atlas `maps`."""
    from nilearn.maskers import NiftiMapsMasker  # here because it takes a second to load

    masker = NiftiMapsMasker(maps, standardize="zscore_sample", resampling_target="data", memory=None, verbose=0)
    return masker.fit_transform(image)


# --- what is shipped -----------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """Names of the files in data/real/ that agree with the raw data, and of those that do not."""

    agree: list
    differ: list


def compare(*, download=False, write=False):
    """Recompute every file of data/real/ from raw data and compare: a Comparison.

    Raises DatasetError where raw data are missing or damaged. `download` fetches what is missing; `write` replaces the
    files that differ.
    """
    stocks = sp100(download=download)
    brains = abide(download=download)
    if "shipped statistics" in (stocks.source, brains.source):
        raise DatasetError("raw data of S&P 100 or ABIDE are missing: name their folder in L2G_RAW, or use --download")
    files = statistics(stocks, brains)
    differ = [name for name, content in files.items() if not agrees(paths.REAL / name, content)]
    if write:
        for name in differ:
            paths.write_atomically(paths.REAL / name, files[name])
    return Comparison([name for name in files if name not in differ], differ)


def statistics(stocks, brains):
    """{file name: content} of data/real/, from raw data."""
    tables = {"sp100": stocks.companies, "abide_subjects": brains.subjects, "abide_regions": brains.regions}
    files = {f"{k}.csv": t.to_csv(index=False, float_format="%.2f").encode() for k, t in tables.items()}
    tensors = {"sp100": stocks.y, "abide": {"y": brains.y, "y35": brains.y35}}
    return files | {f"{k}.safetensors": tensors_to_bytes(t) for k, t in tensors.items()}


def agrees(path, content, atol=1e-5):
    """Whether a file of data/real/ has this content; distances may differ by rounding."""
    if not path.exists():
        return False
    if path.suffix != ".safetensors":
        return path.read_bytes() == content
    try:
        there = read_tensors(path)
    except DatasetError:
        return False
    here = tensors_from_bytes(content)
    return there.keys() == here.keys() and all(
        there[key].shape == here[key].shape
        and torch.allclose(there[key].double(), here[key].double(), rtol=0, atol=atol)
        for key in here
    )


def find(name, download):
    """The folder that holds the raw file and the words for it, or None and the words for what is shipped."""
    if named := os.environ.get("L2G_RAW"):
        if (Path(named) / name).exists():
            return Path(named), "raw files"
        warnings.warn(f"L2G_RAW={named} does not hold {name}: looking elsewhere", stacklevel=3)
    try:
        if download is not None and not (paths.RAW / name).exists():
            download(paths.RAW)
    except Exception as error:  # whatever a network and two libraries may raise
        warnings.warn(f"no download ({error}): using the shipped statistics", stacklevel=3)
    if (paths.RAW / name).exists():
        return paths.RAW, "raw files, downloaded"
    return None, "shipped statistics"


def shipped_tensors(name, keys):
    path = paths.REAL / f"{name}.safetensors"
    tensors = read_tensors(path)
    if missing := [key for key in keys if key not in tensors]:
        raise DatasetError(f"{path} is damaged (no {', '.join(missing)}): delete it and get it again")
    return {key: tensors[key] for key in keys}  # in our order: the file has its own


def read_tensors(path):
    return read(lambda file: tensors_from_bytes(file.read_bytes()), path)


def read(reader, path, **options):
    """What `reader` makes of a file, or DatasetError that names it."""
    try:
        return reader(path, **options)
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing: the repository has it, does L2G_DATA name another folder?") from None
    except Exception as error:  # each format has errors of its own
        raise DatasetError(f"{path} is damaged ({type(error).__name__}: {error}): delete it and get it again") from None
