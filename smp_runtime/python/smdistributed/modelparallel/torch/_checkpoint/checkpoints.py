# SPDX-License-Identifier: Apache-2.0
"""Checkpoint folders of a whole job: ``smp.save_checkpoint`` and ``smp.resume_from_checkpoint``.

    PATH/newest                 the name of the newest checkpoint
    PATH/TAG_partial/           one of several files, in parts as the ranks hold them
        model_PP_TP.pt          entries of one partition, and ``_smp_is_partial``
        optimizer_PP_TP.pt      its optimizer state, and the names of the parameters
        partition.json          which module is on which partition
        slices.json             with tensor parallelism: the axis along which entries are sliced,
                                and which modules were replaced by distributed ones
        user_content.pt         what the script gave
        config.json             of a model of transformers
        optimizer_PP_TP_I.pt    instead, where state is sharded or 16-bit: what rank I of a shard
                                group owns. With sharded data parallelism model_PP_TP.pt holds
                                what no shard does; without tensor ranks beside it the names are
                                model_0.pt and optimizer_I.pt
        manifest.json           sizes and checksums, and the degrees of the job
    PATH/TAG                    a whole model's state dict, as plain PyTorch reads it
    PATH/user_content_TAG, PATH/TAG.manifest.json

A checkpoint is written beside its place and appears there in one step, so that a failed or killed
save leaves the one before as it was. Folders that each host has for itself work too, as long as
every host is given back the files of its own stages, and all of them where it holds only replicas,
state is sharded or in 16 bits, or degrees differ.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import (
    WrittenFiles,
    agreement,
    checkpoint_save,
    read_user_content,
)
from smdistributed.modelparallel.torch._checkpoint.memory_checkpoints import newest_in_memory
from smdistributed.modelparallel.torch._checkpoint.part_files import (
    model_of,
    optimizers_to_save,
    write_checkpoint,
)
from smdistributed.modelparallel.torch._checkpoint.resharded_parts import Slices
from smdistributed.modelparallel.torch._checkpoint.saved_parts import (
    PartialCheckpoint,
    absent,
    newest,
    open_parts,
)
from smdistributed.modelparallel.torch._checkpoint.saved_states import load_parts
from smdistributed.modelparallel.torch._checkpoint.snapshots import (
    SnapshotFiles,
    background_saves,
    wait_for_saves,
)
from smdistributed.modelparallel.torch._checkpoint.whole_models import read_whole_model
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._ranks.log import warning
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._state.optimizer_states import HasStates, JobStates
from smdistributed.modelparallel.torch._state.tensor_states import axes_of
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError, SMPValidationError
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.state_mod import state

_RESUME = "smp.resume_from_checkpoint"


def save_checkpoint(
    path: str,
    tag: str,
    partial: bool = True,
    model: DistributedModel | None = None,
    optimizer: DistributedOptimizer | None = None,
    user_content: Any = None,
    translate_if_full: bool = True,
    num_kept_partial_checkpoints: int | None = None,
    blocking: bool = True,
) -> None:
    """Writes the job's state under ``path``, as the newest checkpoint. All ranks call it.

    Args:
        path: a folder, made where it is missing.
        tag: the checkpoint's name; one of that name is replaced.
        partial: every partition writes its part, with optimizer state; else rank 0 writes the
            whole model and no optimizer state.
        model, optimizer: those of the job unless given. A job of several optimizers saves all of
            them, and takes none.
        user_content: any picklable object, which ``resume_from_checkpoint`` returns; rank 0's.
        translate_if_full: a whole model has the names that it had before tensor parallelism
            replaced modules of it; False: those of the distributed ones.
        num_kept_partial_checkpoints: how many partial checkpoints stay, the newest ones.
        blocking: False copies the state into the host's memory, and returns: a thread of the
            runtime writes it while training goes on. The checkpoint is there when all ranks have
            written theirs, and not before. As many saves as ``SMP_SAVES_UNDER_WAY`` says (1) may
            be under way, another one waits; ``smp.wait_for_saves`` and the end of the script wait
            for all. What fails there is raised by the next of these calls.

    Raises:
        SMPCheckpointError: on all ranks, naming the one that failed and why; what was there stays.

    >>> import tempfile, torch
    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> model = smp.DistributedModel(torch.nn.Linear(2, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     smp.save_checkpoint(folder, "step_1", user_content={"step": 1})
    ...     smp.resume_from_checkpoint(folder, load_optimizer=False)
    {'step': 1}
    >>> smp.shutdown()
    """
    state.require_initialized("smp.save_checkpoint")
    target = model_of("smp.save_checkpoint", model)
    _check_tag(tag)
    kept = num_kept_partial_checkpoints
    if kept is not None and kept < 1:
        raise SMPValidationError(f"num_kept_partial_checkpoints is {kept}; it is at least 1")
    begin = time.monotonic()
    later = None if blocking else background_saves()
    if later is None:
        wait_for_saves()
    else:
        later.await_room()
    if partial:
        _save_parts(
            Path(path), tag, target, optimizers_to_save(optimizer), user_content, kept, later
        )
    else:
        _save_whole(Path(path), tag, target, user_content, translate_if_full, later)
    how = "" if later is None else " to copy it; a thread writes it"
    state.reports.event("checkpoint", f"{tag}, {time.monotonic() - begin:.1f} s{how}")


def resume_from_checkpoint(
    path: str,
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    load_sharded_optimizer_state: bool = True,
    translate_function: Callable[[Any], Any] | None = None,
    weights_only: bool = True,
) -> Any:
    """Loads a checkpoint into the wrapped model and optimizer of the job. All ranks call it.

    With the pipeline degree of the job that saved it, a model without a partition takes over the
    saved one. With another degree, another number of replicas, layers split over another number of
    tensor ranks, or other modules replaced by distributed ones, the parts are put together anew.

    Args:
        path, tag: as given to ``save_checkpoint``; without ``tag`` the newest.
        partial: whether it was saved in parts. A whole one has no optimizer state; it may also be
            a plain ``torch.save`` of a state dict, or a Hugging Face file or index; safetensors
            are taken where they lie beside a ``pytorch_model.bin`` of others.
        strict: whether names have to match exactly.
        load_optimizer: False leaves the optimizer alone.
        load_sharded_optimizer_state: False loads only the 32-bit masters and the loss scale where
            the checkpoint or this job has sharded or 16-bit state; what the optimizer itself keeps,
            and the settings of its groups, stay as they are.
        translate_function: makes a state dict of this model from a whole one that was read.
        weights_only: False also reads user content with objects of any class, as plain pickle does:
            **code that the files hold is run**. True takes tensors, plain Python objects and a few
            classes: see :ref:`what-a-file-may-hold`.

    Returns:
        The user content, ``{}`` where there is none.

    Raises:
        SMPCheckpointError: on all ranks, naming file and rank: absent, damaged, of another model,
            or with objects that ``weights_only`` excludes.
    """
    state.require_initialized(_RESUME)
    model = model_of(_RESUME, None)
    root = Path(path)
    wait_for_saves()
    if partial:
        content = _resume_parts(
            *(root, tag, model, strict, load_optimizer, load_sharded_optimizer_state, weights_only)
        )
    else:
        with agreement(_RESUME):
            content = _resume_whole(root, tag, model, strict, translate_function, weights_only)
    state.reports.event("resumed", f"from {root / (tag or 'the newest')}")
    return content


# --- In parts ---


def _save_parts(
    root: Path,
    tag: str,
    model: DistributedModel,
    optimizer: HasStates | None,
    user_content: Any,
    kept: int | None,
    later: _runtime.BackgroundSaves | None,
) -> None:
    with checkpoint_save(root, tag + _runtime.PARTIAL) as save:
        files = WrittenFiles(save) if later is None else SnapshotFiles(later)
        write_checkpoint(files, model, optimizer, user_content, has_common=save.publishes)
    if isinstance(files, SnapshotFiles):
        files.publish_folder(save, kept)
    else:
        save.publish_folder(kept)
        comm.barrier()


@dataclass(frozen=True)
class _Layout:
    """The layout of a saved job's layers, compared with this one's."""

    same_partition: bool
    slices: Slices | None
    """Those of the saved job where layers are sliced, or modules replaced, otherwise here."""


def _layout_of(folder: PartialCheckpoint, model: DistributedModel) -> _Layout:
    slices = folder.slices(ranks.tp_size())
    same_modules = (
        (folder.tp > 1) == (ranks.tp_size() > 1)
        if slices is None or slices.replaced is None
        else slices.replaced == model.replaced()
    )
    same_partition = same_modules and model.takes_partition(
        folder.partition_json(), f"{folder.folder}/partition.json"
    )
    same_slices = slices is None or (
        same_modules and folder.tp == ranks.tp_size() and slices.axes == axes_of(model.get_module())
    )
    return _Layout(same_partition, None if same_slices else slices)


def _open(
    root: Path, tag: str | None, model: DistributedModel, weights_only: bool
) -> tuple[PartialCheckpoint, _Layout]:
    """The newest checkpoint, or ``tag``: that in the memory of the hosts where there is one."""
    try:
        kept = newest_in_memory(root, weights_only=weights_only) if tag is None else None
        if kept is not None:
            with agreement(_RESUME):
                layout = _layout_of(kept.folder, model)
            own_stage = layout.same_partition and layout.slices is None and shard_plan() is None
            kept.fetch(ranks.tp_rank(), ranks.pp_rank() if own_stage else None)
            return kept.folder, layout
    except SMPCheckpointError as error:
        warning(f"the state in memory is not used, but the newest checkpoint of {root}: {error}")
    with agreement(_RESUME):
        folder = open_parts(root, tag, weights_only=weights_only)
        return folder, _layout_of(folder, model)


def _resume_parts(
    root: Path,
    tag: str | None,
    model: DistributedModel,
    strict: bool,
    load_optimizer: bool,
    load_sharded_optimizer_state: bool,
    weights_only: bool,
) -> Any:
    if load_optimizer and not state.optimizers:
        raise SMPCheckpointError(
            f"{_RESUME} cannot load the optimizer's state: there is no optimizer yet; call "
            "smp.DistributedOptimizer first, or give load_optimizer=False"
        )
    folder, layout = _open(root, tag, model, weights_only)
    # Else some ranks would wait in the first step for others to decide on a partition.
    everywhere = all(comm.allgather(layout.same_partition, comm.CommGroup.WORLD))
    if layout.same_partition and not everywhere:
        raise SMPCheckpointError(
            f"{folder.folder} has the same partition.json on some hosts only; give all of them the "
            "same checkpoint"
        )
    optimizer: HasStates | None = JobStates() if load_optimizer else None
    return load_parts(
        *(_RESUME, folder, layout.slices, model, optimizer, strict),
        same_partition=layout.same_partition,
        load_sharded_optimizer_state=load_sharded_optimizer_state,
    )


# --- Whole ---


def _save_whole(
    root: Path,
    tag: str,
    model: DistributedModel,
    user_content: Any,
    translate: bool,
    later: _runtime.BackgroundSaves | None,
) -> None:
    # One copy of the model is enough; its ranks gather it among themselves.
    # Shards are gathered by all.
    gathered = model.sharded is not None and model.sharded.plan.on_demand
    entries: dict[str, Any] | None = None
    if gathered or ranks.rdp_rank() == 0:
        entries = model.plain_state_dict() if translate else model.state_dict()
    with checkpoint_save(root, tag) as save:
        files = WrittenFiles(save) if later is None else SnapshotFiles(later)
        if ranks.rank() == 0:
            assert entries is not None
            files.write(tag, dict(entries))
            if user_content is not None:
                files.write(f"user_content_{tag}", user_content)
    manifest = f"{tag}.manifest.json"
    if isinstance(files, SnapshotFiles):
        files.publish_files(save, manifest)
    else:
        save.publish_files(manifest)


def _resume_whole(
    root: Path,
    tag: str | None,
    model: DistributedModel,
    strict: bool,
    translate: Callable[[Any], Any] | None,
    weights_only: bool,
) -> Any:
    name = tag if tag is not None else newest(root, partial=False)

    def place(entry: str) -> Path:
        return _runtime.locate(root, name, entry)

    manifest, content = place(f"{name}.manifest.json"), place(f"user_content_{name}")
    known: _runtime.Manifest | None = None
    if manifest.is_file():
        known = _runtime.Manifest.read(manifest)
        for file in (place(name), content):
            if file.name in known:
                known.verify(file)
    entries = read_whole_model(
        place(name),
        lambda: absent(root, name),
        is_of_others=known is None or name not in known,
        weights_only=weights_only,
    )
    has_content = content.is_file() and (known is None or content.name in known)
    found = read_user_content(content, weights_only=weights_only) if has_content else {}
    whole = entries if translate is None else translate(entries)
    model.load_entries(whole, str(place(name)), strict, tied_once=True)
    return found


def _check_tag(tag: Any) -> None:
    if not isinstance(tag, str) or not tag or tag.startswith(".") or os.sep in tag:
        raise SMPValidationError(
            f"smp.save_checkpoint got tag {tag!r}; expected a file name that begins with no dot"
        )
