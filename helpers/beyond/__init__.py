"""Beyond the paper: an equivariant network, candidate edges for large graphs, what no estimator can beat."""
