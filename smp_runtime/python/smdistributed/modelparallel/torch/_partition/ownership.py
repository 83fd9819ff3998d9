# SPDX-License-Identifier: Apache-2.0
"""Owners of the modules, parameters and buffers of a partitioned model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPPartitionError


class Ownership:
    """The decision of the partitioner, by object and by name, for one rank of the pipeline."""

    def __init__(self, model: nn.Module, assignment: _runtime.Assignment, partition: int) -> None:
        self.partition = partition
        self.modules: list[nn.Module] = []
        self.module_names: list[str] = []
        self._of_module: dict[nn.Module, int] = {}
        for name, module in model.named_modules():
            self.modules.append(module)
            self.module_names.append(name or "(root)")
            self._of_module[module] = assignment[name]
        self._ids = {module: index for index, module in enumerate(self.modules)}
        self._of_parameter: dict[nn.Parameter, tuple[int, str]] = {}
        for name, parameter in model.named_parameters():
            owner = self._of_module[model.get_submodule(name.rpartition(".")[0])]
            self._of_parameter[parameter] = (owner, name)
        self._parameters = dict(model.named_parameters())
        self._remote_values = _runtime.RemoteValues()

    def of_module(self, module: nn.Module) -> int:
        return self._of_module[module]

    def owners_in(self, module: nn.Module) -> set[int]:
        """Partitions of what is in a module, as far as the model had it when it was partitioned: a
        script may have made more since."""
        return {self._of_module[part] for part in module.modules() if part in self._of_module}

    def module_id(self, module: nn.Module) -> int:
        """The number by which ranks name the module to each other."""
        return self._ids[module]

    def owns(self, item: nn.Module | nn.Parameter) -> bool:
        if isinstance(item, nn.Module):
            return self._of_module[item] == self.partition
        return self._of_parameter[item][0] == self.partition

    def remote_name(self, parameter: nn.Parameter) -> str | None:
        """The name of a parameter that lives on another partition; None for any other."""
        owner, name = self._of_parameter.get(parameter, (self.partition, ""))
        return None if owner == self.partition else name

    def used_elsewhere(self) -> dict[str, int]:
        """Parameters of other partitions that have a gradient here, where their values are not,
        with their partitions: modules of this partition computed with them."""
        return {
            name: owner
            for parameter, (owner, name) in self._of_parameter.items()
            if owner != self.partition and parameter.grad is not None
        }

    def find_parameter(self, name: str) -> nn.Parameter:
        """A parameter that a caller named; it must live here."""
        parameter = self._parameters[name]
        if not self.owns(parameter):
            raise SMPPartitionError(
                f"parameter {name} of partition {self._of_parameter[parameter][0]} was passed to a "
                f"module of partition {self.partition}; pass it to a module of its own partition, "
                "or place both on one partition with smp.set_partition"
            )
        return parameter

    def local_modules(self) -> Iterator[tuple[str, nn.Module]]:
        for name, module in zip(self.module_names, self.modules, strict=True):
            if self.owns(module):
                yield ("" if name == "(root)" else name), module

    def local_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in self._parameters.items():
            if self.owns(parameter):
                yield name, parameter

    def local_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        for prefix, module in self.local_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    yield (f"{prefix}.{name}" if prefix else name), buffer

    def of_entry(self, model: nn.Module, key: str) -> int:
        """The partition of the module that a key of ``state_dict()`` belongs to."""
        module = model
        for part in key.split(".")[:-1]:
            child = module._modules.get(part)
            if child is None:  # state of the module's own making, say "extra.state"
                break
            module = child
        return self._of_module[module]

    def is_local_entry(self, model: nn.Module, key: str) -> bool:
        """True if a key of ``state_dict()`` belongs to a module of this partition."""
        return self.of_entry(model, key) == self.partition

    def move_local(self, device: torch.device) -> None:
        """Moves the parameters and buffers of this partition; parameters stay the same objects."""
        for _, parameter in self.local_parameters():
            parameter.data = parameter.data.to(device)
        for _, module in self.local_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = buffer.to(device)

    def free_remote_parameters(self, computing: torch.dtype | None = None) -> None:
        """Gives up the memory of parameters of other partitions; objects and shapes stay.

        With ``computing``, that is the type of floating-point ones, as on their owners: models
        cast inputs to the type of a parameter that may be elsewhere.

        ``shape`` and ``numel()`` still answer; whatever reads values here is an error by the
        parameter's name.
        """
        for parameter, (owner, name) in self._of_parameter.items():
            if owner == self.partition:
                continue
            is_cast = computing is not None and parameter.is_floating_point()
            like = parameter.new_empty((), dtype=computing if is_cast else None)
            parameter.data = self._remote_values.placeholder(like, parameter.shape, name, owner)
            parameter.grad = None
