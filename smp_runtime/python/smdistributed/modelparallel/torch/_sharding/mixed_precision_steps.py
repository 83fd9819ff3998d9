# SPDX-License-Identifier: Apache-2.0
"""The steps of an optimizer over masters: unscale, look for overflows, clip, update, publish."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._sharding.master_parameters import (
    MasterParameters,
    agree_on_overflow,
)
from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch.exceptions import SMPStepError, SMPValidationError
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
    """One optimizer's; without masters only a loss scale of 1.

    Gradients are read once to be measured. The loss scale and clipping make one factor, which is
    multiplied in once, where the optimizer can by its own kernel.
    """

    def __init__(self, static: float, dynamic: bool, given: Mapping[str, Any]) -> None:
        self.scaler = make_scaler(static, dynamic, given)
        self.overflow = False
        self.last_norm: float | None = None
        self._sharded: ShardedModel | None = None
        self._masters: MasterParameters | None = None
        self._measured = False
        self._factor = 1.0
        """What gradients are still to be multiplied by."""

    def attach(self, sharded: ShardedModel, masters: MasterParameters) -> None:
        self._sharded, self._masters = sharded, masters

    @property
    def scale(self) -> float:
        return self.scaler.scale

    def begin(self) -> None:
        """Gradients are new, or gone."""
        self._measured = False
        self._factor = 1.0

    def unscale(self) -> None:
        """Gradients become those of the loss itself, once; an overflow on one rank is on all."""
        self._measure()
        self._apply_factor()

    def _measure(self) -> None:
        sharded, masters = self._parts()
        if self._measured or not sharded.has_gradients:
            return
        self.overflow = False
        if state.cfg.fp16:
            self._factor = 1.0 / self.scaler.scale
        norm = masters.norm(2) * self._factor
        if state.cfg.fp16:
            self.overflow = agree_on_overflow(not math.isfinite(norm))
        elif not math.isfinite(norm):
            self._name_bad_gradient()
        self.last_norm = -1.0 if self.overflow else norm
        self._measured = True  # not after an error: who steps once more gets it once more

    def _apply_factor(self) -> None:
        factor, self._factor = self._factor, 1.0
        self._parts()[1].scale_gradients(factor)

    def _name_bad_gradient(self) -> None:
        sharded, _ = self._parts()
        name = sharded.store.not_finite()
        raise SMPStepError(
            f"the gradient of parameter {name} has NaN or infinity; the step was not made"
            if name
            else "a gradient on another rank of this copy of the model has NaN or infinity; the "
            "step was not made, and that rank names the parameter"
        )

    def clip(self, max_norm: float, norm_type: float) -> float:
        _, masters = self._parts()
        self._measure()
        if self.overflow:
            return -1.0
        norm = masters.norm(float(norm_type)) * self._factor
        if norm_type == 2:
            self.last_norm = norm
        self._factor *= min(1.0, max_norm / (norm + 1e-6))
        self._apply_factor()
        return norm

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        sharded, _ = self._parts()
        if sharded.unfinished:
            raise SMPStepError(
                "optimizer.step() was called before the last of backward_passes_per_step steps: "
                "gradients are not averaged over replicas yet"
            )
        if not sharded.has_gradients:
            return  # as any optimizer without gradients
        # Also where nothing clips: what is not finite would stay in masters and moments.
        self._measure()
        if self.overflow:
            self.scaler.update(True)
            return
        clipping = state.cfg.sdp_gradient_clipping if sharded.plan.on_demand else 0.0
        if clipping > 0 and self.last_norm is not None:
            self._factor *= min(1.0, clipping / (self.last_norm + 1e-6))
        self._update(optimizer)
        sharded.store.publish()
        self.scaler.update(False)

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        if not isinstance(optimizer, FusedAdam):
            self._apply_factor()
            optimizer.step()
            return
        optimizer.gradient_factor = self._factor
        try:
            optimizer.step()
        finally:
            optimizer.gradient_factor = 1.0

    def _parts(self) -> tuple[ShardedModel, MasterParameters]:
        assert self._sharded is not None and self._masters is not None
        return self._sharded, self._masters
