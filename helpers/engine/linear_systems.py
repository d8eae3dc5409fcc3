"""Symmetric linear systems that are too large, or too many, for a factor."""

import torch


def conjugate_gradients(apply, b, scale, *, tol, n_iter):
    """Solve A x = b for every row of b (..., k), A symmetric positive definite, `scale` about 1 / diag(A).

    Parameters
    ----------
    apply : x (..., k) -> A x (..., k)
    tol : relative residual in the norm of `scale`, at which a row is done

    Returns
    -------
    x : (..., k)
    unsolved : (..., 1) bool, the rows that are not done after `n_iter` iterations
    """
    x = torch.zeros_like(b)
    r = b.clone()
    z = scale * r
    p = z.clone()
    rr = torch.linalg.vecdot(r, z)[..., None]
    stop = tol**2 * rr
    for _ in range(n_iter):
        live = rr > stop
        if not live.any():
            break
        Ap = apply(p)
        step = torch.where(live, rr / torch.linalg.vecdot(p, Ap)[..., None], 0)
        x.addcmul_(step, p)  # in place: fresh memory for long vectors costs more than the arithmetic
        r.addcmul_(step, Ap, value=-1)
        torch.mul(scale, r, out=z)
        previous = rr
        rr = torch.where(live, torch.linalg.vecdot(r, z)[..., None], rr)
        p.mul_(torch.where(live, rr / previous, 0)).add_(z)
    return x, rr > stop
