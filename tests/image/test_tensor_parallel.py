# SPDX-License-Identifier: Apache-2.0
"""The example of tensor parallelism on two hosts, and beside one process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.image.engine import train_example


def train(image: str, tree: Path, degree: int, *, hosts: int, processes: int) -> list[float]:
    printed = train_example(
        image,
        "gpt2_tensor_parallel",
        tree,
        {"ddp": True, "tensor_parallel_degree": degree},
        {"steps": 30, "length": 24, "width": 32, "batch": 8},
        hosts=hosts,
        processes=processes,
    )
    return [float(loss) for loss in re.findall(r"step \d+: mean loss (\S+)", printed)]


@pytest.mark.long
def test_gpt2_learns_on_two_hosts_what_one_process_learns(
    image_with: Callable[..., str], tmp_path: Path
) -> None:
    image = image_with("transformers")

    split = train(image, tmp_path / "split", degree=2, hosts=2, processes=2)

    alone = train(image, tmp_path / "alone", degree=1, hosts=1, processes=1)
    assert len(split) == len(alone) == 30
    assert split == pytest.approx(alone, abs=2e-4)  # 32 bits over thirty steps
    assert sum(split[-5:]) / 5 < split[0] - 1.5, split
