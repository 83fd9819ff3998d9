# SPDX-License-Identifier: Apache-2.0
"""``pipeline_job.py cpu|cuda simple|interleaved``: one of two ranks that share a device; gradients
of a step with calls from rank to rank and back against PyTorch's."""

from __future__ import annotations

import sys

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

WIDTH, ROWS, MICROBATCHES = 128, 32, 4

OWNED = (("first.0", "outer.inner.0"), ("outer.before.0", "outer.behind.0", "last.0"))


def layer() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())


class Outer(nn.Module):
    """Calls a module of its caller's rank in the middle of its own work, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.inner, self.behind = layer(), layer(), layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(self.before(x))
        return x + self.behind(self.inner(y) + y)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.outer, self.last = layer(), Outer(), layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.outer(self.first(x)))


@smp.step
def train_step(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch).square().mean()
    model.backward(loss)
    return loss


def main(kind: str, schedule: str) -> None:
    smp.init(
        {
            "partitions": 2,
            "microbatches": MICROBATCHES,
            "pipeline": schedule,
            "auto_partition": False,
            "default_partition": 0,
            "ddp": True,
            "ddp_dist_backend": "gloo",  # NCCL takes no GPU twice
        }
    )
    device = torch.device(kind)
    batch = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1)).double().to(device)
    plain = Model().double().to(device)
    plain(batch).square().mean().backward()
    module = Model().double()
    for part, partition in ((module.outer, 1), (module.outer.inner, 0), (module.last, 1)):
        smp.set_partition(part, partition)
    model = smp.DistributedModel(module)
    for _ in range(3):  # later steps use memory again, and let results go straight on
        model.zero_grad()
        train_step(model, batch)
    held = dict(model.local_named_parameters())
    wanted = (
        ("first", "outer.inner") if smp.pp_rank() == 0 else ("outer.before", "outer.behind", "last")
    )
    assert {name for name, _ in plain.named_parameters() if name.startswith(wanted)} == {*held}
    for name, parameter in held.items():
        expected = plain.get_parameter(name).grad
        assert parameter.device.type == kind
        assert parameter.grad is not None
        # Doubles: only sums over microbatches are ordered otherwise.
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-12)
    print(f"rank {smp.rank()}: gradients agree", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
