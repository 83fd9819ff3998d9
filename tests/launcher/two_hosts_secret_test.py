# SPDX-License-Identifier: Apache-2.0
"""A secret of the job lets nobody else in: no user of the master's host, whatever it overhears; and
what the job listens on is what `--plan` says."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import cluster
import pytest
from cluster import Cluster, Host
from jobs import make_trees

pytestmark = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")

SECRET = {"SMP_JOB_SECRET": "of this job alone, 32 characters and more"}
STRANGE_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAStrangersKey"
NOBODY = 65534

# A user of the master's host, with nothing but its address and what the worker says first: hands in
# a key in each form that it can think of; prints what came back.
ATTACK = """
import os, socket, sys, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
def lines():
    until = time.monotonic() + 20
    while True:  # the worker's port opens a moment later
        try:
            connection = socket.create_connection(("algo-2", 22), timeout=5)
            stream = connection.makefile("rw", newline="\\n")
            greeting = stream.readline()
            if greeting:
                return stream, greeting
        except OSError:
            pass
        if time.monotonic() > until:
            sys.exit("no worker")
        time.sleep(0.05)
for form in ("{host} {job} {key}", "{host} {job} {key} {rest}", "{host} {job} {key} 00 11"):
    stream, greeting = lines()
    _, _, host, job, *rest = greeting.split()
    text = form.format(host=host, job=job, key=sys.argv[1], rest=" ".join(rest))
    try:
        stream.write(f"SMP-KEYS/1 key {text}\\nSMP-KEYS/1 done\\n")
        stream.flush()
        print(f"{os.getuid()} heard: {stream.readline()!r}")
    except ConnectionError:
        print(f"{os.getuid()} heard: ''")
"""

WAITS = """
import os, pathlib, time
from mpi4py import MPI
print("rank has", os.environ["SMP_JOB_SECRET"][:7], flush=True)
MPI.COMM_WORLD.Barrier()
while not pathlib.Path("/tmp/go").exists():
    time.sleep(0.05)
"""


def two_hosts(folder: Path, script: str) -> Cluster:
    return Cluster(folder, make_trees(folder, script, hosts=2, processes=1), outsiders=1)


def test_a_user_of_the_masters_host_gets_no_key_in(folder):
    with two_hosts(folder, "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n") as hosts:
        worker = hosts.start("algo-2", **SECRET)

        attack = hosts.command("algo-1", sys.executable, "-c", ATTACK, STRANGE_KEY)
        results = [hosts.start("algo-1", **SECRET).finish(), worker.finish()]

    assert attack.stdout.splitlines() == [f"{NOBODY} heard: ''"] * 3, attack.stderr
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    assert "does not prove that it is of this job" in results[1].err
    assert STRANGE_KEY not in results[1].err


def test_without_a_secret_it_does_which_the_log_says_and_require_refuses(folder):
    with two_hosts(folder, "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n") as hosts:
        results = hosts.run()
        refused = hosts.run(SM_LAUNCH_AUTH="require")

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    for result in results:
        assert "the network is trusted until hosts have exchanged keys" in result.err
    for result in refused:
        assert result.code == 1
        assert "SM_LAUNCH_AUTH=require: the 2 hosts of the job have nothing" in result.tree.failure


def test_hosts_of_two_secrets_name_it(folder):
    with two_hosts(folder, "print('never')") as hosts:
        worker = hosts.start("algo-2", SM_LAUNCH_WORKER_TIMEOUT="6", **SECRET)
        master = hosts.start("algo-1", SM_LAUNCH_WORKER_TIMEOUT="4", SMP_JOB_SECRET="x" * 32)
        results = [master.finish(), worker.finish()]

    for result in results:
        assert result.code == 1
        assert "give all hosts the same SMP_JOB_SECRET" in result.tree.failure


def test_ranks_have_the_secret_that_is_told_over_ssh_and_no_file_shows_it(folder):
    with two_hosts(folder, WAITS) as hosts:
        master, worker = hosts.start_all()
        secret = hosts.launch_file("algo-1", "job_secret").read_text()
        master.wait_for_line(f"rank has {secret[:7]}", times=2)
        told = hosts.launch_file("algo-2", "job_secret")
        modes = [path.stat().st_mode & 0o777 for path in (told, told.parent)]
        text = told.read_text()
        commands = "".join(
            path.read_text(errors="replace") for path in Path("/proc").glob("[0-9]*/cmdline")
            if path.exists()
        )  # fmt: skip
        go(folder)
        results = [master.finish(), worker.finish()]

    assert text == secret
    assert modes == [0o600, 0o700]
    assert secret not in commands
    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    for result in results:
        assert secret not in result.err
        written = [path for path in result.tree.base.rglob("*") if path.is_file()]
        assert written
        assert not [path for path in written if secret.encode() in path.read_bytes()]


def go(folder: Path) -> None:
    for name in ("algo-1", "algo-2"):
        (folder / f"tmp-{name}" / "go").touch()


def wildcard_listeners(host: Host) -> list[str]:
    """Programs of the host that listen at all addresses, by what /proc says from inside."""
    net = Path(f"/proc/{host.pid_of_train()}/net")
    found = []
    for table, everywhere in (("tcp", "0" * 8), ("tcp6", "0" * 32)):
        for row in (net / table).read_text().splitlines()[1:]:
            words = row.split()
            address, state, inode = words[1].split(":")[0], words[3], words[9]
            if state == "0A" and address == everywhere:
                found.append(owner_of(inode))
    return found


def owner_of(inode: str) -> str:
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if file.readlink() == Path(f"socket:[{inode}]"):
                return (file.parents[1] / "comm").read_text().strip()
        except OSError:
            continue
    return "a process that has ended"


def test_nothing_listens_at_all_addresses_but_open_mpi(folder):
    with two_hosts(folder, WAITS) as hosts:
        master, worker = hosts.start_all(**SECRET)
        master.wait_for_line("rank has", times=2)
        time.sleep(0.2)
        found = {host.name: wildcard_listeners(host) for host in (master, worker)}
        go(folder)
        results = [master.finish(), worker.finish()]

    assert [result.code for result in results] == [0, 0], results[0].err + results[1].err
    # Open MPI binds its daemons and its ranks, here Python, to no address.
    assert set(found["algo-1"]) <= {"mpirun", "python3"}
    assert set(found["algo-2"]) <= {"orted", "python3"}
