# SPDX-License-Identifier: Apache-2.0
"""Groups of smddp made over keys of earlier ones, and those that cannot be made. On warm ranks."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from smdistributed._smddp import create_backend
from smdistributed.dataparallel.torch import backend_registration

backend_registration.register()  # torch_smddp would set variables that the next smp.init reads

LONG = timedelta(seconds=60)
FAILS = 2  #: the rank that cannot make a group


def made_again() -> None:
    """Under one prefix, as torch has it for a group that is destroyed and made again, and for the
    next attempt of a job: each time another rank comes last."""
    rank, size = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    for turn in range(size):
        if rank == turn:
            store.wait([f"{turn} {other} comes" for other in range(size) if other != rank])
        else:
            store.set(f"{turn} {rank} comes", "")
        group = create_backend(store, rank, size, LONG, list(range(size)))
        for count in (5, 100_000):
            sums = torch.full((count,), float(rank + turn))
            group.allreduce([sums]).wait()
            assert torch.equal(sums, torch.full((count,), float(sum(range(size)) + turn * size)))
        got = torch.empty(3)
        works = [
            group.send([torch.full((3,), rank + 10.0 * turn)], (rank + 1) % size, 0),
            group.recv([got], (rank - 1) % size, 0),
        ]
        for work in works:
            work.wait()
        assert torch.equal(got, torch.full((3,), (rank - 1) % size + 10.0 * turn))
        part = dist.new_group(backend="smddp", timeout=LONG)  # beside it
        dist.barrier(part)
        dist.destroy_process_group(part)
        if turn == 0:
            group.monitored_barrier(LONG, True)
        elif turn == size - 1 and rank > 0:  # the first group has left keys of all ranks
            with pytest.raises(dist.DistBackendError, match=r"for rank\(s\) 0, "):
                group.monitored_barrier(timedelta(seconds=2), True)
        dist.barrier()
        group.shutdown()


def told() -> str:
    try:
        dist.new_group(backend="smddp", timeout=LONG)
    except Exception as error:  # the test looks at its kind
        return f"{type(error).__name__}: {error}"
    return "no error"


@contextlib.contextmanager
def few_open_files() -> Iterator[None]:
    """Leaves no more open files than there are."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(int(number) for number in os.listdir("/proc/self/fd")) + 1
    with contextlib.ExitStack() as files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
        with contextlib.suppress(OSError):  # until there is no number left
            while True:
                files.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def declined() -> dict[str, str]:
    """Errors on each rank where one of them cannot make a group."""
    fails, start, found = dist.get_rank() == FAILS, time.monotonic(), {}
    with pytest.MonkeyPatch.context() as patch:
        if fails:
            patch.setenv("SMDDP_SLOT_BYTES", "0")
        found["a variable"] = told()
    with pytest.MonkeyPatch.context() as patch:
        if fails:
            patch.setitem(globals(), "LONG", timedelta(0))
        found["a timeout"] = told()
    with few_open_files() if fails else contextlib.nullcontext():
        found["open files"] = told()
    dist.barrier(dist.new_group(backend="smddp", timeout=LONG))  # all is well again
    found["seconds"] = f"{time.monotonic() - start:.1f}"
    return found


def timeouts() -> None:
    """One that is too long to count waits as long as it takes; what lets nobody come, such as what
    torch makes of timedelta.max, is refused."""
    rank = dist.get_rank()
    group = dist.new_group(backend="smddp", timeout=timedelta(days=365 * 250))
    dist.barrier()
    if rank == 0:
        work = dist.irecv(torch.empty(3), 1, group)
        assert work is not None
    sums = torch.ones(100_000)
    dist.all_reduce(sums, group=group)
    assert (sums == dist.get_world_size()).all()
    if rank == 1:
        dist.send(torch.ones(3), 0, group)
    if rank == 0:
        work.wait()
    backend = group._get_backend(torch.device("cpu"))
    for timeout in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(ValueError, match="which lets nobody come"):
            backend.set_timeout(timeout)
    for timeout in (timedelta(0), timedelta(seconds=-1), timedelta.max):
        with pytest.raises(ValueError, match="which lets nobody come"):
            create_backend(dist.HashStore(), 0, 1, timeout, [])
