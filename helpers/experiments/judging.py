"""How a claim is judged: its record, the tables that its test reads, the kinds of tests, the words of a verdict.

A test is a function of the tables, `t`, and gives one outcome per case, such as one per family of graphs. A case that
was run under several settings, such as a solver tuned and untuned, is (setting, case). An outcome is True if the claim
holds in this case, False if it does not, or "better" if a number of the paper is missed on the good side. Then a claim

    holds                      if it holds in all cases;
    is better than the paper's if no case is worse than the paper's number, and some are better;
    holds only if ...          if under one setting at least it holds in half of the cases or more; the condition, which
                               its record must state, names these cases;
    does not hold              otherwise.
    It cannot be tested        if its record says why instead of having a test.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pandas as pd

from . import runs, tables

HOLDS, BETTER, ONLY_IF, FAILS, UNTESTABLE = VERDICTS = (
    "holds", "better than the paper's", "holds only if", "does not hold", "cannot be tested",
)  # fmt: skip

# Where the bar is if the paper gives none: one rule per kind of claim, the same for all claims of that kind.
FACTOR = 2.0
SHARE = 0.5
PERCENT = 1.1
AGREE = "the 95 % intervals over graphs overlap; the paper's is widened by the rounding of its table"
SEPARATE = "the 95 % intervals over graphs do not overlap; a number without an interval counts as it is"
PAIRED = "the 95 % interval of the paired difference over test graphs excludes 0"
RANK = "the order of the means: a rank is no more than that"
TWICE = "a factor of 2: our one reading of 'far', 'stable', 'near' and 'a little', which come without a number"
MOST = "half: our one reading of 'most', 'largely' and 'precisely', which come without a number"
SAME = "10 %, about the half width of an interval of Table 1: our one reading of 'the same'"
SHARES = "the 95 % interval of a difference of two shares of 64 graphs excludes 0; four procedures"
SOLVED = "a relative duality gap of 1e-6, at which our solvers stop by default"
P_VALUE = "p < 0.05, the paper's own level of significance (Table 2)"

ROUNDING = {"1": 0.5e-4, "2": 0.5e-3, "binary": 0.5e-3, "abide": 0.5e-2}  # half a unit of a table's last digit


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, or a finding of ours, and how it is judged.

    Attributes
    ----------
    key : name of the record
    text : the claim in our own words
    where : section, table or figure of the paper; "ours" if the paper says nothing of the kind
    test : function of `Tables` that returns {case: outcome}, a series of that form, or one outcome
    threshold : where the bar is, and why there
    cause : why it does not simply hold; {held}, {failed} and {better} stand for the cases with this outcome
    untestable : in place of a test, why there can be none
    notebook : where it is tested
    """

    key: str
    text: str
    where: str
    test: Callable | None = None
    threshold: str = ""
    cause: str = ""
    untestable: str = ""
    notebook: str = ""

    @property
    def ours(self) -> bool:
        return self.where == "ours"


@dataclass(frozen=True)
class Judgement:
    """A verdict, one of VERDICTS, and why or when, which is empty if the claim simply holds."""

    verdict: str
    why: str = ""


def judge(claim: Claim, t: "Tables | None" = None) -> Judgement:
    """Judge a claim by the stored tables or by those given."""
    if claim.test is None:
        return Judgement(UNTESTABLE, claim.untestable)
    outcomes = by_case(claim.test(t or Tables()))
    word = verdict(outcomes)
    return Judgement(word, "" if word == HOLDS else explain(claim.cause, outcomes))


def by_case(outcome) -> dict:
    """{(setting, case): True, False or "better"} of whatever a test returned; a setting that has no name is ""."""
    if isinstance(outcome, pd.Series):
        outcome = outcome.to_dict()
    if not isinstance(outcome, dict):
        outcome = {"": outcome}
    keyed = {key if isinstance(key, tuple) else ("", key): value for key, value in outcome.items()}
    return {key: value if isinstance(value, str) else bool(value) for key, value in keyed.items()}


def verdict(outcomes: dict) -> str:
    """The word for the outcomes of all cases, as the top of this file says."""
    if not outcomes:
        raise ValueError("a test returned no case, so there is nothing to judge")
    values = list(outcomes.values())
    if all(value is True for value in values):
        return HOLDS
    if False not in values:
        return BETTER
    settings = {setting: [v is True for (s, _), v in outcomes.items() if s == setting] for setting, _ in outcomes}
    half = any(2 * sum(held) >= len(held) for held in settings.values())
    return ONLY_IF if half else FAILS


def explain(cause: str, outcomes: dict) -> str:
    """A cause with the names of the cases that it speaks of."""
    fields = {"held": True, "failed": False, "better": "better"}
    return cause.format(**{field: name_cases(outcomes, value) for field, value in fields.items()})


def name_cases(outcomes: dict, value) -> str:
    """The cases with this outcome: "tuned on BA, WS; untuned on BA".

    A setting all of whose cases have it is named alone; cases that have it under every setting are named once.
    """
    settings = list(dict.fromkeys(setting for setting, _ in outcomes))
    cases = {setting: [str(case) for s, case in outcomes if s == setting] for setting in settings}
    chosen = {s: [str(case) for (t, case), v in outcomes.items() if t == s and v == value] for s in settings}
    same = all(chosen[s] == chosen[settings[0]] for s in settings)
    if (same and chosen[settings[0]] != cases[settings[0]]) or settings == [""]:
        return ", ".join(chosen[settings[0]]) or "none"
    parts = [s if chosen[s] == cases[s] else f"{s} on {', '.join(chosen[s])}" for s in settings if chosen[s]]
    return "; ".join(parts)


# --- what tests read -----------------------------------------------------------------------------------------------


class Tables:
    """Our tables, the paper's, and the records of trained runs; each is read once.

    `read`, `paper` and `record` are functions of a name: a table of data/results/, a table of the paper, a run.
    """

    def __init__(self, read=tables.read, paper=tables.paper, record=None):
        self.read = cache(read)
        self.record = cache(record or (lambda name: runs.read_record(runs.look_up(name))))
        self.read_paper = cache(paper)

    def rows(self, name, index="family", **where):
        """Value and interval of the rows of data/results/<name>.csv that match, e.g. model="PDS", per family."""
        return _select(self.read(name), where).set_index(index)[["value", "ci"]].fillna({"ci": 0})

    def paper(self, name, index="family", **where):
        """The same of the paper's table; its intervals are widened by the rounding of that table."""
        rows = _select(self.read_paper(name), where).set_index(index)[["value", "ci"]].fillna({"ci": 0})
        return rows.assign(ci=rows.ci + ROUNDING[name])

    def grid(self, name, index="model", columns="family", **where):
        """Values of data/results/<name>.csv in rows that match, e.g. metric="gmse": models down, families across."""
        return _select(self.read(name), where).pivot(index=index, columns=columns, values="value")

    def number(self, name, **where):
        """The one value of data/results/<name>.csv that matches."""
        return tables.lookup(self.read(name), **where)


def _select(frame, where):
    for column, value in where.items():
        frame = frame[frame[column] == value]
    if frame.empty:
        raise ValueError(f"no row of the table has {where}")
    return frame


# --- kinds of tests: frames with columns value and ci -> one outcome per row -----------------------------------------


def below(a, b):
    """Whether a is less than b by more than the intervals, per row of a."""
    b = b.loc[a.index]
    return a.value + a.ci < b.value - b.ci


def agrees(a, b, better=0):
    """Whether the intervals of a and b overlap, per row of a; "better" if not, and the sign of a - b is `better`."""
    off = a.value - b.loc[a.index].value
    overlap = off.abs() <= a.ci + b.loc[a.index].ci
    return overlap.astype(object).mask(~overlap & (off * better > 0), "better")


def nearer(a, b, truth):
    """Whether a is nearer to the truth than b by more than the intervals, per row of a."""
    return below(distance(a, truth), distance(b, truth))


def distance(a, truth):
    return a.assign(value=(a.value - truth.value.loc[a.index]).abs())


def share_below(a, b, n=64):
    """Whether a share of n graphs is less than another by more than the 95 % interval of their difference."""
    pooled = (a + b) / 2
    return b - a > 1.96 * (pooled * (1 - pooled) * 2 / n) ** 0.5


def under(settings):
    """{setting: {case: outcome}}, or series of that form -> {(setting, case): outcome}."""
    return {(name, case): value for name, found in settings.items() for case, value in dict(found).items()}


def across(settings, test):
    """The outcomes of a test under several settings, {name: argument of the test}, or a list of arguments."""
    settings = settings if isinstance(settings, dict) else {name: name for name in settings}
    return under({name: test(argument) for name, argument in settings.items()})
