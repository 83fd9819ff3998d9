# SPDX-License-Identifier: Apache-2.0
"""``parallel_job.py cpu|cuda CASE FOLDER``: one rank of a job that trains a tiny GPT-2.

Each rank prints its losses by step behind "LOSSES "; the mean over ranks is the job's.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

from tests.gpu.gpt2 import GPT2, TINY, loss_of

STEPS, ROWS, RATE = 4, 16, 1e-2


@dataclass(frozen=True)
class Case:
    """What a job is, and how far its losses may be from those of one process, relatively."""

    ranks: int
    settings: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-4  # 32 bits: sums in other orders, through four steps of Adam
    checkpoints: bool = False
    resumes: bool = False


_PP2 = {"pipeline_parallel_degree": 2, "microbatches": 4}
_TP2 = {"tensor_parallel_degree": 2}
# 8 bits of mantissa are 0.4 %, in activations and gradients; masters keep the sum.
_NARROW = 2e-2
CASES = {
    "pp2": Case(2, _PP2),
    "pp2_interleaved": Case(2, {**_PP2, "pipeline": "interleaved"}),
    "pp4": Case(4, {"pipeline_parallel_degree": 4, "microbatches": 4}),
    "tp2": Case(2, _TP2),
    "tp2_memory": Case(2, {**_TP2, "optimize": "memory"}),
    # Gloo's own way for tensors of a GPU.
    "tp2_gloo": Case(2, {**_TP2, "ddp_dist_backend": "gloo"}),
    "pp2_tp2": Case(4, {**_PP2, **_TP2}),
    "dp2": Case(2),
    "dp2_bf16": Case(2, {"bf16": True}, _NARROW),
    "sdp2_bf16": Case(2, {"sharded_data_parallel_degree": 2, "bf16": True}, _NARROW),
    "sdp4": Case(4, {"sharded_data_parallel_degree": 4}),
    "shard_optimizer_fp16": Case(2, {"shard_optimizer_state": True, "fp16": True}, _NARROW),
    "offload": Case(2, {**_PP2, "offload_activations": True}, checkpoints=True),
    "resume": Case(2, _PP2, resumes=True),
}


def batches(device: torch.device) -> list[torch.Tensor]:
    """The same for every rank and for one process; each token tells the next one."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(STEPS):
        first = torch.randint(0, TINY.words, (ROWS, 1), generator=generator)
        steps = torch.arange(TINY.positions) * 7
        found.append(((first + steps) % TINY.words).to(device))
    return found


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=RATE)


def train_alone(device: torch.device) -> list[float]:
    """Losses of one process that knows nothing of us."""
    torch.manual_seed(0)
    model = GPT2(TINY).to(device)
    optimizer = adam(model.parameters())
    losses = []
    for ids in batches(device):
        optimizer.zero_grad()
        loss = loss_of(model(ids), ids)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@smp.step
def train_step(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model(ids), ids)
    model.backward(loss)
    return loss


def begin(case: Case, seed: int) -> tuple[smp.DistributedModel, smp.DistributedOptimizer]:
    smp.init({"ddp": True, "ddp_dist_backend": "smddp", **case.settings})
    torch.manual_seed(seed)
    with smp.model_creation(tensor_parallelism=smp.tp_size() > 1):
        module = GPT2(TINY)
    model = smp.DistributedModel(module)
    if smp.tp_size() > 1:  # slices are drawn by streams of their own
        torch.manual_seed(seed)
        model.load_state_dict(GPT2(TINY).state_dict())
    if case.checkpoints:
        for block in module.blocks:
            smp.set_activation_checkpointing(block)
    static = {"static_loss_scale": 128.0} if case.settings.get("fp16") else {}
    return model, smp.DistributedOptimizer(adam(model.parameters()), **static)


def train(
    model: smp.DistributedModel, optimizer: smp.DistributedOptimizer, given: list[torch.Tensor]
) -> list[float]:
    losses = []
    for ids in given:
        optimizer.zero_grad()
        own = ids.chunk(smp.dp_size())[smp.dp_rank()]
        losses.append(train_step(model, own).reduce_mean().item())
        optimizer.step()
    return losses


def main(kind: str, name: str, folder: str) -> None:
    if kind == "cuda":
        torch.cuda.set_device(0)  # all ranks share it
    case, given = CASES[name], batches(torch.device(kind))
    model, optimizer = begin(case, seed=0)
    if case.resumes:
        losses = train(model, optimizer, given[:2])
        smp.save_checkpoint(folder, "middle", user_content={"steps": 2})
        smp.shutdown()
        model, optimizer = begin(case, seed=7)
        steps = smp.resume_from_checkpoint(folder)["steps"]
        losses += train(model, optimizer, given[steps:])
    else:
        losses = train(model, optimizer, given)
    devices = {parameter.device.type for _, parameter in model.local_named_parameters()}
    assert devices == {kind}, f"parameters are on {devices}"
    print("LOSSES " + json.dumps(losses), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
