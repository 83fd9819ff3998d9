# SPDX-License-Identifier: Apache-2.0
"""``torch.sagemaker.transform``: a model with layers that are split over ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch.exceptions import SMPNotInitializedError
from smdistributed.sagemaker.state_handler import state
from smdistributed.sagemaker.tensor_parallel.replacement import split
from smdistributed.sagemaker.tensor_parallel.transformer import count_as_layers


def transform(
    model: nn.Module,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    config: Any = None,
    load_state_dict_from_rank0: bool = False,
    cp_comm_type: str = "p2p",
) -> nn.Module:
    """The model with layers that are split over each tensor-parallel group, and the values that it
    has: a :class:`~smdistributed.sagemaker.tensor_parallel.transformer.TransformerLMHead`. The
    model itself, where all degrees are 1; its layers count as ``TransformerLayer`` then. All ranks
    call it.

    Args:
        model: a causal model of Transformers: Llama, Mistral, Qwen2, Qwen3, Gemma or GPT-NeoX. On
            the meta device it stays there, for ``DelayedParamIniter``.
        device, dtype: to which parameters go.
        config: for experts, which are not offered.
        load_state_dict_from_rank0: rank 0 has the values; others hold slices of them once FSDP has
            wrapped the model with ``sync_module_states=True``.
        cp_comm_type: of context parallelism, which is not offered.

    Raises:
        SMPNotInitializedError: before ``init``.
        SMPConfigError: a model that FSDP has wrapped.
        SMPUnsupportedError: a model that cannot be split.
        SMPValidationError: ranks of a group gave different models, or values on some alone.
        NotImplementedError: experts (``config``).

    >>> transform(nn.Linear(2, 2))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    SMPNotInitializedError: torch.sagemaker.transform was called before torch.sagemaker.init()
    """
    if not state.is_initialized:
        raise SMPNotInitializedError(
            "torch.sagemaker.transform was called before torch.sagemaker.init(); call init first"
        )
    if config is not None:
        raise NotImplementedError(
            "torch.sagemaker.transform with a MoEConfig is not there: expert parallelism is not "
            "offered; leave config out"
        )
    if state.tp_size > 1:
        model = split(model, load_state_dict_from_rank0)
    else:
        count_as_layers(model)
    if device is not None or dtype is not None:
        model.to(device=device, dtype=dtype)
    return model
