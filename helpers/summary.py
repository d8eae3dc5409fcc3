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
        "Error of L2G on BA / ER / SBM / WS (GMSE)", _list(theirs.loc["L2G"], 4), _list(error.loc["L2G"], 4),
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
    rank = _wide(results.read("07_sp100"))["rank of CVS-WBA, across"]["S&P 100"]
    yield (
        "S&P 100: L2G detects the link CVS–WBA across sectors", "named in the text",
        f"rank {rank['L2G']:.0f} of its links across sectors; rank {rank['PDS']:.0f} for PDS",
        verdict([rank["L2G"] <= 10]), "07_sp100",
    )  # fmt: skip
    paper, ours = (_wide(results.paper("abide"))["spearman"], _wide(results.read("08_abide"))["spearman, 35 subjects"])
    groups, rivals = ["control", "autism"], ["Graphical lasso", "Deep-graph"]
    yield (
        "ABIDE: L2G's graphs are far more stable than its rivals', control / autism (Spearman)",
        f"{_list(paper.loc['L2G', groups], 2)}; graphical lasso {_list(paper.loc['Graph Lasso', groups], 2)}",
        f"{_list(ours.loc['L2G', groups], 2)}; graphical lasso {_list(ours.loc['Graphical lasso', groups], 2)}; "
        f"Deep-graph {_list(ours.loc['Deep-graph', groups], 2)}; "
        f"raw correlations {_list(ours.loc['Correlations', groups], 2)}",
        verdict((ours.loc["L2G", groups] > ours.loc[name, groups] + 0.1).all() for name in rivals), "08_abide",
    )  # fmt: skip
    shuffled = error.loc["L2G (shuffled ids)"]
    worse = shuffled.index[shuffled > 1.1 * error.loc["L2G"]]
    yield (
        "*Not in the paper:* L2G on nodes numbered at random (GMSE)", "–", _list(shuffled),
        f"worse on {', '.join(worse)}" if len(worse) else "no worse", "01_graph_recovery",
    )  # fmt: skip
    reference = error.loc["Laplacian maximum likelihood"]
    yield (
        "*Not in the paper:* maximum likelihood, without any training (GMSE)", "–", _list(reference),
        "beats L2G" if (reference < error.loc["L2G"]).all() else "mixed", "01_graph_recovery",
    )  # fmt: skip
    bound = _wide(results.read("09_limits"))["gmse"][list(FAMILIES)]
    best, limit = bound.loc["EquivariantL2G (mixed)"], bound.loc["Posterior mean, edges known"]
    yield (
        "*Not in the paper:* EquivariantL2G, one model for all families, any node order (GMSE)", "–",
        f"{_list(best, 4)}; the limit with known edges: {_list(limit, 4)}",
        "near the limit" if (best < 1.5 * limit).all() else "above the limit", "10_equivariant_l2g",
    )  # fmt: skip
    cost = (
        results.read("11_scaling").query("model == '10 candidates'").pivot(index="x", columns="metric", values="value")
    )
    seconds = cost.search[1_000_000] + cost.solve[1_000_000]
    yield (
        "*Named as a limit:* graphs of a million nodes", "–",
        f"{seconds / 60:.0f} minutes on one core, {cost.peak[1_000_000]:.1f} GB",
        f"solved to a relative gap of {cost.gap[1_000_000]:.0e}", "11_large_graphs",
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
    groups["all"] = [sum(column) for column in zip(*groups.values(), strict=True)]
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
