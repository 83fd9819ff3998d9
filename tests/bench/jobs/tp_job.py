# SPDX-License-Identifier: Apache-2.0
"""One rank of ci/bench tp: a transformer layer split over the ranks, ours and with the plan of
torch.distributed.tensor.parallel. Prints seconds and bytes a step by who, and what layers keep."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from sent_bytes import SentBytes
from smdistributed.modelparallel.torch._slices import parameter_slices
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional

BATCH, SEQUENCE, HEADS, HIDDEN, LAYERS = 4, 128, 8, 512, 4
SIZES = {"num_attention_heads": HEADS, "attention_head_size": HIDDEN // HEADS,
         "hidden_size": HIDDEN, "intermediate_size": 4 * HIDDEN, "attention_dropout_prob": 0.0,
         "hidden_dropout_prob": 0.0, "pre_layernorm": True, "post_layernorm": False,
         "causal_mask_size": SEQUENCE}  # fmt: skip


class Attention(nn.Module):
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.heads = HEADS // ranks
        self.query, self.key, self.value, self.dense = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, x):
        def by_heads(y):
            return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)

        parts = (by_heads(part(x)) for part in (self.query, self.key, self.value))
        context = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.dense(context.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """The same layer in plain PyTorch."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = Attention(ranks)
        self.dense1 = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.dense2 = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.dense2(functional.gelu(self.dense1(self.norm2(x))))


def peers_layer(ranks: int) -> nn.Module:
    mesh = init_device_mesh("cpu", (ranks,))
    whole = {"input_layouts": (Replicate(),), "desired_input_layouts": (Replicate(),)}
    plan = {
        "attention": PrepareModuleInput(**whole),
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.dense": RowwiseParallel(),
        "dense1": ColwiseParallel(),
        "dense2": RowwiseParallel(),
    }
    return parallelize_module(Block(ranks), mesh, plan)


def step_of(layer: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
    batch = torch.randn(BATCH, SEQUENCE, HIDDEN)

    def step() -> None:
        x = batch.clone().requires_grad_(True)
        layer(x).sum().backward()

    return step


def compare(rounds: int) -> dict[str, dict[str, object]]:
    ranks = smp.tp_size()
    ours = smp.nn.DistributedTransformerLayer(**SIZES, flash_attention=True, fused_bias_gelu=True)
    steps = {
        "ours, speed": step_of(lambda x: ours((x, None))[0]),
        "torch": step_of(peers_layer(ranks)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name, step in steps.items():
            dist.barrier()
            start = time.perf_counter()
            step()
            dist.barrier()
            if number > 1:
                seconds[name].append(time.perf_counter() - start)
    exchange = parameter_slices.exchange()
    before = exchange.bytes_sent
    steps["ours, speed"]()
    with SentBytes(ranks) as counter:
        steps["torch"]()
    sent = {"ours, speed": exchange.bytes_sent - before, "torch": counter.total}
    return {"seconds": seconds, "bytes": sent}


def kept_between_layers() -> int:
    """Bytes that layers, each of them recomputed in backward, keep."""
    transformer = smp.nn.DistributedTransformer(num_layers=LAYERS, **SIZES)
    model = smp.DistributedModel(transformer)
    for layer in transformer.seq_layers.children():
        smp.set_activation_checkpointing(layer)
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in parameters and tensor.dim() > 2:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    x = torch.randn(BATCH, SEQUENCE, HIDDEN, requires_grad=True)
    hidden = smp.nn.regions.enter(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        transformer.seq_layers((hidden, None))
    return sum(kept.values())


def main() -> None:
    found: dict[str, object] = {}
    settings = {"tensor_parallel_degree": 4, "ddp": True, "prescaled_batch": True}
    torch.manual_seed(0)
    for mode in ("speed", "memory"):
        smp.init({**settings, "optimize": mode})
        if mode == "speed":
            torch.set_num_threads(1)
            found |= compare(int(sys.argv[1]))
        found[f"kept, {mode}"] = kept_between_layers()
        first = smp.rank() == 0
        smp.shutdown()
    if first:
        print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main()
