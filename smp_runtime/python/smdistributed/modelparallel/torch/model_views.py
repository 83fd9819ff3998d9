# SPDX-License-Identifier: Apache-2.0
"""View of the wrapped model: its module, and the part of it that lives on this rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._partition.ownership import Ownership
from smdistributed.modelparallel.torch._sharding.precision import FP16_Module
from smdistributed.modelparallel.torch._slices.parameter_slices import (
    distribution_axis,
    is_scaled_batch,
)
from smdistributed.modelparallel.torch.exceptions import (
    SMPPartitionError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.nn.distributed_module import DistributedModule


class ReplicaModule(nn.Module):
    """The level that ``DistributedDataParallel`` would be: ``model.module.module`` is the user's.

    Scripts reach through it; the averaging itself is GradientReducer's.
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
        module = self.module
        while isinstance(module, (ReplicaModule, FP16_Module)):
            module = module.module
        return module

    def __getattr__(self, name: str) -> Any:
        if name == "_ddp_params_and_buffers_to_ignore":  # the first that DDP asks a module for
            raise SMPValidationError(
                "DistributedDataParallel got an smp.DistributedModel, which averages gradients by "
                "itself; leave it out, and set ddp in mp_parameters"
            )
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            wrapped = self._modules.get("module") if "_modules" in self.__dict__ else None
            if wrapped is None or not hasattr(self.get_module(), name):
                raise
            text = (
                f"{error}, but the module that it wraps has; take it from "
                f"model.get_module().{name}. What computes goes through model(...) inside a step"
            )
            raise AttributeError(text) from None

    def __deepcopy__(self, memo: Any) -> Any:
        raise SMPUnsupportedError(
            "an smp.DistributedModel cannot be copied: its modules are on several ranks. Copy the "
            "module before it is wrapped, or take values from model.state_dict()"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise SMPUnsupportedError(
            "an smp.DistributedModel cannot be pickled, as torch.save(model) does: its modules are "
            "on several ranks. Save model.state_dict(), or call smp.save_checkpoint"
        )

    @property
    def partitioned(self) -> bool:
        """True once it is decided where modules are; from the first step on it is."""
        return self._ownership is not None

    # Names are the user's: optimizers build groups by them, and checkpoints are plain PyTorch's.

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters of the user's module, under its names; those of other partitions hold no
        values here. Arguments are torch's."""
        return self.get_module().named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """All buffers of the user's module, under its names. Arguments are torch's."""
        return self.get_module().named_buffers(*args, **kwargs)

    def _owned(self, what: str) -> Ownership:
        if self._ownership is None:
            raise SMPPartitionError(
                f"{what} needs the partition, which the first step makes; use "
                "register_post_partition_hook to run code when it is there"
            )
        return self._ownership

    def local_named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Modules of this rank's partition with their names. Raises SMPPartitionError, like all
        ``local_*``, before there is a partition."""
        return self._owned("local_named_modules()").local_modules()

    def local_modules(self) -> Iterator[nn.Module]:
        """Modules of this rank's partition."""
        return (module for _, module in self.local_named_modules())

    def local_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters of this rank's partition with their names; those of distributed modules have
        the shape of this rank's slice."""
        return self._owned("local_named_parameters()").local_parameters()

    def local_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of this rank's partition."""
        return (parameter for _, parameter in self.local_named_parameters())

    def local_named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Buffers of this rank's partition with their names."""
        return self._owned("local_named_buffers()").local_buffers()

    def local_buffers(self) -> Iterator[torch.Tensor]:
        """Buffers of this rank's partition."""
        return (buffer for _, buffer in self.local_named_buffers())

    # --- What tensor parallelism makes of it ---

    def is_distributed_parameter(self, parameter: nn.Parameter) -> bool:
        """True if this rank holds a slice of the parameter only."""
        return distribution_axis(parameter) is not None

    def is_distributed_buffer(self, buffer: torch.Tensor) -> bool:
        """True if this rank holds a slice of the buffer only: no module has such."""
        return False

    def distributed_modules(self) -> Iterator[nn.Module]:
        """The modules that are split over the tensor-parallel ranks, with those inside them."""
        for module in self.get_module().modules():
            if isinstance(module, DistributedModule):
                yield module

    def is_scaled_batch_parameter(self, parameter: nn.Parameter) -> bool:
        """True if the parameter sees the batches of its whole tensor-parallel group."""
        return is_scaled_batch(parameter)

    def is_scaled_batch_buffer(self, buffer: torch.Tensor) -> bool:
        """True if the buffer sees the batches of its whole tensor-parallel group."""
        return self.is_distributed_buffer(buffer)

    def default_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """This rank's parameters whose gradients are averaged over ``DP_GROUP``."""
        return (
            (name, parameter)
            for name, parameter in self.local_named_parameters()
            if not self.is_scaled_batch_parameter(parameter)
        )

    def scaled_batch_reducer_named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """This rank's parameters whose gradients are averaged over ``RDP_GROUP``."""
        return (
            (name, parameter)
            for name, parameter in self.local_named_parameters()
            if self.is_scaled_batch_parameter(parameter)
        )
