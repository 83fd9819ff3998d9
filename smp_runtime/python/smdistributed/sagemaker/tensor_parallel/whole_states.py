# SPDX-License-Identifier: Apache-2.0
"""Values of a split model under the names, and in the shapes, that the given model had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smdistributed.modelparallel.torch._slices.parameter_slices import slice_of, whole_of
from smdistributed.modelparallel.torch.ports import Translation


@dataclass(frozen=True)
class WholeStates:
    """Two-way translation between this rank's slices and whole values of Transformers."""

    axes: Mapping[str, int | None]
    """Along which each value is sliced, by its name here; None: all ranks hold the whole."""
    from_plain: Translation
    to_plain: Translation

    def gathered(self, slices: Mapping[str, Any], keep: bool) -> dict[str, Any]:
        """Whole values, by Transformers' names; none where this rank does not ``keep`` them, so
        that it holds one at a time. Collective over the tensor-parallel group."""
        whole: dict[str, Any] = {}
        for name, piece in slices.items():
            value = whole_of(piece, self.axes.get(name))
            if keep:
                whole[name] = value
        return self.to_plain(whole)

    def sliced(self, whole: Mapping[str, Any]) -> dict[str, Any]:
        """This rank's slices of what ``gathered`` gives. Values by names of here stay."""
        if whole.keys() & self.axes.keys() - {"lm_head.weight"}:
            return dict(whole)
        return {
            name: slice_of(value, self.axes.get(name))
            for name, value in self.from_plain(whole).items()
        }
