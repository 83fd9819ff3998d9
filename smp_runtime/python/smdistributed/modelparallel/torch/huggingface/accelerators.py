# SPDX-License-Identifier: Apache-2.0
"""The Trainer's accelerator, between replicas of the model; to Transformers and Accelerate each
process is one that trains alone."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import recursively_apply
from torch.utils._pytree import tree_leaves

from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch.huggingface.training_arguments import (
    MIXIN,
    replica_group,
    replica_index,
    replicas,
)
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.state_mod import state


def mean_over_replicas(value: torch.Tensor) -> torch.Tensor:
    """Collective over the data-parallel group."""
    if ranks.dp_size() == 1:
        return value
    total = value.detach().clone()
    dist.all_reduce(total, group=ranks.get_dp_process_group())
    return total / ranks.dp_size()


class RankAccelerator(MIXIN):  # type: ignore[misc]
    """Stands before the class of an accelerator: its processes are replicas of the model.

    What it gathers is gathered over the ranks that are fed different batches; all ranks call it.
    """

    @property
    def num_processes(self) -> int:
        return replicas()

    @property
    def process_index(self) -> int:
        return replica_index()

    @property
    def is_main_process(self) -> bool:
        return ranks.rank() == 0

    @property
    def is_local_main_process(self) -> bool:
        return ranks.local_rank() == 0

    def wait_for_everyone(self) -> None:
        comm.barrier()

    # --- What is prepared ---

    def prepare_data_loader(self, data_loader: Any, *args: Any, **kwargs: Any) -> Any:
        """Each replica reads its own batches, also of data without a length."""
        self.dataloader_config.dispatch_batches = False
        return super().prepare_data_loader(data_loader, *args, **kwargs)

    def prepare_model(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(model, DistributedModel):
            return super().prepare_model(model, *args, **kwargs)
        if not any(one is model for one in self._models):
            self._models.append(model)
        return model

    def prepare_optimizer(self, optimizer: Any, device_placement: Any = None) -> Any:
        if isinstance(optimizer, RankOptimizer):
            return optimizer
        if not isinstance(optimizer, DistributedOptimizer):
            optimizer = DistributedOptimizer(optimizer, **loss_scaling())
        prepared = RankOptimizer(optimizer, device_placement=False)
        self._optimizers.append(prepared)
        return prepared

    def unwrap_model(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, DistributedModel):
            return model.get_module()
        return super().unwrap_model(model, *args, **kwargs)

    # --- What a loop calls ---

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> Any:
        """By the norm of the whole model, of masters where there are some."""
        assert state.model is not None
        return state.model.clip_grad_norm_(float(max_norm), norm_type)

    @contextlib.contextmanager
    def no_sync(self, model: Any) -> Iterator[None]:
        """The step itself knows when gradients are averaged."""
        yield

    def gather(self, tensor: Any) -> Any:
        return recursively_apply(_gathered, tensor, error_on_other_type=True)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """``gather`` without what was read twice to fill the last batch."""
        tensors = all(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(input_data))
        if use_gather_object or not tensors:
            parts = comm.allgather(input_data, replica_group())
            data = [item for part in parts for item in part]
        else:
            data = self.gather(input_data)
        remainder = self.gradient_state.remainder
        if not self.gradient_state.end_of_dataloader or remainder <= 0:
            return data
        if isinstance(data, list) and not tensors:
            return data[:remainder]
        return recursively_apply(lambda one: one[:remainder], data)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False
    ) -> Any:
        def padded(one: torch.Tensor) -> torch.Tensor:
            if replicas() == 1 or dim >= one.dim():
                return one
            length = max(comm.allgather(one.shape[dim], replica_group()))
            shape = list(one.shape)
            shape[dim] = length
            whole = one.new_full(shape, pad_index)
            begin = length - one.shape[dim] if pad_first else 0
            whole.narrow(dim, begin, one.shape[dim]).copy_(one)
            return whole

        return recursively_apply(padded, tensor, error_on_other_type=True)


class RankOptimizer(AcceleratedOptimizer):  # type: ignore[misc]
    """The accelerator's wrapper of a DistributedOptimizer."""

    @property
    def step_was_skipped(self) -> bool:
        """For an overflow, in ``fp16``."""
        return bool(self.optimizer.overflow)


def loss_scaling() -> dict[str, Any]:
    """Arguments of DistributedOptimizer for a script that gives none."""
    if not state.cfg.fp16:
        return {}
    return {"dynamic_loss_scale": True, "dynamic_loss_args": {"init_scale": 2.0**16}}


def adapt_accelerator(accelerator: Any) -> None:
    """Makes the accelerator of a process alone one of replicas. A second call does nothing."""
    if not isinstance(accelerator, RankAccelerator):
        kind = type(accelerator)
        accelerator.__class__ = type(kind.__name__, (RankAccelerator, kind), {})


def _gathered(tensor: torch.Tensor) -> torch.Tensor:
    """Tensors of one shape on all replicas, joined along dimension 0; scalars become a vector."""
    if replicas() == 1:
        return tensor
    prescaled = state.cfg.prescaled_batch
    group = ranks.get_rdp_process_group() if prescaled else ranks.get_dp_process_group()
    own = tensor.detach().contiguous()
    own = own[None] if own.dim() == 0 else own
    parts = [torch.empty_like(own) for _ in range(replicas())]
    dist.all_gather(parts, own, group=group)
    return torch.cat(parts)


_GATE = "is_sagemaker_mp_enabled"
# Set when modules are imported with the gate open: save_pretrained then translates names once more.
_FLAG = "IS_SAGEMAKER_MP_POST_1_10"
# Variables by which Accelerate tells that it is one of several processes.
_LAUNCHERS = ("LOCAL_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


class StateAlone(PartialState):  # type: ignore[misc]
    """Accelerate's state of a process that is not one of several. The state is one in a process.

    Else Accelerate would make process groups of its own, and set variables of ranks.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        hidden = {name: os.environ.pop(name) for name in _LAUNCHERS if name in os.environ}
        try:
            super().__init__(*args, **kwargs)
        finally:
            os.environ.update(hidden)


def begin_alone(device: torch.device) -> None:
    """A new state, of a process on ``device``."""
    AcceleratorState._reset_state(reset_partial_state=True)
    StateAlone(cpu=device.type == "cpu").device = device


def switch_off_own_calls() -> None:
    """Transformers' Trainer calls the library by itself where the variables of a job say so: with
    GPUs taken for granted, without evaluation of batches that do not divide, and, since version 5,
    without an optimizer. From now on it does not."""
    for name, module in list(sys.modules.items()):
        if name == "transformers" or name.startswith("transformers."):
            namespace = vars(module)
            if _GATE in namespace:
                namespace[_GATE] = lambda: False
            if _FLAG in namespace:
                namespace[_FLAG] = False
    sys.modules["transformers.training_args"].PartialState = StateAlone  # type: ignore[attr-defined]
