# SPDX-License-Identifier: Apache-2.0
"""Mixed precision over partitions."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.amp.grad_scaler import GradScaler as _TorchScaler

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPValidationError
from smdistributed.modelparallel.torch.state_mod import holding, state


def check_scaler(scaler: _TorchScaler | None = None) -> None:
    """Raises SMPValidationError if ``scaler``, or the one that asks, would not tell the other ranks
    of the model of an overflow."""
    model = state.model
    alone = ranks.mp_size() == 1 and (model is None or model.sharded is None)
    if not (alone or state.is_scaling or isinstance(scaler, GradScaler)):
        raise SMPValidationError(
            "torch's GradScaler skips an update on the rank that sees an overflow, and the other "
            "ranks of this model would go on; use smp.amp.GradScaler"
        )


class GradScaler(_TorchScaler):
    """``torch.amp.GradScaler`` for a model over partitions: an overflow on one of them skips the
    step on all, so that all ranks keep one scale.

    ``scale`` is called in a step, where it runs on rank 0 of a pipeline; ``step`` and ``update`` on
    all ranks.

    Args:
        init_scale, growth_factor, backoff_factor, growth_interval, enabled: as torch's.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> scaler = smp.amp.GradScaler(init_scale=8.0)
    >>> scaler.scale(torch.tensor(2.0)).item()
    16.0
    >>> smp.shutdown()
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda" if torch.cuda.is_available() else "cpu", *args, **kwargs)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients of this rank by the scale, and tells and hears of overflows.

        All ranks of a copy of the model call it.
        """
        if not self.is_enabled():
            return
        self._begin()
        try:
            super().unscale_(optimizer)
        except ValueError as error:
            if "FP16" not in str(error):
                raise
            raise SMPValidationError(
                f"GradScaler.unscale_: {error} The model's parameters are float16, whose gradients "
                "lose what a scale would save. Keep them in float32 and use torch.autocast, or set "
                '"fp16": true in mp_parameters, which has 32-bit masters and a scale of its own'
            ) from error
        found = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        device = self._own_device()
        # Infinite or not, and whether there is any gradient: a rank may own no parameter.
        seen = torch.zeros(2, device=device)
        for flag in found.values():
            seen = torch.maximum(
                seen, torch.stack([flag.to(device).reshape(()), torch.ones_like(seen[0])])
            )
        # Ranks that share one state see different parts of it.
        shared = state.model is not None and state.model.sharded is not None
        if ranks.mp_size() > 1 or (shared and ranks.size() > 1):
            session = state.require_initialized("GradScaler")
            group = session.groups.internal_group("WORLD" if shared else "MP")
            session.all_reduce("GradScaler.unscale_", seen, group, dist.ReduceOp.MAX)
        if not seen[1]:
            raise SMPStepError(
                "GradScaler.unscale_: no parameter of this optimizer has a gradient, on any rank: "
                "it was made from other parameters than the model's, or no step ran "
                "model.backward(scaler.scale(loss)) since zero_grad()"
            )
        for place in list(found) or [device]:
            found[place] = seen[0].to(place)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Steps ``optimizer``, on all ranks or, after an overflow on one of them, on none.

        Raises SMPStepError where no parameter of it has a gradient on any rank.
        """
        if self.is_enabled():
            self._begin()
        with holding(state, is_scaling=True):
            return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Adapts the scale, alike on all ranks."""
        if self.is_enabled():
            self._begin()
        super().update(new_scale)

    def _begin(self) -> None:
        # Torch begins in scale(), which only the ranks call that run the step's function.
        if self._scale is None:
            self._lazy_init_scale_growth_tracker(self._own_device())

    def _own_device(self) -> torch.device:
        return torch.device(self._device)
