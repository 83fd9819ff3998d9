# SPDX-License-Identifier: Apache-2.0
"""The module that a script wrapped, as it was, on the first rank's host: what is compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._objects.containers import detached
from smdistributed.modelparallel.torch._partition.model_arguments import roots_and_seeds
from smdistributed.modelparallel.torch._self_check.module_watch import (
    ModuleWatch,
    RandomState,
    set_random_state,
    undisturbed,
)
from smdistributed.modelparallel.torch._self_check.plain_calls import calling_plain, refuse_others
from smdistributed.modelparallel.torch._sharding.precision import FP16_Module, computing_type
from smdistributed.modelparallel.torch.model_views import ReplicaModule
from smdistributed.modelparallel.torch.ports import Model
from smdistributed.modelparallel.torch.state_mod import state

Gradients = dict[str, torch.Tensor]


_PLAIN = (bool, int, float, complex, str, type(None))
_OF_ALL = frozenset(vars(nn.Module()))

#: By the name of each part, its class and its attributes.
Attributes = dict[str, tuple[str, dict[str, Any]]]


def attributes_of(module: nn.Module) -> Attributes:
    """
    >>> attributes_of(nn.Sequential(nn.Dropout(0.5)))
    {'': ('Sequential', {}), '0': ('Dropout', {'p': 0.5, 'inplace': False})}
    """
    return {name: (type(part).__name__, _plain_of(part)) for name, part in module.named_modules()}


def _plain_of(part: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(part).items()
            if key not in _OF_ALL and type(value) in _PLAIN}  # fmt: skip


def set_attributes(module: nn.Module, attributes: Attributes) -> None:
    """Parts of another class than that in ``attributes``, which was replaced, stay as they are."""
    for name, part in module.named_modules():
        kind, values = attributes.get(name, ("", {}))
        if kind == type(part).__name__:
            vars(part).update(values)


@dataclass
class PlainRun:
    """Results of the microbatches of one step, replica by replica, and the modules that drew random
    numbers."""

    watch: ModuleWatch
    outputs: list[list[Any]] = field(default_factory=list)
    backward_ran: bool = False
    types: list[torch.dtype] = field(default_factory=list)
    """Types of autocast, where the step's function uses it."""


class ReferenceModel:
    """A copy on the CPU, in the types in which the job computes. Made before anything of the module
    is replaced or moved."""

    def __init__(self, module: nn.Module) -> None:
        self.module = _copied(module)
        self.initial: dict[str, torch.Tensor] | None = {
            name: value.detach().clone()
            for name, value in self.module.named_parameters()
            if not value.is_meta
        }
        """Values with which it was wrapped, until the first step has looked at them."""
        self.gradients: Gradients = {}
        """By parameter, the sum of what the job had and what steps left since."""
        self.gradients_of_first: Gradients = {}
        """The same of the first replica alone, where there are several."""
        self.wide_gradients: Gradients = {}
        """The same computed in 32 bits."""
        self._wrapped: nn.Module | None = None
        self._microbatch = self._replica = 0

    def place(self) -> tuple[int, int]:
        """Numbers of the replica and the microbatch that compute now."""
        return self._replica, self._microbatch

    def begin_gradients(self, sums: Gradients) -> None:
        """Takes the gradients that the job has averaged so far, to which the next step adds."""
        names = set(self.names())
        own = {name: sums[name].to(torch.promote_types(sums[name].dtype, torch.float32))
               for name in names & sums.keys() if bool(sums[name].any())}  # fmt: skip
        for gradients in (self.gradients, self.gradients_of_first, self.wide_gradients):
            gradients.clear()
            gradients.update((name, value.clone()) for name, value in own.items())

    def take(self, values: Mapping[str, torch.Tensor], model: Model) -> list[str]:
        """Takes the values of the job's parameters and buffers, and its modes. Returns names of
        which there are none."""
        if self._wrapped is None:
            self._wrapped = self._in_wrappers()
        missing = []
        owners = {**dict(self.module.named_parameters(remove_duplicate=False)),
                  **dict(self.module.named_buffers(remove_duplicate=False))}  # fmt: skip
        for name, own in owners.items():
            if name in values:
                with torch.no_grad():
                    own.copy_(values[name].reshape(own.shape))
            elif not name.rpartition(".")[2].startswith("_"):
                missing.append(name)
        set_attributes(self.module, attributes_of(model.get_module()))
        modes = {name: part.training for name, part in model.get_module().named_modules()}
        for name, part in self.module.named_modules():
            part.training = modes.get(name, _mode_above(name, modes))
        trained = {name: p.requires_grad for name, p in model.named_parameters()}
        for name, parameter in self.module.named_parameters():
            parameter.requires_grad_(trained.get(name, parameter.requires_grad))
        return missing

    def _in_wrappers(self) -> nn.Module:
        """As the job computes: with 16 bits inside, if it is so, and a level of its own."""
        for owner in self.module.modules():  # delayed parameters have no storage
            for name, parameter in owner._parameters.items():
                if parameter is not None and parameter.is_meta:
                    owner._parameters[name] = nn.Parameter(
                        torch.zeros_like(parameter, device="cpu"), parameter.requires_grad
                    )
            for name, buffer in owner._buffers.items():
                if buffer is not None and buffer.is_meta:
                    owner._buffers[name] = torch.zeros_like(buffer, device="cpu")
        wrapped, dtype = self.module, computing_type()
        if dtype is not None:
            for parameter in self.module.parameters():
                if parameter.is_floating_point():
                    parameter.data = parameter.data.to(dtype)
            wrapped = FP16_Module(self.module, dtype)
            wrapped.begin()
        return ReplicaModule(wrapped) if state.cfg.ddp else wrapped

    def run(
        self,
        model: Model,
        function: Callable[[Any], Any],
        replicas: list[tuple[list[Any], RandomState]],
        scale: float,
        watch: ModuleWatch,
        *,
        wide: bool,
    ) -> PlainRun:
        """Computes a step: the microbatches of each replica one behind the other. Gradients are of
        the mean over the replicas, times ``scale`` of each microbatch. ``wide``: without 16-bit
        computing, which shows how much rounding is."""
        how = (model, function, replicas, scale, watch)
        if not wide:
            assert self._wrapped is not None
            return self._run(self._wrapped, *how, self.gradients)
        narrow = [t for t in (*self.module.parameters(), *self.module.buffers())
                  if t.is_floating_point() and t.element_size() == 2]  # fmt: skip
        kept = [tensor.data for tensor in narrow]
        for tensor in narrow:
            tensor.data = tensor.data.float()
        plain = ReplicaModule(self.module) if state.cfg.ddp else self.module
        try:
            return self._run(plain, *how, self.wide_gradients)
        finally:
            for tensor, value in zip(narrow, kept, strict=True):
                tensor.data = value

    def _run(
        self,
        wrapped: nn.Module,
        model: Model,
        function: Callable[[Any], Any],
        replicas: list[tuple[list[Any], RandomState]],
        scale: float,
        watch: ModuleWatch,
        sums: Gradients,
    ) -> PlainRun:
        result = PlainRun(watch)
        autocast = sums is not self.wide_gradients
        job = {id(parameter): name for name, parameter in model.named_parameters()}

        def backward(tensors: Any, grad_tensors: Any) -> None:
            result.backward_ran = True
            roots, seeds = roots_and_seeds(tensors, grad_tensors)
            given = [torch.full_like(root, scale) if seed is None else seed.cpu() * scale
                     for root, seed in zip(roots, seeds, strict=True)]  # fmt: skip
            own = [p for p in self.module.parameters() if p.requires_grad]
            refuse_others(roots, job)
            torch.autograd.backward(roots, given, inputs=own)

        buffers = {name: value.clone() for name, value in self.module.named_buffers()}
        attributes = attributes_of(self.module)
        plain_calls = calling_plain(model, wrapped, backward, result.types, autocast=autocast)
        with undisturbed(), plain_calls:
            watch.open(self.module.named_modules())
            try:
                for self._replica, (microbatches, numbers) in enumerate(replicas):
                    set_random_state(numbers)
                    for name, buffer in self.module.named_buffers():
                        buffer.copy_(buffers[name])
                    set_attributes(self.module, attributes)
                    result.outputs.append([])
                    for self._microbatch, arguments in enumerate(microbatches):
                        watch.begin_run()
                        output = function(arguments)
                        watch.end_run()
                        result.outputs[-1].append(detached(output))
                        self._collect(len(replicas), sums)
            finally:
                watch.close()
        return result

    def _collect(self, replicas: int, sums: Gradients) -> None:
        """Adds the gradients of a microbatch to ``sums``, in 32 bits at least."""
        for name, parameter in self.module.named_parameters():
            if parameter.grad is None:
                continue
            gradient = parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad
            wide = torch.promote_types(gradient.dtype, torch.float32)
            own = gradient.to(wide)
            parameter.grad = None
            _add(sums, name, own / replicas)
            if replicas > 1 and self._replica == 0 and sums is self.gradients:
                _add(self.gradients_of_first, name, own)

    def names(self) -> Iterator[str]:
        return (name for name, _ in self.module.named_parameters())


def _add(sums: Gradients, name: str, gradient: torch.Tensor) -> None:
    if name in sums:
        sums[name] += gradient
    else:
        sums[name] = gradient


def _copied(module: nn.Module) -> nn.Module:
    """A deep copy whose tensors are on the CPU from the start, whatever device they copy."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        value = parameter.detach()
        value = value.clone() if value.is_meta else value.to("cpu", copy=True)
        own = nn.Parameter(value, parameter.requires_grad)
        own.__dict__.update(parameter.__dict__)
        for hook in (parameter._backward_hooks or {}).values():
            own.register_hook(hook)
        memo[id(parameter)] = own
    for buffer in module.buffers():
        memo[id(buffer)] = (
            buffer.clone() if buffer.is_meta else buffer.detach().to("cpu", copy=True)
        )
    made: nn.Module = copy.deepcopy(module, memo)
    return made


def _mode_above(name: str, modes: Mapping[str, bool]) -> bool:
    """Mode of the nearest module around one that the job does not have, since that was replaced."""
    while name and name not in modes:
        name = name.rpartition(".")[0]
    return modes.get(name, True)
