"""The figures that show tables: one function per type, drawn from tidy frames in the style of `plots`."""

import matplotlib.pyplot as plt
import seaborn as sns

from ..plots import COLOURS

REFERENCE = "#555555"  # what is no method
MANY_POINTS = 10  # from here on a curve needs no markers


def recovery(ours, trainings, paper):
    """Table 1: one panel per family, one line per method, log scale.

    Dots are ours with 95 % intervals over graphs, small circles the single trainings behind them, crosses the paper's.
    """
    families = ours.family.unique()
    models = ours.model.unique()[::-1]
    place = {model: k for k, model in enumerate(models)}
    figure, axes = plt.subplots(
        1, len(families), figsize=(2.7 * len(families) + 1.5, 0.25 * len(models) + 1.3), sharex=True, sharey=True
    )
    looks = {
        "ours, mean": (ours, {"fmt": "o", "color": COLOURS["Unrolling"], "ms": 5}),
        "ours, one training": (
            trainings,
            {"fmt": "o", "color": COLOURS["Unrolling"], "mfc": "none", "ms": 3, "mew": 0.7},
        ),
        "the paper's": (paper, {"fmt": "x", "color": COLOURS["L2G"], "ms": 5, "mew": 1.6}),
    }
    for axis, family in zip(axes, families):
        for label, (frame, look) in looks.items():
            part = frame[(frame.family == family) & frame.model.isin(models)]
            axis.errorbar(part.value, part.model.map(place), xerr=part.ci, ls="", label=label, **look)
        axis.set(title=family, xscale="log", xlabel="GMSE", yticks=range(len(models)), yticklabels=models)
        axis.minorticks_off()
        axis.grid(axis="both", lw=0.4, alpha=0.6)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def sweep(frame, x, panels, looks, *, width=4.4, height=4.3, ncols=None):
    """Curves with 95 % bars over the column `x` of a tidy frame, log x.

    panels : {metric: axis settings}, one panel per metric
    looks : {model: format}, one line per model. A variant in brackets has the colour of its model and, unless it is
        "(ours)", open markers; what is no model, a reference, is grey.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(width * len(panels), height), squeeze=False)
    for axis, (metric, settings) in zip(axes[0], panels.items()):
        for model, look in looks.items():
            part = frame[(frame.metric == metric) & (frame.model == model)]
            colour = COLOURS.get(model, COLOURS.get(_plain_name(model), REFERENCE))
            face = colour if model in COLOURS or model.endswith("(ours)") else "white"
            axis.errorbar(part[x], part.value, part.ci, fmt=look, color=colour, mfc=face, ms=5, lw=1.4, label=model)
        axis.set(xscale="log", **settings)
        axis.minorticks_off()
        axis.grid(lw=0.4, alpha=0.5)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=ncols or len(looks))
    return figure


def convergence(frame, panels, *, width=4.4, height=3.7, rows=1):
    """Error against iterations with 95 % bands, log y; one line per model.

    panels : {table: axis settings}, one panel per table
    Variants of a model, in brackets, share its colour and differ in dashes.
    """
    columns = -(-len(panels) // rows)
    figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False, sharey=True)
    for axis, (table, settings) in zip(axes.flat, panels.items()):
        seen = []
        for model, line in frame[(frame.table == table) & (frame.metric == "gmse")].groupby("model", sort=False):
            name = _plain_name(model)
            colour = COLOURS[name]
            dashes = ("-", "--", ":")[seen.count(name)]
            seen.append(name)
            axis.plot(line.x, line.value, dashes, marker=_marker(line), ms=4, lw=1.6, color=colour, label=model)
            axis.fill_between(line.x, line.value - line.ci, line.value + line.ci, color=colour, alpha=0.2, lw=0)
        axis.set(yscale="log", **settings)
        axis.grid(lw=0.4, alpha=0.5)
    return figure


def training(frame, panels, sizes):
    """What training costs and brings: one panel per table, {table: axis settings}, one line per size, 95 % bars."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.1 * len(panels), 3.9))
    for axis, (table, settings) in zip(axes, panels.items()):
        for size, colour in zip(sizes, sns.color_palette("colorblind", len(sizes))):
            line = frame[(frame.table == table) & (frame.model == size)]
            axis.errorbar(line.x, line.value, line.ci, color=colour, marker=_marker(line), ms=4, lw=1.6, label=size)
        axis.set(**settings)
        axis.minorticks_off()
        axis.grid(lw=0.4, alpha=0.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(sizes))
    return figure


def curves(frame, panels, *, width=4.4):
    """Shares against x, log x: one panel per table, {table: {"xlabel", "ticks"}}, one line with its band per model."""
    figure, axes = plt.subplots(1, len(panels), figsize=(width * len(panels), 3.4), squeeze=False, sharey=True)
    for axis, (table, settings) in zip(axes[0], panels.items()):
        for model, line in frame[frame.table == table].groupby("model", sort=False):
            (drawn,) = axis.plot(line.x, line.value, marker="o", ms=4, lw=1.6, label=model)
            axis.fill_between(line.x, line.value - line.ci, line.value + line.ci, color=drawn.get_color(), alpha=0.15)
        axis.set(xscale="log", ylim=(0, 1.03), xlabel=settings["xlabel"])
        axis.set_xticks(settings["ticks"], settings["ticks"])
        axis.minorticks_off()
        axis.legend(fontsize=9)
        axis.grid(lw=0.4, alpha=0.5)
    axes[0, 0].set_ylabel(frame.metric.iloc[0])
    return figure


def _plain_name(model):
    """The model of a variant: "PDS" of "PDS (alpha=beta=1)"."""
    return model.split(" (")[0]


def _marker(line):
    return "o" if len(line) < MANY_POINTS else ""
