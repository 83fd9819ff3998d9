# SPDX-License-Identifier: Apache-2.0
"""Jobs over real sshd and mpirun in two containers, through docker/cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.image.engine import ROOT, Docker

pytestmark = pytest.mark.cluster

RAISES = """\
import time
from mpi4py import MPI
rank = MPI.COMM_WORLD.rank
print('rank', rank, 'of', MPI.COMM_WORLD.size, flush=True)
MPI.COMM_WORLD.barrier()
if rank == 3:
    raise RuntimeError('rank three has had enough')
time.sleep(600)
"""
WAITS = "print('waiting', flush=True)\nimport time\ntime.sleep(600)\n"


def cluster_command(image: str, *options: str | Path) -> list[str]:
    return [str(ROOT / "docker/cluster"), "run", "--image", image, *map(str, options)]


def run_cluster(image: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        cluster_command(image, *options), capture_output=True, text=True, timeout=400, check=False
    )


def script_folder(tmp_path: Path, script: str) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "script.py").write_text(script)
    return folder


def left_behind(docker: Docker, name: str) -> str:
    containers = docker("ps", "--all", "--quiet", "--filter", f"name={name}").stdout
    networks = docker("network", "ls", "--quiet", "--filter", f"name={name}").stdout
    return containers + networks


def digits_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "digits"
    folder.mkdir()
    sklearn = next((ROOT / ".venv/lib").glob("python3*/site-packages/sklearn/datasets/data"))
    shutil.copy(sklearn / "digits.csv.gz", folder)
    return folder


def test_digits_trains_on_two_hosts(image: str, tmp_path: Path) -> None:
    settings = '{"pipeline_parallel_degree": 2, "microbatches": 4, "ddp": true}'

    done = run_cluster(
        image,
        *("--hosts", "2", "--processes", "2", "--timeout", "300", "--tree", tmp_path / "job"),
        *("--code", ROOT / "examples/digits", "--program", "train.py"),
        *("--channel", f"train={digits_folder(tmp_path)}", "--mp-parameters", settings),
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    accuracy = re.findall(r"test accuracy ([\d.]+)%", done.stdout)
    assert accuracy, done.stdout[-5000:]
    assert float(accuracy[-1]) >= 95
    for host in ("algo-1", "algo-2"):
        assert (tmp_path / "job/tree" / host / "output/success").exists()
        assert f"{host} | " in done.stdout


def test_digits_trains_over_smddp_on_two_hosts(image: str, tmp_path: Path) -> None:
    """The published script for the backend, with a model and data, by the runner of its jobs."""
    runner = "sagemaker_distributed_dataparallel_enabled=true"
    processes = "sagemaker_mpi_num_of_processes_per_host=2"

    done = run_cluster(
        image,
        *("--hosts", "2", "--timeout", "300", "--tree", tmp_path / "job"),
        *("--code", ROOT / "examples/digits_ddp", "--program", "train.py"),
        *("--channel", f"train={digits_folder(tmp_path)}"),
        *("--hyperparameter", runner, "--hyperparameter", processes),
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    result = json.loads((tmp_path / "job/tree/algo-1/model/result.json").read_text())
    assert result["ranks"] == 4
    assert result["accuracy"] >= 0.95
    for host in ("algo-1", "algo-2"):
        assert (tmp_path / "job/tree" / host / "output/success").exists()


def test_an_exception_on_rank_3_is_the_failure_text_of_both_hosts(
    image: str, tmp_path: Path
) -> None:
    code = script_folder(tmp_path, RAISES)
    start = time.monotonic()

    done = run_cluster(
        image,
        *("--hosts", "2", "--processes", "2", "--timeout", "120", "--tree", tmp_path / "job"),
        *("--code", code, "--program", "script.py"),
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert time.monotonic() - start < 100, "the ranks that slept were not ended"
    for host in ("algo-1", "algo-2"):
        failure = (tmp_path / "job/tree" / host / "output/failure").read_text()
        assert "RuntimeError: rank three has had enough" in failure
        assert "ExitCode 1" in failure


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_and_leaves_nothing(
    docker: Docker, image: str, tmp_path: Path, number: signal.Signals
) -> None:
    code = script_folder(tmp_path, WAITS)
    options = ["--code", str(code), "--program", "script.py", "--env", f"SMP_MARK={tmp_path.name}"]
    job = subprocess.Popen(
        cluster_command(image, "--hosts", "2", *options), stdout=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    for line in job.stdout:
        if "waiting" in line:
            break
    name = docker("ps", "--filter", "label=smp.cluster", "--format", "{{.Names}}").stdout
    os.kill(job.pid, number)

    job.communicate(timeout=120)

    assert job.returncode == 128 + number
    prefix = name.splitlines()[0].rsplit("-algo-", 1)[0]
    assert left_behind(docker, prefix) == ""


def test_a_job_over_its_time_is_ended_with_124(image: str, tmp_path: Path) -> None:
    code = script_folder(tmp_path, WAITS)

    done = run_cluster(
        image, "--hosts", "2", "--timeout", "15", "--code", code, "--program", "script.py"
    )

    assert done.returncode == 124
    assert "no end within 15" in done.stderr
