# SPDX-License-Identifier: Apache-2.0
"""A warning where a script takes one rank's part of a model for the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from smdistributed.modelparallel.torch._ranks import log
from smdistributed.modelparallel.torch.state_mod import holding


class PartWarning:
    """Warns, once, of ``state_dict()`` of ``module`` itself while ``part`` names what the values
    here are a part by; it is asked at the call."""

    def __init__(self, module: nn.Module, part: Callable[[], str]) -> None:
        self._part = part
        self._silent = False
        module.register_state_dict_pre_hook(self)

    def __call__(self, *_: Any) -> None:
        if self._silent or not (part := self._part()):
            return
        self._silent = True
        log.warning(
            "state_dict() of model.get_module() has only this rank's part of the values, with "
            f"{part}. Save model.state_dict(), which all ranks call, or use smp.save_checkpoint"
        )

    def unheard(self) -> AbstractContextManager[None]:
        """For the library's own calls."""
        return holding(self, _silent=True)

    # A copy of the module, in memory or in a file that loads without this library, has a hook in
    # this one's place that ignores its arguments.

    def __deepcopy__(self, memo: Any) -> Callable[..., Any]:
        return "".format

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, ("", "format")
