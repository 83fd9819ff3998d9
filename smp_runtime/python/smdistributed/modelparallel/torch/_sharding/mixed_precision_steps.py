# SPDX-License-Identifier: Apache-2.0
"""The loss scale of an optimizer, and its steps over masters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._sharding.master_parameters import MasterParameters
from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.optimizers import FusedAdam
from smdistributed.modelparallel.torch.state_mod import state

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


class MixedPrecisionSteps:
    """One optimizer's; without masters only a loss scale of 1."""

    def __init__(self, static: float, dynamic: bool, given: Mapping[str, Any]) -> None:
        self.scaler = make_scaler(static, dynamic, given)
        self._steps: _runtime.MixedPrecisionSteps | None = None

    def attach(self, sharded: ShardedModel, masters: MasterParameters) -> None:
        cfg = state.cfg
        self._steps = _runtime.MixedPrecisionSteps(
            session=state.require_initialized("smp.DistributedOptimizer"),
            store=sharded.store,
            masters=masters.core,
            scaler=self.scaler,
            scaled=cfg.fp16,
            clipping=cfg.sdp_gradient_clipping if sharded.plan.on_demand else 0.0,
        )

    @property
    def scale(self) -> float:
        return self.scaler.scale

    @property
    def overflow(self) -> bool:
        return self._steps is not None and self._steps.overflow

    @property
    def last_norm(self) -> float | None:
        return None if self._steps is None else self._steps.last_norm

    def detach(self) -> None:
        """Lets the session go, which has ended."""
        self._steps = None

    @property
    def steps(self) -> _runtime.MixedPrecisionSteps:
        state.require_initialized("the optimizer's masters")
        assert self._steps is not None
        return self._steps

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        factor = self.steps.begin_update()
        if factor is None:
            return
        if isinstance(optimizer, FusedAdam):
            optimizer.gradient_factor = factor
            try:
                optimizer.step()
            finally:
                optimizer.gradient_factor = 1.0
        else:
            self.steps.apply_factor()
            optimizer.step()
        self.steps.end_update()
