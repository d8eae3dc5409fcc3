"""What is made while the book is built: its contents, the page of claims, docstrings in the form that Sphinx needs."""

import inspect
import re
import shutil
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

from book import trial
from helpers import paths
from helpers.beyond.viewer import embed
from helpers.experiments import claims, methods
from helpers.experiments.judging import VERDICTS
from helpers.signals import distances, sample_signals

log = logging.getLogger(__name__)

NOTEBOOKS = paths.ROOT / "notebooks"
METHOD = "notebooks/01_method"
TRY = "book/try"
SCRIPTS = {METHOD: ["pds.js"], TRY: ["trial.js", "try.js"]}  # of single pages
STYLES = {TRY: ["viewer.css"]}
# a line of nothing but pictures from elsewhere, each of which may be a link
BADGES = re.compile(r"^(?:\[?!\[[^\]]*\]\(https?://[^)]*\)(?:\]\([^)]*\))?[ \t]*)+\n", re.M)
# of docstrings: a parameter and its meaning; names and code, or else a sign that has a meaning in reStructuredText
ENTRY = re.compile(r"^([\w*][\w*, ]*) : (.+)$", re.M)
MARKUP = re.compile(r"(^[\w*][\w*, ]* : |`[^`]+`|^>>>.*$)|[*|]|(?<=\w)_(?!\w)", re.M)


def jupyter_anchor(title):
    """The anchor that Jupyter gives a heading, so that links within a notebook work here, too."""
    return title.replace(" ", "-")


def setup(app):
    app.connect("source-read", write_page)
    app.connect("autodoc-process-docstring", write_docstring, priority=400)  # before napoleon, whose is 500
    app.connect("autodoc-process-docstring", write_property, priority=600)
    app.connect("builder-inited", announce)
    app.connect("builder-inited", write_trial)
    app.connect("doctree-read", describe_figures)
    app.connect("doctree-read", add_solver)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", copy_first_page)
    return {"parallel_read_safe": True}


def announce(app):
    if not app.config.html_theme_options.get("repository_url"):
        log.info("no links to a repository and to Binder: BOOK_REPOSITORY is not set")


def write_trial(app):
    paths.write_atomically(Path(app.outdir, "_static", "trial.js"), trial.script().encode())


def write_page(app, docname, source):
    """README without badges and with the contents of the book; the claims after their introduction."""
    if docname == app.config.root_doc:
        source[0] = f"{BADGES.sub('', source[0])}\n{contents()}"
    elif docname == "book/claims":
        source[0] = f"{source[0]}\n{claims_page()}"


def describe_figures(app, doctree):
    """For readers who cannot see them, the outputs of notebooks are called after their section."""
    for section in doctree.findall(nodes.section):
        for image in section.findall(nodes.image):
            if image["uri"].endswith(".png") and "alt" not in image:
                image["alt"] = f"Figure: {section[0].astext()}"


def add_solver(app, doctree):
    """In 01_method the section on the solver ends with a figure in which the solver runs."""
    if app.env.docname == METHOD:
        (section,) = (s for s in doctree.findall(nodes.section) if s[0].astext() == "The solver")
        section += nodes.raw("", solver_figure(), format="html")


def add_scripts(app, pagename, templatename, context, doctree):
    for name in SCRIPTS.get(pagename, ()):
        app.add_js_file(name, loading_method="defer")
    for name in STYLES.get(pagename, ()):
        app.add_css_file(name)


def copy_first_page(app, exception):
    """Folders are opened at index.html. README.html stands beside it, so that every link in it works there as well."""
    if exception is None:
        shutil.copy(Path(app.outdir, f"{app.config.root_doc}.html"), Path(app.outdir, "index.html"))


# --- the solver, to be tried in 01_method -----------------------------------------------------------------------------


def solver_figure() -> str:
    """The frame that static/pds.js fills, and the data: the graph of 01_method, its distances and tuned constants."""
    text = (
        "<p><strong>Algorithm 1 in this page.</strong> The same graph and the same signals; the solver runs in your "
        "browser. The sliders start near the constants above. A larger α or β means a smaller θ and so more edges; "
        "their ratio sets the scale of the weights.</p>"
    )
    return f'<div class="pds-figure">{text}<script type="application/json">{embed(solver_data())}</script></div>'


def solver_data():
    """y and w of the first test graph, as the third cell of 01_method draws them, and (alpha, beta)."""
    truths = methods.test_set("BA")[1].double()
    y = distances(sample_signals(truths, seed=1))[0]
    alpha, beta = methods.tune("BA")
    return {"y": y.tolist(), "truth": truths[0].tolist(), "alpha": alpha, "beta": beta}


# --- contents ---------------------------------------------------------------------------------------------------------


def notebooks() -> list[str]:
    """Names of the notebooks in the order of their numbers."""
    return sorted(path.stem for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def contents() -> str:
    """The tables of contents that the sidebar shows: the page to try it, notebooks by their short names, the rest."""
    lines = [f"{name.replace('_', ' ')} <notebooks/{name}>" for name in notebooks()]
    rest = ["book/claims", "book/api", "CONTRIBUTING", "CHANGELOG"]
    return toctree("Use it", [TRY]) + toctree("Notebooks", lines) + toctree("Reference", rest)


def toctree(caption, lines):
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```", "", ""])


# --- claims -----------------------------------------------------------------------------------------------------------


def claims_page() -> str:
    """Markdown of all records: counts, the rules, then one section per notebook."""
    found = claims.judgements()
    parts = [
        f"## {len(claims.CLAIMS)} verdicts",
        verdict_counts(found),
        *(notebook_claims(name, found) for name in claims.NOTEBOOKS),
    ]
    return "\n\n".join(parts)


def verdict_counts(found) -> str:
    """A table of how often each verdict was given: to claims of the paper, and to findings of ours."""
    counts = {title: claims.count(records, found) for title, records in claims.sides(claims.CLAIMS).items()}
    rows = [(badge(word), *(count.get(word, 0) for count in counts.values())) for word in VERDICTS]
    return markdown(("verdict", *counts), [*rows, ("all", *(sum(count.values()) for count in counts.values()))])


def notebook_claims(name, found) -> str:
    """The section of one notebook: how to reproduce its verdicts, the paper's claims, findings of ours."""
    parts = [
        f"## {name}",
        f"In the book: [{name}](../notebooks/{name}.ipynb). To reproduce it:",
        f"    .venv/bin/python -m helpers.experiments.notebooks run notebooks/{name}.ipynb",
    ]
    for title, records in claims.sides(claims.claims_of(name)).items():
        if records:
            parts += [f"{len(records)} {title}:", claims_table(records, found)]
    return "\n\n".join(parts)


def claims_table(records, found) -> str:
    """One row per record; columns that none of them fills are left out."""
    rows = [claim_row(claim, found[claim.key]) for claim in records]
    filled = [column for column in rows[0] if any(row[column] for row in rows)]
    return markdown(filled, [[row[column] for column in filled] for row in rows])


def claim_row(claim, judgement):
    return {
        "verdict": badge(judgement.verdict),
        "when, or why": judgement.why,
        "claim": f"{claim.text} [{claim.key}]{{.key}}",
        "in the paper": "" if claim.ours else claim.where,
        "threshold, and why": claim.threshold,
    }


def badge(verdict):
    """A verdict that the style sheet colours."""
    return f"[{verdict}]{{.verdict .{verdict.replace(' ', '-').replace(chr(39), '')}}}"


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |\n" for line in lines)


# --- docstrings -------------------------------------------------------------------------------------------------------


def write_docstring(app, what, name, obj, options, lines):
    """Docstrings here have Markdown's signs and the meaning, not the type, of a parameter behind its colon."""
    lines[:] = to_rst("\n".join(lines)).splitlines()


def write_property(app, what, name, obj, options, lines):
    """Undo what napoleon does to properties: it takes what stands before the first colon for a type."""
    if what == "property":
        lines[:] = to_rst(inspect.getdoc(obj)).splitlines()


def to_rst(text) -> str:
    """A docstring as reStructuredText in the form of numpydoc."""
    blocks = [as_literal(block) if is_code(block) else escape(block) for block in text.split("\n\n")]
    return ENTRY.sub(r"\1\n    \2", "\n\n".join(blocks))


def is_code(block):
    """Whether it is a block of code in Markdown: indented throughout."""
    return all(line.startswith("    ") for line in block.splitlines())


def as_literal(block):
    return f"::\n\n{block}"


def escape(text):
    return MARKUP.sub(lambda match: match[0] if match[1] else f"\\{match[0]}", text)
