"""scikit-learn's own checks of an estimator, for every method of GraphLearner."""

import pytest
import toys
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import GraphLearner, learner
from helpers.learner import METHODS

OPTIONS = [
    *({"method": method, "prior": "mixed"} for method in METHODS),
    {},
    {"signed": False},
    {"self_loops": False},
    {"standardise": True, "robust": True},
    {"n_independent": "auto", "centre": False},
    {"time_series": True},
    {"method": "exact", "standardise": True, "robust": True},
]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    real = learner._network
    fake = toys.ShrunkInverse()
    monkeypatch.setattr(learner, "_network", lambda model, *family: fake if model == "broad" else real(model, *family))


@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks([GraphLearner(**options) for options in OPTIONS])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_gaps_are_allowed_where_they_can_be_dealt_with():
    assert [get_tags(GraphLearner(**options)).input_tags.allow_nan for options in OPTIONS] == 5 * [False] + [
        "method" not in options for options in OPTIONS[5:]
    ]
    assert not get_tags(GraphLearner(candidates=5)).input_tags.allow_nan
