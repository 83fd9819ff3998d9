# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine for jobs of several ranks: network namespaces on a bridge, each with an
interface eth0, at a rate that can be limited. What they share but the network (files, processes)
is of no use to ranks on different ones: smddp tells hosts apart by their network."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path


def lacks() -> str:
    """Why this machine cannot hold such hosts; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if subprocess.run(["which", "ip"], capture_output=True, check=False).returncode != 0:
        return "no ip here (Debian: iproute2)"
    name = f"probe{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode != 0:
        return f"ip netns: {made.stderr.decode().strip()}"
    veth = subprocess.run(
        ["ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"],
        capture_output=True,
        check=False,
    )
    subprocess.run(["ip", "netns", "del", name], check=False)
    return "" if veth.returncode == 0 else f"ip link: {veth.stderr.decode().strip()}"


def sh(*command: object, check: bool = True) -> None:
    subprocess.run([str(word) for word in command], check=check, capture_output=True, timeout=60)


@dataclass
class NetHosts:
    """`with NetHosts(2) as hosts: hosts.run([...], ranks_each=2)`."""

    count: int
    rate_mbit: int = 0  # of each host's interface, in and out; 0: unlimited
    credit_kb: int = 64  # what an interface that was idle sends at once, whatever the rate
    mark: str = field(default_factory=lambda: f"net{uuid.uuid4().hex[:8]}")

    def __enter__(self) -> NetHosts:
        sh("ip", "netns", "add", self.mark)
        try:
            sh("ip", "-n", self.mark, "link", "add", "br0", "type", "bridge")
            sh("ip", "-n", self.mark, "link", "set", "br0", "up")
            for host in range(self.count):
                self._add(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in range(self.count):
            sh("ip", "netns", "del", self.namespace(host), check=False)
        sh("ip", "netns", "del", self.mark, check=False)

    def namespace(self, host: int) -> str:
        return f"{self.mark}-{host}"

    @staticmethod
    def address(host: int) -> str:
        return f"10.78.0.{host + 1}"

    def _add(self, host: int) -> None:
        inside, port = self.namespace(host), f"port{host}"
        sh("ip", "netns", "add", inside)
        sh("ip", "-n", self.mark, "link", "add", port, "type", "veth",
           "peer", "eth0", "netns", inside)  # fmt: skip
        sh("ip", "-n", self.mark, "link", "set", port, "master", "br0", "up")
        sh("ip", "-n", inside, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        sh("ip", "-n", inside, "link", "set", "eth0", "up")
        sh("ip", "-n", inside, "link", "set", "lo", "up")
        if self.rate_mbit:
            rate, credit = f"{self.rate_mbit}mbit", f"{self.credit_kb}kb"
            shaped = ("rate", rate, "burst", credit, "latency", "100ms")
            for space, device in ((inside, "eth0"), (self.mark, port)):
                sh("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", *shaped)

    def sent_bytes(self, host: int) -> int:
        """What has left a host since it is there, with all headers."""
        file = "/sys/class/net/eth0/statistics/tx_bytes"
        done = subprocess.run(
            ["ip", "netns", "exec", self.namespace(host), "cat", file],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(done.stdout)

    def start(
        self, command: list[str], ranks_each: int, **variables: str
    ) -> list[subprocess.Popen[str]]:
        """One process a rank with the variables of a launcher; output of each in its pipe."""
        running = []
        for rank in range(self.count * ranks_each):
            host = rank // ranks_each
            own = {
                "RANK": str(rank),
                "WORLD_SIZE": str(self.count * ranks_each),
                "LOCAL_RANK": str(rank % ranks_each),
                "LOCAL_WORLD_SIZE": str(ranks_each),
                "MASTER_ADDR": self.address(0),
                "MASTER_PORT": "29500",  # the namespace is ours alone
                "GLOO_SOCKET_IFNAME": "eth0",
                "OMP_NUM_THREADS": "1",
            }
            running.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", self.namespace(host), *command],
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
