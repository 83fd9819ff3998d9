# SPDX-License-Identifier: Apache-2.0
"""Only the job's own hosts get in, each with one key; nobody else on the network, a third host
included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cluster
import pytest
from cluster import Cluster
from jobs import Result, make_trees

pytestmark = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")

# Says each line of its input to algo-2's port 22, the greeting first read; prints what came back.
TALK = """
import socket, sys
with socket.create_connection(("algo-2", 22), timeout=10) as connection:
    connection.settimeout(10)
    stream = connection.makefile("rw", newline="\\n")
    try:
        print(stream.readline(), end="")
        for line in sys.stdin:
            stream.write(line)
            stream.flush()
            print(stream.readline(), end="")
    except ConnectionResetError:
        print("reset")
"""
UNTIL_KILLED = "import signal; from mpi4py import MPI; print('up', flush=True); signal.pause()"
STRANGE_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJobKey"


def two_hosts(folder: Path, **options: object) -> Cluster:
    script = "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
    trees = make_trees(folder, script, hosts=2, processes=1)
    return Cluster(folder, trees, outsiders=1, **options)  # type: ignore[arg-type]


def talk(hosts: Cluster, name: str, text: str = "") -> str:
    return hosts.command(name, sys.executable, "-c", TALK, text=text).stdout


def offer(greeting: str, key: str = STRANGE_KEY) -> str:
    """A master's answer to this greeting."""
    _, _, host, job = greeting.split()
    return f"SMP-KEYS/1 key {host} {job} {key}\n"


def log_in(hosts: Cluster, name: str, key: Path, host: str) -> subprocess.CompletedProcess[str]:
    return hosts.command(
        name, "ssh", "-F", "none", "-i", key, "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
        "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
        "-o", "LogLevel=ERROR", host, "echo in",
    )  # fmt: skip


def test_a_host_outside_the_job_gets_nothing_and_disturbs_nothing(folder):
    with two_hosts(folder) as hosts:
        worker = hosts.start("algo-2")
        hosts.launch_file("algo-2", "host_key.pub")

        while not (answer := talk(hosts, "algo-1")):  # the port opens a moment later
            assert worker.process.poll() is None
        stolen = offer(answer)
        heard = talk(hosts, "other-1", stolen)
        results = [hosts.start("algo-1").finish(), worker.finish()]

    assert answer.startswith("SMP-KEYS/1 hello algo-2 ")
    assert heard in ("", "reset\n")
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    assert "10.77.0.3 connected, which is no address of algo-1" in results[1].err


def test_a_second_offer_is_refused_and_the_job_says_so(folder):
    """Somebody on the master's own address who was first: the worker keeps to one key."""
    with two_hosts(folder) as hosts:
        worker = hosts.start("algo-2", SM_LAUNCH_WORKER_TIMEOUT="8")
        hosts.launch_file("algo-2", "host_key.pub")
        while not (greeting := talk(hosts, "algo-1")):
            assert worker.process.poll() is None

        first = talk(hosts, "algo-1", offer(greeting))
        second = talk(hosts, "algo-1", offer(greeting, STRANGE_KEY.replace("Job", "Two")))
        master = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="3").finish()
        ended = worker.finish()

    assert "SMP-KEYS/1 key ssh-ed25519 " in first
    assert "SMP-KEYS/1 refused another key was accepted before" in second
    assert (master.code, ended.code) == (1, 1)
    assert "another key was accepted before; a job has one exchange" in master.tree.failure


@contextmanager
def running_job(folder: Path) -> Iterator[Cluster]:
    """Two hosts whose ranks are up, until the end of the block."""
    trees = make_trees(folder, UNTIL_KILLED, hosts=2, processes=1)
    with Cluster(folder, trees, outsiders=1) as hosts:
        master, _ = hosts.start_all()
        master.wait_for_line("up", times=2)
        yield hosts


def test_a_replay_after_the_exchange_meets_sshd(folder):
    with running_job(folder) as hosts:
        replay = f"SMP-KEYS/1 key algo-2 0123456789abcdef {STRANGE_KEY}\n"
        from_master = talk(hosts, "algo-1", replay)
        from_outside = talk(hosts, "other-1", replay)
        key = hosts.launch_file("algo-1", "job_key")
        logins = {name: log_in(hosts, name, key, "algo-2") for name in ("algo-1", "other-1")}

    for answer in (from_master, from_outside):
        assert answer.startswith("SSH-2.0-")
        assert "SMP-KEYS" not in answer
    assert logins["algo-1"].stdout == "in\n", logins["algo-1"].stderr
    # Even the holder of the key comes from the master's addresses or not at all.
    assert logins["other-1"].returncode == 255
    assert "Permission denied" in logins["other-1"].stderr


# Holds more connections at an sshd than it has places for those who have not proved themselves.
SILENT = """
import socket, sys
held = [socket.create_connection(("algo-2", 22), timeout=10) for _ in range(150)]
for connection in held:
    try:
        connection.recv(1)  # it has its place, or is refused one
    except ConnectionResetError:
        pass
print("held", flush=True)
sys.stdin.read()
"""


def test_silent_connections_of_a_stranger_leave_room_for_the_job(folder):
    with running_job(folder) as hosts:
        key = hosts.launch_file("algo-1", "job_key")
        stranger = subprocess.Popen(
            hosts.command_line("other-1", sys.executable, "-c", SILENT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with stranger:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "held\n"
            logins = [log_in(hosts, "algo-1", key, "algo-2") for _ in range(5)]
            stranger.kill()

    assert [login.stdout for login in logins] == ["in\n"] * 5, logins[-1].stderr


def test_a_mounted_key_pair_needs_no_exchange(folder):
    with two_hosts(folder) as hosts:
        key = mounted_pair(folder)
        key.chmod(0o644)  # as a mount often is
        results = hosts.run(SM_LAUNCH_SSH_KEY=str(key), SM_LAUNCH_SSH_PORT="2200")

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    assert "Exchanged keys" not in results[1].err


def test_a_reference_masters_empty_status_file_means_success(folder):
    """It says no more than `touch /tmp/done.MASTER`, and only after a success."""
    with two_hosts(folder) as hosts:
        key = mounted_pair(folder)
        worker = hosts.start("algo-2", SM_LAUNCH_SSH_KEY=str(key))
        hosts.launch_file("algo-2", "sshd_config")
        while log_in(hosts, "algo-1", key, "algo-2").returncode != 0:
            assert worker.process.poll() is None, worker.stderr()

        (folder / "tmp-algo-2" / "done.algo-1").touch()

        result: Result = worker.finish()
    assert result.code == 0
    assert result.tree.succeeded


def mounted_pair(folder: Path) -> Path:
    key = folder / "pair"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key


def test_a_container_of_another_job_is_refused(folder):
    with two_hosts(folder) as hosts:
        hosts.start("algo-2", TRAINING_JOB_NAME="other")
        hosts.launch_file("algo-2", "host_key.pub")
        result = hosts.start(
            "algo-1", SM_LAUNCH_WORKER_TIMEOUT="3", TRAINING_JOB_NAME="mine"
        ).finish()

    assert result.code == 1
    assert "belongs to a job with another list of hosts" in result.tree.failure
