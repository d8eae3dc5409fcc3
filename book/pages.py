"""What is made while the book is built: its contents, the page of claims, docstrings in the form that Sphinx needs."""

import inspect
import re
import shutil
from collections import Counter
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util import logging

from helpers import paths
from helpers.experiments import claims

log = logging.getLogger(__name__)

NOTEBOOKS = paths.ROOT / "notebooks"
judge = cache(claims.verdict)
LEVELS = ("all", "some", "none")  # of the cases of a claim hold: the order of the words of a verdict
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
    app.connect("doctree-read", describe_figures)
    app.connect("build-finished", copy_first_page)
    return {"parallel_read_safe": True}


def announce(app):
    if not app.config.html_theme_options.get("repository_url"):
        log.info("no links to a repository and to Binder: BOOK_REPOSITORY is not set")


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


def copy_first_page(app, exception):
    """Folders are opened at index.html. README.html stands beside it, so that every link in it works there as well."""
    if exception is None:
        shutil.copy(Path(app.outdir, f"{app.config.root_doc}.html"), Path(app.outdir, "index.html"))


# --- contents ---------------------------------------------------------------------------------------------------------


def notebooks() -> list[str]:
    """Names of the notebooks in the order of their numbers."""
    return sorted(path.stem for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def contents() -> str:
    """Two tables of contents, which the sidebar shows: the notebooks under their short names, and the rest."""
    lines = [f"{name.replace('_', ' ')} <notebooks/{name}>" for name in notebooks()]
    rest = ["book/claims", "book/api", "CONTRIBUTING", "CHANGELOG"]
    return toctree("Notebooks", lines) + toctree("Reference", rest)


def toctree(caption, lines):
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```", "", ""])


# --- claims -----------------------------------------------------------------------------------------------------------


def claims_page() -> str:
    """Markdown of all records: counts, then one section per notebook."""
    t = claims.Tables()
    rows = ", which sum up some of these claims, stand below those of their notebook."
    parts = [
        f"## {len(claims.CLAIMS)} verdicts",
        verdict_counts(t),
        f"The {len(claims.SELECTION)} rows of the [README's table](../README.md){rows}",
        *(notebook_claims(name, t) for name in sorted({c.notebook for c in every_claim()})),
    ]
    return "\n\n".join(parts)


def every_claim():
    return [*claims.CLAIMS, *claims.SELECTION]


def level(claim, verdict):
    """Which of the three words of its notebook, or of its own, a verdict is; "other" if none."""
    words = claim.words or claims.VOCABULARY.get(claim.notebook, claims.REPRODUCED)
    return LEVELS[words.index(verdict)] if verdict in words else "other"


def verdict_counts(t) -> str:
    """A table of how often each word was the verdict: on claims of the paper, and on findings of ours."""
    judged = [(claim.ours, judge(claim, t), claim) for claim in claims.CLAIMS]
    counts = Counter((ours, word) for ours, word, _ in judged)
    levels = {word: level(claim, word) for _, word, claim in judged}
    order = sorted(levels, key=lambda word: [*LEVELS, "other"].index(levels[word]))
    rows = [(badge(word, levels[word]), counts[False, word], counts[True, word]) for word in order]
    total = ("all", *(sum(claim.ours == ours for claim in claims.CLAIMS) for ours in (False, True)))
    return markdown(("verdict", "claims of the paper", "findings of ours"), [*rows, total])


def notebook_claims(name, t) -> str:
    """The section of one notebook: how to reproduce its verdicts, its claims, its rows of the README's table."""
    exists = name in notebooks()
    parts = [
        f"## {name}",
        f"In the book: [{name}](../notebooks/{name}.ipynb). To reproduce it:" if exists else "",
        f"    .venv/bin/python -m helpers.experiments.notebooks run notebooks/{name}.ipynb" if exists else "",
        claims_table([c for c in claims.CLAIMS if c.notebook == name], t),
    ]
    if selected := [c for c in claims.SELECTION if c.notebook == name]:
        parts += ["Summed up in the README:", claims_table(selected, t)]
    return "\n\n".join(filter(None, parts))


def claims_table(records, t) -> str:
    """One row per record; columns that none of them fills are left out."""
    rows = [claim_row(claim, t) for claim in records]
    filled = [column for column in rows[0] if any(row[column] for row in rows)] if rows else []
    return markdown(filled, [[row[column] for column in filled] for row in rows])


def claim_row(claim, t):
    verdict = judge(claim, t)
    paper, found = (text(t) if callable(text) else text for text in (claim.paper, claim.found))
    return {
        "verdict": badge(verdict, level(claim, verdict)),
        "claim": f"{claim.text} [{claim.key}]{{.key}}",
        "in the paper": "no, ours" if claim.ours else claim.where,
        "the paper's": paper,
        "found": found,
        "threshold, and why": claim.threshold,
        "cause": claim.cause,
    }


def badge(verdict, level):
    return f"[{verdict}]{{.verdict .{level}}}"


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
