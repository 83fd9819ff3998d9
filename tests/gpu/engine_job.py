# SPDX-License-Identifier: Apache-2.0
"""``engine_job.py cpu|cuda plain|offload default|side``: a step's gradients against PyTorch's."""

from __future__ import annotations

import sys

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn

MICROBATCHES = 4


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(6)))


@smp.step
def train_step(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch).square().mean()
    model.backward(loss)
    return loss


def main(kind: str, offload: bool, side: bool) -> None:
    smp.init(
        {
            "microbatches": MICROBATCHES,
            "offload_activations": offload,
            "activation_loading_horizon": 2,
        }
    )
    device = torch.device(kind)
    cuda = kind == "cuda"
    batch = torch.randn(32, 256, device=device)
    plain = layers().to(device)
    plain(batch).square().mean().backward()
    module = layers()
    model = smp.DistributedModel(module)
    for layer in module:
        smp.set_activation_checkpointing(layer)
    other = torch.cuda.Stream() if cuda and side else None
    if other is not None:
        other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):  # None changes nothing
        for _ in range(2):  # the second step uses memory again
            model.zero_grad()
            train_step(model, batch)
    if cuda:
        torch.cuda.current_stream().wait_stream(other or torch.cuda.current_stream())
    for ours, expected in zip(model.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert expected.grad is not None
        assert torch.allclose(ours.grad, expected.grad, rtol=1e-3, atol=1e-6), "gradients differ"
    print("gradients agree")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "offload", sys.argv[3] == "side")
