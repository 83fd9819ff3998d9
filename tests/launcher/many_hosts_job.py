# SPDX-License-Identifier: Apache-2.0
"""A job on many hosts whose ranks wait until somebody has looked at all of them; the ranks are
small, so that what the launcher takes is seen."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cluster import Cluster, Host
from jobs import Result, make_trees

# It opens the gate's file before it speaks: who has heard all ranks can open the gate to all.
RANK = """\
    #!/bin/bash
    exec 3<"$GATE"
    echo "up $EPOCHREALTIME"
    read -r -u 3 _
    [[ $OMPI_COMM_WORLD_RANK != "$FAILING_RANK" ]] || exit 3
    [[ -z $FAILING_RANK ]] || exec sleep 1000
"""
# A container's user has nothing in the file that each shell of an ssh session reads.
PROLOGUE = "ulimit -n 1024 && { [ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc; }"


class ManyHosts(Cluster):
    """`with ManyHosts(folder, 32, 8) as job: job.start_ranks(); …; job.open_gate()`."""

    def __init__(self, folder: Path, hosts: int, ranks_each: int) -> None:
        trees = make_trees(folder, RANK, name="rank.sh", hosts=hosts, processes=ranks_each)
        super().__init__(folder, trees, prologue=PROLOGUE)
        self.ranks = hosts * ranks_each
        self.limit = 120 + 4 * hosts  # [s] it only ends what hangs

    def __enter__(self) -> ManyHosts:
        super().__enter__()
        gate = self.folder / "gate"
        os.mkfifo(gate)
        self._gate = os.open(gate, os.O_RDWR)  # this end closed, all who read it go on
        return self

    def start_ranks(self, failing: int | None = None) -> list[float]:
        """Starts the job; when all ranks are up, the times after which each was, in order."""
        begin = time.time()
        self.start_all(
            GATE=str(self.folder / "gate"), FAILING_RANK="" if failing is None else str(failing)
        )
        self.master.wait_for_line("up ", self.ranks, self.limit)
        lines = [line.split(">:up ") for line in self.master.seen]
        return sorted(float(line[1]) - begin for line in lines if len(line) == 2)

    @property
    def master(self) -> Host:
        return self.hosts[self.names[0]]

    def open_gate(self) -> None:
        os.close(self._gate)

    def finish(self, *, without: str = "") -> list[Result]:
        """Of all hosts but one that is lost."""
        return [host.finish(self.limit) for host in self.hosts.values() if host.name != without]
