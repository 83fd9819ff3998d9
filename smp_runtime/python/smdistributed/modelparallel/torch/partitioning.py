# SPDX-License-Identifier: Apache-2.0
"""From a model to the assignment of its modules, the same on every rank."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch import comm, ranks
from smdistributed.modelparallel.torch.exceptions import SMPConfigError, SMPPartitionError
from smdistributed.modelparallel.torch.log import info
from smdistributed.modelparallel.torch.marks import partition_of
from smdistributed.modelparallel.torch.state_mod import state
from smdistributed.modelparallel.torch.tracing import Trace, module_tree, trace_step


def decide(
    module: nn.Module, run_step: Callable[[], Any] | None, with_times: bool
) -> _runtime.Assignment:
    """Rank 0 decides, all ranks get its decision and check it against their own model.

    Collective over all ranks. Raises SMPPartitionError, on all ranks, if rank 0 could not decide.
    """
    partitions = ranks.pp_size()
    registered = module_tree(module, Trace(), partition_of)
    if partitions == 1:
        return _runtime.assign_manual(registered, 1, 0)
    decision: tuple[str, str] | None = None
    if ranks.rank() == 0:
        try:
            decision = ("assignment", _decide_here(module, registered, run_step, with_times))
        except Exception:
            decision = ("failure", traceback.format_exc())
    kind, text = comm.broadcast_from_rank0(decision)
    if kind == "failure":
        raise SMPPartitionError(f"rank 0 could not partition the model:\n{text}")
    assignment = _runtime.Assignment.from_json(text, "the partition decided by rank 0")
    try:
        assignment.check_fits(registered, partitions)
    except SMPConfigError as error:
        raise SMPPartitionError(
            f"rank {ranks.rank()} built another model than rank 0: {error}"
        ) from error
    return assignment


def _decide_here(
    module: nn.Module,
    registered: _runtime.ModuleTree,
    run_step: Callable[[], Any] | None,
    with_times: bool,
) -> str:
    cfg, partitions = state.cfg, ranks.pp_size()
    if cfg.load_partition and cfg.partition_file:
        text = _read(Path(cfg.partition_file))
        assignment = _runtime.Assignment.from_json(text, cfg.partition_file)
        assignment.check_fits(registered, partitions)
        tree = registered
    elif cfg.auto_partition:
        trace = Trace()
        if run_step is not None and not cfg.skip_tracing:
            with state.tracing():
                trace = trace_step(module, run_step)
        tree = module_tree(module, trace, partition_of, with_times=with_times)
        assignment = _runtime.assign_compat(tree, partitions, cfg.memory_weight)
    else:
        tree = registered
        assignment = _runtime.assign_manual(tree, partitions, cfg.default_partition)
    if cfg.partition_file and not cfg.load_partition:
        _write(Path(cfg.partition_file), assignment.to_json())
    info(assignment.log_line(tree))
    info("Partition tree:" + assignment.describe(tree))
    return assignment.to_json()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SMPConfigError(
            f"load_partition: partition_file {path} cannot be read: {error.strerror}"
        ) from error


def _write(path: Path, text: str) -> None:
    try:
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise SMPConfigError(
            f"partition_file {path} cannot be written: {error.strerror}"
        ) from error
