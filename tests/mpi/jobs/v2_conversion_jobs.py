# SPDX-License-Identifier: Apache-2.0
"""Jobs of test_v2_conversions.py: one of v1 that saves, and scripts of SMP v2 that begin with what
was made of that."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
import transformers
from pretrained_jobs import STEPS, tokens, train, wrapped
from sagemaker_checkpoint_jobs import load_sharded
from sagemaker_jobs import script
from torch.distributed import checkpoint
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP  # noqa: N817 - as scripts
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.sagemaker.distributed.checkpoint.filesystem import DistributedFileSystemReader
from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.utils.process_group_utils import get_global_ranks

LOADS = {
    "published": (checkpoint.load_state_dict, checkpoint.FileSystemReader),
    "asynchronous": (load, DistributedFileSystemReader),
}


def save(kind: str, folder: str) -> dict[str, torch.Tensor]:
    """Two steps; checkpoints in parts, whole and of DCP. Returns the model by its plain names."""
    model, optimizer = wrapped(kind)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    train(model, optimizer, range(STEPS))
    scheduler.step()
    smp.save_dcp(f"{folder}/dcp", model, optimizer)
    content = {"lr_scheduler": scheduler.state_dict(), "total_steps": STEPS, "model": "a name",
               "model_config": model.get_module().config}  # fmt: skip
    smp.save_checkpoint(folder, "whole", partial=False)
    smp.save_checkpoint(folder, "split", partial=False, translate_if_full=False)
    smp.save_checkpoint(folder, "parts", user_content=content)
    return {name: value.clone() for name, value in model.plain_state_dict().items()}


class Training:
    """A model as published scripts make it of a folder of Hugging Face."""

    def __init__(self, folder: str, strategy: str, orig_params: bool) -> None:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        layers = getattr(model, "model", None) or model.transformer
        block = type((layers.layers if hasattr(layers, "layers") else layers.h)[0])
        self.model: Any = FSDP(
            model,
            sharding_strategy=getattr(ShardingStrategy, strategy),
            auto_wrap_policy=ModuleWrapPolicy({block}),
            use_orig_params=orig_params,
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=7.0)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)

    def saving_ranks(self) -> tuple[Any, int, bool]:
        group = self.model.process_group
        return group, min(get_global_ranks(group)), True

    def step(self, ids: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss: torch.Tensor = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def whole(self) -> dict[str, torch.Tensor]:
        options = FullStateDictConfig(rank0_only=False, offload_to_cpu=False)
        with FSDP.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, options):
            return {name: one.clone() for name, one in self.model.state_dict().items()}


def go_on(
    folder: str, how: str, degree: int, orig_params: bool
) -> tuple[float, float, dict[str, torch.Tensor]]:
    """A step of the same data on all ranks, after the checkpoint was read: the rate of learning,
    the loss, and the values then."""
    with script({"hybrid_shard_degree": degree}):
        training: Any = Training(f"{folder}/pretrained", "HYBRID_SHARD", orig_params)
        by, reader = LOADS[how]
        functools.partial(load_sharded, by=by, reader=reader)(training, Path(folder) / "sharded")
        rate = training.scheduler.get_last_lr()[0]
        loss = training.step(tokens(STEPS))
        dist.barrier()
        return rate, loss, training.whole()
