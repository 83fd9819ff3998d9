# SPDX-License-Identifier: Apache-2.0
"""``fsdp_cache_flush_warnings``: says when the allocator of a GPU had to give its cached memory
back and ask for it anew, which slows a step down."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from smdistributed.sagemaker.logger import get_logger


class CacheFlushes:
    """Hook before forwards of a model; warns when flushes were counted since the one before."""

    def __init__(self) -> None:
        self._seen = _flushes()

    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        now = _flushes()
        if now > self._seen:
            get_logger().warning(
                "the allocator of this GPU flushed its cache %d times in the last step: use a "
                "smaller batch, a larger hybrid_shard_degree or activation checkpointing",
                now - self._seen,
            )
        self._seen = now


def watch(model: nn.Module) -> None:
    """Without effect where there is no GPU."""
    if torch.cuda.is_available():
        model.register_forward_pre_hook(CacheFlushes())


def _flushes() -> int:
    return int(torch.cuda.memory_stats().get("num_alloc_retries", 0))
