# SPDX-License-Identifier: Apache-2.0
"""``smp.save_dcp`` and ``smp.load_dcp``: the whole model and its optimizer to and from plain
scripts, such as those with FSDP2, by ``torch.distributed.checkpoint`` (DCP)."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.torch._checkpoint.checkpoint_files import agreement
from smdistributed.modelparallel.torch._checkpoint.dcp_content import DcpContent
from smdistributed.modelparallel.torch._checkpoint.dcp_state import DcpState
from smdistributed.modelparallel.torch._checkpoint.dcp_writing import DcpWriting
from smdistributed.modelparallel.torch._checkpoint.whole_entries import (
    WholeEntries,
    check_model,
    whole_layouts,
)
from smdistributed.modelparallel.torch._ranks import ranks
from smdistributed.modelparallel.torch._sharding.sharded_model import plan as shard_plan
from smdistributed.modelparallel.torch._sharding.unit_entries import UnitValues
from smdistributed.modelparallel.torch._state.lazy_values import LazyValues
from smdistributed.modelparallel.torch._state.optimizer_states import JobStates
from smdistributed.modelparallel.torch._state.streamed_states import StreamedState
from smdistributed.modelparallel.torch._state.tensor_states import EntryLayout
from smdistributed.modelparallel.torch.exceptions import SMPValidationError
from smdistributed.modelparallel.torch.model import DistributedModel
from smdistributed.modelparallel.torch.optimizer import DistributedOptimizer
from smdistributed.modelparallel.torch.state_mod import state

_SAVE, _LOAD = "smp.save_dcp", "smp.load_dcp"


def save_dcp(
    path: str | os.PathLike[str],
    model: DistributedModel,
    optimizer: DistributedOptimizer | None = None,
    *,
    model_key: str = "model",
    optimizer_key: str = "optimizer",
) -> None:
    """Writes the whole model, and the state of its optimizer, as a checkpoint of
    ``torch.distributed.checkpoint``, which a plain script loads under any parallelism of its own.
    All ranks call it.

    The names are those from before modules were replaced, as ``get_state_dict`` of
    ``torch.distributed.checkpoint.state_dict`` gives them: ``{model_key}.NAME``,
    ``{optimizer_key}.state.NAME.exp_avg`` and ``{optimizer_key}.param_groups.0.lr``, and beside
    these ``{optimizer_key}.param_groups.NAME.lr``, for ``flatten_optimizer_state_dict=True``.
    Parameters with masters have the values and the type of these. Rank 0 writes all of it, a value
    at a time: beyond its own state no rank holds more than one value and what it is made of, and
    with sharded state one unit of the model and its own part of one field of the optimizer.

    Args:
        path: a folder. A checkpoint that is there is replaced when the new one is whole.
        model: the job's model.
        optimizer: its optimizer; of several, any one for all. None: the model alone.
        model_key, optimizer_key: where the reader has them in the state dict that it passes to
            ``dcp.load``; dots separate the keys of nested dictionaries, as in "app.model", and ""
            is the top.

    Raises:
        SMPValidationError: an argument of another type.
        SMPUnsupportedError: an optimizer that keeps tensors of other shapes than its parameters'.
        SMPCheckpointError: on all ranks, naming the one that failed and why; what was there stays.

    >>> import tempfile, torch
    >>> import smdistributed.modelparallel.torch as smp
    >>> smp.init()
    >>> model = smp.DistributedModel(torch.nn.Linear(2, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     smp.save_dcp(f"{folder}/step_1", model)
    ...     plain = {"model": {"weight": torch.zeros(1, 2)}}
    ...     torch.distributed.checkpoint.load(plain, checkpoint_id=f"{folder}/step_1")
    ...     bool((plain["model"]["weight"] == model.get_module().weight).all())
    True
    >>> smp.shutdown()
    """
    state.require_initialized(_SAVE)
    begin = time.monotonic()
    with agreement(_SAVE):
        check_model(_SAVE, model)
        _check_optimizer(_SAVE, optimizer)
    with agreement(_SAVE):
        content = _content_of(model, optimizer is not None, model_key, optimizer_key)
    writing: DcpWriting | None = None
    try:
        with agreement(_SAVE):
            if ranks.rank() == 0:
                writing = DcpWriting(Path(path), content)
        for names in content.files():
            with agreement(_SAVE):  # so that ranks with nothing to send wait for one file, not all
                _write_file(writing, content, names)
        with agreement(_SAVE):
            if writing is not None:
                writing.finish()
    except BaseException:
        if writing is not None:
            writing.give_up()
        raise
    state.reports.event("checkpoint", f"{path}, {time.monotonic() - begin:.1f} s")


def load_dcp(
    path: str | os.PathLike[str],
    model: DistributedModel,
    optimizer: DistributedOptimizer | None = None,
    *,
    model_key: str | None = None,
    optimizer_key: str | None = None,
    strict: bool = True,
) -> None:
    """Loads a checkpoint of ``torch.distributed.checkpoint``, of ``save_dcp`` or of a plain script,
    into a job of any degrees. All ranks call it, and see the folder.

    Every file is read once, by one of the ranks, and compared with its checksums; then each rank
    reads the values of its pipeline stage: the model's, and then the optimizer's, of which it keeps
    its slices or shards, one after the other. Before the first step, which decides where modules
    are, the optimizer's settings are loaded and its state is read at that step.

    Args:
        path: the folder.
        model: the job's model.
        optimizer: its optimizer; of several, any one for all. None: the model alone.
        model_key, optimizer_key: where they were in the state dict that was saved, as of
            ``save_dcp``; None: found by the names of the model's parameters.
        strict: False loads what the checkpoint has of the model, and leaves the rest.

    Raises:
        SMPValidationError: an argument of another type.
        SMPCheckpointError: on all ranks: a file that is missing, cut off or damaged; another model,
            or another optimizer, with the first parameter that differs.
    """
    state.require_initialized(_LOAD)
    begin = time.monotonic()
    with agreement(_LOAD):
        if not isinstance(model, DistributedModel):
            raise SMPValidationError(
                f"{_LOAD} got {type(model).__name__}; expected a smp.DistributedModel"
            )
        _check_optimizer(_LOAD, optimizer)
        saved = DcpState(Path(path), model, model_key, optimizer_key)
        saved.check_files(ranks.rank(), ranks.size())
    with agreement(_LOAD):
        saved.check_model(strict=strict)
        if optimizer is not None:
            saved.check_optimizer(JobStates().states)
    # Sharded state is loaded by all ranks together: an error of one would leave others waiting.
    with contextlib.nullcontext() if shard_plan() is not None else agreement(_LOAD):
        saved.load_model(strict=strict)
        if optimizer is not None:
            JobStates().states.take_settings(saved.settings)
            model.when_partitioned(lambda: JobStates().states.take_state(saved.kept))
    state.reports.event("checkpoint", f"{path} loaded, {time.monotonic() - begin:.1f} s")


def _check_optimizer(what: str, optimizer: Any) -> None:
    if optimizer is not None and not isinstance(optimizer, DistributedOptimizer):
        raise SMPValidationError(
            f"{what} got {type(optimizer).__name__}; expected a smp.DistributedOptimizer, or None"
        )


def _write_file(writing: DcpWriting | None, content: DcpContent, names: list[str]) -> None:
    """The other ranks send what rank 0 writes. Whoever fails goes on to the end of the file: the
    others could not tell why nobody sends, or takes, what comes next."""
    failure: Exception | None = None
    try:
        if writing is not None:
            writing.write_file(names)
    except Exception as error:
        failure = error
    left = set(content.names)
    for name in names:
        if name not in left:
            continue
        try:
            content.take(name)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _content_of(
    model: DistributedModel, with_optimizer: bool, model_key: str, optimizer_key: str
) -> DcpContent:
    """Collective over the job."""
    own, layouts = model.streamed_entries(), whole_layouts(model, of_masters=True)
    if model.sharded is not None:
        masters = UnitValues(model.sharded, model.sharded.store.masters)
        own = _WithMasters(own, masters, layouts)
    content = DcpContent()
    content.add_model(WholeEntries(_SAVE, model, layouts, own), model_key)
    if with_optimizer:
        streamed = StreamedState(JobStates().states, lambda: agreement(_SAVE))

        def values_of(field: str) -> WholeEntries:
            alike = {name: dataclasses.replace(layouts[name], dtype=dtype)
                     for name, dtype in streamed.kept.fields[field].items()}  # fmt: skip
            return WholeEntries(_SAVE, model, alike, streamed.values(field))

        content.add_optimizer(streamed.kept, values_of, optimizer_key)
    return content


class _WithMasters(LazyValues):
    """``entries`` with the values of ``masters`` where ``layouts`` says so."""

    def __init__(
        self, entries: Mapping[str, Any], masters: UnitValues, layouts: Mapping[str, EntryLayout]
    ) -> None:
        super().__init__(entries, lambda name: (masters if layouts[name].master else entries)[name])
        self._entries, self._masters = entries, masters

    @property
    def held_bytes(self) -> int:
        """Of the values that are held."""
        return self._masters.held_bytes + int(getattr(self._entries, "held_bytes", 0))
