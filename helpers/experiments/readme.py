"""What the README says in numbers: summary, verdicts, costs. `l2g readme` renews it, --check only looks.

Each part stands between two markers, such as <!-- claims --> and <!-- /claims -->; the text around them is written by
hand.
"""

import contextlib
import re

from .. import paths
from ..engine.checkpoints import files
from . import claims, measure
from . import readings as r
from .judging import VERDICTS, Tables
from .runs import RUNS, checkpoint, read_record

README = paths.ROOT / "README.md"


def main(check=False):
    """Renew the README or, with `check`, only say whether it is up to date.

    Returns
    -------
    exit code : 1 if a check finds it stale, otherwise 0
    """
    text = README.read_text()
    renewed = insert(text)
    if renewed == text:
        print(f"{README.name} is up to date")
        return 0
    if check:
        print(f"{README.name} is stale: `l2g readme` renews its numbers")
        return 1
    paths.write_atomically(README, renewed.encode())
    print(f"{README.name} is renewed")
    return 0


def insert(text):
    """A README with its parts renewed."""
    for name, part in parts().items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, n = re.subn(pattern, lambda match, part=part: match[1] + part + match[2], text, flags=re.DOTALL)
        if n != 1:
            raise ValueError(
                f"{README.name} needs the markers <!-- {name} --> and <!-- /{name} --> once, in this order"
            )
    return text


def parts():
    """{name of the markers: what stands between them}."""
    t = Tables()
    found = claims.judgements(t)
    return {
        "summary": summary(t, found),
        "counts": count_table(found),
        "claims": found_table(t, found),
        "costs": cost_table(t),
    }


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


# --- summary -------------------------------------------------------------------------------------------------------


def summary(t, found):
    """Markdown of the summary, in the form of reports on reproducibility."""
    of_paper, ours = claims.sides(claims.CLAIMS).values()
    counts = claims.count(of_paper, found)
    n_runs, minutes, _ = costs()["all"]
    text, variant = (listed(r.error(t, model).value) for model in ("L2G", r.OURS))
    tuned, untuned = (listed(r.error(t, solver).value) for solver in r.SOLVERS.values())
    paper, shuffled, likely = (
        listed(rows.value) for rows in (r.paper_error(t, "L2G"), r.error(t, r.SHUFFLED), r.error(t, r.MLE))
    )
    return f"""\
**Scope.** The abstract, the contributions, the method, the experiments and the appendix of the paper are read as
{len(of_paper)} claims. Each is one record: where it stands, a test on stored results, a threshold and the reason for
it. {len(ours)} findings of our own are judged in the same way and counted apart.

**Method.** Everything is implemented from the equations: the solvers, L2G and its ablations, GLAD and Deep-graph. A
plain name in a table is the method as the text states it, *(released code)* is what the published code does, and
*(ours)* is our variant. The networks of Table 1 are trained five times each. All {n_runs} trainings took
{minutes / 60:.0f} hours on one core of an {cpu(t)}, without a GPU.

**Results.** Of the {len(of_paper)} claims {counted(counts)}.
On BA / ER / SBM / WS graphs L2G has an error of {text} as the text has it
and {variant} in our variant, against {paper} in the paper.
Its lead over the solver that it unrolls is mostly a matter of tuning: the solver has {tuned}
if it is tuned, as the text says that it was, and {untuned} if it is not.
With nodes numbered at random the error of our variant is {shuffled}, and maximum likelihood,
without any training, has {likely}.

**What was easy.** Algorithms 1 and 2 can be implemented as they are printed, and an L2G for 20 nodes trains in
{t.record("l2g-ba")["seconds"] / 60:.0f} minutes. The networks that the authors released run in our classes.

**What was difficult.** The text and the released code differ in a dozen places. The parameters of the graphs, the
number of signals, the threshold of an edge and the test for a power law are not stated and had to be inferred. One
training says little: over five trainings the error of L2G has a standard deviation of
{listed(spread(t, "L2G"))} as the text has it and {listed(spread(t, r.OURS))} in our variant.
"""


def counted(counts):
    """23 hold, 12 are better than the paper's, ..."""
    words = ("hold", "are better than the paper's", "hold only under a condition", "do not hold", "cannot be tested")
    plural = dict(zip(VERDICTS, words))
    *parts, last = [f"{n} {plural[word]}" for word, n in counts.items()]
    return f"{', '.join(parts)} and {last}" if parts else last


def cpu(t):
    """The processor on which times were measured."""
    return t.read(measure.NAME).machine.iloc[0].split(";")[0]


def listed(values, digits=3):
    """0.059 / 0.075: numbers with so many decimals."""
    return " / ".join(f"{value:.{digits}f}" for value in values)


def as_range(shares):
    """76% to 85%."""
    return f"{min(shares):.0%} to {max(shares):.0%}"


def spread(t, model):
    """Standard deviation over trainings of the error of a row of Table 1, per family."""
    return t.read("02_graph_recovery").query("metric == 'gmse' and model == @model").sd


# --- verdicts ------------------------------------------------------------------------------------------------------


def count_table(found):
    """Markdown of how often each verdict was given."""
    counts = {title: claims.count(records, found) for title, records in claims.sides(claims.CLAIMS).items()}
    rows = [(word, *(c.get(word, 0) for c in counts.values())) for word in VERDICTS]
    return markdown(("verdict", *counts), [*rows, ("all", *(sum(c.values()) for c in counts.values()))])


def found_table(t, found):
    """Markdown of the selected claims, each with a link to its notebook."""
    records = {claim.key: claim for claim in claims.CLAIMS}
    rows = []
    for key, (paper, ours) in SELECTION.items():
        claim = records[key]
        text = f"*Ours:* {claim.text}" if claim.ours else f"{claim.text} ({claim.where})"
        link = f"[{claim.notebook}](notebooks/{claim.notebook}.ipynb)"
        rows.append((text, paper if isinstance(paper, str) else paper(t), ours(t), verdict_cell(found[key]), link))
    return markdown(("claim", "paper", "found", "verdict", "notebook"), rows)


def verdict_cell(judgement):
    return f"**{judgement.verdict}**{': ' if judgement.why else ''}{judgement.why}"


def scores(t, models, read):
    """PDS 0.998 / 0.981; L2G 0.999 / 0.983: the same numbers of several models."""
    return "; ".join(f"{model} {listed(read(t, model).value)}" for model in models)


def with_spread(t, model):
    return f"{listed(r.error(t, model).value)} (sd {listed(spread(t, model))})"


def over_l2g(t, kind=""):
    """Error of Unrolling over that of L2G of the same kind."""
    return listed(r.error(t, f"Unrolling{kind}").value / r.error(t, f"L2G{kind}").value, 1)


def edges_found(t, models):
    """Shares of the added edges that are found."""
    labels = ("WS (p=0.2)", "WS (p=0.5)", "SBM (n_inter=2)", "SBM (n_inter=8)")
    shares = {m: r.structure(t, m, "recall_new").value for m in models}
    found = "; ".join(f"{m} {' / '.join(f'{share[label]:.0%}' for label in labels)}" for m, share in shares.items())
    return f"rewired with p = 0.2 / 0.5, between communities 2 / 8: {found}"


def power_law_shares(t):
    shares = r.power_law(t).loc["bootstrap"]
    names = ("groundtruth", "PDS", "Deep-graph", "L2G", "ER graphs, as dense")
    return "pass: " + ", ".join(f"{name} {shares[name]:.0%}" for name in names)


def carried_errors(t):
    carried, there = (
        r.at_size(t, m, "GMSE").value[["50 nodes", "100 nodes"]] for m in ("Unrolling (ours, m=20)", r.UNROLLING)
    )
    return f"error on 50 / 100 nodes: {' / '.join(f'{v:.0e}' for v in carried)}; trained there: {listed(there)}"


def ranks(t):
    rank = {m: r.stocks(t, "rank of CVS-WBA, across", m) for m in (r.OURS, "PDS")}
    return ", ".join(f"rank {value:.0f} of the links across sectors by {m}" for m, value in rank.items())


def stabilities(t, models):
    return "; ".join(f"{m} {listed(r.stability(t, r.DRAWS[0], m).value[r.GROUPS], 2)}" for m in models)


def differences(t):
    found = t.rows("09_abide", "metric", model=r.OURS, family="difference").value
    return (
        f"total weight: d = {found['d, total weight']:.2f}, p = {found['p, total weight']:.2f}; single networks: "
        f"{found['networks, corrected p < 0.05']:.0f} of 17 with a corrected p < 0.05, |d| up to "
        f"{found['largest |d| of a network']:.2f}"
    ).replace("|", r"\|")


def million(t):
    found = r.cost(t, 1_000_000, 10)
    return (
        f"{found[['search', 'solve']].sum() / 60:.1f} minutes on one core, {found['peak']:.1f} GB, relative gap "
        f"{found['gap']:.0e}; 10 candidates per node, signals of 32 plane waves, no true graph to compare with"
    )


def paper_l2g(t):
    return listed(r.paper_error(t, "L2G").value, 4)


COMMUNITIES = ("groundtruth", "PDS", "L2G")
FAMILY_ORDER = "BA / ER / SBM / WS"
SELECTION = {  # of the README's table: what the paper has, what was found
    "row-l2g": (paper_l2g, lambda t: f"{with_spread(t, 'L2G')}, {FAMILY_ORDER}"),
    "row-l2g-released": (paper_l2g, lambda t: with_spread(t, r.RELEASED)),
    "row-l2g-ours": (paper_l2g, lambda t: with_spread(t, r.OURS)),
    "cut-70": (
        lambda t: f"{as_range(1 - r.paper_error(t, 'L2G').value / r.paper_error(t, 'PDS').value)} below",
        lambda t: f"{as_range(r.cut(t, 'PDS'))} if PDS is tuned, {as_range(r.cut(t, r.UNTUNED))} at α = β = 1",
    ),
    "autoencoder": (
        lambda t: f"Unrolling / L2G: {listed(r.paper_error(t, 'Unrolling').value / r.paper_error(t, 'L2G').value, 1)}",
        lambda t: f"{over_l2g(t)}; released code {over_l2g(t, ' (released code)')}; ours {over_l2g(t, ' (ours)')}",
    ),
    "glad-fails": (
        lambda t: f"NMSE {listed(t.paper('1', model='GLAD').value, 2)}",
        lambda t: (
            f"{listed(r.glad_rows(t, 'GLAD (newton_schulz)', 'nmse').value, 2)} with its notebook's arithmetic, mean "
            f"of three trainings; {listed(r.glad_rows(t, r.STABLE, 'nmse').value)} with an exact square root"
        ),
    ),
    "deepgraph-auc": (
        lambda t: scores(t, ("Deep-graph", "L2G"), lambda t, m: t.paper("2", model=m, metric="auc")),
        lambda t: scores(t, ("Deep-graph", r.FAIR, "L2G"), lambda t, m: r.structure(t, m, "auc")),
    ),
    "power-law-fail": (
        lambda t: "pass: " + ", ".join(
            f"{m} {t.paper('2', model=m, metric='ks_score').value.item():.0%}"
            for m in ("groundtruth", "PDS", "Deep-graph", "L2G")
        ),
        power_law_shares,
    ),
    "community-l2g": (
        lambda t: scores(t, COMMUNITIES, lambda t, m: t.paper("2", model=m, metric="community_score")),
        lambda t: scores(t, COMMUNITIES, lambda t, m: r.structure(t, m, "community_score")),
    ),
    "new-edges-pds": ("heatmaps only", lambda t: edges_found(t, r.SOLVERS.values())),
    "new-edges-l2g": ("heatmaps only", lambda t: edges_found(t, ("L2G", r.OURS))),
    "transfer": ("no number", carried_errors),
    "binary-behind": (
        lambda t: scores(t, ("Deep-graph", "L2G"), lambda t, m: t.paper("binary", model=m, metric="gmse")),
        lambda t: scores(t, ("Deep-graph", r.FAIR, r.OURS), lambda t, m: r.binary(t, m, "gmse")),
    ),
    "cvs-wba": ("named in the text", ranks),
    "more-stable": (
        lambda t: "; ".join(
            f"{m} {listed(t.paper('abide', model=m).value[r.GROUPS], 2)}" for m in ("L2G", "Graph Lasso", "DeepGraph")
        ),
        lambda t: stabilities(t, (r.OURS, "Graphical lasso", "Deep-graph", "Correlations")),
    ),
    "underconnected": ("no number", differences),
    "l2g-node-ids": ("not tested", lambda t: scores(t, (r.OURS, r.SHUFFLED), r.error)),
    "mle-beats-l2g": ("not tested", lambda t: scores(t, (r.MLE, r.OURS), r.error)),
    "near-limit": (
        "not tested",
        lambda t: f"{listed(r.limits(t, r.MIXED), 4)}; limit {listed(r.limits(t, r.LIMIT), 4)}; on 20 nodes",
    ),
    "million": ("named as a limitation (Section 7)", million),
}  # fmt: skip


# --- costs ---------------------------------------------------------------------------------------------------------


def cost_table(t):
    """Markdown of what the trained runs cost: one row per model, and their sum."""
    rows = [(model, n, f"{minutes:.0f}", f"{size:.1f}") for model, (n, minutes, size) in costs().items()]
    return markdown(("model", "runs", f"minutes on one core ({cpu(t)})", "MB"), rows)


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
