# SPDX-License-Identifier: Apache-2.0
"""Transformers' Trainer, which calls the library itself: training, evaluation, checkpoints, and
going on from one, on two partitions as in one process."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from launching import run_alone, run_mpi, together

HERE = Path(__file__).parent / "published"
RUNNER, SCRIPT = str(HERE / "run_as_cuda.py"), str(HERE / "trainer.py")
PACKAGES = Path(__file__).resolve().parents[2] / "build" / "trainer"
SETTINGS = json.dumps({"partitions": 2, "microbatches": 2, "ddp": True})


@pytest.fixture(scope="module")
def packages() -> str:
    """A folder with the packages of trainer.txt, from PyPI once."""
    wanted = HERE / "trainer.txt"
    stamp = PACKAGES / "sha256"
    total = hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != total:
        shutil.rmtree(PACKAGES, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target",
                   str(PACKAGES), "--requirement", str(wanted)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip() or "no output").splitlines()[-1]
            pytest.skip(f"{wanted.name} cannot be installed from PyPI: {last}")
        stamp.write_text(total)
    return str(PACKAGES)


def train(ranks: int, packages: str, out: Path, *options: str) -> list[dict[str, float]]:
    """Logs of the Trainer, by step."""
    # The Trainer's own state holds what torch.load has refused since 2.6 unless told otherwise.
    variables = {"SHIM": packages, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    if ranks > 1:
        variables |= {
            "SM_HP_MP_PARAMETERS": SETTINGS,
            "SM_FRAMEWORK_PARAMS": json.dumps({"sagemaker_mpi_enabled": True}),
        }
    words = (RUNNER, SCRIPT, "--out", str(out), *options)
    outcome = run_mpi(ranks, *words, **variables) if ranks > 1 else run_alone(*words, **variables)
    assert outcome.code == 0, outcome.output
    return json.loads((out / "results.json").read_text())


def values(log: list[dict[str, float]], key: str) -> list[float]:
    return [entry[key] for entry in log if key in entry]


def test_trainer_learns_on_two_partitions_as_in_one_process(packages: str, tmp_path: Path) -> None:
    alone, split = together(
        lambda: train(1, packages, tmp_path / "1"), lambda: train(2, packages, tmp_path / "2")
    )

    for key, count in (("loss", 16), ("eval_loss", 2)):
        assert values(split, key) == pytest.approx(values(alone, key), abs=2e-3), key
        assert len(values(split, key)) == count
    assert values(split, "loss")[-1] < values(split, "loss")[0] - 0.5
    assert values(split, "learning_rate") == values(alone, "learning_rate")
    whole, merged = (
        torch.load(tmp_path / one / "final/pytorch_model.bin", weights_only=True) for one in "12"
    )
    assert merged.keys() == whole.keys(), "anybody can load it"
    for name, value in whole.items():
        torch.testing.assert_close(merged[name], value, rtol=0, atol=2e-3)

    first = tmp_path / "2/checkpoint-8"
    assert {path.name for path in first.glob("optimizer.pt*")} == {
        "optimizer.pt_0",
        "optimizer.pt_1",
    }
    resumed = train(2, packages, tmp_path / "3", "--resume", str(first))

    assert values(resumed, "loss")[8:] == values(split, "loss")[8:], "goes on as if never stopped"
    assert values(resumed, "eval_loss") == values(split, "eval_loss")
