# SPDX-License-Identifier: Apache-2.0
"""Processing jobs, and other commands under the hostname shim."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from jobs import Tree, make_trees


def a_processing_tree(folder: Path) -> Tree:
    """As the service lays it out: no input/config, no code."""
    tree = Tree(folder / "opt_ml")
    (tree.base / "config").mkdir(parents=True)
    (tree.base / "output").mkdir()
    (tree.base / "config/resourceconfig.json").write_text(
        json.dumps(
            {
                "hosts": ["algo-2", "algo-1"],
                "network_interface_name": "eth0",
                "current_instance_type": "ml.m5.xlarge",
                "current_host": "algo-2",
            }
        )
    )
    (tree.base / "config/processingjobconfig.json").write_text(
        json.dumps({"ProcessingJobName": "p", "AppSpecification": {"ImageUri": "i"}})
    )
    code = tree.base / "processing/input/code"
    code.mkdir(parents=True)
    (code / "process.py").write_text(
        "import os, socket, sys\n"
        "print(socket.gethostname(), os.uname().nodename, sys.argv[1:], os.getcwd())\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    entrypoint = tree.base / "processing/input/entrypoint"
    entrypoint.mkdir()
    (entrypoint / "runproc.sh").write_text(
        f'#!/bin/bash\nset -e\ncd {code}\npython3 process.py "$@"\n'
    )
    return tree


def test_a_processing_job_runs_its_own_entrypoint_under_the_jobs_host_name(folder, run):
    tree = a_processing_tree(folder)
    script = str(tree.base / "processing/input/entrypoint/runproc.sh")

    result = run(tree, "/bin/bash", script, "a b", "0")

    code = tree.base / "processing/input/code"
    assert (result.code, result.out) == (0, f"algo-2 algo-2 ['a b', '0'] {code}\n")
    assert not tree.succeeded  # markers belong to training
    assert not tree.failed


def test_a_processing_jobs_exit_code_is_its_own(folder, run):
    tree = a_processing_tree(folder)
    script = str(tree.base / "processing/input/entrypoint/runproc.sh")

    assert run(tree, "/bin/bash", script, "x", "7").code == 7
    assert not tree.failed
    assert run(tree, "sh", "-c", "kill -KILL $$").code == -signal.SIGKILL
    assert "ExitCode" not in run(tree, "false").err


def test_complaint_20_a_config_of_many_thousand_hosts_is_read_whole(folder, run):
    """Its `current_host` stands last, behind some 700 KB of other hosts."""
    [tree] = make_trees(folder, "")
    hosts = [f"algo-{number + 1}" for number in range(50_000)]
    (tree.base / "input/config/resourceconfig.json").write_text(
        json.dumps({"hosts": hosts, "current_host": "algo-50000"})
    )

    script = "import socket; print(socket.gethostname())"
    assert run(tree, "python3", "-c", script).out == "algo-50000\n"


def test_threads_that_ask_at_once_all_learn_the_same_name(folder, run):
    [tree] = make_trees(folder, "")
    script = (
        "import socket, threading\n"
        "names, gate = [], threading.Barrier(16)\n"
        "def ask():\n"
        "    gate.wait()\n"
        "    names.append(socket.gethostname())\n"
        "threads = [threading.Thread(target=ask) for _ in range(16)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(set(names))\n"
    )

    for _ in range(10):
        assert run(tree, "python3", "-c", script).out == "{'algo-1'}\n"
