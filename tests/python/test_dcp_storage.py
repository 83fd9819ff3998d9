# SPDX-License-Identifier: Apache-2.0
"""DCP through our writer: whole or not at all, in DCP's own format, and checked when it is read."""

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from smdistributed.modelparallel.checkpoint import StorageReader, StorageWriter
from smdistributed.modelparallel.torch._files.verification import verify_checkpoint
from smdistributed.modelparallel.torch.exceptions import SMPCheckpointError
from torch.distributed.checkpoint.api import CheckpointException

SHARDED = Path(__file__).parent / "dcp_job.py"
SAVER = """
import sys, torch, torch.distributed.checkpoint as dcp
from smdistributed.modelparallel.checkpoint import StorageWriter
step = int(sys.argv[2])
while True:
    step += 1
    content = {str(n): torch.full((200, 200), step) for n in range(20)}
    dcp.save(content, storage_writer=StorageWriter(sys.argv[1]))
    print(step, flush=True)
"""


def content(value: float) -> dict[str, Any]:
    return {"model": {f"w{n}": torch.full((30, 40), value) for n in range(3)}, "step": int(value)}


def save(folder: Path, value: float, writer: Any = StorageWriter, **options: Any) -> None:
    dcp.save(content(value), storage_writer=writer(folder, **options))


def load(folder: Path, reader: Any = StorageReader) -> dict[str, Any]:
    read = content(0)
    dcp.load(read, storage_reader=reader(folder))
    return read


def assert_is(read: dict[str, Any], value: float) -> None:
    assert read["step"] == value
    assert all(torch.equal(one, torch.full((30, 40), value)) for one in read["model"].values())


@pytest.mark.parametrize("writer", [StorageWriter, dcp.FileSystemWriter])
@pytest.mark.parametrize("reader", [StorageReader, dcp.FileSystemReader])
def test_each_reads_what_the_other_wrote(tmp_path: Path, writer: Any, reader: Any) -> None:
    save(tmp_path / "one", 3, writer)
    assert_is(load(tmp_path / "one", reader), 3)
    verify_checkpoint(tmp_path)


@pytest.mark.parametrize("options", [{"thread_count": 2}, {"single_file_per_rank": False}])
def test_options_of_dcp_stay(tmp_path: Path, options: dict[str, Any]) -> None:
    save(tmp_path / "one", 3, **options)
    assert_is(load(tmp_path / "one"), 3)
    assert len(list((tmp_path / "one").glob("*.distcp"))) > 1


def test_a_new_one_takes_the_place_of_the_old(tmp_path: Path) -> None:
    save(tmp_path / "one", 3, single_file_per_rank=False)
    save(tmp_path / "one", 4)

    assert_is(load(tmp_path / "one"), 4)
    assert sorted(os.listdir(tmp_path / "one")) == [".metadata", "__0_0.distcp", "smp_digests.json"]
    assert os.listdir(tmp_path) == ["one"]

    with pytest.raises(CheckpointException, match="overwrite is False"):
        save(tmp_path / "one", 5, overwrite=False)
    assert_is(load(tmp_path / "one"), 4)


def test_a_save_that_fails_leaves_the_old(tmp_path: Path) -> None:
    save(tmp_path / "one", 3)

    class Unpicklable:
        def __reduce__(self) -> Any:
            raise ArithmeticError("no")

    with pytest.raises(CheckpointException, match="ArithmeticError"):
        dcp.save({"a": torch.ones(2), "b": Unpicklable()},
                 storage_writer=StorageWriter(tmp_path / "one"))  # fmt: skip

    assert_is(load(tmp_path / "one"), 3)
    save(tmp_path / "one", 4)
    assert os.listdir(tmp_path) == ["one"]


def test_an_asynchronous_save_goes_through_it(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1",
         SHARDED, tmp_path / "one", "asynchronous"],
        check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    assert verify_checkpoint(tmp_path / "one")[0].files == 1


def test_ranks_of_fsdp_save_and_load_through_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         SHARDED, tmp_path / "one", "sharded"],
        check=False, timeout=120, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("same") == 2
    [found] = verify_checkpoint(tmp_path / "one")
    assert (found.files, found.notes) == (2, [])


@pytest.mark.parametrize("how", ["cut", "flipped", "missing", "of another save"])
def test_what_is_not_whole_is_refused_by_name(tmp_path: Path, how: str) -> None:
    save(tmp_path / "one", 3)
    save(tmp_path / "two", 4)
    file = tmp_path / "one" / "__0_0.distcp"
    whole = file.read_bytes()
    damaged = {
        "cut": whole[:-1],
        "flipped": whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:],
        "of another save": (tmp_path / "two" / file.name).read_bytes(),
    }
    file.unlink()
    if how in damaged:
        file.write_bytes(damaged[how])

    with pytest.raises(CheckpointException, match=rf"SMPCheckpointError.*{file.name} is "):
        load(tmp_path / "one")
    with pytest.raises(SMPCheckpointError, match=rf"\n  {file.name} is "):
        verify_checkpoint(tmp_path / "one")


def test_metadata_runs_nothing(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "mark"),)

    save(tmp_path / "one", 3)
    (tmp_path / "one" / ".metadata").write_bytes(pickle.dumps(Hostile()))

    with pytest.raises(CheckpointException, match=r"holds posix\.mkdir, which could run code"):
        load(tmp_path / "one")
    assert not (tmp_path / "mark").exists()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointException, match="there is no checkpoint of DCP in"):
        load(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointException, match=r"cannot write the checkpoint .*file/one"):
        save(tmp_path / "file" / "one", 3)


def test_killed_saves_leave_a_whole_checkpoint(tmp_path: Path) -> None:
    target, generator, told = tmp_path / "one", random.Random(5), 0
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(target), str(told)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        told = int(process.stdout.readline())
        time.sleep(generator.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        told = max([told, *map(int, process.stdout.read().split())])

        read = {str(n): torch.zeros(200, 200, dtype=torch.int64) for n in range(20)}
        dcp.load(read, storage_reader=StorageReader(target))

        values = {int(one) for tensor in read.values() for one in tensor.unique()}
        assert values <= {told, told + 1}
        assert len(values) == 1
        told = max(values)
