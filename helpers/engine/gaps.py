"""The values that are missing in a table of normal samples, given those that are there, compiled.

A row x of N(0, K^-1) whose entries M are missing and O are known has

    E[x_M | x_O] = -K_MM^-1 K_MO x_O    and    Cov[x_M | x_O] = K_MM^-1,

so that a row costs as much as a linear system of the size of its gaps.
"""

import numpy as np
from numba import njit


@njit(cache=True)
def fill(X, known, K):
    """Replace what is not known in X (n, m), in place, by its expectation; returns the sum of its covariances (m, m).

    known : (n, m) bool; K : (m, m), positive definite
    """
    n, m = X.shape
    covariance = np.zeros((m, m))
    for row in range(n):
        gaps = np.flatnonzero(~known[row])
        if len(gaps) == 0:
            continue
        x = np.where(known[row], X[row], 0.0)
        K_gaps = K[gaps]
        inverse = np.linalg.inv(K_gaps[:, gaps])
        X[row, gaps] = -inverse @ (K_gaps @ x)
        for a in range(len(gaps)):
            for b in range(len(gaps)):
                covariance[gaps[a], gaps[b]] += inverse[a, b]
    return covariance
