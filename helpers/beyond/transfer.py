"""Unrolling on graphs larger than those it was trained on: two rules that carry its parameters over.

The parameters of an Unrolling do not depend on the number of nodes, as the paper remarks, but the operator D does:
||D|| = sqrt(2(m - 1)) on all pairs of m nodes. Steps that were learned for 20 nodes make it diverge on many more.
"""

import copy
from functools import partial

import torch
from torch.nn.functional import leaky_relu

from ..engine.problem import check_distances, check_edges
from ..graphs import all_pairs, count_nodes, degrees, degrees_adjoint
from ..solvers import pds_step, safe_step


def smaller_steps(model, n_nodes, *, trained_nodes=20):
    """A copy of an Unrolling whose steps are shrunk like the largest step that is safe for PDS on `n_nodes` nodes."""
    model = copy.deepcopy(model)
    model.theta.data[:, 2] *= safe_step(n_nodes) / safe_step(trained_nodes)
    return model


@torch.no_grad()
def unroll(model, y, edges=None, n_nodes=None, *, trained_nodes=20, degree_ratio=1.0):
    """A trained `models.Unrolling` on all pairs or on candidate edges, whatever the number of nodes.

    Parameters
    ----------
    y : (..., E) distances, or Observations; `edges` (2, E) among `n_nodes`, or None for all pairs
    trained_nodes : m0, nodes of the graphs that the model was trained on, all pairs of them
    degree_ratio : k, edges per node here over edges per node in training

    Returns
    -------
    w : (..., E) >= 0, on the device and in the dtype of y

    The rule, with c_i the number of candidates of node i (m - 1 on all pairs):

        D -> S D,  S = diag(s),  s_i^2 = (m0 - 1) / c_i,
        alpha -> k alpha  and  w -> w / k.

    The objective sees S only as a constant, since log(s d) = log s + log d: the problem that is solved stays the same.
    ||S D|| <= sqrt(2 (m0 - 1)), the norm in training, so steps that were stable stay so. A graph of which every node is
    replaced by k copies has the weights w / k, and the rule then is exact; as it is, with k = 1, for graphs side by
    side. Distances need no rule: with a mean degree of 1, sum w r = m - 1 and sum w = m / 2 (Foster's theorem), so that
    they are about 2 on true edges for all m; bring real data to that scale (`likelihood.unit_scale`).
    """
    y = check_distances(y, edges)
    if edges is None:
        n_nodes = count_nodes(y.shape[-1])
        edges = all_pairs(n_nodes, y.device)
    edges = check_edges(edges, n_nodes, y.shape[-1]).to(y.device)
    n_candidates = torch.bincount(edges.flatten(), minlength=n_nodes)
    s = ((trained_nodes - 1) / n_candidates.double()).sqrt()
    operators = (
        lambda w: s * degrees(w, edges, n_nodes),
        lambda v: degrees_adjoint(s * v, edges),
    )
    project = partial(leaky_relu, negative_slope=model.slope)
    Y = y.double()
    w = torch.zeros_like(Y)
    v = Y.new_zeros(n_nodes)  # for every graph
    for alpha, beta, gamma in model.theta.double().expand(model.n_layers, 3).to(Y.device):
        w, v = pds_step(w, v, Y, degree_ratio * alpha, beta, gamma, project, operators=operators)
    return (w.clamp_min(0) / degree_ratio).to(y.dtype)
