# SPDX-License-Identifier: Apache-2.0
"""A name of SMP 2.0 for gradients of tensor-parallel layers."""

from __future__ import annotations

from typing import Any, NoReturn


def register_tp_processing_pre_comm_hook(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: there are no such layers."""
    raise NotImplementedError(
        "torch.sagemaker.distributed.fsdp.fully_sharded_data_parallel."
        "register_tp_processing_pre_comm_hook is not there; without tensor parallelism leave the "
        "call out"
    )
