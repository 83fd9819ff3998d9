# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine for jobs of several ranks: network namespaces. What they share but
the network (files, processes) is of no use to ranks on different ones: smddp tells hosts apart by
their network."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.host_network import Network


class NetHosts(Network):
    """`with NetHosts(2) as hosts: hosts.run([...], ranks_each=2)`."""

    def __init__(self, count: int, **rates: int) -> None:
        super().__init__("10.78.0", [f"host-{i + 1}" for i in range(count)], **rates)

    def __enter__(self) -> NetHosts:
        super().__enter__()
        return self

    def start(
        self, command: list[str], ranks_each: int, **variables: str
    ) -> list[subprocess.Popen[str]]:
        """One process a rank with the variables of a launcher; output of each in its pipe."""
        running = []
        size = len(self.names) * ranks_each
        for rank in range(size):
            host = self.names[rank // ranks_each]
            own = {
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank % ranks_each),
                "LOCAL_WORLD_SIZE": str(ranks_each),
                "MASTER_ADDR": self.address(self.names[0]),
                "MASTER_PORT": "29500",  # the namespace is ours alone
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
            }
            running.append(
                subprocess.Popen(
                    [*self.enter(host), *command],
                    env={**os.environ, **own, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            )
        return running

    def run(
        self, command: list[str], ranks_each: int, limit: float = 240, **variables: str
    ) -> list[tuple[int, str]]:
        """Exit status and output of each rank."""
        running = self.start(command, ranks_each, **variables)
        try:
            outputs = [process.communicate(timeout=limit)[0] for process in running]
        finally:
            for process in running:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return [
            (process.returncode, output) for process, output in zip(running, outputs, strict=True)
        ]


JOBS = Path(__file__).resolve().parent / "jobs"
