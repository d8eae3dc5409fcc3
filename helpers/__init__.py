"""Learning to learn graph topologies: graphs, signals, solvers, unrolled networks, metrics."""
