# SPDX-License-Identifier: Apache-2.0
"""``pipeline_job.py cpu|cuda simple|interleaved CASE``: one of two ranks that share a device;
gradients of a step with calls from rank to rank and back against PyTorch's.

Cases: ``plain``; ``side``: within a stream that is not the default one, behind a busy GPU;
``elsewhere``: the module that was registered first is the other rank's; ``clip``: so are all
gradients, whose norm is asked for; ``reentrant``: calls of the other rank are recomputed, by a
backward inside of the backward; ``busy``: each module keeps its device busy for longer than the
host takes to start it, and the pipeline's use must show that.
"""

from __future__ import annotations

import sys
import time

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS, MICROBATCHES = 128, 32, 4
BUSY = 50_000_000  #: clock cycles
PAUSE_CYCLES, PAUSE_SECONDS = 25_000_000, 0.015  #: a module's pause, on a GPU and on the CPU
#: Bytes by which the activations of steps may differ. One of cuBLAS's workspaces has four times as
#: many.
NOISE = 8 << 20


def layer() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())


class Pause(nn.Module):
    """Takes the device some time. The host goes on where that is a GPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_cuda:
            torch.cuda._sleep(PAUSE_CYCLES)
        else:
            time.sleep(PAUSE_SECONDS)
        return x


class Outer(nn.Module):
    """Calls a module of its caller's rank in the middle of its own work, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.inner, self.behind = layer(), layer(), layer()
        self.recomputes = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(self.before(x))
        z = self.inner(y) + y
        if self.recomputes:
            return x + checkpoint(self.behind, z, use_reentrant=True)
        return x + self.behind(z)


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


def on_partition_1(case: str) -> tuple[str, ...]:
    return {
        "elsewhere": ("first", "outer.inner", "last"),
        "clip": ("first", "outer.before", "outer.behind", "outer.inner", "last"),
    }.get(case, ("outer.before", "outer.behind", "last"))


def gradients_agree(model: smp.DistributedModel, plain: nn.Module, case: str) -> None:
    held = dict(model.local_named_parameters())
    first = smp.pp_rank() == 0
    for name, parameter in held.items():
        assert name.startswith(on_partition_1(case)) != first, f"{name} is on the wrong partition"
        expected = plain.get_parameter(name).grad
        assert parameter.grad is not None
        # Doubles: only sums over microbatches are ordered otherwise.
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-12)
    counts = torch.tensor([len(held)])
    torch.distributed.all_reduce(counts)
    assert counts.item() == len(list(plain.parameters())), "parameters are nowhere"


def main(kind: str, schedule: str, case: str) -> None:
    if kind == "cuda":
        torch.cuda.set_device(0)
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
    for name in ("first", "outer", "last"):
        inside = any(part.startswith(name) for part in on_partition_1(case))
        smp.set_partition(module.get_submodule(name), int(inside and name != "outer"))
    module.outer.recomputes = case == "reentrant"
    if case == "busy":
        for name in ("first", "outer.before", "outer.inner", "outer.behind", "last"):
            module.get_submodule(name).append(Pause())
    if case in ("plain", "side", "reentrant", "busy"):
        smp.set_partition(module.outer, 1)
    for name in ("outer.before", "outer.behind", "outer.inner"):
        smp.set_partition(module.get_submodule(name), int(name in on_partition_1(case)))
    model = smp.DistributedModel(module)
    other = torch.cuda.Stream() if kind == "cuda" and case == "side" else None
    kept = []
    for _ in range(3):  # later steps use memory again, and let results go straight on
        model.zero_grad()
        with torch.cuda.stream(other):  # None changes nothing
            given = batch
            if other is not None:
                torch.cuda._sleep(BUSY)  # a task under another stream would read before
                given = batch + torch.zeros_like(batch)
            train_step(model, given)
        if other is not None:
            torch.cuda.current_stream().wait_stream(other)
        kept.append(smp.memory_summary()["activations"])
    # The first step also takes what Python loads from the CPU's heap.
    same = kind == "cpu" or max(kept) - min(kept) < NOISE
    assert same, f"the steps' activations have {kept} bytes"
    if kind == "cuda":
        torch.cuda.synchronize()  # the use is that of steps that are done there
    if smp.pp_rank() == 0:
        use = smp.state.require_engine().last_step().pipeline_use
        # By the clock of a host that only starts what its GPU does, next to nothing.
        least = 0.3 if case == "busy" else 0
        assert least < use <= 1, f"the pipeline's use is {use}"
    devices = {parameter.device.type for parameter in model.local_parameters()}
    assert devices <= {kind}, f"parameters are on {devices}"
    gradients_agree(model, plain, case)
    if case == "clip":
        expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
        norm = smp.clip_grad_norm_(model.parameters(), 0.1)
        assert norm.device.type == kind, f"the norm is on {norm.device}"
        torch.testing.assert_close(norm.double(), expected, rtol=1e-6, atol=0)
        gradients_agree(model, plain, case)
    print(f"rank {smp.rank()}: gradients agree", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
