# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in parts as one whole model with its optimizer, without a job: each value is put
together, from parts that lie in memory as files do, when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.model_config import (
    ModelConfig,
    has_replaced_names,
)
from smdistributed.modelparallel.torch._checkpoint.plain_values import PlainValues
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import Slices
from smdistributed.modelparallel.torch._checkpoint.saved_parts import PartialCheckpoint
from smdistributed.modelparallel.torch._checkpoint.saved_states import SavedRanks
from smdistributed.modelparallel.torch._sharding.value_sources import place_of
from smdistributed.modelparallel.torch._state.lazy_values import LazyValues
from smdistributed.modelparallel.torch._state.own_entries import likes_of
from smdistributed.modelparallel.torch._state.streamed_states import KeptState
from smdistributed.modelparallel.torch._state.tensor_states import to_plain
from smdistributed.modelparallel.torch._tensor.tensor_replacement import predefined_by_name
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.ports import Translation

_MASTER = "master"


class LocalValues(PlainValues):
    """Those of ``values``, which are whole."""

    def __init__(
        self,
        values: Mapping[str, Any],
        likes: Mapping[str, torch.Tensor],
        tied: Mapping[str, str],
        to_plain: Translation = dict,
        order: Sequence[str] = (),
    ) -> None:
        firsts = {name: like for name, like in likes.items() if name not in tied}
        super().__init__(firsts, tied, to_plain, order)
        self._values = values

    def value(self, name: str) -> torch.Tensor:
        return self.made(name, {one: self._values[one] for one in self.entries[name].sources})


class WholeParts:
    """Raises SMPCheckpointError for parts that are missing or damaged, and for modules that were
    replaced by distributed ones where nothing says by what names they were known before."""

    def __init__(self, folder: PartialCheckpoint, config: ModelConfig | None = None) -> None:
        self._folder = folder
        slices = folder.slices(1)
        assert slices is not None
        self._axes, self._order = slices.axes, slices.names
        saved = SavedRanks(folder)
        self.has_loss_scale = saved.loss_scale is not None
        names: list[str] | None = [] if folder.has_optimizer else None
        self._ranks = [
            _Rank(saved.state(rank, names, mmap_optimizer=True)) for rank in range(folder.tp)
        ]
        first = self._ranks[0]
        self._to_plain = _translation(str(folder.folder), slices, first.likes, config)
        self._tied = {name: one for name, one in first.tied.items() if one in first.likes}

    def user_content(self) -> Any:
        """The script's own. Raises SMPCheckpointError for what cannot be read without running code
        of the file."""
        return self._folder.user_content()

    @property
    def common(self) -> list[str]:
        """Keys of what optimizers kept for no parameter."""
        return sorted(self._ranks[0].saved.common)

    def model(self) -> LocalValues:
        """The entries of the model, from masters where there are such."""
        likes = {name: self._whole(name, like) for name, like in self._ranks[0].likes.items()}
        values = self._joined(_Rank.entry)
        return LocalValues(values, likes, self._tied, self._to_plain, self._order)

    def optimizer(self) -> KeptState | None:
        """What optimizers kept; None where the checkpoint has nothing of it."""
        return self._ranks[0].kept

    def field(self, field: str) -> LocalValues:
        """What they kept by a field."""
        first = self._ranks[0]
        assert first.kept is not None
        likes = {name: self._whole(name, first.like_of_field(name, dtype))
                 for name, dtype in first.kept.fields[field].items()}  # fmt: skip
        values = self._joined(lambda rank, name: rank.saved.whole_state(name)[field])
        tied = {name: one for name, one in self._tied.items() if one in likes}
        return LocalValues(values, likes, tied, self._to_plain, self._order)

    def _whole(self, name: str, like: torch.Tensor) -> torch.Tensor:
        if name not in self._axes:
            return like
        return torch.cat([like] * len(self._ranks), dim=self._axes[name])

    def _joined(self, of_rank: Callable[[_Rank, str], torch.Tensor]) -> Mapping[str, Any]:
        def value(name: str) -> torch.Tensor:
            if name not in self._axes:
                return of_rank(self._ranks[0], name)
            return torch.cat([of_rank(rank, name) for rank in self._ranks], dim=self._axes[name])

        return LazyValues(self._ranks[0].likes, value)


class _Rank:
    """What one tensor rank had."""

    def __init__(self, saved: _runtime.SavedState) -> None:
        self.saved = saved
        self._entries = saved.entries
        types = saved.types
        tensors = {name: value for name, value in self._entries.items()
                   if isinstance(value, torch.Tensor)}  # fmt: skip
        self.likes = likes_of(tensors)
        if others := sorted(self._entries.keys() - self.likes.keys()):
            raise SMPCheckpointError(
                f"{saved.where}: the entry {others[0]} of the model is no tensor, and the files "
                "hold tensors alone"
            )
        for name, shape in saved.shapes.items():
            if _MASTER in types.get(name, {}):
                self.likes[name] = torch.empty(shape, dtype=types[name][_MASTER], device="meta")
        self.tied = {**aliases(self._entries), **saved.tied}
        self.kept = _kept(saved) if saved.groups else None

    def entry(self, name: str) -> torch.Tensor:
        if _MASTER in self.saved.types.get(name, {}):
            return self.saved.whole_master(name)
        value: torch.Tensor = self._entries[name]
        return value

    def like_of_field(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(self.saved.shapes[name], dtype=dtype, device="meta")


def _kept(saved: _runtime.SavedState) -> KeptState:
    fields: dict[str, dict[str, torch.dtype]] = {}
    others: dict[str, dict[str, Any]] = {}
    for name, types in saved.types.items():
        for field, dtype in types.items():
            if field != _MASTER:
                fields.setdefault(field, {})[name] = dtype
        kept = saved.kept_shapes[name].keys() - types.keys()
        if kept:
            whole = saved.whole_state(name)
            others[name] = {key: whole[key] for key in sorted(kept)}
    return KeptState(fields, others, saved.groups)


def aliases(entries: Mapping[str, Any]) -> dict[str, str]:
    """Entries that are the same memory as one before, each with that."""
    first: dict[Any, str] = {}
    found = {name: first.setdefault(place_of(value), name) for name, value in entries.items()}
    return {name: one for name, one in found.items() if name != one}


def _translation(
    where: str, slices: Slices, names: Iterable[str], config: ModelConfig | None
) -> Translation:
    """To the names from before modules were replaced."""
    replaced = slices.replaced
    is_whole = has_replaced_names(names) and not slices.classes.get("")
    if is_whole and config is not None:  # the class of the root, which holds all others
        return config.registration().to_plain or dict
    unknown = (
        ["modules of the model"] if replaced is None else
        [f"{name or '(root)'}, now {kind}," for name, kind in replaced.items()
         if name not in slices.classes]
    )  # fmt: skip
    if unknown:
        mend = "give its config.json, or load it" if is_whole else "load it"
        raise SMPCheckpointError(
            f"{where} was saved by a version that did not say of what class {unknown[0]} had been "
            f"before it was replaced, and so which names its parameters had; {mend} in a job, and "
            "save it there by smp.save_dcp or smp.save_pretrained"
        )
    known = {name: predefined_by_name(kind) for name, kind in slices.classes.items()}
    registrations = {name: one for name, one in known.items() if one is not None}
    return lambda entries: to_plain(entries, registrations)
