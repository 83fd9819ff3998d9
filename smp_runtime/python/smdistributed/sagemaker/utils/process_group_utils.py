# SPDX-License-Identifier: Apache-2.0
"""Ranks of process groups."""

from __future__ import annotations

import torch.distributed as dist


def get_global_ranks(process_group: dist.ProcessGroup | None = None) -> list[int]:
    """Ranks of the job that are in the group, by their rank in it; all, without a group."""
    return dist.get_process_group_ranks(process_group or dist.group.WORLD)
