# SPDX-License-Identifier: Apache-2.0
"""Pods on one machine: what Kubernetes' controllers and AWS Batch give a container, in network,
UTS, PID and mount namespaces, with the image's files for ssh. Names resolve when published."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests import host_network
from tests.digits_job import BUILT
from tests.host_network import BOUND, ISOLATED, LIMIT, MOUNTS, Network, sh, write_etc

POD = (
    MOUNTS
    + """
folder=$1 name=$2 home=$3 user=$4 hostfile=$5 && shift 5
own_folders "$folder/$name"
mount -t tmpfs tmpfs /opt && mkdir /opt/ml && mount --bind "$folder/job" /opt/ml
# A copy of /etc with the image's files for ssh, so that the machine's own stays as it is.
cp -a /etc "$folder/$name/etc" && mount --bind "$folder/$name/etc" /etc
rm -f /etc/ssh/ssh_host_* && cp -r "$checkout/docker/rootfs/etc/ssh/." /etc/ssh/
own_names "$folder" "$name"
mount -t tmpfs tmpfs /home && cp -r "$checkout/docker/rootfs/home/." /home/
chown 1000:1000 /home/mpiuser
if [ -n "$home" ]; then
  mount -t tmpfs tmpfs /root
  mkdir -p "$home" && mount --bind -o ro "$folder/secret" "$home"
fi
if [ -n "$hostfile" ]; then
  mkdir /etc/mpi && cp "$hostfile" /etc/mpi/hostfile
fi
touch "$folder/$name/mounted"
if [ "$user" != 0 ]; then exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; fi
exec "$@"
"""
)


def lacks() -> str:
    """Why this machine cannot hold such pods; empty when it can."""
    return host_network.lacks("mpirun", "ssh", "sshd")


def write_secret(secret: Path, mode: int) -> None:
    """The job's pair as Kubernetes mounts a Secret: files in a folder of the day, reached by links;
    a P-521 key in PEM, as both controllers make it."""
    data = secret / "..2026_11_24"
    data.mkdir(parents=True)
    sh("ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-C", "", "-f",
       data / "id_rsa")  # fmt: skip
    shutil.copy(data / "id_rsa.pub", data / "authorized_keys")
    (data / "id_rsa").chmod(mode)
    shutil.chown(data / "id_rsa", 0, 1000)
    secret.chmod(0o1777)
    (secret / "..data").symlink_to(data.name)
    for file in ("id_rsa", "id_rsa.pub", "authorized_keys"):
        (secret / file).symlink_to(f"..data/{file}")


@dataclass
class Pod:
    name: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    @property
    def out(self) -> str:
        return "".join(self.lines)

    def finish(self) -> int:
        try:
            code = self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.name} does not end: {self.out}") from None
        self.reader.join(timeout=10)
        return code


@dataclass
class Pods:
    """`with Pods(["a", "b.c"]) as pods: pods.start("a", ["train"], ...)`."""

    names: list[str]
    running: list[Pod] = field(default_factory=list)

    def __enter__(self) -> Pods:
        with contextlib.ExitStack() as undo:
            # Not below /tmp, which is each pod's own.
            self.folder = Path(tempfile.mkdtemp(prefix="smp-pods-", dir="/var/tmp"))
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.chmod(0o755)
            write_etc(self.folder, "mpiuser", "/home/mpiuser")
            self.network = undo.enter_context(Network("10.80.0", self.names))
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self.running:
            if pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()
        self._undo.close()

    @property
    def job(self) -> Path:
        """Folder that all pods see as /opt/ml."""
        return self.folder / "job"

    @property
    def out(self) -> str:
        """Output of all pods, for a failure's text."""
        return "\n".join(f"{pod.name}: {pod.out}" for pod in self.running)

    def publish_names(self) -> None:
        """From now on the pods' names resolve; in place, for the pods have this very file."""
        self.network.write_names(self.folder / "hosts")

    def make_secret(self, mode: int) -> None:
        write_secret(self.folder / "secret", mode)

    def start(
        self,
        name: str,
        command: list[str],
        *,
        ssh_home: str = "",
        user: int = 0,
        hostfile: str = "",
        **variables: str,
    ) -> Pod:
        (self.folder / name).mkdir(exist_ok=True)
        path = self.folder / name / "hostfile"
        path.write_text(hostfile)
        environment = BUILT | {
            "HOME": "/root",
            "HOSTNAME": name.partition(".")[0],
            "PYTHONUNBUFFERED": "1",
        }
        process = subprocess.Popen(
            [*self.network.enter(name), *BOUND, *ISOLATED, "bash", "-c", POD, "pod", self.folder,
             name, ssh_home, str(user), path if hostfile else "", *command],
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self.running.append(Pod(name, process))
        return self.running[-1]

    def wait_until_mounted(self, name: str) -> None:
        """Until a pod has its files: what is mounted later is not in it."""
        deadline = time.monotonic() + LIMIT
        while not (self.folder / name / "mounted").exists():
            out = [pod.out for pod in self.running if pod.name == name]
            assert time.monotonic() < deadline, f"{name} has no files yet: {out}"
            time.sleep(0.05)
