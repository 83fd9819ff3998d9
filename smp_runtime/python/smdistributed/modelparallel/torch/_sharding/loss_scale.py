# SPDX-License-Identifier: Apache-2.0
"""The loss scale of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
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
