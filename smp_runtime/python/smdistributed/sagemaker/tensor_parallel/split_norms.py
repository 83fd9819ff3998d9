# SPDX-License-Identifier: Apache-2.0
"""Norm of the gradients of a split model: a slice counts on the rank that has it, a parameter that
all ranks of the tensor-parallel group have counts once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import _CHECKPOINT_PREFIX
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp._common_utils import FSDP_WRAPPED_MODULE

from smdistributed.sagemaker.state_handler import state
from smdistributed.sagemaker.tensor_parallel.transformer import TransformerLMHead

_WRAPPERS = (FSDP_WRAPPED_MODULE, _CHECKPOINT_PREFIX)


class Piece(NamedTuple):
    """Gradient of a parameter, or of what this rank has of it."""

    grad: torch.Tensor
    is_slice: bool
    is_sharded: bool


def split_parts(model: nn.Module) -> list[tuple[str, TransformerLMHead]]:
    """Split models in ``model``, with what comes before their names in state dicts."""
    found = []
    for name, part in model.named_modules():
        if isinstance(part, TransformerLMHead):
            path = _plain(name)
            found.append((f"{path}." if path else "", part))
    return found


def has_slices(model: nn.Module) -> bool:
    return any(isinstance(part, TransformerLMHead) for part in model.modules())


def clip(model: nn.Module, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales the gradients so that their norm is at most ``max_norm``; returns the norm before.
    All ranks call it."""
    pieces = list(_pieces(model))
    norm = _norm(model, pieces, float(norm_type))
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for piece in pieces:
        piece.grad.mul_(factor.to(piece.grad.device, piece.grad.dtype))
    return norm


def _norm(model: nn.Module, pieces: list[Piece], kind: float) -> torch.Tensor:
    fsdp = model if isinstance(model, FullyShardedDataParallel) else None
    device = fsdp.compute_device if fsdp is not None else next(model.parameters()).device
    largest = kind == float("inf")
    operation = dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM

    def local(is_slice: bool, is_sharded: bool) -> torch.Tensor:
        own = [one.grad for one in pieces if one[1:] == (is_slice, is_sharded)]
        norms = [torch.linalg.vector_norm(grad, kind, dtype=_wide(grad)) for grad in own]
        if not norms:
            return torch.zeros((), dtype=torch.float64, device=device)
        each = torch.stack([norm.to(device, torch.float64) for norm in norms])
        return each.max() if largest else each.pow(kind).sum()

    def joined(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.maximum(one, other) if largest else one + other

    sharded = torch.stack([local(True, True), local(False, True)])
    if fsdp is not None:
        dist.all_reduce(sharded, operation, group=fsdp.process_group)
    slices, whole = joined(sharded, torch.stack([local(True, False), local(False, False)]))
    if state.tp_rank != 0:
        whole = torch.zeros_like(whole)
    total = joined(slices, whole)
    dist.all_reduce(total, operation, group=state.tp_process_group)
    return (total if largest else total.pow(1 / kind)).float()


def _wide(grad: torch.Tensor) -> torch.dtype:
    return torch.promote_types(grad.dtype, torch.float32)


def _pieces(model: nn.Module) -> Iterator[Piece]:
    sliced = {
        start + name
        for start, part in split_parts(model)
        for name, axis in part.whole_states.axes.items()
        if axis is not None
    }
    managed: set[nn.Parameter] = set()
    for name, unit in model.named_modules():
        handle: Any = getattr(unit, "_handle", None)
        if not isinstance(unit, FullyShardedDataParallel) or handle is None:
            continue
        path = _plain(name)
        names = [f"{path}.{own}" if path else own for own in handle.flat_param._fqns]
        managed.update(handle.flat_param._params or [], [handle.flat_param])
        for own, grad in zip(names, _grads(handle), strict=True):
            if grad is not None:
                yield Piece(grad, own in sliced, handle.uses_sharded_strategy)
    for name, parameter in model.named_parameters():
        if parameter not in managed and parameter.grad is not None:
            yield Piece(parameter.grad, _plain(name) in sliced, False)


def _grads(handle: Any) -> Iterator[torch.Tensor | None]:
    """Of each parameter of a unit of FSDP, what this rank has of its gradient."""
    flat = handle.flat_param
    if handle._use_orig_params:
        yield from (one.grad for one in flat._params)
        return
    for own in flat._shard_param_infos:
        if flat.grad is None or not own.in_shard:
            yield None
        else:
            yield flat.grad.view(-1)[own.offset_in_shard :][: own.numel_in_shard]


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)
