# SPDX-License-Identifier: Apache-2.0
"""docker/cluster beyond `run`: plan, detached runs, drills, limits, and the compose file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker

pytestmark = pytest.mark.cluster
Run = Callable[..., "subprocess.CompletedProcess[str]"]

WAITS = "print('waiting', flush=True)\nimport time\ntime.sleep(600)\n"
LIMITS = """\
import os, pathlib
shm = os.statvfs('/dev/shm')
print('shm', shm.f_frsize * shm.f_blocks)
for path in ('/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory.max'):
    if pathlib.Path(path).exists():
        print('memory', pathlib.Path(path).read_text().strip())
print('color', os.environ['COLOR'])
"""


def cluster(*words: str | Path, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "docker/cluster"), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "script.py").write_text(WAITS)
    return folder


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a cluster, which is taken down whatever happens."""
    chosen = f"smp-test-{uuid.uuid4().hex[:8]}"
    yield chosen
    cluster("down", chosen)


def test_a_plan_shows_both_hosts_and_starts_nothing(docker: Docker, image: str, code: Path) -> None:
    script = ("--code", code, "--program", "script.py", "--processes", "2")

    done = cluster("plan", "--json", "--image", image, *script)

    assert done.returncode == 0, done.stderr
    decoder, rest, plans = json.JSONDecoder(), done.stdout.strip(), []
    while rest:
        plan, end = decoder.raw_decode(rest)
        plans.append(plan)
        rest = rest[end:].strip()
    assert len(plans) == 2
    assert "waiting" not in done.stdout
    assert "--shm-size" in done.stderr
    assert docker("network", "ls", "--quiet", "--filter", "name=smp-test").stdout == ""


def test_a_detached_run_is_followed_and_taken_down(
    docker: Docker, image: str, code: Path, name: str
) -> None:
    script = ("--code", code, "--program", "script.py")
    started = cluster("run", "--detach", "--name", name, "--image", image, *script)
    assert (started.returncode, started.stdout) == (0, name + "\n"), started.stderr
    deadline = time.monotonic() + 60
    while cluster("logs", name).stdout.count("| waiting") < 2:
        assert time.monotonic() < deadline, cluster("logs", name).stdout[-2000:]
        time.sleep(0.2)

    again = cluster("run", "--detach", "--name", name, "--image", image, *script)
    one_host = cluster("logs", name, "--host", "algo-2").stdout
    removed = cluster("down", name)

    assert "is there already" in again.stderr
    assert "algo-2 | waiting" in one_host
    assert "algo-1 |" not in one_host
    # SIGTERM, and the script did not end with 0.
    assert removed.returncode == 143, removed.stdout + removed.stderr
    assert f"removed {name}" in removed.stdout
    assert docker("ps", "--all", "--quiet", "--filter", f"name={name}").stdout == ""
    assert docker("network", "ls", "--quiet", "--filter", f"name={name}").stdout == ""
    assert f"no cluster {name}" in cluster("logs", name).stderr


def test_a_host_that_is_killed_ends_the_job_and_is_named(
    image: str, code: Path, tmp_path: Path
) -> None:
    start = time.monotonic()

    done = cluster(
        *("run", "--image", image, "--code", code, "--program", "script.py"),
        *("--processes", "1", "--tree", tmp_path / "job", "--timeout", "2m"),
        *("--kill", "algo-2", "--after", "6s"),
    )

    assert done.returncode == 1, done.stdout[-3000:]
    assert "sent KILL to algo-2" in done.stderr
    assert "algo-2 ended with exit code 137" in done.stdout
    assert time.monotonic() - start < 90
    failure = (tmp_path / "job/tree/algo-1/output/failure").read_text()
    assert "algo-2" in failure


def test_containers_get_the_limits_that_were_asked_for(image: str, code: Path) -> None:
    (code / "script.py").write_text(LIMITS)

    done = cluster(
        *("run", "--hosts", "1", "--image", image, "--code", code, "--program", "script.py"),
        *("--shm-size", "96m", "--memory", "3g", "--env", "COLOR=blue"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"shm {96 << 20}" in done.stdout
    assert f"memory {3 << 30}" in done.stdout
    assert "color blue" in done.stdout


def test_the_engine_is_told_of_every_limit_and_of_the_time_to_stop(
    docker: Docker, image: str, code: Path, name: str
) -> None:
    script = ("--code", code, "--program", "script.py")
    limits = ("--cpus", "1.5", "--memory", "2g", "--pids", "500", "--ulimit", "nofile=4096")

    started = cluster("run", "--detach", "--name", name, "--image", image, *limits, *script)

    assert started.returncode == 0, started.stderr
    containers = docker("ps", "--all", "--quiet", "--filter", f"name={name}").stdout.split()
    found = json.loads(docker("inspect", *containers).stdout)
    assert len(found) == 2
    for container in found:
        host = container["HostConfig"]
        assert host["NanoCpus"] == 1_500_000_000
        assert host["Memory"] == host["MemorySwap"] == 2 << 30
        assert host["PidsLimit"] == 500
        assert host["Ulimits"] == [{"Name": "nofile", "Hard": 4096, "Soft": 4096}]
        assert host["ShmSize"] >= 1 << 30
        # As the service has it; Docker's own 10 s are too few to save a model.
        assert container["Config"]["StopTimeout"] == 120


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--hosts", "0"], "at least one"),
        (["--kill", "algo-3"], "the hosts are algo-1 algo-2"),
        (["--kill", "algo-2", "--detach"], "leave --detach out"),
        (["--code", "/nowhere", "--program", "x.py"], "/nowhere: No such file"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    image: str, words: list[str], complaint: str
) -> None:
    done = cluster("run", "--image", image, *words)

    assert done.returncode == 1
    assert complaint in done.stderr


def compose_program() -> list[str]:
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]):
            asked = subprocess.run([*words, "version"], capture_output=True, check=False)
            if asked.returncode == 0:
                return words
    pytest.skip("neither docker compose nor docker-compose is installed")


def test_the_compose_file_runs_two_hosts(docker: Docker, image: str, code: Path) -> None:
    compose = compose_program()
    (code / "script.py").write_text("import os\nprint('ran on', os.environ['SM_CURRENT_HOST'])\n")
    project = f"smptest{uuid.uuid4().hex[:8]}"
    words = ["--make-tree", "/job/tree", "--hosts", "2", "--code", "/job/source"]
    mount = f"{code.parent}:/job"
    made = docker(
        *("run", "--rm", "--network", "none", "--volume", mount, image, "train", *words),
        *("--program", "script.py", "--processes", "1"),
    )
    assert made.returncode == 0, made.stderr
    found = subprocess.run([ROOT / "ci/engine", "env"], capture_output=True, text=True, check=True)
    variable, _, value = found.stdout.strip().partition("=")
    tree = str(code.parent / "tree")
    environment = os.environ | {variable: value, "SMP_TREE": tree, "SMP_IMAGE": image}
    command = [*compose, "--file", "docker/compose.yaml", "--project-name", project]

    try:
        done = subprocess.run(
            [*command, "up", "--exit-code-from", "algo-1"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    finally:
        subprocess.run([*command, "down"], cwd=ROOT, env=environment, check=False, timeout=200)

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "ran on algo-1" in done.stdout
    assert "ran on algo-2" in done.stdout
