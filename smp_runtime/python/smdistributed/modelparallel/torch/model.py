# SPDX-License-Identifier: Apache-2.0
"""The model of a training script, spread over the ranks of its pipeline group."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from smdistributed import _runtime
from smdistributed.modelparallel.torch import comm, partitioning, ranks
from smdistributed.modelparallel.torch.exceptions import (
    SMPCheckpointError,
    SMPPartitionError,
    SMPStepError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.ownership import Ownership
from smdistributed.modelparallel.torch.remote_modules import RemoteModules
from smdistributed.modelparallel.torch.state_mod import state
from smdistributed.modelparallel.torch.tracing import EndOfTrace

#: Marks a state dict that holds one partition's entries.
PARTIAL_KEY = "_smp_is_partial"

Hook = Callable[["DistributedModel", Any], None]


class ReplicaModule(nn.Module):
    """The level that ``DistributedDataParallel`` would be: ``model.module.module`` is the user's.

    Scripts reach through it; the averaging itself happens at the end of a step.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class DistributedModel(nn.Module):
    """Wraps ``module``, which every process builds alike.

    With one partition all is ready at once; with several the first step decides where modules go.
    One process makes at most one. Construction is collective: call it on all ranks.

    Args:
        module: the model, whole and on the CPU. Its parameters keep their identity, so that an
            optimizer may have been made from them before.
        trace_device: accepted; the trace runs where the parameters are.
        trace_execution_times: partition by measured times. They differ from run to run, so the
            partition may.
        trace_memory_usage: accepted; activation memory is taken from the sizes of module outputs.
        overlapping_allreduce: accepted; gradients are averaged at the end of a step.
        backward_passes_per_step: average gradients in every n-th step only.
        average_grads_across_microbatches: False sums them.
        bucket_cap_mb: size of the buckets in which gradients are averaged, in MiB.
        broadcast_buffers: copy the buffers of the first replica to the others before each step.
        gradient_as_bucket_view: accepted, without effect.
        find_unused_parameters: accepted; unused parameters never need it.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPConfigError: a setting asks for a feature that is not there yet, named in the message.
        SMPValidationError: a second model, a scripted module, or no module at all.
    """

    def __init__(
        self,
        module: nn.Module,
        trace_device: str = "gpu",
        trace_execution_times: bool = False,
        trace_memory_usage: bool = False,
        overlapping_allreduce: bool | None = None,
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,
        bucket_cap_mb: float = 25,
        broadcast_buffers: bool = True,
        gradient_as_bucket_view: bool = False,
        find_unused_parameters: bool = False,
    ) -> None:
        super().__init__()
        state.require_initialized("smp.DistributedModel")
        self._refuse_bad_arguments(module, trace_device, backward_passes_per_step)
        self._trace_execution_times = trace_execution_times
        self._backward_passes_per_step = backward_passes_per_step
        self._average_over_microbatches = average_grads_across_microbatches
        self._bucket_bytes = int(bucket_cap_mb * 1024 * 1024)
        self._broadcast_buffers = broadcast_buffers
        self._steps_with_backward = 0
        self._ownership: Ownership | None = None
        self._reducer: _runtime.GradientReducer | None = None
        self._remote_modules = RemoteModules()
        self._post_partition_hooks: OrderedDict[int, Hook] = OrderedDict()
        self._post_step_hooks: OrderedDict[int, Hook] = OrderedDict()
        self.module = ReplicaModule(module) if state.cfg.ddp else module
        state.model = self
        if ranks.pp_size() == 1:
            self.partition(None)

    @staticmethod
    def _refuse_bad_arguments(module: Any, trace_device: str, passes: int) -> None:
        if state.model is not None:
            raise SMPValidationError(
                "smp.DistributedModel was called a second time; a process wraps one model"
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise SMPValidationError(
                "smp.DistributedModel got a scripted module; wrap the module itself, not the "
                "result of torch.jit"
            )
        if not isinstance(module, nn.Module):
            raise SMPValidationError(
                f"smp.DistributedModel got {type(module).__name__}; it wraps a torch.nn.Module"
            )
        if trace_device not in ("cpu", "gpu"):
            raise SMPValidationError(f'trace_device is "{trace_device}"; it is "cpu" or "gpu"')
        if passes < 1:
            raise SMPValidationError(f"backward_passes_per_step is {passes}; it is at least 1")
        state.refuse_unavailable_features()

    # --- Partition ---

    @property
    def partitioned(self) -> bool:
        """Whether it is decided where modules are: from the first step on."""
        return self._ownership is not None

    def partition(self, run_step: Callable[[], Any] | None) -> None:
        """Decides where modules go, once, and moves there. Collective over all ranks.

        ``run_step`` runs the step on one microbatch, for the trace. Called by the first step.
        """
        if self.partitioned:
            return
        module = self.get_module()
        assignment = partitioning.decide(module, run_step, self._trace_execution_times)
        ownership = Ownership(module, assignment, ranks.pp_rank())
        engine = state.start_engine(
            self._remote_modules.run, ownership.module_names, lambda: self._after_backward(True)
        )
        self._remote_modules.connect(engine, ownership)
        self._ownership = ownership
        ownership.free_remote_parameters()
        if torch.cuda.is_available():
            ownership.move_local(torch.device("cuda", torch.cuda.current_device()))
        if state.cfg.ddp:
            self._align_replicas(ownership)
        engine.track_parameters([p for _, p in ownership.local_parameters()])
        for hook in list(self._post_partition_hooks.values()):
            hook(self, state.optimizer)

    def _align_replicas(self, ownership: Ownership) -> None:
        group = state.internal_group_name("DP")
        parameters = [p for _, p in ownership.local_parameters()]
        buffers = [b for _, b in ownership.local_buffers()]
        _runtime.broadcast_tensors(group, [t.detach() for t in parameters + buffers], 0)
        # Frozen ones too: a script may thaw them later.
        self._reducer = _runtime.GradientReducer(group, parameters, self._bucket_bytes)

    def before_step(self) -> None:
        """What each step begins with; the step calls it."""
        if self._reducer is not None and self._broadcast_buffers and self.training:
            buffers = [b for _, b in self.local_named_buffers()]
            _runtime.broadcast_tensors(state.internal_group_name("DP"), buffers, 0)

    def after_step(self, backward_ran: bool) -> None:
        """What each step ends with; the step calls it."""
        self._after_backward(backward_ran)
        hooks, self._post_step_hooks = self._post_step_hooks, OrderedDict()
        for hook in hooks.values():
            hook(self, state.optimizer)

    def _after_backward(self, backward_ran: bool) -> None:
        """Averages gradients over the replicas where it is due."""
        if not backward_ran:
            return
        self._steps_with_backward += 1
        due = self._steps_with_backward % self._backward_passes_per_step == 0
        if self._reducer is not None and due:
            self._reducer.average()

    def register_post_partition_hook(self, hook: Hook) -> RemovableHandle:
        """``hook(model, optimizer)`` runs once, before the first real forward."""
        handle = RemovableHandle(self._post_partition_hooks)
        self._post_partition_hooks[handle.id] = hook
        if self.partitioned:
            hook(self, state.optimizer)
        return handle

    def register_post_step_hook(self, hook: Hook) -> RemovableHandle:
        """``hook(model, optimizer)`` runs once, at the end of the next step."""
        handle = RemovableHandle(self._post_step_hooks)
        self._post_step_hooks[handle.id] = hook
        return handle

    # --- Forward and backward ---

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if ranks.pp_size() > 1 and not state.in_step:
            raise SMPStepError(
                "the model was called outside a step; with several partitions call it inside a "
                "function decorated with smp.step"
            )
        return self.module(*args, **kwargs)

    def backward(
        self,
        tensors: torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...],
        grad_tensors: Any = None,
    ) -> None:
        """``torch.autograd.backward`` inside a step, averaged over its microbatches."""
        if state.is_tracing:
            raise EndOfTrace
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        given = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else grad_tensors
        seeds = [None] * len(roots) if given is None else list(given)
        if len(seeds) != len(roots):
            raise SMPValidationError(
                f"model.backward got {len(roots)} tensors and {len(seeds)} gradients"
            )
        if not state.in_step:
            raise SMPStepError(
                "model.backward was called outside a function decorated with smp.step"
            )
        scale = 1.0 / state.cfg.microbatches if self._average_over_microbatches else 1.0
        state.require_engine().backward(roots, seeds, scale)

    # --- The module ---

    def get_module(self) -> nn.Module:
        """The user's module, without our wrappers."""
        return self.module.module if isinstance(self.module, ReplicaModule) else self.module

    def to(self, *args: Any, **kwargs: Any) -> DistributedModel:
        """Moves the model if it has one partition; else placement is the partition's business."""
        if ranks.pp_size() == 1:
            return super().to(*args, **kwargs)
        return self

    def cuda(self, device: Any = None) -> DistributedModel:
        return super().cuda(device) if ranks.pp_size() == 1 else self

    def cpu(self) -> NoReturn:
        raise SMPUnsupportedError(
            "DistributedModel.cpu() is not available yet; use model.state_dict() to gather"
        )

    def register_comm_hook(self, state: Any, hook: Any) -> NoReturn:
        raise SMPUnsupportedError("DistributedModel.register_comm_hook is not available yet")

    def join(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise SMPUnsupportedError("DistributedModel.join is not available yet")

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

    # --- State dicts ---

    def _local_entries(self) -> OrderedDict[str, Any]:
        ownership, module = self._owned("local_state_dict()"), self.get_module()
        return OrderedDict(
            (key, value)
            for key, value in module.state_dict().items()
            if ownership.is_local_entry(module, key)
        )

    def local_state_dict(self) -> OrderedDict[str, Any]:
        """The entries of this partition, and the key ``_smp_is_partial``."""
        entries = self._local_entries()
        entries[PARTIAL_KEY] = True
        return entries

    def state_dict(  # type: ignore[override]
        self, *args: Any, gather_to_rank0: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """The whole model's state dict, under the user's names, on the CPU where gathered.

        Collective over the pipeline group: call it on all its ranks. With ``gather_to_rank0``
        every rank but global rank 0 gets an empty dict.
        """
        module = self.get_module()
        if ranks.pp_size() == 1 or not self.partitioned:
            full = module.state_dict(*args, **kwargs)
        else:
            parts = comm.allgather(_to_cpu(self._local_entries()), comm.CommGroup.PP_GROUP)
            merged: dict[str, Any] = {}
            for part in parts:
                merged.update(part)
            full = OrderedDict((key, merged[key]) for key in module.state_dict())
        return full if not gather_to_rank0 or ranks.rank() == 0 else OrderedDict()

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        same_partition_load: bool = False,
    ) -> Any:
        """Loads a full or partial state dict, before or after the partition.

        A partial one holds one partition's entries: the others' are gathered first, over the
        pipeline group, unless ``same_partition_load`` says that they are this rank's own.
        Raises SMPCheckpointError for entries that are missing or too many.
        """
        entries = {key: value for key, value in state_dict.items() if key != PARTIAL_KEY}
        partial = bool(state_dict.get(PARTIAL_KEY, False))
        if partial and ranks.pp_size() > 1 and not same_partition_load:
            merged: dict[str, Any] = {}
            for part in comm.allgather(_to_cpu(entries), comm.CommGroup.PP_GROUP):
                merged.update(part)
            entries = merged
        module = self.get_module()
        if strict:
            self._check_entries(entries, only_local=partial and same_partition_load)
        if self._ownership is not None:
            entries = {
                key: value
                for key, value in entries.items()
                if self._ownership.is_local_entry(module, key)
            }
        return module.load_state_dict(entries, strict=False)

    def _check_entries(self, entries: Mapping[str, Any], *, only_local: bool) -> None:
        wanted = set(self._local_entries() if only_local else self.get_module().state_dict())
        missing, foreign = sorted(wanted - set(entries)), sorted(set(entries) - wanted)
        if missing or foreign:
            raise SMPCheckpointError(
                f"the state dict does not fit the model: missing {missing[:8] or 'nothing'}, "
                f"unknown {foreign[:8] or 'nothing'} ({len(missing)} and {len(foreign)} in all); "
                "load with strict=False to take what fits"
            )


def _to_cpu(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for key, value in entries.items()
    }
