"""Outcomes become verdicts by the rule at the top of judging.py; each kind of test turns where its bar is."""

import numpy as np
import pandas as pd
import pytest

from helpers.experiments import judging
from helpers.experiments.judging import BETTER, FAILS, HOLDS, ONLY_IF, UNTESTABLE, VERDICTS, Claim, Judgement, Tables


def frame(values, cis=0.0, index=("BA", "ER")):
    return pd.DataFrame({"value": values, "ci": cis}, index=list(index))


# --- verdicts ------------------------------------------------------------------------------------------------------


def test_the_vocabulary():
    assert VERDICTS == (
        "holds", "better than the paper's", "holds only if", "does not hold", "cannot be tested"
    )  # fmt: skip


@pytest.mark.parametrize(
    "outcomes, word",
    [
        ([True, True], HOLDS),
        ([True, "better"], BETTER),
        (["better", "better"], BETTER),
        ([True, False], ONLY_IF),
        ([True, "better", False], FAILS),  # a third is less than half; better is not the same
        ([True, True, "better", False], ONLY_IF),
        (["better", False], FAILS),
        ([True, False, False], FAILS),
        ([False, False], FAILS),
    ],
)
def test_cases_decide(outcomes, word):
    assert judging.verdict(judging.by_case(dict(enumerate(outcomes)))) == word


def test_half_of_the_cases_of_one_setting_are_enough():
    tuned = {("tuned", family): False for family in "abcd"}
    half = {("untuned", family): family in "ab" for family in "abcd"}
    quarter = {("untuned", family): family in "a" for family in "abcd"}
    assert judging.verdict(tuned | half) == ONLY_IF
    assert judging.verdict(tuned | quarter) == FAILS
    assert judging.verdict({key: True for key in tuned} | {key: True for key in half}) == HOLDS
    with pytest.raises(ValueError, match="no case"):
        judging.verdict({})


def test_whatever_a_test_returns_becomes_cases():
    assert judging.by_case(np.True_) == {("", ""): True}
    assert judging.by_case(pd.Series({"BA": True, "ER": False})) == {("", "BA"): True, ("", "ER"): False}
    assert judging.by_case({("tuned", "BA"): "better", "ER": np.False_}) == {
        ("tuned", "BA"): "better",
        ("", "ER"): False,
    }
    assert all(type(value) is bool for value in judging.by_case(pd.Series([True, False])).values())


def test_a_judgement_names_the_cases_that_its_cause_speaks_of():
    outcomes = {"BA": True, "ER": False, "WS": "better"}
    claim = Claim("key", "text", "Table 1", lambda t: outcomes, "why", "on {held}, not on {failed}; better on {better}")
    assert judging.judge(claim, Tables()) == Judgement(FAILS, "on BA, not on ER; better on WS")
    outcomes["WS"] = True
    assert judging.judge(claim, Tables()) == Judgement(ONLY_IF, "on BA, WS, not on ER; better on none")
    outcomes["ER"] = True
    assert judging.judge(claim, Tables()) == Judgement(HOLDS), "a claim that simply holds needs no cause"
    outcomes["ER"] = "better"
    assert judging.judge(claim, Tables()) == Judgement(BETTER, "on BA, WS, not on none; better on ER")


def test_a_claim_without_a_test_says_why():
    claim = Claim("key", "text", "Section 1", untestable="no measure")
    assert judging.judge(claim) == Judgement(UNTESTABLE, "no measure")
    assert not claim.ours
    assert Claim("key", "text", "ours").ours


def test_names_of_cases():
    def name(outcomes):
        return judging.name_cases(outcomes, True)

    tuned = {("tuned", "BA"): False, ("tuned", "ER"): False}
    assert name(tuned | {("untuned", "BA"): True, ("untuned", "ER"): False}) == "untuned on BA"
    assert name(tuned | {("untuned", "BA"): True, ("untuned", "ER"): True}) == "untuned"
    assert name({("a", "BA"): True, ("a", "ER"): False, ("b", "BA"): True, ("b", "ER"): False}) == "BA"
    assert name({("a", "BA"): True, ("a", "ER"): False, ("b", "BA"): False, ("b", "ER"): True}) == "a on BA; b on ER"
    assert name({("a", "BA"): True, ("b", "BA"): True}) == "a; b"
    assert name(tuned) == name({("", "BA"): False}) == "none"
    assert name({("", "BA"): True, ("", "ER"): True}) == "BA, ER"


# --- what tests read -----------------------------------------------------------------------------------------------

TIDY = pd.DataFrame(
    {
        "model": ["a", "a", "b"], "family": ["BA", "ER", "BA"], "metric": ["x", "x", "x"],
        "value": [1.0, 2.0, 3.0], "ci": [0.1, np.nan, 0.3],
    }
)  # fmt: skip


def test_each_table_is_read_once():
    names = []
    t = Tables(read=lambda name: names.append(name) or TIDY, paper=lambda name: names.append(name) or TIDY)
    assert t.rows("o", model="a").to_dict("index") == {"BA": {"value": 1, "ci": 0.1}, "ER": {"value": 2, "ci": 0}}
    assert t.rows("o", "model", family="BA").value.to_dict() == {"a": 1, "b": 3}
    assert t.grid("o", metric="x").loc["b", "BA"] == t.number("o", model="b") == 3
    assert t.paper("2", model="a").to_dict("list") == {"value": [1, 2], "ci": [pytest.approx(0.1005), 0.0005]}
    assert names == ["o", "2"]
    with pytest.raises(ValueError, match=r"no row of the table has .'model': 'nobody'"):
        t.rows("o", model="nobody")


@pytest.mark.parametrize("name, digits", [("1", 4), ("2", 3), ("binary", 3), ("abide", 2)])
def test_rounding_is_half_a_unit_of_the_last_printed_digit(name, digits):
    assert judging.ROUNDING[name] == pytest.approx(0.5 * 10**-digits)
    rows = Tables().read_paper(name)
    rows = rows[~rows.metric.isin(["ks_score"])]  # printed as percentages
    assert np.allclose(rows.value, rows.value.round(digits), atol=1e-12)


def test_records_are_those_of_the_registered_runs():
    assert Tables().record("equivariant-ba")["configuration"]["model"] == "equivariant"
    with pytest.raises(ValueError, match="l2g list"):
        Tables().record("equivariant-nobody")


# --- kinds of tests ------------------------------------------------------------------------------------------------


def test_below_means_by_more_than_the_intervals():
    b = frame([1.0, 2.0, 9.0], [0.2, 0.2, 0.2], ["BA", "ER", "WS"])
    assert judging.below(frame([0.69, 1.71], 0.1), b).to_dict() == {"BA": True, "ER": False}
    assert not judging.below(frame([0.75, 1.75], 0.05), b).any(), "a tie is no difference"
    with pytest.raises(KeyError):
        judging.below(frame([0.0], index=["SBM"]), b)


def test_numbers_agree_if_intervals_overlap():
    paper = frame([1.0, 1.0], 0.2)
    assert judging.agrees(frame([0.71, 1.29], 0.1), paper).to_list() == [True, True]
    assert judging.agrees(frame([0.69, 1.31], 0.1), paper).to_list() == [False, False]
    assert judging.agrees(frame([0.69, 1.31], 0.1), paper, -1).to_list() == ["better", False]
    assert judging.agrees(frame([0.69, 1.31], 0.1), paper, +1).to_list() == [False, "better"]
    assert judging.agrees(frame([1.25, 0.75], 0.05), paper, 1).to_list() == [True, True], "a touch is an overlap"


def test_nearer_to_the_truth():
    truth = frame([1.0, 1.0])
    assert judging.nearer(frame([1.1, 0.9], 0.05), frame([0.7, 1.3], 0.05), truth).all()
    assert not judging.nearer(frame([1.1, 0.9], 0.11), frame([0.7, 1.3], 0.1), truth).any()
    assert not judging.nearer(frame([0.7, 1.3], 0.0), frame([1.1, 0.9], 0.0), truth).any()


def test_shares_differ_by_more_than_chance():
    assert judging.share_below(0.5, 0.68) and not judging.share_below(
        0.5, 0.67
    )  # 1.96 sqrt(2 p (1 - p) / 64), p = .585
    assert judging.share_below(0.5, 0.6, n=1000) and not judging.share_below(0.6, 0.5, n=1000)
    assert not judging.share_below(1.0, 1.0)


def test_settings():
    found = {"tuned": pd.Series({"BA": True}), "untuned": {"BA": False}}
    assert judging.under(found) == {("tuned", "BA"): True, ("untuned", "BA"): False}
    assert judging.across({"tuned": 1, "untuned": 2}, lambda n: {"BA": n == 1}) == judging.under(found)
    assert judging.across(["a"], lambda name: {name: 1}) == {("a", "a"): 1}
