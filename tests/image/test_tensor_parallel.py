# SPDX-License-Identifier: Apache-2.0
"""The example of tensor parallelism on two hosts, and beside one process."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.image.engine import ROOT


def losses_of(output: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"step \d+: mean loss (\S+)", output)]


def train(image: str, tree: Path, hosts: int, processes: int, degree: int) -> list[float]:
    settings = {"ddp": True, "tensor_parallel_degree": degree}
    small = {"steps": "30", "length": "24", "width": "32", "batch": "8"}
    hyperparameters = [
        word for name, value in small.items() for word in ("--hyperparameter", f"{name}={value}")
    ]
    done = subprocess.run(
        [
            *(ROOT / "docker/cluster", "run", "--image", image, "--tree", tree),
            *("--hosts", str(hosts), "--processes", str(processes), "--timeout", "300"),
            *("--code", ROOT / "examples/gpt2_tensor_parallel", "--program", "train.py"),
            *("--mp-parameters", json.dumps(settings), *hyperparameters),
        ],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    return losses_of(done.stdout)


@pytest.mark.long
def test_gpt2_learns_on_two_hosts_what_one_process_learns(
    image_with: Callable[..., str], tmp_path: Path
) -> None:
    image = image_with("transformers")

    split = train(image, tmp_path / "split", hosts=2, processes=2, degree=2)

    alone = train(image, tmp_path / "alone", hosts=1, processes=1, degree=1)
    assert len(split) == len(alone) == 30
    assert split == pytest.approx(alone, abs=2e-4)  # 32 bits over thirty steps
    assert sum(split[-5:]) / 5 < split[0] - 1.5, split
