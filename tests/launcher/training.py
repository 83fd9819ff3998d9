# SPDX-License-Identifier: Apache-2.0
"""A job that trains, and goes on from what it has saved; and whether it did so to the bit."""

from __future__ import annotations

import re
from pathlib import Path

from jobs import Result, Tree

from tests.free_port import free_port

# Keeps its state in memory until the third update. Its first start ends early: after the fifth a
# rank is killed, or its host is lost, or after any one it is stopped. Each rank says the digest of
# its state after every update.
TRAINS = """
    import argparse, hashlib, json, os, signal, time
    import torch
    from torch import nn
    import smdistributed.modelparallel.torch as smp

    parser = argparse.ArgumentParser()
    parser.add_argument("--how")
    parser.add_argument("--disk", type=int, default=0)
    parser.add_argument("--fills", type=int, default=0)
    arguments, _ = parser.parse_known_args()
    start = int(os.environ.get("SM_RESTART_COUNT", "0"))
    folder = os.environ["SM_CHECKPOINT_DIR"]

    smp.init()
    torch.manual_seed(1)
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    model = smp.DistributedModel(net)
    optimizer = smp.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01))

    @smp.step
    def step(batch):
        loss = model(batch).square().mean()
        model.backward(loss)
        return loss

    def update(number):
        optimizer.zero_grad()
        torch.manual_seed(100 + number)
        step(torch.randn(4, 8))
        optimizer.step()

    def digest():
        values = hashlib.sha256()
        def add(value):
            if isinstance(value, torch.Tensor):
                values.update(value.detach().contiguous().numpy().tobytes())
            elif isinstance(value, dict):
                [add(value[key]) for key in sorted(value, key=str)]
            elif isinstance(value, (list, tuple)):
                [add(one) for one in value]
        add(model.state_dict())
        add(optimizer.state_dict())
        return values.hexdigest()

    def say(text):
        os.write(1, f"start {start} rank {smp.rank()} {text}\\n".encode())

    done = 0
    if arguments.how == "stopped":
        smp.checkpoint_on_signal(
            lambda: smp.save_checkpoint(folder, "stopped", user_content={"done": done})
        )
    if arguments.fills and start == 1 and smp.rank() == 0:
        try:
            with open("/dev/shm/full", "wb", buffering=0) as full:
                while True:
                    full.write(bytes(4096))
        except OSError:
            pass
    if smp.has_checkpoint(folder):
        content = smp.resume_from_checkpoint(folder)
        done = content["done"]
        assert content.get("rank", 0) == 0
        say(f"resumed {done}")
        if os.path.exists("/dev/shm/full"):
            os.remove("/dev/shm/full")
        if arguments.how == "host":
            say(f"done {done} {digest()}")
    while done < 9 or arguments.how == "stopped":
        update(done)
        done += 1
        say(f"done {done} {digest()}")
        if done <= 3:  # of rank 0, whatever the others give
            smp.checkpoint_in_memory(folder, {"done": done, "rank": smp.rank()})
            smp.wait_for_saves()
        if done == arguments.disk:
            smp.save_checkpoint(folder, f"at_{done}", user_content={"done": done})
        if start == 0 and done == 5 and arguments.how in ("rank", "host"):
            say("waits")
            if arguments.how == "rank" and smp.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            while arguments.how == "host":
                time.sleep(0.1)
"""
PIPELINE = '{"pipeline_parallel_degree": 2, "microbatches": 2, "ddp": true}'
REPLICAS = '{"ddp": true}'
SHARDED = '{"ddp": true, "sharded_data_parallel_degree": 2, "sdp_param_persistence_threshold": 0}'


def digests(result: Result, start: int) -> dict[tuple[int, int], str]:
    """Of each rank's state, by rank and update."""
    found = re.findall(rf"start {start} rank (\d) done (\d+) (\w{{64}})", result.out)
    return {(int(rank), int(done)): digest for rank, done, digest in found}


def resumed(result: Result) -> list[tuple[int, int]]:
    """Start and update of each rank that has resumed."""
    found = re.findall(r"start (\d) rank \d resumed (\d+)", result.out)
    return [(int(start), int(done)) for start, done in found]


def share_checkpoints(trees: list[Tree]) -> None:
    """As on a file system of all hosts, under a name of each."""
    for tree in trees[1:]:
        (tree.base / "checkpoints").rmdir()
        (tree.base / "checkpoints").symlink_to(trees[0].base / "checkpoints")


def options(library: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(library), "OMP_NUM_THREADS": "1", "SM_LAUNCH_RESTARTS": "1",
            "MASTER_PORT": free_port()}  # fmt: skip


def check(result: Result, ranks: int, resumed_at: int, compared: int = 5) -> None:
    """Its second start went on from the update `resumed_at` to the end, as the first one had until
    the update `compared`: other numbers of ranks round otherwise."""
    assert result.code == 0, result.out + result.err
    assert resumed(result) == [(1, resumed_at)] * ranks, result.out + result.err
    first, second = digests(result, 0), digests(result, 1)
    assert max(done for _, done in second) == 9
    again = {key: digest for key, digest in second.items() if key in first}
    assert again
    for (rank, done), digest in again.items():
        if done <= compared:
            assert digest == first[rank, done], (rank, done)
