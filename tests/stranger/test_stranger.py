# SPDX-License-Identifier: Apache-2.0
"""Our wheel in somebody else's image: by our launcher, by Amazon's, and by that through ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("train.py")
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
BACKEND = """
import os, torch, torch.distributed as d, smddp
d.init_process_group("smddp")
x = torch.full((1 << 16,), float(d.get_rank() + 1)); d.all_reduce(x)
print("sum", x[0].item(), x[-1].item())
d.destroy_process_group()
"""


@pytest.fixture
def job(tmp_path) -> Path:
    """A tree as the service makes it, of one host with two processes."""
    tree = tmp_path / "opt_ml"
    (tree / "input/config").mkdir(parents=True)
    for folder in ("model", "output", "code"):
        (tree / folder).mkdir()
    (tree / "code/train.py").write_text(SCRIPT.read_text())
    settings = {"sagemaker_program": '"train.py"', "sagemaker_submit_directory": '"/opt/ml/code"'}
    hyperparameters = {"scale": "0.5"} | settings | MPI
    hosts = {"current_host": "localhost", "hosts": ["localhost"], "network_interface_name": "lo"}
    for name, value in (("hyperparameters", hyperparameters), ("resourceconfig", hosts),
                        ("inputdataconfig", {})):  # fmt: skip
        (tree / "input/config" / f"{name}.json").write_text(json.dumps(value))
    return tree


def expect_trained(done, job: Path) -> None:
    out = done.stdout + done.stderr
    assert done.returncode == 0, out[-4000:]
    assert re.search(r"torch 2\.10\..*, size 2, loss 0\.\d+", out), out[-4000:]
    assert (job / "model/done").read_text() == re.search(r"loss (0\.\d+)", out)[1]


def test_our_launcher_starts_its_mpirun(image, job):
    done = image(job, "smp-train")

    expect_trained(done, job)
    assert (job / "output/success").exists()


def test_amazons_launcher_starts_scripts_with_our_library(image, job):
    done = image(job, "train")

    expect_trained(done, job)
    assert "sagemaker-training-toolkit" in done.stdout + done.stderr


def test_amazons_launcher_hands_over_to_ours(image, job):
    done = image(job, "train", SAGEMAKER_TRAINING_MODULE="smdistributed.training:main")

    expect_trained(done, job)


def test_a_failure_says_why(image, job):
    (job / "code/train.py").write_text("raise ValueError('no such column: price')\n")
    done = image(job, "smp-train")

    assert done.returncode != 0
    assert "no such column: price" in (job / "output/failure").read_text()


def test_the_backend_finds_the_images_libfabric_without_being_told(image, job):
    (job / "code/sum.py").write_text(BACKEND)
    python = ("python", "/opt/ml/code/sum.py")
    # A PID namespace makes a host of its own of the second rank.
    other = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *python)
    words = ("mpirun", "--bind-to", "none", "-np", "1", *python, ":", "-np", "1", *other)
    done = image(job, *words, LD_LIBRARY_PATH="/opt/amazon/openmpi/lib")

    assert done.stdout.splitlines() == ["sum 3.0 3.0"] * 2, done.stderr[-3000:]
