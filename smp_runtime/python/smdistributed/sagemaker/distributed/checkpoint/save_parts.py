# SPDX-License-Identifier: Apache-2.0
"""A save of DCP in its three parts, of which only the middle one can run beside training: the ranks
agree on a plan, each writes its data, and one of them makes a checkpoint of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.checkpoint.utils import _DistWrapper

from smdistributed.sagemaker._patches.coordinators import rank_in_group
from smdistributed.sagemaker.distributed.checkpoint.staged_data import StagedData, StagingMemory

_memory = StagingMemory()


class SaveParts:
    """One rank's part of a save. All ranks of the group make one, which plans it together, write,
    and finish it. What fails on a rank is a ``CheckpointException`` on all."""

    def __init__(
        self,
        state_dict: Mapping[str, Any],
        writer: StorageWriter,
        planner: SavePlanner | None,
        group: dist.ProcessGroup | None,
        coordinator: int,
    ) -> None:
        self.writer = writer
        self._ranks = _DistWrapper(group, dist.is_initialized(), rank_in_group(group, coordinator))
        self._planner = planner or DefaultSavePlanner()
        self._metadata: Metadata | None = None
        self._results: list[WriteResult] = []
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._staged: StagedData | None = None
        self._plan = self._plan_together(
            {
                name: value.state_dict() if isinstance(value, Stateful) else value
                for name, value in state_dict.items()
            }
        )

    def _plan_together(self, content: dict[str, Any]) -> SavePlan:
        def own_plan() -> SavePlan:
            is_coordinator = self._ranks.is_coordinator
            self._planner.set_up_planner(content, self.writer.storage_meta(), is_coordinator)
            self.writer.set_up_storage_writer(is_coordinator)
            return self.writer.prepare_local_plan(self._planner.create_local_plan())

        def all_plans(plans: list[SavePlan]) -> list[SavePlan]:
            plans, self._metadata = self._planner.create_global_plan(plans)
            return self.writer.prepare_global_plan(plans)

        plan = self._ranks.reduce_scatter("plan", own_plan, all_plans)
        return self._planner.finish_plan(plan)

    def write(self) -> None:
        """Writes the data at once."""
        self._write(self._planner)

    def write_beside(self) -> None:
        """Copies the data, and writes the copies in a thread of its own."""
        self._staged = StagedData(self._plan, self._planner, _memory)
        self._thread = threading.Thread(target=self._write, args=(self._staged,), name="tsm-save")
        self._thread.start()

    def _write(self, planner: Any) -> None:
        try:
            written = self.writer.write_data(self._plan, planner)
            written.wait()
            self._results = written.value()
        except Exception as error:  # told to all ranks by finish()
            self._error = error

    def is_written_everywhere(self) -> bool:
        """True when all ranks have written; they ask at the same time."""
        done = self._thread is None or not self._thread.is_alive()
        return all(self._ranks.all_gather_object(done))

    def finish(self) -> Metadata:
        """Waits for the data of all ranks; the checkpoint is there then."""
        if self._thread is not None:
            self._thread.join()
        if self._staged is not None:
            self._staged.give_back()
            self._staged = None

        def own_results() -> list[WriteResult]:
            if self._error is not None:
                raise self._error
            return self._results

        def make_checkpoint(results: list[list[WriteResult]]) -> Metadata:
            assert self._metadata is not None
            self.writer.finish(self._metadata, results)
            return self._metadata

        return self._ranks.all_reduce("write", own_results, make_checkpoint)
