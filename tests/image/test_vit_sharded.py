# SPDX-License-Identifier: Apache-2.0
"""The example of sharded data parallelism on two hosts, and with all replicas whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.image.engine import train_example

STEPS = 40


@dataclass(frozen=True)
class Trained:
    losses: list[float]
    use: dict[str, int]  # bytes, by what they are used for


def train(image: str, tree: Path, **sharding: int | bool) -> Trained:
    printed = train_example(image, "vit_sharded", tree, {"ddp": True, **sharding}, {"steps": STEPS})
    losses = re.findall(r"step: \d+: step time is \S+ loss (\S+)", printed)
    memory = re.search(r"memory: \{(.*)\}", printed)
    assert memory is not None, printed[-5000:]
    use = {name: int(value) for name, value in re.findall(r"'(\w+)': (\d+)", memory[1])}
    return Trained([float(loss) for loss in losses], use)


def train_on_shards(image: str, tree: Path, degree: int) -> Trained:
    return train(
        image,
        tree,
        sharded_data_parallel_degree=degree,
        sdp_param_persistence_threshold=64,
        sdp_gradient_clipping=0,
    )


def check_learns(trained: Trained) -> None:
    assert len(trained.losses) == STEPS
    assert sum(trained.losses[-5:]) / 5 < trained.losses[0] - 0.4, trained.losses


@pytest.mark.cluster
@pytest.mark.long
def test_vision_transformer_learns_on_shards_of_two_hosts(
    image_with: Callable[..., str], tmp_path: Path
) -> None:
    image = image_with("transformers", "scikit-learn")

    check_learns(train_on_shards(image, tmp_path, degree=4))


@pytest.mark.cluster
@pytest.mark.long
def test_vision_transformer_learns_on_shards_what_whole_replicas_learn(
    image_with: Callable[..., str], tmp_path: Path
) -> None:
    image = image_with("transformers", "scikit-learn")

    between_hosts = train_on_shards(image, tmp_path / "degree4", degree=4)
    within_hosts = train_on_shards(image, tmp_path / "degree2", degree=2)

    whole = train(image, tmp_path / "whole")
    check_learns(whole)
    for sharded in (between_hosts, within_hosts):
        # 32 bits over 40 steps of Adam.
        assert sharded.losses == pytest.approx(whole.losses, abs=1e-2)
    # Hardly anything is persistent, so a shard of four is half of a shard of two.
    ratio = between_hosts.use["parameters"] / within_hosts.use["parameters"]
    assert ratio == pytest.approx(0.5, abs=0.02)
