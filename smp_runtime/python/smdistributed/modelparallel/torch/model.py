# SPDX-License-Identifier: Apache-2.0
"""The model of a training script, spread over the ranks of its pipeline group."""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checks.part_warning import PartWarning
from smdistributed.modelparallel.torch._checks.training_checks import TrainingChecks
from smdistributed.modelparallel.torch._delayed.delayed_parameters import has_delayed, materialize
from smdistributed.modelparallel.torch._metrics.memory_ledger import memory_in_use
from smdistributed.modelparallel.torch._partition import partitioning
from smdistributed.modelparallel.torch._partition.model_arguments import (
    check_arguments,
    check_graph_is_used_once,
    check_replicas,
    roots_and_seeds,
    without_compilation,
)
from smdistributed.modelparallel.torch._partition.ownership import Ownership
from smdistributed.modelparallel.torch._partition.tracing import EndOfTrace, TraceOptions
from smdistributed.modelparallel.torch._pipeline.remote_modules import RemoteModules, start_engine
from smdistributed.modelparallel.torch._pipeline.sequential_routes import SequentialRoutes
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._ranks.devices import computing_device
from smdistributed.modelparallel.torch._recompute.activation_checkpointing import install_marked
from smdistributed.modelparallel.torch._replicas.model_steps import ModelSteps
from smdistributed.modelparallel.torch._replicas.replicas import Averaging, Replicas, joined
from smdistributed.modelparallel.torch._self_check.self_check import open_self_check
from smdistributed.modelparallel.torch._sharding.clipping import clip_grad_norm_
from smdistributed.modelparallel.torch._sharding.precision import FP16_Module, computing_type
from smdistributed.modelparallel.torch._sharding.sharded_model import (
    ShardedModel,
    deferred_parameters,
    kept_whole,
)
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._tensor.tensor_replacement import (
    narrow_distributed,
    replace_annotated,
)
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from smdistributed.modelparallel.torch.model_states import ModelStates
from smdistributed.modelparallel.torch.model_views import ReplicaModule
from smdistributed.modelparallel.torch.state_mod import state

Hook = Callable[["DistributedModel", Any], None]


class DistributedModel(ModelStates):
    """Wraps ``module``, which every process builds alike.

    With one partition all is ready at once; with several the first step decides where modules go.
    One process makes at most one. Construction is collective: call it on all ranks.

    Modules that are annotated for tensor parallelism are replaced here; their parameters are new,
    so optimizers and ``load_state_dict`` come after.

    Args:
        module: the model, whole and on the CPU. Its parameters keep their identity, so that an
            optimizer may have been made from them before. What ``torch.compile`` made of it or
            of a part is undone, with a warning.
        trace_device: cpu: the trace runs where the parameters are; gpu: module by module on the
            GPU, as with cpu without one; meta: by shapes only, nothing is computed. Unless given,
            the setting of this name, which is gpu by default.
        trace_execution_times: partition by measured times. They differ from run to run, so the
            partition may. Refused with ``trace_device`` cpu; without effect, and with a warning,
            where only shapes are traced.
        trace_memory_usage: count what autograd keeps; else activation memory is taken from the
            sizes of module outputs.
        overlapping_allreduce: average buckets of gradients while backwards still run; False: at the
            end of a step, as always with ``deterministic_server``. Unless given, the setting of
            this name.
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
        SMPTensorParallelError: annotated modules that cannot be replaced, named with the numbers.
    """

    def __init__(
        self,
        module: nn.Module,
        trace_device: str | None = None,
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
        if trace_device is None:
            trace_device = state.cfg.trace_device
        self._trace_options = TraceOptions(trace_device, trace_execution_times, trace_memory_usage)
        check_arguments(module, self._trace_options, backward_passes_per_step)
        self._average_over_microbatches = average_grads_across_microbatches
        if overlapping_allreduce is None:
            overlapping_allreduce = state.cfg.overlapping_allreduce
        bucket_bytes = int(bucket_cap_mb * 1024 * 1024)
        self.replicas = Replicas(
            Averaging(
                backward_passes_per_step, bucket_bytes, overlapping_allreduce, broadcast_buffers
            )
        )
        """Copies of the model on other ranks, for the library's own modules."""
        self._ownership: Ownership | None = None
        self._assignment: _runtime.Assignment | None = None  # made, or taken over in advance
        self._early_loads: list[Mapping[str, Any]] = []
        self.sharded: ShardedModel | None = None
        """The sharded state of the model, for the library's own modules; None where it has none."""
        self.remote_modules = RemoteModules()  # for the library's own modules
        self._early_restores: list[Callable[[], None]] = []
        self._post_partition_hooks: OrderedDict[int, Hook] = OrderedDict()
        self.steps = ModelSteps(self)  # for the library's own modules
        self._fp16_module: FP16_Module | None = None
        self.checks = TrainingChecks(self)
        """Checks of the script's training loop, for the library's own modules."""
        check_replicas(module)
        module = without_compilation(module)
        self.self_check = open_self_check(module)
        """Computes first steps once more, for the library's own modules; None unless asked for."""
        replaced = replace_annotated(module)
        module, self._replaced, self._known = replaced.root, replaced.made, replaced.known
        self.plain = replaced.plain  # for the library's own modules
        dtype = computing_type()
        if dtype is not None:
            self._fp16_module = module = FP16_Module(module, dtype)
        self.module = ReplicaModule(module) if state.cfg.ddp else module
        own = weakref.ref(self)
        self._part_warning = PartWarning(
            self.get_module(), lambda: model._is_part_by() if (model := own()) else ""
        )
        if ranks.pp_size() == 1 and state.onlooker is None:
            self._place(None)
        state.model = self
        self.checks.open()
        if self.self_check is not None:
            self.self_check.watch(self)
        if self.partitioned:
            self._settle()

    # --- Partition ---

    @property
    def ownership(self) -> Ownership:
        """Owners of modules and parameters; for the library's own modules."""
        return self._owned("the partition")

    def partition(self, run_step: Callable[[], Any] | None) -> None:
        """Decides where modules go, once, and moves there. Collective over all ranks.

        ``run_step`` runs the step on one microbatch, for the trace. Called by the first step.
        """
        if not self.partitioned:
            self._place(run_step)
            self._settle()

    def _place(self, run_step: Callable[[], Any] | None) -> None:
        module = self.get_module()
        delayed = has_delayed(module)
        if self._assignment is None:
            if delayed:
                run_step = None  # nothing to run it with
            self._assignment = partitioning.decide(module, run_step, self._trace_options)
        ownership = Ownership(module, self._assignment, ranks.pp_rank())
        deferred = deferred_parameters(module) if delayed else None
        if delayed:
            if deferred is None:
                materialize(module, [local for _, local in ownership.local_modules()])
            narrow_distributed(module)
            ownership = Ownership(module, self._assignment, ranks.pp_rank())  # has the new tensors
        routes = SequentialRoutes(ownership)
        engine = start_engine(
            self.remote_modules.run,
            routes.names,
            lambda: self.steps.after_backward(True),
            memory_in_use,
        )
        self.remote_modules.connect(engine, ownership, routes)
        self._ownership = ownership
        install_marked(self)
        ownership.free_remote_parameters(computing_type())
        if torch.cuda.is_available():
            ownership.move_local(computing_device())
        late = set() if deferred is None else deferred.parameters
        self.replicas.align(
            [p for _, p in ownership.local_parameters() if p not in late],
            [buffer for _, buffer in ownership.local_buffers()],
        )
        how = shard_plan()
        if how is not None:
            self.sharded = self._make_sharded(ownership, how)
            if self._fp16_module is not None:
                self._fp16_module.begin()
        if self.sharded is not None and deferred is not None:
            self.sharded.fill(deferred, self.replicas.send_value)
        for entries in self._early_loads:
            self._load_local(entries)
        self._early_loads.clear()
        self.checks.model_is_placed(self)
        engine.track_parameters([p for _, p in ownership.local_parameters()])

    def _settle(self) -> None:
        """Does what waited for the partition: optimizers, loads and hooks."""
        state.optimizers.settle()
        for restore in self._early_restores:
            restore()
        self._early_restores.clear()
        for hook in list(self._post_partition_hooks.values()):
            hook(self, state.optimizer)

    def partition_json(self) -> str:
        """The partition decision, as checkpoints keep it."""
        self._owned("a checkpoint in parts")
        assert self._assignment is not None
        return self._assignment.to_json()

    def when_partitioned(self, act: Callable[[], None]) -> None:
        """Runs ``act`` now or, without a partition yet, as soon as there is one."""
        if self.partitioned:
            act()
        else:
            self._early_restores.append(act)

    def takes_partition(self, text: str, where: str) -> bool:
        """Returns True if the modules are, or from the first step on will be, where ``text`` says.

        ``text`` is a saved decision; empty, of another number of partitions or of other modules, it
        is not taken. Raises SMPCheckpointError, naming the file ``where``, if it is none.
        """
        saved = partitioning.read_saved(text, where)
        if saved is None:
            return False
        if self._ownership is not None:
            return self._assignment == saved
        if not partitioning.fits(saved, self.get_module()):
            return False
        self._assignment = saved
        return True

    def _make_sharded(self, ownership: Ownership, how: _runtime.ShardPlan) -> ShardedModel:
        return ShardedModel(self, self.get_module(), dict(ownership.local_parameters()), how)

    def keep_parameters_whole(self) -> ShardedModel:
        """Shares the optimizer's state by whole parameters from now on, of which none is cut.
        Collective over the data-parallel ranks; gradients are lost."""
        assert self.sharded is not None
        ownership = self.ownership
        self.sharded = kept_whole(self.sharded, lambda how: self._make_sharded(ownership, how))
        return self.sharded

    def register_post_partition_hook(self, hook: Hook) -> RemovableHandle:
        """``hook(model, optimizer)`` runs once, before the first real forward."""
        handle = RemovableHandle(self._post_partition_hooks)
        self._post_partition_hooks[handle.id] = hook
        if self.partitioned:
            hook(self, state.optimizer)
        return handle

    def register_post_step_hook(self, hook: Hook) -> RemovableHandle:
        """``hook(model, optimizer)`` runs once, at the end of the next step."""
        handle = RemovableHandle(self.steps.hooks)
        self.steps.hooks[handle.id] = hook
        return handle

    # --- Forward and backward ---

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The user's forward, inside a step: on the ranks that have the modules, as if they were
        here. Raises SMPStepError outside of a step if there are several partitions."""
        if ranks.pp_size() > 1 and not state.in_step:
            raise SMPStepError(
                "the model was called outside a step; with several partitions call it inside a "
                "function decorated with smp.step"
            )
        return self.module(*args, **kwargs)

    @property
    def averages_over_microbatches(self) -> bool:
        """True if backwards divide by the number of microbatches; for the library's own modules."""
        return self._average_over_microbatches and not self.replicas.has_hook

    def backward(
        self,
        tensors: torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...],
        grad_tensors: Any = None,
        retain_graph: bool | None = False,
        create_graph: bool = False,
    ) -> None:
        """``torch.autograd.backward`` inside a step, averaged over its microbatches.

        Returns when this microbatch's backward has run. In ``fp16`` the loss is multiplied with the
        loss scale first.

        Args:
            tensors: the loss, or several tensors; one without ``grad_tensors`` has one element.
            grad_tensors: gradients of the same shapes, or None.
            retain_graph: keep the graph for another backward of this microbatch. Where that needs
                more than one rank, or values that are given back in a backward, it is refused:
                give all losses at once, ``model.backward([a, b])``.
            create_graph: refused where it is true.

        Raises:
            SMPUnsupportedError: ``retain_graph`` or ``create_graph`` where it is refused.
            SMPStepError: outside of a step, or under ``pipeline: _only_forward``.
            SMPValidationError: the numbers of tensors and of gradients differ.
        """
        if state.is_tracing:
            raise EndOfTrace
        roots, seeds = roots_and_seeds(tensors, grad_tensors)
        check_graph_is_used_once(bool(retain_graph), create_graph)
        scale = 1.0 / state.cfg.microbatches if self.averages_over_microbatches else 1.0
        if state.optimizer is not None:
            scale *= state.optimizer.loss_scale
        state.require_engine().backward(roots, seeds, scale, bool(retain_graph))
        if self.sharded is not None:
            self.sharded.end_backward()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clips the gradients of the whole model by their norm, and returns that norm: see
        ``smp.clip_grad_norm_``, or the optimizer's ``clip_master_grads`` where it has masters.

        Transformers' Trainer calls it instead of clipping each partition by a norm of its own.
        """
        if self.sharded is not None and state.optimizer is not None:
            norm = state.optimizer.clip_master_grads(max_norm, norm_type)
            return torch.tensor(norm, dtype=torch.float64)
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As PyTorch's, and the gradients of shards and masters."""
        self.replicas.forget_accumulation()
        if self.sharded is not None:
            self.sharded.store.zero_gradients()
            for optimizer in state.optimizers:
                optimizer.zero_grad()
        super().zero_grad(set_to_none)

    # --- The module ---

    def to(self, *args: Any, **kwargs: Any) -> DistributedModel:
        """Moves the model if it has one partition; else placement is the partition's business."""
        if ranks.pp_size() == 1:
            return super().to(*args, **kwargs)
        return self

    def cuda(self, device: Any = None) -> DistributedModel:
        """As ``to``: with several partitions the model is where it belongs already."""
        return super().cuda(device) if ranks.pp_size() == 1 else self

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """``hook(state, bucket)`` reduces each bucket of gradients and returns a future of them.

        As DDP's, with DDP's buckets. The hook averages over replicas and microbatches itself.
        Needs ``ddp`` and ``overlapping_allreduce``; one hook a model.
        """
        self.replicas.set_comm_hook(state, hook)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> contextlib.AbstractContextManager[None]:
        """Inside, replicas may have different numbers of batches; all ranks of one have the same.

        A replica that leaves early accompanies the others' steps with no gradients, and at the end
        takes the model of one that made all.

        Args:
            divide_by_initial_world_size: average over all replicas, else over those with batches.
            enable: False for a context without effect.
            throw_on_early_termination: raise SMPStepError on all as soon as one leaves.
        """
        if not enable or not state.cfg.ddp:
            return contextlib.nullcontext()
        self.replicas.refuse_join()
        return joined(self, self.replicas, divide_by_initial_world_size, throw_on_early_termination)
