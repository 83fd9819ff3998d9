# SPDX-License-Identifier: Apache-2.0
"""How values that come one after the other are written by ``torch.distributed.checkpoint``."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.state_dict_saver import save

from smdistributed.modelparallel.torch._checkpoint.dcp_content import DcpContent
from smdistributed.modelparallel.torch._files.dcp_storage import StorageWriter


class _InOrder(DefaultSavePlanner):
    """Has ``take(name)``, called in the order of ``names``, in the place of tensors without
    storage."""

    def __init__(self, names: list[str], take: Callable[[str], torch.Tensor | None]) -> None:
        super().__init__()
        self._place = {name: place for place, name in enumerate(names)}
        self._take = take

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        items = sorted(plan.items, key=lambda item: self._place.get(item.index.fqn, -1))
        self.plan = dataclasses.replace(plan, items=items)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        if index.fqn in self._place:
            return self._take(index.fqn)
        return super().lookup_object(index)


def write_dcp(folder: Path, content: DcpContent) -> None:
    """Raises what keeps it from writing; what was in ``folder`` stays then."""
    try:
        planner = _InOrder(content.names, content.take)
        writer = StorageWriter(folder, single_file_per_rank=True, thread_count=1)
        with warnings.catch_warnings():  # that one process saves, as it is to
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            save(content.content, storage_writer=writer, planner=planner, no_dist=True)
    except CheckpointException as error:  # no Exception, and it tells a stack for each rank
        take_rest(content)
        raise next(iter(error.failures.values()))[0] from None
    except Exception:
        take_rest(content)
        raise


def take_rest(content: DcpContent) -> None:
    """The other ranks send what rank 0 writes. They go on to the end where it cannot, and so does
    rank 0: they could not tell why nobody takes what they have."""
    for name in content.names:
        content.take(name)
