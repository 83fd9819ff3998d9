# SPDX-License-Identifier: Apache-2.0
"""``smp.checkpoint_in_memory``: the last state in the memory of the job's hosts, each of which also
keeps a copy of a neighbour's part. A restart goes on from there, and reads no disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import (
    agreement,
    checkpoint_save,
)
from smdistributed.modelparallel.torch._checkpoint.part_files import (
    model_of,
    optimizers_to_save,
    write_checkpoint,
)
from smdistributed.modelparallel.torch._checkpoint.saved_parts import PartialCheckpoint
from smdistributed.modelparallel.torch._checkpoint.snapshots import (
    SnapshotFiles,
    background_saves,
    wait_for_saves,
)
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch.state_mod import state

_CALL = "smp.checkpoint_in_memory"
_FIND = "smp.has_checkpoint"
_RESUME = "smp.resume_from_checkpoint"


def checkpoint_in_memory(path: str | os.PathLike[str], user_content: Any = None) -> None:
    """Keeps the job's state in the memory of its hosts, for ``smp.resume_from_checkpoint(path)``
    after a restart. All ranks call it, after every update; every ``SMP_CHECKPOINT_MEMORY``-th call
    does it, and none does without this variable.

    The state is copied, and a thread of the runtime puts it in this host's memory and in that of
    the next host, so that it is there in whole when a host is lost: a save that does not block.
    Where a save is under way, the next call at which none is does it. The state replaces the one
    before, and counts until another checkpoint is the newest of ``path``. A host's memory holds
    its ranks' state and a neighbour's, twice while a new one is written, and the copy.

    Args:
        path: where ``smp.save_checkpoint`` keeps the job's checkpoints.
        user_content: any picklable object, which ``smp.resume_from_checkpoint`` returns; rank 0's.

    Raises:
        SMPNotInitializedError: before ``smp.init()``.
        SMPConfigError: where no folder in memory is known: ``train`` makes one, and tells its
            ranks by ``SMP_MEMORY_FOLDER``.
        SMPCheckpointError: on all ranks, as of the save before: a host's memory is full.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> smp.checkpoint_in_memory("/opt/ml/checkpoints", user_content={"step": 1})
    >>> smp.shutdown()
    """
    memory = memory_of(Path(path), _CALL)
    if memory is None:
        return
    saves = background_saves()
    if not memory.is_due(saves):
        return
    model = model_of(_CALL, None)
    with checkpoint_save(memory.root, memory.next_name(), _CALL, by_host=True) as save:
        files = SnapshotFiles(saves)
        optimizer = optimizers_to_save(None)
        write_checkpoint(files, model, optimizer, user_content, has_common=save.publishes)
    files.publish_in_memory(save, memory)


def has_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Whether ``smp.resume_from_checkpoint(path)`` would find a checkpoint: rank 0 in the folder,
    or the hosts in their memory. The same answer on all ranks, who call it together.

    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> smp.has_checkpoint("/nowhere")
    False
    >>> smp.shutdown()
    """
    wait_for_saves()
    memory = memory_of(Path(path), _FIND)
    if memory is not None and memory.newest(_FIND):
        return True
    newest = os.path.join(path, _runtime.NEWEST)  # what is unreadable, resuming says
    return bool(comm.broadcast_from_rank0(ranks.rank() == 0 and os.path.isfile(newest)))


def memory_of(path: Path, what: str = _RESUME) -> _runtime.MemoryCheckpoints | None:
    """What the hosts keep in memory of the checkpoints of ``path``; None without
    SMP_CHECKPOINT_MEMORY. Collective the first time."""
    session = state.require_initialized(what)
    if session.options.checkpoint_memory == 0:
        return None
    known = os.path.abspath(path)  # links are looked through once, by the runtime
    if known not in state.memory_checkpoints:
        state.memory_checkpoints[known] = _runtime.MemoryCheckpoints(session, known)
    return state.memory_checkpoints[known]


@dataclass(frozen=True)
class KeptCheckpoint:
    """One in memory. This host may not have all of its files."""

    memory: _runtime.MemoryCheckpoints
    folder: PartialCheckpoint

    def fetch(self, tp_rank: int | None = None, stage: int | None = None) -> None:
        """Has the files of ``PartialCheckpoint.names_for`` here. Collective; raises
        SMPCheckpointError on all ranks where a host has no room."""
        names = self.folder.names_for(tp_rank, stage)
        self.memory.fetch(_RESUME, self.folder.folder, names)


def newest_in_memory(root: Path, *, weights_only: bool) -> KeptCheckpoint | None:
    """That of the checkpoints of ``root``, with its files that the job has once. Collective."""
    memory = memory_of(root)
    folder = None if memory is None else memory.newest(_RESUME)
    if memory is None or not folder:
        return None
    with agreement(_RESUME):
        kept = KeptCheckpoint(memory, PartialCheckpoint(folder, weights_only=weights_only))
    kept.fetch()
    return kept
