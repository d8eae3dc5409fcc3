"""`python -m book.picture` makes figures/explorer.png: the page of `GraphLearner.to_html`, as README shows it."""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from helpers import GraphLearner, paths
from helpers.real import datasets

from .trial import N_DAYS

WIDTH, HEIGHT = 1280, 800
N_COLOURS = 256
SANDBOX = "--no-sandbox"  # Chromium has none for root


def companies(path):
    """Write the page of the S&P 100's graph."""
    stocks = datasets.sp100()
    S = datasets.observations(stocks.y["all"], N_DAYS).moments
    learner = GraphLearner().fit_moments(S, N_DAYS, names=stocks.companies["ticker"])
    learner.to_html(path, title="Companies of the S&P 100", groups=stocks.companies["sector"].tolist())


def photograph(page, picture):
    """Write what Chromium shows of a page, once its nodes rest."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[SANDBOX])
        window = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        window.goto(page.as_uri())
        while not window.evaluate("explorer.layout.rests"):
            window.wait_for_timeout(50)
        window.evaluate("explorer.drawNow()")
        shot = window.screenshot()
        browser.close()
    few_colours = Image.open(io.BytesIO(shot)).convert("RGB").quantize(N_COLOURS, dither=Image.Dither.NONE)
    few_colours.save(buffer := io.BytesIO(), "PNG", optimize=True)
    paths.write_atomically(picture, buffer.getvalue())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "graph.html"
        companies(page)
        photograph(page, paths.ROOT / "figures" / "explorer.png")
