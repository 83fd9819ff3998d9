# SPDX-License-Identifier: Apache-2.0
"""16-bit computing (``fp16``, ``bf16``): the edge of the model, where types change, and loss
scales."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.state_mod import state


def computing_type() -> torch.dtype | None:
    """The 16-bit type in which modules compute; None where they keep their own.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init({"bf16": True})
    >>> computing_type()
    torch.bfloat16
    >>> smp.shutdown()
    """
    if state.cfg.fp16:
        return torch.float16
    return torch.bfloat16 if state.cfg.bf16 else None


def begins_in_fp16() -> bool:
    """True if distributed modules are float16 from the start (``fp16_params``). Not with ``bf16``:
    its masters would begin with values rounded to a type that nothing of the job computes in.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init({"bf16": True, "fp16_params": True})
    >>> begins_in_fp16()
    False
    >>> smp.shutdown()
    """
    return bool(state.cfg.fp16_params) and not state.cfg.bf16


class FP16_Module(nn.Module):  # noqa: N801 - the name that scripts know from Apex
    """The level at which floating-point inputs become 16-bit, and outputs 32-bit again.

    >>> layer = FP16_Module(nn.Linear(2, 1), torch.bfloat16)
    >>> layer.begin()
    >>> layer.module.to(torch.bfloat16)(torch.ones(1, 2).bfloat16()).dtype
    torch.bfloat16
    >>> layer(torch.ones(1, 2)).dtype
    torch.float32
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self._dtype = dtype
        self._active = False

    def begin(self) -> None:
        """The parameters are 16-bit from now on; buffers become so here."""
        self._active = True
        for module in self.module.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.is_floating_point():
                    module._buffers[name] = buffer.to(self._dtype)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self._active:  # a trace, before parameters are where they belong
            return self.module(*args, **kwargs)
        args, kwargs = _cast((args, kwargs), torch.float32, self._dtype)
        return _cast(self.module(*args, **kwargs), self._dtype, torch.float32)


def _cast(tree: Any, wide: torch.dtype, narrow: torch.dtype) -> Any:
    """Tensors of the first type, and of the other floating types that stand for it, cast."""
    given = (torch.float32, torch.float64) if wide is torch.float32 else (wide,)
    return tree_map_only(torch.Tensor, lambda t: t.to(narrow) if t.dtype in given else t, tree)


def kind_of_state() -> str:
    """Why the model's parameters are no longer what is trained, in the words of the settings."""
    cfg = state.cfg
    if cfg.sharded_data_parallel_degree > 1:
        return f"sharded_data_parallel_degree={cfg.sharded_data_parallel_degree}"
    if cfg.shard_optimizer_state:
        return "shard_optimizer_state"
    return "bf16" if cfg.bf16 else "fp16"


_SCALE_ARGUMENTS = {
    "init_scale": "scale",
    "scale_factor": "factor",
    "scale_window": "window",
    "min_scale": "least",
    "delayed_shift": "delayed_shift",
    "consecutive_hysteresis": "consecutive_hysteresis",
}


def make_scaler(static: float, dynamic: bool, given: Mapping[str, Any]) -> _runtime.LossScaler:
    """The scaler that ``DistributedOptimizer``'s arguments ask for; of scale 1 without ``fp16``.

    Raises SMPValidationError for names that are not those of a loss scale.
    """
    arguments = {**given, **(given.get("dynamic_loss_args") or {})}
    arguments.pop("dynamic_loss_args", None)
    unknown = sorted(set(arguments) - set(_SCALE_ARGUMENTS))
    if unknown:
        raise SMPValidationError(
            f"smp.DistributedOptimizer got unknown arguments {unknown}; a loss scale has "
            f"{', '.join(_SCALE_ARGUMENTS)}"
        )
    if not state.cfg.fp16:
        return _runtime.LossScaler(dynamic=False, scale=1.0)
    if not dynamic:
        return _runtime.LossScaler(dynamic=False, scale=static)
    named = {_SCALE_ARGUMENTS[name]: value for name, value in arguments.items()}
    return _runtime.LossScaler(dynamic=True, **{"scale": 2.0**32, **named})
