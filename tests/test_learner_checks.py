"""scikit-learn's own checks of an estimator, for every method of GraphLearner."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import GraphLearner
from helpers.learner import METHODS


@pytest.mark.filterwarnings("ignore:method='unrolling' was trained on graphs of 20 nodes")
@parametrize_with_checks([*map(GraphLearner, METHODS), GraphLearner("exact", standardise=True, robust=True)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
