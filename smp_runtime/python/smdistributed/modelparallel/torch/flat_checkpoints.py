# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in parts of state that is sharded or 16-bit, and what other jobs make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smdistributed.modelparallel.torch import ranks
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.resliced_parts import NAMES_KEY
from smdistributed.modelparallel.torch.saved_parts import PartialCheckpoint, merged_entries
from smdistributed.modelparallel.torch.shard_states import part_of_rank, plain_of_parts, restore
from smdistributed.modelparallel.torch.sharded_data_parallel_checkpoint import (
    get_buffer_names,
    get_param_shapes,
)
from smdistributed.modelparallel.torch.sharded_model import plan as shard_plan


def write_flat_parts(
    write: Callable[[str, Any], None],
    model: DistributedModel,
    optimizer: DistributedOptimizer | None,
) -> None:
    """The files of this rank: of the first shard group, since the others hold the same."""
    sharded = model.sharded
    assert sharded is not None
    on_demand = sharded.plan.on_demand
    entries = model.unsharded_entries() if on_demand else model.local_state_dict()
    part = f"{ranks.pp_rank()}_{ranks.tp_rank()}"
    if ranks.rdp_rank() == 0 and on_demand:
        write("model_0.pt", {"module": dict(entries), "param_shapes": get_param_shapes(model),
                             "buffer_names": get_buffer_names(model)})  # fmt: skip
    elif ranks.rdp_rank() == 0:
        write(f"model_{part}.pt", dict(entries))
    if ranks.rdp_rank() >= sharded.plan.degree:
        return
    own = part_of_rank(sharded, None) if optimizer is None else optimizer.shard_part()
    index = sharded.groups.index
    write(f"optimizer_{index}.pt" if on_demand else f"optimizer_{part}_{index}.pt", own)


def read_flat_parts(
    saved: PartialCheckpoint,
    model: DistributedModel,
    optimizer: DistributedOptimizer | None,
    strict: bool,
    load_optimizer: bool,
) -> Callable[[], None]:
    """Flat state into a model without any, or any state into a model with flat state: reads the
    files, and returns what loads them. That is collective, so no rank may have failed before.

    Raises SMPCheckpointError for parts that are missing or of another model.
    """
    shards = [saved.read(name, mmap=True) for name in saved.shards()]
    _check_complete(saved, shards)
    if saved.sharded:
        entries = dict(saved.read("model_0.pt", mmap=True)["module"])
    else:
        entries = merged_entries([saved.read(name, mmap=True) for name in saved.files("model")])
    if shard_plan() is None:
        return lambda: _load_plain(model, optimizer, entries, shards, strict, load_optimizer)
    shards_of_plain: list[dict[str, Any]] = []
    if not shards and load_optimizer:
        shards_of_plain = [saved.read(name) for name in saved.files("optimizer")]

    def take() -> None:
        assert model.sharded is not None
        where = str(saved.folder)
        if shards and load_optimizer:
            assert optimizer is not None
            optimizer.restore_parts(shards, where)
        elif shards:
            restore(model.sharded, None, shards, where)
        elif load_optimizer:
            assert optimizer is not None
            optimizer.restore_parts([optimizer.plain_part(_merged(shards_of_plain))], where)

    def load() -> None:
        model.load_state_dict(entries, strict and not saved.sharded)
        model.when_partitioned(take)

    return load


def _load_plain(
    model: DistributedModel,
    optimizer: DistributedOptimizer | None,
    entries: dict[str, Any],
    shards: list[dict[str, Any]],
    strict: bool,
    load_optimizer: bool,
) -> None:
    names = [] if optimizer is None else optimizer.parameter_names()
    masters, state_dict = plain_of_parts(shards, names)
    module = model.get_module()
    parameters = dict(module.named_parameters(remove_duplicate=False))
    first_name = {parameter: name for name, parameter in module.named_parameters()}
    for key, parameter in parameters.items():
        if first_name[parameter] in masters:
            entries[key] = masters[first_name[parameter]]
    model.load_state_dict(entries, strict)
    if load_optimizer:
        assert optimizer is not None
        optimizer.load_state_dict(state_dict)


def _check_complete(saved: PartialCheckpoint, shards: list[dict[str, Any]]) -> None:
    if not shards:
        return
    wanted = shards[0]["partition_count"] * (1 if saved.sharded else saved.pp)
    if len(shards) != wanted:
        raise SMPCheckpointError(
            f"{saved.folder} holds the optimizer files of {len(shards)} of {wanted} ranks: "
            f"{', '.join(saved.shards()[:8])}"
        )


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged = {**parts[0], "state": {}}
    for part in parts:
        merged["state"].update(part["state"])
    assert NAMES_KEY in merged
    return merged
