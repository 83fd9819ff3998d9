# SPDX-License-Identifier: Apache-2.0
"""Wheels for other versions of PyTorch and Python than .venv's: each is built, installed beside its
torch, and trains."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
from pairs import BIN, ROOT, Pair, default_pair, environment

JOB = Path(__file__).with_name("checkpoint_job.py")
# Tests of tests/mpi: the pipeline, sharded state, tensor parallelism, 16 bits, the backend.
TESTED = (
    "test_partition.py",
    "test_gathering.py",
    "test_masters.py",
    "test_optimizers.py",
    "test_checkpoints.py",
    "test_tensor_parallel.py",
    "test_smddp_ddp.py",
    "test_smddp_numbers.py",
)


def run(*command: str | Path, seconds: int = 900) -> str:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    kept |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        command, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, (
        f"{' '.join(map(str, command))}\n" + (done.stdout + done.stderr)[-4000:]
    )
    return done.stdout


@cache
def installed(pair: Pair) -> Path:
    """The interpreter of a pair, with our wheel for it; .venv's has what ci/build installs."""
    if pair == default_pair():
        return BIN / "python"
    words = ("--torch", pair.torch, "--python", pair.python)
    wheel = run(ROOT / "ci" / "wheel", *words, seconds=3600).split()[-1]
    python = environment(pair)
    uv = (BIN / "uv", "pip", "install", "--quiet", "--no-deps", "--reinstall")
    run(*uv, "--python", python, ROOT / wheel)
    return python


@pytest.fixture(autouse=True)
def _other_than_venv(request):
    if request.node.funcargs.get("pair") == default_pair():
        pytest.skip("all other tests are of this pair")


def test_it_is_the_pair_and_imports_nothing_of_another(pair):
    code = "import smddp, smdistributed.modelparallel.torch as smp, torch, sys; "
    code += "print(torch.__version__, *sys.version_info[:2], smp.__file__)"
    torch, major, minor, file = run(installed(pair), "-c", code).split()

    assert torch.startswith(f"{pair.torch}.")
    assert f"{major}.{minor}" == pair.python
    assert Path(file).is_relative_to(pair.folder)


def test_unit_tests_pass_against_its_torch(pair):
    if pair.torch == default_pair().torch:
        pytest.skip("those of build/release are against this torch")
    installed(pair)
    (folder,) = (ROOT / "build").glob(f"wheel-torch{pair.torch}*")
    run(BIN / "cmake", "-DSMP_DEVELOPER_MODE=ON", folder)
    run(BIN / "cmake", "--build", folder, "--target", "tests", seconds=3600)
    counted = run(BIN / "ctest", "--test-dir", folder, "--label-regex", "^unit$", "--parallel", "2")
    assert re.search(r"100% tests passed.* out of \d\d", counted)


def test_jobs_of_several_processes_pass(pair):
    tests = [f"tests/mpi/{name}" for name in TESTED]
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--thin", "10", "-m", "not long")
    said = run(installed(pair), *words, *tests, seconds=1800)
    assert re.search(r"\d\d passed", said)


@pytest.mark.parametrize(
    "config",
    ['{"partitions": 2}', '{"sharded_data_parallel_degree": 2}', '{"shard_optimizer_state": true}'],
)
def test_a_checkpoint_of_one_end_is_read_at_the_other(ends, config, tmp_path):
    writer, reader = ends
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2")
    saved = run(*mpirun, installed(writer), JOB, "save", config, tmp_path)
    loaded = run(*mpirun, installed(reader), JOB, "load", config, tmp_path)
    assert re.findall("digest .*", saved) == re.findall("digest .*", loaded) != []
