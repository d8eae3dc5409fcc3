"""The figures that show tables: one function per type, drawn from tidy frames in the style of `plots`."""

from itertools import product
from string import ascii_lowercase

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.lines import Line2D

from ..plots import COLOURS

REFERENCE = "#555555"  # what is no method
OURS, PAPERS = "#1b1b1b", "#b5179e"  # two sources of numbers, in colours that no method has
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
        "ours, mean": (ours, {"fmt": "o", "color": OURS, "ms": 5}),
        "ours, one training": (
            trainings,
            {"fmt": "o", "color": OURS, "mfc": "none", "ms": 3, "mew": 0.7},
        ),
        "the paper's": (paper, {"fmt": "x", "color": PAPERS, "ms": 5, "mew": 1.6}),
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


def ladder(means, trainings, steps, reference):
    """Error of a network that is changed step by step: one panel per family, log scale, steps from left to right.

    Dots are means with 95 % intervals over graphs, small circles the single trainings behind them; `reference` is the
    model of `means` that is drawn as a level.
    """
    families = means.family.unique()
    place = {step: k for k, step in enumerate(steps)}
    figure, axes = plt.subplots(1, len(families), figsize=(4.8 * len(families), 3.9), sharey=True, squeeze=False)
    for axis, family in zip(axes[0], families):
        part = means[(means.family == family) & means.model.isin(steps)]
        single = trainings[(trainings.family == family) & trainings.model.isin(steps)]
        colour = COLOURS["L2G"]
        axis.errorbar(part.model.map(place), part.value, part.ci, fmt="o-", color=colour, ms=6, label="mean")
        axis.plot(single.model.map(place), single.value, "o", color=colour, mfc="none", ms=4, label="one training")
        level = means[(means.family == family) & (means.model == reference)].value.item()
        axis.axhline(level, ls="--", color=COLOURS[_plain_name(reference)], label=reference)
        axis.set(title=family, yscale="log")
        axis.set_xticks(range(len(steps)), steps, rotation=35, ha="right")
        axis.grid(axis="y", which="both", lw=0.4, alpha=0.5)
    axes[0, 0].set_ylabel("GMSE")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def limits(ours, trainings, paper, bounds):
    """Errors beside what no method can beat: one panel per family, one row per method, largest error on top, log scale.

    Dots are ours with 95 % intervals over graphs, small circles the single trainings behind them, crosses the paper's;
    a square is a number of the paper that is no GMSE. The rows of `bounds` are vertical lines, and left of the least
    of them is grey.
    """
    families = ours.family.unique()
    models = np.log(ours.set_index("model").value).groupby("model").mean().sort_values().index
    figure, axes = plt.subplots(
        1, len(families), figsize=(2.1 * len(families) + 1.9, 0.32 * len(models) + 1.9), sharex=True, sharey=True
    )
    same = paper.metric == "gmse"
    marks = {
        "ours": (ours, "o", {"ms": 6, "zorder": 3}),
        "ours, one training": (trainings, "o", {"ms": 4, "mfc": "none", "mew": 0.8}),
        "the paper's": (paper[same], "x", {"ms": 6, "mew": 1.8}),
        "the paper's, as NMSE": (paper[~same], "s", {"ms": 8, "mfc": "none", "mew": 1.4}),
    }
    dashes = dict(zip(bounds.model.unique(), ("-", "--", ":"), strict=True))
    for axis, family in zip(axes, families):
        lines = bounds[bounds.family == family]
        for bound in lines.itertuples():
            axis.axvline(bound.value, color=REFERENCE, ls=dashes[bound.model], lw=1.1, zorder=1)
        for place, model in enumerate(models):
            colour = COLOURS.get(model, COLOURS.get(_plain_name(model)))
            for frame, marker, look in marks.values():
                part = frame[(frame.family == family) & (frame.model == model)]
                axis.errorbar(part.value, [place] * len(part), xerr=part.ci, fmt=marker, color=colour, **look)
        axis.set(title=family, xscale="log", xlabel="GMSE", yticks=range(len(models)), yticklabels=models)
        axis.axvspan(1e-9, lines.value.min(), color="0.9", zorder=0)
        axis.set_xticks((0.01, 0.1, 1, 10))
        axis.set_xlim(1e-3, 20)
        axis.minorticks_off()
        axis.grid(axis="y", lw=0.4, alpha=0.6)
    keys = [Line2D([], [], ls=ls, lw=1.1, color=REFERENCE, label=bound) for bound, ls in dashes.items()]
    for label, (_, marker, look) in marks.items():
        keys.append(Line2D([], [], ls="", color="black", marker=marker, label=label, **look))
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def sweep(frame, x, panels, looks, *, width=4.4, height=4.3, ncols=None, dodge=1.0):
    """Curves with 95 % bars over the column `x` of a tidy frame, log x.

    panels : {metric: axis settings}, one panel per metric
    looks : {model: format}, one line per model. A variant in brackets has the colour of its model and, unless it is
        "(ours)", open markers; what is no model, a reference, is grey.
    dodge : factor by which each line is moved to the right of the one before, so that bars do not hide each other
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(width * len(panels), height), squeeze=False)
    for axis, (metric, settings) in zip(axes[0], panels.items()):
        for place, (model, look) in enumerate(looks.items()):
            part = frame[(frame.metric == metric) & (frame.model == model)]
            moved = part[x] * dodge ** (place - (len(looks) - 1) / 2)
            colour = COLOURS.get(model, COLOURS.get(_plain_name(model), REFERENCE))
            face = colour if model in COLOURS or model.endswith("(ours)") else "white"
            axis.errorbar(moved, part.value, part.ci, fmt=look, color=colour, mfc=face, ms=5, lw=1.4, label=model)
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
    figure, axes = plt.subplots(1, len(panels), figsize=(3.5 * len(panels), 3.8))
    for axis, (table, settings) in zip(axes, panels.items()):
        for size, colour in zip(sizes, sns.color_palette("colorblind", len(sizes))):
            line = frame[(frame.table == table) & (frame.model == size)]
            axis.errorbar(line.x, line.value, line.ci, color=colour, marker=_marker(line), ms=4, lw=1.6, label=size)
        axis.set(**settings)
        axis.minorticks_off()
        axis.grid(lw=0.4, alpha=0.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(sizes))
    return figure


def cost(frame, change):
    """CPU seconds of search and solution against the number of nodes, both log.

    Beyond `change` nodes the search is another algorithm, so its line has a gap there, and each line has the slopes 1
    and 1.5 beside it, from its first point on that side.
    """
    figure, axis = plt.subplots(figsize=(7.6, 5))
    looks = {"search": ("neighbour search", "s", "0.5"), "solve": ("solution", "o", "black")}
    for metric, (label, marker, colour) in looks.items():
        line = frame[frame.metric == metric].sort_values("x")
        beyond = line[line.x > change]
        parts = [line[line.x <= change], beyond] if metric == "search" else [line]
        for part in parts:
            axis.plot(part.x, part.value, marker=marker, color=colour, lw=1.6, ms=6, label=label, zorder=3)
        for power, dashes in ((1, "--"), (1.5, ":")):
            law = beyond.value.iloc[0] * (beyond.x / beyond.x.iloc[0]) ** power
            axis.plot(beyond.x, law, dashes, color=REFERENCE, lw=1, label=f"slope {power}")
    axis.axvline(change, color="0.75", lw=1)
    for text, side in (("exact search ", "right"), (" approximate search", "left")):
        axis.text(change, 1, text, transform=axis.get_xaxis_transform(), ha=side, va="bottom", color=REFERENCE)
    axis.set(xscale="log", yscale="log", xlabel="nodes", ylabel="CPU seconds on one core")
    axis.minorticks_off()
    axis.grid(lw=0.4, alpha=0.5)
    handles, labels = axis.get_legend_handles_labels()
    named = dict(sorted(zip(labels, handles), key=lambda pair: pair[0].startswith("slope")))
    axis.legend(named.values(), named, loc="lower right")
    return figure


def curves(frame, panels, *, width=4.4):
    """Shares against x, log x: one panel per table, {table: {"xlabel", "ticks"}}, one line with its band per model.

    Panels have letters, a, b, ..., and each one names its measure.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(width * len(panels), 3.4), squeeze=False, sharey=True)
    for letter, axis, (table, settings) in zip(ascii_lowercase, axes[0], panels.items()):
        axis.set_ylabel(frame[frame.table == table].metric.iloc[0])
        axis.set_title(letter, loc="left", weight="bold")
        for model, line in frame[frame.table == table].groupby("model", sort=False):
            (drawn,) = axis.plot(line.x, line.value, marker="o", ms=4, lw=1.6, label=model)
            axis.fill_between(line.x, line.value - line.ci, line.value + line.ci, color=drawn.get_color(), alpha=0.15)
        axis.set(xscale="log", ylim=(0, 1.03), xlabel=settings["xlabel"])
        axis.set_xticks(settings["ticks"], settings["ticks"])
        axis.minorticks_off()
        axis.legend(fontsize=9)
        axis.grid(lw=0.4, alpha=0.5)
    return figure


def reliability(curves, *, width=3.4):
    """Reliability diagrams, one panel each and one line per family: share of true edges against mean probability.

    curves : {title: {family: (mean, share, count)}}, see `metrics.calibration`. The area of a dot grows with the
        logarithm of the number of pairs behind it.
    """
    figure, axes = plt.subplots(1, len(curves), figsize=(width * len(curves), width + 0.7), squeeze=False, sharey=True)
    for axis, (title, families) in zip(axes[0], curves.items()):
        axis.plot([0, 1], [0, 1], color="0.7", lw=1)
        for (family, (mean, share, count)), colour in zip(families.items(), sns.color_palette("colorblind")):
            axis.plot(mean, share, color=colour, lw=1.4, label=family)
            axis.scatter(mean, share, 8 * np.log10(np.asarray(count) + 1), color=[colour], zorder=3)
        axis.set(title=title, xlabel="edge probability", aspect="equal", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("share that are edges")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def comparison(frame, metrics, leader, published=None, *, log_from=None, width=2.1):
    """Methods side by side: one row of panels per metric, one column per family, one line per method.

    Dots are means with 95 % intervals. The dashed line goes through the method `leader`, so that what lies on its
    better side is a loss of it. `published` is {family: value}, a cross on a line of its own. Values are drawn on a
    logarithmic scale from `log_from` on; below it, and without it, on a linear one.
    """
    families = frame.family.unique()
    models = list(frame.model.unique()[::-1])
    lines = ["published", *models] if published else models
    size = (width * len(families) + 3, (0.26 * len(lines) + 0.7) * len(metrics) + 0.3)
    figure, axes = plt.subplots(len(metrics), len(families), figsize=size, sharex="row", sharey=True, squeeze=False)
    for (row, metric), (column, family) in product(enumerate(metrics), enumerate(families)):
        axis = axes[row, column]
        part = frame[(frame.metric == metric) & (frame.family == family)]
        axis.axvline(part[part.model == leader].value.item(), color=COLOURS[leader], ls="--", lw=1, zorder=1)
        for line in part.itertuples():
            colour = COLOURS.get(line.model, COLOURS.get(_plain_name(line.model)))
            face = colour if line.model in COLOURS else "white"
            below = min(line.ci, line.value) if log_from else line.ci  # a share is not less than 0
            xerr = [[below], [line.ci]]
            axis.errorbar(line.value, lines.index(line.model), xerr=xerr, fmt="o", color=colour, mfc=face, ms=5)
        if published:
            axis.plot(published[family], 0, "x", color=PAPERS, ms=6, mew=1.8)
        title = family.replace(", ", "\n") if row == 0 else ""
        axis.set(yticks=range(len(lines)), yticklabels=lines, title=title, xlabel=metric)
        if log_from:
            axis.set_xscale("symlog", linthresh=log_from, linscale=0.5)
            axis.set_xlim(-log_from / 2, 1.5)  # shares, with room for dots at 0 and 1
        axis.grid(lw=0.4, alpha=0.5)
    return figure


def learning_curves(panels, *, window=50):
    """Errors after each epoch, and their mean over the last `window` epochs, one panel for each of {title: errors}."""
    figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 3.2), squeeze=False)
    for axis, (title, errors) in zip(axes[0], panels.items()):
        axis.plot(range(1, len(errors) + 1), errors, color="0.75", lw=0.6)
        means = pd.Series(errors).rolling(window).mean().to_numpy()
        axis.plot(range(1, len(errors) + 1), means, color=sns.color_palette("colorblind")[0], lw=1.8)
        axis.set(title=title, xlabel="epoch", ylim=(0.9 * min(errors), 1.3 * max(means[window - 1 :])))
        axis.grid(lw=0.4, alpha=0.5)
    axes[0, 0].set_ylabel("validation GMSE")
    return figure


def agreement(panels, *, width=2.9):
    """A model's edge probabilities against the exact ones, one panel per law: {title: (exact, model's)}, (..., E, 3).

    A dot is a pair, or a pair and a sign; positive and negative edges have colours of their own.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(width * len(panels), width + 0.8), squeeze=False, sharey=True)
    for axis, (title, (exact, ours)) in zip(axes[0], panels.items()):
        axis.plot([0, 1], [0, 1], color="0.7", lw=1, zorder=1)
        for kind, (name, colour) in enumerate(
            zip(("positive edge", "negative edge"), sns.color_palette("colorblind")), 1
        ):
            if exact[..., kind].any():
                axis.scatter(
                    exact[..., kind], ours[..., kind], 7, color=[colour], alpha=0.35, lw=0, label=name, zorder=2
                )
        axis.set(title=title, xlabel="exact probability", aspect="equal", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    axes[0, 0].set_ylabel("the network's probability")
    labels = {label: h for axis in axes[0] for h, label in zip(*axis.get_legend_handles_labels())}
    keys = [Line2D([], [], ls="", marker="o", ms=6, color=h.get_facecolor()[0, :3], label=x) for x, h in labels.items()]
    figure.legend(handles=keys, loc="outside lower center", ncols=2)
    return figure


def _plain_name(model):
    """The model of a variant: "PDS" of "PDS (alpha=beta=1)"."""
    return model.split(" (")[0]


def _marker(line):
    return "o" if len(line) < MANY_POINTS else ""
