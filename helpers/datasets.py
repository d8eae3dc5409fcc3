"""The two real-world inputs, S&P 100 and ABIDE, as the same `y` the synthetic ones give.

`sp100()` and `abide()` take the first of these that is there, and say in `source` which it was:

1. raw files in the folder that the environment variable `L2G_RAW` names,
2. raw files of an earlier download, in data/raw/,
3. a download, only with `download=True`: minutes for the prices, some 70 GB and a day for ABIDE,
4. the statistics in data/real/, which come with the repository.

Raw files are `sp100/sp100_prices.csv.gz` (adjusted closes, days x tickers), optionally `sp100/sp100_sectors.csv`, and
`abide/abide_msdl.npz` (region series). `python -m helpers.datasets` recomputes the statistics and compares.

All signals are standardised, so that y = 2 - 2 x correlation and `signals.correlations(y)` gives back second moments.
"""

import argparse
import gzip
import io
import os
import sys
import time
import warnings
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from tqdm.auto import tqdm

from . import paths
from .graphs import n_nodes
from .signals import distances, standardised
from .solvers import laplacian_mle

SHIPPED, RAW = paths.ROOT / "data" / "real", paths.ROOT / "data" / "raw"
PRICES, RECORDINGS = "sp100/sp100_prices.csv.gz", "abide/abide_msdl.npz"  # raw files
WINDOWS = ("all", "first half", "second half", *map(str, range(2015, 2022)))
COMPANIES = SHIPPED / "sp100.csv"
PERIOD = ("2015-07-07", "2021-12-31")  # of the prices: the 100 tickers are complete
RENAMED = {"FB": "META"}  # tickers that Yahoo now knows by another name
N_DRAWS, N_SUBJECTS = 50, 35  # of the paper's stability table
GROUPS = ("control", "autism")


class DatasetError(ValueError):
    """Raw data that are incomplete, damaged or not to be had; the message names what and the remedy."""


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


def sp100(*, download=False):
    """Distances between the daily log-returns of 100 companies, 2015 to 2021, whole period and parts of it."""
    folder, source = _find(PRICES, download_sp100 if download else None)
    if folder is not None:
        return read_raw_sp100(folder, source)
    return Stocks(_tensors("sp100", WINDOWS), _read(pd.read_csv, COMPANIES), source)


def abide(*, download=False):
    """Distances between the BOLD signals of 39 regions, one set for each of 884 subjects."""
    folder, source = _find(RECORDINGS, download_abide if download else None)
    if folder is not None:
        return read_raw_abide(folder, source)
    tables = (_read(pd.read_csv, SHIPPED / f"abide_{name}.csv") for name in ("subjects", "regions"))
    return Brains(*_tensors("abide", ("y", "y35")).values(), *tables, source)


def _find(name, download):
    """The folder that holds the raw file and the words for it, or None and the words for what is shipped."""
    if named := os.environ.get("L2G_RAW"):
        if (Path(named) / name).exists():
            return Path(named), "raw files"
        warnings.warn(f"L2G_RAW={named} does not hold {name}: looking elsewhere", stacklevel=3)
    try:
        if download is not None and not (RAW / name).exists():
            download(RAW)
    except Exception as error:  # whatever a network and two libraries may raise
        warnings.warn(f"no download ({error}): using the shipped statistics", stacklevel=3)
    return (RAW, "raw files, downloaded") if (RAW / name).exists() else (None, "shipped statistics")


def pooled(y, frames):
    """Distances of several recordings taken as one, the mean weighted by frames: (..., n, E), (..., n) -> (..., E)."""
    frames = torch.as_tensor(frames).to(y)
    return (frames[..., None] * y).sum(-2) / frames.sum(-1, keepdim=True)


def unit_scale(y):
    """The factor (...) by which y (..., E) is multiplied before a network sees it.

    Networks are trained on graphs of mean degree 1. The most likely graph obeys w(c y) = w(y) / c, so with c its mean
    degree at y, c y is what signals on a graph of mean degree 1 look like. Units of the signals then do not matter.
    """
    return 2 * laplacian_mle(y).sum(-1) / n_nodes(y.shape[-1])


def draws(group, *, n_draws=N_DRAWS, size=N_SUBJECTS, seed=0):
    """Random sets of subjects of each group, without replacement: {name: (n_draws, size) indices}."""
    rng, group = np.random.default_rng(seed), np.asarray(group)
    some = lambda who: np.stack([rng.choice(who, size, replace=False) for _ in range(n_draws)])  # noqa: E731
    return {name: some(np.flatnonzero(group == name)) for name in GROUPS}


def read_raw_sp100(folder, source="raw files"):
    """Stocks from adjusted closes; companies are the members of 2020 without DOW, which did not exist in 2015."""
    prices = _read(pd.read_csv, folder / PRICES, index_col=0, parse_dates=True)
    table = _read(pd.read_csv, listed if (listed := folder / "sp100/sp100_sectors.csv").exists() else COMPANIES)
    if "in_sp100_2020" in table:
        table = table[table.in_sp100_2020 & (table.ticker != "DOW")]
    companies = table[["ticker", "name", "sector"]].sort_values(["sector", "ticker"], ignore_index=True)
    r = log_returns(prices, companies.ticker)
    parts = [r, r[: len(r) // 2], r[len(r) // 2 :], *(r[r.index.year == int(year)] for year in WINDOWS[3:])]
    y = {name: distances(standardised(part)).float() for name, part in zip(WINDOWS, parts, strict=True)}
    return Stocks(y, companies, source)


def log_returns(prices, tickers):
    """Daily log-returns of `tickers` within PERIOD, days x tickers; every gap is named."""
    prices = prices.reindex(columns=list(tickers)).loc[slice(*PERIOD)]
    gaps = prices.isna().sum()
    if len(prices) < 3 or gaps.any():
        listed = ", ".join(f"{ticker} {n} days" for ticker, n in gaps[gaps > 0].items())
        raise DatasetError(f"prices of {len(prices)} days in {PERIOD[0]} to {PERIOD[1]}, missing: {listed or 'all'}")
    return np.log(prices).diff().iloc[1:]


def download_sp100(folder):
    tickers = list(_read(pd.read_csv, COMPANIES).ticker)
    prices, problems = download_prices(tickers)
    if problems:
        raise DatasetError("Yahoo Finance: " + "; ".join(f"{ticker}: {why}" for ticker, why in problems.items()))
    paths.write_atomically(folder / PRICES, gzip.compress(prices.to_csv().encode(), mtime=0))


def download_prices(tickers, *, batch=25, retries=5, wait=2.0):
    """Adjusted closes from Yahoo Finance in PERIOD, days x tickers, and {ticker: what is wrong with it}.

    Batches that fail, and tickers that come back empty (which is also how a rate limit shows), are asked for again
    after `wait`, 2 `wait`, 4 `wait`, ... seconds.
    """
    import yfinance  # here because it opens a cache folder in the user's home

    options = dict(start=PERIOD[0], end=pd.Timestamp(PERIOD[1]) + pd.Timedelta(days=1))  # the end is left out
    found, why = {}, {}
    for attempt in range(retries):
        todo = [t for t in tickers if t not in found]
        time.sleep(wait * 2 ** (attempt - 1) if todo and attempt else 0)
        for k in range(0, len(todo), batch):
            names = {t: RENAMED.get(t, t) for t in todo[k : k + batch]}
            close, reason = {}, "no prices"
            try:
                answer = yfinance.download(list(names.values()), auto_adjust=True, progress=False, **options)
                close = {} if answer is None or "Close" not in answer else answer["Close"]
            except Exception as error:
                reason = repr(error)
            found |= {t: close[name] for t, name in names.items() if name in close and close[name].notna().any()}
            why |= {t: reason for t in names if t not in found}
    prices = pd.DataFrame({t: found[t] for t in tickers if t in found}).sort_index()
    short = prices.isna().sum()
    why |= {t: f"{n} of {len(prices)} days missing" for t, n in short[short > 0].items()}
    return prices, {t: why[t] for t in tickers if t not in found or short[t]}


def read_raw_abide(folder, source="raw files"):
    data = _read(lambda path: dict(np.load(path, allow_pickle=False)), folder / RECORDINGS)
    ends = np.cumsum(data["n_timepoints"])
    if len(data["X"]) != ends[-1]:
        raise DatasetError(f"abide_msdl.npz has {len(data['X'])} frames, its n_timepoints add up to {ends[-1]}")
    series = [standardised(data["X"][a:b]) for a, b in pairwise([0, *ends])]
    group = np.where(data["dx_group"] == 1, "autism", "control")
    subjects = pd.DataFrame({"frames": data["n_timepoints"], "group": group, "site": data["site"]})
    regions = pd.DataFrame({"region": data["region"], "network": data["network"]})
    regions[["x", "y", "z"]] = data["coords"]
    y = torch.stack([distances(X) for X in series]).float()
    return Brains(y, one_frame_each(series, group).float(), subjects, regions, source)


def one_frame_each(series, group, seed=1):
    """Distances (2 groups, 50 draws, E) of 35 signals, a random frame of each subject drawn by `draws`."""
    rng = np.random.default_rng(seed)
    pick = lambda who: np.stack([series[k][rng.integers(len(series[k]))] for k in who])  # noqa: E731
    chosen = draws(group)
    return distances(standardised(np.stack([[pick(who) for who in chosen[name]] for name in GROUPS])))


def region_series(image, maps):
    """Standardised signals (n_frames, n_regions) of a 4-D image on the probabilistic atlas `maps`."""
    from nilearn.maskers import NiftiMapsMasker

    masker = NiftiMapsMasker(maps, standardize="zscore_sample", resampling_target="data", memory=None, verbose=0)
    return masker.fit_transform(image)


def download_abide(folder):
    """The recordings, subject by subject; a second call goes on where the first one stopped.

    DPARSF pipeline, band-pass filtered, no global signal regression, mean framewise displacement up to 0.2. An image
    is deleted once its 39 signals are stored. Subjects that fail are listed in the error.
    """
    from nilearn import datasets

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
        except Exception as error:
            failed[row.FILE_ID] = repr(error)
    if failed:
        raise DatasetError(f"{len(failed)} of {len(table)} subjects failed, call again to go on: {failed}")
    series = [_read(np.load, store / f"{name}.npy") for name in table.FILE_ID]
    np.savez_compressed(
        buffer := io.BytesIO(), X=np.concatenate(series), n_timepoints=[len(X) for X in series],
        dx_group=table.DX_GROUP.to_numpy(int), site=table.SITE_ID.to_numpy(str), region=np.array(atlas.labels, str),
        network=np.array(atlas.networks, str), coords=np.array(atlas.region_coords, float),
    )  # fmt: skip
    paths.write_atomically(folder / RECORDINGS, buffer.getvalue())


def _read(reader, path, **options):
    try:
        return reader(path, **options)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise DatasetError(f"{path} is damaged ({error}): delete it and get it again") from None


def _tensors(name, keys):
    tensors = _read(lambda path: tensors_from_bytes(path.read_bytes()), SHIPPED / f"{name}.safetensors")
    return {key: tensors[key] for key in keys}  # in our order: the file has its own


def statistics(stocks, brains):
    """{file name: content} of data/real/, from raw data."""
    tables = {"sp100": stocks.companies, "abide_subjects": brains.subjects, "abide_regions": brains.regions}
    files = {f"{k}.csv": t.to_csv(index=False, float_format="%.2f").encode() for k, t in tables.items()}
    tensors = {"sp100": stocks.y, "abide": {"y": brains.y, "y35": brains.y35}}
    return files | {f"{k}.safetensors": tensors_to_bytes(t) for k, t in tensors.items()}


def same(path, content, atol=1e-5):
    """Whether a file of data/real/ has this content; distances may differ by rounding."""
    if not path.exists() or path.suffix != ".safetensors":
        return path.exists() and path.read_bytes() == content
    there, here = tensors_from_bytes(path.read_bytes()), tensors_from_bytes(content)
    close = lambda a, b: a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=atol)  # noqa: E731
    return there.keys() == here.keys() and all(close(there[key], here[key]) for key in here)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m helpers.datasets", description="Compare data/real with raw data.")
    parser.add_argument("--download", action="store_true", help="download raw data that are not there")
    parser.add_argument("--write", action="store_true", help="replace what differs")
    args = parser.parse_args(argv)
    both = sp100(download=args.download), abide(download=args.download)
    if any(part.source == "shipped statistics" for part in both):
        sys.exit("raw data of S&P 100 or ABIDE are missing: name their folder in L2G_RAW, or use --download")
    files = statistics(*both)
    names = [name for name, content in files.items() if not same(SHIPPED / name, content)]
    print(f"{len(files) - len(names)} of {len(files)} files in data/real agree with the raw data")
    if names and not args.write:
        sys.exit(f"these differ, --write replaces them: {', '.join(names)}")
    for name in names:
        paths.write_atomically(SHIPPED / name, files[name])


if __name__ == "__main__":
    main()
