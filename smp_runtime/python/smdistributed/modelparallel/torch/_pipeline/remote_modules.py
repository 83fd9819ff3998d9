# SPDX-License-Identifier: Apache-2.0
"""The pipeline engine, which all steps run on, and calls between the modules of a partitioned
model: their Python ends."""

from __future__ import annotations

import collections
import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._objects import codec
from smdistributed.modelparallel.torch._objects.remote_tensors import RemoteTensor
from smdistributed.modelparallel.torch._partition.ownership import Ownership
from smdistributed.modelparallel.torch._pipeline.call_changes import Modules
from smdistributed.modelparallel.torch._pipeline.call_messages import (
    SentCall,
    ServedCall,
)
from smdistributed.modelparallel.torch._pipeline.kept_containers import KeptContainers
from smdistributed.modelparallel.torch._pipeline.sequential_routes import SequentialRoutes
from smdistributed.modelparallel.torch._ranks.devices import (
    check_own_gpu,
    tell_of_missing_gpu_code,
)
from smdistributed.modelparallel.torch._ranks.log import warn_once
from smdistributed.modelparallel.torch._recompute.activation_checkpointing import run_modules
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPValidationError
from smdistributed.modelparallel.torch.ports import Region
from smdistributed.modelparallel.torch.state_mod import state

_EXAMINED = 8  # calls of a module


class RemoteModules:
    """Sends calls of modules of other partitions there, and runs those of this one for others."""

    def connect(
        self, engine: _runtime.Engine, ownership: Ownership, routes: SequentialRoutes
    ) -> None:
        """From now on modules of other partitions are called where they live.

        A module is intercepted at its call, not at its class: ``super().forward()`` works, and its
        hooks run once, on its owner.
        """
        self._engine, self._ownership, self._routes = engine, ownership, routes
        self._modules = Modules(ownership.modules, ownership.module_names)
        self._examined: collections.Counter[int] = collections.Counter()
        install_recorders(ownership.modules)
        for module in ownership.modules:
            module.__dict__["_orig_forward"] = module.forward
            if not ownership.owns(module):
                remote = functools.partial(self._call, module)
                module.__dict__["forward"] = remote
                module.__dict__["_compiled_call_impl"] = remote
            elif isinstance(module, nn.Sequential) and module in routes.parts:
                module.__dict__["forward"] = functools.partial(self._call_in_parts, module)

    def _call(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        hop = (self._ownership.of_module(module), self._ownership.module_id(module))
        return self._send([hop], args, kwargs)

    def _call_in_parts(self, container: nn.Sequential, value: Any) -> Any:
        """``nn.Sequential.forward``, with one call for consecutive children of other partitions."""
        parts = self._routes.parts[container]
        if [id(child) for child in container] != [id(c) for part in parts for c in part.children]:
            return container.__dict__["_orig_forward"](value)  # the script changed it
        for part in parts:
            if part.route:
                value = self._send(part.route, (value,), {})
            else:
                for child in part.children:
                    value = child(value)
        return value

    def call_region(self, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Has the partition of the region's modules run them, to be recomputed there."""
        owner = self._ownership.of_module(self._ownership.modules[region.modules[0]])
        return self._send([(owner, region.modules[0])], args, kwargs, region)

    def _send(
        self,
        route: list[tuple[int, int]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        region: Region | None = None,
    ) -> Any:
        ownership, (owner, number) = self._ownership, route[0]
        if torch._C._current_graph_task_id() != -1:
            raise SMPStepError(
                f"module {self._name(number)} of partition {owner} was called in a backward of "
                f"partition {ownership.partition}, as when torch.utils.checkpoint recomputes a "
                "region that spans partitions; use smp.set_activation_checkpointing on modules "
                "that are whole on one partition"
            )
        if self._engine.microbatch < 0:
            raise SMPStepError(
                f"module {self._name(number)} lives on partition {owner}, this is partition "
                f"{ownership.partition}: call it inside a function decorated with smp.step"
            )
        called = self._called([target for _, target in route], region)
        exchanged = self._modules.exchanged_parameter(called)
        if exchanged is not None:
            raise SMPStepError(
                f"module {self._name(number)} of partition {owner} was called while its parameter "
                f"{exchanged} is another tensor, as in torch.func.functional_call: the module runs "
                "with the parameters of its partition. Put it on the partition of its caller with "
                "smp.set_partition, or compute with torch.nn.functional"
            )
        try:
            call = SentCall(
                self._modules,
                called,
                (args, tuple(kwargs.items()), region, False),
                state.step_context,
                ownership.remote_name,
            )
        except codec.REFUSALS as error:
            raise SMPValidationError(
                f"an argument of module {self._name(number)} cannot travel to partition {owner}: "
                f"{error}"
            ) from error
        return call.result(functools.partial(self._engine.call, route))

    def _called(self, targets: list[int], region: Region | None) -> list[nn.Module]:
        """The modules that calls of ``targets`` call."""
        modules = self._ownership.modules
        if region is not None:
            return [modules[number] for number in region.modules]
        return [
            module
            for target in targets
            for module in self._routes.segment(target) or [modules[target]]
        ]

    def _name(self, number: int) -> str:
        return self._routes.names[number]

    def run(
        self, module_id: int, definition: bytes, tensors: list[torch.Tensor], passes_on: bool
    ) -> tuple[bytes, list[torch.Tensor]]:
        """Runs a module or a segment of this partition for another one. The engine calls it.

        It sees the context variables of the step's caller on this rank, and none that another
        microbatch has set. With ``passes_on`` the result is to be the one argument of a module of
        a third partition.
        """
        return state.step_context.copy().run(self._run, module_id, definition, tensors, passes_on)

    @contextlib.contextmanager
    def _told_of_kept(self, name: str, module_id: int, called: list[nn.Module]) -> Iterator[None]:
        """Warns, of the first calls of a module, of what they keep on this rank alone."""
        self._examined[module_id] += 1
        if self._examined[module_id] > _EXAMINED:
            yield
            return
        kept = KeptContainers(self._modules.named_below(called))
        yield
        for what in kept.changed():
            warn_once(
                f"module {name} of partition {self._ownership.partition} was called by another "
                f"partition and filled a container that stays here: {what}. Its caller's is not "
                "filled; return what it is to know, or set it anew as an attribute "
                "(self.name = ...), which returns"
            )

    def _run(
        self, module_id: int, definition: bytes, tensors: list[torch.Tensor], passes_on: bool
    ) -> tuple[bytes, list[torch.Tensor]]:
        name = self._name(module_id)
        call = ServedCall(
            self._modules,
            f"module {name} of partition {self._ownership.partition}",
            definition,
            tensors,
            self._ownership.find_parameter,
        )
        args, named, region, _ = call.request
        first, *others = called = self._called([module_id], region)
        with self._told_of_kept(name, module_id, called):
            if region is not None:
                result = run_modules(called, args, dict(named), region.preserve_rng_state)
            else:
                result = first(*args, **dict(named))
                for module in others:
                    result = module(result)
        try:
            return call.next_request(result) if passes_on else call.reply(result)
        except codec.REFUSALS as error:
            raise SMPValidationError(
                f"the result of module {name} cannot travel to another partition: {error}"
            ) from error


def install_recorders(modules: Iterable[nn.Module]) -> None:
    """Hooks modules as the first forward that records would.

    That forward runs on the rank of the outermost module, and modules of other ranks, too, must
    have the hooks. They do nothing where nothing is recorded. Transformers is not imported for it.
    """
    capturing = sys.modules.get("transformers.utils.output_capturing")
    if capturing is None:
        return
    for module in modules:
        if _records(type(module).forward, capturing.__file__):
            capturing.maybe_install_capturing_hooks(module)


def _records(forward: Any, file: str | None) -> bool:
    """True if ``forward`` is decorated with ``capture_outputs``, which ``file`` defines."""
    while forward is not None:
        if getattr(getattr(forward, "__code__", None), "co_filename", "") == file:
            return True
        forward = getattr(forward, "__wrapped__", None)
    return False


def start_engine(
    run_module: Callable[..., tuple[bytes, list[Any]]],
    module_names: list[str],
    after_backward_outside: Callable[[], None],
    memory_in_use: Callable[[], int],
) -> _runtime.Engine:
    """Makes the engine of this rank. Collective over the pipeline group.

    ``after_backward_outside`` runs at the end of a backward that is part of no step;
    ``memory_in_use`` is asked twice a step.
    """
    session = state.require_initialized("the pipeline engine")
    cfg = state.cfg
    tell_of_missing_gpu_code(session.ranks.rank)
    check_own_gpu(
        session.store,
        session.ranks.rank,
        session.ranks.local_rank or 0,
        by_nccl=cfg.ddp and cfg.ddp_dist_backend in ("auto", "nccl"),
    )
    state.close_engine()  # left by a model whose construction failed
    engine = _runtime.Engine(
        session,
        cuda_device=torch.cuda.current_device() if torch.cuda.is_available() else -1,
        run_module=run_module,
        module_names=module_names,
        after_backward_outside=after_backward_outside,
        remote_tensor=functools.partial(RemoteTensor, _data_of),
        memory_in_use=memory_in_use,
    )
    offloads = cfg.offload_activations
    horizon = cfg.activation_loading_horizon
    state.run_on(engine, _runtime.ActivationStore(horizon) if offloads else None)
    return engine


def _data_of(remote_tensor: torch.Tensor) -> torch.Tensor:
    return state.require_engine().data_of(remote_tensor)
