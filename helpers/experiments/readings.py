"""What the tests of claims read out of data/results/: rows and numbers of each notebook's tables, under short names.

A row is a frame with the columns value and ci, one line per family or other case; `t` are the `Tables`.
"""

from . import benchmarks, measure
from .exactness import TOLD as TOLD
from .judging import FACTOR, PERCENT, across, agrees, below, nearer, share_below, under
from .stress import THIS_LAW as THIS_LAW

UNTUNED = "PDS (alpha=beta=1)"
SOLVERS = {"tuned": "PDS", "left at alpha=beta=1": UNTUNED}
FAIR = "Deep-graph (fair)"
DEEPGRAPHS = {"trained on its authors' matrices": "Deep-graph", "trained on the family": FAIR}
OURS = "L2G (ours)"
RELEASED = "L2G (released code)"
UNROLLING = "Unrolling (ours)"
VARIANTS = {"as the text has it": "L2G", "as in the released code": RELEASED, "in our variant": OURS}
TEXT_AND_OURS = {"as the text has it": "L2G", "in our variant": OURS}
SHUFFLED = "L2G (ours, shuffled ids)"
OTHERS = ("PDS", "ADMM", "Recurrent Unrolling", "Unrolling")
GLADS = {"by ten Newton-Schulz iterations": "GLAD (newton_schulz)", "exactly": "GLAD (stable)"}
STABLE = "GLAD (stable)"
MLE = "Laplacian maximum likelihood"
LIMIT = "Posterior mean, edges known"
EQUIVARIANT = "EquivariantL2G"
MIXED = "EquivariantL2G (mixed)"
LOW, HIGH = -1, 1  # on which side of the paper's number a number is better
ON_THESE_GRAPHS = {
    "as the text has it and trained on such graphs": "L2G (on these graphs)",
    "in our variant and trained on such graphs": "L2G (ours, on these graphs)",
}


def smoothness(t, model):
    """tr(X'LX) / N on the graph of 01_method, by its definition or by a formula."""
    return t.number("01_method", table="identity", model=model)


def recovered(t, model):
    """Mean error of a method on the 64 graphs of 01_method."""
    return t.number("01_method", table="recovery", model=model, family="64 graphs")


def decoded(t, code):
    """Error of what the decoder makes of a code, on the 64 graphs of 01_method."""
    return t.rows("01_method", table="code", model=code, family="64 graphs")


def error(t, model):
    """GMSE of a row of Table 1, ours, per family."""
    return t.rows("02_graph_recovery", model=model, metric="gmse")


def paper_error(t, model):
    """GMSE of a row of Table 1, the paper's, per family."""
    return t.paper("1", model=model, metric="gmse")


def same_row(t, model, ours=None):
    """Whether a row of ours agrees with the paper's row of Table 1, per family."""
    return agrees(error(t, ours or model), paper_error(t, model), LOW)


def cut(t, solver):
    """By which part of its error L2G is below a solver, per family."""
    return 1 - error(t, "L2G").value / error(t, solver).value


def least(t, rivals):
    """Whether L2G has the least error of a table, per family."""
    return error(t, "L2G").value < t.grid("02_graph_recovery", metric="gmse").loc[rivals].min()


def below_unrolling(t, kind):
    """Whether L2G has less error than Unrolling of the same kind by the paired difference, per family."""
    gap = t.rows("02_graph_recovery", model=f"L2G{kind} - Unrolling{kind}", metric="gmse difference")
    return gap.value + gap.ci < 0


def structure(t, model, metric):
    """A metric of Table 2 and of the harder graphs, ours, per family."""
    return t.rows("03_structure", model=model, metric=metric)


def true_structure(t):
    """Scores of the true graphs, ours and the paper's, per family and score; those that have an interval."""
    keys = ["family", "metric"]
    theirs = t.paper("2", keys, model="groundtruth").drop(index=("BA", "ks_score"))
    return t.rows("03_structure", keys, model="groundtruth").loc[theirs.index], theirs


def degree_error(t, model):
    """Error of the node degrees of BA graphs, relative to the true degrees."""
    return t.number("03_structure", model=model, metric="degree_error")


def power_law(t):
    """Share of BA graphs that pass a test for a power law: procedures down, models across."""
    shares = t.grid("03_structure", index="metric", columns="model", family="BA").filter(like="ks_score", axis=0)
    return shares.rename(index=lambda metric: metric.removeprefix("ks_score").strip(" ()") or "bootstrap")


def passes_less(t, model):
    """Whether graphs pass a test for a power law less often than the true ones, per procedure."""
    return share_below(power_law(t)[model], power_law(t)["groundtruth"])


def nearer_than_solvers(t, metric):
    """Whether the graphs of L2G are nearer to the true ones than those of PDS, tuned and untuned."""
    truth, l2g = structure(t, "groundtruth", metric), structure(t, "L2G", metric)
    return across(SOLVERS, lambda m: nearer(l2g, structure(t, m, metric), truth))


def glad_rows(t, model, metric):
    """GLAD on four families at sigma^2 = 1e-4; Newton-Schulz is the mean of three trainings."""
    return t.rows("04_glad_families", model=model, metric=metric)


def sweep(t, model, metric, least_noise=0.0):
    """Figure 2, per noise level, from one level on."""
    rows = t.rows("04_glad_sigma_sweep", "sigma2", model=model, metric=metric)
    return rows.loc[least_noise:].rename(index="{:g}".format)


def iterations(t):
    """Figure 3a: iterations until a method is within 10 % of the error at which tuned PDS ends; NaN if it never is."""
    errors = t.grid("05_convergence", table="3a", index="x", columns="model")
    reached = errors <= PERCENT * errors["PDS"].iloc[-1]
    return reached.idxmax().where(reached.any())


def layers_needed(t):
    """Figure 3b: layers of the shallowest network that ends within 10 % of the error at which tuned PDS ends."""
    errors = t.grid("05_convergence", table="3b", metric="gmse", index="x", columns="model")
    bar = PERCENT * t.grid("05_convergence", table="3a", index="x", columns="model")["PDS"].iloc[-1]
    return (errors <= bar).idxmax().where((errors <= bar).any())


def lower_at_each_layer(t):
    """Figure 3b: whether L2G has less error than Unrolling after every one of T layers, per T."""
    curves = t.read("05_convergence")
    curves = curves[curves.table.str.startswith("3b T=")].pivot(index=["table", "x"], columns="model", values="value")
    return (curves[OURS] < curves[UNROLLING]).groupby(level="table", sort=False).all().rename(index=lambda T: T[3:])


def step(t, name, family, table="ladder"):
    """Error of L2G after one of the steps from the text's to ours, or after one "repair" of the text's."""
    return t.rows("02_ladder", table=table, model=name).loc[[family]]


def budgets(t, model):
    """Error of a network by the number of different graphs that it was trained on."""
    return t.rows("02_budgets", "x", model=model)


def other_budgets(t, model):
    """The same of all networks but one."""
    rows = t.read("02_budgets")
    return rows[rows.model != model]


WIDTHS = {"4E/3 hidden units": "3c", "50 hidden units": "3d"}  # decoders of L2G, and where they stand


def layers(t, model, table):
    """Figure 3c: {nodes: after how many layers a network stays within 10 % of its last error}, for one of WIDTHS."""
    errors = t.grid("05_convergence", table=table, index="x", columns="model")
    settled = (errors > PERCENT * errors.iloc[-1]).iloc[::-1].idxmax() + 1
    names = {m: f"{model} (ours, m={m})" for m in (20, 50, 100)}
    return {f"{m} nodes": settled[name] for m, name in names.items() if name in settled}


def at_size(t, model, metric):
    """Networks on graphs of 20, 50, 100 and, some of them, 500 nodes."""
    return t.rows("05_transfer", "x", model=model, metric=metric).rename(index="{} nodes".format)


def carried_over(t, model):
    """Whether a network trained on 20 nodes has less than twice the error of one trained at that size, per size.

    None was trained on 500 nodes; the exact optimum of Eq. (4) stands in.
    """
    there = at_size(t, "Exact optimum of Eq. (4)", "GMSE").value
    there.update(at_size(t, UNROLLING, "GMSE").value)
    return (at_size(t, model, "GMSE").value < FACTOR * there).drop("20 nodes")


def keeps_better(t, metric):
    """Whether L2G is nearer to the true value of a metric than Unrolling, per size."""
    return below(at_size(t, OURS, f"{metric} error"), at_size(t, UNROLLING, f"{metric} error"))


SIZES = ("m = 20, T = 10", "m = 20, T = 20", "m = 50, T = 20", "m = 100, T = 20")


def sample_errors(t):
    """Test errors by number of training graphs: numbers down, sizes across."""
    return t.grid("06_training", table="test", index="x", columns="model")


def levelled_off(t, size):
    """Whether the last 5 epochs lowered the validation error by less than 10 %."""
    curve = t.grid("06_training", table="validation, 4000 graphs", index="x", columns="model")[size].dropna()
    return PERCENT * curve.iloc[-5:].min() > curve.iloc[:-5].min()


def seconds_per_graph(t):
    """Time of one graph in an epoch of training L2G, forward and backward."""
    epoch = t.read(measure.NAME).query("model == 'm = 20, T = 20' and metric == 'seconds per epoch' and x == 4000")
    return (epoch.value / epoch.x).item()


def binary(t, model, metric):
    return t.rows("07_binary_graphs", model=model, metric=metric)


def binary_behind(t, model):
    """Whether a model has a larger GMSE and a lower AUC than L2G on binary graphs, per measure and family."""
    higher = below(binary(t, OURS, "gmse"), binary(t, model, "gmse"))
    lower = below(binary(t, model, "auc"), binary(t, OURS, "auc"))
    return {f"GMSE on {k}": v for k, v in higher.items()} | {f"AUC on {k}": v for k, v in lower.items()}


def binary_structure(t):
    """Whether the binary graphs of L2G have the scores of the true ones."""
    found = {m: (binary(t, OURS, m), binary(t, "groundtruth", m)) for m in ("community_score", "average_shortest_path")}
    shares = (binary(t, model, "ks_score").value for model in (OURS, "groundtruth"))
    return under({m: agrees(*pair) for m, pair in found.items()} | {"ks_score": ~share_below(*shares)})


def stocks(t, metric, model=OURS):
    return t.number("08_sp100", metric=metric, model=model)


RIVALS = {"Graphical lasso": "Graph Lasso", "Deep-graph": "DeepGraph", "Deep-graph+P": "DeepGraph+P"}  # ours: theirs
DRAWS = ("35 subjects", "35 frames")
GROUPS = ["control", "autism"]


def stability(t, kind, model=OURS):
    """Spearman correlation between draws of 35 subjects or 35 frames, per group and "between" the groups."""
    return t.rows("09_abide", model=model, metric=f"spearman, {kind}")


def more_stable(t, kind):
    """Whether L2G is more stable than a rival in both groups, per rival."""
    l2g = stability(t, kind).loc[GROUPS]
    return {rival: below(stability(t, kind, rival).loc[GROUPS], l2g).all() for rival in RIVALS}


def same_stability(t, kind, names):
    """Whether stabilities agree with the paper's, per method and group."""
    found = {
        n: agrees(stability(t, kind, n).loc[GROUPS], t.paper("abide", model=n_paper)) for n, n_paper in names.items()
    }
    return {f"{name}, {group}": value for name, groups in found.items() for group, value in groups.items()}


def groups_differ(t, kind):
    """Whether draws of two groups are at least twice as dissimilar as draws of one, per group."""
    rho = stability(t, kind).value
    return 1 - rho["between"] >= FACTOR * (1 - rho[GROUPS])


def underconnected(t, model):
    """Whether subjects with autism have less total weight, and less in the default mode network."""
    found = t.rows("09_abide", "metric", model=model, family="difference").value
    p = {"total weight": "p, total weight", "default mode network": "corrected p, default mode network"}
    return {f"the {part}": found[f"d, {part}"] < 0 and found[p[part]] < 0.05 for part in p}


def limits(t, model):
    return t.rows("10_limits", model=model, metric="gmse").value


def size_ratio(t):
    """Error of our mixed network over the limit, on BA graphs of other sizes."""
    errors = t.grid("11_size", index="family", columns="model", metric="gmse")
    return (errors[MIXED] / errors[LIMIT]).drop("20 nodes")


def least_at_every_number(t, rivals):
    """Whether EquivariantL2G has the least error of itself and its rivals, per number of signals."""
    curve = t.grid("10_signals", metric="gmse", index="x", columns="model").rename(index="{} signals".format)
    return curve[EQUIVARIANT] < curve[rivals].min(axis=1)


ANY_ORDER = ["PDS", MLE, UNROLLING, "Unrolling (ours, trained at 3,000)", SHUFFLED]
GENERATOR_ORDER = [OURS, "L2G (ours, trained at 3,000)"]  # these know the order in which the generator numbers nodes
TIMED_RUNS = [f"equivariant-{name}" for name in ("ba", "er", "sbm", "ws", "mixed", "ba-m100")]


def equivariant(t, metric, *models):
    """A metric of our own network, per model and family."""
    return under({model: t.rows("11_equivariant", model=model, metric=metric).value for model in models})


def stock_score(t, metric, model):
    return t.number("11_sp100", metric=metric, model=model)


def cost(t, n_nodes, n_candidates):
    """CPU seconds, gigabytes and relative gap of one large graph, by metric."""
    measured = t.grid(measure.NAME, table="large graphs", index=["model", "x"], columns="metric")
    return measured.loc[(f"{n_candidates} candidates", n_nodes)]


def exponents(t):
    """Exponents with which seconds grow from 100,000 nodes on, where the search is the same for all sizes."""
    measured = t.read(measure.NAME)
    large = measured[(measured.model == "10 candidates") & (measured.x >= 100_000)]
    return {metric: measure.slope(large, metric) for metric in ("search", "solve")}


def carried_far(t, model):
    """Error of an Unrolling trained on 20 nodes: WS and BA down, sizes across."""
    return t.grid("12_transfer", metric="gmse", model=model, index="family", columns="x")


NETSIM_F1 = {"NetSim 1": 0.93, "NetSim 2": 0.90, "NetSim 3": 0.90, "NetSim 4": 0.85}  # targets of our own
SACHS = ["Sachs", "Sachs, logarithms"]
LEARNER, LEDOIT_WOLF = benchmarks.LEARNER, benchmarks.LEDOIT_WOLF


def other_networks(t, metric, model=LEARNER, families=tuple(NETSIM_F1)):
    """A measure on the networks of others, the four simulations unless told, per network."""
    return t.rows("13_networks", model=model, metric=metric).loc[list(families)]


def filtered_networks(t, metric):
    """A measure of GraphLearner on the four simulations after a filter, per network."""
    return t.rows("13_filtered", model=LEARNER, metric=metric).rename(
        index=lambda name: name.removesuffix(", filtered")
    )


def best_graph(t):
    """Whether the graph of GraphLearner has a higher F1 than that of every rival, per simulation."""
    f1 = t.grid("13_networks", metric="F1")[list(NETSIM_F1)].drop(index=benchmarks.MIXED)
    return f1.loc[LEARNER] > f1.drop(index=LEARNER).max()


def best_order(t):
    """Whether GraphLearner's order of the pairs allows an F1 as high as that of every rival, per simulation."""
    f1 = t.grid("13_networks", metric="F1 in hindsight")[list(NETSIM_F1)].drop(index=benchmarks.MIXED)
    return f1.loc[LEARNER] >= f1.drop(index=LEARNER).max()


SHARES_OF_MLE = {"log-sd 0": 0.35, "log-sd 0.5": 0.8, "log-sd 1": 0.85, "log-sd 2": 0.6}  # targets of our own


def parts_needed(t):
    """Whether the error of EquivariantL2G is larger without a part of it, per part and number of signals."""
    errors = t.grid("11_ablations", metric="gmse")
    errors = errors[sorted(errors, key=lambda case: int(case.split()[-1]))]
    errors = errors.rename(columns=lambda case: f"{int(case.split()[-1]):,} signals")
    parts = {"being told N": "without N", "the likelihood": "without likelihood", "messages": "without messages"}
    return under({name: errors.loc[model] > errors.loc["full model"] for name, model in parts.items()})


def sizes(t):
    """Whether GraphLearner's network is better than all before it, per measure."""
    found = t.grid("15_targets", table="sizes", index="family", columns="metric")
    measures = ["log-loss", "log GMSE"]
    return found.loc["broad", measures] < found.drop("broad")[measures].min()


def wrong_pairs(t, n_signals):
    """Whether GraphLearner has fewer wrong pairs than were published, per law."""
    share = t.rows("13_laws", model=LEARNER, metric="wrong pairs", x=n_signals).value
    return {_in_a_list(law): share[law] < published for law, published in benchmarks.PUBLISHED.items()}


def smooth_f1(t, model):
    """F1 on smooth signals, per kind of graph and of signals."""
    return t.rows("13_smooth", model=model, metric="F1").rename(index=_in_a_list)


def _in_a_list(name):
    """A name without a comma."""
    return name.replace(", ", " with ")


def target(t, table, model=LEARNER, index="family", **where):
    """A measure beyond the paper's law, per family."""
    return t.rows("15_targets", index, table=table, model=model, **where)


def within_shares(t, model):
    """Whether an error is at most a certain share of that of maximum likelihood, per spread of the weights."""
    error, likely = (target(t, "weights", name).value for name in (model, MLE))
    return {family: error[family] <= share * likely[family] for family, share in SHARES_OF_MLE.items()}


def ratio_to(t, table, metric, plain):
    """A measure beyond the paper's law relative to that of the family `plain`, per other family."""
    value = target(t, table, metric=metric).value
    return value.drop(plain) / value[plain]


def few_gaps(t):
    """Whether the AUPRC with a tenth of the values missing is that without gaps or 10 % less at most."""
    value = target(t, "gaps", metric="AUPRC").value
    kinds = {"a weak common part": "", "a strong common part": " with a strong common part"}
    return {name: PERCENT * value[f"10% missing{kind}"] >= value[f"0% missing{kind}"] for name, kind in kinds.items()}


def false_edges(t):
    """Share of pairs that GraphLearner joins in white noise: {(samples, nodes): share}."""
    share = target(t, "white noise", index=["x", "family"]).value
    return {(f"{n:,.0f} samples", nodes): value for (n, nodes), value in share.items()}
