# SPDX-License-Identifier: Apache-2.0
"""Jobs with few rights: an ordinary user, a read-only root, no capabilities."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.engine import Docker
from tests.image.jobs import MakeTree

PRINTS = "import os; print('ran', os.environ['SM_CURRENT_HOST'], os.getuid())\n"
SUMS = """\
import os
from mpi4py import MPI
print('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.allreduce(1), 'as', os.getuid())
"""
# The first rank looks at the other host's ports before any rank leaves.
LOOKS = """\
import os, socket
from mpi4py import MPI
def greeting(port):
    try:
        with socket.create_connection(("algo-2", port), timeout=10) as connection:
            return connection.recv(7).decode()
    except OSError as error:
        return type(error).__name__
total = MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:
    print("ranks", total, "as", os.getuid(), "2222", greeting(2222), "22", greeting(22), flush=True)
MPI.COMM_WORLD.Barrier()
"""
# ssh works for no user without a name.
PASSWD = "root:x:0:0:root:/root:/bin/bash\ntrainer:x:1000:1000::/tmp:/bin/bash\n"
FEW = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL")


def give_to_the_user(tree: Path) -> None:
    try:
        for path in [tree, *tree.rglob("*")]:
            os.chown(path, 1000, 1000)
    except PermissionError:
        pytest.skip("the container made the tree as root, and only root can give it away")


@pytest.mark.parametrize(
    ("script", "options", "wanted"),
    [
        (PRINTS, [], ["ran algo-1 1000"]),
        (SUMS, ["--processes", "2"], ["rank 0 of 2 as 1000", "rank 1 of 2 as 1000"]),
    ],
    ids=["one process", "mpi"],
)
def test_an_ordinary_user_on_a_read_only_root_can_run_a_job(
    docker: Docker,
    image: str,
    make_tree: MakeTree,
    script: str,
    options: list[str],
    wanted: list[str],
) -> None:
    tree = make_tree(script, *options)
    give_to_the_user(tree)
    mount = ("--volume", f"{tree}:/opt/ml")

    done = docker(
        "run", "--rm", "--network", "none", "--user", "1000", *FEW, *mount, image, "train"
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for line in wanted:
        assert line in done.stdout


@pytest.fixture
def network(docker: Docker) -> Iterator[str]:
    name = f"smp-test-{uuid.uuid4().hex[:12]}"
    made = docker("network", "create", name)
    assert made.returncode == 0, made.stderr
    yield name
    left = docker("ps", "--all", "--quiet", "--filter", f"name={name}").stdout.split()
    if left:
        docker("rm", "--force", "--volumes", *left)
    docker("network", "rm", name)


@pytest.mark.cluster
def test_two_hosts_of_an_ordinary_user_meet_at_a_high_port(
    docker: Docker, image: str, make_tree: MakeTree, network: str, tmp_path: Path
) -> None:
    tree = make_tree(LOOKS, "--hosts", "2", "--processes", "1")
    give_to_the_user(tree)
    (tmp_path / "passwd").write_text(PASSWD)
    # Docker lets every user open low ports; other engines, and hosts without one, do not.
    rights = (*FEW, "--user", "1000:1000", "--sysctl", "net.ipv4.ip_unprivileged_port_start=1024")
    passwd = ("--volume", f"{tmp_path / 'passwd'}:/etc/passwd:ro")
    containers = []
    for host in ("algo-1", "algo-2"):
        containers.append(f"{network}-{host}")
        place = ("--name", containers[-1], "--network", network, "--network-alias", host)
        mount = ("--volume", f"{tree / host}:/opt/ml", "--hostname", host)
        started = docker("run", "--detach", *place, *mount, *rights, *passwd, image, "train")
        assert started.returncode == 0, started.stderr

    codes = docker("wait", *containers, timeout=180).stdout.split()

    logs = [docker("logs", container) for container in containers]
    assert codes == ["0", "0"], "".join(log.stdout + log.stderr for log in logs)[-5000:]
    assert "ranks 2 as 1000 2222 SSH-2.0 22 ConnectionRefusedError" in logs[0].stdout
