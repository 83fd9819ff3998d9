# SPDX-License-Identifier: Apache-2.0
"""How values that come one after the other are written by ``torch.distributed.checkpoint``."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.storage import WriteResult

from smdistributed.modelparallel.torch._checkpoint.dcp_content import DcpContent
from smdistributed.modelparallel.torch._files.dcp_storage import StorageWriter
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError


class DcpWriting:
    """One rank's save of ``content`` into ``folder``, a value at a time, file by file. What was in
    the folder stays until ``finish``."""

    def __init__(self, folder: Path, content: DcpContent) -> None:
        self._content = content
        self._planner = DefaultSavePlanner()
        self._writer = StorageWriter(folder)
        self._planner.set_up_planner(content.content, self._writer.storage_meta(), True)
        self._writer.set_up_storage_writer(True)
        plan = self._writer.prepare_local_plan(self._planner.create_local_plan())
        plans, self._metadata = self._planner.create_global_plan([plan])
        (plan,) = self._writer.prepare_global_plan(plans)
        plan = self._planner.finish_plan(plan)
        self._items = {item.index.fqn: item for item in plan.items}
        self._results: list[WriteResult] = []

    def write_file(self, names: Sequence[str]) -> None:
        """Writes the values ``names``, which are taken one after the other."""

        def value(item: WriteItem) -> torch.Tensor:
            like = self._content.like(item.index.fqn)
            found = self._content.take(item.index.fqn)
            if found is None or (found.shape, found.dtype) != (like.shape, like.dtype):
                told = "nothing" if found is None else f"{tuple(found.shape)} of {found.dtype}"
                raise SMPCheckpointError(
                    f"{item.index.fqn} is {told}; expected {tuple(like.shape)} of {like.dtype}"
                )
            return found

        self._write([self._items.pop(name) for name in names], value)

    def finish(self) -> None:
        """Writes what else the content has; the checkpoint is there then."""
        self._write(list(self._items.values()), self._planner.resolve_data)
        self._writer.finish(self._metadata, [self._results])

    def give_up(self) -> None:
        """Leaves nothing of it."""
        self._writer.give_up()

    def _write(
        self, items: Sequence[WriteItem], data_of: Callable[[WriteItem], torch.Tensor | io.BytesIO]
    ) -> None:
        with self._writer.new_file() as (name, stream):
            for item in items:
                begin = stream.tell()
                data = data_of(item)
                if isinstance(data, torch.Tensor):
                    is_alone = data.untyped_storage().nbytes() == data.nbytes
                    torch.save(data if is_alone else data.clone(), stream)
                else:
                    stream.write(data.getbuffer())
                del data  # before the next one comes
                length = stream.tell() - begin
                place = _StorageInfo(name, begin, length)
                self._results.append(WriteResult(item.index, length, place))


def write_dcp(folder: Path, content: DcpContent) -> None:
    """Writes all of it, where this process has all values. Raises what keeps it from that; what was
    in ``folder`` stays then."""
    writing = DcpWriting(folder, content)
    try:
        for names in content.files():
            writing.write_file(names)
        writing.finish()
    except BaseException:
        writing.give_up()
        raise
