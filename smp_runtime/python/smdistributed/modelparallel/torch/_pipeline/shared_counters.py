# SPDX-License-Identifier: Apache-2.0
"""Numbers that a module over several partitions counts in its forward: microbatches run at once, so
that one finds what another has counted, behind a call of another partition."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator

from torch import nn

from smdistributed.modelparallel.torch._pipeline.attribute_writes import Writes
from smdistributed.modelparallel.torch._session import log
from smdistributed.modelparallel.torch.ports import Model

_NUMBERS = (bool, int, float, complex)
_told: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def warn_of_counters(model: Model, accounts: Iterable[Writes]) -> None:
    """``accounts`` are those of the microbatches of a step, on the first rank of a pipeline. Tells
    of each module once."""
    for module, attribute in _found(model, accounts):
        names = {one: name for name, one in model.get_module().named_modules()}
        log.warning(
            f"module {names.get(module) or '(root)'} sets its attribute {attribute} to a number in "
            "its forward and calls modules of other partitions, while several microbatches run: "
            "behind such a call it may find what another one has set. Set it between steps, or in "
            "a module that is whole on one partition"
        )


def _found(model: Model, accounts: Iterable[Writes]) -> Iterator[tuple[nn.Module, str]]:
    for account in accounts:
        for (module, name), attribute in account.attributes.items():
            if module in _told or type(attribute.value) not in _NUMBERS:
                continue
            _told.add(module)
            if len(model.ownership.owners_in(module)) > 1:
                yield module, name
