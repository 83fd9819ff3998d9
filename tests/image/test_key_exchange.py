# SPDX-License-Identifier: Apache-2.0
"""A third container on the job's network, which resourceconfig.json does not name, tries to join
the key exchange of the two that it names: it gets nothing, before or after."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.image.engine import Docker

pytestmark = pytest.mark.cluster

HOSTS = ["algo-1", "algo-2"]
LIMIT = 120  # [s] only ends what hangs
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJobKey"
OTHER_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAITwoKey"
SCRIPT = """\
import os, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
print("up", flush=True)
while MPI.COMM_WORLD.rank == 0 and not os.path.exists("/tmp/go"):
    time.sleep(0.05)
MPI.COMM_WORLD.Barrier()
"""
# Connects to algo-2's port 22, as soon as that is open, and says each argument as a line, the first
# line read before; prints what came back.
TALK = f"""
import socket, sys, time
deadline = time.monotonic() + {LIMIT}
while True:
    try:
        connection = socket.create_connection(("algo-2", 22), timeout=10)
        break
    except OSError:
        if time.monotonic() > deadline:
            sys.exit("nobody listens on algo-2")
        time.sleep(0.05)
stream = connection.makefile("rw", newline="\\n")
try:
    print(stream.readline(), end="")
    for line in sys.argv[1:]:
        stream.write(line + "\\n")
        stream.flush()
        print(stream.readline(), end="")
except (ConnectionResetError, BrokenPipeError):
    pass
"""


@dataclass
class Network:
    docker: Docker
    image: str
    folder: Path
    name: str = field(default_factory=lambda: f"smp-test-{uuid.uuid4().hex[:12]}")

    def call(self, *words: str | Path) -> str:
        done = self.docker(*words, timeout=LIMIT + 60)
        assert done.returncode == 0, f"docker {words}: {done.stdout} {done.stderr}"
        return done.stdout

    def start(self, host: str) -> str:
        """A host of the job; returns its container."""
        base = self.folder / host
        for path in ("code", "input/config", "model", "output/data"):
            (base / path).mkdir(parents=True)
        (base / "code/script.py").write_text(SCRIPT)
        hyperparameters = {
            "sagemaker_program": '"script.py"',
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": "1",
        }
        resources = {"current_host": host, "hosts": HOSTS, "network_interface_name": "eth0"}
        (base / "input/config/hyperparameters.json").write_text(json.dumps(hyperparameters))
        (base / "input/config/resourceconfig.json").write_text(json.dumps(resources))
        container = f"{self.name}-{host}"
        self.call("run", "--detach", "--name", container, "--network", self.name,
                  "--network-alias", host, "--volume", f"{base}:/opt/ml", self.image,
                  "train")  # fmt: skip
        return container

    def talk(self, *lines: str, alias: str = "other") -> str:
        """Answer of algo-2 to a container of its own, which is named `alias`."""
        return self.call("run", "--rm", "--name", f"{self.name}-{alias}", "--network", self.name,
                         "--network-alias", alias, self.image, "python3", "-c", TALK,
                         *lines)  # fmt: skip

    def logs(self, container: str) -> str:
        done = self.docker("logs", container)
        return done.stdout + done.stderr

    def wait_for_line(self, container: str, text: str) -> None:
        deadline = time.monotonic() + LIMIT
        while text not in self.logs(container):
            assert time.monotonic() < deadline, self.logs(container)
            time.sleep(0.2)


@pytest.fixture
def network(docker: Docker, image: str, tmp_path: Path) -> Iterator[Network]:
    made = Network(docker, image, tmp_path)
    made.call("network", "create", made.name)
    yield made
    left = docker("ps", "--all", "--quiet", "--filter", f"name={made.name}").stdout.split()
    if left:
        docker("rm", "--force", "--volumes", *left)
    docker("network", "rm", made.name)


def offer(greeting: str, key: str) -> str:
    """Line of a master in answer to this greeting."""
    _, _, host, job = greeting.split()
    return f"SMP-KEYS/1 key {host} {job} {key}"


def test_a_third_container_gets_nothing_and_a_replay_meets_sshd(network: Network) -> None:
    worker = network.start("algo-2")
    greeting = network.talk(alias="algo-1")  # to know what the third one might have seen
    stolen = offer(greeting, KEY)
    before = network.talk(stolen)

    master = network.start("algo-1")
    network.wait_for_line(master, "up")
    after = network.talk(stolen)
    network.call("exec", master, "touch", "/tmp/go")
    codes = network.call("wait", master, worker).split()

    assert greeting.startswith("SMP-KEYS/1 hello algo-2 ")
    assert before == ""
    assert after.startswith("SSH-2.0-")
    assert "SMP-KEYS" not in after
    assert codes == ["0", "0"], network.logs(master) + network.logs(worker)
    assert "connected, which is no address of algo-1" in network.logs(worker)


def test_a_second_offer_is_refused(network: Network) -> None:
    """Even from the master's own address: a job has one exchange."""
    network.start("algo-2")
    greeting = network.talk(alias="algo-1")

    first = network.talk(offer(greeting, KEY), alias="algo-1")
    second = network.talk(offer(greeting, OTHER_KEY), alias="algo-1")

    assert "\nSMP-KEYS/1 key ssh-ed25519 " in first
    assert "\nSMP-KEYS/1 refused another key was accepted before" in second
