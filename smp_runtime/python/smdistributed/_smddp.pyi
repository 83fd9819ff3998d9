# SPDX-License-Identifier: Apache-2.0
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

def create_backend(
    store: Any,
    rank: int,
    size: int,
    timeout: timedelta,
    global_ranks: list[int],
    job: object = None,
) -> Any:
    """A c10d backend; smddp/backend/smddp_backend.h. Collective over the group. ``job``, if it is
    such a backend too, tells which ranks of the job have ended."""

def leave(backend: object, failed: bool) -> None:
    """Leaves the group at the end of a process, after what is queued for it, at most 10 s; of a
    process that has ``failed`` what is queued ends with an error at once."""

def set_fabric_defaults() -> None:
    """Variables of libfabric that have other defaults here, where the environment does not set
    them."""

def missing_rank_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE as Open MPI, PMI or Slurm say them, and the
    place of the rendezvous where all ranks are on this host or Slurm names the first one, as far as
    they are unset; empty for a process that no launcher started."""
