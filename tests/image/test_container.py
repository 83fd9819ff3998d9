# SPDX-License-Identifier: Apache-2.0
"""Jobs in one container: PID 1, exit codes, marker files, rights."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.image.engine import Docker

MakeTree = Callable[..., Path]

PRINTS = "import os, sys; print('ran', os.environ['SM_CURRENT_HOST'], sys.argv[1:])\n"
FAILS = "import sys; print('about to fail', file=sys.stderr); sys.exit(7)\n"
FILLS = """\
import os
with open(os.path.join(os.environ['SM_MODEL_DIR'], 'model.pt'), 'wb') as file:
    file.write(bytes(8 << 20))
"""
WAITS = """\
import signal, sys, time
def stop(number, frame):
    print('saw', number, flush=True)
    sys.exit(0 if sys.argv[1:] == ['--graceful', '1'] else 3)
signal.signal(signal.SIGTERM, stop)
print('waiting', flush=True)
while True:
    time.sleep(0.1)  # pause() would sleep through a signal that comes just before it
"""


@pytest.fixture
def make_tree(docker: Docker, image: str, tmp_path: Path) -> MakeTree:
    """Writes a job's tree for one host, with the image's own launcher."""

    def make(script: str, *options: str) -> Path:
        (tmp_path / "source").mkdir()
        (tmp_path / "source" / "script.py").write_text(script)
        words = ["--make-tree", "/job/opt_ml", "--code", "/job/source", "--program", "script.py"]
        mount = f"{tmp_path}:/job"
        made = docker("run", "--rm", "--volume", mount, image, *words, *options)
        assert made.returncode == 0, made.stderr
        return tmp_path / "opt_ml"

    return make


def wait_for_line(docker: Docker, container: str, line: str) -> None:
    deadline = time.monotonic() + 60
    while line not in docker("logs", container).stdout:
        assert time.monotonic() < deadline, f"{container} never printed {line!r}"
        time.sleep(0.05)


def test_the_service_s_call_runs_the_job(docker: Docker, image: str, make_tree: MakeTree) -> None:
    tree = make_tree(PRINTS, "--hyperparameter", "epochs=3")

    done = docker("run", "--rm", "--network", "none", "--volume", f"{tree}:/opt/ml", image, "train")

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


@pytest.mark.parametrize(("options", "code"), [(["--hyperparameter", "graceful=1"], 0), ([], 143)])
def test_stopping_the_container_reaches_the_script(
    docker: Docker,
    image: str,
    make_tree: MakeTree,
    container_name: str,
    options: list[str],
    code: int,
) -> None:
    tree = make_tree(WAITS, *options)
    mount = f"{tree}:/opt/ml"
    docker("run", "--detach", "--name", container_name, "--volume", mount, image, "train")
    wait_for_line(docker, container_name, "waiting")

    docker("stop", "--time", "30", container_name)

    assert "saw 15" in docker("logs", container_name).stdout
    assert docker("wait", container_name).stdout.strip() == str(code)


def test_an_ordinary_user_on_a_read_only_root_can_run_a_job(
    docker: Docker, image: str, make_tree: MakeTree
) -> None:
    tree = make_tree(PRINTS)
    for path in [tree, *tree.rglob("*")]:
        os.chown(path, 1000, 1000)
    rights = ["--user", "1000", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    mount = f"{tree}:/opt/ml"

    done = docker("run", "--rm", "--network", "none", *rights, "--volume", mount, image, "train")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ran algo-1" in done.stdout


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
