# SPDX-License-Identifier: Apache-2.0
"""A host of a job on several that fails before any rank starts: the others learn why, at once."""

from __future__ import annotations

import sys
from pathlib import Path

import cluster
import pytest
from cluster import Cluster
from jobs import Result, make_trees

pytestmark = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")

OFFLINE = {
    "SM_LAUNCH_PYTHON": sys.executable,
    "PIP_NO_INDEX": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
CAUSE = "No matching distribution found for no-such-package-anywhere"


def hosts_whose_installation_fails_on(folder: Path, *failing: str, hosts: int = 2) -> Cluster:
    trees = make_trees(
        folder, "print('ran')", hosts=hosts, processes=1, files={"requirements.txt": ""}
    )
    for name in failing:
        tree = trees[int(name.removeprefix("algo-")) - 1]
        (tree.base / "code" / "requirements.txt").write_text("no-such-package-anywhere\n")
    return Cluster(folder, trees)


def assert_all_tell_the_cause(results: list[Result]) -> None:
    for result in results:
        assert result.code == 1, result.err
        assert result.tree.failure.startswith("InstallRequirementsError:\nExitCode 1\n")
        assert CAUSE in result.tree.failure
        assert "ran" not in result.out
        assert not result.tree.succeeded


def test_the_master_learns_why_its_worker_failed(folder):
    """Either would wait out the job's limit of fifteen minutes if it did not."""
    with hosts_whose_installation_fails_on(folder, "algo-2") as hosts:
        results = hosts.run(**OFFLINE)

    assert_all_tell_the_cause(results)
    assert "So says host algo-2; no rank of the job has started." in results[0].tree.failure
    assert "algo-2 failed before any rank could start" in results[0].err


def test_a_worker_learns_why_its_master_failed(folder):
    with hosts_whose_installation_fails_on(folder, "algo-1") as hosts:
        results = hosts.run(**OFFLINE)

    assert_all_tell_the_cause(results)
    assert "The master failed before any rank could start" in results[1].err


def test_hosts_that_fail_alike_wait_for_nobody(folder):
    with hosts_whose_installation_fails_on(folder, "algo-1", "algo-2") as hosts:
        results = hosts.run(**OFFLINE)

    assert_all_tell_the_cause(results)
    assert "was not told" not in results[0].err + results[1].err


def test_a_third_host_that_is_ready_learns_why_the_second_failed(folder):
    with hosts_whose_installation_fails_on(folder, "algo-2", hosts=3) as hosts:
        results = hosts.run(**OFFLINE)

    assert_all_tell_the_cause(results)
