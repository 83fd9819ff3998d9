# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in parts of state that is sharded or 16-bit, and what other jobs make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from smdistributed.modelparallel.torch._checkpoint.saved_parts import (
    PartialCheckpoint,
)
from smdistributed.modelparallel.torch._session import ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._state.model_names import (
    first_names,
    get_buffer_names,
    get_param_shapes,
    tied_names,
)
from smdistributed.modelparallel.torch._state.optimizer_states import (
    HasStates,
    merged_states,
)
from smdistributed.modelparallel.torch._state.shard_states import (
    Part,
    check_format,
    check_same_model,
    part_for_file,
    parts_of_tensor_rank,
    plain_of_parts,
    restore,
)
from smdistributed.modelparallel.torch._state.state_fit import (
    KIND_KEY,
    NAMES_KEY,
    Shapes,
    check_optimizer,
    merged_entries,
    shapes_of,
    state_of_parts,
)
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.model import DistributedModel

_Value = TypeVar("_Value")


def write_sharded_parts(
    write: Callable[[str, Any], None],
    model: DistributedModel,
    optimizer: HasStates | None,
) -> None:
    """The files of this rank: of the first shard group, since the others hold the same. Collective
    over the data-parallel ranks."""
    sharded = model.sharded
    assert sharded is not None
    on_demand = sharded.plan.on_demand
    short = on_demand and ranks.tp_size() == 1
    entries = model.unsharded_entries() if on_demand else model.local_state_dict()
    part = f"{ranks.pp_rank()}_{ranks.tp_rank()}"
    if ranks.rdp_rank() == 0 and on_demand:
        write("model_0.pt" if short else f"model_{part}.pt",
              {"module": dict(entries), "param_shapes": get_param_shapes(model),
               "buffer_names": get_buffer_names(model),
               "tied": tied_names(model.get_module())})  # fmt: skip
    elif ranks.rdp_rank() == 0:
        write(f"model_{part}.pt", dict(entries))
    if ranks.rdp_rank() >= sharded.plan.degree:
        return
    own = (
        part_for_file(sharded, [])
        if optimizer is None
        else optimizer.states.shard_part_for_checkpoint()
    )
    index = sharded.groups.index
    write(f"optimizer_{index}.pt" if short else f"optimizer_{part}_{index}.pt", own)


class ShardedParts:
    """A checkpoint's sharded state, and the model beside it, by tensor rank. The first
    versions did not save other names of tied parameters: they are ``tied`` then, of this job's.

    Raises SMPCheckpointError for parts that are missing.
    """

    def __init__(self, saved: PartialCheckpoint, tied: Mapping[str, str] | None = None) -> None:
        self._saved, self.folder, self._tied = saved, saved.folder, dict(tied or {})
        self._shards: list[list[Part]] = [
            [saved.read(name, mmap=True) for name in saved.shards(rank)] for rank in range(saved.tp)
        ]
        self.is_sharded = any(self._shards)
        for part in (part for parts in self._shards for part in parts):
            check_format(part, str(saved.folder))
        for rank, shards in enumerate(self._shards):
            self._check_complete(rank, shards)

    def _check_complete(self, rank: int, shards: Sequence[Part]) -> None:
        if not self.is_sharded:
            return
        first = next(part for parts in self._shards for part in parts)
        wanted = first["partition_count"] * self._saved.pp
        if len(shards) != wanted:
            of_rank = f" of tensor rank {rank}" if self._saved.tp > 1 else ""
            raise SMPCheckpointError(
                f"{self._saved.folder} holds the optimizer files of {len(shards)} of {wanted} "
                f"ranks{of_rank}: {', '.join(self._saved.shards(rank)[:8])}"
            )

    @property
    def loss_scaler(self) -> list[Any] | None:
        """What the loss scaler of the saved job said, alike on all its ranks."""
        return next((part.get("loss_scaler") for parts in self._shards for part in parts), None)

    def shards(self, rank: int) -> list[Part]:
        """Everything that tensor rank ``rank`` of the saved job had; empty if it is not sharded."""
        return parts_of_tensor_rank(self._shards, rank) if self.is_sharded else []

    def entries(self, rank: int) -> tuple[dict[str, Any], dict[str, str], bool]:
        """Its entries of the model, other names of parameters whose values only shards have, and
        whether there are such."""
        parts = [self._saved.read(name, mmap=True) for name in self._saved.files("model", rank)]
        if "param_shapes" not in parts[0]:
            return merged_entries(parts), {}, False
        return dict(parts[0]["module"]), dict(parts[0].get("tied", self._tied)), True

    def plain(self, rank: int, with_optimizer: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """All its entries, of masters where there are such, and the state of its optimizer as one
        over whole parameters says it."""
        entries, tied, _ = self.entries(rank)
        shards = self.shards(rank)
        if not with_optimizer:
            return entries | with_tied(plain_of_parts(shards, None)[0], tied), {}
        if not shards:
            return entries, merged_states(
                [self._saved.read(name) for name in self._saved.files("optimizer", rank)]
            )
        names = [name for group in shards[0]["param_groups"] for name in group["names"]]
        masters, state_dict = plain_of_parts(shards, names)
        entries |= with_tied(masters, tied)
        state_dict[NAMES_KEY] = names
        state_dict[KIND_KEY] = shards[0].get("optimizer", "")
        if "loss_scaler" in shards[0]:
            state_dict["loss_scaler"] = shards[0]["loss_scaler"]
        return entries, state_dict


def read_sharded_parts(
    saved: PartialCheckpoint,
    parts: ShardedParts,
    model: DistributedModel,
    optimizer: HasStates | None,
    strict: bool,
) -> Callable[[], None]:
    """Sharded state into a model without, or any state into a model with sharded state: reads the
    files, and returns what loads them. That is collective, so no rank may have failed before.
    Without ``optimizer`` its state is left out.

    Raises SMPCheckpointError for parts that are missing or of another model.
    """
    where = str(saved.folder)
    shards = parts.shards(ranks.tp_rank())
    entries, tied, elsewhere = parts.entries(ranks.tp_rank())
    shapes = _shapes(entries, shards, tied if elsewhere else {})
    model.check_entries(shapes, where, strict)
    shards_of_plain: list[dict[str, Any]] = []
    if shards and optimizer is not None:
        check_optimizer(state_of_parts(shards), optimizer.states.described(), where)
    elif optimizer is not None:
        shards_of_plain = [saved.read(name) for name in saved.files("optimizer")]
        optimizer.states.check_plain(merged_states(shards_of_plain), where, shapes=shapes)
    if shard_plan() is None:
        return lambda: _load_plain(model, optimizer, entries, shards)

    def take() -> None:
        assert model.sharded is not None
        if shards and optimizer is not None:
            optimizer.states.restore_parts(shards, where)
        elif shards:
            check_same_model(model.sharded, [], shards, where)
            restore(model.sharded, [], shards)
        elif optimizer is not None:
            optimizer.states.load_parts(shards_of_plain, saved.folder)

    def load() -> None:
        model.load_slices(entries)
        model.when_partitioned(take)

    return load


def _shapes(entries: Mapping[str, Any], shards: Sequence[Part], tied: Mapping[str, str]) -> Shapes:
    """Of all entries that files of the model and shards have together."""
    shapes = shapes_of(entries)
    for part in shards:
        shapes |= {name: tuple(entry["shape"]) for name, entry in part["parameters"].items()}
    return with_tied(shapes, tied)


def with_tied(values: Mapping[str, _Value], tied: Mapping[str, str]) -> dict[str, _Value]:
    """``values``, by first names of parameters, under their other names ``tied``, too."""
    return {**values, **{name: values[first] for name, first in tied.items() if first in values}}


def _load_plain(
    model: DistributedModel,
    optimizer: HasStates | None,
    entries: dict[str, Any],
    shards: list[Part],
) -> None:
    names = None if optimizer is None else optimizer.states.parameter_names()
    masters, state_dict = plain_of_parts(shards, names)
    put_values(model, entries, masters)
    model.load_slices(entries)
    if optimizer is not None:
        optimizer.states.load_slices(state_dict)


def put_values(model: DistributedModel, entries: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Values of parameters by their first names, under all their names."""
    for name, first in first_names(model.get_module()).items():
        if first in values:
            entries[name] = values[first]
