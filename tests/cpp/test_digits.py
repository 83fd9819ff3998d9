# SPDX-License-Identifier: Apache-2.0
"""examples/digits_cpp against the Python job of the same model: in one process and in four."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path

import pytest
import sklearn.datasets

from tests.cpp.commands import BUILD, HERE, succeed

EXAMPLE = HERE.parents[1] / "examples/digits_cpp"
EPOCHS = 2
FOUR = {
    "microbatches": 4,
    "pipeline_parallel_degree": 2,
    "ddp": True,
    "deterministic_server": True,
}


@pytest.fixture(scope="module")
def program(installed, torch_folder, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    succeed(
        "cmake", "-S", EXAMPLE, "-B", folder, "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={installed}", f"-DSMP_TORCH_DIR={torch_folder}",
    )  # fmt: skip
    succeed("cmake", "--build", folder)
    return folder / "digits"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    packed = Path(sklearn.datasets.__path__[0]) / "data/digits.csv.gz"
    folder.joinpath("digits.csv").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def train(folder: Path, code: Path, name: str, data: Path, settings: dict[str, object]) -> Path:
    """Runs a job by the launcher and returns the folder of its results."""
    job = folder / f"job_{name.replace('.', '_')}"
    processes = ("--processes", 4) if "ddp" in settings else ()
    succeed(
        BUILD / "bin/train", "--make-tree", job, "--code", code, "--program", name,
        "--channel", f"train={data}", "--hyperparameter", f"epochs={EPOCHS}", *processes,
        "--mp-parameters", json.dumps(settings),
    )  # fmt: skip
    succeed(
        BUILD / "bin/train",
        SAGEMAKER_BASE_DIR=str(job),
        PYTHONPATH=str(BUILD / "python"),
        SM_LAUNCH_PYTHON=sys.executable,
        OMP_NUM_THREADS="1",
    )
    return job / "output/data"


SETTINGS = {
    "one": {"microbatches": 4},
    "four": FOUR,
    "bf16": {"microbatches": 4, "bf16": True},
    "four_bf16": {**FOUR, "bf16": True, "shard_optimizer_state": True},
    "shards": {
        "microbatches": 2,
        "ddp": True,
        "sharded_data_parallel_degree": 2,
        "sdp_param_persistence_threshold": 100,
        "bf16": True,
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_losses_are_those_of_the_python_job_to_the_bit(program, data, tmp_path, settings):
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(program, code / "digits")
    shutil.copy(HERE / "digits.py", code)

    ours = train(tmp_path, code, "digits", data, settings) / "curve.txt"
    theirs = train(tmp_path, code, "digits.py", data, settings) / "curve0.txt"

    losses = ours.read_text().split()
    assert losses == theirs.read_text().split()
    assert len(losses) == EPOCHS * 22
    assert float(losses[-1]) < 0.8 * float(losses[0])


def test_the_program_has_no_python_in_it(program):
    assert "libpython" not in succeed("ldd", program)
