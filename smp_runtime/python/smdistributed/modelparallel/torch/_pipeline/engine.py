# SPDX-License-Identifier: Apache-2.0
"""The engine of this rank, which all steps run on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._objects.remote_tensors import RemoteTensor
from smdistributed.modelparallel.torch._session.devices import (
    check_own_gpu,
    tell_of_missing_gpu_code,
)
from smdistributed.modelparallel.torch.state_mod import state


def start_engine(
    run_module: Callable[..., tuple[bytes, list[Any]]],
    module_names: list[str],
    after_backward_outside: Callable[[], None],
    memory_in_use: Callable[[], int],
) -> _runtime.Engine:
    """Makes the engine of this rank. Collective over the pipeline group.

    ``after_backward_outside`` runs at the end of a backward that is part of no step;
    ``memory_in_use`` is asked twice a step.
    """
    session = state.require_initialized("the pipeline engine")
    cfg = state.cfg
    tell_of_missing_gpu_code(session.ranks.rank)
    check_own_gpu(
        session.store,
        session.ranks.rank,
        session.ranks.local_rank or 0,
        by_nccl=cfg.ddp and cfg.ddp_dist_backend in ("auto", "nccl"),
    )
    state.close_engine()  # left by a model whose construction failed
    engine = _runtime.Engine(
        session,
        cuda_device=torch.cuda.current_device() if torch.cuda.is_available() else -1,
        run_module=run_module,
        module_names=module_names,
        after_backward_outside=after_backward_outside,
        remote_tensor=functools.partial(RemoteTensor, _data_of),
        memory_in_use=memory_in_use,
    )
    offloads = cfg.offload_activations
    horizon = cfg.activation_loading_horizon
    state.run_on(engine, _runtime.ActivationStore(horizon) if offloads else None)
    return engine


def _data_of(remote_tensor: torch.Tensor) -> torch.Tensor:
    return state.require_engine().data_of(remote_tensor)
