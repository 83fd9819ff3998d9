# SPDX-License-Identifier: Apache-2.0
"""A job on two hosts that trains for hours while its ranks are killed one after the other, and what
it holds meanwhile."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from cluster import Host
from host_load import descriptors, family, numbers

# Trains until a file says that it is enough; saves every tenth update and goes on from there.
TRAINS = """
    import os, time
    import torch
    from torch import nn
    import smdistributed.modelparallel.torch as smp

    start, folder = int(os.environ["SM_RESTART_COUNT"]), os.environ["SM_CHECKPOINT_DIR"]
    smp.init()
    torch.manual_seed(1)
    model = smp.DistributedModel(nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))))
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01))

    @smp.step
    def step(batch):
        loss = model(batch).square().mean()
        model.backward(loss)
        return loss

    done = 0
    if smp.has_checkpoint(folder):
        done = smp.resume_from_checkpoint(folder)["done"]
    enough = torch.zeros(1)
    while not enough:
        optimizer.zero_grad()
        step(torch.randn(8, 64))
        optimizer.step()
        done += 1
        if done % 10 == 0:
            smp.save_checkpoint(folder, f"at_{done}", user_content={"done": done},
                                num_kept_partial_checkpoints=2)
            enough[0] = os.path.exists(os.environ["ENOUGH"])
            torch.distributed.broadcast(enough, 0)
        os.write(1, f"start {start} rank {smp.rank()} done {done}\\n".encode())
        time.sleep(0.1)
"""
PARTITIONED = '{"pipeline_parallel_degree": 2, "microbatches": 2, "ddp": true}'


RANKS = 4  # two on each of two hosts


@dataclass(frozen=True)
class Holding:
    """What a host holds while its ranks train."""

    launcher_kb: int  # resident, of `train`
    launcher_descriptors: int
    launcher_threads: int
    processes: int
    rank_kb: int  # resident, of the largest rank
    rank_descriptors: int
    rank_threads: int
    shared_memory_kb: int
    shared_memory_files: int
    tmp_files: int

    @classmethod
    def of(cls, host: Host) -> Holding:
        train = host.pid_of_train()
        ranks = ranks_of(host)
        root = Path(f"/proc/{train}/root")
        shared = files(root / "dev/shm")
        return cls(
            numbers(train, "status")["VmRSS"],
            descriptors(train),
            numbers(train, "status")["Threads"],
            len(list(family(train))),
            max(numbers(rank, "status").get("VmRSS", 0) for rank in ranks),
            max(descriptors(rank) for rank in ranks),
            max(numbers(rank, "status").get("Threads", 0) for rank in ranks),
            sum(file.stat().st_blocks for file in shared) // 2,
            len(shared),
            len(files(root / "tmp")),
        )

    @classmethod
    def most(cls, some: Iterable[Holding]) -> Holding:
        return cls(*map(max, zip(*map(astuple, some), strict=True)))

    @classmethod
    def least(cls, some: Iterable[Holding]) -> Holding:
        return cls(*map(min, zip(*map(astuple, some), strict=True)))

    def grown_from(self, earlier: Holding) -> list[str]:
        """What is more than before; of memory, more than allocators and buffers account for."""
        found = []
        for field in fields(self):
            old, new = getattr(earlier, field.name), getattr(self, field.name)
            slack = max(2048, old // 20) if field.name.endswith("_kb") else 0
            if new > old + slack:
                found.append(f"{field.name}: {old} -> {new}")
        return found


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def ranks_of(host: Host) -> list[int]:
    """The processes of the script."""
    found = []
    for pid in family(host.pid_of_train()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"python" in words[0] and any(word.endswith(b"train.py") for word in words):
            found.append(pid)
    return found


class Reader:
    """Reads a host's streams, so that none fills, and keeps what was said last."""

    def __init__(self, host: Host) -> None:
        self._said = threading.Condition()  # guards those below
        self._updates: dict[tuple[int, int], int] = {}  # by start and rank
        self._last: deque[str] = deque(maxlen=200)
        for stream in (host.process.stdout, host.process.stderr):
            assert stream is not None
            threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: Iterable[str]) -> None:
        for line in stream:
            found = re.search(r"start (\d+) rank (\d+) done (\d+)", line)
            with self._said:
                if found is None:
                    self._last.append(line)
                else:
                    start, rank, done = map(int, found.groups())
                    self._updates[start, rank] = done
                self._said.notify_all()

    def wait_for_updates(self, start: int, count: int, limit: float) -> bool:
        """Until each rank has made so many, in that start or a later one; False after `limit`."""
        first: dict[tuple[int, int], int] = {}

        def all_came_on() -> bool:
            newest = max((number for number, _ in self._updates), default=-1)
            now = {key: done for key, done in self._updates.items() if key[0] == newest}
            for key, done in now.items():
                first.setdefault(key, done)
            return (
                newest >= start
                and len(now) == RANKS
                and all(done - first[key] >= count for key, done in now.items())
            )

        with self._said:
            return self._said.wait_for(all_came_on, limit)

    @property
    def starts(self) -> int:
        with self._said:
            return 1 + max((start for start, _ in self._updates), default=-1)

    @property
    def updates(self) -> int:
        with self._said:
            return max(self._updates.values(), default=0)

    @property
    def last_words(self) -> str:
        with self._said:
            return "".join(self._last)
