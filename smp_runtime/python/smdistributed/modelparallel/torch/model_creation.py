# SPDX-License-Identifier: Apache-2.0
"""Contexts in which a script builds its model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.delayed_parameters import delayed
from smdistributed.modelparallel.torch.not_yet import refuse, unavailable_function
from smdistributed.modelparallel.torch.state_mod import state

_TENSOR = "tensor parallelism"


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
    """Parameters made inside have no storage; they are initialised on their owner, when the model
    is partitioned, with the values that they would have had.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> with smp.delay_param_initialization():
    ...     layer = torch.nn.Linear(2, 2)
    >>> layer.weight.is_meta
    True
    >>> smp.DistributedModel(layer).get_module().weight.is_meta
    False
    >>> smp.shutdown()
    """
    if not enabled:
        yield
        return
    state.require_initialized("smp.delay_param_initialization")
    with delayed():
        yield


@contextmanager
def model_creation(
    tensor_parallelism: bool = False,
    dtype: torch.dtype | None = None,
    **_tensor_parallel_config: Any,
) -> Iterator[None]:
    """``tensor_parallelism``, a default type of new parameters, and, if the job is configured with
    ``delayed_parameter_initialization``, ``delay_param_initialization`` in one.

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
    delay = state.initialized and bool(state.cfg.delayed_parameter_initialization)
    try:
        with delay_param_initialization(delay):
            yield
    finally:
        torch.set_default_dtype(before)


tp_register = unavailable_function("smp.tp_register", _TENSOR)
tp_register_with_module = unavailable_function("smp.tp_register_with_module", _TENSOR)
