# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine, as like containers as it gets without an engine: each has network, PID,
mount and name spaces of its own, its own /tmp, and its tree at the path all hosts share."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from jobs import (
    LIMIT,
    ROOT,
    Result,
    Running,
    Tree,
    hang_up_as_usual,
    job_environment,
    make_trees,
    train_binary,
)

from tests import host_network
from tests.host_network import ISOLATED, MOUNTS, Network


def lacks() -> str:
    """Why this machine cannot hold such hosts; empty when it can."""
    binary = train_binary().resolve()
    if Path("/tmp") in binary.parents and ROOT not in binary.parents:
        return "the binary lies below /tmp, where the hosts have folders of their own"
    return host_network.lacks("mpirun", "ssh", "sshd")


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
    hosts: dict[str, Host] = field(default_factory=dict)
    subnet: str = "10.77.0"
    rate_mbit: int = 0  # of each host's interface; 0: unlimited
    prologue: str = "true"  # shell words that run on each host before `train`, with its mounts

    def __enter__(self) -> Cluster:
        self.names = [f"algo-{i + 1}" for i in range(len(self.trees))]
        strangers = [f"other-{i + 1}" for i in range(self.outsiders)]
        self.network = Network(self.subnet, self.names + strangers, rate_mbit=self.rate_mbit)
        self.network.__enter__()
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n")
        self.network.write_names(self.folder / "hosts", names=self.names)
        self.base.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.process.kill()
                host.process.wait()
        self.network.__exit__()

    @property
    def base(self) -> Path:
        """The folder in which every host sees its own tree, as /opt/ml in a container."""
        return self.folder / "opt_ml"

    def command_line(self, name: str, *command: object) -> list[str]:
        """Words that run a command from that host's network, with the job's names."""
        names = str(self.folder / "hosts")
        script = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'
        return [*self.network.enter(name), "unshare", "--mount", "bash", "-c", script, "command",
                names, *map(str, command)]  # fmt: skip

    def command(
        self, name: str, *command: object, text: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command from that host's network, with the job's names."""
        return subprocess.run(
            self.command_line(name, *command),
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

    def start(self, name: str, *arguments: str, **environment: str) -> Host:
        tree = self.trees[self.names.index(name)]
        tmp = self.folder / f"tmp-{name}"
        tmp.mkdir(exist_ok=True)
        script = (
            f'{MOUNTS} mount --bind "$1" "$2" && mount --bind "$3" /etc/hosts && own_tmp "$4" && '
            'hostname "container-$RANDOM" && shift 4 && '
            f'{self.prologue} && exec "$@"'
        )
        process = subprocess.Popen(
            [*self.network.enter(name), *ISOLATED, "bash", "-c", script, "host", tree.base,
             self.base, self.folder / "hosts", tmp, train_binary(), *arguments],
            env=job_environment(SAGEMAKER_BASE_DIR=str(self.base), **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hang_up_as_usual,  # noqa: PLW1509
        )  # fmt: skip
        self.hosts[name] = Host(process, tree, name=name)
        return self.hosts[name]

    def start_all(self, *arguments: str, **environment: str) -> list[Host]:
        return [self.start(name, *arguments, **environment) for name in self.names]

    def run(self, *arguments: str, **environment: str) -> list[Result]:
        return [host.finish() for host in self.start_all(*arguments, **environment)]


RUN_UNTIL_STOPPED = """
    import os, signal, sys, time
    from mpi4py import MPI
    def stop(number, frame):
        print(end=f"stopped {MPI.COMM_WORLD.rank}\\n", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    MPI.COMM_WORLD.Barrier()
    print(end="up\\n", flush=True)
    while True:
        time.sleep(0.1)
"""


def two_hosts(
    folder: Path, script: str = RUN_UNTIL_STOPPED, hosts: int = 2, processes: int = 2
) -> Cluster:
    """Two hosts, or more, of two ranks each, or as many as that."""
    return Cluster(folder, make_trees(folder, script, hosts=hosts, processes=processes))
