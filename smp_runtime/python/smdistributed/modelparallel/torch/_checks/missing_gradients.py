# SPDX-License-Identifier: Apache-2.0
"""Parameters without a gradient in an update of masters, which are flat: their part of it is zeros,
where PyTorch leaves a parameter without a gradient as it is."""

from __future__ import annotations

import weakref

import torch

from smdistributed.modelparallel.torch._checks.parameter_names import listed
from smdistributed.modelparallel.torch._sharding.precision import kind_of_state
from smdistributed.modelparallel.torch.state_mod import state


class MissingGradients:
    """Finds parameters that had gradients in an earlier update of the job and have none now."""

    def __init__(self) -> None:
        self._had: set[int] = set()
        # Optimizers of which every parameter had a gradient once.
        self._complete: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    def said_of(self, optimizer: torch.optim.Optimizer) -> str | None:
        """Warning, before ``optimizer`` steps masters, of parameters that had gradients in an
        earlier update and have none now."""
        wrapper = state.optimizers.wrapper_of(optimizer)
        masters = None if wrapper is None else wrapper.masters
        if masters is None or not masters.sharded.store.has_gradients:
            return None
        sharded = masters.sharded
        missing = set(sharded.store.unreached())
        lost = sorted(missing & self._had & masters.group_of.keys())
        if optimizer not in self._complete:
            self._had |= masters.group_of.keys() - missing
            if self._had.issuperset(masters.group_of):
                self._complete.add(optimizer)
        if not lost:
            return None
        return (
            f"{listed([sharded.names[number] for number in lost])} had gradients before, and no "
            f"backward of this step came to them on this rank: with {kind_of_state()} the update "
            "takes zeros for them, so that momentum and weight decay change them still, where "
            "plain PyTorch leaves a parameter without a gradient as it is. Give them an optimizer "
            "of their own, and step it only behind steps that use them"
        )
