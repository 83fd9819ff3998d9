# SPDX-License-Identifier: Apache-2.0
"""Clipping of gradients by the norm over all ranks that hold a part of the model."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper
from torch.distributed.fsdp import FullyShardedDataParallel

from smdistributed.sagemaker.tensor_parallel import split_norms


def clip_grad_norm_(model: nn.Module, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scales the gradients so that their norm is at most ``max_norm``.

    Args:
        model: as FSDP has wrapped it, also inside ``offload_wrapper``; any other model is taken
            as one that this rank has all of.

    Returns:
        The norm before, over all shards and slices.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> layer.weight.grad = torch.tensor([[3.0]])
    >>> clip_grad_norm_(layer, 1.0), layer.weight.grad.round()
    (tensor(3.), tensor([[1.]]))
    """
    inner = model
    while isinstance(inner, ActivationWrapper):
        inner = inner._checkpoint_wrapped_module
    if isinstance(inner, FullyShardedDataParallel):  # a patch of its own for split models
        return inner.clip_grad_norm_(max_norm, norm_type)
    if any(isinstance(part, FullyShardedDataParallel) for part in inner.modules()):
        raise TypeError(
            f"clip_grad_norm_ got a {type(inner).__name__} with parts that FSDP wraps; expected "
            "what FullyShardedDataParallel returned, or that inside offload_wrapper"
        )
    if split_norms.has_slices(inner):
        return split_norms.clip(inner, max_norm, norm_type)
    return nn.utils.clip_grad_norm_(inner.parameters(), max_norm, norm_type)
