# SPDX-License-Identifier: Apache-2.0
"""Pods on one machine: what Kubernetes' controllers and AWS Batch give a container, in network,
UTS, PID and mount namespaces, with the image's files for ssh. Names resolve when published."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
LIMIT = 150  # [s] nothing here takes a fifth of it

POD = """
set -e
folder=$1 name=$2 root=$3 home=$4 user=$5 hostfile=$6 && shift 6
mount --make-rprivate /
mkdir -p "$folder/$name/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$folder/$name/tmp"
case $root in /tmp/*)  # what is tested may lie there
  mkdir -p "$folder/$name/tmp/${root#/tmp/}"
  mount --rbind "$root" "$folder/$name/tmp/${root#/tmp/}" ;;
esac
mount --move "$folder/$name/tmp" /tmp
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd
mount -t tmpfs tmpfs /opt && mkdir /opt/ml && mount --bind "$folder/job" /opt/ml
# A copy of /etc with the image's files for ssh, so that the machine's own stays as it is.
cp -a /etc "$folder/$name/etc" && mount --bind "$folder/$name/etc" /etc
rm -f /etc/ssh/ssh_host_* && cp -r "$root/docker/rootfs/etc/ssh/." /etc/ssh/
for file in hosts passwd group; do mount --bind "$folder/$file" "/etc/$file"; done
mount -t tmpfs tmpfs /home && cp -r "$root/docker/rootfs/home/." /home/
chown 1000:1000 /home/mpiuser
if [ -n "$home" ]; then
  mount -t tmpfs tmpfs /root
  mkdir -p "$home" && mount --bind -o ro "$folder/secret" "$home"
fi
if [ -n "$hostfile" ]; then
  mkdir /etc/mpi && cp "$hostfile" /etc/mpi/hostfile
fi
hostname "${name%%.*}"
if [ "$user" != 0 ]; then exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"; fi
exec "$@"
"""


def lacks() -> str:
    """Why this machine cannot hold such pods; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "mpirun", "ssh", "setpriv"):
        if shutil.which(program) is None:
            return f"no {program} here"
    if not Path("/usr/sbin/sshd").exists():
        return "no sshd here"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
    )
    return "" if probe.returncode == 0 else f"unshare: {probe.stderr.decode().strip()}"


def sh(*command: object, check: bool = True) -> None:
    subprocess.run([str(word) for word in command], check=check, capture_output=True, timeout=LIMIT)


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
    mark: str = field(default_factory=lambda: f"pods{uuid.uuid4().hex[:6]}")
    running: list[Pod] = field(default_factory=list)

    def __enter__(self) -> Pods:
        self.folder = Path(tempfile.mkdtemp(prefix="smp-pods-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        try:
            self._write_files()
            sh("ip", "netns", "add", self.mark)
            sh("ip", "-n", self.mark, "link", "add", "br0", "type", "bridge")
            sh("ip", "-n", self.mark, "link", "set", "br0", "up")
            for index in range(len(self.names)):
                self._add(index)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for pod in self.running:
            if pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()
        for index in range(len(self.names)):
            sh("ip", "netns", "del", f"{self.mark}-{index}", check=False)
        sh("ip", "netns", "del", self.mark, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def address(index: int) -> str:
        return f"10.80.0.{index + 1}"

    @property
    def job(self) -> Path:
        """What all pods see as /opt/ml."""
        return self.folder / "job"

    def publish_names(self) -> None:
        """From now on the pods' names resolve; in place, for the pods have this very file."""
        # The short name, too: a kubelet gives each pod a line for its own.
        lines = [
            f"{self.address(i)} {name} {name.partition('.')[0]}\n"
            for i, name in enumerate(self.names)
        ]
        with (self.folder / "hosts").open("a") as hosts:
            hosts.write("".join(lines))

    def make_secret(self, mode: int, *, kind: tuple[str, ...] = ("ecdsa", "521")) -> None:
        """The job's pair as Kubernetes mounts a Secret: files in a folder of the day, reached by
        links; a P-521 key in PEM, as both controllers make it."""
        secret = self.folder / "secret"
        data = secret / "..2026_11_24"
        data.mkdir(parents=True)
        name, bits = kind
        sh("ssh-keygen", "-q", "-t", name, "-b", bits, "-m", "PEM", "-N", "", "-C", "", "-f",
           data / "id_rsa")  # fmt: skip
        shutil.copy(data / "id_rsa.pub", data / "authorized_keys")
        (data / "id_rsa").chmod(mode)
        shutil.chown(data / "id_rsa", 0, 1000)
        secret.chmod(0o1777)
        (secret / "..data").symlink_to(data.name)
        for file in ("id_rsa", "id_rsa.pub", "authorized_keys"):
            (secret / file).symlink_to(f"..data/{file}")

    def make_tree(self, *options: object, code: Path) -> None:
        words = ["--make-tree", self.job, "--cluster", "--copy", "--code", code]
        words += ["--program", "train.py", *options]
        sh(BUILD / "bin" / "train", *words)
        for path in [self.job, *self.job.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)

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
        environment = {
            "PATH": f"{BUILD}/bin:{ROOT}/.venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/root",
            "HOSTNAME": name.partition(".")[0],
            "PYTHONPATH": f"{BUILD}/python",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        process = subprocess.Popen(
            ["ip", "netns", "exec", f"{self.mark}-{self.names.index(name)}",
             "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
             "bash", "-c", POD, "pod", self.folder, name, ROOT, ssh_home, str(user),
             path if hostfile else "", *command],
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        self.running.append(Pod(name, process))
        return self.running[-1]

    def _write_files(self) -> None:
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n")
        for file, line in (
            ("passwd", "mpiuser:*:1000:1000::/home/mpiuser:/bin/bash\n"),
            ("group", "mpiuser:*:1000:\n"),
        ):
            lines = Path("/etc", file).read_text().splitlines(keepends=True)
            kept = [text for text in lines if text.split(":")[2] != "1000"]
            (self.folder / file).write_text("".join(kept) + line)

    def _add(self, index: int) -> None:
        space = f"{self.mark}-{index}"
        sh("ip", "netns", "add", space)
        sh("ip", "-n", self.mark, "link", "add", f"pod{index}", "type", "veth",
           "peer", "name", "eth0", "netns", space)  # fmt: skip
        sh("ip", "-n", self.mark, "link", "set", f"pod{index}", "master", "br0", "up")
        sh("ip", "-n", space, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        sh("ip", "-n", space, "link", "set", "eth0", "up")
        sh("ip", "-n", space, "link", "set", "lo", "up")
