"""The book: what is made for it, and what a reader gets to see in a browser, on a desk and on a phone."""

import functools
import os
import re
import runpy
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import torch
from conftest import Window, find_chromium

from book import pages
from helpers import paths
from helpers.experiments import claims
from helpers.solvers import pds

# One worker builds and reads the book once, for all tests of this file; on a busy machine that takes its time.
pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]

ROOT = paths.ROOT
REPOSITORY = "https://github.com/owner/name"
DESK, PHONE, HEIGHT = 1280, 390, 844  # pixels
DRAWN = ("index.html", f"{pages.METHOD}.html", f"{pages.TRY}.html")  # pages of which each has a script of ours


# --- what is made while the book is built -----------------------------------------------------------------------------


def test_badges_stay_out():
    badge = "[![tests](https://example.org/badge.svg)](https://example.org) ![licence](https://example.org/mit.svg)\n"
    figure = "![Errors](figures/errors.png)\n\nSee ![this](https://example.org/this.png) picture.\n"
    assert pages.BADGES.sub("", f"# Title\n\n{badge}\n{figure}") == f"# Title\n\n\n{figure}"


def test_notebooks_come_by_number(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "NOTEBOOKS", tmp_path)
    for name in ("10_ten", "02_two", "draft", "13_new_one"):
        (tmp_path / f"{name}.ipynb").touch()
    assert pages.notebooks() == ["02_two", "10_ten", "13_new_one"]
    assert "\n02 two <notebooks/02_two>\n10 ten <notebooks/10_ten>\n13 new one <" in pages.contents()


def test_docstrings_become_numpydoc():
    text = (
        "The `a*b` of a_ij and x_, |x|.\n\n    min ||w||*\n\n"
        "Parameters\n----------\nx_, y : its\n    meaning\n\n>>> x_ * 2"
    )
    expected = (
        "The `a*b` of a_ij and x\\_, \\|x\\|.\n\n::\n\n    min ||w||*\n\n"
        "Parameters\n----------\nx_, y\n    its\n    meaning\n\n>>> x_ * 2"
    )
    assert pages.to_rst(text) == expected


@pytest.fixture(scope="module")
def claims_page():
    return pages.claims_page()


def test_every_claim_has_its_row(claims_page):
    found = claims.judgements()
    rows = {match[1]: match[0] for match in re.finditer(r"^\|.*\[([\w-]+)\]\{\.key\}.*$", claims_page, re.M)}
    assert rows.keys() == {claim.key for claim in claims.CLAIMS}
    for claim in claims.CLAIMS:
        judgement = found[claim.key]
        shown = [f"[{judgement.verdict}]{{.verdict", claim.text, claim.threshold, judgement.why]
        shown += [] if claim.ours else [claim.where]
        assert all(part.replace("|", r"\|") in rows[claim.key] for part in shown), claim.key


def test_every_claim_is_below_its_notebook_and_the_command_that_runs_it(claims_page):
    sections = re.split(r"^## ", claims_page, flags=re.M)[2:]
    found = {section.split("\n")[0]: set(re.findall(r"\[([\w-]+)\]\{\.key\}", section)) for section in sections}
    assert list(found) == list(claims.NOTEBOOKS)
    for claim in claims.CLAIMS:
        assert claim.key in found[claim.notebook]
    for section in sections:
        name = section.split("\n")[0]
        assert f"helpers.experiments.notebooks run notebooks/{name}.ipynb" in section


def test_counts_of_verdicts(claims_page):
    """The table on top against the rows below it, and against the README's."""
    top, *sections = re.split(r"^## ", claims_page, flags=re.M)[1:]
    table = {word: (int(a), int(b)) for word, a, b in re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|$", top, re.M)}
    total = table.pop("all")
    assert tuple(map(sum, zip(*table.values()))) == total
    assert sum(total) == len(claims.CLAIMS)
    below = "".join(sections)
    assert {badge: sum(numbers) for badge, numbers in table.items()} == {badge: below.count(badge) for badge in table}
    parts = re.split(r"^\d+ (claims of the paper|findings of ours):$", below, flags=re.M)
    for k, title in enumerate(("claims of the paper", "findings of ours")):
        own = "".join(text for name, text in zip(parts[1::2], parts[2::2]) if name == title)
        assert {badge: numbers[k] for badge, numbers in table.items()} == {badge: own.count(badge) for badge in table}
    shown = (ROOT / "README.md").read_text().split("<!-- counts -->")[1].split("<!-- /counts -->")[0]
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \|$", shown, re.M)
    assert {word: (int(a), int(b)) for word, a, b in rows} == {
        **{re.match(r"\[(.+)\]", badge)[1]: numbers for badge, numbers in table.items()}, "all": total
    }  # fmt: skip


@pytest.mark.parametrize("url", ["", REPOSITORY])
def test_links_to_the_web_need_an_address(url, monkeypatch):
    monkeypatch.setenv("BOOK_REPOSITORY", url)
    options = runpy.run_path(ROOT / "book/conf.py")["html_theme_options"]
    assert options.get("repository_url", "") == url
    assert ("launch_buttons" in options) == bool(url)


# --- the built book ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The folder of the built book. It knows the address of a repository, so that all links are there to be tested."""
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "book", "-d", str(folder / "doctrees")]
    environment = os.environ | {"BOOK_REPOSITORY": REPOSITORY}
    done = subprocess.run(
        [*command, ".", str(folder / "html")], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def names_of_pages(book):
    return sorted(path.relative_to(book).as_posix() for path in book.rglob("*.html") if "_static" not in path.parts)


def test_every_notebook_is_a_page_with_its_stored_figures(book):
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        page = (book / "notebooks" / f"{path.stem}.html").read_text()
        assert page.count('<img alt="Figure: ') == path.read_text().count('"image/png": "')


def test_every_module_of_the_core_is_described(book):
    page = (book / "book/api.html").read_text()
    described = set(re.findall(r'id="module-helpers\.(\w+)"', page))
    core = {path.stem for path in (ROOT / "helpers").glob("*.py")}
    assert described == core - {"__init__", "__main__", "learner"}
    assert 'id="helpers.GraphLearner.fit"' in page
    assert "<strong>min_probability</strong> – edges less probable" in page


def test_only_what_is_needed_is_copied(book):
    scripts = {path.name for path in (book / "_static").glob("*.js")}
    assert "tex-svg-full.js" in scripts
    assert sum(path.stat().st_size for path in book.rglob("*") if path.is_file()) < 40e6


# --- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ci, outcome", [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_without_a_browser(ci, outcome, monkeypatch):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(outcome, match="apt-get install chromium"):
        find_chromium()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address(book):
    """The address at which the book is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(QuietHandler, directory=book)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def windows(open_window):
    """{width: the page of a window of that width}."""
    return {width: open_window(width).page for width in (DESK, PHONE)}


LOOK = """async () => {
    await window.MathJax?.startup?.promise;
    const article = document.querySelector("#main-content");
    const prose = article.cloneNode(true);
    prose.querySelectorAll("pre, code, mjx-container, .math").forEach((element) => element.remove());
    const all = (selector, attribute) => [...document.querySelectorAll(selector)].map((element) => element[attribute]);
    const scrolls = (box) => !box.matches(".bd-article-container") &&
        (/auto|scroll/.test(getComputedStyle(box).overflowX) || scrolls(box.parentElement));
    const text = document.querySelectorAll(".bd-article-container :is(h1, h2, h3, p, li, dt, td, img)");
    const beyond = (element) => element.getBoundingClientRect().right > innerWidth + 1 && !scrolls(element);
    return {
        cut: [...text].filter(beyond).map((element) => element.outerHTML.slice(0, 80)),
        width: document.documentElement.scrollWidth,
        links: all("a[href]", "href"),
        images: all("img[src]", "src"),
        broken: [...article.querySelectorAll("img")].filter((x) => x.complete && !x.naturalWidth).map((x) => x.src),
        ids: all("[id]", "id"),
        equations: article.querySelectorAll(".math").length,
        rendered: article.querySelectorAll(".math:has(mjx-container svg)").length,
        wrong: article.querySelectorAll("[data-mml-node=merror]").length,
        prose: prose.textContent,
        sidebar: all(".bd-sidebar-primary nav a", "href"),
        contents: all(".bd-sidebar-secondary .page-toc a", "href"),
        around: all(".prev-next-area a", "href"),
    };
}"""


@pytest.fixture(scope="module")
def views(book, address, chromium):
    """{(page, width): what was seen there}, with the errors and the requests that the page had caused by then.

    A page is opened on a desk and then made as narrow as a phone, since equations take long to draw. What one of our
    own scripts draws is opened on the phone as well.
    """
    window = Window(chromium, DESK, HEIGHT)
    seen = {}

    def look(name, width):
        found = window.page.evaluate(LOOK)
        seen[name, width] = found | {"errors": [*window.errors], "requests": [*window.requests]}

    for name in names_of_pages(book):
        window.page.set_viewport_size({"width": DESK, "height": HEIGHT})
        window.goto(address + name)
        look(name, DESK)
        window.page.set_viewport_size({"width": PHONE, "height": HEIGHT})
        if name in DRAWN:
            window.goto(address + name)
        look(name, PHONE)
    window.page.close()
    return seen


def test_no_page_has_an_error(views):
    assert {view: seen["errors"] for view, seen in views.items() if seen["errors"]} == {}


def test_nothing_is_loaded_from_elsewhere(views, address):
    for view, seen in views.items():
        assert any(url.startswith(address) for url in seen["requests"])
        assert [url for url in seen["requests"] if not url.startswith((address, "data:"))] == [], view


def test_no_link_and_no_picture_is_broken(views, book, address):
    ids = {name: {*seen["ids"], ""} for (name, width), seen in views.items() if width == DESK}
    for (name, _), seen in views.items():
        assert seen["broken"] == []
        for url in {*seen["links"], *seen["images"]}:
            path, anchor = urldefrag(url.removeprefix(address))
            path = unquote(urlsplit(path).path) or "index.html"
            if url.startswith(address):
                assert (book / path).is_file(), f"{name} has a link to {url}"
                assert path not in ids or unquote(anchor) in ids[path], f"{name} has a link to {url}"


def test_files_of_the_repository_are_downloads(views):
    downloads = {url.split("/")[-1] for url in views["README.html", DESK]["links"] if "/_downloads/" in url}
    assert "claims.py" in downloads


def test_equations_are_rendered(views):
    for view, seen in views.items():
        assert seen["rendered"] == seen["equations"], view
        assert seen["wrong"] == 0, view
        assert re.findall(r"\$\$|\\\(|\\\[|\\begin\{", seen["prose"]) == [], view
    assert views["book/api.html", PHONE]["rendered"] > 0


def test_nothing_is_wider_than_the_page(views):
    assert {view: seen["width"] for view, seen in views.items() if seen["width"] > view[1]} == {}
    assert {view: seen["cut"] for view, seen in views.items() if seen["cut"]} == {}, "hidden, and nothing scrolls there"


def test_a_reader_finds_the_way(views, address):
    seen = {name: seen for (name, width), seen in views.items() if width == DESK}
    names = [f"notebooks/{name}" for name in pages.notebooks()]
    order = ["README", pages.TRY, *names, "book/claims", "book/api", "CONTRIBUTING", "CHANGELOG"]
    order = [f"{address}{name}.html" for name in order]
    for k, url in enumerate(order):
        page = seen[url.removeprefix(address)]
        assert [urldefrag(link)[0] for link in page["sidebar"]] == order[1:]
        assert page["around"] == [*order[max(k - 1, 0) : k], *order[k + 1 : k + 2]]
        assert page["contents"], f"{url} has no contents"


def test_notebooks_can_be_downloaded_and_launched(views, address):
    for name in pages.notebooks():
        links = views[f"notebooks/{name}.html", DESK]["links"]
        assert f"{address}_sources/notebooks/{name}.ipynb" in links
        assert any(link.startswith("https://mybinder.org/v2/gh/owner/name/") and name in link for link in links)


def test_search_finds_a_name(views, address, windows):
    page = windows[DESK]
    page.goto(f"{address}search.html?q=TopoDiffVAE")
    page.wait_for_selector("#search-results li a")
    found = page.eval_on_selector_all("#search-results li a", "links => links.map((link) => link.pathname)")
    names = {path.removeprefix("/") for path in found}
    assert names & {"README.html", "book/api.html"}
    assert names <= {name for name, _ in views}


def test_the_solver_runs_in_its_page(address, windows):
    page = windows[DESK]
    page.goto(f"{address}{pages.METHOD}.html")
    figure = page.locator(".pds-figure")
    y = torch.tensor(pages.solver_data()["y"], dtype=torch.float64)
    for a, b, k in ((50, 50, 0), (85, 30, 16), (100, 0, 299)):
        for slider, value in zip(figure.get_by_role("slider").all(), (a, b, k)):
            slider.fill(str(value))
        page.evaluate("() => new Promise(requestAnimationFrame)")
        shown = figure.evaluate("figure => [...figure.weights]")
        expected = pds(y, 10 ** (a / 50 - 1), 10 ** (b / 50 - 1), n_iter=k + 1, tol=0)
        assert shown == pytest.approx(expected.tolist(), abs=1e-6)
        n_edges = (expected > 1e-6 * expected.max()).sum()
        assert figure.locator(".reading").inner_text().startswith(f"{n_edges} of 190 pairs")


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_a_figure_opens_in_its_full_size(address, windows, width):
    page = windows[width]
    page.goto(f"{address}index.html")
    figure = page.locator("article img").first
    full = figure.evaluate("image => image.naturalWidth")
    assert figure.bounding_box()["width"] < full
    figure.click()
    large = page.locator("dialog.viewer[open] img")
    large.wait_for(state="visible")
    assert large.bounding_box()["width"] == full
    page.keyboard.press("Escape")
    large.wait_for(state="detached")
