import torch

from helpers.engine.linear_systems import conjugate_gradients


def test_conjugate_gradients():
    generator = torch.Generator().manual_seed(0)
    B = torch.randn(3, 8, 8, generator=generator, dtype=torch.float64)
    A = B @ B.mT + torch.eye(8)
    b = torch.randn(3, 8, generator=generator, dtype=torch.float64)
    b[2] = 0  # nothing to do
    scale = 1 / A.diagonal(dim1=-2, dim2=-1)
    calls = []

    def apply(x):
        calls.append(1)
        return (A @ x[..., None])[..., 0]

    x, unsolved = conjugate_gradients(apply, b, scale, tol=1e-12, n_iter=100)
    torch.testing.assert_close(apply(x), b)
    assert not unsolved.any() and len(calls) < 25
    assert (x[2] == 0).all()
    _, unsolved = conjugate_gradients(apply, b, scale, tol=1e-12, n_iter=2)
    assert unsolved.flatten().tolist() == [True, True, False]
    residual = apply(conjugate_gradients(apply, b, scale, tol=0.05, n_iter=100)[0]) - b
    size = ((residual**2 * scale).sum(-1) / (b**2 * scale).sum(-1).clamp_min(1e-300)).sqrt()
    assert (size[:2] < 0.05).all() and (size[:2] > 1e-6).all(), "as accurate as asked for, no more"
