# SPDX-License-Identifier: Apache-2.0
"""Jobs on a host whose /dev/shm is too small for the batches of a DataLoader's workers."""

from __future__ import annotations

import pytest
from jobs import ROOT, make_trees, train_binary
from runners import MPI, TORCHRUN, needs_hosts, needs_mpirun, needs_torch, processes

from tests.free_port import free_port

LOAD = """
    import os, sys, torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 6
        def __getitem__(self, index):
            return torch.full((1 << 18,), float(index))

    strategy = os.environ.get("STRATEGY")
    if strategy:
        torch.multiprocessing.set_sharing_strategy(strategy)
    total = sum(batch.mean().item() for batch in DataLoader(Rows(), num_workers=2))
    left = [name for name in os.listdir("/tmp") if name.startswith("torch_")]
    os.write(1, f"total {total} left {left}\\n".encode())
"""


@pytest.fixture
def small_memory(folder, monkeypatch):
    """`train` gets a /dev/shm of half a batch, and a /tmp of its own, in which the repository is
    where it was."""
    wrapper = folder / "train"
    wrapper.write_text(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount -t tmpfs -o size=512k none /dev/shm && "
        f'mount --rbind "{ROOT}" /mnt && mount -t tmpfs none /tmp && mkdir -p "{ROOT}" && '
        f'mount --move /mnt "{ROOT}" && exec "{train_binary()}" "$@"\' train "$@"\n'
    )
    wrapper.chmod(0o755)
    return lambda: monkeypatch.setenv("SMP_TRAIN", str(wrapper))


@needs_torch
@needs_hosts
@pytest.mark.parametrize("strategy", ["", "file_descriptor", "file_system"])
def test_batches_that_do_not_fit_lie_elsewhere_and_nothing_is_left(
    folder, run, small_memory, strategy
):
    [tree] = make_trees(folder, LOAD)
    small_memory()

    result = run(tree, STRATEGY=strategy)

    assert result.code == 0, result.err
    assert "total 15.0 left []" in result.out
    assert "/dev/shm has 0 MiB" in result.err
    assert "lie in /tmp instead" in result.err


@needs_torch
@needs_hosts
def test_so_do_those_of_torchruns_workers(folder, run, small_memory):
    [tree] = make_trees(folder, LOAD, hyperparameter=[*TORCHRUN, processes(2)])
    small_memory()

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    assert result.out.count("total 15.0") == 2


FILLED = """
    from multiprocessing import shared_memory

    segment = shared_memory.SharedMemory(create=True, size=1 << 22)
    segment.buf[:] = bytes(1 << 22)
"""


@needs_torch
@needs_mpirun
@needs_hosts
@pytest.mark.parametrize("settings", [[], [*MPI, processes(1)], [*TORCHRUN, processes(1)]])
def test_what_fills_it_ends_by_a_bus_error_that_names_it(folder, run, small_memory, settings):
    [tree] = make_trees(folder, FILLED, hyperparameter=settings)
    small_memory()

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 1
    assert "SIGBUS" in tree.failure[:1024]
    assert "/dev/shm has 0 MiB" in tree.failure[:1024]
