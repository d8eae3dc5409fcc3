"""Several networks of one architecture as one network, whose tensors have a first dimension S, one entry per network.

With S networks every operation is larger, and there are S times fewer of them. A single network has no such dimension.
"""

import copy

import torch

from .checkpoints import on_cpu


def stack(tensors):
    """One tensor as it is, several along a new first dimension."""
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors))


def unstack(tensor, n):
    """The tensors of n networks, the inverse of `stack`."""
    return [tensor] if n == 1 else list(tensor.unbind())


def stack_models(models):
    """The model that computes what all of them compute."""
    if len(models) == 1:
        return models[0]
    if not all(getattr(model, "stackable", False) for model in models):
        raise ValueError(f"trainings: {type(models[0]).__name__} is trained one at a time, {len(models)} were given")
    together = copy.deepcopy(models[0])
    for name, parameter in together.named_parameters():
        parameter.data = torch.stack([model.get_parameter(name).detach() for model in models])
    return together


def unstack_states(model, n):
    """State dicts of the n networks in a model, on the CPU."""
    tensors = {name: unstack(t, n) for name, t in on_cpu(model.state_dict()).items()}
    return [{name: parts[k] for name, parts in tensors.items()} for k in range(n)]


def unstack_adam(optimiser, n):
    """For each of n networks {"0.exp_avg": tensor, ...}: what Adam remembers of every parameter."""
    states = [{} for _ in range(n)]
    for index, memory in optimiser.state_dict()["state"].items():
        for name, tensor in on_cpu(memory).items():
            parts = [tensor] * n if tensor.dim() == 0 else unstack(tensor, n)  # the step count is common to all
            for state, part in zip(states, parts):
                state[f"{index}.{name}"] = part
    return states


def restore_adam(optimiser, states):
    """The inverse of `unstack_adam`."""
    memory = {}
    for key, tensor in states[0].items():
        index, name = key.split(".")
        parts = [state[key] for state in states]
        memory.setdefault(int(index), {})[name] = tensor if tensor.dim() == 0 else stack(parts)
    optimiser.load_state_dict({"state": memory, "param_groups": optimiser.state_dict()["param_groups"]})


def take_rows(x, batch):
    """Rows `batch` (B,) of x (n, ...), or rows `batch` (S, B) of x (S, n, ...)."""
    return x[batch] if batch.dim() == 1 else x[torch.arange(len(batch), device=x.device)[:, None], batch]


def bound_gradients(model, bound, stacked):
    """Scale the gradient of each parameter of each network down to a norm of at most `bound`, in place."""
    for parameter in model.parameters():
        gradients = parameter.grad if stacked else parameter.grad[None]  # (S, ...)
        norms = gradients.flatten(1).norm(dim=1)
        factors = (bound / (norms + 1e-6)).clamp(max=1.0)
        gradients.mul_(factors.reshape(-1, *[1] * (gradients.dim() - 1)))
