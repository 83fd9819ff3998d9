# SPDX-License-Identifier: Apache-2.0
"""The containers and the network of one job, on this engine and under one name.

The engine keeps the state: containers and network carry the label smp.cluster=NAME, and the
containers smp.tree, a folder to remove with them. So `logs` and `down` work from anywhere.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from engine import Docker, Stopped
from resources import gpu_requests, limit_options, machine_gpus
from tree import mount_options, remove_tree

LABEL = "smp.cluster"
TREE_LABEL = "smp.tree"
HOST_LABEL = "smp.host"


class Cluster:
    """Containers named NAME-algo-1 ... on the network NAME."""

    def __init__(self, docker: Docker, name: str, hosts: Iterable[str]) -> None:
        self.docker = docker
        self.name = name
        self.hosts = list(hosts)
        self.print_lock = threading.Lock()

    def container(self, host: str) -> str:
        return f"{self.name}-{host}"

    def containers(self) -> list[str]:
        return [self.container(host) for host in self.hosts]

    def create(self, options: argparse.Namespace, folders: list[Path], scratch: str) -> None:
        """Makes network and containers, none of them started. `scratch` is removed by `down`."""
        self.docker.call("network", "create", "--label", f"{LABEL}={self.name}", self.name)
        extra = limit_options(options, len(self.hosts))
        extra += [word for text in options.env for word in ("--env", text)]
        gpus = gpu_requests(options.gpus, machine_gpus(), len(self.hosts))
        command = options.command or ["train"]
        for host, folder, gpu in zip(self.hosts, folders, gpus, strict=True):
            words = ["--name", self.container(host), "--label", f"{LABEL}={self.name}"]
            words += ["--label", f"{HOST_LABEL}={host}", "--label", f"{TREE_LABEL}={scratch}"]
            words += ["--network", self.name, "--network-alias", host, "--hostname", host]
            words += [*mount_options(folder), *extra]
            if gpu is not None:
                words += ["--gpus", gpu]
            self.docker.call("create", *words, options.image, *command)

    def start(self) -> None:
        self.docker.call("start", *self.containers())

    def follow(self, host: str, follow: bool = True) -> threading.Thread:
        """Prints the host's log, each line with the host before it, until the container ends."""
        words = ["logs", "--follow"] if follow else ["logs"]
        log = self.docker.start(
            *words, self.container(host), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

        def copy() -> None:
            assert log.stdout is not None
            for line in log.stdout:
                with self.print_lock:
                    print(f"{host} | {line}", end="" if line.endswith("\n") else "\n", flush=True)
            log.wait()

        thread = threading.Thread(target=copy, name=f"log-{host}", daemon=True)
        thread.start()
        return thread

    def wait(self, start: float, timeout: float) -> list[int]:
        """Exit codes of all hosts, in order. Raises Stopped with code 124 at start + timeout."""
        deadline = start + timeout
        waiting = self.docker.start("wait", *self.containers(), stdout=subprocess.PIPE)
        try:
            out, _ = waiting.communicate(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            waiting.kill()
            waiting.wait()
            raise Stopped(f"no end within {timeout:g} s", 124) from None
        except Stopped:
            waiting.kill()
            waiting.wait()
            raise
        return [int(line) for line in out.split()]

    def kill_after(self, host: str, delay: float, number: str) -> threading.Timer:
        """A drill: a signal for one container, `delay` seconds from now. Cancel it at the end."""

        def kill() -> None:
            sent = self.docker.try_call("kill", "--signal", number, self.container(host))
            what = f"sent {number} to {host}" if sent else f"{host} had ended before the drill"
            print(f"docker/cluster: {what}", file=sys.stderr, flush=True)

        timer = threading.Timer(delay, kill)
        timer.daemon = True
        timer.start()
        return timer

    def stop(self) -> None:
        """SIGTERM to all hosts at once; each is killed after its own --stop-timeout."""
        self.docker.try_call("stop", *self.containers())

    def remove(self) -> None:
        self.docker.try_call("rm", "--force", "--volumes", *self.containers())
        self.docker.remove_network(self.name)


def new_name() -> str:
    return f"smp-{secrets.token_hex(4)}"


def job_code(codes: Iterable[int]) -> int:
    """The job's exit code: 0, or that of the first host, in order, that failed."""
    return next((code for code in codes if code != 0), 0)


def known_clusters(docker: Docker) -> list[str]:
    """Names of the clusters that the engine has, also those of which only a network is left."""
    form = '{{.Label "' + LABEL + '"}}'
    containers = docker.call("ps", "--all", "--filter", f"label={LABEL}", "--format", form)
    networks = docker.call("network", "ls", "--filter", f"label={LABEL}", "--format", form)
    return sorted({name for name in (containers + "\n" + networks).split() if name})


def find_cluster(docker: Docker, name: str | None) -> Cluster:
    """The cluster of that name, or the only one; ends the program where there is none."""
    known = known_clusters(docker)
    if name is None and len(known) == 1:
        name = known[0]
    if name is None or name not in known:
        what = f"no cluster {name}" if name else f"which one? there are {len(known)}"
        raise SystemExit(f"docker/cluster: {what}; known: {' '.join(known) or 'none'}")
    ids = docker.call("ps", "--all", "--quiet", "--filter", f"label={LABEL}={name}").split()
    hosts = [facts["Config"]["Labels"][HOST_LABEL] for facts in inspected(docker, ids)]
    return Cluster(docker, name, sorted(hosts, key=lambda host: int(host.rsplit("-", 1)[1])))


def inspected(docker: Docker, containers: list[str]) -> list[dict[str, dict[str, dict[str, str]]]]:
    if not containers:
        return []
    found: list[dict[str, dict[str, dict[str, str]]]] = json.loads(
        docker.call("inspect", *containers)
    )
    return found


def take_down(docker: Docker, cluster: Cluster) -> list[int]:
    """Stops and removes a cluster and its temporary tree; the exit codes of its hosts."""
    cluster.stop()
    facts = inspected(docker, cluster.containers())
    codes = [int(str(fact["State"]["ExitCode"])) for fact in facts]
    scratch = {
        (fact["Config"]["Labels"][TREE_LABEL], str(fact["Config"]["Image"])) for fact in facts
    }
    cluster.remove()
    for folder, image in scratch:
        if folder:
            remove_tree(docker, image, Path(folder))
    return codes
