# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine, as like containers as it gets without an engine: each has network, PID,
mount and name spaces of its own, its own /tmp, and its tree at the path all hosts share."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from jobs import (
    LIMIT,
    Result,
    Running,
    Tree,
    hang_up_as_usual,
    job_environment,
    make_trees,
    train_binary,
)


def lacks() -> str:
    """Why this machine cannot hold such hosts; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "mpirun", "ssh"):
        if subprocess.run(["which", program], capture_output=True, check=False).returncode != 0:
            return f"no {program} here"
    if Path("/tmp") in train_binary().resolve().parents:
        return "the binary lies below /tmp, where the hosts have folders of their own"
    if not Path("/usr/sbin/sshd").exists():
        return "no sshd here"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
    )
    return "" if probe.returncode == 0 else f"unshare: {probe.stderr.decode().strip()}"


def sh(*command: object, check: bool = True) -> None:
    subprocess.run([str(word) for word in command], check=check, capture_output=True, timeout=LIMIT)


@dataclass
class Host(Running):
    name: str = ""

    def pid_of_train(self) -> int:
        """`train`'s PID outside: unshare is its parent there."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid_of_train(), number)


@dataclass
class Cluster:
    folder: Path
    trees: list[Tree]
    outsiders: int = 0  # further hosts on the network that the job does not know
    bridge: str = field(default_factory=lambda: f"smp{uuid.uuid4().hex[:8]}")
    hosts: dict[str, Host] = field(default_factory=dict)
    prologue: str = "true"  # shell words that run on each host before `train`, with its mounts

    def __enter__(self) -> Cluster:
        """A bridge with one interface, named eth0, for each host. Addresses belong to it alone."""
        self.names = [f"algo-{i + 1}" for i in range(len(self.trees))]
        sh("ip", "netns", "add", self.bridge)
        sh("ip", "-n", self.bridge, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", self.bridge, "link", "set", "br0", "up")
        for index, name in enumerate(self.names):
            self.add_namespace(name, f"10.77.0.{index + 1}")
        self.strangers = [f"other-{i + 1}" for i in range(self.outsiders)]
        for index, name in enumerate(self.strangers):
            self.add_namespace(name, f"10.77.0.{index + 100}")
        lines = [f"10.77.0.{i + 1} {name}\n" for i, name in enumerate(self.names)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        self.base.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.process.kill()
                host.process.wait()
        for name in self.names + self.strangers:
            sh("ip", "netns", "del", self.namespace(name), check=False)
        sh("ip", "netns", "del", self.bridge, check=False)

    @property
    def base(self) -> Path:
        """Where every host sees its own tree, as /opt/ml in a container."""
        return self.folder / "opt_ml"

    def namespace(self, name: str) -> str:
        return f"{self.bridge}-{name}"

    def add_namespace(self, name: str, address: str) -> None:
        namespace = self.namespace(name)
        sh("ip", "netns", "add", namespace)
        sh("ip", "-n", self.bridge, "link", "add", name, "type", "veth", "peer", "eth0", "netns",
           namespace)  # fmt: skip
        sh("ip", "-n", self.bridge, "link", "set", name, "master", "br0", "up")
        sh("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        sh("ip", "-n", namespace, "link", "set", "eth0", "up")
        sh("ip", "-n", namespace, "link", "set", "lo", "up")

    def command(
        self, name: str, *command: object, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command from that host's network, with the job's names."""
        names = self.folder / "hosts"
        script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace(name), "unshare", "--mount", "bash", "-c",
             script, "command", names, *map(str, command)],
            input=text, capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip

    def launch_file(self, name: str, file: str) -> Path:
        """A file of that host's private folder, once it is there."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            for path in (self.folder / f"tmp-{name}").glob(f"smp-launch-*/{file}"):
                return path
            assert self.hosts[name].process.poll() is None, self.hosts[name].stderr()
        raise AssertionError(f"no {file} on {name}")

    def start(self, name: str, **environment: str) -> Host:
        tree = self.trees[self.names.index(name)]
        tmp = self.folder / f"tmp-{name}"
        tmp.mkdir(exist_ok=True)
        tmp.chmod(0o1777)
        script = (
            'mount --bind "$1" "$2" && mount --bind "$3" /etc/hosts && mount --bind "$4" /tmp && '
            'hostname "container-$RANDOM" && shift 4 && '
            f'{self.prologue} && exec "$@"'
        )
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(name),
             "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
             "bash", "-c", script, "host", tree.base, self.base, self.folder / "hosts", tmp,
             train_binary()],
            env=job_environment(SAGEMAKER_BASE_DIR=str(self.base), **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hang_up_as_usual,  # noqa: PLW1509
        )  # fmt: skip
        self.hosts[name] = Host(process, tree, name=name)
        return self.hosts[name]

    def start_all(self, **environment: str) -> list[Host]:
        return [self.start(name, **environment) for name in self.names]

    def run(self, **environment: str) -> list[Result]:
        return [host.finish() for host in self.start_all(**environment)]


RUN_UNTIL_STOPPED = """
    import os, signal, sys, time
    from mpi4py import MPI
    def stop(number, frame):
        print("stopped", MPI.COMM_WORLD.rank, flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    MPI.COMM_WORLD.Barrier()
    print("up", flush=True)
    while True:
        time.sleep(0.1)
"""


def two_hosts(folder: Path, script: str = RUN_UNTIL_STOPPED, hosts: int = 2) -> Cluster:
    """Two hosts, or more, of two ranks each."""
    return Cluster(folder, make_trees(folder, script, hosts=hosts, processes=2))
