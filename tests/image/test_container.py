# SPDX-License-Identifier: Apache-2.0
"""Jobs in one container: PID 1, exit codes, marker files, rights."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.image.engine import Docker
from tests.image.jobs import MakeTree, wait_for_line

PRINTS = "import os, sys; print('ran', os.environ['SM_CURRENT_HOST'], sys.argv[1:])\n"
FAILS = "import sys; print('about to fail', file=sys.stderr); sys.exit(7)\n"
FILLS = """\
import os
with open(os.path.join(os.environ['SM_MODEL_DIR'], 'model.pt'), 'wb') as file:
    file.write(bytes(8 << 20))
"""
WAITS = """\
import os, signal, sys, time
def stop(number, frame):
    print('saw', number, flush=True)
    time.sleep(2)  # as saving a model takes its time
    with open(os.path.join(os.environ['SM_MODEL_DIR'], 'saved'), 'w') as file:
        file.write('whole')
    sys.exit(0 if sys.argv[1:] == ['--graceful', '1'] else 3)
signal.signal(signal.SIGTERM, stop)
print('waiting', flush=True)
while True:
    time.sleep(0.1)  # pause() would sleep through a signal that comes just before it
"""


# A network that leads nowhere, whose device counts what is sent into it. What a device says of
# itself when it comes up must not count: no IPv6, no ARP.
DEAD_END = """\
set -e
ip link add dead0 type veth peer name dead1
ip link set dead0 addrgenmode none
ip link set dead1 addrgenmode none
ip link set dead1 up
ip link set dead0 arp off up
ip address add 192.0.2.2/24 dev dead0
ip route add default via 192.0.2.1
echo the network is up
exec sleep infinity
"""
SENT = ("cat", "/sys/class/net/dead0/statistics/tx_packets")
IMPORTS = """\
import torch
import smdistributed.modelparallel.torch
import smdistributed.dataparallel.torch.torch_smddp
print("imported")
"""


@pytest.mark.parametrize("words", [["train"], []], ids=["the service's call", "no argument"])
def test_a_container_runs_its_job(
    docker: Docker, image: str, make_tree: MakeTree, words: list[str]
) -> None:
    tree = make_tree(PRINTS, "--hyperparameter", "epochs=3")

    done = docker("run", "--rm", "--network", "none", "--volume", f"{tree}:/opt/ml", image, *words)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ran algo-1 ['--epochs', '3']" in done.stdout
    assert (tree / "output" / "success").exists()


def test_a_failed_script_gives_exit_code_1_and_the_failure_file(
    docker: Docker, image: str, make_tree: MakeTree
) -> None:
    tree = make_tree(FAILS)

    done = docker("run", "--rm", "--volume", f"{tree}:/opt/ml", image, "train")

    assert done.returncode == 1
    failure = (tree / "output" / "failure").read_text()
    assert "ExitCode 7" in failure
    assert "about to fail" in failure


@pytest.mark.parametrize(
    ("options", "code", "init"),
    [(["--hyperparameter", "graceful=1"], 0, []), ([], 143, []), ([], 143, ["--init"])],
    ids=["ends well", "fails", "below an init"],
)
def test_stopping_the_container_reaches_the_script(
    docker: Docker,
    image: str,
    make_tree: MakeTree,
    container_name: str,
    options: list[str],
    code: int,
    init: list[str],
) -> None:
    tree = make_tree(WAITS, *options)
    run = ("run", "--detach", *init, "--name", container_name, "--volume", f"{tree}:/opt/ml")
    started = docker(*run, image, "train")
    assert started.returncode == 0, started.stderr
    wait_for_line(docker, container_name, "waiting")

    docker("stop", "--time", "30", container_name)

    assert "saw 15" in docker("logs", container_name).stdout
    assert docker("wait", container_name).stdout.strip() == str(code)
    # The job had the time that it took.
    assert (tree / "model" / "saved").read_text() == "whole"
    assert (tree / "output" / "success").exists() == (code == 0)
    failure = tree / "output" / "failure"
    assert failure.exists() == (code != 0)
    assert code == 0 or "asked to stop by SIGTERM" in failure.read_text()


def test_a_full_disk_under_the_model_is_the_failure_text(
    docker: Docker, image: str, make_tree: MakeTree
) -> None:
    tree = make_tree(FILLS)
    small = "type=tmpfs,destination=/opt/ml/model,tmpfs-size=1m"

    done = docker(
        *("run", "--rm", "--network", "none", "--volume", f"{tree}:/opt/ml"),
        *("--mount", small, image, "train"),
    )

    assert done.returncode == 1
    failure = (tree / "output" / "failure").read_text()
    assert "No space left on device" in failure.partition("Command")[0]


def test_without_any_network_a_job_starts_at_once(
    docker: Docker, image: str, make_tree: MakeTree
) -> None:
    tree = make_tree("import time\nprint('first line', time.time())\n")
    # A resolver that never answers: whoever asked it would wait for seconds.
    offline = ["--network", "none", "--dns", "192.0.2.1"]
    start = time.time()

    done = docker("run", "--rm", *offline, "--volume", f"{tree}:/opt/ml", image, "train")

    assert done.returncode == 0, done.stdout + done.stderr
    first = re.search(r"first line ([\d.]+)", done.stdout)
    assert first is not None
    # Resolvers wait for five seconds; starting a container takes one, and machines are busy.
    assert float(first[1]) - start < 5


def test_a_job_sends_nothing_that_it_was_not_told_to_send(
    docker: Docker, image: str, make_tree: MakeTree, container_name: str, tmp_path: Path
) -> None:
    """No telemetry: not one packet, where one query would be counted."""
    tree = make_tree(IMPORTS)
    resolver = "nameserver 192.0.2.1\noptions timeout:1 attempts:1\n"
    # A host knows its own name; `train` asks for no other one.
    for name, text in (("resolv.conf", resolver), ("hosts", "127.0.0.1 localhost algo-1\n")):
        (tmp_path / name).write_text(text)
    files = [f"--volume={tmp_path / name}:/etc/{name}:ro" for name in ("resolv.conf", "hosts")]
    alone = ("--detach", "--name", container_name, "--network", "none", "--cap-add", "NET_ADMIN")
    started = docker("run", *alone, image, "bash", "-c", DEAD_END)
    assert started.returncode == 0, started.stderr
    wait_for_line(docker, container_name, "the network is up")
    inside = ("run", "--rm", "--network", f"container:{container_name}", *files)

    job = docker(*inside, "--volume", f"{tree}:/opt/ml", image, "train")
    sent_by_job = docker("exec", container_name, *SENT).stdout
    query = docker(*inside, image, "getent", "ahosts", "example.com")
    sent_by_query = docker("exec", container_name, *SENT).stdout

    assert job.returncode == 0, job.stdout + job.stderr
    assert "imported" in job.stdout
    assert sent_by_job == "0\n"
    assert query.returncode != 0
    assert int(sent_by_query) > 0


def test_another_command_is_executed_and_its_exit_code_returned(docker: Docker, image: str) -> None:
    done = docker("run", "--rm", image, "bash", "-c", "echo hello; exit 5")

    assert (done.returncode, done.stdout) == (5, "hello\n")


def test_a_container_without_a_job_says_what_is_missing(docker: Docker, image: str) -> None:
    done = docker("run", "--rm", "--network", "none", image, "train")

    assert done.returncode == 1
    assert "resourceconfig.json" in done.stdout + done.stderr


def test_a_plan_starts_nothing(docker: Docker, image: str, make_tree: MakeTree) -> None:
    tree = make_tree(FAILS)

    done = docker("run", "--rm", "--volume", f"{tree}:/opt/ml:ro", image, "train", "--plan")

    assert done.returncode == 0, done.stderr
    assert "script.py" in done.stdout
    assert not (tree / "output" / "failure").exists()


def test_the_doctor_finds_the_image_s_parts(
    docker: Docker, image: str, make_tree: MakeTree
) -> None:
    tree = make_tree(PRINTS, "--processes", "2")
    run = ("run", "--rm", "--network", "none", "--volume", f"{tree}:/opt/ml", image)

    done = docker(*run, "train", "--doctor", "--json")

    report = json.loads(done.stdout)
    assert (done.returncode, report["healthy"]) == (0, True), report
    good = {row["subject"] for row in report["findings"] if row["health"] == "ok"}
    parts = {"python", "mpi4py", "mpirun", "ssh", "sshd", "ssh-keygen", "hostname shim", "torch"}
    assert good >= parts | {"config", "plan"}
    # NCCL is looked at where there is a GPU.
    assert not any(row["subject"] == "nccl" for row in report["findings"]), report
    # Docker's 64 MB, with the remedy.
    [memory] = [row for row in report["findings"] if row["subject"] == "/dev/shm"]
    assert memory["health"] == "warning"
    assert "--shm-size" in memory["remedy"]


def test_the_doctor_of_a_container_without_a_job_looks_at_the_container(
    docker: Docker, image: str
) -> None:
    done = docker("run", "--rm", "--network", "none", image, "train", "--doctor", "--json")

    report = json.loads(done.stdout)
    assert (done.returncode, report["healthy"]) == (0, True), report
    health = {row["subject"]: row["health"] for row in report["findings"]}
    assert (health["mpirun"], health["config"]) == ("ok", "ok"), report
