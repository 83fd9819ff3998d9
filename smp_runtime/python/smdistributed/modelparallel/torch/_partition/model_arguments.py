# SPDX-License-Identifier: Apache-2.0
"""Checks the module that ``smp.DistributedModel`` is made of, alike on all ranks, undoes what
``torch.compile`` made of it, and checks what the model's backward takes.

A compiled graph knows nothing of calls to other ranks, and its wrapper renames all parameters.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from smdistributed.modelparallel.torch._partition.tracing import TraceOptions
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._ranks.log import warning
from smdistributed.modelparallel.torch.exceptions import (
    SMPPartitionError,
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


def check_replicas(module: nn.Module) -> None:
    """Compares names, shapes and types of parameters and buffers. Collective over all ranks.

    Raises SMPPartitionError on all of them, naming a rank and the first difference.
    """
    if ranks.size() == 1:
        return
    own = _description(module)
    digest = hashlib.sha256("\n".join(own).encode()).hexdigest()
    digests = comm.allgather(digest, comm.CommGroup.WORLD)
    if len(set(digests)) == 1:
        return
    descriptions = comm.allgather(own, comm.CommGroup.WORLD)
    rank = next(r for r, one in enumerate(digests) if one != digests[0])
    raise SMPPartitionError(
        f"rank {rank} built another model than rank 0: "
        f"{difference(descriptions[0], descriptions[rank])}; build it from the same settings on "
        "all ranks"
    )


def difference(first: list[str], other: list[str]) -> str:
    """
    >>> difference(["a (2, 3) float32", "b (1,) float32"], ["a (2, 4) float32"])
    'a (2, 4) float32 there, a (2, 3) float32 on rank 0'
    >>> difference(["a (2,) float32"], ["a (2,) float32", "b (1,) float32"])
    'b (1,) float32 there, nothing on rank 0'
    """
    longest = max(len(first), len(other))
    padded = [(lines + ["nothing"] * longest)[:longest] for lines in (first, other)]
    here, there = next(pair for pair in zip(*padded, strict=True) if pair[0] != pair[1])
    return f"{there} there, {here} on rank 0"


def _description(module: nn.Module) -> list[str]:
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return [
        f"{name} {tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        for name, tensor in tensors
    ]


_INSIDE = "_orig_mod"  # the name of the wrapped module in its wrapper
_IN_PLACE = "_compiled_call_impl"  # the graph of Module.compile()
_PREFIX = "_smp_"  # attributes of our annotations


def without_compilation(root: nn.Module) -> nn.Module:
    """The model without compiled modules; warns if there were some, naming them.

    It is changed in place. Annotations on a wrapper go to the module inside.
    """
    compiled: set[str] = set()
    for name, module in list(root.named_modules()):
        in_place = vars(module).pop(_IN_PLACE, None) is not None
        if in_place or _is_wrapper(module):
            compiled.add(".".join(part for part in name.split(".") if part != _INSIDE))
        if not _is_wrapper(module):
            for key, child in module._modules.items():
                module._modules[key] = _inside(child)
    if compiled:
        names = ", ".join(name or "(root)" for name in sorted(compiled))
        warning(f"smp.DistributedModel undoes torch.compile, and runs as they are: {names}")
    plain: nn.Module = _inside(root)
    return plain


def _is_wrapper(module: Any) -> bool:
    # Importing torch._dynamo takes seconds, and nothing is compiled where nobody did.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)


def _inside(module: Any) -> Any:
    while _is_wrapper(module):
        annotations = {
            name: value for name, value in vars(module).items() if name.startswith(_PREFIX)
        }
        module = getattr(module, _INSIDE)
        vars(module).update(annotations)
    return module
