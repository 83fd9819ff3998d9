# SPDX-License-Identifier: Apache-2.0
"""Steps of GPT-2 medium on one rank: ours and a plain loop's by turns, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from measuring import DEVICE, GPU, by_turns, report
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from tests.gpu.gpt2 import GPT2, MEDIUM, Size, loss_of

SIZE = MEDIUM if GPU else Size(layers=2, heads=2, width=32, words=64, positions=16)
ROWS = 16 if GPU else 8  # so many that the GPU, not the host, says how long a step takes
ROUNDS = 8
RATE = 1e-4
#: By which the host waits for the device.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
Step = Callable[[], object]


def batch() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, SIZE.words, (ROWS, SIZE.positions), generator=generator).to(DEVICE)


def module() -> GPT2:
    torch.manual_seed(0)
    with DEVICE:
        return GPT2(SIZE)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=RATE, fused=True)


@smp.step
def train_step(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model(ids), ids)
    model.backward(loss)
    return loss


@contextmanager
def ours(narrow: bool, horizon: int = 0, **settings: Any) -> Iterator[Step]:
    """A step of ours; ``narrow``: parameters of 16 bits without masters. With a horizon each block
    is checkpointed; above 0 what it keeps leaves the GPU."""
    smp.init({"microbatches": 1, **settings})
    made = module()
    model = smp.DistributedModel(made.bfloat16() if narrow else made)
    if horizon:
        for block in made.blocks:
            smp.set_activation_checkpointing(block)
    optimizer = smp.DistributedOptimizer(adam(model.parameters()))
    ids = batch()

    def step() -> None:
        optimizer.zero_grad()
        train_step(model, ids)
        optimizer.step()

    try:
        yield step
    finally:
        smp.shutdown()


def plain(*, checkpointed: bool = False) -> Step:
    """The same in PyTorch alone: parameters of 16 bits, without masters."""
    model = module().to(DEVICE, torch.bfloat16)
    if checkpointed:
        for block in model.blocks:
            inner = block.forward
            block.forward = lambda x, run=inner: checkpoint(run, x, use_reentrant=False)
    optimizer = adam(model.parameters())
    ids = batch()

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(ids), ids).backward()
        optimizer.step()

    return step


def plain_with_masters() -> Step:
    """As people write it by hand: masters of 32 bits, copied to the model after each step."""
    model = module().to(DEVICE, torch.bfloat16)
    narrow = list(model.parameters())
    masters = [p.detach().float() for p in narrow]
    optimizer = adam(masters)
    ids = batch()

    def step() -> None:
        for parameter in narrow:
            parameter.grad = None
        loss_of(model(ids), ids).backward()
        for master, parameter in zip(masters, narrow, strict=True):
            assert parameter.grad is not None
            master.grad = parameter.grad.float()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(narrow, masters)

    return step


def autograd_threads() -> dict[str, Step]:
    """A plain step whose backward runs on the calling thread, as ours does, or on the device's."""
    step = plain()

    def on_the_caller() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            step()

    return {"ours": on_the_caller, "peer": step}


def waits_of(step: Step) -> int:
    """Number of times that the host waits for the device in a step."""
    if not GPU:
        return 0
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        step()
    counts = {event.key: event.count for event in seen.key_averages()}
    # One is the profiler's own, at its end.
    return max(0, sum(counts.get(name, 0) for name in WAITS) - 1)


def row(
    case: str, against: str, steps: dict[str, Step], goal: float | None = None
) -> dict[str, Any]:
    """Seconds of ours, by those of the peer."""
    if GPU:
        torch.cuda.reset_peak_memory_stats()
    seconds = by_turns(steps, ROUNDS, limit=8)
    tokens = ROWS * SIZE.positions
    return {
        "case": case,
        "against": against,
        "seconds": seconds["ours"],
        "peer_seconds": seconds["peer"],
        "ratio": seconds["ours"] / seconds["peer"],
        "goal": goal,
        "flops": SIZE.flops(tokens) / seconds["ours"],
        "peer_flops": SIZE.flops(tokens) / seconds["peer"],
        "waits": waits_of(steps["ours"]),
        "peer_waits": waits_of(steps["peer"]),
        "peak_bytes": torch.cuda.max_memory_allocated() if GPU else 0,
    }


def main() -> None:
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in module().parameters()),
                             "rows": []}  # fmt: skip

    def add(*given: Any) -> None:
        found["rows"].append(row(*given))
        report(found)  # as far as it came
        if GPU:
            torch.cuda.empty_cache()

    with ours(narrow=True) as step:
        add("parameters of 16 bits", "plain loop", {"ours": step, "peer": plain()}, 1.02)
    with ours(narrow=False, bf16=True) as step:
        peer = plain_with_masters()
        add("bf16 with masters", "masters by hand", {"ours": step, "peer": peer}, 1.02)
    with ours(narrow=True, horizon=1) as step:
        peer = plain(checkpointed=True)
        add("blocks checkpointed", "torch's checkpoint", {"ours": step, "peer": peer}, 1.02)
    for horizon in (1, 2, 4, 8) if GPU else (1,):
        settings = {"offload_activations": True, "activation_loading_horizon": horizon}
        with ours(narrow=True, horizon=horizon, **settings) as step:
            peer = plain(checkpointed=True)
            name = f"and offloaded, horizon {horizon}"
            add(name, "checkpointed", {"ours": step, "peer": peer}, 1.05)
    add("backward on the calling thread", "on autograd's", autograd_threads(), 1.0)


if __name__ == "__main__":
    main()
