"""Learning to learn graph topologies: graphs, signals, solvers, unrolled networks, metrics.

`helpers.GraphLearner` learns a graph from your own data.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .learner import GraphLearner

__all__ = ["GraphLearner"]


def __getattr__(name: str) -> object:
    if name == "GraphLearner":  # on first use: torch and scikit-learn take seconds to load
        from .learner import GraphLearner

        return GraphLearner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
