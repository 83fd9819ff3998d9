# SPDX-License-Identifier: Apache-2.0
"""One model of the corpus of `ci/bench suggest`: a script as users have them, which takes a few
steps and says how long they took. usage: suggest_job.py MODEL BATCH STEPS [COMPOSITIONS]

A file of compositions, rows of the planner's answer, has each of them trained, one after the other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torchvision.models import VisionTransformer
from torchvision.models.resnet import Bottleneck, ResNet
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

VOCABULARY, LENGTH, CLASSES = 2048, 64, 10
WARMING = 2  # steps, in which caches fill and gathers are learnt
KINDS = ("parameters", "persistent", "peak_live", "gradients", "optimizer", "activations")
Batch = tuple[torch.Tensor, torch.Tensor]


class Uneven(nn.Module):
    """Layers of very different cost, and a branch that is joined again."""

    def __init__(self) -> None:
        super().__init__()
        widths = [256, 1024, 256, 2048, 128, 512, 512]
        self.layers = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))
        self.branch = nn.Sequential(nn.Linear(256, 768), nn.GELU(), nn.Linear(768, 512))
        self.head = nn.Linear(512, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = self.branch(x)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x + side)


def tokens(batch: int) -> Batch:
    ids = torch.randint(1, VOCABULARY, (batch, LENGTH))
    return ids, ids


def pictures(batch: int, side: int) -> Batch:
    return torch.randn(batch, 3, side, side), torch.randint(0, CLASSES, (batch,))


def gpt2(layers: int, width: int) -> nn.Module:
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_layer=layers, n_embd=width,
                   n_head=width // 32, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                   bos_token_id=0, eos_token_id=0, use_cache=False)
    )  # fmt: skip


def llama(layers: int, width: int) -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, hidden_size=width,
                    num_hidden_layers=layers, num_attention_heads=width // 32,
                    num_key_value_heads=width // 64, intermediate_size=3 * width, use_cache=False)
    )  # fmt: skip


def bert() -> nn.Module:
    return BertForMaskedLM(
        BertConfig(vocab_size=VOCABULARY, max_position_embeddings=LENGTH, hidden_size=192,
                   num_hidden_layers=6, num_attention_heads=6, intermediate_size=768,
                   hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    )  # fmt: skip


def t5() -> nn.Module:
    return T5ForConditionalGeneration(
        T5Config(vocab_size=VOCABULARY, d_model=160, d_kv=32, d_ff=640, num_layers=4, num_heads=5,
                 dropout_rate=0, decoder_start_token_id=0, use_cache=False)
    )  # fmt: skip


def vit() -> nn.Module:
    return VisionTransformer(image_size=64, patch_size=8, num_layers=6, num_heads=6,
                             hidden_dim=192, mlp_dim=768, num_classes=CLASSES)  # fmt: skip


def resnet() -> nn.Module:
    return ResNet(Bottleneck, [3, 4, 6, 3], num_classes=CLASSES, width_per_group=32)


MODELS: dict[str, Any] = {
    "gpt2-small": (lambda: gpt2(4, 128), tokens),
    "gpt2": (lambda: gpt2(6, 192), tokens),
    "gpt2-wide": (lambda: gpt2(4, 384), tokens),
    "llama-small": (lambda: llama(4, 128), tokens),
    "llama": (lambda: llama(6, 192), tokens),
    "llama-wide": (lambda: llama(4, 384), tokens),
    "bert": (bert, tokens),
    "t5": (t5, tokens),
    "vit": (vit, lambda batch: pictures(batch, 64)),
    "resnet50": (resnet, lambda batch: pictures(batch, 48)),
    "uneven": (
        Uneven,
        lambda batch: (torch.randn(batch, 64, 256), torch.randint(0, CLASSES, (batch, 64))),
    ),
}


@smp.step
def train_step(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    if targets.dtype == inputs.dtype:  # a language model
        loss = model(input_ids=inputs, labels=targets).loss
    else:
        loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
    model.backward(loss)
    return loss


def mark(model: Any, lines: str) -> None:
    """As the planner says to (_planning/profiles.py)."""
    exec(lines, {"model": model, "smp": smp})


def measure(name: str, batch: int, steps: int, settings: dict[str, Any], marks: str) -> Any:
    """Seconds of the steps but the first two, and the memory of the fullest rank."""
    torch.manual_seed(0)
    smp.init(settings)
    make, data = MODELS[name]
    model = smp.DistributedModel(make())
    mark(model, marks)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-4))
    times, peak = [], 0
    torch.manual_seed(smp.rank())  # replicas have batches of their own
    for number in range(steps):
        inputs, targets = data(batch)
        smp.barrier()
        begin = time.perf_counter()
        optimizer.zero_grad()
        train_step(model, inputs, targets)
        optimizer.step()
        smp.barrier()
        if number < WARMING:
            continue
        times.append(time.perf_counter() - begin)
        ledger = smp.memory_summary()
        peak = max(peak, sum(ledger[kind] for kind in KINDS))
    peaks = smp.allgather(peak, smp.WORLD)
    smp.shutdown()
    return {"times": times, "peak": max(peaks)}


def main() -> None:
    """Without compositions, as the script that is planned for, it trains as one process does."""
    name, batch, steps, *rest = sys.argv[1:]
    torch.set_num_threads(1)
    if "RANK" in os.environ:  # one store for all compositions
        dist.init_process_group("gloo")
    for one in json.loads(Path(rest[0]).read_text()) if rest else [{}]:
        settings, marks = one.get("mp_parameters", {}), one.get("change_of_script", "")
        found = measure(name, int(batch), int(steps), settings, marks)
        if os.environ.get("RANK", "0") == "0":
            print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
