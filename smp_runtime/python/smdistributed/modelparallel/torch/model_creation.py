# SPDX-License-Identifier: Apache-2.0
"""Contexts in which a script builds its model. What they switch on is not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.not_yet import refuse, unavailable_function

_TENSOR = "tensor parallelism"
_DELAYED = "delayed parameter initialization"


@contextmanager
def tensor_parallelism(enabled: bool = True, **_config: Any) -> Iterator[None]:
    """Marks modules created inside for tensor parallelism. Without effect on one tensor rank.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> with smp.tensor_parallelism():
    ...     layer = torch.nn.Linear(2, 2)
    >>> smp.shutdown()
    """
    if enabled and ranks.tp_size() > 1:
        refuse("smp.tensor_parallelism", _TENSOR)
    yield


def set_tensor_parallelism(_module: torch.nn.Module, enabled: bool = True, **_config: Any) -> None:
    """Marks a module and what is below it. Without effect on one tensor rank."""
    if enabled and ranks.tp_size() > 1:
        refuse("smp.set_tensor_parallelism", _TENSOR)


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """With ``enabled=False`` nothing; else not there yet."""
    if enabled:
        refuse("smp.delay_param_initialization", _DELAYED)
    yield


@contextmanager
def model_creation(
    tensor_parallelism: bool = False,
    dtype: torch.dtype | None = None,
    **_tensor_parallel_config: Any,
) -> Iterator[None]:
    """``tensor_parallelism`` and a default type of new parameters in one.

    >>> import smdistributed.modelparallel.torch as smp
    >>> with smp.model_creation(dtype=torch.float64):
    ...     torch.nn.Linear(2, 2).weight.dtype
    torch.float64
    >>> torch.get_default_dtype()
    torch.float32
    """
    if tensor_parallelism and ranks.tp_size() > 1:
        refuse("smp.model_creation", _TENSOR)
    before = torch.get_default_dtype()
    if dtype is not None:
        torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


tp_register = unavailable_function("smp.tp_register", _TENSOR)
tp_register_with_module = unavailable_function("smp.tp_register_with_module", _TENSOR)
set_activation_checkpointing = unavailable_function(
    "smp.set_activation_checkpointing", "activation checkpointing"
)
save_checkpoint = unavailable_function("smp.save_checkpoint", "saving a job's checkpoint folder")
resume_from_checkpoint = unavailable_function(
    "smp.resume_from_checkpoint", "resuming from a checkpoint folder"
)
