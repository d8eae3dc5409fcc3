import pytest
import torch
from toys import SCHEDULE, Toy

from helpers import training
from helpers.engine import stacks


def networks(n):
    """Toys with parameters of their own."""
    models = [Toy() for _ in range(n)]
    for seed, model in enumerate(models):
        for parameter in model.parameters():
            generator = torch.Generator().manual_seed(seed)
            parameter.data += torch.randn(parameter.shape, generator=generator)
    return models


@pytest.mark.parametrize("n", [1, 3])
def test_tensors_are_stacked_and_taken_apart(n):
    tensors = [torch.full((2,), float(k)) for k in range(n)]
    stacked = stacks.stack(tensors)
    assert stacked.shape == ((2,) if n == 1 else (n, 2))
    assert [t.tolist() for t in stacks.unstack(stacked, n)] == [t.tolist() for t in tensors]


def test_a_stack_computes_what_its_networks_compute():
    models = networks(3)
    together = stacks.stack_models(models)
    y = torch.rand(3, 4, 10)
    for k, model in enumerate(models):
        torch.testing.assert_close(together(y)[k], model(y[k]))
        for name, tensor in stacks.unstack_states(together, 3)[k].items():
            assert torch.equal(tensor, model.state_dict()[name])
    together.theta.data.zero_()
    assert all(model.theta.any() for model in models), "the networks keep their own parameters"
    assert stacks.stack_models(models[:1]) is models[0]


def test_only_networks_that_say_so_are_stacked():
    models = networks(2)
    models[1].stackable = False
    with pytest.raises(ValueError, match="Toy is trained one at a time, 2 were given"):
        stacks.stack_models(models)


@pytest.mark.parametrize("n", [1, 3])
def test_what_adam_remembers_is_taken_apart_and_put_together(n):
    model = stacks.stack_models(networks(n))
    optimiser = training._adam(model, SCHEDULE)
    for _ in range(2):
        optimiser.zero_grad()
        sum(parameter.square().sum() for parameter in model.parameters()).backward()
        optimiser.step()
    apart = stacks.unstack_adam(optimiser, n)
    assert len(apart) == n
    for k, memory in enumerate(apart):
        assert memory.keys() == {f"{i}.{name}" for i in range(3) for name in ("step", "exp_avg", "exp_avg_sq")}
        assert memory["0.step"] == 2
        average = optimiser.state[model.theta]["exp_avg"]
        assert torch.equal(memory["0.exp_avg"], average if n == 1 else average[k])
    again = training._adam(model, SCHEDULE)
    stacks.restore_adam(again, apart)
    for parameter, memory in optimiser.state.items():
        assert memory.keys() == again.state[parameter].keys()
        assert all(torch.equal(memory[name], again.state[parameter][name]) for name in memory)


def test_a_training_that_has_not_begun_remembers_nothing():
    optimiser = training._adam(Toy(), SCHEDULE)
    stacks.restore_adam(optimiser, [{}])
    assert not optimiser.state


def test_rows_are_taken_from_each_network():
    x = torch.arange(12).reshape(2, 3, 2)
    assert stacks.take_rows(x[0], torch.tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    taken = stacks.take_rows(x, torch.tensor([[2, 0], [1, 1]]))
    assert taken.tolist() == [[[4, 5], [0, 1]], [[8, 9], [8, 9]]]


@pytest.mark.parametrize("stacked", [False, True])
def test_each_gradient_of_each_network_has_its_own_bound(stacked):
    model = torch.nn.Module()
    model.a = torch.nn.Parameter(torch.zeros(2, 2))
    model.b = torch.nn.Parameter(torch.zeros(2, 1))
    model.a.grad = torch.tensor([[30.0, 40.0], [0.3, 0.4]])
    model.b.grad = torch.tensor([[0.0], [0.1]])
    stacks.bound_gradients(model, 2.0, stacked)
    expected = [[1.2, 1.6], [0.3, 0.4]] if stacked else (2 / 50.0025 * torch.tensor([[30, 40], [0.3, 0.4]])).tolist()
    torch.testing.assert_close(model.a.grad, torch.tensor(expected), rtol=1e-5, atol=0)
    assert model.b.grad.flatten().tolist() == pytest.approx([0.0, 0.1])
