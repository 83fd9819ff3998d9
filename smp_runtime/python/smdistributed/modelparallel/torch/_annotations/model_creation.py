# SPDX-License-Identifier: Apache-2.0
"""Contexts in which a script builds its model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from smdistributed.modelparallel.torch._annotations.tensor_annotations import (
    tensor_parallelism as tensor_context,
)
from smdistributed.modelparallel.torch._delayed.delayed_parameters import delayed
from smdistributed.modelparallel.torch.state_mod import state


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Parameters made inside have no storage; they are initialised on their owner, when the model
    is partitioned, with the values that they would have had.

    Raises SMPUnsupportedError where the construction reads values that are not there yet.

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
    **tensor_parallel_config: Any,
) -> Iterator[None]:
    """``tensor_parallelism``, a default type of new parameters, and, if the job is configured with
    ``delayed_parameter_initialization``, ``delay_param_initialization`` in one.

    Args:
        tensor_parallelism: annotate modules made inside to be split.
        dtype: of parameters made inside; torch's default unless given.
        tensor_parallel_config: keywords for ``tensor_parallelism``.

    >>> import smdistributed.modelparallel.torch as smp
    >>> with smp.model_creation(dtype=torch.float64):
    ...     torch.nn.Linear(2, 2).weight.dtype
    torch.float64
    >>> torch.get_default_dtype()
    torch.float32
    """
    marking = (
        tensor_context(**tensor_parallel_config) if tensor_parallelism else contextlib.nullcontext()
    )
    delay = state.initialized and bool(state.cfg.delayed_parameter_initialization)
    with default_type(dtype), delay_param_initialization(delay), marking:
        yield


@contextmanager
def default_type(dtype: torch.dtype | None) -> Iterator[None]:
    """Inside, ``dtype`` is torch's default for new parameters; None changes nothing."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
