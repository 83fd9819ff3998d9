# SPDX-License-Identifier: Apache-2.0
"""MPI, over which rank 0 can tell the others where the job's store is."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any

from smdistributed import _runtime
from smdistributed.modelparallel.torch._session.process_exit import failure_code

Address = tuple[str, int]


def teller(ranks: _runtime.LaunchRanks) -> Callable[[Address | None], Address] | None:
    """Function that gives rank 0's address to all ranks, which call it together, if this process is
    in a world of MPI that fits ``ranks``; importing it starts MPI."""
    world = _world(ranks)
    return None if world is None else lambda address: tuple(world.bcast(address, root=0))


def _world(ranks: _runtime.LaunchRanks) -> Any | None:
    starts = "mpi4py.MPI" not in sys.modules
    try:
        from mpi4py import MPI  # noqa: PLC0415 - only a job without an address needs it
    except (ImportError, RuntimeError):
        return None
    world = MPI.COMM_WORLD
    if starts:
        atexit.register(_skip_exit_of_mpi_after_failure)
    fits = world.Get_rank() == ranks.rank and world.Get_size() == ranks.size
    return world if fits else None


def _skip_exit_of_mpi_after_failure() -> None:
    """Ends a process that failed: MPI's exit waits for ranks that wait for this one.

    mpirun then ends the others. ``MPI_Abort`` would too, but it does not wait until mpirun has read
    the traceback.
    """
    code = failure_code()
    if code != 0:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
