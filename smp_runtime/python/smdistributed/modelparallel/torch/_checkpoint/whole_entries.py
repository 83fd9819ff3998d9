# SPDX-License-Identifier: Apache-2.0
"""Entries of the whole model, gathered on global rank 0 one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from smdistributed.modelparallel.torch._checkpoint.saved_states import with_tied
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._sharding.unit_entries import UnitEntries
from smdistributed.modelparallel.torch._sharding.value_sources import ValueSources, place_of
from smdistributed.modelparallel.torch._slices.parameter_slices import whole_of
from smdistributed.modelparallel.torch._state.model_names import tied_names
from smdistributed.modelparallel.torch._state.tensor_states import EntryLayout
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.ports import Translation


@dataclass(frozen=True)
class PlainEntry:
    """An entry under its name from before modules were replaced."""

    like: torch.Tensor
    """Its shape and type, without storage."""
    sources: tuple[str, ...]
    """The entries of the model, whole, that it is made of."""
    is_source: bool
    """True if it is its only source, under its own or another name."""


def plain_entries(
    likes: Mapping[str, torch.Tensor],
    tied: Mapping[str, str],
    to_plain: Translation,
    order: Iterable[str],
) -> dict[str, PlainEntry]:
    """What ``to_plain`` makes of entries like ``likes``, in the order of the names ``order``; a
    parameter with several names, which ``tied`` gives with the first one, under one of them.

    >>> like = torch.empty(2, device="meta")
    >>> made = plain_entries({"a": like}, {"b": "a"}, dict, ["b", "a"])
    >>> [(name, one.sources, one.is_source) for name, one in made.items()]
    [('b', ('a',), True)]
    """
    with ValueSources(likes) as sources:
        made = to_plain(with_tied(likes, tied))
    names = [*(name for name in order if name in made), *made]
    given = {place_of(like) for like in likes.values()}
    number = {source: place for place, source in enumerate(likes)}
    seen = set[Any]()
    found: dict[str, PlainEntry] = {}
    for name in dict.fromkeys(names):
        value = made[name]
        place = place_of(value)
        if place not in seen:
            seen.add(place)
            ordered = tuple(sorted(sources.of(value), key=number.__getitem__))
            found[name] = PlainEntry(value, ordered, place in given)
    return found


class WholeEntries:
    """The model's entries, plain and whole. ``layouts`` are those of all pipeline stages, ``own``
    what this rank has."""

    def __init__(
        self, model: DistributedModel, layouts: Mapping[str, EntryLayout], own: Mapping[str, Any]
    ) -> None:
        self._layouts, self._own = layouts, own
        self._here = ranks.pp_rank() if model.partitioned else 0
        self._tied = {name: first for name, first in tied_names(model.get_module()).items()
                      if name in layouts and first in layouts}  # fmt: skip
        translations = model.translations()
        self._to_plain: Translation = translations[0][0] if translations else dict
        likes = {name: one.like() for name, one in layouts.items() if name not in self._tied}
        made = plain_entries(likes, self._tied, self._to_plain, model.plain.names)
        self.entries = {n: one for n, one in made.items() if n not in model.plain.unsaved}
        """By name, in the order of the plain model's state dict; tied ones once."""
        parameters = dict(model.named_parameters())
        self.parameters = sum(one.like.numel() for one in made.values()
                              if any(source in parameters for source in one.sources))  # fmt: skip
        """Elements of the plain model's parameters."""
        self.largest_bytes = 0
        """Most that this rank held at once beyond its own state."""

    def gathered(self, name: str) -> Mapping[str, torch.Tensor] | None:
        """The sources of an entry, on global rank 0; None elsewhere. All ranks call it with the
        same names in the same order."""
        whole = {source: self._whole(source) for source in self.entries[name].sources}
        if ranks.rank() != 0:
            return None
        return {source: value for source, value in whole.items() if value is not None}

    def made(self, name: str, sources: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """An entry from its sources."""
        entry = self.entries[name]
        held = sum(value.nbytes for value in sources.values())
        if entry.is_source:
            (value,) = sources.values()
        else:
            value = self._to_plain(with_tied(sources, self._tied))[name]
            held += value.nbytes
        self._note(held)
        return value

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
        what = "smp.save_pretrained"
        if value is not None:
            comm.send_tensor(what, value, 0, comm.RankType.PP_RANK)
        elif ranks.rank() == 0:
            return comm.receive_tensor(what, layout.like(), layout.stage, comm.RankType.PP_RANK)
        return None

    def _note(self, bytes_held: int) -> None:
        if isinstance(self._own, UnitEntries):
            bytes_held += self._own.held_bytes
        self.largest_bytes = max(self.largest_bytes, bytes_held)


def whole_entries(model: DistributedModel, own: Mapping[str, Any]) -> WholeEntries:
    """Those of ``model``, whose ``streamed_entries`` are ``own``. Collective over the pipeline.

    Raises SMPCheckpointError, on all of its ranks, for an entry that is no tensor.
    """
    here = model.entry_layouts()
    told = comm.allgather(here, comm.CommGroup.PP_GROUP) if model.partitioned else [here]
    layouts = {key: told[one.stage][key] for key, one in here.items() if key in told[one.stage]}
    for key, layout in layouts.items():
        if layout.shape is None:
            raise SMPCheckpointError(
                f"the entry {key} of the model's state dict is no tensor, and safetensors hold "
                "tensors alone; save the model with smp.save_checkpoint(..., partial=False)"
            )
    return WholeEntries(model, layouts, own)
