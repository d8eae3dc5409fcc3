"""Learning to learn graph topologies: graphs, signals, solvers, unrolled networks, metrics.

`helpers.GraphLearner` learns a graph from your own data.
"""

__all__ = ["GraphLearner"]


def __getattr__(name):
    if name == "GraphLearner":  # on first use: torch and scikit-learn take seconds to load
        from .learner import GraphLearner

        return GraphLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
