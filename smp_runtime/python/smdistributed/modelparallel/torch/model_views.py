# SPDX-License-Identifier: Apache-2.0
"""What is to be seen of the wrapped model: its module, and what of it lives on this rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.exceptions import SMPPartitionError
from smdistributed.modelparallel.torch.ownership import Ownership


class ReplicaModule(nn.Module):
    """The level that ``DistributedDataParallel`` would be: ``model.module.module`` is the user's.

    Scripts reach through it; the averaging itself happens at the end of a step.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class ModelViews(nn.Module):
    """The part of ``DistributedModel`` that only answers."""

    module: nn.Module
    _ownership: Ownership | None

    def get_module(self) -> nn.Module:
        """The user's module, without our wrappers."""
        return self.module.module if isinstance(self.module, ReplicaModule) else self.module

    # Names are the user's: optimizers build groups by them, and checkpoints are plain PyTorch's.

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return self.get_module().named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        return self.get_module().named_buffers(*args, **kwargs)

    def _owned(self, what: str) -> Ownership:
        if self._ownership is None:
            raise SMPPartitionError(
                f"{what} needs the partition, which the first step makes; use "
                "register_post_partition_hook to run code when it is there"
            )
        return self._ownership

    def local_named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        return self._owned("local_named_modules()").local_modules()

    def local_modules(self) -> Iterator[nn.Module]:
        return (module for _, module in self.local_named_modules())

    def local_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self._owned("local_named_parameters()").local_parameters()

    def local_parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for _, parameter in self.local_named_parameters())

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._owned("local_named_buffers()").local_buffers()

    def local_buffers(self) -> Iterator[torch.Tensor]:
        return (buffer for _, buffer in self.local_named_buffers())
