# SPDX-License-Identifier: Apache-2.0
"""``torch.sagemaker.transform``: a model with layers that are split over ranks."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from smdistributed.modelparallel.torch.exceptions import SMPNotInitializedError
from smdistributed.sagemaker.state_handler import state

Model = TypeVar("Model", bound=nn.Module)


def transform(
    model: Model,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    config: Any = None,
    load_state_dict_from_rank0: bool = False,
    cp_comm_type: str = "p2p",
) -> Model:
    """The model itself, where all degrees are 1.

    Raises:
        SMPNotInitializedError: before ``init``.
        NotImplementedError: tensor parallelism, or experts (``config``).

    >>> transform(nn.Linear(2, 2))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    SMPNotInitializedError: torch.sagemaker.transform was called before torch.sagemaker.init()
    """
    if not state.is_initialized:
        raise SMPNotInitializedError(
            "torch.sagemaker.transform was called before torch.sagemaker.init()"
        )
    if state.tp_size > 1:
        raise NotImplementedError(
            f"torch.sagemaker.transform for tensor_parallel_degree {state.tp_size} is not there; "
            "expected 1"
        )
    if config is not None:
        raise NotImplementedError(
            "torch.sagemaker.transform with a MoEConfig is not there: expert parallelism is not "
            "offered; leave config out"
        )
    if device is not None or dtype is not None:
        model.to(device=device, dtype=dtype)
    return model
