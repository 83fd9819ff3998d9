# SPDX-License-Identifier: Apache-2.0
"""torch's functions that clip gradients or measure them, in a job whose gradients are elsewhere."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import clip_grad

from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.state_mod import holding, state

_NORM = "optimizer.clip_master_grads(max_norm)"
#: And what to call in place of each; the deprecated clip_grad_norm calls clip_grad_norm_.
_INSTEAD = {
    "clip_grad_norm_": _NORM,
    "_clip_grads_with_norm_": _NORM,
    "clip_grad_value_": "optimizer.clip_master_values(clip_value)",
    "_get_total_norm": f"{_NORM} with max_norm=float('inf'), which returns the norm",
}
#: Takes the name of a function and the tensors that it was given.
Check = Callable[[str, list[torch.Tensor]], None]


class ClippingWatch:
    """From ``open`` to ``close`` torch's functions call ``check`` first, however a script got hold
    of them: what is exchanged is what they call, not they."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._changed: list[tuple[types.CellType, Any]] = []
        self._is_inside = False  # inside one function, which calls others

    def open(self) -> None:
        for name in _INSTEAD:
            for cell in getattr(clip_grad, name).__closure__ or ():
                function = cell.cell_contents
                if isinstance(function, types.FunctionType):
                    self._changed.append((cell, function))
                    cell.cell_contents = self._checked(name, function)

    def close(self) -> None:
        for cell, function in self._changed:
            cell.cell_contents = function
        self._changed.clear()

    def _checked(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return function(tensors, *args, **kwargs)
            given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self._check(name.removeprefix("_"), given)
            with holding(self, _is_inside=True):
                return function(given, *args, **kwargs)

        return checked


def may_clip(name: str, given: list[torch.Tensor]) -> bool:
    """True if none of ``given`` is a master, or else this rank's masters are all that count, and
    their gradients are those of the loss itself."""
    masters = [one.masters for one in state.optimizers if one.masters is not None]
    leaves = {leaf for one in masters for leaf in one.leaves}
    leaves.update({leaf.grad for leaf in leaves if leaf.grad is not None})
    in_parts = ranks.size() > 1 and name != "clip_grad_value_"
    return leaves.isdisjoint(given) or not (in_parts or state.cfg.fp16)


def refusal(name: str, kind_of_state: str) -> SMPUnsupportedError:
    """Error for the function ``name``, where masters are stepped."""
    instead = _INSTEAD.get(name) or _INSTEAD[f"_{name}"]
    return SMPUnsupportedError(
        f"torch.nn.utils.{name} has nothing to clip: with {kind_of_state} the gradients are those "
        f"of 32-bit master parameters; call {instead} on all ranks"
    )
