"""The fast convolutions against torch's, with gradients."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from helpers.rivals.convolution import DiagonalConvolution, FastConvolution, glorot, toom_cook


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def image(x):
    """Nodes first (m, m, B, C) -> images (B, C, m, m)."""
    return x.permute(2, 3, 0, 1)


@pytest.mark.parametrize("n", [1, 2, 4, 5, 8, 11])
def test_toom_cook_is_a_convolution(n):
    x = torch.randn(n, generator=seeded(), dtype=torch.float64)
    k = torch.randn(3, generator=seeded(1), dtype=torch.float64)
    A, K, B = toom_cook(n)
    expected = functional.conv1d(x[None], k[None, None], padding=1)[0]
    torch.testing.assert_close(B @ ((A @ x) * (K @ k)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n, n_products", [(3, 6), (4, 6), (5, 12), (8, 12)])
def test_toom_cook_takes_six_products_for_four_values(n, n_products):
    A, K, B = toom_cook(n)
    assert A.shape == (n_products, n)
    assert K.shape == (n_products, 3)
    assert B.shape == (n, n_products)


def compare(ours, theirs, x, leave_out_bias):
    """Outputs and gradients by x and the weights, in float64; `theirs` maps images to what `ours` makes of x."""
    reference = nn.Conv2d(ours.in_channels, ours.out_channels, 3, padding=ours.padding, dilation=ours.dilation).double()
    reference.load_state_dict(ours.state_dict())
    if leave_out_bias:
        reference.bias = None
    x_reference = x.clone().requires_grad_()
    x = x.requires_grad_()
    a = ours(x)
    b = theirs(reference(image(x_reference)))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    probe = torch.rand(a.shape, generator=seeded(5), dtype=torch.float64)
    (a * probe).sum().backward()
    (b * probe).sum().backward()
    torch.testing.assert_close(x.grad, x_reference.grad, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.weight.grad, reference.weight.grad, rtol=1e-5, atol=1e-4)
    if leave_out_bias:
        assert ours.bias.grad is None
    else:
        torch.testing.assert_close(ours.bias.grad, reference.bias.grad)


SIZES = [(20, 5), (39, 5), (7, 2), (11, 5), (6, 1), (3, 5)]


@pytest.mark.parametrize("n_in", [1, 4])
@pytest.mark.parametrize("m, dilation", SIZES)
def test_fast_convolution_is_torchs_without_the_bias(m, dilation, n_in):
    torch.manual_seed(0)
    ours = FastConvolution(m, n_in, 5, dilation).double()
    nn.init.ones_(ours.bias)
    x = torch.randn(m, m, 3, n_in, generator=seeded(), dtype=torch.float64)
    compare(ours, lambda images: images.permute(2, 3, 0, 1), x, leave_out_bias=True)


@pytest.mark.parametrize("m, dilation", SIZES)
def test_diagonal_convolution_is_torchs_on_the_diagonal(m, dilation):
    torch.manual_seed(0)
    ours = DiagonalConvolution(m, 4, 5, dilation).double()
    nn.init.uniform_(ours.bias)
    x = torch.randn(m, m, 3, 4, generator=seeded(), dtype=torch.float64)
    compare(ours, lambda images: images.diagonal(dim1=2, dim2=3).permute(2, 0, 1), x, leave_out_bias=False)


def test_rounding_errors_stay_small_in_single_precision():
    torch.manual_seed(0)
    ours = FastConvolution(39, 50, 50, 5)
    x = torch.rand(39, 39, 2, 50, generator=seeded())
    expected = functional.conv2d(image(x), ours.weight, padding=5, dilation=5).permute(2, 3, 0, 1)
    torch.testing.assert_close(ours(x), expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize("convolution", [FastConvolution, DiagonalConvolution])
def test_parameters_and_start(convolution):
    torch.manual_seed(0)
    layer = convolution(8, 20, 30, 2)
    assert set(layer.state_dict()) == {"weight", "bias"}, "a checkpoint holds parameters only"
    assert layer.weight.shape == (30, 20, 3, 3)
    bound = (6 / (9 * 20 + 9 * 30)) ** 0.5  # Glorot's
    assert 0.98 * bound < layer.weight.abs().max() <= bound
    assert (layer.bias == 0).all()


def test_glorot_returns_its_layer():
    layer = nn.Linear(40, 50)
    before = layer.weight.clone()
    assert glorot(layer) is layer
    assert not torch.equal(layer.weight, before)
    assert layer.weight.abs().max() <= (6 / 90) ** 0.5
    assert (layer.bias == 0).all()
