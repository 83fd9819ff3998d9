# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint in parts, as this job writes them."""

from __future__ import annotations

from typing import Any

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import Files
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import Slices, slices_to_json
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._state.model_names import (
    get_buffer_names,
    get_param_shapes,
    tied_names,
)
from smdistributed.modelparallel.torch._state.optimizer_states import HasStates
from smdistributed.modelparallel.torch._state.shard_states import part_for_file
from smdistributed.modelparallel.torch._state.tensor_states import axes_of
from smdistributed.modelparallel.torch.model import DistributedModel


def write_parts(files: Files, model: DistributedModel, optimizer: HasStates | None) -> None:
    """This rank's part. Collective over the data-parallel ranks."""
    if model.sharded is not None:
        _write_sharded(files, model, optimizer)
    elif ranks.rdp_rank() == 0:
        part = f"{ranks.pp_rank()}_{ranks.tp_rank()}.pt"
        files.write(f"model_{part}", dict(model.local_state_dict()))
        if optimizer is not None:
            files.write(f"optimizer_{part}", optimizer.states.part_for_checkpoint())


def write_common(files: Files, model: DistributedModel, user_content: Any) -> None:
    """The files that the job has once."""
    files.write_text("partition.json", model.partition_json())
    if ranks.tp_size() > 1 or model.replaced():
        plain, axes = model.plain, axes_of(model.get_module())
        slices = Slices(axes, model.replaced(), plain.classes, plain.names)
        files.write_text("slices.json", slices_to_json(slices))
    if user_content is not None:
        files.write("user_content.pt", user_content)


def _write_sharded(files: Files, model: DistributedModel, optimizer: HasStates | None) -> None:
    """The files of this rank where state is sharded or 16-bit: of the first shard group, since the
    others hold the same."""
    sharded = model.sharded
    assert sharded is not None
    on_demand = sharded.plan.on_demand
    short = on_demand and ranks.tp_size() == 1
    entries = model.unsharded_entries() if on_demand else model.local_state_dict()
    part = f"{ranks.pp_rank()}_{ranks.tp_rank()}"
    if ranks.rdp_rank() == 0 and on_demand:
        files.write("model_0.pt" if short else f"model_{part}.pt",
                    {"module": dict(entries), "param_shapes": get_param_shapes(model),
                     "buffer_names": get_buffer_names(model),
                     "tied": tied_names(model.get_module())})  # fmt: skip
    elif ranks.rdp_rank() == 0:
        files.write(f"model_{part}.pt", dict(entries))
    if ranks.rdp_rank() >= sharded.plan.degree:
        return
    own = (
        part_for_file(sharded, [])
        if optimizer is None
        else optimizer.states.shard_part_for_checkpoint()
    )
    index = sharded.groups.index
    files.write(f"optimizer_{index}.pt" if short else f"optimizer_{part}_{index}.pt", own)
