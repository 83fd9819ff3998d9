# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint in parts as saved states, one for each tensor rank of the job that
wrote them; as if this job had saved them, where it has other slices or other modules replaced; and
their way into this job's model and optimizer.

Another number of shards alone is no reason to reshard: a SavedState gives any run of elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import agreement
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import (
    Slices,
    joined_entries,
    joined_optimizer,
)
from smdistributed.modelparallel.torch._checkpoint.saved_parts import PartialCheckpoint
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._slices.parameter_slices import slice_of
from smdistributed.modelparallel.torch._state.joint_states import state_dict_of
from smdistributed.modelparallel.torch._state.model_names import first_names, tied_names
from smdistributed.modelparallel.torch._state.optimizer_states import HasStates
from smdistributed.modelparallel.torch._state.shard_states import check_same_model, restore_shards
from smdistributed.modelparallel.torch._state.state_fit import (
    KIND_KEY,
    NAMES_KEY,
    Shapes,
    check_kind,
    check_optimizer,
    known_shapes,
    shapes_of,
    state_of,
)
from smdistributed.modelparallel.torch._state.tensor_states import axes_of, sliced_entries
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.model import DistributedModel

_Value = TypeVar("_Value")


class SavedRanks:
    """Everything that ``folder`` holds, by tensor rank. The first versions did not save other names
    of tied parameters: they are ``tied`` then, of this job's.

    Raises SMPCheckpointError for parts of sharded or 16-bit state that are missing.
    """

    def __init__(self, folder: PartialCheckpoint, tied: Mapping[str, str] | None = None) -> None:
        self.folder, self._tied = folder, dict(tied or {})
        self._parts = [self._read_parts(rank) for rank in range(folder.tp)]
        self.is_sharded = any(saved.parts for saved in self._parts)
        """True where state is sharded or 16-bit."""
        if self.is_sharded:
            for rank, saved in enumerate(self._parts):
                self._check_complete(rank, saved)

    def _read_parts(self, rank: int) -> _runtime.SavedState:
        saved = _runtime.SavedState(str(self.folder.folder))
        for name in self.folder.shards(rank):
            saved.add_optimizer(self.folder.read(name, mmap=True))
        return saved

    def _check_complete(self, rank: int, saved: _runtime.SavedState) -> None:
        wanted = max(one.sharers for one in self._parts) * self.folder.pp
        if saved.parts == wanted:
            return
        of_rank = f" of tensor rank {rank}" if self.folder.tp > 1 else ""
        raise SMPCheckpointError(
            f"{self.folder.folder} holds the optimizer files of {saved.parts} of {wanted} "
            f"ranks{of_rank}: {', '.join(self.folder.shards(rank)[:8])}"
        )

    @property
    def loss_scale(self) -> tuple[float, int, int] | None:
        """The state of the loss scaler, alike on all ranks."""
        return next((saved.loss_scale for saved in self._parts if saved.loss_scale), None)

    def state(
        self,
        rank: int,
        names: Sequence[str] | None,
        stage: int | None = None,
        *,
        mmap_optimizer: bool = False,
    ) -> _runtime.SavedState:
        """Everything that tensor rank ``rank`` had: of all pipeline stages, or of one. The state of
        the optimizer is left out without ``names``, where it is not sharded; else they are those of
        its parameters, if the file does not say them. ``mmap_optimizer``: its values stay in the
        files, which must not change as long as any of them is used."""
        saved = self._parts[rank].copy()
        for other in self._parts:
            if other is not self._parts[rank]:
                saved.complete_with(other)
        folder = self.folder
        for name in folder.files("model", rank, stage):
            saved.add_model(folder.read(name, mmap=stage is None), self._tied)
        if names is not None and not self.is_sharded:
            shapes = known_shapes(shapes_of(saved.entries))
            for name in folder.files("optimizer", rank, stage):
                saved.add_optimizer(folder.read(name, mmap=mmap_optimizer), names, shapes)
        return saved


def load_parts(
    what: str,
    folder: PartialCheckpoint,
    slices: Slices | None,
    model: DistributedModel,
    optimizer: HasStates | None,
    strict: bool,
    *,
    same_partition: bool,
    load_sharded_optimizer_state: bool,
) -> Any:
    """Loads what ``folder`` holds into this job, in the order in which it stands here, and returns
    the user content. All ranks call it: an error of one in reading is raised on all, and so is one
    in loading where the state is not sharded; both begin with ``what``.
    ``slices``: of the saved job, where layers are sliced or modules replaced otherwise here. The
    other arguments are those of ``resume_from_checkpoint``, with ``optimizer`` where its state is
    to be loaded.
    """
    with agreement(what):
        there = SavedRanks(folder, tied_names(model.get_module()))
        is_sharded = there.is_sharded or shard_plan() is not None
        if is_sharded and optimizer is not None and not load_sharded_optimizer_state:
            optimizer.states.restore_loss_scale(there.loss_scale)
            optimizer = None
        stage = ranks.pp_rank() if same_partition and not is_sharded else None
        if slices is not None:
            saved = _resharded_state(there, slices, model, optimizer, strict)
        else:
            names = None if optimizer is None else optimizer.states.parameter_names()
            saved = there.state(ranks.tp_rank(), names, stage)
        _check(saved, model, optimizer, strict, only_local=stage is not None and slices is None)
        content = folder.user_content()
    # Sharded state is loaded by all ranks together: an error of one would leave others waiting.
    with contextlib.nullcontext() if shard_plan() is not None else agreement(what):
        _load_into_job(saved, model, optimizer)
    return content


def _resharded_state(
    saved: SavedRanks,
    slices: Slices,
    model: DistributedModel,
    optimizer: HasStates | None,
    strict: bool,
) -> _runtime.SavedState:
    """This rank's slices of what all tensor ranks of the saved job had together. Without
    ``optimizer`` its state is left out.

    Raises SMPCheckpointError for parts that are missing or of another model.
    """
    degree = saved.folder.tp
    names = None if optimizer is None else optimizer.states.parameter_names()
    of_ranks = [saved.state(rank, names) for rank in range(degree)]
    models = [whole_entries_of(one) for one in of_ranks]
    entries = dict(model.renamed(joined_entries(models, slices.axes), slices.replaced, degree))
    if saved.is_sharded:
        _put_values(model, entries, dict(entries))
    first = of_ranks[0]
    model.check_entries(shapes_of(entries), first.where, strict, whole=True)
    axes = axes_of(model.get_module())
    result = _runtime.SavedState(first.where)
    own_slices = sliced_entries(entries, axes)
    result.add_model(own_slices)
    if optimizer is not None:
        check_kind(state_of(first), optimizer.states.described(), first.where)
        joined = joined_optimizer(
            [_state_dict(one) for one in of_ranks],
            slices.axes,
            {name: value.shape for name, value in models[0].items()},
            lambda values: model.renamed(values, slices.replaced, degree),
            optimizer.states.parameter_names(),
            optimizer.states.groups_by_number(),
            lambda name, value: slice_of(value, axes.get(name)),
            first.where,
        )
        shapes = known_shapes(shapes_of(own_slices))
        result.add_optimizer({**joined, "loss_scaler": list(saved.loss_scale or ())}, [], shapes)
    return result


def _state_dict(saved: _runtime.SavedState) -> dict[str, Any]:
    names = [name for _, group in saved.groups for name in group]
    return {**state_dict_of(saved, names), NAMES_KEY: names, KIND_KEY: saved.kind}


def _check(
    saved: _runtime.SavedState,
    model: DistributedModel,
    optimizer: HasStates | None,
    strict: bool,
    *,
    only_local: bool,
) -> None:
    """Raises SMPCheckpointError, naming what differs, unless ``saved`` is the state of this model
    and ``optimizer``. ``only_local``: it is that of this rank's pipeline stage."""
    shapes: Shapes = with_tied({**shapes_of(saved.entries), **saved.shapes}, saved.tied)
    model.check_entries(shapes, saved.where, strict, only_local=only_local)
    if optimizer is not None:
        check_optimizer(state_of(saved, shapes), optimizer.states.described(), saved.where)


def _load_into_job(
    saved: _runtime.SavedState, model: DistributedModel, optimizer: HasStates | None
) -> None:
    """Loads state that ``_check`` found to fit, into whatever layout this job has; the optimizer's
    with an ``optimizer`` only. Collective where this job's state is sharded."""
    entries = saved.entries
    if shard_plan() is None:
        _put_values(model, entries, saved.whole_masters())
        model.load_slices(entries)
        if optimizer is not None:
            optimizer.states.restore(saved)
        return

    def take() -> None:
        assert model.sharded is not None
        if optimizer is not None:
            optimizer.states.restore(saved)
        elif saved.parts:
            check_same_model(model.sharded, [], saved)
            restore_shards(model.sharded, [], saved)

    model.load_slices(entries)
    model.when_partitioned(take)


def _put_values(
    model: DistributedModel, entries: dict[str, Any], values: Mapping[str, Any]
) -> None:
    """Values of parameters by their first names, under all their names."""
    for name, first in first_names(model.get_module()).items():
        if first in values:
            entries[name] = values[first]


def whole_entries_of(saved: _runtime.SavedState) -> dict[str, Any]:
    """The entries of the model, from masters where there are such, under all names."""
    return saved.entries | with_tied(saved.whole_masters(), saved.tied)


def with_tied(values: Mapping[str, _Value], tied: Mapping[str, str]) -> dict[str, _Value]:
    """``values``, by first names of parameters, under their other names ``tied``, too."""
    return {**values, **{name: values[first] for name, first in tied.items() if first in values}}
