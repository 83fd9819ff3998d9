# SPDX-License-Identifier: Apache-2.0
"""Checks the module that ``smp.DistributedModel`` is made of, and what its backward takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from smdistributed.modelparallel.torch._partition.tracing import TraceOptions
from smdistributed.modelparallel.torch.exceptions import (
    SMPStepError,
    SMPUnsupportedError,
    SMPValidationError,
)
from smdistributed.modelparallel.torch.state_mod import state

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def check_arguments(module: Any, trace: TraceOptions, passes: int) -> None:
    """Raises SMPValidationError for what it cannot wrap, or settings that cannot be meant."""
    if state.model is not None:
        raise SMPValidationError(
            "smp.DistributedModel was called a second time; a process wraps one model. Put "
            "several that are trained into one nn.Module; one that only evaluates, such as a "
            "teacher, needs no wrapper"
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise SMPValidationError(
            "smp.DistributedModel got a scripted module; wrap the module itself, not the "
            "result of torch.jit"
        )
    if any(isinstance(m, _PARALLEL) for m in getattr(module, "modules", list)()):
        raise SMPValidationError(
            "smp.DistributedModel got a module with a DataParallel or DistributedDataParallel "
            "inside; wrap the plain module: replicas come from ddp in mp_parameters"
        )
    if not isinstance(module, nn.Module):
        raise SMPValidationError(
            f"smp.DistributedModel got {type(module).__name__}; it wraps a torch.nn.Module"
        )
    lazy = [n for n, p in module.named_parameters() if isinstance(p, UninitializedParameter)]
    if lazy:
        raise SMPValidationError(
            f"smp.DistributedModel got a module whose parameters have no shapes yet ({lazy[0]} is "
            "the first of them): run its forward once on a batch, on all ranks with the same seed, "
            "before it is wrapped"
        )
    if trace.device not in ("cpu", "gpu", "meta"):
        raise SMPValidationError(f'trace_device is "{trace.device}"; it is "cpu", "gpu" or "meta"')
    if trace.execution_times and trace.device == "cpu":
        raise SMPValidationError(
            'trace_execution_times is True and trace_device is "cpu", whose times are not '
            'those of training; leave trace_execution_times out, or set trace_device to "gpu", '
            "which measures on the CPU where there is no GPU"
        )
    if passes < 1:
        raise SMPValidationError(f"backward_passes_per_step is {passes}; it is at least 1")
    state.refuse_replicas_without_ddp()


def roots_and_seeds(
    tensors: torch.Tensor | list[torch.Tensor] | tuple[torch.Tensor, ...], gradients: Any
) -> tuple[list[torch.Tensor], list[Any]]:
    """The arguments of ``DistributedModel.backward`` as lists of one length; raises what it does
    where they are not, and outside of a step that has a backward."""
    roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    given = [gradients] if isinstance(gradients, torch.Tensor) else gradients
    seeds = [None] * len(roots) if given is None else list(given)
    if len(seeds) != len(roots):
        raise SMPValidationError(
            f"model.backward got {len(roots)} tensors and {len(seeds)} gradients"
        )
    if not state.in_step:
        raise SMPStepError("model.backward was called outside a function decorated with smp.step")
    if state.cfg.pipeline == "_only_forward":
        raise SMPStepError(
            "model.backward was called under pipeline=_only_forward, whose steps have no "
            "backward; set pipeline to interleaved, or leave it out"
        )
    return roots, seeds


def check_graph_is_used_once(retain_graph: bool, create_graph: bool) -> None:
    """Refuses ``DistributedModel.backward`` what it cannot do with the graphs of other ranks."""
    if create_graph:
        raise SMPUnsupportedError(
            "model.backward got create_graph=True, and makes no graph of a backward; train with "
            "plain PyTorch where gradients of gradients are needed"
        )
    cfg = state.cfg
    causes = {
        "pipeline_parallel_degree": cfg.pipeline_parallel_degree > 1,
        "sharded_data_parallel_degree": cfg.sharded_data_parallel_degree > 1,
        "offload_activations": cfg.offload_activations,
    }
    cause = next((key for key, applies in causes.items() if applies), None)
    if retain_graph and cause is not None:
        raise SMPUnsupportedError(
            f"model.backward got retain_graph=True: with {cause}={getattr(cfg, cause)} a graph can "
            "be gone back through once. Give it all losses at once: model.backward([a, b])"
        )
