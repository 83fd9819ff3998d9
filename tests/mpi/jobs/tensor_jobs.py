# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_tensor_parallel.py, and one process for comparison."""

from __future__ import annotations

from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.nn.parameter_slices import distribution_axis, whole_of
from torch import nn

SAMPLES, SEQUENCE, WIDTH = 8, 4, 8


def integers(*shape: int, seed: int, least: int = -1, most: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(least, most + 1, shape, generator=generator).float()


class Layers(nn.Module):
    """Plain layers before and after distributed ones."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = smp.nn.DistributedEmbedding(10, WIDTH)
        self.before = nn.Linear(WIDTH, WIDTH)
        self.split = smp.nn.DistributedLinear(WIDTH, WIDTH)
        self.after = nn.Linear(WIDTH, 3)

    def forward(self, ids):
        return self.after(self.split(self.before(self.embedding(ids))))


def fill_with_integers(model: nn.Module) -> None:
    """The same whole values for any number of tensor ranks."""
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            axis = distribution_axis(parameter)
            shape = list(parameter.shape)
            if axis is not None:
                shape[axis] *= smp.tp_size()
            whole = integers(*shape, seed=number)
            parameter.copy_(smp.nn.parameter_slices.slice_of(whole, axis))


def own_batch(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """This rank's samples of the global batch."""
    if smp.state.cfg.prescaled_batch:
        rank, size = smp.rdp_rank(), smp.rdp_size()
    else:
        rank, size = smp.dp_rank(), smp.dp_size()
    return [tensor.chunk(size)[rank] for tensor in tensors]


@smp.step
def integer_step(model, ids):
    output = model(ids)
    # A sum in place of a mean keeps integers; each replica's is a summand of the whole.
    loss = (output * output).sum()
    model.backward(loss)
    return output, loss


def whole_gradients(model: Any) -> dict[str, torch.Tensor | None]:
    return {
        name: None if p.grad is None else whole_of(p.grad, distribution_axis(p)).clone()
        for name, p in model.local_named_parameters()
    }


def alone(job: Any, config: dict[str, Any], *args: Any) -> Any:
    """What ``job`` makes of the whole batch in this one process."""
    smp.init({**config, "tensor_parallel_degree": 1})
    try:
        return job(*args)
    finally:
        smp.shutdown()


def layers() -> dict[str, Any]:
    """Output and gradients of one step of `Layers`; all whole."""
    module = Layers()
    fill_with_integers(module)
    model = smp.DistributedModel(module)
    ids = integers(SAMPLES, SEQUENCE, seed=99, least=0, most=9).long()
    output, _ = integer_step(model, *own_batch(ids))
    return {
        "output": output.concat(),
        "gradients": whole_gradients(model),
        "axes": {name: smp.utils.get_distribution_axis(p) for name, p in model.named_parameters()},
        "scaled": [name for name, _ in model.scaled_batch_reducer_named_parameters()],
        "default": [name for name, _ in model.default_reducer_named_parameters()],
    }
