"""Filling the gaps of a table: expectations and covariances of normal samples, against the textbook's."""

import numpy as np
import pytest

from helpers.engine.gaps import fill

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_filled_values_are_conditional_expectations(share):
    """By the covariance matrix: E = S_MO S_OO^-1 x_O, Cov = S_MM - S_MO S_OO^-1 S_OM."""
    mix = RNG.standard_normal((5, 5))
    Sigma = mix @ mix.T + np.eye(5)
    X = RNG.standard_normal((20, 5)) @ mix.T
    known = RNG.random(X.shape) >= share
    expected = np.where(known, X, 0)
    total = np.zeros((5, 5))
    for row, on in enumerate(known):
        off = ~on
        told = Sigma[np.ix_(off, on)] @ np.linalg.inv(Sigma[np.ix_(on, on)]) if on.any() else np.zeros((5, 0))
        expected[row, off] = told @ X[row, on]
        total[np.ix_(off, off)] += Sigma[np.ix_(off, off)] - told @ Sigma[np.ix_(on, off)]
    found = np.where(known, X, 1e6)  # what stands in a gap does not matter
    covariance = fill(found, known, np.linalg.inv(Sigma))
    np.testing.assert_allclose(found, expected, atol=1e-10)
    np.testing.assert_allclose(covariance, total, atol=1e-10)
