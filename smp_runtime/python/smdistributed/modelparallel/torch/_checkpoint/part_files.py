# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint in parts, as this job writes them."""

from __future__ import annotations

from typing import Any

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import Files, rank0s_file
from smdistributed.modelparallel.torch._checkpoint.model_config import CONFIG
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import Slices, slices_to_json
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._state.model_names import (
    get_buffer_names,
    get_param_shapes,
    tied_names,
)
from smdistributed.modelparallel.torch._state.optimizer_states import HasStates, JobStates
from smdistributed.modelparallel.torch._state.shard_states import part_for_file
from smdistributed.modelparallel.torch._state.tensor_states import axes_of
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPValidationError
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.state_mod import state

_USER_CONTENT = "user_content.pt"


def _write_parts(files: Files, model: DistributedModel, optimizer: HasStates | None) -> None:
    """This rank's part. Collective over the data-parallel ranks."""
    if model.sharded is not None:
        _write_sharded(files, model, optimizer)
    elif ranks.rdp_rank() == 0:
        part = f"{ranks.pp_rank()}_{ranks.tp_rank()}.pt"
        files.write(f"model_{part}", dict(model.local_state_dict()))
        if optimizer is not None:
            files.write(f"optimizer_{part}", optimizer.states.part_for_checkpoint())


def write_checkpoint(
    files: Files,
    model: DistributedModel,
    optimizer: HasStates | None,
    user_content: Any,
    *,
    has_common: bool,
) -> None:
    """This rank's part, and if it ``has_common`` the files that the job has once, with rank 0's
    content. Collective over the job."""
    content = rank0s_file(_USER_CONTENT, user_content)  # before what may fail on one rank
    _write_parts(files, model, optimizer)
    if has_common:
        _write_common(files, model, content)


def _write_common(files: Files, model: DistributedModel, user_content: bytes | None) -> None:
    """The files that the job has once. ``user_content``: that of its file."""
    files.write_text("partition.json", model.partition_json())
    if ranks.tp_size() > 1 or model.replaced():
        plain, axes = model.plain, axes_of(model.get_module())
        slices = Slices(axes, model.replaced(), plain.classes, plain.names)
        files.write_text("slices.json", slices_to_json(slices))
    if config := model.plain.config_text():
        files.write_text(CONFIG, config)
    if user_content is not None:
        files.write_text(_USER_CONTENT, user_content)


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


def model_of(what: str, given: DistributedModel | None) -> DistributedModel:
    """``given``, else the job's."""
    model = state.model if given is None else given
    if not isinstance(model, DistributedModel):
        raise SMPCheckpointError(
            f"{what} found no model; wrap it with smp.DistributedModel before"
            if model is None
            else f"{what} got {type(model).__name__}; expected a smp.DistributedModel"
        )
    return model


def optimizers_to_save(given: DistributedOptimizer | None) -> HasStates | None:
    """All optimizers of the job, or one that is none of them."""
    known = list(state.optimizers)
    if given is not None and given not in known:
        return given
    if given is not None and len(known) > 1:
        kinds = " and ".join(type(one.optimizer).__name__ for one in known)
        raise SMPValidationError(
            f"smp.save_checkpoint got one of the job's {len(known)} optimizers ({kinds}), and the "
            "state of the others would be lost; leave optimizer out: all of them are saved"
        )
    return JobStates() if known else None
