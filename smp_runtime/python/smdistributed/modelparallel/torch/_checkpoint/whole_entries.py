# SPDX-License-Identifier: Apache-2.0
"""Entries of the whole model, gathered on global rank 0 one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from smdistributed.modelparallel.torch._checkpoint.plain_values import PlainValues
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._slices.parameter_slices import whole_of
from smdistributed.modelparallel.torch._state.model_names import tied_names
from smdistributed.modelparallel.torch._state.tensor_states import EntryLayout
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPValidationError
from smdistributed.modelparallel.torch.model import DistributedModel


class WholeEntries(PlainValues):
    """Those of the job's model: its entries, or what is kept for each. ``layouts`` are those of all
    pipeline stages, ``own`` what this rank has; errors begin with ``what``."""

    def __init__(
        self,
        what: str,
        model: DistributedModel,
        layouts: Mapping[str, EntryLayout],
        own: Mapping[str, Any],
    ) -> None:
        self._what, self._layouts, self._own = what, layouts, own
        self._here = ranks.pp_rank() if model.partitioned else 0
        tied = {name: first for name, first in tied_names(model.get_module()).items()
                if name in layouts and first in layouts}  # fmt: skip
        likes = {name: one.like() for name, one in layouts.items() if name not in tied}
        translations = model.translations()
        super().__init__(likes, tied, translations[0][0] if translations else dict,
                         model.plain.names)  # fmt: skip
        self.largest_bytes = 0
        """Most that this rank held at once beyond its own state."""

    def value(self, name: str) -> torch.Tensor | None:
        """One of the entries, on global rank 0; None elsewhere. All ranks get the same names in the
        same order."""
        whole = {source: self._whole(source) for source in self.entries[name].sources}
        if ranks.rank() != 0:
            return None
        sources = {source: value for source, value in whole.items() if value is not None}
        made = self.made(name, sources)
        held = sum(value.nbytes for value in sources.values())
        self._note(held if self.entries[name].is_source else held + made.nbytes)
        return made

    def _whole(self, source: str) -> torch.Tensor | None:
        """One of the model's entries on global rank 0: from the tensor ranks of its stage in the
        first copy of the model. Of shards all copies take part."""
        layout = self._layouts[source]
        is_here = layout.stage == self._here
        value: torch.Tensor | None = self._own[source] if is_here else None
        self._note(0)
        if ranks.rdp_rank() != 0:
            return None
        if value is not None:
            value = whole_of(value, layout.axis)
            self._note(value.nbytes)
        if ranks.tp_rank() != 0 or layout.stage == 0:
            return value if ranks.rank() == 0 else None
        if value is not None:
            comm.send_tensor(self._what, value, 0, comm.RankType.PP_RANK)
        elif ranks.rank() == 0:
            stage = layout.stage
            return comm.receive_tensor(self._what, layout.like(), stage, comm.RankType.PP_RANK)
        return None

    def _note(self, bytes_held: int) -> None:
        bytes_held += getattr(self._own, "held_bytes", 0)
        self.largest_bytes = max(self.largest_bytes, bytes_held)


def check_model(what: str, model: Any) -> None:
    """Raises what the function ``what`` raises for no model of the job, or one without values."""
    if not isinstance(model, DistributedModel):
        raise SMPValidationError(
            f"{what} got {type(model).__name__}; expected a smp.DistributedModel"
        )
    module = model.get_module()
    if not model.partitioned and any(p.is_meta for p in (*module.parameters(), *module.buffers())):
        raise SMPCheckpointError(
            f"{what} finds no values: the model's parameters are delayed, and get them in the "
            "first step; save it after that"
        )


def whole_layouts(model: DistributedModel, *, of_masters: bool = False) -> dict[str, EntryLayout]:
    """Layouts of the model's entries, as the ranks say that have them; ``of_masters`` is as of
    ``entry_layouts``. Collective over the pipeline.

    Raises SMPCheckpointError, on all of its ranks, for an entry that is no tensor.
    """
    here = model.entry_layouts(of_masters=of_masters)
    told = comm.allgather(here, comm.CommGroup.PP_GROUP) if model.partitioned else [here]
    layouts = {key: told[one.stage][key] for key, one in here.items() if key in told[one.stage]}
    for key, layout in layouts.items():
        if layout.shape is None:
            raise SMPCheckpointError(
                f"the entry {key} of the model's state dict is no tensor, and the files hold "
                "tensors alone; save the model with smp.save_checkpoint(..., partial=False)"
            )
    return layouts
