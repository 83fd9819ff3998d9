# SPDX-License-Identifier: Apache-2.0
"""A cluster of Slurm on one machine: Debian's munged, slurmctld and slurmd in network, UTS, PID
and mount namespaces, one set a host. The controller runs on `login`, where jobs are started from;
nodes have names of this cluster alone, for the kernel's control groups are named by them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests import host_network
from tests.host_network import (
    BOUND,
    ISOLATED,
    LIMIT,
    MOUNTS,
    ROOT,
    SYSTEM_PATH,
    Network,
    sh,
    write_etc,
)

USER = "trainer"  # runs the jobs that are not root's
FREEZER = Path("/sys/fs/cgroup/freezer")  # Slurm tracks a job's processes by it, if it is there
CPUS = 8  # number that a node says it has: several jobs fit

# /tmp and /dev/shm must be each host's own, or PMIx of two nodes meets.
HOST = (
    MOUNTS
    + """
folder=$1 name=$2
own_folders "$folder/$name"
own_names "$folder" "$name"
mount --bind "$folder/etc" /etc/slurm
mkdir /run/munge
munged --foreground --force --key-file "$folder/munge.key" --socket /run/munge/munge.socket.2 \
  --pid-file /run/munge/pid --seed-file /run/munge/seed --log-file "$folder/$name/munged.log" \
  --num-threads 2 2>"$folder/$name/munged.err" &
until [ -S /run/munge/munge.socket.2 ]; do sleep 0.02; done
case $name in
  login) slurmctld -D -L "$folder/$name/slurmctld.log" & ;;
  *) slurmd -D -N "$name" -L "$folder/$name/slurmd.log" & ;;
esac
wait $!  # as the first process of its namespace the shell takes in what daemons leave
"""
)

CONFIGURATION = """\
ClusterName=smp
SlurmctldHost=login
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=20
KillWait=15
MpiDefault=none
PropagateResourceLimits=NONE
JobAcctGatherType=jobacct_gather/none
SlurmctldDebug=info
SlurmdDebug=debug
NodeName={mark}-[1-{nodes}] CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def lacks() -> str:
    """Why this machine cannot hold such a cluster; empty when it can."""
    missing = host_network.lacks("nsenter", "munged", "slurmctld", "slurmd", "srun")
    return f"{missing}; ci/setup --slurm installs Slurm" if missing.startswith("no ") else missing


@dataclass
class Ended:
    """A job that is over."""

    number: str
    state: str
    code: str  # EXIT:SIGNAL of the batch script
    out: str


@dataclass
class SlurmCluster:
    """`with SlurmCluster(2) as cluster: cluster.run("srun", "hostname")`."""

    nodes: int = 2
    mark: str = field(default_factory=lambda: f"n{uuid.uuid4().hex[:6]}x")
    hosts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> SlurmCluster:
        with contextlib.ExitStack() as undo:
            # Not below /tmp, which is each host's own.
            self.folder = Path(tempfile.mkdtemp(prefix="smp-slurm-", dir="/var/tmp"))
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.chmod(0o755)
            self.network = undo.enter_context(Network("10.79.0", self.names))
            undo.callback(self._stop)
            self._write_files()
            for name in self.names:
                self.start(name)
            self.wait_until_up()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _stop(self) -> None:
        for name in self.hosts:
            self.kill(name)
        for group in sorted(FREEZER.glob(f"slurm_{self.mark}-*/**/"), reverse=True):
            with contextlib.suppress(OSError):
                group.rmdir()

    def node(self, number: int) -> str:
        """The name of the first node for 1, and so on."""
        return f"{self.mark}-{number}"

    @property
    def names(self) -> list[str]:
        return ["login", *(self.node(number) for number in range(1, self.nodes + 1))]

    @property
    def shared(self) -> Path:
        """A folder that all hosts see, and that any user may write to."""
        return self.folder / "shared"

    def start(self, name: str) -> None:
        """Starts a host: its daemons, and with it the namespaces."""
        (self.folder / name / "spool").mkdir(parents=True, exist_ok=True)
        # nsenter, not `ip netns exec`, which hides the control groups.
        self.hosts[name] = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.network.namespace(name)}", *BOUND, *ISOLATED,
             "bash", "-c", HOST, "host", self.folder, name],
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / name / "out").open("ab"),
            stderr=subprocess.STDOUT,
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        )  # fmt: skip

    def kill(self, name: str) -> None:
        """As when its power fails: all its processes are gone."""
        self.hosts[name].kill()
        self.hosts[name].wait(timeout=LIMIT)

    def popen(
        self, *command: object, user: str = "root", host: str = "login", **variables: str
    ) -> subprocess.Popen[str]:
        """Starts a command on a host, with the namespaces of its daemons."""
        return subprocess.Popen(
            [*self._enter(host, user), "env", "-C", self.shared, *map(str, command)],
            env=self._environment(user) | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *command: object, user: str = "root", host: str = "login", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        process = self.popen(*command, user=user, host=host, **variables)
        try:
            out, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # nsenter's own end is not that of its child
            raise AssertionError(f"{command}: {process.communicate()[0]}{self.logs()}") from None
        return subprocess.CompletedProcess(command, process.returncode, out)

    def sbatch(self, *words: object, user: str = "root", **variables: str) -> str:
        """Queues a job; its number. What it prints goes to `shared`/NUMBER.out."""
        done = self.run(
            "sbatch", "--parsable", f"--output={self.shared}/%j.out", *words, user=user, **variables
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.strip().split(";")[0]

    def output(self, job: str) -> str:
        path = self.shared / f"{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_line(self, job: str, text: str, limit: float = LIMIT) -> None:
        deadline = time.monotonic() + limit
        while text not in self.output(job):
            assert time.monotonic() < deadline, f"no {text!r}: {self.output(job)}{self.logs()}"
            time.sleep(0.05)

    def state(self, job: str) -> dict[str, str]:
        shown = self.run("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(re.findall(r"(\w+)=(\S*)", shown))

    def wait(self, job: str, limit: float = LIMIT) -> Ended:
        """Waits until the job is over."""
        deadline = time.monotonic() + limit
        while True:
            shown = self.state(job)
            over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
            if shown.get("JobState") in over:
                return Ended(job, shown["JobState"], shown["ExitCode"], self.output(job))
            assert time.monotonic() < deadline, f"{shown}: {self.output(job)}{self.logs()}"
            time.sleep(0.1)

    def cancel_all(self) -> None:
        """Ends the jobs that a failed test has left."""
        if self.run("squeue", "--noheader").stdout.strip():
            self.run("scancel", "--partition=all")
            self.wait_until_idle()

    def processes(self, name: str) -> list[str]:
        """Command lines of a node's processes but its daemons."""
        lines = sh(*self._enter(name, "root"), "ps", "-e", "-o", "args=").splitlines()
        own = ("slurmd ", "slurmctld ", "munged ", "ps -e", "bash -c")
        return [line for line in lines if line.strip() and not line.startswith(own)]

    def wait_until_idle(self, limit: float = LIMIT) -> None:
        """Until no node has a process of a job."""
        deadline = time.monotonic() + limit
        while True:
            left = {name: self.processes(name) for name in self.names[1:]}
            if not any(left.values()):
                return
            assert time.monotonic() < deadline, left
            time.sleep(0.1)

    def logs(self) -> str:
        """The ends of the daemons' logs, for a failure's text."""
        texts = []
        for file in sorted(self.folder.glob("*/*")):
            if file.is_file():
                lines = file.read_text(errors="replace").splitlines()[-25:]
                texts.append("\n".join([f"--- {file.relative_to(self.folder)}", *lines]))
        return "\n" + "\n".join(texts)

    def _enter(self, name: str, user: str) -> list[str]:
        parent = self.hosts[name].pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        ids = [] if user == "root" else ["--setuid", "1000", "--setgid", "1000"]
        spaces = ["--mount", "--uts", "--ipc", "--net", "--pid"]
        return ["nsenter", "--target", children[0], *spaces, *ids]

    def _environment(self, user: str) -> dict[str, str]:
        home = "/root" if user == "root" else str(self.folder / "home")
        path = f"{ROOT}/.venv/bin:{SYSTEM_PATH}"
        return {"PATH": path, "HOME": home, "USER": user, "LANG": "C.UTF-8"}

    def _write_files(self) -> None:
        for name in ("etc", "state", "shared", "home", *self.names):
            (self.folder / name).mkdir()
        self.shared.chmod(0o1777)
        os.chown(self.folder / "home", 1000, 1000)
        write_etc(self.folder, USER, f"{self.folder}/home")
        self.network.write_names(self.folder / "hosts")
        (self.folder / "munge.key").write_bytes(os.urandom(128))
        (self.folder / "munge.key").chmod(0o400)
        configuration = CONFIGURATION.format(
            folder=self.folder,
            mark=self.mark,
            nodes=self.nodes,
            cpus=CPUS,
            proctrack="cgroup" if FREEZER.is_dir() else "linuxproc",
        )
        (self.folder / "etc/slurm.conf").write_text(configuration)
        (self.folder / "etc/cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n"
        )

    def wait_until_up(self) -> None:
        deadline = time.monotonic() + LIMIT
        while True:
            shown = ""
            with contextlib.suppress(IndexError, FileNotFoundError):
                shown = self.run("sinfo", "--noheader", "--format=%t %D").stdout.strip()
            if shown == f"idle {self.nodes}":
                return
            ended = [name for name, host in self.hosts.items() if host.poll() is not None]
            assert not ended and time.monotonic() < deadline, f"{ended} {shown}{self.logs()}"
            time.sleep(0.1)
