# SPDX-License-Identifier: Apache-2.0
"""``parallel_job.py cpu|cuda CASE FOLDER``: one rank of a job that trains a tiny GPT-2.

Each rank prints its losses by step behind "LOSSES "; the mean over ranks is the job's.
"""

from __future__ import annotations

import functools
import json
import re
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
    """Settings of a job, and how far its losses may be from those of one process, relatively."""

    ranks: int
    settings: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-4  # 32 bits: sums in other orders, through four steps of Adam
    checkpoints: bool = False
    resumes: bool = False
    overflows: bool = False  # a dynamic loss scale begins where gradients overflow
    lm_head: bool = False  # the model is the library's own, whose words ranks share
    optimizer: str = "adam"


_PP2 = {"pipeline_parallel_degree": 2, "microbatches": 4}
_TP2 = {"tensor_parallel_degree": 2}
_SDP2_BF16 = {"sharded_data_parallel_degree": 2, "bf16": True}
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
    "sdp2_bf16": Case(2, _SDP2_BF16, _NARROW),
    "sdp2_bf16_lamb": Case(2, _SDP2_BF16, _NARROW, optimizer="lamb"),
    "sdp2_bf16_resume": Case(2, _SDP2_BF16, _NARROW, resumes=True),
    "sdp4": Case(4, {"sharded_data_parallel_degree": 4}),
    "shard_optimizer_fp16": Case(2, {"shard_optimizer_state": True, "fp16": True}, _NARROW),
    "dynamic_scale_fp16": Case(2, {"fp16": True}, _NARROW, overflows=True),
    "lm_head": Case(2, _TP2, lm_head=True),
    "lm_head_bf16": Case(2, {**_TP2, "bf16": True}, _NARROW, lm_head=True),
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


def make_optimizer(name: str, parameters: Any) -> torch.optim.Optimizer:
    if name == "lamb":
        return smp.optimizers.FusedLAMB(parameters, lr=8 * RATE)
    return torch.optim.AdamW(parameters, lr=RATE)


def train_alone(device: torch.device, optimizer_name: str) -> list[float]:
    """Losses of one process that knows nothing of us, but for an optimizer of ours."""
    torch.manual_seed(0)
    model = GPT2(TINY).to(device)
    optimizer = make_optimizer(optimizer_name, model.parameters())
    losses = []
    for ids in batches(device):
        optimizer.zero_grad()
        loss = loss_of(model(ids), ids)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make_lm_head() -> nn.Module:
    """GPT2 of this size by our layers, with the loss inside."""
    return smp.nn.DistributedTransformerLMHead(
        num_layers=TINY.layers,
        num_attention_heads=TINY.heads,
        attention_head_size=TINY.width // TINY.heads,
        hidden_size=TINY.width,
        intermediate_size=4 * TINY.width,
        vocab_size=TINY.words,
        num_positions=TINY.positions,
        causal_mask_size=TINY.positions,
        attention_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        activation="gelu_new",
        fused_bias_gelu=True,
        pre_layernorm=True,
        post_layernorm=False,
        tie_input_output_embedding=False,
        distribute_embedding=True,
    )


#: Names in our layers of what GPT2 has, as regular expressions.
NAMES = {
    "^words": "word_embedding",
    "^places": "position_embedding",
    "^blocks": "transformer.seq_layers",
    "^norm": "layernorm",
    "^head": "lm_head",
    "norm1": "attention.pre_layernorm",
    "norm2": "output.pre_layernorm",
    "outward": "dense",
    "wide": "output.dense1",
    "narrow": "output.dense2",
}


def as_lm_head(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state dict of GPT2 for those layers."""
    found = {}
    for old, value in values.items():
        name = functools.reduce(lambda text, pair: re.sub(*pair, text), NAMES.items(), old)
        if "inward" not in name:
            found[name] = value
            continue
        for part, own in zip(("query", "key", "value"), value.chunk(3), strict=True):
            found[name.replace("inward", part)] = own
    return found


@smp.step
def train_step(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    loss = loss_of(model(ids), ids)
    model.backward(loss)
    return loss


@smp.step
def lm_head_step(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    loss, _ = model((ids, None, None, None, ids))
    model.backward(loss)
    return loss


def begin(case: Case, seed: int) -> tuple[smp.DistributedModel, smp.DistributedOptimizer]:
    smp.init({"ddp": True, "ddp_dist_backend": "smddp", **case.settings})
    torch.manual_seed(seed)
    if case.lm_head:
        module = make_lm_head()
    else:
        with smp.model_creation(tensor_parallelism=smp.tp_size() > 1):
            module = GPT2(TINY)
    model = smp.DistributedModel(module)
    if smp.tp_size() > 1:  # slices are drawn by streams of their own
        torch.manual_seed(seed)
        values = GPT2(TINY).state_dict()
        model.load_state_dict(as_lm_head(values) if case.lm_head else values)
    if case.checkpoints:
        for block in module.blocks:
            smp.set_activation_checkpointing(block)
    scale: dict[str, Any] = {}
    if case.overflows:
        scale = {"dynamic_loss_scale": True, "init_scale": 2.0**24}
    elif case.settings.get("fp16"):
        scale = {"static_loss_scale": 128.0}
    made = make_optimizer(case.optimizer, model.parameters())
    return model, smp.DistributedOptimizer(made, **scale)


def train(
    case: Case,
    model: smp.DistributedModel,
    optimizer: smp.DistributedOptimizer,
    given: list[torch.Tensor],
) -> list[float]:
    """Losses of the steps; one whose gradients overflowed is made again."""
    losses, again = [], 0
    step = lm_head_step if case.lm_head else train_step
    for ids in given:
        own = ids.chunk(smp.dp_size())[smp.dp_rank()]
        while True:
            optimizer.zero_grad()
            loss = step(model, own).reduce_mean().item()
            optimizer.step()
            if not optimizer.overflow:
                break
            again += 1
            assert again < 24, "gradients overflow with a scale of 1"
        losses.append(loss)
    assert (again > 0) == case.overflows, f"gradients overflowed {again} times"
    return losses


def main(kind: str, name: str, folder: str) -> None:
    if kind == "cuda":
        torch.cuda.set_device(0)  # all ranks share it
    case, given = CASES[name], batches(torch.device(kind))
    model, optimizer = begin(case, seed=0)
    if case.resumes:
        losses = train(case, model, optimizer, given[:2])
        smp.save_checkpoint(folder, "middle", user_content={"steps": 2})
        smp.shutdown()
        model, optimizer = begin(case, seed=7)
        steps = smp.resume_from_checkpoint(folder)["steps"]
        losses += train(case, model, optimizer, given[steps:])
    else:
        losses = train(case, model, optimizer, given)
    devices = {parameter.device.type for _, parameter in model.local_named_parameters()}
    assert devices == {kind}, f"parameters are on {devices}"
    print("LOSSES " + json.dumps(losses), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
