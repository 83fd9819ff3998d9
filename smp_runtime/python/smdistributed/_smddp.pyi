# SPDX-License-Identifier: Apache-2.0
# ci/signatures writes this of smp_runtime/python/bindings_*.cc.
"""The C++ side of smdistributed.dataparallel; its names may change without notice."""

from __future__ import annotations

import collections.abc
import datetime

import torch._C._distributed_c10d
import torch.distributed.distributed_c10d

def create_backend(
    store: torch.distributed.distributed_c10d.Store,
    rank: int,
    size: int,
    timeout: datetime.timedelta,
    global_ranks: collections.abc.Sequence[int],
    job: torch._C._distributed_c10d.Backend | None = None,
) -> torch._C._distributed_c10d.Backend:
    """A c10d backend; smddp/backend/smddp_backend.h. Collective over the group. ``job``, if
    it is such a backend too, tells which ranks of the job have ended."""

def leave(backend: torch._C._distributed_c10d.Backend | None, failed: bool) -> None:
    """Leaves the group at the end of a process, after what is queued for it, at most 10 s; of a
    process that has ``failed`` what is queued ends with an error at once. A ``backend`` of
    another kind stays as it is."""

def missing_rank_variables(variables: collections.abc.Mapping[str, str]) -> dict[str, str]:
    """RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE as Open MPI, PMI or Slurm say them,
    and the place of the rendezvous where all ranks are on this host or Slurm names the
    first one, as far as they are unset; empty for a process that no launcher started."""

def set_fabric_defaults() -> None:
    """Variables of libfabric that have other defaults here, where the environment does not
    set them."""
