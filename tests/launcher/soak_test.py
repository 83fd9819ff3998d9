# SPDX-License-Identifier: Apache-2.0
"""For SMP_SOAK_MINUTES ranks of a job on two hosts are killed at random and started again, and
nothing grows: not the launchers, not the ranks, not what lies in shared memory and /tmp."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from cluster import Cluster
from jobs import make_trees
from runners import library, needs_hosts, needs_mpirun, needs_torch
from soak import PARTITIONED, TRAINS, Holding, Reader, ranks_of
from training import share_checkpoints

MINUTES = float(os.environ.get("SMP_SOAK_MINUTES", "0"))
PAUSE = min(600.0, 60 * MINUTES / 24)  # [s] from one kill to the next, in the mean
LIMIT = 300  # [s] for a start of the ranks


@pytest.mark.long
@needs_hosts
@needs_mpirun
@needs_torch
@pytest.mark.skipif(MINUTES == 0, reason="SMP_SOAK_MINUTES, which ci/test soak sets, is not set")
def test_nothing_grows_while_ranks_are_killed_and_started_again(folder):
    generator = random.Random(53)
    trees = make_trees(folder, TRAINS, hosts=2, processes=2, **{"mp-parameters": PARTITIONED})
    share_checkpoints(trees)
    young: dict[str, list[Holding]] = {}
    old: dict[str, list[Holding]] = {}
    kills = 0
    end = time.monotonic() + 60 * MINUTES
    with Cluster(folder, trees) as hosts:
        running = hosts.start_all(
            PYTHONPATH=str(library()), OMP_NUM_THREADS="1", ENOUGH=str(folder / "enough"),
            SM_LAUNCH_RESTARTS="100000",
        )  # fmt: skip
        readers = [Reader(host) for host in running]
        while True:
            came_on = readers[0].wait_for_updates(kills, 20, LIMIT)
            assert came_on, readers[0].last_words
            for host in running:
                young.setdefault(host.name, []).append(Holding.of(host))
            if time.monotonic() >= end:
                break
            time.sleep(generator.uniform(0, 2 * PAUSE))
            for host in running:
                old.setdefault(host.name, []).append(Holding.of(host))
            os.kill(generator.choice(ranks_of(generator.choice(running))), signal.SIGKILL)
            kills += 1
        (folder / "enough").touch()
        codes = [host.process.wait(LIMIT) for host in running]

    assert codes == [0, 0], readers[0].last_words
    assert readers[0].starts == kills + 1
    for name, found in young.items():
        third = max(1, len(found) // 3)
        first, last = Holding.most(found[:third]), Holding.least(found[-third:])
        print(f"{name}: {kills} kills, {readers[0].updates} updates\n  {first}\n  {last}")
        assert last.grown_from(first) == []
        lives = [after.grown_from(before) for before, after in zip(found, old[name], strict=False)]
        assert sum(map(bool, lives)) <= len(lives) / 2, lives
