# SPDX-License-Identifier: Apache-2.0
"""The report at a job's end: of a script without smp, of one that fails, of two hosts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import cluster
import pytest
from cluster import two_hosts
from jobs import ROOT, job_environment, make_trees, train_binary
from runners import ALL_REDUCE_SMDDP, SMDDP, processes

from tests.free_port import free_port

pytestmark = pytest.mark.usefixtures("warm_scripts")

# The record of a rank of smp: 20 steps of 100 ms.
RECORDING = """
import json, os, pathlib
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
columns = ["step", "steps", "trained", "samples", "begin_us", "total_us", "forward_us"]
header = {"format": 1, "rank": rank, "first_rank": rank // 2 * 2, "job": "one",
          "host": os.environ["SM_CURRENT_HOST"], "columns": columns}
lines = [header, {"job": {"ranks": 4}}]
lines += [[step, 1, 1, 8, 1000, 100_000, 90_000] for step in range(1, 21)]
folder = pathlib.Path(os.environ["SMP_RECORDS"])
folder.mkdir(parents=True, exist_ok=True)
text = "".join(json.dumps(line) + "\\n" for line in lines)
(folder / f"rank-{rank}.jsonl").write_text(text)
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
"""


# Runs a job that is held up by the activity that the next word names.
BOUNDED = (ROOT / "tests" / "mpi" / "jobs" / "bounded.py").read_text()
needs_hosts = pytest.mark.skipif(bool(cluster.lacks()), reason=cluster.lacks() or "all there")


def report_of(page: Path) -> dict[str, Any]:
    found = re.search(r'id="job">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def test_a_script_without_smp_shows_its_host(folder, run):
    [tree] = make_trees(folder, "import time\ntime.sleep(1.5)\n")

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    page = tree.base / "output" / "data" / "report.html"
    assert f"The report of the job: {page}" in result.err
    report = report_of(page)
    assert "the script does not use smp" in report["findings"][0]["text"]
    assert report["card"]["hosts"] == ["algo-1"]


def test_a_script_without_smp_shows_the_steps_that_it_prints(folder, run):
    script = """
        import time
        for step in range(1, 9):
            time.sleep(0.25)
            print(f"step {step}: loss {2 / step:.4f}", flush=True)
    """
    [tree] = make_trees(folder, script)

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    report = report_of(tree.base / "output" / "data" / "report.html")
    assert report["findings"][0]["text"] in result.err
    assert "algo-1's output tells of 8 steps" in report["findings"][0]["text"]
    assert [1, 2.0, True] in report["losses"]
    assert 200 < report["card"]["p50_ms"] < 2000


def test_groups_of_smddp_tell_what_they_sent(folder, run):
    [tree] = make_trees(folder, ALL_REDUCE_SMDDP, hyperparameter=[*SMDDP, processes(2)])

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    report = report_of(tree.base / "output" / "data" / "report.html")
    # Half of one float32, twice, from each rank to the other.
    assert [pair[:4] for pair in report["traffic"]] == [[0, 1, 4, 1], [1, 0, 4, 1]]


def test_nothing_is_written_where_none_is_wanted(folder, run):
    [tree] = make_trees(folder, "")

    assert run(tree, MASTER_PORT=free_port(), SM_LAUNCH_REPORT="0").code == 0
    assert list((tree.base / "output" / "data").iterdir()) == []


def test_of_a_job_that_failed_the_cause_comes_first(folder, run):
    [tree] = make_trees(folder, "import time\ntime.sleep(1.2)\nraise ValueError('<b>late</b>')\n")

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 1
    report = report_of(tree.base / "output" / "data" / "report.html")
    assert report["findings"][0]["rule"] == "failed"
    assert "ValueError: <b>late</b>" in report["end"]["failure"]
    assert any("ValueError" in line for line in report["end"]["last_lines"])


def test_lines_that_cloudwatch_reads_bear_no_rank(folder, run):
    script = """
        import os
        rank = os.environ["OMPI_COMM_WORLD_RANK"]
        print('{"_aws": {}, "rank": %s}' % rank, flush=True)
        print("rank", rank, flush=True)
    """
    [tree] = make_trees(folder, script, processes=2)

    result = run(tree, MASTER_PORT=free_port())

    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert {'{"_aws": {}, "rank": 0}', '{"_aws": {}, "rank": 1}'} < set(lines)
    assert "[1,mpirank:1,algo-1]<stdout>:rank 1" in lines


def train(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [train_binary(), *map(str, words)],
        env=job_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_writes_it_again(folder, run):
    [tree] = make_trees(folder, "import time\ntime.sleep(1.2)\n")
    assert run(tree, MASTER_PORT=free_port()).code == 0
    page = folder / "again.html"

    done = train("--report", tree.base, "--output", page)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{page}\n")
    assert report_of(page)["card"]["hosts"] == ["algo-1"]

    nothing = train("--report", folder / "nowhere")
    assert nothing.returncode == 1
    assert "no records of a job in" in nothing.stderr


@needs_hosts
def test_two_hosts_are_in_one_report(folder):
    with two_hosts(folder, RECORDING) as hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err
    report = report_of(results[0].tree.base / "output" / "data" / "report.html")
    assert report["problems"] == [], results[0].err
    assert report["card"]["hosts"] == ["algo-1", "algo-2"]
    assert [rank["host"] for rank in report["ranks"]] == ["algo-1"] * 2 + ["algo-2"] * 2
    assert not (results[1].tree.base / "output" / "data" / "report.html").exists()


@needs_hosts
def test_a_slow_link_is_what_holds_the_job_up(folder):
    hosts = two_hosts(folder, BOUNDED.replace("sys.argv[1:]", '["network"]'), processes=1)
    hosts.rate_mbit = 200
    with hosts:
        results = hosts.run()

    assert [result.code for result in results] == [0, 0], results[0].err
    report = report_of(results[0].tree.base / "output" / "data" / "report.html")
    assert report["findings"][0]["rule"] == "network", report["findings"]
    assert "of the time ranks wait for each other's bytes" in results[0].err


@needs_hosts
def test_a_killed_host_is_named_in_the_report(folder):
    with two_hosts(folder) as hosts:
        master, worker = hosts.start_all()
        master.wait_for_line("up", times=4)

        os.kill(worker.pid_of_train(), signal.SIGKILL)

        result = master.finish()
    assert result.code == 1
    report = report_of(result.tree.base / "output" / "data" / "report.html")
    assert report["findings"][0]["rule"] == "failed"
    assert "algo-2" in report["findings"][0]["text"]
