# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine: network namespaces on a bridge, each with an interface eth0, and what makes
processes in one see a machine of its own (folders, names of hosts and users)."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 300  # [s] for what takes seconds on an idle machine; it only ends what hangs
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

# Namespaces that a host does not share with the machine, beside that of its network. The first
# process in it takes all others with it when it ends.
ISOLATED = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
            "--mount-proc"]  # fmt: skip
# Before it: a host ends with the thread that started it, however that ends.
BOUND = ["setpriv", "--pdeathsig", "KILL"]

# Shell functions for the first process of a host.
MOUNTS = f"""
set -e
checkout={ROOT}
# own_tmp FOLDER: it is the host's /tmp; what is tested may lie in the machine's. So is
# /dev/shm: Open MPI names segments after host and PID, which hosts of another network have, too.
own_tmp() {{
  mount --make-rprivate /
  chmod 1777 "$1"
  case $checkout in /tmp/*)
    mkdir -p "$1/${{checkout#/tmp/}}"
    mount --rbind "$checkout" "$1/${{checkout#/tmp/}}" ;;
  esac
  mount --rbind "$1" /tmp
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
}}
# own_folders FOLDER: what programs keep for a machine.
own_folders() {{
  mkdir -p "$1/tmp" && own_tmp "$1/tmp"
  mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd
}}
# own_names FOLDER NAME: the files of write_etc(), and the host's name.
own_names() {{
  for file in hosts passwd group; do mount --bind "$1/$file" "/etc/$file"; done
  hostname "${{2%%.*}}"
}}
"""


def sh(*command: object, check: bool = True) -> str:
    """Output of a command. Throws RuntimeError with its words if it fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


@functools.cache
def lacks(*programs: str) -> str:
    """Why this machine cannot hold hosts that run these programs; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    path = f"{os.environ['PATH']}:{SYSTEM_PATH}"
    for program in ("ip", "setpriv", "unshare", *programs):
        if shutil.which(program, path=path) is None:
            return f"no {program} here"
    veth = ["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", *veth], capture_output=True, check=False
    )
    return "" if probe.returncode == 0 else f"unshare: {probe.stderr.decode().strip()}"


@dataclass
class Network:
    """`with Network("10.77.0", ["a", "b"]) as network:`; the first host has the address .1, and
    of subnet "fd77:" fd77::1, with none of IPv4. The addresses belong to this network alone, so the
    same may be used twice at once."""

    subnet: str
    names: list[str]
    rate_mbit: int = 0  # rate of each host's interface, in and out; 0: unlimited
    credit_kb: int = 64  # burst of an interface that was idle, whatever the rate
    mark: str = field(default_factory=lambda: f"smp{uuid.uuid4().hex[:8]}")

    def __enter__(self) -> Network:
        try:
            sh("ip", "netns", "add", self.mark)
            sh("ip", "-n", self.mark, "link", "add", "br0", "type", "bridge")
            sh("ip", "-n", self.mark, "link", "set", "br0", "up")
            for name in self.names:
                self._add(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            sh("ip", "netns", "del", self.namespace(name), check=False)
        sh("ip", "netns", "del", self.mark, check=False)

    def namespace(self, name: str) -> str:
        return f"{self.mark}-{self.names.index(name)}"

    def address(self, name: str) -> str:
        return f"{self.subnet}{':' if self.is_ipv6 else '.'}{self.names.index(name) + 1}"

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.subnet

    def enter(self, name: str) -> list[str]:
        """Words before a command that is to run in the network of a host."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def unplug(self, name: str) -> None:
        """As when a cable is pulled: nothing is refused, nothing arrives."""
        sh("ip", "-n", self.mark, "link", "set", self._port(name), "down")

    def write_names(self, file: Path, *, names: list[str] | None = None) -> None:
        """Adds lines of these hosts (else of all) to a file such as /etc/hosts; in place, for hosts
        that have it mounted."""
        lines = []
        for name in self.names if names is None else names:
            short = name.partition(".")[0]
            lines.append(f"{self.address(name)} {name}{f' {short}' if short != name else ''}\n")
        with file.open("a") as hosts:
            hosts.write("".join(lines))

    def _port(self, name: str) -> str:
        """The end of a host's cable at the bridge."""
        return f"port{self.names.index(name)}"

    def _add(self, name: str) -> None:
        inside, port = self.namespace(name), self._port(name)
        sh("ip", "netns", "add", inside)
        sh("ip", "-n", self.mark, "link", "add", port, "type", "veth",
           "peer", "name", "eth0", "netns", inside)  # fmt: skip
        sh("ip", "-n", self.mark, "link", "set", port, "master", "br0", "up")
        length = ("64", "nodad") if self.is_ipv6 else ("24",)
        address = f"{self.address(name)}/{length[0]}"
        sh("ip", "-n", inside, "address", "add", address, "dev", "eth0", *length[1:])
        sh("ip", "-n", inside, "link", "set", "eth0", "up")
        sh("ip", "-n", inside, "link", "set", "lo", "up")
        if self.rate_mbit:
            rate, credit = f"{self.rate_mbit}mbit", f"{self.credit_kb}kb"
            shaped = ("rate", rate, "burst", credit, "latency", "100ms")
            for space, device in ((inside, "eth0"), (self.mark, port)):
                sh("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", *shaped)


def write_etc(folder: Path, user: str, home: str) -> None:
    """A file `hosts` without any, and the machine's passwd and group with that user 1000."""
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    for file, line in (
        ("passwd", f"{user}:*:1000:1000::{home}:/bin/bash\n"),
        ("group", f"{user}:*:1000:\n"),
    ):
        lines = Path("/etc", file).read_text().splitlines(keepends=True)
        kept = [text for text in lines if text.split(":")[2] != "1000"]
        (folder / file).write_text("".join(kept) + line)
