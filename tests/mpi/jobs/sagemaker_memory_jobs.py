# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker_memory.py: bytes of tensors on a rank, at rest and in a step."""

from __future__ import annotations

import gc
from typing import Any

import torch
from sagemaker_jobs import FSDP, script
from torch import nn
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

WIDTH, LAYERS = 256, 8


def live_bytes() -> int:
    """Of all tensors that Python knows and has not frozen, each storage once."""
    found = {}
    for one in gc.get_objects():
        if type(one) in (torch.Tensor, nn.Parameter) or type(one).__name__ == "FlatParameter":
            storage = one.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def used(config: dict[str, Any]) -> dict[str, int]:
    """More than before the model was there: after two steps, and at most at the layers of a
    third."""
    with script(config):
        gc.collect()
        gc.freeze()  # what is there does not count, and is not looked through
        highest = 0

        def note(*_: Any) -> None:
            nonlocal highest
            highest = max(highest, live_bytes())

        torch.manual_seed(1)
        model = FSDP(
            nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))),
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            auto_wrap_policy=ModuleWrapPolicy({nn.Linear}),
        )
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(3):
            if step == 2:
                rest = live_bytes()
                for part in model.modules():
                    if isinstance(part, nn.Linear):
                        part.register_forward_hook(note)
                        part.register_full_backward_hook(note)
            model(torch.ones(1, WIDTH)).sum().backward()
            note()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        gc.unfreeze()
        return {"rest": rest, "highest": highest}
