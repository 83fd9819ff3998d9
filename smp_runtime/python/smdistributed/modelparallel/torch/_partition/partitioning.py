# SPDX-License-Identifier: Apache-2.0
"""From a model to the assignment of its modules, the same on every rank."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from smdistributed import _runtime
from smdistributed.modelparallel.torch._annotations.partition_annotations import partition_of
from smdistributed.modelparallel.torch._partition.module_trees import module_tree, recompute_bytes
from smdistributed.modelparallel.torch._partition.parameter_readers import joined_modules
from smdistributed.modelparallel.torch._partition.tracing import Trace, TraceOptions, trace_step
from smdistributed.modelparallel.torch._ranks import comm, ranks
from smdistributed.modelparallel.torch._ranks.log import info, warning
from smdistributed.modelparallel.torch._recompute.activation_checkpointing import regions_of
from smdistributed.modelparallel.torch.exceptions import (
    SMPCheckpointError,
    SMPConfigError,
    SMPPartitionError,
)
from smdistributed.modelparallel.torch.state_mod import holding, state

_WORLD = comm.CommGroup.WORLD


def decide(
    module: nn.Module, run_step: Callable[[], Any] | None, options: TraceOptions
) -> _runtime.Assignment:
    """Rank 0 decides, all ranks get its decision and check it against their own model.

    Collective over all ranks. Raises SMPPartitionError, on all ranks, if rank 0 could not decide or
    a rank built another model.
    """
    partitions = ranks.pp_size()
    registered = module_tree(module, Trace(), partition_of)
    if partitions == 1:
        return _runtime.assign_manual(registered, 1, 0)
    decision: tuple[str, str] | None = None
    if ranks.rank() == 0:
        try:
            decision = ("assignment", _decide_here(module, registered, run_step, options))
        except SMPConfigError as error:  # says all: of the settings, or of a file by hand
            decision = ("failure", str(error))
        except Exception:
            decision = ("failure", f"\n{traceback.format_exc()}")
    kind, text = comm.broadcast_from_rank0(decision)
    if kind == "failure":
        raise SMPPartitionError(f"rank 0 could not partition the model: {text}")
    assignment = _runtime.Assignment.from_json(text, "the partition decided by rank 0")
    # All ranks learn of it: one that went on alone would wait for the others.
    for rank, misfit in enumerate(comm.allgather(_misfit(assignment, registered), _WORLD)):
        if misfit:
            raise SMPPartitionError(f"rank {rank} built another model than rank 0: {misfit}")
    return assignment


def _misfit(assignment: _runtime.Assignment, registered: _runtime.ModuleTree) -> str:
    try:
        assignment.check_fits(registered, ranks.pp_size())
    except SMPConfigError as error:
        return str(error)
    return ""


def _decide_here(
    module: nn.Module,
    registered: _runtime.ModuleTree,
    run_step: Callable[[], Any] | None,
    options: TraceOptions,
) -> str:
    cfg, partitions = state.cfg, ranks.pp_size()
    if cfg.load_partition and cfg.partition_file:
        where = f"partition_file {cfg.partition_file}"
        text = _read(Path(cfg.partition_file))
        assignment = _runtime.read_partition_file(text, where, registered, partitions)
        summary = f"Partition chosen: as {cfg.partition_file} has it"
        if of_itself := _runtime.read_partition_summary(text, where, partitions):
            summary += f", which says of itself: {of_itself.removeprefix('Partition chosen: ')}"
        tree, decided = registered, _runtime.JobPartition(assignment, summary)
    elif cfg.auto_partition:
        trace = _trace(module, run_step, options)
        regions = regions_of(module)
        joined = joined_modules(module, trace.reads)
        tree = module_tree(module, trace, partition_of, regions, joined)
        once = recompute_bytes(trace, regions)
        decided = _assign_automatically(module, tree, once)
    else:
        tree = registered
        assignment = _runtime.assign_manual(tree, partitions, cfg.default_partition)
        summary = "Partition chosen: as smp.partition, smp.set_partition and default_partition say"
        decided = _runtime.JobPartition(assignment, summary)
    if cfg.partition_file and not cfg.load_partition:
        text = _runtime.partition_file_text(decided.assignment, registered, decided.summary)
        _write(Path(cfg.partition_file), text)
    _runtime.tell_partition(state.require_initialized("smp.DistributedModel"), decided, tree)
    return decided.assignment.to_json()


def _trace(module: nn.Module, run_step: Callable[[], Any] | None, options: TraceOptions) -> Trace:
    """The trace that the settings ask for; with ``skip_tracing`` the one that computes nothing.

    A model that cannot be traced on the GPU, or by shapes only, is no reason to stop.
    """
    if run_step is None:
        return Trace()
    if state.cfg.skip_tracing:
        options = replace(options, device="meta")
    try:
        with holding(state, is_tracing=True):
            trace = trace_step(module, run_step, options)
        state.reports.set_forward_flops(trace.flops)
        return trace
    except Exception as error:
        plain = options.device == "cpu" or not torch.cuda.is_available()
        if plain and options.device != "meta":
            raise
        cause = " ".join(f"{type(error).__name__}: {error}".split())
    if options.device == "gpu":
        warning(f"the model cannot be traced module by module on the GPU; next, as it is: {cause}")
        return _trace(module, run_step, replace(options, device="cpu"))
    warning(f"the model cannot be traced by shapes only; partitioned by parameters: {cause}")
    return Trace()


def _assign_automatically(
    module: nn.Module, tree: _runtime.ModuleTree, once: int
) -> _runtime.JobPartition:
    parameters = list(module.parameters())
    chosen = _runtime.partition_job(
        tree,
        state.cfg,
        partitioner=state.require_initialized("the partition").options.partitioner,
        elements=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.nbytes for p in parameters),
        replicas=ranks.rdp_size(),
        on_gpus=torch.cuda.is_available(),
        device_bytes=_device_bytes(),
        recompute_bytes=once,
    )
    if chosen.warning:
        warning(chosen.warning)
    return chosen


def _device_bytes() -> int:
    """Memory of this rank's GPU; 0 without one. [bytes]"""
    if not torch.cuda.is_available():
        return 0
    return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory


def _read(path: Path) -> str:
    advice = "give a file that a job with partition_file wrote, or set load_partition to false"
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SMPConfigError(
            f"load_partition: partition_file {path} cannot be read: {error.strerror}; {advice}"
        ) from error
    except UnicodeDecodeError as error:
        raise SMPConfigError(
            f"load_partition: partition_file {path} is no text: {error.reason} at byte "
            f"{error.start}; {advice}"
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


def read_saved(text: str, where: str) -> _runtime.Assignment | None:
    """A decision that was saved; None if it is empty or of another number of partitions. Raises
    SMPCheckpointError, naming the file ``where``, for what is none."""
    if not text:
        return None
    try:
        saved = _runtime.Assignment.from_json(text, where)
    except SMPConfigError as error:
        raise SMPCheckpointError(str(error)) from error
    return saved if saved.partitions == ranks.pp_size() else None


def fits(saved: _runtime.Assignment, module: nn.Module) -> bool:
    """True if ``saved`` is a partition of these modules; it is logged then, since it will be
    taken."""
    tree = module_tree(module, Trace(), partition_of)
    try:
        saved.check_fits(tree, ranks.pp_size())
    except SMPConfigError:  # its parameters tell, later, if it is another model's
        return False
    info(saved.log_line(tree))
    return True
