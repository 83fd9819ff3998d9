# SPDX-License-Identifier: Apache-2.0
"""``parameter.grad`` in a job whose gradients are those of 32-bit masters.

It would be None between a step and the update, and what a script does to it there, such as to scale
or to measure it, would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch.exceptions import SMPStepError
from smdistributed.modelparallel.torch.state_mod import state


class HeldGradients:
    """From ``open`` to ``close`` an access to ``grad`` of a parameter of ``sharded()`` whose
    gradient the masters have raises SMPStepError."""

    def __init__(self, sharded: Callable[[], ShardedModel | None]) -> None:
        self._sharded = sharded

    def open(self) -> None:
        plain: Any = torch.Tensor.grad

        def get(parameter: nn.Parameter) -> torch.Tensor | None:
            gradient: torch.Tensor | None = plain.__get__(parameter)
            if gradient is None:
                self._check(parameter, "read")
            return gradient

        def change(parameter: nn.Parameter, gradient: torch.Tensor | None) -> None:
            self._check(parameter, "set")
            plain.__set__(parameter, gradient)

        nn.Parameter.grad = property(get, change, plain.__delete__)  # type: ignore[assignment]

    def close(self) -> None:
        if "grad" in vars(nn.Parameter):
            del nn.Parameter.grad

    def _check(self, parameter: nn.Parameter, what: str) -> None:
        sharded = self._sharded()
        if sharded is None or not parameter.requires_grad:
            return
        number = sharded.number_of.get(parameter)
        if number is None or not state.optimizers.has_gradient(sharded.store, number):
            return
        raise SMPStepError(
            f"the gradient of parameter {sharded.names[number]} was {what}, and with "
            f"{kind_of_state()} gradients are those of 32-bit masters: change them as .grad of the "
            "parameters in optimizer.param_groups, of which each rank has a part, or call "
            "optimizer.clip_master_grads(max_norm), which returns their norm, or "
            "optimizer.zero_grad()"
        )


def kind_of_state() -> str:
    """Why the model's parameters are no longer what is trained, in the words of the settings."""
    cfg = state.cfg
    if cfg.sharded_data_parallel_degree > 1:
        return f"sharded_data_parallel_degree={cfg.sharded_data_parallel_degree}"
    if cfg.shard_optimizer_state:
        return "shard_optimizer_state"
    return "bf16" if cfg.bf16 else "fp16"
