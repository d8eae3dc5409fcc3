"""The real-world inputs: loaders with and without raw files, downloads against recorded layouts, the masker."""

import gzip
import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import nibabel
import numpy as np
import pandas as pd
import pytest
import torch

from helpers import paths
from helpers.experiments.runs import SECTORS, real_world
from helpers.real import datasets
from helpers.real.datasets import DatasetError, download_prices, draws, log_returns, observations, pool
from helpers.signals import correlations, distances, standardise

RAW = Path(os.environ.get("L2G_RAW", "/nowhere"))
needs_raw = pytest.mark.skipif(not (RAW / datasets.RECORDINGS).exists(), reason="L2G_RAW names no folder of raw data")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No raw data, no waiting."""
    monkeypatch.delenv("L2G_RAW", raising=False)
    monkeypatch.setattr(paths, "RAW", tmp_path / "raw")
    monkeypatch.setattr("time.sleep", lambda seconds: None)


# --- what is shipped -----------------------------------------------------------------------------------------------


def test_shipped_sp100():
    stocks = datasets.sp100()
    assert stocks.source == "shipped statistics"
    assert tuple(stocks.y) == datasets.WINDOWS
    assert {tuple(y.shape) for y in stocks.y.values()} == {(4950,)}
    assert stocks.companies.ticker.is_unique
    assert stocks.companies.sector.is_monotonic_increasing
    assert stocks.companies.sector.nunique() == 11
    # CVS and WBA are each other's strongest partner, return correlation 0.56 over the twelve years from 2010 on
    C = correlations(stocks.y["all"].double()).fill_diagonal_(0)
    cvs, wba = (list(stocks.companies.ticker).index(t) for t in ("CVS", "WBA"))
    assert C[cvs].argmax() == wba
    assert C[wba].argmax() == cvs
    assert 0.5 < C[cvs, wba] < 0.65


def test_shipped_abide():
    brains = datasets.abide()
    assert brains.source == "shipped statistics"
    assert brains.y.shape == (884, 741)
    assert brains.y35.shape == (2, 50, 741)
    assert brains.subjects.group.value_counts().to_dict() == {"control": 476, "autism": 408}
    assert brains.subjects.site.nunique() == 20
    assert list(brains.regions) == ["region", "network", "x", "y", "z"]
    group = [pool(brains.y[brains.subjects.group == g], [1.0] * n) for g, n in (("control", 476), ("autism", 408))]
    assert torch.corrcoef(torch.stack(group))[0, 1] > 0.98


def test_shipped_statistics_are_small_and_are_correlations():
    files = list(paths.REAL.iterdir())
    assert sum(f.stat().st_size for f in files) < 5e6
    assert {f.suffix for f in files} == {".csv", ".safetensors"}
    brains = datasets.abide()
    for y in (*datasets.sp100().y.values(), *brains.y[::100], *brains.y35[0, :5]):
        assert torch.linalg.eigvalsh(correlations(y.double())).min() > -1e-5
        assert 0 < y.min() < y.max() <= 4


def test_a_damaged_statistic_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "REAL", Path(shutil.copytree(paths.REAL, tmp_path / "real")))
    (tmp_path / "real" / "abide.safetensors").write_bytes((tmp_path / "real" / "sp100.safetensors").read_bytes())
    with pytest.raises(DatasetError, match=r"abide\.safetensors is damaged .no y, y35"):
        datasets.abide()
    (tmp_path / "real" / "abide.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(DatasetError, match=r"abide\.safetensors is damaged"):
        datasets.abide()
    (tmp_path / "real" / "sp100.csv").unlink()
    with pytest.raises(DatasetError, match=r"sp100\.csv is missing: .*L2G_DATA"):
        datasets.sp100()


# --- what models see -----------------------------------------------------------------------------------------------


def test_observations_have_the_distances_and_moments_of_standardised_signals():
    X = standardise(np.random.default_rng(0).normal(size=(2, 50, 5)) @ np.triu(np.ones((5, 5))))
    y = distances(X).float()
    seen = observations(y, 50)
    torch.testing.assert_close(seen.moments, torch.from_numpy(X.swapaxes(1, 2) @ X / 50), rtol=0, atol=1e-6)
    assert seen.n_signals == 50
    assert torch.equal(seen.distances.float(), y)
    assert seen.distances.dtype == torch.float64
    scaled = observations(y, torch.tensor([50, 20]), torch.tensor([2.0, 3.0]))
    torch.testing.assert_close(scaled.distances, y.double() * torch.tensor([[2.0], [3.0]]))
    torch.testing.assert_close(scaled[1].moments, 3 * seen.moments[1])
    assert scaled[1].n_signals == 20


def test_pooled_distances_are_those_of_the_joined_recordings():
    rng = np.random.default_rng(1)
    series = [rng.normal(size=(n, 6)) for n in (10, 25, 7)]
    y = torch.stack([distances(X) for X in series])
    torch.testing.assert_close(pool(y, [10, 25, 7]), distances(np.concatenate(series)))
    both = pool(torch.stack([y, 2 * y]), [[10, 25, 7], [1, 0, 0]])
    torch.testing.assert_close(both, torch.stack([pool(y, [10, 25, 7]), 2 * y[0]]))


def test_draws_are_sets_of_the_right_group_and_repeat():
    group = np.array(["control", "autism"] * 40)
    first, second = draws(group), draws(group)
    for name in datasets.GROUPS:
        assert first[name].shape == (50, 35)
        assert (group[first[name]] == name).all()
        assert all(len(set(row)) == 35 for row in first[name])
        np.testing.assert_array_equal(first[name], second[name])
        assert (first[name] != draws(group, seed=1)[name]).any()
    assert draws(group, n_draws=3, size=40)["autism"].shape == (3, 40)
    with pytest.raises(DatasetError, match="the group control has 40 subjects: at least 41"):
        draws(group, size=41)


# --- raw files -----------------------------------------------------------------------------------------------------


def made_up_prices(tickers, seed=0):
    days = pd.bdate_range("2015-06-01", "2022-01-10", name="Date")
    walk = np.random.default_rng(seed).normal(0, 0.01, (len(days), len(tickers))).cumsum(0)
    return pd.DataFrame(100 * np.exp(walk), days, tickers)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory):
    """A folder as L2G_RAW may name it, with made-up content."""
    folder = tmp_path_factory.mktemp("made_up")
    tickers = list(pd.read_csv(paths.REAL / datasets.COMPANIES).ticker)
    (folder / "sp100").mkdir()
    made_up_prices(tickers).to_csv(folder / datasets.PRICES, compression={"method": "gzip", "compresslevel": 1})
    (folder / "abide").mkdir()
    rng = np.random.default_rng(2)
    frames = rng.integers(20, 30, 80)
    np.savez(
        folder / datasets.RECORDINGS, X=rng.normal(size=(frames.sum(), 5)), n_timepoints=frames,
        dx_group=np.tile([1, 2], 40), site=np.full(80, "here"), region=np.array(list("abcde")),
        network=np.array(list("AABBC")), coords=rng.normal(size=(5, 3)),
    )  # fmt: skip
    return folder


@pytest.fixture
def folder(made_up, tmp_path):
    """A copy to be damaged."""
    return Path(shutil.copytree(made_up, tmp_path / "raw files"))


def recordings(folder, **changes):
    """The arrays of ABIDE's raw file, and the file rewritten with `changes`."""
    with np.load(folder / datasets.RECORDINGS) as data:
        content = dict(data)
    np.savez(folder / datasets.RECORDINGS, **content | changes)
    return content


def test_raw_prices_come_first(made_up, monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(made_up))
    stocks = datasets.sp100()
    assert stocks.source == "raw files"
    r = np.log(made_up_prices(stocks.companies.ticker)).diff().loc["2015-07-08":"2021-12-31"]  # sorted alike
    half = len(r) // 2
    parts = {"all": r, "first half": r[:half], "second half": r[half:], "2015": r.loc["2015"], "2021": r.loc["2021"]}
    assert tuple(stocks.y) == datasets.WINDOWS
    for name, part in parts.items():
        np.testing.assert_allclose(correlations(stocks.y[name]), np.corrcoef(part.T), atol=1e-6)
        assert stocks.y[name].dtype == torch.float32


def test_raw_recordings_come_first(made_up, monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(made_up))
    brains = datasets.abide()
    assert brains.source == "raw files"
    data = recordings(made_up)
    ends = data["n_timepoints"].cumsum()
    for k, part in ((0, slice(0, ends[0])), (1, slice(ends[0], ends[1])), (79, slice(ends[78], None))):
        np.testing.assert_allclose(correlations(brains.y[k]), np.corrcoef(data["X"][part].T), atol=1e-6)
    assert brains.y.shape == (80, 10) and brains.y35.shape == (2, 50, 10)
    assert brains.y.dtype == brains.y35.dtype == torch.float32
    assert brains.subjects.group[:2].tolist() == ["autism", "control"]
    assert brains.subjects.frames.tolist() == data["n_timepoints"].tolist()
    assert brains.regions.region.tolist() == list("abcde")
    np.testing.assert_array_equal(brains.regions[["x", "y", "z"]], data["coords"])


def test_one_frame_of_each_subject_is_drawn():
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(20, 5)) + k for k in range(80)]  # a frame tells whose it is
    group = np.array(["control", "autism"] * 40)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "distances", lambda X: seen.append(X) or X)
        patch.setattr(datasets, "standardise", np.asarray)
        datasets.one_frame_each(series, group)
    (frames,) = seen
    assert frames.shape == (2, 50, 35, 5)
    chosen = draws(group)
    for name, of_group in zip(datasets.GROUPS, frames, strict=True):
        for who, draw in zip(chosen[name], of_group, strict=True):
            assert all((series[k] == frame).all(1).any() for k, frame in zip(who, draw, strict=True))
    frame_numbers = [np.flatnonzero((series[k] == f).all(1))[0] for k, f in zip(chosen["control"][0], frames[0, 0])]
    assert len(set(frame_numbers)) > 10
    first = datasets.one_frame_each(series, group)
    assert torch.equal(first, datasets.one_frame_each(series, group))
    assert not torch.equal(first, datasets.one_frame_each(series, group, seed=2))


def test_a_folder_without_the_files_is_said_and_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(tmp_path))
    with pytest.warns(UserWarning, match="does not hold sp100"):
        assert datasets.sp100().source == "shipped statistics"


def test_an_earlier_download_is_found(made_up, monkeypatch):
    monkeypatch.setattr(paths, "RAW", made_up)
    assert datasets.sp100().source == datasets.abide(download=True).source == "raw files, downloaded"


def test_a_list_of_companies_may_come_with_the_prices(folder):
    rows = [("BBB", "Bee", "X", True), ("AAA", "Ay", "X", True), ("DOW", "Dow", "A", True), ("CCC", "Sea", "B", False)]
    table = pd.DataFrame([*rows, ("DDD", "Dee", "A", True)], columns=["ticker", "name", "sector", "in_sp100_2020"])
    table.to_csv(folder / datasets.SECTORS, index=False)
    made_up_prices(["AAA", "BBB", "DDD"]).to_csv(folder / datasets.PRICES)
    stocks = datasets.read_raw_sp100(folder)
    assert list(stocks.companies) == ["ticker", "name", "sector"]
    assert stocks.companies.ticker.tolist() == ["DDD", "AAA", "BBB"]
    assert stocks.source == "raw files"
    table[["ticker", "sector"]].to_csv(folder / datasets.SECTORS, index=False)
    with pytest.raises(DatasetError, match=r"sp100_sectors\.csv is damaged .*name"):
        datasets.read_raw_sp100(folder)


# --- damaged raw files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, load", [("PRICES", "sp100"), ("RECORDINGS", "abide")])
def test_a_broken_archive_is_named(folder, monkeypatch, name, load):
    monkeypatch.setenv("L2G_RAW", str(folder))
    path = folder / getattr(datasets, name)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DatasetError, match=rf"{path.name} is damaged .* get it again"):
        getattr(datasets, load)()


def one_frame_only(frames):
    """All frames of the first subject but one counted as the second one's."""
    return np.r_[1, frames[0] - 1 + frames[1], frames[2:]]


@pytest.mark.parametrize(
    "changes, message",
    [
        (lambda data: {"X": data["X"][:-1]}, r"X has shape \(\d+, 5\), .* add up to"),
        (lambda data: {"X": data["X"][:, :-1]}, "X has shape"),
        (lambda data: {"coords": data["coords"][:, :2]}, "coords has shape"),
        (lambda data: {"site": data["site"][1:]}, "site has shape"),
        (lambda data: {"dx_group": data["dx_group"][1:]}, "dx_group has shape"),
        (lambda data: {"network": data["network"][1:]}, "network has shape"),
        (lambda data: {"region": np.array("a")}, "TypeError"),
        (lambda data: {"X": np.where(np.arange(5) == 2, np.nan, data["X"])}, "X has NaN"),
        (lambda data: {"dx_group": 1 + data["dx_group"]}, "dx_group must be 1 or 2"),
        (lambda data: {"X": np.where(np.arange(5) == 2, 0.1, data["X"])}, "subject 0 has a constant signal"),
        (lambda data: {"n_timepoints": one_frame_only(data["n_timepoints"])}, "subject 0 has a constant"),
    ],
)  # fmt: skip
def test_recordings_that_do_not_fit_each_other_are_refused(folder, changes, message):
    recordings(folder, **changes(recordings(folder)))
    with pytest.raises(DatasetError, match=rf"abide_msdl\.npz is damaged .*{message}"):
        datasets.read_raw_abide(folder)


def test_missing_arrays_are_named(folder):
    with np.load(folder / datasets.RECORDINGS) as data:
        content = {name: data[name] for name in data if name != "coords"}
    np.savez(folder / datasets.RECORDINGS, **content)
    with pytest.raises(DatasetError, match=r"damaged .KeyError: .*coords"):
        datasets.read_raw_abide(folder)


@pytest.mark.parametrize("content", ["Date,AAA\nyesterday,1\ntoday,2\n", "Date,AAA\n2016-01-04,1\n2016-01-04,2\n"])
def test_prices_need_dates(folder, content):
    (folder / datasets.PRICES).write_bytes(gzip.compress(content.encode()))
    with pytest.raises(DatasetError, match=r"sp100_prices\.csv\.gz is damaged .*dates, each once"):
        datasets.read_raw_sp100(folder)


def test_returns_are_those_of_the_period_in_any_order_of_days():
    prices = made_up_prices(["AAA", "BBB"])
    r = log_returns(prices[::-1], ["BBB"])
    assert list(r) == ["BBB"]
    assert (r.index[0], r.index[-1]) == (pd.Timestamp("2015-07-08"), pd.Timestamp("2021-12-31"))
    assert r.BBB.iloc[0] == pytest.approx(np.log(prices.BBB["2015-07-08"] / prices.BBB["2015-07-07"]))


def test_gaps_in_prices_are_named():
    prices = made_up_prices(["AAA", "BBB", "CCC"])
    prices.loc["2016-03-01":"2016-03-03", "BBB"] = np.nan
    with pytest.raises(DatasetError, match="missing: BBB 3 days, DDD"):
        log_returns(prices, ["AAA", "BBB", "DDD"])
    with pytest.raises(DatasetError, match="prices of 0 days"):
        log_returns(prices[prices.index > "2022"], ["AAA"])
    with pytest.raises(DatasetError, match="prices of 2 days"):
        log_returns(prices.loc["2015-07-07":"2015-07-08"], ["AAA"])
    assert len(log_returns(prices.loc["2015-07-07":"2015-07-09"], ["AAA"])) == 2
    words = prices.astype(object)
    words.loc["2017-05-02", "CCC"] = "n/a"
    with pytest.raises(DatasetError, match=r"missing: CCC 1 days$"):
        log_returns(words, ["AAA", "CCC"])


@pytest.mark.parametrize("price", [0, -3.5, np.inf])
def test_prices_that_are_not_positive_are_named(price):
    prices = made_up_prices(["AAA", "BBB", "CCC"])
    prices.loc[["2016-03-01", "2017-03-01"], "BBB"] = price
    prices.loc["2018-01-02", "CCC"] = price
    with pytest.raises(
        DatasetError, match=r"positive and finite, .*: BBB on 2016-03-01, CCC on 2018-01-02; get the file"
    ):
        log_returns(prices, ["AAA", "BBB", "CCC"])


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda p: p.assign(BBB=7.1), "do not move in the window 'all': BBB;"),
        (lambda p: p.drop(p.loc["2018"].index), "0 days of prices in the window '2018'"),
        (lambda p: p.drop(p.loc["2018"].index[1:]), "1 days of prices in the window '2018'"),
    ],
)
def test_windows_without_movement_are_named(folder, change, message):
    tickers = ["AAA", "BBB", "CCC"]
    pd.DataFrame({"ticker": tickers, "name": "", "sector": "X"}).to_csv(folder / datasets.SECTORS, index=False)
    change(made_up_prices(tickers)).to_csv(folder / datasets.PRICES)
    with pytest.raises(DatasetError, match=message):
        datasets.read_raw_sp100(folder)


# --- comparison ----------------------------------------------------------------------------------------------------

FILES = ["sp100.csv", "abide_subjects.csv", "abide_regions.csv", "sp100.safetensors", "abide.safetensors"]


@needs_raw
def test_shipped_statistics_are_those_of_the_raw_files(monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(RAW))
    assert datasets.compare() == (FILES, [])


@needs_raw
def test_daily_returns_of_the_raw_files_are_as_many_as_is_said():
    prices = pd.read_csv(RAW / datasets.PRICES, index_col=0, parse_dates=True)
    tickers = datasets.sp100().companies.ticker
    assert len(datasets.log_returns(prices, tickers)) == datasets.N_RETURNS


def test_statistics_are_compared_and_replaced(made_up, monkeypatch, tmp_path):
    with pytest.raises(DatasetError, match=r"raw data of S&P 100 or ABIDE are missing: .*L2G_RAW"):
        datasets.compare()
    monkeypatch.setenv("L2G_RAW", str(made_up))
    monkeypatch.setattr(paths, "REAL", Path(shutil.copytree(paths.REAL, tmp_path / "real")))
    (tmp_path / "real" / "abide.safetensors").write_bytes(b"damaged")
    (tmp_path / "real" / "abide_regions.csv").unlink()
    assert datasets.compare() == (FILES[:1], FILES[1:])
    assert datasets.compare(write=True) == (FILES[:1], FILES[1:])
    assert datasets.compare() == (FILES, [])


def test_distances_may_differ_by_rounding_only(made_up, monkeypatch, tmp_path):
    monkeypatch.setenv("L2G_RAW", str(made_up))
    stocks, brains = datasets.sp100(), datasets.abide()
    for name, content in datasets.statistics(stocks, brains).items():
        paths.write_atomically(tmp_path / name, content)

    def differ(**changes):
        files = datasets.statistics(stocks, brains._replace(**changes))
        return [name for name, content in files.items() if not datasets.agrees(tmp_path / name, content)]

    assert differ() == differ(y=brains.y + 5e-6) == differ(y35=brains.y35 - 5e-6) == []
    assert differ(y=brains.y + 2e-5) == differ(y35=brains.y35 - 2e-5) == ["abide.safetensors"]
    assert differ(y=brains.y[:1]) == ["abide.safetensors"]
    assert differ(subjects=brains.subjects[1:]) == ["abide_subjects.csv"]
    stocks = stocks._replace(y={name: y for name, y in stocks.y.items() if name != "all"})
    assert differ() == ["sp100.safetensors"]


# --- Yahoo Finance, as yfinance 1.x answers ------------------------------------------------------------------------


class Yahoo:
    """Answers like yfinance.download: columns (Price, Ticker), NaN columns for tickers that failed."""

    def __init__(self, *plan):
        self.plan, self.calls = list(plan), []

    def __call__(self, tickers, *, start, end, auto_adjust, progress):
        assert auto_adjust
        self.period = start, end
        self.calls.append(list(tickers))
        step = self.plan.pop(0) if self.plan else {}
        if isinstance(step, Exception):
            raise step
        if step == "empty":
            columns = pd.MultiIndex.from_product([["Close", "Volume"], tickers], names=["Price", "Ticker"])
            return pd.DataFrame(columns=columns, index=pd.DatetimeIndex([], name="Date"), dtype=float)
        if step == "none":
            return None
        close = made_up_prices(sorted(tickers)).loc[start : end - pd.Timedelta(days=1)]
        for ticker, upto in step.items():
            close.loc[:upto, ticker] = np.nan
        return pd.concat({"Close": close, "Volume": close}, axis=1, names=["Price", "Ticker"])


@pytest.fixture
def yahoo(monkeypatch):
    def install(*plan):
        answers = Yahoo(*plan)
        monkeypatch.setattr("yfinance.download", answers)
        return answers

    return install


def test_prices_come_in_batches_and_by_their_old_names(yahoo):
    asked = yahoo()
    prices, problems = download_prices(["AAA", "FB", "CCC"], batch=2)
    assert asked.calls == [["AAA", "META"], ["CCC"]]
    assert asked.period == ("2015-07-07", pd.Timestamp("2022-01-01")), "the end is left out"
    assert list(prices) == ["AAA", "FB", "CCC"]
    assert problems == {}
    assert (prices.index[0], prices.index[-1]) == (pd.Timestamp("2015-07-07"), pd.Timestamp("2021-12-31"))


@pytest.mark.parametrize("trouble", [RuntimeError("YFRateLimitError: Too Many Requests"), "empty", "none"])
def test_rate_limits_and_empty_answers_are_tried_again(yahoo, monkeypatch, trouble):
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    asked = yahoo(trouble, trouble)
    prices, problems = download_prices(["AAA", "BBB"], wait=3)
    assert len(asked.calls) == 3
    assert [s for s in waits if s] == [3, 6]
    assert prices.shape[1] == 2
    assert problems == {}


def test_partial_answers_are_asked_for_again_and_reported_by_ticker(yahoo):
    never = {"BBB": "2030"}
    asked = yahoo({"AAA": "2030", "BBB": "2030"}, never | {}, *[never] * 9)
    prices, problems = download_prices(["AAA", "BBB", "CCC"], retries=3)
    assert asked.calls == [["AAA", "BBB", "CCC"], ["AAA", "BBB"], ["BBB"]]
    assert list(prices) == ["AAA", "CCC"]
    assert problems == {"BBB": "no prices"}
    yahoo({"AAA": "2015-07-09"})
    _, problems = download_prices(["AAA", "BBB"])
    assert problems == {"AAA": f"3 of {len(prices)} days missing"}
    yahoo(*[RuntimeError("Too Many Requests")] * 9)
    _, problems = download_prices(["AAA"], retries=2)
    assert "Too Many Requests" in problems["AAA"]


def test_a_download_that_fails_ends_with_the_shipped_statistics(yahoo):
    yahoo(*["empty"] * 99)
    with pytest.warns(UserWarning, match="CHTR: no prices; .*shipped statistics"):
        assert datasets.sp100(download=True).source == "shipped statistics"


def test_a_download_is_kept(yahoo):
    asked = yahoo()
    assert datasets.sp100(download=True).source == "raw files, downloaded"
    n = len(asked.calls)
    datasets.sp100(download=True)
    assert len(asked.calls) == n
    assert gzip.decompress((paths.RAW / datasets.PRICES).read_bytes()).startswith(b"Date,CHTR")


# --- ABIDE, as nilearn answers -------------------------------------------------------------------------------------


@pytest.fixture
def nilearn(monkeypatch, tmp_path):
    """fetch_abide_pcp and fetch_atlas_msdl without a network; `broken` subjects raise."""
    table = pd.DataFrame({"SUB_ID": range(1, 81), "DX_GROUP": [1, 2] * 40, "SITE_ID": "here"})
    table["FILE_ID"] = "here_" + table.SUB_ID.astype(str)
    state = SimpleNamespace(broken=set(), fetched=[], atlas_error=None)

    def fetch_abide_pcp(*, derivatives, SUB_ID=None, func_mean_fd=None, **options):
        assert options["pipeline"] == "dparsf" and options["band_pass_filtering"]
        if SUB_ID is None:
            assert derivatives == []
            return SimpleNamespace(phenotypic=table)
        if SUB_ID in state.broken:
            raise OSError("connection reset")
        state.fetched.append(SUB_ID)
        image = tmp_path / f"{SUB_ID}.nii.gz"
        image.touch()
        return SimpleNamespace(func_preproc=[str(image)])

    def fetch_atlas_msdl(**options):
        if state.atlas_error:
            raise state.atlas_error
        labels = SimpleNamespace(labels=list("abcd"), networks=list("AABB"), region_coords=[(0, 0, 1.5)] * 4)
        return SimpleNamespace(maps="atlas.nii", **vars(labels))

    monkeypatch.setattr("nilearn.datasets.fetch_abide_pcp", fetch_abide_pcp)
    monkeypatch.setattr("nilearn.datasets.fetch_atlas_msdl", fetch_atlas_msdl)
    series = lambda image, maps: np.random.default_rng(int(image.name.split(".")[0])).normal(size=(30, 4))  # noqa: E731
    monkeypatch.setattr(datasets, "region_series", series)
    return state


def test_abide_resumes_and_lists_the_subjects_that_fail(nilearn, tmp_path):
    nilearn.broken = {3, 7}
    with pytest.warns(UserWarning, match="2 of 80 subjects failed, call again.*here_3.*connection reset.*here_7"):
        assert datasets.abide(download=True).source == "shipped statistics"
    nilearn.broken, nilearn.fetched = set(), []
    brains = datasets.abide(download=True)
    assert nilearn.fetched == [3, 7]
    assert brains.source == "raw files, downloaded"
    assert brains.y.shape == (80, 6)
    assert brains.regions.network.tolist() == list("AABB")
    assert not list(tmp_path.glob("*.nii.gz")), "images are deleted once read"


def test_a_broken_atlas_ends_with_the_shipped_statistics(nilearn):
    nilearn.atlas_error = zipfile.BadZipFile("File is not a zip file")
    with pytest.warns(UserWarning, match="not a zip file"):
        assert datasets.abide(download=True).source == "shipped statistics"


def blobs(centres, shape=(10, 11, 12)):
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    return np.stack([np.exp(-((grid - c) ** 2).sum(-1) / 2) for c in centres], -1)


def masked(maps, affine):
    """Region signals found in an image made of known signals spread by the atlas, and those signals."""
    signals = np.random.default_rng(5).normal(size=(40, maps.shape[-1]))
    image = nibabel.Nifti1Image((maps @ signals.T).astype(np.float32), affine)
    return datasets.region_series(image, nibabel.Nifti1Image(maps.astype(np.float32), affine)), signals


def test_the_masker_finds_the_signals_it_should():
    found, signals = masked(blobs([(2, 2, 2), (7, 8, 3), (4, 5, 9)]), np.diag([4, 4, 4, 1.0]))
    np.testing.assert_allclose(found, standardise(signals) * np.sqrt(39 / 40), atol=1e-3)


@needs_raw
def test_the_masker_with_the_real_atlas(tmp_path):
    with zipfile.ZipFile(RAW / "abide" / "MSDL_rois.zip") as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("msdl_rois.nii"))
        atlas = nibabel.load(archive.extract(name, tmp_path))
    found, signals = masked(np.asarray(atlas.dataobj, dtype=np.float64), atlas.affine)
    assert found.shape == (40, 39)
    assert min(np.corrcoef(found[:, k], signals[:, k])[0, 1] for k in range(39)) > 0.99


def test_networks_are_trained_on_the_sizes_of_the_real_data():
    sizes = datasets.sp100().companies.groupby("sector").size()
    assert dict(SECTORS)["sizes"] == tuple(sizes)
    assert real_world("l2g", "abide").n_nodes == len(datasets.abide().regions)
