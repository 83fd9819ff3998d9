# SPDX-License-Identifier: Apache-2.0
"""State dicts of the wrapped model: of this partition, of the whole, and of the plain model."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._annotations.tensor_registry import Registration
from smdistributed.modelparallel.torch._checks.mastered_parameters import check_published
from smdistributed.modelparallel.torch._checks.part_warning import PartWarning
from smdistributed.modelparallel.torch._delayed.delayed_parameters import has_delayed
from smdistributed.modelparallel.torch._partition.ownership import Ownership
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import ShardedModel
from smdistributed.modelparallel.torch._sharding.substitutes import (
    load_beside,
    shapes_only,
    substituted,
    with_values,
)
from smdistributed.modelparallel.torch._sharding.unit_entries import UnitEntries
from smdistributed.modelparallel.torch._state.model_names import tied_names
from smdistributed.modelparallel.torch._state.own_entries import OwnEntries
from smdistributed.modelparallel.torch._state.state_fit import (
    PARTIAL_KEY,
    Shapes,
    check_model,
    merged_entries,
    shapes_of,
)
from smdistributed.modelparallel.torch._state.tensor_states import (
    EntryLayout,
    axes_of,
    from_plain,
    plainly_named,
    to_plain,
    whole_entries,
    whole_shapes,
)
from smdistributed.modelparallel.torch._tensor.tensor_replacement import registrations_with
from smdistributed.modelparallel.torch.exceptions import SMPUnsupportedError
from smdistributed.modelparallel.torch.model_views import ModelViews
from smdistributed.modelparallel.torch.ports import Translation
from smdistributed.modelparallel.torch.state_mod import state

_Model = TypeVar("_Model", bound="ModelStates")


class ModelStates(ModelViews):
    """The part of ``DistributedModel`` that gives its values and takes them."""

    sharded: ShardedModel | None
    _assignment: _runtime.Assignment | None
    _early_loads: list[Mapping[str, Any]]
    _replaced: dict[str, Registration]
    _known: dict[str, Registration]
    _part_warning: PartWarning

    def _module_entries(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The module's own state dict. Under sharded data parallelism its parameters have shapes
        there, and no values."""
        module = self.get_module()
        with self._part_warning.unheard(), substituted(module, shapes_only(self._elsewhere())):
            return module.state_dict(*args, **kwargs)

    def _elsewhere(self) -> list[nn.Parameter]:
        """The parameters of which this rank holds shards, if any."""
        sharded = self.sharded
        return sharded.parameters if sharded is not None and sharded.plan.on_demand else []

    def _is_part_by(self) -> str:
        """Why this rank's values are not the whole model; empty where they are."""
        if self.sharded is not None and self.sharded.plan.on_demand:
            return "sharded data parallelism"
        if ranks.pp_size() > 1 and self.partitioned:
            return "pipeline parallelism"
        return "tensor parallelism" if axes_of(self.get_module()) else ""

    def _local_entries(self) -> OrderedDict[str, Any]:
        module = self.get_module()
        if self._ownership is None and self._assignment is not None:
            ownership = Ownership(module, self._assignment, ranks.pp_rank())
        else:
            ownership = self._owned("local_state_dict()")
        return OrderedDict(
            (key, value)
            for key, value in self._whole_shards().items()
            if ownership.is_local_entry(module, key)
        )

    def unsharded_entries(self) -> OrderedDict[str, Any]:
        """The entries that no shard holds: buffers and frozen parameters. Collective."""
        assert self.sharded is not None
        entries = self._whole_shards(frozen_only=True)
        return OrderedDict(
            (key, value)
            for key, value in entries.items()
            if not (isinstance(value, torch.Tensor) and value.is_meta)
        )

    def _whole_shards(self, *args: Any, frozen_only: bool = False, **kwargs: Any) -> dict[str, Any]:
        """The module's entries, sharded ones whole: on the CPU then, and collective. With
        ``frozen_only`` trained ones have shapes alone."""
        elsewhere = self._elsewhere()
        if not elsewhere:
            return self._module_entries(*args, **kwargs)
        assert self.sharded is not None
        number_of, names = self.sharded.number_of, self.sharded.names
        whole = dict(self.sharded.whole_values(frozen_only))
        values = {p: whole[name] for p in elsewhere if (name := names[number_of[p]]) in whole}
        # A tied parameter is one tensor under several names, as in plain PyTorch.
        replaced = {**shapes_only(elsewhere), **with_values(values)}
        module = self.get_module()
        with self._part_warning.unheard(), substituted(module, replaced):
            return module.state_dict(*args, **kwargs)

    def local_state_dict(self) -> OrderedDict[str, Any]:
        """The entries of this partition, and the key ``_smp_is_partial``."""
        check_published(self.sharded)
        entries = self._local_entries()
        entries[PARTIAL_KEY] = True
        return entries

    def state_dict(  # type: ignore[override]
        self, *args: Any, gather_to_rank0: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        """The whole model's state dict, under the user's names, on the CPU where gathered.

        Collective over the model-parallel group, and with sharded data parallelism over the shard
        group: call it on all their ranks. With ``gather_to_rank0`` every rank but global rank 0
        gets an empty dict. Replaced modules have the names of distributed ones; see
        ``plain_state_dict``. Raises SMPCommTimeoutError if ranks do not come.
        """
        check_published(self.sharded)
        self._await_all_for_state_dict()
        axes = axes_of(self.get_module())
        full: dict[str, Any]
        if ranks.pp_size() > 1 and self.partitioned:
            own = to_cpu(whole_entries(self._local_entries(), axes))
            merged = merged_entries(comm.allgather(own, comm.CommGroup.PP_GROUP))
            full = OrderedDict((key, merged[key]) for key in self._module_entries())
        elif axes:
            full = whole_entries(self._whole_shards(), axes)
        else:
            full = self._whole_shards(*args, **kwargs)
        return full if not gather_to_rank0 or ranks.rank() == 0 else OrderedDict()

    def _await_all_for_state_dict(self) -> None:
        """Raises SMPCommTimeoutError if ranks that have parts of the state dict do not come: inside
        collectives nobody knows who is absent."""
        what = "DistributedModel.state_dict()"
        barriers = state.require_initialized(what).barriers
        if ranks.tp_size() > 1 or (ranks.pp_size() > 1 and self.partitioned):
            advice = "call it on all ranks with rdp_rank() == 0, or on all ranks of the job"
            barriers.all(what, "state dict of a model", ranks.get_mp_group(), advice)
        sharded = self.sharded
        if sharded is not None and sharded.plan.on_demand and sharded.groups.shards is not None:
            members = dist.get_process_group_ranks(sharded.groups.shards)
            advice = "with sharded data parallelism call it on all ranks of the job"
            barriers.all(what, "state dict of shards", members, advice)

    def plain_state_dict(self) -> dict[str, Any]:
        """``state_dict()`` under the names of the model before modules were replaced. Collective
        over the model-parallel group.
        """
        return to_plain(self.state_dict(), self._replaced)

    def streamed_entries(self) -> Mapping[str, Any]:
        """The module's own state dict, of which sharded parameters are whole while they are looked
        at: see ``UnitEntries``. For the library's own modules."""
        check_published(self.sharded)
        if not self._elsewhere():
            return self._module_entries()
        assert self.sharded is not None
        module = self.get_module()

        def state_dict() -> dict[str, Any]:
            with self._part_warning.unheard():
                return module.state_dict()

        return UnitEntries(module, self.sharded, state_dict)

    def entry_layouts(self, *, of_masters: bool = False) -> dict[str, EntryLayout]:
        """How each entry lies over the ranks, as far as this one knows: of those of other
        partitions hooks may have changed shape and type there. ``of_masters``: of parameters that
        no hook has changed the layouts of what the optimizer steps. For the library's own
        modules."""
        module, ownership, entries = self.get_module(), self._ownership, self._module_entries()
        axes = axes_of(module)
        masters: dict[str, torch.dtype] = {}
        if of_masters and self.sharded is not None:
            own = zip(self.sharded.names, self.sharded.shapes, strict=True)
            masters = {name: self.sharded.store.master_type(number)
                       for number, (name, shape) in enumerate(own)
                       if name in entries and entries[name].shape == shape}  # fmt: skip
        return {
            key: EntryLayout(
                shape=shape,
                dtype=None if shape is None else masters.get(key, entries[key].dtype),
                stage=0 if ownership is None else ownership.of_entry(module, key),
                axis=axes.get(key),
                master=key in masters,
            )
            for key, shape in whole_shapes(shapes_of(entries), axes).items()
        }

    def translations(self) -> list[tuple[Translation, Translation]]:
        """Pairs of functions that translate whole state dicts: to the names of the model before
        modules were replaced, and to this model's. Empty where none were."""
        if not self._replaced:
            return []
        own, replaced = list(self._module_entries()), self._replaced
        return [(lambda entries: to_plain(entries, replaced),
                 lambda entries: from_plain(entries, own, replaced))]  # fmt: skip

    def replaced(self) -> dict[str, str]:
        """The class of the distributed module in the place of each that was replaced, by name."""
        return {name: one.dist_module.__name__ for name, one in self._replaced.items()}

    def renamed(
        self, entries: Mapping[str, Any], replaced: Mapping[str, str] | None, degree: int
    ) -> Mapping[str, Any]:
        """Whole values of a job with ``degree`` tensor ranks, under the names of this model.
        ``replaced`` is what that job's said; None: what annotations make of so many ranks."""
        own = self.replaced()
        if replaced is not None:
            others = {name: self._known[name] for name, kind in replaced.items()
                      if own.get(name) != kind and name in self._known}  # fmt: skip
        elif degree > 1 and ranks.tp_size() == 1:
            others = registrations_with(self.get_module(), degree)
        else:
            others = {}
        return from_plain(to_plain(entries, others), self._module_entries(), self._replaced)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, same_partition_load: bool = False
    ) -> Any:
        """Loads a full or partial state dict, before or after the partition.

        A partial one holds one partition's entries, of distributed modules this rank's slices:
        the others' are gathered first, over the pipeline group, unless ``same_partition_load`` says
        that they are this rank's own. A full one holds whole values, under the names of this model
        or those of the model before modules were replaced, as of a pretrained one.
        Raises SMPCheckpointError for entries that are missing or too many.
        """
        return self.load_entries(state_dict, "the state dict", strict, same_partition_load)

    def load_entries(
        self,
        state_dict: Mapping[str, Any],
        where: str,
        strict: bool = True,
        same_partition_load: bool = False,
        tied_once: bool = False,
    ) -> Any:
        """The same of what lies at ``where``, with which errors begin. ``tied_once``: of the names
        of a tied parameter one is enough. Of a full one only what this rank needs is looked at."""
        if not state_dict.get(PARTIAL_KEY, False):
            whole = {key: value for key, value in state_dict.items() if key != PARTIAL_KEY}
            return self.load_own(self.own_entries(whole, tied_once=tied_once), where, strict)
        entries = merged_entries([state_dict])
        if ranks.pp_size() > 1 and not same_partition_load:
            entries = merged_entries(comm.allgather(to_cpu(entries), comm.CommGroup.PP_GROUP))
        self.check_entries(shapes_of(entries), where, strict, only_local=same_partition_load)
        return self.load_slices(entries)

    def own_entries(
        self,
        whole: Mapping[str, Any],
        likes: Mapping[str, torch.Tensor] | None = None,
        *,
        tied_once: bool,
    ) -> OwnEntries:
        """Whole values under names of this model or of the plain one, as this rank has them; see
        ``OwnEntries``. For the library's own modules."""
        module = self.get_module()
        plain = plainly_named(whole, self._module_entries(), self._replaced)
        tied = tied_names(module) if tied_once else {}
        return OwnEntries(
            whole, lambda some: from_plain(some, (), plain), axes_of(module), tied, likes
        )

    def load_own(self, own: OwnEntries, where: str, strict: bool) -> Any:
        """Loads these, which lie at ``where``, unless they are another model's."""
        self.check_entries(own.shapes, where, strict, whole=True)
        return self.load_slices(own)

    def check_entries(
        self,
        saved: Shapes,
        where: str,
        strict: bool,
        *,
        only_local: bool = False,
        whole: bool = False,
    ) -> None:
        """Raises SMPCheckpointError, naming ``where`` and the first that differs, unless entries of
        the shapes ``saved`` can be loaded: with ``strict`` those of this partition, or of all. They
        are slices of distributed modules, or ``whole``.
        """
        module = self.get_module()
        entries = self._local_entries() if only_local else self._module_entries()
        own, ownership = shapes_of(entries), self._ownership
        if ownership is not None:  # those elsewhere hold one element here
            own = {key: shape if ownership.is_local_entry(module, key) else None
                   for key, shape in own.items()}  # fmt: skip
        if whole:
            own = whole_shapes(own, axes_of(module))
        check_model(saved, own, where, strict)

    def load_slices(self, entries: Mapping[str, Any]) -> Any:
        """Loads entries that ``check_entries`` found to fit: of distributed modules this rank's
        slices, of one partition or of all."""
        module = self.get_module()
        if self._ownership is None and has_delayed(module):
            self._early_loads.append(entries)  # for when there is memory to load into
            return None
        return self._load_local(entries)

    def _load_local(self, entries: Mapping[str, Any]) -> Any:
        module, ownership = self.get_module(), self._ownership
        kept = {
            key: entries[key]
            for key in entries
            if ownership is None or ownership.is_local_entry(module, key)
        }
        if self.sharded is None:
            return module.load_state_dict(kept, strict=False)
        return self._load_sharded(kept)

    def _load_sharded(self, entries: dict[str, Any]) -> Any:
        """Parameters to their masters, the rest as always."""
        assert self.sharded is not None
        sharded = self.sharded
        result, values = load_beside(self.get_module(), entries)
        with torch.no_grad():
            for parameter, value in values.items():
                if parameter not in sharded.number_of:
                    parameter.copy_(value)
        sharded.assign({sharded.names[sharded.number_of[p]]: value for p, value in values.items()
                        if p in sharded.number_of})  # fmt: skip
        return result

    def cpu(self: _Model) -> _Model:
        """Gathers parameters and buffers on the CPU of every rank. Collective over the pipeline.

        The modules then hold all their values here, as for saving or looking at them; calls still
        go to the partitions. Raises SMPUnsupportedError where a rank holds parts of parameters,
        which it goes on computing with: with tensor parallelism and sharded data parallelism.
        """
        self._refuse_parts("DistributedModel.cpu()")
        if ranks.pp_size() == 1:
            return super().cpu()
        own = self._owned("DistributedModel.cpu()")
        mine = to_cpu(dict([*own.local_parameters(), *own.local_buffers()]))
        values = merged_entries(comm.allgather(mine, comm.CommGroup.PP_GROUP))
        for name, parameter in self.named_parameters():
            parameter.data = values[name]
        for prefix, module in self.get_module().named_modules():
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = values[f"{prefix}.{name}" if prefix else name]
        return self

    def _refuse_parts(self, what: str) -> None:
        if self.sharded is not None and self.sharded.plan.on_demand:
            parts, key = "shards", "sharded_data_parallel_degree"
        elif axes_of(self.get_module()):
            parts, key = "slices", "tensor_parallel_degree"
        else:
            return
        raise SMPUnsupportedError(
            f"{what} has no whole parameters to move: each rank holds {parts} of them, since {key} "
            f"is {getattr(state.cfg, key)}; take them from model.state_dict(gather_to_rank0=True), "
            "or write them with smp.save_checkpoint(path, tag, partial=False)"
        )


def to_cpu(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The same with tensors on the CPU."""
    return {
        key: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for key, value in entries.items()
    }
