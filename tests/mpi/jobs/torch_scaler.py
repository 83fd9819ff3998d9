# SPDX-License-Identifier: Apache-2.0
"""Torch's loss scale, by which those of the library are judged."""

from __future__ import annotations

import torch


class TorchScaler:
    """``torch.amp.GradScaler``, told of overflows by gradients that have them."""

    def __init__(self, scale: float, factor: float, window: int) -> None:
        self._weight = torch.nn.Parameter(torch.zeros(1))
        self._optimizer = torch.optim.SGD([self._weight], lr=1.0)
        self._scaler = torch.amp.GradScaler(
            "cpu",
            init_scale=scale,
            growth_factor=factor,
            backoff_factor=1 / factor,
            growth_interval=window,
        )
        self._scaler.scale(torch.zeros(1))  # makes the scaler's state

    def update(self, overflow: bool) -> float:
        """The scale from now on."""
        self._weight.grad = torch.full((1,), float("inf") if overflow else 0.0)
        self._scaler.unscale_(self._optimizer)
        self._scaler.update()
        return self._scaler.get_scale()

    def good_steps(self) -> int:
        """Good steps that count towards the scale's growth."""
        return int(self._scaler.state_dict()["_growth_tracker"])
