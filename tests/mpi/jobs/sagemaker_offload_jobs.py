# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/mpi/test_sagemaker_offload.py: layers' inputs that wait on the host."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from sagemaker_jobs import script
from smdistributed.sagemaker._patches import activation_offloading
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.multiprocessing.reductions import StorageWeakRef

WIDTH, LAYERS = 256, 6


class Inputs:
    """Inputs of layers that are in memory: those that layers have been given, and those that come
    ahead."""

    def __init__(self) -> None:
        self._given: dict[int, StorageWeakRef] = {}
        self.highest = {"forward": 0, "backward": 0}

    def note(self, values: torch.Tensor) -> None:
        storage = values.untyped_storage()
        self._given[storage._cdata] = StorageWeakRef(storage)
        self._given = {key: one for key, one in self._given.items() if not one.expired()}
        count, phase = len(self._given), "forward"
        if torch._C._current_graph_task_id() != -1:
            phase = "backward"
            count += activation_offloading.store().stats().fast
        self.highest[phase] = max(self.highest[phase], count)


class Layer(nn.Module):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self._inputs = inputs

    def forward(self, values: torch.Tensor, mask: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        self._inputs.note(values)
        hidden = torch.nn.functional.dropout(self.inner(values).relu(), 0.1)
        changed: torch.Tensor = self.outer(hidden) * mask
        return values + changed * scale


class Network(nn.Module):
    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.first = nn.Linear(8, WIDTH)
        self.layers = nn.ModuleList(Layer(inputs) for _ in range(LAYERS))
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = self.first(values)
        mask = (hidden.detach() > -1).float()
        for number, layer in enumerate(self.layers):
            named = {"values": hidden, "mask": mask} if number % 2 else {}
            hidden = layer(**named) if named else layer(hidden, mask, scale=0.5)
        result: torch.Tensor = self.last(hidden)
        return result


def trained(
    config: dict[str, Any], impl: str, offloads: bool, checkpoints: bool = True
) -> dict[str, Any]:
    """Two steps of two batches each, and what they held."""
    with script({"hybrid_shard_degree": 2, **config}):
        torch.manual_seed(5)
        inputs = Inputs()
        model: nn.Module = FSDP(
            Network(inputs), auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=True
        )
        if checkpoints:
            apply_activation_checkpointing(
                model,
                lambda one: checkpoint_wrapper(one, CheckpointImpl[impl]),
                lambda one: isinstance(one, Layer),
            )
        if offloads:
            model = offload_wrapper(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        torch.manual_seed(dist.get_rank())
        before, losses = activation_offloading.store().stats(), []
        for _ in range(2):
            for _ in range(2):
                loss = model(torch.randn(4, 8)).square().mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            model(torch.randn(4, 8))  # nothing is kept for a backward
        after = activation_offloading.store().stats()
        with FSDP.summon_full_params(model):
            values = [one.detach().clone() for one in model.parameters()]
        return {
            "losses": losses,
            "values": values,
            "highest": inputs.highest,
            "put": after.put - before.put,
            "left": after.fast + after.slow_bytes,
            "highest fast": after.highest_fast,
        }


def second_backward() -> None:
    """A graph that is kept, and asked for its inputs twice."""
    with script({}):
        model = offload_wrapper(FSDP(nn.Sequential(checkpoint_wrapper(nn.Linear(WIDTH, WIDTH)))))
        loss = model(torch.randn(4, WIDTH)).sum()
        loss.backward(retain_graph=True)
        loss.backward()
