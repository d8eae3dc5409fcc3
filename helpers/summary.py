"""What was found, as the README shows it: claim, the paper's number, ours, verdict, notebook; and what training costs.

python -m helpers.summary rewrites the tables between the README's markers from data/results/ and the checkpoints.
"""

import json
import re

from . import paths, results
from .graphs import FAMILIES
from .runs import RUNS
from .training import files

README = paths.ROOT / "README.md"
STRUCTURED = ("BA", "SBM", "WS")


def verdict(holds):
    """All, some or none of the conditions."""
    holds = [bool(x) for x in holds]
    return "reproduced" if all(holds) else "partly" if any(holds) else "not reproduced"


def claims():
    """Rows (claim, paper, ours, verdict, notebook), every number read from a table."""
    paper, ours = (_wide(results.paper("1")), _wide(results.read("01_graph_recovery")))
    theirs, error = paper["gmse"][list(FAMILIES)], ours["gmse"][list(FAMILIES)]
    yield (
        "Error of L2G on BA / ER / SBM / WS (GMSE)", _list(theirs.loc["L2G"]), _list(error.loc["L2G"]),
        verdict(error.loc["L2G"] <= theirs.loc["L2G"]), "01_graph_recovery",
    )  # fmt: skip
    cuts = [1 - error.loc["L2G"] / error.loc[name] for name in ("PDS (alpha=beta=1)", "PDS")]
    yield (
        "L2G is over 70 % below PDS on every family",
        f"{_percent(1 - theirs.loc['L2G'] / theirs.loc['PDS'])} below",
        f"PDS at α = β = 1: {_percent(cuts[0])}; tuned, as the text says: {_percent(cuts[1])}",
        verdict((cut > 0.7).all() for cut in cuts), "01_graph_recovery",
    )  # fmt: skip
    ratio = error.loc["Unrolling"] / error.loc["L2G"]
    slow = error.loc["Unrolling (lr 1e-4)"] / error.loc["L2G"]
    yield (
        "Without its autoencoder (Unrolling) the error is larger by a factor of",
        _list(theirs.loc["Unrolling"] / theirs.loc["L2G"], 1),
        f"{_list(ratio, 1)}; {_list(slow, 1)} at the released script's learning rate",
        verdict((r > 1.1).all() for r in (ratio, slow)), "01_graph_recovery",
    )  # fmt: skip
    nmse = ours["nmse"][list(FAMILIES)]
    yield (
        "GLAD fails at σ² = 1e-4 (NMSE)", _list(paper["nmse"].loc["GLAD", list(FAMILIES)], 2),
        f"{_list(nmse.loc['GLAD (newton_schulz)'], 2)} with its notebook's arithmetic; "
        f"{_list(nmse.loc['GLAD (stable)'])} computed stably",
        verdict((nmse.loc[name] > 0.9).all() for name in nmse.dropna().index), "03_glad_sigma_sweep",
    )  # fmt: skip
    paper, ours = (_wide(results.paper("2"))["auc"], _wide(results.read("02_structure"))["auc"])
    yield (
        "Deep-graph barely finds edges, BA / SBM / WS (AUC)", _list(paper.loc["Deep-graph", list(STRUCTURED)]),
        f"{_list(ours.loc['Deep-graph', list(STRUCTURED)])} trained as its authors did; "
        f"{_list(ours.loc['Deep-graph (fair)', list(STRUCTURED)])} trained on the family",
        verdict((ours.loc[name, list(STRUCTURED)] < 0.75).all() for name in ("Deep-graph", "Deep-graph (fair)")),
        "02_structure",
    )  # fmt: skip
    found = _wide(results.read("02_structure"))["recall_new"]["WS (p=0.5)"]
    yield (
        "PDS ignores rewired edges of small worlds, L2G finds them", "heatmap only",
        f"PDS at α = β = 1 {found['PDS (alpha=beta=1)']:.0%}, tuned {found['PDS']:.0%}, L2G {found['L2G']:.0%}",
        verdict([found["L2G"] > 0.9, found["PDS"] < 0.5, found["PDS (alpha=beta=1)"] < 0.5]), "02_structure",
    )  # fmt: skip
    transfer = results.read("04_transfer")
    moved = transfer[(transfer.metric == "GMSE") & (transfer.model == "Unrolling (m=20)")].set_index("x").value
    home = transfer[(transfer.metric == "GMSE") & (transfer.model == "Unrolling")].set_index("x").value
    yield (
        "Unrolling trained at 20 nodes serves 50 / 100 with little loss (GMSE)", "no number",
        f"{_list(moved.loc[[50, 100]], None)}; trained there: {_list(home.loc[[50, 100]])}",
        verdict(moved.loc[[50, 100]] < 1.5 * home.loc[[50, 100]]), "04_convergence",
    )  # fmt: skip
    paper, ours = (_wide(results.paper("binary"))["gmse"], _wide(results.read("06_binary_graphs"))["gmse"])
    yield (
        "On binary graphs Deep-graph is far behind L2G, BA / SBM / WS (GMSE)",
        f"{_list(paper.loc['Deep-graph'])}; L2G {_list(paper.loc['L2G'])}",
        f"{_list(ours.loc['Deep-graph'])} trained as its authors did; {_list(ours.loc['Deep-graph (fair)'])} on "
        f"the family; L2G {_list(ours.loc['L2G'])}",
        verdict((ours.loc[name] > 2 * ours.loc["L2G"]).all() for name in ("Deep-graph", "Deep-graph (fair)")),
        "06_binary_graphs",
    )  # fmt: skip
    yield (
        "*Not in the paper:* L2G on nodes numbered at random (GMSE)", "–", _list(error.loc["L2G (shuffled ids)"]),
        "depends on node order" if (error.loc["L2G (shuffled ids)"] > 1.1 * error.loc["L2G"]).all() else "mixed",
        "01_graph_recovery",
    )  # fmt: skip
    reference = error.loc["Laplacian maximum likelihood"]
    yield (
        "*Not in the paper:* maximum likelihood, without any training (GMSE)", "–", _list(reference),
        "beats L2G" if (reference < error.loc["L2G"]).all() else "mixed", "01_graph_recovery",
    )  # fmt: skip


def costs():
    """Rows (kind of run, number, minutes on one core, megabytes) of what is trained."""
    groups = {}
    for run in RUNS.values():
        weights, sidecar, _ = files(run)
        if sidecar.exists():
            record = json.loads(sidecar.read_text())
            group = groups.setdefault(run.model, [0, 0.0, 0])
            group[0] += 1
            group[1] += record["seconds"] / 60
            group[2] += weights.stat().st_size / 1e6
    return [(model, n, f"{minutes:.0f}", f"{size:.1f}") for model, (n, minutes, size) in groups.items()]


def tables():
    """Markdown of both tables, by the name of their marker."""
    linked = [(*row[:4], f"[{row[4]}](notebooks/{row[4]}.ipynb)") for row in claims()]
    return {
        "claims": _markdown(("claim", "paper", "ours", "verdict", "notebook"), linked),
        "costs": _markdown(("model", "runs", "minutes on one core", "MB"), costs()),
    }


def insert(text):
    """The README with its tables renewed."""
    for name, table in tables().items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, n = re.subn(pattern, lambda match, table=table: match[1] + table + match[2], text, flags=re.DOTALL)
        if n != 1:
            raise ValueError(
                f"README.md needs the markers <!-- {name} --> and <!-- /{name} --> once each, in this order"
            )
    return text


def _wide(frame):
    """Tidy rows -> a frame with (metric, family) across and models down."""
    return frame.pivot(index="model", columns=["metric", "family"], values="value")


def _list(values, digits=3):
    return " / ".join(f"{v:.2g}" if digits is None else f"{v:.{digits}f}" for v in values)


def _percent(values):
    return f"{min(values):.0%} to {max(values):.0%}"


def _markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


if __name__ == "__main__":
    paths.write_atomically(README, insert(README.read_text()).encode())
