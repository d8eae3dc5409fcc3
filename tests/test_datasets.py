"""The real-world inputs: loaders with and without raw files, downloads against recorded layouts, the masker."""

import gzip
import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nibabel
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from sklearn.covariance import graphical_lasso as sklearn_lasso

from helpers import datasets, plots
from helpers.datasets import DatasetError, download_prices, draws, log_returns, pooled, unit_scale
from helpers.graphs import degrees, sample_graphs
from helpers.rivals import graphical_lasso
from helpers.runs import SECTORS, real_world
from helpers.signals import correlations, distances, sample_distances, standardised

RAW = Path(os.environ.get("L2G_RAW", "/nowhere"))
needs_raw = pytest.mark.skipif(not (RAW / datasets.RECORDINGS).exists(), reason="L2G_RAW names no folder of raw data")


@pytest.fixture(autouse=True, scope="module")
def no_windows():
    plt.switch_backend("agg")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No raw data, no waiting."""
    monkeypatch.delenv("L2G_RAW", raising=False)
    monkeypatch.setattr(datasets, "RAW", tmp_path / "raw")
    monkeypatch.setattr("time.sleep", lambda seconds: None)


# --- what is shipped -----------------------------------------------------------------------------------------


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
    group = [pooled(brains.y[brains.subjects.group == g], [1.0] * n) for g, n in (("control", 476), ("autism", 408))]
    assert torch.corrcoef(torch.stack(group))[0, 1] > 0.98


def test_shipped_statistics_are_small_and_are_correlations():
    files = list(datasets.SHIPPED.iterdir())
    assert sum(f.stat().st_size for f in files) < 5e6
    assert {f.suffix for f in files} == {".csv", ".safetensors"}
    brains = datasets.abide()
    for y in (*datasets.sp100().y.values(), *brains.y[::100], *brains.y35[0, :5]):
        assert torch.linalg.eigvalsh(correlations(y.double())).min() > -1e-5
        assert 0 < y.min() < y.max() <= 4


def test_a_damaged_statistic_is_named(monkeypatch, tmp_path):
    shutil.copytree(datasets.SHIPPED, tmp_path / "real")
    monkeypatch.setattr(datasets, "SHIPPED", tmp_path / "real")
    (tmp_path / "real" / "abide.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(DatasetError, match=r"abide\.safetensors is damaged"):
        datasets.abide()


# --- what models see -----------------------------------------------------------------------------------------


def test_standardised_signals_have_their_correlations_in_y():
    X = standardised(np.random.default_rng(0).normal(3, [1, 5, 0.1, 20], (50, 4)) @ np.triu(np.ones((4, 4))))
    np.testing.assert_allclose(correlations(distances(X)), np.corrcoef(X.T), atol=1e-12)
    with pytest.raises(ValueError, match="1 constant"):
        standardised(np.c_[X, np.ones(50)])


def test_pooled_distances_are_those_of_the_joined_recordings():
    rng = np.random.default_rng(1)
    series = [rng.normal(size=(n, 6)) for n in (10, 25, 7)]
    y = torch.stack([distances(X) for X in series])
    torch.testing.assert_close(pooled(y, [10, 25, 7]), distances(np.concatenate(series)))


def test_unit_scale_undoes_units_and_is_near_one_on_training_data():
    w = sample_graphs("ER", 8, 20, seed=0, p=0.4)
    y = sample_distances(w, seed=1).double()
    c = unit_scale(y)
    torch.testing.assert_close(unit_scale(7 * y), c / 7, rtol=1e-6, atol=0)
    assert (c - degrees(w.double()).mean(-1)).abs().max() < 0.03


def test_draws_are_sets_of_the_right_group_and_repeat():
    group = np.array(["control", "autism"] * 40)
    first, second = draws(group), draws(group)
    for name in datasets.GROUPS:
        assert first[name].shape == (50, 35)
        assert (group[first[name]] == name).all()
        assert all(len(set(row)) == 35 for row in first[name])
        np.testing.assert_array_equal(first[name], second[name])


# --- raw files -----------------------------------------------------------------------------------------------


def made_up_prices(tickers, seed=0):
    days = pd.bdate_range("2015-06-01", "2022-01-10", name="Date")
    walk = np.random.default_rng(seed).normal(0, 0.01, (len(days), len(tickers))).cumsum(0)
    return pd.DataFrame(100 * np.exp(walk), days, tickers)


@pytest.fixture
def folder(tmp_path):
    """A folder as L2G_RAW may name it, with made-up content."""
    tickers = list(pd.read_csv(datasets.COMPANIES).ticker)
    (tmp_path / "sp100").mkdir()
    made_up_prices(tickers).to_csv(tmp_path / datasets.PRICES)
    (tmp_path / "abide").mkdir()
    rng = np.random.default_rng(2)
    frames = rng.integers(20, 30, 80)
    np.savez(
        tmp_path / datasets.RECORDINGS, X=rng.normal(size=(frames.sum(), 5)), n_timepoints=frames,
        dx_group=np.tile([1, 2], 40), site=np.full(80, "here"), region=np.array(list("abcde")),
        network=np.array(list("AABBC")), coords=rng.normal(size=(5, 3)),
    )  # fmt: skip
    return tmp_path


def test_raw_files_come_first(folder, monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(folder))
    stocks, brains = datasets.sp100(), datasets.abide()
    assert stocks.source == brains.source == "raw files"
    r = np.log(made_up_prices(stocks.companies.ticker)).diff().loc["2015-07-08":"2021-12-31"]  # sorted alike
    halves = torch.stack([stocks.y["first half"], stocks.y["second half"]])
    np.testing.assert_allclose(correlations(stocks.y["all"]), np.corrcoef(r.T), atol=1e-6)
    assert (halves.mean(0) - stocks.y["all"]).abs().max() < 0.05
    with np.load(folder / datasets.RECORDINGS) as data:
        first = np.corrcoef(data["X"][: data["n_timepoints"][0]].T)
    np.testing.assert_allclose(correlations(brains.y[0]), first, atol=1e-6)
    assert brains.subjects.group[:2].tolist() == ["autism", "control"]


def test_a_folder_without_the_files_is_said_and_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(tmp_path))
    with pytest.warns(UserWarning, match="does not hold sp100"):
        assert datasets.sp100().source == "shipped statistics"


def test_an_earlier_download_is_found(folder, monkeypatch):
    monkeypatch.setattr(datasets, "RAW", folder)
    assert datasets.sp100().source == datasets.abide(download=True).source == "raw files, downloaded"


@pytest.mark.parametrize("name, load", [("PRICES", "sp100"), ("RECORDINGS", "abide")])
def test_a_broken_archive_is_named(folder, monkeypatch, name, load):
    monkeypatch.setenv("L2G_RAW", str(folder))
    path = folder / getattr(datasets, name)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DatasetError, match=rf"{path.name} is damaged .* get it again"):
        getattr(datasets, load)()


def test_recordings_that_do_not_add_up_are_refused(folder):
    with np.load(folder / datasets.RECORDINGS) as data:
        content = dict(data)
    np.savez(folder / datasets.RECORDINGS, **content | {"X": content["X"][:-1]})
    with pytest.raises(DatasetError, match="add up to"):
        datasets.read_raw_abide(folder)


def test_gaps_in_prices_are_named():
    prices = made_up_prices(["AAA", "BBB", "CCC"])
    prices.loc["2016-03-01":"2016-03-03", "BBB"] = np.nan
    with pytest.raises(DatasetError, match="missing: BBB 3 days, DDD"):
        log_returns(prices, ["AAA", "BBB", "DDD"])
    with pytest.raises(DatasetError, match="prices of 0 days"):
        log_returns(prices[prices.index > "2022"], ["AAA"])


@needs_raw
def test_shipped_statistics_are_those_of_the_raw_files(monkeypatch):
    monkeypatch.setenv("L2G_RAW", str(RAW))
    datasets.main([])


def test_the_command_fails_when_statistics_differ(folder, monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="L2G_RAW"):
        datasets.main([])
    monkeypatch.setenv("L2G_RAW", str(folder))
    monkeypatch.setattr(datasets, "SHIPPED", tmp_path / "real")
    with pytest.raises(SystemExit, match=r"differ.* abide\.safetensors"):
        datasets.main([])
    datasets.main(["--write"])
    datasets.main([])
    y = datasets.abide().y35 + 1e-3
    files = datasets.statistics(datasets.sp100(), datasets.abide()._replace(y35=y))
    changed = [n for n, content in files.items() if not datasets.same(tmp_path / "real" / n, content)]
    assert changed == ["abide.safetensors"]


# --- Yahoo Finance, as yfinance 1.x answers ------------------------------------------------------------------


class Yahoo:
    """Answers like yfinance.download: columns (Price, Ticker), NaN columns for tickers that failed."""

    def __init__(self, *plan):
        self.plan, self.calls = list(plan), []

    def __call__(self, tickers, *, start, end, auto_adjust, progress):
        assert auto_adjust
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
    assert gzip.decompress((datasets.RAW / datasets.PRICES).read_bytes()).startswith(b"Date,CHTR")


# --- ABIDE, as nilearn answers -------------------------------------------------------------------------------


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
    np.testing.assert_allclose(found, standardised(signals) * np.sqrt(39 / 40), atol=1e-3)


@needs_raw
def test_the_masker_with_the_real_atlas(tmp_path):
    with zipfile.ZipFile(RAW / "abide" / "MSDL_rois.zip") as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("msdl_rois.nii"))
        atlas = nibabel.load(archive.extract(name, tmp_path))
    found, signals = masked(np.asarray(atlas.dataobj, dtype=np.float64), atlas.affine)
    assert found.shape == (40, 39)
    assert min(np.corrcoef(found[:, k], signals[:, k])[0, 1] for k in range(39)) > 0.99


# --- the graphical lasso from second moments -----------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_graphical_lasso_meets_its_optimality_conditions_and_scikit_learn(alpha):
    X = standardised(np.random.default_rng(0).normal(size=(3, 60, 8)) @ (np.eye(8) + 0.4 * np.eye(8, k=1)))
    S = correlations(distances(X))
    P = graphical_lasso.precision(S, alpha, tol=1e-7)
    slack = torch.linalg.inv(P) - S  # = alpha sign(P) on the support, at most alpha elsewhere, 0 on the diagonal
    off = ~torch.eye(8, dtype=bool).expand_as(P)
    torch.testing.assert_close(slack[~off], torch.zeros(24).double(), rtol=0, atol=1e-4)
    torch.testing.assert_close(slack[off & (P != 0)], alpha * P.sign()[off & (P != 0)], rtol=0, atol=1e-4)
    assert slack[off].abs().max() < alpha + 1e-4
    theirs = sklearn_lasso(S[0].numpy(), alpha, tol=1e-7, enet_tol=1e-7, max_iter=500)[1]
    np.testing.assert_allclose(P[0], theirs, atol=2e-3)


def test_graphical_lasso_takes_batches_and_near_copies():
    S = correlations(datasets.sp100().y["2020"].double())  # GOOG and GOOGL: correlation 0.997
    w = graphical_lasso.from_moments(torch.stack([S, torch.eye(100).double()]), 0.05)
    assert w.shape == (2, 4950)
    assert (w[1] == 0).all()
    assert 0.05 < (w[0] > 0).double().mean() < 0.5
    with pytest.raises(ValueError, match="alpha=0"):
        graphical_lasso.from_moments(S, 0)


def test_best_penalty_is_neither_end():
    X = np.random.default_rng(3).normal(size=(4, 40, 10)) @ (np.eye(10) + 0.8 * np.eye(10, k=1))
    S = correlations(distances(standardised(X)))
    assert graphical_lasso.best_penalty(S, S.roll(1, 0), (0.005, 0.05, 0.1, 0.9)) in (0.05, 0.1)


def test_networks_are_trained_on_the_sizes_of_the_real_data():
    sizes = datasets.sp100().companies.groupby("sector").size()
    assert dict(SECTORS)["sizes"] == tuple(sizes)
    assert real_world("l2g", "abide").n_nodes == len(datasets.abide().regions)


# --- figures -------------------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0, 100), min_size=1, max_size=12).map(sorted), st.floats(0.5, 5))
def test_labels_are_spaced_in_order_and_moved_only_if_needed(places, gap):
    moved = plots._spaced(places, gap)
    assert (np.diff(moved) >= gap - 1e-9).all()
    if (np.diff(places) >= gap).all():
        np.testing.assert_allclose(moved, places, atol=1e-9)


def test_every_figure_says_where_its_data_came_from():
    w = torch.rand(10, generator=torch.Generator().manual_seed(0))
    labels = ["a", "a", "b", "c", "c"]
    regions = pd.DataFrame({"network": labels, "x": 9.0 * np.arange(5), "y": 0.0, "z": 5.0})
    row = {"model": "L2G", "family": "control", "value": 0.5, "ci": 0.1, "marker": "o"}
    figures = (
        plots.block_heatmaps({"one": w, "two": w}, labels, "somewhere"),
        plots.sector_graph(w, list("vwxyz"), labels, "somewhere", n_edges=6),
        plots.connectomes({"one": w}, regions, "somewhere", n_edges=4),
        plots.stability({"panel": pd.DataFrame([row])}, "somewhere"),
    )
    for figure in figures:
        assert any("somewhere" in text.get_text() for text in figure.findobj(Text))
        plt.close(figure)
