# SPDX-License-Identifier: Apache-2.0
"""docker/cluster says which folders it cannot use, and speaks while it waits; with an engine that
only says yes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.documents.machine import in_namespace
from tests.image.engine import ROOT

YES = """\
#!/bin/bash
case "$1 $2" in
  "run "*)
    sleep "${TREE_SECONDS:-0}"
    for word; do
      [[ $word != *:/job ]] || mkdir --parents "${word%:/job}"/tree/algo-{1,2}/input/config
    done
    ;;
  "wait "*) printf '0\\n0\\n' ;;
  "network inspect") exit 1 ;;
esac
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "trees"
        self.tree.mkdir()
        self.program = folder / "programs" / "docker"
        self.program.parent.mkdir()
        self.program.write_text(YES)
        self.program.chmod(0o755)

    def run(self, *lines: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a job after these lines of shell, in a namespace of its own."""
        # Debian's docker comes before others on PATH.
        usual = Path("/usr/bin/docker")
        hidden = [f"mount --bind {self.program} {usual}"] if usual.exists() else []
        job = ("--program", "train.py", "--tree", self.tree / "job")
        path = f"{self.program.parent}:{os.environ['PATH']}"
        return subprocess.run(
            [*in_namespace(*hidden, *lines), ROOT / "docker/cluster", "run", *job],
            env=os.environ | {"PATH": path} | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_it_says_that_it_still_makes_the_trees(cluster: Cluster) -> None:
    done = cluster.run(TREE_SECONDS="6")

    assert done.returncode == 0, done.stderr
    assert done.stderr == "docker/cluster: making the job's trees: 5 s\n"


def test_a_folder_that_cannot_be_written_is_named(cluster: Cluster) -> None:
    tree = cluster.tree

    done = cluster.run(f"mount --bind {tree} {tree}", f"mount -o remount,bind,ro {tree}")

    assert done.returncode == 1
    assert done.stderr == (
        f"docker/cluster: {tree}/job: Read-only file system; "
        "give this user the folder (chown), or name another one with --tree\n"
    )


def test_a_disk_that_is_full_is_named(cluster: Cluster) -> None:
    # The disk takes the folders that the engine makes, and not one more.
    done = cluster.run(f"mount -t tmpfs -o nr_inodes=9 tmpfs {cluster.tree}")

    assert done.returncode == 1
    assert done.stderr.startswith(
        f"docker/cluster: {cluster.tree}/job/tree/algo-1/output: No space"
    )
    assert done.stderr.count("\n") == 1
