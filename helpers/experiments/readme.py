"""The README's two tables: what was found, and what training costs. `l2g readme` renews them, --check only looks.

Each stands between two markers, <!-- claims --> and <!-- /claims -->; the text around them is written by hand.
"""

import contextlib
import re

from .. import paths
from ..training import files
from . import claims
from .runs import RUNS, checkpoint, read_record

README = paths.ROOT / "README.md"


def main(check=False):
    """Renew the tables of the README or, with `check`, only say whether they are up to date.

    Returns
    -------
    exit code : 1 if a check finds them stale, otherwise 0
    """
    text = README.read_text()
    renewed = insert(text)
    if renewed == text:
        print(f"{README.name} is up to date")
        return 0
    if check:
        print(f"{README.name} is stale: `l2g readme` renews its tables")
        return 1
    paths.write_atomically(README, renewed.encode())
    print(f"{README.name} is renewed")
    return 0


def insert(text):
    """A README with its tables renewed."""
    for name, table in {"claims": found_table(), "costs": cost_table()}.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, n = re.subn(pattern, lambda match, table=table: match[1] + table + match[2], text, flags=re.DOTALL)
        if n != 1:
            raise ValueError(
                f"{README.name} needs the markers <!-- {name} --> and <!-- /{name} --> once, in this order"
            )
    return text


def found_table():
    """Markdown of the selected claims, each with a link to its notebook."""
    rows = [(*row, f"[{notebook}](notebooks/{notebook}.ipynb)") for *row, notebook in claims.rows()]
    return markdown(("claim", "paper", "ours", "verdict", "notebook"), rows)


def cost_table():
    """Markdown of what the trained runs cost: one row per model, and their sum."""
    rows = [(model, n, f"{minutes:.0f}", f"{size:.1f}") for model, (n, minutes, size) in costs().items()]
    return markdown(("model", "runs", "minutes on one core", "MB"), rows)


def costs():
    """{model: (number of trained runs, minutes, megabytes)}, the last entry, "all", being the sum."""
    groups = {}
    for run in RUNS.values():
        with contextlib.suppress(FileNotFoundError):  # not trained here
            minutes = read_record(run)["seconds"] / 60
            weights = files(checkpoint(run))[0]
            size = weights.stat().st_size / 1e6 if weights.exists() else 0.0
            groups.setdefault(run.model, []).append((1, minutes, size))
    groups["all"] = [(0, 0.0, 0.0), *(cost for group in groups.values() for cost in group)]
    return {model: tuple(map(sum, zip(*group))) for model, group in groups.items()}


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)
